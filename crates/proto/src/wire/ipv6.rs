//! The IPv6 header (RFC 8200 §3); what may stand between it and the payload in [`extension`].

use core::net::Ipv6Addr;

use super::{Error, Protocol};

pub mod extension;

/// Bytes of a header.
pub const HEADER_LEN: usize = 40;
/// Every IPv6 link carries packets of this size whole (RFC 8200 §5).
pub const MTU_MIN: usize = 1280;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// DSCP and ECN (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Bytes behind this header, extension headers included; never more than the slice it was
    /// parsed from has. Set by parse, ignored by emit.
    pub payload_len: u16,
    /// What follows: an extension header or the upper layer.
    pub next_header: Protocol,
    /// Hops left.
    pub hop_limit: u8,
    /// Sender.
    pub source: Ipv6Addr,
    /// Receiver.
    pub destination: Ipv6Addr,
}

impl Header {
    /// A header with hop limit 64, no traffic class and no flow label.
    pub const fn new(next_header: Protocol, source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            next_header,
            hop_limit: 64,
            source,
            destination,
        }
    }

    /// The header at the front of `packet`, which may be longer (Ethernet pads short frames); take
    /// the payload from [`Header::payload`].
    ///
    /// # Errors
    /// `Truncated` below 40 bytes; `Version` if not 6; `Length` if the payload is longer than what
    /// is there. Jumbograms (RFC 2675) are not understood: theirs is an empty payload.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, Error> {
        let (h, rest) = packet
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Error::Truncated)?;
        let word = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
        if word >> 28 != 6 {
            return Err(Error::Version);
        }
        let payload_len = u16::from_be_bytes([h[4], h[5]]);
        if usize::from(payload_len) > rest.len() {
            return Err(Error::Length);
        }
        let mut source = [0; 16];
        source.copy_from_slice(&h[8..24]);
        let mut destination = [0; 16];
        destination.copy_from_slice(&h[24..40]);
        Ok(Self {
            traffic_class: (h[0] << 4) | (h[1] >> 4),
            flow_label: word & 0xf_ffff,
            payload_len,
            next_header: Protocol(h[6]),
            hop_limit: h[7],
            source: Ipv6Addr::from_octets(source),
            destination: Ipv6Addr::from_octets(destination),
        })
    }

    /// What is behind the header, given the packet this was parsed from.
    #[inline]
    pub fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet
            .get(HEADER_LEN..HEADER_LEN + usize::from(self.payload_len))
            .unwrap_or_default()
    }

    /// Writes the header for a payload of `payload_len` bytes (extension headers included) to the
    /// front of `buf`; returns 40, or 0 if it does not fit or the payload is longer than 65535.
    ///
    /// The flow label's bits above 20 are lost.
    #[inline]
    pub fn emit(&self, payload_len: usize, buf: &mut [u8]) -> usize {
        let Some(h) = buf.first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let Ok(payload_len) = u16::try_from(payload_len) else {
            return 0;
        };
        let word = (6 << 28) | (u32::from(self.traffic_class) << 20) | (self.flow_label & 0xf_ffff);
        h[..4].copy_from_slice(&word.to_be_bytes());
        h[4..6].copy_from_slice(&payload_len.to_be_bytes());
        h[6] = self.next_header.0;
        h[7] = self.hop_limit;
        h[8..24].copy_from_slice(&self.source.octets());
        h[24..40].copy_from_slice(&self.destination.octets());
        HEADER_LEN
    }
}
