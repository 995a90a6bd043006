//! CUBIC alone, against its formulas in floating point, and on a path.

use super::super::algorithm::{Algorithm, Cause, Window};
use super::super::cubic::Cubic;
use super::path::{Path, World};
use super::{MSS, ack, avoiding};
use crate::tcp::congestion::CongestionControl;
use crate::time::Instant;

/// Meets congestion at `segments`, as recovery would have it.
fn reduced(cubic: &mut Cubic, segments: u32) -> Window {
    let mut window = avoiding(segments);
    window.ssthresh = cubic.reduce(&window, Cause::Loss, window.cwnd, Instant::ZERO);
    window.cwnd = window.ssthresh;
    cubic.on_recovered(&mut window, Instant::ZERO);
    window
}

/// Acknowledges a window each `rtt_us` from `from_us` to `to_us`, segment by segment.
fn rounds(cubic: &mut Cubic, window: &mut Window, rtt_us: u32, from_us: u64, to_us: u64) {
    let mut now = from_us;
    while now < to_us {
        for _ in 0..window.cwnd / MSS {
            cubic.on_ack(window, &ack(now, MSS, rtt_us));
        }
        now += u64::from(rtt_us);
    }
}

/// RFC 9438 §4.2, §4.4: concave up to the last window, then convex, within 2 % of the formula.
#[test]
fn follows_its_curve() {
    let mut cubic = Cubic::default();
    let mut window = reduced(&mut cubic, 10_000);
    assert_eq!(window.cwnd, 7_000 * MSS);
    let k = ((10_000.0 - 7_000.0) / 0.4_f64).cbrt();
    let start = 1_000_000;
    let mut now = start;
    let mut worst = 0.0_f64;
    while now < start + 30_000_000 {
        rounds(&mut cubic, &mut window, 100_000, now, now + 100_000);
        let t = (now - start) as f64 / 1e6 + 0.1;
        let expected = 0.4 * (t - k).powi(3) + 10_000.0;
        let is = f64::from(window.cwnd) / f64::from(MSS);
        worst = worst.max((is - expected).abs() / expected);
        now += 100_000;
    }
    assert!(worst < 0.02, "{worst}");
    assert!(window.cwnd > 10_400 * MSS, "{}", window.cwnd / MSS);
}

/// RFC 9438 §4.3: with short round trips the window is that of an additive increase by 9/17 segments, by one once it is where it was.
#[test]
fn is_no_slower_than_reno() {
    let mut cubic = Cubic::default();
    let mut window = reduced(&mut cubic, 100);
    assert_eq!(window.cwnd, 70 * MSS);
    let rounds_of = |cubic: &mut Cubic, window: &mut Window, from: u64, n: u64| {
        rounds(cubic, window, 1_000, from, from + n * 1_000);
    };
    rounds_of(&mut cubic, &mut window, 0, 34);
    let grown = f64::from(window.cwnd) / f64::from(MSS) - 70.0;
    assert!((16.0..=19.0).contains(&grown), "{grown}");
    rounds_of(&mut cubic, &mut window, 34_000, 23);
    let before = window.cwnd;
    rounds_of(&mut cubic, &mut window, 57_000, 20);
    let grown = f64::from(window.cwnd - before) / f64::from(MSS);
    assert!((18.0..=21.0).contains(&grown), "{grown}");
}

/// RFC 9438 §4.7: a window that did not get back to where it was lets the curve end lower.
#[test]
fn makes_room_for_others() {
    let plateau = |first: u32, second: u32| {
        let mut cubic = Cubic::default();
        reduced(&mut cubic, first);
        let mut window = reduced(&mut cubic, second);
        // In the middle of the curve it is flat: K is cbrt(0.3 W_max / 0.4).
        rounds(&mut cubic, &mut window, 100_000, 0, 12_000_000);
        window.cwnd / MSS
    };
    let usual = plateau(2_000, 2_000);
    let lower = plateau(2_400, 2_000);
    assert!((1_960..2_060).contains(&usual), "{usual}");
    assert!((1_660..1_780).contains(&lower), "{lower}");
}

/// RFC 9438 §4.8, §4.10: after a timeout, or slow start without a loss, the curve begins in its middle.
#[test]
fn begins_in_the_middle_where_nothing_is_known() {
    let mut cubic = Cubic::default();
    let mut window = avoiding(1_000);
    cubic.on_timeout(&mut window, true, 1_000 * MSS, Instant::ZERO);
    assert_eq!(window.ssthresh, 700 * MSS);
    window.cwnd = 700 * MSS;
    rounds(&mut cubic, &mut window, 100_000, 0, 5_000_000);
    let expected = 700.0 + 0.4 * 5.0_f64.powi(3);
    let is = f64::from(window.cwnd) / f64::from(MSS);
    assert!((is - expected).abs() < 0.02 * expected, "{is} {expected}");
}

/// RFC 9438 §5.8: time in which the application, or an idle connection, did not use the window moves no curve.
#[test]
fn does_not_grow_by_idle_time() {
    let run = |gap: bool| {
        let mut cubic = Cubic::default();
        let mut window = reduced(&mut cubic, 5_000);
        rounds(&mut cubic, &mut window, 100_000, 0, 5_000_000);
        let mut later = 5_000_000;
        if gap {
            let mut idle = ack(5_000_000, MSS, 100_000);
            idle.is_cwnd_limited = false;
            for second in 5..25 {
                idle.now = Instant(second * 1_000_000_000);
                cubic.on_ack(&mut window, &idle);
            }
            let now = Instant(25_000_000_000);
            cubic.on_restart(&mut window, 1_000_000, 2_000_000, now);
            later = 25_000_000;
        }
        rounds(&mut cubic, &mut window, 100_000, later, later + 5_000_000);
        window.cwnd
    };
    let (with, without) = (run(true), run(false));
    assert!(with.abs_diff(without) < without / 100, "{with} {without}");
}

/// RFC 9438 §4.9: a reduction for nothing is taken back, the curve included.
#[test]
fn takes_a_mistake_back() {
    let mut cubic = Cubic::default();
    let mut window = reduced(&mut cubic, 5_000);
    rounds(&mut cubic, &mut window, 100_000, 0, 5_000_000);
    let (known, before) = (cubic.clone(), window);
    window.cwnd = cubic.reduce(&window, Cause::Loss, window.cwnd, Instant::ZERO);
    cubic.on_undo(&mut window);
    window = before;
    let mut again = known;
    let mut undisturbed = before;
    rounds(&mut cubic, &mut window, 100_000, 5_000_000, 8_000_000);
    rounds(&mut again, &mut undisturbed, 100_000, 5_000_000, 8_000_000);
    assert!(window.cwnd.abs_diff(undisturbed.cwnd) <= MSS);
}

/// A path of 100 Mbit/s and 100 ms stays full behind a buffer of half its bandwidth-delay product.
#[test]
fn fills_a_long_path() {
    let path = Path::new(100, 100, 50);
    let mut world = World::new(CongestionControl::Cubic, path);
    world.run(10_000_000);
    let before = world.delivered;
    world.run(40_000_000);
    let rate = (world.delivered - before) / 30;
    assert!(rate * 100 >= path.rate * 97, "{rate}");
    assert_eq!(world.timeouts, 0);
}
