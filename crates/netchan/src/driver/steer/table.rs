//! From a flow's hash to its shard.

use std::io;

use percore::lines::{Line, Lines};

/// Flows of one bucket.
const WAYS: usize = 6;

/// From a flow's hash to a shard: buckets of a cache line each, six flows in it.
///
/// The 64-bit keyed hash stands for the flow (two flows of a million collide with a probability of 3·10⁻⁸, and then one of them
/// meets a shard that does not know it); the shard compares the whole key. A flow is looked for in one line, without a branch
/// that depends on where in it; with two flows to a bucket on average, one in 200 is full and sends a flow to the next.
/// What grows with the number of flows is the cache misses; a caller with many to look for prefetches.
#[derive(Debug)]
pub struct FlowTable {
    /// Words 0 to 5: hashes, 0 for none. 6 and the low half of 7: their shards. The high half of 7: how many flows found this bucket
    /// full and live further on.
    buckets: Lines,
    mask: usize,
    len: usize,
    capacity: usize,
}

impl FlowTable {
    /// A table for `capacity` flows: 32 bytes of address space for each, touched only when used.
    ///
    /// # Errors
    /// When the machine has no address space for it.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let buckets = capacity.div_ceil(2).next_power_of_two().max(2);
        Ok(Self {
            buckets: Lines::new(buckets)?,
            mask: buckets - 1,
            len: 0,
            capacity,
        })
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // only the low bits choose the bucket
    const fn home(&self, hash: u64) -> usize {
        (hash >> 16) as usize & self.mask
    }

    /// Has the processor fetch a flow's bucket, for a `get` soon to come.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.buckets.prefetch(self.home(hash));
    }

    /// The shard of a flow.
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u16> {
        let mut at = self.home(hash);
        let buckets = self.buckets.as_slice();
        for _ in 0..buckets.len() {
            let bucket = buckets.get(at)?;
            if let Some(way) = way_of(bucket, hash) {
                return Some(shard_in(bucket, way));
            }
            if passed(bucket) == 0 {
                return None;
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Puts a flow into the table or changes its shard; false when it is full.
    pub fn insert(&mut self, hash: u64, shard: u16) -> bool {
        if let Some(at) = self.find(hash) {
            let bucket = &mut self.buckets.as_mut_slice()[at];
            if let Some(way) = way_of(bucket, hash) {
                set_shard(bucket, way, shard);
            }
            return true;
        }
        if self.len == self.capacity {
            return false;
        }
        let mut at = self.home(hash);
        let mask = self.mask;
        let buckets = self.buckets.as_mut_slice();
        // There is room: three times as many places as flows.
        loop {
            let bucket = &mut buckets[at];
            if let Some(way) = way_of(bucket, 0) {
                bucket[way] = hash;
                set_shard(bucket, way, shard);
                self.len += 1;
                return true;
            }
            bucket[7] += 1 << 32;
            at = (at + 1) & mask;
        }
    }

    /// Takes a flow out; false if it is not there.
    pub fn remove(&mut self, hash: u64) -> bool {
        let Some(found) = self.find(hash) else {
            return false;
        };
        let mut at = self.home(hash);
        let mask = self.mask;
        let buckets = self.buckets.as_mut_slice();
        while at != found {
            buckets[at][7] -= 1 << 32; // it had passed here
            at = (at + 1) & mask;
        }
        if let Some(way) = way_of(&buckets[at], hash) {
            buckets[at][way] = 0;
        }
        self.len -= 1;
        true
    }

    /// The bucket where a flow is.
    fn find(&self, hash: u64) -> Option<usize> {
        let mut at = self.home(hash);
        let buckets = self.buckets.as_slice();
        for _ in 0..buckets.len() {
            if way_of(&buckets[at], hash).is_some() {
                return Some(at);
            }
            if passed(&buckets[at]) == 0 {
                return None;
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Number of flows.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Which of a bucket's words is `hash`.
#[inline(always)]
fn way_of(bucket: &Line, hash: u64) -> Option<usize> {
    let mut found = 0_u32;
    for (way, word) in bucket[..WAYS].iter().enumerate() {
        found |= u32::from(*word == hash) << way;
    }
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// How many flows found this bucket full.
#[inline(always)]
const fn passed(bucket: &Line) -> u64 {
    bucket[7] >> 32
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // 16 bits are meant
const fn shard_in(bucket: &Line, way: usize) -> u16 {
    (bucket[6 + way / 4] >> (way % 4 * 16)) as u16
}

fn set_shard(bucket: &mut Line, way: usize, shard: u16) {
    let (word, shift) = (6 + way / 4, way % 4 * 16);
    bucket[word] = bucket[word] & !(0xffff << shift) | u64::from(shard) << shift;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_map_under_random_changes() {
        let mut table = FlowTable::new(200).expect("memory");
        let mut model = std::collections::HashMap::new();
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for step in 0..200_000_u32 {
            let shard = u16::try_from(step % 60_000).unwrap_or(0);
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            // Few home buckets, so that they fill and flows pass on.
            let hash = ((x % 300) << 12) | 1;
            if step % 3 == 0 {
                assert_eq!(table.remove(hash), model.remove(&hash).is_some());
            } else if table.insert(hash, shard) {
                model.insert(hash, shard);
            } else {
                assert!(model.len() == 200 && !model.contains_key(&hash));
            }
            assert_eq!(table.len(), model.len());
            assert_eq!(table.is_empty(), model.is_empty());
            assert_eq!(table.get(hash), model.get(&hash).copied());
        }
        // A flow that passes by a full bucket is counted there, until it goes: an empty table sends none on.
        assert!(table.buckets.as_slice().iter().any(|b| passed(b) > 0));
        for hash in model.into_keys() {
            assert!(table.remove(hash));
        }
        assert!(table.buckets.as_slice().iter().all(|b| passed(b) == 0));
    }
}
