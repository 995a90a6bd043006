//! The slab: fixed-size buffers that one holder hands out and that any thread may free.

use std::{
    io,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

/// A fixed set of equal buffers. Allocation and local free are plain memory operations of the holder (`&mut`);
/// a [`Buffer`] dropped anywhere goes home by a passive message that the holder reads when it runs dry.
#[derive(Debug)]
pub struct Slab {
    shared: Arc<Shared>,
    free: Vec<NonNull<u8>>,
    count: usize,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    base: NonNull<u8>,
    bytes: usize,
    home: Mutex<Vec<NonNull<u8>>>,
}

// SAFETY: the pointers name memory that one `Buffer` at a time owns.
unsafe impl Send for Slab {}
// SAFETY: as above; the list of pointers is behind a mutex.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping of `Slab::new`; the last reference to it is this one.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Slab {
    /// `buffers` buffers of `size` bytes each (rounded up to a cache line), prefaulted.
    pub fn new(buffers: usize, size: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags};
        let size = size.max(1).next_multiple_of(64);
        let bytes = size
            .checked_mul(buffers.max(1))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping overlaps nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let at = |i: usize| {
            // SAFETY: i < buffers, so the offset lies inside the mapping.
            unsafe { base.add(i * size) }
        };
        let free = (0..buffers).rev().map(at).collect();
        let home = Mutex::new(Vec::with_capacity(buffers));
        Ok(Self {
            shared: Arc::new(Shared {
                size,
                base,
                bytes,
                home,
            }),
            free,
            count: buffers,
        })
    }

    /// A buffer with unspecified (old, but initialised) contents; `None` when all are out.
    pub fn alloc(&mut self) -> Option<Buffer> {
        if self.free.is_empty() {
            self.take_in();
        }
        let data = self.free.pop()?;
        let home = self.shared.clone();
        Some(Buffer { data, home })
    }

    fn take_in(&mut self) {
        let mut home = self
            .shared
            .home
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.free.append(&mut home);
    }

    /// Local free: gives back a buffer at once. A buffer of another slab is dropped, i.e. goes home.
    pub fn free(&mut self, buffer: Buffer) {
        drop(buffer);
    }
    /// Buffers that can be allocated now, after taking in what came home.
    pub fn available(&mut self) -> usize {
        self.take_in();
        self.free.len()
    }
    /// Number of buffers.
    pub fn capacity(&self) -> usize {
        self.count
    }
    /// Bytes in each buffer.
    pub fn buffer_size(&self) -> usize {
        self.shared.size
    }
}

/// An owned buffer of some slab: 16 bytes, `Send`. Dropping it anywhere sends it home (wait-free, no shared counter).
#[derive(Debug)]
pub struct Buffer {
    data: NonNull<u8>,
    home: Arc<Shared>,
}

// SAFETY: a buffer is the one owner of its bytes.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` gives `&[u8]` and nothing else.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut home = self
            .home
            .home
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        home.push(self.data);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `size` initialised bytes of the mapping, which `home` keeps alive; this buffer owns them.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.home.size) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.home.size) }
    }
}
