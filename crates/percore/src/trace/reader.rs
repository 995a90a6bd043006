//! The reading end of a trace: whole records, oldest first, and a count of what was missed.

use super::{
    ARGS_MAX,
    place::{Found, Memory},
};
#[cfg(not(loom))]
use {crate::ring::BadMemory, std::ptr::NonNull};

/// One event that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which of its ring, counted from 0.
    pub number: u64,
    /// [`crate::clock::cycles`] of the core it happened on.
    pub stamp: u64,
    /// Its place in the [`Table`](super::Table); anything, if the memory is another's.
    pub event: u16,
    /// As many as the event has; the others are left from older records.
    pub args: [u64; ARGS_MAX],
}

/// Records that a reader did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Gone before it looked.
    pub overwritten: u64,
    /// Overwritten while it looked.
    pub torn: u64,
}

/// Reads a ring, and goes on where it stopped. The writer does not notice. A clone goes on from the same place by itself.
#[derive(Clone, Debug)]
pub struct Reader {
    memory: Memory,
    next: u64,
}

impl Reader {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory, next: 0 }
    }

    /// A reader of a ring that another thread or process writes to `memory`. It has the same length there.
    ///
    /// # Errors
    /// As [`Writer::from_raw`](super::Writer::from_raw).
    ///
    /// # Safety
    /// `memory` is valid for reads until this reader is dropped, and written by no Rust code in this process but a
    /// [`Writer`](super::Writer). (It may be mapped for reading only.)
    #[cfg(not(loom))]
    pub unsafe fn from_raw(memory: NonNull<[u8]>) -> Result<Self, BadMemory> {
        Ok(Self::new(Memory::foreign(memory)?))
    }

    /// Number of records written so far, ever.
    pub fn written(&self) -> u64 {
        self.memory.place().header().written()
    }

    /// Hands the records since the last call to `take`, at first the oldest there are; what was missed.
    pub fn read(&mut self, mut take: impl FnMut(Record)) -> Missed {
        let place = self.memory.place();
        let written = place.header().written();
        let mut missed = Missed::default();
        if written < self.next {
            self.next = 0; // a new writer began anew in the same memory
        }
        let oldest = written.saturating_sub(place.records()).max(self.next);
        missed.overwritten = oldest - self.next;
        for number in oldest..written {
            match place.slot(number).read(number) {
                Some(Found { event, stamp, args }) => take(Record {
                    number,
                    stamp,
                    event,
                    args,
                }),
                None => missed.torn += 1,
            }
        }
        self.next = written;
        missed
    }
}
