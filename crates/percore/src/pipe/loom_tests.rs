//! Pipes under loom: the handshake of a slot that is used again, bytes through a ring, and a writer that waits for room.

use super::{handshake, room};
use crate::{
    ring::byte_ring,
    sync::{Arc, AtomicU32, Cell},
};
use loom::thread;

/// A slot: a word of each side, and what the offering side clears for each stream.
struct Slot {
    offering: AtomicU32,
    accepting: AtomicU32,
    ring: Cell<u32>,
}

/// The offering side lets go of a stream while the other one accepts it, and offers another: it never clears what the other side has accepted.
#[test]
fn a_slot_is_used_again_when_both_have_let_go() {
    loom::model(|| {
        let slot = Arc::new(Slot {
            offering: AtomicU32::new(0),
            accepting: AtomicU32::new(0),
            ring: Cell::new(0),
        });
        let far = slot.clone();
        let accepts = thread::spawn(move || {
            for _ in 0..2 {
                let Some(generation) = handshake::offered(&far.offering) else {
                    continue;
                };
                if handshake::is_answered(&far.accepting, generation) {
                    continue;
                }
                if !handshake::accept(&far.accepting, &far.offering, generation) {
                    continue;
                }
                // SAFETY: loom checks that nothing clears it meanwhile.
                let seen = far.ring.with(|ring| unsafe { *ring });
                assert!(seen <= 2);
                handshake::let_go(&far.accepting, generation);
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            if let Some(generation) = handshake::next(&slot.offering, &slot.accepting) {
                last = generation;
                // SAFETY: as above.
                slot.ring.with_mut(|ring| unsafe { *ring = generation });
                handshake::offer(&slot.offering, generation);
                handshake::let_go(&slot.offering, generation);
            }
        }
        accepts.join().unwrap();
        let left = handshake::accepted(&slot.accepting, last);
        assert_ne!(left, Some(true), "an end is left");
    });
}

#[test]
fn bytes_come_out_in_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (mut tx, mut rx) = byte_ring(2);
        let writer = thread::spawn(move || {
            let mut left = &b"abc"[..];
            while !left.is_empty() {
                tx.restart(1);
                let n = tx.stage(&left[..1]);
                tx.publish();
                left = &left[n..];
                if n == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut got = Vec::new();
        while got.len() < 3 {
            let mut two = [0; 2];
            let n = rx.copy(0, &mut two);
            if n == 0 {
                thread::yield_now();
                continue;
            }
            rx.discard(n);
            got.extend_from_slice(&two[..n]);
        }
        assert_eq!(got, b"abc");
        writer.join().unwrap();
    });
}

/// A writer that finds no room, asks, and finds none again may sleep: the reader that makes room tells it.
#[test]
fn a_writer_without_room_hears_of_some() {
    loom::model(|| {
        let (mut tx, mut rx) = byte_ring(2);
        assert_eq!(tx.stage(b"ab"), 2);
        tx.publish();
        let word = Arc::new(AtomicU32::new(0));
        let far = word.clone();
        let writer = thread::spawn(move || {
            room::ask(&far, 0);
            tx.free() == 0
        });
        let mut two = [0; 2];
        assert_eq!(rx.copy(0, &mut two), 2);
        rx.discard(2);
        let is_told = room::is_awaited(&word);
        let sleeps = writer.join().unwrap();
        assert!(is_told || !sleeps);
    });
}
