//! Which sockets of a model are wanted, and in which order.

use std::cmp::Ordering;

use serde::Deserialize;

use super::model::Connection;
use crate::show::Filter;

/// What connections are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Both directions together
    Rate,
    /// What is received
    In,
    /// What is sent
    Out,
    /// The round trip
    Rtt,
    /// The congestion window
    Cwnd,
    /// Retransmissions a second
    Retransmits,
    /// What waits in both queues
    Queues,
    /// The local address
    Local,
    /// The remote address
    Remote,
}

impl Order {
    /// One after the other.
    pub const ALL: [Self; 9] = [
        Self::Rate,
        Self::In,
        Self::Out,
        Self::Rtt,
        Self::Cwnd,
        Self::Retransmits,
        Self::Queues,
        Self::Local,
        Self::Remote,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::In => "in",
            Self::Out => "out",
            Self::Rtt => "RTT",
            Self::Cwnd => "cwnd",
            Self::Retransmits => "retransmits",
            Self::Queues => "queues",
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }

    /// The one behind it; behind the last the first.
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self);
        Self::ALL[at.map_or(0, |at| (at + 1) % Self::ALL.len())]
    }

    /// The largest number first, names from their beginning. Of equals those with more behind them, then by their names: an order that stays.
    fn compare(self, a: &Connection, b: &Connection) -> Ordering {
        let number = |value: fn(&Connection) -> f64| value(b).total_cmp(&value(a));
        let names = || (&a.remote, &a.local, &a.protocol).cmp(&(&b.remote, &b.local, &b.protocol));
        let first = match self {
            Self::Rate => number(rate),
            Self::In => number(|c| c.in_bits_per_s.unwrap_or(-1.0)),
            Self::Out => number(|c| c.out_bits_per_s.unwrap_or(-1.0)),
            Self::Rtt => b.rtt_us.cmp(&a.rtt_us),
            Self::Cwnd => b.cwnd_bytes.cmp(&a.cwnd_bytes),
            Self::Retransmits => number(|c| c.retransmits_per_s.unwrap_or(-1.0))
                .then_with(|| b.retransmits.cmp(&a.retransmits)),
            Self::Queues => queues(b).cmp(&queues(a)),
            Self::Local => a.local.cmp(&b.local),
            Self::Remote => a.remote.cmp(&b.remote),
        };
        first.then_with(|| number(rate)).then_with(names)
    }
}

fn rate(c: &Connection) -> f64 {
    match (c.in_bits_per_s, c.out_bits_per_s) {
        (None, None) => -1.0,
        (received, sent) => received.unwrap_or(0.0) + sent.unwrap_or(0.0),
    }
}

fn queues(c: &Connection) -> u64 {
    (c.receive_queue.unwrap_or(0)).saturating_add(c.send_queue.unwrap_or(0))
}

/// The sockets that are wanted, in order. Without a filter: those with another end, but for what is left of ended ones, as ss(8) has it.
pub fn chosen<'a>(
    sockets: &'a [Connection],
    filter: &Filter,
    order: Order,
    is_reversed: bool,
) -> Vec<&'a Connection> {
    let all = *filter == Filter::default();
    let is_wanted = |s: &&Connection| match all {
        true => s.remote.is_some() && s.state != "TIME-WAIT",
        false => filter.lets_through(&s.state, Some(&s.local), s.remote.as_deref()),
    };
    let mut chosen: Vec<&Connection> = sockets.iter().filter(is_wanted).collect();
    chosen.sort_by(|a, b| match is_reversed {
        false => order.compare(a, b),
        true => order.compare(b, a),
    });
    chosen
}
