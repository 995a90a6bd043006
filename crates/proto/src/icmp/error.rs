//! Errors out: RFC 1122 §3.2.2 and RFC 4443 §2.4 (e), every rule of when to keep silent, and the
//! packet if not.

use core::net::{IpAddr, Ipv6Addr};

use super::is_one_host;
use super::limit::Limiter;
use super::quote::{Seen, see_v4, see_v6};
use crate::ip::address::Addresses;
use crate::time::Instant;
use crate::wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

/// What went wrong with a packet we received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No socket listens on the port.
    PortUnreachable,
    /// The protocol is not spoken here; `pointer` is the offset of the octet that names it (IPv6).
    ProtocolUnreachable {
        /// From the start of the IPv6 header; of no matter for IPv4.
        pointer: u32,
    },
    /// The neighbour does not answer (sent by a router).
    HostUnreachable,
    /// There is no route (sent by a router).
    NetUnreachable,
    /// A filter refuses it.
    Prohibited,
    /// Its last hop was ours (sent by a router).
    HopsSpent,
    /// Fragments were missing when their time was over. The packet must be the first fragment.
    ReassemblyTimeout,
    /// Too long for the next link (sent by a router).
    PacketTooBig {
        /// What the link carries, in octets.
        mtu: u16,
    },
    /// A field is wrong.
    ParameterProblem {
        /// See [`icmpv6::parameter`]; 0 for IPv4.
        code: u8,
        /// Its offset from the start of the IP header.
        pointer: u32,
        /// IPv6: to be sent even about packets to a group (an unknown option of type 10).
        even_if_group: bool,
    },
}

/// Why no error is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Silent {
    /// The packet is too short to be answered, or malformed in a way that leaves its sender unsure.
    Malformed,
    /// An ICMP error, or a redirect (negative 32).
    AboutError,
    /// Sent to a broadcast or multicast address.
    ToGroup,
    /// Received in a link-layer broadcast or multicast frame.
    LinkGroup,
    /// Not the first fragment.
    LaterFragment,
    /// Its source is not one host (negative 11, 32, 50).
    SourceNotUnique,
    /// Too many errors lately (RFC 4443 §2.4 f; negative 17).
    RateLimited,
    /// We have no address to send from, or the buffer is too small.
    NoRoom,
}

/// Longest error packet over IPv4, IP header included (RFC 1812 §4.3.2.3: 576).
const LEN_MAX_V4: usize = 576;
/// Longest error packet over IPv6 (RFC 4443 §2.4 c: the minimum MTU).
const LEN_MAX_V6: usize = ipv6::MTU_MIN;

/// What [`respond`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Octets of the IP packet at the front of the buffer.
    pub len: usize,
    /// Where it goes.
    pub destination: IpAddr,
}

/// Writes the IP packet with an error about `packet` (IP header first, as it was received) to the
/// front of `buf` (1280 octets are always enough). `link_group`: its frame was a link-layer
/// broadcast or multicast. `limiter`: `None` for a packet of our own, whose sender waits for it.
///
/// # Errors
/// All the rules of silence: see [`Silent`].
pub fn respond(
    kind: Kind,
    packet: &[u8],
    link_group: bool,
    ours: &Addresses,
    limiter: Option<&mut Limiter>,
    now: Instant,
    buf: &mut [u8],
) -> Result<Response, Silent> {
    let seen = match packet.first().map(|first| first >> 4) {
        Some(4) => see_v4(packet),
        Some(6) => see_v6(packet).or_else(|| see_fixed_v6(packet)),
        _ => None,
    };
    let seen = seen.ok_or(Silent::Malformed)?;
    check(kind, &seen, link_group, ours)?;
    if limiter.is_some() && !is_one_host(seen.source, ours) {
        return Err(Silent::SourceNotUnique); // e.6
    }
    // Ethernet's padding is not quoted.
    let packet = packet.get(..usize::from(seen.total_len)).unwrap_or(packet);
    // RFC 1122 §3.2.2: from the address the packet was sent to, if that is ours.
    let source = if ours.is_local(seen.destination) {
        seen.destination
    } else {
        ours.source_for(seen.source).ok_or(Silent::NoRoom)?
    };
    if limiter.is_some_and(|limiter| !limiter.allow(seen.source, now)) {
        return Err(Silent::RateLimited);
    }
    let len = match (source, seen.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = ipv4::Header::new(Protocol::ICMP, from, to);
            header.tos = 0xc0; // RFC 1812 §4.3.2.5: internetwork control
            let quote = first(packet, LEN_MAX_V4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN);
            let (head, body) = buf
                .split_at_mut_checked(ipv4::HEADER_LEN)
                .ok_or(Silent::NoRoom)?;
            let body_len = message_v4(kind).emit(quote, body);
            whole(header.emit(body_len, head), body_len)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = ipv6::Header::new(Protocol::ICMPV6, from, to);
            let quote = first(packet, LEN_MAX_V6 - ipv6::HEADER_LEN - icmpv6::HEADER_LEN);
            let (head, body) = buf
                .split_at_mut_checked(ipv6::HEADER_LEN)
                .ok_or(Silent::NoRoom)?;
            let body_len = message_v6(kind).emit(from, to, quote, body);
            whole(header.emit(body_len, head), body_len)
        }
        _ => None,
    };
    let len = len.ok_or(Silent::NoRoom)?;
    Ok(Response {
        len,
        destination: seen.source,
    })
}

