//! The mutex itself: its owner, its sleepers, and how they hand it over.
//!
//! A sleeper leaves a *token* in `sleepers`, makes every core see it (`barrier::heavy`), looks at the owner once more, and sleeps
//! on `gate`. An unlock clears the owner and looks for tokens: of its store and the sleeper's second look, one comes first, so either the sleeper finds
//! the mutex free or the unlock finds the token. It then takes one token, moves the gate and wakes one sleeper.
//!
//! There are never fewer tokens than threads asleep: taking a token moves the gate, so a thread that was about to sleep does not, and wakes one
//! that does. There may be more, of threads that found the gate moved: each costs one useless wake-up later, no more.

use super::{Class, thread};
use crate::{
    barrier, clock,
    sync::{AtomicU32, AtomicU64, Ordering, spin_loop},
    witness,
};
use std::time::Duration;

/// For how long to spin, in cycles of the counter: about 5 µs, what it takes to sleep and be woken
/// (`netchan lab run interrupts`, `doorbell_asleep_latency_ns`).
const SPIN_CYCLES: u64 = 12_000;
/// Looks at the owner grow apart up to this many pauses (20 to 70 ns each, by processor), so that spinning takes the lock's line from its owner less often.
const PAUSES_MAX: u32 = 2;
/// For how long to sleep where the kernel does not let us be sure of being woken.
const BRIEF: Duration = Duration::from_millis(1);
const FREE: u32 = 0;

/// Counts of one mutex, exact; all 0 if its class is not [`counted`](Class::counted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Times it was locked.
    pub acquired: u64,
    /// Of these, times that it was not free.
    pub contended: u64,
    /// [`clock::cycles`] spent waiting for it, in all.
    pub waited_cycles: u64,
}

/// The adaptive mutex without its contents.
#[derive(Debug)]
pub struct RawMutex {
    /// The owner's thread number, or `FREE`.
    owner: AtomicU32,
    /// Tokens: at least as many as there are threads asleep.
    sleepers: AtomicU32,
    gate: thread::Futex,
    class: &'static Class,
    /// The thread that had it last.
    #[cfg(feature = "operations")]
    last: AtomicU32,
    acquired: AtomicU64,
    contended: AtomicU64,
    waited_cycles: AtomicU64,
}

impl RawMutex {
    /// A free mutex of `class`.
    #[cfg(not(loom))]
    pub const fn new(class: &'static Class) -> Self {
        Self {
            owner: AtomicU32::new(FREE),
            sleepers: AtomicU32::new(0),
            gate: thread::Futex::new(),
            class,
            #[cfg(feature = "operations")]
            last: AtomicU32::new(FREE),
            acquired: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            waited_cycles: AtomicU64::new(0),
        }
    }

