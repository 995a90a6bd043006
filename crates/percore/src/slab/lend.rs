//! The owner's side of a slab whose buffers cross a protection boundary: it lends them by name, and believes nothing about them.
//!
//! The far side maps the file that the buffers lie in and can read and write all of it at any time; it has nothing else. So
//! * which buffers are free, which are lent and under which name stands in the owner's own memory, here;
//! * the owner never has a `&[u8]` of a buffer. It copies bytes out, and checks the copy: what it checked in place could be another thing when it is used;
//! * a name that comes back is looked up. One that was not lent, or not so, is refused; the caller counts it by its reason;
//! * one far side has one slab for all its life. After its death the memory may still be mapped by a process that it gave the file to.
//!
//! A [`LendingSlab`] is owned by one thread, as a [`Slab`] is: what crosses threads is a [`SharedBuffer`] that is dropped elsewhere, which goes home by the
//! slab's remote-free queues.

use super::{
    holder::{Buffer, Slab},
    shared::{BadLayout, BufferName, Outside, SharedLayout},
};
use crate::{foreign, own::Own};
use rustix::fs::{FallocateFlags, fallocate};
use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    ptr::NonNull,
};

/// A buffer of a [`LendingSlab`] in the owner's hands. The far side can write to it even so.
pub struct SharedBuffer(pub(super) Buffer);

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer {{ at {:?} }}", self.0.data())
    }
}

impl SharedBuffer {
    /// Where `bytes` bytes lie from `offset` on.
    fn place(&self, offset: usize, bytes: usize) -> Result<NonNull<u8>, Outside> {
        let end = offset.checked_add(bytes).ok_or(Outside)?;
        if end > self.bytes() {
            return Err(Outside);
        }
        // SAFETY: inside the buffer.
        Ok(unsafe { self.0.data().add(offset) })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.size()
    }

    /// Copies `into.len()` bytes from `offset` on. The far side may be writing them: check the copy, not the buffer, and copy once.
    ///
    /// # Errors
    /// They are not all inside the buffer.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(offset, into.len())?;
        // SAFETY: inside the mapping, which this buffer keeps. In this process only the buffer's holder writes there, by `&mut self`.
        unsafe { foreign::copy_out(from, into) };
        Ok(())
    }

    /// Copies `bytes` to `offset` and what follows.
    ///
    /// # Errors
    /// There is not room for all.
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Outside> {
        let to = self.place(offset, bytes.len())?;
        // SAFETY: inside the mapping, which this buffer keeps; `&mut self` is exclusive in this process.
        unsafe { foreign::copy_in(to, bytes) };
        Ok(())
    }
}

/// One buffer's entry.
#[derive(Debug, Default)]
pub(super) struct Loan {
    /// Of the last loan.
    pub(super) generation: u32,
    /// While it is lent.
    buffer: Option<SharedBuffer>,
}

/// What the far side has. Of the owner alone: a name is an index into it, and is compared with what stands there.
#[derive(Debug)]
pub(super) struct Loans {
    /// By index.
    pub(super) table: Vec<Loan>,
    lent: usize,
    quota: usize,
}

impl Loans {
    /// The buffer that is lent by this name.
    fn check(&self, name: BufferName) -> Result<&SharedBuffer, Refused> {
        let index = usize::try_from(name.index).unwrap_or(usize::MAX);
        let loan = self.table.get(index).ok_or(Refused::OutOfRange)?;
        match &loan.buffer {
            None => Err(Refused::NotLent),
            Some(_) if loan.generation != name.generation => Err(Refused::Stale),
            Some(buffer) => Ok(buffer),
        }
    }

    fn take(&mut self, name: BufferName) -> Result<SharedBuffer, Refused> {
        self.check(name)?;
        let loan = self.table.get_mut(name.index as usize); // widening: u32 to usize
        let buffer = loan.and_then(|loan| loan.buffer.take());
        let buffer = buffer.ok_or(Refused::NotLent)?;
        self.lent -= 1;
        Ok(buffer)
    }
}

/// Why a name that the far side said is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No buffer has this index.
    OutOfRange,
    /// The buffer is not lent: never was, or was given back already.
    NotLent,
    /// The buffer is lent by another name: this one was given back before.
    Stale,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "no buffer has this index",
            Self::NotLent => "the buffer is not lent",
            Self::Stale => "the buffer is lent by another name",
        })
    }
}

impl std::error::Error for Refused {}

/// Why a buffer is not lent; it comes back.
#[derive(Debug)]
pub enum NotLent {
    /// The far side has as many as it may have.
    Quota(SharedBuffer),
    /// The buffer is another slab's.
    Foreign(SharedBuffer),
}

impl fmt::Display for NotLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quota(_) => "the far side has as many buffers as it may have",
            Self::Foreign(_) => "the buffer is another slab's",
        })
    }
}

impl std::error::Error for NotLent {}

/// A slab in a sealed memfd, whose buffers are lent to one far side.
#[derive(Debug)]
pub struct LendingSlab {
    /// First: the buffers in it go home before the slab ends.
    pub(super) loans: Loans,
    pub(super) slab: Slab,
    layout: SharedLayout,
    file: Own,
}

