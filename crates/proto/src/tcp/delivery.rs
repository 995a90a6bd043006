//! What one acknowledgment says of what was sent: which bytes have arrived, how long they took, at what rate.

use super::rack::Rack;
use super::rate::{Newest, Rate};
use super::sent::{Fate, Record, Row};
use crate::wire::tcp::SeqNum;

/// Gathered from one acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Delivery {
    /// When it came, in microseconds.
    pub now_us: u32,
    /// Bytes by which SND.UNA moved, SYN and FIN not counted.
    pub acked: u32,
    /// Bytes acknowledged or sacked for the first time.
    pub delivered: u32,
    /// Bytes that are taken for lost because of it.
    pub lost: u32,
    /// Bytes that the network marked (ECN).
    pub marked: u32,
    /// Bytes not acknowledged, and sacked, before it.
    pub prior_flight: u32,
    pub prior_sacked: u32,
    /// SACK told something new.
    pub news: bool,
    /// The first block was a D-SACK.
    pub dsack: bool,
    /// A duplicate acknowledgment, in the sense of RFC 5681 or RFC 6675.
    pub duplicate: bool,
    /// Something has arrived that was sent once, before recovery began.
    pub original: bool,
    /// SND.UNA moved past something that was sent again: then it is not known when the rest of it arrived.
    pub resent: bool,
    /// RACK.fack and the bytes under way before it.
    pub prior_fack: SeqNum,
    pub prior_pipe: u32,
    /// Whether it is the first of a round trip.
    pub round_ends: bool,
    /// Where the lowest begins that has arrived after what was sent later.
    pub late_from: Option<SeqNum>,
    pub newest: Newest,
    /// When the first and the last of what was sent once and is acknowledged now left.
    pub first_sent_us: Option<u32>,
    pub last_sent_us: Option<u32>,
    pub sacked_sent_us: Option<u32>,
}

/// What surrounds the records while an acknowledgment takes them.
pub(super) struct Taker<'a> {
    pub delivery: &'a mut Delivery,
    pub rate: &'a mut Rate,
    pub rack: &'a mut Rack,
    pub recover: SeqNum,
    pub min_rtt_us: u32,
    pub echo_is_older: bool,
}

impl Taker<'_> {
    #[inline(always)]
    fn delivered(&mut self, record: &Record, bytes: u32) {
        self.delivery.delivered += bytes;
        let now_us = self.delivery.now_us;
        self.rate
            .delivers(&mut self.delivery.newest, record, bytes, now_us);
        let fack = self.delivery.prior_fack;
        let late = self
            .rack
            .delivered(record, fack, now_us, self.min_rtt_us, self.echo_is_older);
        if late {
            self.note_late(record.end - bytes);
        }
        if !record.is_retransmission() && record.end <= self.recover {
            self.delivery.original = true;
        }
    }

    /// What begins at `from` arrived after what was sent later.
    fn note_late(&mut self, from: SeqNum) {
        let lowest = self.delivery.late_from.filter(|lowest| *lowest < from);
        self.delivery.late_from = lowest.or(Some(from));
    }

    /// `row` is acknowledged: what [`Self::acknowledged`] would say of each of its records, one after the other.
    #[inline(always)]
    pub fn acknowledged_row(&mut self, row: &Row) {
        let (bytes, now_us) = (row.bytes(), self.delivery.now_us);
        self.delivery.delivered += bytes;
        self.rate
            .delivers(&mut self.delivery.newest, &row.newest, bytes, now_us);
        if self
            .rack
            .delivered_row(row, self.delivery.prior_fack, now_us)
        {
            self.note_late(row.start);
        }
        self.delivery.original |= row.first_end <= self.recover;
        self.delivery.first_sent_us.get_or_insert(row.first_sent_us);
        self.delivery.last_sent_us = Some(row.newest.sent_us);
    }

    /// `bytes` of `record` are acknowledged.
    pub fn acknowledged(&mut self, record: &Record, bytes: u32) {
        self.delivery.resent |= record.is_retransmission();
        if record.fate == Fate::Sacked {
            return;
        }
        self.delivered(record, bytes);
        if !record.is_retransmission() {
            self.delivery.first_sent_us.get_or_insert(record.sent_us);
            self.delivery.last_sent_us = Some(record.sent_us);
        }
    }

    /// `record` is sacked.
    pub fn sacked(&mut self, record: &Record, bytes: u32) {
        self.delivery.news = true;
        self.delivered(record, bytes);
        if !record.is_retransmission() {
            self.delivery.sacked_sent_us.get_or_insert(record.sent_us);
        }
    }
}