/// The rules of silence, in the order of RFC 1122 §3.2.2 and RFC 4443 §2.4 (e).
fn check(kind: Kind, seen: &Seen<'_>, link_group: bool, ours: &Addresses) -> Result<(), Silent> {
    if is_error(seen) {
        return Err(Silent::AboutError); // e.1, e.2
    }
    let v6 = seen.source.is_ipv6();
    // e.3, e.4: path MTU discovery works for groups, and so do options that insist.
    let even_if_group = v6
        && match kind {
            Kind::PacketTooBig { .. } => true,
            Kind::ParameterProblem { even_if_group, .. } => even_if_group,
            _ => false,
        };
    if !even_if_group {
        if seen.destination.is_multicast() || ours.is_broadcast(seen.destination) {
            return Err(Silent::ToGroup);
        }
        if link_group {
            return Err(Silent::LinkGroup);
        }
    }
    // IPv6 has no such rule, and asks for a Parameter Problem about malformed later fragments (RFC
    // 8200 §4.5).
    if seen.later_fragment && !(v6 && matches!(kind, Kind::ParameterProblem { .. })) {
        return Err(Silent::LaterFragment);
    }
    Ok(())
}

/// Whether the packet is an ICMP error. Where that cannot be seen it is taken for one: silence
/// starts no storm.
fn is_error(seen: &Seen<'_>) -> bool {
    let kind = seen.upper.first().copied();
    match seen.protocol {
        _ if seen.later_fragment => false,
        // Echo, router discovery, timestamp, information, address mask; all others are errors or
        // unknown.
        Protocol::ICMP if seen.source.is_ipv4() => !matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18)),
        Protocol::ICMPV6 => !matches!(kind, Some(128..=136 | 138..)),
        _ => false,
    }
}

/// An IPv6 packet whose extension headers are too broken to be walked: its addresses at least.
fn see_fixed_v6(packet: &[u8]) -> Option<Seen<'_>> {
    let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let address = |at: usize| -> Option<IpAddr> {
        let octets = header.get(at..at + 16)?.first_chunk::<16>()?;
        Some(IpAddr::V6(Ipv6Addr::from_octets(*octets)))
    };
    Some(Seen {
        source: address(8)?,
        destination: address(24)?,
        protocol: Protocol::NO_NEXT_HEADER,
        upper: &[],
        later_fragment: false,
        total_len: u16::from_be_bytes([header[4], header[5]]).saturating_add(40),
    })
}

const fn message_v4(kind: Kind) -> icmpv4::Message {
    use icmpv4::{Message, unreachable};
    match kind {
        Kind::PortUnreachable => unreachable_v4(unreachable::PORT),
        Kind::ProtocolUnreachable { .. } => unreachable_v4(unreachable::PROTOCOL),
        Kind::HostUnreachable => unreachable_v4(unreachable::HOST),
        Kind::NetUnreachable => unreachable_v4(unreachable::NETWORK),
        Kind::Prohibited => unreachable_v4(unreachable::ADMINISTRATIVELY_PROHIBITED),
        Kind::HopsSpent => Message::TimeExceeded {
            code: icmpv4::time_exceeded::IN_TRANSIT,
        },
        Kind::ReassemblyTimeout => Message::TimeExceeded {
            code: icmpv4::time_exceeded::REASSEMBLY,
        },
        Kind::PacketTooBig { mtu } => Message::DestinationUnreachable {
            code: unreachable::FRAGMENTATION_NEEDED,
            mtu,
        },
        Kind::ParameterProblem { pointer, .. } => {
            // An IPv4 header has 60 octets: the pointer always fits.
            let pointer = if pointer < 60 {
                pointer.to_le_bytes()[0]
            } else {
                0
            };
            Message::ParameterProblem { code: 0, pointer }
        }
    }
}

const fn unreachable_v4(code: u8) -> icmpv4::Message {
    icmpv4::Message::DestinationUnreachable { code, mtu: 0 }
}

fn message_v6(kind: Kind) -> icmpv6::Message {
    use icmpv6::{Message, parameter, unreachable};
    let unreachable = |code| Message::DestinationUnreachable { code };
    match kind {
        Kind::PortUnreachable => unreachable(unreachable::PORT),
        Kind::ProtocolUnreachable { pointer } => Message::ParameterProblem {
            code: parameter::UNKNOWN_NEXT_HEADER,
            pointer,
        },
        Kind::HostUnreachable => unreachable(unreachable::ADDRESS),
        Kind::NetUnreachable => unreachable(unreachable::NO_ROUTE),
        Kind::Prohibited => unreachable(unreachable::ADMINISTRATIVELY_PROHIBITED),
        Kind::HopsSpent => Message::TimeExceeded {
            code: icmpv6::time_exceeded::IN_TRANSIT,
        },
        Kind::ReassemblyTimeout => Message::TimeExceeded {
            code: icmpv6::time_exceeded::REASSEMBLY,
        },
        Kind::PacketTooBig { mtu } => Message::PacketTooBig {
            mtu: u32::from(mtu),
        },
        Kind::ParameterProblem { code, pointer, .. } => Message::ParameterProblem { code, pointer },
    }
}

/// As much of `bytes` as may be quoted.
fn first(bytes: &[u8], len_max: usize) -> &[u8] {
    bytes.get(..len_max).unwrap_or(bytes)
}

/// The length of both parts, if both were written.
const fn whole(head: usize, body: usize) -> Option<usize> {
    if head == 0 || body == 0 {
        None
    } else {
        Some(head + body)
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
