//! The host's own work on an interface: ARP, NDP, echo, fragments, and ICMP errors about protocols that are not served.

use std::net::IpAddr;

use proto::{
    icmp::{self, echo, error},
    ip::reassembly::Outcome,
    time::Instant,
    wire::{
        ipv4::{self, Protocol},
        ipv6::{self, extension},
    },
};

use super::Interface;
use crate::{
    counters::Counter,
    driver::steer::HostWork,
    emit::fragments,
    flow::FlowKey,
    packet::{Flag, HEADROOM, Packet},
    tap::Begins,
};

/// What the host's work led to, for the receiving side to go on with.
#[derive(Debug)]
pub enum FollowUp {
    /// Nothing more.
    Done,
    /// A whole datagram, put together from fragments: to be classified.
    Classify(Packet),
    /// An ICMP error about this flow, or an echo reply that belongs to it: for its shard.
    Flow(FlowKey, Packet),
}

impl Interface {
    /// Takes a packet that is the host's: it starts at its ARP or IP header.
    pub fn host_input(&mut self, work: HostWork, packet: Packet, now: Instant) -> FollowUp {
        match work {
            HostWork::Arp => self.arp_input(&packet, now),
            HostWork::Icmp => return self.icmp_input(packet, now),
            HostWork::Fragment => return self.fragment_input(&packet, now),
            HostWork::Membership => self.igmp_input(&packet, now),
            HostWork::Unserved => self.unserved(&packet, now),
            HostWork::Rejected(what) => self.tell_rejected(what, &packet, now),
            HostWork::Written => self.send_written(packet),
        }
        FollowUp::Done
    }

    fn icmp_input(&mut self, packet: Packet, now: Instant) -> FollowUp {
        if self.mld_input(&packet, now) {
            return FollowUp::Done;
        }
        self.count(Counter::IcmpIn);
        let bytes = packet.bytes();
        let message = bytes
            .get(usize::from(packet.meta.upper)..)
            .unwrap_or_default();
        let host = self.host.clone();
        let (incoming, v6) = if let Ok(header) = ipv4::Header::parse(bytes) {
            let ours = host
                .net
                .addresses_with(header.destination.into(), self.number);
            (
                icmp::receive_v4(message, ours.classify(header.destination.into()), &ours),
                None,
            )
        } else if let Ok(header) = ipv6::Header::parse(bytes) {
            let ours = host
                .net
                .addresses_with(header.destination.into(), self.number);
            let to = ours.classify(header.destination.into());
            let (source, destination) = (header.source, header.destination);
            (
                icmp::receive_v6(
                    source,
                    destination,
                    message,
                    to,
                    packet.meta.reassembled.get(),
                    &ours,
                ),
                Some(header),
            )
        } else {
            (Err(icmp::DropReason::Malformed), None)
        };
        match (incoming, v6) {
            (Ok(icmp::Incoming::EchoRequest), _) => self.echo(&packet, now),
            (Ok(icmp::Incoming::NeighborDiscovery), Some(header)) => {
                self.ndp_input(
                    header.source,
                    header.destination,
                    header.hop_limit,
                    (&packet, message),
                    now,
                );
            }
            (Ok(icmp::Incoming::Error(error)), _) => {
                let key = FlowKey {
                    local: error.local.0,
                    remote: error.remote.0,
                    local_port: error.local.1,
                    remote_port: error.remote.1,
                    protocol: error.protocol,
                };
                return FollowUp::Flow(key, packet);
            }
            // For the ping socket with this identifier, in the shard that sent the request.
            (Ok(icmp::Incoming::EchoReply { ident, .. }), v6) => {
                let key = FlowKey::of_echo_reply(bytes, ident, v6.is_some());
                match key.filter(|key| !host.net.is_group(key.local)) {
                    Some(key) => return FollowUp::Flow(key, packet),
                    None => self.count_lost(Counter::DropIcmp, &packet, Begins::Network),
                }
            }
            _ => self.count_lost(Counter::DropIcmp, &packet, Begins::Network),
        }
        FollowUp::Done
    }

