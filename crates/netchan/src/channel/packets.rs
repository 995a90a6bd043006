//! A packet channel: an application's own way for packets of one protocol that the stack does not speak (C6). From each link a ring leads to the
//! application, past all shards.
//!
//! The link's thread never waits here: a full ring is a counted drop. The application reads packets where they lie.

use std::{fmt, io, sync::Arc, task::Waker};

use percore::{
    counter::Atomic,
    lock::{Mutex, mutex},
    ring::{Consumer, Producer, ring},
    wake_list::WakeList,
};
use proto::wire::{
    ethernet::{EtherType, LENGTH_MAX},
    ipv4::Protocol,
    ipv6::extension,
};

use crate::{counters::Counter, errno::invalid, limits, locks, packet::Packet};

/// The packets of a packet channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketProtocol {
    /// Of an IP protocol number, in IPv4 and in IPv6: those that the stack does not speak, so not TCP, UDP, ICMP, ICMPv6, IGMP, and no IPv6
    /// extension header.
    Ip(u8),
    /// Frames of an EtherType from 0x0600 on: not IPv4, IPv6 and ARP, and no VLAN tag.
    EtherType(u16),
}

impl fmt::Display for PacketProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(number) => write!(f, "ip {number}"),
            Self::EtherType(number) => write!(f, "ethertype {number:#06x}"),
        }
    }
}

impl PacketProtocol {
    /// Whether there may be a channel for it.
    ///
    /// # Errors
    /// `InvalidInput`, in words: the stack speaks it.
    pub fn check(self) -> io::Result<()> {
        let why = match self {
            Self::Ip(number) => match Protocol(number) {
                Protocol::TCP | Protocol::UDP => "has sockets: Net::tcp, Net::udp",
                Protocol::ICMP | Protocol::ICMPV6 | Protocol::IGMP => "is the stack's own",
                Protocol::NO_NEXT_HEADER => "has no packets: nothing follows",
                protocol if extension::is_extension(protocol) => {
                    "is an extension header of IPv6, which the stack reads"
                }
                _ => return Ok(()),
            },
            Self::EtherType(number) => match EtherType(number) {
                EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP => "is the stack's own",
                EtherType::VLAN | EtherType::SERVICE_VLAN => "is a VLAN tag, not a protocol",
                kind if kind.is_length() => "is a length (IEEE 802.3 §3.2.6)",
                EtherType(..=0x05ff) => "is neither a length nor a type (IEEE 802.3 §3.2.6)",
                _ => return Ok(()),
            },
        };
        Err(invalid(format!("{self} {why}")))
    }
}

const _: () = assert!(LENGTH_MAX < 0x0600);

/// What the application's end and the links' ends share.
#[derive(Debug)]
pub struct PacketChannelCore {
    protocol: PacketProtocol,
    wakers: WakeList,
    ends: Mutex<Ends>,
    /// Packets that found no place.
    drops: Atomic,
}

/// The application's ends.
#[derive(Debug)]
struct Ends {
    /// One from each link.
    rings: Vec<Consumer<Packet>>,
    /// Where the next look begins: each link has its turn.
    first: usize,
}

/// A link's end.
#[derive(Debug)]
pub struct PacketEnd {
    ring: Producer<Packet>,
    core: Arc<PacketChannelCore>,
}

/// A packet channel with an end for each of so many links.
pub fn packet_channel(
    protocol: PacketProtocol,
    links: usize,
) -> (Arc<PacketChannelCore>, Vec<PacketEnd>) {
    let (producers, rings): (Vec<_>, Vec<_>) =
        (0..links).map(|_| ring(limits::PACKET_CHANNEL)).unzip();
    let core = Arc::new(PacketChannelCore {
        protocol,
        wakers: WakeList::default(),
        ends: mutex(&locks::PACKET_CHANNEL, Ends { rings, first: 0 }),
        drops: Atomic::new(),
    });
    let end = |ring| PacketEnd {
        ring,
        core: core.clone(),
    };
    let ends = producers.into_iter().map(end).collect();
    (core, ends)
}

impl PacketEnd {
    /// Of which packets.
    pub fn protocol(&self) -> PacketProtocol {
        self.core.protocol
    }

    /// Whether it is an end of `core`.
    pub fn is_of(&self, core: &Arc<PacketChannelCore>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    /// Gives the application a packet, and wakes it if it waits. Never waits for it.
    ///
    /// # Errors
    /// Why the packet is dropped: its ring is full, or the link has few buffers left, which are for what is the stack's.
    pub fn put(&mut self, packet: Packet) -> Result<(), (Counter, Packet)> {
        let refusal = if packet.is_scarce() {
            (Counter::DropPacketChannelBuffers, packet)
        } else if let Err(packet) = self.ring.push(packet) {
            (Counter::DropPacketChannelFull, packet)
        } else {
            self.core.wakers.wake();
            return Ok(());
        };
        self.core.drops.add(1);
        Err(refusal)
    }

    /// Wakes the application: there is news that is no packet.
    pub fn wake(&self) {
        self.core.wakers.wake();
    }
}

impl PacketChannelCore {
    /// Of which packets.
    pub const fn protocol(&self) -> PacketProtocol {
        self.protocol
    }

    /// Takes up to `most` packets, each link's oldest first. How many came.
    pub fn take(&self, most: usize, mut give: impl FnMut(Packet)) -> usize {
        let mut ends = self.ends.lock();
        let Ends { rings, first } = &mut *ends;
        let (begin, count) = (*first, rings.len());
        let mut taken = 0;
        for step in 0..count {
            let at = (begin + step) % count;
            taken += rings[at].pop_batch(most - taken, &mut give);
            if taken == most {
                *first = (at + 1) % count;
                break;
            }
        }
        taken
    }

    /// Packets that wait.
    pub fn depth(&self) -> usize {
        self.ends.lock().rings.iter_mut().map(Consumer::len).sum()
    }

    /// Packets that found no place so far.
    pub fn drops(&self) -> u64 {
        self.drops.read()
    }

    /// Has the next packet wake `waker`; true if there are packets already, and it was woken.
    pub fn register(&self, waker: &Waker) -> bool {
        self.wakers.register(waker);
        let has = self.depth() > 0;
        if has {
            waker.wake_by_ref();
        }
        has
    }

    /// Forgets `waker`.
    pub fn deregister(&self, waker: &Waker) {
        self.wakers.deregister(waker);
    }

    /// The application is gone: what waits goes home.
    pub fn close(&self) {
        self.ends.lock().rings.clear();
    }
}

#[cfg(test)]
#[path = "packets_tests.rs"]
mod tests;
