//! The fifth check of RFC 9293 §3.10.7.4: what an acknowledgment does to the send side.

use super::Connection;
use super::input::Segment;
use crate::tcp::congestion::Phase;
use crate::tcp::delivery::Delivery;
use crate::tcp::timer::Waiting;
use crate::tcp::types::{Drop, Events, Input, State};
use crate::tcp::variables::{Pending, from_millis};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNum, Timestamps};

impl Connection {
    /// Fifth: the ACK field is one that may be believed. RFC 5961 §5: an acknowledgment of what was never sent, or older than any window,
    /// is challenged (`negative 64`).
    pub(super) fn check_ack(&mut self, segment: &Segment<'_>) -> Result<(), Drop> {
        let header = segment.header;
        if !header.flags.contains(Flags::ACK) {
            return Err(Drop::NoAck);
        }
        if self.state == State::SynReceived && !self.acknowledges_syn(header.ack) {
            self.refuse(header.ack);
            return Err(Drop::Ack);
        }
        if !self.acknowledges_within_range(header) {
            self.challenge(segment.now);
            return Err(Drop::Ack);
        }
        Ok(())
    }

    /// A predicted acknowledgment in accurate ECN: the counter is what it was, but may have come round. True: so it is taken to have, and the rest
    /// is done. (The delivery by value: see [`Self::acknowledged`].)
    #[inline(never)]
    fn hears_of_marks(
        &mut self,
        ack: SeqNum,
        timestamps: Option<Timestamps>,
        mut delivery: Delivery,
        now: Instant,
    ) -> bool {
        self.note_ecn_feedback(self.ecn.usual, None, &mut delivery, now);
        if delivery.marked == 0 {
            return false;
        }
        let header = Header {
            ack,
            options: Options {
                timestamps,
                ..Options::default()
            },
            ..Header::default()
        };
        self.react(&header, &mut delivery, now);
        self.note_more_to_send();
        true
    }

    /// Whether it acknowledges something that was sent, and not before all memory.
    pub(super) fn acknowledges_within_range(&self, header: &Header) -> bool {
        let oldest = self.snd.una - self.snd.wnd_max;
        header.flags.contains(Flags::ACK) && header.ack <= self.snd.nxt && header.ack >= oldest
    }

    /// What an acceptable ACK field does.
    pub(super) fn process_ack(&mut self, segment: &Segment<'_>, out: &mut Input) {
        let header = segment.header;
        if self.state == State::SynReceived {
            self.establish(header, segment.now, out);
            self.note_ecn_of_handshake(segment);
        }
        let window = self.announced_window(header);
        let mut delivery = self.delivery(segment.now);
        self.note_sack(header, &mut delivery);
        if header.ack > self.snd.una {
            self.take_row(header.ack, &mut delivery);
            if self.sent.una() != header.ack {
                self.take_pieces(header.ack, header.options.timestamps, &mut delivery);
            }
            self.advance(header.ack, segment.now, &mut delivery, out);
        } else {
            delivery.duplicate = self.is_duplicate_ack(segment, window, delivery.news);
            self.note_second_answer(segment, window);
        }
        if self.ecn.is_on() {
            let (flags, option) = (header.flags, header.options.accecn);
            self.note_ecn_feedback(flags, option, &mut delivery, segment.now);
        }
        if delivery.acked > 0 || delivery.news || delivery.duplicate || delivery.dsack {
            let repairing = self.recovery.is_repairing();
            self.react(header, &mut delivery, segment.now);
            if !repairing && self.recovery.phase == Phase::Recovery {
                out.events |= Events::LOSS;
            }
            self.note_more_to_send();
        }
        if header.ack >= self.snd.una {
            self.update_window(header, window, segment.now);
            self.keepalives_sent = 0;
        }
        self.after_ack(segment.now, out);
    }

    /// The window that a segment announces: that of a SYN is not scaled (RFC 7323 §2.2), also where it meets our own.
    fn announced_window(&self, header: &Header) -> u32 {
        let syn = header.flags.contains(Flags::SYN);
        u32::from(header.window) << if syn { 0 } else { self.snd.scale }
    }

