//! NewReno alone, and on a path.

use super::super::Control;
use super::super::algorithm::{Algorithm, Cause, Phase};
use super::super::reno::NewReno;
use super::path::{Path, World};
use super::{MSS, ack, avoiding, beginning};
use crate::tcp::congestion::CongestionControl;
use crate::time::Instant;

/// RFC 5681 §3.1: by what is acknowledged in slow start, by a segment a window afterwards.
#[test]
fn grows_as_rfc_5681_has_it() {
    let (mut reno, mut window) = (NewReno::default(), beginning());
    reno.on_open(&mut window, 0, Instant::ZERO);
    for _ in 0..10 {
        reno.on_ack(&mut window, &ack(1, MSS, 100));
    }
    assert_eq!(window.cwnd, 20 * MSS);
    let mut window = avoiding(20);
    for _ in 0..20 {
        reno.on_ack(&mut window, &ack(1, MSS, 100));
    }
    assert_eq!(window.cwnd, 21 * MSS);
}

/// What crosses the threshold counts for slow start up to it, and for congestion avoidance from there.
#[test]
fn does_not_overshoot_the_threshold() {
    let (mut reno, mut window) = (NewReno::default(), avoiding(20));
    window.ssthresh += 2 * MSS;
    reno.on_ack(&mut window, &ack(1, 8 * MSS, 100));
    assert_eq!(window.cwnd, 22 * MSS);
    reno.on_ack(&mut window, &ack(1, 16 * MSS, 100));
    assert_eq!(window.cwnd, 23 * MSS, "six and sixteen are a window");
}

/// RFC 3465 §2.3: an acknowledgment of many segments adds them all, unless there is a limit or the threshold.
#[test]
fn slow_start_may_be_limited() {
    for (limit, cwnd) in [(0, 50), (2, 12), (16, 26)] {
        let (mut reno, mut window) = (NewReno::default(), beginning());
        window.slow_start_limit = limit;
        reno.on_ack(&mut window, &ack(1, 40 * MSS, 100));
        assert_eq!(window.cwnd, cwnd * MSS, "{limit}");
    }
}

/// RFC 3465 §2.3: no more than one segment for each acknowledgment while a timeout is repaired.
#[test]
fn slow_start_after_a_timeout_is_by_one_segment() {
    let (mut reno, mut window) = (NewReno::default(), avoiding(10));
    reno.on_timeout(&mut window, true, 10 * MSS, Instant::ZERO);
    assert_eq!(window.ssthresh, 5 * MSS);
    window.cwnd = MSS;
    let mut big = ack(1, 3 * MSS, 100);
    big.phase = Phase::Loss;
    reno.on_ack(&mut window, &big);
    assert_eq!(window.cwnd, 2 * MSS);
    // RFC 5681 §3.1: the threshold stays if the same data times out again.
    reno.on_timeout(&mut window, false, 2 * MSS, Instant::ZERO);
    assert_eq!(window.ssthresh, 5 * MSS);
}

/// RFC 9293 MUST-19, RFC 7661: a window that is not used does not grow; nor does one that recovery moves.
#[test]
fn grows_only_where_it_was_the_limit() {
    let mut reno = NewReno::default();
    for phase in [Phase::Open, Phase::Recovery, Phase::Reducing] {
        let mut window = beginning();
        let mut ack = ack(1, 5 * MSS, 100);
        ack.phase = phase;
        ack.is_cwnd_limited = phase != Phase::Open;
        reno.on_ack(&mut window, &ack);
        assert_eq!(window.cwnd, 10 * MSS, "{phase:?}");
    }
}

/// RFC 5681 equation 4: half of what was in flight, which may be less than the window; two segments at least. RFC 3168 §6.1.2: for
/// marks, too.
#[test]
fn halves() {
    let (mut reno, window) = (NewReno::default(), avoiding(20));
    for cause in [Cause::Loss, Cause::Ecn] {
        let mut reduced = |flight| reno.reduce(&window, cause, flight * MSS, Instant::ZERO);
        assert_eq!(reduced(20), 10 * MSS);
        assert_eq!(reduced(8), 4 * MSS);
        assert_eq!(reduced(1), 2 * MSS);
        assert_eq!(reduced(22), 10 * MSS, "limited transmit does not count");
    }
}

/// RFC 5681 §4.1: after a retransmission timeout's silence, the initial window at most; for the loss-based ones alike.
#[test]
fn begins_anew_after_idling() {
    for which in [
        CongestionControl::NewReno,
        CongestionControl::Cubic,
        CongestionControl::Dctcp,
    ] {
        let (mut control, mut window) = (Control::new(which), beginning());
        control.on_open(&mut window, 0, Instant::ZERO);
        window = avoiding(100);
        control.on_restart(&mut window, 200_000, 200_000, Instant::ZERO);
        assert_eq!(window.cwnd, 100 * MSS);
        control.on_restart(&mut window, 200_001, 200_000, Instant::ZERO);
        assert_eq!(window.cwnd, 10 * MSS);
        assert_eq!(window.ssthresh, 100 * MSS, "known, so found quickly");
        window.cwnd = 5 * MSS;
        control.on_restart(&mut window, 200_001, 200_000, Instant::ZERO);
        assert_eq!(window.cwnd, 5 * MSS);
    }
}

/// The sawtooth: with a buffer of one bandwidth-delay product the pipe stays full, and the window goes between that and twice that.
#[test]
fn fills_a_path_with_its_sawtooth() {
    let path = Path::new(10, 40, 100);
    let mut world = World::new(CongestionControl::NewReno, path);
    world.run(5_000_000);
    let (before, lost) = (world.delivered, world.lost);
    let (mut least, mut most) = (u32::MAX, 0);
    for second in 5..35 {
        for tenth in 1..=10 {
            world.run(second * 1_000_000 + tenth * 100_000);
            least = least.min(world.window.cwnd);
            most = most.max(world.window.cwnd);
        }
    }
    let rate = (world.delivered - before) / 30;
    assert!(rate * 100 >= path.rate * 98, "{rate}");
    let bdp = path.rate as u32 / 25;
    assert!(most > bdp * 19 / 10 && most < bdp * 22 / 10, "{most}");
    assert!(least > bdp * 9 / 10 && least < bdp * 11 / 10, "{least}");
    assert!(world.lost - lost < 30 * 3 * u64::from(MSS));
    assert_eq!(world.timeouts, 0);
}
