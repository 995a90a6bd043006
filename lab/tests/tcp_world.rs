//! Random worlds of TCP connections: whatever links and applications do, every byte arrives once and in order, and every end closes.
//!
//! `NETCHAN_SEEDS=n` tries n seeds (from `NETCHAN_SEED` on); a failing one is made smaller and printed as an entry for [`REGRESSIONS`].
//! `NETCHAN_TRACE=1` shows the segments.

mod skips;

use std::time::Duration;

use netchan_lab::world::{
    START, World,
    app::App,
    endpoint::EndShape,
    link::LinkShape,
    shape::{Faults, Shape},
};
use proto::{tcp::Config, wire::tcp::SeqNum};

/// What once failed. The seed and the shape say all.
const REGRESSIONS: &[Shape] = &[
    // A window that a repeated segment announced was not taken, although its acknowledgment was: text beyond the peer's window.
    shape(191, 2, 1_640, 16_392),
    shape(159, 5, 12_500, 16_416),
    // Crossing SYNs: the window of the SYN-ACK was scaled (RFC 7323 §2.2).
    shape(255, 1, 87_500, 270_336),
    shape(774, 4, 100_000, 24_576),
    // Without SACK: duplicates stayed counted while the window was being reduced for ECN, and text went beyond it (RFC 5681 §3.2).
    shape(3_442, 1, 100_000, 33_104),
    // A probe for a larger path MTU was longer than the congestion window, with nothing in flight.
    shape(660, 3, 12_500, 1_245_187),
    // The referee's fault: BBR ended PROBE_RTT after a silence, and had a larger window than before.
    shape(9_425, 1, 25_000, 1_311_300),
    // Hours with hardly an answer: times modulo 71 minutes came to lie in the future, and RACK sent the same segment for ever.
    shape(51_979, 1, 350_000, 16_459),
    // A FIN that had come before the text was told of by SACK when it was acknowledged.
    shape(42_045, 1, 3_000, 1_131_573),
];

const fn shape(seed: u64, flows: u8, bytes: u64, faults: u32) -> Shape {
    Shape {
        seed,
        flows,
        bytes,
        faults: Faults(faults),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

#[test]
fn random_worlds_keep_the_rules() {
    let first = number("NETCHAN_SEED").unwrap_or(1);
    let count = skips::seeds_or(1_000);
    let failed: Vec<_> = (first..first + count).filter_map(fails).take(5).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The smallest shape of this seed that fails, and how.
fn fails(seed: u64) -> Option<String> {
    let shape = Shape::random(seed);
    let found = shape.run().err()?;
    let (small, why) = shape.shrink(found.clone());
    Some(format!("seed {seed}: {found}\nsmaller: {small:?}\n{why}\n"))
}

#[test]
fn what_once_failed_does_not_again() {
    for shape in REGRESSIONS {
        assert_eq!(shape.run().err(), None);
    }
}

#[test]
fn a_world_without_faults_is_quiet() {
    let shape = Shape {
        faults: Faults(0),
        ..Shape::random(1)
    };
    assert_eq!(shape.run().err(), None);
}

/// 250 KB without SACK and timestamps, where 8 % of everything breaks: recovery is slow there, but timeouts must not grow by what waited
/// behind a gap (RFC 6298 §3), nor lead away from what is missing (RFC 5682 §3.1). Seed 124 once took 700 s.
#[test]
fn rough_links_without_options_do_not_stall() {
    for seed in 110..140 {
        let mut world = World::new(seed);
        let hosts = [0, 1].map(|_| world.host(4096));
        let shape = LinkShape {
            corrupt_ppm: 80_000,
            ..LinkShape::default()
        };
        let routes = [vec![world.link(shape)], vec![world.link(shape)]];
        let end = |opens_at, app| EndShape {
            config: Config {
                sack: false,
                timestamps: false,
                ..Config::default()
            },
            app,
            opens_at,
            iss: SeqNum(5),
            ts_offset: 7,
            patience: Duration::ZERO,
        };
        let ends = [
            end(Some(START), App::bulk(250_000, 1 << 20)),
            end(None, App::sink()),
        ];
        let sender = world.flow(hosts, ends, routes);
        world.run(START + Duration::from_secs(30));
        assert!(world.read_all_at(sender + 1).is_some(), "seed {seed}");
    }
}
