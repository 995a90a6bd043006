//! The kernel's part of a doorbell, modelled with loom's mutex and condition variable.

use super::{Scope, Woken};
use loom::sync::{Condvar, Mutex, atomic::AtomicU32, atomic::Ordering};
use std::{io, time::Duration};

/// A word that a thread can sleep on.
#[derive(Debug)]
pub(super) struct Futex(pub AtomicU32, Mutex<()>, Condvar);

impl Default for Futex {
    fn default() -> Self {
        Self(AtomicU32::new(0), Mutex::new(()), Condvar::new())
    }
}

impl Futex {
    /// A swap where the real one is a store. A ringer of an earlier sleep may have found the word awake and swapped it: that swap comes
    /// before this announcement, since nothing can come between a read-modify-write and what it read. Loom does not know that rule, lets a
    /// second ringer read the older "awake" in spite of both fences, and reports a lost wake-up that C++ forbids ([atomics.fences],
    /// [atomics.order]).
    pub fn announce(&self, state: u32) {
        self.0.swap(state, Ordering::AcqRel);
    }

    pub fn wait(&self, expected: u32, _: Option<&Deadline>, _: Scope) -> Option<Woken> {
        let asleep = self.1.lock().expect("a model that panicked is over");
        if self.0.load(Ordering::Relaxed) == expected {
            drop(self.2.wait(asleep));
        }
        None
    }

    pub fn wake(&self, _: Scope) {
        drop(self.1.lock());
        self.2.notify_one();
    }
}

/// Never: a model has no time.
#[derive(Debug)]
pub(super) struct Deadline;

impl Deadline {
    pub fn after(_: Duration) -> Option<Self> {
        None
    }
}

/// A counter that a thread can wait for.
#[derive(Debug)]
pub(super) struct Event(Mutex<u64>, Condvar);

impl Event {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Mutex::new(0), Condvar::new()))
    }

    pub fn signal(&self) {
        *self.0.lock().expect("a model that panicked is over") += 1;
        self.1.notify_one();
    }

    pub fn drain(&self) -> u64 {
        std::mem::take(&mut self.0.lock().expect("a model that panicked is over"))
    }

    /// What poll(2) is to a file descriptor.
    pub fn poll(&self) {
        let mut count = self.0.lock().expect("a model that panicked is over");
        while *count == 0 {
            count = self.1.wait(count).expect("a model that panicked is over");
        }
    }
}
