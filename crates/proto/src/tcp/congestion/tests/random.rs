//! Anything at all, told to any congestion control in any order: nothing panics, and the window stays a window.

use super::super::Control;
use super::super::algorithm::{Ack, Algorithm, Cause, LostSegment, Phase, RateSample, Window};
use super::super::reno::CWND_MAX;
use crate::tcp::congestion::CongestionControl;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Of any magnitude.
    fn number(&mut self) -> u32 {
        let bits = self.next() % 33;
        ((self.next() >> 32) >> (32 - bits)) as u32
    }
    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
    fn ack(&mut self, now: Instant) -> Ack {
        Ack {
            now,
            acked: self.number(),
            delivered: self.number(),
            delivered_total: self.number(),
            lost: self.number(),
            marked: self.number(),
            in_flight: self.number(),
            rtt_us: self.coin().then(|| self.number()),
            srtt_us: self.number(),
            una: SeqNum(self.number()),
            nxt: SeqNum(self.number()),
            phase: [Phase::Open, Phase::Reducing, Phase::Recovery, Phase::Loss]
                [(self.next() % 4) as usize],
            is_cwnd_limited: self.coin(),
            rate: RateSample {
                delivered: self.number(),
                interval_us: self.number(),
                prior_delivered: self.number(),
                tx_in_flight: self.number(),
                lost: self.number(),
                is_app_limited: self.coin(),
            },
        }
    }
}

fn step(random: &mut Random, control: &mut Control, window: &mut Window, now: Instant) {
    let flight = random.number();
    match random.next() % 16 {
        0 => {
            let cause = if random.coin() {
                Cause::Loss
            } else {
                Cause::Ecn
            };
            window.ssthresh = control.reduce(window, cause, flight, now);
            if !control.owns_window() {
                window.cwnd = window.ssthresh;
            }
        }
        1 => {
            control.on_timeout(window, random.coin(), flight, now);
            window.cwnd = window.mss;
        }
        2 => control.on_recovered(window, now),
        3 => control.on_undo(window),
        4 => {
            let (idle, rto) = (u64::from(random.number()), u64::from(random.number()));
            control.on_restart(window, idle, rto, now);
        }
        5 => {
            let segment = LostSegment {
                bytes: random.number(),
                tx_in_flight: random.number(),
                lost: random.number(),
                is_app_limited: random.coin(),
            };
            control.on_lost(window, &segment);
        }
        6 => window.pacing_rate = u64::from(random.number()),
        _ => {
            let ack = random.ack(now);
            control.on_ack(window, &ack);
        }
    }
}

#[test]
fn nothing_is_too_strange() {
    for seed in 1..=400_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for which in CongestionControl::ALL {
            let mut control = Control::new(which);
            let mss = 24 + random.number() % 65_000;
            let mut window = Window {
                cwnd: mss.saturating_mul(1 + random.number() % 100).min(CWND_MAX),
                ssthresh: u32::MAX,
                mss,
                pacing_rate: 0,
                is_paced: false,
                slow_start_limit: 0,
            };
            control.on_open(&mut window, random.number(), Instant::ZERO);
            let mut now = Instant::ZERO;
            for i in 0..300 {
                now = now.plus_micros(u64::from(random.number()));
                step(&mut random, &mut control, &mut window, now);
                assert!(
                    window.cwnd >= mss && window.cwnd <= CWND_MAX,
                    "seed {seed} step {i} {which:?}: {window:?}"
                );
                assert!(window.ssthresh >= 2 * mss, "seed {seed} step {i} {which:?}");
            }
        }
    }
}
