//! The receive buffer's size as a function of what the application takes (R4).

use super::*;
use crate::tcp::config::Config;
use crate::wire::tcp::SeqNum;

const MSS: u32 = 1448;
const RTT: Duration = Duration::from_millis(100);

/// A receiver of which `taken(round)` bytes are taken in each round trip, for so many of them, from 128 KiB up to 6 MiB.
fn buffer_after(rounds: u32, mut taken: impl FnMut(u32, u32) -> u32) -> u32 {
    let mut tuning = ReceiveTuning::new(6 << 20);
    tuning.measured(100_000);
    let (mut buffer, mut read, mut now) = (128 << 10, SeqNum(u32::MAX - 5000), Instant::ZERO);
    for round in 0..rounds {
        if let Some(room) = tuning.look(read, buffer, MSS, now) {
            assert!(room > buffer, "it never shrinks");
            buffer = room;
        }
        read = read + taken(round, buffer);
        now = now + RTT;
    }
    buffer
}

/// 100 Mbit/s and 100 ms hold 1.25 MB. A sender that doubles what it sends each round trip (RFC 5681) is never held back.
#[test]
fn a_long_fat_path_is_filled() {
    let path = 1_250_000;
    let mut sends = 10 * MSS;
    let mut held_back = 0;
    let buffer = buffer_after(30, |_, buffer| {
        held_back += u32::from(sends > buffer);
        let taken = sends.min(buffer).min(path);
        sends = (2 * sends).min(path);
        taken
    });
    assert_eq!(held_back, 0, "a window narrower than slow start");
    assert!((2 * path..=6 << 20).contains(&buffer), "{buffer}");
}

/// An application that takes 10 kB in a round trip keeps its buffer, however much waits.
#[test]
fn a_slow_reader_does_not_grow() {
    assert_eq!(buffer_after(1000, |_, _| 10_000), 128 << 10);
    assert_eq!(buffer_after(1000, |_, _| 0), 128 << 10);
}

#[test]
fn growth_ends_at_the_most() {
    assert_eq!(buffer_after(100, |_, buffer| buffer), 6 << 20);
}

#[test]
fn a_size_asked_for_stays() {
    let mut tuning = ReceiveTuning::new(0);
    assert_eq!(tuning.look_at, Instant::FAR);
    tuning.measured(1000);
    let look = |tuning: &mut ReceiveTuning, read, us| {
        tuning.look(SeqNum(read), 4096, MSS, Instant::ZERO.plus_micros(us))
    };
    assert_eq!(look(&mut tuning, 0, 0), None);
    assert_eq!(look(&mut tuning, 1 << 20, 2000), None);
}

/// What is looked at sooner than a round trip after the last look says nothing yet.
#[test]
fn it_is_looked_at_once_a_round_trip() {
    let mut tuning = ReceiveTuning::new(6 << 20);
    tuning.measured(100_000);
    let at = |ms: u64| Instant::ZERO.plus_micros(ms * 1000);
    assert_eq!(tuning.look(SeqNum(0), 128 << 10, MSS, at(0)), None);
    assert_eq!(tuning.look_at, at(100));
    assert_eq!(tuning.look(SeqNum(500_000), 128 << 10, MSS, at(99)), None);
    assert!(
        tuning
            .look(SeqNum(500_000), 128 << 10, MSS, at(100))
            .is_some()
    );
    tuning.measured(20_000);
    assert_eq!(tuning.rtt_us, 90_000);
}

/// Twice what was taken, and sixteen segments beside; where the peer speeds up, twice as much more as it gained on the best round trip before.
#[test]
fn the_room_for_what_was_taken() {
    for (taken, before, room) in [
        (100_000, 100_000, 216_000),
        (50_000, 100_000, 116_000),
        (150_000, 100_000, 316_000 + 316_000),
        (200_000, 100_000, 416_000 + 2 * 416_000),
        (0, 0, 16_000),
        (1, 0, 16_002 + 2 * 16_002),
    ] {
        let found = ReceiveTuning::room_for(taken, before, 1_000);
        assert_eq!(found, room, "{taken} after {before}");
    }
}

