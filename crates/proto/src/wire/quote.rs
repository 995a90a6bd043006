//! The packet that an ICMP error quotes: cut short, perhaps altered on its way, perhaps invented.
//!
//! Its addresses and ports say which socket the error is for, if it is one of ours at all. Lengths
//! beyond the quote are normal, and header checksums stale ones, so neither is checked.

use core::net::{IpAddr, Ipv4Addr};

use super::ipv6::extension::{FragmentHeader, HEADERS_MAX, is_extension, split_header};
use super::tcp::SeqNum;
use super::{Error, Protocol, ipv4, ipv6};

/// What a quote says. The source is the host it came back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote<'a> {
    /// The packet's sender: us, if the error is true.
    pub source: IpAddr,
    /// The packet's destination.
    pub destination: IpAddr,
    /// The upper layer's protocol.
    pub protocol: Protocol,
    /// As much of the upper-layer packet as is there; maybe nothing.
    pub upper: &'a [u8],
}

impl<'a> Quote<'a> {
    /// A quoted IPv4 packet (RFC 792: header and 8 bytes at least, RFC 1122: more).
    ///
    /// # Errors
    /// `Truncated` if the header is not there, options included; `Version`; `Length` for a header
    /// length below 20 or above the total length; `Value` for a fragment other than the first,
    /// which has no upper-layer header.
    pub fn parse_v4(quote: &'a [u8]) -> Result<Self, Error> {
        let h = quote
            .first_chunk::<{ ipv4::HEADER_LEN }>()
            .ok_or(Error::Truncated)?;
        if h[0] >> 4 != 4 {
            return Err(Error::Version);
        }
        let header_len = usize::from(h[0] & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([h[2], h[3]]));
        if header_len < ipv4::HEADER_LEN || header_len > total_len {
            return Err(Error::Length);
        }
        if u16::from_be_bytes([h[6], h[7]]) & 0x1fff != 0 {
            return Err(Error::Value);
        }
        let upper = quote
            .get(header_len..total_len.min(quote.len()))
            .ok_or(Error::Truncated)?;
        Ok(Self {
            source: Ipv4Addr::new(h[12], h[13], h[14], h[15]).into(),
            destination: Ipv4Addr::new(h[16], h[17], h[18], h[19]).into(),
            protocol: Protocol(h[9]),
            upper,
        })
    }

    /// A quoted IPv6 packet, extension headers walked as far as they are there.
    ///
    /// # Errors
    /// `Truncated` if the header or an extension header is not there; `Version`; `Length` for more
    /// extension headers than [`HEADERS_MAX`]; `Value` for a fragment other than the first.
    pub fn parse_v6(quote: &'a [u8]) -> Result<Self, Error> {
        let (h, rest) = quote
            .split_first_chunk::<{ ipv6::HEADER_LEN }>()
            .ok_or(Error::Truncated)?;
        // Parsed as if it were empty: the real length may exceed the quote.
        let mut alone = *h;
        alone[4..6].fill(0);
        let header = ipv6::Header::parse(&alone)?;
        let payload_len = usize::from(u16::from_be_bytes([h[4], h[5]]));
        let payload = rest.get(..payload_len).unwrap_or(rest);
        let (protocol, upper) = chain(header.next_header, payload)?;
        Ok(Self {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol,
            upper,
        })
    }

    /// Source and destination port, of protocols that start with them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        if !matches!(
            self.protocol,
            Protocol::TCP | Protocol::UDP | Protocol::SCTP
        ) {
            return None;
        }
        let [s0, s1, d0, d1] = *self.upper.first_chunk()?;
        Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
    }

    /// The sequence number of a TCP segment: a sender that did not see the segment has to guess it
    /// (RFC 5927 §4.1).
    pub fn tcp_seq(&self) -> Option<SeqNum> {
        let [.., a, b, c, d] = *self.upper.first_chunk::<8>()?;
        (self.protocol == Protocol::TCP).then_some(SeqNum(u32::from_be_bytes([a, b, c, d])))
    }
}

/// The upper layer of a quoted IPv6 payload. Laxer than the walk over a packet: order and options
/// are not judged, and a fragment's length, like any length here, may be cut.
fn chain(mut next: Protocol, mut rest: &[u8]) -> Result<(Protocol, &[u8]), Error> {
    for _ in 0..=HEADERS_MAX {
        if next == Protocol::FRAGMENT {
            let (bytes, behind) = rest.split_first_chunk().ok_or(Error::Truncated)?;
            let fragment = FragmentHeader::parse(bytes);
            if fragment.offset != 0 {
                return Err(Error::Value);
            }
            (next, rest) = (fragment.next_header, behind);
        } else if is_extension(next) {
            let (header, behind) = split_header(rest).ok_or(Error::Truncated)?;
            let [after, ..] = header else {
                return Err(Error::Truncated);
            };
            (next, rest) = (Protocol(*after), behind);
        } else {
            return Ok((next, rest));
        }
    }
    Err(Error::Length)
}
