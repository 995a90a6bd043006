//! The wire alone: what each impairment does, that a seed replays, that nothing leaks, that nothing blocks.

use std::{
    collections::VecDeque,
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use percore::{doorbell::Doorbell, slab::Slab};
use proto::time::Instant;

use super::*;

const START: Instant = Instant(1_000_000_000);

fn slab() -> Slab {
    Slab::new(4096, 2048).unwrap()
}

/// An IPv4 frame of `len` bytes that carries `number`.
fn frame(slab: &mut Slab, number: u32, len: usize) -> Packet {
    let mut packet = Packet::new(slab.alloc().expect("the test's slab is large enough"), 40);
    packet.set_len(len);
    let bytes = packet.bytes_mut();
    bytes.fill(0);
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&u16::try_from(len - 14).unwrap().to_be_bytes());
    bytes[len - 4..].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &Packet) -> u32 {
    let bytes = packet.bytes();
    u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
}

/// What arrived: when, which, what bytes.
type Trace = Vec<(u64, Vec<u8>)>;

/// Sends `frames` frames of `len` bytes, one every `every`, and turns time until nothing is under way.
fn run(
    options: &Options,
    frames: u32,
    len: usize,
    every: Duration,
) -> (Trace, WireView, RxStatistics) {
    let (mut a, mut b) = pair(options);
    let (mut slab, mut copies) = (slab(), Slab::new(4096, 2048).unwrap());
    let mut trace = Trace::new();
    let (mut now, mut out, mut burst) = (START, VecDeque::new(), VecDeque::new());
    let mut drain = |now: Instant, b: &mut Wire| {
        while b.receive(now, &mut copies, &mut burst, 32).unwrap() > 0 {
            trace.extend(
                burst
                    .drain(..)
                    .map(|p| (now.0 - START.0, p.bytes().to_vec())),
            );
        }
    };
    for n in 0..frames {
        out.push_back(frame(&mut slab, n, len));
        assert_eq!(a.transmit(now, &mut out).unwrap(), 1);
        let next = now + every;
        drain(now, &mut b);
        while b.next_event() <= next {
            now = b.next_event();
            drain(now, &mut b);
        }
        now = next;
    }
    while b.next_event() != Instant::FAR {
        now = now.max(b.next_event());
        drain(now, &mut b);
    }
    let (view, statistics) = (a.impairments(), b.rx.statistics());
    drop((a, b, trace.len()));
    drop(out);
    assert_eq!(
        slab.available(),
        slab.capacity(),
        "buffers of the sender leaked"
    );
    assert_eq!(copies.available(), copies.capacity(), "copies leaked");
    (trace, view, statistics)
}

fn numbers(trace: &Trace) -> Vec<u32> {
    trace
        .iter()
        .map(|(_, b)| u32::from_be_bytes(b[b.len() - 4..].try_into().unwrap()))
        .collect()
}

/// Asserts that `seen` of `of` is `p` within five standard deviations.
fn about(seen: u64, of: u64, p: f64) {
    let (seen, of) = (
        f64::from(u32::try_from(seen).unwrap()),
        f64::from(u32::try_from(of).unwrap()),
    );
    let (mean, deviation) = (of * p, (of * p * (1.0 - p)).sqrt());
    assert!(
        (seen - mean).abs() < 5.0 * deviation + 1.0,
        "{seen} of {of}, expected {mean} ± {deviation}"
    );
}

#[test]
fn perfect_wire_passes_everything_in_order() {
    let (trace, view, statistics) = run(&Options::default(), 5000, 100, Duration::ZERO);
    assert_eq!(numbers(&trace), (0..5000).collect::<Vec<_>>());
    assert!(trace.iter().all(|(at, _)| *at == 0));
    assert_eq!(view.missed(), 0);
    assert_eq!((statistics.packets, statistics.bytes), (5000, 500_000));
}

#[test]
fn bytes_do_not_move() {
    let (mut a, mut b) = pair(&Options::default());
    let mut slab = slab();
    let packet = frame(&mut slab, 7, 60);
    let place = packet.bytes().as_ptr();
    let (mut out, mut burst) = (VecDeque::from([packet]), VecDeque::new());
    a.transmit(START, &mut out).unwrap();
    assert_eq!(b.receive(START, &mut slab, &mut burst, 32).unwrap(), 1);
    assert_eq!(burst[0].bytes().as_ptr(), place);
}

