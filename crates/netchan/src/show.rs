//! The facts behind `netchan show`: arrays of flat objects, every number with its unit in its name.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use percore::ring::{Consumer, Producer};
use proto::time::Instant;
use serde_json::{Value, json};

mod drops;
mod groups;
pub(crate) mod look;
pub(crate) mod settings;
mod sockets;
mod stages;

use self::look::{Busy, Look};
use crate::{
    channel::LeaseCore,
    counters::Counter,
    driver::{
        module::{Rows, registry::Entry},
        network::InterfaceFacts,
    },
    giant::Concurrency,
    limits,
    link::{RxStatistics, TxStatistics},
    locks as classes,
    packet::Packet,
    regime::Holder,
    stack::{
        Stack,
        cell::{Cell, Held},
        driver_side::SharedQueue,
        watch::{self, State as Doing},
    },
    tap::{self, Subject, Way},
    trace,
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
        "sockets" => sockets::rows(stack, look, now),
        "channels" => channels(stack, look),
        "shards" => shards(stack, look, now),
        "threads" => threads(stack, now),
        "counters" => counters(stack),
        "drops" => drops::rows(stack, look),
        "memory" => memory(stack, look),
        "settings" => settings::rows(stack, now),
        "locks" => locks(stack, now),
        "modules" => modules(stack, now),
        "rules" => listed(stack, look, Rows::Rules, now),
        "flows" => listed(stack, look, Rows::Flows, now),
        "stages" => stages::rows(stack, look),
        "trace" => vec![trace::summary()],
        "taps" => taps(stack),
        "leases" => leases(stack),
        _ => return None,
    }))
}

fn links(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let net = stack.control.host.network();
    let facts = net.interfaces.iter().enumerate();
    let row = |(number, facts): (usize, &InterfaceFacts)| {
        let queues = stack.driver.links[number].iter();
        let sum = queues.clone().try_fold(OfQueue::default(), |sum, &queue| {
            of_queue(stack, look, queue).map(|one| sum.and(one))
        });
        let OfQueue {
            rx,
            tx,
            queued,
            gone,
            wakeups,
        } = match sum {
            Ok(sum) => sum,
            Err(busy) => return busy.row("name", json!(facts.name)),
        };
        json!({
            "name": facts.name,
            "kind": stack.driver.queues[number].kind,
            "state": gone.map_or("up".to_owned(), |why| format!("gone: {why}")),
            "mac": facts.mac.to_string(),
            "mtu_bytes": facts.mtu,
            "queues": queues.len(),
            "rx_packets": rx.packets,
            "rx_bytes": rx.bytes,
            "tx_packets": tx.packets,
            "tx_bytes": tx.bytes,
            "rx_no_buffer": rx.no_buffer,
            "rx_missed": rx.missed,
            "rx_length": rx.length,
            "tx_errors": tx.errors,
            "queued_frames": queued,
            "wakeups": wakeups,
        })
    };
    facts.map(row).collect()
}

/// What a queue of a link says, or several together.
#[derive(Default)]
struct OfQueue {
    rx: RxStatistics,
    tx: TxStatistics,
    queued: usize,
    gone: Option<String>,
    /// Of a link without a descriptor it is not known what rang.
    wakeups: Option<u64>,
}

impl OfQueue {
    fn and(self, other: Self) -> Self {
        Self {
            rx: self.rx.and(other.rx),
            tx: self.tx.and(other.tx),
            queued: self.queued + other.queued,
            gone: self.gone.or(other.gone),
            wakeups: self.wakeups.map_or(other.wakeups, |wakeups| {
                Some(wakeups + other.wakeups.unwrap_or(0))
            }),
        }
    }
}

fn of_queue(stack: &Stack, look: &Look<'_>, number: usize) -> Result<OfQueue, Busy> {
    let (rx, has_fd) = look.receive(number, |receive| {
        (receive.link.statistics(), receive.link.fd().is_some())
    })?;
    let (tx, queued, gone) = look.interface(number, |interface| {
        let gone = interface.gone.clone();
        (interface.statistics(), interface.queued(), gone)
    })?;
    let wakeups = &stack.driver.queues[number].wakeups;
    Ok(OfQueue {
        rx,
        tx,
        queued,
        gone,
        wakeups: has_fd.then(|| wakeups.load(Relaxed)),
    })
}

