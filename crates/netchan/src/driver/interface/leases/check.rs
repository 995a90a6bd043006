//! *check* of an application's packets: from an address of this host and a port of the lease's, TCP, UDP or a request for an echo, and nothing that a
//! socket could not send; and of its frames, of EtherTypes that it was given.
//!
//! What is checked is a copy that the application cannot change. What passes is consistent: its lengths are those of its headers.

use std::{
    collections::{HashSet, VecDeque},
    net::{IpAddr, SocketAddr},
};

use proto::wire::{
    ethernet::{self, EtherType, MacAddr},
    ipv4::{self, Protocol},
    ipv6::{
        self,
        extension::{self, FRAGMENT_HEADER_LEN},
    },
    tcp, udp,
};

use crate::{
    channel::PacketProtocol,
    driver::network::Network,
    limits,
    link::{
        Segmentation,
        lease::{Holding, Transport},
    },
    packet::Packet,
};

/// The least payload that a link is asked to cut packets into: what TCP's least segment has here.
const SEGMENT_MIN: u16 = 64;

/// What a lease's application may send.
#[derive(Debug, Default)]
pub struct Rights {
    /// Its ports.
    pub ports: Holding,
    /// Those protocols without ports, and EtherTypes, of which it has the packets.
    pub protocols: HashSet<PacketProtocol>,
    /// Datagrams whose first fragment passed.
    fragmented: VecDeque<Fragmented>,
}

/// What the fragments of one datagram have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fragmented {
    ends: (IpAddr, IpAddr),
    ident: u32,
    protocol: Protocol,
}

/// For how many a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One host.
    One,
    /// A group, or a broadcast: then [`Meta::to_group`](crate::packet::Meta::to_group) says whether members on this host are to have copies.
    Many {
        /// All that is left of its way: 0, and it stays on this host.
        hops: u8,
    },
}

/// Why an application may not send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not an IP packet of the length that it has, or with options; or its transport header is cut short. No frame, or one with a VLAN tag.
    Header,
    /// The source is no address of this host's; or a loopback address that is not the lease's, or would leave this host with the packet; of a frame, not the
    /// link's.
    Source,
    /// A loopback address that is not lent; a group, of TCP (RFC 9293 §3.9.2.3); one host, though members on this host are to have copies.
    Destination,
    /// Neither TCP nor UDP nor a request for an echo, nor of a protocol or an EtherType that is the lease's.
    Protocol,
    /// A port that is not the lease's.
    Port,
    /// Longer than the link takes, or to be cut into pieces as no socket asks for.
    Length,
    /// A fragment whose first one did not pass here.
    Fragment,
}

/// What of a packet counts.
struct Fields {
    ends: (IpAddr, IpAddr),
    protocol: Protocol,
    upper: usize,
    hops: u8,
    /// Identification, and whether it is not the first one.
    fragment: Option<(u32, bool)>,
}

impl Rights {
    /// Checks a packet of the application's, cuts it to its length, and says of it what a packet of our own says.
    /// `number`: of the link; `mtu`: its own, and what it does with longer ones.
    ///
    /// # Errors
    /// What the application may not send.
    pub fn check(
        &mut self,
        packet: &mut Packet,
        (net, number): (&Network, u8),
        (mtu, segmentation): (usize, Segmentation),
    ) -> Result<Cast, Refusal> {
        let fields = match packet.bytes().first().map(|first| first >> 4) {
            Some(4) => v4(packet)?,
            Some(6) => v6(packet)?,
            _ => return Err(Refusal::Header),
        };
        let source = fields.ends.0;
        let lends_loopback = net.lends_loopback(number.into());
        self.check_ends(fields.ends, net, lends_loopback)?;
        let cast = cast_of(packet, &fields, (net, number))?;
        let transport = match fields.protocol {
            Protocol::TCP => Some(Transport::Tcp),
            Protocol::UDP => Some(Transport::Udp),
            Protocol::ICMP if source.is_ipv4() => Some(Transport::Ping),
            Protocol::ICMPV6 if source.is_ipv6() => Some(Transport::Ping),
            Protocol(other) if self.protocols.contains(&PacketProtocol::Ip(other)) => None,
            _ => return Err(Refusal::Protocol),
        };
        let fits = match packet.meta.segment {
            0 => packet.len() <= mtu,
            segment => {
                let is_cut = match (segmentation, transport) {
                    (Segmentation::None, _) | (_, None | Some(Transport::Ping)) => false,
                    (Segmentation::Carried, Some(Transport::Udp)) => false,
                    (_, Some(Transport::Tcp)) => true,
                    (Segmentation::Offloaded { datagrams }, Some(Transport::Udp)) => datagrams,
                };
                let is_whole = fields.fragment.is_none() && cast == Cast::One;
                is_cut && is_whole && segment >= SEGMENT_MIN && usize::from(segment) < mtu
            }
        };
        if !fits {
            return Err(Refusal::Length);
        }
        self.check_port(&fields, transport, packet)?;
        let meta = &mut packet.meta;
        meta.protocol = fields.protocol;
        meta.upper = u16::try_from(fields.upper).map_err(|_| Refusal::Header)?;
        Ok(cast)
    }

