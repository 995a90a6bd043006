//! The SPSC ring: wait-free, bounded, its two ends share no cache line that both write.
//!
//! Guarantees:
//! * Every operation of [`Producer`] and [`Consumer`] is wait-free: a bounded number of steps whatever the other end does,
//!   even if it is stopped, dead or hostile.
//! * First in, first out; an item is handed over exactly once. What the producer wrote before a push is visible to the
//!   consumer after the pop that took the item.
//! * Each index lies alone on its (pair of) cache line(s) and is written by one end only; each end works on private copies
//!   of both indices and looks at the other's line only when its copy is used up.
//! * Answers about the other end ("full", "empty", [`room`](Producer::room), [`len`](Consumer::len)) are true of a moment in
//!   the past: there may be more room or more items by now, never less.
//! * Full is normal: [`push`](Producer::push) gives the item back.
//! * Over foreign memory ([`Producer::from_raw`]) nothing that the other end writes makes this end read or write outside of
//!   the ring; nonsense reads as full or empty and is remembered ([`is_corrupt`](Producer::is_corrupt)).

mod bytes;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
#[cfg(all(test, not(loom)))]
mod raw_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
pub(crate) use bytes::byte_ring;
pub use bytes::{ByteConsumer, ByteProducer};
pub use memory::{BadMemory, Layout, Plain};

use crate::{
    operations::{self, Operation, count},
    sync::{AtomicUsize, Ordering, spin_loop},
};
use memory::{Heap, Place, Slot};
use std::{collections::VecDeque, fmt, mem::MaybeUninit, ptr::NonNull};

/// A ring for `capacity` items (rounded up to a power of two, at least 1) on the heap.
///
/// # Panics
/// If the ring would be larger than the address space.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let place = Heap::place(capacity);
    (Producer::new(place.clone()), Consumer::new(place))
}

/// The writing end.
pub struct Producer<T> {
    place: Place<T>,
    /// Where the next item goes; ahead of the published index by what is staged. The truth: the published one is never read back.
    tail: usize,
    /// The consumer's index when last looked at.
    head: usize,
    corrupt: bool,
}

/// The reading end.
pub struct Consumer<T> {
    place: Place<T>,
    /// Where the next item comes from. The truth: the published one is never read back.
    head: usize,
    /// The producer's index when last looked at.
    tail: usize,
    corrupt: bool,
}

// SAFETY: an end is the only one of its kind and moves items of `T` between threads.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.tail.wrapping_sub(self.head);
        write!(
            f,
            "Producer {{ at most {used} of {} used }}",
            self.capacity()
        )
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.tail.wrapping_sub(self.head);
        write!(
            f,
            "Consumer {{ at least {used} of {} used }}",
            self.capacity()
        )
    }
}

impl<T> Producer<T> {
    fn new(place: Place<T>) -> Self {
        Self {
            place,
            tail: 0,
            head: 0,
            corrupt: false,
        }
    }

    /// The writing end of a ring in `memory`, shared with all that have mapped it.
    ///
    /// # Errors
    /// If `memory` is smaller than [`Layout::of::<T>(capacity)`](Layout::of) asks for, or not aligned.
    ///
    /// # Safety
    /// * `memory` is valid for reads and writes until this end is dropped; if it is a file, no untrusted peer can shorten it (seal a memfd
    ///   with F_SEAL_SHRINK).
    /// * It was all zero when the first of the two ends was made, and no Rust code in this process writes to it but the ends
    ///   of this ring. (A foreign process may write what it likes.)
    /// * There is no other producer for it in this process.
    pub unsafe fn from_raw(memory: NonNull<[u8]>, capacity: usize) -> Result<Self, BadMemory>
    where
        T: Plain,
    {
        Place::foreign(memory, capacity).map(Self::new)
    }