/// The queues as people know them: by their link's name, with the number of one of several.
fn queue_names(stack: &Stack) -> Vec<String> {
    let net = stack.control.host.network();
    let queues = stack.driver.queues.iter();
    let name = |queue: &SharedQueue| {
        let (link, lane) = (usize::from(queue.link), queue.lane);
        let name = &net.interfaces[link].name;
        match stack.driver.links[link].len() {
            1 => name.clone(),
            _ => format!("{name}.{lane}"),
        }
    };
    queues.map(name).collect()
}

/// What looks at links, shards, sockets or drops, by its own counters: no lock is asked for.
fn taps(stack: &Stack) -> Vec<Value> {
    let net = stack.control.host.network();
    let row = |tap: &Arc<tap::State>| {
        let link = tap
            .link
            .and_then(|link| net.interfaces.get(usize::from(link)));
        let (counted, filter) = (tap.statistics(), tap.filter.read());
        json!({
            "tap": tap.id,
            "of": subject(&tap.subject),
            "link": link.map_or("all", |link| &link.name),
            "way": match tap.way { None => "both", Some(Way::In) => "in", Some(Way::Out) => "out" },
            "snap_bytes": tap.snap,
            "instructions": filter.len(), "filter": filter.engine(),
            "seen": counted.seen, "matched": counted.matched, "taken": counted.taken,
            "dropped_ring_full": counted.dropped_full, "dropped_no_buffer": counted.dropped_buffers,
        })
    };
    stack.control.host.taps.all().iter().map(row).collect()
}

/// What a tap looks at.
fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Links => "links".to_owned(),
        Subject::Drops => "drops".to_owned(),
        Subject::Shard(number) => format!("shard {number}"),
        Subject::Socket(flow) => match flow.remote {
            Some(remote) => format!("socket {} - {remote}", flow.local),
            None => format!("socket {}", flow.local),
        },
    }
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

/// The leases: what each has, and what the lender has counted of it. What goes past the lender by short cuts it does not count.
fn leases(stack: &Stack) -> Vec<Value> {
    let row = |lease: &Arc<LeaseCore>| {
        let (ports, groups) = {
            let ports = lease.ports.lock();
            (ports.to_string(), ports.groups.len())
        };
        json!({
            "number": lease.number,
            "holder": lease.holder,
            "link": stack.control.host.network().interfaces[lease.link].device(),
            "ports": ports,
            "groups": groups,
            "packets_in": lease.packets_in.read(),
            "packets_out": lease.packets_out.read(),
            "drops": lease.drops.read(),
            "refused": lease.refused.read(),
            "nonsense": lease.nonsense.read(),
            "short_cuts": lease.pairs.read(),
        })
    };
    stack.leases().iter().map(row).collect()
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
        for (link, name) in queue_names(stack).iter().enumerate() {
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
                    "link": name, "shard": number,
                    "received_packets": received, "received_slots": limits::CHANNEL_RX,
                    "received_drops": null,
                    "outgoing_packets": outgoing, "outgoing_slots": limits::CHANNEL_TX,
                })),
                Ok(None) => {} // handed over by calls
                Err(busy) => rows.push(busy.row("shard", json!(number))),
            }
        }
    }
    refused(stack, look, &mut rows);
    rows
}

/// What channels had no room for, from the links' ends. They come last: where one hangs, the depths are known all the same.
fn refused(stack: &Stack, look: &Look<'_>, rows: &mut [Value]) {
    for (link, name) in queue_names(stack).iter().enumerate() {
        let Ok(refused) = look.receive(link, |half| half.refused.clone()) else {
            continue;
        };
        let of_link = |row: &&mut Value| row["link"] == name.as_str() && row["shard"].is_u64();
        for row in rows.iter_mut().filter(of_link) {
            let shard = row["shard"].as_u64().and_then(|n| usize::try_from(n).ok());
            row["received_drops"] = json!(shard.and_then(|n| refused.get(n)));
        }
    }
}

