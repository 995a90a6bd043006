//! Fast Open on both sides (RFC 7413); `tcp::fast_open` has the state.

use super::Connection;
use super::input::{Receiver, Segment};
use crate::ip::Ecn;
use crate::tcp::fast_open::{FastOpen, FastOpenPeer, FastOpenResult};
use crate::tcp::payload::Payload;
use crate::tcp::reassembly::{ReceiveQueue, SegmentPool};
use crate::tcp::sent::Sent;
use crate::tcp::types::{Drop, Events, Input, State};
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::{FastOpen as Cookie, Header, SeqNum};
use alloc::boxed::Box;

/// Bytes that the options of a header may take. As in Linux, text in a SYN leaves room for all of them.
const OPTIONS_LEN_MAX: u16 = 40;

impl Connection {
    // --- the client ----------------------------------------------------------------------------------------------

    /// Makes an active open, of which nothing was sent yet, a fast one. One that may carry text is held back until
    /// [`Self::release`].
    pub fn open_fast(&mut self, peer: &FastOpenPeer) {
        if self.state != State::SynSent || self.snd.nxt != self.iss {
            return;
        }
        let mut fast = FastOpen::new(peer.option);
        if peer.carries_text {
            let mss = peer.mss.unwrap_or(self.settings.default_mss);
            let mss = mss.min(self.settings.mss).min(self.path.limit());
            fast.text_max = mss.saturating_sub(OPTIONS_LEN_MAX).into();
            fast.held = true;
            self.pending.clear(Pending::SYN);
        }
        self.fast_open = Some(Box::new(fast));
    }

    /// Whether the SYN waits for the first write.
    pub fn is_held(&self) -> bool {
        self.fast_open.as_ref().is_some_and(|fast| fast.held) && self.state == State::SynSent
    }

    /// Most bytes of text that the SYN can carry.
    pub fn first_text_max(&self) -> u32 {
        self.fast_open.as_ref().map_or(0, |fast| fast.text_max)
    }

    /// Lets the SYN go, with what was written so far.
    pub fn release(&mut self) {
        if let Some(fast) = &mut self.fast_open
            && core::mem::take(&mut fast.held)
        {
            self.pending.set(Pending::SYN);
        }
    }

    /// A write with more text than the SYN takes waits for the end of the handshake: as in Linux that text carries the acknowledgment of the
    /// SYN-ACK, and the peer is taken for one that answers.
    pub fn text_follows(&mut self) {
        if let Some(fast) = &mut self.fast_open {
            fast.followed = self.state == State::SynSent;
        }
    }

    /// The SYN-ACK came.
    pub(super) fn acknowledge_syn_ack(&mut self, now: Instant) {
        if self.fast_open.as_ref().is_some_and(|fast| fast.followed) {
            self.talk.heard = true;
            self.delay_acknowledgment(now);
        } else {
            self.acknowledge_control(now);
        }
    }

    /// Whether it has to do with Fast Open at all.
    pub const fn is_fast_open(&self) -> bool {
        self.fast_open.is_some()
    }

    /// What came of an active open, once the peer has answered.
    pub fn fast_open_result(&self) -> Option<FastOpenResult> {
        self.fast_open.as_ref()?.result
    }

    /// Whether text in a SYN was taken, by us or by the peer (Linux's TCPI_OPT_SYN_DATA).
    pub fn has_syn_data(&self) -> bool {
        self.fast_open.as_ref().is_some_and(|fast| fast.syn_data)
    }

    /// The option of our SYN or SYN-ACK, and how much text the SYN carries. Only the `first` has either (RFC 7413 §4.2.1).
    #[cold]
    pub(super) fn add_fast_open(&mut self, header: &mut Header, first: bool, now: Instant) -> u32 {
        let unsent = self.unsent();
        let Some(fast) = self.fast_open.as_mut().filter(|_| first) else {
            return 0;
        };
        let others = header.len();
        header.options.fast_open = fast.option;
        if fast.option.is_some() && header.len() == others {
            fast.text_max = 0; // no room for the cookie, without which no text may go
        }
        fast.at = now;
        if fast.takes_text {
            // Text follows at once: what waits for acknowledgment begins behind the SYN.
            self.snd.una = self.iss + 1;
        }
        fast.sent = unsent.min(fast.text_max);
        self.snd.nxt = self.snd.nxt + fast.sent;
        fast.sent
    }

    /// The SYN and its text were too long for the path: a plain SYN at once, as in Linux.
    pub(super) fn syn_was_too_big(&mut self) {
        if self.state == State::SynSent && self.fast_open.as_ref().is_some_and(|f| f.sent > 0) {
            self.pending.set(Pending::SYN);
        }
    }

