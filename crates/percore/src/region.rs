//! Memory of its own: one anonymous mapping, for a slab's buffers and remote-free queues, for an array of cache lines; or one of a memfd.

use crate::own::Own;
use rustix::{
    fs::{
        FsWord, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
        memfd_create,
    },
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
};
use std::{
    ffi::c_void,
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
};

/// Memory that is written once at the start, so that no packet waits for a page fault (about 2 µs each). Of larger slabs
/// only this much: 512 MiB of zeroing takes about 0.1 s.
const PREFAULT_BYTES_MAX: usize = 512 << 20;
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// What no process can do to a shared region's file any more: shorten it (SIGBUS where it is mapped), lengthen it, seal it further.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

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
    /// Another process has mapped it, and it is for one alone.
    Taken,
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
            Self::Taken => write!(f, "another process has it, or had it"),
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

/// `bytes` in whole pages, at least one.
pub(crate) fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(PAGE)
}

/// A mapping of its own; zeroed at first, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// Whether it is a mapping of a file that others may map, too.
    is_shared: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}

impl Region {
    /// A mapping of `bytes` bytes, of which the first `prefault` are backed by memory at once (up to a bound).
    pub fn new(bytes: usize, prefault: usize) -> io::Result<Self> {
        let bytes = whole_pages(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping where the kernel likes: it overlaps nothing.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags) }?;
        let region = Self::of(base, bytes, false)?;
        region.wish_for_huge_pages();
        region.prefault(prefault.min(bytes).min(PREFAULT_BYTES_MAX))?;
        Ok(region)
    }

    /// As [`new`](Self::new), of a sealed memfd ([`SEALS`]) that another process may map.
    pub fn shared(bytes: usize, prefault: usize) -> io::Result<(Self, Own)> {
        let bytes = whole_pages(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let file_bytes = u64::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let file: Own = Own::open(memfd)?;
        ftruncate(&file, file_bytes)?;
        fcntl_add_seals(&file, SEALS)?;
        let region = Self::map(&file, bytes)?;
        region.wish_for_huge_pages();
        region.prefault(prefault.min(bytes).min(PREFAULT_BYTES_MAX))?;
        Ok((region, file))
    }

    /// A mapping of a memfd that another process made as [`shared`](Self::shared) does, of `expected` bytes. The file is not needed afterwards.
    ///
    /// # Errors
    /// It is not sealed, or not of memory; its size is another; fstat(2)'s and mmap(2)'s.
    pub fn borrowed(file: impl AsFd, expected: usize) -> Result<Self, MapError> {
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
        let found = fstat(&file).map_err(system)?.st_size;
        if usize::try_from(found) != Ok(expected) {
            return Err(MapError::Size { expected, found });
        }
        Self::map(&file, expected).map_err(MapError::System)
    }

    /// A mapping of the first `bytes` (whole pages) of `file`, to read and to write.
    fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping where the kernel likes: it overlaps nothing.
        let base = unsafe { mm::mmap(nowhere, bytes, prot, MapFlags::SHARED, file, 0) }?;
        Self::of(base, bytes, true)
    }

    fn of(base: *mut c_void, bytes: usize, is_shared: bool) -> io::Result<Self> {
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            bytes,
            is_shared,
        })
    }

    fn wish_for_huge_pages(&self) {
        if self.bytes >= HUGE_PAGE {
            let start = self.base.as_ptr().cast();
            // SAFETY: advice about our own mapping; it changes no contents. A wish: the answer does not matter.
            let _ = unsafe { mm::madvise(start, self.bytes, Advice::LinuxHugepage) };
        }
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn prefault(&self, bytes: usize) -> io::Result<()> {
        let start = self.base.as_ptr().cast();
        // SAFETY: our own mapping, and `bytes` of it; contents stay as they are.
        match unsafe { mm::madvise(start, bytes, Advice::LinuxPopulateWrite) } {
            Err(Errno::INVAL) => self.touch(bytes), // Linux before 5.14
            other => return Ok(other?),
        }
        Ok(())
    }

    /// Gives the whole pages between the two offsets back to the system; what is read there next is zero. How many bytes that was.
    /// (0 where the kernel will not: locked memory.)
    ///
    /// # Safety
    /// The caller owns these bytes: no other code reads or writes them meanwhile, or expects to find what was there.
    pub unsafe fn discard(&self, from: usize, to: usize) -> usize {
        let (from, to) = (
            from.next_multiple_of(PAGE),
            to.min(self.bytes) / PAGE * PAGE,
        );
        let Some(bytes) = to.checked_sub(from).filter(|&bytes| bytes > 0) else {
            return 0;
        };
        // SAFETY: `from` is below `to`, which is not beyond the mapping.
        let start = unsafe { self.base.add(from) };
        let advice = if self.is_shared {
            Advice::LinuxRemove // the file has the memory, not the mapping
        } else {
            Advice::LinuxDontNeed
        };
        // SAFETY: whole pages inside our own mapping, whose contents are not wanted (the caller's promise).
        let done = unsafe { mm::madvise(start.as_ptr().cast(), bytes, advice) };
        if done.is_ok() { bytes } else { 0 }
    }

    fn touch(&self, bytes: usize) {
        for offset in (0..bytes).step_by(PAGE) {
            // SAFETY: below `bytes`, so inside the mapping.
            let page = unsafe { self.base.add(offset) };
            // SAFETY: the mapping is new: there is no other pointer into it.
            unsafe { page.write_volatile(0) };
        }
    }
}

/// An empty memfd that can be sealed. Linux before 6.3 does not know the seal against execution.
fn memfd() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("slab", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(memfd_create("slab", flags)?),
        made => Ok(made?),
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole; the code that drops the region knows that no pointer into it is left.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// How many of the pages from this address on the system holds for us (proc_pid_pagemap(5): bit 63).
    pub(crate) fn resident_pages(at: usize, pages: usize) -> usize {
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut entries = vec![0; 8 * pages];
        let from = u64::try_from(at / PAGE * 8).unwrap();
        map.read_exact_at(&mut entries, from).unwrap();
        entries
            .as_chunks()
            .0
            .iter()
            .filter(|entry| u64::from_ne_bytes(**entry) >> 63 != 0)
            .count()
    }

    #[test]
    fn as_many_pages_as_asked_for_are_there_at_once() {
        let resident = |region: &Region| resident_pages(region.base().addr().get(), 16);
        for (prefault, pages) in [
            (0, 0),
            (1, 1),
            (5 * PAGE, 5),
            (PAGE * 16, 16),
            (1 << 40, 16),
        ] {
            let region = Region::new(16 * PAGE, prefault).unwrap();
            assert_eq!(resident(&region), pages, "{prefault} bytes");
        }
        // As on a kernel that cannot do it in one call.
        let region = Region::new(16 * PAGE, 0).unwrap();
        region.touch(4 * PAGE + 1);
        assert_eq!(resident(&region), 5);
    }
}
