//! HyStart++ (RFC 9406) alone, and on a long path with a deep buffer.

use super::super::algorithm::Window;
use super::super::hystart::HyStart;
use super::path::{Path, World};
use super::{MSS, ack, beginning};
use crate::tcp::congestion::CongestionControl;
use crate::wire::tcp::SeqNum;

/// One round of `n` acknowledgments that measure `rtt_us`. True if slow start ended.
fn round(hystart: &mut HyStart, window: &mut Window, round: &mut u32, n: u32, rtt_us: u32) -> bool {
    *round += 1;
    let mut over = false;
    for i in 0..n {
        let mut each = ack(0, MSS, rtt_us);
        // The last one acknowledges all of the round, and finds the next one sent.
        let last = i + 1 == n;
        each.una = SeqNum((*round + 1) * 1_000 - (n - 1 - i));
        each.nxt = SeqNum((*round + 1 + u32::from(last)) * 1_000);
        hystart.on_ack(window, &each);
        over |= hystart.watch(&each);
    }
    over
}

/// RFC 9406 §4.2: longer by an eighth leads into conservative slow start, a quarter as fast; five rounds of it end slow start.
#[test]
fn ends_after_five_rounds_of_longer_delay() {
    let (mut hystart, mut window, mut at) = (HyStart::new(), beginning(), 0);
    window.cwnd = 16 * MSS;
    assert!(!round(&mut hystart, &mut window, &mut at, 16, 80_000));
    assert!(!round(&mut hystart, &mut window, &mut at, 16, 80_000));
    assert_eq!(window.cwnd, 48 * MSS, "as ever");
    assert!(!round(&mut hystart, &mut window, &mut at, 16, 89_999));
    assert_eq!(window.cwnd, 64 * MSS, "not yet an eighth");
    // Eight measurements at full speed find it; the other eight grow by two.
    assert!(!round(&mut hystart, &mut window, &mut at, 16, 101_300));
    assert_eq!(window.cwnd, 74 * MSS);
    let rounds = (1..10).find(|_| round(&mut hystart, &mut window, &mut at, 16, 101_300));
    assert_eq!(rounds, Some(4), "the round that it began in counts");
    assert_eq!(window.cwnd, 90 * MSS);
}

/// RFC 9406 §4.2: a delay that comes back leads back.
#[test]
fn resumes_if_the_delay_was_passing() {
    let (mut hystart, mut window, mut at) = (HyStart::new(), beginning(), 0);
    for rtt in [50_000, 50_000, 70_000, 60_000] {
        assert!(!round(&mut hystart, &mut window, &mut at, 16, rtt));
    }
    let before = window.cwnd;
    assert!(!round(&mut hystart, &mut window, &mut at, 16, 60_000));
    assert_eq!(window.cwnd, before + 16 * MSS);
}

/// RFC 9406 §4.3: neither few measurements nor small differences say anything, of short round trips either.
#[test]
fn is_not_led_astray_by_little() {
    let (mut hystart, mut window, mut at) = (HyStart::new(), beginning(), 0);
    for i in 0..20_u32 {
        // Under 4 ms of difference, and then only seven measurements.
        assert!(!round(
            &mut hystart,
            &mut window,
            &mut at,
            16,
            1_000 + i % 2 * 3_900
        ));
        let before = window.cwnd;
        assert!(!round(&mut hystart, &mut window, &mut at, 7, 90_000));
        assert_eq!(window.cwnd, before + 7 * MSS);
    }
}

/// RFC 9406 §4.2: L, where there is a limit, and without one where they leave paced. There is none by default, as in Linux.
#[test]
fn limits_bursts_that_are_not_paced() {
    for (limit, rate, grown) in [(0, 0, 40), (8, 0, 8), (16, 0, 16), (8, 1, 40)] {
        let (mut hystart, mut window) = (HyStart::new(), beginning());
        window.slow_start_limit = limit;
        window.pacing_rate = rate;
        hystart.on_ack(&mut window, &ack(0, 40 * MSS, 1_000));
        assert_eq!(window.cwnd, (10 + grown) * MSS);
    }
}

/// RFC 9406 §3: on a long path with a deep buffer slow start is left before the buffer overflows, with the pipe full.
#[test]
fn leaves_before_the_buffer_overflows() {
    let path = Path::new(100, 100, 800);
    let mut plain = World::new(CongestionControl::NewReno, path);
    plain.run(3_000_000);
    assert!(plain.lost > path.buffer / 2, "for comparison");
    let mut world = World::new(CongestionControl::Cubic, path);
    world.run(3_000_000);
    assert!(!world.window.in_slow_start());
    assert_eq!((world.lost, world.recoveries), (0, 0));
    let bdp = path.rate / 10;
    assert!(u64::from(world.window.cwnd) > bdp, "{}", world.window.cwnd);
    let before = world.delivered;
    world.run(5_000_000);
    assert!((world.delivered - before) / 2 * 100 > path.rate * 99);
}
