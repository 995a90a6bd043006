//! Messages from one thread to another: what is a channel, how it is filled and emptied, and how what came is checked.

use std::hint::spin_loop;

use super::{Bench, per_operation};
use crate::kit::seconds;

/// Slots in every channel. netchan's own have as many.
pub(super) const CAPACITY: usize = 256;

/// A way for messages of `N` words. Each end moves into its own thread, so that nothing but the channel is shared.
pub(super) trait Channel<const N: usize> {
    /// The sending end.
    type Tx: Send;
    /// The receiving end.
    type Rx: Send;
    /// An empty one.
    fn open() -> (Self::Tx, Self::Rx);
    /// Sends one message; false if there was no room.
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool;
    /// Sends up to `n` messages numbered from `first` on, as one batch where the channel knows batches; how many.
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize;
    /// Takes one message, if there is one.
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]>;
    /// Takes up to `max` messages, as one batch where the channel knows batches, and adds them up.
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally);
}

/// A message whose words all say which one it is.
#[inline(always)]
pub(super) fn message<const N: usize>(number: u64) -> [u64; N] {
    [number; N]
}

/// `n` of them, from `first` on.
#[inline(always)]
pub(super) fn messages<const N: usize>(
    first: u64,
    n: usize,
) -> impl ExactSizeIterator<Item = [u64; N]> {
    (0..n).map(move |i| message(first.wrapping_add(i as u64))) // widening: usize to u64
}

/// All words of a message, so that none is left unread.
#[inline(always)]
fn words<const N: usize>(message: &[u64; N]) -> u64 {
    message.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

/// What arrived: how many messages, and the sum of all their words.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Tally {
    messages: usize,
    sum: u64,
}

impl Tally {
    /// One message more.
    #[inline(always)]
    pub fn add<const N: usize>(&mut self, message: &[u64; N]) {
        self.messages += 1;
        self.sum = self.sum.wrapping_add(words(message));
    }

    /// After the messages 0 to `messages` of `N` words each.
    fn expected<const N: usize>(messages: usize) -> Self {
        let numbers = (0..messages as u64).fold(0, u64::wrapping_add); // widening: usize to u64
        let sum = numbers.wrapping_mul(N as u64);
        Self { messages, sum }
    }
}

/// How a stream goes.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// Where the ends are.
    pub place: Place,
    /// Messages in all.
    pub messages: usize,
    /// Messages in one batch.
    pub batch: usize,
}

/// Where the ends are.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// Two threads on two cores; one that waits spins.
    Cores([usize; 2]),
    /// Two threads on one core; one that waits gives it to the other.
    OneCore(usize),
    /// One thread, a batch in and a batch out: what the instructions cost without waiting.
    OneThread,
}

/// Sends the messages over and checks what came; nanoseconds for each.
pub(super) fn stream<C: Channel<N>, const N: usize>(bench: &Bench, terms: Terms) -> f64 {
    let (mut tx, mut rx) = C::open();
    let send = move |first, n| {
        if terms.batch == 1 {
            usize::from(C::send_one(&mut tx, message(first)))
        } else {
            C::send(&mut tx, first, n)
        }
    };
    let mut tally = Tally::default();
    let take = |tally: &mut Tally| {
        if terms.batch == 1 {
            C::take_one(&mut rx).iter().for_each(|m| tally.add(m));
        } else {
            C::take(&mut rx, terms.batch, tally);
        }
    };
    let ns = match terms.place {
        Place::Cores(cores) => two_threads(bench, cores, terms, spin_loop, send, take, &mut tally),
        Place::OneCore(core) => {
            let wait = std::thread::yield_now;
            two_threads(bench, [core; 2], terms, wait, send, take, &mut tally)
        }
        Place::OneThread => one_thread(bench, terms, send, take, &mut tally),
    };
    assert_eq!(tally, Tally::expected::<N>(terms.messages));
    ns
}

fn one_thread(
    bench: &Bench,
    terms: Terms,
    mut send: impl FnMut(u64, usize) -> usize,
    mut take: impl FnMut(&mut Tally),
    tally: &mut Tally,
) -> f64 {
    bench.time(terms.messages, || {
        let mut sent = 0;
        while sent < terms.messages {
            sent += send(sent as u64, terms.batch.min(terms.messages - sent)); // widening
            take(tally);
        }
    })
}

fn two_threads(
    bench: &Bench,
    cores: [usize; 2],
    terms: Terms,
    wait: impl Fn() + Copy + Send,
    mut send: impl FnMut(u64, usize) -> usize + Send,
    mut take: impl FnMut(&mut Tally),
    tally: &mut Tally,
) -> f64 {
    let there = move || {
        let mut sent = 0;
        while sent < terms.messages {
            match send(sent as u64, terms.batch.min(terms.messages - sent)) {
                0 => wait(),
                n => sent += n,
            }
        }
    };
    let receive_all = || {
        while tally.messages < terms.messages {
            let before = tally.messages;
            take(tally);
            if tally.messages == before {
                wait();
            }
        }
    };
    let here = || per_operation(seconds(receive_all), terms.messages);
    bench.together(cores, here, there)
}

/// There and back `trips` times, both ends spinning, halved: nanoseconds one way.
pub(super) fn ping_pong<C: Channel<N>, const N: usize>(
    bench: &Bench,
    cores: [usize; 2],
    trips: usize,
) -> f64 {
    let ((mut ping_tx, mut ping_rx), (mut pong_tx, mut pong_rx)) = (C::open(), C::open());
    let there = move || {
        for _ in 0..trips {
            // What came goes back, every word one more: it has to be read first.
            let answer = wait_for::<C, N>(&mut ping_rx).map(|word| word.wrapping_add(1));
            assert!(C::send_one(&mut pong_tx, answer), "room for one");
        }
    };
    let mut tally = Tally::default();
    let here = || {
        let all = || {
            for i in 0..trips as u64 {
                assert!(C::send_one(&mut ping_tx, message(i)), "room for one");
                tally.add(&wait_for::<C, N>(&mut pong_rx));
            }
        };
        per_operation(seconds(all), 2 * trips)
    };
    let ns = bench.together(cores, here, there);
    let mut expected = Tally::expected::<N>(trips);
    let ones = (trips as u64).wrapping_mul(N as u64); // widening: usize to u64
    expected.sum = expected.sum.wrapping_add(ones);
    assert_eq!(tally, expected);
    ns
}

#[inline(always)]
fn wait_for<C: Channel<N>, const N: usize>(rx: &mut C::Rx) -> [u64; N] {
    loop {
        match C::take_one(rx) {
            Some(message) => return message,
            None => spin_loop(),
        }
    }
}
