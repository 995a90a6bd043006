//! The facts behind `netchan show`: arrays of flat objects, every number with its unit in its name.

use std::sync::atomic::Ordering::Relaxed;

use percore::ring::{Consumer, Producer};
use proto::{tcp::State, time::Instant};
use serde_json::{Value, json};

mod groups;
pub(crate) mod look;
pub(crate) mod settings;

use self::look::Look;
use crate::{
    counters::Counter,
    driver::{module::registry::Entry, network::InterfaceFacts},
    giant::Concurrency,
    limits, locks as classes,
    packet::Packet,
    regime::Holder,
    shard::{Shard, TcpSocket},
    stack::{
        Stack,
        cell::{Cell, Held},
        watch::{self, State as Doing},
    },
    trace::stages::{self, Stage},
};

/// A topic's facts; `None`: no such topic.
pub(crate) fn topic(stack: &Stack, topic: &str) -> Option<Value> {
    let now = stack.clock.now();
    let look = &Look::new(stack);
    Some(Value::Array(match topic {
        "links" => links(stack, look),
        "addresses" => addresses(stack),
        "groups" => groups::rows(stack, look),
        "routes" => routes(stack),
        "neighbors" => neighbors(stack, look, now),
        "sockets" => sockets(stack, look),
        "channels" => channels(stack, look),
        "shards" => shards(stack, look, now),
        "threads" => threads(stack, now),
        "counters" => counters(stack),
        "memory" => memory(stack, look),
        "settings" => settings::rows(stack, now),
        "locks" => locks(stack, now),
        "modules" => modules(stack, now),
        "stages" => stages(),
        // None in this version.
        "taps" => Vec::new(),
        _ => return None,
    }))
}

fn links(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let net = stack.control.host.network();
    let facts = net.interfaces.iter().enumerate();
    let row = |(number, facts): (usize, &InterfaceFacts)| {
        let shared = &stack.driver.interfaces[number];
        let received = look.receive(number, |receive| {
            (receive.link.statistics(), receive.link.fd().is_some())
        });
        let sent = look.interface(number, |interface| {
            let state =
                (interface.gone.as_deref()).map_or("up".to_owned(), |why| format!("gone: {why}"));
            (interface.statistics(), interface.queued(), state)
        });
        let ((rx, has_fd), (tx, queued, state)) = match (received, sent) {
            (Ok(received), Ok(sent)) => (received, sent),
            (Err(busy), _) | (_, Err(busy)) => return busy.row("name", json!(facts.name)),
        };
        json!({
            "name": facts.name,
            "kind": shared.kind,
            "state": state,
            "mac": facts.mac.to_string(),
            "mtu_bytes": facts.mtu,
            "rx_packets": rx.packets,
            "rx_bytes": rx.bytes,
            "tx_packets": tx.packets,
            "tx_bytes": tx.bytes,
            "rx_no_buffer": rx.no_buffer,
            "rx_missed": rx.missed,
            "rx_length": rx.length,
            "tx_errors": tx.errors,
            "queued_frames": queued,
            // Of a link without a descriptor it is not known what rang.
            "wakeups": has_fd.then(|| shared.wakeups.load(Relaxed)),
        })
    };
    facts.map(row).collect()
}

fn addresses(stack: &Stack) -> Vec<Value> {
    let net = stack.control.host.network();
    let all = net
        .interfaces
        .iter()
        .flat_map(|i| i.addresses.iter().map(move |a| (i, a)));
    all.map(|(i, a)| json!({"link": i.name, "address": a.to_string()}))
        .collect()
}

fn routes(stack: &Stack) -> Vec<Value> {
    let net = stack.control.host.network();
    let name = |number: u16| {
        let link = net.interfaces.get(usize::from(number));
        link.map(|i| i.name.as_str())
    };
    net.routes
        .iter()
        .map(|r| {
            let via = match r.next.via {
                proto::ip::route::Via::OnLink => "on link".to_owned(),
                proto::ip::route::Via::Gateway(gateway) => gateway.to_string(),
            };
            json!({"network": format!("{}/{}", r.network, r.prefix_len), "via": via, "link": name(r.next.interface), "mark": r.mark})
        })
        .collect()
}

fn neighbors(stack: &Stack, look: &Look<'_>, now: Instant) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, facts) in stack.control.host.network().interfaces.iter().enumerate() {
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
        let found = look.interface(number, |interface| {
            rows.extend(interface.neighbors(now).map(row));
        });
        if let Err(busy) = found {
            rows.push(busy.row("link", json!(facts.name)));
        }
    }
    rows
}

