//! Packets as payload of TCP: what a connection keeps of them.

use proto::tcp::Payload;

use crate::{
    packet::Packet,
    shelf::{Shelf, size_kept},
};

impl Payload for Packet {
    type Shelf = Shelf;
    #[inline]
    fn len(&self) -> usize {
        Self::len(self)
    }
    #[inline]
    fn trim_front(&mut self, n: usize) {
        self.pull(n);
    }
    #[inline]
    fn truncate(&mut self, len: usize) {
        Self::truncate(self, len);
    }
    #[inline]
    fn memory(&self) -> usize {
        self.true_size()
    }
    #[inline]
    fn try_append(&mut self, next: &Self) -> bool {
        Self::try_append(self, next)
    }
    #[inline]
    fn memory_kept(&self) -> usize {
        size_kept(self.len(), self.true_size())
    }
}
