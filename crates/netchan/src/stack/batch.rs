//! Batches of a thread that has several sockets to serve before it waits again: what it sends is held until it has served them, so that the link
//! takes it in one call (Linux's `xmit_more`).
//!
//! What is held lies in the channels to the links. It goes out when as many sends were made as sockets had something, when [`MOST`] are held, when
//! the first of them is [`LONGEST`] old and the thread sends again, or when the thread waits. A thread that computes meanwhile does none of that:
//! then a link's thread sends it. Each of them looks at the channels once an interval ([`super::link_leader`]) while no thread leads them, so
//! that sends are held only then.

use std::{cell::Cell, ptr::from_ref, time::Duration};

use proto::time::Instant;

use super::Stack;

/// Most turns with output whose packets are held.
const MOST: u32 = 16;

/// How old the first of them is at most when another send comes. Serving a request takes some ten microseconds; of a thread that needs longer for each, the
/// answers would come late.
const LONGEST: Duration = Duration::from_micros(200);

/// For so many batches nothing is held after one was too long.
const PAUSE: u32 = 8;

thread_local! {
    static BATCH: Cell<Batch> = const { Cell::new(Batch::NONE) };
}

/// What the calling thread serves.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// The address of its stack; only compared.
    stack: usize,
    /// Sockets that it has still to serve.
    left: u32,
    /// The queues (a bit each) for which something is held.
    queues: u64,
    /// Turns whose output is held.
    held: u32,
    /// When the first of them was.
    since: Instant,
    /// Batches until something may be held again.
    pause: u32,
}

impl Batch {
    const NONE: Self = Self {
        stack: 0,
        left: 0,
        queues: 0,
        held: 0,
        since: Instant::ZERO,
        pause: 0,
    };

    /// `queues` have got something; those that it is to be sent to now.
    fn add(&mut self, queues: u64, now: Instant) -> u64 {
        if self.held == 0 {
            self.since = now;
        }
        self.queues |= queues;
        self.held += 1;
        self.left = self.left.saturating_sub(1);
        let is_late = self.is_late(now);
        if self.left == 0 || self.held >= MOST || is_late {
            return self.take(now);
        }
        0
    }

    /// Those for which something is held, which is sent now.
    fn take(&mut self, now: Instant) -> u64 {
        if self.is_late(now) {
            (self.left, self.pause) = (0, PAUSE);
        }
        self.held = 0;
        std::mem::take(&mut self.queues)
    }

    fn is_late(&self, now: Instant) -> bool {
        self.held > 0 && now >= self.since + LONGEST
    }

    /// `ready` sockets are to be served from now on.
    fn begin(&mut self, ready: usize) {
        self.left = match (self.pause, u32::try_from(ready)) {
            (0, Ok(ready @ 2..)) => ready,
            _ => 0,
        };
        self.pause = self.pause.saturating_sub(u32::from(ready > 1));
    }
}

impl Stack {
    /// The calling thread has `ready` sockets to serve before it waits again; what it has sent so far goes out.
    pub fn begin_batch(&self, ready: usize) {
        self.end_batch();
        let me = from_ref(self).addr();
        with_batch(|batch| {
            // One that serves two stacks in turns: the other one's packets wait for its own wait.
            if batch.queues == 0 {
                batch.stack = me;
                batch.begin(ready);
            }
        });
    }

    /// The calling thread waits now: what it has sent goes out.
    pub fn end_batch(&self) {
        let me = from_ref(self).addr();
        let is_held = with_batch(|batch| {
            let is_mine = batch.stack == me;
            if is_mine {
                batch.left = 0;
            }
            is_mine && batch.queues != 0
        });
        if is_held {
            let now = self.clock.now();
            self.send_led(with_batch(|batch| batch.take(now)), now);
        }
    }

    /// The calling thread has put something into the channels to `queues`: sends it, or holds it.
    pub(super) fn send_or_hold(&self, shard: usize, queues: u64, now: Instant) {
        let me = from_ref(self).addr();
        let queues = with_batch(|batch| {
            if batch.stack != me || batch.left == 0 {
                return queues;
            }
            if !self.driver.lane_of_shard(shard).leader.is_away() {
                batch.left = 0; // the queues' threads may sleep without a limit
            }
            batch.add(queues, now)
        });
        self.send_led(queues, now);
    }
}

fn with_batch<R>(f: impl FnOnce(&mut Batch) -> R) -> R {
    let mut batch = BATCH.get();
    let result = f(&mut batch);
    BATCH.set(batch);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn serving(ready: usize) -> Batch {
        let mut batch = Batch::NONE;
        batch.begin(ready);
        batch
    }

    #[test]
    fn the_last_of_those_that_were_ready_sends_for_all() {
        let mut batch = serving(3);
        assert_eq!(batch.add(0b01, at(0)), 0);
        assert_eq!(batch.add(0b10, at(1)), 0);
        assert_eq!(batch.add(0b01, at(2)), 0b11);
        assert_eq!((batch.left, batch.queues, batch.held), (0, 0, 0));
    }

    #[test]
    fn one_socket_alone_is_no_batch() {
        assert_eq!(serving(0).left, 0);
        assert_eq!(serving(1).left, 0);
        assert_eq!(serving(2).left, 2);
    }

    #[test]
    fn so_many_are_held_at_most() {
        let mut batch = serving(100);
        for round in 0..3 {
            for n in 1..MOST {
                assert_eq!(batch.add(1, at(0)), 0, "{round}, {n}");
            }
            assert_eq!(batch.add(1, at(0)), 1, "{round}");
        }
    }

    #[test]
    fn a_batch_that_takes_too_long_is_the_last_for_a_while() {
        let longest = 200;
        let mut batch = serving(5);
        assert_eq!(batch.add(1, at(0)), 0);
        assert_eq!(batch.add(1, at(longest - 1)), 0);
        assert_eq!(batch.add(1, at(longest)), 1, "it was long");
        assert_eq!(batch.left, 0);
        for n in 0..PAUSE {
            batch.begin(1); // does not count
            batch.begin(5);
            assert_eq!(batch.left, 0, "{n}");
        }
        batch.begin(5);
        assert_eq!(batch.left, 5);
        // The wait found it too long: likewise.
        assert_eq!(batch.add(1, at(0)), 0);
        assert_eq!(batch.take(at(longest)), 1);
        batch.begin(5);
        assert_eq!(batch.left, 0);
    }
}
