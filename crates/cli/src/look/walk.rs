//! A packet's walk in figures: how many packets a second pass each arrow from the link to the socket and back, and how many are lost on it. Like the model, a
//! pure function of two looks.

use std::collections::{BTreeMap, HashMap};

use netchan::control::{AskError, Stack};
use serde::Serialize;
use serde_json::Value;

use super::{
    model::elapsed,
    sample::{self, Passage, Sample},
};
use crate::{show::per_second, units::now_ns};

/// The counters that the arrows need.
const WANTED: [&str; 13] = [
    "tcp_segments_in",
    "udp_datagrams_in",
    "packet_channel_in",
    "arp_in",
    "icmp_in",
    "membership_in",
    "forwarded",
    "tcp_segments_out",
    "udp_datagrams_out",
    "packet_channel_out",
    "tcp_retransmits",
    "backlog_packets",
    "no_transmit_buffer",
];

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Station {
    Link,
    Steer,
    Channel,
    Shard,
    Socket,
    /// What lets a packet out: its address, its route, its next hop.
    Check,
    /// ARP, ICMP, group membership: answered beside the path.
    Host,
}

/// Counters of one look.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub at_ns: u64,
    values: HashMap<&'static str, u64>,
}

impl Counts {
    /// Asks `stack`.
    ///
    /// # Errors
    /// It gives no answer.
    pub fn take(stack: &Stack) -> Result<Self, AskError> {
        let at_ns = now_ns();
        Ok(Self::of(at_ns, &stack.show("counters")?))
    }

    /// Of what a stack answered.
    pub fn of(at_ns: u64, facts: &Value) -> Self {
        let rows = facts.as_array().map_or(&[][..], Vec::as_slice);
        let value = |row: &Value| {
            let name = row.get("name")?.as_str()?;
            let name = WANTED.into_iter().find(|wanted| *wanted == name)?;
            Some((name, sample::number(row, "value")?))
        };
        Self {
            at_ns,
            values: rows.iter().filter_map(value).collect(),
        }
    }
}

/// All arrows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Walk {
    pub arrows: Vec<Arrow>,
    /// Packets that wait between links and shards, on the way in and on the way out.
    pub received: Depth,
    pub outgoing: Depth,
    pub retransmits_per_s: Option<f64>,
    /// Put off, as no transmit buffer was free.
    pub no_buffer_per_s: Option<f64>,
}

/// From one station to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrow {
    pub from: Station,
    pub to: Station,
    /// `None`: not known yet.
    pub packets_per_s: Option<f64>,
    pub bits_per_s: Option<f64>,
    pub drops_per_s: Option<f64>,
    /// Since the stack began.
    pub drops: u64,
    /// Why, as far as it happened.
    pub reasons: Vec<String>,
}

/// What waits in channels of one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Depth {
    pub channels: usize,
    pub packets: u64,
    pub slots: u64,
    /// They are backlogs: links call shards, and leave packets to a shard that is held.
    pub are_backlogs: bool,
}

/// Reasons for drops that are a socket's: its queue, its memory, its share.
const OF_SOCKETS: [&str; 14] = [
    "tcp_accept_queue_full",
    "tcp_memory",
    "tcp_memory_limit",
    "tcp_socket_share",
    "tcp_peer_share",
    "tcp_pruned",
    "tcp_error_queue_full",
    "udp_queue_full",
    "udp_group_copy",
    "udp_memory_limit",
    "udp_socket_share",
    "udp_peer_share",
    "udp_error_queue_full",
    "ping_queue_full",
];

/// Where the packets are lost that are dropped for `reason`, as `netchan show drops` has it.
pub fn place(reason: &str) -> Station {
    match reason {
        "channel_full" | "backlog_full" | "packet_channel_full" | "packet_channel_buffers" => {
            Station::Channel
        }
        "link_queue_full" | "transmit_check" | "no_route" | "neighbor_unresolved" => Station::Check,
        _ if OF_SOCKETS.contains(&reason) => Station::Socket,
        // The link's name and its own reason.
        _ if reason.contains(' ') => Station::Link,
        _ if reason.starts_with("forward_") => Station::Check,
        _ => {
            let shards = ["tcp_", "udp_", "ping_", "icmp"];
            match shards.iter().any(|prefix| reason.starts_with(prefix)) {
                true => Station::Shard,
                // Modules, too.
                false => Station::Steer,
            }
        }
    }
}

/// What was lost at a station.
#[derive(Clone, Debug, Default)]
struct Lost {
    per_s: f64,
    packets: u64,
    reasons: Vec<String>,
}

impl Lost {
    fn and(mut self, other: &Self) -> Self {
        self.per_s += other.per_s;
        self.packets = self.packets.saturating_add(other.packets);
        self.reasons.extend_from_slice(&other.reasons);
        self
    }
}

/// A look at a stack with its counters.
pub type Taken<'a> = (&'a Sample, &'a Counts);

