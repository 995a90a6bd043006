//! How long a connection had something to send, and what held it back meanwhile: the peer's window, or a send queue too small for the path.
//! Linux's `tcpi_busy_time` and its parts, which tell an operator whose fault a slow transfer is.

use super::connection::Connection;
use crate::time::{Duration, Instant};

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
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
    work: Work,
    /// The last write found no room for all of it.
    is_full: bool,
    /// When text last came.
    pub last_text: u32,
    since: u32,
    path: u32,
    window: u32,
    buffer: u32,
}

#[allow(clippy::cast_possible_truncation)] // wraps
pub(super) const fn ticks(now: Instant) -> u32 {
    (now.0 >> 16) as u32
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

impl Connection {
    /// Whether the last write met a full send queue: from the moment on when all of it is sent, its size is the limit.
    #[inline]
    pub const fn send_queue_is_full(&mut self, is_full: bool) {
        self.busy.is_full = is_full;
    }

    /// Nothing more can leave now: is it the peer's window?
    pub(super) fn note_hold(&mut self, now: Instant) {
        let unsent = (self.snd.end - self.snd.nxt).max(0).unsigned_abs();
        if unsent == 0 {
            return;
        }
        let next = unsent.min(self.snd.mss.into());
        let room = (self.snd.una + self.snd.wnd - self.snd.nxt).max(0);
        let for_window = room.unsigned_abs() < next
            && self.sent.lost() == 0
            && self.pipe().saturating_add(next) <= self.congestion.window.cwnd;
        self.busy.waits(for_window, now);
    }
}

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
        busy.drained(ms(310)); // nobody waits for room
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

    /// The peer's window is what holds text back if it has no room for the next segment, and the congestion window has.
    #[test]
    fn the_window_or_the_path() {
        use crate::tcp::config::Config;
        use crate::wire::tcp::SeqNum;
        for (unsent, in_flight, wnd, cwnd, work) in [
            (0, 0, 0, 10_000, Work::None),
            (500, 0, 499, 10_000, Work::Window),
            (500, 0, 500, 10_000, Work::Path),
            (5_000, 0, 999, 10_000, Work::Window),
            (5_000, 0, 1_000, 10_000, Work::Path),
            (500, 0, 499, 500, Work::Window),
            (500, 0, 499, 499, Work::Path),
            (500, 3_000, 3_499, 10_000, Work::Window),
            (500, 3_000, 3_500, 10_000, Work::Path),
            (500, 3_000, 2_000, 10_000, Work::Window),
        ] {
            let config = Config::default();
            let mut conn = Connection::open_active(&config, 1, 2, SeqNum(9), 0, ms(0));
            conn.snd.una = SeqNum(10);
            conn.snd.nxt = SeqNum(10 + in_flight);
            conn.snd.end = conn.snd.nxt + unsent;
            (conn.snd.wnd, conn.snd.mss) = (wnd, 1_000);
            conn.congestion.open(cwnd, 1_000);
            conn.note_hold(ms(5));
            assert_eq!(conn.busy.work, work, "{unsent} {in_flight} {wnd} {cwnd}");
        }
        let mut busy = Busy::NONE;
        busy.is_full = true;
        busy.drained(ms(1));
        assert_eq!(busy.work, Work::None, "nothing was to be sent");
    }

    /// A write that met a full queue makes its size the limit once all is sent; one that did not, does not.
    #[test]
    fn a_full_queue_is_the_limit_once_all_is_sent() {
        use crate::tcp::config::Config;
        use crate::wire::tcp::SeqNum;
        for (is_full, work) in [(true, Work::Buffer), (false, Work::Path)] {
            let config = Config::default();
            let mut conn = Connection::open_active(&config, 1, 2, SeqNum(9), 0, ms(0));
            conn.busy.is_full = !is_full;
            conn.send_queue_is_full(is_full);
            conn.busy.sends(ms(1));
            conn.busy.drained(ms(2));
            assert_eq!(conn.busy.work, work);
        }
    }
}
