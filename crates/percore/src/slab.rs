//! The slab: fixed-size buffers that one holder hands out and that any thread may free (requirement D5).
//!
//! Guarantees:
//! * [`Slab::alloc`] and [`Slab::free`] are wait-free plain memory operations of the holder; every 64th alloc, and each that finds
//!   the local list dry, also looks what came home: one read per queue and one per buffer, no lock waited for, no system call.
//! * Dropping a [`Buffer`] on any thread is wait-free and writes only cache lines that no other thread writes: one slot and the tail
//!   of the thread's own *remote-free queue* to that slab. Not wait-free: a thread's first drop of a buffer of a slab (it claims the queue), a thread that
//!   finds all 64 queues taken or that is past its thread-locals (a mutex; [`Slab::overflowed`] counts), a buffer that outlived its slab (a mutex).
//! * What was written to a buffer before it was dropped is visible to the thread that allocates it next.
//! * Buffers outlive their slab: the memory is unmapped when the last one was dropped (see `orphans` for the exact moment).
//! * Exhaustion is an answer (`None`), and counted ([`Slab::exhausted`]).
//! * Memory that was touched stays, until [`Slab::release_memory`] gives that of buffers at home back to the system.
//! * After `new` nothing allocates but a thread's first drop of a buffer of a slab.
//!
//! A slab's buffers may lie in memory that another process maps, too: see [`LendingSlab`].
//!
//! On its way home a buffer is named by its distance from the first one in cache lines, a shift away from its address. Buffers start an odd number of
//! cache lines apart, so that their first lines, where the headers are, fall into all sets of a cache and not into a few.

pub(crate) mod remote_free;

#[cfg(not(loom))]
mod local;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod orphans;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use self::{
    borrow::BorrowedSlab,
    holder::{Buffer, Slab, mapped},
    lend::{LendingSlab, NotLent, Refused, SharedBuffer},
    orphans::{ForFork, held_for_fork},
    shared::{BadLayout, BufferName, Outside, SharedLayout},
};

#[cfg(not(loom))]
pub use crate::region::MapError;

#[cfg(not(loom))]
use holder::Head;

#[cfg(not(loom))]
mod borrow;
#[cfg(not(loom))]
mod holder;
#[cfg(not(loom))]
mod lend;
#[cfg(not(loom))]
mod shared;
#[cfg(all(test, not(loom)))]
mod shared_tests;
