//! Zero-window probing (RFC 9293 §3.8.6.1): the persist timer asks a peer whether its window has opened.

use super::Connection;
use super::output::{Hold, Stretch};
use crate::tcp::types::Transmit;
use crate::time::Instant;

impl Connection {
    /// RFC 9293 §3.8.6.1: the persist timer, first after a retransmission timeout (SHLD-29).
    pub(super) fn start_probing(&mut self, now: Instant) {
        if !self.probing {
            self.probing = true;
            self.attempts = 0;
            self.stalled_since = now;
            self.arm_retransmit(now);
        }
    }

    /// The window is open, or there is nothing to probe for. The persist timer becomes the retransmission timer of what is outstanding (RFC 6298
    /// §5.1), which may be lost, all of it, and wait for the pace.
    pub(in crate::tcp) fn stop_probing(&mut self, now: Instant) {
        self.probing = false;
        if self.sent.in_flight() > 0 && self.snd.wnd > 0 {
            self.send_again(); // what the probes carried was most likely refused
        }
        self.rtt.end_back_off();
        self.timers.retransmit = Instant::FAR;
        if self.snd.una != self.snd.nxt {
            self.arm_retransmit(now);
        }
    }

    /// A zero-window probe: one byte, or the FIN; or, where a small window was refused as silly,
    /// what it allows (the override of RFC 9293 §3.8.6.2.1).
    pub(in crate::tcp) fn probe(&self) -> Option<Stretch> {
        let start = self.snd.una;
        let text = (self.snd.end - start).max(0).unsigned_abs();
        let len = text.min(self.snd.wnd.max(1)).min(self.full_segment());
        let fin = self.fin_queued && text == 0 && start == self.snd.end;
        (len > 0 || fin).then_some(Stretch { start, len, fin })
    }

    /// Sends one. What it carries counts as sent, but moves no timer.
    pub(super) fn send_probe(&mut self, stretch: Stretch, now: Instant) -> Transmit {
        let transmit = self.transmit::<false>(stretch, now);
        self.note_retransmission(now);
        let end = stretch.end();
        if end > self.snd.nxt {
            let start = self.snd.nxt;
            if self.snd.una == start {
                self.recovery.rack.forget_newest();
            }
            self.record_new(start, end, self.full_segment(), false, now);
        } else {
            self.record_again(stretch.start, end, now);
        }
        transmit
    }

    /// Only a window update can help, and nothing in flight will bring one: probe for it.
    pub(super) fn hold_for_window(&self) -> Hold {
        if self.sent.in_flight() == 0 {
            Hold::Window
        } else {
            Hold::Wait
        }
    }
}