#[test]
fn checksums_are_trusted_only_on_request() {
    for trusted in [false, true] {
        for delay in [Duration::ZERO, Duration::from_nanos(1)] {
            let (mut a, mut b) = pair(&Options {
                trusted,
                delay,
                ..Options::default()
            });
            let mut slab = slab();
            let mut packet = frame(&mut slab, 0, 60);
            packet.meta.checksum_verified = true.into(); // what the sender thinks of it is the sender's
            let (mut out, mut burst) = (VecDeque::from([packet]), VecDeque::new());
            a.transmit(START, &mut out).unwrap();
            b.receive(START + delay, &mut slab, &mut burst, 32).unwrap();
            assert_eq!(burst[0].meta.checksum_verified.get(), trusted);
        }
    }
}

#[test]
fn delay_is_exact_and_announced() {
    let delay = Duration::from_millis(10);
    let (trace, ..) = run(
        &Options {
            delay,
            ..Options::default()
        },
        100,
        100,
        Duration::from_millis(1),
    );
    for (n, (at, _)) in (0u64..).zip(&trace) {
        assert_eq!(*at, n * 1_000_000 + 10_000_000);
    }
}

#[test]
fn loss_is_what_was_asked_for() {
    for percent in [1u32, 5, 50] {
        let p = f64::from(percent) / 100.0;
        let options = Options {
            loss: Probability::new(p),
            seed: u64::from(percent),
            ..Options::default()
        };
        let (trace, view, statistics) = run(&options, 20_000, 60, Duration::ZERO);
        about(20_000 - trace.len() as u64, 20_000, p);
        assert_eq!(view.missed(), 20_000 - trace.len() as u64);
        assert_eq!(statistics.missed, view.missed());
    }
    let (trace, ..) = run(
        &Options {
            loss: Probability::ALWAYS,
            ..Options::default()
        },
        100,
        60,
        Duration::ZERO,
    );
    assert!(trace.is_empty());
}

#[test]
fn duplicates_lie_in_the_receivers_slab() {
    let options = Options {
        duplicate: Probability::new(0.1),
        ..Options::default()
    };
    let (trace, view, _) = run(&options, 10_000, 60, Duration::ZERO);
    about(trace.len() as u64 - 10_000, 10_000, 0.1);
    assert_eq!(view.duplicated.load(Relaxed), trace.len() as u64 - 10_000);
    // A copy comes right behind or before its original, and says the same.
    let mut seen = numbers(&trace);
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen, (0..10_000).collect::<Vec<_>>());
}

#[test]
fn duplicate_without_a_buffer_is_counted() {
    let (mut a, mut b) = pair(&Options {
        duplicate: Probability::ALWAYS,
        ..Options::default()
    });
    let (mut slab, mut none) = (slab(), Slab::new(1, 64).unwrap());
    let _all_of_it = none.alloc();
    let (mut out, mut burst) = (VecDeque::from([frame(&mut slab, 0, 60)]), VecDeque::new());
    a.transmit(START, &mut out).unwrap();
    assert_eq!(b.receive(START, &mut none, &mut burst, 32).unwrap(), 1);
    assert_eq!(b.rx.statistics().no_buffer, 1);
}

#[test]
fn reordering_overtakes_within_its_extent() {
    let extent = Duration::from_millis(5);
    let options = Options {
        reorder: Probability::new(0.1),
        extent,
        ..Options::default()
    };
    let (trace, view, _) = run(&options, 10_000, 60, Duration::from_micros(100));
    assert_eq!(trace.len(), 10_000);
    about(view.reordered.load(Relaxed), 10_000, 0.1);
    let late = trace
        .iter()
        .zip(numbers(&trace))
        .map(|((at, _), n)| at - u64::from(n) * 100_000);
    let held = late.clone().filter(|&d| d > 0).count() as u64;
    assert_eq!(held, view.reordered.load(Relaxed));
    assert!(late.max().unwrap() <= 5_000_000);
    assert!(!numbers(&trace).is_sorted());
}

#[test]
fn jitter_spreads_evenly() {
    let (delay, jitter) = (Duration::from_millis(1), Duration::from_millis(2));
    let (trace, ..) = run(
        &Options {
            delay,
            jitter,
            ..Options::default()
        },
        10_000,
        60,
        Duration::from_micros(100),
    );
    let late: Vec<u64> = trace
        .iter()
        .zip(numbers(&trace))
        .map(|((at, _), n)| at - u64::from(n) * 100_000)
        .collect();
    assert!(late.iter().all(|d| (1_000_000..=3_000_000).contains(d)));
    about(
        late.iter().filter(|&&d| d < 2_000_000).count() as u64,
        10_000,
        0.5,
    );
}

