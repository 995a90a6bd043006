//! §5.5 of the draft: rounds, rate, round trip, aggregation, losses.

use super::{Acks, Heard, LostSegment, Reference, State, Undo, Window, percent, too_high};
use crate::tcp::congestion::algorithm::Ack;

impl Reference {
    pub(super) fn start_round(&mut self) {
        self.next_round = self.total;
    }

    /// MarkConnectionAppLimited marks what was in flight when ProbeRTT began.
    fn was_held_back(&self, heard: &Heard) -> bool {
        self.held_back_until
            .is_some_and(|until| heard.prior <= until)
    }

    pub(super) fn is_limited(&self, heard: &Heard) -> bool {
        heard.ack.rate.is_app_limited || self.was_held_back(heard)
    }

    /// §5.5.10.3.
    pub(super) fn update_latest_delivery_signals(&mut self, heard: &Heard) {
        self.loss_round_start = false;
        let Some(rate) = heard.ack.rate.rate() else {
            return;
        };
        self.bw_latest = self.bw_latest.max(rate);
        let delivered = heard.ack.rate.delivered.into();
        self.inflight_latest = self.inflight_latest.max(delivered);
        if heard.prior >= self.loss_round {
            self.loss_round = self.total;
            self.loss_round_start = true;
        }
    }

    pub(super) fn update_congestion_signals(&mut self, window: &Window, heard: &Heard) {
        // UpdateMaxBw (§5.5.5), with UpdateRound (§5.5.1).
        self.round_start = false;
        if let Some(rate) = heard.ack.rate.rate() {
            if heard.prior >= self.next_round {
                self.start_round();
                self.round_count += 1;
                self.rounds_since_up += 1;
                self.round_start = true;
            }
            if !self.was_held_back(heard) {
                self.held_back_until = None;
            }
            if rate >= self.max_bw() || !self.is_limited(heard) {
                let newest = self.cycles.last_mut().unwrap();
                *newest = rate.max(*newest);
            }
        }
        if !self.loss_round_start {
            return;
        }
        // AdaptLowerBoundsFromCongestion. Unlike in the draft, not for losses within the tolerated two percent, nor where ProbeRTT held
        // sending back.
        let rate = &heard.ack.rate;
        let told = self.loss_in_round
            && too_high(rate.lost, rate.tx_in_flight)
            && !self.was_held_back(heard);
        let is_probing_bw = [State::Startup, State::ProbeRefill, State::ProbeUp];
        if told && !is_probing_bw.contains(&self.state) {
            let bw = self.bw_short.unwrap_or(self.max_bw());
            let inflight = self.inflight_short.unwrap_or(window.cwnd.into());
            // Unlike in the draft: paced at 90 %, less is delivered because less is sent.
            let latest = match self.state {
                State::ProbeDown => self.bw_latest * 100 / 90,
                _ => self.bw_latest,
            };
            self.bw_short = Some(latest.max(percent(bw, 70)));
            self.inflight_short = Some(self.inflight_latest.max(percent(inflight, 70)));
        }
        self.loss_in_round = false;
    }

    /// §5.5.9: the filter has ten rounds, here two halves of five; in Startup it has one (ExtraAckedFilterLen).
    pub(super) fn update_ack_aggregation(&mut self, window: &Window, ack: &Ack) {
        if self.round_start {
            self.extra.2 = self.extra.2.saturating_add(1);
            if !self.full_bw_reached {
                self.extra = (0, 0, 0);
            } else if self.extra.2 >= 5 {
                self.extra = (self.extra.1, 0, 0);
            }
        }
        let interval = self.now - self.extra_start;
        let mut expected = (u128::from(self.bw) * u128::from(interval) / 1_000_000) as u64;
        if self.extra_delivered <= expected {
            (self.extra_delivered, self.extra_start, expected) = (0, self.now, 0);
        }
        self.extra_delivered += u64::from(ack.delivered);
        let extra = self.extra_delivered - expected;
        self.extra.1 = self.extra.1.max(extra.min(window.cwnd.into()));
    }

