//! A value that is read with every packet and changed rarely: addresses, routes, settings, modules, taps. Readers take no lock.
//!
//! Two ways of reading:
//! * A [`View`] is one side's own hold on the value. [`View::refresh`], once a burst, is one load and a comparison; what it gives then costs what a
//!   reference costs. For what runs all the time: an interface, a shard.
//! * [`Snapshot::read`] is for all others, a socket call say. It marks the thread as inside an *epoch section* (a store and a fence, about 4 ns) and
//!   loads one pointer. One [`section`] for several reads is better than one for each; sections nest, and the inner ones are cheap.
//!
//! Guarantees:
//! * No reader waits for a writer, nor for other readers, and none writes a cache line that another thread writes (a refresh that finds a change
//!   counts one more holder).
//! * A reader sees the value as it was at one moment, whole, for as long as its section lasts, or until its next refresh. Whatever was changed before
//!   that moment in the sense of the memory model (a lock, a message) is in it.
//! * Writers take turns, copy the value, and publish the copy; never wait for readers. The old value is dropped when no section and no view
//!   that has it is left, by whichever thread comes by then: a reader that stays delays memory, never a packet.
//!
//! The sections are crossbeam-epoch's, checked by that crate's own loom models; here there is a pointer, its generation and the writers' lock. So this has
//! no model of its own (loom cannot look into it), but a test in which readers, views and writers race and every value is counted in and out.

#[cfg(test)]
mod tests;

use crossbeam_epoch::{Atomic, Guard, Shared, pin};
use std::{
    convert::Infallible,
    fmt,
    marker::PhantomData,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A value that is replaced as a whole.
pub struct Snapshot<T> {
    /// Never null; it came from `Arc::into_raw`, and holds one count of it.
    current: Atomic<T>,
    /// How often it was replaced. Behind `current`: a reader that sees the number sees the value, or a newer one.
    generation: AtomicU64,
    writers: Mutex<()>,
    /// Says that it owns an `Arc<T>`.
    _owns: PhantomData<Arc<T>>,
}

// SAFETY: it hands out `&T` and `Arc<T>` to any thread, and any thread may drop the last.
unsafe impl<T: Send + Sync> Send for Snapshot<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Snapshot<T> {}

impl<T: fmt::Debug> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = pin();
        self.value(&guard).fmt(f)
    }
}

impl<T: Default> Default for Snapshot<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// An epoch section: what was read stays while this lives. Of the thread that made it.
pub struct Section(Guard);

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Section")
    }
}

/// Begins an epoch section, in which any number of values can be read.
#[inline]
pub fn section() -> Section {
    Section(pin())
}

/// A value, as it was when its reader began, in a section of its own.
pub struct Reading<'a, T> {
    /// What the section protects was loaded once, so that it cannot change under the reader.
    value: *const T,
    _guard: Guard,
    _source: PhantomData<&'a Snapshot<T>>,
}

impl<T: fmt::Debug> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: loaded under the guard, which is still here.
        unsafe { &*self.value }
    }
}

impl<T> Snapshot<T> {
    /// Its first value.
    pub fn new(value: T) -> Self {
        let current = Atomic::null();
        current.store(
            Shared::from(Arc::into_raw(Arc::new(value))),
            Ordering::Relaxed,
        );
        Self {
            current,
            generation: AtomicU64::new(0),
            writers: Mutex::new(()),
            _owns: PhantomData,
        }
    }

    /// The value, in an epoch section of its own.
    #[inline]
    pub fn read(&self) -> Reading<'_, T> {
        let guard = pin();
        let value = std::ptr::from_ref(self.value(&guard));
        Reading {
            value,
            _guard: guard,
            _source: PhantomData,
        }
    }

    /// The value, in a section that the caller has begun.
    #[inline]
    pub fn read_in<'a>(&'a self, section: &'a Section) -> &'a T {
        self.value(&section.0)
    }

    /// The value, held for as long as the caller likes.
    pub fn load(&self) -> Arc<T> {
        let guard = pin();
        let value = std::ptr::from_ref(self.value(&guard));
        // SAFETY: it came from `Arc::into_raw`, and the count that the snapshot holds of it is given up only after this section.
        unsafe { Arc::increment_strong_count(value) };
        // SAFETY: the count that was just taken.
        unsafe { Arc::from_raw(value) }
    }

    /// How often it was replaced.
    #[inline(always)]
    fn generation(&self) -> u64 {
        // Acquire pairs with Release in `replace`.
        self.generation.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn value<'a>(&'a self, guard: &'a Guard) -> &'a T {
        // Acquire pairs with Release in `replace`.
        let value = self.current.load(Ordering::Acquire, guard);
        // SAFETY: never null, and not dropped while the guard lives.
        unsafe { value.deref() }
    }

    /// A view of it, which sees what there is now.
    pub fn view(self: &Arc<Self>) -> View<T> {
        // In this order: a value that is newer than the number only makes the first refresh find a change.
        let seen = self.generation();
        View {
            value: self.load(),
            seen,
            source: self.clone(),
        }
    }
}

