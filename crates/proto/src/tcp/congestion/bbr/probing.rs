//! ProbeBW (draft-ietf-ccwg-bbr §5.3.3): down, cruise, refill, up, and what losses teach on the way (§5.5.10).

use super::model::{BETA, part_of};
use super::states::{AckPhase, State};
use super::{Bbr, INFINITE};
use crate::tcp::congestion::algorithm::{Ack, LostSegment, Window};
use crate::tcp::image::plain;

/// BBR.LossThresh: tolerated losses while probing, in percent.
const LOSS_PERCENT: u64 = 2;
/// BBR.Headroom: left to others while cruising, in percent.
const HEADROOM_PERCENT: u64 = 15;
/// Rounds after which Reno would have grown as much on a path of any size (§5.3.3.5.3).
const RENO_ROUNDS_MAX: u32 = 63;
/// Least time between two probes; up to a second is added.
const PROBE_WAIT_US: u32 = 2_000_000;
/// Growth doubles so often.
const UP_ROUNDS_MAX: u8 = 30;

/// What a recovery for nothing gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undo {
    pub state: Option<State>,
    pub bw_shortterm: u64,
    pub inflight_shortterm: u32,
    pub inflight_longterm: u32,
}

impl Undo {
    pub const NONE: Self = Self {
        state: None,
        bw_shortterm: 0,
        inflight_shortterm: 0,
        inflight_longterm: 0,
    };
}

plain!(Undo {
    state,
    bw_shortterm,
    inflight_shortterm,
    inflight_longterm
});

impl Bbr {
    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITE;
        self.pick_probe_wait();
        self.cycle_stamp = self.now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::ProbeDown;
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_refill(&mut self) {
        self.reset_shortterm();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::ProbeRefill;
    }

