//! The retransmission timeout, from measured round trips (RFC 6298, Karn's algorithm), and the least round trip lately.

use super::config::Config;
use super::image::imaged;
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNum;

/// For so long, and at most twice as long, a least round trip is believed; in units of [`Instant::coarse`]. RFC 8985 §6.2 leaves it open;
/// a route that became longer is noticed.
const MIN_PERIOD: u32 = 150;

/// Smoothed round-trip time, its variation, and the timeout that follows. All in microseconds.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct RttEstimator {
    /// Smoothed round-trip time; 0 before the first measurement.
    pub srtt_us: u32,
    /// Variation: the largest mean deviation of the last round trip, decaying slowly.
    pub rttvar_us: u32,
    /// Mean deviation, and its largest value in this round trip.
    deviation_us: u32,
    deviation_max_us: u32,
    /// What ends this round trip.
    round: SeqNum,
    /// Least measurement of this period and of the one before.
    min_now_us: u32,
    min_before_us: u32,
    /// When this period began.
    period: u32,
    /// Timeout before back-off.
    rto_us: u32,
    rto_min_us: u32,
    rto_max_us: u32,
    /// Doublings of the timeout; kept until a new measurement (Karn, RFC 9293 MUST-18).
    backoff: u8,
}

/// A duration in whole microseconds, at most 2³² - 1 (71 minutes).
pub(super) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl RttEstimator {
    /// Whether what was under way when the last round trip began is acknowledged.
    #[inline]
    pub fn ends_round(&self, una: SeqNum) -> bool {
        una >= self.round
    }

    pub fn new(config: &Config) -> Self {
        let min = micros(config.rto_min).max(1);
        Self {
            srtt_us: 0,
            rttvar_us: 0,
            deviation_us: 0,
            deviation_max_us: 0,
            round: SeqNum(0),
            min_now_us: u32::MAX,
            min_before_us: u32::MAX,
            period: 0,
            rto_us: micros(config.rto_initial).max(min),
            rto_min_us: min,
            rto_max_us: micros(config.rto_max).max(min),
            backoff: 0,
        }
    }

    /// The timeout, backed off, in microseconds.
    #[inline]
    pub fn rto_us(&self) -> u64 {
        (u64::from(self.rto_us) << self.backoff.min(31)).min(u64::from(self.rto_max_us))
    }

    /// The timer expired: the next timeout is twice as long (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1).min(31);
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

    /// The window opened, or a probe was answered, or the timeout was spurious: back-off ends.
    pub fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// The least round trip of the last minutes; `u32::MAX` before the first measurement.
    #[inline]
    pub fn min_us(&self) -> u32 {
        self.min_now_us.min(self.min_before_us)
    }

    #[inline]
    fn note_min(&mut self, rtt: u32, now: Instant) {
        let now = now.coarse();
        if now.wrapping_sub(self.period) > MIN_PERIOD {
            self.period = now;
            self.min_before_us = self.min_now_us;
            self.min_now_us = u32::MAX;
        }
        self.min_now_us = self.min_now_us.min(rtt);
    }

    /// A measurement (RFC 6298 §2.2, §2.3), with SND.UNA and SND.NXT as they are. Every acknowledgment gives one, so that the mean
    /// deviation alone would forget too quickly (RFC 7323 appendix G): the timeout follows its largest value of each round trip.
    #[inline]
    pub fn sample(&mut self, rtt_us: u32, una: SeqNum, nxt: SeqNum, now: Instant) {
        let rtt = rtt_us.max(1);
        self.note_min(rtt, now);
        if self.srtt_us == 0 {
            self.srtt_us = rtt;
            self.deviation_us = rtt / 2;
            self.rttvar_us = rtt / 2;
            self.deviation_max_us = 0;
            self.round = nxt;
        } else {
            let error = self.srtt_us.abs_diff(rtt);
            // Towards shorter round trips the deviation grows slowly: they are no reason for a longer timeout.
            let gain = if rtt < self.srtt_us && error > self.deviation_us {
                32
            } else {
                4
            };
            if error > self.deviation_us {
                self.deviation_us += (error - self.deviation_us) / gain;
            } else {
                self.deviation_us -= (self.deviation_us - error) / 4;
            }
            self.srtt_us = (self.srtt_us - self.srtt_us / 8 + rtt / 8).max(1);
            self.deviation_max_us = self.deviation_max_us.max(self.deviation_us);
            self.rttvar_us = self.rttvar_us.max(self.deviation_max_us);
            if una > self.round {
                if self.deviation_max_us < self.rttvar_us {
                    self.rttvar_us -= (self.rttvar_us - self.deviation_max_us) / 4;
                }
                self.round = nxt;
                self.deviation_max_us = 0;
            }
        }
        self.backoff = 0;
        let variation = self.rttvar_us.saturating_mul(4).max(self.rto_min_us);
        self.rto_us = self.srtt_us.saturating_add(variation).min(self.rto_max_us);
    }
}

imaged! {
    /// An [`RttEstimator`] as plain data.
    pub(super) struct RttImage of RttEstimator {
        srtt_us: u32,
        rttvar_us: u32,
        deviation_us: u32,
        deviation_max_us: u32,
        round: SeqNum,
        min_now_us: u32,
        min_before_us: u32,
        period: u32 as coarse,
        rto_us: u32,
        rto_min_us: u32,
        rto_max_us: u32,
        backoff: u8,
    }
}

#[cfg(test)]
#[path = "tests/rtt.rs"]
mod tests;