    /// Checks a frame of the application's for the link with this address and MTU, and cuts it to what follows its header. Where it goes, and its EtherType:
    /// all that is taken from the header.
    ///
    /// # Errors
    /// What the application may not send.
    pub fn check_frame(
        &self,
        frame: &mut Packet,
        mac: MacAddr,
        mtu: usize,
    ) -> Result<(MacAddr, EtherType), Refusal> {
        let read = ethernet::Header::parse(frame.bytes());
        let (header, len) = read.map_err(|_| Refusal::Header)?;
        if len != ethernet::HEADER_LEN {
            return Err(Refusal::Header);
        }
        if header.source != mac {
            return Err(Refusal::Source);
        }
        let kind = header.ethertype;
        if !self.protocols.contains(&PacketProtocol::EtherType(kind.0)) {
            return Err(Refusal::Protocol);
        }
        if frame.len() - len > mtu {
            return Err(Refusal::Length);
        }
        frame.pull(len);
        Ok((header.destination, kind))
    }

    /// The addresses. A loopback address stays on this host (RFC 1122 §3.2.1.3 (g), RFC 4291 §2.5.3).
    fn check_ends(
        &self,
        (source, destination): (IpAddr, IpAddr),
        net: &Network,
        is_lent: bool,
    ) -> Result<(), Refusal> {
        let stays = !source.is_loopback() || is_lent && net.is_local(destination);
        if !net.is_local(source) || !self.ports.is_at(source) || !stays {
            return Err(Refusal::Source);
        }
        match destination.is_loopback() && !is_lent {
            true => Err(Refusal::Destination),
            false => Ok(()),
        }
    }

    /// The source port of a packet, or, of later fragments, that their first one has passed.
    fn check_port(
        &mut self,
        fields: &Fields,
        transport: Option<Transport>,
        packet: &Packet,
    ) -> Result<(), Refusal> {
        let datagram = |ident| Fragmented {
            ends: fields.ends,
            ident,
            protocol: fields.protocol,
        };
        if let Some((ident, true)) = fields.fragment {
            let is_known = self.fragmented.contains(&datagram(ident));
            return is_known.then_some(()).ok_or(Refusal::Fragment);
        }
        let upper = packet.bytes().get(fields.upper..).unwrap_or_default();
        if let Some(transport) = transport {
            let port = match transport {
                Transport::Tcp | Transport::Udp => source_port(transport, upper)?,
                Transport::Ping => echo_ident(fields.protocol, upper)?,
            };
            let source = SocketAddr::new(fields.ends.0, port);
            if !self.ports.has(transport, source) {
                return Err(Refusal::Port);
            }
        }
        if let Some((ident, false)) = fields.fragment {
            if self.fragmented.len() >= limits::LEASE_FRAGMENTED {
                self.fragmented.pop_front();
            }
            self.fragmented.push_back(datagram(ident));
        }
        Ok(())
    }
}

