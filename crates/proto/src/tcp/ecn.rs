//! Explicit congestion notification (RFC 3168): what the handshake agrees upon, how marked packets are reported, and what is done when
//! the peer reports them. Accurate ECN's own counters are in `accecn`.
//!
//! Packets are ECN-capable only if they carry text that was never sent before: no SYN, acknowledgment, probe or retransmission is
//! (RFC 3168 §6.1.1, §6.1.4 to §6.1.6; RFC 5562 would change that for the SYN-ACK, and is not offered).

use super::accecn::{Accurate, ECN_FLAGS};
use super::cold::BoxedDefault;
use super::config::EcnMode;
use super::image::imaged;
use crate::ip::Ecn;
use crate::wire::tcp::{Flags, SeqNum};

/// An ECN-setup SYN (RFC 3168 §6.1.1).
const SETUP: Flags = Flags(Flags::CWR.0 | Flags::ECE.0);
/// SYNs that ask for accurate ECN before they stop asking (RFC 9768 §3.1.4.1). One asks for classic ECN (RFC 3168 §6.1.1.1).
const ACCURATE_TRIES: u8 = 2;

/// What tells both ends of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feedback {
    /// Nothing does.
    Off,
    /// ECE, until CWR says that it was heard.
    Classic,
    /// Counters, in the flags and in an option.
    Accurate,
}

/// ECN's part of a connection.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct EcnState {
    wish: EcnMode,
    pub feedback: Feedback,
    /// In the IP header of text that is sent for the first time.
    pub codepoint: Ecn,
    /// In every segment of an open connection: ECE or the ACE field.
    pub out: Flags,
    /// In the next segment of new text, and only that: CWR.
    pub once: Flags,
    /// What an acknowledgment has for flags, but for PSH, if it has no news of marks.
    pub usual: Flags,
    /// The last SYN or SYN-ACK, as it arrived.
    pub syn_ecn: Ecn,
    /// What the peer's first SYN asked for.
    asked: Flags,
    /// A SYN or SYN-ACK without a word of ECN went out.
    silent: bool,
    /// A packet of the peer's was ECN-capable.
    pub seen: bool,
    /// Marks told before this is acknowledged have been answered.
    pub answered: SeqNum,
    pub accurate: BoxedDefault<Accurate>,
}

impl EcnState {
    pub const fn new(wish: EcnMode) -> Self {
        Self {
            wish,
            feedback: Feedback::Off,
            codepoint: Ecn::NotEct,
            out: Flags::NONE,
            once: Flags::NONE,
            usual: Flags::ACK,
            syn_ecn: Ecn::NotEct,
            asked: Flags::NONE,
            silent: false,
            seen: false,
            answered: SeqNum(0),
            accurate: BoxedDefault::DEFAULT,
        }
    }

    /// The connection begins at `iss`.
    pub const fn begin_at(&mut self, iss: SeqNum) {
        self.answered = iss;
    }

    /// Whether anything was agreed upon.
    #[inline]
    pub const fn is_on(&self) -> bool {
        !matches!(self.feedback, Feedback::Off)
    }

    /// Flags of our SYN, sent `attempts` times before.
    pub fn syn_flags(&mut self, attempts: u8) -> Flags {
        let flags = match self.wish {
            EcnMode::Accurate if attempts < ACCURATE_TRIES => ECN_FLAGS,
            EcnMode::Classic if attempts == 0 => SETUP,
            _ => Flags::NONE,
        };
        self.silent |= flags == Flags::NONE;
        flags
    }

    /// Flags of our SYN-ACK, sent `attempts` times before.
    pub fn syn_ack_flags(&mut self, attempts: u8) -> Flags {
        match self.feedback {
            Feedback::Off => Flags::NONE,
            Feedback::Classic => Flags::ECE,
            // RFC 9768 §3.2.3.2.2: perhaps it is these flags that do not get through. §3.1.5: then nothing may be ECN-capable.
            Feedback::Accurate if attempts >= ACCURATE_TRIES => {
                self.codepoint = Ecn::NotEct;
                Flags::NONE
            }
            Feedback::Accurate => Accurate::handshake_flags(self.syn_ecn),
        }
    }

    /// The peer's SYN, to which we answer (RFC 3168 §6.1.1, RFC 9768 table 2 and §3.1.3).
    pub fn take_syn(&mut self, flags: Flags) {
        let asked = Flags(flags.0 & ECN_FLAGS.0);
        self.asked = asked;
        let feedback = match (self.wish, asked) {
            (EcnMode::Off, _) | (_, Flags::NONE) => Feedback::Off,
            (EcnMode::Accurate, SETUP) => Feedback::Classic,
            (EcnMode::Accurate, _) => Feedback::Accurate,
            // To a stack that does not know AE, it is a reserved bit.
            _ if asked.contains(SETUP) => Feedback::Classic,
            _ => Feedback::Off,
        };
        self.agree(feedback);
    }

