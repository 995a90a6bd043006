//! Received text: in-order packets and out-of-order runs, as lists of nodes in a pool that all
//! connections of a shard share. Nothing here allocates after the pool was made.
//!
//! A *run* is a stretch of sequence space without a gap, after at least one gap. Its first node
//! also carries the run's end, its last node and the next run. Appending to the run that was
//! touched last, joining two runs and moving a run behind the in-order list are O(1); finding
//! another run is a walk over at most `max_gaps` of them. What came first stays, but for runs that a
//! later segment holds as a whole: it takes their place, so that one segment can fill many gaps
//! without being taken apart.

mod full;
pub(super) mod image;
mod prune;

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::payload::{Keep, Payload, Shelf};
use super::types::Drop;
use crate::allowance::Allowance;
use crate::wire::tcp::{SackBlocks, SeqNum};

/// No node.
const NIL: u32 = u32::MAX;
/// Text up to this many bytes is worth copying behind the segment before it.
const SMALL: usize = 8192;

#[derive(Debug)]
struct Node<P> {
    payload: Option<P>,
    seq: SeqNum,
    /// The next node of the same list (in order, run, or free).
    next: u32,
    /// In the first node of a run: where the run ends, its last node, the next run.
    run_end: SeqNum,
    run_tail: u32,
    run_next: u32,
    /// In the first node of a run: memory of its nodes.
    run_memory: u32,
    /// In a run's others: the node before it.
    previous: u32,
    /// On the shelf.
    place: u8,
}

impl<P: Payload> Node<P> {
    /// The only one of its list, with the number `index`.
    #[inline(always)]
    const fn new(payload: P, place: u8, seq: SeqNum, index: u32) -> Self {
        Self {
            payload: Some(payload),
            seq,
            next: NIL,
            run_end: SeqNum(0),
            run_tail: index,
            run_next: NIL,
            run_memory: 0,
            previous: NIL,
            place,
        }
    }

    fn memory(&self) -> u32 {
        self.payload.as_ref().map_or(0, |p| byte_count(p.memory()))
    }
}

/// Nodes for the received segments of many connections; a fixed number of them.
#[derive(Debug)]
pub struct SegmentPool<P: Payload> {
    nodes: Vec<Node<P>>,
    shelf: P::Shelf,
    free: u32,
    available: u32,
    /// Out-of-order text may not take the last nodes: in-order text must always get through.
    reserve: u32,
    /// Memory of what is in the nodes, and whatever else the owner counts with it.
    memory: Allowance,
    /// The part of it that lies behind gaps, and how much that may come to.
    behind: Allowance,
    /// Segments behind gaps that were given up for text in order; wraps.
    pruned: u32,
}

impl<P: Payload> SegmentPool<P> {
    /// A pool of `capacity` nodes; the only allocation in this module. Their memory is reserved, and touched once so many are in use.
    pub fn with_capacity(capacity: usize) -> Self
    where
        P::Shelf: Default,
    {
        Self::with_shelf(capacity, P::Shelf::default())
    }

    /// A pool with a shelf that has fewer places than that.
    pub fn with_shelf(capacity: usize, shelf: P::Shelf) -> Self {
        let count = u32::try_from(capacity).unwrap_or(NIL - 1).min(NIL - 1);
        Self {
            nodes: Vec::with_capacity(count as usize),
            shelf,
            free: NIL,
            available: count,
            reserve: count / 8,
            memory: Allowance::default(),
            behind: Allowance::default(),
            pruned: 0,
        }
    }

    /// Where text is kept.
    #[inline]
    pub const fn shelf(&self) -> &P::Shelf {
        &self.shelf
    }

    /// The shelf, to keep something else there.
    #[inline]
    pub const fn shelf_mut(&mut self) -> &mut P::Shelf {
        &mut self.shelf
    }

    /// Memory of text behind gaps, of all connections together.
    #[inline]
    pub const fn behind(&self) -> &Allowance {
        &self.behind
    }

    /// From now on text behind gaps may hold so much. More of it is refused ([`Drop::Limit`]).
    pub const fn allow_behind(&mut self, bytes: u64) {
        self.behind.allow(bytes);
    }

