//! The text of a segment, by its place in the stream: what arrives shows where it comes from, and costs no copying.

use proto::tcp::{NoShelf, Payload};

/// A stretch of one stream. Its bytes are those that the stream has there ([`byte_at`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Whose.
    pub stream: u32,
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
    /// Bytes of the buffer that it lies in.
    pub room: u32,
}

impl Payload for Text {
    type Shelf = NoShelf;
    fn len(&self) -> usize {
        self.len as usize
    }
    fn trim_front(&mut self, n: usize) {
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(self.len);
        self.offset += u64::from(n);
        self.len -= n;
    }
    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }
    fn memory(&self) -> usize {
        self.room as usize
    }
    fn try_append(&mut self, next: &Self) -> bool {
        let follows = self.stream == next.stream && self.end() == next.offset;
        let fits = follows && self.len + next.len <= self.room;
        if fits {
            self.len += next.len;
        }
        fits
    }
}

impl Text {
    /// Where it ends.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// The byte that `stream` has at `offset`, for ends that want to see some.
#[must_use]
pub const fn byte_at(stream: u32, offset: u64) -> u8 {
    let mixed = (offset ^ ((stream as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}
