//! §5.3 of the draft: the states and what leads from one to the next.

use super::{Acks, Heard, Phase, Reference, State, Window, too_high};
use crate::tcp::congestion::algorithm::Ack;

impl Reference {
    pub(super) fn reset_full_bw(&mut self) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (0, 0, false);
    }

    /// §5.3.1.2: three rounds without a quarter more.
    pub(super) fn check_full_bw_reached(&mut self, heard: &Heard) {
        let Some(rate) = heard.ack.rate.rate() else {
            return;
        };
        if self.full_bw_now || !self.round_start || self.is_limited(heard) {
            return;
        }
        if rate >= self.full_bw + self.full_bw / 4 {
            self.reset_full_bw();
            self.full_bw = rate;
            return;
        }
        self.full_bw_count += 1;
        if self.full_bw_count == 3 {
            self.full_bw_now = true;
            self.full_bw_reached = true;
        }
    }

    /// §5.3.1.1 and CheckStartupHighLoss (§5.3.1.3): in recovery for a round, more lost than 2 %, in at least six places.
    pub(super) fn check_startup_done(&mut self, window: &Window, ack: &Ack) {
        if !self.full_bw_reached {
            self.loss_events += u32::from(ack.lost > 0);
            let lossy = ack.phase == Phase::Recovery
                && self.loss_events >= 6
                && too_high(ack.rate.lost, ack.rate.tx_in_flight);
            if self.loss_round_start {
                self.loss_events = 0;
                if lossy {
                    self.undo.state = Some(State::Startup);
                    self.full_bw_reached = true;
                    let bdp = self.bdp(self.max_bw(), 100).max(self.inflight_latest);
                    self.inflight_long = Some(bdp.max(Self::min_pipe(window)));
                }
            }
        }
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
            self.drain_start = self.round_count;
        }
    }

    /// §5.3.2: until the queue is gone, and for three rounds at most.
    pub(super) fn check_drain_done(&mut self, window: &Window, ack: &Ack) {
        let drained = u64::from(ack.in_flight) <= self.inflight(window, self.bw, 100);
        let long = self.round_count > self.drain_start + 3;
        if self.state == State::Drain && (drained || long) {
            self.start_down();
        }
    }

    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self) {
        (self.loss_in_round, self.bw_latest, self.inflight_latest) = (false, 0, 0);
        self.up_acked_per_inc = None;
        // PickProbeWait: zero or one round already counts, two seconds and up to one more.
        let random = self.draw();
        self.rounds_since_up = random % 2;
        self.wait = 2_000_000 + random / 2 % 1_000_000;
        self.cycle_stamp = self.now;
        self.acks = Acks::ProbeStopping;
        self.start_round();
        self.state = State::ProbeDown;
    }

    /// xorshift64* (Vigna 2016), shifts of 12, 25 and 27; the upper half of the product.
    fn draw(&mut self) -> u64 {
        let mut state = self.random.max(1);
        state ^= state / (1 << 12);
        state ^= state.wrapping_mul(1 << 25);
        state ^= state / (1 << 27);
        self.random = state;
        state.wrapping_mul(2_685_821_657_736_338_717) / (1 << 32)
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_refill(&mut self) {
        (self.bw_short, self.inflight_short) = (None, None);
        (self.up_rounds, self.up_acked) = (0, 0);
        self.prev_precautionary = false;
        self.acks = Acks::Refilling;
        self.start_round();
        self.state = State::ProbeRefill;
    }

    /// §5.3.3.6, UpdateProbeBWCyclePhase.
    pub(super) fn update_probe_bw_cycle_phase(&mut self, window: &Window, heard: &Heard) {
        if !self.full_bw_reached || self.adapt_long_term_model(window, heard) {
            return;
        }
        let (ack, in_flight) = (&heard.ack, u64::from(heard.ack.in_flight));
        match self.state {
            State::ProbeDown => {
                if self.is_time_to_probe(window) {
                    self.start_refill();
                } else if self.headroom(window).is_none_or(|most| in_flight <= most)
                    && in_flight <= self.inflight(window, self.max_bw(), 100)
                {
                    self.state = State::ProbeCruise;
                }
            }
            State::ProbeCruise if self.is_time_to_probe(window) => self.start_refill(),
            State::ProbeRefill if self.round_start => {
                self.probe_sample = true;
                self.acks = Acks::ProbeStarting;
                self.start_round();
                self.reset_full_bw();
                self.full_bw = ack.rate.rate().unwrap_or(0);
                self.state = State::ProbeUp;
                self.raise_inflight_longterm_slope(window);
            }
            State::ProbeUp => {
                let is_over = self.is_time_to_go_down(window, ack);
                if is_over {
                    self.prev_too_high = false;
                    self.start_down();
                }
            }
            _ => {}
        }
    }

    /// The time is over, or as many rounds as Reno would need for as much, at most 63.
    fn is_time_to_probe(&self, window: &Window) -> bool {
        let reno = (self.target_inflight(window) / u64::from(window.mss)).min(63);
        self.now > self.cycle_stamp + self.wait || self.rounds_since_up >= reno
    }

    pub(super) fn target_inflight(&self, window: &Window) -> u64 {
        self.bdp(self.bw, 100).min(window.cwnd.into())
    }

    fn is_time_to_go_down(&mut self, window: &Window, ack: &Ack) -> bool {
        let long = self.inflight_long.unwrap_or(u64::MAX);
        if self.prev_too_high && u64::from(ack.in_flight) >= long {
            self.prev_precautionary = true;
            return true;
        }
        if ack.is_cwnd_limited && u64::from(window.cwnd) >= long {
            self.reset_full_bw();
            self.full_bw = ack.rate.rate().unwrap_or(0);
            return false;
        }
        self.full_bw_now
    }

    /// RaiseInflightLongtermSlope: a segment in the first round, two in the second, four in the third, ...
    fn raise_inflight_longterm_slope(&mut self, window: &Window) {
        let growth = 1_u64 << self.up_rounds;
        self.up_rounds = (self.up_rounds + 1).min(30);
        let per_inc = u64::from(window.cwnd) / growth;
        self.up_acked_per_inc = Some(per_inc.max(window.mss.into()));
    }

    pub(super) fn probe_inflight_longterm_upward(&mut self, window: &Window, ack: &Ack) {
        let Some(long) = self.inflight_long else {
            return;
        };
        if !ack.is_cwnd_limited || u64::from(window.cwnd) < long {
            return;
        }
        self.up_acked += u64::from(ack.delivered);
        if let Some(per_inc) = self.up_acked_per_inc
            && self.up_acked >= per_inc
        {
            let delta = self.up_acked / per_inc;
            self.up_acked -= delta * per_inc;
            self.inflight_long = Some(long + delta * u64::from(window.mss));
        }
        if self.round_start {
            self.raise_inflight_longterm_slope(window);
        }
    }

    /// §5.3.4.3.
    pub(super) fn check_probe_rtt(&mut self, window: &mut Window, ack: &Ack) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(window);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.acks = Acks::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.held_back_until = Some(self.total + u64::from(ack.in_flight));
            match self.probe_rtt_done {
                None if u64::from(ack.in_flight) <= self.probe_rtt_cwnd(window) => {
                    self.probe_rtt_done = Some(self.now + 200_000);
                    self.probe_rtt_round_done = false;
                    self.start_round();
                }
                None => {}
                Some(_) => {
                    self.probe_rtt_round_done |= self.round_start;
                    if self.probe_rtt_round_done {
                        self.check_probe_rtt_done(window);
                    }
                }
            }
        }
        if ack.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// §5.3.4.4: with ExitProbeRTT.
    pub(super) fn check_probe_rtt_done(&mut self, window: &mut Window) {
        if let Some(done) = self.probe_rtt_done
            && self.now > done
        {
            self.probe_rtt_min_stamp = self.now;
            self.restore_cwnd(window);
            (self.bw_short, self.inflight_short) = (None, None);
            if self.full_bw_reached {
                self.start_down();
                self.state = State::ProbeCruise;
            } else {
                self.state = State::Startup;
            }
        }
    }
}
