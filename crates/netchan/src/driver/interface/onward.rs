//! Packets on their way through, at the link by which they leave: next hop, neighbour, and cutting for the MTU. That they may go on,
//! and this way, has been found where they came in (`crate::driver::forward`). And what the host itself says on one link and sends by another.

use std::net::IpAddr;

use proto::{icmp::error, time::Instant};

use super::{Interface, ends_of};
use crate::{
    counters::Counter,
    driver::forward::Refusal,
    emit, limits,
    packet::{Course, HEADROOM, Packet},
    tap::Begins,
};

impl Interface {
    /// Passes a packet on to its next hop; or takes it in, if it is for an address of ours that is this interface's.
    pub fn forward(&mut self, packet: Packet, now: Instant) {
        let Some((_, destination)) = ends_of(packet.bytes()) else {
            return self.count_lost(Counter::DropIpHeader, &packet, Begins::Network);
        };
        if self.host.net.is_local(destination) {
            return self.loop_back(packet);
        }
        // It was there when the packet came in.
        let hop = self
            .next_hop(destination, 0)
            .filter(|_| self.gone.is_none());
        let Some(hop) = hop else {
            return self.count_lost(Counter::DropNoRoute, &packet, Begins::Network);
        };
        self.count(Counter::Forwarded);
        if packet.len() > self.facts().mtu {
            self.cut(hop, &packet, now);
        } else if self.neighbors.lookup(hop).is_some() {
            self.forward_to(hop, packet, now);
        } else if let Some(copy) = self.copy(&packet) {
            // It may wait for seconds, and not in a buffer that another link receives in.
            self.forward_to(hop, copy, now);
        } else {
            self.count_lost(Counter::DropNeighbor, &packet, Begins::Network);
        }
    }

    fn forward_to(&mut self, hop: IpAddr, packet: Packet, now: Instant) {
        if let Some((mac, packet)) = self.resolve(hop, packet, now) {
            self.frame(mac, packet);
        }
    }

    /// Buffers that what is forwarded may take: the others are for what the host itself has to say.
    fn spare(&mut self) -> usize {
        self.slab.available().saturating_sub(limits::HOST_SLAB)
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        if self.spare() == 0 {
            return None;
        }
        let mut copy = Packet::new(self.slab.alloc()?, HEADROOM);
        copy.set_len(packet.len());
        copy.bytes_mut().copy_from_slice(packet.bytes());
        copy.meta = packet.meta;
        Some(copy)
    }

    /// Sends an IPv4 packet that is too long for this link, and may be cut, in fragments.
    fn cut(&mut self, hop: IpAddr, packet: &Packet, now: Instant) {
        let (spare, mtu) = (self.spare(), self.facts().mtu);
        let mut pieces = std::mem::take(&mut self.pieces);
        let out = |mut piece: Packet| {
            piece.meta.course = Course::THROUGH;
            pieces.push(piece);
        };
        if !emit::cut_again(&mut self.slab, packet.bytes(), mtu, spare, out) {
            self.count(Counter::NoTransmitBuffer);
        }
        for piece in pieces.drain(..) {
            self.forward_to(hop, piece, now);
        }
        self.pieces = pieces;
    }

    /// Drops a packet that does not go on, and tells its sender.
    pub fn refuse(&mut self, (reason, error): Refusal, packet: &Packet, now: Instant) {
        self.count_lost(reason, packet, Begins::Network);
        if let Some(kind) = error {
            self.send_forward_error(kind, packet, now);
        }
    }

    /// An ICMP error about a packet that was to be passed on, from our address on the link by which it goes out (RFC 1812 §4.3.2.4).
    pub(super) fn send_forward_error(&mut self, kind: error::Kind, packet: &Packet, now: Instant) {
        let Some((source, _)) = ends_of(packet.bytes()) else {
            return;
        };
        let link = self.link_to(source);
        self.send_error_as(link, kind, packet.bytes(), false, now);
    }

    /// The number of the link that leads to `destination`: this one, unless we forward and its route says otherwise.
    pub(super) fn link_to(&self, destination: IpAddr) -> u8 {
        let is_here = destination.is_loopback() || self.facts().addresses.is_on_link(destination);
        if !self.host.forwarding || is_here {
            return self.number;
        }
        let next = self.host.net.routes.lookup(destination);
        next.and_then(|next| u8::try_from(next.interface).ok())
            .unwrap_or(self.number)
    }

    /// Keeps a packet of the host's own that another link has to send, until the receiving half hands it over.
    pub(super) fn say_elsewhere(&mut self, link: u8, packet: Packet) {
        if self.elsewhere.len() < limits::ELSEWHERE {
            self.elsewhere.push_back((link, packet));
        } else {
            self.count_lost(Counter::DropLinkQueue, &packet, Begins::Own);
        }
    }
}
