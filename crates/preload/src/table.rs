//! The descriptor table: which numbers are ours, and what stands behind them.
//!
//! A lookup takes no lock: a number that is not ours costs two loads, one that is ours an increment and a decrement more.
//! Signal handlers may look up at any moment. Records live in memory that is reused but never returned, so that a
//! reader that comes late finds a record with no holders (and tries again) or with new ones (and sees that the
//! number no longer leads to it), never freed memory. A number that was closed and given out again is therefore
//! either the old thing or the new one, never a mixture.

use std::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ops::Deref,
    ptr::{self, NonNull},
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicPtr, AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
            fence,
        },
    },
};

use libc::c_int;

use crate::{locks::hold, process};

const CHUNK: usize = 1024;
/// 1,048,576 numbers: Linux's default fs.nr_open. Sockets above stay with the kernel.
const CHUNKS: usize = 1024;

/// One number.
type Slot<T> = AtomicPtr<Record<T>>;
type Chunk<T> = [Slot<T>; CHUNK];

/// From descriptor numbers to shared records of `T`.
pub struct Table<T: 'static> {
    chunks: [AtomicPtr<Chunk<T>>; CHUNKS],
    spare: Mutex<Vec<Spare<T>>>,
}

/// A record's memory without a holder.
struct Spare<T: 'static>(NonNull<Record<T>>);

// SAFETY: a spare record has no holder but the list; it is memory, not a value.
unsafe impl<T> Send for Spare<T> {}

/// The lock that making and dropping records takes, held.
pub struct ForFork<T: 'static> {
    _spare: MutexGuard<'static, Vec<Spare<T>>>,
}

struct Record<T: 'static> {
    /// Holders: one for all numbers together, one for each handle. 0: spare, the value is gone.
    holders: AtomicUsize,
    /// Numbers that lead here.
    numbers: AtomicUsize,
    table: &'static Table<T>,
    /// Of the process that made the value. Written while there is no holder.
    generation: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A hold on a record: the value lives at least as long.
pub struct Handle<T: 'static>(NonNull<Record<T>>);

// SAFETY: a handle gives out `&T` only and may drop the T on any thread.
unsafe impl<T: Send + Sync> Send for Handle<T> {}
// SAFETY: see above.
unsafe impl<T: Send + Sync> Sync for Handle<T> {}

/// What [`Table::remove`] took out.
pub struct Removed<T: 'static> {
    /// A hold on what the number led to.
    pub handle: Handle<T>,
    /// No other number leads to it.
    pub last: bool,
}

