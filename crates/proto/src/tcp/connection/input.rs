//! A segment arrives (RFC 9293 §3.10.7.4): the RFC's eight checks as eight functions, in its order.

use super::Connection;
use crate::ip::Ecn;
use crate::tcp::busy::ticks;
use crate::tcp::payload::Payload;
use crate::tcp::reassembly::{ReceiveQueue, SegmentPool, Share};
use crate::tcp::types::{Drop, Error, Events, Input, State};
use crate::tcp::variables::{Pending, QUICK_ACKS, from_millis};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNum};

/// A segment on its way through the checks.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub header: &'a Header,
    /// First byte of the text; after the SYN if that was taken.
    pub seq: SeqNum,
    /// Bytes of text.
    pub len: u32,
    pub syn: bool,
    pub fin: bool,
    pub ecn: Ecn,
    pub now: Instant,
}

impl Segment<'_> {
    /// SEG.LEN: what the segment occupies in sequence space.
    pub fn space(&self) -> u32 {
        self.len + u32::from(self.syn) + u32::from(self.fin)
    }

    /// The SYN was taken; what is left begins one later.
    pub fn begin_after_syn(&mut self) {
        self.syn = false;
        self.seq = self.seq + 1;
    }
}

/// Where text goes.
pub(in crate::tcp) struct Receiver<'a, P: Payload> {
    pub queue: &'a mut ReceiveQueue<P>,
    pub pool: &'a mut SegmentPool<P>,
}

impl Connection {
    /// Takes a segment whose checksum, addresses and ports were found to be this connection's.
    ///
    /// `ecn` is what its IP header said, `payload` its text. `queue` is this connection's, its nodes are in `pool`.
    #[inline(always)]
    pub fn input<P: Payload>(
        &mut self,
        header: &Header,
        ecn: Ecn,
        payload: P,
        queue: &mut ReceiveQueue<P>,
        pool: &mut SegmentPool<P>,
        now: Instant,
    ) -> Input {
        self.input_from(header, ecn, &mut Some(payload), queue, pool, now)
    }

    /// [`Self::input`] with the text in a place from which it is taken: handed on from call to call, it would be copied each time.
    #[inline(always)]
    pub fn input_from<P: Payload>(
        &mut self,
        header: &Header,
        ecn: Ecn,
        slot: &mut Option<P>,
        queue: &mut ReceiveQueue<P>,
        pool: &mut SegmentPool<P>,
        now: Instant,
    ) -> Input {
        self.counters.segments_in = self.counters.segments_in.wrapping_add(1);
        let len = slot.as_ref().map_or(0, Payload::len);
        let len = u32::try_from(len).unwrap_or(u32::MAX >> 2);
        let mut receiver = Receiver { queue, pool };
        if self.is_predicted(header, len, receiver.queue, now) {
            return self.take_predicted(header, ecn, len, slot, &mut receiver, now);
        }
        let Some(payload) = slot.take() else {
            return Input::default();
        };
        self.input_in_full(*header, ecn, len, payload, &mut receiver, now)
    }

    /// Header prediction: the next text in order and within the window, or an acknowledgment of something new, with
    /// nothing but ACK and PSH, while the connection is open both ways and nothing is lost, probed or urgent. All eight checks
    /// would pass, and do no more than [`Self::take_predicted`].
    #[inline(always)]
    pub(in crate::tcp) fn is_predicted<P>(
        &self,
        header: &Header,
        len: u32,
        queue: &ReceiveQueue<P>,
        now: Instant,
    ) -> bool {
        self.state == State::Established
            && header.flags.0 & !Flags::PSH.0 == self.ecn.usual.0
            && header.seq == self.rcv.nxt
            && header.seq + len <= self.rcv.edge
            && header.ack <= self.snd.nxt
            && (header.ack > self.snd.una || (header.ack == self.snd.una && len > 0))
            && self.is_steady()
            && queue.gaps() == 0
            && header.options.sack.is_empty()
            && header.options.accecn.is_none()
            && header.options.user_timeout == 0
            && self.check_timestamp(header, now).is_ok()
    }

