//! Loss recovery: what counts as lost, when a recovery begins and ends, and how much may be in flight meanwhile.
//!
//! With SACK, RACK finds losses (RFC 8985) and the records say what is under way (RFC 6675, pipe); without, duplicate acknowledgments do
//! (RFC 5681 §3.2, RFC 6582). Proportional rate reduction moves the window (RFC 9937).

use super::Connection;
use crate::tcp::congestion::{Cause, LostSegment, Phase};
use crate::tcp::delivery::Delivery;
use crate::tcp::prr::{Prr, Told};
use crate::tcp::rack::{DUPLICATE_THRESHOLD, Path};
use crate::tcp::recovery::TailProbe;
use crate::tcp::sent::{Record, Sent, Traits, elapsed_us, micros_of};
use crate::tcp::timer::Waiting;
use crate::tcp::undo::Frto;
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::Header;

/// More segments than this are not reported (Linux's `tcp_max_reordering`).
const REORDERING_MAX: u32 = 300;

/// When the rest of very many records is looked at, in microseconds.
const SOON_US: u32 = 1000;

/// What congestion control needs of a segment that was found lost.
fn lost_segment(record: &Record, bytes: u32, lost_total: u32) -> LostSegment {
    LostSegment {
        bytes,
        tx_in_flight: record.tx_in_flight,
        lost: lost_total.wrapping_sub(record.lost),
        is_app_limited: record.traits.has(Traits::APP_LIMITED),
    }
}

impl Connection {
    /// Bytes in flight. Without SACK every duplicate acknowledgment stands for a segment that has arrived.
    #[inline]
    pub(super) fn pipe(&self) -> u32 {
        let in_flight = self.sent.in_flight();
        if self.recovery.duplicates == 0 {
            return in_flight;
        }
        let arrived = u32::from(self.recovery.duplicates).saturating_mul(u32::from(self.snd.mss));
        in_flight.saturating_sub(arrived)
    }

    /// An acknowledgment reported something late that begins `distance` bytes below RACK.fack.
    fn note_reordering(&mut self, distance: u32, mss: u32) {
        let segments = distance.div_ceil(mss.max(1)).min(REORDERING_MAX);
        let segments = u16::try_from(segments).unwrap_or(u16::MAX);
        let cold = &mut *self.cold;
        cold.reordering = cold.reordering.max(segments);
        cold.reorderings = cold.reorderings.saturating_add(1);
    }

    /// An acknowledgment with news, or a duplicate, on the slow path: what it means for recovery and for the window.
    pub(super) fn react(&mut self, header: &Header, delivery: &mut Delivery, now: Instant) {
        self.measure(header.options.timestamps, delivery, now);
        if let Some(from) = delivery.late_from {
            let distance = (delivery.prior_fack - from).max(0).unsigned_abs();
            let mss = self.snd.mss.into();
            self.note_reordering(distance, mss);
        }
        self.notice_reneging();
        let undone = self.try_undo(header, delivery, now);
        self.note_tail_probe(delivery, now);
        if !undone {
            self.find_losses(delivery, now);
            self.move_phase(header, delivery, now);
        }
        self.update_congestion_slow(delivery, now);
        self.reduce_proportionally(delivery);
        if self.recovery.phase != Phase::Loss {
            self.note_mended(now);
        }
        self.arm_early::<false>(now);
    }