impl<T: Send + Sync + 'static> Snapshot<T> {
    /// Publishes what `make` gives for the value that there is, or nothing where it fails. Other writers wait meanwhile.
    fn replace<R, E>(&self, make: impl FnOnce(&T) -> Result<(T, R), E>) -> Result<R, E> {
        let _turn = self.writers.lock().unwrap_or_else(PoisonError::into_inner); // it guards no data
        let guard = pin();
        let (value, result) = make(self.value(&guard))?;
        let new = Shared::from(Arc::into_raw(Arc::new(value)));
        // Release pairs with Acquire in `value`.
        let old = Count(self.current.swap(new, Ordering::AcqRel, &guard).as_raw());
        // Release pairs with Acquire in `generation`. No other writer is here.
        self.generation.store(
            self.generation.load(Ordering::Relaxed) + 1,
            Ordering::Release,
        );
        // SAFETY: it can no longer be loaded, and the count is given up after all sections that may have loaded it. `T` is `Send`, `Sync` and
        // 'static: any thread may drop it, at any time.
        unsafe { guard.defer_unchecked(move || drop(old)) };
        guard.flush(); // it shall not wait until this thread has more to drop
        Ok(result)
    }

    /// Puts another value in its place.
    pub fn set(&self, value: T) {
        let Ok(()) = self.replace(|_| Ok::<_, Infallible>((value, ())));
    }
}

impl<T: Clone + Send + Sync + 'static> Snapshot<T> {
    /// Changes a copy of the value and publishes it; what `change` returns. If it panics nothing has changed. Costs what a copy costs, and waits for
    /// other writers.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let Ok(result) = self.try_update(|value| Ok::<_, Infallible>(change(value)));
        result
    }

    /// Changes a copy of the value and publishes it, unless `change` fails: then nothing is published.
    ///
    /// # Errors
    /// `change`'s.
    pub fn try_update<R, E>(&self, change: impl FnOnce(&mut T) -> Result<R, E>) -> Result<R, E> {
        self.replace(|value| {
            let mut value = value.clone();
            let result = change(&mut value)?;
            Ok((value, result))
        })
    }
}

/// One count of an `Arc`, given up with it: of a pointer from `Arc::into_raw`.
struct Count<T>(*const T);

impl<T> Drop for Count<T> {
    fn drop(&mut self) {
        // SAFETY: a pointer of `Arc::into_raw`, whose count is this one's alone.
        drop(unsafe { Arc::from_raw(self.0) });
    }
}

impl<T> Drop for Snapshot<T> {
    fn drop(&mut self) {
        // `&mut self` says that nothing reads it any more.
        drop(Count(self.current.load(Ordering::Relaxed, &pin()).as_raw()));
    }
}

/// One side's own hold on a [`Snapshot`]'s value.
pub struct View<T> {
    value: Arc<T>,
    seen: u64,
    source: Arc<Snapshot<T>>,
}

impl<T: fmt::Debug> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        self.source.view()
    }
}

impl<T> Deref for View<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> View<T> {
    /// Takes a new value, if there is one; the old one then. One load where there is none.
    #[inline(always)]
    pub fn refresh(&mut self) -> Option<Arc<T>> {
        (self.source.generation() != self.seen).then(|| self.take_new())
    }

    #[cold]
    #[inline(never)]
    fn take_new(&mut self) -> Arc<T> {
        let new = self.source.view();
        std::mem::replace(self, new).value
    }

    /// What it is a view of.
    pub const fn source(&self) -> &Arc<Snapshot<T>> {
        &self.source
    }
}
