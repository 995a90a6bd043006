//! TCP segments on the wire (RFC 9293 §3.1): header, flags, options, sequence numbers.

use core::cmp::Ordering;

mod emit;
mod fast_open;
mod options;
mod parse;
mod run_key;

pub use emit::fill_checksum;
pub use fast_open::FastOpen;
pub use options::{option, option_at};
pub use parse::verify_checksum;
pub use run_key::RunKey;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header, which the data offset can say (RFC 9293 §3.1).
pub const HEADER_LEN_MAX: usize = 60;
/// Where the checksum stands in the header, bytes from its first (RFC 9293 §3.1).
pub const CHECKSUM_AT: usize = 16;

/// A sequence number; compares modulo 2³² (RFC 9293 §3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNum(pub u32);

impl PartialOrd for SeqNum {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.0.wrapping_sub(other.0).cast_signed().partial_cmp(&0)
    }
    // Each by one subtraction, not by way of an `Ordering`.
    #[inline]
    fn lt(&self, other: &Self) -> bool {
        *self - *other < 0
    }
    #[inline]
    fn le(&self, other: &Self) -> bool {
        *self - *other <= 0
    }
    #[inline]
    fn gt(&self, other: &Self) -> bool {
        *self - *other > 0
    }
    #[inline]
    fn ge(&self, other: &Self) -> bool {
        *self - *other >= 0
    }
}
impl core::ops::Add<u32> for SeqNum {
    type Output = Self;
    #[inline]
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}
impl core::ops::Sub<u32> for SeqNum {
    type Output = Self;
    #[inline]
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}
impl core::ops::Sub for SeqNum {
    type Output = i32;
    /// Signed distance.
    #[inline]
    fn sub(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

/// The control bits (RFC 9293 §3.1; ECE and CWR RFC 3168, AE RFC 9768).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

#[allow(missing_docs)]
impl Flags {
    pub const FIN: Self = Self(0x01);
    pub const SYN: Self = Self(0x02);
    pub const RST: Self = Self(0x04);
    pub const PSH: Self = Self(0x08);
    pub const ACK: Self = Self(0x10);
    pub const URG: Self = Self(0x20);
    pub const ECE: Self = Self(0x40);
    pub const CWR: Self = Self(0x80);
    pub const AE: Self = Self(0x100);
    pub const NONE: Self = Self(0);
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
impl core::ops::BitOr for Flags {
    type Output = Self;
    #[inline]
    fn bitor(self, o: Self) -> Self {
        Self(self.0 | o.0)
    }
}

/// The timestamps option (RFC 7323 §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// TSval, the sender's clock.
    pub value: u32,
    /// TSecr, the last value seen from the other side.
    pub echo: u32,
}

/// Up to four SACK blocks (RFC 2018 §3), first the most recent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    pub(crate) blocks: [(SeqNum, SeqNum); 4],
    pub(crate) len: u8,
}

impl SackBlocks {
    /// No block.
    pub const NONE: Self = Self {
        blocks: [(SeqNum(0), SeqNum(0)); 4],
        len: 0,
    };
    /// Appends `left..right`; false when four are there.
    pub fn push(&mut self, left: SeqNum, right: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = (left, right);
        self.len += 1;
        true
    }
    /// The blocks in the order of the option.
    #[inline]
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        &self.blocks[..usize::from(self.len)]
    }
    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The AccECN option (RFC 9768 §3.2.3): the low 24 bits of up to three counters of bytes, in one of two orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccEcn {
    /// Order 1: first the bytes that came as ECT(1), last those as ECT(0); else the other way round. Those as CE stand between.
    pub ect1_first: bool,
    /// How many of them are there.
    pub len: u8,
    /// In the order of the option.
    pub fields: [u32; 3],
}

impl AccEcn {
    /// Bytes of the option, padding included.
    const fn padded(self) -> usize {
        (2 + 3 * self.len as usize).next_multiple_of(4)
    }

    fn field(self, at: usize) -> Option<u32> {
        let there = self.fields.get(..usize::from(self.len))?;
        there.get(at).copied()
    }

    /// Bytes that came as ECT(0).
    pub fn ect0(self) -> Option<u32> {
        self.field(if self.ect1_first { 2 } else { 0 })
    }
    /// Bytes that came as CE.
    pub fn ce(self) -> Option<u32> {
        self.field(1)
    }
    /// Bytes that came as ECT(1).
    pub fn ect1(self) -> Option<u32> {
        self.field(if self.ect1_first { 0 } else { 2 })
    }
}

/// The options netchan knows; unknown ones are skipped by their length (RFC 9293 MUST-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Maximum segment size (kind 2), SYN only.
    pub mss: Option<u16>,
    /// Window scale shift (kind 3), SYN only; as sent, not yet clamped to 14.
    pub window_scale: Option<u8>,
    /// SACK permitted (kind 4), SYN only.
    pub sack_permitted: bool,
    /// SACK blocks (kind 5).
    pub sack: SackBlocks,
    /// Timestamps (kind 8).
    pub timestamps: Option<Timestamps>,
    /// Accurate ECN's counters (kinds 172 and 174); means nothing in a SYN without ACK (RFC 9768 §3.2.3.2.1).
    pub accecn: Option<AccEcn>,
    /// User timeout (kind 28), as on the wire (RFC 5482 §3.3); 0 for none.
    pub user_timeout: u16,
    /// Fast Open (kind 34, RFC 7413), SYN only.
    pub fast_open: Option<FastOpen>,
    /// Bytes kept free at the end, a multiple of 4: for a signature, which is made last. Never parsed.
    pub free: u8,
}

/// A TCP header, options included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first octet (or of SYN).
    pub seq: SeqNum,
    /// Acknowledgment number; meaningful with ACK.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire, not scaled.
    pub window: u16,
    /// Urgent pointer; meaningful with URG.
    pub urgent: u16,
    /// Options.
    pub options: Options,
}
