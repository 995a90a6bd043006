//! What must hold of a connection at any time, and of a receive queue; asserted by the tests.

use super::connection::Connection;
use super::types::State;
use crate::time::Instant;

impl Connection {
    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        if self.state == State::Closed {
            assert_eq!(self.deadline(), Instant::FAR, "a closed connection has no timer");
            return;
        }
        assert!(self.snd_una <= self.snd_nxt, "SND.UNA <= SND.NXT: {self:?}");
        assert!(self.snd_nxt <= self.snd_max, "SND.NXT <= SND.MAX: {self:?}");
        assert!(self.snd_max <= self.snd_end + 1, "nothing beyond the FIN is sent: {self:?}");
        assert!(
            self.fin_queued || self.snd_max <= self.snd_end || self.snd_max == self.iss,
            "no FIN that nobody asked for: {self:?}"
        );
        assert!(self.snd_mss >= 12, "{self:?}");
        assert!(self.congestion.cwnd >= u32::from(self.snd_mss) || self.congestion.cwnd == 0);
        assert!(self.congestion.cwnd <= 1 << 30);
        if self.state != State::SynSent {
            assert!(self.rcv_nxt <= self.rcv_edge, "RCV.NXT within the window: {self:?}");
            assert!(self.last_ack_sent <= self.rcv_nxt);
            if self.peer_fin_known {
                assert!(self.rcv_nxt <= self.peer_fin + 1);
            }
        }
        let mut last = self.snd_una;
        for &(left, right) in self.scoreboard.ranges() {
            assert!(left >= last && left < right && right <= self.snd_max, "{self:?}");
            last = right + 1;
        }
        self.check_timers();
    }

    /// Nothing waits for ever: with something to send or outstanding, a timer runs or output is
    /// pending.
    fn check_timers(&self) {
        let outstanding = self.snd_una != self.snd_max;
        let waiting = self.snd_end > self.snd_nxt || (self.fin_queued && self.snd_nxt == self.snd_end);
        let open = self.state.is_synchronized() && self.state != State::TimeWait;
        if open && (outstanding || (waiting && !self.corked)) && self.pending.0 == 0 {
            assert_ne!(self.timers.retransmit, Instant::FAR, "stuck: {self:?}");
        }
        if open && self.last_ack_sent != self.rcv_nxt && self.pending.0 == 0 {
            assert_ne!(self.timers.delayed_ack, Instant::FAR, "no acknowledgment: {self:?}");
        }
    }
}