    /// Whether text of so much memory is taken as a matter of course.
    #[inline]
    pub fn has_room(&self, memory: usize) -> bool {
        self.available > 0 && self.shelf.is_roomy() && !self.memory.lacks(memory)
    }

    /// Whether text behind a gap may be refused for want of memory.
    #[inline]
    pub fn is_short_behind(&self, memory: usize) -> bool {
        self.available <= self.reserve || self.behind.lacks(memory) || !self.has_room(memory)
    }

    /// Segments that were taken behind gaps and given up again, for text in order: a running total that wraps.
    #[inline]
    pub const fn pruned(&self) -> u32 {
        self.pruned
    }

    /// Memory that its segments hold, and how much that may come to. Text beyond it is refused ([`Drop::Limit`]), but that a
    /// connection may always hold a little in order.
    #[inline]
    pub const fn memory(&self) -> &Allowance {
        &self.memory
    }

    /// The memory, to set a limit, or to count something else with it (what the connections have to send).
    #[inline]
    pub const fn memory_mut(&mut self) -> &mut Allowance {
        &mut self.memory
    }

    /// Nodes not in use.
    pub const fn available(&self) -> u32 {
        self.available
    }

    /// Puts text into a node; with the memory that it holds there. (By reference, or it would be copied from call to call.)
    #[inline(always)]
    fn take(
        &mut self,
        slot: &mut Option<P>,
        seq: SeqNum,
        why: Keep,
        little: bool,
    ) -> Option<(u32, u32)> {
        if self.available == 0 {
            return None;
        }
        match (self.shelf).keep_as_it_came(slot.as_ref()?, why, little) {
            Some(place) => self.place(slot, place, seq),
            None => self.take_elsewhere(slot, seq, why, little),
        }
    }

    /// Puts text somewhere else than where it came.
    #[inline(never)]
    fn take_elsewhere(
        &mut self,
        slot: &mut Option<P>,
        seq: SeqNum,
        why: Keep,
        little: bool,
    ) -> Option<(u32, u32)> {
        let (payload, place) = self.shelf.keep(slot.take()?, why, little)?;
        *slot = Some(payload);
        self.place(slot, place, seq)
    }

    #[inline(always)]
    fn place(&mut self, slot: &mut Option<P>, place: u8, seq: SeqNum) -> Option<(u32, u32)> {
        let memory = byte_count(slot.as_ref()?.memory());
        let index = self.free;
        let Some(node) = self.nodes.get_mut(index as usize) else {
            return Some((self.make(slot.take()?, place, seq)?, memory));
        };
        self.memory.add(memory as usize);
        self.free = node.next;
        self.available -= 1;
        // A free node holds nothing that would have to be dropped. What it says of a run is written where one begins.
        core::mem::forget(core::mem::replace(&mut node.payload, slot.take()));
        (node.seq, node.next, node.place) = (seq, NIL, place);
        Some((index, memory))
    }

    /// In a node that was never in use before, if there is one.
    #[cold]
    #[inline(never)]
    fn make(&mut self, payload: P, place: u8, seq: SeqNum) -> Option<u32> {
        let index = u32::try_from(self.nodes.len()).ok()?;
        self.available -= 1;
        self.memory.add(payload.memory());
        self.nodes.push(Node::new(payload, place, seq, index));
        Some(index)
    }

    #[inline]
    fn give(&mut self, index: u32) -> Option<P> {
        let node = self.nodes.get_mut(index as usize)?;
        let payload = node.payload.take();
        node.next = self.free;
        self.free = index;
        self.available += 1;
        if let Some(payload) = &payload {
            self.memory.remove(payload.memory());
            self.shelf.free(node.place);
        }
        payload
    }