fn sockets(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    for number in 0..stack.sockets.cells.len() {
        let found = look.shard(number, |held| sockets_of(&held.shard, number, &mut rows));
        if let Err(busy) = found {
            rows.push(busy.row("shard", json!(number)));
        }
    }
    rows.extend(stack.packet_channels().iter().map(|channel| {
        json!({
            "protocol": channel.protocol().to_string(), "shard": null, "state": null,
            "local": "*", "remote": null,
            "receive_datagrams": channel.depth(), "dropped_datagrams": channel.drops(),
        })
    }));
    rows
}

fn sockets_of(shard: &Shard, shard_number: usize, rows: &mut Vec<Value>) {
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
        let (info, key) = (c.connection.info(), c.key());
        rows.push(json!({
            "protocol": "tcp", "shard": shard_number,
            "state": format!("{:?}", c.connection.state()),
            "local": std::net::SocketAddr::new(key.local, key.local_port).to_string(),
            "remote": std::net::SocketAddr::new(key.remote, key.remote_port).to_string(),
            "receive_bytes": c.readable_bytes(), "send_bytes": c.queued_bytes(),
            "rtt_us": info.rtt.as_micros(), "rto_ms": info.rto.as_millis(),
            "cwnd_bytes": info.cwnd_bytes, "in_flight_bytes": info.in_flight_bytes,
            "retransmits": info.retransmits, "timeouts": info.timeouts,
            "congestion": info.sending.congestion.name(), "ecn": info.sending.ecn,
            "pacing_bytes_per_s": info.sending.pacing_rate,
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
            "protocol": u.protocol_name(), "shard": shard_number, "state": null,
            "local": u.local.to_string(), "remote": u.peer.map(|p| p.to_string()),
            "receive_datagrams": u.depth(),
        }));
    }
}

/// Depth of every channel, both ways, from whichever end can be looked at; then those between links, where packets are forwarded.
fn channels(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = shard_channels(stack, look);
    let net = stack.control.host.network();
    for (to, facts) in net.interfaces.iter().enumerate() {
        let depths = look.interface(to, |half| {
            half.forward_rings
                .iter_mut()
                .map(|way| way.len())
                .collect::<Vec<_>>()
        });
        match depths {
            Ok(depths) => rows.extend(depths.iter().zip(&net.interfaces).map(|(depth, from)| {
                json!({
                    "link": from.name, "next_link": facts.name,
                    "forwarded_packets": depth, "forwarded_slots": limits::FORWARD_RING,
                })
            })),
            Err(busy) => rows.push(busy.row("link", json!(facts.name))),
        }
    }
    rows
}

/// Those of the shards; their backlogs, where links call.
fn shard_channels(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    if stack.layout.backlogs {
        return backlogs(stack, look);
    }
    let mut rows = Vec::new();
    for number in 0..stack.sockets.cells.len() {
        for (link, facts) in stack.control.host.network().interfaces.iter().enumerate() {
            let from_shard = |held: &mut Held| {
                let channel = held.channels().get_mut(link)?;
                Some((
                    channel.received.len(),
                    limits::CHANNEL_TX - channel.outgoing.room(),
                ))
            };
            let depths = look.shard(number, from_shard).or_else(|busy| {
                // Its holder hangs: the link's ends know, too.
                let received = look.receive(link, |half| {
                    let channel = half.channels.get_mut(number)?;
                    Some(limits::CHANNEL_RX - channel.received.room())
                });
                let outgoing = look.interface(link, |half| {
                    Some(half.channels.get_mut(number)?.outgoing.len())
                });
                match (received, outgoing) {
                    (Ok(received), Ok(outgoing)) => Ok(received.zip(outgoing)),
                    _ => Err(busy),
                }
            });
            match depths {
                Ok(Some((received, outgoing))) => rows.push(json!({
                    "link": facts.name, "shard": number,
                    "received_packets": received, "received_slots": limits::CHANNEL_RX,
                    "outgoing_packets": outgoing, "outgoing_slots": limits::CHANNEL_TX,
                })),
                Ok(None) => {} // handed over by calls
                Err(busy) => rows.push(busy.row("shard", json!(number))),
            }
        }
    }
    rows
}

