//! Locks that a forked child needs as well: all of them are held for the time of a fork (`fork`).

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes one, whatever a panic has left in it.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