/// One round trip after the other: the first is compared with the initial window (RFC 6928), each later one with the best before it.
#[test]
fn each_round_trip_is_compared_with_the_best_before() {
    let mut tuning = ReceiveTuning::new(1_000_000);
    tuning.measured(100_000);
    let at = |round: u64| Instant::ZERO.plus_micros(100_000 * (round + 1));
    let start = SeqNum(u32::MAX - 7_000);
    assert_eq!(tuning.look(start, 20_000, 1_000, at(0)), None);
    assert_eq!((tuning.taken, tuning.look_at), (10_000, at(1)));
    let mut read = start;
    // Taken in the round, the buffer as it is, what it shall be, and the best.
    let rounds = [
        (10_000, 20_000, None, 10_000),
        // 40 kB and the cushion of 16: 38 k, and a tenth of twice as much for the gain of a tenth: 38,000 / 5.
        (11_000, 20_000, Some(38_000 + 7_600), 11_000),
        (11_000, 45_600, None, 11_000),
        (9_000, 45_600, None, 11_000),
        // The room is not more than what there is: nothing is said, but the best is known.
        (22_000, 180_000, None, 22_000),
        (22_000 + 22, 60_163, Some(60_164), 22_022),
        (66_066, 0, Some(740_660), 66_066),
        (660_660, 0, Some(1_000_000), 660_660),
    ];
    for (round, (taken, buffer, room, best)) in (1..).zip(rounds) {
        read = read + taken;
        let early = Instant(at(round).0 - 1_000);
        assert_eq!(tuning.look(read, buffer, 1_000, early), None);
        assert_eq!(tuning.look_at, at(round), "as it was");
        let found = tuning.look(read, buffer, 1_000, at(round));
        assert_eq!((found, tuning.taken), (room, best), "round {round}");
        assert_eq!(tuning.look_at, at(round + 1));
    }
    assert_eq!(tuning.rtt_us, 100_000);
}

/// A room that equals the buffer is no news.
#[test]
fn the_room_has_to_be_more_than_the_buffer() {
    for (buffer, room) in [(54_001, Some(54_002)), (54_002, None)] {
        let mut tuning = ReceiveTuning::new(54_002);
        tuning.measured(1_000);
        assert_eq!(tuning.look(SeqNum(0), buffer, 1_000, Instant(1_000)), None);
        let at = Instant(1_001_000);
        assert_eq!(tuning.look(SeqNum(20_000), buffer, 1_000, at), room);
    }
}

fn receiver(config: &Config) -> Connection {
    Connection::open_active(config, 1, 2, SeqNum(5), 1 << 20, Instant(9_000_000_000))
}

/// RFC 7323 §4.1: the receiver's round trip is the age of the echo, in a clock of milliseconds; longer than an hour is nonsense.
#[test]
fn the_receivers_round_trip_is_the_echos_age() {
    let now = Instant(9_000_000_000);
    let mut conn = receiver(&Config::default());
    let clock = conn.timestamp_value(now);
    let echo = |age: u32| {
        Some(Timestamps {
            value: 0,
            echo: clock.wrapping_sub(age),
        })
    };
    for (age, rtt) in [
        (0, Some(1_000)),
        (1, Some(1_000)),
        (250, Some(250_000)),
        ((1 << 22) - 1, Some(4_194_303_000)),
        (1 << 22, None),
        (clock, None), // an echo of 0 says nothing
        (u32::MAX, None),
    ] {
        assert_eq!(conn.receiver_rtt_us(echo(age), now), rtt, "{age} ms");
    }
    assert_eq!(conn.receiver_rtt_us(None, now), None);
    conn.ts_offset = conn.ts_offset.wrapping_sub(clock).wrapping_add(5);
    let zero = Some(Timestamps { value: 1, echo: 0 });
    assert_eq!(conn.timestamp_value(now), 5);
    assert_eq!(conn.receiver_rtt_us(zero, now), None, "5 ms, but unsaid");
    conn.timestamps = false;
    let one = Some(Timestamps { value: 1, echo: 1 });
    assert_eq!(conn.receiver_rtt_us(one, now), None, "not agreed upon");
}

