//! The facts behind `netchan show`: arrays of flat objects, every number with its unit in its name.

use std::sync::atomic::Ordering::Relaxed;

use proto::{tcp::State, time::Instant};
use serde_json::{Value, json};

use crate::{
    counters::Counter,
    host::InterfaceFacts,
    limits,
    module::{Concurrency, registry::Entry},
    regime::Handoff,
    shard::{Shard, TcpSocket},
    stack::Stack,
};

/// A topic's facts; `None`: no such topic.
pub(crate) fn topic(stack: &Stack, topic: &str) -> Option<Value> {
    let now = stack.clock.now();
    Some(Value::Array(match topic {
        "links" => links(stack),
        "addresses" => addresses(stack),
        "routes" => routes(stack),
        "neighbors" => neighbors(stack, now),
        "sockets" => sockets(stack),
        "channels" => channels(stack),
        "shards" => shards(stack, now),
        "threads" => threads(stack),
        "counters" => counters(stack),
        "memory" => memory(stack),
        "settings" => settings(stack, now),
        "locks" => locks(stack),
        "modules" => modules(stack, now),
        // None in this version.
        "taps" => Vec::new(),
        _ => return None,
    }))
}

fn links(stack: &Stack) -> Vec<Value> {
    let facts = stack.host.interfaces.iter().enumerate();
    let row = |(number, facts): (usize, &InterfaceFacts)| {
        stack.with_interface(number, |interface| {
            let s = interface.link.statistics();
            json!({
                "name": facts.name,
                "kind": interface.link.properties().kind,
                "state": interface.gone.as_deref().map_or("up".to_owned(), |why| format!("gone: {why}")),
                "mac": facts.mac.to_string(),
                "mtu_bytes": facts.mtu,
                "rx_packets": s.rx_packets,
                "rx_bytes": s.rx_bytes,
                "tx_packets": s.tx_packets,
                "tx_bytes": s.tx_bytes,
                "rx_no_buffer": s.rx_no_buffer,
                "rx_missed": s.rx_missed,
                "rx_length": s.rx_length,
                "tx_errors": s.tx_errors,
                "queued_frames": interface.queued(),
            })
        })
    };
    facts.map(row).collect()
}

fn addresses(stack: &Stack) -> Vec<Value> {
    let all = stack
        .host
        .interfaces
        .iter()
        .flat_map(|i| i.addresses.iter().map(move |a| (i, a)));
    all.map(|(i, a)| json!({"link": i.name, "address": a.to_string()}))
        .collect()
}

fn routes(stack: &Stack) -> Vec<Value> {
    let name = |number: u16| {
        stack
            .host
            .interfaces
            .get(usize::from(number))
            .map(|i| i.name.as_str())
    };
    stack
        .host
        .routes
        .iter()
        .map(|r| {
            let via = match r.next.via {
                proto::ip::route::Via::OnLink => "on link".to_owned(),
                proto::ip::route::Via::Gateway(gateway) => gateway.to_string(),
            };
            json!({"network": format!("{}/{}", r.network, r.prefix_len), "via": via, "link": name(r.next.interface)})
        })
        .collect()
}

fn neighbors(stack: &Stack, now: Instant) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, facts) in stack.host.interfaces.iter().enumerate() {
        let row = |n: proto::neighbor::Neighbor| {
            json!({
                "link": facts.name,
                "address": n.ip.to_string(),
                "mac": n.mac.map(|mac| mac.to_string()),
                "state": format!("{:?}", n.state).to_lowercase(),
                "age_s": n.age.as_secs_f64(),
                "queued_packets": n.queued,
            })
        };
        stack.with_interface(number, |interface| {
            rows.extend(interface.neighbors(now).map(row))
        });
    }
    rows
}

fn each_shard(stack: &Stack, mut rows: impl FnMut(usize, &Shard)) {
    for (number, cell) in stack.cells.iter().enumerate() {
        rows(number, &cell.held.lock().shard);
    }
}

