//! Received text as plain data: taken out of the pool's nodes as bytes with their places, and put into nodes again.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{Keep, NIL, Payload, ReceiveQueue, SegmentPool, byte_count};
use crate::tcp::image::ImageError;
use crate::wire::tcp::SeqNum;

/// Most memory of one node: text has 64 KiB at most as it comes, and is appended to where there is room. A file is not to ask for more.
const MEMORY_MAX: u32 = 1 << 24;

/// Text that lay in one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldText {
    /// The text.
    pub bytes: Vec<u8>,
    /// Bytes of memory that it held: what was allowed for it, and room to append.
    pub memory: u32,
}

/// Text behind a gap, without a gap in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRun {
    /// Its first sequence number.
    pub seq: SeqNum,
    /// The text, piece by piece.
    pub text: Vec<HeldText>,
}

/// A [`ReceiveQueue`] as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveQueueImage {
    /// What the application can read, first the oldest; it ends at RCV.NXT.
    pub in_order: Vec<HeldText>,
    /// What lies behind gaps, in order.
    pub runs: Vec<HeldRun>,
    /// Which of `runs` was touched last.
    pub recent: Option<u32>,
}

/// What a connection knows of its receive queue.
pub(in crate::tcp) struct Known {
    /// Where text in order ends; RCV.NXT, which a FIN may have moved on.
    pub end: SeqNum,
    pub next: SeqNum,
    /// Bytes that were not read, if they are counted.
    pub unread: Option<u32>,
    /// Most nodes, and most gaps.
    pub segments: u32,
    pub gaps: u32,
}

impl<P: Payload> ReceiveQueue<P> {
    /// The text as plain data; `bytes` copies that of one payload. The queue stays as it is.
    pub fn take_apart(
        &self,
        pool: &SegmentPool<P>,
        mut bytes: impl FnMut(&P) -> Vec<u8>,
    ) -> ReceiveQueueImage {
        // What is not named again below is counted anew.
        let Self {
            head,
            tail: _,
            segments: _,
            memory: _,
            bytes: _,
            first_run,
            recent_run,
            runs: _,
            _payload: PhantomData,
        } = self;
        let mut list = |first: u32| {
            let mut text = Vec::new();
            let mut next = first;
            while let Some(node) = pool.nodes.get(next as usize) {
                text.extend(node.payload.as_ref().map(|payload| HeldText {
                    bytes: bytes(payload),
                    memory: byte_count(payload.memory()),
                }));
                next = node.next;
            }
            text
        };
        let in_order = list(*head);
        let (mut runs, mut recent, mut run) = (Vec::new(), None, *first_run);
        while let Some(node) = pool.nodes.get(run as usize) {
            if run == *recent_run {
                recent = u32::try_from(runs.len()).ok();
            }
            let (seq, text) = (node.seq, list(run));
            runs.push(HeldRun { seq, text });
            run = node.run_next;
        }
        ReceiveQueueImage {
            in_order,
            runs,
            recent,
        }
    }

    /// The queue of a connection that knows of so much, whose nodes lie in `pool`.
    pub(in crate::tcp) fn from_image(
        image: ReceiveQueueImage,
        known: &Known,
        pool: &mut SegmentPool<P>,
        make: impl FnMut(SeqNum, &HeldText) -> Option<P>,
    ) -> Result<Self, ImageError> {
        image.check(known)?;
        let mut queue = Self::new();
        let begin = known.end - image.readable();
        let built = queue.put_in(image, begin, pool, make);
        if built.is_none() {
            queue.clear(pool);
        }
        built.map(|()| queue).ok_or(ImageError::Memory)
    }

