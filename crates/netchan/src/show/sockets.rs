//! The sockets of each shard, as `netchan show sockets` has them: in the words of ss(8), with what tcp(7)'s `TCP_INFO` tells.

use std::{net::SocketAddr, time::Duration};

use proto::{
    tcp::{Info, State},
    time::Instant,
};
use serde_json::{Value, json};

use super::look::Look;
use crate::{
    flow::FlowKey,
    shard::{Shard, TcpSocket},
    stack::Stack,
};

/// All of them; packet channels come last.
pub(crate) fn rows(stack: &Stack, look: &Look<'_>, now: Instant) -> Vec<Value> {
    let mut rows = Vec::new();
    for number in 0..stack.sockets.cells.len() {
        match look.shard(number, |held| of_shard(&held.shard, now)) {
            Ok(seen) => rows.extend(seen.iter().map(|socket| socket.row(number, now))),
            Err(busy) => rows.push(busy.row("shard", json!(number))),
        }
    }
    rows.extend(stack.packet_channels().iter().map(|channel| {
        json!({
            "protocol": channel.protocol().to_string(), "shard": null, "state": "UNCONN",
            "local": "*", "remote": null,
            "receive_datagrams": channel.depth(), "dropped_datagrams": channel.drops(),
        })
    }));
    rows
}

/// What is taken down of a socket while its shard is held. Its text is made afterwards: packets do not wait for that.
#[allow(
    clippy::large_enum_variant,
    reason = "almost all of them are connections"
)]
enum Seen {
    Listener {
        local: SocketAddr,
        ready: usize,
        embryos: usize,
        backlog: usize,
    },
    Connection {
        key: FlowKey,
        readable: u32,
        queued: usize,
        info: Info,
    },
    TimeWait(FlowKey, State),
    Datagrams {
        protocol: &'static str,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        depth: usize,
    },
}

fn of_shard(shard: &Shard, now: Instant) -> Vec<Seen> {
    let listeners = shard.listeners().map(|(_, l)| {
        let (ready, embryos) = l.depths();
        Seen::Listener {
            local: SocketAddr::new(l.address, l.port),
            ready,
            embryos,
            backlog: l.backlog(),
        }
    });
    // One in TIME-WAIT whose socket is still open is listed with the records below.
    let in_time_wait = |c: &TcpSocket| c.connection.state() == State::TimeWait;
    let connections = shard.connections().filter(|(_, c)| !in_time_wait(c));
    let connections = connections.map(|(_, c)| Seen::Connection {
        key: c.key(),
        readable: c.readable_bytes(),
        queued: c.queued_bytes(),
        info: c.connection.info_at(now),
    });
    let time_waits = shard.time_waits().map(|w| Seen::TimeWait(w.key, w.state()));
    let datagrams = shard.udp_sockets().map(|(_, u)| Seen::Datagrams {
        protocol: u.protocol_name(),
        local: u.local,
        peer: u.peer,
        depth: u.depth(),
    });
    let all = listeners.chain(connections).chain(time_waits);
    all.chain(datagrams).collect()
}

impl Seen {
    fn row(&self, number: usize, now: Instant) -> Value {
        match self {
            Self::Listener {
                local,
                ready,
                embryos,
                backlog,
            } => json!({
                "protocol": "tcp", "shard": number, "state": name(State::Listen),
                "local": local.to_string(), "remote": null,
                "accept_queue": ready, "accept_queue_max": backlog, "syn_queue": embryos,
            }),
            Self::Connection {
                key,
                readable,
                queued,
                info,
            } => {
                let mut row = connection(key, info, number, now);
                row["receive_bytes"] = json!(readable);
                row["send_bytes"] = json!(queued);
                row
            }
            Self::TimeWait(key, state) => json!({
                "protocol": "tcp", "shard": number, "state": name(*state),
                "local": SocketAddr::new(key.local, key.local_port).to_string(),
                "remote": SocketAddr::new(key.remote, key.remote_port).to_string(),
            }),
            Self::Datagrams {
                protocol,
                local,
                peer,
                depth,
            } => json!({
                "protocol": protocol, "shard": number,
                "state": if peer.is_some() { "ESTAB" } else { "UNCONN" },
                "local": local.to_string(), "remote": peer.map(|p| p.to_string()),
                "receive_datagrams": depth,
            }),
        }
    }
}

/// Its queues come later: the order of the columns is theirs.
fn connection(key: &FlowKey, info: &Info, number: usize, now: Instant) -> Value {
    let sending = &info.sending;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut row = json!({
        "protocol": "tcp", "shard": number, "state": name(info.state),
        "local": SocketAddr::new(key.local, key.local_port).to_string(),
        "remote": SocketAddr::new(key.remote, key.remote_port).to_string(),
        "receive_bytes": null, "send_bytes": null,
        "rtt_us": info.rtt.as_micros(), "rto_ms": info.rto.as_millis(),
        "cwnd_bytes": info.cwnd_bytes, "in_flight_bytes": info.in_flight_bytes,
        "retransmits": info.retransmits, "timeouts": info.timeouts,
        "congestion": sending.congestion.name(), "repair": format!("{:?}", sending.repair).to_lowercase(),
        "options": options(info),
    });
    let more = json!({
        "rtt_variation_us": info.rtt_variation.as_micros(), "rtt_min_us": info.rtt_min.as_micros(),
        "mss_bytes": info.send_mss, "receive_mss_bytes": info.receive_mss,
        // Never reached a threshold: there is none yet.
        "ssthresh_bytes": (info.ssthresh_bytes < u32::MAX >> 1).then_some(info.ssthresh_bytes),
        "unsent_bytes": info.unsent_bytes,
        "send_window_bytes": info.send_window_bytes, "receive_window_bytes": info.receive_window_bytes,
        "sacked": sending.sacked, "lost": sending.lost, "recoveries": info.recoveries,
        "reordering": sending.reordering, "backoff": info.backoff,
        "sent_bytes": sending.bytes, "retransmitted_bytes": sending.bytes_retransmitted,
        "acked_bytes": info.bytes_acked, "received_bytes": info.bytes_received,
        "segments_out": info.segments_out, "segments_in": info.segments_in,
        "delivery_bytes_per_s": sending.delivery_rate, "is_app_limited": sending.is_app_limited,
        "pacing_bytes_per_s": sending.pacing_rate,
        "busy_ms": ms(sending.busy), "window_limited_ms": ms(sending.window_limited),
        "buffer_limited_ms": ms(sending.buffer_limited),
        "last_sent_ms": ms(now.since(info.last_sent)), "last_received_ms": ms(now.since(info.last_received)),
    });
    if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
        row.extend(more);
    }
    row
}

/// What was agreed upon, as ss says it.
fn options(info: &Info) -> String {
    let mut words = Vec::new();
    if info.timestamps {
        words.push("ts".to_owned());
    }
    if info.sack {
        words.push("sack".to_owned());
    }
    match (info.sending.ecn, info.sending.ecn_seen) {
        (true, true) => words.push("ecnseen".to_owned()),
        (true, false) => words.push("ecn".to_owned()),
        (false, _) => {}
    }
    if info.syn_data {
        words.push("fastopen".to_owned());
    }
    if info.window_scaling && info.state != State::SynSent {
        words.push(format!("wscale:{},{}", info.send_scale, info.receive_scale));
    }
    words.join(" ")
}

/// A state as ss(8) prints it.
const fn name(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::Listen => "LISTEN",
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
    }
}
