//! Rings of bytes: text goes in and comes out by whole runs.
//!
//! A producer that finds the ring empty may go on at its beginning ([`Producer::restart`]), and says from where: so text that is read as it comes runs over the
//! same few lines and pages of a large ring again and again. Each end counts on as if the rest of the ring had been filled and read.

use super::{Consumer, Producer, memory::Slot};
use crate::sync::Ordering;

/// Where the lap that `index` is in ends.
const fn lap_end(index: usize, mask: usize) -> usize {
    (index | mask).wrapping_add(1)
}

impl Producer<u8> {
    /// The consumer's index: the other side of the last restart, where it has taken all up to that.
    #[inline]
    fn far(&self) -> usize {
        // pairs with Release in Consumer::release
        let head = self.place.header().consumer.index.load(Ordering::Acquire);
        // Relaxed: our own.
        let left_at = self.place.header().producer.left_at.load(Ordering::Relaxed);
        match head == left_at && head & self.place.mask != 0 {
            true => lap_end(head, self.place.mask),
            false => head,
        }
    }

    /// Looks at the consumer's index; the room there is.
    #[inline]
    fn look(&mut self) -> usize {
        let head = self.far();
        // As in `refresh`: anything else is an index that it made up.
        if self.tail.wrapping_sub(head) <= self.tail.wrapping_sub(self.head) {
            self.head = head;
        } else {
            self.corrupt = true;
        }
        self.cached_room()
    }

    /// Bytes that can be written, as the consumer says now. The copy of its index stays what it was.
    #[inline]
    pub fn free(&self) -> usize {
        let used = self.tail.wrapping_sub(self.far());
        self.capacity() - used.min(self.tail.wrapping_sub(self.head))
    }

    /// Goes on at the ring's beginning, if it is past its first `past` bytes, and all that was written was published and taken.
    pub fn restart(&mut self, past: usize) {
        if self.tail & self.place.mask < past.max(1) || self.look() < self.capacity() {
            return;
        }
        let side = &self.place.header().producer;
        // Relaxed: the index is published behind it.
        side.left_at.store(self.tail, Ordering::Relaxed);
        self.tail = lap_end(self.tail, self.place.mask);
        self.head = self.tail;
    }

    /// Writes as many of `bytes` as there is room for, without telling the consumer ([`publish`](Self::publish)); how many.
    #[inline]
    pub fn stage_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut room = self.cached_room();
        if room < bytes.len() {
            room = self.look();
        }
        let mut left = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        let n = left.len();
        while !left.is_empty() {
            let run = self.place.run(self.tail, left.len());
            let (now, rest) = left.split_at(run.len());
            put(run, now);
            self.tail = self.tail.wrapping_add(now.len());
            left = rest;
        }
        n
    }
}

impl Consumer<u8> {
    /// The producer's index, and where the next byte is: elsewhere than where we stopped, if the producer has gone on at the ring's beginning since.
    #[inline]
    fn far(&self) -> (usize, usize) {
        // pairs with Release in Producer::publish
        let tail = self.place.header().producer.index.load(Ordering::Acquire);
        let (head, mask) = (self.head, self.place.mask);
        // Relaxed: written before the index.
        let left_at = self.place.header().producer.left_at.load(Ordering::Relaxed);
        match tail != head && left_at == head && head & mask != 0 {
            true => (tail, lap_end(head, mask)),
            false => (tail, head),
        }
    }

    /// Looks at the producer's index; the bytes there are.
    #[inline]
    fn look(&mut self) -> usize {
        let (tail, head) = self.far();
        let (before, now) = (self.tail.wrapping_sub(self.head), tail.wrapping_sub(head));
        // As in `refresh`: anything else is an index that it made up. It restarts an empty ring alone.
        if now < before || now > self.capacity() || (head != self.head && before > 0) {
            self.corrupt = true;
            return before;
        }
        (self.tail, self.head) = (tail, head);
        now
    }

    /// Bytes that wait, as the producer says now. The copy of its index stays what it was.
    #[inline]
    pub fn waiting(&self) -> usize {
        let (tail, head) = self.far();
        let (before, now) = (self.tail.wrapping_sub(self.head), tail.wrapping_sub(head));
        match before <= now && now <= self.capacity() && (head == self.head || before == 0) {
            true => now,
            false => before,
        }
    }

    /// Copies bytes from the `skip`th of those that wait on, as many as there are and `into` has room for; how many. They stay.
    #[inline]
    pub fn copy_bytes(&mut self, skip: usize, into: &mut [u8]) -> usize {
        let wanted = skip.saturating_add(into.len());
        let mut there = self.tail.wrapping_sub(self.head);
        if there < wanted {
            there = self.look();
        }
        let n = there.saturating_sub(skip).min(into.len());
        let mut left = into.get_mut(..n).unwrap_or_default();
        let mut at = self.head.wrapping_add(skip);
        while !left.is_empty() {
            let run = self.place.run(at, left.len());
            let (now, rest) = left.split_at_mut(run.len());
            get(run, now);
            at = at.wrapping_add(now.len());
            left = rest;
        }
        n
    }

    /// Gives the room of the oldest `n` bytes back, or of as many as there are.
    #[inline]
    pub fn drop_bytes(&mut self, n: usize) {
        let mut there = self.tail.wrapping_sub(self.head);
        if there < n {
            there = self.look();
        }
        self.head = self.head.wrapping_add(n.min(there));
        self.release();
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
