//! The records of what was sent, as plain data.

use alloc::vec::Vec;

use super::losses::LossesImage;
use super::{Fate, Record, Sent, Traits, distance};
use crate::tcp::image::{Imaged, imaged};
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// [`Sent`] as plain data.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tcp) struct SentImage {
    records: Vec<RecordImage>,
    una: SeqNum,
    in_flight: u32,
    sacked: u32,
    lost: u32,
    losses: Option<LossesImage>,
}

imaged! {
    /// A [`Record`] as plain data.
    pub(in crate::tcp) struct RecordImage of Record {
        end: SeqNum,
        sent_us: u32 as micros,
        first_sent_us: u32 as micros,
        delivered: u32,
        delivered_us: u32 as micros,
        tx_in_flight: u32,
        lost: u32,
        segment: u16,
        fate: Fate,
        traits: Traits,
    }
}

impl Imaged for Sent {
    type Image = SentImage;
    fn image(&self, now: Instant) -> SentImage {
        let Self {
            records,
            una,
            in_flight,
            sacked,
            lost,
            losses,
            #[cfg(test)]
                visits: _,
        } = self;
        SentImage {
            records: records.image(now),
            una: *una,
            in_flight: *in_flight,
            sacked: *sacked,
            lost: *lost,
            losses: losses.image(now),
        }
    }
    fn from_image(image: SentImage, now: Instant) -> Self {
        let SentImage {
            records,
            una,
            in_flight,
            sacked,
            lost,
            losses,
        } = image;
        Self {
            records: Imaged::from_image(records, now),
            una,
            in_flight,
            sacked,
            lost,
            losses: Imaged::from_image(losses, now),
            #[cfg(test)]
            visits: super::Visits::default(),
        }
    }
}

/// The largest window (RFC 7323 §2.3), a SYN and a FIN.
const SPAN_MAX: u32 = (1 << 30) + 2;

impl Sent {
    /// Whether records that begin at `una` and end at `nxt` could have come to this. `is_open`: of a synchronized connection, where all that
    /// is under way has a record.
    pub fn is_sound(&self, (una, nxt): (SeqNum, SeqNum), is_open: bool) -> bool {
        if self.records.is_empty() {
            // `self.una` is set by the first record.
            let none = self.in_flight == 0 && self.sacked == 0 && self.lost == 0;
            let nothing = self
                .losses
                .as_ref()
                .is_none_or(|l| l.is_sound(una, &[]) && l.counts() == (0, 0));
            return none && nothing && (una == nxt || !is_open);
        }
        let mut sums = [0_u32; 3];
        let (mut segments, mut unanswered, mut end) = (0, 0, self.una);
        let mut before = None;
        let mut lost = Vec::new();
        for (start, record) in self.iter() {
            let fate = record.fate;
            let joined = before == Some(Fate::Sacked) && fate == Fate::Sacked;
            let reach = record.end.0.wrapping_sub(self.una.0);
            if record.end <= start || joined || reach > SPAN_MAX {
                return false;
            }
            sums[fate as usize] += distance(start, record.end);
            if fate == Fate::Sacked {
                segments += record.segments(start);
            }
            if fate == Fate::Lost {
                lost.push(start);
            }
            unanswered += u32::from(record.is_unanswered());
            (before, end) = (Some(fate), record.end);
        }
        let losses = self.losses.as_ref().map_or((0, 0), |l| l.counts());
        self.una == una
            && end == nxt
            && self.records.front().is_none_or(|r| r.fate != Fate::Sacked)
            && sums == [self.in_flight, self.sacked, self.lost]
            && losses == (segments, unanswered)
            && self.losses.as_ref().is_none_or(|l| l.is_sound(una, &lost))
    }
}

#[cfg(test)]
mod scrambled {
    use super::*;
    use crate::tcp::image::scramble::{Scramble, Scrambler, chosen};

    chosen! { Fate: Fate::InFlight, Fate::Sacked, Fate::Lost; }

    impl Scramble for Traits {
        fn scramble(&mut self, dice: &mut Scrambler) {
            self.0.scramble(dice);
        }
    }

    impl Scramble for SentImage {
        fn scramble(&mut self, dice: &mut Scrambler) {
            let Self {
                records,
                una,
                in_flight,
                sacked,
                lost,
                losses,
            } = self;
            records.scramble(dice);
            for count in [in_flight, sacked, lost] {
                count.scramble(dice);
            }
            una.scramble(dice);
            losses.scramble(dice);
        }
    }
}