    /// Takes for lost what by now should have arrived.
    fn find_losses(&mut self, delivery: &mut Delivery, now: Instant) {
        match (self.sack, self.settings.rack) {
            (true, true) => return self.find_losses_by_time(delivery, now),
            (true, false) => return self.find_losses_by_count(delivery, now),
            (false, _) => {}
        }
        if delivery.duplicate {
            // More duplicates than segments in flight are lies (`negative 64`).
            let most = self.sent.in_flight() / u32::from(self.snd.mss);
            if u32::from(self.recovery.duplicates) < most {
                self.recovery.duplicates += 1;
                delivery.delivered = delivery.delivered.saturating_add(self.snd.mss.into());
            }
            // RFC 6582 §3.2, step 2: not for duplicates of what recovery sent twice.
            if self.recovery.phase == Phase::Open
                && u32::from(self.recovery.duplicates) >= DUPLICATE_THRESHOLD
                && self.snd.una > self.recovery.recover
            {
                self.front_is_lost(delivery);
            }
        } else if delivery.acked > 0 {
            match self.recovery.phase {
                Phase::Recovery => self.partial_acknowledgment(delivery),
                // RFC 5681 §3.2: what counts is a row of them.
                Phase::Open | Phase::Reducing => self.recovery.duplicates = 0,
                Phase::Loss => {}
            }
        }
    }

    /// RFC 6582 §3.2, step 3, partial acknowledgment: the next segment was lost, too; the window deflates by what has arrived.
    fn partial_acknowledgment(&mut self, delivery: &mut Delivery) {
        let segments = delivery.acked / u32::from(self.snd.mss);
        let arrived = u16::try_from(segments.saturating_sub(1)).unwrap_or(u16::MAX);
        self.recovery.duplicates = self.recovery.duplicates.saturating_sub(arrived);
        if self.snd.una < self.recovery.recover && self.sent.lost() == 0 {
            self.front_is_lost(delivery);
        }
    }

    /// Without SACK: the segment at SND.UNA is lost, and nothing is known of any other.
    fn front_is_lost(&mut self, delivery: &mut Delivery) {
        let mss = u32::from(self.snd.mss);
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        self.sent
            .condemn_front(mss.min(flight), |_, bytes| delivery.lost += bytes);
        self.rate.lost = self.rate.lost.wrapping_add(delivery.lost);
    }

    /// RACK, step 5 (RFC 8985 §6.2): also decides when to look again.
    pub(super) fn find_losses_by_time(&mut self, delivery: &mut Delivery, now: Instant) {
        self.recovery.waiting = Waiting::TailProbe;
        if self.sent.is_plain() && self.recovery.phase == Phase::Open {
            return; // nothing overtook anything
        }
        let path = Path {
            min_rtt_us: self.rtt.min_us(),
            srtt_us: self.rtt.srtt_us,
            is_urgent: self.recovery.is_repairing()
                || self.sent.sacked_segments() >= DUPLICATE_THRESHOLD
                || self.sent.sacked() > (DUPLICATE_THRESHOLD - 1) * u32::from(self.snd.mss),
        };
        let rack = self.recovery.rack;
        let window_us = rack.reordering_window_us(path);
        let now_us = micros_of(now);
        let remaining = |record: &Record| rack.remaining_us(record, window_us, now_us);
        let find = |sent: &mut Sent, told: &mut dyn FnMut(&Record, u32)| {
            sent.condemn_late(remaining, told)
        };
        let (mut wait, more) = self.take_for_lost(find, delivery, now);
        if more {
            wait = SOON_US; // unless an acknowledgment comes first
        }
        if wait > 0 {
            self.recovery.waiting = Waiting::Reordering;
            self.timers.early = now.plus_micros(u64::from(wait) + 1);
        }
    }

    /// Takes for lost what `find` reports.
    pub(super) fn take_for_lost<T>(
        &mut self,
        find: impl FnOnce(&mut Sent, &mut dyn FnMut(&Record, u32)) -> T,
        delivery: &mut Delivery,
        now: Instant,
    ) -> T {
        let Self {
            congestion,
            rate,
            sent,
            ..
        } = self;
        let mut is_probe_only = true;
        let found = find(sent, &mut |record, bytes| {
            rate.lost = rate.lost.wrapping_add(bytes);
            is_probe_only &= record.traits.has(Traits::PROBE);
            delivery.lost += bytes;
            congestion.lost(&lost_segment(record, bytes, rate.lost));
        });
        if delivery.lost > 0 && is_probe_only {
            delivery.lost = 0;
            self.path_probe_lost(now);
        }
        found
    }

