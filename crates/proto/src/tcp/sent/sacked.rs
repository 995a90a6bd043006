//! What the peer has, as SACK blocks say: taken into the records.

use super::{Fate, Record, Sent, Traits, distance};
use crate::wire::tcp::SeqNum;

impl Sent {
    /// The peer has `left..right`, which lies above SND.UNA and below SND.NXT: `told` observes each record for which that is news.
    ///
    /// Only whole segments count, as they were sent: of any other block a part is not believed, or a peer could cut the records to single bytes.
    pub fn sack(&mut self, left: SeqNum, right: SeqNum, mut told: impl FnMut(&Record, u32)) {
        if self.is_plain() {
            self.losses().judged = self.una;
        }
        let mut index = self.index_of(left);
        let mut start = self.start(index);
        let mut news = None;
        while let Some(&record) = self.records.get(index).filter(|_| start < right) {
            self.visit();
            if record.fate != Fate::Sacked {
                let (from, to) = whole_segments(&record, start, left, right);
                if from < to && from > start {
                    index = self.split(from);
                    start = from;
                    continue;
                }
                if from < to && to < record.end {
                    self.split(to);
                    continue;
                }
                if from < to {
                    told(&record, distance(start, record.end));
                    self.set_fate(index, start, Fate::Sacked);
                    news.get_or_insert(index);
                }
            }
            start = record.end;
            index += 1;
        }
        if let Some(first) = news {
            self.join(first, index);
        }
    }

    /// Joins what is sacked side by side among the records from `first` to before `end`, and the neighbours of these.
    fn join(&mut self, first: usize, end: usize) {
        let is_sacked = |index: usize| {
            self.records
                .get(index)
                .is_some_and(|r| r.fate == Fate::Sacked)
        };
        let first = if first > 0 && is_sacked(first - 1) {
            first - 1
        } else {
            first
        };
        let mut end = end;
        while end > first && !is_sacked(end - 1) {
            end -= 1; // of the last nothing was whole
        }
        if is_sacked(end) {
            end += 1;
        }
        if end < first + 2 {
            return;
        }
        let start = self.start(first);
        let (mut segments, mut at) = (0, start);
        let mut segment = 0;
        let mut traits = Traits::NONE;
        for record in self.records.range(first..end) {
            segments += record.segments(core::mem::replace(&mut at, record.end));
            segment = segment.max(record.segment);
            traits = traits.and(record.traits);
        }
        if end - first == 2 {
            self.records.remove(first);
        } else {
            self.records.drain(first..end - 1);
        }
        if let Some(record) = self.records.get_mut(first) {
            record.segment = segment;
            record.traits = traits;
            let together = record.segments(start);
            let sacked = &mut self.losses().sacked_segments;
            *sacked = *sacked - segments + together;
        }
    }
}

/// Where the whole segments begin and end that `left..right` holds of a record that begins at `start`. None: they end where they begin, or before.
fn whole_segments(record: &Record, start: SeqNum, left: SeqNum, right: SeqNum) -> (SeqNum, SeqNum) {
    let segment = u32::from(record.segment.max(1));
    let from = start + distance(start, left).div_ceil(segment) * segment;
    let to = if right >= record.end {
        record.end
    } else {
        start + distance(start, right) / segment * segment
    };
    (from, to)
}