    /// The fifth check for a predicted segment: its acknowledgment is within range and no duplicate, and nothing is lost.
    #[inline(always)]
    pub(super) fn note_ack(&mut self, header: &Header, now: Instant, out: &mut Input) {
        if header.ack > self.snd.una {
            self.acknowledged(header.ack, header.options.timestamps, now, out);
        }
        let window = u32::from(header.window) << self.snd.scale;
        self.update_window(header, window, now);
        self.keepalives_sent = 0;
    }

    /// Of that what is news. (Without the header: one that is never pointed to stays in registers.)
    #[inline(never)]
    fn acknowledged(
        &mut self,
        ack: SeqNum,
        timestamps: Option<Timestamps>,
        now: Instant,
        out: &mut Input,
    ) {
        let mut delivery = self.delivery(now);
        self.take_row(ack, &mut delivery);
        if self.sent.una() != ack {
            return self.acknowledged_piece_by_piece(ack, timestamps, delivery, now, out);
        }
        self.advance(ack, now, &mut delivery, out);
        if self.has_accurate_ecn() && self.hears_of_marks(ack, timestamps, delivery, now) {
            return;
        }
        self.measure(timestamps, &delivery, now);
        self.recovery.recover = ack - 1;
        self.update_congestion(&delivery, now);
        self.recovery.waiting = Waiting::TailProbe; // nothing overtook anything
        self.arm_early::<true>(now);
    }

    /// Acknowledgment where something was sent twice, or is acknowledged in part. (The delivery by value: see [`Self::acknowledged`].)
    #[cold]
    #[inline(never)]
    fn acknowledged_piece_by_piece(
        &mut self,
        ack: SeqNum,
        timestamps: Option<Timestamps>,
        mut delivery: Delivery,
        now: Instant,
        out: &mut Input,
    ) {
        self.take_pieces(ack, timestamps, &mut delivery);
        self.advance(ack, now, &mut delivery, out);
        if self.has_accurate_ecn() && self.hears_of_marks(ack, timestamps, delivery, now) {
            return;
        }
        self.measure(timestamps, &delivery, now);
        self.recovery.recover = ack - 1;
        self.update_congestion_slow(&delivery, now);
        self.recovery.waiting = Waiting::TailProbe;
        self.arm_early::<true>(now);
    }

    /// RFC 5681 §2: nothing new, while something is in flight; RFC 6675 §2: or news by SACK.
    fn is_duplicate_ack(&self, segment: &Segment<'_>, window: u32, newly_sacked: bool) -> bool {
        if segment.header.ack != self.snd.una || self.snd.una == self.snd.nxt || self.probing {
            return false;
        }
        if self.sack {
            return newly_sacked;
        }
        segment.len == 0 && !segment.fin && !segment.syn && window == self.snd.wnd
    }

    /// SND.UNA moves.
    #[inline(always)]
    fn advance(&mut self, ack: SeqNum, now: Instant, delivery: &mut Delivery, out: &mut Input) {
        let bytes = (ack - self.snd.una).unsigned_abs();
        self.snd.una = ack;
        let fin = u32::from(self.snd.una > self.snd.end);
        out.acked = bytes - fin;
        delivery.acked = bytes;
        self.counters.bytes_acked += u64::from(out.acked);
        if out.acked > 0 {
            out.events |= Events::WRITABLE;
        }
        if self.sends_marks && self.snd.una >= self.cold.urgent_out {
            self.forget_marks();
        }
        if self.path_learns() {
            self.path_acknowledged(now);
        }
        self.attempts = 0;
        self.soft_error = None;
        self.stalled_since = now;
        if self.snd.una == self.snd.nxt {
            if self.snd.nxt >= self.snd.end {
                self.busy.rests(now);
            }
            // RFC 6298 §5.2; while probing the timer is the persist timer.
            if !self.probing {
                self.timers.retransmit = Instant::FAR;
            }
        } else {
            self.arm_retransmit(now); // RFC 6298 §5.3
        }
        self.note_more_to_send();
    }

