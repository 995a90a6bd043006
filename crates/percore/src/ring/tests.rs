//! Tests of the ring on the heap: contract, drops, wrap-around, two threads.

use super::{Producer, ring};
use std::{cell::Cell, collections::VecDeque, panic, rc::Rc};

#[test]
fn first_in_first_out_and_full_returns_the_goods() {
    let (mut tx, mut rx) = ring(3);
    assert_eq!((tx.capacity(), rx.capacity()), (4, 4));
    for i in 0..4 {
        assert_eq!(tx.push(i), Ok(()));
    }
    assert_eq!(tx.push(4), Err(4));
    assert_eq!(rx.pop(), Some(0));
    assert_eq!(tx.push(4), Ok(()));
    let rest: Vec<_> = std::iter::from_fn(|| rx.pop()).collect();
    assert_eq!(rest, [1, 2, 3, 4]);
    assert!(rx.is_empty());
}

#[test]
fn the_smallest_ring_and_items_without_bytes() {
    for asked in [0, 1] {
        let (mut tx, mut rx) = ring(asked);
        for _ in 0..3 {
            assert_eq!(
                (tx.capacity(), tx.push(()), tx.push(())),
                (1, Ok(()), Err(()))
            );
            assert_eq!((rx.pop(), rx.pop()), (Some(()), None));
        }
    }
}

#[test]
fn batches_take_what_fits() {
    let (mut tx, mut rx) = ring(4);
    let mut items: VecDeque<u32> = (0..6).collect();
    assert_eq!(tx.push_batch(&mut items), 4);
    assert_eq!(items, [4, 5]);
    assert_eq!(tx.push_batch(&mut items), 0);
    let mut got = Vec::new();
    assert_eq!(rx.pop_batch(3, |i| got.push(i)), 3);
    assert_eq!(tx.push_batch(&mut items), 2);
    assert_eq!(rx.pop_batch(0, |i| got.push(i)), 0);
    assert_eq!(rx.pop_batch(9, |i| got.push(i)), 3);
    assert_eq!(got, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_iterator_is_asked_for_no_more_than_fits() {
    let (mut tx, mut rx) = ring(4);
    let asked = Cell::new(0);
    let mut source = (0..).inspect(|_| asked.set(asked.get() + 1));
    assert_eq!(tx.push_iter(&mut source), 4);
    assert_eq!(tx.push_iter(&mut source), 0);
    assert_eq!((asked.get(), rx.len()), (4, 4));
    assert_eq!(rx.pop_batch(2, |_| ()), 2);
    assert_eq!(tx.push_iter([7]), 1);
    assert_eq!(tx.room(), 1);
}

#[test]
fn staged_items_wait_for_the_publication() {
    let (mut tx, mut rx) = ring(2);
    assert_eq!(
        (tx.stage(1), tx.stage(2), tx.stage(3)),
        (Ok(()), Ok(()), Err(3))
    );
    assert_eq!((rx.pop(), rx.len()), (None, 0));
    tx.publish();
    assert_eq!((rx.len(), rx.pop()), (2, Some(1)));
    assert_eq!(tx.stage(3), Ok(()));
    drop(tx);
    assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(2), Some(3), None));
}

#[test]
fn a_side_learns_that_the_other_is_gone() {
    let (tx, mut rx) = ring::<u8>(2);
    assert!(!tx.is_abandoned() && !rx.is_abandoned());
    drop(tx);
    assert!(rx.is_abandoned() && rx.is_empty());
    let (mut tx, rx) = ring::<u8>(2);
    drop(rx);
    assert!(tx.is_abandoned());
    assert_eq!(tx.push(1), Ok(()), "goes nowhere, harms nothing");
}

#[test]
fn what_remains_is_dropped_once_whichever_end_goes_last() {
    for consumer_last in [false, true] {
        let witness = Rc::new(());
        let (mut tx, mut rx) = ring(8);
        for _ in 0..20 {
            assert!(tx.push(witness.clone()).is_ok());
            drop(rx.pop());
        }
        tx.push_iter((0..5).map(|_| witness.clone()));
        assert!(tx.stage(witness.clone()).is_ok());
        assert_eq!(Rc::strong_count(&witness), 7);
        if consumer_last {
            drop(tx);
            drop(rx);
        } else {
            drop(rx);
            drop(tx);
        }
        assert_eq!(Rc::strong_count(&witness), 1);
    }
}

