//! When each timer is set, and what happens when one expires.

use super::Connection;
use crate::tcp::sent::micros_of;
use crate::tcp::timer::{Waiting, sooner};
use crate::tcp::types::{Error, Events, State};
use crate::tcp::variables::{Pending, from_millis};
use crate::time::Instant;

/// Retransmissions of the same data after which the application is told (R1, RFC 9293 SHLD-10).
const R1_ATTEMPTS: u8 = 3;

/// Longest time that a cork holds text back while nothing is under way: RFC 9293 §3.8.6.2.1 has 0.1 to 1 s for its override timeout, Linux
/// this.
const CORK_US: u64 = 200_000;

/// Silence after which an idle connection gives memory back. In traffic it must not: the packet path allocates nothing.
const SILENCE_US: u64 = 60_000_000;

impl Connection {
    /// Acts on the timers that have expired by `now`; does nothing when called too early. Call
    /// `output` afterwards.
    pub fn on_timer(&mut self, now: Instant) -> Events {
        let mut events = Events::NONE;
        if self.timers.delayed_ack <= now {
            self.on_delayed_ack_timer();
        }
        if self.timers.pacing <= now {
            self.timers.pacing = Instant::FAR;
            self.pending.set(Pending::SEND);
        }
        if self.timers.early <= now && self.on_early_timer(now) {
            events |= Events::LOSS;
        }
        if self.timers.retransmit <= now {
            events |= self.on_retransmit_timer(now);
        }
        if self.timers.keepalive <= now {
            events |= self.on_keepalive_timer(now);
        }
        if self.timers.linger <= now {
            events |= self.finish(None);
        }
        events
    }

    /// Starts the retransmission timer anew (RFC 6298 §5.1, §5.3), not beyond the time at which
    /// the connection is given up.
    pub(super) fn arm_retransmit(&mut self, now: Instant) {
        let limit = self
            .stalled_since
            .plus_micros(u64::from(self.retry_budget_ms()) * 1000);
        let next = now.plus_micros(self.rtt.rto_us());
        self.timers.retransmit = if limit < next && limit > now {
            limit
        } else {
            next
        };
    }

    /// Starts the wait for a tail loss probe anew; one for reordering goes on. `STEADY`: [`Self::is_steady`].
    #[inline(always)]
    pub(super) fn arm_early<const STEADY: bool>(&mut self, now: Instant) {
        if self.recovery.waiting == Waiting::Reordering {
            return;
        }
        self.recovery.waiting = Waiting::TailProbe;
        self.timers.early = match self.probe_timeout_us::<STEADY>() {
            Some(wait) => sooner(now.plus_micros(wait), self.timers.retransmit),
            None if self.sent.holds_spare() => {
                self.recovery.waiting = Waiting::Silence;
                now.plus_micros(SILENCE_US)
            }
            None => Instant::FAR,
        };
    }

    /// Text is held back. By a cork, and nothing under way will bring an acknowledgment to look again: for a while.
    pub(super) fn limit_cork(&mut self, now: Instant) {
        let waits = self.corked && self.snd.nxt < self.snd.end && self.snd.una == self.snd.nxt;
        let runs = self.recovery.waiting == Waiting::Cork && self.timers.early != Instant::FAR;
        if waits && !runs {
            self.recovery.waiting = Waiting::Cork;
            self.timers.early = now.plus_micros(CORK_US);
        }
    }

    /// R2 (RFC 9293 MUST-20, MUST-23).
    const fn retry_budget_ms(&self) -> u32 {
        if self.state.is_synchronized() {
            self.settings.retry_ms
        } else {
            self.settings.syn_retry_ms
        }
    }

    /// Times of transmissions wrap after 71 minutes. While something is outstanding this timer runs, every minute or two at least: what has been
    /// waiting for longer than can be told is kept from coming to lie in the future.
    fn limit_ages(&mut self, now: Instant) {
        let now_us = micros_of(now);
        self.sent.limit_ages(now_us);
        self.rate.limit_ages(now_us);
        self.recovery.rack.limit_ages(now_us);
    }

