//! A look into a packet that may be cut anywhere: what upper layer it has, and where. Trusts
//! nothing.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::Protocol;
use crate::wire::ipv6::extension::{FragmentHeader, HEADERS_MAX};

/// What can be seen of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: Protocol,
    /// As much of the upper layer as is there.
    pub(super) upper: &'a [u8],
    /// A fragment other than the first: `upper` is the middle of something.
    pub(super) later_fragment: bool,
    /// Octets of the whole packet, by its own header.
    pub(super) total_len: u16,
}

/// Looks into `packet`, an IPv4 packet whose header is whole and says so.
pub(super) fn see_v4(packet: &[u8]) -> Option<Seen<'_>> {
    let h = packet.first_chunk::<20>()?;
    let header_len = usize::from(h[0] & 0x0f) * 4;
    if h[0] >> 4 != 4 || header_len < 20 {
        return None;
    }
    // The checksum is not looked at: routers on the way count TTL down, and not all of them mend it
    // in the quote.
    Some(Seen {
        source: IpAddr::V4(Ipv4Addr::new(h[12], h[13], h[14], h[15])),
        destination: IpAddr::V4(Ipv4Addr::new(h[16], h[17], h[18], h[19])),
        protocol: Protocol(h[9]),
        upper: packet.get(header_len..)?,
        later_fragment: u16::from_be_bytes([h[6], h[7]]) & 0x1fff != 0,
        total_len: u16::from_be_bytes([h[2], h[3]]),
    })
}

/// Looks into `packet`, an IPv6 packet whose fixed header is whole.
pub(super) fn see_v6(packet: &[u8]) -> Option<Seen<'_>> {
    let (h, mut upper) = packet.split_first_chunk::<40>()?;
    if h[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let octets = h
            .get(at..at + 16)
            .and_then(|bytes| bytes.first_chunk::<16>());
        octets.map(|octets| IpAddr::V6(Ipv6Addr::from_octets(*octets)))
    };
    let mut protocol = Protocol(h[6]);
    let mut later_fragment = false;
    for _ in 0..HEADERS_MAX {
        let next = match protocol {
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION_OPTIONS => {
                let units = usize::from(*upper.get(1)?);
                (*upper.first()?, (units + 1) * 8)
            }
            Protocol::FRAGMENT => {
                let fragment = FragmentHeader::parse(upper.first_chunk()?);
                later_fragment = fragment.offset != 0;
                (fragment.next_header.0, 8)
            }
            _ => break,
        };
        protocol = Protocol(next.0);
        upper = upper.get(next.1..)?;
        if later_fragment {
            break;
        }
    }
    Some(Seen {
        source: address(8)?,
        destination: address(24)?,
        protocol,
        upper,
        later_fragment,
        total_len: u16::from_be_bytes([h[4], h[5]]).saturating_add(40),
    })
}
