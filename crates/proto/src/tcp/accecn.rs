//! Accurate ECN (RFC 9768): counters of marked packets in three flags, of bytes by codepoint in an option.
//!
//! The option goes with acknowledgments without text, where it takes no room from any; with SACK blocks if it fits.

use super::cold::HasDefault;
use super::image::plain;
use crate::ip::Ecn;
use crate::wire::tcp::{AccEcn, Flags, Options};

/// The three flags of ECN.
pub(super) const ECN_FLAGS: Flags = Flags(Flags::AE.0 | Flags::CWR.0 | Flags::ECE.0);
/// Where the counters of packets and of bytes begin (RFC 9768 §3.2.1), so that a zero shows that a hop clears fields.
const PACKETS: u8 = 5;
const BYTES: u32 = 1;
/// Counters have 24 bits in the option.
const LOW: u32 = (1 << 24) - 1;
/// Of CE, packets that are acknowledged at once: while text waits to be acknowledged, and else (§3.2.2.5.1).
const MARKS: (u8, u8) = (2, 3);
/// A peer that reports more packets than this with each acknowledgment always does, or a hop between us does: then one of many packets says
/// nothing (Linux: `ACK_COMP_THRESH`; the weights are Linux's, too).
const PER_ACK_FEW: u16 = 4 << 6;
const PER_ACK_WEIGHT: u32 = 64;

/// Both roles' counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Accurate {
    /// As a receiver: r.cep (modulo 256, of which 8 are told), r.e0b, r.ceb, r.e1b.
    pub packets: u8,
    ect0: u32,
    ce: u32,
    ect1: u32,
    /// The sum of the bytes when the option was last sent.
    told: u32,
    /// CE packets since the last acknowledgment.
    marks: u8,
    /// What the packet before was.
    last: Ecn,
    /// The next acknowledgment without text says how the SYN-ACK arrived (§3.2.2.1).
    pub answers_syn_ack: bool,
    /// As a sender: packets that an acknowledgment reports, the running mean in 64ths.
    per_ack: u16,
    /// s.cep and s.ceb.
    heard_packets: u8,
    heard_bytes: u32,
    /// The peer's first feedback has come.
    heard: bool,
    /// Feedback is not to be believed (§3.2.2.4).
    deaf: bool,
    /// The option is not to be believed (§3.2.3.2.4).
    ignores_option: bool,
    /// Feedback contradicts itself, or the handshake showed a field that changes on the way.
    mangled: bool,
}

/// The ACE field of a counter: AE, CWR and ECE stand side by side, in this order.
const fn ace_of(count: u8) -> Flags {
    Flags(((count & 7) as u16) << 6)
}

impl HasDefault for Accurate {
    const DEFAULT: &'static Self = &Self::new();
}

impl Accurate {
    const fn new() -> Self {
        Self {
            packets: PACKETS,
            ect0: BYTES,
            ce: 0,
            ect1: BYTES,
            told: 0,
            marks: 0,
            last: Ecn::NotEct,
            answers_syn_ack: false,
            per_ack: 0,
            heard_packets: PACKETS,
            heard_bytes: 0,
            heard: false,
            deaf: false,
            ignores_option: false,
            mangled: false,
        }
    }

    /// How a SYN, or SYN-ACK, arrived, in the flags of the answer (RFC 9768 table 2, table 3).
    pub const fn handshake_flags(arrived: Ecn) -> Flags {
        ace_of(match arrived {
            Ecn::NotEct => 0b010,
            Ecn::Ect1 => 0b011,
            Ecn::Ect0 => 0b100,
            Ecn::Ce => 0b110,
        })
    }

    /// r.cep in the flags (§3.2.2.2).
    pub const fn ace(&self) -> Flags {
        ace_of(self.packets)
    }

    /// The flags of an acknowledgment that has no news.
    pub const fn expected(&self) -> Flags {
        if self.heard {
            ace_of(self.heard_packets)
        } else {
            Flags::SYN // none: the first is looked at
        }
    }

    pub const fn is_mangled(&self) -> bool {
        self.mangled || self.deaf
    }

    /// A SYN-ACK arrived for the first time (§3.2.2.2: counted, but once).
    pub fn syn_ack_arrived(&mut self, ecn: Ecn) {
        self.packets = PACKETS + u8::from(ecn == Ecn::Ce);
        self.answers_syn_ack = true;
        self.last = ecn;
    }

