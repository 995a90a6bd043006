//! A stream's send queue: bytes from the first unacknowledged one on, in chunks that the shard lends.
//!
//! The chunk given back last is the next that is lent. So what a connection writes lies in memory that the cache still has, however far its buffer
//! may grow: a ring as long as the buffer would walk through all of it.

mod lease;

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    ops::{Deref, DerefMut},
};

use percore::slab::{Buffer, Slab};
use proto::wire::checksum::{Partial, combine, copy_and_sum};

pub use self::lease::SendLease;
use crate::limits;

/// Chunks of equal size that queues borrow: address space, of which only what is used at one time is touched.
#[derive(Debug)]
pub struct SendMemory {
    slab: Slab,
    /// Bytes of a chunk, a power of two.
    chunk: usize,
    /// Chunks beyond those of the slab that queues gave back.
    spare: Vec<Box<[u8]>>,
    /// Lists that queues of several chunks gave back, empty.
    #[allow(clippy::vec_box)] // they travel as boxes
    lists: Vec<Box<List>>,
}

/// Most chunks that are kept.
const SPARES: usize = limits::SPARE_SEND_BUFFERS / limits::SEND_CHUNK;
/// Most lists that are kept.
const LISTS: usize = 64;
/// Chunks for which a list has room from the beginning: a send buffer of 8 MiB. One that grew beyond twice that is not kept.
const LIST: usize = 128;

impl SendMemory {
    /// Chunks for `buffers` send buffers of `size` bytes (rounded up to a power of two), but no more than for as many of the size that a send buffer has
    /// in the beginning; a queue that finds none makes its own.
    ///
    /// # Errors
    /// When the machine has no address space for them.
    pub fn new(size: usize, buffers: usize) -> io::Result<Self> {
        let size = size.next_power_of_two();
        let chunk = size.min(limits::SEND_CHUNK);
        let chunks = buffers * size.min(limits::SEND_BUFFER) / chunk;
        let slab = Slab::with_ready(chunks, chunk, 0)?;
        Ok(Self {
            chunk: slab.buffer_size(), // a cache line at least
            slab,
            spare: Vec::with_capacity(SPARES),
            lists: Vec::with_capacity(LISTS),
        })
    }

    /// For `needed` bytes, or a whole chunk if they are more.
    #[inline]
    fn take(&mut self, needed: usize) -> Chunks {
        match self.slab.alloc() {
            Some(buffer) => Chunks::Lent(buffer),
            None => self.take_own(needed),
        }
    }

    #[cold]
    fn take_own(&mut self, needed: usize) -> Chunks {
        let mut list = self.take_list();
        list.0.push_back(self.own(needed));
        Chunks::Many(Some(list))
    }

    /// A whole chunk.
    fn take_whole(&mut self) -> Chunk {
        let lent = self.slab.alloc().map(Chunk::Lent);
        lent.unwrap_or_else(|| self.own(self.chunk))
    }

    /// No more than needed: a queue with little to send must not clear a whole chunk each time, as others hold what the shard lends.
    fn own(&mut self, needed: usize) -> Chunk {
        let least = OWN_MIN.min(self.chunk);
        let size = needed.next_power_of_two().clamp(least, self.chunk);
        let spare = (size == self.chunk).then(|| self.spare.pop()).flatten();
        Chunk::Own(spare.unwrap_or_else(|| vec![0; size].into_boxed_slice()))
    }

    fn take_list(&mut self) -> Box<List> {
        let list = self.lists.pop();
        list.unwrap_or_else(|| Box::new(List(VecDeque::with_capacity(LIST))))
    }

    #[inline]
    fn give(&mut self, chunks: Chunks) {
        match chunks {
            Chunks::Lent(buffer) => self.slab.free(buffer),
            Chunks::Many(Some(list)) => self.give_list(list),
            Chunks::Many(None) => {}
        }
    }

    #[cold]
    fn give_list(&mut self, mut list: Box<List>) {
        list.0.drain(..).for_each(|chunk| self.give_one(chunk));
        if self.lists.len() < LISTS && list.0.capacity() <= 2 * LIST {
            self.lists.push(list);
        }
    }