impl LendingSlab {
    /// A slab of `buffers` buffers of `size` bytes (rounded up to 64), of which the far side has at most `quota` at a time. The first `ready` are
    /// prefaulted; the others take memory once they are used.
    ///
    /// # Errors
    /// `InvalidInput`: no buffer, or more than a [`SharedLayout`] or a [`Slab`] can have. Those of memfd_create(2), ftruncate(2),
    /// mmap(2), madvise(2) and of F_ADD_SEALS (fcntl(2)).
    pub fn new(buffers: usize, size: usize, quota: usize, ready: usize) -> io::Result<Self> {
        let invalid = |why: BadLayout| io::Error::new(io::ErrorKind::InvalidInput, why);
        let rounded = size.max(1).checked_next_multiple_of(64);
        let layout = u32::try_from(buffers)
            .ok()
            .zip(rounded.and_then(|size| u32::try_from(size).ok()))
            .ok_or(BadLayout::TooLarge)
            .and_then(|(buffers, size)| SharedLayout::new(buffers, size))
            .map_err(invalid)?;
        let (slab, file) = Slab::shared(buffers, size, ready)?;
        let mut table = Vec::new();
        table.resize_with(buffers, Loan::default);
        let loans = Loans {
            table,
            lent: 0,
            quota,
        };
        Ok(Self {
            loans,
            slab,
            layout,
            file,
        })
    }

    /// What the far side needs to know, besides the file.
    pub fn layout(&self) -> SharedLayout {
        self.layout
    }

    /// The file that the buffers lie in, and nothing else. No process can shorten, lengthen or unseal it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives all its memory back to the system, also where a process still maps it, which reads zeros there from now on. For the end: the far side need
    /// not take notice of it.
    pub fn discard(&self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where the system cannot, the memory goes with the last mapping.
        let _ = fallocate(&self.file, flags, 0, self.layout.file_bytes() as u64); // widening: usize to u64
    }

    /// A buffer with unspecified contents; `None` when all are out. See [`Slab::alloc`].
    pub fn alloc(&mut self) -> Option<SharedBuffer> {
        self.slab.alloc().map(SharedBuffer)
    }

    /// Gives back a buffer at once. See [`Slab::free`].
    pub fn free(&mut self, buffer: SharedBuffer) {
        self.slab.free(buffer.0);
    }

    /// Buffers that can be allocated now. See [`Slab::available`].
    pub fn available(&mut self) -> usize {
        self.slab.available()
    }

    /// Gives memory of buffers at home back to the system. See [`Slab::release_memory`].
    pub fn release_memory(&mut self, keep: usize) -> usize {
        self.slab.release_memory(keep)
    }

    /// Buffers that the far side has.
    pub fn lent(&self) -> usize {
        self.loans.lent
    }

    /// Lends a buffer. What is in it counts as the far side's from now on.
    ///
    /// # Errors
    /// The quota is used up, or it is another slab's buffer: it comes back.
    pub fn lend(&mut self, buffer: SharedBuffer) -> Result<BufferName, NotLent> {
        let Some(place) = self.slab.index_of(&buffer.0) else {
            return Err(NotLent::Foreign(buffer));
        };
        let loans = &mut self.loans;
        if loans.lent >= loans.quota {
            return Err(NotLent::Quota(buffer));
        }
        // There is a place, and an index, for each buffer of the slab.
        let (Some(loan), Ok(index)) = (loans.table.get_mut(place), u32::try_from(place)) else {
            return Err(NotLent::Foreign(buffer));
        };
        debug_assert!(loan.buffer.is_none(), "the owner had it");
        loan.generation = loan.generation.wrapping_add(1);
        loan.buffer = Some(buffer);
        loans.lent += 1;
        Ok(BufferName {
            index,
            generation: loan.generation,
        })
    }

    /// The far side gives back `name`. The buffer is the owner's again: it may copy out of it, [`free`](Self::free) or drop it.
    ///
    /// # Errors
    /// Such a buffer is not lent. Nothing has changed; the caller counts it.
    pub fn take_back(&mut self, name: BufferName) -> Result<SharedBuffer, Refused> {
        self.loans.take(name)
    }

    /// Looks at a buffer that stays lent.
    ///
    /// # Errors
    /// As [`take_back`](Self::take_back).
    pub fn look(&self, name: BufferName) -> Result<&SharedBuffer, Refused> {
        self.loans.check(name)
    }

    /// The far side is gone: takes back all it had, and says how many. Takes time in proportion to the slab. The slab must not be given to another
    /// far side: a process that has the file still sees it.
    pub fn take_back_all(&mut self) -> usize {
        let slab = &mut self.slab;
        let lent = self.loans.table.iter_mut();
        for buffer in lent.filter_map(|loan| loan.buffer.take()) {
            slab.free(buffer.0);
        }
        std::mem::take(&mut self.loans.lent)
    }
}