    /// §5.3.4.3: ProbeRTTInterval = 5 s, MinRTTFilterLen = 10 s.
    pub(super) fn update_min_rtt(&mut self, ack: &Ack) {
        self.probe_rtt_expired = self.now > self.probe_rtt_min_stamp + 5_000_000;
        if let Some(rtt) = ack.rtt_us.map(u64::from)
            && (self.probe_rtt_expired || self.probe_rtt_min.is_none_or(|least| rtt < least))
        {
            self.probe_rtt_min = Some(rtt.max(1));
            self.probe_rtt_min_stamp = self.now;
        }
        let expired = self.now > self.min_rtt_stamp + 10_000_000;
        let lower = match (self.probe_rtt_min, self.min_rtt) {
            (Some(new), Some(old)) => new < old,
            (new, _) => new.is_some(),
        };
        if lower || expired {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    /// §5.5.10.2, HandleLostPacket.
    pub fn on_lost(&mut self, window: &Window, lost: &LostSegment) {
        if !self.loss_in_round {
            self.loss_round = self.total; // NoteLoss
        }
        self.save_state_upon_loss(window);
        self.loss_in_round = true;
        if !self.probe_sample || !too_high(lost.lost, lost.tx_in_flight) {
            return;
        }
        // HandleInflightTooHigh.
        self.prev_too_high = true;
        self.probe_sample = false;
        if !lost.is_app_limited {
            let least = percent(self.target_inflight(window), 70).max(1);
            self.inflight_long = Some(Self::inflight_at_loss(lost).max(least));
        }
        if self.state == State::ProbeUp {
            self.undo.state = Some(State::ProbeUp);
            self.start_down();
        }
    }

    /// InflightAtLoss: inflight_prev plus what of LossThresh was left: (LossThresh * inflight_prev - lost_prev) / (1 - LossThresh).
    fn inflight_at_loss(lost: &LostSegment) -> u64 {
        let inflight_prev = i64::from(lost.tx_in_flight) - i64::from(lost.bytes);
        let lost_prev = i64::from(lost.lost) - i64::from(lost.bytes);
        let (inflight_prev, lost_prev) = (inflight_prev.max(0), lost_prev.max(0));
        let tolerated = (2 * inflight_prev - 100 * lost_prev).max(0) / 98;
        (inflight_prev + tolerated) as u64
    }

    /// §5.5.11.1, SaveStateUponLoss, with SaveCwnd.
    fn save_state_upon_loss(&mut self, window: &Window) {
        if !self.in_recovery {
            self.save_cwnd(window);
            self.in_recovery = true;
            let shortterm = Some((self.bw_short, self.inflight_short, self.inflight_long));
            self.undo = Undo {
                state: None,
                shortterm,
            };
        }
    }

    pub(super) fn save_cwnd(&mut self, window: &Window) {
        let cwnd = u64::from(window.cwnd);
        self.prior_cwnd = match self.in_recovery || self.state == State::ProbeRtt {
            false => cwnd,
            true => cwnd.max(self.prior_cwnd),
        };
    }

    pub(super) fn restore_cwnd(&self, window: &mut Window) {
        window.cwnd = self.prior_cwnd.max(window.cwnd.into()).min(1 << 30) as u32;
    }

    /// §5.6.4.4, OnEnterFastRecovery and OnEnterRTO.
    pub fn on_recovery(&mut self, window: &Window) {
        self.save_state_upon_loss(window);
    }

    pub fn on_timeout(&mut self, window: &Window, now: u64) {
        self.now = now;
        self.save_state_upon_loss(window);
    }

    pub fn on_recovered(&mut self, window: &mut Window, now: u64) {
        self.now = now;
        self.in_recovery = false;
        self.restore_cwnd(window);
        self.bound_cwnd_for_model(window);
    }

    /// §5.5.11.2, HandleSpuriousLossDetection.
    pub fn on_undo(&mut self, window: &mut Window) {
        self.in_recovery = false;
        self.restore_cwnd(window);
        self.loss_in_round = false;
        self.reset_full_bw();
        let undo = core::mem::take(&mut self.undo);
        // No limit is more than any.
        let more = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.max(b));
        if let Some((bw, inflight, longterm)) = undo.shortterm {
            self.bw_short = more(self.bw_short, bw);
            self.inflight_short = more(self.inflight_short, inflight);
            self.inflight_long = more(self.inflight_long, longterm);
        }
        if undo.state == Some(State::Startup) && self.state != State::Startup {
            self.full_bw_reached = false;
            if self.state != State::ProbeRtt {
                self.state = State::Startup;
            }
        }
        let quick = [State::ProbeUp, State::ProbeRtt, State::Startup];
        if undo.state == Some(State::ProbeUp) && !quick.contains(&self.state) {
            self.start_refill();
        }
    }

    /// §5.4.1, HandleRestartFromIdle.
    pub fn on_restart(&mut self, window: &mut Window, now: u64) {
        self.now = now;
        self.idle_restart = true;
        self.extra_start = now;
        self.extra_delivered = 0;
        match self.state {
            State::Startup | State::Drain => {}
            State::ProbeRtt => self.check_probe_rtt_done(window),
            _ => self.set_pacing_rate(window, 100),
        }
    }

    /// Tells whether this was decided on.
    pub(super) fn adapt_long_term_model(&mut self, window: &Window, heard: &Heard) -> bool {
        let cycling = !matches!(self.state, State::Startup | State::Drain | State::ProbeRtt);
        if self.acks == Acks::ProbeStarting && self.round_start {
            self.acks = Acks::ProbeFeedback;
        }
        if self.acks == Acks::ProbeStopping && self.round_start {
            self.probe_sample = false;
            self.acks = Acks::Init;
            // AdvanceMaxBwFilter, once a cycle; one without samples does not count.
            if cycling && !self.is_limited(heard) && self.cycles.last() != Some(&0) {
                self.cycles.push(0);
            }
            if cycling && self.prev_precautionary && !self.prev_too_high {
                self.start_refill();
                return true;
            }
        }
        let rate = &heard.ack.rate;
        if rate.interval_us == 0 || too_high(rate.lost, rate.tx_in_flight) {
            return false;
        }
        if let Some(long) = self.inflight_long {
            self.inflight_long = Some(long.max(rate.tx_in_flight.into()));
            if self.state == State::ProbeUp {
                self.probe_inflight_longterm_upward(window, &heard.ack);
            }
        }
        false
    }
}