    /// Of what is kept the content stays: a queue reads only what was written to it.
    fn give_one(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Lent(buffer) => self.slab.free(buffer),
            Chunk::Own(own) if own.len() == self.chunk && self.spare.len() < SPARES => {
                self.spare.push(own);
            }
            Chunk::Own(_) => {}
        }
    }

    /// Gives back what is kept: the shard has no connection.
    pub fn release(&mut self) {
        self.spare.clear();
        self.lists.clear();
    }
}

/// A chunk of a queue's own has so many bytes at least.
const OWN_MIN: usize = 2048;

/// Where a piece of a queue's bytes lies.
#[derive(Debug)]
enum Chunk {
    /// In the shard's memory.
    Lent(Buffer),
    /// In the queue's own, as the shard had none left.
    Own(Box<[u8]>),
}

impl Deref for Chunk {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Own(own) => own,
        }
    }
}

impl DerefMut for Chunk {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Own(own) => own,
        }
    }
}

/// Chunks in their order.
#[derive(Debug)]
struct List(VecDeque<Chunk>);

/// The chunks of a queue. All are of one size, the shard's, but that one that is alone and the queue's own may be smaller.
#[derive(Debug)]
enum Chunks {
    /// One of the shard's: what most queues have.
    Lent(Buffer),
    /// Any others, in their order; `None`: none.
    Many(Option<Box<List>>),
}

impl Chunks {
    const fn is_none(&self) -> bool {
        matches!(self, Self::Many(None))
    }

    /// The first one's bytes.
    #[inline]
    fn first(&self) -> &[u8] {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Many(_) => self.get(0).unwrap_or_default(),
        }
    }

    #[inline]
    fn first_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Many(Some(list)) => list.0.front_mut().map_or(&mut [], |chunk| chunk),
            Self::Many(None) => &mut [],
        }
    }

    fn get(&self, number: usize) -> Option<&[u8]> {
        match self {
            Self::Lent(buffer) => (number == 0).then_some(&**buffer),
            Self::Many(list) => list.as_ref()?.0.get(number).map(|chunk| &**chunk),
        }
    }

    /// The bytes of chunk `number`; it and those between it and the first are made if they are not there.
    fn up_to(&mut self, number: usize, memory: &mut SendMemory) -> Option<&mut [u8]> {
        if number == 0 {
            return Some(self.first_mut());
        }
        self.become_list(memory);
        let Self::Many(Some(list)) = self else {
            return None;
        };
        while list.0.len() <= number {
            list.0.push_back(memory.take_whole());
        }
        list.0.get_mut(number).map(|chunk| &mut **chunk)
    }

    fn become_list(&mut self, memory: &mut SendMemory) {
        if let Self::Lent(_) = self
            && let Self::Lent(buffer) = std::mem::take(self)
        {
            let mut list = memory.take_list();
            list.0.push_back(Chunk::Lent(buffer));
            *self = Self::Many(Some(list));
        }
    }

    /// Takes the first chunk out, if others follow.
    fn pop(&mut self) -> Option<Chunk> {
        match self {
            Self::Many(Some(list)) if list.0.len() > 1 => list.0.pop_front(),
            _ => None,
        }
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::Many(None)
    }
}

/// As many chunks as its bytes need; an empty one holds none.
#[derive(Debug, Default)]
pub struct SendQueue {
    chunks: Chunks,
    /// Where the bytes begin in the first chunk.
    head: u32,
    /// Below 4 GiB: so are send buffers.
    len: u32,
}

/// As far as send buffers reach.
#[allow(clippy::cast_possible_truncation)]
const fn narrow(n: usize) -> u32 {
    n as u32
}

