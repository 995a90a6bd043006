//! Tail loss probes (RFC 8985 §7): when a flight's end is silent, one segment asks for an answer before the timeout has to.

use super::Connection;
use super::input::Segment;
use super::output::Stretch;
use crate::tcp::congestion::{Cause, Phase};
use crate::tcp::delivery::Delivery;
use crate::tcp::recovery::TailProbe;
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// How long a peer may delay the acknowledgment of a single segment (RFC 8985 §7.2, WCDelAckT), in microseconds.
const DELAYED_ACK_US: u64 = 200_000;

/// What timers and the peer's scheduling may add to a round trip, in microseconds.
const SLACK_US: u64 = 2_000;

/// The wait for a probe before anything was measured.
const UNMEASURED_US: u64 = 1_000_000;

impl Connection {
    /// RFC 8985 §7.2: whether a probe may be scheduled, and after how many microseconds. `STEADY`: [`Self::is_steady`].
    #[inline(always)]
    pub(super) fn probe_timeout_us<const STEADY: bool>(&self) -> Option<u64> {
        // First what ends it most often.
        let may = self.sent.in_flight() > 0
            && self.sack
            && self.settings.rack
            && self.attempts == 0
            && (STEADY
                || (matches!(self.recovery.phase, Phase::Open | Phase::Reducing)
                    && self.recovery.tail == TailProbe::None
                    && self.sent.is_plain()
                    && !self.probing));
        if !may {
            return None;
        }
        let srtt = u64::from(self.rtt.srtt_us);
        if srtt == 0 {
            return Some(UNMEASURED_US);
        }
        let one = self.sent.in_flight() <= u32::from(self.snd.mss);
        Some(2 * srtt + if one { DELAYED_ACK_US } else { SLACK_US })
    }

    /// The wait for a probe is over: send it. What was sent meanwhile moves the time; that is only noticed here, so that sending does
    /// not have to set a timer for each segment.
    pub(super) fn on_probe_timeout(&mut self, now: Instant) {
        let Some(wait) = self.probe_timeout_us::<false>() else {
            return;
        };
        let due = self.last_sent.plus_micros(wait).min(self.timers.retransmit);
        if due > now {
            self.timers.early = due;
            return;
        }
        self.pending.set(Pending::TAIL);
        self.arm_retransmit(now);
    }

    /// A tail loss probe (RFC 8985 §7.3): something new if there is and the peer has room, whatever
    /// the congestion window says; else the last segment again.
    pub(super) fn tail_probe(&mut self) -> Option<Stretch> {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        if una == nxt {
            return None;
        }
        let room = (una + self.snd.wnd - nxt).max(0).unsigned_abs();
        let unsent = (self.snd.end - nxt).max(0).unsigned_abs();
        let len = unsent.min(self.full_segment()).min(room);
        let (len, _) = self.up_to_record(nxt, len);
        if len > 0 {
            return Some(Stretch {
                start: nxt,
                len,
                fin: false,
            });
        }
        let (begin, record) = self.sent.last()?;
        let fin = record.end > self.snd.end;
        let text = (record.end - begin).unsigned_abs() - u32::from(fin);
        let len = text.min(self.full_segment());
        let start = record.end - len - u32::from(fin);
        Some(Stretch { start, len, fin })
    }

    /// A probe left, up to `end`.
    pub(super) fn tail_probe_sent(&mut self, end: SeqNum, is_retransmission: bool) {
        self.timers.early = Instant::FAR;
        self.recovery.tail_end = end;
        self.recovery.tail = if is_retransmission {
            TailProbe::Again
        } else {
            TailProbe::New
        };
        self.cold.tail_probes = self.cold.tail_probes.saturating_add(1);
    }

    /// RFC 8985 §7.4: what an acknowledgment says of the probe. One that only filled the hole that it was sent for has hidden a loss.
    pub(super) fn note_tail_probe(&mut self, delivery: &Delivery, now: Instant) {
        if self.recovery.tail == TailProbe::None {
            return;
        }
        let (una, end) = (self.snd.una, self.recovery.tail_end);
        // New text arrived, or the original as well as the probe.
        let nothing_lost = self.recovery.tail == TailProbe::New || delivery.dsack;
        if una >= end && (nothing_lost || una > end) {
            self.recovery.tail = TailProbe::None;
            if !nothing_lost && self.recovery.phase == Phase::Open {
                self.enter_reducing(Cause::Loss, now);
            }
        }
    }

    /// RFC 8985 §7.4.2, "a DUPACK without any SACK option": a peer without D-SACK that got the original as well as the probe acknowledges it a second
    /// time. There need be nothing in flight by then, so this is more than a duplicate of RFC 5681. `window`: what it announces.
    pub(super) fn note_second_answer(&mut self, segment: &Segment<'_>, window: u32) {
        let ack = segment.header.ack;
        if self.recovery.tail == TailProbe::Again
            && ack == self.recovery.tail_end
            && ack == self.snd.una
            && segment.space() == 0
            && segment.header.options.sack.is_empty()
            && window == self.snd.wnd
        {
            self.recovery.tail = TailProbe::None;
        }
    }
}
