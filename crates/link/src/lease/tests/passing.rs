//! Packets, names and wake-ups.

use std::{collections::VecDeque, thread};

use netchan_base::{
    descriptor::{CHECKSUM_VERIFIED, Descriptor, FRAME, Return, WANTS_BUFFERS},
    packet::Packet,
};
use percore::{
    doorbell::{Woken, several::Several},
    slab::{BufferName, Slab},
};
use proto::time::{Duration, Instant};
use rustix::net::{SendFlags, send};

use super::lender::{BUFFERS, Lender, MAC, SIZE, frame, is_readable, packet, slab};
use crate::{LinkError, Queue, lease::LENDER};

const NOW: Instant = Instant::ZERO;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

fn receive(queue: &mut Queue, slab: &mut Slab) -> Vec<Packet> {
    let mut burst = VecDeque::new();
    let n = queue.rx.receive(NOW, slab, &mut burst, 32).unwrap();
    assert_eq!(n, burst.len());
    burst.into()
}

fn is_awake(queue: &Queue) -> bool {
    is_readable(queue.rx.fd().unwrap(), 0)
}

#[test]
fn packets_pass_in_both_directions_and_buffers_come_back() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    let (mut received, mut sent) = (0, 0);
    for round in 0..40_u8 {
        let (version, kind) = if round % 2 == 0 { (4, IPV4) } else { (6, IPV6) };
        let flags = if round % 3 == 0 { CHECKSUM_VERIFIED } else { 0 };
        let packets: Vec<_> = (1..=3_u8)
            .map(|n| packet(version, round, 20 + usize::from(round * n)))
            .collect();
        for packet in &packets {
            assert!(lender.send(packet, flags), "its buffers come back");
        }
        for (frame, packet) in receive(&mut queue, &mut slab).iter().zip(&packets) {
            let (header, inside) = frame.bytes().split_at(14);
            assert_eq!(header[..6], MAC);
            assert_eq!(header[6..12], LENDER.0);
            assert_eq!(header[12..], kind.to_be_bytes());
            assert_eq!(inside, packet);
            assert_eq!(frame.meta.checksum_verified.get(), flags != 0);
            received += 1;
        }
        let mut frames: VecDeque<_> = (packets.iter())
            .map(|packet| frame(&mut slab, kind, packet))
            .collect();
        frames[0].meta.segment = 1400;
        assert_eq!(queue.tx.transmit(NOW, &mut frames).unwrap(), 3);
        for ((descriptor, found), packet) in lender.take().iter().zip(&packets) {
            assert_eq!(found, packet);
            let segment = if sent % 3 == 0 { 1400 } else { 0 };
            assert_eq!((descriptor.segment, descriptor.link), (segment, 0));
            lender.give_back(descriptor);
            sent += 1;
        }
    }
    assert_eq!((received, sent), (120, 120), "of {BUFFERS} buffers each");
    let (rx, tx) = (queue.rx.statistics(), queue.tx.statistics());
    assert_eq!((rx.packets, tx.packets), (120, 120));
    assert_eq!((rx.bytes, rx.length, tx.errors), (tx.bytes, 0, 0));
    assert_eq!(lender.collect(), 3);
    assert_eq!(lender.inward.lent(), 0);
}

/// A frame, as it crosses.
fn whole(kind: u16, len: usize) -> Vec<u8> {
    [
        &MAC[..],
        &[2, 0, 0, 0, 0, 9],
        &kind.to_be_bytes(),
        &vec![7; len],
    ]
    .concat()
}

#[test]
fn frames_keep_their_header() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    for len in [0, 1, 46, 1500] {
        let sent = whole(0x88b5, len);
        assert!(lender.send(&sent, FRAME));
        let came = receive(&mut queue, &mut slab);
        assert_eq!((came.len(), came[0].bytes()), (1, &sent[..]));
        assert!(!came[0].meta.checksum_verified.get());
        let mut frames = VecDeque::from([frame(&mut slab, 0x88b5, &sent[14..])]);
        frames[0].bytes_mut()[..12].copy_from_slice(&sent[..12]);
        assert_eq!(queue.tx.transmit(NOW, &mut frames).unwrap(), 1);
        let came = lender.take();
        assert_eq!((came.len(), &came[0].1), (1, &sent));
        assert_eq!((came[0].0.flags, came[0].0.segment), (FRAME, 0));
        lender.give_back(&came[0].0);
    }
    let (rx, tx) = (queue.rx.statistics(), queue.tx.statistics());
    assert_eq!((rx.packets, rx.bytes), (tx.packets, tx.bytes));
    assert_eq!((rx.packets, rx.length, tx.errors), (4, 0, 0));
    // Cut short, of IP or ARP, longer than a buffer here.
    let mut small = Slab::new(4, 256).unwrap();
    for (bytes, refused) in [
        (whole(0x88b5, 0)[..13].to_vec(), true),
        (vec![0x45], true),
        (whole(IPV4, 40), true),
        (whole(IPV6, 40), true),
        (whole(0x0806, 28), true),
        (whole(0x88b5, 243), true),
        (whole(0x88b5, 242), false),
    ] {
        let before = queue.rx.statistics().length;
        assert!(lender.send(&bytes, FRAME));
        let came = receive(&mut queue, &mut small);
        assert_eq!(came.is_empty(), refused, "{bytes:?}");
        assert_eq!(queue.rx.statistics().length, before + u64::from(refused));
    }
    assert_eq!(small.available(), 4, "none is lost here");
    assert_eq!(lender.collect(), 1);
    assert_eq!(lender.inward.lent(), 0);
}

