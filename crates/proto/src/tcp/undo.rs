//! Was it a loss at all? What is kept to take a reduction back when the peer's answers show that nothing was lost: D-SACK
//! (RFC 3708), timestamps (Eifel, RFC 3522, response RFC 4015) and F-RTO (RFC 5682).

use super::congestion::Window;
use super::image::plain;
use crate::wire::tcp::SeqNum;

/// What was reduced, and what was sent again since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Undo {
    pub is_armed: bool,
    pub cwnd: u32,
    pub ssthresh: u32,
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
    pub fn by_dsack(&self) -> bool {
        self.is_armed && self.resent && self.open == 0
    }

    /// RFC 3522: an acknowledgment of something new answers what was sent before the first retransmission.
    pub fn by_timestamp(&self, echo: Option<u32>) -> bool {
        let older = |echo: u32| echo.wrapping_sub(self.first_resent).cast_signed() < 0;
        self.is_armed && (!self.resent || echo.is_some_and(older))
    }
}

// `first_resent` is a timestamp, not a time.
plain!(Undo {
    is_armed,
    cwnd,
    ssthresh,
    from,
    open,
    resent,
    first_resent
});
