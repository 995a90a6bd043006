//! How much one segment may carry on its path: what ICMP says of that, believed with care (RFC 1191, RFC 8201, RFC 5927 §7.2), and what
//! probes find out where no ICMP comes (RFC 4821, RFC 8899).
//!
//! Sizes here are what an MSS option counts: bytes of text and TCP options. A probe is new text, sent alone and longer than other segments;
//! its loss says nothing about congestion.

use super::image::{imaged, plain};
use crate::wire::tcp::SeqNum;

/// No time to try larger ones.
pub(super) const NEVER: u32 = u32::MAX;
/// What such a path is tried with (RFC 4821 §7.2: eff_pmtu's lower values; Linux's tcp_base_mss), and when that is silent, too.
pub(super) const BASE: [u16; 2] = [1024, 512];

/// A probe under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub start: SeqNum,
    /// Bytes of text; 0: there is none.
    pub len: u16,
    /// Bytes of text and options.
    pub size: u16,
}

impl Probe {
    pub const NONE: Self = Self {
        start: SeqNum(0),
        len: 0,
        size: 0,
    };

    pub fn end(self) -> SeqNum {
        self.start + u32::from(self.len)
    }
}

/// What is known of the path.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct PathMtu {
    /// What segments are made for; `u16::MAX`: nothing stands in the way but link and peer.
    pub limit: u16,
    /// What the link takes since its MTU changed; `u16::MAX`: as when the connection began.
    pub link: u16,
    /// The largest that was acknowledged (RFC 4821 search_low, RFC 5927 maxsizeacked).
    pub low: u16,
    /// The largest that may still be possible (RFC 4821 search_high); `u16::MAX`: what link and peer take.
    pub high: u16,
    /// Only segments from here on show the size in use.
    pub mark: SeqNum,
    pub probe: Probe,
    /// Probes of this size that were lost.
    pub failures: u8,
    /// Larger sizes are searched for.
    pub searches: bool,
    /// Acknowledgments have to be looked at.
    pub watches: bool,
    /// When larger sizes may be tried again.
    pub raise_at: u32,
}

impl PathMtu {
    /// Bytes of text and options that fit, as far as is known.
    pub const fn limit(&self) -> u16 {
        if self.link < self.limit {
            self.link
        } else {
            self.limit
        }
    }

    /// The same path, seen anew.
    pub const fn again(&self, mark: SeqNum) -> Self {
        Self {
            link: self.link,
            ..Self::new(mark)
        }
    }

    pub const fn new(iss: SeqNum) -> Self {
        Self {
            limit: u16::MAX,
            link: u16::MAX,
            low: 0,
            high: u16::MAX,
            mark: iss,
            probe: Probe::NONE,
            failures: 0,
            searches: false,
            watches: true,
            raise_at: NEVER,
        }
    }

    /// Whether the segment from `seq` on is a probe.
    #[inline]
    pub fn is_probe(&self, seq: SeqNum) -> bool {
        self.probe.len > 0 && self.probe.start == seq
    }

    /// Bytes of text in a segment that leaves from `seq` on, `mss` if it is no probe: that is not cut.
    #[inline]
    pub fn segment(&self, seq: SeqNum, mss: u16) -> u16 {
        if self.is_probe(seq) {
            self.probe.len
        } else {
            mss
        }
    }

    /// What starts at `seq` is sent again. A probe that was lost among others says nothing (RFC 4821 §7.6.2).
    #[inline]
    pub fn resent(&mut self, seq: SeqNum) {
        if self.is_probe(seq) {
            self.probe = Probe::NONE;
        }
    }

    /// Whether a probe may be due.
    #[inline]
    pub const fn may_probe(&self) -> bool {
        self.searches && self.probe.len == 0
    }
}

plain!(Probe { start, len, size });

imaged! {
    /// [`PathMtu`] as plain data.
    pub(super) struct PathMtuImage of PathMtu {
        limit: u16,
        link: u16,
        low: u16,
        high: u16,
        mark: SeqNum,
        probe: Probe as part,
        failures: u8,
        searches: bool,
        watches: bool,
        raise_at: Option<i64> as coarse_due,
    }
}