impl<T: Send + Sync> Table<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            spare: Mutex::new(Vec::new()),
        }
    }

    /// The slot of `fd` if its chunk exists.
    #[inline]
    fn slot(&self, fd: c_int) -> Option<&Slot<T>> {
        let index = usize::try_from(fd).ok()?;
        let chunk = self.chunks.get(index / CHUNK)?.load(Acquire); // pairs with AcqRel in slot_or_create
        // SAFETY: a chunk is never freed, and was complete when its address was published.
        let chunk = unsafe { chunk.as_ref() }?;
        chunk.get(index % CHUNK)
    }

    fn slot_or_create(&self, fd: c_int) -> Option<&Slot<T>> {
        let index = usize::try_from(fd).ok()?;
        let place = self.chunks.get(index / CHUNK)?;
        if place.load(Acquire).is_null() {
            let fresh: Box<Chunk<T>> = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; CHUNK]);
            let fresh = Box::into_raw(fresh);
            // Release publishes the zeroed chunk to Acquire in slot.
            if place
                .compare_exchange(ptr::null_mut(), fresh, AcqRel, Acquire)
                .is_err()
            {
                // SAFETY: no other thread has seen `fresh`.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        self.slot(fd)
    }

    /// Whether `fd` leads nowhere: the cheapest question.
    #[inline]
    pub fn is_vacant(&self, fd: c_int) -> bool {
        // Relaxed: a call that races a close or an open gets either answer.
        self.slot(fd)
            .is_none_or(|slot| slot.load(Relaxed).is_null())
    }

    /// A hold on what `fd` leads to.
    #[inline]
    pub fn get(&'static self, fd: c_int) -> Option<Handle<T>> {
        let slot = self.slot(fd)?;
        loop {
            let record = NonNull::new(slot.load(Acquire))?; // pairs with AcqRel in replace
            // SAFETY: records are never freed.
            let holders = unsafe { &record.as_ref().holders };
            if !retain(holders) {
                std::hint::spin_loop();
                continue; // closed between the two loads: the slot has changed
            }
            let handle = Handle(record);
            if slot.load(Acquire) == record.as_ptr() {
                return Some(handle);
            }
        }
    }

    /// The lock that making and dropping records takes, for the time of a fork.
    pub fn held_for_fork(&'static self) -> ForFork<T> {
        ForFork {
            _spare: hold(&self.spare),
        }
    }

    /// A new record that no number leads to yet.
    pub fn create(&'static self, value: T) -> Handle<T> {
        let spare = hold(&self.spare).pop();
        let record = spare.map_or_else(|| self.grow(), |Spare(record)| record);
        // SAFETY: records are never freed.
        let shared = unsafe { record.as_ref() };
        // SAFETY: no holder, so no thread reads or writes the value.
        unsafe { &mut *shared.value.get() }.write(value);
        shared.generation.store(process::generation(), Relaxed); // published with `holders`
        shared.numbers.store(0, Relaxed); // as well
        shared.holders.store(1, Release); // pairs with Acquire in retain
        Handle(record)
    }

    fn grow(&'static self) -> NonNull<Record<T>> {
        let record = Box::new(Record {
            holders: AtomicUsize::new(0),
            numbers: AtomicUsize::new(0),
            table: self,
            generation: AtomicU32::new(0),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        });
        NonNull::from(Box::leak(record))
    }

    /// Lets `fd` lead to `handle`'s record; gives back what it led to before. False if `fd` is out of range.
    pub fn insert(&'static self, fd: c_int, handle: &Handle<T>) -> Result<Option<Removed<T>>, ()> {
        let slot = self.slot_or_create(fd).ok_or(())?;
        // AcqRel: the record under construction is complete for a thread that finds it.
        if handle.record().numbers.fetch_add(1, AcqRel) == 0 {
            std::mem::forget(handle.clone()); // the numbers' own hold
        }
        Ok(self.replace(slot, handle.0.as_ptr()))
    }

    /// Takes `fd` out.
    pub fn remove(&'static self, fd: c_int) -> Option<Removed<T>> {
        let slot = self.slot(fd)?;
        if slot.load(Relaxed).is_null() {
            return None;
        }
        self.replace(slot, ptr::null_mut())
    }

    fn replace(&'static self, slot: &Slot<T>, new: *mut Record<T>) -> Option<Removed<T>> {
        // Release publishes the new record to Acquire in get; Acquire is for the old one.
        let old = NonNull::new(slot.swap(new, AcqRel))?;
        // The slot's share of the hold passes to this handle: not released before the count is known.
        // SAFETY: records are never freed, and the numbers' hold is still on it.
        let record = unsafe { old.as_ref() };
        record.holders.fetch_add(1, Relaxed); // the numbers' hold keeps it above 0
        let handle = Handle(old);
        let last = record.numbers.fetch_sub(1, AcqRel) == 1;
        if last {
            release(old); // the numbers' hold
        }
        Some(Removed { handle, last })
    }

    /// Visits the numbers in use, with a hold on what each leads to.
    pub fn visit(&'static self, mut each: impl FnMut(c_int, &Handle<T>)) {
        self.each(0, c_int::MAX, |fd, _| {
            if let Some(handle) = self.get(fd) {
                each(fd, &handle);
            }
        });
    }

    /// Takes out every number that leads to `handle`'s record.
    pub fn remove_all(&'static self, handle: &Handle<T>) {
        self.each(0, c_int::MAX, |fd, record| {
            if ptr::eq(record, handle.0.as_ptr()) {
                self.remove(fd);
            }
        });
    }

    /// Some number that leads to `handle`'s record.
    pub fn find(&'static self, handle: &Handle<T>) -> Option<c_int> {
        let mut found = None;
        self.each(0, c_int::MAX, |fd, record| {
            if found.is_none() && ptr::eq(record, handle.0.as_ptr()) {
                found = Some(fd);
            }
        });
        found
    }

    /// Whether `is_it` of any record. Takes no memory.
    pub fn any(&'static self, is_it: impl Fn(&Handle<T>) -> bool) -> bool {
        let mut any = false;
        self.each(0, c_int::MAX, |fd, _| {
            any = any || self.get(fd).is_some_and(|handle| is_it(&handle));
        });
        any
    }

    /// The numbers in use in `first..=last`.
    pub fn occupied(&'static self, first: c_int, last: c_int) -> Vec<c_int> {
        let mut numbers = Vec::new();
        self.each(first, last, |fd, _| numbers.push(fd));
        numbers
    }

    fn each(&self, first: c_int, last: c_int, mut visit: impl FnMut(c_int, *const Record<T>)) {
        for (number, chunk) in self.chunks.iter().enumerate() {
            // SAFETY: a chunk is never freed, and was complete when its address was published.
            let Some(chunk) = (unsafe { chunk.load(Acquire).as_ref() }) else {
                continue;
            };
            for (offset, slot) in chunk.iter().enumerate() {
                let Ok(fd) = c_int::try_from(number * CHUNK + offset) else {
                    return;
                };
                let record = slot.load(Acquire);
                if !record.is_null() && fd >= first && fd <= last {
                    visit(fd, record);
                }
            }
        }
    }
}

