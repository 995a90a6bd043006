//! The far side of a [`LendingSlab`](super::LendingSlab): the file mapped, and names turned into bytes.

use super::shared::{BufferName, Outside, SharedLayout};
use crate::{
    foreign,
    own::Own,
    region::{MapError, Region},
};
use std::{io, os::fd::AsFd, ptr::NonNull};

/// Another process's slab, mapped. Which buffers this side has is what it was told; the owner checks what it says about them.
#[derive(Debug)]
pub struct BorrowedSlab {
    region: Region,
    layout: SharedLayout,
}

impl BorrowedSlab {
    /// Maps `file`, which is not needed afterwards.
    ///
    /// # Errors
    /// It is not sealed, or not of memory, as a [`LendingSlab`](super::LendingSlab)'s is; its size is not the layout's; fstat(2)'s and mmap(2)'s.
    pub fn map(file: impl AsFd, layout: SharedLayout) -> Result<Self, MapError> {
        let region = Region::borrowed(file, layout.file_bytes())?;
        Ok(Self { region, layout })
    }

    /// The file of a new slab, for two other processes to map: neither of them is its owner.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn between(layout: SharedLayout) -> io::Result<Own> {
        let (_, file) = Region::shared(layout.file_bytes(), 0)?;
        Ok(file)
    }

    /// The layout it was mapped by.
    pub fn layout(&self) -> SharedLayout {
        self.layout
    }

    fn place(&self, name: BufferName, at: usize, bytes: usize) -> Result<NonNull<u8>, Outside> {
        let place = self.layout.place(name.index, at, bytes)?;
        // SAFETY: inside the layout, so inside the file, which is mapped whole.
        Ok(unsafe { self.region.base().add(place) })
    }

    /// Copies `into.len()` bytes of a buffer from `offset` on.
    ///
    /// # Errors
    /// They are not all inside a buffer of the slab.
    pub fn copy_out(
        &self,
        name: BufferName,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), Outside> {
        let from = self.place(name, offset, into.len())?;
        // SAFETY: inside our mapping. In this process only `copy_in` writes there, by `&mut self`.
        unsafe { foreign::copy_out(from, into) };
        Ok(())
    }

    /// Copies `bytes` into a buffer, to `offset` and what follows. One that is not lent is the owner's: writing there breaks this side's own data.
    ///
    /// # Errors
    /// There is not room for all, or no such buffer.
    pub fn copy_in(
        &mut self,
        name: BufferName,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Outside> {
        let to = self.place(name, offset, bytes.len())?;
        // SAFETY: inside our mapping; `&mut self` is exclusive in this process.
        unsafe { foreign::copy_in(to, bytes) };
        Ok(())
    }
}
