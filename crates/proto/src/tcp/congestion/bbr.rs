//! BBR version 3 (draft-ietf-ccwg-bbr): a model of the path, its bandwidth and its round trip, says how fast to send and how much may
//! be in flight. Losses correct the model; they are no order to halve.
//!
//! Here is what the connection calls, and the control parameters that follow from the model: pacing rate (§5.6.2) and window (§5.6.4).
//! `model` is the path, `states` are Startup, Drain and ProbeRTT, `probing` is ProbeBW. What the draft leaves open is left out: ECN (the
//! draft has no reaction to it, so marks only count as the caller's `reduce`, which moves nothing here).

mod image;
mod model;
mod probing;
mod states;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
// totals that wrap, and what the reference keeps in 64 bits
mod tests;

use super::algorithm::{Ack, Algorithm, Cause, LostSegment, Window};
use super::reno::CWND_MAX;
use crate::time::Instant;
use model::{MaxFilter, RoundFilter};
use probing::Undo;
use states::FULL_BW_ROUNDS;
pub(super) use states::{AckPhase, State};

/// No limit known.
const INFINITE: u32 = u32::MAX;
/// BBR.MinPipeCwnd: with fewer segments, a peer that acknowledges every second one makes the sender wait.
const MIN_PIPE_SEGMENTS: u32 = 4;
/// Pace this much, in percent, below the bandwidth: BBR.PacingMarginPercent.
const PACING_MARGIN: u64 = 1;

/// BBR's state, named as in the draft (§2) as far as the names say something.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
#[allow(clippy::struct_excessive_bools)] // the draft's own
pub(super) struct Bbr {
    state: State,
    /// What the caller said last: time, all delivered bytes, and the smoothed round trip's first measurement.
    now: Instant,
    delivered_total: u32,
    has_rtt: bool,
    /// C.InitialCwnd, and whether that much was delivered.
    initial: u32,
    initial_delivered: bool,
    /// State of the generator for the waits between probes.
    random: u64,

    // Rounds (§5.5.1).
    round_count: u32,
    round_start: bool,
    next_round_delivered: u32,

    // The path (§5.5.2 to §5.5.9), bytes per second, bytes and microseconds.
    max_bw: MaxFilter,
    bw_shortterm: u64,
    bw: u64,
    min_rtt_us: u32,
    min_rtt_stamp: Instant,
    inflight_longterm: u32,
    inflight_shortterm: u32,
    extra_acked: RoundFilter,
    extra_acked_start: Instant,
    extra_acked_delivered: u64,

    // Delivery lately, for what losses ask for (§5.5.10).
    bw_latest: u64,
    inflight_latest: u32,
    is_loss_in_round: bool,
    loss_events_in_round: u8,
    loss_round_start: bool,
    loss_round_delivered: u32,

    // Whether the pipe is full (§5.3.1.2).
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw_count: u8,
    full_bw: u64,
    drain_start_round: u32,

    // ProbeBW (§5.3.3).
    ack_phase: AckPhase,
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    bw_probe_up_rounds: u8,
    bw_probe_up_acked: u32,
    probe_up_acked_per_inc: u32,
    rounds_since_probe_up: u32,
    bw_probe_wait_us: u32,
    cycle_stamp: Instant,

    // ProbeRTT (§5.3.4).
    probe_rtt_min_us: u32,
    probe_rtt_min_stamp: Instant,
    probe_rtt_expired: bool,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    /// Samples of what left before so much was delivered say nothing of the bandwidth.
    limited_until: Option<u32>,
    idle_restart: bool,

    // What a recovery for nothing gives back (§5.5.11).
    in_recovery: bool,
    prior_cwnd: u32,
    undo: Undo,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            state: State::Startup,
            now: Instant::ZERO,
            delivered_total: 0,
            has_rtt: false,
            initial: 0,
            initial_delivered: false,
            random: 0,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            max_bw: MaxFilter::new(),
            bw_shortterm: u64::MAX,
            bw: 0,
            min_rtt_us: INFINITE,
            min_rtt_stamp: Instant::ZERO,
            inflight_longterm: INFINITE,
            inflight_shortterm: INFINITE,
            extra_acked: RoundFilter::new(),
            extra_acked_start: Instant::ZERO,
            extra_acked_delivered: 0,
            bw_latest: 0,
            inflight_latest: 0,
            is_loss_in_round: false,
            loss_events_in_round: 0,
            loss_round_start: false,
            loss_round_delivered: 0,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw_count: 0,
            full_bw: 0,
            drain_start_round: 0,
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            bw_probe_up_rounds: 0,
            bw_probe_up_acked: 0,
            probe_up_acked_per_inc: INFINITE,
            rounds_since_probe_up: 0,
            bw_probe_wait_us: 0,
            cycle_stamp: Instant::ZERO,
            probe_rtt_min_us: INFINITE,
            probe_rtt_min_stamp: Instant::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            limited_until: None,
            idle_restart: false,
            in_recovery: false,
            prior_cwnd: 0,
            undo: Undo::NONE,
        }
    }
}