    /// The peer's SYN once more. False: it asks for something else, which leaves no way to know what was agreed upon (RFC 9768 §3.1.5:
    /// the connection is reset).
    pub fn take_syn_again(&mut self, flags: Flags) -> bool {
        let asked = Flags(flags.0 & ECN_FLAGS.0);
        if self.feedback == Feedback::Accurate && asked == Flags::NONE {
            self.codepoint = Ecn::NotEct;
        }
        let either = |a, b| self.asked == a && asked == b;
        let mixed = either(ECN_FLAGS, SETUP) || either(SETUP, ECN_FLAGS);
        !(mixed && self.wish == EcnMode::Accurate)
    }

    /// The SYN-ACK that answers our SYN.
    pub fn take_syn_ack(&mut self, flags: Flags) {
        let answer = Flags(flags.0 & ECN_FLAGS.0);
        let classic = answer.contains(Flags::ECE) && !answer.contains(Flags::CWR);
        match self.wish {
            EcnMode::Classic if classic => self.agree(Feedback::Classic),
            EcnMode::Accurate if answer == Flags::ECE => self.agree(Feedback::Classic),
            // RFC 9768 table 2: nothing, or a mirror.
            EcnMode::Accurate if answer != Flags::NONE && answer != ECN_FLAGS => {
                self.agree(Feedback::Accurate);
                // §3.1.3: 101 is for the future, and says that the SYN arrived as it left.
                let as_it_left = Accurate::handshake_flags(Ecn::NotEct);
                if answer != as_it_left && answer != Flags::AE | Flags::ECE {
                    // §3.2.2.3: a hop on the way writes into the field.
                    self.codepoint = Ecn::NotEct;
                }
                self.accurate.syn_ack_arrived(self.syn_ecn);
                self.accurate_flags();
            }
            _ => {}
        }
    }

    fn agree(&mut self, feedback: Feedback) {
        self.feedback = feedback;
        if feedback == Feedback::Off {
            return;
        }
        // RFC 3168 §6.1.1: an end that did not ask sends nothing ECN-capable. In accurate ECN that binds servers only (RFC 9768 §3.1.5).
        if !self.silent || feedback == Feedback::Accurate {
            self.codepoint = Ecn::Ect0;
        }
        if feedback == Feedback::Accurate {
            self.accurate_flags();
        }
    }

    /// Our counter for the peer, and the one we expect of it.
    pub fn accurate_flags(&mut self) {
        self.out = self.accurate.ace();
        self.usual = self.accurate.expected() | Flags::ACK;
    }

    /// An acceptable segment with `len` bytes of text (RFC 3168 §6.1.3). True: to be acknowledged at once.
    pub fn arrived_classic(&mut self, ecn: Ecn, flags: Flags, len: u32) -> bool {
        if len == 0 {
            return false;
        }
        let was = self.out;
        if flags.contains(Flags::CWR) {
            self.out = Flags::NONE;
        }
        if ecn == Ecn::Ce {
            self.out = Flags::ECE;
        }
        self.out != was || flags.contains(Flags::CWR)
    }

    /// [`Self::arrived_classic`] where DCTCP answers: ECE says whether the last packet was marked (RFC 8257 §3.2).
    pub fn arrived_dctcp(&mut self, ecn: Ecn, len: u32) -> bool {
        let marked = ecn == Ecn::Ce;
        let changes = len > 0 && marked != self.out.contains(Flags::ECE);
        if changes {
            self.out = if marked { Flags::ECE } else { Flags::NONE };
        }
        changes
    }
}

imaged! {
    /// [`EcnState`] as plain data.
    pub(super) struct EcnImage of EcnState {
        wish: EcnMode,
        feedback: Feedback,
        codepoint: Ecn,
        out: Flags,
        once: Flags,
        usual: Flags,
        syn_ecn: Ecn,
        asked: Flags,
        silent: bool,
        seen: bool,
        answered: SeqNum,
        accurate: Option<Accurate> as part,
    }
}

#[cfg(test)]
super::image::scramble::chosen! {
    Feedback: Feedback::Off, Feedback::Classic, Feedback::Accurate;
    EcnMode: EcnMode::Off, EcnMode::Passive, EcnMode::Classic, EcnMode::Accurate;
}
