//! Locks that a forked child needs as well: all of them are held for the time of a fork (`fork`).

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Held to read while a number of ours is taken out of the tables and given back to the kernel, which may give it out at once, and while one is made that
/// no child may have; to write by what puts another descriptor at numbers that the tables still have, and for the time of a fork.
static NUMBERS: RwLock<()> = RwLock::new(());

/// While a number is given back.
pub fn giving_back() -> RwLockReadGuard<'static, ()> {
    NUMBERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// While no number is given back.
pub fn keeping_numbers() -> RwLockWriteGuard<'static, ()> {
    NUMBERS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Takes one, whatever a panic has left in it.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
