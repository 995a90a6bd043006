//! What to send next, and what is noted of it: text and FIN, what was lost, and the order in which these and all else leave.

use super::Connection;
use crate::ip::Ecn;
use crate::tcp::congestion::Phase;
use crate::tcp::sent::{Traits, micros_of};
use crate::tcp::timer::Waiting;
use crate::tcp::types::{State, Transmit};
use crate::tcp::variables::{Pending, TIMESTAMPS_LEN};
use crate::time::Instant;
use crate::wire::tcp::{Flags, SeqNum};

/// A stretch of sequence space to send: text, and the FIN behind it.
#[derive(Clone, Copy)]
pub(in crate::tcp) struct Stretch {
    pub start: SeqNum,
    pub len: u32,
    pub fin: bool,
}

impl Stretch {
    #[inline]
    pub fn end(self) -> SeqNum {
        self.start + self.len + u32::from(self.fin)
    }
}

/// Why nothing can be sent now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nothing is there, or an acknowledgment will free it.
    Wait,
    /// Only the peer's window stands in the way.
    Window,
    /// Its time has not come (pacing).
    Pace(Instant),
}

impl Connection {
    /// The next segment to send; call until `None`. With nothing to send this is one comparison.
    pub fn output(&mut self, now: Instant) -> Option<Transmit> {
        if self.pending.0 == 0 {
            return None;
        }
        let transmit = self.next_segment(now);
        let count = u32::from(transmit.is_some());
        self.counters.segments_out = self.counters.segments_out.wrapping_add(count);
        transmit
    }

    /// What [`Self::output`] would give if that is plain text: the next that was never sent, in a connection open both ways where
    /// nothing is lost, probed, urgent or ending, and windows and silly-window avoidance allow it. `None` decides nothing.
    #[inline(always)]
    pub fn output_text(&mut self, now: Instant) -> Option<Transmit> {
        let may_be_plain = self.pending.0 & !Pending::ACK == Pending::SEND
            && self.state == State::Established
            && !self.fin_queued;
        if !may_be_plain {
            return None;
        }
        let text = (self.snd.end - self.snd.nxt).max(0).unsigned_abs();
        let mss = u32::from(self.snd.mss);
        let flight = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        let window = &self.congestion.window;
        let room = self.snd.wnd.min(window.cwnd).saturating_sub(flight);
        let len = text.min(self.segments_that_may_go(text, room, mss));
        let held = self.corked || (self.nagle && self.snd.small > self.snd.una);
        let is_plain = self.is_steady()
            && len > 0
            && flight + len <= self.snd.wnd
            && (flight == 0 || flight + len <= window.cwnd)
            && !(held && len < mss)
            && window.pacing_rate == 0
            && !self.is_after_silence(now)
            && !self.path.may_probe();
        if !is_plain {
            return None;
        }
        self.counters.segments_out = self.counters.segments_out.wrapping_add(1);
        let stretch = Stretch {
            start: self.snd.nxt,
            len,
            fin: false,
        };
        Some(self.send::<true>(stretch, now))
    }

    #[inline(never)]
    pub(super) fn next_segment(&mut self, now: Instant) -> Option<Transmit> {
        if self
            .pending
            .has(Pending::RST | Pending::REFUSE | Pending::SYN)
        {
            return self.special_segment(now);
        }
        if self.pending.has(Pending::SEND)
            && let Some(stretch) = self.next_stretch(now)
        {
            let transmit = self.send_any(stretch, now);
            if self.is_early() {
                self.timers.early = Instant::FAR; // until the handshake is over only the SYN-ACK is sent again
            }
            return Some(transmit);
        }
        if self.pending.has(Pending::TAIL) {
            self.pending.clear(Pending::TAIL);
            if let Some(stretch) = self.tail_probe() {
                self.tail_probe_sent(stretch.end(), stretch.start < self.snd.nxt);
                return Some(self.send_any(stretch, now));
            }
        }
        if self.pending.has(Pending::PROBE) {
            self.pending.clear(Pending::PROBE);
            if let Some(stretch) = self.probe() {
                return Some(self.send_probe(stretch, now));
            }
        }
        if self.pending.has(Pending::KEEPALIVE) {
            self.pending.clear(Pending::KEEPALIVE);
            // RFC 9293 §3.8.4: SEG.SEQ = SND.NXT - 1, without data (SHLD-12).
            return Some(self.bare(self.snd.nxt - 1, now));
        }
        if self.pending.has(Pending::ACK) {
            let transmit = self.bare(self.acceptable_seq(), now);
            if self.duplicate_acks_owed > 0 {
                self.duplicate_acks_owed -= 1;
                self.pending.set(Pending::ACK);
            }
            return Some(transmit);
        }
        None
    }