    fn echo(&mut self, packet: &Packet, now: Instant) {
        let host = self.host.clone();
        let facts = &host.net.interfaces[usize::from(self.number)];
        let bytes = packet.bytes();
        let Some((_, destination)) = super::ends_of(bytes) else {
            return self.count_lost(Counter::DropIcmp, packet, Begins::Network);
        };
        let ours = host.net.addresses_at(destination, self.number);
        let message = bytes
            .get(usize::from(packet.meta.upper)..)
            .unwrap_or_default();
        let mut whole = std::mem::take(&mut self.datagram);
        whole.resize(bytes.len().max(ipv6::HEADER_LEN + message.len()), 0);
        let mtu = u16::try_from(facts.mtu).unwrap_or(u16::MAX);
        let reply = if let Ok(header) = ipv4::Header::parse(bytes) {
            echo::reply_v4(&header, message, &ours, mtu, &mut whole)
                .map(|len| (len, IpAddr::V4(header.source)))
        } else if let Ok(header) = ipv6::Header::parse(bytes) {
            echo::reply_v6(&header, message, &ours, &mut whole)
                .map(|len| (len, IpAddr::V6(header.source)))
        } else {
            Err(echo::Silent::NotAnEcho)
        };
        match reply {
            Ok((len, to)) => self.send_whole(whole.get(..len).unwrap_or_default(), to, now),
            Err(_) => self.count_lost(Counter::DropIcmp, packet, Begins::Network),
        }
        self.datagram = whole;
    }

    /// Sends a whole IP packet of the host's own, in fragments if it must be.
    fn send_whole(&mut self, bytes: &[u8], to: IpAddr, now: Instant) {
        self.count(Counter::IcmpOut);
        let mtu = self.facts().mtu;
        let mut packets = std::mem::take(&mut self.pieces);
        if bytes.len() <= mtu {
            if let Some(buffer) = self.slab.alloc() {
                let mut packet = Packet::new(buffer, HEADROOM);
                packet.set_len(bytes.len());
                packet.bytes_mut().copy_from_slice(bytes);
                packets.push(packet);
            }
        } else {
            let source = self.facts().addresses.source_for(to).unwrap_or(to);
            let ident = self.idents.next(source, to, Protocol::ICMP.0);
            fragments(&mut self.slab, bytes, mtu, ident, |packet| {
                packets.push(packet)
            });
        }
        if packets.is_empty() {
            self.count(Counter::NoTransmitBuffer);
        }
        for packet in packets.drain(..) {
            self.say(to, packet, now);
        }
        self.pieces = packets;
    }

    fn fragment_input(&mut self, packet: &Packet, now: Instant) -> FollowUp {
        self.count(Counter::FragmentsIn);
        let bytes = packet.bytes();
        let outcome = if let Ok(header) = ipv4::Header::parse(bytes) {
            self.reassembler.push_v4(bytes, &header, now)
        } else {
            let Ok(header) = ipv6::Header::parse(bytes) else {
                self.count_lost(Counter::DropFragment, packet, Begins::Network);
                return FollowUp::Done;
            };
            match extension::walk(header.next_header, header.payload(bytes)) {
                Ok(upper) => self.reassembler.push_v6(bytes, &header, &upper, now),
                Err(_) => Outcome::Waiting,
            }
        };
        match outcome {
            Outcome::Waiting => {}
            Outcome::Complete(whole) => {
                if let Some(buffer) = self.reassembled.alloc() {
                    // A frame header comes in front where it is passed on.
                    let mut packet_out = Packet::new(buffer, HEADROOM);
                    packet_out.set_len(whole.len());
                    if packet_out.len() == whole.len() {
                        packet_out.bytes_mut().copy_from_slice(whole);
                        packet_out.meta.reassembled = Flag::YES;
                        packet_out.meta.to_group = packet.meta.to_group;
                        return FollowUp::Classify(packet_out);
                    }
                }
                self.count_lost(Counter::DropFragment, packet, Begins::Network);
            }
            Outcome::Dropped(_) => {
                self.count_lost(Counter::DropFragment, packet, Begins::Network);
            }
            Outcome::ParameterProblem { pointer } => {
                self.count_lost(Counter::DropFragment, packet, Begins::Network);
                let kind = error::Kind::ParameterProblem {
                    code: 0,
                    pointer,
                    even_if_group: false,
                };
                self.send_error(kind, packet.bytes(), packet.meta.to_group.get(), now);
            }
        }
        FollowUp::Done
    }

