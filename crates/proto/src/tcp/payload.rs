//! Received text as the protocol sees it, and where it is kept.

use alloc::vec::Vec;

/// What the stack needs to know of a received segment's text.
pub trait Payload: Sized {
    /// Where text is kept that would hold too much memory in what it came in.
    type Shelf: Shelf<Self> + core::fmt::Debug;
    /// Bytes of text.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Forgets the first `n` bytes; `n <= len()`.
    fn trim_front(&mut self, n: usize);
    /// Keeps the first `len` bytes.
    fn truncate(&mut self, len: usize);
    /// Bytes of memory that it holds, however short its text is now: the same from beginning to end.
    fn memory(&self) -> usize;
    /// Copies the text of `next` behind its own if there is room, so that small segments do not
    /// hold a buffer each. False, and nothing changed, if not.
    fn try_append(&mut self, _next: &Self) -> bool {
        false
    }
    /// Bytes of memory that it will hold on the shelf, where that is less.
    fn memory_kept(&self) -> usize {
        self.memory()
    }
}

/// Why text is kept: how much may be done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Its connection has nothing to read: there is always a place, if for the beginning of the text only.
    First,
    /// Next in order.
    InOrder,
    /// Behind a gap.
    Behind,
}

/// Places for received text beside the memory in which it came in, which others need.
pub trait Shelf<P> {
    /// Whether anything finds a place as it came.
    fn is_roomy(&self) -> bool;
    /// A place for what is kept as it came, if it is one of those that are: nearly all.
    fn keep_as_it_came(&mut self, payload: &P, why: Keep, little: bool) -> Option<u8>;
    /// Finds a place for what is kept for long: as it came or in less memory, and if it is the first or is to hold `little`, maybe without its
    /// end. With the place that it takes; `None`: there is none.
    fn keep(&mut self, payload: P, why: Keep, little: bool) -> Option<(P, u8)>;
    /// What took this place is gone.
    fn free(&mut self, place: u8);
}

/// The shelf of payloads that stay where they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoShelf;

impl<P> Shelf<P> for NoShelf {
    #[inline]
    fn is_roomy(&self) -> bool {
        true
    }
    #[inline]
    fn keep_as_it_came(&mut self, _payload: &P, _why: Keep, _little: bool) -> Option<u8> {
        Some(0)
    }
    #[inline]
    fn keep(&mut self, payload: P, _why: Keep, _little: bool) -> Option<(P, u8)> {
        Some((payload, 0))
    }
    #[inline]
    fn free(&mut self, _place: u8) {}
}

impl Payload for Vec<u8> {
    type Shelf = NoShelf;
    fn len(&self) -> usize {
        self.len()
    }
    fn trim_front(&mut self, n: usize) {
        self.drain(..n.min(self.len()));
    }
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
    fn memory(&self) -> usize {
        self.capacity()
    }
    fn try_append(&mut self, next: &Self) -> bool {
        let fits = self.len() + next.len() <= self.capacity();
        if fits {
            self.extend_from_slice(next);
        }
        fits
    }
}
