//! What is lost: found among the records, reported, sent again, or alive after all. With each acknowledgment few records are looked at.

use super::{Fate, Record, Sent, Traits, distance};
use crate::wire::tcp::SeqNum;

/// Most records looked at for what an acknowledgment says of others than those it reports: what is left waits for the next, or for a moment.
const VISITS_MAX: u32 = 128;
/// Of records that the peer may have dropped, those looked at: what losses are found beside has its own share of the work.
const RENEGED_MAX: usize = 32;
/// Of segments that wait out the reordering window, those whose time is looked at.
const WAITING_MAX: u32 = 32;
impl Sent {
    /// Takes each record under way that begins below `to` and that `is_lost` for lost; `lost` observes each, with its bytes.
    pub fn condemn(
        &mut self,
        to: SeqNum,
        mut is_lost: impl FnMut(SeqNum, &Record) -> bool,
        mut lost: impl FnMut(&Record, u32),
    ) {
        if self.is_plain() {
            self.losses().judged = self.una;
        }
        let mut start = self.una;
        for index in 0..self.records.len() {
            let Some(&record) = self.records.get(index).filter(|_| start < to) else {
                return;
            };
            if record.fate == Fate::InFlight && is_lost(start, &record) {
                self.set_fate(index, start, Fate::Lost);
                lost(&record, distance(start, record.end));
            }
            start = record.end;
        }
    }

    /// Takes each record under way for lost of which `remaining` says that no time is left to it; `None`: it left after what has arrived.
    /// Those sent once are in the order of time, those sent again in another row. How long the others that wait have to wait at most, and
    /// whether some were not looked at.
    pub fn condemn_late(
        &mut self,
        remaining: impl Fn(&Record) -> Option<u32>,
        mut lost: impl FnMut(&Record, u32),
    ) -> (u32, bool) {
        let end = self.records.back().map_or(self.una, |r| r.end);
        let mut judged = self.losses().judged;
        if judged < self.una || judged > end {
            judged = self.una;
        }
        let mut index = self.index_of(judged);
        let mut start = self.start(index);
        let (mut wait, mut waiting, mut visits) = (0, 0, VISITS_MAX);
        while let Some(&record) = self.records.get(index) {
            if visits == 0 || waiting == WAITING_MAX {
                break;
            }
            visits -= 1;
            self.visit();
            if record.is_original() {
                match remaining(&record) {
                    None => break,
                    Some(0) if waiting == 0 => {
                        self.set_fate(index, start, Fate::Lost);
                        lost(&record, distance(start, record.end));
                    }
                    Some(left) => {
                        wait = wait.max(left);
                        waiting += 1;
                    }
                }
            }
            if waiting == 0 {
                judged = record.end;
            } else {
                waiting += u32::from(!record.is_original());
            }
            start = record.end;
            index += 1;
        }
        self.losses().judged = judged;
        let (again, more) = self.condemn_late_again(visits, remaining, lost);
        (wait.max(again), more || (visits == 0 && waiting == 0))
    }

    /// Condemns what was sent again and is late.
    fn condemn_late_again(
        &mut self,
        most: u32,
        remaining: impl Fn(&Record) -> Option<u32>,
        mut lost: impl FnMut(&Record, u32),
    ) -> (u32, bool) {
        let (mut wait, mut waits) = (0, 0);
        for _ in 0..most {
            let Some((end, sent_us)) = self.losses.as_ref().and_then(|l| l.resent(waits)) else {
                return (wait, false);
            };
            self.visit();
            let index = self.index_of(end - 1);
            let is_it = |r: &&Record| (r.end, r.sent_us, r.fate) == (end, sent_us, Fate::InFlight);
            let Some(&record) = self.records.get(index).filter(is_it) else {
                self.losses().forget(waits);
                continue;
            };
            match remaining(&record) {
                None => return (wait, false),
                Some(0) => {
                    let start = self.start(index);
                    self.losses().forget(waits);
                    self.set_fate(index, start, Fate::Lost);
                    lost(&record, distance(start, record.end));
                }
                Some(left) => {
                    wait = wait.max(left);
                    waits += 1;
                }
            }
        }
        (wait, wait == 0)
    }

