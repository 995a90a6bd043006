//! Messages from one thread to another: our ring beside rtrb, crossbeam's ArrayQueue, ringbuf and std's mpsc.

use crate::harness::{Plan, per_operation, print_head, repeat, together};
use crossbeam_queue::ArrayQueue;
use percore::clock::now_ns;
use ringbuf::{
    HeapRb,
    traits::{Consumer as _, Producer as _, Split},
};
use std::{
    hint::black_box,
    sync::{Arc, mpsc},
};

const CAPACITY: usize = 256;
const NAMES: [&str; 5] = ["percore", "rtrb", "ArrayQueue", "ringbuf", "std mpsc"];

/// A batch in, a batch out, by one thread: what the instructions cost when nobody is waited for.
fn alone(
    terms: Terms,
    mut send: impl FnMut(u64, usize) -> usize,
    mut take: impl FnMut(usize) -> usize,
) -> f64 {
    let rounds = terms.messages / terms.batch;
    let ns = repeat(rounds, || {
        assert_eq!(send(7, terms.batch), take(terms.batch))
    });
    ns / terms.batch as f64
}

/// What two ends do when there is no room or nothing to take.
#[derive(Clone, Copy)]
enum Wait {
    /// The other end runs on another core.
    Spin,
    /// The other end needs this core.
    Yield,
    /// Both ends are one thread.
    Never,
}

impl Wait {
    #[inline(always)]
    fn once(self) {
        match self {
            Self::Spin => std::hint::spin_loop(),
            Self::Yield => std::thread::yield_now(),
            Self::Never => unreachable!("a batch always fits"),
        }
    }
}

/// One row's conditions.
#[derive(Clone, Copy)]
struct Terms {
    cores: [usize; 2],
    wait: Wait,
    messages: usize,
    batch: usize,
}

/// Each end is moved into its own thread, so that nothing but the ring is shared.
///
/// Sends `messages` over; nanoseconds for each. `send(first, n)` sends up to n messages numbered from `first` on, `take(max)` takes up to
/// max; both return how many.
fn stream(
    terms: Terms,
    mut send: impl FnMut(u64, usize) -> usize + Send,
    mut take: impl FnMut(usize) -> usize,
) -> f64 {
    if let Wait::Never = terms.wait {
        return alone(terms, send, take);
    }
    let there = move || {
        let mut sent = 0;
        while sent < terms.messages {
            let n = terms.batch.min(terms.messages - sent);
            match send(sent as u64, n) {
                0 => terms.wait.once(),
                n => sent += n,
            }
        }
    };
    let here = move || {
        let (start, mut taken) = (now_ns(), 0);
        while taken < terms.messages {
            match take(terms.batch) {
                0 => terms.wait.once(),
                n => taken += n,
            }
        }
        per_operation(now_ns() - start, terms.messages)
    };
    together(terms.cores, here, there)
}

fn message<const N: usize>(number: u64) -> [u64; N] {
    [number; N]
}

fn messages<const N: usize>(first: u64, n: usize) -> impl ExactSizeIterator<Item = [u64; N]> {
    (0..n).map(move |i| message(first + i as u64))
}

fn percore<const N: usize>(terms: Terms) -> f64 {
    let (mut tx, mut rx) = percore::ring::ring::<[u64; N]>(CAPACITY);
    if terms.batch == 1 {
        let send = move |first, _| usize::from(tx.push(message(first)).is_ok());
        stream(terms, send, move |_| {
            usize::from(black_box(rx.pop()).is_some())
        })
    } else {
        let send = move |first, n| tx.push_iter(messages(first, n));
        let take = move |max| {
            rx.pop_batch(max, |item| {
                black_box(item);
            })
        };
        stream(terms, send, take)
    }
}

