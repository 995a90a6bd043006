//! N2: local batches that fold into one value; a cheap approximate read that says how far it may be off.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// A value that many cores change often and that must be read cheaply: what all connections hold together (N4), say.
///
/// Each slot, which has one writer at a time, collects up to a batch and then folds it into the total with one atomic addition.
#[derive(Debug)]
pub struct Batched {
    /// Two's complement, as the locals are.
    total: CachePadded<AtomicU64>,
    locals: Box<[CachePadded<AtomicU64>]>,
    batch: u64,
}

impl Batched {
    /// A value of 0 for `slots` writers, each of which holds back less than `batch` (1: nothing, which makes it a plain atomic).
    ///
    /// # Panics
    /// If `batch` is 0 or the largest error, `slots * (batch - 1)`, is more than an `i64` holds.
    pub fn new(slots: usize, batch: u64) -> Self {
        let slot = |_| CachePadded::new(AtomicU64::new(0));
        let counter = Self {
            total: CachePadded::new(AtomicU64::new(0)),
            locals: (0..slots).map(slot).collect(),
            batch,
        };
        let error = (batch.checked_sub(1))
            .and_then(|kept| kept.checked_mul(u64::try_from(slots).ok()?))
            .and_then(|error| i64::try_from(error).ok());
        assert!(error.is_some(), "a batch of {batch} for {slots} slots");
        counter
    }

    /// Adds `n`, which may be negative, on behalf of `slot`. Wait-free; two plain memory operations, and now and then an atomic
    /// one on a shared line. A slot must have one writer at a time (two lose counts, nothing worse).
    ///
    /// # Panics
    /// If `slot` is out of range.
    #[inline]
    pub fn add(&self, slot: usize, n: i64) {
        let local = &self.locals[slot];
        // Relaxed, here and below: one writer, and a reader is promised a distance, not an order.
        let sum = local.load(Ordering::Relaxed).cast_signed();
        let sum = sum.wrapping_add(n);
        if sum.unsigned_abs() < self.batch {
            local.store(sum.cast_unsigned(), Ordering::Relaxed);
        } else {
            self.fold(local, sum);
        }
    }

    #[cold]
    #[inline(never)]
    fn fold(&self, local: &AtomicU64, sum: i64) {
        // First to the total, then out of the slot: `sum` may see it twice, never not at all.
        self.total.fetch_add(sum.cast_unsigned(), Ordering::Relaxed);
        local.store(0, Ordering::Release); // pairs with Acquire in `sum`
    }

    /// The value, off by at most [`error_max`](Self::error_max) from what it was at some moment between what happened before the
    /// call and the end of the call. Wait-free: one load.
    #[inline]
    pub fn approximate(&self) -> i64 {
        self.total.load(Ordering::Relaxed).cast_signed()
    }

    /// How far [`approximate`](Self::approximate) may be off, either way: what all slots may hold back.
    pub fn error_max(&self) -> u64 {
        // Checked in `new`. Widening: usize to u64.
        self.locals.len() as u64 * (self.batch - 1)
    }

    /// The total and what the slots hold back. Exact while no thread adds; a batch that is folded during the call may count twice, so that
    /// of a value that is being raised it says rather too much. Reads a line of each slot.
    pub fn sum(&self) -> i64 {
        let read = |local: &CachePadded<AtomicU64>| local.load(Ordering::Acquire); // pairs with Release in `fold`
        let held_back = self.locals.iter().map(read).fold(0, u64::wrapping_add);
        let total = self.total.load(Ordering::Relaxed);
        total.wrapping_add(held_back).cast_signed()
    }

    /// Whether the value is above `limit`: by [`approximate`](Self::approximate) where that is certain, else by [`sum`](Self::sum).
    #[inline]
    pub fn exceeds(&self, limit: i64) -> bool {
        let (near, error) = (self.approximate(), self.error_max());
        if near.abs_diff(limit) > error {
            near > limit
        } else {
            self.sum() > limit
        }
    }
}
