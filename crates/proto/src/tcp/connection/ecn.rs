//! ECN on the way in and out: marks are reported, and the peer's reports are answered. `tcp::ecn` has the state.

use super::Connection;
use super::input::Segment;
use crate::ip::Ecn;
use crate::tcp::accecn::Accurate;
use crate::tcp::congestion::Cause;
use crate::tcp::congestion::CongestionControl;
use crate::tcp::delivery::Delivery;
use crate::tcp::ecn::Feedback;
use crate::tcp::types::State;
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::{AccEcn, Flags, Header};

impl Connection {
    /// What the IP header said that the SYN came with for which this connection was opened.
    pub fn set_syn_ecn(&mut self, ecn: Ecn) {
        self.ecn.syn_ecn = ecn;
    }

    /// Whether accurate ECN was agreed upon (RFC 9768): then all three flags are a number, which no hop on the way may change.
    pub fn has_accurate_ecn(&self) -> bool {
        self.ecn.feedback == Feedback::Accurate
    }

    /// An acceptable segment arrived, with `ecn` in its IP header.
    #[inline(never)]
    pub(super) fn note_ecn(&mut self, ecn: Ecn, flags: Flags, len: u32) {
        self.ecn.seen |= ecn != Ecn::NotEct;
        let at_once = match self.ecn.feedback {
            Feedback::Off => false,
            Feedback::Classic if self.congestion.control() == CongestionControl::Dctcp => {
                self.ecn.arrived_dctcp(ecn, len)
            }
            Feedback::Classic => self.ecn.arrived_classic(ecn, flags, len),
            Feedback::Accurate => {
                let owes = self.rcv.nxt != self.last_ack_sent;
                let at_once = self.ecn.accurate.arrived(ecn, len, owes);
                self.ecn.accurate_flags();
                at_once
            }
        };
        if at_once {
            self.pending.set(Pending::ACK);
        }
    }

    /// What an acceptable acknowledgment says of marks on what we sent.
    #[inline(never)]
    pub(super) fn note_ecn_feedback(
        &mut self,
        flags: Flags,
        option: Option<AccEcn>,
        delivery: &mut Delivery,
        now: Instant,
    ) {
        match self.ecn.feedback {
            Feedback::Off => return,
            Feedback::Classic => {
                if flags.contains(Flags::ECE) {
                    delivery.marked = delivery.delivered.max(1);
                }
            }
            // Older than what was heard before: superseded (RFC 9768 appendix A.1).
            Feedback::Accurate if delivery.acked == 0 && !delivery.news => return,
            Feedback::Accurate => {
                let mss = u32::from(self.snd.mss);
                let ecn = &mut self.ecn;
                delivery.marked = ecn
                    .accurate
                    .feedback(flags, option, delivery.delivered, mss);
                if ecn.accurate.is_mangled() {
                    ecn.codepoint = Ecn::NotEct;
                }
                ecn.accurate_flags();
            }
        }
        if delivery.marked > 0 {
            let bytes = &mut self.cold.bytes_marked;
            *bytes = bytes.wrapping_add(delivery.marked);
        }
        if delivery.marked > 0 && self.snd.una > self.ecn.answered {
            self.answer_marks(now);
        }
    }

    /// RFC 3168 §6.1.2: as for a loss, at most once for what is in flight.
    fn answer_marks(&mut self, now: Instant) {
        self.ecn.answered = self.snd.nxt;
        if self.ecn.feedback == Feedback::Classic {
            self.ecn.once = Flags::CWR;
        }
        self.enter_reducing(Cause::Ecn, now);
    }

    /// Flags, and an option, of our SYN or SYN-ACK.
    pub(super) fn add_ecn_to_syn(&mut self, header: &mut Header, passive: bool) {
        let flags = if passive {
            self.ecn.syn_ack_flags(self.attempts)
        } else {
            self.ecn.syn_flags(self.attempts)
        };
        header.flags = header.flags | flags;
        // RFC 9768 §3.2.3.2.2: the option may be what does not get through, so it is left out the second time.
        if passive && self.ecn.feedback == Feedback::Accurate && self.attempts == 0 {
            header.options.accecn = Some(self.ecn.accurate.syn_ack_option());
        }
    }

    /// What an acknowledgment without text says more in accurate ECN.
    #[inline(never)]
    pub(super) fn add_accurate(&mut self, header: &mut Header) {
        let answers = core::mem::take(&mut self.ecn.accurate.answers_syn_ack);
        if answers && header.options.sack.is_empty() {
            let ace = Accurate::handshake_flags(self.ecn.syn_ecn);
            header.flags = Flags::ACK | ace;
        }
        header.options.accecn = self.ecn.accurate.option(&header.options);
    }

    /// A SYN in SYN-RECEIVED, the one that opened the connection once more: does it ask for another kind of ECN?
    pub(super) fn ecn_is_contradicted(&mut self, segment: &Segment<'_>) -> bool {
        let again = self.state == State::SynReceived
            && self.passive
            && segment.seq == self.irs
            && !segment.header.flags.intersects(Flags::ACK | Flags::RST);
        if !again {
            // RFC 9768 §3.2.2.1: a repeated SYN-ACK is answered as the first one was.
            if self.ecn.feedback == Feedback::Accurate
                && self.state == State::Established
                && !self.passive
                && segment.seq == self.irs
                && segment.header.flags.contains(Flags::ACK)
                && segment.header.ack == self.iss + 1
            {
                self.ecn.accurate.answers_syn_ack = true;
            }
            return false;
        }
        self.ecn.syn_ecn = segment.ecn; // §3.1.5: the latest
        !self.ecn.take_syn_again(segment.header.flags)
    }

    /// The handshake's last acknowledgment.
    pub(super) fn note_ecn_of_handshake(&mut self, segment: &Segment<'_>) {
        if self.ecn.feedback != Feedback::Accurate {
            return;
        }
        let header = segment.header;
        let is_pure = segment.len == 0 && header.options.sack.is_empty() && !segment.syn;
        let ecn = &mut self.ecn;
        let is_marked = ecn.accurate.handshake_done(header.flags, is_pure);
        if ecn.accurate.is_mangled() {
            ecn.codepoint = Ecn::NotEct;
        }
        if is_marked {
            self.begin_with_little();
        }
    }

    /// The network was congested when a SYN passed: as if that had been lost (RFC 5681 §3.1).
    fn begin_with_little(&mut self) {
        self.congestion.window.cwnd = u32::from(self.snd.mss);
    }
}
