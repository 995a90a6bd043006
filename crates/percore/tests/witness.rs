//! Planted faults in real locks: the witness finds each of them, although nothing ever hangs, and nothing in code that is right.

use percore::{
    doorbell::{Doorbell, Sleep},
    lock::{Class, Mutex, MutexGuard, mutex, reentrant},
    witness::{self, Action, Fault, Report},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex as StdMutex, PoisonError},
    thread,
    time::Duration,
};

static GIANT: Class = Class::new(1, "giant").across_sleep();
static TABLE: Class = Class::new(2, "table");
static ENTRY: Class = Class::new(3, "entry").several();

/// The faults that `test` commits.
fn faults_of(test: impl FnOnce()) -> Vec<Fault> {
    reports_of(test).iter().map(|r| r.fault).collect()
}

/// What is told of them: read before the next test has its turn, which forgets it.
fn reports_of(test: impl FnOnce()) -> Vec<Report> {
    static TURN: StdMutex<()> = StdMutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    witness::forget();
    witness::set_action(Action::Note);
    test();
    witness::set_action(Action::Panic);
    witness::reports()
}

struct World {
    giant: percore::lock::ReentrantMutex<()>,
    table: Mutex<Vec<u32>>,
    entries: [Mutex<u32>; 2],
}

impl World {
    fn new() -> Self {
        Self {
            giant: reentrant(&GIANT, ()),
            table: mutex(&TABLE, vec![1]),
            entries: [0, 1].map(|i| mutex(&ENTRY, i)),
        }
    }
}

#[test]
fn it_is_on() {
    const { assert!(witness::ON) };
}

#[test]
fn code_that_is_right_is_let_alone() {
    let world = World::new();
    let right = || {
        for i in 0..100 {
            let _giant = world.giant.lock();
            let _again = world.giant.lock();
            let mut table = world.table.lock();
            let (low, high) = (world.entries[0].lock(), world.entries[1].lock());
            table[0] = *low + *high + i;
            drop((high, low));
            MutexGuard::unlocked(&mut table, || drop(world.entries[1].lock()));
        }
    };
    let faults = faults_of(|| {
        thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(right)));
        });
    });
    assert_eq!(faults, []);
}

#[test]
fn a_planted_reversal() {
    let world = World::new();
    let reports = reports_of(|| {
        let _table = world.table.lock();
        let _giant = world.giant.lock();
    });
    let [Report { fault, text }] = &reports[..] else {
        panic!("one fault: {reports:?}");
    };
    assert_eq!(*fault, Fault::Reversal);
    assert!(
        text.contains("'giant' (rank 1) before 'table' (rank 2)"),
        "{text}"
    );
    // Both acquisitions are named by the function that made them.
    assert!(text.matches("a_planted_reversal").count() >= 2, "{text}");
}

#[test]
fn two_of_a_class_in_the_wrong_order() {
    let world = World::new();
    let faults = faults_of(|| {
        let _high = world.entries[1].lock();
        let _low = world.entries[0].lock();
    });
    assert_eq!(faults, [Fault::Reversal]);
}

#[test]
fn a_reversal_behind_a_lock_that_was_tried() {
    let world = World::new();
    let faults = faults_of(|| {
        let table = world.table.try_lock();
        assert!(world.giant.try_lock().is_some(), "trying is no fault");
        let _giant = world.giant.lock();
        drop(table);
    });
    assert_eq!(faults, [Fault::Reversal]);
}

#[test]
fn a_lock_under_a_leaf() {
    let world = World::new();
    let leaf = Mutex::new(0);
    let faults = faults_of(|| {
        drop((world.table.lock(), leaf.lock()));
        let _leaf = leaf.lock();
        let _entry = world.entries[0].lock();
    });
    assert_eq!(faults, [Fault::Reversal]);
}

