//! Connections taken apart into their images and put together again in mid-flight: the world that they are in does not notice.
//!
//! `NETCHAN_SEEDS=n` tries n connections at least (of worlds from `NETCHAN_SEED` on).

mod skips;

use netchan_lab::world::{Outcome, endpoint::Seen, shape::Shape};

/// What connections have to have been like when they were taken apart. (LISTEN holds none.)
const STATES: [&str; 16] = [
    "CLOSED",
    "SYN-SENT",
    "SYN-RECEIVED",
    "ESTABLISHED",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "CLOSE-WAIT",
    "CLOSING",
    "LAST-ACK",
    "TIME-WAIT",
    "recovery",
    "after a timeout",
    "window closed",
    "text behind a gap",
    "unread text",
    "output due",
];
/// So many connections are in each of the states at some moment when they are taken apart.
const ENOUGH: u64 = 200;

/// Every segment at its time, every byte delivered, as in the world whose connections are left alone.
#[test]
fn connection_taken_apart_in_flight_goes_on_as_if_left_alone() {
    let first = std::env::var("NETCHAN_SEED").ok();
    let first: u64 = first.and_then(|v| v.parse().ok()).unwrap_or(1);
    let count: u64 = skips::seeds_or(300);
    let (mut connections, mut all) = (0, Seen::new());
    for seed in first.. {
        if connections >= count {
            break;
        }
        let shape = Shape::random(seed);
        let alone = shape.run_apart(0);
        let (alone, _) = alone.unwrap_or_else(|found| panic!("{found}"));
        // Some at nearly every moment, others a few times in their lives.
        let one_of = [2, 8, 40][usize::try_from(seed % 3).unwrap_or(0)];
        let apart = shape.run_apart(one_of);
        let (apart, seen) = apart.unwrap_or_else(|found| panic!("seed {seed}, {found}"));
        // Not the steps: one put together holds no spare memory, and needs no timer that gives it back.
        let what = |of: Outcome| (of.digest, of.delivered);
        assert_eq!(what(apart), what(alone), "seed {seed}: {shape:?}");
        for (name, times) in seen {
            *all.entry(name).or_default() += times;
        }
        connections += u64::from(shape.flows);
    }
    println!("{connections} connections, taken apart when: {all:?}");
    for state in STATES.iter().filter(|_| count >= ENOUGH) {
        assert!(
            all.contains_key(state),
            "none was taken apart: {state}, {all:?}"
        );
    }
}
