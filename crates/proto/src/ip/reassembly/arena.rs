//! Memory for fragments: chunks of equal size, taken once, handed out as chains.

use alloc::vec::Vec;

/// Octets in a chunk. 256: a fragment of 1480 octets takes six and wastes 56, one of 8 holds no more than eight times what was sent.
pub(super) const CHUNK: usize = 256;

const NONE: u32 = u32::MAX;

/// A chain of chunks; belongs to the arena that gave it, and must go back to it.
#[derive(Debug)]
pub(super) struct Chain {
    first: u32,
    len: u32,
}

impl Chain {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        len: 0,
    };

    /// Octets stored.
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }
}

pub(super) struct Arena {
    bytes: Vec<u8>,
    next: Vec<u32>,
    free: u32,
    free_chunks: usize,
}

impl Arena {
    /// An arena of at least `bytes` octets.
    pub(super) fn new(bytes: usize) -> Self {
        let chunks = bytes.div_ceil(CHUNK).clamp(1, 1 << 24);
        let last = u32::try_from(chunks).unwrap_or(0);
        let mut next: Vec<u32> = (1..=last).collect();
        if let Some(end) = next.last_mut() {
            *end = NONE;
        }
        Self {
            bytes: alloc::vec![0; chunks * CHUNK],
            next,
            free: 0,
            free_chunks: chunks,
        }
    }

    pub(super) const fn free_bytes(&self) -> usize {
        self.free_chunks * CHUNK
    }

    /// Stores `data`; `None` when there is not room for all of it.
    pub(super) fn store(&mut self, data: &[u8]) -> Option<Chain> {
        let len = u32::try_from(data.len()).ok()?;
        if data.len().div_ceil(CHUNK) > self.free_chunks {
            return None;
        }
        let mut chain = Chain { first: NONE, len };
        let mut previous = NONE;
        for part in data.chunks(CHUNK) {
            let at = self.free;
            self.free = self.next[at as usize];
            self.free_chunks -= 1;
            self.next[at as usize] = NONE;
            let start = at as usize * CHUNK;
            self.bytes[start..start + part.len()].copy_from_slice(part);
            if previous == NONE {
                chain.first = at;
            } else {
                self.next[previous as usize] = at;
            }
            previous = at;
        }
        Some(chain)
    }

    /// What is stored, piece by piece.
    fn parts(&self, chain: &Chain) -> impl Iterator<Item = &[u8]> {
        let (mut at, mut left) = (chain.first, chain.len());
        core::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let start = at as usize * CHUNK;
            let here = left.min(CHUNK);
            at = self.next[at as usize];
            left -= here;
            Some(&self.bytes[start..start + here])
        })
    }

    /// Copies what is stored to the front of `out`, as far as it fits; returns how much.
    pub(super) fn copy_out(&self, chain: &Chain, out: &mut [u8]) -> usize {
        let mut done = 0;
        for part in self.parts(chain) {
            let Some(place) = out.get_mut(done..) else {
                break;
            };
            let here = part.len().min(place.len());
            place[..here].copy_from_slice(&part[..here]);
            done += here;
        }
        done
    }

    /// Whether exactly `data` is stored.
    pub(super) fn holds(&self, chain: &Chain, data: &[u8]) -> bool {
        chain.len() == data.len()
            && self
                .parts(chain)
                .zip(data.chunks(CHUNK))
                .all(|(a, b)| a == b)
    }

    /// Takes a chain back.
    pub(super) fn release(&mut self, chain: Chain) {
        let mut at = chain.first;
        while at != NONE {
            let next = self.next[at as usize];
            self.next[at as usize] = self.free;
            self.free = at;
            self.free_chunks += 1;
            at = next;
        }
    }
}