/// One holder more, unless there is none.
#[inline]
fn retain(holders: &AtomicUsize) -> bool {
    let mut count = holders.load(Relaxed);
    while count != 0 {
        // Acquire pairs with Release in create: a thread that holds the record sees its value.
        match holders.compare_exchange_weak(count, count + 1, Acquire, Relaxed) {
            Ok(_) => return true,
            Err(now) => count = now,
        }
    }
    false
}

/// One holder less; the last one drops the value and hands the memory back to the table. What is of the process that this one was forked from stays as it
/// is: it refers to that one's stack and descriptors.
fn release<T>(record: NonNull<Record<T>>) {
    // SAFETY: records are never freed.
    let shared = unsafe { record.as_ref() };
    if shared.holders.fetch_sub(1, Release) != 1 {
        return;
    }
    fence(Acquire); // pairs with Release above on the other holders' side
    if process::is_inherited(shared.generation.load(Relaxed)) {
        return;
    }
    // SAFETY: no holder is left and none can come: retain refuses 0.
    let value = unsafe { &mut *shared.value.get() };
    // SAFETY: written in create, dropped only here.
    unsafe { value.assume_init_drop() };
    hold(&shared.table.spare).push(Spare(record));
}

impl<T: 'static> Handle<T> {
    fn record(&self) -> &Record<T> {
        // SAFETY: records are never freed.
        unsafe { self.0.as_ref() }
    }

    /// Whether it is of the process that this one was forked from.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        process::is_inherited(self.record().generation.load(Relaxed)) // written before there was a handle
    }

    /// The same for all handles of one record, and only for those.
    pub fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// How many numbers lead here.
    pub fn numbers(&self) -> usize {
        self.record().numbers.load(Relaxed)
    }
}

impl<T: 'static> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.record().holders.fetch_add(1, Relaxed); // `self` keeps it above 0
        Self(self.0)
    }
}

impl<T: 'static> Drop for Handle<T> {
    #[inline]
    fn drop(&mut self) {
        release(self.0);
    }
}

impl<T: 'static> Deref for Handle<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: shared between handles; no thread writes while there is one.
        let value = unsafe { &*self.record().value.get() };
        // SAFETY: written in create before the first handle, dropped after the last.
        unsafe { value.assume_init_ref() }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
