//! What must hold of a connection at any time, and of its queues; asserted by the tests, and by builds that check themselves.

use super::Connection;
use crate::tcp::types::State;
use crate::time::Instant;

impl Connection {
    /// Panics if what its owner keeps for it is not what it believes: `queued` bytes to send or to be acknowledged, `readable` ones in order.
    pub fn check_queues(&self, queued: usize, readable: u32) {
        if self.state == State::Closed {
            return;
        }
        // The SYN has the place before the first byte, the FIN the one after the last.
        let first = if self.snd.una == self.iss {
            self.iss + 1
        } else {
            self.snd.una
        };
        let believed = usize::try_from(self.snd.end - first).unwrap_or(0);
        assert_eq!(queued, believed, "send queue: {self:?}");
        assert_eq!(readable, self.unread, "receive queue: {self:?}");
    }

    /// Panics if an invariant does not hold.
    pub fn check(&self) {
        if self.state == State::Closed {
            assert_eq!(
                self.deadline(),
                Instant::FAR,
                "a closed connection has no timer"
            );
            return;
        }
        assert!(self.snd.una <= self.snd.nxt, "SND.UNA <= SND.NXT: {self:?}");
        assert!(
            self.snd.nxt <= self.snd.end + 1,
            "nothing beyond the FIN is sent: {self:?}"
        );
        assert!(
            self.fin_queued || self.snd.nxt <= self.snd.end || self.snd.nxt == self.iss,
            "no FIN that was not asked for: {self:?}"
        );
        assert!(self.snd.mss >= 12, "{self:?}");
        assert!(
            self.congestion.window.cwnd >= u32::from(self.snd.mss)
                || self.congestion.window.cwnd == 0
        );
        assert!(self.congestion.window.cwnd <= 1 << 30);
        if self.state != State::SynSent {
            assert!(
                self.rcv.nxt <= self.rcv.edge,
                "RCV.NXT within the window: {self:?}"
            );
            assert!(self.last_ack_sent <= self.rcv.nxt);
            if self.peer_fin_known {
                assert!(self.rcv.nxt <= self.peer_fin + 1);
            }
        }
        let front = self.sent.front().map(|record| record.fate);
        assert_ne!(
            front,
            Some(crate::tcp::sent::Fate::Sacked),
            "reneging: {self:?}"
        );
        // Not each time: it goes through all records.
        let counted = self.counters.segments_in ^ self.counters.segments_out;
        if self.state.is_synchronized() && counted.is_multiple_of(8) {
            self.sent.check(self.snd.una, self.snd.nxt);
        }
        self.check_timers();
    }

    /// Nothing waits for ever: with something to send or outstanding, a timer runs or output is
    /// pending.
    fn check_timers(&self) {
        let outstanding = self.snd.una != self.snd.nxt;
        let waiting =
            self.snd.end > self.snd.nxt || (self.fin_queued && self.snd.nxt == self.snd.end);
        let open = self.state.is_synchronized() && self.state != State::TimeWait;
        let paced = !outstanding && self.timers.pacing != Instant::FAR;
        if open && (outstanding || (waiting && !self.corked)) && self.pending.0 == 0 && !paced {
            assert_ne!(self.timers.retransmit, Instant::FAR, "stuck: {self:?}");
        }
        if open && waiting && !outstanding && self.pending.0 == 0 && !paced && !self.probing {
            assert_ne!(self.timers.early, Instant::FAR, "corked for ever: {self:?}");
        }
        if open && self.last_ack_sent != self.rcv.nxt && self.pending.0 == 0 {
            assert_ne!(
                self.timers.delayed_ack,
                Instant::FAR,
                "no acknowledgment: {self:?}"
            );
        }
    }
}