#[test]
fn a_taker_that_panics_loses_what_it_took_and_nothing_else() {
    let (mut tx, mut rx) = ring(4);
    let witness = Rc::new(());
    tx.push_iter((0..4).map(|i| (i, witness.clone())));
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        rx.pop_batch(4, |(i, _)| assert!(i < 1, "on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(rx.pop().map(|(i, _)| i), Some(2));
    assert_eq!((rx.len(), tx.room(), Rc::strong_count(&witness)), (1, 3, 2));
}

#[test]
fn an_iterator_that_panics_leaves_what_it_gave() {
    let (mut tx, mut rx) = ring(4);
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        tx.push_iter((0..4).inspect(|&i| assert!(i < 2, "on purpose")));
    }));
    assert!(panicked.is_err());
    tx.publish();
    assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(0), Some(1), None));
}

/// Indices run freely through the end of their range.
#[test]
fn indices_wrap() {
    let (mut tx, mut rx) = ring(4);
    let near_the_end = usize::MAX - 2;
    (tx.tail, tx.head, rx.tail, rx.head) = (near_the_end, near_the_end, near_the_end, near_the_end);
    tx.publish();
    rx.release();
    for i in 0..10 {
        assert_eq!(tx.push_iter([i, i, i, i, i]), 4);
        assert_eq!((tx.room(), rx.len()), (0, 4));
        assert_eq!(rx.pop_batch(9, |got| assert_eq!(got, i)), 4);
    }
    assert!(!tx.is_corrupt() && !rx.is_corrupt());
}

fn send_all(mut tx: Producer<Box<u64>>, items: u64, batch: u64) {
    let mut waiting = VecDeque::new();
    let mut next = 0;
    while next < items || !waiting.is_empty() {
        while next < items && (waiting.len() as u64) < batch {
            waiting.push_back(Box::new(next));
            next += 1;
        }
        if tx.push_batch(&mut waiting) == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn two_threads_one_by_one_and_in_batches() {
    const ITEMS: u64 = 100_000;
    for (capacity, batch) in [(1, 1), (2, 3), (64, 1), (64, 32), (1024, 500)] {
        let (tx, mut rx) = ring(capacity);
        let writer = std::thread::spawn(move || send_all(tx, ITEMS, batch));
        let mut expected = 0;
        while expected < ITEMS {
            let before = expected;
            let check = |got: Box<u64>| {
                assert_eq!(*got, expected);
                expected += 1;
            };
            if batch == 1 {
                rx.pop().map(check);
            } else {
                rx.pop_batch(40, check);
            }
            if expected == before {
                std::thread::yield_now();
            }
        }
        writer.join().unwrap();
        assert!(rx.is_abandoned() && rx.is_empty());
    }
}

/// A line for the other side's index where that has moved, and those of the items.
#[cfg(feature = "operations")]
#[test]
fn a_line_is_counted_where_the_other_side_has_moved() {
    crate::own::tests::alone("ring::tests::counted");
}

#[cfg(feature = "operations")]
#[test]
#[ignore = "counts all that its process does: another test runs it in one of its own"]
fn counted() {
    use crate::operations::{Operation, read};
    let lines = || read()[Operation::Line as usize];
    let (mut tx, mut rx) = ring::<[u64; 8]>(4);
    let start = lines();
    assert!(rx.is_empty() && rx.pop().is_none());
    assert_eq!(lines() - start, 0, "nothing has moved");
    (0..4).for_each(|i| tx.push([i; 8]).unwrap());
    assert_eq!(
        (rx.len(), lines() - start),
        (4, 5),
        "the index and four items"
    );
    assert_eq!((rx.len(), lines() - start), (4, 5), "the same ones");
    assert!(tx.push([4; 8]).is_err());
    assert_eq!(lines() - start, 5, "the other side has taken none");
    assert!(rx.pop().is_some() && tx.push([4; 8]).is_ok());
    assert_eq!(lines() - start, 6, "the consumer's index");
    assert_eq!(
        (rx.len(), lines() - start),
        (4, 8),
        "one more, and the index"
    );
}