/// Without an echo it is what the send side measured, once; with one it is smoothed (RFC 6298's eighth).
#[test]
fn without_an_echo_the_send_sides_round_trip_counts() {
    let now = Instant(9_000_000_000);
    let mut conn = receiver(&Config {
        receive_buffer_max: 1 << 20,
        ..Config::default()
    });
    conn.tune_receive_buffer(None, now);
    assert_eq!(conn.receive_space(), (Duration::ZERO, 0), "nothing known");
    conn.rtt.srtt_us = 30_000;
    conn.tune_receive_buffer(None, now);
    let mss = u32::from(conn.rcv.mss);
    let known = (Duration::from_millis(30), 10 * mss);
    assert_eq!(conn.receive_space(), known);
    conn.rtt.srtt_us = 90_000;
    conn.tune_receive_buffer(None, now + Duration::from_millis(30));
    assert_eq!(conn.receive_space(), known, "it is kept");
    let later = now + Duration::from_millis(60);
    let echo = conn.timestamp_value(later).wrapping_sub(110);
    let echo = Some(Timestamps { value: 0, echo });
    conn.tune_receive_buffer(echo, Instant(later.0 - 1));
    assert_eq!(conn.receive_space(), known, "less than a round trip later");
    conn.tune_receive_buffer(echo, later);
    assert_eq!(
        conn.receive_space().0,
        Duration::from_millis(40),
        "30 + 80 / 8"
    );
}

/// What was read in a round trip is what arrived in order less what waits for the application.
#[test]
fn what_waits_was_not_taken() {
    for (unread, room) in [(0, 40_000), (20_000, 30_000)] {
        let now = Instant(9_000_000_000);
        let mut conn = receiver(&Config {
            receive_buffer: 30_000,
            receive_buffer_max: 40_000,
            ..Config::default()
        });
        conn.rtt.srtt_us = 10_000;
        conn.tune_receive_buffer(None, now);
        conn.rcv.nxt = conn.rcv.nxt + 20_000;
        conn.unread = unread;
        conn.tune_receive_buffer(None, now + Duration::from_millis(10));
        assert_eq!(conn.settings.receive_buffer, room, "{unread} wait");
    }
}

/// A size that is asked for is kept, at least a byte and at most what the agreed shift can offer (RFC 7323 §2.2) or a gibibyte (§2.3).
#[test]
fn a_size_asked_for_has_limits() {
    for (scale, bytes, kept) in [
        (0, 65_535, 65_535),
        (0, 65_536, 65_535),
        (0, 0, 1),
        (2, 1 << 20, 4 * 65_535),
        (14, u32::MAX, 65_535 << 14),
    ] {
        let mut conn = receiver(&Config::default());
        conn.rcv.scale = scale;
        conn.set_receive_buffer(bytes);
        assert_eq!(conn.settings.receive_buffer, kept, "{bytes} by {scale}");
        assert_eq!(conn.tuning, ReceiveTuning::new(0), "it stays");
    }
    // Memory bounds what there is and what it may grow to.
    for (bytes, buffer, most) in [
        (0, 1, 0),
        (1_000, 1_000, 1_000),
        (5_000, 4_000, 5_000),
        (9_000, 4_000, 8_000),
    ] {
        let mut conn = receiver(&Config {
            receive_buffer: 4_000,
            receive_buffer_max: 8_000,
            ..Config::default()
        });
        conn.bound_receive_buffer(bytes);
        assert_eq!(
            (conn.settings.receive_buffer, conn.tuning.most),
            (buffer, most)
        );
    }
    // A reader that waits for so much at once gets room for it, up to half of the most; the peer is told.
    for (bytes, buffer) in [
        (3_000, 3_000),
        (3_001, 3_001),
        (4_000, 4_000),
        (9_000, 4_000),
    ] {
        let mut conn = receiver(&Config {
            receive_buffer: 3_000,
            receive_buffer_max: 8_000,
            ..Config::default()
        });
        conn.expect_at_once(bytes);
        assert_eq!(conn.settings.receive_buffer, buffer, "{bytes}");
    }
}
