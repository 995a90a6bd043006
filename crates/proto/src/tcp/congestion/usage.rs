//! Whether the congestion window is used: one that is not has not been tested, and does not grow (RFC 7661, RFC 9293 MUST-19).

use super::algorithm::Window;
use crate::tcp::image::plain;

/// What was under way at most in the last round trip, and whether the window was then full. As in Linux: a flight that filled the window
/// counts as a whole, and in slow start one that filled more than half of it may double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    /// The most bytes under way.
    most: u32,
    was_full: bool,
    /// Something new has left since: acknowledgments that come together, before anything new could leave, are looked at once.
    has_news: bool,
}

impl Usage {
    pub const NONE: Self = Self {
        most: 0,
        was_full: false,
        has_news: false,
    };

    /// Something new leaves.
    #[inline]
    pub const fn sent(&mut self) {
        self.has_news = true;
    }

    /// As an acknowledgment arrives: `pipe` bytes are under way; no more were since the one before. `round_ends`: what was under way when
    /// this was last begun anew is acknowledged.
    #[inline]
    pub fn note(&mut self, pipe: u32, round_ends: bool, window: &Window) {
        if !core::mem::replace(&mut self.has_news, false) {
            return;
        }
        let is_full = pipe.saturating_add(window.mss) > window.cwnd;
        if is_full || round_ends || (!self.was_full && pipe > self.most) {
            self.was_full = is_full;
            self.most = pipe;
        }
    }

    /// Whether the window was the limit.
    #[inline]
    pub const fn is_limit(&self, window: &Window) -> bool {
        self.was_full || (window.in_slow_start() && window.cwnd < self.most.saturating_mul(2))
    }
}

plain!(Usage {
    most,
    was_full,
    has_news
});

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cwnd: u32) -> Window {
        Window {
            cwnd,
            ssthresh: u32::MAX,
            mss: 1000,
            pacing_rate: 0,
            is_paced: false,
            slow_start_limit: 0,
        }
    }

    /// The window after `acks` acknowledgments of two segments each, in slow start, of a flight of `flight` segments.
    fn after(flight: u32, acks: u32) -> u32 {
        let mut usage = Usage::NONE;
        let mut window = window(10_000);
        usage.sent();
        for n in 0..acks {
            usage.note((flight - 2 * n) * 1000, n == 0, &window);
            if usage.is_limit(&window) {
                window.cwnd += 2000;
            }
        }
        window.cwnd / 1000
    }

    /// RFC 9293 MUST-19, RFC 7661: what was not used does not grow; what was full grows by all of its acknowledgments.
    #[test]
    fn slow_start_of_flights_that_do_not_fill_the_window() {
        assert_eq!(after(10, 5), 20);
        assert_eq!(after(9, 4), 18);
        assert_eq!(after(6, 3), 12);
        assert_eq!(after(5, 2), 10);
    }

    #[test]
    fn a_new_round_forgets_the_one_before() {
        let mut usage = Usage::NONE;
        let mut window = window(10_000);
        window.ssthresh = 5_000;
        usage.sent();
        usage.note(10_000, true, &window);
        assert!(usage.is_limit(&window));
        // Together with the first: nothing has left since.
        usage.note(2_000, true, &window);
        assert!(usage.is_limit(&window));
        usage.sent();
        usage.note(9_000, false, &window);
        assert!(usage.is_limit(&window));
        usage.sent();
        usage.note(9_000, true, &window);
        assert!(!usage.is_limit(&window));
    }
}
