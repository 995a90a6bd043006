//! The SPSC ring: wait-free, bounded, its two ends share no cache line that both write.

/// A ring for `capacity` items (rounded up to a power of two) on the heap.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let _ = capacity;
    unimplemented!()
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<T> {
    _t: std::marker::PhantomData<T>,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<T> {
    _t: std::marker::PhantomData<T>,
}

impl<T> Producer<T> {
    /// Appends `item`; full returns the goods.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let _ = &item;
        unimplemented!()
    }
    /// Appends items from the front of `items` until it is empty or the ring is full; one publication for all. How many went.
    pub fn push_batch(&mut self, items: &mut std::collections::VecDeque<T>) -> usize {
        let _ = items;
        unimplemented!()
    }
    /// Slots that can be written now (at least; the reader may free more at any moment).
    pub fn room(&mut self) -> usize {
        unimplemented!()
    }
    /// Number of slots.
    pub fn capacity(&self) -> usize {
        unimplemented!()
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        unimplemented!()
    }
    /// Takes up to `max` items, oldest first, handing each to `take`; one release for all. How many came.
    pub fn pop_batch(&mut self, max: usize, take: impl FnMut(T)) -> usize {
        let _ = (max, take);
        unimplemented!()
    }
    /// Whether there was nothing at this moment. Reads the writer's index only when the cached one is used up.
    pub fn is_empty(&mut self) -> bool {
        unimplemented!()
    }
    /// Items that can be read now (at least).
    pub fn len(&mut self) -> usize {
        unimplemented!()
    }
}
