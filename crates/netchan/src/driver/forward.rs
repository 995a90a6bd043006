//! Forwarding, the decision: whether a packet for another host goes on, by which link, and what its sender is told if not
//! (RFC 1812 §5, RFC 8200, RFC 4443). It is made by the link that received the packet; the way it is part of is `stack::forward`.

mod clamp;

use std::{net::IpAddr, ops::Range};

use proto::{
    icmp::error::Kind,
    ip::forward::{self, Refused},
    wire::{
        checksum,
        ipv4::{self, Protocol},
        ipv6,
    },
};

use crate::{
    counters::Counter,
    driver::host::HostView,
    packet::{Course, Packet},
};

/// Why a packet does not go on, and what its sender is told.
pub type Refusal = (Counter, Option<Kind>);

/// Where a packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By this link, to its next hop.
    On(usize),
    /// To an address of ours on this link.
    Ours(usize),
}

/// *check*: the link by which a packet for another host, received on link `from`, goes on, one hop shorter. It is left as it came where it does not.
///
/// An address of ours on another interface is reached by way of that: what is for us has arrived, however few hops it has left.
///
/// # Errors
/// What to count, and the ICMP error.
pub fn check(host: &HostView, packet: &mut Packet, from: usize) -> Result<Way, Refusal> {
    let passing = forward::check(packet.bytes()).map_err(refusal)?;
    packet.truncate(passing.len);
    packet.meta.course = Course::THROUGH;
    if let Some(interface) = host.net.interface_of(passing.destination) {
        return Ok(Way::Ours(interface));
    }
    if passing.hops <= 1 {
        return Err((Counter::DropForwardHops, Some(Kind::HopsSpent)));
    }
    let route = host.net.routes.lookup(passing.destination);
    let next = route.and_then(|next| {
        let number = usize::from(next.interface);
        Some((number, host.net.interfaces.get(number)?))
    });
    let Some((number, facts)) = next else {
        return Err(NO_ROUTE);
    };
    if packet.len() > facts.mtu && !passing.may_cut {
        let mtu = u16::try_from(facts.mtu).unwrap_or(u16::MAX);
        return Err((Counter::DropForwardTooBig, Some(Kind::PacketTooBig { mtu })));
    }
    forward::take_hop(packet.bytes_mut());
    if packet.meta.checksum_verified.get() {
        finish_checksum(packet.bytes_mut());
    }
    if host.mss_clamp {
        // Text comes back by the link that the SYN goes out by, and leaves by the one that the SYN came in by.
        let back = host.net.interfaces.get(from);
        clamp::clamp(
            packet.bytes_mut(),
            back.map_or(facts.mtu, |i| i.mtu.min(facts.mtu)),
        );
    }
    Ok(Way::On(number))
}

/// Nowhere to go: no route, or its link is gone (RFC 1812 §5.2.7.1).
pub const NO_ROUTE: Refusal = (Counter::DropNoRoute, Some(Kind::NetUnreachable));

fn refusal(why: Refused) -> Refusal {
    match why {
        Refused::Malformed => (Counter::DropIpHeader, None),
        Refused::SourceRoute => (Counter::DropForwardOptions, None),
        Refused::Option { pointer } => {
            let kind = Kind::ParameterProblem {
                code: 0,
                pointer: pointer.into(),
                even_if_group: false,
            };
            (Counter::DropForwardOptions, Some(kind))
        }
    }
}

/// Makes the transport checksum of a packet whose link vouched for it: it may not be there yet ([`crate::link::Link::receive`]).
/// What is a fragment has it, and a datagram without one (RFC 768) wants none.
fn finish_checksum(packet: &mut [u8]) {
    type Found = ((IpAddr, IpAddr), Protocol, Range<usize>);
    let found: Option<Found> = if let Ok(header) = ipv4::Header::parse(packet) {
        let ends = (header.source.into(), header.destination.into());
        (!header.is_fragment()).then(|| (ends, header.protocol, header.payload_range()))
    } else if let Ok(header) = ipv6::Header::parse(packet) {
        let ends = (header.source.into(), header.destination.into());
        let end = ipv6::HEADER_LEN + usize::from(header.payload_len);
        Some((ends, header.next_header, ipv6::HEADER_LEN..end))
    } else {
        None
    };
    let Some(((source, destination), protocol, range)) = found else {
        return;
    };
    let (at, wanted) = match protocol {
        Protocol::TCP => (16, true),
        Protocol::UDP => (6, source.is_ipv6()),
        _ => return,
    };
    let Some(upper) = packet.get_mut(range) else {
        return;
    };
    let pseudo = checksum::pseudo_header(source, destination, protocol, upper.len());
    let (Some(pseudo), Some(&[a, b])) = (pseudo, upper.get(at..at + 2)) else {
        return;
    };
    if !wanted && [a, b] == [0, 0] {
        return;
    }
    if let Some(field) = upper.get_mut(at..at + 2) {
        field.fill(0);
    }
    let sum = match checksum::finish(pseudo + checksum::sum(upper)) {
        0 if protocol == Protocol::UDP => 0xffff, // RFC 768: zero would say that there is none
        sum => sum,
    };
    if let Some(field) = upper.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
