//! The far side of a [`LendingSlab`](super::LendingSlab): the file mapped, and names turned into bytes.

use super::shared::{self, BufferName, Outside, SharedLayout};
use crate::region::{Region, SEALS};
use rustix::{
    fs::{FsWord, fcntl_get_seals, fstat, fstatfs},
    io::Errno,
};
use std::{fmt, io, os::fd::AsFd, ptr::NonNull};

/// A memfd's file system (statfs(2), TMPFS_MAGIC), unless it is of huge pages.
const TMPFS: FsWord = 0x0102_1994;

/// Why a file is not mapped.
#[derive(Debug)]
pub enum MapError {
    /// It lacks a seal, or can have none: a process that has it could shorten it, and an access would end in SIGBUS.
    NotSealed,
    /// It is not in memory of ordinary pages (tmpfs): an access could end in SIGBUS, too.
    NotMemory,
    /// It does not have the size that the layout says.
    Size {
        /// Bytes of the layout.
        expected: usize,
        /// Bytes of the file.
        found: i64,
    },
    /// What the system says.
    System(io::Error),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSealed => write!(f, "the file can be shortened: it is not sealed"),
            Self::NotMemory => write!(f, "the file is not in memory of ordinary pages"),
            Self::Size { expected, found } => {
                write!(f, "the file has {found} bytes, the layout {expected}")
            }
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

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
        // EINVAL: not a file that can be sealed.
        let seals = fcntl_get_seals(&file).map_err(|_| MapError::NotSealed)?;
        if !seals.contains(SEALS) {
            return Err(MapError::NotSealed);
        }
        let system = |error: Errno| MapError::System(error.into());
        if fstatfs(&file).map_err(system)?.f_type != TMPFS {
            return Err(MapError::NotMemory);
        }
        // After the seals: a size that was read before could have changed.
        let found = fstat(&file).map_err(system)?;
        let (found, expected) = (found.st_size, layout.file_bytes());
        if usize::try_from(found) != Ok(expected) {
            return Err(MapError::Size { expected, found });
        }
        let region = Region::map(&file, expected).map_err(MapError::System)?;
        Ok(Self { region, layout })
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
        unsafe { shared::copy_out(from, into) };
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
        unsafe { shared::copy_in(to, bytes) };
        Ok(())
    }
}
