//! A list that is read on every packet and changed rarely: routes, listeners, interfaces, taps. Readers take no lock.
//!
//! Guarantees:
//! * [`List::read`] never waits for a writer, nor for other readers, and writes no cache line that another thread writes: it marks the thread as
//!   inside an *epoch section* (a store and a fence, about 4 ns) and loads one pointer. [`List::is_empty`] is one relaxed load, so that a list
//!   of taps that nobody has costs nothing.
//! * A reader sees the list as it was at one moment, whole, for as long as its section lasts; whatever was changed before the section in the
//!   sense of the memory model (a lock, a message) is in it.
//! * Writers take turns, copy the list, and publish the copy; never wait for readers. The old list is dropped when no section that could have seen
//!   it is left, by whichever thread comes by then: a reader that stays in its section delays memory, never a packet.
//! * One section for a burst is better than one for each packet; sections nest, and the inner ones are cheap.
//!
//! The sections are crossbeam-epoch's, checked by that crate's own loom models; here there is a pointer and the writers' lock. So this has no model of its
//! own (loom cannot look into it), but a test in which readers and writers race and every list is counted in and out.

#[cfg(test)]
mod tests;

use crossbeam_epoch::{Atomic, Guard, Owned, pin};
use std::{
    fmt,
    ops::Deref,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A list that is replaced as a whole.
pub struct List<T> {
    /// Never null.
    items: Atomic<Vec<T>>,
    len: AtomicUsize,
    writers: Mutex<()>,
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = pin();
        f.debug_list().entries(self.items(&guard)).finish()
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self {
            len: AtomicUsize::new(items.len()),
            items: Atomic::new(items),
            writers: Mutex::new(()),
        }
    }
}

/// An epoch section: what was read stays while this lives. Of the thread that made it.
pub struct Section(Guard);

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Section")
    }
}

/// Begins an epoch section, in which any number of lists can be read; for a burst, say.
#[inline]
pub fn section() -> Section {
    Section(pin())
}

/// A list, as it was when its reader began, in a section of its own.
pub struct Reading<'a, T> {
    list: &'a List<T>,
    /// What the section protects was loaded once, so that it cannot change under the reader.
    items: *const Vec<T>,
    _guard: Guard,
}

impl<T> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reading {{ {} items }}", self.list.len())
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: loaded under the guard, which is still here.
        unsafe { &*self.items }
    }
}

impl<T> List<T> {
    /// The list, in an epoch section of its own.
    #[inline]
    pub fn read(&self) -> Reading<'_, T> {
        let guard = pin();
        let items = std::ptr::from_ref(self.items(&guard));
        Reading {
            list: self,
            items,
            _guard: guard,
        }
    }

    /// The list, in a section that the caller has begun.
    #[inline]
    pub fn read_in<'a>(&'a self, section: &'a Section) -> &'a [T] {
        self.items(&section.0)
    }

    #[inline(always)]
    fn items<'a>(&'a self, guard: &'a Guard) -> &'a Vec<T> {
        // Acquire pairs with Release in `update`.
        let items = self.items.load(Ordering::Acquire, guard);
        // SAFETY: never null, and not dropped while the guard lives.
        unsafe { items.deref() }
    }

    /// Whether it was empty at this moment: one relaxed load, no section.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there were at this moment: one relaxed load, no section.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

impl<T: Clone + Send + Sync + 'static> List<T> {
    /// Changes a copy of the list and publishes it; what `change` returns. If it panics nothing has changed. Costs time in proportion to the
    /// list, and waits for other writers.
    pub fn update<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let _turn = self.writers.lock().unwrap_or_else(PoisonError::into_inner); // it guards no data
        let guard = pin();
        let mut items = self.items(&guard).clone();
        let result = change(&mut items);
        let len = items.len();
        // Release pairs with Acquire in `items`.
        let old = self.items.swap(Owned::new(items), Ordering::AcqRel, &guard);
        self.len.store(len, Ordering::Relaxed);
        // SAFETY: it can no longer be loaded, and is dropped after all sections that may have loaded it. `T` is `Send` and 'static:
        // any thread may drop it, at any time.
        unsafe { guard.defer_destroy(old) };
        guard.flush(); // it shall not wait until this thread has more to drop
        result
    }

    /// Appends an item.
    pub fn push(&self, item: T) {
        self.update(|items| items.push(item));
    }

    /// Keeps the items for which `keep` says so. How many went.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) -> usize {
        self.update(|items| {
            let before = items.len();
            items.retain(keep);
            before - items.len()
        })
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let items = std::mem::replace(&mut self.items, Atomic::null());
        // SAFETY: never null, and `&mut self` says that nobody reads it.
        drop(unsafe { items.into_owned() });
    }
}

/// Drops what can be dropped by now, as far as the calling thread can tell. Not needed: updates, and now and then reads, do it as they go.
pub fn collect() {
    pin().flush();
}