#[test]
fn corruption_is_one_byte_that_a_checksum_covers() {
    let options = Options {
        corrupt: Probability::new(0.2),
        ..Options::default()
    };
    let (trace, view, _) = run(&options, 10_000, 100, Duration::ZERO);
    assert_eq!(trace.len(), 10_000);
    let mut slab = slab();
    let mut changed = 0;
    for (n, (_, bytes)) in (0u32..).zip(&trace) {
        let original = frame(&mut slab, n, 100);
        let differ: Vec<usize> = original
            .bytes()
            .iter()
            .zip(bytes)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(i, _)| i)
            .collect();
        assert!(
            differ.len() <= 1 && differ.iter().all(|&i| i >= 14),
            "{differ:?}"
        );
        changed += differ.len() as u64;
    }
    about(changed, 10_000, 0.2);
    assert_eq!(view.corrupted.load(Relaxed), changed);
}

#[test]
fn what_no_checksum_covers_is_lost_instead_of_changed() {
    for kind in [[0x08, 0x06], [0x86, 0xdd]] {
        let (mut a, mut b) = pair(&Options {
            corrupt: Probability::ALWAYS,
            ..Options::default()
        });
        let mut slab = slab();
        for n in 0..500 {
            let mut packet = frame(&mut slab, n, 80);
            let bytes = packet.bytes_mut();
            bytes[12..14].copy_from_slice(&kind);
            bytes[14..22].copy_from_slice(&[0x60, 1, 2, 3, 0, 26, 6, 64]); // IPv6, 26 bytes of TCP
            let before = bytes.to_vec();
            let (mut out, mut burst) = (VecDeque::from([packet]), VecDeque::new());
            a.transmit(START, &mut out).unwrap();
            b.receive(START, &mut slab, &mut burst, 32).unwrap();
            let Some(after) = burst.pop_front() else {
                continue;
            };
            assert_eq!(kind, [0x86, 0xdd], "an ARP packet arrived");
            let at: Vec<usize> = (0..80).filter(|&i| before[i] != after.bytes()[i]).collect();
            assert_eq!(at.len(), 1);
            assert!(
                at[0] >= 18 && at[0] != 21,
                "byte {} of an IPv6 frame has no checksum",
                at[0]
            );
        }
    }
}

#[test]
fn rate_spaces_frames_without_drift() {
    // 1000 bytes at 3 Mbit/s: 2 666 666.6… ns each.
    let options = Options {
        rate: NonZeroU64::new(3_000_000),
        ..Options::default()
    };
    let (trace, ..) = run(&options, 900, 1000, Duration::ZERO);
    assert_eq!(trace.len(), 900);
    for (n, (at, _)) in (1u64..).zip(&trace) {
        assert_eq!(*at, n * 8_000_000_000_000 / 3_000_000, "frame {n}");
    }
}

#[test]
fn queue_drops_at_the_tail_and_counts() {
    let rate = NonZeroU64::new(8_000_000); // 1 ms for 1000 bytes
    let frames = Options {
        rate,
        queue_frames: Some(10),
        ..Options::default()
    };
    let (trace, view, statistics) = run(&frames, 100, 1000, Duration::ZERO);
    assert_eq!(numbers(&trace), (0..10).collect::<Vec<_>>());
    assert_eq!((view.overflowed.load(Relaxed), statistics.missed), (90, 90));
    let bytes = Options {
        rate,
        queue_bytes: Some(5999),
        ..Options::default()
    };
    assert_eq!(run(&bytes, 100, 1000, Duration::ZERO).0.len(), 5);
    // At half the load nothing is dropped.
    let (trace, ..) = run(&frames, 1000, 1000, Duration::from_millis(2));
    assert_eq!(trace.len(), 1000);
}

#[test]
fn queue_without_a_rate_limits_what_is_under_way() {
    let options = Options {
        delay: Duration::from_millis(10),
        queue_frames: Some(20),
        ..Options::default()
    };
    let (trace, view, _) = run(&options, 100, 100, Duration::ZERO);
    assert_eq!((trace.len(), view.missed()), (20, 80));
    // With neither, the ring is the queue.
    let (mut a, b) = pair(&Options {
        queue_frames: Some(8),
        ..Options::default()
    });
    let mut slab = slab();
    let mut out: VecDeque<_> = (0..20).map(|n| frame(&mut slab, n, 60)).collect();
    assert_eq!(a.transmit(START, &mut out).unwrap(), 20);
    assert_eq!(
        (a.impairments().missed(), b.rx.statistics().missed),
        (12, 12)
    );
}