/// What finds no buffer here is counted, and its name comes back all the same; what comes next is not slept over.
#[test]
fn dropped_packets_are_counted_and_their_names_come_back() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut one = Slab::new(1, 4096).unwrap();
    let held = one.alloc();
    for _ in 0..3 {
        lender.send(&packet(4, 1, 100), 0);
    }
    assert!(receive(&mut queue, &mut one).is_empty());
    assert_eq!(queue.rx.statistics().no_buffer, 3);
    assert_eq!(queue.rx.next_event(), Instant::ZERO, "it is not armed");
    assert_eq!(lender.collect(), 3);
    assert!(receive(&mut queue, &mut one).is_empty());
    assert_eq!(queue.rx.next_event(), Instant::FAR);

    // Longer than the buffer, and not of IP.
    drop(held);
    let mut small = Slab::new(4, 256).unwrap();
    let len = 256 - 14;
    lender.send(&packet(4, 1, len + 1), 0);
    lender.send(&packet(5, 1, 40), 0);
    lender.send(&packet(6, 1, len), 0);
    let came = receive(&mut queue, &mut small);
    let counts = queue.rx.statistics();
    assert_eq!((counts.length, counts.packets), (2, 1));
    assert_eq!(lender.collect(), 3);
    assert_eq!((came.len(), small.available()), (1, 3), "none is lost here");
}

#[test]
fn frames_that_cannot_go_are_counted_and_those_that_must_wait_stay() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    let long = packet(4, 0, SIZE + 1);
    let mut frames = VecDeque::from([
        frame(&mut slab, 0x0806, &[0; 28]),
        frame(&mut slab, IPV4, &[]),
        frame(&mut slab, IPV4, &long),
    ]);
    frames[1].truncate(13);
    assert_eq!(queue.tx.transmit(NOW, &mut frames).unwrap(), 3);
    assert_eq!((queue.tx.statistics().errors, lender.take().len()), (3, 0));

    let more = |slab: &mut Slab| frame(slab, IPV4, &packet(4, 7, SIZE));
    frames.extend((0..BUFFERS + 2).map(|_| more(&mut slab)));
    assert_eq!(queue.tx.transmit(NOW, &mut frames).unwrap(), BUFFERS);
    assert_eq!(queue.tx.transmit(NOW, &mut frames).unwrap(), 0);
    assert_eq!(frames.len(), 2);
    let came = lender.take();
    let few = came.iter().map(|(d, _)| d.flags == WANTS_BUFFERS);
    let few: Vec<_> = few.collect();
    assert!(!few[0] && few[BUFFERS - 1], "{few:?}");
    let mut indices: Vec<_> = came.iter().map(|(d, _)| d.name.index).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..8), "each name once");
    lender.give_back(&came[3].0);
    assert_eq!(queue.tx.transmit(NOW, &mut frames).unwrap(), 1);
    assert_eq!(lender.take()[0].0.name.index, came[3].0.name.index);
    assert_eq!(queue.tx.statistics().errors, 3);
}

/// Rings with fewer slots than there are buffers: nothing is lost where they are full.
#[test]
fn full_rings_delay_packets_and_names() {
    let mut lender = Lender::of(8, 2);
    let mut queue = lender.queue();
    let mut slab = slab();
    let mut frames: VecDeque<_> = (0..5)
        .map(|n| frame(&mut slab, IPV4, &packet(4, n, 60)))
        .collect();
    let mut came = Vec::new();
    while !frames.is_empty() {
        assert!(queue.tx.transmit(NOW, &mut frames).unwrap() <= 2);
        came.extend(lender.take().into_iter().map(|(_, packet)| packet[1]));
    }
    assert_eq!(came, [0, 1, 2, 3, 4]);

    for _ in 0..3 {
        for _ in 0..2 {
            let buffer = lender.inward.alloc().unwrap();
            let name = lender.inward.lend(buffer).unwrap();
            let descriptor = Descriptor {
                name,
                offset: 0,
                length: 40,
                link: 0,
                flags: 0,
                segment: 0,
            };
            lender.stage(descriptor.encode());
        }
        receive(&mut queue, &mut slab);
    }
    let back: usize = (0..4)
        .map(|_| {
            let n = lender.collect();
            assert!(n <= 2);
            receive(&mut queue, &mut slab);
            n
        })
        .sum();
    assert_eq!((back, lender.inward.lent()), (6, 0));
}

