//! What a thread knows of the slabs it frees to: its queues.
//!
//! Two thread-locals. The cache is a plain array that has no destructor, so it can be read at any moment of a thread's life, and
//! in a few instructions. The claims have one: when the thread ends they give the queues back and shut the cache, and a buffer that is
//! dropped after that (by a destructor that runs later) goes home by the overflow list.

use super::{Head, orphans, remote_free::RemoteFreeQueue};
use std::{
    cell::{Cell, RefCell},
    ptr::NonNull,
};

/// Slabs whose queues a thread finds at once. Ids count up, so this many slabs in a row do not collide.
const CACHED: usize = 32;
const NO_ID: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Entry {
    id: u64,
    queue: *const RemoteFreeQueue,
}

struct Claim {
    id: u64,
    number: usize,
    queue: *const RemoteFreeQueue,
    head: *const Head,
}

struct Claims(RefCell<Vec<Claim>>);

thread_local! {
    static CACHE: [Cell<Entry>; CACHED] =
        const { [const { Cell::new(Entry { id: NO_ID, queue: std::ptr::null() }) }; CACHED] };
    static ENDED: Cell<bool> = const { Cell::new(false) };
    static CLAIMS: Claims = const { Claims(RefCell::new(Vec::new())) };
}

#[inline(always)]
fn place_of(id: u64) -> usize {
    // Truncation keeps the low bits, which are those that count.
    #[allow(clippy::cast_possible_truncation)]
    let low = id as usize;
    low % CACHED
}

/// The calling thread's queue for the slab with this id, if it is at hand.
#[inline(always)]
pub(super) fn cached(id: u64) -> Option<NonNull<RemoteFreeQueue>> {
    let entry = CACHE.with(|cache| cache[place_of(id)].get());
    if entry.id == id {
        NonNull::new(entry.queue.cast_mut())
    } else {
        None
    }
}

/// The calling thread's queue for the slab with this head and id, claimed now if need be; `None` if the thread ends or all are taken.
#[cold]
pub(super) fn find(head: &Head, id: u64) -> Option<NonNull<RemoteFreeQueue>> {
    if ENDED.get() {
        return None;
    }
    let queue = CLAIMS.try_with(|claims| claims.find(head, id)).ok()??;
    let queue_ptr = queue.as_ptr().cast_const();
    CACHE.with(|cache| {
        cache[place_of(id)].set(Entry {
            id,
            queue: queue_ptr,
        })
    });
    Some(queue)
}

impl Claims {
    fn find(&self, head: &Head, id: u64) -> Option<NonNull<RemoteFreeQueue>> {
        let mut claims = self.0.borrow_mut();
        if let Some(claim) = claims.iter().find(|claim| claim.id == id) {
            return NonNull::new(claim.queue.cast_mut());
        }
        // A thread that outlives many slabs forgets those that are gone whenever its list would grow.
        if claims.len() == claims.capacity() && !claims.is_empty() {
            let orphans = orphans::lock();
            claims.retain(|claim| orphans.is_mapped(claim.id));
        }
        let (number, queue) = head.remote_frees.claim()?;
        claims.push(Claim {
            id,
            number,
            queue,
            head,
        });
        Some(NonNull::from(queue))
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        ENDED.set(true);
        let shut = Entry {
            id: NO_ID,
            queue: std::ptr::null(),
        };
        CACHE.with(|cache| cache.iter().for_each(|entry| entry.set(shut)));
        let mut orphans = orphans::lock();
        for claim in self.0.get_mut().drain(..) {
            if orphans.is_mapped(claim.id) {
                // SAFETY: a slab's head lives while its id is listed as mapped, and we hold that list's lock.
                let head = unsafe { &*claim.head };
                head.remote_frees.release(claim.number);
            }
        }
        orphans.sweep();
    }
}