    /// Appends `item`; full returns the goods.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        self.stage(item)?;
        self.publish();
        Ok(())
    }

    /// Writes `item` without telling the consumer, which sees it with the next [`publish`](Self::publish), [`push`](Self::push) or
    /// [`push_batch`](Self::push_batch), at the latest when this end is dropped. Full returns the goods.
    #[inline]
    pub fn stage(&mut self, item: T) -> Result<(), T> {
        if self.cached_room() == 0 && self.refresh() == 0 {
            return Err(item);
        }
        write(self.place.slot(self.tail), item);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Makes everything staged visible to the consumer: one store.
    #[inline]
    pub fn publish(&mut self) {
        // pairs with Acquire in Consumer::refresh
        self.index().store(self.tail, Ordering::Release);
        count(Operation::RingStore, 1);
    }

    /// Appends items from the front of `items` until it is empty or the ring is full; one publication for all. How many went.
    #[inline]
    pub fn push_batch(&mut self, items: &mut VecDeque<T>) -> usize {
        let n = items.len().min(self.room_for(items.len()));
        // One by one rather than by `drain`: most batches are of one or two, and its guard costs more than they do.
        for _ in 0..n {
            let Some(item) = items.pop_front() else { break };
            write(self.place.slot(self.tail), item);
            self.tail = self.tail.wrapping_add(1);
        }
        self.publish();
        n
    }

    /// Appends what `items` yields until it ends or the ring is full; one publication for all, also when `items` panics. How many went.
    /// An item is only asked for when there is room for it.
    #[inline]
    pub fn push_iter(&mut self, items: impl IntoIterator<Item = T>) -> usize {
        let mut items = items.into_iter();
        let before = self.tail;
        // The index is kept in a register while we write; whatever happens, what was written is published.
        let mut batch = Batch {
            tail: before,
            ring: self,
        };
        let mut room = batch.ring.room_for(items.size_hint().0.max(1));
        while room > 0 {
            // Up to the end of the slots, or of the room: no index to wrap in between.
            for slot in batch.ring.place.run(batch.tail, room) {
                let Some(item) = items.next() else {
                    return batch.tail.wrapping_sub(before);
                };
                write(slot, item);
                batch.tail = batch.tail.wrapping_add(1);
            }
            batch.ring.tail = batch.tail;
            room = batch.ring.room_for(1);
        }
        batch.tail.wrapping_sub(before)
    }

    /// Slots that can be written now (at least; the reader may free more at any moment).
    pub fn room(&mut self) -> usize {
        self.refresh()
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.place.mask + 1
    }

    /// Whether the other end was dropped. Over foreign memory only a peer that ends in good order says so.
    pub fn is_abandoned(&self) -> bool {
        // pairs with Release in Consumer::drop
        self.place.header().consumer.gone.load(Ordering::Acquire) != 0
    }

    /// Whether the other end ever wrote an index that it cannot have reached.
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    #[inline(always)]
    fn index(&self) -> &AtomicUsize {
        &self.place.header().producer.index
    }

    #[inline(always)]
    fn cached_room(&self) -> usize {
        self.capacity() - self.tail.wrapping_sub(self.head)
    }

    /// The cached room if that is enough for `n` items, else what there is now.
    #[inline]
    fn room_for(&mut self, n: usize) -> usize {
        let room = self.cached_room();
        if room >= n { room } else { self.refresh() }
    }

    /// Looks at the consumer's index; the room there is.
    #[inline]
    fn refresh(&mut self) -> usize {
        // pairs with Release in Consumer::release: its reads of the slots are over
        let head = self.place.header().consumer.index.load(Ordering::Acquire);
        if head != self.head {
            count(Operation::Line, 1);
        }
        // The consumer can only have come nearer to us: anything else is an index that it made up.
        if self.tail.wrapping_sub(head) <= self.tail.wrapping_sub(self.head) {
            self.head = head;
        } else {
            self.corrupt = true;
        }
        self.cached_room()
    }
}

/// Writes a slot that the caller has seen to be free.
#[inline(always)]
fn write<T>(slot: &Slot<T>, item: T) {
    slot.with_mut(|slot| {
        // SAFETY: the slot is in the ring, and free: the consumer's index has passed it and ours has not.
        unsafe { slot.write(MaybeUninit::new(item)) }
    });
}

/// A batch being written: `tail` is ahead of the ring's own until it ends.
struct Batch<'a, T> {
    ring: &'a mut Producer<T>,
    tail: usize,
}