#[test]
fn bad_descriptors_are_counted_and_survived() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    let good = Descriptor {
        name: BufferName {
            index: 0,
            generation: 1,
        },
        offset: 0,
        length: 40,
        link: 0,
        flags: 0,
        segment: 0,
    };
    let word = |at: usize, value: u32| {
        let mut bytes = good.encode();
        bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let bad = [
        word(0, 8),        // no such buffer
        word(2, u32::MAX), // outside
        word(3, 2049),     // longer than a buffer
        word(3, 0),        // empty
        word(4, 1),        // no such link
        word(5, 1 << 9),   // no such flag
        word(6, u32::MAX), // a segment that is none
        word(7, 1),        // where zero is to be
        [0xff; Descriptor::ENCODED],
    ];
    for (n, item) in bad.into_iter().enumerate() {
        lender.stage(item);
        assert!(receive(&mut queue, &mut slab).is_empty());
        assert_eq!(queue.rx.statistics().length, n as u64 + 1);
        assert_eq!(lender.collect(), 0, "it named no buffer");
    }
    let mut random = 1_u64;
    for _ in 0..2000 {
        let mut item = good.encode();
        for byte in item.iter_mut().step_by(3) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if random >> 62 == 0 {
                *byte = random.to_le_bytes()[5];
            }
        }
        lender.stage(item);
        receive(&mut queue, &mut slab);
        while lender.side.sending.take_returns(1, |_| ()) > 0 {}
    }
    lender.send(&packet(4, 9, 77), 0);
    let came = receive(&mut queue, &mut slab);
    assert_eq!(came[0].bytes()[14..], packet(4, 9, 77));
}

#[test]
fn names_that_are_not_out_are_not_taken() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    let back = |index| {
        let generation = 1;
        Return {
            name: BufferName { index, generation },
        }
        .encode()
    };
    let mut send = |queue: &mut Queue, n: usize| {
        let mut frames: VecDeque<_> = (0..n)
            .map(|_| frame(&mut slab, IPV4, &packet(4, 0, 40)))
            .collect();
        queue.tx.transmit(NOW, &mut frames).unwrap()
    };
    // None is out.
    for bytes in [back(0), back(7), back(8), back(u32::MAX), [0xff; 16]] {
        lender.return_name(bytes);
    }
    assert_eq!(send(&mut queue, 20), BUFFERS);
    assert_eq!(lender.take().len(), BUFFERS);
    for bytes in [back(3), back(3), back(9), back(3), [1; 16]] {
        lender.return_name(bytes);
    }
    assert_eq!(send(&mut queue, 20), 1, "3 came back, once");
}

#[test]
fn a_lender_that_says_goodbye_is_gone_after_its_last_packet() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    lender.send(&packet(4, 1, 40), 0);
    drop(lender);
    assert_eq!(receive(&mut queue, &mut slab).len(), 1);
    let mut burst = VecDeque::new();
    for _ in 0..3 {
        let gone = queue.rx.receive(NOW, &mut slab, &mut burst, 32);
        assert!(
            matches!(&gone, Err(LinkError::Gone(what)) if what == "the daemon has ended"),
            "{gone:?}"
        );
    }
    let mut frames = VecDeque::from([frame(&mut slab, IPV4, &packet(4, 1, 40))]);
    let gone = queue.tx.transmit(NOW, &mut frames);
    assert!(matches!(gone, Err(LinkError::Gone(_))), "{gone:?}");
    assert_eq!(frames.len(), 1);
}

#[test]
fn a_lender_that_is_killed_is_gone() {
    let lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    assert!(falls_asleep(&mut queue, &mut slab));
    lender.die();
    assert!(is_awake(&queue), "its socket is at its end");
    let mut burst = VecDeque::new();
    let looks = (0..1000).position(|_| {
        let gone = queue.rx.receive(NOW, &mut slab, &mut burst, 32);
        queue.rx.next_event();
        matches!(gone, Err(LinkError::Gone(_)))
    });
    assert!(looks.is_some(), "it is noticed");
    let gone = queue.tx.transmit(NOW, &mut VecDeque::new());
    assert!(matches!(gone, Err(LinkError::Gone(_))), "{gone:?}");
}

