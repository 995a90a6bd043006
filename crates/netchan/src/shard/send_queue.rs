//! A stream's send queue: bytes from the first unacknowledged one on. Its memory is lent by the shard while there are any.

use std::{
    io::{self, IoSlice},
    ops::{Deref, DerefMut},
};

use percore::slab::{Buffer, Slab};
use proto::wire::checksum::{Partial, combine, copy_and_sum};

use crate::limits;

/// Rings of equal size that queues borrow: address space, of which only what is used at one time is touched.
#[derive(Debug)]
pub struct SendMemory {
    slab: Slab,
    size: usize,
    /// Larger rings that queues gave back, for the next that grows.
    spare: Vec<Large>,
}

/// Most larger rings that are kept.
const SPARES: usize = 16;

impl SendMemory {
    /// `rings` rings of `size` bytes (rounded up to a power of two); a queue that finds none makes its own.
    ///
    /// # Errors
    /// When the machine has no address space for them.
    pub fn new(size: usize, rings: usize) -> io::Result<Self> {
        let size = size.next_power_of_two();
        Ok(Self {
            slab: Slab::with_ready(rings, size, 0)?,
            size,
            spare: Vec::with_capacity(SPARES),
        })
    }

    /// For `needed` bytes at least, if they are no more than a ring of the shard's holds.
    #[inline]
    fn take(&mut self, needed: usize) -> Ring {
        match self.slab.alloc() {
            Some(buffer) => Ring::Lent(buffer),
            // No more than needed: a queue with little to send must not clear a large ring each time, as others hold what the shard lends.
            None => Ring::of(
                needed
                    .next_power_of_two()
                    .clamp(OWN_MIN.min(self.size), self.size),
            ),
        }
    }

    #[inline]
    fn give(&mut self, ring: Ring) {
        match ring {
            Ring::Lent(buffer) => self.slab.free(buffer),
            Ring::Own(Some(large)) if large.0.len() > self.size => self.keep(*large),
            Ring::Own(_) => {}
        }
    }

    /// Of what is kept the content stays: a queue reads only what was written to it.
    #[cold]
    fn keep(&mut self, large: Large) {
        let kept: usize = self.spare.iter().map(|large| large.0.len()).sum();
        if self.spare.len() < SPARES && kept + large.0.len() <= limits::SPARE_SEND_BUFFERS {
            self.spare.push(large);
        }
    }

    /// Gives back what is kept: the shard has no connection.
    pub fn release(&mut self) {
        self.spare.clear();
    }

    /// A ring of `size` bytes at least, for a queue that grows.
    #[cold]
    fn large(&mut self, size: usize) -> Ring {
        let fits = |large: &Large| (size..=2 * size).contains(&large.0.len());
        match self.spare.iter().position(fits) {
            Some(at) => Ring::Own(Some(Box::new(self.spare.swap_remove(at)))),
            None => Ring::of(size),
        }
    }
}

/// A ring of a queue's own has so many bytes at least.
const OWN_MIN: usize = 2048;

/// Where a queue's bytes lie. The length is a power of two, or 0.
#[derive(Debug)]
enum Ring {
    /// In the shard's memory.
    Lent(Buffer),
    /// In its own: more than the shard lends, or the shard had none left. Behind one more pointer, so that a queue takes no more room
    /// for it.
    Own(Option<Box<Large>>),
}

#[derive(Debug)]
struct Large(Box<[u8]>);

impl Ring {
    /// No memory.
    const NONE: Self = Self::Own(None);

    /// Its own memory, of `size` bytes.
    fn of(size: usize) -> Self {
        Self::Own(Some(Box::new(Large(vec![0; size].into_boxed_slice()))))
    }

    const fn is_none(&self) -> bool {
        matches!(self, Self::Own(None))
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::NONE
    }
}

impl Deref for Ring {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Own(Some(large)) => &large.0,
            Self::Own(None) => &[],
        }
    }
}

impl DerefMut for Ring {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Own(Some(large)) => &mut large.0,
            Self::Own(None) => &mut [],
        }
    }
}

