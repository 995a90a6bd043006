//! Text in order that is not taken as a matter of course: with gaps behind it, or where there is too little room.

use super::{Drop, NIL, Payload, ReceiveQueue, SegmentPool, Share, Shelf, byte_count, cut_at};
use crate::wire::tcp::SeqNum;

impl<P: Payload> ReceiveQueue<P> {
    /// Push with gaps behind it, or too little room.
    #[inline(never)]
    pub(super) fn push_in_full(
        &mut self,
        pool: &mut SegmentPool<P>,
        share: Share,
        seq: SeqNum,
        slot: &mut Option<P>,
    ) -> Result<SeqNum, Drop> {
        let Some(payload) = slot else {
            return Ok(seq);
        };
        let mut len = byte_count(payload.len());
        if self.first_run != NIL {
            let end = Self::end_of_new(pool, self.first_run, seq + len);
            cut_at(payload, seq, end);
            len = byte_count(payload.len());
        }
        if !self.append_to_node(pool, self.tail, payload) {
            let why = self.why_in_order();
            let mut little = false;
            if self.segments >= share.segments || !pool.has_room(payload.memory()) {
                little = self.make_room(pool, share, payload)?;
            }
            let taken = pool.take(slot, seq, why, little);
            let (index, memory) = taken.ok_or(Drop::Memory)?;
            if little {
                len = self.settle_little(pool, index);
            }
            self.memory += memory;
            self.segments += 1;
            self.link_in_order(pool, index, index);
        }
        self.bytes += len;
        if self.first_run != NIL {
            self.give_held(pool, NIL, seq + len);
        }
        Ok(self.absorb_run(pool, seq + len))
    }

    /// How much of a segment is left that was maybe cut where it was put: what ends within a run once more ends before it.
    #[cold]
    fn settle_little(&self, pool: &mut SegmentPool<P>, index: u32) -> u32 {
        let node = pool.node(index);
        let seq = node.seq;
        let len = node.payload.as_ref().map_or(0, |p| byte_count(p.len()));
        let end = Self::end_of_new(pool, self.first_run, seq + len);
        if let Some(payload) = &mut pool.node_mut(index).payload {
            cut_at(payload, seq, end);
        }
        (end - seq).unsigned_abs()
    }

    /// For text in order that is not taken as a matter of course: its own text behind gaps gives way. Refused where that is not enough,
    /// but first text never, and beyond the limit of all memory a second segment neither: of these only a little is taken, then.
    #[cold]
    fn make_room(
        &mut self,
        pool: &mut SegmentPool<P>,
        share: Share,
        payload: &P,
    ) -> Result<bool, Drop> {
        if self.segments >= share.segments || pool.available == 0 || !pool.shelf.is_roomy() {
            self.prune(pool, 1);
        }
        if self.segments >= share.segments {
            return Err(Drop::Memory);
        }
        let bytes = payload.memory_kept();
        if !pool.memory.lacks(bytes) {
            return Ok(false);
        }
        self.push_beyond_limit(pool, bytes)?;
        Ok(pool.memory.lacks(bytes))
    }

    /// Text in order that is more than all connections may hold together: what lies behind gaps gives way, as a last resort. A connection
    /// that has nothing to read, or holds but one segment, may take it all the same: with nothing taken no reader would ever be woken to
    /// make room.
    #[cold]
    fn push_beyond_limit(&mut self, pool: &mut SegmentPool<P>, bytes: usize) -> Result<(), Drop> {
        let wanted = (pool.memory.held() + bytes as u64).saturating_sub(pool.memory.allowed());
        self.prune(pool, usize::try_from(wanted).unwrap_or(usize::MAX));
        let must = self.bytes == 0 || self.segments < 2;
        if must || !pool.memory.lacks(bytes) {
            Ok(())
        } else {
            Err(Drop::Limit)
        }
    }
}
