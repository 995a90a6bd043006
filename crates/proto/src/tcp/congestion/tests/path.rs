//! One sender, one bottleneck, one receiver, as arithmetic: each segment is told at departure when it will be acknowledged, if at all.
//!
//! Segments have numbers of their own and are never sent again: what congestion control sees of a retransmission is that something
//! more is sent. Loss is noticed when three later segments were acknowledged; recovery ends when something is acknowledged that left
//! after it began.

use alloc::collections::VecDeque;

use super::super::Control;
use super::super::algorithm::{Ack, Algorithm, Cause, LostSegment, Phase, RateSample, Window};
use super::{MSS, beginning};
use crate::tcp::congestion::CongestionControl;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// What the path is made of.
#[derive(Clone, Copy)]
pub struct Path {
    /// Bytes per second of the bottleneck.
    pub rate: u64,
    /// Round trip without a queue.
    pub rtt_us: u64,
    /// Bytes that may wait at the bottleneck.
    pub buffer: u64,
    /// Of a million segments, so many get lost at random.
    pub loss_ppm: u64,
    /// Mark from so many waiting bytes on.
    pub mark: u64,
    pub seed: u64,
}

impl Path {
    pub const fn new(mbit: u64, rtt_ms: u64, buffer_bdp_percent: u64) -> Self {
        let rate = mbit * 125_000;
        Self {
            rate,
            rtt_us: rtt_ms * 1_000,
            buffer: rate * rtt_ms / 1_000 * buffer_bdp_percent / 100,
            loss_ppm: 0,
            mark: u64::MAX,
            seed: 1,
        }
    }
}

struct Sent {
    number: u32,
    left: u64,
    delivered: u32,
    delivered_at: u64,
    first_sent: u64,
    tx_in_flight: u32,
    lost: u32,
}

struct Arrival {
    at: u64,
    number: u32,
    marked: bool,
}

/// The whole, at some microsecond.
pub struct World {
    pub path: Path,
    pub control: Control,
    pub window: Window,
    pub now: u64,
    /// Bytes acknowledged.
    pub delivered: u64,
    pub lost: u64,
    pub sent: u64,
    pub phase: Phase,
    /// Recoveries begun, and timeouts.
    pub recoveries: u32,
    pub timeouts: u32,
    busy_until_ns: u64,
    outstanding: VecDeque<Sent>,
    arrivals: VecDeque<Arrival>,
    next: u32,
    recovery_end: u32,
    reducing_end: u32,
    next_send: u64,
    delivered_at: u64,
    first_sent: u64,
    srtt: u64,
    min_rtt: u64,
    last_news: u64,
    random: u64,
    /// Sum and number of queue lengths seen by arriving segments, bytes.
    pub queue_seen: (u64, u64),
}

impl World {
    pub fn new(which: CongestionControl, path: Path) -> Self {
        let mut control = Control::new(which);
        let mut window = beginning();
        control.on_open(&mut window, path.rtt_us as u32, Instant(0));
        Self {
            path,
            control,
            window,
            now: 0,
            delivered: 0,
            lost: 0,
            sent: 0,
            phase: Phase::Open,
            recoveries: 0,
            timeouts: 0,
            busy_until_ns: 0,
            outstanding: VecDeque::new(),
            arrivals: VecDeque::new(),
            next: 1 << 20,
            recovery_end: 0,
            reducing_end: 0,
            next_send: 0,
            delivered_at: 0,
            first_sent: 0,
            srtt: path.rtt_us,
            min_rtt: u64::MAX,
            last_news: 0,
            random: path.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            queue_seen: (0, 0),
        }
    }

    fn in_flight(&self) -> u32 {
        self.outstanding.len() as u32 * MSS
    }

    /// The bytes waiting at the bottleneck.
    pub fn queue(&self) -> u64 {
        self.busy_until_ns.saturating_sub(self.now * 1_000) * self.path.rate / 1_000_000_000
    }

    fn chance(&mut self, ppm: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000_000 < ppm
    }

    /// Runs until `until_us`.
    pub fn run(&mut self, until_us: u64) {
        while self.now < until_us {
            while self.in_flight() + MSS <= self.window.cwnd && self.next_send <= self.now {
                self.send();
            }
            let held_by_pace = self.in_flight() + MSS <= self.window.cwnd;
            let ack = self.arrivals.front().map_or(u64::MAX, |arrival| arrival.at);
            let send = if held_by_pace {
                self.next_send
            } else {
                u64::MAX
            };
            let timeout = self.last_news + 200_000.max(2 * self.srtt);
            let at = ack.min(send).min(timeout).max(self.now);
            self.now = at;
            if at == ack {
                let arrival = self.arrivals.pop_front().unwrap();
                self.acknowledge(&arrival);
            } else if at == timeout {
                self.time_out();
            }
        }
    }