fn sockets(stack: &Stack) -> Vec<Value> {
    let mut rows = Vec::new();
    each_shard(stack, |shard_number, shard| {
        for (_, l) in shard.listeners() {
            let (ready, embryos) = l.depths();
            rows.push(json!({
                "protocol": "tcp", "shard": shard_number, "state": "LISTEN",
                "local": std::net::SocketAddr::new(l.address, l.port).to_string(), "remote": null,
                "receive_bytes": ready, "send_bytes": l.backlog(), "syn_queue": embryos,
            }));
        }
        // One in TIME-WAIT whose socket is still open is listed with the records below.
        let in_time_wait = |c: &TcpSocket| c.connection.state() == State::TimeWait;
        for (_, c) in shard.connections().filter(|(_, c)| !in_time_wait(c)) {
            let info = c.connection.info();
            rows.push(json!({
                "protocol": "tcp", "shard": shard_number,
                "state": format!("{:?}", c.connection.state()),
                "local": std::net::SocketAddr::new(c.key.local, c.key.local_port).to_string(),
                "remote": std::net::SocketAddr::new(c.key.remote, c.key.remote_port).to_string(),
                "receive_bytes": c.readable_bytes(), "send_bytes": c.queued_bytes(),
                "rtt_us": info.rtt.as_micros(), "rto_ms": info.rto.as_millis(),
                "cwnd_bytes": info.cwnd_bytes, "in_flight_bytes": info.in_flight_bytes,
                "retransmits": info.retransmits, "timeouts": info.timeouts,
            }));
        }
        for w in shard.time_waits() {
            rows.push(json!({
                "protocol": "tcp", "shard": shard_number, "state": "TimeWait",
                "local": std::net::SocketAddr::new(w.key.local, w.key.local_port).to_string(),
                "remote": std::net::SocketAddr::new(w.key.remote, w.key.remote_port).to_string(),
            }));
        }
        for (_, u) in shard.udp_sockets() {
            rows.push(json!({
                "protocol": "udp", "shard": shard_number, "state": null,
                "local": u.local.to_string(), "remote": u.peer.map(|p| p.to_string()),
                "receive_datagrams": u.depth(),
            }));
        }
    });
    rows
}

fn channels(stack: &Stack) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, cell) in stack.cells.iter().enumerate() {
        let mut held = cell.held.lock();
        for (facts, channel) in stack.host.interfaces.iter().zip(held.channels()) {
            rows.push(json!({
                "link": facts.name, "shard": number,
                "received_packets": channel.received.len(), "received_slots": limits::CHANNEL_RX,
                "outgoing_free_slots": channel.outgoing.room(), "outgoing_slots": limits::CHANNEL_TX,
            }));
        }
    }
    rows
}

fn shards(stack: &Stack, now: Instant) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, cell) in stack.cells.iter().enumerate() {
        let held = cell.held.lock();
        let next = held.shard.next_timer(now);
        rows.push(json!({
            "shard": number,
            "turned_by": if stack.layout.handoff == Handoff::Call { "whoever has its lock" } else { cell.seat.holder() },
            "connections": held.shard.connections().count(),
            "time_waits": held.shard.time_waits().count(),
            "listeners": held.shard.listeners().count(),
            "udp_sockets": held.shard.udp_sockets().count(),
            "next_timer_ms": (next != Instant::FAR).then(|| next.since(now).as_secs_f64() * 1e3),
        }));
    }
    rows
}

fn threads(stack: &Stack) -> Vec<Value> {
    let threads = stack.threads.lock();
    threads
        .iter()
        .map(|t| json!({"name": t.thread().name(), "running": !t.is_finished()}))
        .collect()
}

fn counters(stack: &Stack) -> Vec<Value> {
    let row = |name: &str, value: u64, meaning: &str| json!({"name": name, "value": value, "meaning": meaning});
    let mut rows: Vec<_> = Counter::ALL
        .iter()
        .map(|&c| row(c.name(), stack.counters.read(c), c.meaning()))
        .collect();
    let giant = stack.modules.giant.cost();
    rows.push(row(
        "giant_taken",
        giant.taken,
        "Giant was taken, by whatever runs under it.",
    ));
    rows.push(row(
        "giant_waits",
        giant.waits,
        "Giant was somebody else's when it was wanted.",
    ));
    rows.push(row(
        "giant_wait_ns",
        giant.wait_ns,
        "Waited for Giant, all threads together, nanoseconds.",
    ));
    for module in stack.modules.entries() {
        let name = format!("drop_module_{}", module.name);
        rows.push(row(
            &name,
            module.dropped(),
            &format!("Drop: the module '{}' said so.", module.name),
        ));
    }
    rows
}

