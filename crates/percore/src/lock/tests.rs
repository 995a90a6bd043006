//! Tests of the adaptive mutex.

use super::{
    Class, Mutex, MutexGuard, ReentrantMutex, mutex, reentrant, stats,
    thread::{Futex, ThreadNumber, asleep, core, is_asleep, may_spin, number},
};
use crate::witness;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

static PLAIN: Class = Class::new(1, "plain").across_sleep();
static COUNTED: Class = Class::new(2, "counted").counted().across_sleep();

#[test]
fn one_at_a_time() {
    let rounds = if witness::ON { 200 } else { 20_000 };
    let count = mutex(&COUNTED, 0_u64);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    *count.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*count.lock(), 4 * rounds);
    let stats = stats(&count);
    assert_eq!(stats.acquired, 4 * rounds + 1);
    assert!(stats.contended <= 4 * rounds);
}

#[test]
fn a_class_that_does_not_count_has_no_counts() {
    let plain = mutex(&PLAIN, ());
    drop(plain.lock());
    assert_eq!(stats(&plain), super::Stats::default());
}

#[test]
fn trying_and_looking() {
    let mutex = mutex(&PLAIN, 1);
    let guard = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none());
    drop(guard);
    assert_eq!(mutex.try_lock().map(|guard| *guard), Some(1));
    assert!(!mutex.is_locked());
}

/// Longer than any spin: the waiters sleep, and all of them come through.
#[test]
fn sleepers_are_woken() {
    let mutex = mutex(&COUNTED, 0);
    let ready = AtomicU32::new(0);
    thread::scope(|scope| {
        let guard = mutex.lock();
        for _ in 0..5 {
            scope.spawn(|| {
                ready.fetch_add(1, Ordering::Relaxed);
                *mutex.lock() += 1;
            });
        }
        while ready.load(Ordering::Relaxed) < 5 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert_eq!(*guard, 0, "no thread comes in before it is unlocked");
        drop(guard);
    });
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.lock(), 5);
    let stats = stats(&mutex);
    assert!(stats.contended >= 1 && stats.waited_cycles > 0, "{stats:?}");
}

#[test]
fn unlocked_lets_others_in() {
    let mutex = mutex(&PLAIN, 0);
    let mut guard = mutex.lock();
    let seen = MutexGuard::unlocked(&mut guard, || {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut guard = mutex.lock();
                *guard += 1;
                *guard
            });
            other.join().unwrap()
        })
    });
    assert_eq!((seen, *guard), (1, 1));
}

#[test]
fn a_second_lock_by_its_owner_panics_and_harms_nothing() {
    let mutex = mutex(&PLAIN, 7);
    let guard = mutex.lock();
    let again = catch_unwind(AssertUnwindSafe(|| drop(mutex.lock())));
    let text = *again.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("'plain'"), "{text}");
    assert_eq!(*guard, 7);
    drop(guard);
    assert_eq!(*mutex.lock(), 7);
}

#[test]
fn a_panic_unlocks() {
    let mutex = mutex(&PLAIN, ());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && !mutex.is_locked());
}

#[test]
fn a_reentrant_one_lets_its_owner_in_again() {
    static GIANT: ReentrantMutex<AtomicU32> = reentrant(&PLAIN, AtomicU32::new(0));
    let rounds = if witness::ON { 100 } else { 1000 };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let outer = GIANT.lock();
                    let inner = GIANT.lock();
                    let before = inner.load(Ordering::Relaxed);
                    inner.store(before + 1, Ordering::Relaxed);
                    drop(inner);
                    assert_eq!(outer.load(Ordering::Relaxed), before + 1);
                }
            });
        }
    });
    assert_eq!(GIANT.lock().load(Ordering::Relaxed), 2 * rounds);
}

#[test]
fn one_without_a_class() {
    static LEAF: Mutex<u32> = Mutex::new(3);
    assert_eq!(*LEAF.lock(), 3);
    assert_eq!((Class::LEAF.name(), Class::LEAF.rank()), ("leaf", u16::MAX));
}

/// Numbers far above those of the threads here.
#[test]
fn a_sleeper_in_a_mutex_is_known_for_so_long() {
    let (one, other) = (4_000_000_006, 4_000_000_007);
    let known = || (is_asleep(one), is_asleep(other));
    assert_eq!(known(), (false, false));
    let mut slept = 0;
    asleep(one, || {
        assert_eq!(known(), (true, false));
        asleep(other, || {
            assert_eq!(known(), (true, true));
            slept += 1;
        });
        assert_eq!(known(), (true, false));
        slept += 1;
    });
    assert_eq!(slept, 2);
    assert_eq!(known(), (false, false));
    assert!(!is_asleep(0), "no thread");
}

#[test]
fn each_thread_has_a_number_and_knows_its_core() {
    use lock_api::GetThreadId;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let numbers = || (number() as usize, ThreadNumber.nonzero_thread_id().get());
    let here = numbers();
    let there = thread::spawn(move || {
        let may = sched_getaffinity(None).unwrap();
        for at in (0..CpuSet::MAX_CPU).filter(|&at| may.is_set(at)).take(8) {
            let mut one = CpuSet::new();
            one.set(at);
            sched_setaffinity(None, &one).unwrap();
            assert_eq!(core() as usize, at);
        }
        numbers()
    });
    let there = there.join().unwrap();
    assert!(here.0 == here.1 && there.0 == there.1 && here.0 != there.0);
    let several = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    assert!(
        may_spin() || !several,
        "a spinning thread keeps no other from running"
    );
}

/// A wait may end for nothing, but hardly each time.
#[test]
fn a_futex_is_slept_on_until_its_time() {
    let word = Futex::new();
    let sleeps = |expected| {
        let start = crate::clock::now_ns();
        word.wait(expected, Some(Duration::from_millis(2)));
        crate::clock::now_ns() - start >= 1_900_000 // the counter's rate is known to 1 ppm only
    };
    assert!((0..3).any(|_| sleeps(0)));
    word.0.store(1, Ordering::Relaxed);
    word.wait(0, None); // changed: no sleep
}

/// No thread spins for ever: one that waits for long sleeps, and that is known.
#[test]
fn a_thread_that_waits_for_long_sleeps() {
    let mutex = mutex(&PLAIN, ());
    let waiter = AtomicU32::new(0);
    thread::scope(|scope| {
        let guard = mutex.lock();
        let thread = scope.spawn(|| {
            waiter.store(number(), Ordering::Relaxed);
            drop(mutex.lock());
        });
        let end = crate::clock::now_ns() + 10_000_000_000;
        while !is_asleep(waiter.load(Ordering::Relaxed)) {
            assert!(crate::clock::now_ns() < end, "it spins");
            thread::yield_now();
        }
        drop(guard);
        thread.join().unwrap();
        assert!(!is_asleep(waiter.load(Ordering::Relaxed)));
    });
}
