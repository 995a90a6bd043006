//! How a writer that has no room hears of some: a flag in a word of its own, and a fence on each side.

use crate::sync::{AtomicU32, Ordering, fence};

/// The writer waits for room.
pub(super) const WAITS: u32 = 1 << 2;

/// The writer waits; `flags` is what else it says. It looks for room once more after this.
pub(super) fn ask(word: &AtomicU32, flags: u32) {
    word.store(flags | WAITS, Ordering::Release); // pairs with Acquire in `is_awaited`
    // Partner: the fence in `is_awaited`. Either the writer sees the room that was made, or the reader sees that it waits.
    fence(Ordering::SeqCst);
}

/// For the reader that has made room: whether the writer waits for it.
#[inline]
pub(super) fn is_awaited(word: &AtomicU32) -> bool {
    fence(Ordering::SeqCst); // partner: the fence in `ask`
    word.load(Ordering::Acquire) & WAITS != 0 // pairs with Release in `ask`
}