#[test]
fn a_planted_self_deadlock() {
    let world = World::new();
    let faults = faults_of(|| {
        let _table = world.table.lock();
        let again = catch_unwind(AssertUnwindSafe(|| drop(world.table.lock())));
        assert!(again.is_err());
    });
    assert_eq!(faults, [Fault::SelfDeadlock]);
}

#[test]
fn a_lock_held_across_a_sleep() {
    let (world, bell) = (World::new(), Doorbell::new().unwrap());
    let nap = || {
        bell.arm(Sleep::Futex);
        bell.wait(Some(Duration::from_millis(1)));
        bell.disarm();
    };
    let faults = faults_of(|| {
        nap();
        let giant = world.giant.lock(); // may be
        nap();
        drop(giant);
        let _table = world.table.lock(); // may not
        nap();
    });
    assert_eq!(faults, [Fault::HeldAsleep]);
}

#[test]
fn show_locks_says_which_thread_holds_what() {
    let world = World::new();
    let faults = faults_of(|| {
        let table = world.table.lock();
        let shown = thread::spawn(witness::show_locks).join().unwrap();
        let mine = shown.lines().find(|line| line.contains("table")).unwrap();
        assert!(mine.contains("show_locks_says"), "{shown}");
        assert!(mine.contains("tests/witness.rs:"), "{shown}");
        drop(table);
        assert!(!witness::show_locks().contains("table"));
    });
    assert_eq!(faults, []);
}

/// What no thread can hold for less than it was held, and for longer than the test lasted.
#[test]
fn show_locks_says_for_how_long() {
    let world = World::new();
    let faults = faults_of(|| {
        let start = percore::clock::now_ns();
        let entry = world.entries[0].lock();
        let taken = percore::clock::now_ns();
        thread::sleep(Duration::from_millis(20));
        let held = percore::clock::now_ns() - taken;
        let shown = witness::show_locks();
        let most = percore::clock::now_ns() - start;
        let lock = format!("{:#x}", std::ptr::from_ref(&world.entries[0]).addr());
        let mine = shown.lines().filter(|line| line.contains("entry"));
        let mine = mine.min_by_key(|line| !line.contains(&lock)).unwrap();
        let us = mine
            .split(" µs")
            .next()
            .unwrap()
            .split_whitespace()
            .next_back();
        let us: u64 = us.unwrap().parse().unwrap();
        assert!(
            (held / 1000..=most / 1000).contains(&us),
            "{held}, {most}: {shown}"
        );
        drop(entry);
    });
    assert_eq!(faults, []);
}

#[test]
fn a_report_fails_a_test_at_its_end() {
    let world = World::new();
    let faults = faults_of(|| {
        witness::assert_no_reports();
        {
            let _table = world.table.lock();
            let _giant = world.giant.lock();
        }
        let panicked = catch_unwind(witness::assert_no_reports).unwrap_err();
        let text = panicked.downcast::<String>().unwrap();
        assert!(text.contains("1 reports"), "{text}");
    });
    assert_eq!(faults, [Fault::Reversal]);
}

/// The environment decides what a process does with a fault.
#[test]
fn a_fault_panics_or_aborts_as_the_environment_says() {
    use std::os::unix::process::ExitStatusExt;
    let end = |say: Option<&str>| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "faulty", "--ignored"]);
        child.env_remove("PERCORE_WITNESS");
        say.map(|say| child.env("PERCORE_WITNESS", say));
        let ended = child.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).contains("running 1 test");
        assert!(said, "{ended:?}");
        (ended.status.code(), ended.status.signal())
    };
    assert_eq!(end(None), (Some(101), None));
    assert_eq!(end(Some("panic")), (Some(101), None));
    assert_eq!(end(Some("abort")), (None, Some(6)));
}

#[test]
#[ignore = "commits a fault: another test runs it in a process of its own"]
fn faulty() {
    let world = World::new();
    let _table = world.table.lock();
    let _giant = world.giant.lock();
}
