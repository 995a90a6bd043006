//! What both sides of a shared slab know of it: its layout, and the names of its buffers.

use super::holder::{Geometry, step_bytes};
use crate::region::whole_pages;
use std::fmt;

/// "slab" in ASCII, little-endian.
const MAGIC: u32 = 0x6261_6c73;
/// The one version there is: buffers an odd number of 64-byte lines apart, from the file's start.
const VERSION: u32 = 1;

/// Which buffers lie where in a shared slab's file. A value of this type is consistent: everything that could not be is refused when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLayout {
    buffers: u32,
    buffer_bytes: u32,
}

impl SharedLayout {
    /// Bytes of the encoded form.
    pub const ENCODED: usize = 16;

    /// A layout of `buffers` buffers of `buffer_bytes` bytes.
    ///
    /// # Errors
    /// No buffer; a size that is no multiple of 64 bytes, or 0; more than a slab can have.
    pub fn new(buffers: u32, buffer_bytes: u32) -> Result<Self, BadLayout> {
        let of = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        if buffers == 0 {
            return Err(BadLayout::NoBuffers);
        }
        match Geometry::of(of(buffers), of(buffer_bytes)) {
            Err(_) => Err(BadLayout::TooLarge),
            Ok(geometry) if geometry.size != of(buffer_bytes) => Err(BadLayout::BufferBytes),
            Ok(_) => Ok(Self {
                buffers,
                buffer_bytes,
            }),
        }
    }

    /// Number of buffers, at least 1. Their indices count from 0.
    pub fn buffers(self) -> u32 {
        self.buffers
    }

    /// Bytes in each buffer, a multiple of 64.
    pub fn buffer_bytes(self) -> u32 {
        self.buffer_bytes
    }

    /// The length of the file: all buffers, in whole pages.
    pub fn file_bytes(self) -> usize {
        // Neither overflows, as `new` has seen: at most 2^32 lines.
        whole_pages(self.buffers as usize * self.step()).unwrap_or(usize::MAX)
    }

    /// Bytes from one buffer to the next.
    fn step(self) -> usize {
        step_bytes(self.buffer_bytes as usize) // widening: u32 to usize
    }

    /// Where `bytes` bytes of buffer `index` lie in the file, from byte `offset` of the buffer on.
    pub(super) fn place(self, index: u32, offset: usize, bytes: usize) -> Result<usize, Outside> {
        let end = offset.checked_add(bytes).ok_or(Outside)?;
        let is_inside = index < self.buffers && end <= self.buffer_bytes as usize; // widening
        let at = || index as usize * self.step() + offset; // widening
        is_inside.then(at).ok_or(Outside)
    }

    /// As plain bytes: "slab", version, buffers, bytes in each; 32 bits each, little-endian.
    pub fn encode(self) -> [u8; Self::ENCODED] {
        let words = [MAGIC, VERSION, self.buffers, self.buffer_bytes];
        let mut bytes = [0; Self::ENCODED];
        let (places, _) = bytes.as_chunks_mut();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote. `bytes` may be anything, but must be a copy that the other side cannot change.
    ///
    /// # Errors
    /// Another magic number or version; as [`new`](Self::new).
    pub fn decode(bytes: &[u8; Self::ENCODED]) -> Result<Self, BadLayout> {
        let word = |i: usize| {
            let (words, _) = bytes.as_chunks();
            words.get(i).map_or(0, |word| u32::from_le_bytes(*word))
        };
        match (word(0), word(1)) {
            (MAGIC, VERSION) => Self::new(word(2), word(3)),
            (MAGIC, other) => Err(BadLayout::Version(other)),
            _ => Err(BadLayout::Magic),
        }
    }
}

/// Why a layout is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLayout {
    /// Not the layout of a slab.
    Magic,
    /// A version that this code does not know.
    Version(u32),
    /// No buffer.
    NoBuffers,
    /// The size of a buffer is 0 or no multiple of 64 bytes.
    BufferBytes,
    /// 2^31 buffers or 256 GiB, or more.
    TooLarge,
}

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "not the layout of a slab"),
            Self::Version(version) => write!(f, "version {version} of the layout is not known"),
            Self::NoBuffers => write!(f, "a slab without buffers"),
            Self::BufferBytes => write!(f, "the size of a buffer is no multiple of 64 bytes"),
            Self::TooLarge => write!(f, "a slab larger than 256 GiB"),
        }
    }
}

impl std::error::Error for BadLayout {}

/// The name of a lent buffer, as both sides say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferName {
    /// Which buffer, from 0.
    pub index: u32,
    /// Which loan of it: counts up with each (wrapping).
    pub generation: u32,
}

/// Bytes that are not inside the buffer, or a buffer that is not in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outside the buffer")
    }
}

impl std::error::Error for Outside {}
