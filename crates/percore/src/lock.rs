//! The adaptive mutex (F6): it spins while the owner can be running and sleeps otherwise.
//!
//! Guarantees:
//! * `lock` and `try_lock` of a free mutex are one compare-and-swap; `unlock` with no thread asleep is a plain store, a load and a branch, no locked
//!   instruction: a thread that is about to sleep pays for the fence (see [`barrier`](crate::barrier)).
//! * `try_lock` and `unlock` are wait-free (an unlock that ends a sleep makes a system call). `lock` blocks.
//! * What was written under the mutex is visible to the thread that locks it next. No wake-up is lost.
//! * It is not fair: a thread that comes by may take the mutex before one that was woken for it. Among sleepers, first come, first woken.
//! * Locking a mutex that the same thread holds panics at once (unless it is a [`ReentrantMutex`]). There is no poisoning.
//! * The holder keeps exact counts of acquisitions, of those that had to wait, and of the time waited ([`Stats`]); where the lock's [`Class`]
//!   says so.
//!
//! How user space knows whether the owner runs: it does not, the kernel does not tell. An owner that sleeps in one of these mutexes
//! says so, and then no thread spins. Otherwise we spin for about as long as a sleep costs (5 µs): so that, whatever the owner does, we
//! never lose more than twice what the best decision would have cost. Where there is one core only, none spins.
//!
//! Guards, mappings and `MutexGuard::unlocked` are lock_api's, so that a user of `parking_lot` changes the import and the
//! constructor: [`mutex`] and [`reentrant`] want a [`Class`]. With the feature `witness` every acquisition is checked against the classes'
//! order: see [`witness`](crate::witness).
//!
//! A thread that would rather go on than wait leaves its work with the holder: [`Backlog`].

mod backlog;
#[cfg(all(test, loom))]
mod loom_tests;
mod raw;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod thread;

pub use backlog::Backlog;
pub use raw::{RawMutex, Stats};
#[cfg(not(loom))]
pub use thread::ThreadNumber;

/// A kind of lock: what it guards, and its place in the order in which locks may be taken.
///
/// Declare all classes of a program in one short file; their ranks are the lock order.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    name: &'static str,
    rank: u16,
    several: bool,
    across_sleep: bool,
    counted: bool,
}

impl Class {
    /// The class of locks without one: nothing may be taken while one of them is held.
    pub const LEAF: Self = Self::new(u16::MAX, "leaf");

    /// Locks of this class are taken while only locks of lower `rank` are held.
    pub const fn new(rank: u16, name: &'static str) -> Self {
        Self {
            name,
            rank,
            several: false,
            across_sleep: false,
            counted: false,
        }
    }

    /// A thread may hold several locks of this class at once, if it takes them in the order of their addresses.
    pub const fn several(self) -> Self {
        let several = true;
        Self { several, ..self }
    }

    /// A thread may sleep while it holds one.
    pub const fn across_sleep(self) -> Self {
        let across_sleep = true;
        Self {
            across_sleep,
            ..self
        }
    }

    /// Its locks count ([`Stats`]), which costs about a nanosecond for each acquisition.
    pub const fn counted(self) -> Self {
        let counted = true;
        Self { counted, ..self }
    }

    /// What it is called.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its place in the order.
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    pub(crate) const fn may_be_several(&self) -> bool {
        self.several
    }

    pub(crate) const fn may_be_held_asleep(&self) -> bool {
        self.across_sleep
    }
}

/// An adaptive mutex; made by [`mutex`].
#[cfg(not(loom))]
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// What [`Mutex::lock`](lock_api::Mutex::lock) gives.
#[cfg(not(loom))]
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// An adaptive mutex that its owner may lock again (Giant, say); made by [`reentrant`].
#[cfg(not(loom))]
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, ThreadNumber, T>;

/// What [`ReentrantMutex::lock`](lock_api::ReentrantMutex::lock) gives.
#[cfg(not(loom))]
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, ThreadNumber, T>;

/// A mutex of `class` around `value`.
#[cfg(not(loom))]
pub const fn mutex<T>(class: &'static Class, value: T) -> Mutex<T> {
    Mutex::from_raw(RawMutex::new(class), value)
}

/// A mutex of `class` around `value` that its owner may lock again.
#[cfg(not(loom))]
pub const fn reentrant<T>(class: &'static Class, value: T) -> ReentrantMutex<T> {
    ReentrantMutex::from_raw(RawMutex::new(class), ThreadNumber, value)
}

/// The counts of `mutex`, up to now.
#[cfg(not(loom))]
pub fn stats<T>(mutex: &Mutex<T>) -> Stats {
    // SAFETY: only to look at it; it is not unlocked.
    let raw = unsafe { mutex.raw() };
    raw.stats()
}
