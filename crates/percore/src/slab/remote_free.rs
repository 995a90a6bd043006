//! Remote-free queues: where freed buffers wait for their slab's holder, one queue for each thread that frees.
//!
//! A queue is a ring of which the freeing thread writes the slots and the tail, and the holder reads both. It never fills: it has
//! at least as many slots as the slab has buffers, and a buffer cannot be freed again before the holder took it from the
//! queue and handed it out anew. So the freeing thread never reads what the holder writes, and the holder writes nothing: where it
//! has read up to is its own affair.

use crate::{
    operations::{self, Operation, count},
    sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering},
};
use crossbeam_utils::CachePadded;
use std::ptr::NonNull;
#[cfg(not(loom))]
use std::sync::PoisonError;

/// Threads that can free without a lock at the same time; those beyond share a list behind a mutex.
#[cfg(not(loom))]
pub(crate) const QUEUES: usize = 64;
/// As few as show a thread that finds no queue.
#[cfg(loom)]
pub(crate) const QUEUES: usize = 1;

/// One thread's way home.
#[derive(Debug)]
pub(crate) struct RemoteFreeQueue {
    /// Pushes so far (wrapping); written by the thread that claimed the queue.
    tail: AtomicU32,
    mask: u32,
    slots: NonNull<AtomicU32>,
}

impl RemoteFreeQueue {
    #[inline(always)]
    fn slot(&self, index: u32) -> &AtomicU32 {
        // Widening: u32 to usize.
        let offset = (index & self.mask) as usize;
        // SAFETY: the mask keeps the offset inside the queue's slots (`RemoteFrees::new`).
        let slot = unsafe { self.slots.add(offset) };
        // SAFETY: an atomic that lives as long as the slab's memory, which a buffer or the holder keeps.
        unsafe { slot.as_ref() }
    }

    /// Sends `buffer` home. The caller has claimed this queue. Wait-free: two stores, no fence; cannot fail.
    #[inline(always)]
    pub fn push(&self, buffer: u32) {
        let tail = self.tail.load(Ordering::Relaxed); // ours: only the claimer writes it
        self.slot(tail).store(buffer, Ordering::Relaxed); // published by the next line
        // Pairs with Acquire in `RemoteFrees::collect`. The last touch: from here on the slab may be unmapped.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }
}

/// All queues to one holder.
#[derive(Debug)]
pub(crate) struct RemoteFrees {
    queues: [CachePadded<RemoteFreeQueue>; QUEUES],
    claims: CachePadded<ClaimBits>,
    overflow: CachePadded<Overflow>,
}

#[derive(Debug)]
struct ClaimBits {
    /// Bit i: queue i belongs to a thread.
    now: AtomicU64,
    /// Bit i: queue i has belonged to a thread, so there may be something in it.
    ever: AtomicU64,
}

#[derive(Debug)]
struct Overflow {
    list: Mutex<Vec<u32>>,
    /// Length of `list`, to spare the holder the lock.
    len: AtomicUsize,
    /// Buffers that ever came home this way.
    total: AtomicU64,
}

/// How far the holder has read each queue.
#[derive(Debug)]
pub(crate) struct ReadUpTo([u32; QUEUES]);

impl ReadUpTo {
    pub const START: Self = Self([0; QUEUES]);
}

impl RemoteFrees {
    /// Slots in each queue of a slab with this many buffers.
    pub const fn slots_each(buffers: u32) -> u32 {
        buffers.next_power_of_two()
    }

    /// RemoteFrees for `buffers` buffers, over `QUEUES * slots_each(buffers)` zeroed atomics at `slots`.
    ///
    /// # Safety
    /// `slots` names that many atomics, for as long as anything calls [`RemoteFreeQueue::push`] or [`RemoteFrees::collect`].
    pub unsafe fn new(buffers: u32, slots: NonNull<AtomicU32>) -> Self {
        let each = Self::slots_each(buffers);
        let queue = |i: usize| {
            // SAFETY: i < QUEUES, so the offset stays inside what the caller vouches for. Widening: u32 to usize.
            let slots = unsafe { slots.add(i * each as usize) };
            let (tail, mask) = (AtomicU32::new(0), each - 1);
            CachePadded::new(RemoteFreeQueue { tail, mask, slots })
        };
        let overflow = Overflow {
            list: Mutex::new(Vec::with_capacity(buffers as usize)), // widening: u32 to usize
            len: AtomicUsize::new(0),
            total: AtomicU64::new(0),
        };
        let claims = ClaimBits {
            now: AtomicU64::new(0),
            ever: AtomicU64::new(0),
        };
        Self {
            queues: std::array::from_fn(queue),
            claims: CachePadded::new(claims),
            overflow: CachePadded::new(overflow),
        }
    }

