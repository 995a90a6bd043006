//! BBR's model of the path (draft-ietf-ccwg-bbr §5.5): rounds, bandwidth, round trip, aggregation, and what losses take from it.

use super::states::State;
use super::{Bbr, INFINITE};
use crate::tcp::congestion::algorithm::{Ack, Window};
use crate::tcp::image::plain;

/// BBR.Beta: losses take no more than this much of a limit in a round, in percent.
pub(super) const BETA: u64 = 70;
/// BBR.ExtraAckedFilterLen is ten rounds: two halves of five.
const EXTRA_ACKED_ROUNDS: u8 = 5;
/// BBR.MinRTTFilterLen.
const MIN_RTT_LEN_US: u64 = 10_000_000;
/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL_US: u64 = 5_000_000;

/// BBR.max_bw_filter: the greatest of this probing cycle and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaxFilter {
    previous: u64,
    current: u64,
}

impl MaxFilter {
    pub const fn new() -> Self {
        Self {
            previous: 0,
            current: 0,
        }
    }
    pub fn get(self) -> u64 {
        self.previous.max(self.current)
    }
    pub fn add(&mut self, sample: u64) {
        self.current = self.current.max(sample);
    }
    /// A cycle is over. One without samples does not count.
    pub const fn advance(&mut self) {
        if self.current > 0 {
            self.previous = self.current;
            self.current = 0;
        }
    }
}

/// A maximum over rounds, in two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundFilter {
    halves: [u32; 2],
    rounds: u8,
}

impl RoundFilter {
    pub const fn new() -> Self {
        Self {
            halves: [0; 2],
            rounds: 0,
        }
    }
    pub fn get(self) -> u32 {
        let [old, new] = self.halves;
        old.max(new)
    }
    /// A round began; a half has `len` of them, 0: this round is all there is.
    const fn advance(&mut self, len: u8) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds >= len {
            let [_, new] = self.halves;
            self.halves = [if len == 0 { 0 } else { new }, 0];
            self.rounds = 0;
        }
    }
    fn add(&mut self, sample: u32) {
        let [_, new] = &mut self.halves;
        *new = (*new).max(sample);
    }
}

plain!(MaxFilter { previous, current });
plain!(RoundFilter { halves, rounds });

/// Whether the running total `a` is at or past `b`.
const fn reached(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() >= 0
}

/// `percent` of a rate.
fn part(of: u64, percent: u64) -> u64 {
    of / 100 * percent + of % 100 * percent / 100
}

/// `percent` of a number of bytes, at most 100.
pub(super) fn part_of(bytes: u32, percent: u64) -> u32 {
    u32::try_from(u64::from(bytes) * percent / 100).unwrap_or(bytes)
}

impl Bbr {
    /// StartRound (§5.5.1).
    pub(super) const fn start_round(&mut self) {
        self.next_round_delivered = self.delivered_total;
    }

    /// UpdateRound: a round is over when something is delivered that left after it began.
    fn update_round(&mut self, ack: &Ack) {
        self.round_start = reached(ack.rate.prior_delivered, self.next_round_delivered);
        if self.round_start {
            self.start_round();
            self.round_count = self.round_count.wrapping_add(1);
            self.rounds_since_probe_up = self.rounds_since_probe_up.saturating_add(1);
        }
    }

    /// Whether the application, or ProbeRTT, held back what this sample is about.
    pub(super) fn is_limited(&self, ack: &Ack) -> bool {
        ack.rate.is_app_limited || self.was_held_back(ack)
    }

    /// Whether ProbeRTT did.
    fn was_held_back(&self, ack: &Ack) -> bool {
        self.limited_until
            .is_some_and(|mark| reached(mark, ack.rate.prior_delivered))
    }