    /// Puts all of it into nodes, the text in order from `begin` on. `None`: there is no room.
    fn put_in(
        &mut self,
        image: ReceiveQueueImage,
        begin: SeqNum,
        pool: &mut SegmentPool<P>,
        mut make: impl FnMut(SeqNum, &HeldText) -> Option<P>,
    ) -> Option<()> {
        let ReceiveQueueImage {
            in_order,
            runs,
            recent,
        } = image;
        let mut at = begin;
        for text in &in_order {
            let payload = make(at, text).filter(|p| p.len() == text.bytes.len())?;
            let (index, memory) = pool.take(&mut Some(payload), at, Keep::InOrder, false)?;
            (self.segments, self.memory) = (self.segments + 1, self.memory + memory);
            self.link_in_order(pool, index, index);
            let len = byte_count(text.bytes.len());
            self.bytes += len;
            at = at + len;
        }
        let mut before = NIL;
        for (number, HeldRun { seq, text }) in runs.iter().enumerate() {
            let mut at = *seq;
            let mut run = NIL;
            for text in text {
                let payload = make(at, text).filter(|p| p.len() == text.bytes.len())?;
                let (index, memory) = pool.take(&mut Some(payload), at, Keep::Behind, false)?;
                pool.behind.add(memory as usize);
                (self.segments, self.memory) = (self.segments + 1, self.memory + memory);
                at = at + byte_count(text.bytes.len());
                if run == NIL {
                    run = index;
                    let node = pool.node_mut(run);
                    (node.run_next, node.run_memory) = (NIL, 0);
                    self.link_run(pool, before, run);
                } else {
                    let tail = pool.node(run).run_tail;
                    pool.node_mut(tail).next = index;
                    pool.node_mut(index).previous = tail;
                }
                let node = pool.node_mut(run);
                node.run_memory += memory;
                (node.run_end, node.run_tail) = (at, index);
            }
            if recent.is_some_and(|recent| recent as usize == number) {
                self.recent_run = run;
            }
            before = run;
        }
        Some(())
    }
}

/// Bytes of so many pieces, if that is a number.
fn total(text: &[HeldText]) -> Option<u32> {
    let lens = text.iter().map(|text| u32::try_from(text.bytes.len()));
    lens.into_iter()
        .try_fold(0_u32, |sum, len| sum.checked_add(len.ok()?))
}

impl ReceiveQueueImage {
    /// Bytes that the application can read.
    #[must_use]
    pub fn readable(&self) -> u32 {
        total(&self.in_order).unwrap_or(u32::MAX)
    }

    /// Whether it is what the connection knows of.
    fn check(&self, known: &Known) -> Result<(), ImageError> {
        let Self {
            in_order,
            runs,
            recent,
        } = self;
        let all = in_order.iter().chain(runs.iter().flat_map(|run| &run.text));
        let whole = |text: &HeldText| {
            let memory = text.memory.min(MEMORY_MAX) as usize;
            !text.bytes.is_empty() && text.bytes.len() <= memory && text.memory <= MEMORY_MAX
        };
        let memory = all
            .clone()
            .try_fold(0_u32, |sum, text| sum.checked_add(text.memory));
        if !all.clone().all(whole) || memory.is_none_or(|memory| memory > 1 << 31) {
            return Err(ImageError::Text);
        }
        if all.count() > known.segments as usize || runs.len() > known.gaps as usize {
            return Err(ImageError::Bounds);
        }
        let text = total(in_order).ok_or(ImageError::Text)?;
        if known.unread.is_some_and(|unread| unread != text) {
            return Err(ImageError::Text);
        }
        let mut end = known.next;
        for run in runs {
            let len = total(&run.text).filter(|&len| len > 0);
            let len = len.ok_or(ImageError::Text)?;
            let gap = run.seq.0.wrapping_sub(end.0);
            if gap == 0 || gap > 1 << 30 || len > 1 << 30 {
                return Err(ImageError::Text);
            }
            end = run.seq + len;
        }
        let reach = end.0.wrapping_sub(known.next.0);
        let exists = recent.is_none_or(|recent| (recent as usize) < runs.len());
        if reach > 1 << 30 || !exists {
            return Err(ImageError::Text);
        }
        Ok(())
    }
}