/// A thread that sleeps on doorbells alone is woken by a call on a word, and nothing is rung while none sleeps.
#[test]
fn a_sleeper_is_woken_by_its_doorbell() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    let mut bells = Several::default();
    for round in 0..5 {
        bells.clear();
        let event = queue.rx.next_event_by_bells(&mut bells);
        assert_eq!(event, Some(Instant::FAR));
        // Another thread that asks meanwhile changes nothing.
        assert_eq!(queue.rx.next_event(), Instant::FAR);
        let short = Some(Duration::from_millis(if round == 0 { 5 } else { 0 }));
        assert_eq!(bells.sleep(short), Woken::TimedOut);
        lender.send(&packet(4, 1, 40), 0);
        assert!(!is_awake(&queue), "no byte in its socket");
        assert_eq!(bells.sleep(None), Woken::Rung);
        queue.rx.leave_bells();
        // There is something: no sleep.
        bells.clear();
        let event = queue.rx.next_event_by_bells(&mut bells);
        assert_eq!(event, Some(Instant::ZERO));
        queue.rx.leave_bells();
        assert!(!lender.side.far_bell.ring(), "no thread sleeps");
        assert_eq!(receive(&mut queue, &mut slab).len(), 1);
        // And by its descriptor, in turn.
        assert!(falls_asleep(&mut queue, &mut slab));
        assert!(lender.side.far_bell.ring() && is_awake(&queue));
    }
}

/// Looks, and asks what a thread asks before it sleeps. Whether it may.
fn falls_asleep(queue: &mut Queue, slab: &mut Slab) -> bool {
    receive(queue, slab).is_empty() && queue.rx.next_event() == Instant::FAR
}

#[test]
fn a_sleeper_is_woken_and_its_descriptor_is_quiet_again() {
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    for _ in 0..5 {
        // However often it looks: one wake-up, and one only.
        for _ in 0..10 {
            assert!(falls_asleep(&mut queue, &mut slab));
            assert!(!is_awake(&queue));
        }
        assert!(lender.side.far_bell.ring() && !lender.side.far_bell.ring());
        assert!(is_awake(&queue));
        // For nothing: the descriptor does not stay readable.
        assert!(falls_asleep(&mut queue, &mut slab));
        assert!(!is_awake(&queue));
        // And the next wake-up is none for nothing.
        lender.send(&packet(4, 1, 40), 0);
        assert!(is_awake(&queue));
        assert_eq!(receive(&mut queue, &mut slab).len(), 1);
        assert!(!is_awake(&queue));
        // Awake: that costs the lender no system call.
        lender.send(&packet(4, 1, 40), 0);
        assert!(!is_awake(&queue));
        assert_eq!(receive(&mut queue, &mut slab).len(), 1);
        lender.collect();
    }
    // A signal without a word, as no lender sends it.
    assert!(falls_asleep(&mut queue, &mut slab));
    send(lender.side.own_bell.fd(), &[1], SendFlags::empty()).unwrap();
    assert!(is_awake(&queue));
    let quiet = (0..1000).any(|_| {
        falls_asleep(&mut queue, &mut slab);
        !is_awake(&queue)
    });
    assert!(quiet);
}

/// A lender with few buffers asks to be woken when some come back.
#[test]
fn a_lender_that_wants_buffers_is_woken() {
    use percore::doorbell::Sleep;
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    for (flags, is_woken) in [(0, false), (WANTS_BUFFERS, true)] {
        lender.side.own_bell.arm(Sleep::Fd);
        lender.send(&packet(4, 1, 40), flags);
        assert_eq!(receive(&mut queue, &mut slab).len(), 1);
        assert_eq!(is_readable(lender.side.own_bell.fd(), 0), is_woken);
        lender.side.own_bell.disarm();
    }
    // And for each burst of packets, once.
    lender.side.own_bell.arm(Sleep::Fd);
    let mut frames = VecDeque::from([frame(&mut slab, IPV4, &packet(4, 1, 40))]);
    queue.tx.transmit(NOW, &mut frames).unwrap();
    assert!(is_readable(lender.side.own_bell.fd(), 0));
}

/// A lost wake-up shows as a sleep that runs to its end.
#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const PACKETS: usize = 5000;
    let mut lender = Lender::new();
    let mut queue = lender.queue();
    let mut slab = slab();
    let sender = thread::spawn(move || {
        let mut sent = 0;
        while sent < PACKETS {
            if lender.send(&packet(4, sent.to_le_bytes()[0], 60), 0) {
                sent += 1;
                if sent % 5 != 0 {
                    continue;
                }
            }
            thread::yield_now();
        }
        lender
    });
    let mut came = 0;
    while came < PACKETS {
        let packets = receive(&mut queue, &mut slab);
        for packet in &packets {
            assert_eq!(packet.bytes()[15], came.to_le_bytes()[0]);
            came += 1;
        }
        if packets.is_empty() && queue.rx.next_event() == Instant::FAR {
            let woken = is_readable(queue.rx.fd().unwrap(), 20);
            assert!(woken, "lost at {came}");
        }
    }
    drop(sender.join().unwrap());
}
