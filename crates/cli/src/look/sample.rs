//! One look at a stack: what it answers to a few questions, as typed and bounded facts. Nothing here is compared with an earlier look.

use std::fs;

use netchan::control::{AskError, Stack};
use serde_json::Value;

use crate::{output::printable, show, units::now_ns};

/// Longest text that is kept of a name, characters. A stack sends what its peers and its user named.
const TEXT_MAX: usize = 200;
/// Most rows that are kept of links, threads, channels and reasons. Sockets are bounded by the length of an answer.
const ROWS_MAX: usize = 4096;

/// Rows of one topic, and when they were asked for, nanoseconds.
#[derive(Clone, Debug)]
pub struct Timed<T> {
    pub at_ns: u64,
    pub rows: Vec<T>,
}

impl<T> Default for Timed<T> {
    fn default() -> Self {
        Self {
            at_ns: 0,
            rows: Vec::new(),
        }
    }
}

/// All that one look gave.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub about: About,
    pub links: Timed<Link>,
    pub threads: Timed<Thread>,
    pub channels: Timed<Channel>,
    pub drops: Timed<Drops>,
    pub sockets: Timed<Socket>,
    pub cores: Timed<Core>,
    /// Sockets that the answer had no room for.
    pub omitted: u64,
    /// What could not be looked at, in sentences.
    pub missing: Vec<String>,
}

/// The stack and its process.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub at_ns: u64,
    /// As `--pid` takes it.
    pub stack: String,
    /// `redis-server/4711`.
    pub process: String,
    pub regime: String,
    pub up_s: f64,
    /// Processor time of the whole process.
    pub cpu_ns: Option<u64>,
}

/// A link's counters.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub name: String,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
}

/// A thread of the stack.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub name: String,
    pub state: String,
    pub does: String,
    pub cpu_ns: Option<u64>,
    /// Where it ran last.
    pub core: Option<u64>,
}

/// Where a channel leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// From a link to a shard.
    #[default]
    Received,
    /// From a shard to a link.
    Outgoing,
    /// From a link to the holder of a shard.
    Backlog,
    /// From a link to another.
    Forwarded,
    /// To an application that speaks the protocol itself.
    Packets,
}

/// One direction of a channel.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    pub name: String,
    pub way: Passage,
    pub depth: u64,
    pub slots: u64,
    /// What it had no room for; `None` where that is counted nowhere else than at its sender.
    pub dropped: Option<u64>,
}

/// A reason, and how often.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    pub reason: String,
    pub packets: u64,
    pub meaning: String,
}

/// A socket.
#[derive(Clone, Debug, Default)]
pub struct Socket {
    pub protocol: String,
    pub state: String,
    pub local: String,
    pub remote: Option<String>,
    pub process: Option<String>,
    pub received_bytes: Option<u64>,
    pub sent_bytes: Option<u64>,
    pub retransmits: Option<u64>,
    pub rtt_us: Option<u64>,
    pub cwnd_bytes: Option<u64>,
    /// Bytes of a stream, datagrams of others, connections of a listener.
    pub receive_queue: Option<u64>,
    pub send_queue: Option<u64>,
}

/// A processor's time, in ticks of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Core {
    pub number: u64,
    pub busy: u64,
    pub all: u64,
}

