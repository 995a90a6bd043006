//! DCTCP alone, and on a path that marks.

use super::super::algorithm::{Algorithm, Cause};
use super::super::dctcp::Dctcp;
use super::path::{Path, World};
use super::{MSS, ack, avoiding};
use crate::tcp::congestion::CongestionControl;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// RFC 8257 §3.3: α goes to the fraction of bytes that is marked, a sixteenth of the way in each window.
#[test]
fn alpha_is_the_fraction_marked() {
    let (mut dctcp, mut window) = (Dctcp::default(), avoiding(100));
    assert!((dctcp.alpha() - 1.0).abs() < 1e-9);
    let mut expected = 1.0;
    for round in 0..200_u32 {
        // A tenth for long, then nothing.
        let fraction = if round < 120 { 0.1 } else { 0.0 };
        let mut round_ack = ack(u64::from(round) * 1_000, 100 * MSS, 1_000);
        round_ack.is_cwnd_limited = false;
        round_ack.marked = (f64::from(100 * MSS) * fraction) as u32;
        round_ack.una = SeqNum(round * 2 + 1);
        round_ack.nxt = SeqNum(round * 2 + 2);
        dctcp.on_ack(&mut window, &round_ack);
        expected = expected * 15.0 / 16.0 + fraction / 16.0;
        assert!((dctcp.alpha() - expected).abs() < 1e-3, "{round}");
        if round == 119 {
            assert!((dctcp.alpha() - 0.1).abs() < 2e-3);
            // §3.4: by half of it, not by half.
            let cut = dctcp.reduce(&window, Cause::Ecn, 0, Instant::ZERO);
            assert!(cut > window.cwnd * 94 / 100 && cut < window.cwnd * 96 / 100);
            // §3.5: losses are losses.
            let lost = dctcp.reduce(&window, Cause::Loss, window.cwnd, Instant::ZERO);
            assert_eq!(lost, window.cwnd / 2);
        }
    }
    assert!(dctcp.alpha() < 0.01, "and none is forgotten");
}

/// RFC 8257 §3.3: the queue stays near the threshold at which the network marks, and the path full.
#[test]
fn keeps_a_short_queue_at_full_rate() {
    let mut path = Path::new(1_000, 1, 1_000);
    path.mark = 30 * u64::from(MSS);
    let mut world = World::new(CongestionControl::Dctcp, path);
    world.run(200_000);
    let before = world.delivered;
    world.queue_seen = (0, 0);
    world.run(700_000);
    let rate = (world.delivered - before) * 2;
    assert!(rate * 100 >= path.rate * 98, "{rate}");
    let queue = world.queue_seen.0 / world.queue_seen.1;
    assert!(queue < 2 * path.mark, "{queue}");
    assert_eq!(world.lost, 0);
}
