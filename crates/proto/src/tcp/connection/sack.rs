//! The peer's SACK option (RFC 2018, RFC 2883), taken into the records of what was sent.

use super::Connection;
use crate::tcp::delivery::Delivery;
use crate::tcp::sent::Fate;
use crate::wire::tcp::{Header, SackBlocks, SeqNum};

impl Connection {
    /// Takes the SACK blocks. A block that is empty, backwards, or not between SND.UNA and SND.NXT is nonsense and ignored
    /// (`negative 59`), unless it is the first and a D-SACK.
    pub(super) fn note_sack(&mut self, header: &Header, delivery: &mut Delivery) {
        let blocks = header.options.sack;
        if !self.sack || blocks.is_empty() {
            return;
        }
        if self.is_dsack(header.ack, &blocks) {
            delivery.dsack = true;
            let (una, nxt) = (self.snd.una, self.snd.nxt);
            self.recovery.rack.on_dsack(una, nxt);
            self.cold.undo.on_dsack(blocks.as_slice()[0].1);
            self.cold.dsacks = self.cold.dsacks.saturating_add(1);
        }
        let una = if header.ack > self.snd.una {
            header.ack
        } else {
            self.snd.una
        };
        let nxt = self.snd.nxt;
        let (sent, mut taker) = self.taker(delivery, false);
        for &(left, right) in blocks.as_slice() {
            // All four: sequence numbers are in order only within half their space, and a block may span more.
            if left < right && left > una && right <= nxt && left < nxt {
                sent.sack(left, right, |record, bytes| taker.sacked(record, bytes));
            }
        }
    }

    /// RFC 2883 §4: the first block lies below the acknowledgment, or within the second; and it was sent by us, not before all memory.
    fn is_dsack(&self, ack: SeqNum, blocks: &SackBlocks) -> bool {
        let (left, right) = blocks.as_slice()[0];
        let oldest = self.snd.una - self.snd.wnd_max;
        if left >= right || left < oldest {
            return false;
        }
        let within = |&(l, r): &(SeqNum, SeqNum)| l <= left && right <= r;
        left < ack && right <= ack || blocks.as_slice().get(1).is_some_and(within)
    }

    /// RFC 2018 §8: what begins at SND.UNA and was sacked would have been acknowledged, had the peer kept it.
    pub(super) fn notice_reneging(&mut self) {
        if self.sent.front().is_some_and(|r| r.fate == Fate::Sacked) {
            self.sent.renege();
        }
    }
}
