//! BBR held against the draft's pseudocode, acknowledgment by acknowledgment, through lives that are made up as they go.
//!
//! A life is a path of some rate and delay, in virtual time, and what befalls a sender there: losses, timeouts, recoveries for nothing,
//! pauses. Every few acknowledgments something lies just at, below or above what the draft compares it with at that moment, as no
//! path would have it often enough.

mod reference;

use alloc::collections::VecDeque;

use super::{AckPhase, Bbr, State};
use crate::tcp::congestion::algorithm::{
    Ack, Algorithm, Cause, LostSegment, Phase, RateSample, Window,
};
use crate::time::Instant;
use crate::wire::tcp::SeqNum;
use reference::{Acks, Heard, Reference};

/// What a life is made of.
#[derive(Clone, Copy)]
struct Kind {
    mss: u32,
    /// Bytes per second, and the round trip.
    rate: u64,
    rtt_us: u32,
    /// Of a thousand acknowledgments, so many with losses, timeouts, pauses, and at the edge of something.
    losses: u64,
    accidents: u64,
    edges: u64,
    /// What was measured when it began.
    srtt_us: u32,
}

struct Life {
    kind: Kind,
    random: u64,
    now_us: u64,
    total: u64,
    lost: u32,
    rate: u64,
    phase: Phase,
    /// What was delivered when the segments left that are acknowledged next.
    left: VecDeque<u64>,
    window: Window,
    bbr: Bbr,
    draft_window: Window,
    draft: Reference,
    seen: [u32; 7],
}

