//! Messages between two cores through the crossbar, beside one bare ring and crossbeam's ArrayQueue.

use crate::harness::{Plan, per_operation, print_head, together};
use crossbeam_queue::ArrayQueue;
use percore::{clock::now_ns, crossbar::crossbar, ring::ring};
use std::{hint::black_box, hint::spin_loop, iter::repeat_n, sync::Arc};

type Message = [u64; 8];
const CAPACITY: usize = 256;

pub fn run(plan: &Plan) {
    if !plan.two_cores() {
        return;
    }
    let names = ["of 2 cores", "of 8 cores", "bare ring", "ArrayQueue"];
    print_head("64-byte message, core to core", &names);
    let n = 50_000 * plan.scale;
    for batch in [32, 8, 1] {
        plan.row(
            &format!("bursts of {batch}"),
            &mut [
                &mut || through_crossbar(plan, n, batch, 2),
                &mut || through_crossbar(plan, n, batch, 8),
                &mut || through_ring(plan, n, batch),
                &mut || through_queue(plan, n, batch),
            ],
        );
    }
}

/// `send(n)` and `take(n)` move up to n messages and say how many.
fn stream(
    plan: &Plan,
    messages: usize,
    batch: usize,
    mut send: impl FnMut(usize) -> usize + Send,
    mut take: impl FnMut(usize) -> usize,
) -> f64 {
    let there = move || {
        let mut sent = 0;
        while sent < messages {
            match send(batch.min(messages - sent)) {
                0 => spin_loop(),
                n => sent += n,
            }
        }
    };
    let here = move || {
        let (start, mut taken) = (now_ns(), 0);
        while taken < messages {
            match take(batch) {
                0 => spin_loop(),
                n => taken += n,
            }
        }
        per_operation(now_ns() - start, messages)
    };
    together(plan.cores, here, there)
}

fn through_crossbar(plan: &Plan, messages: usize, batch: usize, cores: usize) -> f64 {
    let mut ports = crossbar::<Message>(cores, CAPACITY).expect("eventfds");
    let mut sender = ports.pop().expect("two ports");
    let mut receiver = ports.swap_remove(0);
    let send = move |n| {
        let sent = repeat_n([7; 8], n).take_while(|m| sender.to.send(0, *m).is_ok());
        let sent = sent.count();
        sender.to.flush();
        sent
    };
    let take = move |n| {
        receiver.from.receive(n, |_, message| {
            black_box(message);
        })
    };
    stream(plan, messages, batch, send, take)
}

fn through_ring(plan: &Plan, messages: usize, batch: usize) -> f64 {
    let (mut tx, mut rx) = ring::<Message>(CAPACITY);
    let send = move |n| tx.push_iter(repeat_n([7; 8], n));
    let take = move |n| {
        rx.pop_batch(n, |message| {
            black_box(message);
        })
    };
    stream(plan, messages, batch, send, take)
}

fn through_queue(plan: &Plan, messages: usize, batch: usize) -> f64 {
    let queue = Arc::new(ArrayQueue::<Message>::new(CAPACITY));
    let other = queue.clone();
    let send = move |n| {
        repeat_n([7; 8], n)
            .take_while(|m| other.push(*m).is_ok())
            .count()
    };
    let take = move |n| {
        std::iter::from_fn(|| queue.pop())
            .take(n)
            .inspect(|message| _ = black_box(message))
            .count()
    };
    stream(plan, messages, batch, send, take)
}
