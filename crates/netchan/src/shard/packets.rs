//! What packet channels send: IP packets whose header is made here, and frames for a link.

use std::{io::IoSlice, net::IpAddr, task::Waker};

use proto::{
    time::Instant,
    wire::{
        ethernet::{EtherType, MacAddr},
        ipv4::{self, Protocol},
        ipv6,
    },
};

use super::{Shard, udp::Text, wakers::Wakers};
use crate::{
    api::Readiness,
    counters::Counter,
    emit::{fragments, frame::labelled, ip_header_len, pieces_max},
    packet::{HEADROOM, Packet},
};

/// The number by which they stand among the UDP sockets that wait for buffers. No socket has it.
pub(super) const PACKET_SENDERS: u32 = u32::MAX;

/// From where to where an IP packet goes.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Our address.
    pub local: IpAddr,
    /// The other's.
    pub remote: IpAddr,
    /// The interface it leaves by.
    pub interface: u8,
}

/// What its IP header says beside the addresses.
#[derive(Clone, Copy, Debug)]
pub struct PacketFields {
    /// What it carries.
    pub protocol: Protocol,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// It is sent whole or not at all, and no router cuts it.
    pub dont_fragment: bool,
}

/// Packet channels that found no buffers to send from.
#[derive(Debug, Default)]
pub(super) struct Senders {
    wakers: Wakers,
    /// Buffers that the last of them needed; 0: none waits.
    wanted: usize,
}

impl Senders {
    pub(super) const fn wait(&self) -> bool {
        self.wanted > 0
    }
}

impl PacketFields {
    /// Writes the IP header in front of `len` bytes to `room`, which is as long as it.
    fn emit(&self, path: &Path, ident: u16, len: usize, room: &mut [u8]) -> Result<(), i32> {
        let written = match (path.local, path.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut header = ipv4::Header::new(self.protocol, local, remote);
                (header.ttl, header.tos) = (self.ttl, self.tos);
                (header.dont_fragment, header.ident) = (self.dont_fragment, ident);
                header.emit(len, room)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let mut header = ipv6::Header::new(self.protocol, local, remote);
                (header.hop_limit, header.traffic_class) = (self.ttl, self.tos);
                header.emit(len, room)
            }
            _ => return Err(libc::EAFNOSUPPORT),
        };
        if written == 0 {
            return Err(libc::EMSGSIZE); // the lengths of both have 16 bits
        }
        Ok(())
    }
}

