//! Counts of what makes cores talk to each other: locks, atomic exchanges, cache lines that change their owner. Feature `operations`; for experiments.
//!
//! Guarantees:
//! * Without the feature there is nothing: [`count`] is empty.
//! * With it, each count is exact for the primitives of this crate: one relaxed addition, which is itself slow: the times of such a build say nothing.
//! * A line counts as moved where software can know it: an index of a ring that was found changed, the slots behind it, a lock whose last owner was
//!   another thread, a buffer on its way home. What hardware moves beyond that (what a lock guards, the items' own memory, false sharing) is not in it.

#[cfg(all(feature = "operations", not(loom)))]
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Whether this build counts.
pub const ON: bool = cfg!(all(feature = "operations", not(loom)));

/// How many kinds there are.
pub const COUNT: usize = 7;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A ring's index was published.
    RingStore,
    /// A lock was taken.
    Lock,
    /// The lock was another thread's at that moment.
    LockContended,
    /// Its last owner was another thread.
    LockMoved,
    /// An atomic read-modify-write instruction.
    Rmw,
    /// A doorbell was rung, whether or not a thread slept.
    Ring,
    /// A cache line came from another core, as far as software knows.
    Line,
}

impl Operation {
    /// All of them, in the order of [`read`]'s answer.
    pub const ALL: [Self; COUNT] = [
        Self::RingStore,
        Self::Lock,
        Self::LockContended,
        Self::LockMoved,
        Self::Rmw,
        Self::Ring,
        Self::Line,
    ];

    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingStore => "ring_stores",
            Self::Lock => "locks",
            Self::LockContended => "locks_contended",
            Self::LockMoved => "locks_moved",
            Self::Rmw => "rmw",
            Self::Ring => "rings",
            Self::Line => "lines_moved",
        }
    }
}

#[cfg(all(feature = "operations", not(loom)))]
static COUNTS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

#[cfg(all(feature = "operations", not(loom)))]
thread_local! {
    static LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Counts `n` of `operation` on the calling thread.
#[cfg(all(feature = "operations", not(loom)))]
pub fn count(operation: Operation, n: u64) {
    if !LEFT_OUT.get() {
        COUNTS[operation as usize].fetch_add(n, Relaxed); // numbers to look at
    }
}

/// Counts nothing.
#[cfg(not(all(feature = "operations", not(loom))))]
#[inline(always)]
pub const fn count(_operation: Operation, _n: u64) {}

/// From now on, what the calling thread does is not counted.
pub fn leave_out_this_thread() {
    #[cfg(all(feature = "operations", not(loom)))]
    LEFT_OUT.set(true);
}

/// The counts up to now; zero in a build that does not count.
pub fn read() -> [u64; COUNT] {
    #[cfg(all(feature = "operations", not(loom)))]
    return std::array::from_fn(|i| COUNTS[i].load(Relaxed));
    #[cfg(not(all(feature = "operations", not(loom))))]
    [0; COUNT]
}

/// Lines that `items` slots of `size` bytes in a row take.
pub(crate) const fn lines(items: usize, size: usize) -> u64 {
    (items * size).div_ceil(64) as u64
}

#[cfg(test)]
mod tests {
    use super::{COUNT, Operation, lines};

    #[test]
    fn items_in_lines() {
        let of = [(0, 8), (1, 8), (8, 8), (9, 8), (3, 64), (2, 100)];
        assert_eq!(
            of.map(|(items, size)| lines(items, size)),
            [0, 1, 1, 2, 3, 4]
        );
    }

    #[test]
    fn each_has_a_name_of_its_own() {
        let mut names = Operation::ALL.map(Operation::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == COUNT && names.iter().all(|name| name.len() >= 3));
    }

    #[cfg(all(feature = "operations", not(loom)))]
    mod counted {

        use crate::{
            lock::{Class, mutex},
            operations::{Operation, count, leave_out_this_thread, read},
            ring::ring,
        };

        /// Other tests count meanwhile: at least so many.
        #[test]
        fn a_ring_and_a_lock_are_counted() {
            static CLASS: Class = Class::new(7, "counted");
            let before = read();
            let since =
                |operation: Operation| read()[operation as usize] - before[operation as usize];
            let (mut tx, mut rx) = ring::<[u64; 8]>(8);
            (0..4).for_each(|i| tx.push([i; 8]).unwrap());
            assert_eq!(rx.pop_batch(8, drop), 4);
            assert!(since(Operation::RingStore) >= 5);
            // Four slots of a line each, and the index.
            assert!(since(Operation::Line) >= 5);
            let lock = mutex(&CLASS, 0);
            drop(lock.lock());
            let moved = since(Operation::LockMoved);
            std::thread::scope(|scope| scope.spawn(|| drop(lock.lock())).join().unwrap());
            assert!(since(Operation::Lock) >= 2 && since(Operation::LockMoved) > moved);
        }

        /// A kind that nothing else counts in so large steps.
        #[test]
        fn a_thread_that_is_left_out() {
            let rings = || read()[Operation::Ring as usize];
            let before = rings();
            std::thread::spawn(|| {
                leave_out_this_thread();
                count(Operation::Ring, 1 << 40);
            })
            .join()
            .unwrap();
            assert!(rings() - before < 1 << 40);
            count(Operation::Ring, 1 << 40);
            assert!(rings() - before >= 1 << 40);
        }
    }
}