    /// What to send next, if windows and silly-window avoidance allow.
    #[inline]
    fn next_stretch(&mut self, now: Instant) -> Option<Stretch> {
        if !self.state.is_synchronized() && !self.is_early() {
            self.pending.clear(Pending::SEND);
            return None;
        }
        self.restart_if_idle(now);
        if self.sent.lost() > 0 && !self.tests_timeout() {
            match self.lost_stretch(now) {
                Ok(stretch) => return Some(stretch),
                Err(hold) => {
                    self.hold(hold, now);
                    return None;
                }
            }
        }
        match self.new_stretch(now) {
            Ok(stretch) => Some(stretch),
            Err(_) if self.gives_up_test() => self.next_stretch(now),
            Err(hold) => {
                self.hold(hold, now);
                None
            }
        }
    }

    /// Nothing more can be sent now: what will change that.
    fn hold(&mut self, hold: Hold, now: Instant) {
        self.pending.clear(Pending::SEND);
        self.note_hold(now);
        let by_pace = matches!(hold, Hold::Pace(_));
        if by_pace || self.cold.is_made() {
            self.cold.pacer.held(by_pace);
        }
        match hold {
            Hold::Wait => self.limit_cork(now),
            Hold::Window if self.state.is_synchronized() => self.start_probing(now),
            Hold::Window => {}
            Hold::Pace(at) => self.timers.pacing = at,
        }
    }

    /// The next loss to repair (RFC 6675 §5, NextSeg rule 1), within the peer's window
    /// (RFC 9293 SHLD-16).
    fn lost_stretch(&mut self, now: Instant) -> Result<Stretch, Hold> {
        let full = self.full_segment();
        let (start, end) = self.sent.next_lost(full).ok_or(Hold::Wait)?;
        let edge = self.snd.una + self.snd.wnd;
        let room = (edge - start).max(0).unsigned_abs();
        let text_end = if end > self.snd.end {
            self.snd.end
        } else {
            end
        };
        let text = (text_end - start).max(0).unsigned_abs();
        let len = text.min(full).min(room);
        let (len, _) = self.up_to_record(start, len);
        let fin = end > self.snd.end && len == text && room > len;
        if len == 0 && !fin {
            return Err(self.hold_for_window());
        }
        self.check_congestion(len, now)?;
        Ok(Stretch { start, len, fin })
    }

    /// Whether congestion window and pace let `len` bytes leave.
    #[inline]
    fn check_congestion(&self, len: u32, now: Instant) -> Result<(), Hold> {
        let pipe = self.pipe();
        if pipe > 0 && pipe.saturating_add(len) > self.congestion.window.cwnd {
            return Err(Hold::Wait);
        }
        match self.cold.pacer.wait(self.congestion.pacing_rate(), now) {
            Some(at) => Err(Hold::Pace(at)),
            None => Ok(()),
        }
    }

