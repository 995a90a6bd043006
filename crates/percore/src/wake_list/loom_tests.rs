//! The wake list under loom: a thread whose waker is neither woken nor finds what was brought spins for ever, which loom reports.

use std::task::{Wake, Waker};

use super::WakeList;
use crate::sync::{Arc, AtomicUsize, Ordering::Relaxed};
use loom::{sync::Notify, thread};

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

struct Shared {
    list: WakeList,
    brought: [AtomicUsize; 2],
}

impl Shared {
    fn has(&self, bringers: usize) -> bool {
        self.brought[..bringers]
            .iter()
            .all(|b| b.load(Relaxed) != 0)
    }
}

fn waiters_see_all_of(bringers: usize, waiters: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(Shared {
            list: WakeList::default(),
            brought: [AtomicUsize::new(0), AtomicUsize::new(0)],
        });
        let wait = move |shared: &Shared| {
            let bell = std::sync::Arc::new(Bell(Notify::new()));
            let waker = Waker::from(bell.clone());
            loop {
                shared.list.register(&waker);
                if shared.has(bringers) {
                    break;
                }
                bell.0.wait();
            }
            shared.list.deregister(&waker);
        };
        let mut threads: Vec<_> = (0..bringers)
            .map(|number| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.brought[number].store(1, Relaxed);
                    shared.list.wake();
                })
            })
            .collect();
        threads.extend((1..waiters).map(|_| {
            let shared = shared.clone();
            thread::spawn(move || wait(&shared))
        }));
        wait(&shared);
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn what_is_brought_wakes() {
    waiters_see_all_of(1, 1);
}

#[test]
fn two_that_bring_wake() {
    waiters_see_all_of(2, 1);
}

#[test]
fn both_that_wait_are_woken() {
    waiters_see_all_of(1, 2);
}
