//! BBR on paths: it finds the bandwidth, keeps the queue short, shrugs off a loss rate that is no sign of congestion.

use super::MSS;
use super::path::{Path, World};
use crate::tcp::congestion::CongestionControl;

/// Bytes per second delivered from one time to another, in seconds.
fn rate(world: &mut World, from: u64, to: u64) -> u64 {
    world.run(from * 1_000_000);
    let before = world.delivered;
    world.run(to * 1_000_000);
    (world.delivered - before) / (to - from)
}

/// draft-ietf-ccwg-bbr §5.3.1: the bandwidth is found within a few round trips, within 5 %, whatever it is.
#[test]
fn finds_the_bandwidth() {
    for (mbit, rtt_ms) in [(1, 100), (10, 20), (100, 50), (400, 20)] {
        let path = Path::new(mbit, rtt_ms, 200);
        let mut world = World::new(CongestionControl::Bbr, path);
        let found = rate(&mut world, 2, 5);
        assert!(found * 100 >= path.rate * 95, "{mbit} {rtt_ms}: {found}");
        assert!(found <= path.rate * 101 / 100, "{mbit} {rtt_ms}: {found}");
        assert_eq!(world.timeouts, 0);
    }
}

/// §5.3.2: what Startup put into the queue is drained, and the queue stays short where a loss-based window would fill it.
#[test]
fn keeps_the_queue_short() {
    let path = Path::new(50, 40, 1_000);
    let mut world = World::new(CongestionControl::Bbr, path);
    world.run(2_000_000);
    world.queue_seen = (0, 0);
    let rate = rate(&mut world, 2, 20);
    assert!(rate * 100 >= path.rate * 95, "{rate}");
    let mean = world.queue_seen.0 / world.queue_seen.1;
    let bdp = path.rate / 25;
    assert!(mean < bdp / 4, "{mean} of {bdp}");
    assert_eq!(world.lost, 0);
    let mut cubic = World::new(CongestionControl::Cubic, path);
    cubic.run(20_000_000);
    assert!(
        cubic.queue_seen.0 / cubic.queue_seen.1 > bdp,
        "for comparison"
    );
}

/// §5.5.10: one percent lost at random, which is below the threshold of two, costs less than a tenth.
#[test]
fn is_not_slowed_down_by_random_losses() {
    for seed in 1..4 {
        let mut path = Path::new(50, 50, 100);
        path.loss_ppm = 10_000;
        path.seed = seed;
        let mut world = World::new(CongestionControl::Bbr, path);
        let rate = rate(&mut world, 3, 23);
        assert!(
            rate * 100 >= path.rate * 90,
            "{seed}: {rate} of {}",
            path.rate
        );
    }
}

/// §5.3.3.4: where the buffer is shallow, losses are a small part of what is sent, and the rate is still found.
#[test]
fn respects_a_shallow_buffer() {
    let path = Path::new(50, 40, 20);
    let mut world = World::new(CongestionControl::Bbr, path);
    let rate = rate(&mut world, 3, 20);
    assert!(rate * 100 >= path.rate * 85, "{rate}");
    assert!(
        world.lost * 100 < world.sent * 3,
        "{} {}",
        world.lost,
        world.sent
    );
}

/// §5.3.4: a path that became longer is noticed, because every five seconds little is in flight for a moment.
#[test]
fn measures_the_round_trip_anew() {
    let mut path = Path::new(20, 20, 400);
    let mut world = World::new(CongestionControl::Bbr, path);
    world.run(6_000_000);
    path.rtt_us = 60_000;
    world.path = path;
    let rate = rate(&mut world, 25, 35);
    assert!(rate * 100 >= path.rate * 93, "{rate}");
}

/// §5.5.6: more bandwidth is found, and less, within a few probing cycles.
#[test]
fn follows_the_bandwidth() {
    let mut path = Path::new(10, 40, 200);
    let mut world = World::new(CongestionControl::Bbr, path);
    world.run(5_000_000);
    for (mbit, until) in [(100, 20), (10, 40)] {
        path.rate = mbit * 125_000;
        path.buffer = path.rate / 10;
        world.path = path;
        let rate = rate(&mut world, until - 5, until);
        assert!(rate * 100 >= path.rate * 90, "{mbit}: {rate}");
    }
    world.queue_seen = (0, 0);
    world.run(45_000_000);
    let mean = world.queue_seen.0 / world.queue_seen.1;
    assert!(mean < path.rate * 40 / 1_000, "{mean}");
    assert!(world.window.cwnd > 4 * MSS);
}