    /// As above: loom's atomics are not constants.
    #[cfg(loom)]
    pub fn new(class: &'static Class) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            owner: AtomicU32::new(FREE),
            sleepers: AtomicU32::new(0),
            gate: thread::Futex::new(),
            class,
            #[cfg(feature = "operations")]
            last: AtomicU32::new(FREE),
            acquired: zero(),
            contended: zero(),
            waited_cycles: zero(),
        }
    }

    /// What it counted up to now.
    pub fn stats(&self) -> Stats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            acquired: read(&self.acquired),
            contended: read(&self.contended),
            waited_cycles: read(&self.waited_cycles),
        }
    }

    /// Makes thread `me` the owner, if there is none.
    #[inline(always)]
    pub(super) fn try_acquire(&self, me: u32) -> bool {
        // Acquire pairs with Release in `release`.
        let taken = (self.owner).compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed);
        #[cfg(feature = "operations")]
        self.count_taken(me, taken.is_ok());
        if taken.is_ok() && self.class.counted {
            add(&self.acquired, 1);
        }
        taken.is_ok()
    }

    /// One exchange, and whose the lock was last.
    #[cfg(feature = "operations")]
    fn count_taken(&self, me: u32, taken: bool) {
        use crate::operations::{Operation, count};
        count(Operation::Rmw, 1);
        if taken {
            count(Operation::Lock, 1);
            if self.last.swap(me, Ordering::Relaxed) != me {
                count(Operation::LockMoved, 1);
                count(Operation::Line, 1);
            }
        }
    }

    /// Makes thread `me` the owner as soon as there is none.
    #[inline(always)]
    pub(super) fn acquire(&self, me: u32) {
        if !self.try_acquire(me) {
            self.acquire_contended(me);
        }
    }

    /// Gives it up. Only for its owner.
    #[inline(always)]
    pub(super) fn release(&self) {
        // Pairs with Acquire in `try_acquire`.
        self.owner.store(FREE, Ordering::Release);
        // Partner: the heavy one in `sleep`. Between the owner and the sleepers.
        barrier::light();
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake_one();
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_contended(&self, me: u32) {
        let owner = self.owner.load(Ordering::Relaxed);
        assert!(owner != me, "{}", witness::self_deadlock(self.class));
        crate::operations::count(crate::operations::Operation::LockContended, 1);
        let start = clock::cycles();
        while !self.spin(me) && !self.sleep(me) {}
        if self.class.counted {
            add(&self.contended, 1);
            let waited = clock::cycles().saturating_sub(start);
            add(&self.waited_cycles, waited);
        }
    }

    /// Waits actively, as long as that is worth while. True if the mutex is ours now.
    fn spin(&self, me: u32) -> bool {
        if !thread::may_spin() {
            return self.try_acquire(me);
        }
        let start = clock::cycles();
        let mut pauses = 1;
        loop {
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == FREE && self.try_acquire(me) {
                return true;
            }
            if thread::is_asleep(owner) || clock::cycles().wrapping_sub(start) > SPIN_CYCLES {
                return false;
            }
            (0..pauses).for_each(|_| spin_loop());
            pauses = PAUSES_MAX.min(2 * pauses);
        }
    }

    /// Sleeps until an unlock. True if the mutex was free after all, and is ours now.
    fn sleep(&self, me: u32) -> bool {
        // Before the token: a thread that takes the token moves the gate after that. Pairs with Release in `wake_one`.
        let gate = self.gate.0.load(Ordering::Acquire);
        self.sleepers.fetch_add(1, Ordering::Relaxed); // ordered by the barrier
        let seen = barrier::heavy(); // partner: the light one in `release`
        if self.try_acquire(me) {
            return true; // the token stays, see the module's docs
        }
        // If the barrier failed, an unlock may have missed the token: then we look again soon.
        let timeout = (!seen).then_some(BRIEF);
        thread::asleep(me, || self.gate.wait(gate, timeout));
        false
    }

    #[cold]
    #[inline(never)]
    fn wake_one(&self) {
        let one_less = |tokens: u32| tokens.checked_sub(1);
        // Acquire: the gate is moved after the token was taken, not before.
        let taken = (self.sleepers).fetch_update(Ordering::Acquire, Ordering::Relaxed, one_less);
        if taken.is_ok() {
            self.gate.0.fetch_add(1, Ordering::Release); // pairs with Acquire in `sleep`
            self.gate.wake();
        }
    }
}

/// Adds to a count of which the owner is the only writer.
#[inline(always)]
fn add(count: &AtomicU64, n: u64) {
    // Relaxed: handed from owner to owner by the mutex itself.
    let sum = count.load(Ordering::Relaxed).wrapping_add(n);
    count.store(sum, Ordering::Relaxed);
}

// SAFETY: `owner` changes from `FREE` to a thread by compare-and-swap only, and back by `release`, which the trait's contract leaves to
// the owner: so there is at most one.
#[cfg(not(loom))]
unsafe impl lock_api::RawMutex for RawMutex {
    // A constant that each user copies is what lock_api wants here.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new(&Class::LEAF);
    /// Ownership is by thread.
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        witness::before(self.class, self);
        self.acquire(thread::number());
        witness::acquired(self.class, self);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = self.try_acquire(thread::number());
        if taken {
            witness::acquired(self.class, self);
        }
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        witness::released(self);
        self.release();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != FREE
    }
}
