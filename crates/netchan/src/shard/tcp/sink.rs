//! Where received text goes: the buffers of a socket call, a function that looks at it, or nowhere.

use std::io::IoSliceMut;

/// What takes received text.
pub(super) trait Sink {
    /// Takes as much of `bytes`, which come in order, as there is room for; how many.
    fn put(&mut self, bytes: &[u8]) -> usize;

    /// Bytes that it takes, before the first.
    fn room(&self) -> usize;

    /// Takes at most `n` bytes that `copy` gives, from the one with a number on; how many.
    fn draw(&mut self, n: usize, copy: impl FnMut(usize, &mut [u8]) -> usize) -> usize;
}

/// Bytes of text that a function is shown at a time, where it does not lie in memory of our own.
const PIECE: usize = 4096;

/// A function that is shown text where it lies.
pub(super) struct Look<F>(pub F);

impl<F: FnMut(&[u8])> Sink for Look<F> {
    fn put(&mut self, bytes: &[u8]) -> usize {
        if !bytes.is_empty() {
            (self.0)(bytes);
        }
        bytes.len()
    }

    fn room(&self) -> usize {
        usize::MAX
    }

    fn draw(&mut self, n: usize, mut copy: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let mut piece = [0; PIECE];
        let mut drawn = 0;
        while drawn < n {
            let room = piece.len().min(n - drawn);
            let got = copy(drawn, piece.get_mut(..room).unwrap_or_default());
            if got == 0 {
                break;
            }
            self.put(piece.get(..got).unwrap_or_default());
            drawn += got;
        }
        drawn
    }
}

/// Forgets so many bytes.
pub(super) struct Forget(pub usize);

impl Sink for Forget {
    fn put(&mut self, bytes: &[u8]) -> usize {
        let n = self.0.min(bytes.len());
        self.0 -= n;
        n
    }

    fn room(&self) -> usize {
        self.0
    }

    fn draw(&mut self, n: usize, _copy: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let n = self.0.min(n);
        self.0 -= n;
        n
    }
}

/// Buffers that are filled from the front.
pub(super) struct Filling<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    /// Of the first buffer.
    filled: usize,
}

impl<'a, 'b> Filling<'a, 'b> {
    pub(super) const fn new(buffers: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { buffers, filled: 0 }
    }
}

impl Sink for Filling<'_, '_> {
    fn room(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }

    fn draw(&mut self, n: usize, mut copy: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let mut drawn = 0;
        while drawn < n
            && let Some(buffer) = self.buffers.first_mut()
        {
            let room = buffer.get_mut(self.filled..).unwrap_or_default();
            let most = room.len().min(n - drawn);
            let got = copy(drawn, room.get_mut(..most).unwrap_or_default());
            (drawn, self.filled) = (drawn + got, self.filled + got);
            if got < most {
                break;
            }
            if self.filled == buffer.len() {
                self.buffers = std::mem::take(&mut self.buffers)
                    .get_mut(1..)
                    .unwrap_or_default();
                self.filled = 0;
            }
        }
        drawn
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) -> usize {
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
}

impl Filling<'_, '_> {
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