    fn send(&mut self) {
        if self.outstanding.is_empty() {
            self.first_sent = self.now;
            self.delivered_at = self.now;
            self.last_news = self.now;
        }
        let number = self.next;
        self.next += 1;
        self.sent += u64::from(MSS);
        self.outstanding.push_back(Sent {
            number,
            left: self.now,
            delivered: self.delivered as u32,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            tx_in_flight: self.in_flight() + MSS,
            lost: self.lost as u32,
        });
        let gap = (u64::from(MSS) * 1_000_000).checked_div(self.window.pacing_rate);
        if let Some(gap) = gap {
            self.next_send = self.next_send.max(self.now.saturating_sub(1_000)) + gap;
        }
        let queue = self.queue();
        self.queue_seen.0 += queue;
        self.queue_seen.1 += 1;
        if queue + u64::from(MSS) > self.path.buffer.max(u64::from(MSS))
            || self.chance(self.path.loss_ppm)
        {
            return;
        }
        let wire = u64::from(MSS) * 1_000_000_000 / self.path.rate;
        self.busy_until_ns = self.busy_until_ns.max(self.now * 1_000) + wire;
        self.arrivals.push_back(Arrival {
            at: self.busy_until_ns / 1_000 + self.path.rtt_us,
            number,
            marked: queue >= self.path.mark,
        });
    }

    fn acknowledge(&mut self, arrival: &Arrival) {
        let prior_in_flight = self.in_flight();
        let limited = prior_in_flight + MSS > self.window.cwnd || self.window.in_slow_start();
        let Some(place) = self
            .outstanding
            .iter()
            .position(|sent| sent.number == arrival.number)
        else {
            return; // given up by a timeout
        };
        let sent = self.outstanding.remove(place).unwrap();
        self.last_news = self.now;
        self.delivered += u64::from(MSS);
        self.delivered_at = self.now;
        self.first_sent = sent.left;
        let rtt = self.now - sent.left;
        self.srtt = (7 * self.srtt + rtt) / 8;
        self.min_rtt = self.min_rtt.min(rtt);
        let (mut lost, mut new_episode) = (0, false);
        let before = self.in_flight() + MSS;
        while let Some(first) = self.outstanding.front()
            && first.number + 3 <= arrival.number
        {
            lost += MSS;
            new_episode |= first.number >= self.recovery_end;
            self.lost += u64::from(MSS);
            let segment = LostSegment {
                bytes: MSS,
                tx_in_flight: first.tx_in_flight,
                lost: (self.lost as u32).wrapping_sub(first.lost),
                is_app_limited: false,
            };
            self.outstanding.pop_front();
            self.control.on_lost(&mut self.window, &segment);
        }
        self.move_phase(arrival, new_episode, before);
        let interval = (self.now - sent.delivered_at).max(sent.left - sent.first_sent);
        let ack = Ack {
            now: Instant(self.now * 1_000),
            acked: MSS,
            delivered: MSS,
            delivered_total: self.delivered as u32,
            lost,
            marked: if arrival.marked { MSS } else { 0 },
            in_flight: self.in_flight(),
            rtt_us: Some(rtt as u32),
            srtt_us: self.srtt as u32,
            una: SeqNum(arrival.number + 1),
            nxt: SeqNum(self.next),
            phase: self.phase,
            is_cwnd_limited: limited,
            rate: RateSample {
                delivered: (self.delivered as u32).wrapping_sub(sent.delivered),
                interval_us: if interval < self.min_rtt {
                    0
                } else {
                    interval as u32
                },
                prior_delivered: sent.delivered,
                tx_in_flight: sent.tx_in_flight,
                lost: (self.lost as u32).wrapping_sub(sent.lost),
                is_app_limited: false,
            },
        };
        self.control.on_ack(&mut self.window, &ack);
        assert!((MSS..=1 << 30).contains(&self.window.cwnd));
    }

    fn move_phase(&mut self, arrival: &Arrival, lost: bool, flight: u32) {
        let now = Instant(self.now * 1_000);
        let owns = self.control.owns_window();
        if self.phase != Phase::Open && arrival.number >= self.recovery_end {
            self.phase = Phase::Open;
            if !owns {
                self.window.cwnd = self.window.cwnd.max(self.window.ssthresh);
            }
            self.control.on_recovered(&mut self.window, now);
        }
        let cause = if lost && self.phase == Phase::Open {
            self.phase = Phase::Recovery;
            self.recovery_end = self.next;
            self.recoveries += 1;
            Cause::Loss
        } else if arrival.marked && self.phase == Phase::Open && arrival.number >= self.reducing_end
        {
            self.reducing_end = self.next;
            Cause::Ecn
        } else {
            return;
        };
        let ssthresh = self.control.reduce(&self.window, cause, flight, now);
        if !owns {
            self.window.ssthresh = ssthresh;
            self.window.cwnd = ssthresh;
        }
    }

    fn time_out(&mut self) {
        let now = Instant(self.now * 1_000);
        let flight = self.in_flight();
        self.timeouts += 1;
        self.phase = Phase::Loss;
        self.recovery_end = self.next;
        self.lost += u64::from(flight);
        self.outstanding.clear();
        self.control.on_timeout(&mut self.window, true, flight, now);
        self.window.cwnd = MSS;
        self.last_news = self.now;
    }
}
