//! What was sent and is not acknowledged: one record for each transmission, in the order of sequence numbers, and what became of it.
//!
//! The scoreboard of RFC 6675, the transmission times of RFC 8985 and the snapshots for delivery rates are all in the records.
//! A record begins where the one before it ends, the first at SND.UNA. Nothing here decides what is lost.

use alloc::collections::VecDeque;

use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// What became of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Under way, as far as anyone knows.
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
    pub fate: Fate,
    /// How often it was sent; stays at 255.
    pub transmissions: u8,
    /// The application was the limit when it was sent.
    pub app_limited: bool,
    /// It asks whether the path takes so much (RFC 4821): its loss is no congestion.
    pub probe: bool,
}

impl Record {
    /// Whether it was sent more than once.
    #[inline]
    pub const fn is_retransmission(&self) -> bool {
        self.transmissions > 1
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
    /// Records that are sacked.
    sacked_records: u32,
    /// No lost record begins below.
    lost_from: SeqNum,
}

/// Microseconds of `now`, modulo 2³²: for times that lie less than half an hour apart.
#[inline]
#[allow(clippy::cast_possible_truncation)] // wraps
pub(super) const fn micros_of(now: Instant) -> u32 {
    (now.0 / 1000) as u32
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

fn distance(from: SeqNum, to: SeqNum) -> u32 {
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
            sacked_records: 0,
            lost_from: una,
        }
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

    /// Records, at least segments, that are sacked.
    pub const fn sacked_records(&self) -> u32 {
        self.sacked_records
    }

    /// Bytes under way that were sent more than once.
    pub fn retransmitted(&self) -> u32 {
        self.iter()
            .filter(|(_, r)| r.fate == Fate::InFlight && r.is_retransmission())
            .map(|(start, r)| distance(start, r.end))
            .sum()
    }

    /// Segments sent more than once of which nobody has said that they arrived.
    pub fn sent_again(&self) -> u32 {
        let again = |r: &&Record| r.fate != Fate::Sacked && r.is_retransmission();
        u32::try_from(self.records.iter().filter(again).count()).unwrap_or(u32::MAX)
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
        self.records.capacity() * size_of::<Record>()
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
    #[inline]
    pub fn push(&mut self, start: SeqNum, record: Record) {
        if self.records.is_empty() {
            self.una = start;
        }
        self.in_flight += distance(start, record.end);
        self.records.push_back(record);
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
        let belongs = |record: &Record| {
            record.end <= una && record.fate == Fate::InFlight && record.transmissions == 1
        };
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

    /// SND.UNA is now `una`: `gone` is told of each record that is acknowledged, in whole or in part, with the bytes of it that are.
    pub fn acknowledge(&mut self, una: SeqNum, mut gone: impl FnMut(&Record, u32)) {
        while let Some(&record) = self.records.front() {
            let whole = record.end <= una;
            let bytes = distance(self.una, if whole { record.end } else { una });
            if bytes > 0 {
                *self.counter(record.fate) -= bytes;
                gone(&record, bytes);
            }
            if !whole {
                break;
            }
            self.sacked_records -= u32::from(record.fate == Fate::Sacked);
            self.una = record.end;
            self.records.pop_front();
        }
        self.una = una;
    }

    /// Whether nothing is under way and memory is held that an idle connection does not need.
    #[inline]
    pub fn holds_spare(&self) -> bool {
        self.records.is_empty() && self.records.capacity() > 0
    }

    /// Gives it back.
    pub fn trim(&mut self) {
        if self.records.is_empty() {
            self.records = VecDeque::new();
        }
    }

    /// The index of the record that holds `seq`; the number of records if none does.
    fn index_of(&self, seq: SeqNum) -> usize {
        self.records.partition_point(|record| record.end <= seq)
    }

    /// Makes a record begin at `seq`, if one holds it; its index.
    fn split(&mut self, seq: SeqNum) -> usize {
        let index = self.index_of(seq);
        let start = self.start(index);
        let Some(&record) = self.records.get(index).filter(|_| start < seq) else {
            return index;
        };
        self.sacked_records += u32::from(record.fate == Fate::Sacked);
        self.records.insert(index, Record { end: seq, ..record });
        index + 1
    }

    fn set_fate(&mut self, index: usize, fate: Fate) {
        self.set_fate_of(index, self.start(index), fate);
    }

    /// The same for who knows where the record begins.
    #[inline]
    fn set_fate_of(&mut self, index: usize, start: SeqNum, fate: Fate) {
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        let before = core::mem::replace(&mut record.fate, fate);
        let bytes = distance(start, record.end);
        *self.counter(before) -= bytes;
        *self.counter(fate) += bytes;
        self.sacked_records -= u32::from(before == Fate::Sacked);
        self.sacked_records += u32::from(fate == Fate::Sacked);
        if fate == Fate::Lost && start < self.lost_from {
            self.lost_from = start;
        }
    }

    /// The peer has `left..right`, which lies above SND.UNA and below SND.NXT: `told` hears of each record for which that is news.
    pub fn sack(&mut self, left: SeqNum, right: SeqNum, mut told: impl FnMut(&Record, u32)) {
        let mut index = self.index_of(left);
        let mut start = self.start(index);
        while let Some(&record) = self.records.get(index).filter(|_| start < right) {
            if record.fate != Fate::Sacked {
                if start < left {
                    index = self.split(left);
                    start = left;
                    continue;
                }
                if record.end > right {
                    self.split(right);
                    continue;
                }
                told(&record, distance(start, record.end));
                self.set_fate_of(index, start, Fate::Sacked);
            }
            start = record.end;
            index += 1;
        }
    }

    /// Takes each record under way that begins below `to` and that `is_lost` for lost; `lost` is told of each, with its bytes.
    pub fn condemn(
        &mut self,
        to: SeqNum,
        mut is_lost: impl FnMut(SeqNum, &Record) -> bool,
        mut lost: impl FnMut(&Record, u32),
    ) {
        let mut end = self.una;
        for record in &mut self.records {
            if end >= to {
                return;
            }
            let start = core::mem::replace(&mut end, record.end);
            if record.fate != Fate::InFlight || !is_lost(start, record) {
                continue;
            }
            record.fate = Fate::Lost;
            let bytes = distance(start, end);
            self.in_flight -= bytes;
            self.lost += bytes;
            if start < self.lost_from {
                self.lost_from = start;
            }
            lost(record, bytes);
        }
    }

    /// The first `bytes` of what is under way are lost, whatever the records say: without SACK nobody knows more.
    pub fn condemn_front(&mut self, bytes: u32, lost: impl FnMut(&Record, u32)) {
        let to = self.una + bytes;
        self.split(to);
        self.condemn(to, |_, _| true, lost);
    }

    /// Takes what is older than can be told for as old as can be.
    pub fn limit_ages(&mut self, now_us: u32) {
        for record in &mut self.records {
            record.sent_us = not_too_old(record.sent_us, now_us);
            record.first_sent_us = not_too_old(record.first_sent_us, now_us);
            record.delivered_us = not_too_old(record.delivered_us, now_us);
        }
    }

    /// The peer dropped what it had sacked (RFC 2018 §8): all of that is lost.
    pub fn renege(&mut self) {
        for index in 0..self.records.len() {
            if self
                .records
                .get(index)
                .is_some_and(|r| r.fate == Fate::Sacked)
            {
                self.set_fate(index, Fate::Lost);
            }
        }
    }

    /// Nothing was lost after all.
    pub fn revive(&mut self) {
        for index in 0..self.records.len() {
            if self
                .records
                .get(index)
                .is_some_and(|r| r.fate == Fate::Lost)
            {
                self.set_fate(index, Fate::InFlight);
            }
        }
    }

    /// The first lost record: its first sequence number and its end.
    pub fn next_lost(&mut self) -> Option<(SeqNum, SeqNum)> {
        if self.lost == 0 {
            return None;
        }
        let from = self.index_of(self.lost_from);
        let index = (from..self.records.len()).find(|&i| self.records[i].fate == Fate::Lost)?;
        let start = self.start(index);
        self.lost_from = start;
        Some((start, self.records[index].end))
    }

    /// The record that begins at `start` was sent again, up to `end`; `stamp` renews what it says of the time.
    pub fn resent(&mut self, start: SeqNum, end: SeqNum, stamp: impl FnOnce(&mut Record)) {
        self.split(end);
        let index = self.split(start);
        self.set_fate(index, Fate::InFlight);
        if let Some(record) = self.records.get_mut(index) {
            record.transmissions = record.transmissions.saturating_add(1);
            stamp(record);
        }
    }

    /// What all records together must be.
    pub fn check(&self, una: SeqNum, nxt: SeqNum) {
        let mut sums = [0_u32; 3];
        let mut sacked = 0;
        let mut end = una;
        for (start, record) in self.iter() {
            assert!(record.end > start, "an empty record: {self:?}");
            sums[record.fate as usize] += distance(start, record.end);
            sacked += u32::from(record.fate == Fate::Sacked);
            end = record.end;
        }
        assert_eq!(end, nxt, "records end at SND.NXT: {self:?}");
        assert_eq!(sums, [self.in_flight, self.sacked, self.lost], "{self:?}");
        assert_eq!(sacked, self.sacked_records, "{self:?}");
    }
}
