//! Which text of one end was seen: sequence numbers without their wrap, and what each segment brings.

use std::time::Duration;

/// Farther from the rest, a number belongs to no window (RFC 7323 2.3).
const FAR: i64 = 1 << 30;
/// Gaps that are remembered; of more, the oldest is forgotten.
const HOLES_MAX: usize = 32;
/// A gap that closes within this time was reordering, if no round trip is known.
const SOON: Duration = Duration::from_millis(3);

/// What a segment brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text that comes next, or later than that.
    New,
    /// Text that was seen, or that closes a gap after more than a round trip.
    Again,
    /// Text that closes a gap sooner.
    Late,
    /// A byte that was acknowledged long ago: keep-alive.
    Probe,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    begin: i64,
    end: i64,
    since: Duration,
}

/// One end's numbers. The first byte of text has number 1; the SYN, which may be in no capture, has 0.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// The number that 0 stands for.
    base: Option<u32>,
    /// What others are near to: the highest number that was seen or acknowledged.
    near: i64,
    /// Behind the last text that was seen.
    top: i64,
    has_text: bool,
    holes: Vec<Hole>,
}

impl Track {
    /// Behind the last text that was seen.
    pub const fn top(&self) -> i64 {
        self.top
    }

    /// `seq` counted from the first byte; `None`: it is far from all others. `first` is what the first one seen is to be.
    pub fn offset(&mut self, seq: u32, first: u8) -> Option<i64> {
        let base = *self
            .base
            .get_or_insert_with(|| seq.wrapping_sub(u32::from(first)));
        let (place, near) = (seq.wrapping_sub(base), self.near.cast_unsigned());
        #[allow(clippy::cast_possible_truncation)] // RFC 9293 3.4: the lower half tells
        let ahead = place.wrapping_sub(near as u32).cast_signed();
        let offset = self.near + i64::from(ahead);
        if i64::from(ahead).abs() > FAR {
            return None;
        }
        self.near = self.near.max(offset);
        Some(offset)
    }

    /// Takes what lies from `begin` to `end`. `acked` is what the other end has acknowledged, `round_trip` what the handshake took.
    pub fn take(
        &mut self,
        time: Duration,
        (begin, end): (i64, i64),
        acked: Option<i64>,
        round_trip: Option<Duration>,
    ) -> Kind {
        if !self.has_text {
            self.has_text = true;
            self.top = begin;
        }
        if begin >= self.top {
            if begin > self.top {
                self.open(Hole {
                    begin: self.top,
                    end: begin,
                    since: time,
                });
            }
            self.top = end;
            return Kind::New;
        }
        let is_keep_alive = end == self.top && end - begin == 1 && acked >= Some(end);
        let since = self.close(begin, end);
        self.top = self.top.max(end);
        match since {
            Some(since) if time.saturating_sub(since) < round_trip.unwrap_or(SOON) => Kind::Late,
            None if is_keep_alive => Kind::Probe,
            _ => Kind::Again,
        }
    }

    fn open(&mut self, hole: Hole) {
        if self.holes.len() >= HOLES_MAX {
            self.holes.remove(0);
        }
        self.holes.push(hole);
    }

    /// Takes what lies there out of the gaps, and tells since when the oldest of them was open.
    fn close(&mut self, begin: i64, end: i64) -> Option<Duration> {
        let mut since = None;
        let mut left = Vec::new();
        for hole in self.holes.drain(..) {
            if hole.end <= begin || end <= hole.begin {
                left.push(hole);
                continue;
            }
            since = Some(since.map_or(hole.since, |first: Duration| first.min(hole.since)));
            if hole.begin < begin {
                left.push(Hole { end: begin, ..hole });
            }
            if end < hole.end {
                left.push(Hole { begin: end, ..hole });
            }
        }
        left.truncate(HOLES_MAX);
        self.holes = left;
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn numbers_wrap_and_far_ones_are_strays() {
        let mut track = Track::default();
        assert_eq!(track.offset(u32::MAX - 9, 1), Some(1));
        assert_eq!(track.offset(5, 1), Some(16), "behind the wrap");
        assert_eq!(
            track.offset(u32::MAX - 20, 1),
            Some(-10),
            "before the first"
        );
        assert_eq!(track.offset(5 + (1 << 30) + 1, 1), None);
        assert_eq!(track.offset(5_u32.wrapping_sub((1 << 30) + 1), 1), None);
        // Four times around.
        let mut seq = 5_u32;
        for step in 1..=16_i64 {
            seq = seq.wrapping_add(1 << 30);
            assert_eq!(track.offset(seq, 1), Some(16 + (step << 30)));
        }
    }

    #[test]
    fn text_is_new_again_or_late() {
        let mut track = Track::default();
        let mut take = |ms: u32, range| track.take(MS * ms, range, None, Some(MS * 10));
        assert_eq!(take(0, (1, 101)), Kind::New);
        assert_eq!(take(1, (301, 401)), Kind::New, "a gap");
        assert_eq!(take(2, (101, 201)), Kind::Late, "half of it");
        assert_eq!(take(20, (201, 301)), Kind::Again, "a round trip after it");
        assert_eq!(take(21, (201, 301)), Kind::Again);
        assert_eq!(take(22, (301, 501)), Kind::Again, "in part");
        assert_eq!(take(23, (501, 502)), Kind::New);
        assert_eq!(take(24, (501, 502)), Kind::Again);
        let probe = track.take(MS * 25, (501, 502), Some(502), None);
        assert_eq!(probe, Kind::Probe, "all was acknowledged");
    }

    #[test]
    fn gaps_have_a_bound() {
        let mut track = Track::default();
        for i in 0..10_000 {
            track.take(MS, (i * 10, i * 10 + 1), None, None);
        }
        assert_eq!(track.holes.len(), HOLES_MAX);
        track.take(MS, (99_995, 99_996), None, None);
        for i in 9_970..9_999 {
            track.take(MS, (i * 10 + 5, i * 10 + 6), None, None);
        }
        assert!(track.holes.len() <= HOLES_MAX);
    }
}
