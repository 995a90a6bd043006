//! Pacing: text leaves at the pace that congestion control says, in small bursts, by one time kept for each connection.
//!
//! A bucket of tokens whose level is a time: `next` is when what was sent so far is paid for. A sender that comes late finds the tokens
//! of the time that has passed, up to a burst: neither a coarse timer nor a turn that comes late costs rate.

use super::image::{Distance, imaged};
use crate::time::Instant;

/// Tokens that gather while nothing is sent, as a time, in nanoseconds: what a timer may be late.
const BURST_NS: u64 = 1_000_000;
/// Tokens that gather while something waits to be sent: what a turn may be late on a busy machine. It was this late, not idle.
const LATE_NS: u64 = 20_000_000;

/// When the next text may leave.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Pacer {
    next: Instant,
    /// Something waits for `next`.
    waits: bool,
}

impl Pacer {
    pub const fn new() -> Self {
        Self {
            next: Instant::ZERO,
            waits: false,
        }
    }

    /// When the next text may leave at the earliest; `None`: now.
    #[inline]
    pub fn wait(&self, rate: u64, now: Instant) -> Option<Instant> {
        (rate > 0 && self.next > now).then_some(self.next)
    }

    /// Nothing leaves now; `by_pace`: only because it is too early.
    pub const fn held(&mut self, by_pace: bool) {
        self.waits = by_pace;
    }

    /// `bytes` leave now, at `rate` bytes per second; 0: there is no pace.
    #[inline]
    pub fn sent(&mut self, bytes: u32, rate: u64, now: Instant) {
        if rate == 0 {
            return;
        }
        let tokens = if self.waits { LATE_NS } else { BURST_NS };
        let earliest = Instant(now.0.saturating_sub(tokens));
        let from = self.next.max(earliest);
        let cost = u64::from(bytes).saturating_mul(1_000_000_000) / rate;
        self.next = Instant(from.0.saturating_add(cost));
        self.waits &= self.next <= now;
    }
}

imaged! {
    /// A [`Pacer`] as plain data.
    pub(super) struct PacerImage of Pacer {
        next: Distance as part,
        waits: bool,
    }
}
