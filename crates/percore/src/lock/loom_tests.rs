//! The mutex under loom: one owner at a time, which sees what the last one did; a lost wake-up is a deadlock, which loom reports.

use super::{Class, RawMutex};
use crate::sync::{Arc, Cell};
use loom::thread;

static COUNTED: Class = Class::new(1, "model").counted();

/// A number that only the owner touches: loom panics on a race.
struct Guarded {
    raw: RawMutex,
    value: Cell<u32>,
}

// SAFETY: the mutex orders access to the cell, which is what the model checks.
unsafe impl Sync for Guarded {}
// SAFETY: a number.
unsafe impl Send for Guarded {}

fn add_one(guarded: &Guarded, me: u32) {
    guarded.raw.acquire(me);
    guarded.value.with_mut(|value| {
        // SAFETY: we own the mutex.
        unsafe { *value += 1 }
    });
    guarded.raw.release();
}

fn model(threads: u32, rounds: u32, bound: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(move || {
        let guarded = Arc::new(Guarded {
            raw: RawMutex::new(&COUNTED),
            value: Cell::new(0),
        });
        let others: Vec<_> = (2..=threads)
            .map(|me| {
                let guarded = guarded.clone();
                thread::spawn(move || (0..rounds).for_each(|_| add_one(&guarded, me)))
            })
            .collect();
        (0..rounds).for_each(|_| add_one(&guarded, 1));
        others.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: the others are gone.
        let value = guarded.value.with(|value| unsafe { *value });
        assert_eq!(value, threads * rounds);
        let stats = guarded.raw.stats();
        assert_eq!(stats.acquired, u64::from(value));
        assert!(stats.contended <= stats.acquired);
    });
}

#[test]
fn two_threads() {
    model(2, 2, Some(4));
}

#[test]
fn two_threads_in_every_order() {
    model(2, 1, None);
}

#[test]
fn three_threads() {
    model(3, 1, Some(3));
}

#[test]
fn trying_never_waits() {
    loom::model(|| {
        let raw = Arc::new(RawMutex::new(&COUNTED));
        let other = {
            let raw = raw.clone();
            thread::spawn(move || {
                let taken = raw.try_acquire(2);
                if taken {
                    raw.release();
                }
            })
        };
        if raw.try_acquire(1) {
            assert!(!raw.try_acquire(1));
            raw.release();
        }
        other.join().unwrap();
        assert!(raw.try_acquire(1));
    });
}