impl SendQueue {
    /// Bytes in it.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Appends `buffers`, and at most `most` bytes of them; returns how many.
    #[inline]
    pub fn append(
        &mut self,
        buffers: &[IoSlice<'_>],
        memory: &mut SendMemory,
        most: usize,
    ) -> usize {
        let mut taken = 0;
        for buffer in buffers {
            let n = self.append_one(buffer, memory, most - taken);
            taken += n;
            if n < buffer.len() {
                break;
            }
        }
        taken
    }

    #[inline]
    fn append_one(&mut self, bytes: &[u8], memory: &mut SendMemory, most: usize) -> usize {
        if bytes.is_empty() || most == 0 {
            return 0;
        }
        let n = bytes.len().min(most);
        if self.chunks.is_none() {
            self.chunks = memory.take(n);
        }
        let tail = self.head as usize + self.len();
        if let Some(room) = self.chunks.first_mut().get_mut(tail..tail + n) {
            room.copy_from_slice(&bytes[..n]);
            self.len += narrow(n);
        } else {
            self.append_far(&bytes[..n], memory);
        }
        n
    }

    /// Appends what does not fit into the first chunk.
    #[inline(never)]
    fn append_far(&mut self, mut bytes: &[u8], memory: &mut SendMemory) {
        if self.chunks.first().len() < memory.chunk {
            self.grow(bytes.len(), memory);
        }
        while !bytes.is_empty() {
            let tail = self.head as usize + self.len();
            let (number, at) = (tail / memory.chunk, tail % memory.chunk);
            let chunk = self.chunks.up_to(number, memory);
            let Some(room) = chunk.and_then(|chunk| chunk.get_mut(at..)) else {
                break;
            };
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.len += narrow(now.len());
            bytes = later;
        }
    }

    /// Moves from a small chunk of its own to a larger one, with room for `n` bytes more if a chunk has it.
    #[cold]
    fn grow(&mut self, n: usize, memory: &mut SendMemory) {
        let mut chunks = memory.take(self.len() + n);
        if let Some(to) = chunks.first_mut().get_mut(..self.len()) {
            self.copy_out_unsummed(0, to);
        }
        memory.give(std::mem::replace(&mut self.chunks, chunks));
        self.head = 0;
    }

    /// Drops `n` bytes from the front (at most all); chunks go back as they become empty. How many bytes they were.
    #[inline]
    pub fn advance(&mut self, n: usize, memory: &mut SendMemory) -> usize {
        let n = n.min(self.len());
        self.len -= narrow(n);
        self.head += narrow(n);
        if self.len == 0 {
            self.head = 0;
            memory.give(std::mem::take(&mut self.chunks));
        } else if self.head as usize >= self.chunks.first().len() {
            self.advance_far(memory);
        }
        n
    }

    /// Gives back the chunks in front of the first byte.
    #[cold]
    fn advance_far(&mut self, memory: &mut SendMemory) {
        while self.head as usize >= self.chunks.first().len()
            && let Some(first) = self.chunks.pop()
        {
            self.head -= narrow(first.len());
            memory.give_one(first);
        }
    }

    /// Copies bytes from `offset` on to fill `to`; `None` if there are not so many.
    #[inline]
    pub fn copy_out_unsummed(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let start = self.start_of(offset, to.len())?;
        match self.chunks.first().get(start..start + to.len()) {
            Some(text) => to.copy_from_slice(text),
            None => self.pieces(start, to, |text, to| to.copy_from_slice(text)),
        }
        Some(())
    }

    /// Copies bytes from `offset` on to fill `to`, with their checksum; `None` if there are not so many.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Option<Partial> {
        let start = self.start_of(offset, to.len())?;
        if to.is_empty() {
            return Some(Partial::ZERO); // a segment without text
        }
        match self.chunks.first().get(start..start + to.len()) {
            Some(text) => Some(copy_and_sum(text, to)),
            None => Some(self.copy_far(start, to)),
        }
    }

    /// Where `len` bytes from `offset` on begin, counted from the first chunk's beginning.
    #[inline]
    fn start_of(&self, offset: usize, len: usize) -> Option<usize> {
        (offset.checked_add(len)? <= self.len()).then_some(self.head as usize + offset)
    }

    /// From more chunks than the first.
    #[inline(never)]
    fn copy_far(&self, start: usize, to: &mut [u8]) -> Partial {
        let (mut sum, mut done) = (Partial::default(), 0);
        self.pieces(start, to, |text, to| {
            sum = combine(sum, done, copy_and_sum(text, to));
            done += to.len();
        });
        sum
    }