    /// Whether nothing is under way but text and acknowledgments.
    #[inline(always)]
    pub(super) fn is_steady(&self) -> bool {
        !(self.probing || self.no_reader || self.peer_fin_known || self.sends_marks)
            && self.cold.sack_blocks.is_empty()
            && self.recovery.is_steady()
            && self.sent.is_plain()
    }

    /// A segment for which [`Self::is_predicted`] holds: checks fifth and seventh, and what surrounds them.
    #[inline(always)]
    fn take_predicted<P: Payload>(
        &mut self,
        header: &Header,
        ecn: Ecn,
        len: u32,
        slot: &mut Option<P>,
        receiver: &mut Receiver<'_, P>,
        now: Instant,
    ) -> Input {
        let mut out = Input::default();
        self.last_received = now;
        self.note_timestamp(header, now);
        if self.ecn.is_on() {
            self.note_ecn(ecn, header.flags, len);
        }
        self.note_ack(header, now, &mut out);
        if len > 0 {
            self.busy.last_text = ticks(now);
            let end = header.seq + len;
            match self.take_in_order(slot, receiver) {
                Ok(()) => {
                    // Else what overtook this one said what the window is, and the next one may say otherwise; or its acknowledgment
                    // was news of congestion.
                    out.predicted =
                        self.snd.wl1 == header.seq && (out.acked == 0 || self.is_steady());
                    out.events |= Events::READABLE;
                    self.tune_receive_buffer(header.options.timestamps, now);
                    self.decide_acknowledgment(end, now);
                }
                Err(reason) => out.drop = Some(reason),
            }
        }
        out
    }

    /// Whether a segment whose header is like that of the one before ([`RunKey`](crate::wire::tcp::RunKey)) can be taken by [`Self::follow`]:
    /// that one was predicted, or taken so itself, and nothing was done with this connection since. What was compared then need not be again.
    #[inline(always)]
    pub fn may_follow<P: Payload>(
        &self,
        seq: SeqNum,
        len: u32,
        ecn: Ecn,
        memory: usize,
        queue: &ReceiveQueue<P>,
        pool: &SegmentPool<P>,
    ) -> bool {
        seq == self.rcv.nxt
            && len > 0
            && seq + len <= self.rcv.edge
            && ecn != Ecn::Ce
            && queue.has_room(pool, self.share(), memory)
    }

    /// Takes the text of a segment for which [`Self::may_follow`] holds: what `take_predicted` does where the header has no news.
    #[inline(always)]
    pub fn follow<P: Payload>(
        &mut self,
        ecn: Ecn,
        slot: &mut Option<P>,
        queue: &mut ReceiveQueue<P>,
        pool: &mut SegmentPool<P>,
        now: Instant,
    ) {
        let (seq, len) = (self.rcv.nxt, slot.as_ref().map_or(0, Payload::len));
        let full = u16::try_from(len).unwrap_or(u16::MAX);
        let len = u32::try_from(len).unwrap_or(u32::MAX >> 2);
        if self.ecn.is_on() {
            self.note_ecn(ecn, Flags::ACK, len);
        }
        queue.append(pool, seq, slot);
        let end = seq + len;
        self.rcv.nxt = end;
        self.snd.wl1 = seq;
        self.unread += len;
        let counters = &mut self.counters;
        counters.segments_in = counters.segments_in.wrapping_add(1);
        counters.data_segments_in = counters.data_segments_in.wrapping_add(1);
        counters.bytes_received += u64::from(len);
        self.rcv.mss = self.rcv.mss.max(full.min(self.settings.mss));
        self.decide_acknowledgment(end, now);
    }

