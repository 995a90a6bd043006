//! Per-core counters: one writer for each slot, any number of readers, no locked instruction.

/// `N` counters for each of a fixed number of slots; a slot has one writer at a time.
#[derive(Debug)]
pub struct PerCore<const N: usize> {}

impl<const N: usize> PerCore<N> {
    /// Counters for `slots` writers.
    pub fn new(slots: usize) -> Self {
        let _ = slots;
        unimplemented!()
    }

    /// Adds `n` to counter `index` of `slot`; plain load and store, so a slot must have one writer at a time
    /// (two writers lose counts, nothing worse).
    pub fn add(&self, slot: usize, index: usize, n: u64) {
        let _ = (slot, index, n);
        unimplemented!()
    }

    /// The sum over all slots.
    pub fn read(&self, index: usize) -> u64 {
        let _ = index;
        unimplemented!()
    }
}
