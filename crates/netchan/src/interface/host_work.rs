//! The host's own work on an interface: ARP, NDP, echo, and what else asks for an answer of the host and not of an application.

use std::net::{IpAddr, Ipv6Addr};

use proto::{
    time::Instant,
    wire::{icmpv4, icmpv6, ipv4::Protocol},
};

use super::Interface;
use crate::{
    counters::Counter,
    packet::{HEADROOM, Packet},
    shard::emit::{IpFields, emit_ip, ip_header_len},
    steer::HostWork,
};

impl Interface {
    /// Takes a packet that is the host's: it starts at its ARP or IP header.
    pub fn host_input(&mut self, work: HostWork, packet: &Packet, now: Instant) {
        match work {
            HostWork::Arp => self.arp_input(packet, now),
            HostWork::Icmp => self.icmp_input(packet, now),
            HostWork::Fragment => self.count(Counter::DropFragment),
            HostWork::Unserved => self.count(Counter::DropProtocol),
        }
    }

    fn icmp_input(&mut self, packet: &Packet, now: Instant) {
        self.count(Counter::IcmpIn);
        let bytes = packet.bytes();
        let Some((source, destination)) = self.check_addresses(bytes) else { return self.count(Counter::DropIcmp) };
        let message = bytes.get(usize::from(packet.meta.upper)..).unwrap_or_default();
        match (source, destination) {
            (IpAddr::V4(_), IpAddr::V4(to)) => match icmpv4::Message::parse(message) {
                // RFC 1122 §3.2.2.6 lets a host ignore echo requests to broadcast and multicast: negative 36.
                Ok((icmpv4::Message::EchoRequest { ident, seq }, data)) if self.facts().addresses.is_local_v4(to) => {
                    let reply = icmpv4::Message::EchoReply { ident, seq };
                    self.reply(destination, source, Protocol::ICMP, |room| reply.emit(data, room), now);
                }
                Ok(_) => {}
                Err(_) => self.count(Counter::DropIcmp),
            },
            (IpAddr::V6(from), IpAddr::V6(to)) => match icmpv6::Message::parse(from, to, message) {
                Ok((icmpv6::Message::EchoRequest { ident, seq }, data)) => {
                    let Some(own) = self.reply_source(from, to) else { return };
                    let reply = icmpv6::Message::EchoReply { ident, seq };
                    self.reply(own.into(), source, Protocol::ICMPV6, |room| reply.emit(own, from, data, room), now);
                }
                Ok((icmpv6::Message::NeighborDiscovery, _)) => {
                    let hop_limit = bytes.get(7).copied().unwrap_or(0);
                    self.ndp_input(from, to, hop_limit, message, now);
                }
                Ok(_) => {}
                Err(_) => self.count(Counter::DropIcmp),
            },
            _ => self.count(Counter::DropIcmp),
        }
    }

    fn check_addresses(&self, bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
        if bytes.first()? >> 4 == 4 {
            let [s0, s1, s2, s3, d0, d1, d2, d3] = *bytes.get(12..20)?.first_chunk::<8>()?;
            Some(([s0, s1, s2, s3].into(), [d0, d1, d2, d3].into()))
        } else {
            let (source, rest) = bytes.get(8..40)?.split_first_chunk::<16>()?;
            Some(((*source).into(), (*rest.first_chunk::<16>()?).into()))
        }
    }

    /// RFC 4443 §4.2: from the address asked, or for a group from one of our own.
    fn reply_source(&self, from: Ipv6Addr, asked: Ipv6Addr) -> Option<Ipv6Addr> {
        if !asked.is_multicast() {
            return Some(asked);
        }
        match self.facts().addresses.source_for(from.into())? {
            IpAddr::V6(own) => Some(own),
            IpAddr::V4(_) => None,
        }
    }

    /// Sends a message of the host: `emit` writes it and says how long it is.
    fn reply(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        emit: impl FnOnce(&mut [u8]) -> usize,
        now: Instant,
    ) {
        let Some(buffer) = self.slab.alloc() else { return self.count(Counter::NoTransmitBuffer) };
        let mut packet = Packet::new(buffer, HEADROOM);
        let ip_len = ip_header_len(destination);
        let Some((ip, room)) = packet.room_mut().split_at_mut_checked(ip_len) else { return };
        let len = emit(room);
        if len == 0 || !emit_ip(ip, source, destination, protocol, IpFields::default(), len) {
            return self.count(Counter::DropCheck);
        }
        packet.set_len(ip_len + len);
        self.count(Counter::IcmpOut);
        self.stamp(destination, packet, now);
    }
}
