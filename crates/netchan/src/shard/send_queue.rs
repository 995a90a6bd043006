//! A stream's send queue: bytes from the first unacknowledged one on. Its memory is lent by the shard while there are any.

use std::io::IoSlice;

use proto::wire::checksum::{Partial, combine, copy_and_sum};

/// Buffers of equal size that idle queues have given back.
#[derive(Debug)]
pub struct SendMemory {
    free: Vec<Box<[u8]>>,
    size: usize,
    keep: usize,
}

impl SendMemory {
    /// Buffers of `size` bytes (rounded up to a power of two); the first `keep` are made now (their pages touched when used), and `keep` are kept.
    pub fn new(size: usize, keep: usize) -> Self {
        let size = size.next_power_of_two();
        Self {
            free: (0..keep)
                .map(|_| vec![0; size].into_boxed_slice())
                .collect(),
            size,
            keep,
        }
    }

    fn take(&mut self) -> Box<[u8]> {
        self.free
            .pop()
            .unwrap_or_else(|| vec![0; self.size].into_boxed_slice())
    }

    fn give(&mut self, memory: Box<[u8]>) {
        if memory.len() == self.size && self.free.len() < self.keep {
            self.free.push(memory);
        }
    }
}

/// A ring of bytes, as large as it needs to be; empty ones hold no memory.
#[derive(Debug, Default)]
pub struct SendQueue {
    memory: Option<Box<[u8]>>,
    /// Below 4 GiB, both: so are send buffers.
    head: u32,
    len: u32,
}

/// As far as rings reach.
#[allow(clippy::cast_possible_truncation)]
const fn narrow(n: usize) -> u32 {
    n as u32
}

impl SendQueue {
    /// Bytes in it.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Appends `buffers`, and at most `most` bytes of them; returns how many.
    #[inline]
    pub fn append(
        &mut self,
        buffers: &[IoSlice<'_>],
        memory: &mut SendMemory,
        most: usize,
    ) -> usize {
        let mut taken = 0;
        for buffer in buffers {
            let n = self.append_one(buffer, memory, most - taken);
            taken += n;
            if n < buffer.len() {
                break;
            }
        }
        taken
    }

    #[inline]
    fn append_one(&mut self, bytes: &[u8], memory: &mut SendMemory, most: usize) -> usize {
        if bytes.is_empty() || most == 0 {
            return 0;
        }
        let n = bytes.len().min(most);
        let needed = self.len() + n;
        let ring = self.memory.get_or_insert_with(|| memory.take());
        if needed > ring.len() {
            self.grow(needed);
        }
        let ring = self.memory.get_or_insert_with(|| memory.take());
        let tail = (self.head as usize + self.len as usize) & (ring.len() - 1);
        let first = n.min(ring.len() - tail);
        ring[tail..tail + first].copy_from_slice(&bytes[..first]);
        if first < n {
            ring[..n - first].copy_from_slice(&bytes[first..n]);
        }
        self.len = narrow(needed);
        n
    }

    /// Moves to a larger ring, which holds `needed` bytes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, needed: usize) {
        let mut ring = vec![0; needed.next_power_of_two()].into_boxed_slice();
        if let Some((text, _)) = ring.split_at_mut_checked(self.len()) {
            self.copy_out(0, text);
        }
        self.memory = Some(ring);
        self.head = 0;
    }

    /// Drops `n` bytes from the front (at most all); the memory goes back once it is empty. How many they were.
    #[inline]
    pub fn advance(&mut self, n: usize, memory: &mut SendMemory) -> usize {
        let n = n.min(self.len());
        self.len -= narrow(n);
        if self.len == 0 {
            self.head = 0;
            if let Some(ring) = self.memory.take() {
                memory.give(ring);
            }
        } else if let Some(ring) = &self.memory {
            self.head = narrow((self.head as usize + n) & (ring.len() - 1));
        }
        n
    }

    /// Copies bytes from `offset` on to fill `to`; `None` if there are not so many.
    #[inline]
    pub fn copy_out_unsummed(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        if to.is_empty() {
            return Some(());
        }
        if offset.checked_add(to.len())? > self.len() {
            return None;
        }
        let ring = self.memory.as_deref()?;
        let start = (self.head as usize + offset) & (ring.len() - 1);
        let first = to.len().min(ring.len() - start);
        let (front, back) = to.split_at_mut(first);
        front.copy_from_slice(&ring[start..start + first]);
        back.copy_from_slice(&ring[..back.len()]);
        Some(())
    }

    /// Copies bytes from `offset` on to fill `to`, with their checksum; `None` if there are not so many.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Option<Partial> {
        if to.is_empty() {
            return Some(Partial::default());
        }
        if offset.checked_add(to.len())? > self.len() {
            return None;
        }
        let ring = self.memory.as_deref()?;
        let start = (self.head as usize + offset) & (ring.len() - 1);
        let first = to.len().min(ring.len() - start);
        let (front, back) = to.split_at_mut(first);
        let sum = copy_and_sum(&ring[start..start + first], front);
        if back.is_empty() {
            return Some(sum);
        }
        Some(combine(sum, first, copy_and_sum(&ring[..back.len()], back)))
    }
}
