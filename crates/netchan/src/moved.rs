//! Where connections live that moved to another shard than the one by which they came in. Classifiers hear of a move, but a shard may get packets of the
//! connection still: those that were under way to it, and those of a classifier whose table is full.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use percore::lock::{Mutex, mutex};

use crate::{flow::FlowKey, locks};

/// Apart by their flows' short hashes: so that shards which look for flows that no shard knows (SYNs, mostly) hardly ever meet at one lock.
const PARTS: usize = 64;

/// The shards of connections that moved, until their flows end (TIME-WAIT included).
#[derive(Debug)]
pub struct Moved([Part; PARTS]);

#[derive(Debug)]
#[repr(align(64))] // a cache line of its own
struct Part {
    /// How many there are: a look into an empty one takes no lock.
    count: AtomicUsize,
    /// Made by the first one.
    shards: Mutex<Option<HashMap<FlowKey, usize>>>,
}

impl Default for Moved {
    fn default() -> Self {
        Self([const { Part::new() }; PARTS])
    }
}

// Relaxed throughout: the shard that a connection comes from is held when it moves, so that the next holder of that shard sees the count. Any other shard
// gets packets of it only where a classifier's table is full.

impl Moved {
    const fn part(&self, hash: u32) -> &Part {
        &self.0[hash as usize % PARTS]
    }

    /// A connection lives in `shard` from now on. The caller holds that one and the one that it comes from.
    pub fn set(&self, hash: u32, key: &FlowKey, shard: usize) {
        self.part(hash)
            .change(|shards| _ = shards.insert(*key, shard));
    }

    /// The shard of a flow that was not found where a packet led.
    #[inline]
    pub fn shard_of(&self, hash: u32, key: &FlowKey) -> Option<usize> {
        let part = self.part(hash);
        let is_empty = part.count.load(Relaxed) == 0;
        if is_empty { None } else { part.get(key) }
    }

    /// A flow ends.
    #[inline]
    pub fn remove(&self, hash: u32, key: &FlowKey) {
        let part = self.part(hash);
        if part.count.load(Relaxed) > 0 {
            part.change(|shards| _ = shards.remove(key));
        }
    }
}

impl Part {
    const fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            shards: mutex(&locks::MOVED, None),
        }
    }

    #[cold]
    fn get(&self, key: &FlowKey) -> Option<usize> {
        self.shards.lock().as_ref()?.get(key).copied()
    }

    #[cold]
    fn change(&self, change: impl FnOnce(&mut HashMap<FlowKey, usize>)) {
        let mut shards = self.shards.lock();
        let shards = shards.get_or_insert_default();
        change(shards);
        self.count.store(shards.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_found_where_it_went_last() {
        let moved = Moved::default();
        let [one, other] =
            ["10.0.0.1", "10.0.0.3"].map(|local| FlowKey::between(local, "10.0.0.2"));
        let count = || moved.part(5).count.load(Relaxed);
        assert_eq!((moved.shard_of(5, &one), count()), (None, 0));
        moved.set(5, &one, 2);
        moved.set(5, &one, 1);
        assert_eq!((moved.shard_of(5, &one), count()), (Some(1), 1));
        assert_eq!(moved.shard_of(5, &other), None);
        moved.set(6, &other, 2);
        moved.remove(5, &other);
        assert_eq!((moved.shard_of(6, &other), count()), (Some(2), 1));
        moved.remove(5, &one);
        assert_eq!((moved.shard_of(5, &one), count()), (None, 0));
    }
}