    /// Bytes of text in a full segment, now that SACK blocks may take their place.
    #[inline]
    pub(in crate::tcp) fn full_segment(&self) -> u32 {
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 } + u16::from(self.signature);
        let fit = 36_u16.saturating_sub(options) / 8;
        let blocks = u32::from(u16::from(self.cold.sack_blocks.len).min(fit));
        let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        u32::from(self.snd.mss) - sack
    }

    /// Text that fits in a segment; `PLAIN`: no SACK blocks wait.
    #[inline(always)]
    fn full<const PLAIN: bool>(&self) -> u32 {
        if PLAIN {
            u32::from(self.snd.mss)
        } else {
            self.full_segment()
        }
    }

    /// The next stretch from SND.NXT on: one segment, or a burst of full ones.
    #[inline]
    fn new_stretch(&mut self, now: Instant) -> Result<Stretch, Hold> {
        let start = self.snd.nxt;
        if start > self.snd.end || (start == self.snd.end && !self.fin_queued) {
            self.snd.pushes = false;
            self.note_application_limit(now);
            return Err(Hold::Wait);
        }
        let room = (self.snd.una + self.snd.wnd - start).max(0).unsigned_abs();
        let text = (self.snd.end - start).max(0).unsigned_abs();
        let full = self.full_segment();
        if self.path.may_probe()
            && !self.sends_marks
            && let Some(len) = self.probe_due(text, room.min(self.congestion.window.cwnd))
        {
            self.check_congestion(len, now)?;
            self.begin_probe(len);
            let fin = false;
            return Ok(Stretch { start, len, fin });
        }
        let window = self.congestion.window.cwnd.saturating_sub(self.pipe());
        let together = self.segments_that_may_go(text, room.min(window), full);
        let len = text.min(together).min(room);
        let (len, ends_record) = self.up_to_record(start, len);
        let last = start + len == self.snd.end;
        let fin = self.fin_queued && last && room > len;
        if len == 0 && !fin {
            return Err(self.hold_for_window());
        }
        // As in Linux, a record's end waits for nothing once there is more behind it.
        if !fin && (last || !ends_record) {
            self.avoid_silly_window(len, last)?;
        }
        self.check_congestion(len, now)?;
        Ok(Stretch { start, len, fin })
    }

    /// [`Self::within_record`], where there are any.
    #[inline]
    pub(super) fn up_to_record(&self, start: SeqNum, len: u32) -> (u32, bool) {
        if self.sends_marks && len > 0 {
            return self.within_record(start, len);
        }
        (len, false)
    }

    /// Nothing is left to send although the window is open: what is measured now is the application's rate, not the path's.
    #[inline]
    fn note_application_limit(&mut self, now: Instant) {
        let in_flight = self.sent.in_flight();
        if in_flight < self.congestion.window.cwnd && self.sent.lost() == 0 {
            self.busy.drained(now);
            self.rate.limited_by_application(in_flight);
        }
    }

    /// Sender SWS avoidance (RFC 9293 §3.8.6.2.1, MUST-38) and Nagle (§3.7.4): `len` bytes are a
    /// full segment; or all there is, unless Nagle is on and another small segment in flight; or
    /// half the largest window the peer ever offered. That full segments in flight do not hold a
    /// small one back is Minshall's variant, as in Linux: the end of a long answer does not wait
    /// for a delayed acknowledgment.
    #[inline]
    fn avoid_silly_window(&self, len: u32, last: bool) -> Result<(), Hold> {
        if len >= self.full_segment() {
            return Ok(());
        }
        if last {
            let held = self.corked || (self.nagle && self.snd.small > self.snd.una);
            let may = self.fin_queued || !held || self.snd.pushes;
            return if may { Ok(()) } else { Err(Hold::Wait) };
        }
        if len >= self.snd.wnd_max.div_ceil(2) {
            return Ok(());
        }
        Err(self.hold_for_window())
    }

    #[inline(never)]
    fn send_any(&mut self, stretch: Stretch, now: Instant) -> Transmit {
        self.send::<false>(stretch, now)
    }

    /// `PLAIN`: it is what [`Self::output_text`] lets through, of which much is known that else is asked for, here and in the header.
    #[inline(always)]
    fn send<const PLAIN: bool>(&mut self, stretch: Stretch, now: Instant) -> Transmit {
        let end = stretch.end();
        let is_new = PLAIN || stretch.start == self.snd.nxt;
        if !PLAIN && self.probing {
            self.stop_probing(now); // the window opened
        }
        if !is_new {
            self.send_lost(stretch, now);
        } else {
            if self.snd.una == self.snd.nxt {
                self.stalled_since = now;
                self.recovery.rack.forget_newest();
            }
            if stretch.len < self.full::<PLAIN>() && !self.was_in_syn(end) {
                self.snd.small = end;
            }
            let probe = !PLAIN && self.path.is_probe(stretch.start);
            self.record_new(stretch.start, end, self.full::<PLAIN>(), probe, now);
        }
        self.busy.sends(now);
        let rate = self.congestion.pacing_rate();
        if !PLAIN && rate > 0 {
            self.cold.pacer.sent(stretch.len, rate, now);
        }
        self.last_sent = now;
        if self.timers.retransmit == Instant::FAR {
            self.arm_retransmit(now);
        }
        // The first two of a flight: a peer may let a single segment wait for the second.
        let few = self.sent.in_flight() <= 2 * u32::from(self.snd.mss);
        if few || self.timers.early == Instant::FAR || self.recovery.waiting >= Waiting::Silence {
            self.arm_early::<PLAIN>(now);
        }
        // Nothing more: the next call shall find that out by one comparison.
        let all = self.snd.end + u32::from(self.fin_queued);
        if self.snd.nxt == all && self.sent.lost() == 0 {
            self.snd.pushes = false;
            self.note_application_limit(now);
            self.pending.clear(Pending::SEND);
        }
        if self.talk.heard {
            self.note_answer(now);
        }
        let mut transmit = self.transmit::<PLAIN>(stretch, now);
        if PLAIN || (is_new && stretch.len > 0) {
            transmit.ecn = self.ecn.codepoint;
            let once = core::mem::replace(&mut self.ecn.once, Flags::NONE);
            transmit.header.flags = transmit.header.flags | once;
        }
        transmit
    }

    /// Something new left, from `start` to `end`, in segments of `full` bytes; `probe`: to ask how much the path takes.
    #[inline(always)]
    pub(super) fn record_new(
        &mut self,
        start: SeqNum,
        end: SeqNum,
        full: u32,
        probe: bool,
        now: Instant,
    ) {
        let len = (end - start).unsigned_abs();
        let in_flight = self.sent.in_flight();
        let joins = len < full && self.sent.is_crowded(full) && self.sent.push_together(end, full);
        if !joins {
            let segment = if probe || len <= full + 1 { len } else { full };
            let traits = if probe { Traits::PROBE } else { Traits::NONE };
            let (now_us, what) = (micros_of(now), (segment, traits));
            let record = self.rate.record(end, len, what, in_flight, now_us);
            self.sent.push(start, record);
        }
        self.congestion.sent();
        self.snd.nxt = end;
        if self.recovery.phase != Phase::Open {
            self.cold.prr.out = self.cold.prr.out.saturating_add(len);
        }
    }

    /// Something left again, from `start` to `end`.
    pub(super) fn record_again(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        let len = (end - start).unsigned_abs();
        let in_flight = self.sent.in_flight();
        let (now_us, what) = (micros_of(now), (len, Traits::NONE));
        let fresh = self.rate.record(end, len, what, in_flight, now_us);
        self.sent.resent(start, end, fresh);
        self.cold.prr.out = self.cold.prr.out.saturating_add(len);
    }

    /// What was sent before leaves again.
    #[inline(never)]
    fn send_lost(&mut self, stretch: Stretch, now: Instant) {
        self.note_retransmission(now);
        let ts = self.timestamp_value(now);
        self.cold.undo.resent(ts);
        self.cold.bytes_retransmitted += u64::from(stretch.len);
        self.record_again(stretch.start, stretch.end(), now);
        self.path.resent(stretch.start);
        // RFC 6298 §5.1: the timer runs from now for what was just repaired at the front.
        if stretch.start == self.snd.una {
            self.arm_retransmit(now);
        }
    }

    /// What was sent before is sent again, or a probe that will be: from its acknowledgment a round trip can only be told if a
    /// timestamp says which of them was answered.
    #[inline(never)]
    pub(super) fn note_retransmission(&mut self, now: Instant) {
        self.cold.retransmits = self.cold.retransmits.wrapping_add(1);
        self.ts_retransmitted = self.timestamp_value(now);
    }

    /// RFC 5681 §4.1: after a silence longer than the timeout the window is the initial one, before anything looks at it.
    #[inline]
    fn restart_if_idle(&mut self, now: Instant) {
        if self.is_after_silence(now) && self.snd.nxt < self.snd.end {
            let idle_us = now.since(self.last_sent).as_micros();
            let idle_us = u64::try_from(idle_us).unwrap_or(u64::MAX);
            self.congestion.restart(idle_us, self.rtt.rto_us(), now);
            self.last_sent = now;
        }
    }

    /// Whether nothing is in flight and nothing was sent for a retransmission timeout.
    #[inline]
    fn is_after_silence(&self, now: Instant) -> bool {
        self.snd.una == self.snd.nxt && now > self.last_sent.plus_micros(self.rtt.rto_us())
    }

    #[inline(always)]
    pub(super) fn transmit<const PLAIN: bool>(
        &mut self,
        stretch: Stretch,
        now: Instant,
    ) -> Transmit {
        let mut flags = Flags::ACK;
        if stretch.len > 0 && stretch.start + stretch.len == self.snd.end {
            flags = flags | Flags::PSH; // RFC 9293 MUST-61
        }
        // The header, with its SACK blocks, is repeated in every segment of a burst (and may forget a block: before it is written).
        let segment = u16::try_from(self.full::<PLAIN>()).unwrap_or(self.snd.mss);
        let segment = match PLAIN {
            true => segment,
            false => self.path.segment(stretch.start, segment),
        };
        if stretch.len > u32::from(segment) {
            // As in Linux: a receiver that merges a burst's segments need not wait for more.
            flags = flags | Flags::PSH;
        }
        if !PLAIN && self.up_to_record(stretch.start, stretch.len).1 {
            flags = flags | Flags::PSH;
        }
        if stretch.fin {
            flags = flags | Flags::FIN;
        }
        self.counters.data_segments = self.counters.data_segments.wrapping_add(1);
        let offset = (stretch.start - self.snd.una).max(0).unsigned_abs();
        Transmit {
            header: self.header::<PLAIN>(stretch.start, flags, now),
            offset,
            len: stretch.len,
            segment,
            ecn: Ecn::NotEct,
        }
    }
}
