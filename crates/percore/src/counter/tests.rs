//! Tests of the counters.

use super::{Atomic, Batched, Flip, PerCore};
use crate::set_on_drop::SetOnDrop;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

#[test]
fn slots_add_up_and_wrap() {
    let counts = PerCore::<3>::new(4);
    assert_eq!((counts.slots(), counts.read(2)), (4, 0));
    for slot in 0..4 {
        counts.add(slot, 1, 10);
        counts.slot(slot).add(2, u64::MAX);
    }
    assert_eq!((counts.read(0), counts.read(1)), (0, 40));
    assert_eq!(counts.read(2), u64::MAX - 3);
    assert_eq!(counts.slot(3).read(1), 10);
}

#[test]
fn writers_share_no_cache_line() {
    let counts = PerCore::<1>::new(2);
    let at = |slot| std::ptr::from_ref(counts.slot(slot)).addr();
    assert!(at(1) - at(0) >= 64 && at(0).is_multiple_of(64));
}

#[test]
fn a_count_for_each_of_two_threads() {
    let counts = PerCore::<2>::new(2);
    thread::scope(|scope| {
        for slot in 0..2 {
            let counts = &counts;
            scope.spawn(move || (0..100_000).for_each(|_| counts.add(slot, 1, 1)));
        }
        let mut last = 0;
        for _ in 0..1000 {
            let now = counts.read(1);
            assert!(last <= now && now <= 200_000);
            last = now;
        }
    });
    assert_eq!((counts.read(0), counts.read(1)), (0, 200_000));
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn a_slot_that_is_not_there() {
    PerCore::<1>::new(1).add(1, 0, 1);
}

#[test]
fn an_atomic_counts_for_all_threads() {
    let count = Atomic::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10_000).for_each(|_| count.add(2)));
        }
    });
    assert_eq!(count.read(), 40_000);
}

#[test]
fn a_batch_folds_at_its_threshold_either_way() {
    let value = Batched::new(3, 10);
    assert_eq!(value.error_max(), 27);
    value.add(0, 9);
    value.add(1, -9);
    value.add(2, -9);
    assert_eq!((value.approximate(), value.sum()), (0, -9));
    value.add(0, 1);
    assert_eq!((value.approximate(), value.sum()), (10, -8));
    value.add(1, -1000);
    assert_eq!((value.approximate(), value.sum()), (-999, -1008));
}

#[test]
fn a_batch_of_one_is_an_atomic() {
    let value = Batched::new(2, 1);
    value.add(1, 5);
    assert_eq!((value.approximate(), value.error_max()), (5, 0));
}

#[test]
fn a_limit_is_exact_where_the_approximation_is_not() {
    let value = Batched::new(2, 100);
    value.add(0, 99);
    value.add(1, 99);
    assert_eq!(value.approximate(), 0);
    assert!(value.exceeds(197) && !value.exceeds(198));
    value.add(0, 1_000_000);
    assert!(value.exceeds(999_000) && !value.exceeds(2_000_000) && value.exceeds(-1));
}

#[test]
#[should_panic(expected = "a batch of 0")]
fn a_batch_of_nothing() {
    Batched::new(1, 0);
}

/// Two threads move units to and fro: the value stays between 0 and 200,000 and no read is further off than it says.
#[test]
fn batched_reads_under_two_writers() {
    let value = Batched::new(2, 64);
    let error = i64::try_from(value.error_max()).unwrap();
    thread::scope(|scope| {
        for slot in 0..2 {
            let value = &value;
            scope.spawn(move || {
                (0..100_000).for_each(|_| value.add(slot, 1));
                (0..50_000).for_each(|_| value.add(slot, -1));
            });
        }
        for _ in 0..1000 {
            let near = value.approximate();
            assert!((-error..=200_000 + error).contains(&near), "{near}");
        }
    });
    assert_eq!(value.sum(), 100_000);
    assert!(value.approximate().abs_diff(100_000) <= value.error_max());
}

#[test]
fn a_flip_adds_up_over_slots_and_reads() {
    let counts = Flip::<2>::new(3);
    for round in 1..=5 {
        for slot in 0..3 {
            counts.add(slot, 1, 10);
            counts.add(slot, 0, u64::MAX);
        }
        assert_eq!(counts.read(), [0u64.wrapping_sub(3 * round), 30 * round]);
    }
    assert_eq!(counts.read(), counts.read());
}

/// Two writers count on their own slots; each also says, before, how many it has counted, and, after, the same. Every read must lie
/// between what both had counted before it and what both had begun when it returned; and reads only rise.
#[test]
fn a_flip_under_two_writers() {
    const EACH: u64 = 300_000;
    let counts = Flip::<1>::new(2);
    let begun = [const { AtomicU64::new(0) }; 2];
    let ended = [const { AtomicU64::new(0) }; 2];
    let over = AtomicBool::new(false);
    let sum = |of: &[AtomicU64; 2]| of.iter().map(|n| n.load(Ordering::SeqCst)).sum::<u64>();
    thread::scope(|scope| {
        let writers = [0, 1].map(|slot| {
            let (counts, begun, ended) = (&counts, &begun, &ended);
            scope.spawn(move || {
                for i in 1..=EACH {
                    begun[slot].store(i, Ordering::SeqCst);
                    counts.add(slot, 0, 1);
                    ended[slot].store(i, Ordering::SeqCst);
                }
            })
        });
        scope.spawn(|| {
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                let least = sum(&ended);
                let [now] = counts.read();
                let most = sum(&begun);
                assert!(
                    least.max(last) <= now && now <= most,
                    "{least} {now} {most}"
                );
                last = now;
            }
        });
        let _ends = SetOnDrop(&over);
        writers.into_iter().for_each(|w| w.join().unwrap());
    });
    assert_eq!(counts.read(), [2 * EACH]);
}

/// Money moves from one counter to the other, always first out, then in: at one instant at most one unit per writer is on its way.
#[test]
fn several_counters_at_one_instant() {
    let counts = Flip::<2>::new(2);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for slot in 0..2 {
            let (counts, over) = (&counts, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    counts.add(slot, 0, 1);
                    counts.add(slot, 1, 1);
                }
            });
        }
        let _ends = SetOnDrop(&over);
        for _ in 0..200 {
            let [out, came] = counts.read();
            assert!(came <= out && out <= came + 2, "{out} {came}");
        }
    });
}

#[test]
fn a_bad_index_does_not_hold_up_the_reader() {
    let counts = Flip::<1>::new(1);
    let bad = std::panic::catch_unwind(|| counts.add(0, 1, 1));
    assert!(bad.is_err());
    assert_eq!(counts.read(), [0]);
}

/// Where the approximation is off by all that it may be, the limit is still exact.
#[test]
fn a_limit_as_far_away_as_the_error() {
    let value = Batched::new(2, 100);
    value.add(0, -99);
    value.add(1, -99);
    assert_eq!((value.approximate(), value.error_max()), (0, 198));
    assert!(!value.exceeds(-198) && value.exceeds(-199));
}
