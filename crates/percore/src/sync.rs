//! The facade over `std::sync` that lets every primitive run under loom.
//!
//! Built with `--cfg loom`, the same names are loom's: every interleaving (up to its bound) of a model is run, and
//! [`Cell`] panics on a data race. Otherwise the names are `std`'s and cost nothing.

#[cfg(not(loom))]
pub use std::{hint::spin_loop, thread::yield_now};

#[cfg(loom)]
pub use loom::{hint::spin_loop, thread::yield_now};

#[cfg(not(loom))]
pub use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use loom::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use loom::cell::UnsafeCell as Cell;

/// `std`'s `UnsafeCell` with loom's closures for access: the pointer is only used inside them.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub struct Cell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> Cell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Shared access: under loom a race with a writer panics.
    #[inline(always)]
    pub fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    /// Exclusive access: under loom a race with anyone panics.
    #[inline(always)]
    pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
