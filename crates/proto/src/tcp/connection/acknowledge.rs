//! What we tell the peer of what has arrived: when an acknowledgment is due, and which SACK blocks
//! it carries.

use super::Connection;
use super::input::{Receiver, Segment};
use crate::tcp::payload::Payload;
use crate::tcp::reassembly::{ReceiveQueue, SegmentPool};
use crate::tcp::variables::Pending;
use crate::time::Instant;
use crate::wire::tcp::{SackBlocks, SeqNum};

/// RFC 5961 §7: challenge acknowledgments are counted over 5 s; in units of [`Instant::coarse`].
const CHALLENGE_PERIOD: u32 = 5;

impl Connection {
    /// `<SEQ=SND.NXT><ACK=RCV.NXT>`: at once if sequence space was sent twice, at a limited rate
    /// otherwise, so that two ends that disagree do not answer each other for ever.
    pub(super) fn answer_unacceptable(&mut self, segment: &Segment<'_>) {
        if segment.space() > 0 && !segment.syn {
            self.pending.set(Pending::ACK);
        } else {
            self.challenge(segment.now);
        }
    }

    /// RFC 5961 §7: an acknowledgment that makes an honest peer show itself, at a limited rate.
    pub(in crate::tcp) fn challenge(&mut self, now: Instant) {
        let most = self.periods.challenge_acks;
        let cold = &mut *self.cold;
        if now.coarse().wrapping_sub(cold.challenges_since) >= CHALLENGE_PERIOD {
            cold.challenges_since = now.coarse();
            cold.challenges_sent = 0;
        }
        if cold.challenges_sent < most {
            cold.challenges_sent += 1;
            self.pending.set(Pending::ACK);
        }
    }

    /// RFC 9293 §3.8.6.3, RFC 5681 §4.2: every second full segment is acknowledged at once. In the beginning each segment is, so that
    /// the peer's slow start is quick, and a peer with Nagle's algorithm that writes in small pieces is not held up; once the application
    /// answers what it hears, acknowledgments ride along. Others wait for company, `delayed_ack` at most.
    #[inline(always)]
    pub(super) fn decide_acknowledgment(&mut self, end: SeqNum, now: Instant) {
        let waiting = (end - self.last_ack_sent).max(0).unsigned_abs();
        let full = u32::from(self.rcv.mss);
        self.talk.heard = true;
        if waiting >= 2 * full {
            self.pending.set(Pending::ACK);
        } else if self.quick_acks > 0 && !self.talk.interactive {
            self.quick_acks -= 1;
            self.pending.set(Pending::ACK);
        } else {
            self.delay_acknowledgment(now);
        }
    }

    /// What may wait for company, `delayed_ack` at most.
    pub(super) fn delay_acknowledgment(&mut self, now: Instant) {
        if self.timers.delayed_ack == Instant::FAR {
            self.timers.delayed_ack = now.plus_micros(u64::from(self.settings.delayed_ack_us));
        }
    }

