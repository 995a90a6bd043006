//! The counters under loom: a reader sees what happened before, never more than there was, and never less than it saw; a batched read
//! keeps to its bound; a flip shows one instant.

use super::{Batched, Flip, PerCore};
use crate::sync::{Arc, AtomicUsize, Ordering};
use loom::thread;

#[test]
fn two_writers_and_a_reader() {
    loom::model(|| {
        let counts = Arc::new(PerCore::<1>::new(2));
        counts.add(0, 0, 1);
        let writers: Vec<_> = (0..2)
            .map(|slot| {
                let counts = counts.clone();
                thread::spawn(move || {
                    counts.add(slot, 0, 1);
                    counts.add(slot, 0, 1);
                })
            })
            .collect();
        let (first, second) = (counts.read(0), counts.read(0));
        assert!(1 <= first && first <= second && second <= 5);
        writers.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(counts.read(0), 5);
    });
}

/// A batch of 2, so that every second addition folds: the read is never further off than it says, whatever has happened.
#[test]
fn a_batched_read_keeps_to_its_bound() {
    loom::model(|| {
        let value = Arc::new(Batched::new(2, 2));
        let error = i64::try_from(value.error_max()).unwrap();
        value.add(0, 3);
        let writers: Vec<_> = [1, -1]
            .into_iter()
            .zip(0..)
            .map(|(n, slot)| {
                let value = value.clone();
                thread::spawn(move || {
                    value.add(slot, n);
                    value.add(slot, n);
                })
            })
            .collect();
        let near = value.approximate();
        // The value is between 1 and 5 at any moment.
        assert!(1 - error <= near && near <= 5 + error, "{near}");
        writers.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(value.sum(), 3);
        assert!(value.approximate().abs_diff(3) <= value.error_max());
    });
}

/// What is raised is never missed by the sum: it may be counted twice while it is folded.
#[test]
fn a_sum_misses_nothing_that_came_before() {
    loom::model(|| {
        let value = Arc::new(Batched::new(1, 2));
        value.add(0, 1);
        let writer = {
            let value = value.clone();
            thread::spawn(move || value.add(0, 1))
        };
        assert!(value.sum() >= 1 && value.exceeds(0));
        writer.join().unwrap();
        assert_eq!(value.sum(), 2);
    });
}

/// One thread counts the cause in one slot and then the effect in another: no read has the effect alone, none goes back, and
/// what was counted before the read is in it.
#[test]
fn a_flip_is_one_instant() {
    loom::model(|| {
        let counts = Arc::new(Flip::<1>::new(2));
        counts.add(0, 0, 1);
        let writer = {
            let counts = counts.clone();
            thread::spawn(move || {
                counts.add(0, 0, 1); // the cause
                counts.add(1, 0, 10); // the effect
            })
        };
        let first = counts.read()[0];
        let second = counts.read()[0];
        for sum in [first, second] {
            assert!([1, 2, 12].contains(&sum), "{sum} at no instant");
        }
        assert!(first <= second);
        writer.join().unwrap();
        assert_eq!(counts.read(), [12]);
    });
}

/// Cause and effect on two threads, the second of which heard of the first.
#[test]
fn a_flip_follows_messages() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3); // with three threads all interleavings are too many
    builder.check(|| {
        let counts = Arc::new(Flip::<1>::new(2));
        let told = Arc::new(AtomicUsize::new(0));
        let cause = {
            let (counts, told) = (counts.clone(), told.clone());
            thread::spawn(move || {
                counts.add(0, 0, 1);
                told.store(1, Ordering::Release);
            })
        };
        let effect = {
            let counts = counts.clone();
            thread::spawn(move || {
                if told.load(Ordering::Acquire) == 1 {
                    counts.add(1, 0, 10);
                }
            })
        };
        let sum = counts.read()[0];
        assert!([0, 1, 11].contains(&sum), "{sum} at no instant");
        cause.join().unwrap();
        effect.join().unwrap();
    });
}

/// Two readers take turns and neither loses what the other has flipped away.
#[test]
fn two_readers_of_a_flip() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let counts = Arc::new(Flip::<1>::new(1));
        let other = {
            let counts = counts.clone();
            thread::spawn(move || counts.read()[0])
        };
        counts.add(0, 0, 1);
        let here = counts.read()[0];
        let there = other.join().unwrap();
        assert!(here == 1 && there <= 1, "{here} {there}");
        assert_eq!(counts.read(), [1]);
    });
}
