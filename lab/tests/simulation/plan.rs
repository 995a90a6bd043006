//! What a seed stands for: the wire's manners and the traffic.

use std::{fmt, num::NonZeroU64, time::Duration};

use netchan::link::wire::{Options, Probability};

/// SplitMix64: a run is a function of its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x6e65_7463_6861_6e00)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).expect("below a usize")
    }

    /// `0.0..most`, zero every other time.
    fn chance(&mut self, most: f64) -> f64 {
        let fraction = self.below(1000) as f64 / 1000.0;
        if self.below(2) == 0 {
            0.0
        } else {
            most * fraction
        }
    }

    /// Bytes that only this generator's state can name.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// One TCP connection.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    pub v6: bool,
    /// Opened by the first stack, or by the second.
    pub from_first: bool,
    /// Bytes the opener sends, and the other.
    pub sizes: [usize; 2],
    pub seed: u64,
}

/// One UDP conversation, one way.
#[derive(Clone, Debug)]
pub struct DatagramPlan {
    pub v6: bool,
    pub from_first: bool,
    pub count: usize,
    pub seed: u64,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub wire: Options,
    /// Nothing is lost, so that every datagram must arrive, once.
    pub lossless: bool,
    pub streams: Vec<StreamPlan>,
    pub datagrams: Vec<DatagramPlan>,
}

impl Plan {
    /// A wire that delays, reorders, loses, doubles and corrupts.
    pub fn rough(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let micros = |random: &mut Random, most| Duration::from_micros(random.below(most) as u64);
        let wire = Options {
            mtu: [576, 1500, 9000][random.below(3)].max(1280),
            delay: micros(&mut random, 20_000),
            jitter: micros(&mut random, 3_000),
            reorder: Probability::new(random.chance(0.2)),
            loss: Probability::new(random.chance(0.05)),
            duplicate: Probability::new(random.chance(0.05)),
            corrupt: Probability::new(random.chance(0.03)),
            rate: (random.below(3) == 0)
                .then(|| NonZeroU64::new(10_000_000 * (1 + random.below(100) as u64)))
                .flatten(),
            seed: random.next(),
            ..Options::default()
        };
        Self::traffic(seed, wire, false, random)
    }

    /// A small world, of which many are run: few bytes each way, over a rough wire or, every other one, over a smooth one.
    pub fn small(seed: u64) -> Self {
        let mut plan = if seed.is_multiple_of(2) {
            Self::rough(seed)
        } else {
            Self::smooth(seed)
        };
        plan.wire.mtu = plan.wire.mtu.min(1500); // buffers of that size are what takes the time
        plan.streams.truncate(3);
        plan.datagrams.truncate(2);
        for stream in &mut plan.streams {
            stream.sizes = stream.sizes.map(|size| size.min(8_000));
        }
        for flow in &mut plan.datagrams {
            flow.count = flow.count.min(12);
        }
        plan
    }

    /// A wire that delivers everything in order, after a while.
    pub fn smooth(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let delay = Duration::from_micros(random.below(5_000) as u64);
        let wire = Options {
            delay,
            seed: random.next(),
            ..Options::default()
        };
        Self::traffic(seed, wire, true, random)
    }

    fn traffic(seed: u64, wire: Options, lossless: bool, mut random: Random) -> Self {
        let coin = |random: &mut Random| random.below(2) == 0;
        let size = |random: &mut Random| match random.below(4) {
            0 => 0,
            1 => random.below(100),
            2 => random.below(5_000),
            _ => random.below(300_000),
        };
        let streams = (0..2 + random.below(6))
            .map(|_| StreamPlan {
                v6: coin(&mut random),
                from_first: coin(&mut random),
                sizes: [size(&mut random), size(&mut random)],
                seed: random.next(),
            })
            .collect();
        let datagrams = (0..1 + random.below(3))
            .map(|_| DatagramPlan {
                v6: coin(&mut random),
                from_first: coin(&mut random),
                count: 1 + random.below(40),
                seed: random.next(),
            })
            .collect();
        Self {
            seed,
            wire,
            lossless,
            streams,
            datagrams,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let w = &self.wire;
        write!(
            f,
            "{} streams, {} datagram flows; mtu {}, delay {:?}+{:?}, loss {:.3}, reorder {:.3}, duplicate {:.3}, corrupt {:.3}, rate {:?}",
            self.streams.len(),
            self.datagrams.len(),
            w.mtu,
            w.delay,
            w.jitter,
            w.loss.fraction(),
            w.reorder.fraction(),
            w.duplicate.fraction(),
            w.corrupt.fraction(),
            w.rate,
        )
    }
}