fn rtrb<const N: usize>(terms: Terms) -> f64 {
    let (mut tx, mut rx) = rtrb::RingBuffer::<[u64; N]>::new(CAPACITY);
    if terms.batch == 1 {
        let send = move |first, _| usize::from(tx.push(message(first)).is_ok());
        stream(terms, send, move |_| {
            usize::from(black_box(rx.pop()).is_ok())
        })
    } else {
        let send = move |first, n: usize| {
            // As many as fit, as ours does; the second look is rtrb's own way to say how many.
            let chunk = match tx.write_chunk_uninit(n) {
                Ok(chunk) => chunk,
                Err(rtrb::chunks::ChunkError::TooFewSlots(0)) => return 0,
                Err(rtrb::chunks::ChunkError::TooFewSlots(room)) => {
                    tx.write_chunk_uninit(room).expect("room that was there")
                }
            };
            chunk.fill_from_iter(messages(first, n))
        };
        let take = move |max: usize| {
            let chunk = match rx.read_chunk(max) {
                Ok(chunk) => chunk,
                Err(rtrb::chunks::ChunkError::TooFewSlots(0)) => return 0,
                Err(rtrb::chunks::ChunkError::TooFewSlots(len)) => {
                    rx.read_chunk(len).expect("items that were there")
                }
            };
            let n = chunk.len();
            chunk.into_iter().for_each(|item| {
                black_box(item);
            });
            n
        };
        stream(terms, send, take)
    }
}

fn array_queue<const N: usize>(terms: Terms) -> f64 {
    let queue = Arc::new(ArrayQueue::<[u64; N]>::new(CAPACITY));
    let far = queue.clone();
    let send = move |first, n| {
        messages(first, n)
            .take_while(|&item| far.push(item).is_ok())
            .count()
    };
    let take = move |max| {
        (0..max)
            .take_while(|_| black_box(queue.pop()).is_some())
            .count()
    };
    stream(terms, send, take)
}

fn ringbuf<const N: usize>(terms: Terms) -> f64 {
    let (mut tx, mut rx) = HeapRb::<[u64; N]>::new(CAPACITY).split();
    if terms.batch == 1 {
        let send = move |first, _| usize::from(tx.try_push(message(first)).is_ok());
        stream(terms, send, |_| {
            usize::from(black_box(rx.try_pop()).is_some())
        })
    } else {
        let send = move |first, n| tx.push_iter(messages(first, n));
        let take = move |max| rx.pop_iter().take(max).map(black_box).count();
        stream(terms, send, take)
    }
}

fn std_mpsc<const N: usize>(terms: Terms) -> f64 {
    let (tx, rx) = mpsc::sync_channel::<[u64; N]>(CAPACITY);
    let send = move |first, n| {
        messages(first, n)
            .take_while(|&item| tx.try_send(item).is_ok())
            .count()
    };
    let take = move |max| {
        (0..max)
            .take_while(|_| black_box(rx.try_recv()).is_ok())
            .count()
    };
    stream(terms, send, take)
}

fn size<const N: usize>(plan: &Plan, place: &str, terms: Terms) {
    for batch in [1, 8, 32] {
        let terms = Terms { batch, ..terms };
        let name = format!("{} B, batch {batch}, {place}", N * 8);
        plan.row(
            &name,
            &mut [
                &mut || percore::<N>(terms),
                &mut || rtrb::<N>(terms),
                &mut || array_queue::<N>(terms),
                &mut || ringbuf::<N>(terms),
                &mut || std_mpsc::<N>(terms),
            ],
        );
    }
}

pub fn run(plan: &Plan) {
    print_head("message, thread to thread", &NAMES);
    let [a, b] = plan.cores;
    let mut places = vec![
        ("one thread", [a, a], Wait::Never),
        ("same core", [a, a], Wait::Yield),
    ];
    if plan.two_cores() {
        places.push(("two cores", [a, b], Wait::Spin));
    }
    for (place, cores, wait) in places {
        let messages = 20_000 * plan.scale;
        let terms = Terms {
            cores,
            wait,
            messages,
            batch: 1,
        };
        size::<1>(plan, place, terms);
        size::<4>(plan, place, terms);
        size::<8>(plan, place, terms);
    }
}

/// There and back, both ends spinning, halved.
fn ping_pong(
    terms: Terms,
    mut ends: [(
        impl FnMut([u64; 8]) -> bool + Send,
        impl FnMut() -> bool + Send,
    ); 2],
) -> f64 {
    let [near, far] = &mut ends;
    let there = move || {
        for i in 0..terms.messages {
            while !(far.1)() {
                terms.wait.once();
            }
            assert!((far.0)(message(i as u64)));
        }
    };
    let here = move || {
        let start = now_ns();
        for i in 0..terms.messages {
            assert!((near.0)(message(i as u64)));
            while !(near.1)() {
                terms.wait.once();
            }
        }
        per_operation(now_ns() - start, 2 * terms.messages)
    };
    together(terms.cores, here, there)
}

