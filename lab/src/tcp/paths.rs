//! The paths of the experiment in virtual time: one bottleneck, one or many flows through it, and what they get.

use proto::{
    tcp::{Config, CongestionControl},
    time::{Duration, Instant},
    wire::tcp::SeqNum,
};

use crate::world::{
    Party, START, World, app::App, dice::Dice, endpoint::EndShape, link::LinkShape, peer::PeerShape,
};

/// Bytes of every buffer: more than four times what the path holds, so that buffers decide nothing.
const BUFFER: u32 = 16 << 20;

/// A bottleneck and the way to it.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Bytes a second.
    pub rate: u64,
    /// There and back, without waiting.
    pub rtt: Duration,
    /// Bytes that may wait.
    pub queue: u64,
    /// Losses behind the bottleneck, in a million; acknowledgments are spared.
    pub loss_ppm: u32,
    /// Packets of at most so many bytes are spared.
    pub spared: u32,
    /// Packets that are lost: see [`LinkShape::doomed`].
    pub doomed: [u32; 2],
    /// Late packets, in a million, and by how much.
    pub late: (u32, Duration),
    /// By how much each acknowledgment may be late, by chance; they stay in order.
    pub jitter: Duration,
}

impl Path {
    /// 100 Mbit/s over 100 ms, with a queue of one bandwidth-delay product.
    pub const WIDE: Self = Self {
        rate: 12_500_000,
        rtt: Duration::from_millis(100),
        queue: 1_250_000,
        loss_ppm: 0,
        spared: 0,
        doomed: [0; 2],
        late: (0, Duration::ZERO),
        jitter: Duration::ZERO,
    };

    /// Bytes that the path holds.
    #[must_use]
    pub fn product(&self) -> u64 {
        self.rate * u64::try_from(self.rtt.as_micros()).unwrap_or(0) / 1_000_000
    }

    /// The bottleneck.
    #[must_use]
    pub fn bottleneck(&self) -> LinkShape {
        LinkShape {
            delay: self.rtt / 2,
            rate: self.rate,
            queue_max: self.queue,
            loss_ppm: self.loss_ppm,
            spared: self.spared,
            doomed: self.doomed,
            late_ppm: self.late.0,
            late_by: self.late.1,
            mtu: 1500,
            ..LinkShape::default()
        }
    }

    /// The way back.
    #[must_use]
    pub fn back(&self) -> LinkShape {
        LinkShape {
            delay: self.rtt / 2,
            jitter: self.jitter,
            ..LinkShape::default()
        }
    }
}

/// Whose TCP sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// netchan's, with this congestion control.
    Netchan(CongestionControl),
    /// netchan's, with losses found by counting (RFC 6675): no RACK, no tail loss probes.
    NetchanWithoutRack(CongestionControl),
    /// smoltcp's, with its CUBIC.
    Smoltcp,
}

/// One transfer: when it begins, how many bytes, and how much farther away than the path says its ends are.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// After the world's beginning.
    pub after: Duration,
    /// Bytes.
    pub bytes: u64,
    /// There and back.
    pub farther: Duration,
}

impl Flow {
    /// So many bytes from the beginning on, over the path as it is.
    #[must_use]
    pub const fn at_once(bytes: u64) -> Self {
        Self {
            after: Duration::ZERO,
            bytes,
            farther: Duration::ZERO,
        }
    }
}

/// More than any run transfers.
pub const ENDLESS: u64 = 1 << 40;

impl Stack {
    fn party(self, flow: &Flow, sends: bool, seed: u64) -> Party {
        let opens_at = sends.then_some(START + flow.after);
        let writes = if sends { flow.bytes } else { 0 };
        match self {
            Self::Smoltcp => Party::from(PeerShape {
                opens_at,
                writes,
                buffer: (BUFFER / 4) as usize,
                seed,
            }),
            Self::Netchan(congestion) | Self::NetchanWithoutRack(congestion) => {
                let iss = u32::try_from(seed & 0xffff_ffff).unwrap_or(0);
                let bytes = sends.then_some(writes);
                let mut shape = netchan_end(congestion, bytes, opens_at, iss);
                shape.config.rack = matches!(self, Self::Netchan(_));
                Party::from(shape)
            }
        }
    }
}

/// An end of ours: it opens at `opens_at` and sends so many bytes, or listens and reads.
pub(super) fn netchan_end(
    congestion: CongestionControl,
    sends: Option<u64>,
    opens_at: Option<Instant>,
    iss: u32,
) -> EndShape {
    EndShape {
        config: Config {
            receive_buffer: BUFFER,
            max_segments: 1 << 15,
            congestion,
            ..Config::default()
        },
        app: sends.map_or_else(App::sink, |bytes| App::bulk(bytes, u64::from(BUFFER))),
        opens_at,
        iss: SeqNum(iss),
        ts_offset: 7,
        patience: Duration::ZERO,
    }
}

/// All flows through one bottleneck, and the receiving end of each.
#[must_use]
pub fn dumbbell(path: &Path, stack: Stack, flows: &[Flow], seed: u64) -> (World, Vec<usize>) {
    let mut world = World::new(seed);
    let bottleneck = world.link(path.bottleneck());
    let mut dice = Dice::of(seed, 77);
    let ends = flows.iter().map(|flow| {
        let hosts = [0, 1].map(|_| world.host(1 << 15));
        let access = LinkShape {
            delay: flow.farther / 2,
            ..LinkShape::default()
        };
        let back = LinkShape {
            delay: path.rtt / 2 + flow.farther / 2,
            ..path.back()
        };
        let routes = [vec![world.link(access), bottleneck], vec![world.link(back)]];
        let ends = [true, false].map(|sends| stack.party(flow, sends, dice.next()));
        world.flow(hosts, ends, routes) + 1
    });
    let ends = ends.collect();
    (world, ends)
}