/// A ring of bytes, as large as it needs to be; empty ones hold no memory.
#[derive(Debug, Default)]
pub struct SendQueue {
    ring: Ring,
    /// Below 4 GiB, both: so are send buffers.
    head: u32,
    len: u32,
}

/// As far as rings reach.
#[allow(clippy::cast_possible_truncation)]
const fn narrow(n: usize) -> u32 {
    n as u32
}

/// Fills `to` with what lies from `start` on to the end of the ring, and then from its beginning; its sum.
#[inline(never)]
fn copy_in_two(ring: &[u8], start: usize, to: &mut [u8]) -> Partial {
    let first = ring.len() - start;
    let (front, back) = to.split_at_mut(first);
    let sum = copy_and_sum(&ring[start..], front);
    combine(sum, first, copy_and_sum(&ring[..back.len()], back))
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
        let needed = self.len() + n;
        if self.ring.is_none() {
            self.ring = memory.take(needed);
        }
        if needed > self.ring.len() {
            self.grow(needed, memory);
        }
        let ring = &mut *self.ring;
        let tail = (self.head as usize + self.len as usize) & (ring.len() - 1);
        if let Some(room) = ring.get_mut(tail..tail + n) {
            room.copy_from_slice(&bytes[..n]);
        } else {
            let (front, back) = bytes[..n].split_at(ring.len() - tail);
            ring[tail..].copy_from_slice(front);
            ring[..back.len()].copy_from_slice(back);
        }
        self.len = narrow(needed);
        n
    }

    /// Moves to a larger ring, which holds `needed` bytes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, needed: usize, memory: &mut SendMemory) {
        let mut ring = memory.large(needed.next_power_of_two());
        if let Some((text, _)) = ring.split_at_mut_checked(self.len()) {
            self.copy_out(0, text);
        }
        memory.give(std::mem::replace(&mut self.ring, ring));
        self.head = 0;
    }

    /// Drops `n` bytes from the front (at most all); the memory goes back once it is empty. How many they were.
    #[inline]
    pub fn advance(&mut self, n: usize, memory: &mut SendMemory) -> usize {
        let n = n.min(self.len());
        self.len -= narrow(n);
        if self.len == 0 {
            self.head = 0;
            memory.give(std::mem::take(&mut self.ring));
        } else {
            self.head = narrow((self.head as usize + n) & (self.ring.len() - 1));
        }
        n
    }

    /// Copies bytes from `offset` on to fill `to`; `None` if there are not so many.
    #[inline]
    pub fn copy_out_unsummed(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        if to.is_empty() {
            return Some(());
        }
        if offset.checked_add(to.len())? > self.len() {
            return None;
        }
        let ring = &*self.ring;
        let start = (self.head as usize + offset) & (ring.len() - 1);
        let first = to.len().min(ring.len() - start);
        let (front, back) = to.split_at_mut(first);
        front.copy_from_slice(&ring[start..start + first]);
        back.copy_from_slice(&ring[..back.len()]);
        Some(())
    }

    /// Copies bytes from `offset` on to fill `to`, with their checksum; `None` if there are not so many.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Option<Partial> {
        if to.is_empty() {
            return Some(Partial::default());
        }
        if offset.checked_add(to.len())? > self.len() {
            return None;
        }
        let ring = &*self.ring;
        let start = (self.head as usize + offset) & (ring.len() - 1);
        match ring.get(start..start + to.len()) {
            Some(text) => Some(copy_and_sum(text, to)),
            None => Some(copy_in_two(ring, start, to)),
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

    /// A ring that is larger than the shard's goes to the next queue that grows as far, and so many bytes of them are kept at most.
    #[test]
    fn larger_rings_are_used_again() {
        let mut memory = SendMemory::new(4096, 1).unwrap();
        let text = vec![7; 3 * 4096];
        let mut queue = SendQueue::default();
        for _ in 0..3 {
            assert_eq!(
                queue.append(&[IoSlice::new(&text)], &mut memory, usize::MAX),
                text.len()
            );
            assert!(memory.spare.is_empty(), "in use");
            let mut out = vec![0; text.len()];
            queue.copy_out_unsummed(0, &mut out).unwrap();
            assert_eq!(out, text);
            queue.advance(text.len(), &mut memory);
            assert_eq!(memory.spare.len(), 1, "the same again");
        }
        // Too small for the next, which brings its own.
        let large = vec![8; limits::SPARE_SEND_BUFFERS / 2 + 1];
        queue.append(&[IoSlice::new(&large)], &mut memory, usize::MAX);
        assert_eq!(memory.spare.len(), 1);
        queue.advance(large.len(), &mut memory);
        assert_eq!(memory.spare.len(), 1, "more than is kept");
        memory.release();
        assert!(memory.spare.is_empty());
    }

    /// What a queue no longer needs is there for others: an empty one holds no ring, however it became empty.
    #[test]
    fn an_empty_queue_gives_its_ring_back() {
        let mut memory = SendMemory::new(1024, 1).unwrap();
        let (mut one, mut other) = (SendQueue::default(), SendQueue::default());
        let text = [IoSlice::new(&[7; 600])];
        assert_eq!(one.append(&text, &mut memory, 600), 600);
        assert_eq!(memory.slab.available(), 0);
        assert_eq!(other.append(&text, &mut memory, 600), 600);
        assert!(matches!(other.ring, Ring::Own(Some(_))), "none was left");
        assert_eq!(one.advance(599, &mut memory), 599);
        assert_eq!(memory.slab.available(), 0, "a byte is left");
        assert_eq!(one.advance(2, &mut memory), 1);
        assert!(one.ring.is_none() && memory.slab.available() == 1);
        other.advance(600, &mut memory);
        assert!(other.ring.is_none());
        assert_eq!(other.append(&text, &mut memory, 600), 600);
        assert!(matches!(other.ring, Ring::Lent(_)), "the one given back");
        // One of its own is as large as it must be, and grows.
        let mut large = SendMemory::new(1 << 16, 1).unwrap();
        let _lent = large.take(1);
        let mut small = SendQueue::default();
        assert_eq!(small.append(&text, &mut large, 600), 600);
        assert_eq!(small.ring.len(), OWN_MIN);
        for sent in (1200..60_000).step_by(600) {
            assert_eq!(small.append(&text, &mut large, 600), 600);
            assert!(small.len() == sent && small.ring.len() < 2 * sent.max(OWN_MIN));
        }
        assert!(small.ring.iter().take(small.len()).all(|&byte| byte == 7));
        // One that outgrows its ring gives that back, too.
        assert_eq!(other.append(&text, &mut memory, 600), 600);
        assert_eq!((other.len(), memory.slab.available()), (1200, 1));
    }

    /// Whatever is written and acknowledged in whatever pieces: what is copied out is what was written, with its sum, round the end of a ring
    /// and through larger ones, too; and nothing that was not written.
    #[test]
    fn what_was_written_is_what_is_copied_out() {
        let mut memory = SendMemory::new(4096, 1).unwrap();
        let mut queue = SendQueue::default();
        let mut model = std::collections::VecDeque::<u8>::new();
        let mut random = Random::new(Seed([3, 4]));
        let mut below = |n: usize| usize::try_from(random.below(n as u64)).unwrap();
        let (mut next, mut in_two) = (0_u32, 0);
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
            let start = queue.head as usize + offset;
            in_two += usize::from(start < queue.ring.len() && start + len > queue.ring.len());
            // All of it, and a byte that is not there.
            let mut all = vec![0; queue.len()];
            assert!(queue.copy_out_unsummed(0, &mut all).is_some());
            all.push(0);
            assert!(queue.copy_out_unsummed(0, &mut all).is_none());
            assert!(queue.copy_out(0, &mut all).is_none());
        }
        assert!(in_two > 50, "round the end: {in_two}");
    }
}
