//! How two sides agree on the stream in a slot: a word of each, which only it writes.
//!
//! A word is a generation and a phase. The side whose slot it is counts the generation up with each offer; the other one repeats it.
//!
//! ```text
//! offering side:   FREE ──► OPEN(g) ──► FREE(g) ──► OPEN(g+1)
//! accepting side:           OPEN(g) ──► FREE(g)
//! ```

use crate::sync::{AtomicU32, Ordering, fence};

/// The lowest bit of a word: the side has an end of the stream.
const OPEN: u32 = 1;

const fn word(generation: u32, phase: u32) -> u32 {
    generation << 1 | phase
}

/// The generation that the offering side may offer next: it has no end itself, and the other side none of an earlier stream.
pub(super) fn next(own: &AtomicU32, far: &AtomicU32) -> Option<u32> {
    // Relaxed: our own word.
    let ours = own.load(Ordering::Relaxed);
    // Partner: the fence in `accept`. Either we see that the other side has accepted what we let go of, or it sees that we have.
    fence(Ordering::SeqCst);
    // Acquire pairs with Release in `let_go`: what the other side did with its end came before.
    let theirs = far.load(Ordering::Acquire);
    let is_free = ours & OPEN == 0 && theirs & OPEN == 0;
    is_free.then(|| (ours >> 1).wrapping_add(1) & (u32::MAX >> 1))
}

/// Offers a stream, once the slot is made ready for it.
pub(super) fn offer(own: &AtomicU32, generation: u32) {
    own.store(word(generation, OPEN), Ordering::Release); // pairs with Acquire in `offered`
}

/// Whether this side has, or had, an end of a stream that the other side offers: it never has another one.
pub(super) fn is_answered(own: &AtomicU32, generation: u32) -> bool {
    own.load(Ordering::Relaxed) >> 1 == generation // our own word; the first offer's generation is 1
}

/// The stream that the other side offers.
pub(super) fn offered(far: &AtomicU32) -> Option<u32> {
    let theirs = far.load(Ordering::Acquire); // pairs with Release in `offer`
    (theirs & OPEN != 0).then_some(theirs >> 1)
}

/// Accepts a stream; false: it is not offered any more. The caller has no end in this slot.
pub(super) fn accept(own: &AtomicU32, far: &AtomicU32, generation: u32) -> bool {
    own.store(word(generation, OPEN), Ordering::Release); // pairs with Acquire in `accepted`
    // Partner: the fence in `next`.
    fence(Ordering::SeqCst);
    if offered(far) == Some(generation) {
        return true;
    }
    let_go(own, generation);
    false
}

/// Whether the other side has an end of a stream that this side has an end of; `None`: it never had.
#[inline]
pub(super) fn accepted(far: &AtomicU32, generation: u32) -> Option<bool> {
    let theirs = far.load(Ordering::Acquire); // pairs with Release in `accept` and `let_go`
    (theirs >> 1 == generation).then_some(theirs & OPEN != 0)
}

/// This side has no end of the stream any more.
pub(super) fn let_go(own: &AtomicU32, generation: u32) {
    own.store(word(generation, 0), Ordering::Release); // pairs with Acquire in `next` and `accepted`
}
