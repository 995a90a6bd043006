//! Loss recovery: when to enter and leave it, how much is in flight meanwhile, and what to send
//! again (RFC 5681 §3.2, RFC 6582 NewReno, guided by SACK as in RFC 6675).

use super::connection::{Connection, Pending};
use super::early::Waiting;
use super::scoreboard::DUPLICATE_THRESHOLD;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Entered by duplicate acknowledgments.
    Fast,
    /// Entered by the retransmission timer: SND.NXT went back.
    Timeout,
}

/// Where recovery stands.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Recovery {
    phase: Phase,
    /// The first segment not acknowledged counts as lost, whatever SACK says.
    head_lost: bool,
    /// The first retransmission goes out whatever is in flight (RFC 6675 §5, step 4.3).
    unlimited: bool,
    /// The retransmission of the first gap was lost: send it once more.
    pub head_again: bool,
    /// A tail loss probe went out (up to `probe_end`), or its like in recovery; once a flight.
    pub probed: bool,
    pub probe_end: SeqNum,
    /// What the retransmission timer waits for.
    pub waiting: Waiting,
    /// Duplicate acknowledgments in a row.
    pub duplicates: u16,
    /// SND.MAX when recovery began: it ends when that is acknowledged.
    recover: SeqNum,
    /// What lies below was sent again (RFC 6675 §2, HighRxt).
    retransmitted: SeqNum,
    /// What lies below counts as lost unless sacked, whatever follows it.
    lost_below: SeqNum,
    /// SND.MAX when the first gap was last sent again.
    pub head_mark: SeqNum,
}

impl Recovery {
    pub const fn new(iss: SeqNum) -> Self {
        Self {
            phase: Phase::Open,
            head_lost: false,
            unlimited: false,
            head_again: false,
            probed: false,
            probe_end: iss,
            waiting: Waiting::Timeout,
            duplicates: 0,
            recover: iss,
            retransmitted: iss,
            lost_below: iss,
            head_mark: iss,
        }
    }

    /// Whether something lost is being repaired.
    #[inline]
    pub const fn active(&self) -> bool {
        !matches!(self.phase, Phase::Open)
    }

    /// Whether nothing is lost and nothing hints at it.
    #[inline]
    pub const fn is_calm(&self) -> bool {
        matches!(self.phase, Phase::Open) && self.duplicates == 0 && !self.probed
    }

    /// Whether by fast retransmission.
    pub const fn is_fast(&self) -> bool {
        matches!(self.phase, Phase::Fast)
    }

    /// Whether by the retransmission timer.
    pub const fn is_timeout(&self) -> bool {
        matches!(self.phase, Phase::Timeout)
    }

    /// Whether what lies at `seq` was sent again.
    pub fn retransmitted_beyond(&self, seq: SeqNum) -> bool {
        self.retransmitted > seq
    }

    /// SND.NXT goes back to SND.UNA; until `max` is acknowledged, duplicate acknowledgments tell
    /// of what is being sent again.
    pub fn go_back(&mut self, max: SeqNum) {
        *self = Self {
            phase: Phase::Timeout,
            recover: max,
            ..Self::new(self.retransmitted)
        };
    }
}

impl Connection {
    /// Bytes in flight (RFC 6675 §4, pipe): sent, not acknowledged, not sacked, and not thought
    /// lost unless sent again. Without SACK every duplicate acknowledgment stands for a segment.
    pub(super) fn pipe(&self) -> u32 {
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        if self.scoreboard.is_empty() && self.recovery.duplicates == 0 && !self.recovery.is_fast() {
            return flight;
        }
        let arrived = if self.sack {
            self.scoreboard.sacked_within(self.snd.una, self.snd.nxt)
        } else {
            u32::from(self.recovery.duplicates).saturating_mul(u32::from(self.snd.mss))
        };
        flight
            .saturating_sub(arrived)
            .saturating_sub(self.lost_bytes())
    }

    /// Bytes thought lost and not sent again.
    fn lost_bytes(&self) -> u32 {
        let (from, to) = self.lost_range();
        if from >= to {
            return 0;
        }
        (to - from).unsigned_abs() - self.scoreboard.sacked_within(from, to)
    }

    /// Where lost bytes that were not sent again may be; empty outside of fast recovery.
    fn lost_range(&self) -> (SeqNum, SeqNum) {
        let una = self.snd.una;
        if !self.recovery.is_fast() {
            return (una, una);
        }
        let mss = u32::from(self.snd.mss);
        let mut mark = self.scoreboard.loss_mark(una, mss);
        if mark < self.recovery.lost_below {
            mark = self.recovery.lost_below;
        }
        if self.recovery.head_lost && mark < una + mss {
            mark = una + mss;
        }
        let end = if self.snd.max < mark {
            self.snd.max
        } else {
            mark
        };
        let sent = self.recovery.retransmitted;
        (if sent > una { sent } else { una }, end)
    }

