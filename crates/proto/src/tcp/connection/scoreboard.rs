//! Loss found by counting (RFC 6675 §4), the way before RACK-TLP: what [`crate::tcp::Config::rack`] falls back to, so that the two can be compared.

use super::Connection;
use crate::tcp::delivery::Delivery;
use crate::tcp::rack::DUPLICATE_THRESHOLD;
use crate::tcp::sent::{Fate, Record, Sent};
use crate::time::Instant;

impl Connection {
    /// IsLost: three segments above it have arrived, or more than two full ones' bytes. What was sent again already is not judged anew: only the
    /// timeout finds out that it was lost, too.
    pub(super) fn find_losses_by_count(&mut self, delivery: &mut Delivery, now: Instant) {
        if self.sent.is_plain() {
            return;
        }
        let most = (DUPLICATE_THRESHOLD - 1) * u32::from(self.snd.mss);
        let (mut bytes, mut segments) = (self.sent.sacked(), self.sent.sacked_segments());
        let mut to = self.snd.una;
        for (start, record) in self.sent.iter() {
            if record.fate == Fate::Sacked {
                bytes -= (record.end - start).unsigned_abs();
                segments -= record.segments(start);
            }
            if bytes <= most && segments < DUPLICATE_THRESHOLD {
                break;
            }
            to = record.end;
        }
        let is_first = |_, record: &Record| !record.is_retransmission();
        let find = |sent: &mut Sent, told: &mut dyn FnMut(&Record, u32)| {
            sent.condemn(to, is_first, told);
        };
        self.take_for_lost(find, delivery, now);
    }
}
