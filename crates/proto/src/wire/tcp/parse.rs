//! From segment to TCP header, and the checksum on the way in.

use core::net::IpAddr;

use super::options;
use super::{Flags, HEADER_LEN, Header, Options, SeqNum};
use crate::wire::{Error, Protocol, checksum};

impl Header {
    /// The header at the front of `segment` and its length: where the payload starts.
    ///
    /// * The length is a multiple of 4 in 20..=60 and at most `segment.len()`.
    /// * Unknown options, and known ones whose length is not theirs, are passed over by their
    ///   length (RFC 9293 MUST-6); of two equal ones the first counts.
    /// * MSS, window scale and SACK-permitted count only with SYN (RFC 9293 MUST-65, RFC 7323 §2.2,
    ///   RFC 2018 §2).
    /// * The flags may be any nonsense, and the checksum is not looked at: [`verify_checksum`].
    ///
    /// # Errors
    /// `Truncated` below 20 bytes; `Length` for a data offset below 5 or beyond the segment;
    /// `Option` for an option of length 0 or 1 or one that runs over the header's end (RFC 9293
    /// MUST-7: the segment is dropped, the connection lives).
    pub fn parse(segment: &[u8]) -> Result<(Self, usize), Error> {
        let (h, rest) = segment
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Error::Truncated)?;
        let mut header = Self::fixed(h);
        let len = usize::from(h[12] >> 4) * 4;
        let area = len
            .checked_sub(HEADER_LEN)
            .and_then(|n| rest.get(..n))
            .ok_or(Error::Length)?;
        options::parse(area, header.flags.contains(Flags::SYN), &mut header.options)?;
        Ok((header, len))
    }

    /// [`Self::parse`] for the two layouts that established connections send: no options, or timestamps as RFC 7323 appendix A
    /// lays them out. `None` decides nothing.
    #[inline(always)]
    pub fn parse_fast(segment: &[u8]) -> Option<(Self, usize)> {
        let (h, rest) = segment.split_first_chunk::<HEADER_LEN>()?;
        let mut header = Self::fixed(h);
        let words = h[12] >> 4;
        if words == 5 {
            return Some((header, HEADER_LEN));
        }
        if words != 8 {
            return None;
        }
        header.options.timestamps = Some(options::leading_timestamps(rest)?);
        Some((header, 32))
    }

    /// The part that every header has.
    #[inline(always)]
    fn fixed(h: &[u8; HEADER_LEN]) -> Self {
        Self {
            source_port: u16::from_be_bytes([h[0], h[1]]),
            destination_port: u16::from_be_bytes([h[2], h[3]]),
            seq: SeqNum(u32::from_be_bytes([h[4], h[5], h[6], h[7]])),
            ack: SeqNum(u32::from_be_bytes([h[8], h[9], h[10], h[11]])),
            flags: Flags(u16::from_be_bytes([h[12] & 1, h[13]])),
            window: u16::from_be_bytes([h[14], h[15]]),
            urgent: u16::from_be_bytes([h[18], h[19]]),
            options: Options::NONE,
        }
    }
}

/// Whether the checksum of a whole segment is right (RFC 9293 MUST-3); false for addresses of two
/// families.
#[inline]
pub fn verify_checksum(source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
    checksum::pseudo_header(source, destination, Protocol::TCP, segment.len())
        .is_some_and(|pseudo| checksum::is_valid(pseudo + checksum::sum(segment)))
}