    /// What to send again next: first byte and end, in sequence space.
    pub(super) fn next_loss(&self) -> Option<(SeqNum, SeqNum)> {
        if self.recovery.head_again {
            let (start, end) = self.scoreboard.next_gap(self.snd.una);
            return Some((start, end.unwrap_or(self.snd.max)));
        }
        let (from, mark) = self.lost_range();
        if from >= mark {
            return None;
        }
        let (start, end) = self.scoreboard.next_gap(from);
        if start >= mark {
            return None;
        }
        let mss = u32::from(self.snd.mss);
        if !self.recovery.unlimited && self.pipe().saturating_add(mss) > self.congestion.cwnd {
            return None;
        }
        Some((
            start,
            end.filter(|&end| end < self.snd.max)
                .unwrap_or(self.snd.max),
        ))
    }

    /// Bytes up to `end` were sent again, from `start`.
    pub(super) fn note_retransmitted(&mut self, start: SeqNum, end: SeqNum) {
        if !self.recovery.retransmitted_beyond(end) {
            self.recovery.retransmitted = end;
        }
        self.recovery.unlimited = false;
        self.recovery.head_again = false;
        if start == self.snd.una {
            self.recovery.head_mark = self.snd.max;
        }
    }

    /// A duplicate acknowledgment, or one with new SACK blocks.
    pub(super) fn on_duplicate_ack(&mut self, now: Instant) {
        if self.recovery.phase == Phase::Timeout {
            // They may tell of what was sent before the timer expired.
            return;
        }
        // More duplicates than segments in flight are lies (`negative 64`).
        let most = self.snd.max - self.snd.una;
        let most = most.max(0).unsigned_abs() / u32::from(self.snd.mss);
        if u32::from(self.recovery.duplicates) <= most {
            self.recovery.duplicates = self.recovery.duplicates.saturating_add(1);
        }
        if self.recovery.phase == Phase::Open && self.loss_is_likely() {
            self.enter_recovery(false, now);
        } else if self.sack {
            self.note_early_loss(now);
        }
    }

    fn loss_is_likely(&self) -> bool {
        let una = self.snd.una;
        let enough = self.recovery.duplicates >= DUPLICATE_THRESHOLD;
        if self.sack {
            enough || self.scoreboard.loss_mark(una, u32::from(self.snd.mss)) > una
        } else {
            // RFC 6582 §3.2, step 2: not for duplicates of what recovery sent twice.
            enough && una > self.recovery.recover
        }
    }

    /// Fast recovery begins. With `all`, whatever lies below something sacked counts as lost.
    pub(super) fn enter_recovery(&mut self, all: bool, now: Instant) {
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        self.congestion
            .enter_recovery(flight, u32::from(self.snd.mss));
        self.recovery.phase = Phase::Fast;
        self.recovery.head_lost = true;
        self.recovery.unlimited = true;
        self.recovery.recover = self.snd.max;
        self.recovery.retransmitted = self.snd.una;
        self.recovery.head_again = false;
        self.recovery.probed = false;
        self.recovery.lost_below = match self.scoreboard.ranges().last() {
            Some(&(left, _)) if all => left,
            _ => self.snd.una,
        };
        self.counters.recoveries = self.counters.recoveries.saturating_add(1);
        self.rtt.cancel();
        self.pending.set(Pending::SEND);
        self.arm_retransmit(now);
    }

    /// SND.UNA moved by `bytes` of sequence space; `flight` is what was in flight before.
    pub(super) fn on_progress(&mut self, bytes: u32, flight: u32) {
        let una = self.snd.una;
        let mss = u32::from(self.snd.mss);
        if !self.scoreboard.is_empty() {
            self.scoreboard.acknowledged(una);
        }
        if self.recovery.probed && (self.recovery.is_fast() || una >= self.recovery.probe_end) {
            self.recovery.probed = false;
        }
        match self.recovery.phase {
            Phase::Open => {
                self.recovery.duplicates = 0;
                self.recovery.recover = una - 1;
                self.congestion.acknowledged(bytes, flight, mss);
            }
            Phase::Timeout => {
                self.recovery.duplicates = 0;
                self.congestion.acknowledged(bytes, flight, mss);
                if una >= self.recovery.recover {
                    self.recovery.phase = Phase::Open;
                }
            }
            Phase::Fast if una >= self.recovery.recover => {
                let left = (self.snd.nxt - una).max(0).unsigned_abs();
                self.congestion.leave_recovery(left, mss);
                self.recovery.phase = Phase::Open;
                self.recovery.duplicates = 0;
                self.recovery.head_lost = false;
                self.recovery.unlimited = false;
                self.recovery.head_again = false;
            }
            Phase::Fast => self.on_partial_ack(bytes),
        }
    }

    /// RFC 6582 §3.2, step 3, partial acknowledgment: the next segment was lost too. With SACK the
    /// scoreboard says which, unless it has nothing more to say.
    fn on_partial_ack(&mut self, bytes: u32) {
        self.recovery.head_again = false;
        self.recovery.head_mark = self.snd.max;
        let segments = bytes / u32::from(self.snd.mss);
        let arrived = u16::try_from(segments.saturating_sub(1)).unwrap_or(u16::MAX);
        self.recovery.duplicates = self.recovery.duplicates.saturating_sub(arrived);
        self.recovery.head_lost = !self.sack || self.scoreboard.is_empty();
        if self.recovery.head_lost && self.recovery.retransmitted <= self.snd.una {
            self.recovery.unlimited = true;
        }
    }
}