impl Shard {
    /// Sends what `buffers` hold as one IP packet, in fragments where the path takes no more and nothing forbids it. How many bytes.
    ///
    /// # Errors
    /// EMSGSIZE; EAGAIN: no buffer at the moment; EAFNOSUPPORT.
    pub fn send_ip(
        &mut self,
        path: &Path,
        fields: &PacketFields,
        buffers: &[IoSlice<'_>],
        now: Instant,
    ) -> Result<usize, i32> {
        let text = Text::new(buffers);
        let (len, ip_len) = (text.len(), ip_header_len(path.remote));
        let mtu = self.path_to(path, now);
        if len > usize::from(u16::MAX) {
            return Err(libc::EMSGSIZE);
        }
        if ip_len + len > mtu {
            if fields.dont_fragment {
                return Err(libc::EMSGSIZE);
            }
            self.send_ip_in_pieces(path, fields, text, mtu)?;
            return Ok(len);
        }
        let ident = if fields.dont_fragment || path.remote.is_ipv6() {
            0
        } else {
            self.packet_ident(path, fields)
        };
        let Some(buffer) = self.slab.alloc() else {
            return Err(self.packets_lack(1));
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        packet.set_len(ip_len + len);
        let room = packet.bytes_mut().split_at_mut_checked(ip_len);
        let (header, payload) = room.ok_or(libc::EMSGSIZE)?;
        #[allow(clippy::cast_possible_truncation)] // the field of IPv4 has 16 bits
        fields.emit(path, ident as u16, len, header)?;
        text.copy_unsummed(payload);
        self.send(Some(packet), path.interface, Counter::PacketChannelOut);
        Ok(len)
    }

    /// What the path is known to take, of its interface's MTU.
    fn path_to(&self, path: &Path, now: Instant) -> usize {
        let facts = self.host.net.interfaces.get(usize::from(path.interface));
        self.udp_path(path.remote, facts.map_or(0, |facts| facts.mtu), now)
    }

    fn packet_ident(&mut self, path: &Path, fields: &PacketFields) -> u32 {
        self.idents.next(path.local, path.remote, fields.protocol.0)
    }

    /// One that is longer than `mtu`: built whole, then cut.
    fn send_ip_in_pieces(
        &mut self,
        path: &Path,
        fields: &PacketFields,
        text: Text<'_, '_>,
        mtu: usize,
    ) -> Result<(), i32> {
        let (len, ip_len) = (text.len(), ip_header_len(path.remote));
        let ident = self.packet_ident(path, fields);
        let mut whole = std::mem::take(&mut self.datagram);
        whole.resize(ip_len + len, 0);
        let (header, payload) = whole.split_at_mut(ip_len);
        text.copy_unsummed(payload);
        let built = fields.emit(path, 0, len, header);
        let outbox = self.outboxes.get_mut(usize::from(path.interface));
        let cut = match (built, outbox) {
            (Err(errno), _) => Err(errno),
            (_, None) => Err(libc::ENETUNREACH),
            (Ok(()), Some(outbox)) => Ok(fragments(
                &mut self.slab,
                &whole,
                mtu,
                ident,
                |mut packet| {
                    packet.meta.interface = path.interface;
                    outbox.push_back(packet);
                },
            )),
        };
        self.datagram = whole;
        if !cut? {
            return Err(self.packets_lack(pieces_max(len, mtu)));
        }
        self.count(Counter::PacketChannelOut);
        Ok(())
    }

    /// Sends what `buffers` hold as a frame by a link, from its address. How many bytes.
    ///
    /// # Errors
    /// ENODEV: no such link; EMSGSIZE: more than its MTU; EAGAIN: no buffer at the moment.
    pub fn send_frame(
        &mut self,
        (interface, destination): (u8, MacAddr),
        kind: EtherType,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, i32> {
        let text = Text::new(buffers);
        let len = text.len();
        let facts = self.host.net.interfaces.get(usize::from(interface));
        if len > facts.ok_or(libc::ENODEV)?.mtu {
            return Err(libc::EMSGSIZE);
        }
        let Some(buffer) = self.slab.alloc() else {
            return Err(self.packets_lack(1));
        };
        let fill = |room: &mut [u8]| text.copy_unsummed(room);
        let packet = labelled(buffer, destination, kind, len, fill).ok_or(libc::EMSGSIZE)?;
        self.send(Some(packet), interface, Counter::PacketChannelOut);
        Ok(len)
    }

    /// A send would have needed `count` buffers, and did not find them: EAGAIN, and those that wait are woken when there are.
    #[cold]
    fn packets_lack(&mut self, count: usize) -> i32 {
        let was = self.packet_senders.wanted;
        // No more than there are, or it would wait for ever.
        self.packet_senders.wanted = count.min(self.slab.capacity()).max(1);
        if was == 0 {
            self.udp_waiting.push_back(PACKET_SENDERS);
        }
        libc::EAGAIN
    }

    /// Whether a packet channel's send would find its buffers, as far as is known.
    pub fn packets_are_writable(&mut self) -> bool {
        self.slab.available() >= self.packet_senders.wanted.max(1)
    }

    /// Has `waker` woken when a packet channel's send would find its buffers. True if it would now, and it was woken.
    pub fn packets_register(&mut self, waker: &Waker) -> bool {
        if self.packets_are_writable() {
            waker.wake_by_ref();
            return true;
        }
        (self.packet_senders.wakers).register(Readiness::WRITABLE, waker);
        if !self.packet_senders.wait() {
            self.packets_lack(1);
        }
        false
    }

    /// Forgets `waker`.
    pub fn packets_deregister(&mut self, waker: &Waker) {
        self.packet_senders.wakers.deregister(waker);
    }

    /// Wakes them if so many free buffers are enough; how many those need. Else they wait at the end of the list.
    #[cold]
    pub(super) fn wake_packet_senders(&mut self, free: usize) -> usize {
        let wanted = self.packet_senders.wanted;
        if free < wanted {
            self.udp_waiting.push_back(PACKET_SENDERS);
            return 0;
        }
        self.packet_senders.wanted = 0;
        (self.packet_senders.wakers).wake(Readiness::WRITABLE, &mut self.woken);
        wanted
    }
}
