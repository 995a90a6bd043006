//! The trace under loom: what a reader gets is whole and in order, and nothing is lost without being counted.

use super::{Event, Missed, Writer};
use loom::thread;

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
