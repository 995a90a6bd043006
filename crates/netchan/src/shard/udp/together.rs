//! What the parts of one datagram socket in several shards share: whether one has an error, and when the first datagram of each came, so that
//! a receive goes to the one that came first.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use proto::time::Instant;

/// Of one socket.
#[derive(Debug)]
pub struct Together {
    raised: AtomicBool,
    /// Each shard's is written when its queue gets another first datagram: not for each that comes.
    heads: Box<[AtomicU64]>,
}

impl Together {
    /// Of a socket with a part in each of so many shards.
    pub fn new(shards: usize) -> Self {
        let none = || AtomicU64::new(Instant::FAR.0);
        Self {
            raised: AtomicBool::new(false),
            heads: (0..shards).map(|_| none()).collect(),
        }
    }

    /// A part has an error.
    pub fn raise(&self) {
        self.raised.store(true, Release); // pairs with Acquire in `take_raised`
    }

    /// Whether a part had an error since the last look.
    pub fn take_raised(&self) -> bool {
        let is_raised = self.raised.load(Acquire); // partner: `raise`
        if is_raised {
            self.raised.store(false, Relaxed); // set again by a part that has one
        }
        is_raised
    }

    /// The first datagram in the queue of a shard's part came then; the shard is held.
    pub fn show(&self, shard: usize, head: Option<Instant>) {
        if let Some(place) = self.heads.get(shard) {
            place.store(head.unwrap_or(Instant::FAR).0, Release); // pairs with Acquire in `first`
        }
    }

    /// The shard with the datagram that came first. `None`: none is known of; a look into each shard may find one.
    pub fn first(&self) -> Option<usize> {
        let heads = self.heads.iter().map(|head| head.load(Acquire)); // partner: `show`
        let (shard, head) = heads.enumerate().min_by_key(|(_, head)| *head)?;
        (head != Instant::FAR.0).then_some(shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_first_goes_first() {
        let together = Together::new(3);
        assert_eq!((together.first(), together.take_raised()), (None, false));
        together.show(0, Some(Instant(20)));
        together.show(2, Some(Instant(10)));
        assert_eq!(together.first(), Some(2));
        together.show(2, Some(Instant(30)));
        assert_eq!(together.first(), Some(0));
        together.show(0, None);
        together.show(2, None);
        assert_eq!(together.first(), None);
        together.raise();
        assert!(together.take_raised() && !together.take_raised());
    }
}
