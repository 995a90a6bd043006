//! The retransmission timeout, from measured round trips (RFC 6298, Karn's algorithm).

use super::config::Config;
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNum;

/// Smoothed round-trip time, its variation, and the timeout that follows. All in microseconds.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct RttEstimator {
    /// Smoothed round-trip time; 0 before the first measurement.
    pub srtt_us: u32,
    /// Mean deviation.
    pub rttvar_us: u32,
    /// Least measurement so far.
    pub min_us: u32,
    /// Timeout before back-off.
    rto_us: u32,
    rto_min_us: u32,
    rto_max_us: u32,
    /// Doublings of the timeout; kept until a new measurement (Karn, RFC 9293 MUST-18).
    backoff: u8,
    /// A segment is being timed: its end and when it left.
    timing: bool,
    timed_end: SeqNum,
    timed_at: Instant,
}

/// A duration in whole microseconds, at most 2³² - 1 (71 minutes).
pub(super) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl RttEstimator {
    pub fn new(config: &Config) -> Self {
        let min = micros(config.rto_min).max(1);
        Self {
            srtt_us: 0,
            rttvar_us: 0,
            min_us: u32::MAX,
            rto_us: micros(config.rto_initial).max(min),
            rto_min_us: min,
            rto_max_us: micros(config.rto_max).max(min),
            backoff: 0,
            timing: false,
            timed_end: SeqNum(0),
            timed_at: Instant::ZERO,
        }
    }

    /// The timeout, backed off, in microseconds.
    #[inline]
    pub fn rto_us(&self) -> u64 {
        (u64::from(self.rto_us) << self.backoff.min(31)).min(u64::from(self.rto_max_us))
    }

    /// The timer expired: the next timeout is twice as long (RFC 6298 §5.5). What was being timed
    /// is ambiguous from now on (Karn).
    pub fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1).min(31);
        self.timing = false;
    }

    /// The SYN was retransmitted: begin the data with 3 s (RFC 6298 §5.7).
    pub fn syn_was_retransmitted(&mut self) {
        self.rto_us = self.rto_us.max(3_000_000);
        self.backoff = 0;
    }

    /// Doublings so far.
    pub const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The window opened, or a probe was answered: back-off of the persist timer ends.
    pub fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// A segment that was never sent before leaves.
    #[inline]
    pub fn sent(&mut self, end: SeqNum, now: Instant) {
        if !self.timing {
            self.timing = true;
            self.timed_end = end;
            self.timed_at = now;
        }
    }

    /// Something is retransmitted: an acknowledgment says nothing about time any more (Karn).
    #[inline]
    pub fn cancel(&mut self) {
        self.timing = false;
    }

    /// Whether a segment is being timed.
    #[inline]
    pub const fn is_timing(&self) -> bool {
        self.timing
    }

    /// SND.UNA is now `una`; true if that gave a measurement.
    #[inline]
    pub fn acknowledged(&mut self, una: SeqNum, now: Instant) -> bool {
        if !self.timing || una < self.timed_end {
            return false;
        }
        self.timing = false;
        self.sample(now.micros_since(self.timed_at));
        true
    }

    /// RFC 6298 §2.2, §2.3.
    pub fn sample(&mut self, rtt_us: u32) {
        let rtt = rtt_us.max(1);
        self.min_us = self.min_us.min(rtt);
        if self.srtt_us == 0 {
            self.srtt_us = rtt;
            self.rttvar_us = rtt / 2;
        } else {
            let deviation = self.srtt_us.abs_diff(rtt);
            self.rttvar_us = self.rttvar_us - self.rttvar_us / 4 + deviation / 4;
            self.srtt_us = self.srtt_us - self.srtt_us / 8 + rtt / 8;
        }
        self.srtt_us = self.srtt_us.max(1);
        self.backoff = 0;
        self.rto_us = self
            .srtt_us
            .saturating_add(self.rttvar_us.saturating_mul(4))
            .clamp(self.rto_min_us, self.rto_max_us);
    }
}