impl Walk {
    /// Of the look before, at the same stack, and the newest one.
    pub fn between(before: Option<Taken<'_>>, now: Taken<'_>) -> Self {
        let none = (&Sample::default(), &Counts::default());
        let before = before.unwrap_or(none);
        let ((old, old_counts), (new, counts)) = (before, now);
        let seconds = elapsed(old_counts.at_ns, counts.at_ns);
        let rate = |name: &str| {
            let both = old_counts.values.get(name).zip(counts.values.get(name));
            both.and_then(|(before, now)| per_second(*before, *now, seconds))
        };
        let sum = |names: &[&str]| names.iter().map(|name| rate(name)).sum::<Option<f64>>();
        let lost = lost(old, new);
        let at = |station| lost.get(&station).cloned().unwrap_or_default();
        let is_first = old.drops.at_ns == 0;
        let arrow = |from, to, packets_per_s: Option<f64>, lost: Lost| Arrow {
            from,
            to,
            packets_per_s,
            bits_per_s: None,
            drops_per_s: (!is_first).then_some(lost.per_s),
            drops: lost.packets,
            reasons: lost.reasons,
        };
        let links = |value: fn(&sample::Link) -> u64| links_rate(old, new, value);
        let taken = sum(&["tcp_segments_in", "udp_datagrams_in", "packet_channel_in"]);
        let sent = sum(&[
            "tcp_segments_out",
            "udp_datagrams_out",
            "packet_channel_out",
        ]);
        let refused = at(Station::Channel);
        let handed = taken.map(|taken| taken + refused.per_s);
        let kept = at(Station::Shard).and(&at(Station::Socket));
        let read = taken.map(|taken| (taken - kept.per_s).max(0.0));
        let beside = sum(&["arp_in", "icmp_in", "membership_in"]);
        let (none, out) = (Lost::default(), at(Station::Check));
        use Station::{Channel, Check, Host, Link, Shard, Socket, Steer};
        let mut arrows = vec![
            arrow(Link, Steer, links(|l| l.rx_packets), at(Link)),
            arrow(Steer, Channel, handed, at(Steer)),
            arrow(Channel, Shard, taken, refused),
            arrow(Shard, Socket, read, kept),
            arrow(Steer, Host, beside, none.clone()),
            arrow(Steer, Check, rate("forwarded"), none.clone()),
            arrow(Socket, Shard, None, none.clone()),
            arrow(Shard, Channel, sent, none.clone()),
            arrow(Channel, Check, sent, none),
            arrow(Check, Link, links(|l| l.tx_packets), out),
        ];
        let bits = |bytes: Option<f64>| bytes.map(|bytes| bytes * 8.0);
        for arrow in &mut arrows {
            arrow.bits_per_s = match (arrow.from, arrow.to) {
                (Link, _) => bits(links(|l| l.rx_bytes)),
                (_, Link) => bits(links(|l| l.tx_bytes)),
                _ => None,
            };
        }
        Self {
            arrows,
            received: depth(new, &[Passage::Received, Passage::Backlog]),
            outgoing: depth(new, &[Passage::Outgoing]),
            retransmits_per_s: rate("tcp_retransmits"),
            no_buffer_per_s: rate("no_transmit_buffer"),
        }
    }

    /// What programs read from sockets and wrote to them, which the sockets' own figures tell.
    pub fn with_sockets(mut self, received: Option<f64>, sent: Option<f64>) -> Self {
        for arrow in &mut self.arrows {
            match (arrow.from, arrow.to) {
                (_, Station::Socket) => arrow.bits_per_s = received,
                (Station::Socket, _) => arrow.bits_per_s = sent,
                _ => {}
            }
        }
        self
    }
}

/// Of all links together; none where one of them has none: a part would pass for the whole.
fn links_rate(before: &Sample, now: &Sample, value: fn(&sample::Link) -> u64) -> Option<f64> {
    let seconds = elapsed(before.links.at_ns, now.links.at_ns);
    let rate = |link: &sample::Link| {
        let old = before.links.rows.iter().find(|old| old.name == link.name)?;
        per_second(value(old), value(link), seconds)
    };
    now.links.rows.iter().map(rate).sum()
}

fn lost(before: &Sample, now: &Sample) -> BTreeMap<Station, Lost> {
    let seconds = elapsed(before.drops.at_ns, now.drops.at_ns);
    let old = before.drops.rows.iter();
    let old: HashMap<&str, u64> = old.map(|row| (row.reason.as_str(), row.packets)).collect();
    let mut lost: BTreeMap<Station, Lost> = BTreeMap::new();
    for row in now.drops.rows.iter().filter(|row| row.packets > 0) {
        let at = lost.entry(place(&row.reason)).or_default();
        let before = old.get(row.reason.as_str()).copied().unwrap_or(0);
        at.per_s += per_second(before, row.packets, seconds).unwrap_or(0.0);
        at.packets = at.packets.saturating_add(row.packets);
        at.reasons.push(row.reason.clone());
    }
    lost
}

fn depth(now: &Sample, ways: &[Passage]) -> Depth {
    let mut depth = Depth::default();
    for channel in now.channels.rows.iter().filter(|c| ways.contains(&c.way)) {
        depth.channels += 1;
        depth.packets = depth.packets.saturating_add(channel.depth);
        depth.slots = depth.slots.saturating_add(channel.slots);
        depth.are_backlogs |= channel.way == Passage::Backlog;
    }
    depth
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
