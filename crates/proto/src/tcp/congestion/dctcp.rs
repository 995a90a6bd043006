//! DCTCP (RFC 8257): the window is reduced by as much as the network marks, not by half for any mark.
//!
//! Only for networks that mark everywhere, at a low threshold, and carry nothing else (RFC 8257 §5).

use super::algorithm::{Ack, Algorithm, Cause, Window};
use super::reno::NewReno;
use crate::tcp::image::plain;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// One, as a fraction of marked bytes.
const ONE: u32 = 1 << 20;
/// RFC 8257 §3.3: g is 1/16.
const GAIN_SHIFT: u32 = 4;

/// What one connection's DCTCP knows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dctcp {
    /// DCTCP.Alpha, the fraction of bytes that were marked lately; of [`ONE`].
    alpha: u32,
    /// DCTCP.BytesAcked and DCTCP.BytesMarked of this window.
    delivered: u32,
    marked: u32,
    /// DCTCP.WindowEnd.
    window_end: SeqNum,
    /// Whether that is set.
    watching: bool,
    /// Growth and reaction to loss, as in Reno (§3.5).
    reno: NewReno,
}

impl Default for Dctcp {
    fn default() -> Self {
        Self {
            // §4.2: begin with one, and know nothing of losses to come.
            alpha: ONE,
            delivered: 0,
            marked: 0,
            window_end: SeqNum(0),
            watching: false,
            reno: NewReno::default(),
        }
    }
}

impl Dctcp {
    /// RFC 8257 §3.3, steps 4 to 7: at the end of a window, α = (1 - g) α + g M.
    fn end_window(&mut self, nxt: SeqNum) {
        if self.delivered > 0 {
            let marked = u64::from(self.marked.min(self.delivered)) * u64::from(ONE);
            let fraction = u32::try_from(marked / u64::from(self.delivered)).unwrap_or(ONE);
            // Rounded up, or a small fraction would stay for ever (§4.2).
            self.alpha -= self.alpha.div_ceil(1 << GAIN_SHIFT);
            self.alpha = (self.alpha + (fraction >> GAIN_SHIFT)).min(ONE);
        }
        self.delivered = 0;
        self.marked = 0;
        self.window_end = nxt;
        self.watching = true;
    }

    #[cfg(test)]
    pub fn alpha(&self) -> f64 {
        f64::from(self.alpha) / f64::from(ONE)
    }
}

impl Algorithm for Dctcp {
    fn on_open(&mut self, window: &mut Window, srtt_us: u32, now: Instant) {
        self.reno.on_open(window, srtt_us, now);
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        self.delivered = self.delivered.saturating_add(ack.delivered);
        self.marked = self.marked.saturating_add(ack.marked);
        if !self.watching || ack.una > self.window_end {
            self.end_window(ack.nxt);
        }
        self.reno.on_ack(window, ack);
    }

    fn reduce(&mut self, window: &Window, cause: Cause, in_flight: u32, now: Instant) -> u32 {
        match cause {
            Cause::Loss => self.reno.reduce(window, cause, in_flight, now),
            // §3.4, step 9: cwnd (1 - α / 2), for each window at most once, which the caller sees to.
            Cause::Ecn => {
                let cut = u64::from(window.cwnd) * u64::from(self.alpha) / (2 * u64::from(ONE));
                let cut = u32::try_from(cut).unwrap_or(window.cwnd);
                (window.cwnd - cut).max(window.mss.saturating_mul(2))
            }
        }
    }

    fn on_timeout(&mut self, window: &mut Window, first: bool, in_flight: u32, now: Instant) {
        self.reno.on_timeout(window, first, in_flight, now);
    }

    fn on_restart(&mut self, window: &mut Window, idle_us: u64, rto_us: u64, now: Instant) {
        self.reno.on_restart(window, idle_us, rto_us, now);
    }
    fn is_sound(&self) -> bool {
        self.alpha <= ONE
    }
}

plain!(Dctcp {
    alpha,
    delivered,
    marked,
    window_end,
    watching,
    reno
});