    /// A protocol that is not served, or options or extension headers that ask for an answer.
    fn unserved(&mut self, packet: &Packet, now: Instant) {
        let bytes = packet.bytes();
        let kind = match ipv6::Header::parse(bytes) {
            Err(_) => self.unserved_v4(packet),
            Ok(header) => {
                let payload = header.payload(bytes);
                let walked = if packet.meta.reassembled.get() {
                    extension::walk_reassembled(header.next_header, payload)
                } else {
                    extension::walk(header.next_header, payload)
                };
                match walked {
                    Ok(upper) => {
                        self.count_lost(Counter::DropProtocol, packet, Begins::Network);
                        error::Kind::ProtocolUnreachable {
                            pointer: upper.protocol_pointer,
                        }
                    }
                    Err(extension::Problem::Parameter {
                        code,
                        pointer,
                        even_if_multicast,
                    }) => {
                        self.count_lost(Counter::DropExtension, packet, Begins::Network);
                        error::Kind::ParameterProblem {
                            code,
                            pointer,
                            even_if_group: even_if_multicast,
                        }
                    }
                    Err(extension::Problem::Drop(_)) => {
                        return self.count_lost(Counter::DropExtension, packet, Begins::Network);
                    }
                }
            }
        };
        self.send_error(kind, bytes, packet.meta.to_group.get(), now);
    }

    fn unserved_v4(&mut self, packet: &Packet) -> error::Kind {
        let bytes = packet.bytes();
        let header = ipv4::Header::parse(bytes);
        let checked = header.map(|header| ipv4::options::check(header.options(bytes)));
        if let Ok(Err(problem)) = checked {
            self.count_lost(Counter::DropIpOptions, packet, Begins::Network);
            return error::Kind::ParameterProblem {
                code: 0,
                pointer: problem.pointer.into(),
                even_if_group: false,
            };
        }
        self.count_lost(Counter::DropProtocol, packet, Begins::Network);
        error::Kind::ProtocolUnreachable { pointer: 0 }
    }

    /// Sends an ICMP error about a packet, if the rules allow one.
    pub(super) fn send_error(
        &mut self,
        kind: error::Kind,
        about: &[u8],
        to_group: bool,
        now: Instant,
    ) {
        self.send_error_as(self.number, kind, about, to_group, now);
    }

    /// The same with our address on another link.
    pub(super) fn send_error_as(
        &mut self,
        link: u8,
        kind: error::Kind,
        about: &[u8],
        to_group: bool,
        now: Instant,
    ) {
        if let Some((destination, packet)) = self.make_error(link, kind, about, to_group, now) {
            self.say(destination, packet, now);
        }
    }

    /// An ICMP error about a packet of this host's, for its sender, from our address on this link.
    pub fn error_about(&mut self, kind: error::Kind, about: &[u8], now: Instant) -> Option<Packet> {
        let made = self.make_error(self.number, kind, about, false, now);
        made.map(|(_, packet)| packet)
    }

    /// Makes it, with its destination; `None`: the rules allow none, or there is no buffer.
    pub(super) fn make_error(
        &mut self,
        link: u8,
        kind: error::Kind,
        about: &[u8],
        to_group: bool,
        now: Instant,
    ) -> Option<(IpAddr, Packet)> {
        let Some(buffer) = self.slab.alloc() else {
            self.count(Counter::NoTransmitBuffer);
            return None;
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        let host = self.host.clone();
        let Some((source, to)) = super::ends_of(about) else {
            self.slab.free(packet.into_buffer());
            return None;
        };
        let ours = host.net.addresses_at(to, link);
        let room = packet.room_mut();
        let is_own = host.net.is_local(source);
        self.limiter.set_limits(host.limits_icmp);
        let limiter = (!is_own).then_some(&mut self.limiter);
        if let Ok(response) = error::respond(kind, about, to_group, &ours, limiter, now, room) {
            packet.set_len(response.len);
            self.count(Counter::IcmpOut);
            return Some((response.destination, packet));
        }
        self.slab.free(packet.into_buffer());
        None
    }

    /// Datagrams whose fragments did not all come in time.
    pub(super) fn expire_fragments(&mut self, now: Instant) {
        if self.reassembler.deadline().is_none_or(|at| at > now) {
            return;
        }
        let mut late: Vec<Vec<u8>> = Vec::new(); // a minute after a loss: no hot path
        self.reassembler
            .on_timer(now, |first| late.push(first.to_vec()));
        for first in late {
            self.count(Counter::DropFragment);
            self.send_error(error::Kind::ReassemblyTimeout, &first, false, now);
        }
    }
}
