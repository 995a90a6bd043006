//! What the sender of a packet hears that a module rejected: an ICMP error, or a TCP reset in the name of the address that it was for.
//! These pass no modules: what they are about belongs to no flow that one knows.

use std::net::IpAddr;

use proto::{
    icmp::error,
    tcp::reset_for,
    time::Instant,
    wire::{
        checksum::{self, Partial},
        ipv4::Protocol,
        tcp,
    },
};

use super::Interface;
use crate::{
    counters::Counter,
    driver::module::{Rejection, View},
    emit::{IpFields, emit_ip, ip_header_len},
    packet::{Course, Flag, HEADROOM, Packet},
};

impl Interface {
    /// Tells the sender of a packet that goes nowhere.
    #[cold]
    pub fn tell_rejected(&mut self, what: Rejection, packet: &Packet, now: Instant) {
        let kind = match what {
            Rejection::Reset => return self.send_reset(packet, now),
            Rejection::Net => error::Kind::NetUnreachable,
            Rejection::Host => error::Kind::HostUnreachable,
            Rejection::Port => error::Kind::PortUnreachable,
            Rejection::Prohibited => error::Kind::Prohibited,
        };
        let Some(source) = View::parse(packet.bytes()).map(|view| view.source()) else {
            return;
        };
        let link = self.link_to(source);
        let to_group = packet.meta.to_group.get();
        if let Some((destination, error)) =
            self.make_error(link, kind, packet.bytes(), to_group, now)
        {
            self.say_unseen(link, destination, error, now);
        }
    }

    /// A reset for a segment (RFC 9293 §3.10.7.1), unless it is broken, or was for a group.
    fn send_reset(&mut self, packet: &Packet, now: Instant) {
        let Some(view) = View::parse(packet.bytes()) else {
            return;
        };
        let (from, to) = (view.destination(), view.source());
        if view.protocol() != Protocol::TCP || from.is_multicast() || packet.meta.to_group.get() {
            return;
        }
        let (is_verified, segment) = (packet.meta.checksum_verified.get(), view.upper());
        let Some((header, payload)) = parsed(is_verified, to, from, segment) else {
            return;
        };
        let text = u32::try_from(payload).unwrap_or(0);
        let Some(reset) = reset_for(&header, text) else {
            return;
        };
        self.say_reset(&reset, (from, to), now);
    }

    /// Sends a reset from one address to another.
    pub(super) fn say_reset(
        &mut self,
        reset: &tcp::Header,
        (from, to): (IpAddr, IpAddr),
        now: Instant,
    ) {
        let Some(buffer) = self.slab.alloc() else {
            return self.count(Counter::NoTransmitBuffer);
        };
        let mut answer = Packet::new(buffer, HEADROOM);
        let head = ip_header_len(from);
        answer.set_len(head + tcp::HEADER_LEN);
        let (ip, segment) = answer.bytes_mut().split_at_mut(head);
        let fields = IpFields::default();
        let is_whole = emit_ip(ip, from, to, Protocol::TCP, fields, tcp::HEADER_LEN)
            && write_reset(reset, from, to, segment);
        if is_whole {
            let link = self.link_to(to);
            self.say_unseen(link, to, answer, now);
        }
    }

    /// Sends by a link what no module shall see, from whatever address.
    fn say_unseen(&mut self, link: u8, destination: IpAddr, mut packet: Packet, now: Instant) {
        packet.meta.translated = Flag::YES;
        if link == self.number {
            return self.stamp(destination, packet, now);
        }
        packet.meta.course = Course::THROUGH; // there, too
        self.say_elsewhere(link, packet);
    }
}

/// The header of a segment whose checksum is right, and how much text it has.
fn parsed(
    is_verified: bool,
    source: IpAddr,
    destination: IpAddr,
    segment: &[u8],
) -> Option<(tcp::Header, usize)> {
    let pseudo = checksum::pseudo_header(source, destination, Protocol::TCP, segment.len())?;
    if !is_verified && !checksum::is_valid(pseudo + checksum::sum(segment)) {
        return None;
    }
    let (header, text_at) = tcp::Header::parse(segment).ok()?;
    Some((header, segment.len().saturating_sub(text_at)))
}

fn write_reset(reset: &tcp::Header, source: IpAddr, destination: IpAddr, to: &mut [u8]) -> bool {
    reset.emit_with_checksum(to, Partial::ZERO, 0, source, destination) == tcp::HEADER_LEN
}
