//! Rings of bytes: text goes in and comes out by whole runs.
//!
//! A producer that finds the ring empty may go on at its beginning ([`ByteProducer::restart`]), and says from where: so text that is read as it comes runs over
//! the same few lines and pages of a large ring again and again. Each end counts on as if the rest of the ring had been filled and read. The ends of other
//! rings know nothing of that, so these have types of their own.

use super::{BadMemory, Consumer, Producer, memory::Slot};
use crate::sync::Ordering;
use std::ptr::NonNull;

/// A ring for `capacity` bytes on the heap, as [`ring`](super::ring) makes one.
#[cfg(all(test, loom))]
pub(crate) fn byte_ring(capacity: usize) -> (ByteProducer, ByteConsumer) {
    let (producer, consumer) = super::ring(capacity);
    (ByteProducer(producer), ByteConsumer(consumer))
}

/// The writing end of a ring of bytes.
#[derive(Debug)]
pub struct ByteProducer(Producer<u8>);

/// The reading end.
#[derive(Debug)]
pub struct ByteConsumer(Consumer<u8>);

/// Where the lap that `index` is in ends.
const fn lap_end(index: usize, mask: usize) -> usize {
    (index | mask).wrapping_add(1)
}

impl ByteProducer {
    /// The writing end of a ring in `memory`, shared with all that have mapped it.
    ///
    /// # Errors
    /// As [`Producer::from_raw`]'s.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn from_raw(memory: NonNull<[u8]>, capacity: usize) -> Result<Self, BadMemory> {
        // SAFETY: the caller's.
        unsafe { Producer::from_raw(memory, capacity) }.map(Self)
    }

    /// Number of bytes that it holds.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Whether the other end ever wrote an index that it cannot have reached.
    pub fn is_corrupt(&self) -> bool {
        self.0.is_corrupt()
    }

    /// Makes what was staged visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        self.0.publish();
    }

    /// The consumer's index: the other side of the last restart, where it has taken all up to that.
    #[inline]
    fn far(&self) -> usize {
        // pairs with Release in Consumer::release
        let head = self.0.place.header().consumer.index.load(Ordering::Acquire);
        // Relaxed: our own.
        let left_at = self
            .0
            .place
            .header()
            .producer
            .left_at
            .load(Ordering::Relaxed);
        match head == left_at && head & self.0.place.mask != 0 {
            true => lap_end(head, self.0.place.mask),
            false => head,
        }
    }

    /// Looks at the consumer's index; the room there is.
    #[inline]
    fn look(&mut self) -> usize {
        let head = self.far();
        // As in `refresh`: anything else is an index that it made up.
        if self.0.tail.wrapping_sub(head) <= self.0.tail.wrapping_sub(self.0.head) {
            self.0.head = head;
        } else {
            self.0.corrupt = true;
        }
        self.0.cached_room()
    }

    /// Bytes that can be written, as the consumer says now. The copy of its index stays what it was.
    #[inline]
    pub fn free(&self) -> usize {
        let used = self.0.tail.wrapping_sub(self.far());
        self.0.capacity() - used.min(self.0.tail.wrapping_sub(self.0.head))
    }

    /// Goes on at the ring's beginning, if it is past its first `past` bytes, and all that was written was published and taken.
    pub fn restart(&mut self, past: usize) {
        if self.0.tail & self.0.place.mask < past.max(1) || self.look() < self.0.capacity() {
            return;
        }
        let side = &self.0.place.header().producer;
        // Relaxed: the index is published behind it.
        side.left_at.store(self.0.tail, Ordering::Relaxed);
        self.0.tail = lap_end(self.0.tail, self.0.place.mask);
        self.0.head = self.0.tail;
    }

    /// Writes as many of `bytes` as there is room for, without telling the consumer ([`publish`](Self::publish)); how many.
    #[inline]
    pub fn stage(&mut self, bytes: &[u8]) -> usize {
        let mut room = self.0.cached_room();
        if room < bytes.len() {
            room = self.look();
        }
        let mut left = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        let n = left.len();
        while !left.is_empty() {
            let run = self.0.place.run(self.0.tail, left.len());
            let (now, rest) = left.split_at(run.len());
            put(run, now);
            self.0.tail = self.0.tail.wrapping_add(now.len());
            left = rest;
        }
        n
    }
}

