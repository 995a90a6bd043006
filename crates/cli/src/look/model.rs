//! What two looks at a stack say together: rates and shares. No clock, no terminal: the same two looks give the same model.

use std::collections::HashMap;

use serde::Serialize;

use super::sample::{Sample, Socket, Timed};
use crate::show::per_second;

/// What is shown. Rates are `None` until there were two looks, and where a counter began anew.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Model {
    pub stack: String,
    pub process: String,
    pub regime: String,
    pub up_s: f64,
    pub cpu_percent: Option<f64>,
    pub links: usize,
    pub received: Flow,
    pub sent: Flow,
    pub drops_per_s: Option<f64>,
    pub cores: Vec<Core>,
    pub threads: Vec<Thread>,
    pub channels: Vec<Channel>,
    /// Those that have happened, the most frequent now first.
    pub drops: Vec<Drops>,
    pub sockets: Vec<Connection>,
    /// Sockets that the answer had no room for.
    pub omitted: u64,
    /// What could not be looked at, in sentences.
    pub missing: Vec<String>,
}

/// One direction of all links together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    pub packets_per_s: Option<f64>,
    pub bits_per_s: Option<f64>,
}

/// A processor, whatever runs on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Core {
    pub number: u64,
    pub busy_percent: Option<f64>,
}

/// A thread of the stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thread {
    pub name: String,
    pub role: String,
    pub cpu_percent: Option<f64>,
    pub core: Option<u64>,
    pub state: String,
    pub does: String,
}

/// One direction of a channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Channel {
    pub name: String,
    pub depth: u64,
    /// 0: not known.
    pub slots: u64,
    pub drops: Option<u64>,
    pub drops_per_s: Option<f64>,
}

/// A reason for drops.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drops {
    pub reason: String,
    pub packets: u64,
    pub per_s: Option<f64>,
    pub meaning: String,
}

/// A socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Connection {
    pub protocol: String,
    pub state: String,
    pub local: String,
    pub remote: Option<String>,
    pub process: Option<String>,
    pub in_bits_per_s: Option<f64>,
    pub out_bits_per_s: Option<f64>,
    pub rtt_us: Option<u64>,
    pub cwnd_bytes: Option<u64>,
    pub retransmits: Option<u64>,
    pub retransmits_per_s: Option<f64>,
    pub receive_queue: Option<u64>,
    pub send_queue: Option<u64>,
}

impl Model {
    /// Of the look before, if it was at the same stack, and the newest one.
    pub fn between(before: Option<&Sample>, now: &Sample) -> Self {
        let none = Sample::default();
        let before = before.filter(|before| before.about.stack == now.about.stack);
        let is_first = before.is_none();
        let before = before.unwrap_or(&none);
        let (received, sent) = flows(before, now);
        let drops = drops(before, now);
        let rates = drops.iter().map(|row| row.per_s);
        let counted = !is_first && !now.drops.rows.is_empty();
        let drops_per_s = counted.then(|| rates.flatten().sum());
        let cpu = now.about.cpu_ns.zip(before.about.cpu_ns);
        let seconds = elapsed(before.about.at_ns, now.about.at_ns);
        Self {
            stack: now.about.stack.clone(),
            process: now.about.process.clone(),
            regime: now.about.regime.clone(),
            up_s: now.about.up_s,
            cpu_percent: cpu.and_then(|(now, before)| percent(before, now, seconds)),
            links: now.links.rows.len(),
            received,
            sent,
            drops_per_s,
            cores: cores(before, now),
            threads: threads(before, now),
            channels: channels(before, now),
            drops: drops.into_iter().filter(|row| row.packets > 0).collect(),
            sockets: sockets(before, now),
            omitted: now.omitted,
            missing: now.missing.clone(),
        }
    }

    /// How many sockets are in `state`.
    pub fn in_state(&self, state: &str) -> usize {
        let sockets = self.sockets.iter();
        sockets.filter(|socket| socket.state == state).count()
    }
}

