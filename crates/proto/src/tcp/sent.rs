//! What was sent and is not acknowledged: one record for each transmission, in the order of sequence numbers, and what became of it.
//!
//! The scoreboard of RFC 6675, the transmission times of RFC 8985 and the snapshots for delivery rates are all in the records.
//! A record begins where the one before it ends, the first at SND.UNA. Nothing here decides what is lost.

pub(super) mod image;
mod losses;
mod lost;
mod sacked;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::time::Instant;
use crate::wire::tcp::SeqNum;
use losses::Losses;

/// What became of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Under way, as far as is known.
    InFlight,
    /// The peer has it (RFC 2018); it could still drop it.
    Sacked,
    /// To be sent again.
    Lost,
}

/// One transmission. Times are in microseconds and wrap, byte counts are running totals and wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// One past its last sequence number.
    pub end: SeqNum,
    /// When it was last sent.
    pub sent_us: u32,
    /// When the segment left whose delivery began the interval in which this one was sent.
    pub first_sent_us: u32,
    /// Bytes delivered, and when the last of them was, as this was sent.
    pub delivered: u32,
    /// See `delivered`.
    pub delivered_us: u32,
    /// Bytes in flight, this included, as it was sent.
    pub tx_in_flight: u32,
    /// Bytes found lost before it was sent.
    pub lost: u32,
    /// Bytes of each segment that it left in; the last one may have less. What is known of a part is known of whole ones.
    pub segment: u16,
    pub fate: Fate,
    pub traits: Traits,
}

/// What is true of a transmission, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits(pub u8);

impl Traits {
    pub const NONE: Self = Self(0);
    /// Sent more than once.
    pub const AGAIN: Self = Self(1);
    /// The application was the limit when it was sent.
    pub const APP_LIMITED: Self = Self(2);
    /// Asks whether the path takes so much (RFC 4821): its loss is no congestion.
    pub const PROBE: Self = Self(4);

    /// These as well.
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Record {
    /// Whether it was sent more than once.
    #[inline]
    pub const fn is_retransmission(&self) -> bool {
        self.traits.has(Traits::AGAIN)
    }

    /// Whether it is under way and was sent once.
    #[inline]
    fn is_original(&self) -> bool {
        self.fate == Fate::InFlight && !self.is_retransmission()
    }

    /// Whether it was sent more than once and not sacked.
    fn is_unanswered(&self) -> bool {
        self.is_retransmission() && self.fate != Fate::Sacked
    }

    /// Segments that it is, if it begins at `start`.
    pub fn segments(&self, start: SeqNum) -> u32 {
        distance(start, self.end).div_ceil(u32::from(self.segment.max(1)))
    }
}

/// What an acknowledgment takes together: transmissions one behind the other, each sent once and under way. The earlier of them left before the
/// later, so that of most of what they tell only the newest matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Where the row and where its first record begin and end.
    pub start: SeqNum,
    pub first_end: SeqNum,
    pub end: SeqNum,
    /// When the first one left.
    pub first_sent_us: u32,
    /// The last one; of those that left with it, and had the same delivered before them, the first.
    pub newest: Record,
}

impl Row {
    /// Bytes of all.
    #[inline]
    pub fn bytes(&self) -> u32 {
        distance(self.start, self.end)
    }
}

/// The transmissions under way.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Sent {
    records: VecDeque<Record>,
    una: SeqNum,
    in_flight: u32,
    sacked: u32,
    lost: u32,
    /// What is sacked, lost and sent again, once something is.
    losses: Option<Box<Losses>>,
    #[cfg(test)]
    pub visits: Visits,
}

/// Records looked at.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(super) struct Visits(pub core::cell::Cell<u32>);

#[cfg(test)]
impl PartialEq for Visits {
    fn eq(&self, _: &Self) -> bool {
        true // it says how something was found out, not what
    }
}

/// Records below which nothing is done about their number.
const FEW: usize = 64;

