//! Errands under loom: each is run once or given back, nobody waits for ever (that is a deadlock, which loom reports), and what one side
//! wrote the other sees.

use super::{Desk, Owner, errands};
use crate::{
    doorbell::{Doorbell, Sleep},
    sync::{Arc, Cell},
};
use loom::thread;

/// A number on its way there and back: loom panics if two touch it at once.
struct Number(Cell<u32>);

// SAFETY: the desk orders access to the cell, which is what the model checks.
unsafe impl Sync for Number {}

impl Number {
    /// Takes it, and leaves 0.
    fn take(&self) -> u32 {
        self.0.with_mut(|number| {
            // SAFETY: the owner while its caller waits, or the caller when the owner is done.
            unsafe { std::mem::take(&mut *number) }
        })
    }
}

fn desk() -> (Desk<u32>, Owner<u32>, Arc<Doorbell>) {
    let bell = Arc::new(Doorbell::new().unwrap());
    let (desk, owner) = errands(bell.clone());
    (desk, owner, bell)
}

/// Adds to the owner's sum; the new sum, if it was run.
fn add(desk: &Desk<u32>, n: u32) -> Option<u32> {
    let number = Number(Cell::new(n));
    let errand = |sum: &mut u32| {
        *sum += number.take();
        *sum
    };
    let answer = desk.run(errand).ok();
    assert_eq!(number.take(), if answer.is_some() { 0 } else { n });
    answer
}

/// Serves until `n` errands were run, asleep whenever there is none.
fn serve(owner: &mut Owner<u32>, bell: &Doorbell, n: usize) -> u32 {
    let (mut sum, mut served) = (0, 0);
    while served < n {
        served += owner.serve(&mut sum);
        if served < n {
            bell.arm(Sleep::Futex);
            if !owner.has_errands() {
                bell.wait(None);
            }
            bell.disarm();
        }
    }
    sum
}

fn model(callers: usize, errands: usize, bound: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(move || {
        let (desk, mut owner, bell) = desk();
        let desk = Arc::new(desk);
        let threads: Vec<_> = (0..callers)
            .map(|_| {
                let desk = desk.clone();
                thread::spawn(move || (0..errands).all(|_| add(&desk, 1).is_some()))
            })
            .collect();
        let sum = serve(&mut owner, &bell, callers * errands);
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
        assert_eq!(sum as usize, callers * errands);
    });
}

#[test]
fn one_caller_two_errands() {
    model(1, 2, Some(2));
}

#[test]
fn two_callers() {
    model(2, 1, Some(2));
}

/// The owner ends at any moment: an errand is run or given back.
#[test]
fn the_end_of_the_owner_ends_every_wait() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (desk, mut owner, _bell) = desk();
        let desk = Arc::new(desk);
        let threads = [1, 1].map(|n| {
            let desk = desk.clone();
            thread::spawn(move || add(&desk, n))
        });
        let mut sum = 0;
        owner.serve(&mut sum);
        drop(owner);
        let run = threads.map(|t| t.join().unwrap().is_some());
        assert_eq!(run.iter().filter(|&&run| run).count(), sum as usize);
        assert_eq!(add(&desk, 1), None);
    });
}
