//! The backlog of a lock: a thread that finds the lock held leaves its work with the holder, and goes on.
//!
//! The work itself lies elsewhere: in a [`ring`](crate::ring) for each thread that leaves any, say, whose reading end the lock guards. Here is
//! the flag by which both sides find each other:
//!
//! * A thread that has work tries the lock. If it is held: publish the work, then [`leave`](Backlog::leave), which tries once more.
//! * The holder, however it came by the lock, asks [`take`](Backlog::take), and does all that was left if the answer is yes.
//! * A thread that has unlocked calls [`look`](Backlog::look), each time. One that is not in a position to do the work sees that another
//!   calls it.
//!
//! Guarantees:
//! * No work is stranded: of a `leave` and the `look` after an unlock one comes first. Either `leave` finds the lock free, or `look` finds the
//!   work; and a thread that fails to get the lock knows that it has a holder, which will look after that.
//! * Every operation is wait-free; no thread waits for the lock, so none queues up for it either.
//! * What was published before a `leave` is visible to the thread that takes it. What one thread leaves is taken in its order, if it does what it left
//!   (`take`) before what it has in its hands when it finds the lock free.
//! * `look` is a fence, a load and a branch while nothing was left. `leave` is an exchange and a fence.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::{
    operations::{Operation, count},
    sync::{AtomicU32, Ordering, fence},
};

/// Whether work was left with the holder of a lock.
#[derive(Debug)]
pub struct Backlog(AtomicU32);

impl Default for Backlog {
    fn default() -> Self {
        Self::new()
    }
}

impl Backlog {
    /// With nothing in it.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// As above: loom's atomics are not constants.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Work was published for the holder of the lock. `Some`: there was none, the lock is the caller's now. `None`: the holder will do it.
    #[inline]
    pub fn leave<G>(&self, try_lock: impl FnOnce() -> Option<G>) -> Option<G> {
        count(Operation::Rmw, 1);
        // Release pairs with Acquire in `take`. An exchange, not a store: where several leave work, the one that takes it sees what all of them published.
        self.0.swap(1, Ordering::Release);
        // Partner: the fence in `look`. Between the flag and our second try.
        fence(Ordering::SeqCst);
        try_lock()
    }

    /// For the holder: whether work was left. Then it is the holder's to do, all of it.
    #[inline]
    pub fn take(&self) -> bool {
        self.is_waiting() && self.take_flag()
    }

    #[inline(never)]
    fn take_flag(&self) -> bool {
        count(Operation::Rmw, 1);
        // Acquire pairs with Release in `leave`.
        self.0.swap(0, Ordering::Acquire) != 0
    }

    /// After an unlock. `Some`: work was left meanwhile, and the lock is the caller's again.
    #[inline]
    pub fn look<G>(&self, try_lock: impl FnOnce() -> Option<G>) -> Option<G> {
        // Partner: the fence in `leave`. Between the unlock and our look at the flag.
        fence(Ordering::SeqCst);
        if self.is_waiting() { try_lock() } else { None }
    }

    /// Whether work waits, as of a moment ago.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        // Relaxed: what decides is ordered by the fences, or by the lock.
        self.0.load(Ordering::Relaxed) != 0
    }
}