    fn node(&self, index: u32) -> &Node<P> {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node<P> {
        &mut self.nodes[index as usize]
    }
}

/// What one connection has received and not yet given to the application.
///
/// Its nodes lie in a [`SegmentPool`]: [`ReceiveQueue::clear`] gives them back, dropping the queue
/// does not.
#[derive(Debug)]
pub struct ReceiveQueue<P> {
    head: u32,
    tail: u32,
    /// Nodes held, in order and out of order.
    segments: u32,
    /// Memory that they hold.
    memory: u32,
    /// Bytes in order.
    bytes: u32,
    first_run: u32,
    /// The run touched last, where the next segment most likely goes.
    recent_run: u32,
    runs: u32,
    _payload: PhantomData<P>,
}

impl<P> Default for ReceiveQueue<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> ReceiveQueue<P> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            segments: 0,
            memory: 0,
            bytes: 0,
            first_run: NIL,
            recent_run: NIL,
            runs: 0,
            _payload: PhantomData,
        }
    }

    /// Bytes that can be read now.
    pub const fn readable_bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether nothing is held, in order or behind a gap.
    pub const fn is_idle(&self) -> bool {
        self.segments == 0
    }

    /// Nodes held in the pool.
    pub const fn segments_held(&self) -> u32 {
        self.segments
    }

    /// Memory of what is held, in order or behind a gap.
    #[inline]
    pub const fn memory(&self) -> u32 {
        self.memory
    }

    /// Runs of text behind a gap.
    pub const fn gaps(&self) -> u32 {
        self.runs
    }
}

/// The in-order segments, first the oldest.
#[derive(Debug)]
pub struct Segments<'a, P: Payload> {
    pool: &'a SegmentPool<P>,
    next: u32,
}

impl<'a, P: Payload> Iterator for Segments<'a, P> {
    type Item = &'a P;
    fn next(&mut self) -> Option<&'a P> {
        let node = self.pool.nodes.get(self.next as usize)?;
        self.next = node.next;
        node.payload.as_ref()
    }
}

/// How much of the pool one connection may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub segments: u32,
    pub gaps: u32,
}