/// For how many a packet is. Copies are for members of a group, and for all that hear a broadcast.
#[inline]
fn cast_of(
    packet: &Packet,
    fields: &Fields,
    (net, number): (&Network, u8),
) -> Result<Cast, Refusal> {
    let (is_group, loops) = (fields.ends.1.is_multicast(), packet.meta.to_group.get());
    match (is_group, loops) {
        (false, false) => return Ok(Cast::One),
        (true, _) if fields.protocol == Protocol::TCP => return Err(Refusal::Destination),
        (true, _) => {}
        (false, true) => {
            let facts = &net.interfaces[usize::from(number)];
            if !facts.addresses.is_broadcast(fields.ends.1) || fields.protocol != Protocol::UDP {
                return Err(Refusal::Destination);
            }
        }
    }
    Ok(Cast::Many { hops: fields.hops })
}

/// The source port of a transport header that is there as far as it says.
fn source_port(transport: Transport, upper: &[u8]) -> Result<u16, Refusal> {
    const DATA_OFFSET: usize = 12;
    let (length, least) = match transport {
        Transport::Tcp => {
            let offset = upper.get(DATA_OFFSET).ok_or(Refusal::Header)?;
            (4 * usize::from(offset >> 4), tcp::HEADER_LEN)
        }
        Transport::Udp | Transport::Ping => (udp::HEADER_LEN, udp::HEADER_LEN),
    };
    match upper.get(..length.max(least)) {
        Some(&[p0, p1, ..]) if length >= least => Ok(u16::from_be_bytes([p0, p1])),
        _ => Err(Refusal::Header),
    }
}

/// The identifier of a request for an echo.
fn echo_ident(protocol: Protocol, upper: &[u8]) -> Result<u16, Refusal> {
    /// RFC 792, RFC 4443 §4.1.
    const ECHO_REQUESTS: [(Protocol, u8); 2] = [(Protocol::ICMP, 8), (Protocol::ICMPV6, 128)];
    let Some(&[kind, code, _, _, i0, i1, _, _]) = upper.first_chunk() else {
        return Err(Refusal::Header);
    };
    if code != 0 || !ECHO_REQUESTS.contains(&(protocol, kind)) {
        return Err(Refusal::Protocol);
    }
    Ok(u16::from_be_bytes([i0, i1]))
}

fn v4(packet: &mut Packet) -> Result<Fields, Refusal> {
    let header = ipv4::Header::parse(packet.bytes()).map_err(|_| Refusal::Header)?;
    if usize::from(header.header_len) != ipv4::HEADER_LEN {
        return Err(Refusal::Header);
    }
    packet.truncate(header.total_len.into());
    let is_later = header.fragment_offset > 0;
    let fragment = header.is_fragment();
    Ok(Fields {
        ends: (header.source.into(), header.destination.into()),
        protocol: header.protocol,
        upper: ipv4::HEADER_LEN,
        hops: header.ttl,
        fragment: fragment.then(|| (header.ident.into(), is_later)),
    })
}

fn v6(packet: &mut Packet) -> Result<Fields, Refusal> {
    let header = ipv6::Header::parse(packet.bytes()).map_err(|_| Refusal::Header)?;
    let mut fields = Fields {
        ends: (header.source.into(), header.destination.into()),
        protocol: header.next_header,
        upper: ipv6::HEADER_LEN,
        hops: header.hop_limit,
        fragment: None,
    };
    packet.truncate(ipv6::HEADER_LEN + usize::from(header.payload_len));
    if !extension::is_extension(header.next_header) {
        return Ok(fields);
    }
    let payload = header.payload(packet.bytes());
    let upper = extension::walk(header.next_header, payload).map_err(|_| Refusal::Header)?;
    // The only extension header that a socket's packets have here.
    let Some(fragment) = upper
        .fragment
        .filter(|_| upper.offset == FRAGMENT_HEADER_LEN)
    else {
        return Err(Refusal::Protocol);
    };
    fields.protocol = upper.protocol;
    fields.upper += upper.offset;
    fields.fragment = Some((fragment.ident, fragment.offset > 0));
    Ok(fields)
}

#[cfg(test)]
mod tests;
