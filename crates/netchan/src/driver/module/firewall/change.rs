//! Addresses and ports changed in place, with every checksum that covers them (RFC 1624): of the packet, and of what an ICMP error quotes
//! (RFC 5508 §4.2). Sums are changed by the difference, so that a broken packet stays broken.

use std::net::IpAddr;

use proto::wire::{ipv4::Protocol, tcp::CHECKSUM_AT};

use super::seen::{End, Seen};
use crate::driver::module::{Draft, View};

/// Which end of a packet is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Source,
    Destination,
}

impl Which {
    const fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// The sum of `!old + new` over changed words.
#[derive(Clone, Copy, Default)]
struct Difference(u32);

impl Difference {
    fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// A sum that is not complemented, after the change. (The words are few: no carry is lost.)
    #[allow(clippy::cast_possible_truncation)] // folded
    const fn add_to(self, sum: u16) -> u16 {
        let mut sum = self.0 + sum as u32;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// A checksum field, after the change (RFC 1624 eqn. 3).
    const fn apply(self, checksum: u16) -> u16 {
        !self.add_to(!checksum)
    }
}

/// Writes over whole words at an even place.
fn put(bytes: &mut [u8], at: usize, new: &[u8]) -> Option<Difference> {
    let old = bytes.get_mut(at..at + new.len())?;
    let mut difference = 0;
    for (old, new) in old.as_chunks::<2>().0.iter().zip(new.as_chunks::<2>().0) {
        difference += u32::from(!u16::from_be_bytes(*old)) + u32::from(u16::from_be_bytes(*new));
    }
    old.copy_from_slice(new);
    Some(Difference(difference))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let &[a, b] = bytes.get(at..at + 2)? else {
        return None;
    };
    Some(u16::from_be_bytes([a, b]))
}

/// Writes an address into an IP header at `at`; of IPv4 its checksum, too. What the address changes in sums over the pseudo header, and what all
/// of it changes in a sum over the header.
fn put_address(
    bytes: &mut [u8],
    at: usize,
    which: Which,
    ip: IpAddr,
) -> Option<(Difference, Difference)> {
    match ip {
        IpAddr::V4(ip) => {
            let place = if which == Which::Source { 12 } else { 16 };
            let address = put(bytes, at + place, &ip.octets())?;
            let sum = address.apply(word(bytes, at + 10)?);
            let all = put(bytes, at + 10, &sum.to_be_bytes())?;
            Some((address, all.and(address)))
        }
        IpAddr::V6(ip) => {
            let place = if which == Which::Source { 8 } else { 24 };
            let address = put(bytes, at + place, &ip.octets())?;
            Some((address, address))
        }
    }
}

/// The upper layer of one IP header.
struct Upper {
    protocol: Protocol,
    at: usize,
    /// The link finishes the checksum, which holds the sum of the pseudo header.
    is_partial: bool,
    /// Of a quote, which may end before the checksum.
    is_quoted: bool,
}

/// Writes a port, or an echo's identifier, and the checksum that covers it and the address. What that changes in all.
fn put_port(
    bytes: &mut [u8],
    upper: &Upper,
    which: Which,
    port: u16,
    address: Difference,
) -> Option<Difference> {
    let port = port.to_be_bytes();
    let (port_at, sum_at, covered) = match upper.protocol {
        Protocol::TCP | Protocol::UDP => {
            let port_at = if which == Which::Source { 0 } else { 2 };
            let sum_at = if upper.protocol == Protocol::TCP {
                CHECKSUM_AT
            } else {
                6
            };
            (Some(port_at), sum_at, address)
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            let kind = *bytes.get(upper.at)?;
            // Only the side that asks has the identifier.
            let asks = matches!(kind, 8 | 128);
            let has_ident = asks == (which == Which::Source);
            let pseudo = match upper.protocol {
                Protocol::ICMPV6 => address,
                _ => Difference::default(),
            };
            (has_ident.then_some(4), 2, pseudo)
        }
        _ => return Some(Difference::default()),
    };
    let changed = match port_at {
        Some(at) => put(bytes, upper.at + at, &port)?,
        None => Difference::default(),
    };
    let Some(old) = word(bytes, upper.at + sum_at) else {
        return upper.is_quoted.then_some(changed);
    };
    let is_udp = upper.protocol == Protocol::UDP;
    let new = if upper.is_partial {
        covered.add_to(old) // the pseudo header has no ports
    } else if is_udp && old == 0 {
        return Some(changed); // RFC 768: there is none
    } else {
        match covered.and(changed).apply(old) {
            0 if is_udp => 0xffff,
            new => new,
        }
    };
    let sum = put(bytes, upper.at + sum_at, &new.to_be_bytes())?;
    Some(changed.and(sum))
}

/// Makes `end` the source or the destination of a packet that [`read`](super::seen::read) has read. An ICMP error gets its address, and the
/// packet that it quotes, which went the other way, its other end. False: there is no such place; it may be half changed.
pub fn translate(packet: &mut Draft<'_>, seen: &Seen, which: Which, end: End) -> bool {
    let view = packet.view();
    let upper = Upper {
        protocol: view.protocol(),
        at: view.upper_at(),
        is_partial: packet.is_partial(),
        is_quoted: false,
    };
    let quoted = match seen.quote {
        None => None,
        Some(at) => match view.bytes().get(at..).and_then(View::parse) {
            Some(quoted) => Some((at, quoted.protocol(), at + quoted.upper_at())),
            None => return false,
        },
    };
    if view.source().is_ipv4() != end.ip.is_ipv4() {
        return false;
    }
    let bytes = packet.bytes_mut();
    let mut change = || {
        let (address, _) = put_address(bytes, 0, which, end.ip)?;
        let Some((at, protocol, upper_at)) = quoted else {
            return put_port(bytes, &upper, which, end.port, address).map(drop);
        };
        let inside = Upper {
            protocol,
            at: upper_at,
            is_partial: false,
            is_quoted: true,
        };
        let (inner, header) = put_address(bytes, at, which.other(), end.ip)?;
        let ports = put_port(bytes, &inside, which.other(), end.port, inner)?;
        let mut all = header.and(ports);
        if upper.protocol == Protocol::ICMPV6 {
            all = all.and(address);
        }
        let sum = all.apply(word(bytes, upper.at + 2)?);
        put(bytes, upper.at + 2, &sum.to_be_bytes()).map(drop)
    };
    change().is_some()
}
