//! NewReno: slow start and congestion avoidance of RFC 5681, counting bytes (RFC 3465). What RFC 6582 adds is loss recovery, and not
//! here.
//!
//! An ECN mark counts as a loss (RFC 3168 §6.1.2). The milder answer of RFC 8511 is an experiment, and not made.

use super::algorithm::{Ack, Algorithm, Cause, Phase, Window};
use crate::tcp::image::plain;
use crate::time::Instant;

/// The largest window kept: the sequence space allows no more in flight (RFC 7323 §2.3).
pub(super) const CWND_MAX: u32 = 1 << 30;

/// What one connection's NewReno knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NewReno {
    /// The window to begin with, and to begin again with.
    initial: u32,
    /// Bytes acknowledged since the window last grew.
    credit: u32,
}

impl NewReno {
    /// Congestion avoidance (RFC 5681 §3.1, RFC 3465 §2.1): one segment per window acknowledged.
    pub fn avoid(&mut self, window: &mut Window, bytes: u32) {
        // More than a window at once grows it by one segment, too.
        self.credit = self.credit.saturating_add(bytes.min(window.cwnd));
        if self.credit >= window.cwnd {
            self.credit -= window.cwnd;
            grow(window, window.mss);
        }
    }
}

/// The window `bytes` larger, within what there may be.
pub(super) fn grow(window: &mut Window, bytes: u32) {
    window.cwnd = window.cwnd.saturating_add(bytes).min(CWND_MAX);
}

/// Slow start (RFC 5681 §3.1): the window grows by what was acknowledged, by `limit` segments at most. Gives back the bytes that are
/// left for congestion avoidance, once the threshold is reached.
pub(super) fn slow_start(window: &mut Window, bytes: u32, limit: u32) -> u32 {
    let counted = bytes.min(window.mss.saturating_mul(limit));
    let room = window.ssthresh.saturating_sub(window.cwnd);
    grow(window, counted.min(room));
    counted.saturating_sub(room)
}

/// Segments that this acknowledgment may add in slow start. RFC 3465 §2.3: one while a timeout is repaired, when much of what is
/// acknowledged arrived long ago; RFC 9406 §4.2: any number where pacing spreads them. Else, as in Linux, any number, too, unless there is
/// a limit: receivers behind receive offload acknowledge a burst at once. What is counted are bytes, so splitting acknowledgments gains
/// nothing (`negative 64`).
pub(super) fn slow_start_limit(window: &Window, phase: Phase) -> u32 {
    match phase {
        Phase::Loss => 1,
        _ if window.pacing_rate > 0 || window.slow_start_limit == 0 => u32::MAX,
        _ => window.slow_start_limit.into(),
    }
}

/// What was in flight as far as the window allowed it: limited transmit does not count (RFC 5681 §3.2, step 2).
pub(super) fn flight(window: &Window, in_flight: u32) -> u32 {
    in_flight.min(window.cwnd)
}

/// RFC 5681 equation 4: half of what was in flight, two segments at least.
pub(super) fn halved(window: &Window, in_flight: u32) -> u32 {
    (flight(window, in_flight) / 2).max(window.mss.saturating_mul(2))
}

/// RFC 5681 §4.1: after a silence longer than the retransmission timeout nothing clocks new text out; begin anew. What was known of
/// the path stays as threshold (RFC 7661 §4.4). Whether it was so long.
pub(super) fn restart(window: &mut Window, initial: u32, idle_us: u64, rto_us: u64) -> bool {
    if idle_us <= rto_us {
        return false;
    }
    let known = window.cwnd / 4 * 3;
    window.ssthresh = window.ssthresh.max(known);
    window.cwnd = window.cwnd.min(initial.max(window.mss));
    true
}

impl Algorithm for NewReno {
    fn on_open(&mut self, window: &mut Window, _srtt_us: u32, _now: Instant) {
        self.initial = window.cwnd;
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        if !ack.may_grow() {
            return;
        }
        let mut bytes = ack.acked;
        if window.in_slow_start() {
            let limit = slow_start_limit(window, ack.phase);
            bytes = slow_start(window, bytes, limit);
        }
        if bytes > 0 {
            self.avoid(window, bytes);
        }
    }

    fn reduce(&mut self, window: &Window, _cause: Cause, in_flight: u32, _now: Instant) -> u32 {
        self.credit = 0;
        halved(window, in_flight)
    }

    fn on_timeout(&mut self, window: &mut Window, first: bool, in_flight: u32, _now: Instant) {
        self.credit = 0;
        if first {
            window.ssthresh = halved(window, in_flight);
        }
    }

    fn on_restart(&mut self, window: &mut Window, idle_us: u64, rto_us: u64, _now: Instant) {
        restart(window, self.initial, idle_us, rto_us);
    }
}

plain!(NewReno { initial, credit });