    /// Recoveries begin and end.
    fn move_phase(&mut self, header: &Header, delivery: &Delivery, now: Instant) {
        let done = self.snd.una >= self.recovery.recover;
        match self.recovery.phase {
            Phase::Open => {}
            Phase::Reducing if done => self.leave_recovery(now),
            Phase::Reducing => {}
            Phase::Recovery if done => self.leave_recovery(now),
            Phase::Recovery => {}
            Phase::Loss => {
                self.step_frto(delivery);
                if self.snd.una >= self.recovery.recover {
                    self.recovery.phase = Phase::Open;
                    self.recovery.duplicates = 0;
                    self.recovery.frto = Frto::Off;
                }
            }
        }
        if self.recovery.phase == Phase::Open && delivery.acked > 0 && self.sent.lost() == 0 {
            // RFC 6582 §3.2: the condition "not before recover" then holds for every later loss.
            self.recovery.recover = header.ack - 1;
        }
        let lossy = self.sent.lost() > 0;
        if lossy && matches!(self.recovery.phase, Phase::Open | Phase::Reducing) {
            self.enter_recovery(delivery, now);
        }
    }

    fn arm_undo(&mut self) {
        let open = self.sent.sent_again();
        self.cold
            .undo
            .arm(&self.congestion.window, self.snd.una, open);
    }

    /// Recovery begins: what was found lost goes out again.
    pub(super) fn enter_recovery(&mut self, delivery: &Delivery, now: Instant) {
        let was_reducing = self.recovery.phase == Phase::Reducing;
        if !was_reducing {
            self.arm_undo();
            let flight = delivery.prior_flight;
            self.congestion.reduce(Cause::Loss, flight, now);
            self.cold.prr = Prr::begin(delivery.prior_flight, delivery.prior_sacked);
        }
        self.recovery.phase = Phase::Recovery;
        self.recovery.recover = self.snd.nxt;
        self.recovery.tail = TailProbe::None;
        self.cold.recoveries = self.cold.recoveries.saturating_add(1);
        self.pending.set(Pending::SEND);
    }

    /// The network asks for less (ECN), or a tail loss probe has mended a loss: the window shrinks, nothing is sent again.
    pub(super) fn enter_reducing(&mut self, cause: Cause, now: Instant) {
        if self.recovery.phase != Phase::Open {
            return;
        }
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        self.cold.undo.disarm();
        self.congestion.reduce(cause, flight, now);
        self.cold.prr = Prr::begin(flight, self.sent.sacked());
        self.recovery.phase = Phase::Reducing;
        self.recovery.recover = self.snd.nxt;
    }

    /// What was in flight when recovery began is acknowledged.
    fn leave_recovery(&mut self, now: Instant) {
        if self.recovery.phase == Phase::Recovery {
            self.recovery.rack.on_recovered();
        }
        self.congestion.recovered(now);
        self.recovery.phase = Phase::Open;
        self.recovery.duplicates = 0;
    }

    /// RFC 9937: the window while recovery or a reduction lasts.
    fn reduce_proportionally(&mut self, delivery: &Delivery) {
        let moves = matches!(self.recovery.phase, Phase::Recovery | Phase::Reducing);
        if !moves || self.congestion.owns_window() || delivery.delivered == 0 {
            return;
        }
        let told = Told {
            delivered: delivery.delivered,
            in_flight: self.pipe(),
            is_safe: delivery.acked > 0 && delivery.lost == 0,
        };
        let window = &mut self.congestion.window;
        window.cwnd = self
            .cold
            .prr
            .window(told, window.ssthresh, window.mss)
            .max(window.mss);
    }

