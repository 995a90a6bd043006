//! Tests of the witness's judgement, without the feature and without locks. With both: `tests/witness.rs`.

use super::check::{self, Fault};
use crate::lock::Class;
use std::{
    panic::catch_unwind,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

static OUTER: Class = Class::new(10, "outer");
static INNER: Class = Class::new(20, "inner").several();
static TWIN: Class = Class::new(20, "twin");
static DEEP: Class = Class::new(30, "deep").across_sleep();

/// Reports are the process's: one test at a time, each on a thread that holds nothing yet.
fn alone(test: fn()) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn: MutexGuard<'_, ()> = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    check::forget();
    thread::spawn(test).join().unwrap();
}

fn take(class: &'static Class, lock: usize) {
    check::before(class, lock);
    check::acquired(class, lock);
}

/// What is reported if the calling thread takes this lock.
fn refused(class: &'static Class, lock: usize) -> (Fault, String) {
    let result = catch_unwind(|| check::before(class, lock));
    let message = *result.unwrap_err().downcast::<String>().unwrap();
    let report = check::reports().pop().unwrap();
    assert_eq!(report.to_string(), message);
    (report.fault, message)
}

#[test]
fn the_declared_order_passes() {
    alone(|| {
        for _ in 0..3 {
            take(&OUTER, 100);
            take(&INNER, 200);
            take(&INNER, 300);
            take(&DEEP, 50);
            [300, 100, 50, 200].into_iter().for_each(check::released);
        }
        take(&DEEP, 50);
        check::released(50);
        assert!(check::reports().is_empty());
    });
}

#[test]
fn a_reversal_is_told_with_both_orders_and_all_backtraces() {
    alone(|| {
        take(&OUTER, 100);
        take(&DEEP, 400);
        [100, 400].into_iter().for_each(check::released);
        take(&DEEP, 400);
        let (fault, text) = refused(&OUTER, 100);
        assert_eq!(fault, Fault::Reversal);
        for part in [
            "declared: 'outer' (rank 10) before 'deep' (rank 30)",
            "here: 'deep' at 0x190, then 'outer' at 0x64",
            "'deep' at 0x190 was taken at:",
            "'outer' at 0x64 is being taken at:",
            "the declared order was first followed, 'outer' at:",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    });
}

#[test]
fn of_one_rank_and_of_one_class() {
    alone(|| {
        take(&INNER, 200);
        let (_, text) = refused(&TWIN, 300);
        assert!(text.contains("neither of 'inner' and 'twin'"), "{text}");
        let (_, text) = refused(&INNER, 100);
        assert!(text.contains("order of their addresses"), "{text}");
        check::released(200);
        take(&TWIN, 200);
        assert_eq!(refused(&TWIN, 300).0, Fault::Reversal);
    });
}

#[test]
fn a_lock_that_one_holds_already() {
    alone(|| {
        take(&OUTER, 100);
        check::set_action(check::Action::Note);
        let (fault, text) = refused(&OUTER, 100);
        check::set_action(check::Action::Panic);
        assert_eq!(fault, Fault::SelfDeadlock);
        assert!(text.contains("was taken at"), "{text}");
    });
}

#[test]
fn asleep_with_a_lock() {
    alone(|| {
        take(&DEEP, 400);
        check::sleeping("a doorbell"); // its class allows it
        check::released(400);
        take(&OUTER, 100);
        let slept = catch_unwind(|| check::sleeping("a doorbell"));
        assert!(slept.is_err());
        let report = check::reports().pop().unwrap();
        assert_eq!(report.fault, Fault::HeldAsleep);
        assert!(
            report.text.contains("goes to sleep in a doorbell"),
            "{report}"
        );
        check::released(100);
        check::sleeping("a doorbell");
    });
}

#[test]
fn noted_and_bounded() {
    alone(|| {
        check::set_action(check::Action::Note);
        take(&DEEP, 400);
        (0..150).for_each(|_| check::before(&OUTER, 100));
        check::set_action(check::Action::Panic);
        assert_eq!(check::reports().len(), 100);
    });
}

#[test]
fn all_threads_see_which_holds_what() {
    alone(|| {
        take(&OUTER, 0xabc);
        let holders = thread::spawn(check::holders).join().unwrap();
        let mine: Vec<_> = holders.iter().filter(|h| h.lock == 0xabc).collect();
        assert_eq!((mine.len(), mine[0].class), (1, "outer"));
        check::released(0xabc);
        check::released(0xabc); // unlocked by force: nothing to forget
        assert!(check::holders().iter().all(|h| h.lock != 0xabc));
    });
}

#[test]
fn one_that_waits_for_itself_is_told_by_its_class() {
    let text = super::self_deadlock(&OUTER);
    assert!(
        text.contains("'outer'") && text.contains("holds itself"),
        "{text}"
    );
}
