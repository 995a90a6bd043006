//! What the parts of one listener in several shards share: how many connections wait to be accepted, and which of them came first.
//!
//! Each part has its own queue, which its shard alone touches. A connection that joins one takes a ticket here; a part shows the ticket of
//! its first one, so that accept(2) goes to the part whose turn it is, without a look at the others.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// No connection waits in a part.
const NONE: u64 = u64::MAX;

/// Of one listener.
#[derive(Debug)]
pub struct Parts {
    /// The ticket of the first connection in each part's queue.
    heads: Box<[AtomicU64]>,
    tickets: AtomicU64,
    waiting: AtomicUsize,
}

impl Parts {
    /// Of a listener with a part in each of so many shards.
    pub fn new(shards: usize) -> Self {
        Self {
            heads: (0..shards).map(|_| AtomicU64::new(NONE)).collect(),
            tickets: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Connections in all queues. As on Linux, two shards that ask at one time may both be told that there is room for one more.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed) // a bound, that nothing is read through
    }

    /// One more waits: its ticket.
    pub fn join(&self) -> u64 {
        self.waiting.fetch_add(1, Relaxed);
        self.tickets.fetch_add(1, Relaxed)
    }

    /// So many wait no longer.
    pub fn leave(&self, count: usize) {
        self.waiting.fetch_sub(count, Relaxed);
    }

    /// The first ticket in the queue of a shard's part is this one now; the shard is held.
    pub fn show(&self, shard: usize, head: Option<u64>) {
        if let Some(place) = self.heads.get(shard) {
            place.store(head.unwrap_or(NONE), Release); // pairs with Acquire in `first`
        }
    }

    /// The shard with the connection that came first. `None`: none is known of; a look into each shard may find one.
    pub fn first(&self) -> Option<usize> {
        let heads = self.heads.iter().map(|head| head.load(Acquire)); // partner: `show`
        let (shard, head) = heads.enumerate().min_by_key(|(_, head)| *head)?;
        (head != NONE).then_some(shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_come_goes_first() {
        let parts = Parts::new(3);
        assert_eq!((parts.first(), parts.waiting()), (None, 0));
        let tickets: Vec<u64> = (0..4).map(|_| parts.join()).collect();
        parts.show(2, Some(tickets[0]));
        parts.show(0, Some(tickets[1]));
        assert_eq!((parts.first(), parts.waiting()), (Some(2), 4));
        parts.show(2, Some(tickets[3]));
        parts.leave(1);
        assert_eq!((parts.first(), parts.waiting()), (Some(0), 3));
        parts.show(0, None);
        parts.show(2, None);
        parts.leave(3);
        assert_eq!((parts.first(), parts.waiting()), (None, 0));
    }
}
