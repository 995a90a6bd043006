//! What an acknowledgment has delivered, for congestion control and the records.

use super::Connection;
use crate::tcp::congestion::Ack;
use crate::tcp::delivery::{Delivery, Taker};
use crate::tcp::sent::{Sent, elapsed_us, micros_of};
use crate::time::Instant;
use crate::wire::tcp::Timestamps;

impl Connection {
    /// An acknowledgment begins.
    #[inline(always)]
    pub(super) fn delivery(&self, now: Instant) -> Delivery {
        Delivery {
            now_us: micros_of(now),
            prior_flight: (self.snd.nxt - self.snd.una).unsigned_abs(),
            prior_sacked: self.sent.sacked(),
            prior_fack: self.recovery.rack.fack(),
            prior_pipe: self.pipe(),
            round_ends: self.rtt.ends_round(self.snd.una),
            ..Delivery::default()
        }
    }

    /// What takes an acknowledgment's records, and where these are.
    #[inline(always)]
    pub(super) fn taker<'a>(
        &'a mut self,
        delivery: &'a mut Delivery,
        echo_is_older: bool,
    ) -> (&'a mut Sent, Taker<'a>) {
        let taker = Taker {
            delivery,
            rate: &mut self.rate,
            rack: &mut self.recovery.rack,
            recover: self.recovery.recover,
            min_rtt_us: self.rtt.min_us(),
            echo_is_older,
        };
        (&mut self.sent, taker)
    }

    /// Round trips (RFC 6298 §4, RFC 7323 §4.1): of the first segment acknowledged now that was sent once, which includes the peer's
    /// delay; or by its timestamp of one that was sent again (Karn's algorithm, RFC 9293 MUST-18). Where a retransmission closed a gap, what
    /// lay behind it has waited for that: it gives no round trip (RFC 6298 §3).
    #[inline(always)]
    pub(super) fn measure(
        &mut self,
        timestamps: Option<Timestamps>,
        delivery: &Delivery,
        now: Instant,
    ) {
        let acknowledged = delivery.first_sent_us.filter(|_| !delivery.resent);
        let first = acknowledged.or(delivery.sacked_sent_us);
        let rtt = match first {
            Some(sent_us) => Some(elapsed_us(delivery.now_us, sent_us)),
            None if delivery.acked > 0 => self.echoed_rtt_us(timestamps, now),
            None => None,
        };
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt, self.snd.una, self.snd.nxt, now);
        }
    }

    /// [`Self::update_congestion`] in code of its own, for the slow path.
    #[inline(never)]
    pub(super) fn update_congestion_slow(&mut self, delivery: &Delivery, now: Instant) {
        self.update_congestion(delivery, now);
    }

    /// Applies the delivery to congestion control, which moves the window.
    #[inline(always)]
    pub(super) fn update_congestion(&mut self, delivery: &Delivery, now: Instant) {
        let min_rtt_us = self.rtt.min_us();
        let rate = self.rate.sample(&delivery.newest, min_rtt_us);
        let acknowledged = delivery.last_sent_us.filter(|_| !delivery.resent);
        let last = acknowledged.or(delivery.sacked_sent_us);
        let is_cwnd_limited = self
            .congestion
            .note_usage(delivery.prior_pipe, delivery.round_ends);
        let ack = Ack {
            now,
            acked: delivery.acked,
            delivered: delivery.delivered,
            delivered_total: self.rate.delivered,
            lost: delivery.lost,
            marked: delivery.marked,
            in_flight: self.pipe(),
            rtt_us: last.map(|sent_us| elapsed_us(delivery.now_us, sent_us).max(1)),
            srtt_us: self.rtt.srtt_us,
            una: self.snd.una,
            nxt: self.snd.nxt,
            phase: self.recovery.phase,
            is_cwnd_limited,
            rate,
        };
        self.congestion.acknowledged(&ack);
    }
}