/// How many packets of each link wait for each shard that another thread holds: by the links' ends, which know it meanwhile.
fn backlogs(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    for (link, name) in queue_names(stack).iter().enumerate() {
        let row = |(number, (ring, refused)): (usize, (&mut Producer<Packet>, &u64))| {
            json!({
                "link": name, "shard": number,
                "backlog_packets": ring.capacity() - ring.room(), "backlog_slots": ring.capacity(),
                "backlog_drops": refused,
            })
        };
        let found = look.receive(link, |half| {
            let backlogs = half.backlogs.iter_mut().zip(&half.refused).enumerate();
            rows.extend(backlogs.map(row));
        });
        if let Err(busy) = found {
            rows.push(busy.row("link", json!(name)));
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

/// What each thread does, by its own word: no lock is asked for that a hanging one could have. The stack's own, then the application's.
fn threads(stack: &Stack, now: Instant) -> Vec<Value> {
    let kernel = |kernel: Option<watch::Kernel>, mut row: Value| {
        row["kernel_state"] = json!(kernel.map(|kernel| kernel.state.to_string()));
        row["core"] = json!(kernel.map(|kernel| kernel.core));
        row["cpu_s"] = json!(kernel.map(|kernel| kernel.cpu_s));
        row
    };
    let own = stack.control.watch.pulses().into_iter().map(|pulse| {
        let (state, since) = pulse.read();
        let row = json!({
            "name": pulse.name,
            "of": "stack",
            "state": match state {
                _ if pulse.is_stuck() => "stuck",
                Doing::Starting => "starting",
                Doing::Turning => "turning",
                Doing::Asleep => "asleep",
                Doing::Ended => "ended",
            },
            "does": watch::describe(stack, &pulse, now),
            "since_ms": now.since(since).as_millis(),
        });
        kernel(pulse.kernel(), row)
    });
    let application = stack
        .control
        .visitors
        .all()
        .into_iter()
        .filter_map(|visitor| {
            let row = json!({
                "name": visitor.name()?,
                "of": "application",
                "state": if visitor.is_waiting() { "waiting" } else { "program" },
                "does": visitor.describe(stack),
            });
            Some(kernel(visitor.kernel(), row))
        });
    own.chain(application).collect()
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

/// What modules list, each row with its module's name.
fn listed(stack: &Stack, look: &Look<'_>, what: Rows, now: Instant) -> Vec<Value> {
    let mut rows = Vec::new();
    for module in stack.control.modules.entries() {
        // One that is under Giant waits for that.
        let found = match look.lock(|| module.rows(what, now)) {
            Ok(found) => found,
            Err(busy) => {
                rows.push(busy.row("module", json!(module.name)));
                continue;
            }
        };
        for found in found {
            let mut row = json!({ "module": module.name });
            if let (Value::Object(row), Value::Object(found)) = (&mut row, found) {
                row.extend(found);
            }
            rows.push(row);
        }
    }
    rows
}

fn modules(stack: &Stack, now: Instant) -> Vec<Value> {
    let inside = |name: &str| {
        (0..stack.driver.queues.len()).find_map(|number| {
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
    for (shared, name) in stack.driver.queues.iter().zip(queue_names(stack)) {
        if let Some(halves) = &shared.halves {
            rows.push(row(format!("{name} receive"), halves.receive.is_locked()));
            rows.push(row(
                format!("{name} transmit"),
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
    for (number, name) in queue_names(stack).iter().enumerate() {
        let found = look.receive(number, |receive| {
            let slab = &mut receive.slab;
            let buffers = (slab.available(), slab.capacity(), slab.buffer_size());
            (buffers, receive.steer.flows())
        });
        match found {
            Ok(((free, all, size), flows)) => {
                rows.push(row("receive buffers", name, free, all, size));
                if let Some(flows) = flows {
                    let free = limits::FLOWS.saturating_sub(flows);
                    rows.push(row("flow table", name, free, limits::FLOWS, 32));
                }
            }
            Err(busy) => rows.push(busy.row("of", json!(name))),
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