pub fn latency(plan: &Plan) {
    if !plan.two_cores() {
        println!("\nlatency: needs two cores");
        return;
    }
    print_head("one way, 64 B, two cores", &NAMES);
    let terms = Terms {
        cores: plan.cores,
        wait: Wait::Spin,
        messages: 2_000 * plan.scale,
        batch: 1,
    };
    let mut contenders: [Contender; 5] = [
        Box::new(move || {
            let (ab, ba) = (percore::ring::ring(CAPACITY), percore::ring::ring(CAPACITY));
            ping_pong(terms, [our_end(ab.0, ba.1), our_end(ba.0, ab.1)])
        }),
        Box::new(move || {
            let (ab, ba) = (
                rtrb::RingBuffer::new(CAPACITY),
                rtrb::RingBuffer::new(CAPACITY),
            );
            ping_pong(terms, [rtrb_end(ab.0, ba.1), rtrb_end(ba.0, ab.1)])
        }),
        Box::new(move || {
            let (ab, ba) = (ArrayQueue::new(CAPACITY), ArrayQueue::new(CAPACITY));
            let (ab, ba) = (Arc::new(ab), Arc::new(ba));
            let near = array_queue_end(ab.clone(), ba.clone());
            ping_pong(terms, [near, array_queue_end(ba, ab)])
        }),
        Box::new(move || {
            let (ab, ba) = (HeapRb::new(CAPACITY).split(), HeapRb::new(CAPACITY).split());
            ping_pong(terms, [ringbuf_end(ab.0, ba.1), ringbuf_end(ba.0, ab.1)])
        }),
        Box::new(move || {
            let (ab, ba) = (mpsc::sync_channel(CAPACITY), mpsc::sync_channel(CAPACITY));
            ping_pong(terms, [std_mpsc_end(ab.0, ba.1), std_mpsc_end(ba.0, ab.1)])
        }),
    ];
    let mut contenders: Vec<&mut dyn FnMut() -> f64> =
        contenders.iter_mut().map(|c| &mut **c as _).collect();
    plan.row("", &mut contenders);
}

type Contender = Box<dyn FnMut() -> f64>;
type Item = [u64; 8];

/// Two closures, to send and to see whether something came, over the two rings of one end.
fn our_end(
    mut tx: percore::ring::Producer<Item>,
    mut rx: percore::ring::Consumer<Item>,
) -> (impl FnMut(Item) -> bool + Send, impl FnMut() -> bool + Send) {
    (
        move |m| tx.push(m).is_ok(),
        move || black_box(rx.pop()).is_some(),
    )
}

fn rtrb_end(
    mut tx: rtrb::Producer<Item>,
    mut rx: rtrb::Consumer<Item>,
) -> (impl FnMut(Item) -> bool + Send, impl FnMut() -> bool + Send) {
    (
        move |m| tx.push(m).is_ok(),
        move || black_box(rx.pop()).is_ok(),
    )
}

fn array_queue_end(
    tx: Arc<ArrayQueue<Item>>,
    rx: Arc<ArrayQueue<Item>>,
) -> (impl FnMut(Item) -> bool + Send, impl FnMut() -> bool + Send) {
    (
        move |m| tx.push(m).is_ok(),
        move || black_box(rx.pop()).is_some(),
    )
}

fn ringbuf_end(
    mut tx: ringbuf::HeapProd<Item>,
    mut rx: ringbuf::HeapCons<Item>,
) -> (impl FnMut(Item) -> bool + Send, impl FnMut() -> bool + Send) {
    (
        move |m| tx.try_push(m).is_ok(),
        move || black_box(rx.try_pop()).is_some(),
    )
}

fn std_mpsc_end(
    tx: mpsc::SyncSender<Item>,
    rx: mpsc::Receiver<Item>,
) -> (impl FnMut(Item) -> bool + Send, impl FnMut() -> bool + Send) {
    (
        move |m| tx.try_send(m).is_ok(),
        move || black_box(rx.try_recv()).is_ok(),
    )
}
