//! Text behind gaps that gives way to other text.

use super::{NIL, ReceiveQueue, SegmentPool};
use crate::tcp::payload::Payload;

impl<P: Payload> ReceiveQueue<P> {
    /// Forgets what lies farthest behind gaps, to make room: `bytes` of memory and one segment at least, as far as there is so much. The peer
    /// may have been told that we hold it; it must cope (RFC 2018 §8). How much memory that was.
    #[cold]
    pub(in crate::tcp) fn prune(&mut self, pool: &mut SegmentPool<P>, bytes: usize) -> usize {
        let (mut freed, wanted) = (0, bytes.max(1));
        while freed < wanted && self.first_run != NIL {
            let (before, run) = self.last_run(pool);
            while freed < wanted {
                let (memory, is_last) = Self::cut_tail(pool, run);
                self.memory -= memory;
                self.segments -= 1;
                pool.pruned = pool.pruned.wrapping_add(1);
                freed += memory as usize;
                if is_last {
                    self.forget_run(pool, before);
                    break;
                }
            }
        }
        freed
    }

    /// Gives back the last node of a run; its memory, and whether it was the only one.
    fn cut_tail(pool: &mut SegmentPool<P>, run: u32) -> (u32, bool) {
        let tail = pool.node(run).run_tail;
        let node = pool.node(tail);
        let (memory, begin, kept) = (node.memory(), node.seq, node.previous);
        pool.behind.remove(memory as usize);
        drop(pool.give(tail));
        if tail != run {
            pool.node_mut(kept).next = NIL;
            let node = pool.node_mut(run);
            (node.run_end, node.run_tail) = (begin, kept);
            node.run_memory -= memory;
        }
        (memory, tail == run)
    }

    /// The run behind `before`, the last one, is gone.
    fn forget_run(&mut self, pool: &mut SegmentPool<P>, before: u32) {
        if before == NIL {
            self.first_run = NIL;
        } else {
            pool.node_mut(before).run_next = NIL;
        }
        self.runs -= 1;
        self.recent_run = NIL;
    }

    /// Memory of what lies behind gaps.
    pub fn memory_behind(&self, pool: &SegmentPool<P>) -> u64 {
        let next = |&run: &u32| Some(pool.node(run).run_next).filter(|&next| next != NIL);
        let first = Some(self.first_run).filter(|&run| run != NIL);
        let runs = core::iter::successors(first, next);
        runs.map(|run| u64::from(pool.node(run).run_memory)).sum()
    }

    /// The farthest run, and the one before it.
    fn last_run(&self, pool: &SegmentPool<P>) -> (u32, u32) {
        let (mut before, mut last) = (NIL, self.first_run);
        while pool.node(last).run_next != NIL {
            before = last;
            last = pool.node(last).run_next;
        }
        (before, last)
    }
}
