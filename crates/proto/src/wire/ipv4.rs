//! The IPv4 header (RFC 791); options in [`options`].

use core::net::Ipv4Addr;
use core::ops::Range;

use super::Error;
pub use super::Protocol;
use super::checksum;

pub mod options;

/// Bytes of a header without options, which is all that [`Header::emit`] writes.
pub const HEADER_LEN: usize = 20;
/// Largest payload behind a header without options.
pub const PAYLOAD_LEN_MAX: usize = 65_535 - HEADER_LEN;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// DSCP and ECN (RFC 2474, RFC 3168), the old type of service.
    pub tos: u8,
    /// Bytes of header and payload, never more than the slice it was parsed from.
    /// Set by parse, ignored by emit.
    pub total_len: u16,
    /// Identification: ties fragments together (RFC 6864).
    pub ident: u16,
    /// DF.
    pub dont_fragment: bool,
    /// MF.
    pub more_fragments: bool,
    /// Where this payload starts in the whole one, in bytes: a multiple of 8, at most 65528.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// What the payload is.
    pub protocol: Protocol,
    /// Sender.
    pub source: Ipv4Addr,
    /// Receiver.
    pub destination: Ipv4Addr,
    /// Bytes of the header, options included: 20..=60. Set by parse, ignored by emit.
    pub header_len: u8,
}

impl Header {
    /// A header for a whole datagram: DF set, TTL 64, identification 0 (RFC 6864 §4.1).
    pub const fn new(protocol: Protocol, source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            tos: 0,
            total_len: 20,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            source,
            destination,
            header_len: 20,
        }
    }

    /// The header at the front of `packet`.
    ///
    /// `packet` may be longer than the datagram (Ethernet pads short frames); take the payload from
    /// [`Header::payload_range`]. Options are in range but not looked at: see [`options`].
    ///
    /// # Errors
    /// `Truncated` below 20 bytes; `Version` if not 4; `Length` if the header is shorter than 20
    /// bytes or longer than the datagram, or the datagram longer than `packet`; `Checksum`
    /// (RFC 1122 §3.2.1.2).
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, Error> {
        let h = packet.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
        let total_len = u16::from_be_bytes([h[2], h[3]]);
        if usize::from(total_len) > packet.len() {
            return Err(if h[0] >> 4 == 4 {
                Error::Length
            } else {
                Error::Version
            });
        }
        let header_len = if h[0] == 0x45 {
            if usize::from(total_len) < HEADER_LEN {
                return Err(Error::Length);
            }
            if !checksum::is_valid(checksum::sum_array(h)) {
                return Err(Error::Checksum);
            }
            20
        } else {
            check_long(packet, total_len)?
        };
        let fragment = u16::from_be_bytes([h[6], h[7]]);
        Ok(Self {
            tos: h[1],
            total_len,
            ident: u16::from_be_bytes([h[4], h[5]]),
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: fragment << 3,
            ttl: h[8],
            protocol: Protocol(h[9]),
            source: Ipv4Addr::new(h[12], h[13], h[14], h[15]),
            destination: Ipv4Addr::new(h[16], h[17], h[18], h[19]),
            header_len,
        })
    }

    /// Where the payload lies in the packet this was parsed from; inside it, always.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        usize::from(self.header_len)..usize::from(self.total_len)
    }

    /// The payload, given the packet this was parsed from.
    #[inline]
    pub fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet.get(self.payload_range()).unwrap_or_default()
    }

    /// The option bytes, given the packet this was parsed from; mostly none.
    #[inline]
    pub fn options<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet
            .get(HEADER_LEN..usize::from(self.header_len))
            .unwrap_or_default()
    }

    /// Whether the payload is a part of a larger one.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Writes 20 bytes, checksum included, for a payload of `payload_len` bytes to the front of
    /// `buf`; returns 20, or 0 if they do not fit or `payload_len` exceeds [`PAYLOAD_LEN_MAX`].
    ///
    /// The low three bits of `fragment_offset` are lost: it is a multiple of 8.
    #[inline]
    pub fn emit(&self, payload_len: usize, buf: &mut [u8]) -> usize {
        let Some(h) = buf.first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        if payload_len > PAYLOAD_LEN_MAX {
            return 0;
        }
        let Ok(total_len) = u16::try_from(payload_len + HEADER_LEN) else {
            return 0;
        };
        let fragment = (u16::from(self.dont_fragment) << 14)
            | (u16::from(self.more_fragments) << 13)
            | (self.fragment_offset >> 3);
        let [ttl, protocol] = [self.ttl, self.protocol.0];
        let sum = checksum::put_words(
            h,
            [
                (0x45 << 24) | (u32::from(self.tos) << 16) | u32::from(total_len),
                (u32::from(self.ident) << 16) | u32::from(fragment),
                u32::from_be_bytes([ttl, protocol, 0, 0]),
                self.source.to_bits(),
                self.destination.to_bits(),
            ],
        );
        h[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        HEADER_LEN
    }
}

/// The checks of [`Header::parse`] for anything but version 4 without options: the header length.
#[cold]
fn check_long(packet: &[u8], total_len: u16) -> Result<u8, Error> {
    let first = *packet.first().ok_or(Error::Truncated)?;
    if first >> 4 != 4 {
        return Err(Error::Version);
    }
    let header_len = (first & 0x0f) * 4;
    if header_len < 20 || u16::from(header_len) > total_len {
        return Err(Error::Length);
    }
    let header = packet.get(..usize::from(header_len)).ok_or(Error::Length)?;
    if checksum::is_valid(checksum::sum(header)) {
        Ok(header_len)
    } else {
        Err(Error::Checksum)
    }
}