#[test]
fn one_seed_one_trace() {
    let options = |seed| Options {
        delay: Duration::from_micros(300),
        jitter: Duration::from_micros(500),
        reorder: Probability::new(0.05),
        loss: Probability::new(0.02),
        duplicate: Probability::new(0.02),
        corrupt: Probability::new(0.02),
        rate: NonZeroU64::new(10_000_000),
        queue_frames: Some(30),
        seed,
        ..Options::default()
    };
    let one = run(&options(42), 5000, 200, Duration::from_micros(150)).0;
    assert_eq!(
        one,
        run(&options(42), 5000, 200, Duration::from_micros(150)).0
    );
    assert_ne!(
        one,
        run(&options(43), 5000, 200, Duration::from_micros(150)).0
    );
}

#[test]
fn full_leaves_the_frames_and_rings_when_there_is_room() {
    for delay in [Duration::ZERO, Duration::from_nanos(1)] {
        let (mut a, mut b) = pair(&Options {
            ring: 4,
            delay,
            ..Options::default()
        });
        let bell = Arc::new(Doorbell::new().unwrap());
        a.attach(&bell);
        let mut slab = slab();
        let mut out: VecDeque<_> = (0..6).map(|n| frame(&mut slab, n, 60)).collect();
        assert_eq!(a.transmit(START, &mut out).unwrap(), 4);
        assert_eq!(out.len(), 2);
        assert_eq!(number(&out[0]), 4);
        bell.arm(percore::doorbell::Sleep::Futex);
        let mut burst = VecDeque::new();
        while b.receive(START + delay, &mut slab, &mut burst, 32).unwrap() > 0 {}
        assert!(
            bell.wait(Some(Duration::ZERO)),
            "the sender was not told that there is room"
        );
        assert_eq!(a.transmit(START, &mut out).unwrap(), 2);
        while b.receive(START + delay, &mut slab, &mut burst, 32).unwrap() > 0 {}
        assert_eq!(
            burst.iter().map(number).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(
            (a.tx.statistics().packets, a.tx.statistics().bytes),
            (6, 360)
        );
    }
}

#[test]
fn too_long_a_frame_is_refused_for_good() {
    let (mut a, mut b) = pair(&Options {
        mtu: 100,
        ..Options::default()
    });
    let mut slab = slab();
    let mut out: VecDeque<_> = [60, 123, 122].map(|len| frame(&mut slab, 0, len)).into();
    assert_eq!(a.transmit(START, &mut out).unwrap(), 3);
    assert_eq!(
        (
            a.tx.statistics().errors,
            a.tx.statistics().packets,
            a.tx.statistics().bytes
        ),
        (1, 2, 182)
    );
    assert_eq!(
        b.receive(START, &mut slab, &mut VecDeque::new(), 32)
            .unwrap(),
        2
    );
}

#[test]
fn dropped_end_is_gone_after_what_it_sent() {
    for delay in [Duration::ZERO, Duration::from_millis(1)] {
        let (mut a, mut b) = pair(&Options {
            delay,
            ..Options::default()
        });
        let bell = Arc::new(Doorbell::new().unwrap());
        b.attach(&bell);
        let mut slab = slab();
        let mut out = VecDeque::from([frame(&mut slab, 0, 60)]);
        a.transmit(START, &mut out).unwrap();
        bell.arm(percore::doorbell::Sleep::Futex);
        drop(a);
        assert!(
            bell.wait(Some(Duration::ZERO)),
            "the other end was not told"
        );
        let (mut burst, later) = (VecDeque::new(), START + delay);
        let _ = b.receive(START, &mut slab, &mut burst, 32).unwrap();
        let _ = b
            .receive(later, &mut slab, &mut burst, 32)
            .or_else(|e| if burst.is_empty() { Err(e) } else { Ok(0) });
        assert_eq!(burst.len(), 1);
        for _ in 0..2 {
            assert!(matches!(
                b.receive(later, &mut slab, &mut burst, 32),
                Err(LinkError::Ended(_))
            ));
            out.push_back(frame(&mut slab, 1, 60));
            assert!(matches!(
                b.transmit(later, &mut out),
                Err(LinkError::Ended(_))
            ));
        }
        assert_eq!(out.len(), 2, "the frames stay");
    }
}

#[test]
fn two_threads_sleep_and_wake() {
    const FRAMES: u32 = 200_000;
    let (mut a, mut b) = pair(&Options {
        ring: 64,
        ..Options::default()
    });
    let bells = [(); 2].map(|()| Arc::new(Doorbell::new().unwrap()));
    a.attach(&bells[0]);
    b.attach(&bells[1]);
    let sender = std::thread::spawn({
        let bell = bells[0].clone();
        move || {
            let mut slab = Slab::new(256, 128).unwrap();
            let (mut next, mut out) = (0, VecDeque::new());
            while next < FRAMES || !out.is_empty() {
                while out.len() < 32 && next < FRAMES && slab.available() > 0 {
                    out.push_back(frame(&mut slab, next, 60));
                    next += 1;
                }
                if a.transmit(START, &mut out).unwrap() == 0 && !out.is_empty() {
                    bell.arm(percore::doorbell::Sleep::Futex);
                    if a.transmit(START, &mut out).unwrap() == 0 {
                        bell.wait(Some(Duration::from_secs(10)));
                    }
                    bell.disarm();
                }
            }
            (a, slab)
        }
    });
    let (mut slab, mut burst, mut expected) = (Slab::new(1, 64).unwrap(), VecDeque::new(), 0);
    while expected < FRAMES {
        if b.receive(START, &mut slab, &mut burst, 32).unwrap() == 0 {
            bells[1].arm(percore::doorbell::Sleep::Futex);
            if b.receive(START, &mut slab, &mut burst, 32).unwrap() == 0 {
                assert!(
                    bells[1].wait(Some(Duration::from_secs(10))),
                    "a wake-up was lost at {expected}"
                );
            }
            bells[1].disarm();
        }
        for packet in burst.drain(..) {
            assert_eq!(number(&packet), expected);
            expected += 1;
        }
    }
    let (_a, mut slab) = sender.join().unwrap();
    assert_eq!(slab.available(), slab.capacity(), "buffers leaked");
}

#[test]
fn name_gives_both_ends_once() {
    let name = "registry-test";
    let slow = Options {
        delay: Duration::from_millis(1),
        ..Options::default()
    };
    let mut a = registry::open(name, Some(&slow)).unwrap();
    let mut slab = slab();
    let mut out = VecDeque::from([frame(&mut slab, 1, 60)]);
    assert_eq!(
        a.transmit(START, &mut out).unwrap(),
        1,
        "the ring keeps it until the other end is open"
    );
    assert_eq!(
        a.receive(START, &mut slab, &mut VecDeque::new(), 32)
            .unwrap(),
        0
    );
    let mut b = registry::open(name, None).unwrap();
    assert_ne!(a.properties().mac, b.properties().mac);
    assert!(registry::open(name, None).is_err_and(|e| e.contains("in use")));
    let (mut burst, later) = (VecDeque::new(), START + Duration::from_millis(1));
    assert_eq!(b.receive(START, &mut slab, &mut burst, 32).unwrap(), 0);
    assert_eq!(b.receive(later, &mut slab, &mut burst, 32).unwrap(), 1);
    // The second opener took the options of the first.
    b.transmit(START, &mut burst).unwrap();
    assert_eq!(a.receive(START, &mut slab, &mut burst, 32).unwrap(), 0);
    assert_eq!(a.receive(later, &mut slab, &mut burst, 32).unwrap(), 1);
    drop((a, b));
    let a = registry::open(name, Some(&Options { mtu: 9000, ..slow })).unwrap();
    assert!(registry::open(name, Some(&Options::default())).is_err_and(|e| e.contains("9000")));
    drop(a);
    assert_eq!(
        registry::open(name, None).unwrap().properties().mtu,
        1500,
        "a half without its owner was kept"
    );
}

/// Two stacks stood still for good so: one kept what came behind a hole, the other had no buffer to fill the hole from.
#[test]
fn a_receiver_that_keeps_all_frames_leaves_the_sender_some_buffers() {
    for options in [Options::default(), slow()] {
        let (mut a, mut b) = pair(&options);
        let (mut slab, mut own) = (Slab::new(1024, 2048).unwrap(), self::slab());
        let (mut now, mut out, mut kept) = (START, VecDeque::new(), VecDeque::new());
        for number in 0..4_000 {
            assert!(slab.available() > 100, "{number} frames are kept");
            out.push_back(frame(&mut slab, number, 100));
            while a.transmit(now, &mut out).unwrap() == 0 {}
            b.receive(now, &mut own, &mut kept, 32).unwrap();
            now = now + Duration::from_micros(10);
        }
        now = now + Duration::from_secs(1);
        while b.receive(now, &mut own, &mut kept, 64).unwrap() > 0 {}
        let numbers: Vec<_> = kept.iter().map(number).collect();
        assert!(
            numbers.is_sorted() && numbers.len() == 4_000,
            "{}",
            numbers.len()
        );
    }
}

/// Frames are 20 ms on their way: 2,000 at once.
fn slow() -> Options {
    Options {
        delay: Duration::from_millis(20),
        ..Options::default()
    }
}
