//! The sequence number extension (RFC 5925 §6.2): how often 32 bits of sequence numbers have come round.

use crate::wire::tcp::SeqNum;

/// How far one direction has come since its initial sequence number.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequenceExtension {
    /// Where it began; another one begins anew.
    isn: Option<SeqNum>,
    /// The furthest that was signed, or verified.
    furthest: Extension,
}

/// A sequence number of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extension {
    /// The upper half.
    pub sne: u32,
    seq: SeqNum,
}

impl SequenceExtension {
    /// The extension of a segment at `seq` in a direction that began at `isn`: that of the furthest one, or its neighbour if zero lies
    /// between the two. Of what lies as far behind as ahead it makes something that is behind: none but a replay.
    pub fn of(&mut self, isn: SeqNum, seq: SeqNum) -> Extension {
        if self.isn != Some(isn) {
            self.isn = Some(isn);
            self.furthest = Extension { sne: 0, seq: isn };
        }
        let Extension { sne, seq: furthest } = self.furthest;
        let ahead = seq > furthest;
        let sne = match (ahead, seq.0 < furthest.0) {
            (true, true) => sne.wrapping_add(1),
            // Behind what was the beginning: a keep-alive's octet, or nothing of this connection.
            (false, false) if seq != furthest => sne.wrapping_sub(1),
            _ => sne,
        };
        Extension { sne, seq }
    }

    /// A segment was signed, or verified: what comes is counted from there, if it is further.
    pub fn advance(&mut self, to: Extension) {
        if to.seq > self.furthest.seq {
            self.furthest = to;
        }
    }
}
