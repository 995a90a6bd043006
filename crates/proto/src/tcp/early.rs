//! Losses noticed before the retransmission timeout, with SACK only: a probe when the tail of a
//! flight is silent, recovery when too little follows a gap for three duplicates, and the
//! retransmission that was lost itself. After RFC 8985, without its clock for every segment.

use super::connection::{Connection, Pending};
use crate::time::Instant;

/// What the retransmission timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The timeout of RFC 6298.
    Timeout,
    /// Silence: time for a tail loss probe (RFC 8985 §7.2).
    TailProbe,
    /// A gap that reordering should have filled by then (RFC 8985 §6.2, step 5).
    Reordering,
}

/// What a timer and the peer's scheduling may add to a round trip, in microseconds.
const SLACK_US: u64 = 1_000;
/// How long a peer may delay the acknowledgment of a single segment, in microseconds.
const DELAYED_ACK_US: u64 = 50_000;

impl Connection {
    /// What to wait for, and how many microseconds. `None`: the timeout only.
    pub(super) fn early_wait(&self) -> Option<(Waiting, u64)> {
        let srtt = u64::from(self.rtt.srtt_us);
        let retransmitting = self.attempts > 0 || self.recovery.is_timeout();
        if !self.sack || srtt == 0 || retransmitting || self.probing {
            return None;
        }
        if !self.recovery.active() && !self.scoreboard.is_empty() {
            return Some((Waiting::Reordering, srtt / 4 + SLACK_US));
        }
        if self.recovery.probed {
            return None;
        }
        let spread = srtt + 4 * u64::from(self.rtt.rttvar_us);
        let mut wait = (2 * srtt).max(spread) + SLACK_US;
        if (self.snd.max - self.snd.una).unsigned_abs() <= u32::from(self.snd.mss) {
            wait += DELAYED_ACK_US;
        }
        Some((Waiting::TailProbe, wait))
    }

    /// One of the two came due.
    pub(super) fn on_early_timer(&mut self, waiting: Waiting, now: Instant) {
        match waiting {
            Waiting::Reordering => self.enter_recovery(true, now),
            _ if self.recovery.is_fast() => {
                self.recovery.probed = true;
                self.head_is_lost_again();
                self.arm_retransmit(now);
            }
            _ => {
                self.recovery.probed = true;
                self.recovery.probe_end = self.snd.max;
                self.pending.set(Pending::TAIL);
                self.arm_retransmit(now);
            }
        }
    }

    /// News by SACK. After a tail loss probe, or with enough of what was sent after the first
    /// gap's retransmission, they tell of a loss that duplicates alone do not show.
    pub(super) fn note_early_loss(&mut self, now: Instant) {
        if !self.recovery.active() {
            if self.recovery.probed {
                self.enter_recovery(true, now);
            } else {
                self.arm_retransmit(now);
            }
            return;
        }
        let mark = self.recovery.head_mark;
        if self.recovery.is_fast()
            && self.recovery.retransmitted_beyond(self.snd.una)
            && self.scoreboard.sacked_within(mark, self.snd.max) > 2 * u32::from(self.snd.mss)
        {
            self.head_is_lost_again();
        }
    }

    /// The retransmission of the first gap was lost too: once more, at half the rate (RFC 5681
    /// §4.3: a second indication of congestion).
    fn head_is_lost_again(&mut self) {
        self.congestion
            .enter_recovery(self.pipe(), u32::from(self.snd.mss));
        self.recovery.head_again = true;
        self.recovery.head_mark = self.snd.max;
        self.pending.set(Pending::SEND);
    }
}