impl Bbr {
    /// §5.6.2, InitPacingRate: the initial window in a round trip, or in a millisecond if none was measured.
    fn init_pacing_rate(&self, window: &mut Window, srtt_us: u32) {
        let srtt_us = if srtt_us == 0 { 1_000 } else { srtt_us };
        let nominal = u64::from(self.initial) * 1_000_000 / u64::from(srtt_us);
        window.pacing_rate = (nominal * State::Startup.pacing_gain() / 100).max(1);
    }

    /// §5.6.2: the rate that follows from the bandwidth. Until the pipe was full once it only rises.
    fn set_pacing_rate(&self, window: &mut Window, gain: u64) {
        let rate = self.bw.saturating_mul(gain) / 100 * (100 - PACING_MARGIN) / 100;
        if rate > 0 && (self.full_bw_reached || rate > window.pacing_rate) {
            window.pacing_rate = rate;
        }
    }

    /// §5.6.3: the largest burst, a millisecond's worth, which the segmentation that follows has to be filled with.
    fn send_quantum(window: &Window) -> u32 {
        let quantum = u32::try_from(window.pacing_rate / 1_000).unwrap_or(u32::MAX);
        quantum
            .min(64 << 10)
            .max(window.mss.saturating_mul(2))
            .min(CWND_MAX / 4)
    }

    /// BDPMultiple (§5.6.4.2), `gain` in percent.
    fn bdp_multiple(&self, bw: u64, gain: u64) -> u32 {
        if self.min_rtt_us == INFINITE {
            return self.initial;
        }
        let bdp = u128::from(bw) * u128::from(self.min_rtt_us) * u128::from(gain) / 100_000_000;
        u32::try_from(bdp).unwrap_or(CWND_MAX).min(CWND_MAX)
    }

    /// QuantizationBudget (§5.6.4.2): room for what segmentation and receive offload hold back.
    fn with_budget(&self, window: &Window, inflight: u32) -> u32 {
        let mut inflight = inflight
            .max(Self::send_quantum(window) * 3)
            .max(Self::min_pipe(window));
        if self.state == State::ProbeUp {
            inflight = inflight.saturating_add(window.mss.saturating_mul(2));
        }
        inflight.min(CWND_MAX)
    }

    /// Inflight (§5.6.4.2).
    fn inflight(&self, window: &Window, bw: u64, gain: u64) -> u32 {
        self.with_budget(window, self.bdp_multiple(bw, gain))
    }

    /// BBR.MinPipeCwnd.
    fn min_pipe(window: &Window) -> u32 {
        window
            .mss
            .saturating_mul(MIN_PIPE_SEGMENTS)
            .clamp(1, CWND_MAX)
    }

    /// §5.6.4.6: down at once, up by what was delivered.
    fn set_cwnd(&mut self, window: &mut Window, ack: &Ack) {
        self.initial_delivered |= ack.delivered_total >= self.initial;
        let flying = self.bdp_multiple(self.bw, self.state.cwnd_gain());
        let flying = flying.saturating_add(self.extra_acked.get()).min(CWND_MAX);
        let most = self.with_budget(window, flying);
        let grown = window.cwnd.saturating_add(ack.delivered).min(CWND_MAX);
        if self.full_bw_reached {
            window.cwnd = grown.min(most);
        } else if window.cwnd < most || !self.initial_delivered {
            window.cwnd = grown;
        }
        window.cwnd = window.cwnd.max(Self::min_pipe(window));
        if self.state == State::ProbeRtt {
            window.cwnd = window.cwnd.min(self.probe_rtt_cwnd(window));
        }
        self.bound_cwnd(window);
    }

    /// BoundCwndForModel (§5.6.4.7).
    fn bound_cwnd(&self, window: &mut Window) {
        let longterm = match self.state {
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.inflight_longterm,
            State::ProbeRtt | State::ProbeCruise => self.inflight_with_headroom(window),
            State::Startup | State::Drain => INFINITE,
        };
        let cap = longterm
            .min(self.inflight_shortterm)
            .max(Self::min_pipe(window));
        window.cwnd = window.cwnd.min(cap);
    }