    fn on_retransmit_timer(&mut self, now: Instant) -> Events {
        if now.since(self.stalled_since) >= from_millis(self.retry_budget_ms()) {
            return self.give_up();
        }
        let nothing_sent = self.snd.una == self.snd.nxt;
        if nothing_sent && !self.probing && self.state.is_synchronized() {
            self.timers.retransmit = Instant::FAR;
            return Events::NONE;
        }
        self.limit_ages(now);
        let first = self.attempts == 0;
        self.timers.early = Instant::FAR;
        self.attempts = self.attempts.saturating_add(1);
        self.rtt.back_off();
        if !self.state.is_synchronized() {
            self.note_timeout(first, now);
            self.pending.set(Pending::SYN);
        } else if self.probing || self.snd.wnd == 0 {
            self.probe_window();
        } else {
            self.note_timeout(first, now);
            self.retransmission_timeout(first, now);
            self.path_timed_out(now);
        }
        self.arm_retransmit(now);
        if self.attempts == R1_ATTEMPTS && !self.probing {
            Events::STALLED
        } else {
            Events::NONE
        }
    }

    /// For [`super::Sending`], as Linux counts: of a row of timeouts in which nothing was acknowledged the first begins a recovery.
    fn note_timeout(&mut self, first: bool, now: Instant) {
        let cold = &mut *self.cold;
        cold.timeouts = cold.timeouts.saturating_add(1);
        if first {
            cold.timeout_recoveries = cold.timeout_recoveries.saturating_add(1);
        }
        if cold.timeout_since == Instant::FAR {
            cold.timeout_since = now;
        }
    }

    /// What a timeout found lost has arrived, or was not lost.
    pub(super) fn note_mended(&mut self, now: Instant) {
        let since = self.cold.timeout_since;
        if since == Instant::FAR {
            return;
        }
        let took = u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX);
        self.cold.timeout_ms = self.cold.timeout_ms.saturating_add(took);
        self.cold.timeout_since = Instant::FAR;
    }

    /// The window is closed, maybe over data already sent (RFC 9293 MUST-34 to MUST-36): ask for it.
    fn probe_window(&mut self) {
        self.probing = true;
        self.send_again();
        self.pending.set(Pending::PROBE);
    }

    /// Nothing was heard for R2 or after all keep-alive probes.
    fn give_up(&mut self) -> Events {
        if self.state == State::SynReceived && self.passive {
            return self.fall_back_to_listen(Error::TimedOut);
        }
        let error = self.soft_error.unwrap_or(Error::TimedOut);
        self.finish(Some(error))
    }

    pub(super) fn arm_keepalive(&mut self, now: Instant) {
        self.timers.keepalive = if self.keepalive && self.state.is_synchronized() {
            now + from_millis(self.periods.keepalive_idle_ms)
        } else {
            Instant::FAR
        };
    }

    /// RFC 9293 §3.8.4. The timer is not moved by traffic: it looks back when it expires.
    fn on_keepalive_timer(&mut self, now: Instant) -> Events {
        self.timers.keepalive = Instant::FAR;
        if !self.keepalive || !self.state.is_synchronized() || self.state == State::TimeWait {
            return Events::NONE;
        }
        let idle = from_millis(self.periods.keepalive_idle_ms);
        let due = self.last_received + idle;
        if now < due {
            self.keepalives_sent = 0;
            self.timers.keepalive = due;
            return Events::NONE;
        }
        // With data unacknowledged, retransmission finds out (RFC 9293 MUST-26).
        if self.snd.una != self.snd.nxt || self.probing {
            self.timers.keepalive = now + idle;
            return Events::NONE;
        }
        if self.keepalives_sent >= self.periods.keepalive_probes {
            let events = self.give_up();
            self.pending.set(Pending::RST);
            return events;
        }
        self.keepalives_sent += 1;
        self.pending.set(Pending::KEEPALIVE);
        self.timers.keepalive = now + from_millis(self.periods.keepalive_interval_ms);
        Events::NONE
    }
}
