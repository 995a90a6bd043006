//! Giant (F1, F3, F4): the one lock of a stack. Under the regime `giant` everything is done under it. Beside any other regime it still
//! exists, for what declares that it needs it: a module that keeps unsynchronised state, a link driver that is not safe for several threads.
//!
//! What needs Giant lies inside it: a module of concurrency `giant` is stored in the lock, and reached with a guard only.
//!
//! Lock order: where the whole stack runs under it, before every other lock; else after them all. It is recursive, as FreeBSD's was.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use percore::{
    clock::now_ns,
    lock::{ReentrantMutex, ReentrantMutexGuard, reentrant},
    witness,
};

use crate::{
    locks,
    trace::{
        self,
        stages::{self, Stage},
    },
};

pub use netchan_base::Concurrency;

/// Holds Giant, and with it what lies in it.
pub type Held<'a, T> = ReentrantMutexGuard<'a, T>;

/// The lock, and what it cost.
pub struct Giant<T> {
    lock: ReentrantMutex<T>,
    // All three are written by the holder only.
    taken: AtomicU64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

/// How often Giant was taken, how often that had to wait, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub taken: u64,
    pub waits: u64,
    pub wait_ns: u64,
}

impl<T: Default> Giant<T> {
    /// Free, with nothing in it; around `everything`, or inside all other locks.
    pub fn new(everything: bool) -> Self {
        let class = if everything {
            &locks::GIANT
        } else {
            &locks::GIANT_INSIDE
        };
        Self {
            lock: reentrant(class, T::default()),
            taken: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        }
    }

    /// Takes it, and waits for it where it must.
    #[inline]
    pub fn enter(&self) -> Held<'_, T> {
        let held = match self.lock.try_lock() {
            // The witness judges only a thread that may have to wait.
            Some(held) if witness::ON => {
                drop(held);
                self.lock.lock()
            }
            Some(held) => held,
            None => self.wait(),
        };
        add(&self.taken, 1);
        held
    }

    #[cold]
    fn wait(&self) -> Held<'_, T> {
        let before = stages::enter(Stage::Locks);
        let since = now_ns();
        let held = self.lock.lock();
        let waited = now_ns().saturating_sub(since);
        add(&self.waits, 1);
        add(&self.wait_ns, waited);
        trace::detail(trace::GIANT_WAITED, [waited]);
        stages::back(before);
        held
    }

    /// Takes it if that works at once: for a mere look.
    pub fn try_enter(&self) -> Option<Held<'_, T>> {
        self.lock.try_lock()
    }

    /// What it has cost up to now.
    pub fn cost(&self) -> Cost {
        // Relaxed: each number by itself, for a person to read.
        Cost {
            taken: self.taken.load(Relaxed),
            waits: self.waits.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
        }
    }
}

/// Adds under the lock: a load and a store.
#[inline]
fn add(count: &AtomicU64, n: u64) {
    // Release, for readers that compare two of the counts; the lock orders the writers.
    count.store(count.load(Relaxed).wrapping_add(n), Release);
}
