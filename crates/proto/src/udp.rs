//! UDP (RFC 768, RFC 1122 §4.1, RFC 8200 §8.1): datagrams checked on the way in, headed on the way
//! out.

use core::net::IpAddr;

pub use crate::wire::udp::HEADER_LEN;
use crate::wire::udp::Header;
use crate::wire::{Error, checksum};

/// A datagram that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source port; 0: no answer is wanted.
    pub source_port: u16,
    /// Destination port; never 0.
    pub destination_port: u16,
    /// What it carries; may be empty.
    pub payload: &'a [u8],
}

/// Why a datagram is dropped, in silence all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Shorter than a header (negative 51).
    Truncated,
    /// The length field is below 8 or more than is there (negative 51).
    Length,
    /// The checksum does not match; or is 0, which IPv6 forbids (negative 49, 52).
    Checksum,
    /// The destination port is 0 (negative 53).
    PortZero,
}

/// The datagram in `bytes`, an IP payload. `checked`: the link has verified the checksum already.
///
/// # Errors
/// See [`DropReason`].
#[inline]
pub fn receive(
    source: IpAddr,
    destination: IpAddr,
    bytes: &[u8],
    checked: bool,
) -> Result<Datagram<'_>, DropReason> {
    let header = Header::parse(bytes).map_err(|error| match error {
        Error::Truncated => DropReason::Truncated,
        _ => DropReason::Length,
    })?;
    if header.destination_port == 0 {
        return Err(DropReason::PortZero);
    }
    // A link's word counts for a sum that is there; a missing one is the family's question.
    let vouched = checked && header.checksum != 0;
    if !vouched && !header.verify(source, destination, bytes) {
        return Err(DropReason::Checksum);
    }
    Ok(Datagram {
        source_port: header.source_port,
        destination_port: header.destination_port,
        payload: header.payload(bytes),
    })
}

/// Writes header and payload to the front of `buf`, the payload summed while it is copied. Returns
/// the length of both; 0 if they do not fit, the payload is longer than 65527 octets, or the
/// addresses are of two families.
#[inline]
pub fn send(
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    payload: &[u8],
    buf: &mut [u8],
) -> usize {
    let Some((head, body)) = buf.split_at_mut_checked(HEADER_LEN) else {
        return 0;
    };
    let Some(body) = body.get_mut(..payload.len()) else {
        return 0;
    };
    let sum = checksum::copy_and_sum(payload, body);
    finish(source, destination, sum, payload.len(), head)
}

/// Writes the header in front of a payload that stands already behind the first 8 octets of
/// `datagram`, up to its end. Returns the length of both; 0 as [`send`].
#[inline]
pub fn send_in_place(
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    datagram: &mut [u8],
) -> usize {
    let Some((head, body)) = datagram.split_at_mut_checked(HEADER_LEN) else {
        return 0;
    };
    finish(source, destination, checksum::sum(body), body.len(), head)
}

fn finish(
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    sum: checksum::Partial,
    payload_len: usize,
    head: &mut [u8],
) -> usize {
    let header = Header {
        source_port: source.1,
        destination_port: destination.1,
        ..Header::default()
    };
    match header.emit(source.0, destination.0, sum, payload_len, head) {
        0 => 0,
        len => len + payload_len,
    }
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