impl<T> Drop for Batch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring.tail = self.tail;
        self.ring.publish();
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.publish();
        // pairs with Acquire in Consumer::is_abandoned: a consumer that sees it also sees the last items
        let gone = &self.place.header().producer.gone;
        gone.store(1, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    fn new(place: Place<T>) -> Self {
        Self {
            place,
            head: 0,
            tail: 0,
            corrupt: false,
        }
    }

    /// The reading end of a ring in `memory`, shared with all that have mapped it.
    ///
    /// # Errors
    /// If `memory` is smaller than [`Layout::of::<T>(capacity)`](Layout::of) asks for, or not aligned.
    ///
    /// # Safety
    /// As for [`Producer::from_raw`], with "consumer" for "producer".
    pub unsafe fn from_raw(memory: NonNull<[u8]>, capacity: usize) -> Result<Self, BadMemory>
    where
        T: Plain,
    {
        Place::foreign(memory, capacity).map(Self::new)
    }

    /// Takes the oldest item. A call that finds the ring empty has looked twice, a pause apart; to look often and rarely find something,
    /// [`pop_batch`](Self::pop_batch) is cheaper.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return self.pop_late();
        }
        Some(self.take())
    }

    /// Looks once more, a moment later. A consumer that takes items one by one as they come has caught up with the producer, and each look takes
    /// the line away that it is about to write: left alone for a moment, it writes several items for one look (`netchan lab run
    /// channels`, `ring64_single_ns`).
    #[cold]
    #[inline(never)]
    fn pop_late(&mut self) -> Option<T> {
        spin_loop();
        (self.refresh() > 0).then(|| self.take())
    }

    /// Takes the oldest item, which the caller has seen.
    #[inline(always)]
    fn take(&mut self) -> T {
        let item = read(self.place.slot(self.head), self.place.is_foreign());
        self.head = self.head.wrapping_add(1);
        self.release();
        item
    }

    /// Takes up to `max` items, oldest first, handing each to `take`; one release for all, also when `take` panics (what it had is
    /// gone). How many came.
    #[inline]
    pub fn pop_batch(&mut self, max: usize, take: impl FnMut(T)) -> usize {
        if self.place.is_foreign() {
            self.pop_run(max, take, true)
        } else {
            self.pop_run(max, take, false)
        }
    }

    #[inline(always)]
    fn pop_run(&mut self, max: usize, mut take: impl FnMut(T), foreign: bool) -> usize {
        let mut n = self.tail.wrapping_sub(self.head);
        if n < max {
            n = self.refresh();
        }
        let n = n.min(max);
        if n == 0 {
            return 0; // and no store: to look into an empty ring costs a load
        }
        // The index is kept in a register while we read; whatever happens, what was read is released.
        let mut batch = Taken {
            head: self.head,
            ring: self,
        };
        let mut left = n;
        while left > 0 {
            // Up to the end of the slots, or of the items: no index to wrap in between.
            let run = batch.ring.place.run(batch.head, left);
            left -= run.len();
            for slot in run {
                let item = read(slot, foreign);
                batch.head = batch.head.wrapping_add(1);
                take(item);
            }
        }
        n
    }

    /// Whether there was nothing at this moment. Reads the writer's index only when the cached one is used up.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.tail == self.head && self.refresh() == 0
    }

    /// Items that can be read now (at least).
    pub fn len(&mut self) -> usize {
        self.refresh()
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.place.mask + 1
    }

    /// Whether the other end was dropped. What it sent before can still be taken: ask this first, then drain.
    /// Over foreign memory only a peer that ends in good order says so.
    pub fn is_abandoned(&self) -> bool {
        // pairs with Release in Producer::drop
        self.place.header().producer.gone.load(Ordering::Acquire) != 0
    }

    /// Whether the other end ever wrote an index that it cannot have reached.
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// Looks at the producer's index; the number of items there are.
    #[inline]
    fn refresh(&mut self) -> usize {
        // pairs with Release in Producer::publish: the items are written
        let tail = self.place.header().producer.index.load(Ordering::Acquire);
        let (before, now) = (
            self.tail.wrapping_sub(self.head),
            tail.wrapping_sub(self.head),
        );
        // The producer can only have gone on, by what fits: anything else is an index that it made up.
        if now < before || now > self.capacity() {
            self.corrupt = true;
            return before;
        }
        if now > before {
            let slots = operations::lines(now - before, size_of::<T>());
            count(Operation::Line, 1 + slots);
        }
        self.tail = tail;
        now
    }

    /// Gives the slots that were read back to the producer.
    #[inline(always)]
    fn release(&mut self) {
        let index = &self.place.header().consumer.index;
        index.store(self.head, Ordering::Release); // pairs with Acquire in Producer::refresh
        count(Operation::RingStore, 1);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // pairs with Acquire in Producer::is_abandoned
        let gone = &self.place.header().consumer.gone;
        gone.store(1, Ordering::Release);
    }
}

/// Moves an item out of a slot that the caller has seen to be written. Foreign memory may change under our hands: it is read
/// once (volatile), and only the copy is looked at.
#[inline(always)]
fn read<T>(slot: &Slot<T>, foreign: bool) -> T {
    let item = slot.with(|slot| {
        if foreign {
            // SAFETY: the slot is in the ring and written: the producer's index has passed it and ours has not.
            unsafe { slot.read_volatile() }
        } else {
            // SAFETY: as above.
            unsafe { slot.read() }
        }
    });
    // SAFETY: written by the producer, or (foreign memory) plain data for which any bytes do.
    unsafe { item.assume_init() }
}

/// A batch being read: `head` is ahead of the ring's own until it ends.
struct Taken<'a, T> {
    ring: &'a mut Consumer<T>,
    head: usize,
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring.head = self.head;
        self.ring.release();
    }
}
