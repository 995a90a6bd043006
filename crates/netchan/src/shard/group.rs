//! Datagrams to multicast groups and to broadcast addresses, which every socket hears that wants them; and the copy of what is sent
//! to a group for our own members.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use percore::slab::Slab;
use proto::{time::Instant, wire::udp::Header};

use super::{Shard, UdpSocket};
use crate::{
    api::multicast::Settings,
    counters::Counter,
    emit::IpFields,
    limits,
    packet::{Flag, HEADROOM, Packet},
};

/// What a shard needs for groups; made when the first datagram has more than one hearer.
#[derive(Default)]
pub struct GroupMail {
    /// Buffers of the MTU, and of the longest datagram.
    slabs: Option<(Slab, Slab)>,
    /// Scratch: sockets that hear a datagram.
    hearers: Vec<u32>,
}

impl UdpSocket {
    /// Its groups, and how it sends to any.
    pub fn set_multicast(&mut self, settings: Option<Arc<Settings>>) {
        self.multicast = settings;
    }

    /// The IP header's fields of what it sends to `ip`.
    pub fn fields_to(&self, ip: IpAddr) -> IpFields {
        if !ip.is_multicast() {
            return self.fields;
        }
        let ttl = Settings::or_default(self.multicast.as_deref()).ttl(ip);
        IpFields {
            ttl,
            hops: ttl,
            ..self.fields
        }
    }
}

impl Shard {
    /// Whether a datagram to `destination` is for every socket that wants it: a group's, or a broadcast.
    #[inline]
    pub(super) fn is_for_many(&self, packet: &Packet, destination: IpAddr) -> bool {
        destination.is_multicast()
            || (packet.meta.to_group.get() && self.host.net.is_broadcast(destination))
    }

    /// Gives a datagram to every socket that wants it.
    #[cold]
    #[inline(never)]
    pub(super) fn udp_to_hearers(
        &mut self,
        packet: Packet,
        header: &Header,
        (local, remote): (SocketAddr, SocketAddr),
        is_bare: bool,
        now: Instant,
    ) {
        let mut hearers = std::mem::take(&mut self.mail.hearers);
        let interface = packet.meta.interface;
        let hears = |socket: &UdpSocket| {
            socket.score(local, remote, interface).is_some()
                && (!local.ip().is_multicast()
                    || Settings::or_default(socket.multicast.as_deref()).hears(
                        &self.host,
                        interface,
                        local.ip(),
                        remote.ip(),
                    ))
        };
        let there = (self.lookup.datagrams).hearers(local.ip(), local.port(), interface);
        hearers.extend(there.filter(|&number| self.udp.get(number).is_some_and(hears)));
        if hearers.is_empty() {
            self.count(Counter::DropUdpNoSocket); // and no ICMP error (RFC 1122 §3.2.2)
        }
        // What we sent ourselves is in a buffer that we need for sending: all get copies.
        let last = if self.host.net.is_local(remote.ip()) {
            None
        } else {
            hearers.pop()
        };
        for number in hearers.drain(..) {
            match self.copy_of(&packet) {
                Some(copy) => self.udp_keep(number, copy, header, remote, is_bare, now),
                None => self.count(Counter::DropUdpCopy),
            }
        }
        self.mail.hearers = hearers;
        if let Some(number) = last {
            self.udp_keep(number, packet, header, remote, is_bare, now);
        }
    }

    /// A copy of a packet from the IP header on.
    fn copy_of(&mut self, packet: &Packet) -> Option<Packet> {
        let (ordinary, long) = self.mail_slabs()?;
        let slab = if packet.len() + HEADROOM <= ordinary.buffer_size() {
            ordinary
        } else {
            long
        };
        let mut copy = Packet::new(slab.alloc()?, HEADROOM);
        copy.set_len(packet.len());
        if copy.len() != packet.len() {
            return None;
        }
        copy.bytes_mut().copy_from_slice(packet.bytes());
        copy.meta = packet.meta;
        Some(copy)
    }

    fn mail_slabs(&mut self) -> Option<&mut (Slab, Slab)> {
        if self.mail.slabs.is_none() {
            let ordinary = Slab::with_ready(limits::GROUP_SLAB, self.slab.buffer_size(), 0);
            let long = Slab::with_ready(limits::GROUP_SLAB_LONG, super::BURST_BUFFER, 0);
            self.mail.slabs = ordinary.ok().zip(long.ok());
        }
        self.mail.slabs.as_mut()
    }

    /// Before a datagram leaves by `interface`: sends a copy of it, a whole IP packet, to ourselves, if it is a broadcast, or for a group that
    /// we are in and the socket does not mind. Of a lease its lender is to make the copies: what [`Meta::to_group`](crate::packet::Meta::to_group) of the datagram itself
    /// has to say. `None`: that must not leave this host (a TTL of 0).
    pub(super) fn mail_ourselves(
        &mut self,
        number: u32,
        remote: SocketAddr,
        interface: u8,
        bytes: &[u8],
    ) -> Option<Flag> {
        let group = remote.ip();
        if !group.is_multicast() {
            if self.host.net.is_broadcast(group) {
                if self.is_leased(interface) {
                    return Some(Flag::YES);
                }
                self.mail_copy(interface, bytes);
            }
            return Some(Flag::NO);
        }
        let settings = self.udp.get(number).and_then(|s| s.multicast.clone());
        let settings = Settings::or_default(settings.as_deref());
        let (loops, leaves) = (settings.loops(group), settings.ttl(group) > 0);
        if self.is_leased(interface) {
            return (loops || leaves).then_some(loops.into());
        }
        if loops && self.host.groups.is_member(interface, group) {
            self.mail_copy(interface, bytes);
        }
        leaves.then_some(Flag::NO)
    }

    /// Whether another process lends this link.
    fn is_leased(&self, interface: u8) -> bool {
        let link = self.host.net.interfaces.get(usize::from(interface));
        link.is_some_and(|facts| facts.lender.is_some())
    }

    #[cold]
    fn mail_copy(&mut self, interface: u8, bytes: &[u8]) {
        let Some(mut copy) = self.buffer_for(bytes.len()) else {
            return self.count(Counter::DropUdpCopy);
        };
        copy.bytes_mut().copy_from_slice(bytes);
        copy.meta.to_group = Flag::YES;
        copy.meta.interface = interface;
        if let Some(outbox) = self.outboxes.get_mut(usize::from(interface)) {
            outbox.push_back(copy);
        }
    }

    /// A packet of `len` bytes: ordinary ones from the buffers that wait for nothing but the link.
    fn buffer_for(&mut self, len: usize) -> Option<Packet> {
        let buffer = if len + HEADROOM <= self.slab.buffer_size() {
            self.slab.alloc()?
        } else {
            self.mail_slabs()?.1.alloc()?
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        packet.set_len(len);
        (packet.len() == len).then_some(packet)
    }
}
