//! The doorbell under loom: no wake-up is lost (a lost one is a deadlock, which loom reports), and one ringer pays.

use super::{Doorbell, Sleep};
use crate::sync::{Arc, AtomicUsize, Ordering};
use loom::thread;

/// Rings once for one item; true if it paid.
fn send(bell: &Doorbell, items: &AtomicUsize) -> bool {
    items.fetch_add(1, Ordering::Relaxed); // the doorbell's fence must do
    bell.ring()
}

fn sleep(bell: &Doorbell, how: Sleep) {
    match how {
        Sleep::Futex => assert!(bell.wait(None)),
        Sleep::Fd => bell.poll(),
    }
}

/// One sleeper that waits for `ringers` items.
fn model(ringers: usize, how: Sleep) {
    let mut builder = loom::model::Builder::new();
    // With three threads all interleavings are too many; lost wake-ups that need more than three preemptions are not known.
    builder.preemption_bound = (ringers > 1).then_some(3);
    builder.check(move || {
        let bell = Arc::new(Doorbell::new().unwrap());
        let items = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..ringers)
            .map(|_| {
                let (bell, items) = (bell.clone(), items.clone());
                thread::spawn(move || send(&bell, &items))
            })
            .collect();
        let mut arms = 0;
        while items.load(Ordering::Relaxed) < ringers {
            bell.arm(how);
            arms += 1;
            if items.load(Ordering::Relaxed) < ringers {
                sleep(&bell, how);
            }
            bell.disarm();
        }
        let paid = threads.into_iter().map(|t| t.join().unwrap());
        let paid = paid.filter(|&paid| paid).count();
        assert!(paid <= arms, "{paid} system calls for {arms} sleeps");
    });
}

#[test]
fn one_ringer_futex() {
    model(1, Sleep::Futex);
}

#[test]
fn two_ringers_futex() {
    model(2, Sleep::Futex);
}

#[test]
fn one_ringer_fd() {
    model(1, Sleep::Fd);
}

#[test]
fn two_ringers_fd() {
    model(2, Sleep::Fd);
}

/// Asleep for sure, rung by two: exactly one pays.
#[test]
fn one_of_two_pays_for_a_sleep() {
    loom::model(|| {
        let bell = Arc::new(Doorbell::new().unwrap());
        bell.arm(Sleep::Futex);
        let other = {
            let bell = bell.clone();
            thread::spawn(move || bell.ring())
        };
        let here = bell.ring();
        let there = other.join().unwrap();
        assert!(here ^ there);
        bell.disarm();
    });
}
