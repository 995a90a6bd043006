//! What is known of records that are sacked, lost or were sent again: where to look for them without going through all that is under way.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::not_too_old;
use crate::tcp::image::imaged;
use crate::wire::tcp::SeqNum;

/// Of one connection, once there are any. Either list may name what is no longer so: the records know.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Losses {
    /// Segments that are sacked. No two records are that lie side by side: they are joined.
    pub sacked_segments: u32,
    /// Records that were sent more than once and are not sacked.
    pub unanswered: u32,
    /// No record begins below that is under way and was sent once.
    pub judged: SeqNum,
    /// Where lost records begin, in order.
    lost: VecDeque<SeqNum>,
    /// What was sent again: where it ends, and when it left, in the order of time.
    again: VecDeque<(SeqNum, u32)>,
}

impl Losses {
    /// Of records that begin at `una`.
    pub const fn new(una: SeqNum) -> Self {
        Self {
            sacked_segments: 0,
            unanswered: 0,
            judged: una,
            lost: VecDeque::new(),
            again: VecDeque::new(),
        }
    }

    /// What begins at `start` is under way after all.
    pub fn judge_from(&mut self, start: SeqNum) {
        if start < self.judged {
            self.judged = start;
        }
    }

    /// Bytes of heap.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.lost.capacity() * size_of::<SeqNum>()
            + self.again.capacity() * size_of::<(SeqNum, u32)>()
    }

    /// What begins at `start` is lost.
    pub fn lose(&mut self, start: SeqNum) {
        if self.lost.back().is_none_or(|&last| last < start) {
            return self.lost.push_back(start);
        }
        let at = self.lost.partition_point(|&lost| lost < start);
        if self.lost.get(at) != Some(&start) {
            self.lost.insert(at, start);
        }
    }

    /// Where the first begins that may be lost.
    pub fn first(&self) -> Option<SeqNum> {
        self.lost.front().copied()
    }

    /// Forgets the first, which is not lost, or no longer.
    pub fn forget_first(&mut self) {
        self.lost.pop_front();
    }

    /// Nothing is lost.
    pub fn forget_all(&mut self) {
        self.lost.clear();
    }

    /// What ends at `end` was sent again at `sent_us`, which is nearly always later than all others.
    pub fn resend(&mut self, end: SeqNum, sent_us: u32) {
        let later = |&(_, other): &(SeqNum, u32)| other.wrapping_sub(sent_us).cast_signed() > 0;
        if self.again.back().is_some_and(later) {
            let at = self.again.partition_point(|other| !later(other));
            self.again.insert(at, (end, sent_us));
        } else {
            self.again.push_back((end, sent_us));
        }
    }

    /// The one at `index` of those that may have been sent again.
    pub fn resent(&self, index: usize) -> Option<(SeqNum, u32)> {
        self.again.get(index).copied()
    }

    /// Forgets one that has arrived, is lost, or was sent once more.
    pub fn forget(&mut self, index: usize) {
        self.again.remove(index);
    }

    /// Of `records` no more can be meant: the oldest are forgotten, of which the timeout takes care should they still be under way.
    pub fn limit(&mut self, records: usize) {
        let most = 2 * records + 64;
        if self.again.len() > most {
            self.again.drain(..most / 2);
        }
    }

    /// Takes what is older than can be told for as old as can be.
    pub fn limit_ages(&mut self, now_us: u32) {
        for (_, sent_us) in &mut self.again {
            *sent_us = not_too_old(*sent_us, now_us);
        }
    }
}

imaged! {
    /// [`Losses`] as plain data.
    pub(in crate::tcp) struct LossesImage of Losses {
        sacked_segments: u32,
        unanswered: u32,
        judged: SeqNum,
        lost: Vec<SeqNum> as list,
        again: Vec<(SeqNum, u32)> as micros_list,
    }
}

impl Losses {
    /// Segments that are sacked, and records sent again.
    pub const fn counts(&self) -> (u32, u32) {
        (self.sacked_segments, self.unanswered)
    }

    /// Whether the lists are in order, and name all of `lost`; what is acknowledged in part, up to `una`, they name by its former beginning.
    pub fn is_sound(&self, una: SeqNum, lost: &[SeqNum]) -> bool {
        let later = |pair: &[(SeqNum, u32); 2]| {
            let [(_, a), (_, b)] = pair;
            b.wrapping_sub(*a).cast_signed() >= 0
        };
        let again = self.again.iter().copied();
        let in_time = again
            .clone()
            .zip(again.skip(1))
            .all(|(a, b)| later(&[a, b]));
        let in_part = self.lost.front().is_some_and(|first| *first <= una);
        let named = |start: &SeqNum| {
            let at = self.lost.partition_point(|lost| lost < start);
            self.lost.get(at) == Some(start) || (*start == una && in_part)
        };
        self.lost.iter().is_sorted() && in_time && lost.iter().all(named)
    }
}

#[cfg(test)]
mod tests;
