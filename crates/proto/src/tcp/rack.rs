//! RACK (RFC 8985 §6): what was sent before something that has arrived, and a reordering window ago, is lost.

use super::image::imaged;
use super::sent::{Record, Row, elapsed_us, not_too_old};
use crate::wire::tcp::SeqNum;

/// Segments above a gap that make it a loss whatever the time says (RFC 8985 §6.2, RFC 5681).
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;
/// Recoveries for which a wider window is kept after reordering was seen by D-SACK (RFC 8985 §6.2, step 4).
const PERSIST: u8 = 16;

/// The variables of RFC 8985 §5.2.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Rack {
    /// RACK.segment: when the segment left that was sent last of all that arrived, its end, and its round trip.
    sent_us: u32,
    end: SeqNum,
    pub rtt_us: u32,
    /// RACK.fack: the highest that arrived.
    fack: SeqNum,
    /// RACK.reordering_seen.
    pub reordering_seen: bool,
    is_set: bool,
    reo_wnd_mult: u8,
    reo_wnd_persist: u8,
    /// RACK.dsack_round: until this is acknowledged further D-SACKs tell nothing new.
    dsack_round: SeqNum,
    had_dsack: bool,
}

/// What the reordering window depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub min_rtt_us: u32,
    pub srtt_us: u32,
    /// Loss is being repaired, or three segments are sacked: without reordering there is no reason to wait.
    pub is_urgent: bool,
}

fn sent_after(a: (u32, SeqNum), b: (u32, SeqNum)) -> bool {
    let later = a.0.wrapping_sub(b.0).cast_signed();
    later > 0 || (later == 0 && a.1 > b.1)
}

impl Rack {
    pub const fn new(iss: SeqNum) -> Self {
        Self {
            sent_us: 0,
            end: iss,
            rtt_us: 0,
            fack: iss,
            reordering_seen: false,
            is_set: false,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
            dsack_round: iss,
            had_dsack: false,
        }
    }

    /// Nothing is outstanding: whatever leaves next leaves later than all that arrived, however long that is ago.
    #[inline]
    pub const fn forget_newest(&mut self) {
        self.is_set = false;
    }

    /// Takes what is older than can be told for as old as can be.
    pub fn limit_ages(&mut self, now_us: u32) {
        self.sent_us = not_too_old(self.sent_us, now_us);
    }

    /// RACK.fack.
    pub const fn fack(&self) -> SeqNum {
        self.fack
    }

    /// Steps 1 and 2 and 3 for one segment that arrived. True if it shows reordering: it lies below `fack`, which is RACK.fack before
    /// this acknowledgment. What one acknowledgment tells together has no order.
    ///
    /// A retransmission whose answer came quicker than any round trip is not believed: its original arrived (step 2). `echo_is_older`:
    /// so says the timestamp.
    #[inline]
    pub fn delivered(
        &mut self,
        record: &Record,
        fack: SeqNum,
        now_us: u32,
        min_rtt_us: u32,
        echo_is_older: bool,
    ) -> bool {
        let late = record.end < fack && !record.is_retransmission();
        if late {
            self.reordering_seen = true;
        } else if record.end > self.fack {
            self.fack = record.end;
        }
        let rtt = elapsed_us(now_us, record.sent_us);
        if record.is_retransmission() && (rtt < min_rtt_us || echo_is_older) {
            return late;
        }
        self.take_newest((record.sent_us, record.end), now_us);
        late
    }

    /// Takes the delivery of each record of a row, all of which were sent once. True if the first, and maybe others, show reordering.
    #[inline(always)]
    pub fn delivered_row(&mut self, row: &Row, fack: SeqNum, now_us: u32) -> bool {
        let late = row.first_end < fack;
        self.reordering_seen |= late;
        if row.end > self.fack {
            self.fack = row.end;
        }
        self.take_newest((row.newest.sent_us, row.end), now_us);
        late
    }

    /// RACK.segment and its round trip: what was sent `newest.0` and ends at `newest.1` has arrived.
    #[inline]
    fn take_newest(&mut self, newest: (u32, SeqNum), now_us: u32) {
        self.rtt_us = elapsed_us(now_us, newest.0);
        if !self.is_set || sent_after(newest, (self.sent_us, self.end)) {
            (self.sent_us, self.end) = newest;
            self.is_set = true;
        }
    }

    /// Step 4: how much later than what followed it a segment may arrive, in microseconds.
    pub fn reordering_window_us(&self, path: Path) -> u32 {
        if !self.reordering_seen && path.is_urgent {
            return 0;
        }
        let window = u32::from(self.reo_wnd_mult).saturating_mul(path.min_rtt_us / 4);
        window.min(path.srtt_us)
    }

    /// Step 4, D-SACK: a retransmission was for nothing; the window grows, once a round trip.
    pub fn on_dsack(&mut self, una: SeqNum, nxt: SeqNum) {
        if self.had_dsack && una < self.dsack_round {
            return;
        }
        self.had_dsack = true;
        self.dsack_round = nxt;
        self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
        self.reo_wnd_persist = PERSIST;
    }

    /// Step 4: a recovery ended.
    pub fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Step 5 for one segment under way: `None` if it left after what has arrived last; else the microseconds until it counts as
    /// lost, 0: it does.
    #[inline]
    pub fn remaining_us(&self, record: &Record, window_us: u32, now_us: u32) -> Option<u32> {
        let arrived = (self.sent_us, self.end);
        if !self.is_set || !sent_after(arrived, (record.sent_us, record.end)) {
            return None;
        }
        let wait_us = self.rtt_us.saturating_add(window_us);
        Some(wait_us.saturating_sub(elapsed_us(now_us, record.sent_us)))
    }
}

imaged! {
    /// [`Rack`] as plain data.
    pub(super) struct RackImage of Rack {
        sent_us: u32 as micros,
        end: SeqNum,
        rtt_us: u32,
        fack: SeqNum,
        reordering_seen: bool,
        is_set: bool,
        reo_wnd_mult: u8,
        reo_wnd_persist: u8,
        dsack_round: SeqNum,
        had_dsack: bool,
    }
}