    /// SaveCwnd (§5.6.4.4): the last window that neither recovery nor ProbeRTT held down.
    fn save_cwnd(&mut self, window: &Window) {
        self.prior_cwnd = if self.in_recovery || self.state == State::ProbeRtt {
            self.prior_cwnd.max(window.cwnd)
        } else {
            window.cwnd
        };
    }

    /// RestoreCwnd.
    fn restore_cwnd(&self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd).min(CWND_MAX);
    }
}

impl Algorithm for Bbr {
    fn on_open(&mut self, window: &mut Window, srtt_us: u32, now: Instant) {
        self.now = now;
        self.initial = window.cwnd;
        self.has_rtt = srtt_us > 0;
        if self.has_rtt {
            self.min_rtt_us = srtt_us;
            self.probe_rtt_min_us = srtt_us;
        }
        self.min_rtt_stamp = now;
        self.probe_rtt_min_stamp = now;
        self.extra_acked_start = now;
        self.init_pacing_rate(window, srtt_us);
    }

    /// UpdateOnACK (§5.2.3).
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        if self.random == 0 {
            // Numbers that begin with the connection's secret ISS: flows of one machine do not probe in step.
            self.random = u64::from(ack.nxt.0) << 32 | u64::from(ack.una.0) | 1;
        }
        self.now = ack.now;
        self.delivered_total = ack.delivered_total;
        if let Some(rtt) = ack.rtt_us.filter(|_| !self.has_rtt) {
            self.has_rtt = true;
            self.init_pacing_rate(window, rtt);
        }
        self.update_latest_delivery(ack);
        self.update_congestion_signals(window, ack);
        self.update_aggregation(window, ack);
        self.check_full_bw(ack);
        self.check_startup_done(window, ack);
        self.check_drain_done(window, ack);
        self.update_probe_bw(window, ack);
        self.update_min_rtt(ack);
        self.check_probe_rtt(window, ack);
        self.advance_latest_delivery(ack);
        self.bw = self.max_bw.get().min(self.bw_shortterm);
        self.set_pacing_rate(window, self.state.pacing_gain());
        self.set_cwnd(window, ack);
    }

    /// OnEnterFastRecovery (§5.6.4.4). The window answers to the model, not to a threshold.
    fn reduce(&mut self, window: &Window, cause: Cause, _in_flight: u32, _now: Instant) -> u32 {
        if cause == Cause::Loss {
            self.begin_recovery(window);
        }
        window.cwnd.max(window.mss.saturating_mul(2))
    }

    /// OnEnterRTO.
    fn on_timeout(&mut self, window: &mut Window, _first: bool, _in_flight: u32, now: Instant) {
        self.now = now;
        self.begin_recovery(window);
    }

    fn on_recovered(&mut self, window: &mut Window, now: Instant) {
        self.now = now;
        self.in_recovery = false;
        self.restore_cwnd(window);
        self.bound_cwnd(window);
    }

    /// HandleSpuriousLossDetection (§5.5.11.2).
    fn on_undo(&mut self, window: &mut Window) {
        self.in_recovery = false;
        self.restore_cwnd(window);
        self.is_loss_in_round = false;
        self.reset_full_bw();
        let undo = core::mem::replace(&mut self.undo, Undo::NONE);
        self.bw_shortterm = self.bw_shortterm.max(undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::ProbeUp)
                if !matches!(
                    self.state,
                    State::ProbeUp | State::ProbeRtt | State::Startup
                ) =>
            {
                self.start_refill();
            }
            _ => {}
        }
    }

    /// HandleRestartFromIdle (§5.4.1): the path was given a rest, and is taken up again at its own rate.
    fn on_restart(&mut self, window: &mut Window, _idle_us: u64, _rto_us: u64, now: Instant) {
        self.now = now;
        self.idle_restart = true;
        self.extra_acked_start = now;
        self.extra_acked_delivered = 0;
        if self.state.is_probing_cycle() {
            self.set_pacing_rate(window, 100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(window);
        }
    }

    fn on_lost(&mut self, window: &mut Window, segment: &LostSegment) {
        self.handle_lost(window, segment);
    }

    fn owns_window(&self) -> bool {
        true
    }
    fn is_sound(&self) -> bool {
        self.extra_acked_delivered <= 1 << 62 && self.full_bw_count <= FULL_BW_ROUNDS
    }
}