impl ByteConsumer {
    /// The reading end of a ring in `memory`, shared with all that have mapped it.
    ///
    /// # Errors
    /// As [`Consumer::from_raw`]'s.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn from_raw(memory: NonNull<[u8]>, capacity: usize) -> Result<Self, BadMemory> {
        // SAFETY: the caller's.
        unsafe { Consumer::from_raw(memory, capacity) }.map(Self)
    }

    /// Whether the other end ever wrote an index that it cannot have reached.
    pub fn is_corrupt(&self) -> bool {
        self.0.is_corrupt()
    }

    /// The producer's index, and where the next byte is: elsewhere than where we stopped, if the producer has gone on at the ring's beginning since.
    #[inline]
    fn far(&self) -> (usize, usize) {
        // pairs with Release in Producer::publish
        let tail = self.0.place.header().producer.index.load(Ordering::Acquire);
        let (head, mask) = (self.0.head, self.0.place.mask);
        // Relaxed: written before the index.
        let left_at = self
            .0
            .place
            .header()
            .producer
            .left_at
            .load(Ordering::Relaxed);
        match tail != head && left_at == head && head & mask != 0 {
            true => (tail, lap_end(head, mask)),
            false => (tail, head),
        }
    }

    /// Looks at the producer's index; the bytes there are.
    #[inline]
    fn look(&mut self) -> usize {
        let (tail, head) = self.far();
        let (before, now) = (
            self.0.tail.wrapping_sub(self.0.head),
            tail.wrapping_sub(head),
        );
        // As in `refresh`: anything else is an index that it made up. It restarts an empty ring alone.
        if now < before || now > self.0.capacity() || (head != self.0.head && before > 0) {
            self.0.corrupt = true;
            return before;
        }
        (self.0.tail, self.0.head) = (tail, head);
        now
    }

    /// Bytes that wait, as the producer says now. The copy of its index stays what it was.
    #[inline]
    pub fn waiting(&self) -> usize {
        let (tail, head) = self.far();
        let (before, now) = (
            self.0.tail.wrapping_sub(self.0.head),
            tail.wrapping_sub(head),
        );
        match before <= now && now <= self.0.capacity() && (head == self.0.head || before == 0) {
            true => now,
            false => before,
        }
    }

    /// Copies bytes from the `skip`th of those that wait on, as many as there are and `into` has room for; how many. They stay.
    #[inline]
    pub fn copy(&mut self, skip: usize, into: &mut [u8]) -> usize {
        let wanted = skip.saturating_add(into.len());
        let mut there = self.0.tail.wrapping_sub(self.0.head);
        if there < wanted {
            there = self.look();
        }
        let n = there.saturating_sub(skip).min(into.len());
        let mut left = into.get_mut(..n).unwrap_or_default();
        let mut at = self.0.head.wrapping_add(skip);
        while !left.is_empty() {
            let run = self.0.place.run(at, left.len());
            let (now, rest) = left.split_at_mut(run.len());
            get(run, now);
            at = at.wrapping_add(now.len());
            left = rest;
        }
        n
    }

    /// Gives the room of the oldest `n` bytes back, or of as many as there are.
    #[inline]
    pub fn discard(&mut self, n: usize) {
        let mut there = self.0.tail.wrapping_sub(self.0.head);
        if there < n {
            there = self.look();
        }
        self.0.head = self.0.head.wrapping_add(n.min(there));
        self.0.release();
    }
}

/// Writes slots that the caller has seen to be free.
#[cfg(not(loom))]
#[inline(always)]
fn put(run: &[Slot<u8>], bytes: &[u8]) {
    // Cells may be written through a shared reference. A slot is a byte.
    let start = std::ptr::NonNull::from(run).cast::<u8>();
    // SAFETY: as many slots as bytes, which are in the ring, and free: no thread of this process touches them.
    unsafe { crate::foreign::copy_in(start, bytes) }
}

/// Reads slots that the caller has seen to be written.
#[cfg(not(loom))]
#[inline(always)]
fn get(run: &[Slot<u8>], into: &mut [u8]) {
    let start = std::ptr::NonNull::from(run).cast::<u8>();
    // SAFETY: as many slots as bytes, which are in the ring, and written: no thread of this process writes to them now.
    unsafe { crate::foreign::copy_out(start, into) }
}

/// Slot by slot: loom looks for races on each.
#[cfg(loom)]
fn put(run: &[Slot<u8>], bytes: &[u8]) {
    run.iter()
        .zip(bytes)
        .for_each(|(slot, &byte)| super::write(slot, byte));
}

#[cfg(loom)]
fn get(run: &[Slot<u8>], into: &mut [u8]) {
    run.iter()
        .zip(into)
        .for_each(|(slot, byte)| *byte = super::read(slot, false));
}
