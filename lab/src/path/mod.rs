//! Experiment `path`: what one core's worth of the whole path costs, beside smoltcp over its own in-memory link.

mod lane;
pub mod netchan_side;
pub mod smoltcp_side;

use smoltcp::phy::Medium;

use self::{
    netchan_side::NetchanPair,
    smoltcp_side::{SmoltcpPair, Tuning},
};
use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{Pinned, interleave, seconds},
    report::{Report, Row},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "path",
    question: "What do a request/response, a bulk byte and a connection cost on one core, both ends included, beside smoltcp?",
    prediction: "Ahead of smoltcp in every row: its socket table is searched linearly, so its cost grows with idle connections (about 66 ns each) \
        while netchan's stays flat; without idle connections the gap is smaller (1.2 to 2 times), since both do the same protocol work.",
    run,
};

/// What both sides are told.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Established connections without traffic beside the busy one.
    pub idle: usize,
    /// Checksums are computed and verified on both ends.
    pub checksums: bool,
    /// Bytes of the application's buffer: how much it writes, and reads at most, with one call.
    pub chunk: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mtu: 1500,
            idle: 0,
            checksums: true,
            chunk: 1 << 16,
        }
    }
}

/// Two stacks joined in memory, with one established connection, in one thread.
pub trait Pair {
    /// `n` times `size` bytes there and as many back; at most [`MESSAGE_MAX`].
    fn round_trips(&mut self, n: usize, size: usize);
    /// `bytes` from the client to the server, from the application's buffer into the application's buffer.
    fn bulk(&mut self, bytes: usize);
    /// `n` times: open, one byte there and one back, close both ways.
    fn connections(&mut self, n: usize);
    /// `n` times [`CROWD`] of them at once: all SYNs, then what follows from them, and so on.
    fn crowds(&mut self, n: usize);
}

/// Connections that are opened at once.
pub const CROWD: usize = 64;

/// Longest request of [`Pair::round_trips`]: it fits into one packet of 1500 bytes.
pub const MESSAGE_MAX: usize = 1024;

/// How much work a round is.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    round_trips: usize,
    bulk_bytes: usize,
    connections: usize,
}

impl Effort {
    const QUICK: Self = Self {
        rounds: 5,
        round_trips: 50_000,
        bulk_bytes: 64 << 20,
        connections: 10_000,
    };
    const WHOLE: Self = Self {
        rounds: 15,
        round_trips: 200_000,
        bulk_bytes: 256 << 20,
        connections: 30_000,
    };
}

/// One comparison: what is measured, in what unit, and how the two stand.
#[derive(Clone, Copy)]
struct Contest<'a> {
    id: &'a str,
    setup: Setup,
    tuning: Tuning,
    target: &'a str,
    reference: &'a str,
    /// Work for one round of netchan, and for one of the peer (less, where the peer is slow).
    amount: (usize, usize),
    work: fn(&mut dyn Pair, usize) -> f64,
}

/// Nanoseconds a round trip.
fn round_trip_ns(pair: &mut dyn Pair, n: usize) -> f64 {
    seconds(|| pair.round_trips(n, 1)) * 1e9 / count(n)
}

/// Nanoseconds of a round trip, a kibibyte each way.
fn round_trip_1024_ns(pair: &mut dyn Pair, n: usize) -> f64 {
    seconds(|| pair.round_trips(n, MESSAGE_MAX)) * 1e9 / count(n)
}

/// Gigabits a second, of what the application sent.
fn bulk_gbit_per_s(pair: &mut dyn Pair, bytes: usize) -> f64 {
    count(bytes) * 8.0 / 1e9 / seconds(|| pair.bulk(bytes))
}

/// Connections a second.
fn connections_per_s(pair: &mut dyn Pair, n: usize) -> f64 {
    count(n) / seconds(|| pair.connections(n))
}

/// The same, of those that are opened [`CROWD`] at once.
fn crowds_per_s(pair: &mut dyn Pair, n: usize) -> f64 {
    count(n * CROWD) / seconds(|| pair.crowds(n))
}

#[allow(clippy::cast_precision_loss)] // amounts of work are far below 2^52
const fn count(n: usize) -> f64 {
    n as f64
}