/// Seconds between two looks; none, where there was no first one.
pub fn elapsed(before_ns: u64, now_ns: u64) -> f64 {
    match before_ns {
        0 => 0.0,
        _ => now_ns.saturating_sub(before_ns) as f64 / 1e9, // precision: a rate
    }
}

fn between<A, B>(before: &Timed<A>, now: &Timed<B>) -> f64 {
    elapsed(before.at_ns, now.at_ns)
}

/// Nanoseconds of work in `seconds`, in hundredths of one processor.
fn percent(before_ns: u64, now_ns: u64, seconds: f64) -> Option<f64> {
    per_second(before_ns, now_ns, seconds).map(|ns| ns / 1e7)
}

/// Rows by name, as they were.
fn by_name<'a, T>(rows: &'a Timed<T>, name: impl Fn(&'a T) -> &'a str) -> HashMap<&'a str, &'a T> {
    rows.rows.iter().map(|row| (name(row), row)).collect()
}

/// All links together. One that was not there before has no rate, and none of them has one then: a part would pass for the whole.
fn flows(before: &Sample, now: &Sample) -> (Flow, Flow) {
    let seconds = between(&before.links, &now.links);
    let old = by_name(&before.links, |link| &link.name);
    let sum = |value: fn(&super::sample::Link) -> u64| {
        let rates = now.links.rows.iter().map(|link| {
            let before = old.get(link.name.as_str())?;
            per_second(value(before), value(link), seconds)
        });
        let all: Option<f64> = rates.sum();
        all.filter(|_| seconds > 0.0)
    };
    let received = Flow {
        packets_per_s: sum(|link| link.rx_packets),
        bits_per_s: sum(|link| link.rx_bytes).map(|bytes| bytes * 8.0),
    };
    let sent = Flow {
        packets_per_s: sum(|link| link.tx_packets),
        bits_per_s: sum(|link| link.tx_bytes).map(|bytes| bytes * 8.0),
    };
    (received, sent)
}

fn cores(before: &Sample, now: &Sample) -> Vec<Core> {
    let row = |core: &super::sample::Core| {
        let mut old = before.cores.rows.iter();
        let old = old.find(|old| old.number == core.number);
        let grown = old.and_then(|old| {
            let all = core.all.checked_sub(old.all).filter(|all| *all > 0)?;
            let busy = core.busy.checked_sub(old.busy)?;
            Some((100.0 * busy as f64 / all as f64).min(100.0)) // precision: a share
        });
        Core {
            number: core.number,
            busy_percent: grown,
        }
    };
    now.cores.rows.iter().map(row).collect()
}

/// The busiest first.
fn threads(before: &Sample, now: &Sample) -> Vec<Thread> {
    let seconds = between(&before.threads, &now.threads);
    let old = by_name(&before.threads, |thread| &thread.name);
    let row = |thread: &super::sample::Thread| {
        let before = old.get(thread.name.as_str()).and_then(|old| old.cpu_ns);
        let cpu = before.zip(thread.cpu_ns);
        Thread {
            name: thread.name.clone(),
            role: role(&thread.name),
            cpu_percent: cpu.and_then(|(before, now)| percent(before, now, seconds)),
            core: thread.core,
            state: thread.state.clone(),
            does: thread.does.clone(),
        }
    };
    let mut rows: Vec<Thread> = now.threads.rows.iter().map(row).collect();
    // One that hangs before all others: it may hold up the whole stack.
    let rank = |thread: &Thread| (thread.state != "stuck", -thread.cpu_percent.unwrap_or(0.0));
    rows.sort_by(|a, b| {
        let ((stuck, cpu), (other_stuck, other_cpu)) = (rank(a), rank(b));
        stuck.cmp(&other_stuck).then(cpu.total_cmp(&other_cpu))
    });
    rows
}

/// What a thread is for, by its name (the table of threads in ARCHITECTURE.md).
fn role(name: &str) -> String {
    let of = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    if let Some(number) = of("netchan-core") {
        return format!("shard {number}");
    }
    if let Some(number) = of("netchan-link") {
        return format!("link {number}");
    }
    match (of("netchan-proto"), name) {
        (Some(_), _) => "shards".to_owned(),
        (_, "netchan-poll") => "background".to_owned(),
        (_, "netchan-watch") => "watchdog".to_owned(),
        (_, name) if !name.starts_with("netchan-") => "application".to_owned(),
        _ => String::new(),
    }
}