    /// UpdateLatestDeliverySignals (§5.5.10.3).
    pub(super) fn update_latest_delivery(&mut self, ack: &Ack) {
        self.loss_round_start = false;
        let Some(rate) = ack.rate.rate() else {
            return;
        };
        self.bw_latest = self.bw_latest.max(rate);
        self.inflight_latest = self.inflight_latest.max(ack.rate.delivered);
        if reached(ack.rate.prior_delivered, self.loss_round_delivered) {
            self.loss_round_delivered = self.delivered_total;
            self.loss_round_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance_latest_delivery(&mut self, ack: &Ack) {
        if self.loss_round_start {
            self.bw_latest = ack.rate.rate().unwrap_or(0);
            self.inflight_latest = ack.rate.delivered;
        }
    }

    pub(super) const fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// UpdateCongestionSignals: the bandwidth (§5.5.5), and once a round what losses say.
    ///
    /// Unlike in the draft, two kinds of losses say nothing here: those within BBR.LossThresh, and any in a round that ProbeRTT held
    /// back. What a round delivers is always a little less than what was sent: at 1 % lost at random, 50 Mbit/s and 50 ms, the former
    /// took 14 % until the next probe; and after half a window in flight, the latter took 30 %.
    pub(super) fn update_congestion_signals(&mut self, window: &Window, ack: &Ack) {
        self.round_start = false;
        if let Some(rate) = ack.rate.rate() {
            self.update_round(ack);
            // Forgotten once passed: totals come round.
            self.limited_until = self.limited_until.filter(|_| self.was_held_back(ack));
            if rate > 0 && (rate >= self.max_bw.get() || !self.is_limited(ack)) {
                self.max_bw.add(rate);
            }
        }
        if !self.loss_round_start {
            return;
        }
        let lossy = self.is_loss_in_round
            && Self::is_inflight_too_high(ack.rate.lost, ack.rate.tx_in_flight)
            && !self.was_held_back(ack);
        if lossy && !self.is_accelerating() {
            self.lower_bounds(window);
        }
        self.is_loss_in_round = false;
    }

    /// InitLowerBounds and LossLowerBounds: slow down to what is delivered, by 30 % in a round at most.
    fn lower_bounds(&mut self, window: &Window) {
        if self.bw_shortterm == u64::MAX {
            self.bw_shortterm = self.max_bw.get();
        }
        if self.inflight_shortterm == INFINITE {
            self.inflight_shortterm = window.cwnd;
        }
        // While a queue is let run empty, less is delivered because less is sent.
        let latest = if self.state == State::ProbeDown {
            self.bw_latest.saturating_mul(100) / State::ProbeDown.pacing_gain()
        } else {
            self.bw_latest
        };
        self.bw_shortterm = latest.max(part(self.bw_shortterm, BETA));
        self.inflight_shortterm = self
            .inflight_latest
            .max(part_of(self.inflight_shortterm, BETA));
    }

    pub(super) const fn reset_shortterm(&mut self) {
        self.bw_shortterm = u64::MAX;
        self.inflight_shortterm = INFINITE;
    }

    /// UpdateACKAggregation (§5.5.9): how much more than the bandwidth allows is acknowledged at once.
    pub(super) fn update_aggregation(&mut self, window: &Window, ack: &Ack) {
        if self.round_start {
            let len = if self.full_bw_reached {
                EXTRA_ACKED_ROUNDS
            } else {
                0
            };
            self.extra_acked.advance(len);
        }
        let interval_us = u64::from(ack.now.micros_since(self.extra_acked_start));
        let mut expected = self.bw.saturating_mul(interval_us) / 1_000_000;
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_start = ack.now;
            expected = 0;
        }
        self.extra_acked_delivered += u64::from(ack.delivered);
        let extra = self.extra_acked_delivered.saturating_sub(expected);
        let extra = u32::try_from(extra).unwrap_or(u32::MAX).min(window.cwnd);
        self.extra_acked.add(extra);
    }

    /// UpdateMinRTT (§5.3.4.3).
    pub(super) fn update_min_rtt(&mut self, ack: &Ack) {
        let now = ack.now;
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp.plus_micros(PROBE_RTT_INTERVAL_US);
        if let Some(rtt) = ack.rtt_us
            && (rtt < self.probe_rtt_min_us || self.probe_rtt_expired)
        {
            self.probe_rtt_min_us = rtt.max(1);
            self.probe_rtt_min_stamp = now;
        }
        let expired = now > self.min_rtt_stamp.plus_micros(MIN_RTT_LEN_US);
        if self.probe_rtt_min_us < self.min_rtt_us || expired {
            self.min_rtt_us = self.probe_rtt_min_us;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    /// IsProbingBW (§5.3.3.6): sending faster on purpose, so that losses are an answer and no news.
    const fn is_accelerating(&self) -> bool {
        matches!(
            self.state,
            State::Startup | State::ProbeRefill | State::ProbeUp
        )
    }
}