    /// Fills `to` from `start` on, piece by piece.
    fn pieces(&self, start: usize, mut to: &mut [u8], mut copy: impl FnMut(&[u8], &mut [u8])) {
        let size = self.chunks.first().len().max(1);
        let (mut number, mut at) = (start / size, start % size);
        while !to.is_empty()
            && let Some(chunk) = self.chunks.get(number)
        {
            let text = chunk.get(at..).unwrap_or_default();
            let n = text.len().min(to.len());
            let (now, later) = to.split_at_mut(n);
            copy(&text[..n], now);
            (number, at, to) = (number + 1, 0, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::{
        ip::keyed::{Random, Seed},
        wire::checksum::fold,
    };

    use super::*;

    fn text_of(queue: &SendQueue) -> Vec<u8> {
        let mut text = vec![0; queue.len()];
        queue.copy_out_unsummed(0, &mut text).unwrap();
        text
    }

    /// Chunks beyond the shard's go to the next queue that needs one, and so many bytes of them are kept at most.
    #[test]
    fn own_chunks_are_used_again() {
        let mut memory = SendMemory::new(4096, 1).unwrap();
        let text = vec![7; 3 * 4096];
        let mut queue = SendQueue::default();
        for _ in 0..3 {
            let n = queue.append(&[IoSlice::new(&text)], &mut memory, usize::MAX);
            assert_eq!(n, text.len());
            assert!(memory.spare.is_empty() && memory.lists.is_empty(), "in use");
            assert_eq!(text_of(&queue), text);
            queue.advance(text.len(), &mut memory);
            assert_eq!((memory.spare.len(), memory.lists.len()), (2, 1));
            assert!(queue.chunks.is_none());
        }
        let large = vec![8; 3 * LIST * 4096];
        queue.append(&[IoSlice::new(&large)], &mut memory, usize::MAX);
        assert!(memory.lists.is_empty(), "in use");
        queue.advance(large.len(), &mut memory);
        assert_eq!((memory.spare.len(), memory.lists.len()), (SPARES, 0));
        memory.release();
        assert!(memory.spare.is_empty() && memory.lists.is_empty());
    }

    /// A large buffer reserves no more address space than an ordinary one; a tiny one keeps no more chunks.
    #[test]
    fn any_size_of_buffer_is_served() {
        for size in [0, 1, 1000, limits::SEND_BUFFER, limits::SEND_BUFFER_LIMIT] {
            let mut memory = SendMemory::new(size, 256).unwrap();
            let bytes = memory.slab.available() * memory.chunk;
            assert!(bytes <= 256 * limits::SEND_BUFFER, "{size}: {bytes}");
            let text = vec![5; 3 * limits::SEND_CHUNK];
            let mut queue = SendQueue::default();
            queue.append(&[IoSlice::new(&text)], &mut memory, usize::MAX);
            assert!(text_of(&queue) == text, "{size}");
            queue.advance(text.len(), &mut memory);
            assert!(queue.chunks.is_none() && memory.spare.len() <= SPARES);
        }
    }

    /// The chunk given back last is lent next: a queue that is written to and acknowledged for ever stays in few of them.
    #[test]
    fn long_stream_stays_in_few_chunks() {
        let mut memory = SendMemory::new(4096, 64).unwrap();
        let (mut queue, mut seen) = (SendQueue::default(), std::collections::HashSet::new());
        for _ in 0..1000 {
            assert_eq!(
                queue.append(&[IoSlice::new(&[1; 3000])], &mut memory, 3000),
                3000
            );
            seen.insert(queue.chunks.first().as_ptr());
            let n = queue.len().saturating_sub(6000);
            queue.advance(n, &mut memory);
            assert!(memory.slab.available() >= 64 - 4);
        }
        assert!(seen.len() <= 5, "{} chunks", seen.len());
    }

    /// What a queue no longer needs is there for others: an empty one holds no chunk, however it became empty.
    #[test]
    fn an_empty_queue_gives_its_chunk_back() {
        let mut memory = SendMemory::new(1024, 1).unwrap();
        let (mut one, mut other) = (SendQueue::default(), SendQueue::default());
        let text = [IoSlice::new(&[7; 600])];
        assert_eq!(one.append(&text, &mut memory, 600), 600);
        assert_eq!(memory.slab.available(), 0);
        assert_eq!(other.append(&text, &mut memory, 600), 600);
        assert!(
            matches!(other.chunks, Chunks::Many(Some(_))),
            "none was left"
        );
        assert_eq!(one.advance(599, &mut memory), 599);
        assert_eq!(memory.slab.available(), 0, "a byte is left");
        assert_eq!(one.advance(2, &mut memory), 1);
        assert!(one.chunks.is_none() && memory.slab.available() == 1);
        other.advance(600, &mut memory);
        assert!(other.chunks.is_none());
        assert_eq!(other.append(&text, &mut memory, 600), 600);
        assert!(
            matches!(other.chunks, Chunks::Lent(_)),
            "the one given back"
        );
        // Acknowledged to within its second chunk, it gives the first one back.
        assert_eq!(other.append(&text, &mut memory, 600), 600);
        assert_eq!((other.len(), memory.slab.available()), (1200, 0));
        assert_eq!(other.advance(1100, &mut memory), 1100);
        assert_eq!((other.len(), memory.slab.available()), (100, 1));
        assert_eq!(text_of(&other), [7; 100]);
    }

    /// A chunk of a queue's own is as large as it must be, and grows.
    #[test]
    fn own_chunk_is_no_larger_than_needed() {
        let mut memory = SendMemory::new(1 << 16, 1).unwrap();
        let _lent = memory.take(1);
        let mut queue = SendQueue::default();
        let text = [IoSlice::new(&[7; 600])];
        assert_eq!(queue.append(&text, &mut memory, 600), 600);
        assert_eq!(queue.chunks.first().len(), OWN_MIN);
        for sent in (1200..200_000).step_by(600) {
            assert_eq!(queue.append(&text, &mut memory, 600), 600);
            let chunks = (0..).map_while(|number| queue.chunks.get(number));
            let held: usize = chunks.map(<[u8]>::len).sum();
            assert!(queue.len() == sent && held < 2 * sent.max(OWN_MIN));
        }
        assert!(text_of(&queue).iter().all(|&byte| byte == 7));
    }

    /// Whatever is written and acknowledged in whatever pieces: what is copied out is what was written, with its sum, across the ends of
    /// chunks, too; and nothing that was not written.
    #[test]
    fn what_was_written_is_what_is_copied_out() {
        let mut memory = SendMemory::new(256, 3).unwrap();
        let mut queue = SendQueue::default();
        let mut model = std::collections::VecDeque::<u8>::new();
        let mut random = Random::new(Seed([3, 4]));
        let mut below = |n: usize| usize::try_from(random.below(n as u64)).unwrap();
        let (mut next, mut in_two, mut in_more) = (0_u32, 0, 0);
        for _ in 0..4000 {
            let text: Vec<u8> = (0..below(900))
                .map(|_| {
                    next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    next.to_be_bytes()[0]
                })
                .collect();
            let (front, back) = text.split_at(below(text.len() + 1));
            let most = below(1000).min(6000 - queue.len());
            let n = queue.append(
                &[IoSlice::new(front), IoSlice::new(back)],
                &mut memory,
                most,
            );
            assert_eq!(n, most.min(text.len()));
            model.extend(&text[..n]);
            let n = below(800);
            assert_eq!(queue.advance(n, &mut memory), n.min(model.len()));
            model.drain(..n.min(model.len()));
            assert_eq!(queue.len(), model.len());
            let offset = below(queue.len() + 1);
            let len = below(queue.len() - offset + 1);
            let (mut plain, mut summed) = (vec![0; len], vec![0; len]);
            assert!(queue.copy_out_unsummed(offset, &mut plain).is_some());
            let sum = queue.copy_out(offset, &mut summed).unwrap();
            assert!(model.range(offset..offset + len).eq(&plain) && plain == summed);
            let whole = copy_and_sum(&plain, &mut summed);
            assert_eq!(fold(sum), fold(whole));
            let begin = (queue.head as usize + offset) / queue.chunks.first().len().max(1);
            let end = (queue.head as usize + offset + len) / queue.chunks.first().len().max(1);
            in_two += usize::from(end == begin + 1);
            in_more += usize::from(end > begin + 1);
            // All of it, and a byte that is not there.
            let mut all = vec![0; queue.len()];
            assert!(queue.copy_out_unsummed(0, &mut all).is_some());
            all.push(0);
            assert!(queue.copy_out_unsummed(0, &mut all).is_none());
            assert!(queue.copy_out(0, &mut all).is_none());
        }
        assert!(
            in_two > 50 && in_more > 50,
            "across ends: {in_two}, {in_more}"
        );
    }
}