    /// Whatever was not predicted. (The header by value: one that is never pointed to stays in registers.)
    #[inline(never)]
    pub(in crate::tcp) fn input_in_full<P: Payload>(
        &mut self,
        header: Header,
        ecn: Ecn,
        len: u32,
        payload: P,
        receiver: &mut Receiver<'_, P>,
        now: Instant,
    ) -> Input {
        let segment = Segment {
            header: &header,
            seq: header.seq,
            len,
            syn: header.flags.contains(Flags::SYN),
            fin: header.flags.contains(Flags::FIN),
            ecn,
            now,
        };
        let mut out = Input::default();
        let result = match self.state {
            State::Closed | State::Listen => Err(Drop::Closed),
            State::SynSent => self.syn_sent(segment, payload, receiver, &mut out),
            _ => self.arrives(segment, payload, receiver, &mut out),
        };
        out.drop = result.err();
        out
    }

    /// RFC 9293 §3.10.7.4, in the RFC's own order.
    fn arrives<P: Payload>(
        &mut self,
        mut segment: Segment<'_>,
        payload: P,
        receiver: &mut Receiver<'_, P>,
        out: &mut Input,
    ) -> Result<(), Drop> {
        if segment.syn && self.ecn_is_contradicted(&segment) {
            out.events |= self.abort();
            return Err(Drop::Syn);
        }
        if !self.is_expected(&segment) {
            self.check_sequence(&mut segment)?; // first
            self.check_reset(&segment, out)?; // second
            // third, security and compartment: obsolete
            self.check_syn(&segment, out)?; // fourth
        }
        self.check_ack(&segment)?; // fifth; until here nothing of the segment may take effect
        self.last_received = segment.now;
        self.note_timestamp(segment.header, segment.now);
        if self.ecn.is_on() {
            self.note_ecn(segment.ecn, segment.header.flags, segment.len);
        }
        self.take_user_timeout(segment.header);
        self.process_ack(&segment, out);
        if self.state == State::Closed {
            return Ok(()); // that was the last acknowledgment
        }
        self.process_urgent(&segment, out); // sixth
        self.process_text(&mut segment, payload, receiver, out)?; // seventh
        self.process_fin(&segment, receiver, out) // eighth
    }

    /// Header prediction: the next segment in order, nothing but ACK and PSH, within the window.
    /// The first four checks would all pass.
    fn is_expected(&self, segment: &Segment<'_>) -> bool {
        let header = segment.header;
        let usual = Flags::ACK | Flags::PSH;
        self.state == State::Established
            && header.flags.0 | usual.0 == usual.0
            && segment.seq == self.rcv.nxt
            && segment.seq + segment.len <= self.rcv.edge
            && self.check_timestamp(header, segment.now).is_ok()
    }

    /// First: the sequence number, and with it PAWS. What is not acceptable is answered with an
    /// acknowledgment, unless it is a RST.
    fn check_sequence(&mut self, segment: &mut Segment<'_>) -> Result<(), Drop> {
        if self.state == State::SynReceived && segment.syn && segment.seq == self.irs {
            return self.repeated_syn(segment);
        }
        if let Err(reason) = self.check_timestamp(segment.header, segment.now) {
            if reason == Drop::Paws {
                self.answer_unacceptable(segment);
            }
            return Err(reason);
        }
        if self.is_acceptable(segment) {
            return Ok(());
        }
        let old = segment.seq < self.rcv.nxt;
        if !segment.header.flags.contains(Flags::RST) {
            self.answer_unacceptable(segment);
        }
        if old && segment.space() > 0 {
            self.cold.duplicate_segments = self.cold.duplicate_segments.wrapping_add(1);
            // The counter shall be true: the text of an untrusted peer did not come twice.
            if self.acknowledges_within_range(segment.header) {
                self.note_duplicate(segment.seq, segment.seq + segment.len);
            }
            return Err(Drop::Duplicate);
        }
        Err(Drop::Sequence)
    }

