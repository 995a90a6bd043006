//! What the peer has selectively acknowledged (RFC 2018), in a bounded list of ranges.
//!
//! Only a hint: nothing is forgotten by the send queue before it is acknowledged cumulatively, and
//! the list is cleared when the retransmission timer expires (RFC 2018 §8).

use crate::wire::tcp::SeqNum;

/// Ranges kept. NewReno at 5 % loss has some six segments in flight, at 1 % some twelve; when the
/// list is full the ranges nearest to SND.UNA stay. Two more would make the connection larger than
/// eight cache lines.
const RANGES: usize = 14;

/// Segments, or ranges, above a gap that make it a loss (RFC 6675 §2, DupThresh).
pub(super) const DUPLICATE_THRESHOLD: u16 = 3;

/// Disjoint ranges above SND.UNA, in ascending order.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Scoreboard {
    ranges: [(SeqNum, SeqNum); RANGES],
    len: u8,
}

fn span(range: (SeqNum, SeqNum)) -> u32 {
    (range.1 - range.0).max(0).unsigned_abs()
}

impl Scoreboard {
    pub const fn new() -> Self {
        Self {
            ranges: [(SeqNum(0), SeqNum(0)); RANGES],
            len: 0,
        }
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn ranges(&self) -> &[(SeqNum, SeqNum)] {
        &self.ranges[..usize::from(self.len)]
    }

    /// Adds `left..right`; true if that said anything new. A block that is empty, backwards, or
    /// not between `una` and `max` is nonsense or a D-SACK, and ignored (`negative 59`).
    pub fn add(&mut self, left: SeqNum, right: SeqNum, una: SeqNum, max: SeqNum) -> bool {
        if left >= right || left <= una || right > max || left > max {
            return false;
        }
        let len = usize::from(self.len);
        let first = self
            .ranges()
            .iter()
            .position(|r| r.1 >= left)
            .unwrap_or(len);
        let past = self
            .ranges()
            .iter()
            .position(|r| r.0 > right)
            .unwrap_or(len);
        if first >= past {
            return self.insert(first, (left, right));
        }
        let (low, high) = (self.ranges[first].0, self.ranges[past - 1].1);
        if past - first == 1 && low <= left && high >= right {
            return false;
        }
        let merged = (
            if low < left { low } else { left },
            if high > right { high } else { right },
        );
        self.ranges[first] = merged;
        self.ranges.copy_within(past..len, first + 1);
        self.set_len(len - (past - first - 1));
        true
    }

    fn insert(&mut self, at: usize, range: (SeqNum, SeqNum)) -> bool {
        let len = usize::from(self.len);
        if at >= RANGES {
            return false;
        }
        let keep = len.min(RANGES - 1);
        self.ranges.copy_within(at..keep.max(at), at + 1);
        self.ranges[at] = range;
        self.set_len(keep.max(at) + 1);
        true
    }

    #[allow(clippy::cast_possible_truncation)] // at most RANGES
    fn set_len(&mut self, len: usize) {
        self.len = len as u8;
    }

    /// Forgets what lies below `una`.
    pub fn acknowledged(&mut self, una: SeqNum) {
        let len = usize::from(self.len);
        // A range that begins at SND.UNA would have been acknowledged: the peer dropped it.
        let gone = self.ranges().iter().take_while(|r| r.0 <= una).count();
        if gone > 0 {
            self.ranges.copy_within(gone..len, 0);
            self.set_len(len - gone);
        }
    }

    /// Bytes sacked within `from..to`.
    pub fn sacked_within(&self, from: SeqNum, to: SeqNum) -> u32 {
        let later = |a: SeqNum, b: SeqNum| if a > b { a } else { b };
        let sooner = |a: SeqNum, b: SeqNum| if a < b { a } else { b };
        self.ranges()
            .iter()
            .map(|r| span((later(r.0, from), sooner(r.1, to))))
            .sum()
    }

    /// Everything below this that is not sacked counts as lost: three ranges, or more than two
    /// segments' bytes, arrived above it (RFC 6675 §4, IsLost). `una` if nothing is.
    pub fn loss_mark(&self, una: SeqNum, mss: u32) -> SeqNum {
        let (mut ranges, mut bytes) = (0, 0_u32);
        for &range in self.ranges().iter().rev() {
            ranges += 1;
            bytes += span(range);
            if ranges >= DUPLICATE_THRESHOLD
                || bytes > u32::from(DUPLICATE_THRESHOLD - 1).saturating_mul(mss)
            {
                return range.0;
            }
        }
        una
    }

    /// The first gap at or after `from`: where it begins, and where the next range ends it.
    pub fn next_gap(&self, from: SeqNum) -> (SeqNum, Option<SeqNum>) {
        let mut start = from;
        for &(left, right) in self.ranges() {
            if right <= start {
                continue;
            }
            if left > start {
                return (start, Some(left));
            }
            start = right;
        }
        (start, None)
    }
}
