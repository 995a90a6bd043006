//! A keyed hash, and a map of fixed size on top of it: what every table that an untrusted peer can fill is
//! made of. Nothing here allocates after construction; a full map gives up its least useful entry.

use alloc::vec::Vec;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;

/// The secret of one table's hash. Without it no sender can aim at a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

impl Seed {
    /// A seed for another purpose: equal inputs under two purposes have unrelated hashes.
    #[must_use]
    pub fn derive(self, purpose: u64) -> Self {
        let bytes = purpose.to_le_bytes();
        Self([self.hash(&bytes), self.hash(&(!purpose).to_le_bytes())])
    }

    /// SipHash-1-3 of `bytes`.
    #[must_use]
    pub fn hash(self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.0[0], self.0[1]).hash(bytes)
    }

    /// The hash of an address; the two families never share an input (4 and 16 octets).
    #[must_use]
    pub fn hash_ip(self, ip: IpAddr) -> u64 {
        match ip {
            IpAddr::V4(ip) => self.hash(&ip.octets()),
            IpAddr::V6(ip) => self.hash(&ip.octets()),
        }
    }
}

/// A small generator for timers' spread and for jitter; not for secrets.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed; the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self(seed.hash(b"random"))
    }

    /// The next number (SplitMix64).
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by multiplication; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

/// What a [`Map`] is keyed by.
pub(crate) trait Key: Copy + Eq {
    /// The keyed hash of this key.
    fn digest(&self, seed: Seed) -> u64;
}

impl Key for IpAddr {
    fn digest(&self, seed: Seed) -> u64 {
        seed.hash_ip(*self)
    }
}

/// The low half of a hash.
#[allow(clippy::cast_possible_truncation)] // the other half is not needed
const fn low(hash: u64) -> u32 {
    hash as u32
}

const EMPTY: u32 = u32::MAX;

/// Open addressing with linear probing, at most half full, so that every probe ends.
struct Index {
    slots: Vec<(u32, u32)>, // (hash, item or EMPTY)
    mask: usize,
}

impl Index {
    fn new(capacity: usize) -> Self {
        let size = (capacity.max(1) * 2).next_power_of_two();
        Self {
            slots: alloc::vec![(0, EMPTY); size],
            mask: size - 1,
        }
    }

    const fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask
    }

    fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let (h, item) = self.slots[at];
            if item == EMPTY {
                return None;
            }
            if h == hash && is(item) {
                return Some(item);
            }
            at = (at + 1) & self.mask;
        }
    }

    fn insert(&mut self, hash: u32, item: u32) {
        let mut at = self.home(hash);
        while self.slots[at].1 != EMPTY {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = (hash, item);
    }

    /// Removes by shifting back what would no longer be found; no tombstones, so floods leave
    /// nothing behind.
    fn remove(&mut self, hash: u32, item: u32) {
        let mut hole = self.home(hash);
        while self.slots[hole].1 != item {
            if self.slots[hole].1 == EMPTY {
                return;
            }
            hole = (hole + 1) & self.mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let (h, other) = self.slots[at];
            if other == EMPTY {
                break;
            }
            let from_home = at.wrapping_sub(self.home(h)) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.slots[hole] = (h, other);
                hole = at;
            }
        }
        self.slots[hole].1 = EMPTY;
    }
}

struct Item<K, V> {
    key: K,
    hash: u32,
    value: V,
}

/// How many entries an eviction looks at: sampled least-recently-used, at a cost that a flood
/// cannot raise.
const SAMPLE: usize = 16;
/// How many it looks at before it says that nothing may go; the next attempt goes on from there.
const SAMPLE_MAX: usize = 256;

/// A map with a fixed number of places. Places are numbered and stay put while their entry lives.
pub(crate) struct Map<K, V> {
    seed: Seed,
    index: Index,
    items: Vec<Option<Item<K, V>>>,
    free: Vec<u32>,
    hand: usize,
}

impl<K: Key, V> Map<K, V> {
    /// Room for `capacity` entries (at least 1, at most 2³⁰).
    pub(crate) fn new(capacity: usize, seed: Seed) -> Self {
        let capacity = capacity.clamp(1, 1 << 30);
        let last = u32::try_from(capacity).unwrap_or(0);
        let mut items = Vec::new();
        items.resize_with(capacity, || None);
        Self {
            seed,
            index: Index::new(capacity),
            items,
            free: (0..last).rev().collect(),
            hand: 0,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// The place of `key`.
    pub(crate) fn find(&self, key: &K) -> Option<u32> {
        let is = |at: u32| matches!(&self.items[at as usize], Some(item) if item.key == *key);
        self.index.find(low(key.digest(self.seed)), is)
    }

    /// What lives in a place.
    pub(crate) fn at(&self, place: u32) -> Option<(&K, &V)> {
        let item = self.items.get(place as usize)?.as_ref()?;
        Some((&item.key, &item.value))
    }

    /// What lives in a place, to change it.
    #[inline]
    pub(crate) fn at_mut(&mut self, place: u32) -> Option<(&K, &mut V)> {
        let item = self.items.get_mut(place as usize)?.as_mut()?;
        Some((&item.key, &mut item.value))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.at(self.find(key)?).map(|(_, v)| v)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.at_mut(self.find(key)?).map(|(_, v)| v)
    }

    /// Puts a key that is not there. When full, the entry of lowest `rank` among a sample goes
    /// (`None`: may not go); `None` is returned when nothing may. The caller must have checked that
    /// `key` is absent.
    pub(crate) fn insert(
        &mut self,
        key: K,
        value: V,
        rank: impl Fn(&K, &V) -> Option<u64>,
    ) -> Option<u32> {
        if self.free.is_empty() {
            let victim = self.victim(rank)?;
            self.remove(victim);
        }
        let place = self.free.pop()?;
        let hash = low(key.digest(self.seed));
        self.index.insert(hash, place);
        self.items[place as usize] = Some(Item { key, hash, value });
        Some(place)
    }

    /// Empties a place.
    pub(crate) fn remove(&mut self, place: u32) -> Option<(K, V)> {
        let item = self.items.get_mut(place as usize)?.take()?;
        self.index.remove(item.hash, place);
        self.free.push(place);
        Some((item.key, item.value))
    }

    /// Empties every place.
    pub(crate) fn clear(&mut self) {
        for place in 0..u32::try_from(self.items.len()).unwrap_or(0) {
            self.remove(place);
        }
    }

    /// The least useful of a sample; a hand walks round so that every entry has its turn. Looks
    /// further than the sample only while it has found nothing.
    fn victim(&mut self, rank: impl Fn(&K, &V) -> Option<u64>) -> Option<u32> {
        let mut best: Option<(u64, usize)> = None;
        for step in 0..self.items.len().min(SAMPLE_MAX) {
            if step >= SAMPLE && best.is_some() {
                break;
            }
            let at = self.hand;
            self.hand = (self.hand + 1) % self.items.len();
            let Some(item) = &self.items[at] else {
                continue;
            };
            if let Some(r) = rank(&item.key, &item.value)
                && best.is_none_or(|(b, _)| r < b)
            {
                best = Some((r, at));
            }
        }
        best.and_then(|(_, at)| u32::try_from(at).ok())
    }

    /// All entries, in order of place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.items
            .iter()
            .flatten()
            .map(|item| (&item.key, &item.value))
    }
}

#[cfg(test)]
#[path = "keyed_tests.rs"]
mod tests;