impl<P: Payload> ReceiveQueue<P> {
    /// The oldest in-order segment.
    pub fn front<'a>(&self, pool: &'a SegmentPool<P>) -> Option<&'a P> {
        pool.nodes.get(self.head as usize)?.payload.as_ref()
    }

    /// The in-order segments. Each stays in the memory that it is in until it is consumed, popped or cleared: what comes is put behind it.
    pub const fn iter<'a>(&self, pool: &'a SegmentPool<P>) -> Segments<'a, P> {
        Segments {
            pool,
            next: self.head,
        }
    }

    /// Takes the oldest in-order segment out.
    #[inline]
    pub fn pop_front(&mut self, pool: &mut SegmentPool<P>) -> Option<P> {
        let index = self.head;
        let next = pool.nodes.get(index as usize)?.next;
        let payload = pool.give(index)?;
        self.memory -= byte_count(payload.memory());
        self.head = next;
        if next == NIL {
            self.tail = NIL;
        }
        self.segments -= 1;
        self.bytes -= byte_count(payload.len());
        Some(payload)
    }

    /// Hands the in-order segments to `take`, first the oldest, as long as it consumes them whole; what it says it consumed is
    /// dropped. How many bytes that were.
    #[inline]
    pub fn consume(&mut self, pool: &mut SegmentPool<P>, mut take: impl FnMut(&P) -> usize) -> u32 {
        let before = self.bytes;
        while let Some(node) = pool.nodes.get_mut(self.head as usize)
            && let Some(payload) = &mut node.payload
        {
            let len = payload.len();
            let taken = take(payload).min(len);
            if taken < len {
                payload.trim_front(taken);
                self.bytes -= byte_count(taken);
                break;
            }
            self.pop_front(pool);
        }
        before - self.bytes
    }

    /// Gives every node back.
    pub fn clear(&mut self, pool: &mut SegmentPool<P>) {
        while self.pop_front(pool).is_some() {}
        while self.first_run != NIL {
            let run = self.first_run;
            self.first_run = pool.node(run).run_next;
            pool.behind.remove(pool.node(run).run_memory as usize);
            Self::give_list(pool, run);
        }
        *self = Self::new();
    }

    /// Takes text that begins exactly at RCV.NXT. On success: the new RCV.NXT, past any run that
    /// the text reached.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        pool: &mut SegmentPool<P>,
        share: Share,
        seq: SeqNum,
        slot: &mut Option<P>,
    ) -> Result<SeqNum, Drop> {
        let Some(payload) = slot else {
            return Ok(seq);
        };
        if self.first_run == NIL && self.has_room(pool, share, payload.memory()) {
            let end = seq + byte_count(payload.len());
            self.append(pool, seq, slot);
            return Ok(end);
        }
        self.push_in_full(pool, share, seq, slot)
    }

    /// Where text that ends at `end` is cut: where a run begins that goes on behind it. The first run that it can reach is `run`.
    fn end_of_new(pool: &SegmentPool<P>, mut run: u32, end: SeqNum) -> SeqNum {
        while run != NIL {
            let node = pool.node(run);
            if node.seq >= end {
                break;
            }
            if node.run_end > end {
                return node.seq;
            }
            run = node.run_next;
        }
        end
    }

    /// Gives back the runs behind `before` that end at `end` or sooner, whose text came again in one piece; the next one.
    fn give_held(&mut self, pool: &mut SegmentPool<P>, before: u32, end: SeqNum) -> u32 {
        let mut next = match before {
            NIL => self.first_run,
            before => pool.node(before).run_next,
        };
        while next != NIL && pool.node(next).run_end <= end {
            let run = next;
            let (memory, after) = (pool.node(run).run_memory, pool.node(run).run_next);
            next = after;
            pool.behind.remove(memory as usize);
            self.memory -= memory;
            self.segments -= Self::give_list(pool, run);
            self.runs -= 1;
            if self.recent_run == run {
                self.recent_run = NIL;
            }
        }
        match before {
            NIL => self.first_run = next,
            before => pool.node_mut(before).run_next = next,
        }
        next
    }

    /// The lowest stretch between `seq` and `end` that is held already, behind a gap.
    pub(super) fn first_held(
        &self,
        pool: &SegmentPool<P>,
        seq: SeqNum,
        end: SeqNum,
    ) -> Option<(SeqNum, SeqNum)> {
        if self.first_run == NIL {
            return None;
        }
        let (before, after) = self.find(pool, seq);
        let overlaps = |&run: &u32| {
            pool.nodes
                .get(run as usize)
                .is_some_and(|node| node.run_end > seq && node.seq < end)
        };
        let node = pool.node([before, after].into_iter().find(overlaps)?);
        let left = if node.seq > seq { node.seq } else { seq };
        let right = if node.run_end < end {
            node.run_end
        } else {
            end
        };
        Some((left, right))
    }

    /// What text in order is kept for.
    const fn why_in_order(&self) -> Keep {
        if self.head == NIL {
            Keep::First
        } else {
            Keep::InOrder
        }
    }

    /// Whether text in a packet that holds `memory` is taken as a matter of course.
    #[inline(always)]
    pub(super) fn has_room(&self, pool: &SegmentPool<P>, share: Share, memory: usize) -> bool {
        self.segments < share.segments && pool.has_room(memory)
    }

    /// [`Self::push`] where there are no gaps, and room ([`Self::has_room`]).
    #[inline(always)]
    pub(super) fn append(&mut self, pool: &mut SegmentPool<P>, seq: SeqNum, slot: &mut Option<P>) {
        let Some(payload) = slot else {
            return;
        };
        self.bytes += byte_count(payload.len());
        if !self.append_to_node(pool, self.tail, payload)
            && let Some((index, memory)) = pool.take(slot, seq, self.why_in_order(), false)
        {
            self.memory += memory;
            self.segments += 1;
            self.link_in_order(pool, index, index);
        }
    }

    /// Memory of everything it holds, counted anew.
    pub fn memory_counted(&self, pool: &SegmentPool<P>) -> usize {
        let list = |first: u32| {
            let next = |&index: &u32| Some(pool.node(index).next).filter(|&next| next != NIL);
            core::iter::successors(Some(first).filter(|&first| first != NIL), next)
        };
        let next_run = |&run: &u32| Some(pool.node(run).run_next).filter(|&next| next != NIL);
        let first_run = Some(self.first_run).filter(|&run| run != NIL);
        let runs = core::iter::successors(first_run, next_run);
        let nodes = runs.flat_map(list).chain(list(self.head));
        let of = |index: u32| pool.node(index).payload.as_ref().map_or(0, P::memory);
        nodes.map(of).sum()
    }

    /// Takes text behind a gap. On success: the run it now belongs to.
    pub(super) fn insert(
        &mut self,
        pool: &mut SegmentPool<P>,
        share: Share,
        mut seq: SeqNum,
        mut payload: P,
    ) -> Result<(SeqNum, SeqNum), Drop> {
        let (before, after) = self.find(pool, seq);
        if before != NIL {
            let overlap = pool.node(before).run_end - seq;
            if overlap > 0 {
                let overlap = overlap.unsigned_abs();
                if overlap as usize >= payload.len() {
                    return Err(Drop::Duplicate);
                }
                payload.trim_front(overlap as usize);
                seq = seq + overlap;
            }
        }
        let end = Self::end_of_new(pool, after, seq + byte_count(payload.len()));
        cut_at(&mut payload, seq, end);
        if payload.is_empty() {
            return Err(Drop::Duplicate);
        }
        let joins_before = before != NIL && pool.node(before).run_end == seq;
        // Or takes its place.
        let meets_after = after != NIL && pool.node(after).seq <= end;
        if !joins_before && !meets_after && self.runs >= share.gaps {
            return Err(Drop::Gaps);
        }
        let run = if joins_before {
            let tail = pool.node(before).run_tail;
            if !self.append_to_node(pool, tail, &payload) {
                let (index, memory) = self.take_out_of_order(pool, share, seq, payload)?;
                pool.node_mut(tail).next = index;
                pool.node_mut(index).previous = tail;
                let run = pool.node_mut(before);
                run.run_tail = index;
                run.run_memory += memory;
            }
            pool.node_mut(before).run_end = end;
            if after != NIL {
                self.give_held(pool, before, end);
            }
            before
        } else {
            let (index, memory) = self.take_out_of_order(pool, share, seq, payload)?;
            let after = match after {
                NIL => NIL,
                _ => self.give_held(pool, before, end),
            };
            let node = pool.node_mut(index);
            (node.run_end, node.run_next) = (end, after);
            (node.run_tail, node.run_memory) = (index, memory);
            self.link_run(pool, before, index);
            index
        };
        let after = pool.node(run).run_next;
        if after != NIL && pool.node(after).seq == end {
            self.join(pool, run, after);
        }
        self.recent_run = run;
        let node = pool.node(run);
        Ok((node.seq, node.run_end))
    }

    /// Adds runs that `blocks` does not name while it has room (RFC 2018 §4: as many as fit).
    pub(super) fn fill_sack(&self, pool: &SegmentPool<P>, blocks: &mut SackBlocks) {
        let mut run = self.first_run;
        while run != NIL && blocks.as_slice().len() < blocks.blocks.len() {
            let node = pool.node(run);
            if !blocks.as_slice().iter().any(|&(left, _)| left == node.seq) {
                blocks.push(node.seq, node.run_end);
            }
            run = node.run_next;
        }
    }

    /// Where the last run ends.
    pub(super) fn end_of_runs(&self, pool: &SegmentPool<P>) -> Option<SeqNum> {
        let mut run = self.first_run;
        let mut end = None;
        while run != NIL {
            let node = pool.node(run);
            end = Some(node.run_end);
            run = node.run_next;
        }
        end
    }

    /// The last run that starts at or before `seq`, and the one after it.
    fn find(&self, pool: &SegmentPool<P>, seq: SeqNum) -> (u32, u32) {
        let (mut before, mut after) = (NIL, self.first_run);
        if self.recent_run != NIL && pool.node(self.recent_run).seq <= seq {
            before = self.recent_run;
            after = pool.node(before).run_next;
        }
        while after != NIL && pool.node(after).seq <= seq {
            before = after;
            after = pool.node(after).run_next;
        }
        (before, after)
    }

    fn take_out_of_order(
        &mut self,
        pool: &mut SegmentPool<P>,
        share: Share,
        seq: SeqNum,
        payload: P,
    ) -> Result<(u32, u32), Drop> {
        let mine = share.segments - share.segments / 8;
        if pool.available <= pool.reserve || self.segments >= mine {
            return Err(Drop::Memory);
        }
        let bytes = payload.memory_kept();
        if pool.memory.lacks(bytes) || pool.behind.lacks(bytes) {
            return Err(Drop::Limit);
        }
        let taken = pool.take(&mut Some(payload), seq, Keep::Behind, false);
        let (index, memory) = taken.ok_or(Drop::Memory)?;
        pool.behind.add(memory as usize);
        self.memory += memory;
        self.segments += 1;
        Ok((index, memory))
    }

    /// Copies a small segment behind node `index`'s own text.
    #[inline(always)]
    fn append_to_node(&self, pool: &mut SegmentPool<P>, index: u32, payload: &P) -> bool {
        if index == NIL || payload.len() > SMALL {
            return false;
        }
        pool.node_mut(index)
            .payload
            .as_mut()
            .is_some_and(|tail| tail.try_append(payload))
    }

    /// Puts the list `first..=last` behind the in-order list.
    #[inline]
    fn link_in_order(&mut self, pool: &mut SegmentPool<P>, first: u32, last: u32) {
        if self.tail == NIL {
            self.head = first;
        } else {
            pool.node_mut(self.tail).next = first;
        }
        self.tail = last;
    }

    fn link_run(&mut self, pool: &mut SegmentPool<P>, before: u32, run: u32) {
        if before == NIL {
            self.first_run = run;
        } else {
            pool.node_mut(before).run_next = run;
        }
        self.runs += 1;
    }

    /// Makes `after`, which begins where `run` ends, a part of `run`.
    fn join(&mut self, pool: &mut SegmentPool<P>, run: u32, after: u32) {
        let (tail, end, next, memory) = {
            let node = pool.node(after);
            (node.run_tail, node.run_end, node.run_next, node.run_memory)
        };
        let old_tail = pool.node(run).run_tail;
        pool.node_mut(old_tail).next = after;
        pool.node_mut(after).previous = old_tail;
        let node = pool.node_mut(run);
        node.run_memory += memory;
        node.run_tail = tail;
        node.run_end = end;
        node.run_next = next;
        self.runs -= 1;
    }

    /// Moves the first run behind the in-order list if that has reached it.
    #[inline(always)]
    fn absorb_run(&mut self, pool: &mut SegmentPool<P>, reached: SeqNum) -> SeqNum {
        let run = self.first_run;
        if run == NIL || pool.node(run).seq != reached {
            return reached;
        }
        let (tail, end, next) = {
            let node = pool.node(run);
            (node.run_tail, node.run_end, node.run_next)
        };
        pool.behind.remove(pool.node(run).run_memory as usize);
        self.link_in_order(pool, run, tail);
        self.bytes += (end - reached).unsigned_abs();
        self.first_run = next;
        self.runs -= 1;
        if self.recent_run == run {
            self.recent_run = NIL;
        }
        end
    }

    /// Gives a list of nodes back; how many it had.
    fn give_list(pool: &mut SegmentPool<P>, first: u32) -> u32 {
        let (mut count, mut index) = (0, first);
        while index != NIL {
            let next = pool.node(index).next;
            drop(pool.give(index));
            index = next;
            count += 1;
        }
        count
    }
}

/// Cuts text that begins at `seq` off where `limit` begins.
fn cut_at<P: Payload>(payload: &mut P, seq: SeqNum, limit: SeqNum) {
    let room = (limit - seq).max(0).unsigned_abs() as usize;
    if payload.len() > room {
        payload.truncate(room);
    }
}

/// A segment's text is at most 65535 bytes.
#[allow(clippy::cast_possible_truncation)] // bounded by the IP total length
const fn byte_count(len: usize) -> u32 {
    len as u32
}
