//! The pseudocode of draft-ietf-ccwg-bbr §5 as it stands there, to hold the implementation against: real infinities, totals and times
//! that do not wrap, one function per name of the draft. Where the implementation says why it departs from the draft, so does this.

use alloc::vec;
use alloc::vec::Vec;

use super::super::State;
use crate::tcp::congestion::algorithm::{Ack, LostSegment, Phase, Window};

/// What the implementation caps windows with: half the sequence space is 2^31, and a window is half of that.
const CWND_MAX: u64 = 1 << 30;

/// An acknowledgment, with totals and a time that do not wrap.
pub struct Heard {
    pub now_us: u64,
    pub total: u64,
    pub prior: u64,
    pub ack: Ack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// What a spurious recovery gives back: state, bw_shortterm, inflight_shortterm, inflight_longterm.
#[derive(Clone, Debug, Default)]
struct Undo {
    state: Option<State>,
    shortterm: Option<(Option<u64>, Option<u64>, Option<u64>)>,
}

#[derive(Clone, Debug)]
pub struct Reference {
    pub state: State,
    pub now: u64,
    pub total: u64,
    pub random: u64,
    initial: u64,
    has_rtt: bool,
    pub round_count: u64,
    pub round_start: bool,
    pub next_round: u64,
    /// Maxima of whole probing cycles, the newest last.
    cycles: Vec<u64>,
    pub bw: u64,
    pub bw_short: Option<u64>,
    pub inflight_short: Option<u64>,
    pub inflight_long: Option<u64>,
    pub min_rtt: Option<u64>,
    pub min_rtt_stamp: u64,
    pub probe_rtt_min: Option<u64>,
    pub probe_rtt_min_stamp: u64,
    probe_rtt_expired: bool,
    pub probe_rtt_done: Option<u64>,
    probe_rtt_round_done: bool,
    pub held_back_until: Option<u64>,
    idle_restart: bool,
    /// Maxima of extra_acked in the rounds of the half before and of this one.
    extra: (u64, u64, u8),
    extra_start: u64,
    extra_delivered: u64,
    bw_latest: u64,
    inflight_latest: u64,
    loss_in_round: bool,
    loss_events: u32,
    loss_round_start: bool,
    pub loss_round: u64,
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw_count: u32,
    pub full_bw: u64,
    drain_start: u64,
    pub acks: Acks,
    probe_sample: bool,
    prev_too_high: bool,
    prev_precautionary: bool,
    up_rounds: u32,
    up_acked: u64,
    up_acked_per_inc: Option<u64>,
    rounds_since_up: u64,
    pub wait: u64,
    pub cycle_stamp: u64,
    in_recovery: bool,
    pub prior_cwnd: u64,
    undo: Undo,
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn percent(of: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// §5.5.10.2, IsInflightTooHigh with LossThresh = 2 %.
fn too_high(lost: u32, tx_in_flight: u32) -> bool {
    u64::from(lost) > 0 && u64::from(lost) * 50 > u64::from(tx_in_flight)
}

impl Reference {
    /// §5.2.1, OnInit.
    pub fn new(window: &mut Window, srtt_us: u32, now: u64) -> Self {
        let rtt = Some(u64::from(srtt_us)).filter(|rtt| *rtt > 0);
        let mut new = Self {
            state: State::Startup,
            now,
            total: 0,
            random: 0,
            initial: window.cwnd.into(),
            has_rtt: rtt.is_some(),
            round_count: 0,
            round_start: false,
            next_round: 0,
            cycles: vec![0, 0],
            bw: 0,
            bw_short: None,
            inflight_short: None,
            inflight_long: None,
            min_rtt: rtt,
            min_rtt_stamp: now,
            probe_rtt_min: rtt,
            probe_rtt_min_stamp: now,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            held_back_until: None,
            idle_restart: false,
            extra: (0, 0, 0),
            extra_start: now,
            extra_delivered: 0,
            bw_latest: 0,
            inflight_latest: 0,
            loss_in_round: false,
            loss_events: 0,
            loss_round_start: false,
            loss_round: 0,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw_count: 0,
            full_bw: 0,
            drain_start: 0,
            acks: Acks::Init,
            probe_sample: false,
            prev_too_high: false,
            prev_precautionary: false,
            up_rounds: 0,
            up_acked: 0,
            up_acked_per_inc: None,
            rounds_since_up: 0,
            wait: 0,
            cycle_stamp: 0,
            in_recovery: false,
            prior_cwnd: 0,
            undo: Undo::default(),
        };
        new.init_pacing_rate(window, srtt_us.into());
        new
    }

    /// §5.6.2, InitPacingRate: StartupPacingGain (2.77) times the initial window in a round trip, or in 1 ms.
    fn init_pacing_rate(&mut self, window: &mut Window, srtt: u64) {
        let nominal = self.initial * 1_000_000 / if srtt == 0 { 1_000 } else { srtt };
        window.pacing_rate = percent(nominal, 277).max(1);
    }

    /// MaxBwFilterLen = 2 cycles.
    pub fn max_bw(&self) -> u64 {
        *self.cycles.iter().rev().take(2).max().unwrap()
    }

    /// §5.2.3, UpdateOnACK.
    pub fn on_ack(&mut self, window: &mut Window, heard: &Heard) {
        let ack = &heard.ack;
        if self.random == 0 {
            self.random = (u64::from(ack.nxt.0) << 32) + u64::from(ack.una.0);
            self.random += 1 - self.random % 2;
        }
        self.now = heard.now_us;
        self.total = heard.total;
        if let (Some(rtt), false) = (ack.rtt_us, self.has_rtt) {
            self.has_rtt = true;
            self.init_pacing_rate(window, rtt.into());
        }
        self.update_latest_delivery_signals(heard);
        self.update_congestion_signals(window, heard);
        self.update_ack_aggregation(window, ack);
        self.check_full_bw_reached(heard);
        self.check_startup_done(window, ack);
        self.check_drain_done(window, ack);
        self.update_probe_bw_cycle_phase(window, heard);
        self.update_min_rtt(ack);
        self.check_probe_rtt(window, ack);
        if self.loss_round_start {
            self.bw_latest = ack.rate.rate().unwrap_or(0);
            self.inflight_latest = ack.rate.delivered.into();
        }
        self.bw = least(Some(self.max_bw()), self.bw_short).unwrap();
        self.set_pacing_rate(window, self.pacing_gain());
        self.set_cwnd(window, ack);
    }

    /// The table in §5.6.1.
    fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => 277,
            State::Drain => 50,
            State::ProbeDown => 90,
            State::ProbeUp => 125,
            State::ProbeCruise | State::ProbeRefill | State::ProbeRtt => 100,
        }
    }

