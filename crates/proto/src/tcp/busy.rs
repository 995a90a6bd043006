//! How long a connection had something to send, and what held it back meanwhile: the peer's window, or a send queue too small for the path.
//! Linux's `tcpi_busy_time` and its parts, which tell an operator whose fault a slow transfer is.

use super::image::imaged;
use crate::time::{Duration, Instant};

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing is queued, nothing under way.
    None,
    /// Text waits or is under way; if anything, the path or congestion control is the limit.
    Path,
    /// The peer's window holds text back.
    Window,
    /// All is sent, the window is open, and the application waits for room in the send queue.
    Buffer,
}

/// Totals, in units of 2¹⁶ ns (65.5 µs): a shift makes them, and 32 bits last for three days.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Busy {
    pub work: Work,
    /// The last write found no room for all of it.
    pub is_full: bool,
    /// When text last came.
    pub last_text: u32,
    since: u32,
    path: u32,
    window: u32,
    buffer: u32,
}

#[inline]
pub(super) const fn ticks(now: Instant) -> u32 {
    now.low_ticks()
}

/// What `ticks` come to.
pub(super) const fn of_ticks(ticks: u32) -> Duration {
    Duration::from_nanos((ticks as u64) << 16)
}

impl Busy {
    pub const NONE: Self = Self {
        work: Work::None,
        is_full: false,
        last_text: 0,
        since: 0,
        path: 0,
        window: 0,
        buffer: 0,
    };

    #[inline]
    fn turn_to(&mut self, work: Work, now: Instant) {
        if self.work != work {
            self.account(now);
            self.work = work;
        }
    }

    fn account(&mut self, now: Instant) {
        let now = ticks(now);
        let spent = now.wrapping_sub(core::mem::replace(&mut self.since, now));
        let total = match self.work {
            Work::None => return,
            Work::Path => &mut self.path,
            Work::Window => &mut self.window,
            Work::Buffer => &mut self.buffer,
        };
        // Clocks of several threads: a step back is no time.
        let spent = if spent > u32::MAX / 2 { 0 } else { spent };
        *total = total.saturating_add(spent);
    }

    /// Text leaves.
    #[inline]
    pub fn sends(&mut self, now: Instant) {
        self.turn_to(Work::Path, now);
    }

    /// All that was sent is acknowledged, and nothing waits.
    #[inline]
    pub fn rests(&mut self, now: Instant) {
        self.turn_to(Work::None, now);
    }

    /// Text waits; `for_window`: for the peer's window alone.
    pub fn waits(&mut self, for_window: bool, now: Instant) {
        self.turn_to(if for_window { Work::Window } else { Work::Path }, now);
    }

    /// Everything is sent although more might be.
    #[inline]
    pub fn drained(&mut self, now: Instant) {
        if self.is_full && self.work != Work::None {
            self.turn_to(Work::Buffer, now);
        }
    }

    /// All the time with something to send; of it, what the peer's window held back; and the send queue's size.
    pub fn times(mut self, now: Instant) -> [Duration; 3] {
        self.account(now);
        let all = self
            .path
            .saturating_add(self.window)
            .saturating_add(self.buffer);
        [all, self.window, self.buffer].map(of_ticks)
    }
}

imaged! {
    /// [`Busy`] as plain data.
    pub(super) struct BusyImage of Busy {
        work: Work,
        is_full: bool,
        last_text: u32 as ticks,
        since: u32 as ticks,
        path: u32,
        window: u32,
        buffer: u32,
    }
}

#[cfg(test)]
super::image::scramble::chosen! { Work: Work::None, Work::Path, Work::Window, Work::Buffer; }

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn millis(times: [Duration; 3]) -> [u128; 3] {
        times.map(|time| (time.as_micros() + 500) / 1000)
    }

    #[test]
    fn each_time_goes_to_what_it_was_spent_on() {
        let mut busy = Busy::NONE;
        assert_eq!(millis(busy.times(ms(100))), [0, 0, 0]);
        busy.waits(true, ms(100));
        assert_eq!(millis(busy.times(ms(200))), [100, 100, 0]);
        busy.sends(ms(300));
        assert_eq!(millis(busy.times(ms(310))), [210, 200, 0]);
        busy.drained(ms(310)); // no writer waits for room
        busy.is_full = true;
        busy.drained(ms(320));
        busy.sends(ms(350));
        assert_eq!(millis(busy.times(ms(350))), [250, 200, 30]);
        busy.rests(ms(400));
        assert_eq!(millis(busy.times(ms(900))), [300, 200, 30]);
    }

    /// Clocks of several threads: a step back is no time, up to half of what the count can hold forward is.
    #[test]
    fn a_step_back_is_no_time() {
        let half = u64::from(u32::MAX / 2) << 16;
        for (from, to, spent) in [
            (0, half, half),
            (0, half + (1 << 16), 0),
            (1 << 20, 0, 0),
            (1 << 20, 3 << 20, 2 << 20),
        ] {
            let mut busy = Busy::NONE;
            busy.sends(Instant(from));
            let [all, window, buffer] = busy.times(Instant(to));
            assert_eq!(all, Duration::from_nanos(spent));
            assert_eq!((window, buffer), (Duration::ZERO, Duration::ZERO));
        }
    }
}
