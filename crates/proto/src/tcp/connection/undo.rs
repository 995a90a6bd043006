//! Reductions that were for nothing are taken back; `tcp::undo` has what is kept for that.

use super::Connection;
use crate::tcp::congestion::Phase;
use crate::tcp::delivery::Delivery;
use crate::tcp::timer::Waiting;
use crate::tcp::undo::Frto;
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::Header;

impl Connection {
    /// Takes the reduction back if this acknowledgment shows that there was no reason for it.
    pub(super) fn try_undo(&mut self, header: &Header, delivery: &Delivery, now: Instant) -> bool {
        let echo = header.options.timestamps.filter(|_| self.timestamps);
        let echo = echo.map(|ts| ts.echo).filter(|&echo| echo != 0);
        let undo = &self.cold.undo;
        let by_frto = self.recovery.phase == Phase::Loss
            && self.recovery.frto != Frto::Off
            && delivery.original
            // Without SACK the peer may have had it since before the timeout, behind the gap that is closed now.
            && (self.sack || !delivery.resent);
        let spurious = (delivery.dsack && undo.by_dsack())
            || (delivery.acked > 0 && self.recovery.is_repairing() && undo.by_timestamp(echo))
            || (by_frto && undo.is_armed);
        if spurious {
            self.undo(now);
        }
        spurious
    }

    fn undo(&mut self, now: Instant) {
        let undo = self.cold.undo;
        let window = &mut self.congestion.window;
        window.cwnd = window.cwnd.max(undo.cwnd);
        window.ssthresh = window.ssthresh.max(undo.ssthresh);
        self.congestion.undone();
        self.sent.revive();
        self.cold.undo.disarm();
        self.recovery.frto = Frto::Off;
        self.recovery.phase = Phase::Open;
        self.recovery.duplicates = 0;
        self.recovery.waiting = Waiting::TailProbe;
        // What is taken for lost now and turns up later was reordered (RFC 8985 §6.2, step 3).
        self.recovery.rack.reordering_seen = true;
        self.rtt.end_back_off();
        self.cold.undos = self.cold.undos.saturating_add(1);
        self.arm_retransmit(now);
        self.pending.set(Pending::SEND);
    }

    /// Whether new text goes before what seems lost (RFC 5682 §3.1, step 2b).
    #[inline]
    pub(super) fn tests_timeout(&self) -> bool {
        self.recovery.frto == Frto::NewText
    }

    /// No new text can be sent: unless some was, the test ends, and what seems lost is next.
    pub(super) fn gives_up_test(&mut self) -> bool {
        let gives_up = self.tests_timeout() && self.snd.nxt <= self.recovery.recover;
        if gives_up {
            self.recovery.frto = Frto::Off;
        }
        gives_up
    }

    /// F-RTO, steps 2 and 3 of RFC 5682 §3.1, for an acknowledgment in a timeout's recovery that did not undo it.
    pub(in crate::tcp) fn step_frto(&mut self, delivery: &Delivery) {
        match self.recovery.frto {
            Frto::Off => {}
            // Step 3a: nothing but what was sent again has arrived, although new text followed: the loss was real.
            Frto::NewText => {
                if delivery.acked > 0 || delivery.news || delivery.duplicate {
                    self.recovery.frto = Frto::Off;
                }
            }
            Frto::Resent if delivery.acked > 0 && self.snd.una < self.recovery.recover => {
                self.recovery.recover = self.snd.nxt;
                let text = self.snd.nxt < self.snd.end;
                let room = self.snd.una + self.snd.wnd > self.snd.nxt;
                self.recovery.frto = if text && room {
                    Frto::NewText
                } else {
                    Frto::Off
                };
            }
            Frto::Resent => self.recovery.frto = Frto::Off,
        }
    }
}
