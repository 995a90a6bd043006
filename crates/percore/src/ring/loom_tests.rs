//! The ring under loom: every interleaving of small models; a race on a slot, a lost or doubled item or a leak fails.

use super::{Consumer, ring};
use loom::{sync::Arc, thread};
use std::collections::VecDeque;

/// Takes `n` items, one by one.
fn take(rx: &mut Consumer<Arc<usize>>, n: usize) -> Vec<usize> {
    let mut got = Vec::new();
    while got.len() < n {
        match rx.pop() {
            Some(item) => got.push(*item),
            None => thread::yield_now(),
        }
    }
    got
}

#[test]
fn items_go_over_one_by_one_through_a_full_ring() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2);
        let writer = thread::spawn(move || {
            for i in 0..3 {
                let mut item = Arc::new(i);
                while let Err(back) = tx.push(item) {
                    item = back;
                    thread::yield_now();
                }
            }
        });
        assert_eq!(take(&mut rx, 3), [0, 1, 2]);
        writer.join().unwrap();
        assert!(rx.pop().is_none() && rx.is_abandoned());
    });
}

#[test]
fn batches_go_over_in_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2); // both sides wait for each other: without a bound it takes hours
    builder.check(|| {
        let (mut tx, mut rx) = ring(2);
        let writer = thread::spawn(move || {
            let mut items: VecDeque<_> = (0..3).map(Arc::new).collect();
            while !items.is_empty() {
                if tx.push_batch(&mut items) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut got = Vec::new();
        while got.len() < 3 {
            if rx.pop_batch(2, |item| got.push(*item)) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(got, [0, 1, 2]);
        writer.join().unwrap();
    });
}

#[test]
fn staged_items_appear_with_the_publication_and_not_before() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(4);
        let writer = thread::spawn(move || {
            for i in 0..2 {
                assert!(tx.stage(Arc::new(i)).is_ok());
            }
            tx.publish();
            tx
        });
        let len = rx.len();
        assert!(len == 0 || len == 2, "one of two that belong together");
        let tx = writer.join().unwrap();
        assert_eq!(take(&mut rx, 2), [0, 1]);
        drop(tx);
    });
}

/// Either end may go at any moment; what is left in the ring is dropped, by the last of them.
#[test]
fn what_is_left_is_dropped() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2);
        let witness = Arc::new(7);
        let (one, two) = (witness.clone(), witness.clone());
        let writer = thread::spawn(move || {
            assert!(tx.push(one).is_ok());
            assert!(tx.stage(two).is_ok()); // published by the drop
        });
        drop(rx.pop());
        drop(rx);
        writer.join().unwrap();
        assert_eq!(Arc::strong_count(&witness), 1);
    });
}

#[test]
fn a_consumer_that_sees_the_end_sees_the_last_item() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2);
        let writer = thread::spawn(move || assert!(tx.push(Arc::new(1)).is_ok()));
        if rx.is_abandoned() {
            assert!(rx.pop().is_some());
        }
        writer.join().unwrap();
    });
}
