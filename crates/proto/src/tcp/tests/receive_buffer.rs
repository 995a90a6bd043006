//! The receive buffer's size as a function of what the application takes (R4).

use super::*;

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