/// Asks `stack` once for everything. `regime` is asked for once and kept.
///
/// # Errors
/// The stack has ended or gives no answer; the first question without one is the last.
pub fn take(stack: &Stack, regime: &mut Option<String>) -> Result<Sample, AskError> {
    let at_ns = now_ns();
    let hello = stack.hello()?;
    let mut sample = Sample::default();
    if regime.is_none() {
        let mut rows = Timed::default();
        ask(stack, "settings", &mut rows, &mut sample.missing, |row| {
            (text(row, "name") == "regime").then(|| text(row, "value"))
        })?;
        *regime = rows.rows.pop();
    }
    sample.about = About {
        at_ns,
        stack: stack.id.clone(),
        process: show::process(&hello).map_or_else(|| stack.pid.to_string(), |p| bounded(&p)),
        regime: regime.clone().unwrap_or_default(),
        up_s: hello.get("up_s").and_then(Value::as_f64).unwrap_or(0.0),
        cpu_ns: hello.get("cpu_s").and_then(nanoseconds),
    };
    let missing = &mut sample.missing;
    ask(stack, "links", &mut sample.links, missing, link)?;
    ask(stack, "threads", &mut sample.threads, missing, thread)?;
    let mut pairs = Timed::default();
    ask(stack, "channels", &mut pairs, missing, channels)?;
    sample.channels.at_ns = pairs.at_ns;
    sample.channels.rows = pairs.rows.into_iter().flatten().collect();
    ask(stack, "drops", &mut sample.drops, missing, drops)?;
    sample.cores.at_ns = now_ns();
    sample.cores.rows = cores(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let mut omitted = 0;
    let of_sockets = |row: &Value| {
        omitted += number(row, "omitted").unwrap_or(0);
        socket(row)
    };
    ask(stack, "sockets", &mut sample.sockets, missing, of_sockets)?;
    sample.omitted = omitted;
    // Packets of other protocols wait in channels, too, which `sockets` has.
    let others = sample.sockets.rows.iter().filter_map(packet_channel);
    sample.channels.rows.extend(others.take(ROWS_MAX));
    Ok(sample)
}

/// One question. A refusal is something that is missing; no answer at all ends the look.
fn ask<T>(
    stack: &Stack,
    topic: &str,
    into: &mut Timed<T>,
    missing: &mut Vec<String>,
    mut of: impl FnMut(&Value) -> Option<T>,
) -> Result<(), AskError> {
    into.at_ns = now_ns();
    let facts = match stack.show(topic) {
        Ok(facts) => facts,
        Err(AskError::Refused(why)) => {
            missing.push(format!("{topic}: {}", bounded(&why)));
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let rows = facts.as_array().map_or(&[][..], Vec::as_slice);
    let most = match topic {
        "sockets" => usize::MAX,
        _ => ROWS_MAX,
    };
    for row in rows {
        if let Some(held_by) = row.get("held_by").and_then(Value::as_str) {
            if missing.len() < 8 {
                missing.push(format!("{topic}: held by {}", bounded(held_by)));
            }
        } else if into.rows.len() < most {
            into.rows.extend(of(row));
        }
    }
    Ok(())
}

fn bounded(text: &str) -> String {
    printable(text).chars().take(TEXT_MAX).collect()
}

/// Text of a row of facts, fit to be shown; empty where there is none.
pub fn text(row: &Value, name: &str) -> String {
    let text = row.get(name).and_then(Value::as_str);
    bounded(text.unwrap_or_default())
}

fn some_text(row: &Value, name: &str) -> Option<String> {
    row.get(name).and_then(Value::as_str).map(bounded)
}

/// A number of a row of facts.
pub fn number(row: &Value, name: &str) -> Option<u64> {
    row.get(name).and_then(Value::as_u64)
}

/// Of seconds; what is no time is none.
#[expect(clippy::cast_possible_truncation, reason = "in range: checked")]
fn nanoseconds(seconds: &Value) -> Option<u64> {
    let ns = seconds.as_f64()? * 1e9;
    (0.0..1e18).contains(&ns).then_some(ns as u64)
}

fn link(row: &Value) -> Option<Link> {
    Some(Link {
        name: text(row, "name"),
        rx_packets: number(row, "rx_packets")?,
        rx_bytes: number(row, "rx_bytes")?,
        tx_packets: number(row, "tx_packets")?,
        tx_bytes: number(row, "tx_bytes")?,
    })
}

fn thread(row: &Value) -> Option<Thread> {
    Some(Thread {
        name: some_text(row, "name")?,
        state: text(row, "state"),
        does: text(row, "does"),
        cpu_ns: row.get("cpu_s").and_then(nanoseconds),
        core: number(row, "core"),
    })
}

/// The directions that a row of `netchan show channels` speaks of.
fn channels(row: &Value) -> Option<Vec<Channel>> {
    let link = text(row, "link");
    let shard = number(row, "shard").map(|shard| format!("shard {shard}"));
    let next = some_text(row, "next_link");
    let shard = shard.unwrap_or_default();
    let directions = [
        (Passage::Received, link.clone(), shard.clone()),
        (Passage::Outgoing, shard.clone(), link.clone()),
        (
            Passage::Backlog,
            link.clone(),
            format!("backlog of {shard}"),
        ),
        (Passage::Forwarded, link, next.unwrap_or_default()),
    ];
    let found = directions.into_iter().filter_map(|(passage, from, to)| {
        let way = match passage {
            Passage::Received => "received",
            Passage::Outgoing => "outgoing",
            Passage::Backlog => "backlog",
            Passage::Forwarded => "forwarded",
            Passage::Packets => return None,
        };
        Some(Channel {
            name: format!("{from} → {to}"),
            way: passage,
            depth: number(row, &format!("{way}_packets"))?,
            slots: number(row, &format!("{way}_slots"))?,
            dropped: number(row, &format!("{way}_drops")),
        })
    });
    Some(found.collect())
}

/// The channel of packets of another protocol; its slots are the application's to choose, and unknown here.
fn packet_channel(socket: &Socket) -> Option<Channel> {
    (socket.local == "*").then(|| Channel {
        name: format!("packets of protocol {}", socket.protocol),
        way: Passage::Packets,
        depth: socket.receive_queue.unwrap_or(0),
        slots: 0,
        dropped: None,
    })
}

fn drops(row: &Value) -> Option<Drops> {
    Some(Drops {
        reason: some_text(row, "reason")?,
        packets: number(row, "value")?,
        meaning: text(row, "meaning"),
    })
}

fn socket(row: &Value) -> Option<Socket> {
    let receive_queue = ["receive_bytes", "receive_datagrams", "accept_queue"];
    Some(Socket {
        protocol: some_text(row, "protocol")?,
        state: text(row, "state"),
        local: text(row, "local"),
        remote: some_text(row, "remote"),
        process: some_text(row, "process"),
        received_bytes: number(row, "received_bytes"),
        sent_bytes: number(row, "sent_bytes"),
        retransmits: number(row, "retransmits"),
        rtt_us: number(row, "rtt_us"),
        cwnd_bytes: number(row, "cwnd_bytes"),
        receive_queue: receive_queue.iter().find_map(|name| number(row, name)),
        send_queue: number(row, "send_bytes"),
    })
}

/// The processors of proc(5)'s `stat`: user, nice, system, idle, iowait, irq, softirq, steal. A guest's time is in user already.
pub fn cores(stat: &str) -> Vec<Core> {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|w| w.parse().ok()).collect();
        let all = ticks.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let idle = ticks.iter().skip(3).take(2);
        let idle = idle.fold(0_u64, |sum, n| sum.saturating_add(*n));
        let busy = all.saturating_sub(idle);
        (ticks.len() >= 4).then_some(Core { number, busy, all })
    };
    stat.lines().filter_map(of).take(ROWS_MAX).collect()
}

/// A sample of answers that are at hand, for tests of what is made of it.
#[cfg(test)]
pub fn of_answers(at_ns: u64, answer: impl Fn(&str) -> Value) -> Sample {
    fn rows<T>(answer: &Value, at_ns: u64, of: impl Fn(&Value) -> Option<T>) -> Timed<T> {
        let rows = answer.as_array().map_or(&[][..], Vec::as_slice);
        Timed {
            at_ns,
            rows: rows.iter().filter_map(of).collect(),
        }
    }
    let pairs = rows(&answer("channels"), at_ns, channels);
    Sample {
        about: About {
            at_ns,
            stack: "4711".to_owned(),
            process: text(&answer("hello"), "process"),
            regime: "app-channel".to_owned(),
            up_s: 61.0,
            cpu_ns: Some(at_ns / 4),
        },
        links: rows(&answer("links"), at_ns, link),
        threads: rows(&answer("threads"), at_ns, thread),
        channels: Timed {
            at_ns,
            rows: pairs.rows.into_iter().flatten().collect(),
        },
        drops: rows(&answer("drops"), at_ns, drops),
        sockets: rows(&answer("sockets"), at_ns, socket),
        cores: Timed {
            at_ns,
            rows: cores(answer("stat").as_str().unwrap_or_default()),
        },
        omitted: 0,
        missing: Vec::new(),
    }
}
