//! Rings of bytes: text goes in and comes out by whole runs.

use super::{Consumer, Producer, memory::Slot};
use crate::sync::Ordering;

impl Producer<u8> {
    /// Bytes that can be written, as the consumer says now. The copy of its index stays what it was.
    #[inline]
    pub fn free(&self) -> usize {
        // pairs with Release in Consumer::release
        let head = self.place.header().consumer.index.load(Ordering::Acquire);
        let (used, known) = (
            self.tail.wrapping_sub(head),
            self.tail.wrapping_sub(self.head),
        );
        // As in `refresh`.
        self.capacity() - used.min(known)
    }

    /// Writes as many of `bytes` as there is room for, without telling the consumer ([`publish`](Self::publish)); how many.
    #[inline]
    pub fn stage_bytes(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room_for(bytes.len()));
        let mut left = bytes.get(..n).unwrap_or_default();
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
    /// Bytes that wait, as the producer says now. The copy of its index stays what it was.
    #[inline]
    pub fn waiting(&self) -> usize {
        // pairs with Release in Producer::publish
        let tail = self.place.header().producer.index.load(Ordering::Acquire);
        let (before, now) = (
            self.tail.wrapping_sub(self.head),
            tail.wrapping_sub(self.head),
        );
        // As in `refresh`: anything else is an index that it made up.
        match before <= now && now <= self.capacity() {
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
            there = self.refresh();
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

    /// Gives the room of the oldest `n` bytes back, or of as many as were there at the last look.
    #[inline]
    pub fn drop_bytes(&mut self, n: usize) {
        let there = self.tail.wrapping_sub(self.head);
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