    /// Of the records of what is acknowledged those go that were sent once, as far as these stand first: all, nearly always.
    #[inline(always)]
    fn take_row(&mut self, ack: SeqNum, delivery: &mut Delivery) {
        if let Some(row) = self.sent.acknowledge_row(ack) {
            self.taker(delivery, false).1.acknowledged_row(&row);
        }
    }

    /// The others go.
    fn take_pieces(
        &mut self,
        ack: SeqNum,
        timestamps: Option<Timestamps>,
        delivery: &mut Delivery,
    ) {
        let echo = timestamps.filter(|_| self.timestamps);
        // RFC 8985 §6.2, step 2.
        let age = |ts: Timestamps| ts.echo.wrapping_sub(self.ts_retransmitted).cast_signed();
        let echo_is_older = echo.is_some_and(|ts| age(ts) < 0);
        let (sent, mut taker) = self.taker(delivery, echo_is_older);
        sent.acknowledge(ack, |record, bytes| taker.acknowledged(record, bytes));
    }

    /// Text, a FIN or something lost waits to be sent.
    pub(super) fn note_more_to_send(&mut self) {
        let text = self.snd.nxt < self.snd.end;
        let fin = self.fin_queued && self.snd.nxt == self.snd.end;
        if text || fin || self.sent.lost() > 0 {
            self.pending.set(Pending::SEND);
        }
    }

    /// RFC 9293 §3.10.7.4: the window counts if the segment is newer than the one it last came
    /// from, so that reordering does not undo it. One that acknowledges more is newer even if it repeats old text: SND.UNA moves by it, and
    /// an old SND.WND behind it would reach beyond what the peer ever offered.
    #[inline(always)]
    fn update_window(&mut self, header: &Header, window: u32, now: Instant) {
        let newer = self.snd.wl2 < header.ack
            || self.snd.wl1 < header.seq
            || (self.snd.wl1 == header.seq && self.snd.wl2 <= header.ack);
        if newer {
            if window != self.snd.wnd {
                self.note_more_to_send();
            }
            self.take_window(header, window);
        }
        if self.probing {
            self.probe_answered(now);
        }
    }

    /// The peer is there, however long its window stays closed (RFC 9293 MUST-37).
    #[cold]
    fn probe_answered(&mut self, now: Instant) {
        if !self.no_reader {
            // Once closed, it is a resource that the peer holds for nothing: R2 goes on counting
            // (RFC 6429 §4, `negative 66`).
            self.attempts = 0;
            self.stalled_since = now;
        }
        if self.snd.una == self.snd.end + u32::from(self.fin_queued) {
            // The probes have carried the last of it.
            self.stop_probing(now);
        } else if self.snd.wnd > 0 {
            if self.snd.una < self.snd.nxt && self.snd.wnd >= self.snd.mss.into() {
                // The window opened over the probe: what that carried goes before what follows it.
                self.stop_probing(now);
            }
            self.note_more_to_send();
        }
    }

    /// SND.WND, SND.WL1, SND.WL2.
    #[inline(always)]
    pub(super) fn take_window(&mut self, header: &Header, window: u32) {
        self.snd.wnd = window;
        self.snd.wnd_max = self.snd.wnd_max.max(window);
        self.snd.wl1 = header.seq;
        self.snd.wl2 = header.ack;
    }

    /// What the state makes of it, once our FIN is acknowledged.
    fn after_ack(&mut self, now: Instant, out: &mut Input) {
        if !self.fin_queued || self.snd.una <= self.snd.end {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                out.events |= Events::FIN_ACKED;
                if self.no_reader {
                    self.timers.linger = now + from_millis(self.periods.fin_wait_2_ms);
                }
            }
            State::Closing => {
                out.events |= Events::FIN_ACKED | self.enter_time_wait(now);
            }
            State::LastAck => out.events |= Events::FIN_ACKED | self.finish(None),
            _ => {}
        }
    }
}