/// Microseconds of `now`, modulo 2³²: for times that lie less than half an hour apart.
#[inline]
pub(super) const fn micros_of(now: Instant) -> u32 {
    now.low_micros()
}

/// The longest age that is known of a transmission, a quarter of 2³² microseconds: 18 minutes.
const AGE_MAX_US: u32 = 1 << 30;

/// `then_us`, or the longest age before `now_us`: what waits for hours must not come to lie in the future. To be asked every few minutes.
pub(super) const fn not_too_old(then_us: u32, now_us: u32) -> u32 {
    if elapsed_us(now_us, then_us) > AGE_MAX_US {
        now_us.wrapping_sub(AGE_MAX_US)
    } else {
        then_us
    }
}

/// Microseconds from `then_us` to `now_us`, none if that is later: several threads' clocks were read in another order than they came
/// to the connection.
#[inline]
pub(super) const fn elapsed_us(now_us: u32, then_us: u32) -> u32 {
    let elapsed = now_us.wrapping_sub(then_us);
    if elapsed > u32::MAX / 2 { 0 } else { elapsed }
}

#[inline]
pub(super) fn distance(from: SeqNum, to: SeqNum) -> u32 {
    (to - from).max(0).unsigned_abs()
}

impl Sent {
    pub const fn new(una: SeqNum) -> Self {
        Self {
            records: VecDeque::new(),
            una,
            in_flight: 0,
            sacked: 0,
            lost: 0,
            losses: None,
            #[cfg(test)]
            visits: Visits(core::cell::Cell::new(0)),
        }
    }

    /// A record is looked at: tests count.
    #[inline(always)]
    #[allow(clippy::unused_self)]
    fn visit(&self) {
        #[cfg(test)]
        self.visits.0.set(self.visits.0.get() + 1);
    }

    /// Bytes under way: sent, neither acknowledged, sacked nor lost (RFC 6675 §4, pipe).
    #[inline]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes that the peer has selectively acknowledged.
    #[inline]
    pub const fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes to be sent again.
    #[inline]
    pub const fn lost(&self) -> u32 {
        self.lost
    }

    /// Segments that are sacked.
    pub fn sacked_segments(&self) -> u32 {
        self.losses.as_ref().map_or(0, |l| l.sacked_segments)
    }

    /// Bytes under way that were sent more than once.
    pub fn retransmitted(&self) -> u32 {
        self.iter()
            .filter(|(_, r)| r.fate == Fate::InFlight && r.is_retransmission())
            .map(|(start, r)| distance(start, r.end))
            .sum()
    }

    /// Records sent more than once that are not acknowledged.
    pub fn sent_again(&self) -> u32 {
        self.losses.as_ref().map_or(0, |l| l.unanswered)
    }