    /// The first `bytes` of what is under way are lost, whatever the records say: without SACK no more is known.
    pub fn condemn_front(&mut self, bytes: u32, lost: impl FnMut(&Record, u32)) {
        let to = self.una + bytes;
        self.split(to);
        self.condemn(to, |_, _| true, lost);
    }

    /// The peer dropped what it had sacked (RFC 2018 §8): all of that is lost. Of many records only the first are looked at: what is left is
    /// found out when SND.UNA stands before it.
    pub fn renege(&mut self) {
        let mut start = self.una;
        for index in 0..self.records.len().min(RENEGED_MAX) {
            self.visit();
            let Some(record) = self.records.get(index) else {
                return;
            };
            let (end, fate) = (record.end, record.fate);
            if fate == Fate::Sacked {
                self.set_fate(index, start, Fate::Lost);
            }
            start = end;
        }
    }

    /// Nothing was lost after all.
    pub fn revive(&mut self) {
        while let Some((index, start)) = self.first_lost() {
            self.set_fate(index, start, Fate::InFlight);
            let Some(&record) = self.records.get(index) else {
                return;
            };
            if record.is_retransmission() {
                self.losses().resend(record.end, record.sent_us);
            } else {
                self.losses().judge_from(start);
            }
        }
    }

    /// The index of the first lost record, and where it begins.
    #[inline]
    fn first_lost(&mut self) -> Option<(usize, SeqNum)> {
        while self.lost > 0 {
            let lost = self.losses.as_ref()?.first()?;
            let at = if lost < self.una { self.una } else { lost };
            self.visit();
            let index = self.index_of(at);
            let is_there = |r: &&Record| r.fate == Fate::Lost && self.start(index) == at;
            if self.records.get(index).filter(is_there).is_some() {
                return Some((index, at));
            }
            self.losses().forget_first();
        }
        if let Some(losses) = &mut self.losses {
            losses.forget_all();
        }
        None
    }

    /// The first that is lost: its first sequence number and its end. Records that are lost one behind the other are reported together up to
    /// `full` bytes, or more.
    pub fn next_lost(&mut self, full: u32) -> Option<(SeqNum, SeqNum)> {
        let (index, start) = self.first_lost()?;
        let (mut end, mut next) = (start, index);
        while distance(start, end) < full
            && let Some(record) = self.records.get(next)
            && record.fate == Fate::Lost
        {
            self.visit();
            end = record.end;
            next += 1;
        }
        Some((start, end))
    }

    /// What lies between `start` and `end` was sent again in one segment, as `fresh` says. One record is left of it; what is sacked ends it.
    pub fn resent(&mut self, start: SeqNum, end: SeqNum, fresh: Record) {
        let mut first = self.index_of(start);
        let is_one = |r: &Record| r.end == end && self.start(first) == start;
        if !self.records.get(first).is_some_and(is_one) {
            self.split(end);
            first = self.split(start);
        }
        let (mut last, mut at) = (first, start);
        while let Some(&record) = self.records.get(last).filter(|_| at < end) {
            if record.fate == Fate::Sacked && last > first {
                break;
            }
            self.set_fate(last, at, Fate::InFlight);
            self.losses().unanswered -= u32::from(record.is_retransmission());
            at = record.end;
            last += 1;
        }
        if last == first {
            return;
        }
        if last - first > 1 {
            self.records.drain(first..last - 1);
        }
        if let Some(record) = self.records.get_mut(first) {
            let traits = fresh.traits.and(Traits::AGAIN);
            *record = Record {
                end: at,
                traits,
                ..fresh
            };
            let records = self.records.len();
            let losses = self.losses();
            losses.unanswered += 1;
            losses.resend(at, fresh.sent_us);
            losses.limit(records);
        }
    }
}