impl Contest<'_> {
    fn run(&self, rounds: usize) -> Result<Row, LabError> {
        let mut netchan = NetchanPair::new(self.setup)?;
        let mut smoltcp = SmoltcpPair::new(self.setup, self.tuning);
        let samples = interleave(
            rounds,
            &mut [
                &mut || (self.work)(&mut netchan, self.amount.0),
                &mut || (self.work)(&mut smoltcp, self.amount.1),
            ],
        );
        let [ours, theirs] = samples.as_slice() else {
            unreachable!("two sides, two samples")
        };
        let row = Row::new(self.id, ours)
            .against("smoltcp 0.14", theirs)
            .target(self.target);
        Ok(if self.reference.is_empty() {
            row
        } else {
            row.reference(self.reference)
        })
    }
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let effort = options.choose(Effort::QUICK, Effort::WHOLE);
    experiment.on_one_core(Pinned::to_last_core, || {
        let contests = contests(&effort);
        contests.iter().map(|c| c.run(effort.rounds)).collect()
    })
}

/// All comparisons: the rows of the issue first, then what explains them.
fn contests(effort: &Effort) -> Vec<Contest<'static>> {
    let basic = Contest {
        id: "rr_ns",
        setup: Setup::default(),
        tuning: Tuning::default(),
        target: "below the peer",
        reference: "",
        amount: (effort.round_trips, effort.round_trips),
        work: round_trip_ns,
    };
    let bulk = Contest {
        amount: (effort.bulk_bytes, effort.bulk_bytes),
        work: bulk_gbit_per_s,
        target: "above the peer",
        ..basic
    };
    let mut contests = busy(effort, basic, bulk);
    contests.extend(idle(effort, basic));
    contests.extend(explaining(basic, bulk));
    contests
}

const LARGE: Setup = Setup {
    mtu: 65_535,
    idle: 0,
    checksums: true,
    chunk: 1 << 14,
};

/// smoltcp at its best with packets of 1500 bytes, and of 65535.
fn bulk_tunings() -> (Tuning, Tuning) {
    let tuning = |burst, buffer| Tuning {
        burst,
        buffer,
        ..Tuning::default()
    };
    (tuning(32, 1 << 16), tuning(4, 1 << 18))
}

/// Request/response, bulk and connections.
fn busy(effort: &Effort, basic: Contest<'static>, bulk: Contest<'static>) -> Vec<Contest<'static>> {
    let (small, large) = bulk_tunings();
    vec![
        Contest {
            reference: "453 (smoltcp, other driver)",
            ..basic
        },
        Contest {
            id: "bulk_1500_gbit_per_s",
            tuning: small,
            reference: "39.4 (smoltcp, other driver)",
            ..bulk
        },
        Contest {
            id: "bulk_65535_gbit_per_s",
            setup: LARGE,
            tuning: large,
            reference: "62.3 (smoltcp, other driver)",
            ..bulk
        },
        Contest {
            id: "connections_per_s",
            amount: (effort.connections, effort.connections),
            work: connections_per_s,
            target: "above the peer",
            reference: "593000 (smoltcp, other driver)",
            ..basic
        },
        Contest {
            id: "connections_64_at_once_per_s",
            amount: (effort.connections / CROWD, effort.connections / CROWD),
            work: crowds_per_s,
            target: "above the peer",
            ..basic
        },
    ]
}

/// Request/response beside idle connections.
fn idle(effort: &Effort, basic: Contest<'static>) -> impl Iterator<Item = Contest<'static>> {
    let round_trips = effort.round_trips;
    [
        ("rr_idle_0_ns", 0, 1),
        ("rr_idle_100_ns", 100, 5),
        ("rr_idle_1000_ns", 1000, 50),
        ("rr_idle_10000_ns", 10_000, 1000),
    ]
    .into_iter()
    .map(move |(id, idle, slower)| Contest {
        id,
        setup: Setup {
            idle,
            ..Setup::default()
        },
        amount: (round_trips, round_trips / slower),
        target: "flat, below the peer",
        ..basic
    })
}

/// What link headers, size and checksums have to do with it.
fn explaining(basic: Contest<'static>, bulk: Contest<'static>) -> [Contest<'static>; 5] {
    let (small, large) = bulk_tunings();
    let unsummed = Setup {
        checksums: false,
        ..Setup::default()
    };
    [
        // smoltcp as in the other rows but with link headers, which netchan always has.
        Contest {
            id: "rr_ethernet_ns",
            tuning: Tuning {
                medium: Medium::Ethernet,
                ..Tuning::default()
            },
            ..basic
        },
        Contest {
            id: "rr_1024_ns",
            work: round_trip_1024_ns,
            ..basic
        },
        Contest {
            id: "rr_no_checksum_ns",
            setup: unsummed,
            ..basic
        },
        Contest {
            id: "bulk_1500_no_checksum_gbit_per_s",
            setup: unsummed,
            tuning: small,
            ..bulk
        },
        Contest {
            id: "bulk_65535_no_checksum_gbit_per_s",
            setup: Setup {
                checksums: false,
                ..LARGE
            },
            tuning: large,
            ..bulk
        },
    ]
}

#[cfg(test)]
mod tests;