    /// RFC 9293 §3.4, the four cases. At the window's right edge, and with text into a closed
    /// window, a segment passes for the sake of its ACK, URG and RST (MUST-66); its text is cut
    /// off later.
    fn is_acceptable(&self, segment: &Segment<'_>) -> bool {
        if segment.seq > self.rcv.edge {
            return false;
        }
        if segment.seq >= self.rcv.nxt {
            return true;
        }
        segment.space() > 0 && segment.seq + segment.space() > self.rcv.nxt
    }

    /// The peer's SYN again, in SYN-RECEIVED: it has not seen our SYN-ACK. Or its SYN-ACK, in a
    /// simultaneous open (RFC 9293 §3.5, figure 7): take it without its SYN, and answer as to all that comes twice: should our SYN-ACK be
    /// lost, the peer waits for nothing else.
    fn repeated_syn(&mut self, segment: &mut Segment<'_>) -> Result<(), Drop> {
        let header = segment.header;
        if header.flags.contains(Flags::RST) {
            return Err(Drop::Reset);
        }
        let acknowledges = header.flags.contains(Flags::ACK) && self.acknowledges_syn(header.ack);
        if acknowledges && !self.passive {
            self.note_duplicate(self.irs, self.irs + 1);
            self.pending.set(Pending::ACK);
            segment.begin_after_syn();
            return Ok(());
        }
        self.challenge(segment.now);
        if self.pending.has(Pending::ACK) {
            self.pending.clear(Pending::ACK);
            self.pending.set(Pending::SYN);
        }
        Err(Drop::Duplicate)
    }

    /// Second: RST. Only one exactly at RCV.NXT counts (RFC 5961 §3, RFC 9293 §3.10.7.4);
    /// another within the window is challenged (`negative 62`).
    fn check_reset(&mut self, segment: &Segment<'_>, out: &mut Input) -> Result<(), Drop> {
        if !segment.header.flags.contains(Flags::RST) {
            return Ok(());
        }
        if segment.seq != self.rcv.nxt {
            self.challenge(segment.now);
            return Err(Drop::Reset);
        }
        out.events |= match self.state {
            // Back to LISTEN: the application never heard of it.
            State::SynReceived if self.passive => self.fall_back_to_listen(Error::Reset),
            State::SynReceived => self.finish(Some(Error::Refused)),
            State::Closing | State::LastAck => self.finish(None),
            // RFC 1337 §3: TIME-WAIT is not to be assassinated.
            State::TimeWait => Events::NONE,
            _ => self.finish(Some(Error::Reset)),
        };
        Err(Drop::Reset)
    }

    /// Fourth: SYN. In SYN-RECEIVED, opened passively, back to LISTEN; in an open connection a
    /// challenge (RFC 5961 §4, `negative 63`).
    fn check_syn(&mut self, segment: &Segment<'_>, out: &mut Input) -> Result<(), Drop> {
        if !segment.syn {
            return Ok(());
        }
        if self.state == State::SynReceived && self.passive {
            out.events |= self.fall_back_to_listen(Error::Reset);
        } else {
            self.challenge(segment.now);
        }
        Err(Drop::Syn)
    }

    /// Sixth: the urgent pointer, which names the octet after the urgent data (RFC 9293 MUST-62)
    /// and only moves forward. The data itself stays in line.
    pub(super) fn process_urgent(&mut self, segment: &Segment<'_>, out: &mut Input) {
        let header = segment.header;
        if !header.flags.contains(Flags::URG) || header.urgent == 0 || self.peer_fin_reached {
            return;
        }
        let end = segment.seq + u32::from(header.urgent);
        if end > self.rcv.nxt && (!self.urgent || end > self.cold.urgent_end) {
            let (was, read) = (self.cold.urgent_end, self.read_next());
            if self.urgent && was == read + 1 && self.rcv.nxt > read {
                out.events |= Events::URGENT_MISSED;
            }
            self.urgent = true;
            self.cold.urgent_end = end;
            out.events |= Events::URGENT;
        }
    }

