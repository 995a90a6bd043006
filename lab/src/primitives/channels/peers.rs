//! The crates that stand beside our ring, each used as its documentation says is fastest.

use std::sync::{Arc, mpsc};

use crossbeam_queue::ArrayQueue;
use ringbuf::{
    HeapCons, HeapProd, HeapRb,
    traits::{Consumer as _, Producer as _, Split},
};
use rtrb::chunks::ChunkError;

use super::super::traffic::{CAPACITY, Channel, Tally, messages};

/// rtrb: chunks where there is more than one message.
pub(super) struct RtrbWay;

impl<const N: usize> Channel<N> for RtrbWay {
    type Tx = rtrb::Producer<[u64; N]>;
    type Rx = rtrb::Consumer<[u64; N]>;

    fn open() -> (Self::Tx, Self::Rx) {
        rtrb::RingBuffer::new(CAPACITY)
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        tx.push(message).is_ok()
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        // As many as fit, as ours does; the second look is rtrb's own way to say how many.
        let room = match tx.write_chunk_uninit(n) {
            Ok(chunk) => return chunk.fill_from_iter(messages(first, n)),
            Err(ChunkError::TooFewSlots(room)) => room,
        };
        match tx.write_chunk_uninit(room) {
            Ok(chunk) if room > 0 => chunk.fill_from_iter(messages(first, room)),
            _ => 0,
        }
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        rx.pop().ok()
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        let len = match rx.read_chunk(max) {
            Ok(chunk) => return read(chunk, tally),
            Err(ChunkError::TooFewSlots(len)) => len,
        };
        match rx.read_chunk(len) {
            Ok(chunk) if len > 0 => read(chunk, tally),
            _ => (),
        }
    }
}

/// In place: nothing is moved out of the ring.
#[inline(always)]
fn read<const N: usize>(chunk: rtrb::chunks::ReadChunk<'_, [u64; N]>, tally: &mut Tally) {
    let (first, second) = chunk.as_slices();
    first.iter().for_each(|message| tally.add(message));
    second.iter().for_each(|message| tally.add(message));
    chunk.commit_all();
}

/// ringbuf: its iterators, which publish once.
pub(super) struct RingbufWay;

impl<const N: usize> Channel<N> for RingbufWay {
    type Tx = HeapProd<[u64; N]>;
    type Rx = HeapCons<[u64; N]>;

    fn open() -> (Self::Tx, Self::Rx) {
        HeapRb::new(CAPACITY).split()
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        tx.try_push(message).is_ok()
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        tx.push_iter(messages(first, n))
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        rx.try_pop()
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        rx.pop_iter()
            .take(max)
            .for_each(|message| tally.add(&message));
    }
}

/// crossbeam's array queue: many senders, many receivers.
pub(in super::super) struct ArrayQueueWay;

impl<const N: usize> Channel<N> for ArrayQueueWay {
    type Tx = Arc<ArrayQueue<[u64; N]>>;
    type Rx = Self::Tx;

    fn open() -> (Self::Tx, Self::Rx) {
        let queue = Arc::new(ArrayQueue::new(CAPACITY));
        (queue.clone(), queue)
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        tx.push(message).is_ok()
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        send_each::<Self, N>(tx, first, n)
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        rx.pop()
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        take_each::<Self, N>(rx, max, tally);
    }
}

/// crossbeam's channel, bounded.
pub(in super::super) struct CrossbeamWay;

impl<const N: usize> Channel<N> for CrossbeamWay {
    type Tx = crossbeam_channel::Sender<[u64; N]>;
    type Rx = crossbeam_channel::Receiver<[u64; N]>;

    fn open() -> (Self::Tx, Self::Rx) {
        crossbeam_channel::bounded(CAPACITY)
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        tx.try_send(message).is_ok()
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        send_each::<Self, N>(tx, first, n)
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        rx.try_recv().ok()
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        take_each::<Self, N>(rx, max, tally);
    }
}

/// The standard library's channel, bounded.
pub(in super::super) struct MpscWay;

impl<const N: usize> Channel<N> for MpscWay {
    type Tx = mpsc::SyncSender<[u64; N]>;
    type Rx = mpsc::Receiver<[u64; N]>;

    fn open() -> (Self::Tx, Self::Rx) {
        mpsc::sync_channel(CAPACITY)
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        tx.try_send(message).is_ok()
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        send_each::<Self, N>(tx, first, n)
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        rx.try_recv().ok()
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        take_each::<Self, N>(rx, max, tally);
    }
}

/// A batch where the channel knows none.
#[inline(always)]
fn send_each<C: Channel<N>, const N: usize>(tx: &mut C::Tx, first: u64, n: usize) -> usize {
    messages(first, n)
        .take_while(|message| C::send_one(tx, *message))
        .count()
}

/// [`send_each`] at the other end.
#[inline(always)]
fn take_each<C: Channel<N>, const N: usize>(rx: &mut C::Rx, max: usize, tally: &mut Tally) {
    std::iter::from_fn(|| C::take_one(rx))
        .take(max)
        .for_each(|message| tally.add(&message));
}
