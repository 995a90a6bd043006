//! Slabs whose holder is gone while buffers are out. Each stays mapped until its last buffer came home.
//!
//! There is no count of buffers that every drop would have to touch. Instead the dying holder clears the id in the slab's head, which
//! every drop of a buffer reads anyway; a drop that finds it cleared comes here, under a lock, and the last one unmaps the slab.
//! A drop that read the id just before it was cleared has put its buffer into a queue; it is found when any buffer comes here, when a
//! slab is made or dropped, or when a thread ends that ever freed a buffer.

use super::{Head, remote_free::ReadUpTo};
use crate::region::Region;
use std::{
    collections::BTreeSet,
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The memory of one slab and how far its queues were read.
#[derive(Debug)]
pub(super) struct SlabMemory {
    pub head: NonNull<Head>,
    pub region: Region,
    /// Where the remote-free queues lie, if not behind the buffers: those of a slab whose buffers another process may write.
    pub queues: Option<Region>,
    pub read: ReadUpTo,
    pub id: u64,
    pub buffers: usize,
}

// SAFETY: the head is this value's own allocation; it is shared with buffers by design.
unsafe impl Send for SlabMemory {}

#[derive(Debug)]
struct Orphan {
    memory: SlabMemory,
    home: usize,
}

impl Orphan {
    /// Counts what came home; true if that is all.
    fn is_complete(&mut self) -> bool {
        let SlabMemory { head, read, .. } = &mut self.memory;
        // SAFETY: the head is freed with the memory only.
        let head = unsafe { head.as_ref() };
        head.remote_frees.collect(read, |_| self.home += 1);
        self.home == self.memory.buffers
    }
}

/// The list of all slabs that are mapped, and those without a holder.
#[derive(Debug)]
pub(super) struct Orphans {
    next_id: u64,
    mapped: BTreeSet<u64>,
    orphans: Vec<Orphan>,
}

static ORPHANS: Mutex<Orphans> = Mutex::new(Orphans {
    next_id: 1, // 0 is the id of a slab without a holder
    mapped: BTreeSet::new(),
    orphans: Vec::new(),
});

pub(super) fn lock() -> MutexGuard<'static, Orphans> {
    // Nothing in here panics half-way.
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The list of slabs, held.
#[derive(Debug)]
pub struct ForFork {
    _orphans: MutexGuard<'static, Orphans>,
}

/// The same, for the time of a fork.
#[must_use]
pub fn held_for_fork() -> ForFork {
    ForFork { _orphans: lock() }
}

impl Orphans {
    /// The id of a new slab; none is ever used twice.
    pub fn enroll(&mut self) -> u64 {
        self.sweep();
        let id = self.next_id;
        self.next_id += 1;
        self.mapped.insert(id);
        id
    }

    /// Whether the slab with this id still has its memory.
    pub fn is_mapped(&self, id: u64) -> bool {
        self.mapped.contains(&id)
    }

    /// Number of slabs that are mapped, with holders and without.
    pub fn mapped(&self) -> usize {
        self.mapped.len()
    }

    /// Takes the memory of a holder that ends with `home` of its buffers at home.
    pub fn adopt(&mut self, memory: SlabMemory, home: usize) {
        self.orphans.push(Orphan { memory, home });
        self.sweep();
    }

    /// One buffer of a slab without a holder comes home.
    pub fn come_home(&mut self, head: NonNull<Head>) {
        for orphan in &mut self.orphans {
            if orphan.memory.head == head {
                orphan.home += 1;
            }
        }
        self.sweep();
    }

    /// Unmaps every slab whose last buffer came home.
    pub fn sweep(&mut self) {
        for i in (0..self.orphans.len()).rev() {
            if self.orphans[i].is_complete() {
                let Orphan { memory, .. } = self.orphans.swap_remove(i);
                self.mapped.remove(&memory.id);
                // SAFETY: made by `Box::leak` in `Slab::new`. No buffer is left, no thread's claim is used once the id is
                // not mapped, and the holder is gone: no thread can reach it.
                drop(unsafe { Box::from_raw(memory.head.as_ptr()) });
                drop(memory.region);
                drop(memory.queues);
            }
        }
    }
}