    /// Text leaves after text has come. If that is an answer, not just the next thing that happened, the application talks:
    /// acknowledgments can ride along.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Instant) {
        let wait = u64::from(self.settings.delayed_ack_us);
        self.talk.heard = false;
        self.talk.interactive |= now < self.last_received.plus_micros(wait);
    }

    /// Nothing came along in time for an acknowledgment to ride on.
    pub(super) fn on_delayed_ack_timer(&mut self) {
        self.timers.delayed_ack = Instant::FAR;
        self.talk.interactive = false;
        self.pending.set(Pending::ACK);
    }

    /// A SYN-ACK, or the peer's FIN while we may still write: what the application does about it
    /// carries the acknowledgment if it asked to wait.
    pub(super) fn acknowledge_control(&mut self, now: Instant) {
        if self.quick_ack {
            self.pending.set(Pending::ACK);
        } else {
            self.delay_acknowledgment(now);
        }
    }

    /// RFC 2018 §4: first the run that the last segment went into, then those reported before.
    pub(super) fn refresh_sack<P: Payload>(
        &mut self,
        run: Option<(SeqNum, SeqNum)>,
        receiver: &Receiver<'_, P>,
    ) {
        if !self.sack {
            return;
        }
        self.forget_duplicate();
        let mut blocks = SackBlocks::NONE;
        if let Some((left, right)) = run {
            blocks.push(left, right);
        }
        if receiver.queue.gaps() > 0 {
            // A block at the very end of the run is the peer's FIN: text would have joined it.
            let covered = |left: SeqNum| run.is_some_and(|run| run.0 <= left && left <= run.1);
            for &(left, right) in self.cold.sack_blocks.as_slice() {
                if left > self.rcv.nxt && !covered(left) {
                    blocks.push(left, right);
                }
            }
            receiver.queue.fill_sack(receiver.pool, &mut blocks);
        }
        if !blocks.is_empty() || !self.cold.sack_blocks.is_empty() {
            self.cold.sack_blocks = blocks;
        }
    }

    /// The peer's FIN came before text that is missing, alone or behind a run that was reported: a block for it, unless a run ends there.
    pub(super) fn note_early_fin<P: Payload>(&mut self, receiver: &Receiver<'_, P>) {
        if !self.sack || receiver.queue.end_of_runs(receiver.pool) == Some(self.peer_fin) {
            return;
        }
        self.forget_duplicate();
        let mut blocks = SackBlocks::NONE;
        blocks.push(self.peer_fin, self.peer_fin + 1);
        for &(left, right) in self.cold.sack_blocks.as_slice() {
            blocks.push(left, right);
        }
        self.cold.sack_blocks = blocks;
    }

    /// Everything has come, the FIN as well: only a duplicate is still to be reported.
    pub(super) fn drop_blocks(&mut self) {
        if !self.cold.sack_blocks.is_empty() {
            self.cold.sack_blocks.len = u8::from(self.duplicate_block);
        }
    }

    /// The blocks as they are told: at most `most`, and the peer's FIN belongs to what lies before it, or it would seem lost.
    pub(super) fn told_blocks(&self, most: u8) -> SackBlocks {
        let mut blocks = self.cold.sack_blocks;
        blocks.len = blocks.len.min(most);
        if self.peer_fin_known && !self.peer_fin_reached {
            let held = &mut blocks.blocks[usize::from(self.duplicate_block)..];
            for (_, right) in held.iter_mut().filter(|block| block.1 == self.peer_fin) {
                *right = *right + 1;
            }
        }
        blocks
    }

    /// Text in order came, before which `before` segments had been given up: if more are now, the blocks are made anew, as none may tell of
    /// text that is not held any more but the one of what has just arrived (RFC 2018 §8).
    pub(super) fn note_pruning<P: Payload>(&mut self, before: u32, receiver: &Receiver<'_, P>) {
        if receiver.pool.pruned() != before && !self.cold.sack_blocks.is_empty() {
            self.cold.sack_blocks = SackBlocks::NONE;
            self.duplicate_block = false;
            self.refresh_sack(None, receiver);
            self.pending.set(Pending::ACK);
        }
    }

    /// Gives up text behind gaps, the farthest first, for other connections' sake: `bytes` of memory, as far as there is so much. The peer is
    /// told with the next acknowledgment (RFC 2018 §8). How much memory that was.
    #[cold]
    pub fn give_up_behind<P: Payload>(
        &mut self,
        queue: &mut ReceiveQueue<P>,
        pool: &mut SegmentPool<P>,
        bytes: usize,
    ) -> usize {
        let freed = queue.prune(pool, bytes);
        if freed > 0 && !self.cold.sack_blocks.is_empty() {
            self.cold.sack_blocks = SackBlocks::NONE;
            self.duplicate_block = false;
            self.refresh_sack(None, &Receiver { queue, pool });
        }
        freed
    }

    /// RFC 2883 §4: the next acknowledgment, and only that, says what came twice; behind it the larger block that it is part of, if
    /// it is above the cumulative acknowledgment, then the others.
    pub(super) fn note_duplicate(&mut self, left: SeqNum, right: SeqNum) {
        if !self.sack || left >= right {
            return;
        }
        self.forget_duplicate();
        let mut blocks = SackBlocks::NONE;
        blocks.push(left, right);
        let holds = |block: &&(SeqNum, SeqNum)| block.0 <= left && right <= block.1;
        let known = self.cold.sack_blocks.as_slice();
        let rest = known.iter().filter(|block| !holds(block));
        for &(left, right) in known.iter().filter(holds).chain(rest) {
            blocks.push(left, right);
        }
        self.cold.sack_blocks = blocks;
        self.duplicate_block = true;
    }

    /// Takes the block of [`Self::note_duplicate`] out.
    pub(super) fn forget_duplicate(&mut self) {
        if core::mem::take(&mut self.duplicate_block) {
            let mut blocks = SackBlocks::NONE;
            for &(left, right) in self.cold.sack_blocks.as_slice().iter().skip(1) {
                blocks.push(left, right);
            }
            self.cold.sack_blocks = blocks;
        }
    }
}
