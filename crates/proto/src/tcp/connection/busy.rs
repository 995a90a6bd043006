//! What a connection's time is spent on; `tcp::busy` keeps the times.

use super::Connection;
use crate::time::Instant;

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
    use crate::tcp::busy::{Busy, Work};
    use crate::tcp::config::Config;
    use crate::wire::tcp::SeqNum;

    const fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// The peer's window is what holds text back if it has no room for the next segment, and the congestion window has.
    #[test]
    fn the_window_or_the_path() {
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