/// The fullest first, then those that drop.
fn channels(before: &Sample, now: &Sample) -> Vec<Channel> {
    let seconds = between(&before.channels, &now.channels);
    let old = by_name(&before.channels, |channel| &channel.name);
    let row = |channel: &super::sample::Channel| {
        let before = old.get(channel.name.as_str()).and_then(|old| old.dropped);
        let dropped = before.zip(channel.dropped);
        Channel {
            name: channel.name.clone(),
            depth: channel.depth,
            slots: channel.slots,
            drops: channel.dropped,
            drops_per_s: dropped.and_then(|(before, now)| per_second(before, now, seconds)),
        }
    };
    let mut rows: Vec<Channel> = now.channels.rows.iter().map(row).collect();
    let weight = |channel: &Channel| (channel.drops_per_s.unwrap_or(0.0), channel.depth);
    rows.sort_by(|a, b| {
        let ((drops, depth), (other_drops, other_depth)) = (weight(a), weight(b));
        (other_drops.total_cmp(&drops)).then(other_depth.cmp(&depth))
    });
    rows
}

/// Every reason; those that happen now first.
fn drops(before: &Sample, now: &Sample) -> Vec<Drops> {
    let seconds = between(&before.drops, &now.drops);
    let old = by_name(&before.drops, |row| &row.reason);
    let row = |row: &super::sample::Drops| {
        // A module that was loaded since brought its reason along.
        let before = old.get(row.reason.as_str()).map_or(0, |old| old.packets);
        Drops {
            reason: row.reason.clone(),
            packets: row.packets,
            per_s: per_second(before, row.packets, seconds),
            meaning: row.meaning.clone(),
        }
    };
    let mut rows: Vec<Drops> = now.drops.rows.iter().map(row).collect();
    rows.sort_by(|a, b| {
        let rate = |row: &Drops| row.per_s.unwrap_or(0.0);
        (rate(b).total_cmp(&rate(a))).then(b.packets.cmp(&a.packets))
    });
    rows
}

fn sockets(before: &Sample, now: &Sample) -> Vec<Connection> {
    let key = |s: &Socket| {
        let remote = s.remote.clone().unwrap_or_default();
        (s.protocol.clone(), s.local.clone(), remote)
    };
    let old = before.sockets.rows.iter().map(|row| (key(row), row));
    let old: HashMap<_, &Socket> = old.collect();
    let seconds = between(&before.sockets, &now.sockets);
    // A connection that was not there began since; unless the look before did not see all of them.
    let was_whole = before.omitted == 0 && before.missing.is_empty();
    let row = |socket: &Socket| {
        let old = old.get(&key(socket)).copied();
        let rate = |value: fn(&Socket) -> Option<u64>| {
            let now = value(socket)?;
            // One of the same ends that has counted less is a new one.
            let before = match old.and_then(value).filter(|before| *before <= now) {
                Some(before) => before,
                None if old.is_some() || was_whole => 0,
                None => return None,
            };
            per_second(before, now, seconds)
        };
        Connection {
            protocol: socket.protocol.clone(),
            state: socket.state.clone(),
            local: socket.local.clone(),
            remote: socket.remote.clone(),
            process: (socket.process.clone()).or_else(|| Some(now.about.process.clone())),
            in_bits_per_s: rate(|s| s.received_bytes).map(|bytes| bytes * 8.0),
            out_bits_per_s: rate(|s| s.sent_bytes).map(|bytes| bytes * 8.0),
            rtt_us: socket.rtt_us.filter(|us| *us > 0),
            cwnd_bytes: socket.cwnd_bytes,
            retransmits: socket.retransmits,
            retransmits_per_s: rate(|s| s.retransmits),
            receive_queue: socket.receive_queue,
            send_queue: socket.send_queue,
        }
    };
    now.sockets.rows.iter().map(row).collect()
}
