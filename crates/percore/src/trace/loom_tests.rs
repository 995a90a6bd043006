//! The trace under loom: what a reader gets is whole and in order, and nothing is lost without being counted.

use super::{Event, Missed, Pass, State, Trigger, Writer};
use loom::{sync::Arc, thread};

const EVENTS: u64 = 3;
const DOUBLE: Event<2> = Event::new(7, "double", "{once} and {twice}");

/// A ring of `records`, a writer that goes round it, a reader that looks once while it does and once after.
fn model(records: usize) {
    loom::model(move || {
        let writer = Writer::new(records);
        let mut reader = writer.reader();
        let thread = thread::spawn(move || {
            for i in 0..EVENTS {
                writer
                    .memory
                    .place()
                    .write(DOUBLE.id(), 100 + i, [i, 2 * i]);
            }
        });
        let mut got = 0;
        let mut read = |from: u64| {
            let mut next = from;
            let Missed { overwritten, torn } = reader.read(|record| {
                let n = record.number;
                assert!(n >= next, "out of order");
                assert_eq!((record.event, record.stamp), (7, 100 + n));
                assert_eq!(record.args[..2], [n, 2 * n]);
                next = n + 1;
                got += 1;
            });
            got += overwritten + torn;
            next
        };
        let next = read(0);
        thread.join().unwrap();
        read(next);
        assert_eq!(got, EVENTS);
    });
}

#[test]
fn a_ring_of_one_is_overwritten_under_the_reader() {
    model(1);
}

#[test]
fn a_ring_of_two() {
    model(2);
}

#[test]
fn after_the_writer_nothing_is_torn() {
    loom::model(|| {
        let writer = Writer::new(2);
        let mut reader = writer.reader();
        thread::spawn(move || {
            for i in 0..EVENTS {
                writer.memory.place().write(DOUBLE.id(), i, [i, i]);
            }
        })
        .join()
        .unwrap();
        let mut numbers = Vec::new();
        let missed = reader.read(|record| numbers.push(record.number));
        assert_eq!(numbers, [1, 2]);
        assert_eq!((missed.overwritten, missed.torn), (1, 0));
    });
}

/// Two threads fire, each with a cause of its own, and go on with events of which `after` may pass.
fn trigger_model(after: u64) {
    loom::model(move || {
        let trigger = Arc::new(Trigger::new());
        trigger.arm(after);
        let run = |cause: u32| {
            let trigger = trigger.clone();
            move || {
                let is_first = trigger.fire(cause, u64::from(cause));
                (is_first, trigger.pass())
            }
        };
        let other = thread::spawn(run(1));
        let (own, other) = (run(2)(), other.join().unwrap());
        assert!(own.0 != other.0, "one of the two fires it");
        let passed = [own.1, other.1];
        let many = |pass| passed.iter().filter(|&&p| p == pass).count() as u64;
        assert_eq!(many(Pass::No), 2 - after.min(2));
        assert_eq!(many(Pass::Last), u64::from((1..=2).contains(&after)));
        let State::Fired { cause, stamp, left } = trigger.state() else {
            panic!("it fired");
        };
        assert_eq!((cause == 2, stamp), (own.0, Some(cause.into())));
        assert_eq!(left, after.saturating_sub(2));
    });
}

#[test]
fn a_trigger_that_lets_nothing_pass() {
    trigger_model(0);
}

#[test]
fn a_trigger_that_lets_one_pass() {
    trigger_model(1);
}

#[test]
fn a_trigger_that_lets_more_pass() {
    trigger_model(3);
}

#[test]
fn what_passes_is_counted_by_the_arming_that_fired() {
    loom::model(|| {
        let trigger = Arc::new(Trigger::new());
        let other = {
            let trigger = trigger.clone();
            thread::spawn(move || match trigger.state() {
                // Fired: then the count is there, too.
                State::Fired { left, .. } => assert_eq!((left, trigger.pass()), (1, Pass::Last)),
                State::Idle | State::Armed => {}
            })
        };
        trigger.arm(1);
        trigger.fire(7, 9);
        other.join().unwrap();
    });
}
