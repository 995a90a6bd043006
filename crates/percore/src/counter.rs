//! Counters: which to take depends on the readers.
//!
//! | | a write | a read | for |
//! | --- | --- | --- | --- |
//! | [`Atomic`] (N1) | one locked addition, 2 ns alone, 15 times that when cores compete | exact, one load | what is written seldom |
//! | [`PerCore`] | plain load and store | the sum, not of one instant | statistics |
//! | [`Batched`] (N2) | plain, and one locked addition per batch | off by a bound that it names, one load | limits |
//! | [`Flip`] (N3) | plain, two stores more | exact at one instant, some microseconds | what must add up |
//!
//! Guarantees: every write is wait-free and, but for the atomic additions named above, has no locked instruction. So is every read but that of
//! [`Flip`], which waits for a writer that is in the midst of an addition and for other readers. A reader sees every count that happened before
//! the read in the sense of the memory model (a join, a lock, a message); of the rest it may see any part. Counts wrap at 2^64.

mod batched;
mod flip;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use batched::Batched;
pub use flip::Flip;

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// N1: one atomic counter, alone on its cache line.
#[derive(Debug, Default)]
pub struct Atomic(CachePadded<AtomicU64>);

impl Atomic {
    /// A counter at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `n`; any thread may.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    #[inline]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

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