impl Life {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut window = Window {
            cwnd: 10 * kind.mss,
            ssthresh: u32::MAX,
            mss: kind.mss,
            pacing_rate: 0,
            is_paced: false,
            slow_start_limit: 0,
        };
        let mut draft_window = window;
        let mut bbr = Bbr::default();
        bbr.on_open(&mut window, kind.srtt_us, Instant(5_000_000_000));
        Self {
            draft: Reference::new(&mut draft_window, kind.srtt_us, 5_000_000),
            kind,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now_us: 5_000_000,
            total: 0,
            lost: 0,
            rate: kind.rate,
            phase: Phase::Open,
            left: (0..8).map(|_| 0).collect(),
            window,
            bbr,
            draft_window,
            seen: [0; 7],
        }
    }

    /// A number below `of`.
    fn below(&mut self, of: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % of.max(1)
    }

    fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }

    /// `value`, or one less or more.
    fn about(&mut self, value: u64) -> u64 {
        (value + self.below(3)).saturating_sub(1)
    }

    /// The time goes on by an eighth of a round trip, or to an edge of one of the draft's waits.
    fn pass(&mut self) {
        let step = u64::from(self.kind.rtt_us) / 8;
        let edges = [
            self.draft.probe_rtt_min_stamp + 5_000_000,
            self.draft.min_rtt_stamp + 10_000_000,
            self.draft.cycle_stamp + self.draft.wait,
            self.draft.probe_rtt_done.unwrap_or(0),
        ];
        let next = self.now_us + step + self.below(step / 4);
        let due = edges
            .into_iter()
            .find(|at| (self.now_us + 2..next).contains(at));
        self.now_us = match due {
            Some(at) => self.about(at),
            None => next,
        };
    }

    fn in_flight(&mut self) -> u64 {
        let window = &self.draft_window;
        let flat = [
            self.draft.headroom(window),
            Some(self.draft.inflight(window, self.draft.max_bw(), 100)),
            Some(self.draft.inflight(window, self.draft.bw, 100)),
            Some(self.draft.probe_rtt_cwnd(window)),
            self.draft.inflight_long,
        ];
        let cwnd = u64::from(window.cwnd);
        match self.below(5_000 / self.kind.edges.max(1)) {
            n @ 0..5 => {
                let edge = flat[n as usize].unwrap_or(cwnd);
                self.about(edge)
            }
            _ => cwnd - self.below(cwnd / 3),
        }
        .min(u32::MAX.into())
    }

    /// The path's rate changes now and then.
    fn drift(&mut self) {
        if self.chance(4) {
            let percent = 60 + self.below(90);
            self.rate = (self.rate * percent / 100).clamp(self.kind.rate / 4, self.kind.rate * 4);
        }
    }

    fn sample(&mut self, delivered: u32, prior: u64, in_flight: u64) -> RateSample {
        let mut sample = RateSample {
            delivered: (self.total - prior) as u32,
            interval_us: self.kind.rtt_us + self.below(u64::from(self.kind.rtt_us) / 16) as u32,
            prior_delivered: prior as u32,
            tx_in_flight: (in_flight as u32).saturating_add(delivered),
            lost: 0,
            is_app_limited: self.chance(30),
        };
        if self.chance(30) {
            sample.interval_us = 0;
        }
        // Just a quarter more than before, or not.
        let wanted = self.draft.full_bw + self.draft.full_bw / 4;
        if self.chance(self.kind.edges) && wanted < 1 << 31 {
            sample.delivered = self.about(wanted) as u32;
            sample.interval_us = 1_000_000;
        }
        if self.chance(self.kind.losses) {
            // Two percent, or not.
            sample.tx_in_flight = (sample.tx_in_flight / 50 * 50).max(50);
            sample.lost = self.about(u64::from(sample.tx_in_flight / 50)) as u32;
            if self.chance(500) {
                sample.lost *= 2;
            }
        }
        sample
    }

    fn acknowledge(&mut self) {
        self.drift();
        let mss = u64::from(self.kind.mss);
        let bytes = self.rate * u64::from(self.kind.rtt_us) / 8_000_000;
        let delivered = match self.chance(20) {
            true => 0,
            false => (bytes / mss * mss).clamp(mss, 1 << 27) as u32,
        };
        self.total += u64::from(delivered);
        self.left.push_back(self.total);
        let mut prior = self.left.pop_front().unwrap();
        if self.chance(self.kind.edges) {
            let edges = [
                self.draft.next_round,
                self.draft.loss_round,
                self.draft.held_back_until.unwrap_or(prior),
            ];
            let edge = edges[self.below(3) as usize];
            prior = self.about(edge).min(self.total);
        }
        let in_flight = self.in_flight();
        let rate = self.sample(delivered, prior, in_flight);
        let lossy = self.chance(self.kind.losses);
        let noise = self.below(u64::from(self.kind.rtt_us) / 2) as u32;
        let rtt_us = (!self.chance(50)).then_some(self.kind.rtt_us + noise);
        let ack = Ack {
            now: Instant(self.now_us * 1_000),
            acked: delivered,
            delivered,
            delivered_total: self.total as u32,
            lost: if lossy { self.kind.mss } else { 0 },
            marked: 0,
            in_flight: in_flight as u32,
            rtt_us,
            srtt_us: self.kind.rtt_us,
            una: SeqNum((self.total as u32).wrapping_add(77)),
            nxt: SeqNum((self.total as u32).wrapping_add(77 + in_flight as u32)),
            phase: self.phase,
            is_cwnd_limited: self.chance(700),
            rate,
        };
        self.bbr.on_ack(&mut self.window, &ack);
        let heard = Heard {
            now_us: self.now_us,
            total: self.total,
            prior,
            ack,
        };
        self.draft.on_ack(&mut self.draft_window, &heard);
    }

    fn lose(&mut self) {
        let tx_in_flight = self.draft_window.cwnd / 50 * 50 + 50 * self.kind.mss;
        let lost = self.about(u64::from(tx_in_flight / 50)) as u32 * (1 + self.below(2) as u32);
        let segment = LostSegment {
            bytes: self.kind.mss.min(lost),
            tx_in_flight,
            lost,
            is_app_limited: self.chance(100),
        };
        self.lost = self.lost.wrapping_add(segment.bytes);
        self.bbr.on_lost(&mut self.window, &segment);
        self.draft.on_lost(&self.draft_window, &segment);
    }

    /// A recovery begins or ends, for nothing perhaps, or there was nothing to send for a while.
    fn accident(&mut self) {
        let now = Instant(self.now_us * 1_000);
        match (self.phase, self.below(6)) {
            (_, 0) => {
                self.bbr.on_restart(&mut self.window, 0, 0, now);
                self.draft.on_restart(&mut self.draft_window, self.now_us);
            }
            (_, 1) => {
                let before = self.window;
                let least = self.bbr.reduce(&self.window, Cause::Ecn, 0, now);
                assert_eq!((least, self.window), (least_of(&before), before));
            }
            (Phase::Open, 2) => {
                self.phase = Phase::Loss;
                self.bbr.on_timeout(&mut self.window, true, 0, now);
                self.draft.on_timeout(&self.draft_window, self.now_us);
                self.window.cwnd = self.kind.mss;
                self.draft_window.cwnd = self.kind.mss;
            }
            (Phase::Open, _) => {
                self.phase = Phase::Recovery;
                let least = self.bbr.reduce(&self.window, Cause::Loss, 0, now);
                assert_eq!(least, least_of(&self.window));
                self.draft.on_recovery(&self.draft_window);
            }
            (_, 2) => {
                self.phase = Phase::Open;
                self.bbr.on_undo(&mut self.window);
                self.draft.on_undo(&mut self.draft_window);
            }
            _ => {
                self.phase = Phase::Open;
                self.bbr.on_recovered(&mut self.window, now);
                self.draft.on_recovered(&mut self.draft_window, self.now_us);
            }
        }
    }

    fn live(&mut self, acks: u32) {
        for n in 0..acks {
            self.pass();
            if self.chance(self.kind.losses) {
                self.lose();
            }
            if self.chance(self.kind.accidents) {
                self.accident();
            }
            self.acknowledge();
            self.compare(n);
        }
    }

    fn compare(&mut self, n: u32) {
        let (bbr, draft) = (&self.bbr, &self.draft);
        let limit = |limit: Option<u64>| limit.unwrap_or(u32::MAX.into()) as u32;
        let state = (bbr.state, bbr.ack_phase, u64::from(bbr.round_count));
        let wanted = (draft.state, phase(draft.acks), draft.round_count);
        assert_eq!(state, wanted, "at {n}");
        let limits = (
            bbr.inflight_longterm,
            bbr.inflight_shortterm,
            bbr.min_rtt_us,
        );
        let wanted = (draft.inflight_long, draft.inflight_short, draft.min_rtt);
        let wanted = (limit(wanted.0), limit(wanted.1), limit(wanted.2));
        assert_eq!(limits, wanted, "at {n}: {:?}", draft.state);
        let rates = (bbr.bw, bbr.max_bw.get(), bbr.bw_shortterm);
        let wanted = (draft.bw, draft.max_bw(), draft.bw_short.unwrap_or(u64::MAX));
        assert_eq!(rates, wanted, "at {n}: {:?}", draft.state);
        assert_eq!(self.window, self.draft_window, "at {n}: {:?}", draft.state);
        self.seen[draft.state as usize] += 1;
    }
}