    /// Seventh: the text. What was received before, lies beyond the window or beyond the peer's
    /// FIN is cut off.
    pub(super) fn process_text<P: Payload>(
        &mut self,
        segment: &mut Segment<'_>,
        mut payload: P,
        receiver: &mut Receiver<'_, P>,
        out: &mut Input,
    ) -> Result<(), Drop> {
        let receives = matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) || self.is_early();
        if segment.len == 0 || !receives {
            return Ok(());
        }
        let unread = self.no_reader || self.read_shut && self.fin_queued;
        if unread && segment.seq + segment.len > self.rcv.nxt {
            // RFC 9293 §3.6.1: data that will not be read is answered with a RST; as a closed port would (§3.10.7.1): where the peer expects
            // our next octet, so that it need not challenge it (RFC 5961 §3.2).
            out.events |= self.finish(Some(Error::Reset));
            self.refuse(segment.header.ack);
            return Err(Drop::NoReader);
        }
        self.busy.last_text = ticks(segment.now);
        let (seq, end) = self.cut_to_window(segment)?;
        let skip = (seq - segment.seq).unsigned_abs() as usize;
        payload.truncate((end - segment.seq).unsigned_abs() as usize);
        payload.trim_front(skip);
        let before = self.rcv.nxt;
        let duplicate = if skip > 0 {
            Some((segment.seq, seq))
        } else {
            receiver.queue.first_held(receiver.pool, seq, end)
        };
        let taken = if seq == before {
            self.take_in_order(&mut Some(payload), receiver)
        } else {
            self.take_out_of_order(seq, payload, receiver)
        };
        if let Some((left, right)) = duplicate
            && matches!(taken, Ok(()) | Err(Drop::Duplicate))
        {
            // Behind what the text has changed of the blocks (RFC 2883 §4).
            self.note_duplicate(left, right);
            self.pending.set(Pending::ACK);
        }
        taken?;
        if seq == before {
            out.events |= Events::READABLE;
            self.tune_receive_buffer(segment.header.options.timestamps, segment.now);
            self.decide_acknowledgment(end, segment.now);
        }
        Ok(())
    }

    /// The part of the text that is new, within the window and before the peer's FIN: first byte
    /// and end. Takes the FIN off a segment that is cut short.
    fn cut_to_window(&mut self, segment: &mut Segment<'_>) -> Result<(SeqNum, SeqNum), Drop> {
        let mut seq = segment.seq;
        if seq < self.rcv.nxt {
            self.note_duplicate(seq, self.rcv.nxt);
            seq = self.rcv.nxt;
        }
        let mut end = segment.seq + segment.len;
        let mut reason = Drop::Duplicate;
        if end > self.rcv.edge {
            end = self.rcv.edge;
            segment.fin = false;
            reason = Drop::Window;
        }
        if self.peer_fin_known && end > self.peer_fin {
            end = self.peer_fin;
            segment.fin = false;
            reason = Drop::AfterFin;
        }
        if end > seq {
            return Ok((seq, end));
        }
        self.pending.set(Pending::ACK);
        if reason == Drop::Duplicate && segment.fin {
            // Only the FIN is new: nothing to take, but step eighth must see it.
            return Ok((seq, seq));
        }
        Err(reason)
    }

    fn share(&self) -> Share {
        Share {
            segments: self.settings.max_segments,
            gaps: u32::from(self.settings.max_gaps),
        }
    }

    #[inline(always)]
    fn take_in_order<P: Payload>(
        &mut self,
        slot: &mut Option<P>,
        receiver: &mut Receiver<'_, P>,
    ) -> Result<(), Drop> {
        let len = slot.as_ref().map_or(0, Payload::len);
        if len == 0 {
            return Ok(());
        }
        let before = self.rcv.nxt;
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        let (gaps, pruned) = (receiver.queue.gaps(), receiver.pool.pruned());
        let pushed = receiver
            .queue
            .push(receiver.pool, self.share(), before, slot);
        if gaps > 0 {
            self.note_pruning(pruned, receiver);
        }
        self.rcv.nxt = pushed?;
        let advance = (self.rcv.nxt - before).unsigned_abs();
        self.unread += advance;
        self.counters.bytes_received += u64::from(advance);
        self.counters.data_segments_in = self.counters.data_segments_in.wrapping_add(1);
        self.rcv.mss = self.rcv.mss.max(len.min(self.settings.mss));
        if gaps > 0 {
            // RFC 5681 §4.2: at once when a gap was filled, in part or whole.
            self.pending.set(Pending::ACK);
            self.duplicate_acks_owed = 0;
            self.refresh_sack(None, receiver);
        }
        Ok(())
    }

    /// RFC 5681 §4.2: text behind a gap is acknowledged at once, each segment of it.
    fn take_out_of_order<P: Payload>(
        &mut self,
        seq: SeqNum,
        payload: P,
        receiver: &mut Receiver<'_, P>,
    ) -> Result<(), Drop> {
        self.quick_acks = QUICK_ACKS;
        self.talk.interactive = false;
        if self.pending.has(Pending::ACK) && !self.sack {
            self.duplicate_acks_owed = self.duplicate_acks_owed.saturating_add(1).min(8);
        }
        self.pending.set(Pending::ACK);
        self.cold.out_of_order = self.cold.out_of_order.wrapping_add(1);
        self.counters.data_segments_in = self.counters.data_segments_in.wrapping_add(1);
        let result = receiver
            .queue
            .insert(receiver.pool, self.share(), seq, payload);
        self.refresh_sack(Some(result?), receiver);
        Ok(())
    }

    /// Eighth: FIN. It counts when everything before it has arrived; where it stood first, it
    /// stays (`negative 69`).
    pub(super) fn process_fin<P: Payload>(
        &mut self,
        segment: &Segment<'_>,
        receiver: &Receiver<'_, P>,
        out: &mut Input,
    ) -> Result<(), Drop> {
        if segment.fin && !self.peer_fin_known {
            let at = segment.seq + segment.len;
            let text_follows = receiver
                .queue
                .end_of_runs(receiver.pool)
                .is_some_and(|end| end > at);
            if at < self.rcv.nxt || text_follows {
                return Err(Drop::Sequence);
            }
            self.peer_fin = at;
            self.peer_fin_known = true;
            if self.rcv.nxt != at {
                self.pending.set(Pending::ACK); // text is missing
                self.note_early_fin(receiver);
            }
        }
        if self.peer_fin_known && !self.peer_fin_reached && self.rcv.nxt == self.peer_fin {
            self.reach_peer_fin(segment.now, out);
        }
        Ok(())
    }

    fn reach_peer_fin(&mut self, now: Instant, out: &mut Input) {
        self.peer_fin_reached = true;
        self.rcv.nxt = self.rcv.nxt + 1;
        self.drop_blocks();
        if self.rcv.edge < self.rcv.nxt {
            self.rcv.edge = self.rcv.nxt;
        }
        out.events |= Events::PEER_CLOSED;
        if self.state == State::Established {
            self.state = State::CloseWait;
            return self.acknowledge_control(now);
        }
        self.pending.set(Pending::ACK);
        match self.state {
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => out.events |= self.enter_time_wait(now),
            _ => {}
        }
    }

    /// Both FINs are acknowledged, ours came first: wait for what is still under way.
    pub(in crate::tcp) fn enter_time_wait(&mut self, now: Instant) -> Events {
        self.state = State::TimeWait;
        self.timers = crate::tcp::timer::Timers::new();
        self.timers.linger = now + from_millis(self.periods.time_wait_ms);
        Events::TIME_WAIT
    }
}
