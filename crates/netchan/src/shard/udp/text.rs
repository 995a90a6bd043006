//! The payload of a datagram where a program has it.

use std::io::IoSlice;

use proto::wire::checksum::{Partial, combine, copy_and_sum};

/// What a program's buffers hold, read from front to back.
pub(in crate::shard) struct Text<'a, 'b> {
    buffers: &'a [IoSlice<'b>],
    /// Bytes of the first one that are read already.
    at: usize,
}

impl<'a, 'b> Text<'a, 'b> {
    pub(in crate::shard) const fn new(buffers: &'a [IoSlice<'b>]) -> Self {
        Self { buffers, at: 0 }
    }

    pub(in crate::shard) fn len(&self) -> usize {
        let all: usize = self.buffers.iter().map(|buffer| buffer.len()).sum();
        all - self.at
    }

    /// Copies all of it, of which nothing was read yet, to `to`, which is as long.
    pub(in crate::shard) fn copy_unsummed(&self, mut to: &mut [u8]) {
        for buffer in self.buffers {
            let (place, rest) = to.split_at_mut(buffer.len().min(to.len()));
            place.copy_from_slice(&buffer[..place.len()]);
            to = rest;
        }
    }

    /// Copies as much as `to` takes; its sum.
    pub(super) fn copy_to(&mut self, to: &mut [u8]) -> Partial {
        let (mut done, mut sum) = (0, Partial::default());
        while let Some((first, others)) = self.buffers.split_first() {
            let rest = first.get(self.at..).unwrap_or_default();
            let n = rest.len().min(to.len() - done);
            sum = combine(sum, done, copy_and_sum(&rest[..n], &mut to[done..done + n]));
            done += n;
            if n < rest.len() {
                self.at += n;
                break;
            }
            (self.buffers, self.at) = (others, 0);
        }
        sum
    }
}
