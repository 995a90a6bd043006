//! How long packets take from the link to the application, station by station, as a sample of them shows: always, and without being asked.
//!
//! One packet in [`STRIDE`] of those that a queue receives is timed; every one while details are recorded, or a latency is waited for. The link's
//! thread writes the time into the packet itself, and how long it took to hand it over; the shard's holder does the rest. So no
//! time is looked up for the others, nothing is shared, and a burst pays a subtraction, a packet and a read one comparison each.
//!
//! Times are in ticks of 16 cycles (6 ns at 2.6 GHz), which fit into the space that a packet had to spare: 32 bits go round after 26 s.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use percore::clock;

use crate::trace;

/// A prime, so that it does not keep step with bursts of 64.
pub(crate) const STRIDE: i32 = 61;

/// Cycles in a tick, as a shift.
const TICK_BITS: u32 = 4;

/// A part of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Station {
    /// From the link's burst until the shard or its channel is given the packet: classifying, modules, the others of the burst.
    Steer,
    /// In the channel or the backlog; where links call, until the shard's lock is had.
    Channel,
    /// TCP, UDP or ICMP.
    Protocol,
    /// From there until its socket's waiters are called, where there were any: the rest of the turn.
    Wake,
    /// From there until the application has read it: threads that wake up, and what else the application does.
    Read,
    /// From the link to the application.
    Total,
}

impl Station {
    /// All of them, in a packet's order.
    pub const ALL: [Self; 6] = [
        Self::Steer,
        Self::Channel,
        Self::Protocol,
        Self::Wake,
        Self::Read,
        Self::Total,
    ];

    /// Its name in `netchan show stages`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Channel => "channel",
            Self::Protocol => "protocol",
            Self::Wake => "wake",
            Self::Read => "read",
            Self::Total => "total",
        }
    }
}

/// Changes when what was measured before is of another kind.
static PERIOD: AtomicU64 = AtomicU64::new(0);

/// What was measured so far no longer counts: how many packets are timed has changed.
pub(crate) fn begin_anew() {
    PERIOD.fetch_add(1, Relaxed); // a number on its own
}

/// Whether every packet is timed.
#[inline(always)]
pub(crate) fn times_all() -> bool {
    trace::has(trace::DETAILS_ON | trace::ARMED_LATENCY)
}

/// The time now.
#[inline]
pub(crate) fn ticks() -> u32 {
    // Truncation: it goes round.
    #[allow(clippy::cast_possible_truncation)]
    let ticks = (clock::cycles() >> TICK_BITS) as u32;
    ticks
}

/// What so many ticks last.
pub(crate) fn ticks_to_ns(ticks: u64) -> u64 {
    clock::cycles_to_ns(ticks << TICK_BITS)
}

/// How long packets took, at each station: the figures of one shard, or of several together.
#[derive(Debug)]
pub(crate) struct Latencies {
    period: u64,
    ticks: [Histogram<u32>; Station::ALL.len()],
}

/// What is printed of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub packets: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Latencies {
    /// None yet. Takes all its memory, 80 KiB.
    pub fn new() -> Self {
        // Two digits: within a hundredth, from a tick to as many as there can be.
        let empty = |_| {
            Histogram::new_with_bounds(1, u32::MAX.into(), 2)
                .unwrap_or_else(|_| unreachable!("these bounds are good"))
        };
        Self {
            period: PERIOD.load(Relaxed),
            ticks: std::array::from_fn(empty),
        }
    }

    /// A packet took so long.
    pub fn note(&mut self, station: Station, ticks: u32) {
        let period = PERIOD.load(Relaxed);
        if self.period != period {
            self.period = period;
            self.ticks.iter_mut().for_each(Histogram::reset);
        }
        self.ticks[station as usize].saturating_record(ticks.into());
    }

    /// Adds what another one has of this period.
    pub fn add(&mut self, other: &Self) {
        if other.period == self.period {
            for (to, from) in self.ticks.iter_mut().zip(&other.ticks) {
                // Of the same bounds: it cannot fail.
                let _ = to.add(from);
            }
        }
    }

    /// A station's figures; `None`: no packet was timed there.
    pub fn summary(&self, station: Station) -> Option<Summary> {
        let ticks = &self.ticks[station as usize];
        let at = |quantile| ticks_to_ns(ticks.value_at_quantile(quantile));
        (!ticks.is_empty()).then(|| Summary {
            packets: ticks.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            max_ns: ticks_to_ns(ticks.max()),
        })
    }
}
