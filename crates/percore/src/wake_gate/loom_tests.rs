//! The gate under loom: a change that neither wakes the sleeper nor is seen by it is a deadlock, which loom reports.

use super::WakeGate;
use crate::{
    doorbell::{Doorbell, Sleep},
    sync::{Arc, AtomicU64, Ordering::Relaxed},
};
use loom::thread;

const NEVER: u64 = u64::MAX;

struct Shared {
    gate: WakeGate,
    bell: Doorbell,
    /// When each changer's work is due.
    due: [AtomicU64; 2],
}

impl Shared {
    /// How many changes are to be seen.
    fn seen(&self) -> usize {
        let due = self.due.iter().map(|due| due.load(Relaxed));
        due.filter(|&due| due != NEVER).count()
    }

    fn change(&self, number: usize) {
        self.due[number].store(5, Relaxed);
        if self.gate.pass(5) {
            self.bell.ring();
        }
    }
}

fn sleeper_sees_all_of(changers: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(Shared {
            gate: WakeGate::default(),
            bell: Doorbell::new().unwrap(),
            due: [AtomicU64::new(NEVER), AtomicU64::new(NEVER)],
        });
        let changing: Vec<_> = (0..changers)
            .map(|number| {
                let shared = shared.clone();
                thread::spawn(move || shared.change(number))
            })
            .collect();
        while shared.seen() < changers {
            shared.bell.arm(Sleep::Fd);
            let seen = shared.seen();
            shared.gate.close(NEVER);
            // Nothing new: it sleeps.
            if shared.seen() == seen && seen < changers {
                shared.bell.poll();
            }
            shared.bell.disarm();
            shared.gate.open();
        }
        changing.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn a_change_is_seen() {
    sleeper_sees_all_of(1);
}

#[test]
fn two_changes_are_seen() {
    sleeper_sees_all_of(2);
}
