//! Run key: what the segments of one GRO run have in common, which is all of their headers but the sequence number, PSH and the checksum.
//!
//! A sender that has much to say sends many full segments at once, and what they say beside their text is the same. A receiver that knows what one of
//! them led to, and took nothing else in between, knows it for the next one by comparing twenty bytes.

use super::{Flags, HEADER_LEN, SeqNum};

/// Acknowledgment, length, flags and window, as they lie in a header.
const FIXED: core::ops::Range<usize> = 8..16;
/// All of them but PSH, which only says how the sender's application wrote.
const MASK: u64 = {
    let psh = Flags::PSH.0.to_be_bytes()[1];
    u64::from_ne_bytes([!0, !0, !0, !0, !0, !psh, !0, !0])
};
/// Timestamps with what pads them (RFC 7323 appendix A).
const TIMESTAMPS: usize = 12;

/// One segment's header, for comparison with those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunKey {
    fixed: u64,
    timestamps: Option<[u8; TIMESTAMPS]>,
}

impl RunKey {
    /// Of a segment that [`Header::parse_fast`](super::Header::parse_fast) read and whose text begins at `text`.
    #[inline(always)]
    pub fn of(segment: &[u8], text: usize) -> Option<Self> {
        let (h, options) = segment.split_first_chunk::<HEADER_LEN>()?;
        let timestamps = if text == HEADER_LEN {
            None
        } else {
            Some(*options.first_chunk()?)
        };
        Some(Self {
            fixed: fixed(h)?,
            timestamps,
        })
    }

    /// If `segment` has the same header: its sequence number, and where its text begins.
    #[inline(always)]
    pub fn read(&self, segment: &[u8]) -> Option<(SeqNum, usize)> {
        let (h, rest) = segment.split_first_chunk::<HEADER_LEN>()?;
        if fixed(h)? != self.fixed {
            return None;
        }
        let seq = SeqNum(u32::from_be_bytes([h[4], h[5], h[6], h[7]]));
        match &self.timestamps {
            None => Some((seq, HEADER_LEN)),
            Some(same) => (rest.first_chunk()? == same).then_some((seq, HEADER_LEN + TIMESTAMPS)),
        }
    }
}

#[inline(always)]
fn fixed(header: &[u8; HEADER_LEN]) -> Option<u64> {
    Some(u64::from_ne_bytes(*header.get(FIXED)?.first_chunk()?) & MASK)
}

#[cfg(test)]
#[path = "run_key_tests.rs"]
mod tests;
