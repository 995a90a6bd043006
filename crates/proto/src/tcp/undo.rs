//! Was it a loss at all? What is kept to take a reduction back when the peer's answers show that nothing was lost: D-SACK
//! (RFC 3708), timestamps (Eifel, RFC 3522, response RFC 4015) and F-RTO (RFC 5682).

use super::congestion::{Phase, Window};
use super::connection::{Connection, Pending};
use super::delivery::Delivery;
use super::timer::Waiting;
use crate::time::Instant;
use crate::wire::tcp::{Header, SeqNum};

/// What was reduced, and what was sent again since.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Undo {
    is_armed: bool,
    cwnd: u32,
    ssthresh: u32,
    /// SND.UNA at that time.
    from: SeqNum,
    /// Segments sent again that no D-SACK has shown to be superfluous.
    open: u32,
    /// Whether anything was sent again, and our timestamp clock when it first was.
    resent: bool,
    first_resent: u32,
}

/// F-RTO (RFC 5682 §3.1): where the test whether a timeout was spurious stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frto {
    /// No test, or it ended.
    Off,
    /// The first segment was sent again; the next acknowledgment decides (step 2).
    Resent,
    /// New text goes out in place of what seems lost (step 2b).
    NewText,
}

impl Undo {
    /// Nothing is to be taken back.
    pub const NONE: Self = Self {
        is_armed: false,
        cwnd: 0,
        ssthresh: 0,
        from: SeqNum(0),
        open: 0,
        resent: false,
        first_resent: 0,
    };

    /// A reduction begins, at `una`. Of what was sent again for an earlier one `open` segments are not acknowledged: their answers are no
    /// answers to originals, and D-SACKs may be about them.
    pub fn arm(&mut self, window: &Window, una: SeqNum, open: u32) {
        let earlier = open > 0 && self.resent;
        *self = Self {
            is_armed: true,
            cwnd: window.cwnd,
            ssthresh: window.ssthresh,
            open,
            resent: earlier,
            first_resent: if earlier { self.first_resent } else { 0 },
            from: una,
        };
    }

    /// The reduction is to stay.
    pub fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// Something was sent again, as our timestamp clock said `ts`.
    pub fn resent(&mut self, ts: u32) {
        self.open = self.open.saturating_add(1);
        if !self.resent {
            self.resent = true;
            self.first_resent = ts;
        }
    }

    /// A D-SACK for something that ends at `right`.
    pub fn on_dsack(&mut self, right: SeqNum) {
        if self.is_armed && right > self.from {
            self.open = self.open.saturating_sub(1);
        }
    }

    /// RFC 3708: everything that was sent again arrived twice.
    fn by_dsack(&self) -> bool {
        self.is_armed && self.resent && self.open == 0
    }

    /// RFC 3522: an acknowledgment of something new answers what was sent before the first retransmission.
    fn by_timestamp(&self, echo: Option<u32>) -> bool {
        let older = |echo: u32| echo.wrapping_sub(self.first_resent).cast_signed() < 0;
        self.is_armed && (!self.resent || echo.is_some_and(older))
    }
}

impl Connection {
    /// Takes the reduction back if this acknowledgment shows that there was no reason for it.
    pub(super) fn try_undo(&mut self, header: &Header, delivery: &Delivery, now: Instant) -> bool {
        let echo = header.options.timestamps.filter(|_| self.timestamps);
        let echo = echo.map(|ts| ts.echo).filter(|&echo| echo != 0);
        let undo = &self.seldom.undo;
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
        let undo = self.seldom.undo;
        let window = &mut self.congestion.window;
        window.cwnd = window.cwnd.max(undo.cwnd);
        window.ssthresh = window.ssthresh.max(undo.ssthresh);
        self.congestion.undone();
        self.sent.revive();
        self.seldom.undo.disarm();
        self.recovery.frto = Frto::Off;
        self.recovery.phase = Phase::Open;
        self.recovery.duplicates = 0;
        self.recovery.waiting = Waiting::TailProbe;
        // What is taken for lost now and turns up later was reordered (RFC 8985 §6.2, step 3).
        self.recovery.rack.reordering_seen = true;
        self.rtt.end_back_off();
        self.seldom.undos = self.seldom.undos.saturating_add(1);
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
    pub(super) fn step_frto(&mut self, delivery: &Delivery) {
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
