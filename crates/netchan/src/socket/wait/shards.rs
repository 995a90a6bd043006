//! The shards of a set of sockets.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use crate::limits::SHARDS_MAX;

/// The shards of a set of sockets that threads wait for together, an epoll instance's: those in which the sockets live that were registered among it
/// ([`Socket::register_among`](super::super::Socket::register_among)). What has left the set counts still.
///
/// A set that one thread waits for has a home, a shard to which the connections move that are registered among it.
#[derive(Debug, Default)]
pub struct Shards {
    /// A bit each.
    all: AtomicU64,
    /// The first thread that waited for the set.
    first: OnceLock<Waiting>,
    /// Others have, too.
    is_shared: AtomicBool,
    home: OnceLock<usize>,
}

/// A thread that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// A number of its own.
    thread: usize,
    /// Where its connections begin.
    shard: usize,
}

/// Where the connections of a set are to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::socket) enum Home {
    /// No thread has waited for the set yet.
    Unknown,
    /// In this shard.
    At(usize),
    /// Anywhere: several threads wait for the set, or it has sockets of several shards.
    Nowhere,
}

/// What a socket without a shard of its own stands for.
const ALL: u64 = u64::MAX;

// Relaxed here and below: numbers by which shards are chosen, and bits that only come. A thread that waits by old ones is told by the hand-over.

impl Shards {
    /// Adds a socket's shard. `None`: it is the only one, which the thread that waits turns. Else no thread that waits for the set turns any, and from now
    /// on not the one that comes back either.
    pub(in crate::socket) fn add(&self, shard: Option<usize>) -> Option<Option<usize>> {
        let one = shard.map_or(ALL, bit);
        let mut before = self.all.load(Relaxed);
        if before & one != one {
            before = self.all.fetch_or(one, Relaxed);
        }
        if (before | one).count_ones() == 1 {
            return None;
        }
        Some((before.count_ones() == 1).then(|| before.trailing_zeros() as usize))
    }

    /// The only one (a bit), or whether there are several.
    pub(super) fn only(&self) -> Result<u64, bool> {
        let all = self.all.load(Relaxed);
        match all.count_ones() {
            1 => Ok(all),
            n => Err(n > 1),
        }
    }

    /// A thread waits for the set; `thread` is a number of its own, its connections begin in `shard`. Where the set is its own and has a home: that.
    pub(super) fn waits(&self, thread: usize, shard: impl FnOnce() -> usize) -> Option<usize> {
        let shard = || Waiting {
            thread,
            shard: shard(),
        };
        if self.first.get_or_init(shard).thread != thread {
            self.is_shared.store(true, Relaxed);
        }
        let is_own = !self.is_shared.load(Relaxed);
        self.home.get().copied().filter(|_| is_own)
    }

    /// Where the set's connections are to live: where its sockets live already, else where those of the thread begin that waits for it.
    pub(in crate::socket) fn home(&self) -> Home {
        let Some(first) = self.first.get() else {
            return Home::Unknown;
        };
        if self.is_shared.load(Relaxed) {
            return Home::Nowhere;
        }
        if let Some(&home) = self.home.get() {
            return Home::At(home);
        }
        let here = match self.only() {
            Ok(only) => only.trailing_zeros() as usize,
            Err(false) => first.shard,
            Err(true) => return Home::Nowhere,
        };
        Home::At(*self.home.get_or_init(|| here))
    }
}

const fn bit(shard: usize) -> u64 {
    1 << (shard % SHARDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_one_shard_are_turned_by_those_that_wait() {
        let shards = Shards::default();
        assert_eq!(shards.only(), Err(false));
        assert_eq!(shards.add(Some(3)), None);
        assert_eq!(shards.add(Some(3)), None);
        assert_eq!(shards.only(), Ok(1 << 3));
        assert_eq!(
            shards.add(Some(5)),
            Some(Some(3)),
            "another one: the first is left"
        );
        assert_eq!(shards.add(Some(3)), Some(None), "it was left before");
        assert_eq!(shards.only(), Err(true));
        let shards = Shards::default();
        assert_eq!(shards.add(None), Some(None), "no shard of its own");
        assert_eq!(shards.add(Some(1)), Some(None));
        assert_eq!(shards.only(), Err(true));
    }

    #[test]
    fn a_set_of_one_thread_has_a_home() {
        let new = Shards::default();
        assert_eq!(new.home(), Home::Unknown);
        assert_eq!(new.waits(7, || 1), None);
        assert_eq!(new.home(), Home::At(1));
        assert_eq!(new.waits(7, || 2), Some(1), "it stays");
        assert_eq!(new.home(), Home::At(1));
        let settled = Shards::default();
        settled.waits(7, || 1);
        settled.add(Some(2));
        assert_eq!(settled.home(), Home::At(2), "where its sockets are");
    }

    #[test]
    fn sets_of_several_threads_or_shards_have_none() {
        let shared = Shards::default();
        shared.waits(7, || 1);
        assert_eq!(shared.home(), Home::At(1));
        assert_eq!(shared.waits(8, || 2), None);
        assert_eq!(shared.waits(7, || 1), None);
        assert_eq!(shared.home(), Home::Nowhere);
        let mixed = Shards::default();
        mixed.waits(7, || 1);
        mixed.add(Some(0));
        mixed.add(Some(2));
        assert_eq!(mixed.home(), Home::Nowhere);
    }
}