    /// Whether `ack` acknowledges our SYN, maybe with text.
    pub(super) fn acknowledges_syn(&self, ack: SeqNum) -> bool {
        let most = if self.fast_open.is_some() {
            self.snd.nxt
        } else {
            self.iss + 1
        };
        self.snd.nxt != self.iss && ack > self.iss && ack <= most
    }

    /// Our SYN is acknowledged. In whole or in part, the text that it carried is, too; what is left was never sent.
    pub(super) fn syn_acknowledged(&mut self, header: &Header, out: &mut Input) {
        let Some(fast) = &mut self.fast_open else {
            self.snd.una = header.ack;
            self.sent = Sent::new(header.ack);
            return;
        };
        if fast.takes_text {
            return; // SND.UNA moves as for all text
        }
        let taken = (header.ack - (self.iss + 1)).max(0).unsigned_abs();
        fast.syn_data = fast.sent > 0 && taken == fast.sent;
        fast.result = Some(FastOpenResult {
            sent: fast.option,
            received: header.options.fast_open,
            mss: self.peer_mss,
            carried_text: fast.sent > 0,
            text_taken: fast.syn_data,
            repeated: self.attempts > 0,
        });
        self.snd.una = header.ack;
        self.snd.nxt = header.ack;
        self.sent = Sent::new(header.ack);
        self.counters.bytes_acked += u64::from(taken);
        out.acked = taken;
    }

    /// Whether the text up to `end` left in our SYN before: that the segment is not full was not the application's choice, and Nagle's
    /// algorithm lets what follows go.
    pub(super) fn was_in_syn(&self, end: SeqNum) -> bool {
        let carried =
            |fast: &FastOpen| end == self.iss + 1 + fast.sent && fast.sent == fast.text_max;
        self.fast_open.as_deref().is_some_and(carried)
    }

    // --- the server ----------------------------------------------------------------------------------------------

    /// The first SYN-ACK of a passive open carries a cookie (RFC 7413 §4.1.2).
    pub fn grant_cookie(&mut self, cookie: Cookie) {
        if self.state == State::SynReceived && self.snd.nxt == self.iss {
            self.fast_open = Some(Box::new(FastOpen::new(Some(cookie))));
        }
    }

    /// Takes the text of the SYN that opened this connection, whose cookie is good, and lets the application answer before the handshake
    /// is over (RFC 7413 §4.2.2). Text that finds no memory is left to be sent again.
    pub fn take_syn_text<P: Payload>(
        &mut self,
        syn: &Header,
        payload: P,
        queue: &mut ReceiveQueue<P>,
        pool: &mut SegmentPool<P>,
        now: Instant,
    ) -> Input {
        let mut out = Input::default();
        if self.state != State::SynReceived || self.snd.nxt != self.iss {
            return out;
        }
        let mut fast = match self.fast_open.take() {
            Some(granted) => granted,
            None => Box::new(FastOpen::new(None)),
        };
        fast.takes_text = true;
        self.fast_open = Some(fast);
        self.note_edge(self.syn_window().into());
        let mut segment = Segment {
            header: syn,
            seq: syn.seq + 1,
            len: u32::try_from(payload.len()).unwrap_or(u32::MAX >> 2),
            syn: false,
            fin: false,
            ecn: Ecn::NotEct,
            now,
        };
        let mut receiver = Receiver { queue, pool };
        let taken = self.process_text(&mut segment, payload, &mut receiver, &mut out);
        out.drop = taken.err().filter(|reason| *reason != Drop::Duplicate);
        // The SYN-ACK acknowledges it.
        self.timers.delayed_ack = Instant::FAR;
        self.pending.clear(Pending::ACK);
        if let Some(fast) = &mut self.fast_open {
            fast.taken = (self.rcv.nxt - (self.irs + 1)).max(0).unsigned_abs();
            fast.syn_data = fast.taken > 0;
        }
        out
    }

    /// Whether text flows although the handshake is not over: only where [`Self::take_syn_text`] was called.
    #[inline]
    pub const fn is_early(&self) -> bool {
        matches!(self.state, State::SynReceived)
            && matches!(&self.fast_open, Some(fast) if fast.takes_text)
    }

    /// What was sent before the handshake was over has its timers now.
    #[cold]
    pub(super) fn watch_early_text(&mut self, now: Instant) {
        if self.snd.una != self.snd.nxt {
            self.arm_retransmit(now);
            self.arm_early::<false>(now);
        }
    }

    /// What a passive open in SYN-RECEIVED says when it ends otherwise than by FINs: nothing to the application, unless that knows it.
    pub(super) fn fall_back_to_listen(&mut self, error: crate::tcp::types::Error) -> Events {
        if self.is_early() {
            self.finish(Some(error))
        } else {
            self.finish(None) | Events::RESET
        }
    }
}
