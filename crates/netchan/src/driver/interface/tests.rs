//! An interface by itself, over a link that takes as much as a test lets it.

use std::sync::{Mutex, atomic::AtomicUsize};

use proto::{
    neighbor::{arp, ndp},
    time::Duration,
    wire::{
        arp as wire_arp,
        ethernet::MacAddr,
        ipv4::{self, Protocol},
        ipv6,
    },
};

use super::*;
use crate::driver::steer::{HostWork, tests::made};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// Takes so many frames, and keeps them.
#[derive(Clone, Default)]
struct Narrow {
    room: Arc<AtomicUsize>,
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl LinkTx for Narrow {
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        let count = self.room.load(Relaxed).min(frames.len());
        self.room.fetch_sub(count, Relaxed);
        let taken = frames.drain(..count).map(|frame| frame.bytes().to_vec());
        self.taken.lock().unwrap().extend(taken);
        Ok(count)
    }

    fn statistics(&self) -> TxStatistics {
        TxStatistics::default()
    }
}

struct Bench {
    interface: Interface,
    link: Narrow,
    slab: Slab,
    counters: Arc<Counters>,
}

const NOW: Instant = Instant(1_000_000_000);

impl Bench {
    fn new() -> Self {
        let host = made(|_, _| ());
        let (link, counters) = (Narrow::default(), Arc::new(Counters::new(2)));
        let (tx, counted) = (Box::new(link.clone()), counters.clone());
        let id = QueueId::new(0, 0, NthQueue::ONLY, 0).unwrap();
        let made = Interface::new(id, tx, &host, counted, Vec::new(), NOW);
        Self {
            interface: made.unwrap(),
            link,
            slab: Slab::new(limits::LINK_QUEUE + 64, 256).unwrap(),
            counters,
        }
    }

    fn packet(&mut self, bytes: &[u8]) -> Packet {
        let mut packet = Packet::new(self.slab.alloc().unwrap(), HEADROOM);
        packet.set_len(bytes.len());
        packet.bytes_mut().copy_from_slice(bytes);
        packet
    }

    /// A datagram of ours for a neighbour.
    fn datagram(&mut self, to: [u8; 4]) -> Packet {
        let mut bytes = [0; ipv4::HEADER_LEN + 8];
        let header = ipv4::Header::new(Protocol::UDP, [10, 0, 0, 2].into(), to.into());
        header.emit(8, &mut bytes);
        self.packet(&bytes)
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.read(counter)
    }
}

/// What the link does not take waits, as much as its queue holds; what is beyond is dropped, and counted.
#[test]
fn a_full_links_queue_has_a_bound() {
    let mut bench = Bench::new();
    let neighbour = [10, 0, 0, 9];
    let mut bytes = [0; 28];
    arp::announcement(OTHER, neighbour.into()).emit(&mut bytes);
    let said = bench.packet(&bytes);
    let first = bench.datagram(neighbour);
    bench.interface.send(first, NOW);
    // It is asked for, answers, and is known to the hop cache from the next packet on.
    let answer = wire_arp::Packet {
        operation: wire_arp::Operation::Reply,
        sender_mac: OTHER,
        sender_ip: neighbour.into(),
        target_mac: OURS,
        target_ip: [10, 0, 0, 2].into(),
    };
    answer.emit(&mut bytes);
    let answer = bench.packet(&bytes);
    for packet in [answer, said] {
        bench.interface.host_input(HostWork::Arp, packet, NOW);
    }
    let next = bench.datagram(neighbour);
    bench.interface.send(next, NOW);
    bench.link.room.store(1000, Relaxed);
    assert!(bench.interface.flush(NOW).unwrap() >= 2);
    assert!(!bench.interface.has_frames());
    bench.link.room.store(3, Relaxed);
    let beyond = 5;
    let mut packets: VecDeque<_> = (0..3 + limits::LINK_QUEUE + beyond)
        .map(|_| bench.datagram(neighbour))
        .collect();
    bench.interface.send_all(&mut packets, NOW).unwrap();
    assert!(packets.is_empty());
    assert_eq!(bench.interface.queued(), limits::LINK_QUEUE);
    assert_eq!(bench.count(Counter::DropLinkQueue), beyond as u64);
    // The host's own words find no place either.
    let more = bench.datagram(neighbour);
    bench.interface.send(more, NOW);
    assert_eq!(bench.interface.queued(), limits::LINK_QUEUE);
    assert_eq!(bench.count(Counter::DropLinkQueue), beyond as u64 + 1);
    bench.link.room.store(10_000, Relaxed);
    assert_eq!(bench.interface.flush(NOW).unwrap(), limits::LINK_QUEUE);
}

/// Packets whose next hop is silent are kept for their senders, as many as there are places for.
#[test]
fn what_finds_no_neighbour_comes_back() {
    let mut bench = Bench::new();
    bench.link.room.store(100_000, Relaxed);
    let hosts = u8::try_from(limits::UNREACHABLE).unwrap() + 2;
    for host in 0..hosts {
        let packet = bench.datagram([10, 0, 0, 100 + host]);
        bench.interface.send(packet, NOW);
    }
    let mut now = NOW;
    for _ in 0..100 {
        now = now + Duration::from_millis(100);
        bench.interface.run_timers(now);
        bench.interface.flush(now).unwrap();
    }
    assert_eq!(bench.interface.unreachable.len(), limits::UNREACHABLE);
    assert_eq!(bench.count(Counter::DropNeighbor), u64::from(hosts));
    assert!(bench.interface.has_returns());
}

/// RFC 4862 §5.4.4: what another station says from our address is a conflict; our own, sent back by a bridge, is none.
#[test]
fn our_own_words_are_no_conflict() {
    let ours = "fd00::2".parse().unwrap();
    for by_asking in [true, false] {
        let mut bench = Bench::new();
        for (mac, conflicts) in [(OURS, 0), (OTHER, 1)] {
            let message = if by_asking {
                ndp::solicitation(mac, ours, ours, None)
            } else {
                ndp::advertisement(ours, mac, None)
            };
            let mut bytes = [0; 128];
            let len = message.emit(&mut bytes);
            let mut packet = bench.packet(&bytes[..len]);
            packet.meta.upper = u16::try_from(ipv6::HEADER_LEN).unwrap();
            bench.interface.host_input(HostWork::Icmp, packet, NOW);
            assert_eq!(bench.count(Counter::AddressConflict), conflicts);
            assert_eq!(bench.count(Counter::DropNdp), 1);
        }
    }
}
