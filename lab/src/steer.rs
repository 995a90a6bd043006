//! Experiment `steer`: whether the flow table's cost stays flat from one flow to a million.

use std::{collections::HashMap, hint::black_box, net::Ipv4Addr};

use netchan::{
    link::BURST,
    parts::{FlowHash, FlowKey, FlowTable},
};
use proto::wire::ipv4::Protocol;

use crate::{
    experiment::{Experiment, LabError, Options},
    kit::{Pinned, interleave, seconds},
    report::{Report, Row},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "steer",
    question: "What does it cost to find a packet's shard among 1, 1,000, 100,000 and 1,000,000 flows, known and unknown?",
    prediction: "About 15 ns for the keyed hash plus one cache line: flat to 1,000 flows (L1, L2), 5 to 10 ns more at 100,000 (L3), and one miss to memory \
        (up to 60 ns where nothing overlaps, less in a burst) at a million. A miss costs what a hit costs. std's HashMap with the same hash family is 1.5 to 2 times slower.",
    run,
};

/// Flows a stack has room for in this experiment.
const CAPACITY: usize = 1 << 20;

/// The flow with number `i`, as servers see them: one local port, many peers.
fn flow(i: u32) -> FlowKey {
    // Spread, so that neighbouring numbers are not neighbouring addresses.
    let bits = i.wrapping_mul(0x9e37_79b1);
    let [.., low1, low0] = bits.to_be_bytes();
    FlowKey {
        local: Ipv4Addr::new(10, 0, 0, 2).into(),
        remote: Ipv4Addr::from(0x0a00_0000 | (bits >> 10)).into(),
        local_port: 80,
        remote_port: u16::from_be_bytes([low1, low0]) | 1024,
        protocol: Protocol::TCP,
    }
}

/// The shard of flow `i`.
#[allow(clippy::cast_possible_truncation)] // any will do
const fn shard(i: u32) -> u16 {
    i as u16
}

/// A sequence of numbers below `n` without a pattern a prefetcher knows.
struct Walk {
    state: u64,
    n: u64,
}

impl Walk {
    #[allow(clippy::cast_possible_truncation)] // below n, which fits
    fn next(&mut self) -> u32 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.state >> 32) * self.n) >> 32) as u32
    }
}

/// The two tables with the same flows in them.
struct Tables {
    hash: FlowHash,
    ours: FlowTable,
    theirs: HashMap<FlowKey, u16>,
    flows: u32,
}

impl Tables {
    fn new(flows: u32) -> Result<Self, LabError> {
        let hash = FlowHash::new(&[7; 16]);
        let mut ours = FlowTable::new(CAPACITY)?;
        let mut theirs = HashMap::with_capacity(CAPACITY);
        for i in 0..flows {
            let key = flow(i);
            if !ours.insert(hash.hash(&key), shard(i)) {
                return Err(LabError::Failed(format!("the table refused flow {i}")));
            }
            theirs.insert(key, shard(i));
        }
        Ok(Self {
            hash,
            ours,
            theirs,
            flows,
        })
    }

    /// Nanoseconds for each of `lookups`; `first` is the number of the first flow asked for.
    fn ours_ns(&self, first: u32, lookups: u32) -> f64 {
        let mut walk = Walk {
            state: 1,
            n: u64::from(self.flows),
        };
        let mut burst = [0; BURST];
        let took = seconds(|| {
            // As `path` does it: a burst is hashed first, and the lines are on their way while the next packet is looked at.
            for _ in 0..lookups as usize / BURST {
                for hash in &mut burst {
                    *hash = self.hash.hash(&flow(first + walk.next()));
                    self.ours.prefetch(*hash);
                }
                for hash in burst {
                    black_box(self.ours.get(hash));
                }
            }
        });
        took * 1e9 / f64::from(lookups)
    }

    fn theirs_ns(&self, first: u32, lookups: u32) -> f64 {
        let mut walk = Walk {
            state: 1,
            n: u64::from(self.flows),
        };
        let took = seconds(|| {
            for _ in 0..lookups {
                black_box(self.theirs.get(&flow(first + walk.next())));
            }
        });
        took * 1e9 / f64::from(lookups)
    }
}

fn run(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let (rounds, lookups) = options.choose((5, 500_000), (15, 4_000_000));
    experiment.on_one_core(Pinned::to_last_core, || rows(rounds, lookups))
}

fn rows(rounds: usize, lookups: u32) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for flows in [1, 1_000, 100_000, 1_000_000] {
        let tables = Tables::new(flows)?;
        // Numbers beyond the flows that are there belong to no flow.
        for (first, name) in [(0, "flows"), (1 << 24, "miss_flows")] {
            let samples = interleave(
                rounds,
                &mut [&mut || tables.ours_ns(first, lookups), &mut || {
                    tables.theirs_ns(first, lookups)
                }],
            );
            let [ours, theirs] = samples.as_slice() else {
                unreachable!("two sides, two samples")
            };
            let row = Row::new(&format!("steer_{name}_{flows}_ns"), ours);
            rows.push(
                row.against("std HashMap (SipHash-1-3)", theirs)
                    .target("flat"),
            );
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_flows_are_found_and_strangers_are_not() {
        let tables = Tables::new(10_000).expect("there is room");
        assert_eq!(
            tables.theirs.len(),
            10_000,
            "the flows differ from each other"
        );
        for i in 0..10_000 {
            assert_eq!(tables.ours.get(tables.hash.hash(&flow(i))), Some(shard(i)));
        }
        for i in 0..10_000 {
            assert_eq!(
                tables.ours.get(tables.hash.hash(&flow((1 << 24) + i))),
                None
            );
        }
    }
}