/// Megabits a second that one endless flow gets from `from` to `to` after its beginning.
#[must_use]
pub fn rate(path: &Path, stack: Stack, seed: u64, from: Duration, to: Duration) -> f64 {
    let (mut world, ends) = dumbbell(path, stack, &[Flow::at_once(ENDLESS)], seed);
    rates(&mut world, &ends, from, to)[0]
}

/// What each gets meanwhile.
pub fn rates(world: &mut World, ends: &[usize], from: Duration, to: Duration) -> Vec<f64> {
    let seconds = (to - from).as_secs_f64();
    let read = bytes_read(world, ends, from, to);
    let rate = |bytes| bits(bytes) / 1e6 / seconds;
    read.into_iter().map(rate).collect()
}

/// Bytes that each end's application reads meanwhile.
pub fn bytes_read(world: &mut World, ends: &[usize], from: Duration, to: Duration) -> Vec<u64> {
    let read = |world: &World| -> Vec<u64> { ends.iter().map(|&e| world.read_bytes(e)).collect() };
    world.run(START + from);
    let before = read(world);
    world.run(START + to);
    let pairs = read(world).into_iter().zip(before);
    pairs.map(|(after, before)| after - before).collect()
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn bits(bytes: u64) -> f64 {
    bytes as f64 * 8.0
}

/// Jain's index: 1 where all get the same, 1/n where one gets all.
#[must_use]
#[allow(clippy::cast_precision_loss)] // dozens
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Flows that share a bottleneck of 100 Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// How many.
    pub n: u32,
    /// Round trips of 20 to 200 ms, evenly spread; else all of 50.
    pub mixed: bool,
}

impl Crowd {
    /// The bottleneck: its queue takes 50 ms.
    pub(super) const fn path(self) -> Path {
        Path {
            rtt: Duration::from_millis(if self.mixed { 20 } else { 50 }),
            queue: 625_000,
            ..Path::WIDE
        }
    }

    /// How much farther away the ends of flow `i` are.
    pub(super) fn farther(self, i: u32) -> Duration {
        match self.mixed {
            true => Duration::from_millis(180) * i / (self.n - 1).max(1),
            false => Duration::ZERO,
        }
    }

    /// Jain's index if all have windows of one size and find the queue full: what losses in common make of CUBIC, whose windows grow with time and
    /// not with round trips.
    #[must_use]
    pub fn with_equal_windows(self) -> f64 {
        let path = self.path();
        let waits = Duration::from_millis(50);
        let share = |i| 1.0 / (path.rtt + self.farther(i) + waits).as_secs_f64();
        jain(&(0..self.n).map(share).collect::<Vec<_>>())
    }
}

/// How fairly a crowd shares from `from` to `to`.
#[must_use]
pub fn fairness(stack: Stack, crowd: &Crowd, seed: u64, (from, to): (Duration, Duration)) -> f64 {
    let mut dice = Dice::of(seed, 78);
    let flow = |i| Flow {
        // Not all in one moment: a second in which they come.
        after: Duration::from_micros(dice.below(1_000_000)),
        bytes: ENDLESS,
        farther: crowd.farther(i),
    };
    let flows: Vec<_> = (0..crowd.n).map(flow).collect();
    let (mut world, ends) = dumbbell(&crowd.path(), stack, &flows, seed);
    jain(&rates(&mut world, &ends, from, to))
}

/// Milliseconds from the first SYN to the last byte read, of a transfer of `bytes` for each seed, sorted. Infinite: one of smoltcp's that did not end (0.14 has
/// such ones).
///
/// # Panics
/// If one of ours does not end within a quarter of an hour.
#[must_use]
pub fn completions(path: &Path, stack: Stack, bytes: u64, seeds: std::ops::Range<u64>) -> Vec<f64> {
    let flow = Flow::at_once(bytes);
    let mut all: Vec<f64> = seeds
        .map(|seed| {
            let (mut world, ends) = dumbbell(path, stack, &[flow], seed);
            let limit = START + Duration::from_secs(900);
            let mut done: Option<Instant> = None;
            while done.is_none() && world.now() < limit {
                let until = world.now() + Duration::from_secs(2);
                world.run(until);
                done = world.read_all_at(ends[0]);
            }
            match done {
                Some(done) => done.since(START).as_secs_f64() * 1e3,
                None if stack == Stack::Smoltcp => f64::INFINITY,
                None => panic!("seed {seed}: {bytes} bytes of {stack:?} did not arrive"),
            }
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The value below which `percent` of the sorted values lie.
#[must_use]
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_judged() {
        assert_eq!(jain(&[2.0, 2.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn percentiles_are_ranks() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (percentile(&sorted, 50), percentile(&sorted, 99)),
            (50.0, 99.0)
        );
        assert_eq!(percentile(&[7.0], 99), 7.0);
    }

    #[test]
    fn a_path_without_losses_is_filled() {
        let path = Path {
            rate: 1_250_000,
            queue: 125_000,
            ..Path::WIDE
        };
        let stack = Stack::Netchan(CongestionControl::Cubic);
        let got = rate(
            &path,
            stack,
            1,
            Duration::from_secs(5),
            Duration::from_secs(15),
        );
        assert!((8.0..10.0).contains(&got), "{got} of 10 Mbit/s");
    }
}