    /// Gives the calling thread a queue, the lowest that is free.
    pub fn claim(&self) -> Option<(usize, &RemoteFreeQueue)> {
        let mut now = self.claims.now.load(Ordering::Relaxed);
        loop {
            let free = (!now).trailing_zeros() as usize; // widening: at most 64
            let queue = self.queues.get(free)?;
            // Acquire pairs with Release in `release`: the predecessor's tail.
            let claimed = self.claims.now.compare_exchange_weak(
                now,
                now | 1 << free,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => {
                    // Relaxed: happens before every push, so a thread that is to see a push sees this.
                    self.claims.ever.fetch_or(1 << free, Ordering::Relaxed);
                    return Some((free, queue));
                }
                Err(other) => now = other,
            }
        }
    }

    /// Gives up a queue that the calling thread claimed. What is in it stays in it until the holder looks.
    pub fn release(&self, queue: usize) {
        // pairs with Acquire in `claim`
        self.claims.now.fetch_and(!(1 << queue), Ordering::Release);
    }

    /// The way home of a thread without a queue: a lock, a list that has room for all, a count.
    pub fn push_overflow(&self, buffer: u32) {
        let mut list = lock(&self.overflow.list);
        list.push(buffer);
        self.overflow.total.fetch_add(1, Ordering::Relaxed);
        // Pairs with Acquire in `collect_overflow`; inside the lock, so that it fits the list.
        self.overflow.len.store(list.len(), Ordering::Release);
    }

    /// Buffers that ever came home by [`push_overflow`](Self::push_overflow).
    #[cfg(not(loom))]
    pub fn overflowed(&self) -> u64 {
        self.overflow.total.load(Ordering::Relaxed)
    }

    /// Hands everything that came home to `take`. Only for the holder, which keeps `read`. Never waits: an overflow
    /// list that is locked at the moment is left for the next time.
    pub fn collect(&self, read: &mut ReadUpTo, mut take: impl FnMut(u32)) {
        let mut ever = self.claims.ever.load(Ordering::Relaxed); // see `claim`
        while ever != 0 {
            let i = ever.trailing_zeros() as usize; // widening: below 64
            ever &= ever - 1;
            let (queue, read) = (&self.queues[i], &mut read.0[i]);
            let tail = queue.tail.load(Ordering::Acquire); // pairs with Release in `RemoteFreeQueue::push`
            if *read != tail {
                let (items, size) = (tail.wrapping_sub(*read) as usize, size_of::<u32>());
                count(Operation::Line, 1 + operations::lines(items, size));
            }
            while *read != tail {
                take(queue.slot(*read).load(Ordering::Relaxed)); // the Acquire above
                *read = read.wrapping_add(1);
            }
        }
        // pairs with Release in `push_overflow`
        if self.overflow.len.load(Ordering::Acquire) != 0 {
            self.collect_overflow(take);
        }
    }

    #[cold]
    fn collect_overflow(&self, take: impl FnMut(u32)) {
        #[cfg(not(loom))]
        let list = match self.overflow.list.try_lock() {
            Err(std::sync::TryLockError::WouldBlock) => None,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(list) => Some(list),
        };
        #[cfg(loom)]
        let list = self.overflow.list.try_lock().ok();
        if let Some(mut list) = list {
            list.drain(..).for_each(take);
            self.overflow.len.store(0, Ordering::Relaxed); // ordered by the lock
        }
    }
}

#[cfg(not(loom))]
fn lock(list: &Mutex<Vec<u32>>) -> std::sync::MutexGuard<'_, Vec<u32>> {
    list.lock().unwrap_or_else(PoisonError::into_inner) // a Vec of numbers has no broken state
}

#[cfg(loom)]
fn lock(list: &Mutex<Vec<u32>>) -> loom::sync::MutexGuard<'_, Vec<u32>> {
    list.lock().expect("a model that panicked is over")
}
