//! The retransmission timeout against RFC 6298 as written, with the mean deviation kept as Linux keeps it (RFC 7323 appendix G).

use super::*;

fn estimator() -> RttEstimator {
    RttEstimator::new(&Config::default())
}

/// RFC 6298 §2.2 and §2.3: SRTT moves by an eighth, the deviation by a quarter, towards shorter round trips by a thirty-second.
#[test]
fn smoothed_round_trip_and_deviation() {
    let mut rtt = estimator();
    // All of one round trip: the measurement, SRTT, the mean deviation, and RTTVAR, its largest value.
    let (una, nxt) = (SeqNum(10), SeqNum(20));
    for (sample, srtt, deviation, variation) in [
        (80_000, 80_000, 40_000, 40_000),
        (80_000, 80_000, 30_000, 40_000),
        (160_000, 90_000, 30_000 + 50_000 / 4, 42_500),
        // Shorter by 74 ms, which is 31.5 ms more than the deviation.
        (16_000, 80_750, 42_500 + 31_500 / 32, 43_484),
        (80_750, 80_750, 43_484 - 43_484 / 4, 43_484),
        (80_750 + 32_613, 84_827, 32_613, 43_484),
        (0, 74_224, 32_613 + (84_826 - 32_613) / 32, 43_484),
    ] {
        rtt.sample(sample, una, nxt, Instant(0));
        let found = (rtt.srtt_us, rtt.deviation_us, rtt.rttvar_us);
        assert_eq!(found, (srtt, deviation, variation), "{sample}");
        let rto = u64::from(srtt + (4 * variation).max(200_000));
        assert_eq!(rtt.rto_us(), rto.min(120_000_000));
    }
}

/// A round trip later the timeout follows the largest deviation of that round trip, down by a quarter of the difference.
#[test]
fn the_variation_decays_once_a_round_trip() {
    let mut rtt = estimator();
    rtt.sample(80_000, SeqNum(0), SeqNum(100), Instant(0));
    assert!(rtt.ends_round(SeqNum(100)) && !rtt.ends_round(SeqNum(99)));
    // 40,000, 30,000, 22,500: within the round nothing is forgotten, and SND.UNA at its end does not end it yet.
    rtt.sample(80_000, SeqNum(50), SeqNum(150), Instant(0));
    rtt.sample(80_000, SeqNum(100), SeqNum(180), Instant(0));
    assert_eq!((rtt.deviation_us, rtt.rttvar_us), (22_500, 40_000));
    // Past it: the largest was 30,000.
    rtt.sample(80_000, SeqNum(101), SeqNum(200), Instant(0));
    assert_eq!((rtt.deviation_us, rtt.rttvar_us), (16_875, 37_500));
    assert!(rtt.ends_round(SeqNum(200)) && !rtt.ends_round(SeqNum(199)));
    // The next round's largest is its own first.
    rtt.sample(80_000, SeqNum(201), SeqNum(300), Instant(0));
    assert_eq!(rtt.deviation_us, 16_875 - 4_218);
    assert_eq!(rtt.rttvar_us, 37_500 - (37_500 - 12_657) / 4);
}

/// The timeout's limits, and RFC 6298 §5.5 to §5.7: doubled with each expiry, begun anew by a measurement, three seconds after a lost SYN.
#[test]
fn timeouts_have_limits() {
    let seconds = Duration::from_secs;
    for (initial, min, max, rto) in [
        (
            seconds(1),
            Duration::from_millis(200),
            seconds(120),
            1_000_000,
        ),
        (
            Duration::from_millis(10),
            Duration::from_millis(200),
            seconds(120),
            200_000,
        ),
        (
            seconds(1),
            Duration::ZERO,
            Duration::from_millis(300),
            300_000,
        ),
        (Duration::ZERO, Duration::ZERO, seconds(120), 1),
        (seconds(1), seconds(3), seconds(2), 3_000_000),
    ] {
        let rtt = RttEstimator::new(&Config {
            rto_initial: initial,
            rto_min: min,
            rto_max: max,
            ..Config::default()
        });
        assert_eq!(rtt.rto_us(), rto);
    }
    let mut rtt = estimator();
    for doubled in 0..7 {
        assert_eq!(
            (rtt.backoff(), rtt.rto_us()),
            (doubled, 1_000_000 << doubled)
        );
        rtt.back_off();
    }
    assert_eq!(rtt.rto_us(), 120_000_000, "128 s are more than the most");
    (0..300).for_each(|_| rtt.back_off());
    assert_eq!((rtt.backoff(), rtt.rto_us()), (31, 120_000_000));
    rtt.end_back_off();
    assert_eq!(rtt.rto_us(), 1_000_000);
    rtt.back_off();
    rtt.syn_was_retransmitted();
    assert_eq!((rtt.backoff(), rtt.rto_us()), (0, 3_000_000));
    rtt.back_off();
    rtt.sample(100_000, SeqNum(0), SeqNum(1), Instant(0));
    assert_eq!((rtt.backoff(), rtt.rto_us()), (0, 300_000));
    rtt.rto_us = 5_000_000;
    rtt.syn_was_retransmitted();
    assert_eq!(rtt.rto_us(), 5_000_000, "which is more than three");
}

/// The least round trip is believed for one period (some 161 s) after the one in which it was measured.
#[test]
fn the_least_round_trip_is_forgotten() {
    let mut rtt = estimator();
    assert_eq!(rtt.min_us(), u32::MAX);
    let at = |coarse: u64| Instant(coarse << 30);
    for (when, sample, least) in [
        (1_000, 500, 500),
        (1_001, 900, 500),
        (1_150, 800, 500),
        (1_151, 700, 500), // a new period: of this one, 700
        (1_200, 600, 500),
        (1_301, 650, 500), // 150 later is the same period still
        (1_302, 800, 600), // 500 is forgotten
        (1_453, 900, 800),
        (1_604, 1_000, 900),
    ] {
        rtt.sample(sample, SeqNum(0), SeqNum(1), at(when));
        assert_eq!(rtt.min_us(), least, "at {when}");
    }
}

#[test]
fn durations_in_microseconds() {
    assert_eq!(micros(Duration::from_nanos(1_999)), 1);
    assert_eq!(micros(Duration::from_secs(4_294)), 4_294_000_000);
    assert_eq!(micros(Duration::from_secs(4_295)), u32::MAX);
}