/// How many packets of each link wait for each shard that another thread holds: by the links' ends, which know it meanwhile.
fn backlogs(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    for (link, facts) in stack.control.host.network().interfaces.iter().enumerate() {
        let row = |(number, ring): (usize, &mut Producer<Packet>)| {
            json!({
                "link": facts.name, "shard": number,
                "backlog_packets": ring.capacity() - ring.room(), "backlog_slots": ring.capacity(),
            })
        };
        let found = look.receive(link, |half| {
            rows.extend(half.backlogs.iter_mut().enumerate().map(row));
        });
        if let Err(busy) = found {
            rows.push(busy.row("link", json!(facts.name)));
        }
    }
    rows
}

fn shards(stack: &Stack, look: &Look<'_>, now: Instant) -> Vec<Value> {
    let row = |(number, cell): (usize, &Cell)| {
        let found = look.shard(number, |held| {
            let next = held.shard.next_timer(now);
            let mut row = json!({
                "shard": number,
                "turned_by": turned_by(stack, number, cell),
                "connections": held.shard.connections().count(),
                "time_waits": held.shard.time_waits().count(),
                "listeners": held.shard.listeners().count(),
                "udp_sockets": held.shard.udp_sockets().count(),
                "next_timer_ms": (next != Instant::FAR).then(|| next.since(now).as_secs_f64() * 1e3),
            });
            if cell.backlog.is_some() {
                let ends = held.backlogs().iter_mut();
                row["backlog_packets"] = json!(ends.map(Consumer::len).sum::<usize>());
            }
            row
        });
        let mut row = found.unwrap_or_else(|busy| busy.row("shard", json!(number)));
        // Relaxed: the watchdog's word, for a person to read.
        let forsaken = cell.forsaken.load(Relaxed);
        row["state"] = json!(if forsaken {
            "packets wait, nobody takes them"
        } else {
            "good"
        });
        row
    };
    stack.sockets.cells.iter().enumerate().map(row).collect()
}

fn turned_by(stack: &Stack, number: usize, cell: &Cell) -> String {
    match stack.layout.holder {
        Holder::Anyone => "the thread that has its lock".into(),
        Holder::Application => cell.leader.holder().into(),
        Holder::Core => format!("netchan-core{number}"),
        Holder::Network => format!("netchan-proto{}", number % stack.layout.workers),
    }
}

/// What each thread does, by its own word: no lock is asked for that a hanging one could have.
fn threads(stack: &Stack, now: Instant) -> Vec<Value> {
    let row = |pulse: &watch::Pulse| {
        let (state, since) = pulse.read();
        let kernel = pulse.kernel();
        json!({
            "name": pulse.name,
            "state": match state {
                _ if pulse.is_stuck() => "stuck",
                Doing::Starting => "starting",
                Doing::Turning => "turning",
                Doing::Asleep => "asleep",
                Doing::Ended => "ended",
            },
            "does": watch::describe(stack, pulse, now),
            "since_ms": now.since(since).as_millis(),
            "kernel_state": kernel.map(|(state, _)| state.to_string()),
            "cpu_s": kernel.map(|(_, seconds)| seconds),
        })
    };
    stack
        .control
        .watch
        .pulses()
        .iter()
        .map(|pulse| row(pulse))
        .collect()
}

/// What each thread spends its time on; while that is switched off (`netchan trace start` switches it on), what it spent before.
fn stages() -> Vec<Value> {
    let row = |spent: stages::Spent| {
        let all = spent.ns.iter().sum::<u64>().max(1) as f64; // precision: shares
        let mut row = json!({ "thread": spent.thread });
        for (stage, ns) in Stage::ALL.iter().zip(spent.ns) {
            row[format!("{}_ns", stage.name())] = json!(ns);
        }
        let shares = Stage::ALL.iter().zip(spent.ns);
        let shares =
            shares.map(|(stage, ns)| format!("{} {:.0} %", stage.name(), 100.0 * ns as f64 / all));
        row["shares"] = json!(shares.collect::<Vec<_>>().join(", "));
        row
    };
    stages::read().into_iter().map(row).collect()
}

