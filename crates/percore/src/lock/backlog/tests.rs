//! Tests of the backlog.

use super::Backlog;
use crate::{
    lock::{Class, Mutex, MutexGuard, mutex},
    ring::{Consumer, Producer, ring},
    witness,
};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

static CLASS: Class = Class::new(1, "with a backlog").across_sleep();

#[test]
fn left_once_taken_once() {
    let (backlog, lock) = (Backlog::default(), mutex(&CLASS, ()));
    let held = lock.lock();
    assert!(!backlog.is_waiting() && !backlog.take());
    assert!(backlog.leave(|| lock.try_lock()).is_none());
    assert!(backlog.leave(|| lock.try_lock()).is_none());
    assert!(backlog.is_waiting());
    assert!(backlog.take() && !backlog.take());
    assert!(backlog.leave(|| lock.try_lock()).is_none());
    drop(held);
    // Left while it was held, after the holder's last look under it.
    let again = backlog.look(|| lock.try_lock());
    assert!(again.is_some() && backlog.take());
    drop(again);
    assert!(backlog.look(|| lock.try_lock()).is_none());
    // No thread holds it: it is ours to do.
    assert!(backlog.leave(|| lock.try_lock()).is_some() && backlog.take());
}

/// What the lock guards: the reading ends, and the last number that came from each.
struct Guarded {
    ends: Vec<Consumer<u64>>,
    last: Vec<u64>,
}

impl Guarded {
    fn serve(&mut self) {
        for (end, last) in self.ends.iter_mut().zip(&mut self.last) {
            end.pop_batch(usize::MAX, |n| note(last, n));
        }
    }
}

fn note(last: &mut u64, n: u64) {
    assert_eq!(*last + 1, n, "in its order, nothing left out");
    *last = n;
}

struct World {
    lock: Mutex<Guarded>,
    backlog: Backlog,
    /// How much was left in all.
    left: AtomicU64,
}

impl World {
    fn let_go<'a>(&'a self, mut held: MutexGuard<'a, Guarded>) {
        loop {
            if self.backlog.take() {
                held.serve();
            }
            drop(held);
            match self.backlog.look(|| self.lock.try_lock()) {
                Some(again) => held = again,
                None => return,
            }
        }
    }

    fn bring(&self, one: usize, rounds: u64, mut producer: Producer<u64>) {
        for n in 1..=rounds {
            if let Some(mut held) = self.lock.try_lock() {
                if self.backlog.take() {
                    held.serve();
                }
                note(&mut held.last[one], n);
                self.let_go(held);
                continue;
            }
            producer.push(n).unwrap();
            self.left.fetch_add(1, Relaxed);
            if let Some(held) = self.backlog.leave(|| self.lock.try_lock()) {
                self.let_go(held);
            }
        }
    }
}

/// Two bring numbers, a third holds the lock now and then. Each number is done once, in its order, by the lock's holder.
#[test]
fn under_load_all_is_done_in_order() {
    let rounds: u64 = if witness::ON { 500 } else { 50_000 };
    let (producers, ends): (Vec<_>, Vec<_>) = (0..2).map(|_| ring(1 << 16)).unzip();
    let last = vec![0; ends.len()];
    let world = World {
        lock: mutex(&CLASS, Guarded { ends, last }),
        backlog: Backlog::new(),
        left: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        // Held until both have found it so.
        let held = world.lock.lock();
        for (one, producer) in producers.into_iter().enumerate() {
            let world = &world;
            scope.spawn(move || world.bring(one, rounds, producer));
        }
        while world.left.load(Relaxed) < 2 {
            thread::yield_now();
        }
        world.let_go(held);
        (0..rounds / 10).for_each(|_| world.let_go(world.lock.lock()));
    });
    assert_eq!(world.lock.lock().last, [rounds, rounds]);
    assert!(!world.backlog.is_waiting());
}
