//! Where received text goes: the buffers of a socket call.

use std::io::IoSliceMut;

/// Buffers that are filled from the front.
pub(super) struct Filling<'a, 'b> {
    pub(super) buffers: &'a mut [IoSliceMut<'b>],
    /// Of the first buffer.
    pub(super) filled: usize,
}

impl Filling<'_, '_> {
    /// Whether there is room; where nothing was put, whether there was any.
    pub(super) fn has_room(&self) -> bool {
        self.buffers.iter().any(|buffer| !buffer.is_empty())
    }

    /// Copies as much of `bytes` as there is room for; how many.
    #[inline(always)]
    pub(super) fn put(&mut self, bytes: &[u8]) -> usize {
        let end = self.filled + bytes.len();
        match self
            .buffers
            .first_mut()
            .and_then(|buffer| buffer.get_mut(self.filled..end))
        {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.filled = end;
                bytes.len()
            }
            None => self.put_in_pieces(bytes),
        }
    }

    #[inline(never)]
    fn put_in_pieces(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(buffer) = self.buffers.first_mut() {
            let (room, rest) = (&mut buffer[self.filled..], &bytes[taken..]);
            let n = room.len().min(rest.len());
            room[..n].copy_from_slice(&rest[..n]);
            taken += n;
            self.filled += n;
            if taken == bytes.len() {
                break;
            }
            self.buffers = std::mem::take(&mut self.buffers)
                .get_mut(1..)
                .unwrap_or_default();
            self.filled = 0;
        }
        taken
    }
}
