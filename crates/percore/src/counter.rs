//! Per-core counters: one writer for each slot, any number of readers, no locked instruction.
//!
//! Guarantees: [`Slot::add`] and [`PerCore::read`] are wait-free. A reader sees every count that happened before the
//! read in the sense of the memory model (a join, a lock, a message); of the rest it may see any part. Counts wrap at 2^64.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// `N` counters for each of a fixed number of slots; a slot has one writer at a time.
#[derive(Debug)]
pub struct PerCore<const N: usize> {
    slots: Box<[CachePadded<Slot<N>>]>,
}

/// One writer's `N` counters, alone on their cache lines.
#[derive(Debug)]
pub struct Slot<const N: usize> {
    counts: [AtomicU64; N],
}

impl<const N: usize> Slot<N> {
    /// Adds `n` to counter `index`; plain load and store, so a slot must have one writer at a time
    /// (two writers lose counts, nothing worse).
    ///
    /// # Panics
    /// If `index` is not below `N`.
    #[inline]
    pub fn add(&self, index: usize, n: u64) {
        let count = &self.counts[index];
        // Relaxed, both: the slot has one writer, and a reader is promised nothing more than the memory model's minimum.
        let sum = count.load(Ordering::Relaxed).wrapping_add(n);
        count.store(sum, Ordering::Relaxed);
    }

    /// This slot's counter `index`.
    ///
    /// # Panics
    /// If `index` is not below `N`.
    #[inline]
    pub fn read(&self, index: usize) -> u64 {
        self.counts[index].load(Ordering::Relaxed)
    }
}

impl<const N: usize> PerCore<N> {
    /// Counters for `slots` writers, all zero.
    pub fn new(slots: usize) -> Self {
        let slot = || {
            CachePadded::new(Slot {
                counts: std::array::from_fn(|_| AtomicU64::new(0)),
            })
        };
        Self {
            slots: (0..slots).map(|_| slot()).collect(),
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// One writer's counters, to be looked up once and kept.
    ///
    /// # Panics
    /// If `slot` is not below [`slots`](Self::slots).
    #[inline]
    pub fn slot(&self, slot: usize) -> &Slot<N> {
        &self.slots[slot]
    }

    /// Adds `n` to counter `index` of `slot`; plain load and store, so a slot must have one writer at a time
    /// (two writers lose counts, nothing worse).
    ///
    /// # Panics
    /// If `slot` or `index` is out of range.
    #[inline]
    pub fn add(&self, slot: usize, index: usize, n: u64) {
        self.slots[slot].add(index, n);
    }

    /// The sum over all slots, wrapping at 2^64. Not a snapshot: a slot may be written while another is read.
    ///
    /// # Panics
    /// If `index` is not below `N`.
    pub fn read(&self, index: usize) -> u64 {
        self.slots
            .iter()
            .fold(0, |sum, slot| sum.wrapping_add(slot.read(index)))
    }
}
