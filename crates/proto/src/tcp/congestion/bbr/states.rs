//! BBR's states, and those beside ProbeBW (draft-ietf-ccwg-bbr §5.3.1, §5.3.2, §5.3.4): Startup finds the bandwidth, Drain takes the
//! queue away that this made, ProbeRTT now and then shows the path without one.

use super::Bbr;
use crate::tcp::congestion::algorithm::{Ack, Phase, Window};

/// Rounds without much growth after which the pipe counts as full (§5.3.1.2).
pub(super) const FULL_BW_ROUNDS: u8 = 3;
/// BBRStartupFullLossCnt: acknowledgments that report losses, in one round.
const FULL_LOSS_EVENTS: u8 = 6;
/// Drain takes no longer (§5.3.2).
const DRAIN_ROUNDS: u32 = 3;
/// BBR.ProbeRTTDuration.
const PROBE_RTT_US: u64 = 200_000;

/// BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum State {
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

/// BBR.ack_phase: what the acknowledgments that come now are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum AckPhase {
    /// Nothing special.
    Init,
    /// The pipe being filled.
    Refilling,
    /// More in flight, nothing heard of it yet.
    ProbeStarting,
    /// What came of more in flight.
    ProbeFeedback,
    /// No more, but still to be heard of.
    ProbeStopping,
}

impl State {
    /// How fast, in percent of the bandwidth (table in §5.6.1).
    pub const fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::ProbeDown => 90,
            Self::ProbeUp => 125,
            Self::ProbeCruise | Self::ProbeRefill | Self::ProbeRtt => 100,
        }
    }

    /// How much in flight, in percent of the bandwidth-delay product.
    pub const fn cwnd_gain(self) -> u64 {
        match self {
            Self::ProbeUp => 225,
            Self::ProbeRtt => 50,
            _ => 200,
        }
    }

    /// IsInAProbeBWState.
    pub const fn is_probing_cycle(self) -> bool {
        matches!(
            self,
            Self::ProbeDown | Self::ProbeCruise | Self::ProbeRefill | Self::ProbeUp
        )
    }
}

impl Bbr {
    /// ResetFullBW (§5.3.1.2).
    pub(super) const fn reset_full_bw(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// CheckFullBWReached: three rounds of sending faster brought less than a quarter more.
    pub(super) fn check_full_bw(&mut self, ack: &Ack) {
        let Some(rate) = ack.rate.rate() else {
            return;
        };
        if self.full_bw_now || !self.round_start || self.is_limited(ack) {
            return;
        }
        if rate >= self.full_bw.saturating_add(self.full_bw / 4) {
            self.reset_full_bw();
            self.full_bw = rate;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// CheckStartupDone (§5.3.1.1), with CheckStartupHighLoss (§5.3.1.3): a round of recovery with more losses than are tolerated, in
    /// several places, ends Startup as well.
    pub(super) fn check_startup_done(&mut self, window: &Window, ack: &Ack) {
        if !self.full_bw_reached {
            if ack.lost > 0 {
                self.loss_events_in_round = self.loss_events_in_round.saturating_add(1);
            }
            if self.loss_round_start {
                let lossy = ack.phase == Phase::Recovery
                    && self.loss_events_in_round >= FULL_LOSS_EVENTS
                    && Self::is_inflight_too_high(ack.rate.lost, ack.rate.tx_in_flight);
                if lossy {
                    self.undo.state = Some(State::Startup);
                    self.full_bw_reached = true;
                    let bdp = self.bdp_multiple(self.max_bw.get(), 100);
                    self.inflight_longterm =
                        bdp.max(self.inflight_latest).max(Self::min_pipe(window));
                }
                self.loss_events_in_round = 0;
            }
        }
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    /// CheckDrainDone (§5.3.2).
    pub(super) fn check_drain_done(&mut self, window: &Window, ack: &Ack) {
        let rounds = self.round_count.wrapping_sub(self.drain_start_round);
        if self.state == State::Drain
            && (ack.in_flight <= self.inflight(window, self.bw, 100) || rounds > DRAIN_ROUNDS)
        {
            self.start_down();
        }
    }

    /// ProbeRTTCwnd (§5.6.4.5).
    pub(super) fn probe_rtt_cwnd(&self, window: &Window) -> u32 {
        self.bdp_multiple(self.bw, State::ProbeRtt.cwnd_gain())
            .max(Self::min_pipe(window))
    }

    /// CheckProbeRTT (§5.3.4.3).
    pub(super) fn check_probe_rtt(&mut self, window: &mut Window, ack: &Ack) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(window);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(window, ack);
        }
        if ack.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT: once little is in flight, for 200 ms and a round at least.
    fn handle_probe_rtt(&mut self, window: &mut Window, ack: &Ack) {
        // MarkConnectionAppLimited: what is in flight until then is not as fast as it could be.
        self.limited_until = Some(self.delivered_total.wrapping_add(ack.in_flight));
        if self.probe_rtt_done.is_none() {
            if ack.in_flight <= self.probe_rtt_cwnd(window) {
                self.probe_rtt_done = Some(ack.now.plus_micros(PROBE_RTT_US));
                self.probe_rtt_round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(window);
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT (§5.3.4.4).
    pub(super) fn check_probe_rtt_done(&mut self, window: &mut Window) {
        if self.probe_rtt_done.is_none_or(|done| self.now <= done) {
            return;
        }
        self.probe_rtt_min_stamp = self.now;
        self.restore_cwnd(window);
        self.reset_shortterm();
        if self.full_bw_reached {
            self.start_down();
            self.state = State::ProbeCruise;
        } else {
            self.state = State::Startup;
        }
    }
}
