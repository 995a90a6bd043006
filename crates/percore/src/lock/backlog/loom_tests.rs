//! The backlog under loom: whatever is left is done, each thread's work in its order, and none waits to leave it.

use super::Backlog;
use crate::sync::{Arc, AtomicU32, AtomicUsize, Cell, Ordering};
use loom::thread;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// How many leave work.
const MOST: usize = 2;

/// Work is a number that each one counts up. The lock has no fence of its own: the backlog must not lean on one.
struct World {
    owner: AtomicU32,
    backlog: Backlog,
    /// What each one has left, up to now. Relaxed: the backlog's orderings must do.
    left: [AtomicUsize; MOST],
    /// What was done of it. Only the holder touches it: loom panics on a race.
    done: Cell<[usize; MOST]>,
}

// SAFETY: the lock orders access to the cell, which is what the model checks.
unsafe impl Sync for World {}
// SAFETY: numbers.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            owner: AtomicU32::new(FREE),
            backlog: Backlog::new(),
            left: [AtomicUsize::new(0), AtomicUsize::new(0)],
            done: Cell::new([0; MOST]),
        })
    }

    fn try_lock(&self) -> Option<()> {
        let (to, from) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = self.owner.compare_exchange(FREE, HELD, to, from);
        taken.ok().map(drop)
    }

    /// Does all that was left; for the holder.
    fn serve(&self) {
        if self.backlog.take() {
            self.done.with_mut(|done| {
                for (one, left) in self.left.iter().enumerate() {
                    // SAFETY: we hold the lock.
                    unsafe { (*done)[one] = left.load(Ordering::Relaxed) }
                }
            });
        }
    }

    /// Lets go of the lock, and looks after it as often as work comes.
    fn let_go(&self) {
        loop {
            self.serve();
            self.owner.store(FREE, Ordering::Release); // pairs with Acquire in `try_lock`
            if self.backlog.look(|| self.try_lock()).is_none() {
                return;
            }
        }
    }

    /// `one` has its work number `n`: does it, or leaves it.
    fn bring(&self, one: usize, n: usize) {
        if self.try_lock().is_some() {
            self.serve();
            self.done.with_mut(|done| {
                // SAFETY: we hold the lock.
                let last = unsafe { &mut (*done)[one] };
                assert_eq!(*last + 1, n, "in its order");
                *last = n;
            });
            // What is done is not left as well: the count goes on from here.
            self.left[one].store(n, Ordering::Relaxed);
            return self.let_go();
        }
        self.left[one].store(n, Ordering::Relaxed);
        if self.backlog.leave(|| self.try_lock()).is_some() {
            self.let_go();
        }
    }

    /// In the end all is done that was ever brought.
    fn check(&self, expected: [usize; MOST]) {
        // SAFETY: the others are gone.
        let done = self.done.with(|done| unsafe { *done });
        assert_eq!(done, expected);
        assert!(!self.backlog.is_waiting() && self.owner.load(Ordering::Relaxed) == FREE);
    }
}

fn model(bound: Option<usize>, bringers: usize, works: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(move || {
        let world = World::new();
        let threads: Vec<_> = (0..bringers)
            .map(|one| {
                let world = world.clone();
                thread::spawn(move || (1..=works).for_each(|n| world.bring(one, n)))
            })
            .collect();
        // A holder of the lock, for work of its own.
        if world.try_lock().is_some() {
            world.let_go();
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut expected = [0; MOST];
        expected[..bringers].fill(works);
        world.check(expected);
    });
}

#[test]
fn one_leaves_work_in_every_order() {
    model(None, 1, 1);
}

#[test]
fn one_leaves_work_again_and_again() {
    model(Some(4), 1, 3);
}

#[test]
fn two_leave_work() {
    model(Some(3), 2, 1);
}

#[test]
fn two_leave_work_twice() {
    model(Some(2), 2, 2);
}
