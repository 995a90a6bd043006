//! The slab: fixed-size buffers that one holder hands out and that any thread may free.

use std::{
    io,
    ops::{Deref, DerefMut},
};

/// A fixed set of equal buffers. Allocation and local free are plain memory operations of the holder (`&mut`);
/// a [`Buffer`] dropped anywhere goes home by a passive message that the holder reads when it runs dry.
#[derive(Debug)]
pub struct Slab {}

impl Slab {
    /// `buffers` buffers of `size` bytes each (rounded up to a cache line), prefaulted.
    pub fn new(buffers: usize, size: usize) -> io::Result<Self> {
        let _ = (buffers, size);
        unimplemented!()
    }
    /// A buffer with unspecified (old, but initialised) contents; `None` when all are out.
    pub fn alloc(&mut self) -> Option<Buffer> {
        unimplemented!()
    }
    /// Local free: gives back a buffer at once. A buffer of another slab is dropped, i.e. goes home.
    pub fn free(&mut self, buffer: Buffer) {
        drop(buffer);
    }
    /// Buffers that can be allocated now, after taking in what came home.
    pub fn available(&mut self) -> usize {
        unimplemented!()
    }
    /// Number of buffers.
    pub fn capacity(&self) -> usize {
        unimplemented!()
    }
    /// Bytes in each buffer.
    pub fn buffer_size(&self) -> usize {
        unimplemented!()
    }
}

/// An owned buffer of some slab: 16 bytes, `Send`. Dropping it anywhere sends it home (wait-free, no shared counter).
#[derive(Debug)]
pub struct Buffer {}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        unimplemented!()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        unimplemented!()
    }
}
