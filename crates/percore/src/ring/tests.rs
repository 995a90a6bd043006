//! Tests of the ring: contract, two threads.

use super::ring;
use std::collections::VecDeque;

#[test]
fn first_in_first_out_and_full_returns_the_goods() {
    let (mut tx, mut rx) = ring(3);
    assert_eq!(tx.capacity(), 4);
    for i in 0..4 {
        assert_eq!(tx.push(i), Ok(()));
    }
    assert_eq!(tx.push(4), Err(4));
    assert_eq!(rx.pop(), Some(0));
    assert_eq!(tx.push(4), Ok(()));
    assert_eq!(
        (1..=4).map(|_| rx.pop()).collect::<Vec<_>>(),
        [1, 2, 3, 4].map(Some)
    );
    assert_eq!(rx.pop(), None);
}

#[test]
fn batches_take_what_fits() {
    let (mut tx, mut rx) = ring(4);
    let mut items: VecDeque<u32> = (0..6).collect();
    assert_eq!(tx.push_batch(&mut items), 4);
    assert_eq!(items, [4, 5]);
    let mut got = Vec::new();
    assert_eq!(rx.pop_batch(3, |i| got.push(i)), 3);
    assert_eq!(tx.push_batch(&mut items), 2);
    assert_eq!(rx.pop_batch(9, |i| got.push(i)), 3);
    assert_eq!(got, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn two_threads() {
    let (mut tx, mut rx) = ring(64);
    let writer = std::thread::spawn(move || {
        for i in 0..200_000u64 {
            while tx.push(i).is_err() {
                std::thread::yield_now();
            }
        }
    });
    for i in 0..200_000u64 {
        let got = loop {
            match rx.pop() {
                Some(got) => break got,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(got, i);
    }
    writer.join().unwrap();
    assert!(rx.is_abandoned());
}
