//! The timers of a connection.

use super::image::{Distance, imaged};
use crate::time::Instant;

/// Deadlines; [`Instant::FAR`] means the timer is off.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Timers {
    /// Retransmission, or, while probing, the next zero-window probe.
    pub retransmit: Instant,
    /// Before that: a tail loss probe, or the end of a reordering window.
    pub early: Instant,
    /// When the pace lets the next text leave.
    pub pacing: Instant,
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
            early: Instant::FAR,
            pacing: Instant::FAR,
            delayed_ack: Instant::FAR,
            keepalive: Instant::FAR,
            linger: Instant::FAR,
        }
    }

    #[inline]
    pub const fn earliest(&self) -> Instant {
        let send = sooner(sooner(self.retransmit, self.early), self.pacing);
        let other = sooner(self.keepalive, self.linger);
        sooner(sooner(send, self.delayed_ack), other)
    }
}

imaged! {
    /// [`Timers`] as plain data.
    pub(super) struct TimersImage of Timers {
        retransmit: Distance as part,
        early: Distance as part,
        pacing: Distance as part,
        delayed_ack: Distance as part,
        keepalive: Distance as part,
        linger: Distance as part,
    }
}

#[cfg(test)]
super::image::scramble::chosen! {
    Waiting: Waiting::TailProbe, Waiting::Reordering, Waiting::Silence, Waiting::Cork;
}

/// What the early timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiting {
    /// Silence: time for a tail loss probe (RFC 8985 §7.2).
    TailProbe,
    /// A gap that reordering should have filled by then (RFC 8985 §6.2, step 5).
    Reordering,
    /// Nothing is under way: memory of busier times goes back if it stays so.
    Silence,
    /// Nothing is under way, but text waits behind a cork: long enough.
    Cork,
}

#[inline]
pub(super) const fn sooner(a: Instant, b: Instant) -> Instant {
    if a.0 < b.0 { a } else { b }
}
