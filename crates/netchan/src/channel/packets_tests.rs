//! A packet channel's ends, without a stack.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

use percore::slab::Slab;

use super::{PacketProtocol, packet_channel};
use crate::{counters::Counter, limits, packet::Packet};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn packet(slab: &mut Slab, number: u8) -> Packet {
    let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
    packet.set_len(1);
    packet.bytes_mut()[0] = number;
    packet
}

#[test]
fn what_the_stack_speaks_has_no_channel() {
    use PacketProtocol::{EtherType, Ip};
    let refused = [1, 2, 6, 17, 58, 0, 43, 44, 59, 60];
    for number in 0..=255 {
        let is_refused = Ip(number).check().is_err();
        assert_eq!(is_refused, refused.contains(&number), "{number}");
    }
    for number in [0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8, 0, 46, 1500, 0x05ff] {
        assert!(EtherType(number).check().is_err(), "{number:#x}");
    }
    for number in [0x0600, 0x88b5, 0x88cc, 0xffff] {
        assert!(EtherType(number).check().is_ok(), "{number:#x}");
    }
    let said = EtherType(0x0800).check().unwrap_err().to_string();
    assert_eq!(said, "ethertype 0x0800 is the stack's own");
}

#[test]
fn each_link_has_its_turn_and_full_rings_drop() {
    let mut slab = Slab::new(8 * limits::PACKET_CHANNEL, 64).unwrap();
    let (core, mut ends) = packet_channel(PacketProtocol::Ip(253), 2);
    for (number, end) in (0..).zip(&mut ends) {
        for _ in 0..limits::PACKET_CHANNEL {
            end.put(packet(&mut slab, number)).unwrap();
        }
        let full = end.put(packet(&mut slab, number));
        assert_eq!(full.unwrap_err().0, Counter::DropPacketChannelFull);
    }
    assert_eq!(
        (core.depth(), core.drops()),
        (2 * limits::PACKET_CHANNEL, 2)
    );
    let take = |most| {
        let mut from = Vec::new();
        core.take(most, |packet| from.push(packet.bytes()[0]));
        from
    };
    assert_eq!(
        (take(2), take(2), take(1)),
        (vec![0, 0], vec![1, 1], vec![0])
    );
    let rest = take(usize::MAX);
    assert_eq!(rest.len(), 2 * limits::PACKET_CHANNEL - 5);
    assert!(take(1).is_empty());
}

#[test]
fn scarce_buffers_stay_with_the_stack() {
    let mut slab = Slab::new(limits::PACKET_CHANNEL, 64).unwrap();
    let (core, mut ends) = packet_channel(PacketProtocol::Ip(253), 1);
    let mut kept = 0;
    let refusal = loop {
        match ends[0].put(packet(&mut slab, 0)) {
            Ok(()) => kept += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal.0, Counter::DropPacketChannelBuffers);
    // It looks once in 64 allocations.
    let marks = limits::PACKET_CHANNEL * 3 / 4..limits::PACKET_CHANNEL * 3 / 4 + 65;
    assert!(marks.contains(&kept), "{kept}");
    core.close();
    assert_eq!(core.depth(), 0);
}

#[test]
fn a_packet_wakes_once() {
    let mut slab = Slab::new(64, 64).unwrap();
    let (core, mut ends) = packet_channel(PacketProtocol::Ip(253), 1);
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(woken.clone());
    assert!(!core.register(&waker));
    ends[0].put(packet(&mut slab, 0)).unwrap();
    ends[0].put(packet(&mut slab, 0)).unwrap();
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(core.register(&waker), "there are some");
    core.deregister(&waker);
    ends[0].wake();
    assert_eq!(woken.0.load(SeqCst), 2);
}
