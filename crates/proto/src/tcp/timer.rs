//! The four timers of a connection, and what happens when one expires.

use super::connection::{Connection, Pending, from_millis};
use super::early::Waiting;
use super::types::{Error, Events, State};
use crate::time::Instant;

/// Retransmissions of the same data after which the application is told (R1, RFC 9293 SHLD-10).
const R1_ATTEMPTS: u8 = 3;

/// Deadlines; [`Instant::FAR`] means the timer is off.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Timers {
    /// Retransmission, or, while probing, the next zero-window probe.
    pub retransmit: Instant,
    /// A delayed acknowledgment.
    pub delayed_ack: Instant,
    /// Keep-alive.
    pub keepalive: Instant,
    /// The end of TIME-WAIT or FIN-WAIT-2.
    pub linger: Instant,
}

impl Timers {
    pub const fn new() -> Self {
        Self {
            retransmit: Instant::FAR,
            delayed_ack: Instant::FAR,
            keepalive: Instant::FAR,
            linger: Instant::FAR,
        }
    }

    #[inline]
    pub const fn earliest(&self) -> Instant {
        let a = if self.retransmit.0 < self.delayed_ack.0 {
            self.retransmit
        } else {
            self.delayed_ack
        };
        let b = if self.keepalive.0 < self.linger.0 {
            self.keepalive
        } else {
            self.linger
        };
        if a.0 < b.0 { a } else { b }
    }
}

impl Connection {
    /// Acts on the timers that have expired by `now`; does nothing when called too early. Call
    /// `output` afterwards.
    pub fn on_timer(&mut self, now: Instant) -> Events {
        let mut events = Events::NONE;
        if self.timers.delayed_ack <= now {
            self.timers.delayed_ack = Instant::FAR;
            self.pending.set(Pending::ACK);
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
            .plus_micros(u64::from(self.patience_ms()) * 1000);
        let mut wait = self.rtt.rto_us();
        self.recovery.waiting = Waiting::Timeout;
        if let Some((waiting, early)) = self.early_wait()
            && early < wait
        {
            self.recovery.waiting = waiting;
            wait = early;
        }
        let next = now.plus_micros(wait);
        self.timers.retransmit = if limit < next && limit > now {
            limit
        } else {
            next
        };
    }

    /// R2 (RFC 9293 MUST-20, MUST-23).
    const fn patience_ms(&self) -> u32 {
        if self.state.is_synchronized() {
            self.settings.retry_ms
        } else {
            self.settings.syn_retry_ms
        }
    }

    fn on_retransmit_timer(&mut self, now: Instant) -> Events {
        if now.since(self.stalled_since) >= from_millis(self.patience_ms()) {
            return self.give_up();
        }
        let nothing_sent = self.snd.una == self.snd.max;
        if nothing_sent && !self.probing {
            self.timers.retransmit = Instant::FAR;
            return Events::NONE;
        }
        if self.recovery.waiting != Waiting::Timeout && !self.probing {
            let repairing = self.recovery.is_fast();
            self.on_early_timer(self.recovery.waiting, now);
            return match !repairing && self.recovery.is_fast() {
                true => Events::LOSS,
                false => Events::NONE,
            };
        }
        let first = self.attempts == 0;
        self.attempts = self.attempts.saturating_add(1);
        self.rtt.back_off();
        if !self.state.is_synchronized() {
            self.pending.set(Pending::SYN);
        } else if self.probing || self.snd.wnd == 0 {
            self.probe_window();
        } else {
            self.retransmission_timeout(first);
        }
        self.arm_retransmit(now);
        if self.attempts == R1_ATTEMPTS && !self.probing {
            Events::STALLED
        } else {
            Events::NONE
        }
    }

    /// RFC 6298 §5.4, RFC 5681 §3.1: back to one segment, beginning at SND.UNA. What was sacked is
    /// forgotten, as the peer may have dropped it (RFC 2018 §8).
    fn retransmission_timeout(&mut self, first: bool) {
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        self.congestion
            .timed_out(flight, u32::from(self.snd.mss), first);
        self.scoreboard.clear();
        self.recovery.go_back(self.snd.max);
        self.snd.nxt = self.snd.una;
        self.counters.timeouts = self.counters.timeouts.saturating_add(1);
        self.pending.set(Pending::SEND);
    }

    /// The window is closed, maybe over data already sent (RFC 9293 MUST-34 to MUST-36): ask for it.
    fn probe_window(&mut self) {
        self.probing = true;
        if self.snd.nxt > self.snd.una {
            self.scoreboard.clear();
            self.recovery.go_back(self.snd.max);
            self.snd.nxt = self.snd.una;
        }
        self.pending.set(Pending::PROBE);
    }

    /// Nothing was heard for R2 or after all keep-alive probes.
    fn give_up(&mut self) -> Events {
        if self.state == State::SynReceived && self.passive {
            return self.finish(None) | Events::RESET;
        }
        let error = self.soft_error.unwrap_or(Error::TimedOut);
        self.finish(Some(error))
    }

    pub(super) fn arm_keepalive(&mut self, now: Instant) {
        self.timers.keepalive = if self.keepalive && self.state.is_synchronized() {
            now + from_millis(self.settings.keepalive_idle_ms)
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
        let idle = from_millis(self.settings.keepalive_idle_ms);
        let due = self.last_received + idle;
        if now < due {
            self.keepalives_sent = 0;
            self.timers.keepalive = due;
            return Events::NONE;
        }
        // With data unacknowledged, retransmission finds out (RFC 9293 MUST-26).
        if self.snd.una != self.snd.max || self.probing {
            self.timers.keepalive = now + idle;
            return Events::NONE;
        }
        if self.keepalives_sent >= self.settings.keepalive_probes {
            let events = self.give_up();
            self.pending.set(Pending::RST);
            return events;
        }
        self.keepalives_sent += 1;
        self.pending.set(Pending::KEEPALIVE);
        self.timers.keepalive = now + from_millis(self.settings.keepalive_interval_ms);
        Events::NONE
    }
}