    /// An acceptable packet with `len` bytes of text (§3.2). `owes`: text waits to be acknowledged. True: to be acknowledged at once
    /// (§3.2.2.5.1).
    pub fn arrived(&mut self, ecn: Ecn, len: u32, owes: bool) -> bool {
        let counter = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(&mut self.ect0),
            Ecn::Ect1 => Some(&mut self.ect1),
            Ecn::Ce => Some(&mut self.ce),
        };
        if let Some(bytes) = counter {
            *bytes = bytes.wrapping_add(len);
        }
        let before = core::mem::replace(&mut self.last, ecn);
        if ecn != Ecn::Ce {
            return false;
        }
        self.packets = self.packets.wrapping_add(1);
        self.marks = self.marks.saturating_add(1);
        let most = if owes || len > 0 { MARKS.0 } else { MARKS.1 };
        (len > 0 && before != Ecn::Ce) || self.marks >= most
    }

    /// An acknowledgment leaves.
    pub const fn acknowledged(&mut self) {
        self.marks = 0;
    }

    /// Whether the acknowledgment that leaves is to be reported by [`Self::acknowledged`].
    #[inline]
    pub const fn has_marks(&self) -> bool {
        self.marks > 0
    }

    /// The option for an acknowledgment without text (§3.2.3.3, the simple scheme), if a counter moved since the last and `options`
    /// leave room for what ever moved.
    pub fn option(&mut self, options: &Options) -> Option<AccEcn> {
        let sum = self.ect0.wrapping_add(self.ect1).wrapping_add(self.ce);
        if sum == self.told {
            return None;
        }
        let ect1_first = self.ect1 != BYTES && self.ect0 == BYTES;
        let (first, third) = if ect1_first {
            (self.ect1, self.ect0)
        } else {
            (self.ect0, self.ect1)
        };
        let len = if third != BYTES {
            3
        } else if self.ce > 0 {
            2
        } else {
            1
        };
        let option = AccEcn {
            ect1_first,
            len,
            fields: [first & LOW, self.ce & LOW, third & LOW],
        };
        let whole = Options {
            accecn: Some(option),
            ..*options
        };
        // §3.2.3.3: SACK goes first. What finds no room is left out of the header, and has to be told with a later one.
        if whole.len(false) == options.len(false) {
            return None;
        }
        self.told = sum;
        Some(option)
    }

    /// The option of a SYN-ACK: whether it gets through (§3.2.3.2.1).
    pub const fn syn_ack_option(&self) -> AccEcn {
        AccEcn {
            ect1_first: false,
            len: 3,
            fields: [self.ect0 & LOW, self.ce & LOW, self.ect1 & LOW],
        }
    }

    /// The last acknowledgment of the handshake, as the server has it (§3.2.2.1, table 4): `is_pure` without text and SACK.
    pub fn handshake_done(&mut self, flags: Flags, is_pure: bool) -> bool {
        if !is_pure {
            return false;
        }
        let ace = Flags(flags.0 & ECN_FLAGS.0);
        self.deaf |= ace == Flags::NONE;
        let was_marked = ace == Self::handshake_flags(Ecn::Ce);
        // Our SYN-ACK was not ECN-capable: no hop may have changed that (§3.2.2.3).
        self.mangled |= was_marked
            || ace == Self::handshake_flags(Ecn::Ect0)
            || ace == Self::handshake_flags(Ecn::Ect1);
        self.heard_packets = PACKETS + u8::from(was_marked);
        was_marked && !self.deaf
    }

    /// What an acknowledgment that was not superseded tells: bytes newly marked, as far as it says (§3.2.2.5.2, §3.2.3.1). `delivered`
    /// bytes are acknowledged by it.
    pub fn feedback(
        &mut self,
        flags: Flags,
        option: Option<AccEcn>,
        delivered: u32,
        mss: u32,
    ) -> u32 {
        let ace = u32::from((flags.0 & ECN_FLAGS.0) >> 6);
        let is_first = !core::mem::replace(&mut self.heard, true);
        // §3.2.2.4: counters begin with 5; a zero at once means that a hop clears flags.
        self.deaf |= is_first && ace == 0;
        let mut packets = ace.wrapping_sub(u32::from(self.heard_packets)) & 7;
        let most = delivered.div_ceil(mss.max(1));
        self.note_packets(most);
        let bytes = match option.and_then(|option| self.bytes_heard(option, is_first)) {
            Some(bytes) => {
                // §3.2.3.2.5: marked bytes without a marked packet, where the counter cannot have come round.
                self.mangled |= bytes > 0 && packets == 0 && most < 8;
                let told = bytes.div_ceil(mss.max(1));
                packets += told.saturating_sub(packets) & !7;
                bytes
            }
            None => {
                // Without the option the counter may have come round (appendix A.2): the safest case, if there are marks at all, or if so
                // many packets are not usual.
                if most > 7 && (packets > 0 || self.per_ack <= PER_ACK_FEW) {
                    packets = most - ((most - packets) & 7);
                }
                packets.saturating_mul(mss).min(delivered.max(mss))
            }
        };
        let [low, ..] = packets.to_le_bytes();
        self.heard_packets = self.heard_packets.wrapping_add(low);
        if self.deaf || packets == 0 && bytes == 0 {
            return 0;
        }
        bytes.max(1)
    }

    /// An acknowledgment reported `packets`.
    fn note_packets(&mut self, packets: u32) {
        let (mean, told) = (u32::from(self.per_ack), packets.saturating_mul(64));
        let mean = match mean {
            0 => told,
            _ => (mean * (PER_ACK_WEIGHT - 1)).saturating_add(told) / PER_ACK_WEIGHT,
        };
        self.per_ack = u16::try_from(mean).unwrap_or(u16::MAX);
    }

    /// How much the peer's counter of CE bytes moved, if it sent that.
    fn bytes_heard(&mut self, option: AccEcn, is_first: bool) -> Option<u32> {
        // §3.2.3.2.4.
        self.ignores_option |= is_first && (option.ect0() == Some(0) || option.ect1() == Some(0));
        if self.ignores_option {
            return None;
        }
        let ce = option.ce()?;
        let moved = ce.wrapping_sub(self.heard_bytes) & LOW;
        // More than half the range is a step back: an older segment's.
        if moved > LOW / 2 {
            return None;
        }
        self.heard_bytes = self.heard_bytes.wrapping_add(moved);
        Some(moved)
    }
}

plain!(Accurate {
    packets,
    ect0,
    ce,
    ect1,
    told,
    marks,
    last,
    answers_syn_ack,
    per_ack,
    heard_packets,
    heard_bytes,
    heard,
    deaf,
    ignores_option,
    mangled
});

#[cfg(test)]
impl Accurate {
    /// s.cep and s.ceb.
    pub const fn heard(&self) -> (u8, u32) {
        (self.heard_packets, self.heard_bytes)
    }
    /// r.e0b, r.ceb, r.e1b.
    pub const fn bytes(&self) -> [u32; 3] {
        [self.ect0, self.ce, self.ect1]
    }
}

#[cfg(test)]
#[path = "tests/accecn.rs"]
mod tests;