fn modules(stack: &Stack, now: Instant) -> Vec<Value> {
    let inside = |name: &str| {
        (0..stack.ports.len()).find_map(|number| {
            let (module, point, since) = stack.modules.inside(number)?;
            let ms = now.since(since).as_millis();
            (module == name).then(|| format!("link {number} {} for {ms} ms", point.name()))
        })
    };
    let row = |module: &Entry| {
        let points: Vec<_> = module.points.iter().map(|point| point.name()).collect();
        let runs = match (module.concurrency(), &stack.giant) {
            (_, Some(_)) => "the whole stack under Giant",
            (Concurrency::Giant, None) => "under Giant alone",
            (Concurrency::Any, None) => "in any thread",
        };
        json!({
            "name": module.name,
            "concurrency": module.concurrency().to_string(),
            "runs": runs,
            "points": points.join(", "),
            "loaded": if module.at_boot { "at boot" } else { "later" },
            "seen_packets": module.seen(),
            "dropped_packets": module.dropped(),
            "state": if module.has_failed() { "failed: it panicked" } else { "good" },
            "inside": inside(&module.name),
            "says": module.describe(),
        })
    };
    stack
        .modules
        .entries()
        .iter()
        .map(|module| row(module))
        .collect()
}

fn locks(stack: &Stack) -> Vec<Value> {
    let giant = stack.modules.giant.cost();
    vec![json!({
        "lock": "giant",
        "around": if stack.giant.is_some() { "everything" } else { "modules and links that need it" },
        "taken": giant.taken,
        "waits": giant.waits,
        "wait_ns": giant.wait_ns,
    })]
}

fn memory(stack: &Stack) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, facts) in stack.host.interfaces.iter().enumerate() {
        let (free, all, size) = stack.with_receive(number, |receive| {
            let slab = &mut receive.slab;
            (slab.available(), slab.capacity(), slab.buffer_size())
        });
        rows.push(row("receive buffers", &facts.name, free, all, size));
        if let Some(flows) = stack.with_receive(number, |receive| receive.steer.flows()) {
            let (all, size) = (crate::limits::FLOWS, 32);
            let free = all.saturating_sub(flows);
            rows.push(row("flow table", &facts.name, free, all, size));
        }
    }
    for (number, cell) in stack.cells.iter().enumerate() {
        let mut held = cell.held.lock();
        let (free, all, size) = held.shard.buffers();
        rows.push(row(
            "transmit buffers",
            &format!("shard {number}"),
            free,
            all,
            size,
        ));
        let (free, all) = held.shard.segment_nodes();
        rows.push(row(
            "segment nodes",
            &format!("shard {number}"),
            free,
            all,
            0,
        ));
    }
    rows
}

fn row(what: &str, of: &str, free: usize, all: usize, size: usize) -> Value {
    json!({"what": what, "of": of, "free": free, "all": all, "each_bytes": size})
}

fn settings(stack: &Stack, now: Instant) -> Vec<Value> {
    let row = |name: &str, value: Value, when: &str| json!({"name": name, "value": value, "changes": when});
    vec![
        row("regime", json!(stack.regime.name()), "boot"),
        row("giant", json!(stack.layout.giant), "boot"),
        row("degraded", json!(stack.degraded), "boot"),
        row("dispatch", json!("direct"), "boot"),
        row("shards", json!(stack.layout.shards), "boot"),
        row(
            "threads",
            json!(if stack.threaded { "own" } else { "caller" }),
            "boot",
        ),
        row("spin_ns", json!(stack.spin_ns), "boot"),
        row("attended", json!(stack.attended.load(Relaxed)), "run"),
        row(
            "tcp.receive_buffer_bytes",
            json!(stack.host.tcp.receive_buffer),
            "boot",
        ),
        row(
            "tcp.send_buffer_bytes",
            json!(stack.host.send_buffer),
            "boot",
        ),
        row("tcp.congestion", json!("reno"), "boot"),
        row(
            "checks",
            json!(if cfg!(debug_assertions) {
                "debug assertions"
            } else {
                "none"
            }),
            "build",
        ),
        row(
            "up_s",
            json!(now.since(stack.started).as_secs_f64()),
            "never",
        ),
    ]
}
