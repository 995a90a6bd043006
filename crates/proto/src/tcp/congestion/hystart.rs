//! HyStart++ (RFC 9406): slow start ends when round trips become longer, before the queue overflows.
//!
//! Rounds are told by sequence numbers. A delay that grows leads into conservative slow start, where the window grows a quarter as
//! fast; if the delay does not come back within five rounds, the window was found.

use super::algorithm::{Ack, Window};
use super::reno;
use crate::tcp::image::plain;
use crate::wire::tcp::SeqNum;

/// RFC 9406 §4.3: a delay grown by less says nothing ...
const RTT_THRESHOLD_MIN_US: u32 = 4_000;
/// ... grown by more says enough on any path ...
const RTT_THRESHOLD_MAX_US: u32 = 16_000;
/// ... and between the two it is this part of the round trip.
const RTT_DIVISOR: u32 = 8;
/// Measurements that a round needs before it is judged.
const SAMPLES: u8 = 8;
/// How much slower conservative slow start is.
const CSS_DIVISOR: u32 = 4;
/// Rounds of it before the window counts as found.
const CSS_ROUNDS: u8 = 5;
/// Nothing measured.
const NONE: u32 = u32::MAX;

/// What it remembers of this round and the last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HyStart {
    last_round_min_us: u32,
    this_round_min_us: u32,
    /// Least round trip when conservative slow start began.
    css_baseline_us: u32,
    /// The round ends when this is acknowledged.
    round_end: SeqNum,
    samples: u8,
    css_rounds: u8,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// No round has begun.
    New,
    /// Slow start, watched.
    Watching,
    /// Conservative slow start.
    Conservative,
    /// Over: it is for a connection's first slow start only (RFC 9406 §4.3).
    Off,
}

impl HyStart {
    pub const fn new() -> Self {
        Self {
            last_round_min_us: NONE,
            this_round_min_us: NONE,
            css_baseline_us: NONE,
            round_end: SeqNum(0),
            samples: 0,
            css_rounds: 0,
            mode: Mode::New,
        }
    }

    /// Congestion was met, by other ways: from now on slow start is what it always was.
    pub const fn stop(&mut self) {
        self.mode = Mode::Off;
    }

    /// An acknowledgment in slow start that may grow the window by what it acknowledged. Gives back the bytes that are left for
    /// congestion avoidance.
    #[inline(always)]
    pub fn on_ack(&mut self, window: &mut Window, ack: &Ack) -> u32 {
        let limit = reno::slow_start_limit(window, ack.phase);
        if self.mode == Mode::Conservative {
            let counted = ack.acked.min(window.mss.saturating_mul(limit));
            return reno::slow_start(window, counted / CSS_DIVISOR, limit);
        }
        reno::slow_start(window, ack.acked, limit)
    }

    /// Looks at the round trips of an acknowledgment in slow start, whether it grew the window or not. True: slow start is over, the
    /// threshold is where the window is.
    #[inline(always)]
    pub fn watch(&mut self, ack: &Ack) -> bool {
        match self.mode {
            Mode::Off => return false,
            Mode::New => {
                self.mode = Mode::Watching;
                self.begin_round(ack.nxt);
            }
            Mode::Watching | Mode::Conservative => {}
        }
        if let Some(rtt) = ack.rtt_us {
            self.this_round_min_us = self.this_round_min_us.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        ack.una >= self.round_end && self.end_round(ack.nxt)
    }

    /// RFC 9406 §4.2, with enough measurements in this round.
    #[inline(never)]
    fn judge(&mut self) {
        let now_us = self.this_round_min_us;
        match self.mode {
            Mode::Watching if self.last_round_min_us != NONE => {
                let threshold = (self.last_round_min_us / RTT_DIVISOR)
                    .clamp(RTT_THRESHOLD_MIN_US, RTT_THRESHOLD_MAX_US);
                if now_us >= self.last_round_min_us.saturating_add(threshold) {
                    self.css_baseline_us = now_us;
                    self.css_rounds = 0;
                    self.mode = Mode::Conservative;
                }
            }
            // The delay was a passing one.
            Mode::Conservative if now_us < self.css_baseline_us => {
                self.css_baseline_us = NONE;
                self.mode = Mode::Watching;
            }
            _ => {}
        }
    }

    /// A round is over. The one in which conservative slow start began counts, though it was only part of one.
    fn end_round(&mut self, nxt: SeqNum) -> bool {
        self.begin_round(nxt);
        if self.mode != Mode::Conservative {
            return false;
        }
        self.css_rounds += 1;
        let found = self.css_rounds >= CSS_ROUNDS;
        if found {
            self.mode = Mode::Off;
        }
        found
    }

    const fn begin_round(&mut self, nxt: SeqNum) {
        self.last_round_min_us = self.this_round_min_us;
        self.this_round_min_us = NONE;
        self.samples = 0;
        self.round_end = nxt;
    }
}

plain!(HyStart {
    last_round_min_us,
    this_round_min_us,
    css_baseline_us,
    round_end,
    samples,
    css_rounds,
    mode
});

impl HyStart {
    /// Whether a connection could have come to it.
    pub const fn is_sound(&self) -> bool {
        self.css_rounds <= CSS_ROUNDS
    }
}

#[cfg(test)]
crate::tcp::image::scramble::chosen! { Mode: Mode::New, Mode::Watching, Mode::Conservative, Mode::Off; }