    /// Whether everything sent is under way.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.sacked == 0 && self.lost == 0
    }

    /// The records with their first sequence numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, &Record)> {
        self.records.iter().scan(self.una, |start, record| {
            let begin = core::mem::replace(start, record.end);
            Some((begin, record))
        })
    }

    /// Bytes of heap that the records take.
    pub fn heap_bytes(&self) -> usize {
        let losses = self.losses.as_ref().map_or(0, |l| l.heap_bytes());
        self.records.capacity() * size_of::<Record>() + losses
    }

    /// The first record.
    #[inline]
    pub fn front(&self) -> Option<&Record> {
        self.records.front()
    }

    /// The last record, with its first sequence number.
    pub fn last(&self) -> Option<(SeqNum, &Record)> {
        let record = self.records.back()?;
        Some((self.start(self.records.len() - 1), record))
    }

    fn start(&self, index: usize) -> SeqNum {
        match index.checked_sub(1).and_then(|i| self.records.get(i)) {
            Some(before) => before.end,
            None => self.una,
        }
    }

    /// Something new left: up to `record.end`.
    #[inline(always)]
    pub fn push(&mut self, start: SeqNum, record: Record) {
        if self.records.is_empty() {
            self.una = start;
        }
        self.in_flight += distance(start, record.end);
        self.records.push_back(record);
    }

    /// Whether records are many for what is under way, in segments of `full` bytes: an application writes small pieces.
    #[inline]
    pub fn is_crowded(&self, full: u32) -> bool {
        let records = self.records.len();
        let under_way = (self.in_flight + self.sacked + self.lost) as usize;
        // Where segments are tiny no quarter of one, but half, or what a record takes: records take a few times their text at most.
        let piece = (full as usize / 4).max((full as usize / 2).min(size_of::<Record>()));
        records >= FEW && under_way < records * piece
    }

    /// Takes the record that is about to be pushed, up to `end`, together with the last one: from now on they are one segment of at most
    /// `full` bytes, sent when the first part was. False if they are not alike.
    #[cold]
    pub fn push_together(&mut self, end: SeqNum, full: u32) -> bool {
        let Some((start, last)) = self.last() else {
            return false;
        };
        let len = distance(start, end);
        let alike = last.is_original() && !last.traits.has(Traits::PROBE);
        let (true, Ok(segment)) = (alike && len <= full, u16::try_from(len)) else {
            return false;
        };
        if let Some(last) = self.records.back_mut() {
            self.in_flight += distance(last.end, end);
            last.end = end;
            last.segment = segment;
        }
        true
    }

    fn counter(&mut self, fate: Fate) -> &mut u32 {
        match fate {
            Fate::InFlight => &mut self.in_flight,
            Fate::Sacked => &mut self.sacked,
            Fate::Lost => &mut self.lost,
        }
    }

    /// Where the first record begins: SND.UNA, as far as the records have heard.
    #[inline]
    pub const fn una(&self) -> SeqNum {
        self.una
    }

    /// SND.UNA is now `una`: takes off the row that stands first, if there is one. What is left below `una` is [`Self::acknowledge`]'s.
    #[inline(always)]
    pub fn acknowledge_row(&mut self, una: SeqNum) -> Option<Row> {
        let belongs = |record: &Record| record.end <= una && record.is_original();
        let mut newest = *self.records.front().filter(|first| belongs(first))?;
        let mut row = Row {
            start: self.una,
            first_end: newest.end,
            end: newest.end,
            first_sent_us: newest.sent_us,
            newest,
        };
        self.records.pop_front();
        while let Some(next) = self.records.front().filter(|next| belongs(next)) {
            row.end = next.end;
            if (next.sent_us, next.delivered) != (newest.sent_us, newest.delivered) {
                newest = *next;
            }
            self.records.pop_front();
        }
        row.newest = newest;
        self.una = row.end;
        self.in_flight -= row.bytes();
        Some(row)
    }

    /// SND.UNA is now `una`: `gone` observes each record that is acknowledged, in whole or in part, with the bytes of it that are.
    pub fn acknowledge(&mut self, una: SeqNum, mut gone: impl FnMut(&Record, u32)) {
        while let Some(&record) = self.records.front() {
            let whole = record.end <= una;
            let bytes = distance(self.una, if whole { record.end } else { una });
            if bytes > 0 {
                *self.counter(record.fate) -= bytes;
                gone(&record, bytes);
            }
            let before = self.una;
            self.una = if whole { record.end } else { una };
            if record.fate == Fate::Sacked {
                let left = if whole { 0 } else { record.segments(una) };
                self.losses().sacked_segments -= record.segments(before) - left;
            }
            if !whole {
                break;
            }
            if record.is_unanswered() {
                self.losses().unanswered -= 1;
            }
            self.records.pop_front();
        }
        self.una = una;
    }

    /// Whether nothing is under way and memory is held that an idle connection does not need.
    #[inline]
    pub fn holds_spare(&self) -> bool {
        self.records.is_empty() && (self.records.capacity() > 0 || self.losses.is_some())
    }

    /// Gives it back.
    pub fn trim(&mut self) {
        if self.records.is_empty() {
            self.records = VecDeque::new();
            self.losses = None;
        }
    }

    /// Nothing is under way any more.
    pub fn forget(&mut self) {
        *self = Self::new(self.una);
    }

    fn losses(&mut self) -> &mut Losses {
        let una = self.una;
        self.losses
            .get_or_insert_with(|| Box::new(Losses::new(una)))
    }

    /// The index of the record that holds `seq`; the number of records if none does.
    fn index_of(&self, seq: SeqNum) -> usize {
        // What is lost is mostly the first that is under way, and what is sacked lies behind it.
        let holds = |index| self.records.get(index).is_none_or(|r: &Record| r.end > seq);
        if holds(0) {
            return 0;
        }
        if holds(1) {
            return 1;
        }
        self.index_among_many(seq)
    }

    #[inline(never)]
    fn index_among_many(&self, seq: SeqNum) -> usize {
        self.records.partition_point(|record| record.end <= seq)
    }

    /// Makes a record begin at `seq`, if one holds it; its index.
    fn split(&mut self, seq: SeqNum) -> usize {
        let index = self.index_of(seq);
        let start = self.start(index);
        let Some(&record) = self.records.get(index).filter(|_| start < seq) else {
            return index;
        };
        if record.fate == Fate::Sacked {
            let whole = record.segments(start);
            let parts = Record { end: seq, ..record }.segments(start) + record.segments(seq);
            self.losses().sacked_segments += parts - whole;
        }
        if record.is_unanswered() {
            self.losses().unanswered += 1;
        }
        self.records.insert(index, Record { end: seq, ..record });
        if record.fate == Fate::Lost {
            self.losses().lose(seq);
        } else if record.is_unanswered() {
            self.losses().resend(seq, record.sent_us);
        }
        index + 1
    }

    /// What becomes of the record that begins at `start`.
    #[inline]
    fn set_fate(&mut self, index: usize, start: SeqNum, fate: Fate) {
        self.visit();
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        let before = core::mem::replace(&mut record.fate, fate);
        let record = *record;
        let bytes = distance(start, record.end);
        let again = u32::from(record.is_retransmission());
        *self.counter(before) -= bytes;
        *self.counter(fate) += bytes;
        if before == Fate::Sacked {
            let segments = record.segments(start);
            let losses = self.losses();
            losses.sacked_segments -= segments;
            losses.unanswered += again;
        }
        if fate == Fate::Sacked {
            let segments = record.segments(start);
            let losses = self.losses();
            losses.sacked_segments += segments;
            losses.unanswered -= again;
        }
        if fate == Fate::Lost {
            self.losses().lose(start);
        }
    }

    /// Takes what is older than can be told for as old as can be.
    pub fn limit_ages(&mut self, now_us: u32) {
        for record in &mut self.records {
            record.sent_us = not_too_old(record.sent_us, now_us);
            record.first_sent_us = not_too_old(record.first_sent_us, now_us);
            record.delivered_us = not_too_old(record.delivered_us, now_us);
        }
        if let Some(losses) = &mut self.losses {
            losses.limit_ages(now_us);
        }
    }

    /// What all records together must be.
    pub fn check(&self, una: SeqNum, nxt: SeqNum) {
        let mut sums = [0_u32; 3];
        let (mut segments, mut unanswered) = (0, 0);
        let mut end = una;
        let mut was_sacked = false;
        for (start, record) in self.iter() {
            assert!(record.end > start, "an empty record: {self:?}");
            sums[record.fate as usize] += distance(start, record.end);
            let is_sacked = record.fate == Fate::Sacked;
            assert!(!(was_sacked && is_sacked), "not joined: {self:?}");
            was_sacked = is_sacked;
            if is_sacked {
                segments += record.segments(start);
            }
            unanswered += u32::from(record.is_unanswered());
            end = record.end;
        }
        assert_eq!(end, nxt, "records end at SND.NXT: {self:?}");
        assert_eq!(sums, [self.in_flight, self.sacked, self.lost], "{self:?}");
        assert_eq!(segments, self.sacked_segments(), "{self:?}");
        assert_eq!(unanswered, self.sent_again(), "{self:?}");
    }
}