    /// StartProbeBW_UP.
    fn start_up(&mut self, window: &Window, ack: &Ack) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = ack.rate.rate().unwrap_or(0);
        self.state = State::ProbeUp;
        self.raise_slope(window);
    }

    /// UpdateProbeBWCyclePhase (§5.3.3.6).
    pub(super) fn update_probe_bw(&mut self, window: &Window, ack: &Ack) {
        if !self.full_bw_reached || self.adapt_longterm(window, ack) {
            return;
        }
        let state = self.state;
        match state {
            State::ProbeDown
                if !self.probe_if_time(window) && self.is_time_to_cruise(window, ack) =>
            {
                self.state = State::ProbeCruise;
            }
            State::ProbeCruise => {
                self.probe_if_time(window);
            }
            State::ProbeRefill if self.round_start => {
                self.is_bw_probe_sample = true;
                self.start_up(window, ack);
            }
            State::ProbeUp if self.is_time_to_go_down(window, ack) => {
                self.prev_probe_too_high = false;
                self.start_down();
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW (§5.3.3.5.3): after two to three seconds, or once Reno would have grown by as much.
    fn probe_if_time(&mut self, window: &Window) -> bool {
        let waited = self.now.micros_since(self.cycle_stamp) > self.bw_probe_wait_us;
        let reno_rounds = self.target_inflight(window) / window.mss.max(1);
        let due = waited || self.rounds_since_probe_up >= reno_rounds.min(RENO_ROUNDS_MAX);
        if due {
            self.start_refill();
        }
        due
    }

    /// PickProbeWait.
    fn pick_probe_wait(&mut self) {
        let random = self.random();
        self.rounds_since_probe_up = random & 1;
        self.bw_probe_wait_us = PROBE_WAIT_US + (random >> 1) % 1_000_000;
    }

    /// xorshift64*, good enough to tell flows apart.
    fn random(&mut self) -> u32 {
        self.random |= u64::from(self.random == 0);
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let [.., a, b, c, d] =
            (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    fn target_inflight(&self, window: &Window) -> u32 {
        self.bdp_multiple(self.bw, 100).min(window.cwnd)
    }

    fn is_time_to_cruise(&self, window: &Window, ack: &Ack) -> bool {
        ack.in_flight <= self.inflight_with_headroom(window)
            && ack.in_flight <= self.inflight(window, self.max_bw.get(), 100)
    }

    /// IsTimeToGoDown.
    fn is_time_to_go_down(&mut self, window: &Window, ack: &Ack) -> bool {
        if self.prev_probe_too_high && ack.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if ack.is_cwnd_limited && window.cwnd >= self.inflight_longterm {
            self.reset_full_bw();
            self.full_bw = ack.rate.rate().unwrap_or(0);
            return false;
        }
        self.full_bw_now
    }

    /// InflightWithHeadroom.
    pub(super) fn inflight_with_headroom(&self, window: &Window) -> u32 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let headroom = part_of(self.inflight_longterm, HEADROOM_PERCENT).max(window.mss);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(Self::min_pipe(window))
    }

    /// RaiseInflightLongtermSlope: by one segment in the first round, by two in the second, ...
    fn raise_slope(&mut self, window: &Window) {
        let growth = 1_u32 << self.bw_probe_up_rounds.min(UP_ROUNDS_MAX);
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(UP_ROUNDS_MAX);
        self.probe_up_acked_per_inc = (window.cwnd / growth).max(window.mss).max(1);
    }

    /// ProbeInflightLongtermUpward.
    fn probe_longterm_upward(&mut self, window: &Window, ack: &Ack) {
        if !ack.is_cwnd_limited || window.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked = self.bw_probe_up_acked.saturating_add(ack.delivered);
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc {
            let times = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
            self.bw_probe_up_acked %= self.probe_up_acked_per_inc;
            self.inflight_longterm = self
                .inflight_longterm
                .saturating_add(times.saturating_mul(window.mss));
        }
        if self.round_start {
            self.raise_slope(window);
        }
    }

    /// AdaptLongTermModel: true if it decided on the state.
    fn adapt_longterm(&mut self, window: &Window, ack: &Ack) -> bool {
        let cycling = self.state.is_probing_cycle();
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if cycling && !self.is_limited(ack) {
                self.max_bw.advance();
            }
            if cycling && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_refill();
                return true;
            }
        }
        let rate = &ack.rate;
        if rate.interval_us > 0
            && self.inflight_longterm != INFINITE
            && !Self::is_inflight_too_high(rate.lost, rate.tx_in_flight)
        {
            self.inflight_longterm = self.inflight_longterm.max(rate.tx_in_flight);
            if self.state == State::ProbeUp {
                self.probe_longterm_upward(window, ack);
            }
        }
        false
    }

    /// IsInflightTooHigh: more lost than is tolerated, of what was in flight.
    pub(super) fn is_inflight_too_high(lost: u32, tx_in_flight: u32) -> bool {
        u64::from(lost) * 100 > u64::from(tx_in_flight) * LOSS_PERCENT
    }

    /// HandleLostPacket (§5.5.10.2).
    pub(super) fn handle_lost(&mut self, window: &Window, segment: &LostSegment) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.delivered_total;
        }
        self.begin_recovery(window);
        self.is_loss_in_round = true;
        if self.is_bw_probe_sample && Self::is_inflight_too_high(segment.lost, segment.tx_in_flight)
        {
            self.handle_inflight_too_high(window, segment);
        }
    }

    /// HandleInflightTooHigh: so much does not fit.
    fn handle_inflight_too_high(&mut self, window: &Window, segment: &LostSegment) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !segment.is_app_limited {
            self.inflight_longterm = inflight_at_loss(segment)
                .max(part_of(self.target_inflight(window), BETA))
                .max(1);
        }
        if self.state == State::ProbeUp {
            self.undo.state = Some(State::ProbeUp);
            self.start_down();
        }
    }

    /// SaveStateUponLoss (§5.5.11.1): what there was when the first loss was noticed, whichever way.
    pub(super) fn begin_recovery(&mut self, window: &Window) {
        if self.in_recovery {
            return;
        }
        self.save_cwnd(window);
        self.in_recovery = true;
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }
}

/// InflightAtLoss: how much was in flight when losses became too many, in the middle of a burst perhaps.
fn inflight_at_loss(segment: &LostSegment) -> u32 {
    let before = u64::from(segment.tx_in_flight.saturating_sub(segment.bytes));
    let lost_before = u64::from(segment.lost.saturating_sub(segment.bytes));
    let tolerated = (before * LOSS_PERCENT).saturating_sub(lost_before * 100);
    let at = before + tolerated / (100 - LOSS_PERCENT);
    u32::try_from(at).unwrap_or(INFINITE)
}
