//! The UDP header (RFC 768).

use core::net::IpAddr;

use super::checksum::{self, Partial};
use super::{Error, Protocol};

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port; 0 means that no answer is wanted.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes of header and payload, at least 8, never more than the slice it was parsed from.
    /// Set by parse, ignored by emit.
    pub length: u16,
    /// Checksum as on the wire; 0 means none. Set by parse, ignored by emit.
    pub checksum: u16,
}

impl Header {
    /// The header at the front of `datagram`, an IP payload, which may be longer than the datagram.
    ///
    /// # Errors
    /// `Truncated` below 8 bytes; `Length` if the length field is below 8 or more than is there.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Self, Error> {
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *datagram
            .first_chunk::<HEADER_LEN>()
            .ok_or(Error::Truncated)?;
        let length = u16::from_be_bytes([l0, l1]);
        if usize::from(length) < HEADER_LEN || usize::from(length) > datagram.len() {
            return Err(Error::Length);
        }
        Ok(Self {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            length,
            checksum: u16::from_be_bytes([c0, c1]),
        })
    }

    /// The payload, given the bytes this was parsed from.
    #[inline]
    pub fn payload<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        datagram
            .get(HEADER_LEN..usize::from(self.length))
            .unwrap_or_default()
    }

    /// Whether the checksum is right, given the bytes this was parsed from.
    ///
    /// None is as good as a right one over IPv4 (RFC 768), but not over IPv6 (RFC 8200 §8.1).
    #[inline]
    pub fn verify(&self, source: IpAddr, destination: IpAddr, datagram: &[u8]) -> bool {
        if self.checksum == 0 {
            return source.is_ipv4() && destination.is_ipv4();
        }
        let Some(datagram) = datagram.get(..usize::from(self.length)) else {
            return false;
        };
        checksum::pseudo_header(source, destination, Protocol::UDP, datagram.len())
            .is_some_and(|pseudo| checksum::is_valid(pseudo + checksum::sum(datagram)))
    }

    /// Writes the header, with checksum, for a payload that sums to `payload_sum` and has
    /// `payload_len` bytes, to the front of `buf`.
    ///
    /// Returns 8; 0 if it does not fit, the payload is longer than 65527 bytes, or the addresses
    /// are of two families. The payload may already stand behind the header, or go elsewhere:
    /// [`checksum::copy_and_sum`] gives its sum while it copies.
    #[inline]
    pub fn emit(
        &self,
        source: IpAddr,
        destination: IpAddr,
        payload_sum: Partial,
        payload_len: usize,
        buf: &mut [u8],
    ) -> usize {
        let Some(h) = buf.first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let length = payload_len
            .checked_add(HEADER_LEN)
            .and_then(|len| u16::try_from(len).ok());
        let Some(length) = length else { return 0 };
        let pseudo =
            checksum::pseudo_header(source, destination, Protocol::UDP, usize::from(length));
        let Some(pseudo) = pseudo else { return 0 };
        let ports = (u32::from(self.source_port) << 16) | u32::from(self.destination_port);
        let sum = checksum::put_words(h, [ports, u32::from(length) << 16]);
        let sum = checksum::finish(pseudo + sum + payload_sum);
        // 0 says "no checksum", so a sum of 0 goes as its other form (RFC 768).
        let sum = if sum == 0 { 0xffff } else { sum };
        h[6..].copy_from_slice(&sum.to_be_bytes());
        HEADER_LEN
    }
}