/// The window, and two segments at least: BBR has no threshold to come down to.
fn least_of(window: &Window) -> u32 {
    window.cwnd.max(2 * window.mss)
}

fn phase(acks: Acks) -> AckPhase {
    match acks {
        Acks::Init => AckPhase::Init,
        Acks::Refilling => AckPhase::Refilling,
        Acks::ProbeStarting => AckPhase::ProbeStarting,
        Acks::ProbeFeedback => AckPhase::ProbeFeedback,
        Acks::ProbeStopping => AckPhase::ProbeStopping,
    }
}

const STEADY: Kind = Kind {
    mss: 1_000,
    rate: 10_000_000,
    rtt_us: 40_000,
    losses: 0,
    accidents: 0,
    edges: 10,
    srtt_us: 40_000,
};

/// Lives in peace: from Startup through Drain into the cycle of ProbeBW, with ProbeRTT every five seconds.
#[test]
fn steady_lives() {
    let mut seen = [0; 7];
    for (n, (rate, rtt_us, srtt_us)) in [
        (10_000_000, 40_000, 40_000),
        (1_000_000_000, 20_000, 0),
        (20_000, 200_000, 1_000_000),
        (30_000_000_000, 400_000, 400_000),
    ]
    .into_iter()
    .enumerate()
    {
        let kind = Kind {
            rate,
            rtt_us,
            srtt_us,
            ..STEADY
        };
        let mut life = Life::new(kind, n as u64 + 1);
        life.live(12_000);
        seen = core::array::from_fn(|state| seen[state] + life.seen[state]);
    }
    assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
}

/// Lives with losses, recoveries for nothing, timeouts and pauses.
#[test]
fn eventful_lives() {
    let mut seen = [0; 7];
    for seed in 1..60 {
        let kind = Kind {
            mss: [536, 1_000, 1_448, 8_948][seed as usize % 4],
            rate: STEADY.rate << (seed % 5),
            losses: [5, 30, 150, 400][seed as usize / 2 % 4],
            accidents: [4, 40][seed as usize % 2],
            edges: [10, 100, 300][seed as usize % 3],
            ..STEADY
        };
        let mut life = Life::new(kind, seed);
        life.live(2_000);
        seen = core::array::from_fn(|state| seen[state] + life.seen[state]);
    }
    assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
}

/// §5.3.4.3: after a pause the path is measured without ProbeRTT, until something is delivered; what only reports losses delivers nothing.
#[test]
fn a_pause_is_no_time_for_probe_rtt() {
    let mut life = Life::new(STEADY, 1);
    life.live(800);
    let later = Instant((life.now_us + 60_000_000) * 1_000);
    life.bbr.on_restart(&mut life.window, 0, 0, later);
    let states = [0, 0, STEADY.mss, STEADY.mss].map(|delivered| {
        life.total += u64::from(delivered);
        let ack = Ack {
            now: later,
            acked: delivered,
            delivered,
            delivered_total: life.total as u32,
            lost: STEADY.mss - delivered,
            marked: 0,
            in_flight: life.window.cwnd,
            rtt_us: None,
            srtt_us: STEADY.rtt_us,
            una: SeqNum(1),
            nxt: SeqNum(2),
            phase: Phase::Open,
            is_cwnd_limited: true,
            rate: RateSample::default(),
        };
        life.bbr.on_ack(&mut life.window, &ack);
        life.bbr.state == State::ProbeRtt
    });
    assert_eq!(states, [false, false, false, true]);
}
