//! The trace (D8): always compiled in, one overwriting ring for each thread, stamped by the cycle counter.
//!
//! Guarantees:
//! * [`event`] and [`Writer::event`] are wait-free: no locked instruction, no fence instruction on x86-64, no allocation, no formatting. Switched off, an event
//!   is two loads and one branch that goes the same way each time.
//! * The newest events are kept, as many as the ring has records; older ones are overwritten. A writer never waits for a reader.
//! * A [`Reader`] is on another thread or, over shared memory, in another process: it reads what a thread that hangs did last. It is wait-free, too:
//!   a pass looks at each record once. It hands out whole records only, oldest first; what was overwritten before it came, or under
//!   its hands, it counts.
//! * Reading changes nothing, so any number may read. A process that can write to the memory can spoil the trace and nothing else.
//!
//! A record is one cache line: a word that holds its number and its event, the stamp, and up to four arguments. What an event means stands in a
//! [`Table`], in English and with units; [`Cost`] and [`Offset`] say what tracing itself costs and how far the cores' counters are apart.

mod event;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod measure;
mod place;
mod reader;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod thread;
mod trigger;

pub use event::{ARGS_MAX, Event, Line, Table};
#[cfg(not(loom))]
pub use measure::{Cost, Offset};
pub use place::bytes;
pub use reader::{Missed, Reader, Record};
#[cfg(not(loom))]
pub use thread::{Attached, attach, event};
pub use trigger::{Pass, State, Trigger};

use crate::clock;
use place::{Memory, Place};
use std::{cell::Cell, fmt, marker::PhantomData};
#[cfg(not(loom))]
use {crate::ring::BadMemory, std::ptr::NonNull};

/// The writing end of a trace ring: one thread's.
pub struct Writer {
    memory: Memory,
    /// One thread at a time: `Send`, not `Sync`.
    _one: PhantomData<Cell<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.memory.place();
        let (records, written) = (place.records(), place.header().written());
        write!(f, "Writer {{ {written} events, {records} records }}")
    }
}

impl Writer {
    /// A ring of `records` records (rounded up to a power of two, at least 1) on the heap, switched on. Read it by [`reader`](Self::reader).
    pub fn new(records: usize) -> Self {
        Self::over(Memory::heap(records))
    }

    /// A ring in `memory`, with as many records as there is place for (a power of two); [`bytes`] says how much that takes.
    /// Switched on.
    ///
    /// # Errors
    /// If there is no place for one record, or the memory is not aligned to a cache line.
    ///
    /// # Safety
    /// * `memory` is valid for reads and writes until this writer is dropped; if it is a file, no untrusted peer can shorten it.
    /// * It was zero at first, or held an earlier trace, and no Rust code in this process writes to it but this writer.
    #[cfg(not(loom))]
    pub unsafe fn from_raw(memory: NonNull<[u8]>) -> Result<Self, BadMemory> {
        let memory = Memory::foreign(memory)?;
        Ok(Self::over(memory))
    }

    fn over(memory: Memory) -> Self {
        let _one = PhantomData;
        memory.place().header().switch(true);
        Self { memory, _one }
    }

    /// Records `event` with its arguments, now.
    #[inline(always)]
    pub fn event<const N: usize>(&self, event: Event<N>, args: [u64; N]) {
        self.memory.place().event(event, args);
    }

    /// Switches the events of this ring on or off. (Another process that may write to the memory can, too.)
    pub fn switch(&self, on: bool) {
        self.memory.place().header().switch(on);
    }

    /// A reader that begins with the oldest record. Over shared memory another process makes its own ([`Reader::from_raw`]).
    pub fn reader(&self) -> Reader {
        Reader::new(self.memory.clone())
    }
}

impl Place {
    /// Writes one record. For the ring's one writer only.
    #[inline(always)]
    fn event<const N: usize>(&self, event: Event<N>, args: [u64; N]) {
        if self.header().is_on() {
            self.write(event.id(), clock::cycles(), args);
        }
    }
}