fn counters(stack: &Stack) -> Vec<Value> {
    let row = |name: &str, value: u64, meaning: &str| json!({"name": name, "value": value, "meaning": meaning});
    let mut rows: Vec<_> = Counter::ALL
        .iter()
        .map(|&c| row(c.name(), stack.control.counters.read(c), c.meaning()))
        .collect();
    let giant = stack.control.modules.giant.cost();
    rows.push(row(
        "giant_taken",
        giant.taken,
        "Giant was taken, by whatever runs under it.",
    ));
    rows.push(row(
        "giant_waits",
        giant.waits,
        "Another thread had Giant when it was wanted.",
    ));
    rows.push(row(
        "giant_wait_ns",
        giant.wait_ns,
        "Waited for Giant, all threads together, nanoseconds.",
    ));
    for module in stack.control.modules.entries() {
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
        (0..stack.driver.interfaces.len()).find_map(|number| {
            let (module, point, since) = stack.control.modules.inside(number)?;
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
        .control
        .modules
        .entries()
        .iter()
        .map(|module| row(module))
        .collect()
}

/// Every lock of the packet path: whether it is held just now, and by which thread, as far as the threads' words tell.
fn locks(stack: &Stack, now: Instant) -> Vec<Value> {
    let row = |lock: String, held: bool| {
        let by = held.then(|| watch::suspects(stack, now));
        json!({"lock": lock, "state": if held { "held" } else { "free" }, "held_by": by})
    };
    let cost = stack.control.modules.giant.cost();
    let mut giant = row(
        "giant".into(),
        stack.control.modules.giant.try_enter().is_none(),
    );
    giant["around"] = json!(if stack.giant.is_some() {
        "everything"
    } else {
        "modules and links that need it"
    });
    giant["taken"] = json!(cost.taken);
    giant["waits"] = json!(cost.waits);
    giant["wait_ns"] = json!(cost.wait_ns);
    let mut rows = vec![giant];
    for (shared, facts) in stack
        .driver
        .interfaces
        .iter()
        .zip(&stack.control.host.network().interfaces)
    {
        if let Some(halves) = &shared.halves {
            rows.push(row(
                format!("{} receive", facts.name),
                halves.receive.is_locked(),
            ));
            rows.push(row(
                format!("{} transmit", facts.name),
                halves.interface.is_locked(),
            ));
        }
    }
    for (number, cell) in stack.sockets.cells.iter().enumerate() {
        rows.push(row(format!("shard {number}"), cell.held.is_locked()));
    }
    // In a build with the witness, all of percore's locks and their holders.
    let holders = percore::witness::holders();
    rows.extend(holders.iter().map(|holder| {
        json!({
            "lock": format!("a '{}'", holder.class), "state": "held", "held_by": holder.thread,
            "held_ns": holder.held_ns, "taken_by": holder.place(),
        })
    }));
    // The order in which they may be taken, the outermost first.
    rows.extend(classes::ALL.iter().map(|class| {
        let order = class.rank();
        json!({"lock": format!("class '{}'", class.name()), "state": "declared", "order": order})
    }));
    rows
}

fn memory(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, facts) in stack.control.host.network().interfaces.iter().enumerate() {
        let found = look.receive(number, |receive| {
            let slab = &mut receive.slab;
            let buffers = (slab.available(), slab.capacity(), slab.buffer_size());
            (buffers, receive.steer.flows())
        });
        match found {
            Ok(((free, all, size), flows)) => {
                rows.push(row("receive buffers", &facts.name, free, all, size));
                if let Some(flows) = flows {
                    let free = limits::FLOWS.saturating_sub(flows);
                    rows.push(row("flow table", &facts.name, free, limits::FLOWS, 32));
                }
            }
            Err(busy) => rows.push(busy.row("of", json!(facts.name))),
        }
    }
    for number in 0..stack.sockets.cells.len() {
        let of = format!("shard {number}");
        match look.shard(number, |held| {
            let shard = &mut held.shard;
            (shard.buffers(), shard.segment_nodes(), shard.shelf())
        }) {
            Ok(((free, all, size), (free_nodes, nodes), shelf)) => {
                rows.push(row("transmit buffers", &of, free, all, size));
                rows.push(row("segment nodes", &of, free_nodes, nodes, 0));
                for (free, all, size) in shelf {
                    rows.push(row("shelf", &of, free, all, size));
                }
            }
            Err(busy) => rows.push(busy.row("of", json!(of))),
        }
    }
    for (account, of) in stack
        .sockets
        .memory
        .iter()
        .zip(["tcp sockets", "udp sockets"])
    {
        rows.push(json!({
            "what": "socket memory", "of": of, "used_bytes": account.claimed(), "error_bytes": account.error_max(),
            "limit_bytes": account.limit(), "socket_limit_bytes": account.socket_max(), "peer_limit_bytes": account.peer_max(),
            "pressed": account.pressed(),
        }));
    }
    rows
}

fn row(what: &str, of: &str, free: usize, all: usize, size: usize) -> Value {
    json!({"what": what, "of": of, "free": free, "all": all, "each_bytes": size})
}

#[cfg(test)]
mod tests;