    fn cwnd_gain(&self) -> u64 {
        match self.state {
            State::ProbeUp => 225,
            State::ProbeRtt => 50,
            _ => 200,
        }
    }

    /// §5.6.2: PacingMarginPercent is 1.
    fn set_pacing_rate(&mut self, window: &mut Window, gain: u64) {
        let rate = percent(percent(self.bw, gain), 99);
        if rate != 0 && (self.full_bw_reached || rate > window.pacing_rate) {
            window.pacing_rate = rate;
        }
    }

    fn min_pipe(window: &Window) -> u64 {
        4 * u64::from(window.mss)
    }

    /// BDPMultiple.
    pub fn bdp(&self, bw: u64, gain: u64) -> u64 {
        let Some(rtt) = self.min_rtt else {
            return self.initial;
        };
        let bdp = u128::from(bw) * u128::from(rtt) * u128::from(gain) / (100 * 1_000_000);
        bdp.min(CWND_MAX.into()) as u64
    }

    /// QuantizationBudget: three bursts, a burst (§5.6.3) is a millisecond, at most 64 KiB, at least two segments.
    fn quantized(&self, window: &Window, inflight: u64) -> u64 {
        let burst = (window.pacing_rate / 1_000)
            .min(65_536)
            .max(2 * u64::from(window.mss));
        let mut inflight = inflight.max(3 * burst).max(Self::min_pipe(window));
        if self.state == State::ProbeUp {
            inflight += 2 * u64::from(window.mss);
        }
        inflight.min(CWND_MAX)
    }

    pub fn inflight(&self, window: &Window, bw: u64, gain: u64) -> u64 {
        self.quantized(window, self.bdp(bw, gain))
    }

    pub fn headroom(&self, window: &Window) -> Option<u64> {
        let long = self.inflight_long?;
        let headroom = percent(long, 15).max(window.mss.into());
        Some(long.saturating_sub(headroom).max(Self::min_pipe(window)))
    }

    pub fn probe_rtt_cwnd(&self, window: &Window) -> u64 {
        self.bdp(self.bw, 50).max(Self::min_pipe(window))
    }

    /// §5.6.4.6.
    fn set_cwnd(&mut self, window: &mut Window, ack: &Ack) {
        let extra = self.extra.0.max(self.extra.1);
        let most = (self.bdp(self.bw, self.cwnd_gain()) + extra).min(CWND_MAX);
        let most = self.quantized(window, most);
        let mut cwnd = u64::from(window.cwnd);
        let grown = (cwnd + u64::from(ack.delivered)).min(CWND_MAX);
        if self.full_bw_reached {
            cwnd = grown.min(most);
        } else if cwnd < most || self.total < self.initial {
            cwnd = grown;
        }
        cwnd = cwnd.max(Self::min_pipe(window));
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd(window));
        }
        window.cwnd = cwnd as u32;
        self.bound_cwnd_for_model(window);
    }

    /// §5.6.4.7.
    fn bound_cwnd_for_model(&self, window: &mut Window) {
        let cap = match self.state {
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.inflight_long,
            State::ProbeRtt | State::ProbeCruise => self.headroom(window),
            State::Startup | State::Drain => None,
        };
        if let Some(cap) = least(cap, self.inflight_short) {
            let cap = cap.max(Self::min_pipe(window));
            window.cwnd = cap.min(window.cwnd.into()) as u32;
        }
    }
}

mod model;
mod states;