    /// RFC 6298 §5.4, RFC 5681 §3.1, RFC 8985 §6.3: everything that was not sent just now is lost. What was sacked stays so: that the peer
    /// has forgotten it was noticed when SND.UNA came to stand before it.
    pub(super) fn retransmission_timeout(&mut self, first: bool, now: Instant) {
        let was = self.recovery.phase;
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        if was == Phase::Open || was == Phase::Reducing || first {
            if !self.recovery.is_repairing() {
                self.arm_undo();
            }
            self.congestion.timed_out(first, flight, now);
        }
        self.condemn_all(now);
        self.congestion.window.cwnd = self
            .sent
            .in_flight()
            .saturating_add(u32::from(self.snd.mss));
        self.recovery.frto = if first && was != Phase::Recovery {
            Frto::Resent
        } else {
            Frto::Off
        };
        self.recovery.phase = Phase::Loss;
        self.recovery.recover = self.snd.nxt;
        self.recovery.duplicates = 0;
        self.recovery.tail = TailProbe::None;
        self.pending.set(Pending::SEND);
    }

    /// Everything under way is lost but what left so lately that it may still be; the first segment is in any case.
    fn condemn_all(&mut self, now: Instant) {
        let una = self.snd.una;
        let rtt_us = self.recovery.rack.rtt_us;
        let now_us = micros_of(now);
        let knows_times = self.sack && self.settings.rack;
        let Self {
            congestion,
            rate,
            sent,
            ..
        } = self;
        let is_lost = |start, record: &Record| {
            let age = elapsed_us(now_us, record.sent_us);
            start == una || !knows_times || age >= rtt_us
        };
        sent.condemn(self.snd.nxt, is_lost, |record, bytes| {
            rate.lost = rate.lost.wrapping_add(bytes);
            congestion.lost(&lost_segment(record, bytes, rate.lost));
        });
    }

    /// What is under way did not fit, or was refused: it goes out again, and congestion is not blamed.
    pub(super) fn send_again(&mut self) {
        self.sent.condemn(self.snd.nxt, |_, _| true, |_, _| {});
        if self.sent.lost() > 0 && !self.recovery.is_repairing() {
            self.recovery.phase = Phase::Loss;
            self.recovery.recover = self.snd.nxt;
            self.cold.undo.disarm();
            self.recovery.frto = Frto::Off;
        }
        self.recovery.duplicates = 0;
        self.recovery.tail = TailProbe::None;
    }

    /// The link says that what is under way does not arrive. It goes out again: call `output` afterwards.
    pub fn sent_in_vain(&mut self) {
        if self.state.is_synchronized() && self.snd.nxt > self.snd.una {
            self.send_again();
            self.pending.set(Pending::SEND);
        }
    }

    /// A probe for a larger path did not arrive (RFC 4821 §7.6.1): it goes out again in smaller pieces, and no congestion is meant.
    fn path_probe_lost(&mut self, now: Instant) {
        self.probe_lost(now);
        if !self.recovery.is_repairing() {
            self.recovery.phase = Phase::Loss;
            self.recovery.recover = self.snd.nxt;
            self.cold.undo.disarm();
        }
        self.pending.set(Pending::SEND);
    }

    /// The early timer came due: a gap was given its time, or the flight is silent.
    pub(super) fn on_early_timer(&mut self, now: Instant) -> bool {
        self.timers.early = Instant::FAR;
        match self.recovery.waiting {
            Waiting::TailProbe => {
                self.on_probe_timeout(now);
                return false;
            }
            Waiting::Silence => {
                self.sent.trim();
                return false;
            }
            Waiting::Cork => {
                self.snd.pushes = true;
                self.pending.set(Pending::SEND);
                return false;
            }
            Waiting::Reordering => {}
        }
        let mut delivery = self.delivery(now);
        let was_repairing = self.recovery.is_repairing();
        self.find_losses_by_time(&mut delivery, now);
        if delivery.lost == 0 {
            return false;
        }
        if !was_repairing {
            self.enter_recovery(&delivery, now);
            // PRR has seen nothing delivered, but the first retransmission always leaves.
            let mss = u32::from(self.snd.mss);
            if !self.congestion.owns_window() {
                self.congestion.window.cwnd = self.pipe().saturating_add(mss);
            }
        }
        self.pending.set(Pending::SEND);
        !was_repairing
    }
}
