//! Room that a program writes its answer to, while no thread holds the shard: chunks that become the queue's own with what was written to them.

use std::{fmt, io::IoSlice};

use super::{Chunk, Chunks, SendMemory, SendQueue, narrow};

/// Chunks that one lease has at most: four full bursts.
const MOST: usize = 4;

/// Room for a stream's next bytes, in memory that its send queue is made of ([`TcpStream::reserve`](crate::TcpStream::reserve)). What is written
/// to it is sent once it is [committed](crate::TcpStream::commit); dropped, it is gone.
///
/// What the memory held before is still there: commit no more than was written.
#[derive(Default)]
pub struct SendLease {
    chunks: Chunks,
    /// Where the room begins in the first chunk: where the queue ends in its last one.
    at: u32,
    len: u32,
}

impl fmt::Debug for SendLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendLease")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl SendLease {
    /// Bytes of room.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The room, in the order in which its bytes will be sent: up to four slices of up to 64 KiB.
    pub fn slices_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (mut at, mut left) = (self.at as usize, self.len());
        let (one, many) = match &mut self.chunks {
            Chunks::Lent(buffer) => (Some(&mut **buffer), None),
            Chunks::Many(list) => (None, list.as_mut()),
        };
        let many = many.into_iter().flat_map(|list| list.0.iter_mut());
        let all = one.into_iter().chain(many.map(|chunk| &mut **chunk));
        all.map_while(move |chunk| {
            let room = chunk.get_mut(std::mem::take(&mut at)..)?;
            let n = room.len().min(left);
            left -= n;
            room.get_mut(..n).filter(|room| !room.is_empty())
        })
    }

    /// Copies as much of `bytes` as there is room for behind the first `done` bytes; how many.
    pub fn write(&mut self, done: usize, mut bytes: &[u8]) -> usize {
        let (mut skip, mut copied) = (done, 0);
        for room in self.slices_mut() {
            let from = skip.min(room.len());
            skip -= from;
            let n = bytes.len().min(room.len() - from);
            room[from..from + n].copy_from_slice(&bytes[..n]);
            (bytes, copied) = (&bytes[n..], copied + n);
        }
        copied
    }
}

impl Chunks {
    fn count(&self) -> usize {
        match self {
            Self::Lent(_) => 1,
            Self::Many(list) => list.as_ref().map_or(0, |list| list.0.len()),
        }
    }

    /// All of them, one by one; the list goes back.
    fn take_apart(self, memory: &mut SendMemory, mut each: impl FnMut(Chunk, &mut SendMemory)) {
        match self {
            Self::Lent(buffer) => each(Chunk::Lent(buffer), memory),
            Self::Many(Some(mut list)) => {
                list.0.drain(..).for_each(|chunk| each(chunk, memory));
                memory.give_list(list);
            }
            Self::Many(None) => {}
        }
    }

    /// Takes the last one out.
    fn pop_last(&mut self) -> Option<Chunk> {
        match std::mem::take(self) {
            Self::Lent(buffer) => Some(Chunk::Lent(buffer)),
            Self::Many(mut list) => {
                let last = list.as_mut().and_then(|list| list.0.pop_back());
                *self = Self::Many(list);
                last
            }
        }
    }

    fn push(&mut self, chunk: Chunk, memory: &mut SendMemory) {
        self.become_list(memory);
        if let Self::Many(list) = self {
            let list = list.get_or_insert_with(|| memory.take_list());
            list.0.push_back(chunk);
        }
    }
}

impl SendQueue {
    /// Where it ends in its last chunk; 0: at that one's end, or it is empty.
    fn end(&self, memory: &SendMemory) -> usize {
        (self.head as usize + self.len()) % memory.chunk
    }

    /// Room for its next bytes, at most `wanted`, in chunks that are not its own yet.
    pub fn lease(&self, memory: &mut SendMemory, wanted: usize) -> SendLease {
        if wanted == 0 {
            return SendLease::default();
        }
        let at = self.end(memory);
        let count = (at + wanted).div_ceil(memory.chunk).min(MOST);
        let mut chunks = memory.take((at + wanted).min(memory.chunk));
        for _ in 1..count {
            let chunk = memory.take_whole();
            chunks.push(chunk, memory);
        }
        SendLease {
            len: narrow(wanted.min(count * memory.chunk - at)),
            at: narrow(at),
            chunks,
        }
    }

    /// Appends the first `n` bytes of what was written to a lease (at most all). Where the queue still ends where it did, the chunks become its own: at
    /// most what stands in its last one before them is copied, if that is less. How many.
    pub fn commit(&mut self, mut lease: SendLease, memory: &mut SendMemory, n: usize) -> usize {
        let n = n.min(lease.len());
        let at = lease.at as usize;
        let kept = at.min(self.len());
        let has_own_place = n > 0 && self.fits(&lease, memory, n);
        if !has_own_place || (self.len > 0 && (at != self.end(memory) || kept > n)) {
            self.append_lease(&mut lease, memory, n);
            memory.give(lease.chunks);
            return n;
        }
        if self.len == 0 {
            self.head = lease.at;
        } else if at > 0 {
            // The last chunk's bytes move in front of what was written, into its place.
            if let Some(to) = lease.chunks.first_mut().get_mut(at - kept..at) {
                self.copy_out_unsummed(self.len() - kept, to);
            }
            if let Some(last) = self.chunks.pop_last() {
                memory.give_one(last);
            }
        }
        let mut used = (at + n).div_ceil(lease.chunks.first().len().max(1));
        let mut own = std::mem::take(&mut self.chunks);
        lease.chunks.take_apart(memory, |chunk, memory| {
            match used {
                0 => memory.give_one(chunk),
                _ if own.count() == 0 && used == 1 => own = Chunks::of(chunk, memory),
                _ => own.push(chunk, memory),
            }
            used = used.saturating_sub(1);
        });
        self.chunks = own;
        self.len += narrow(n);
        n
    }

    /// Whether the chunks may stand behind the queue's: whole ones, or one that is alone.
    fn fits(&self, lease: &SendLease, memory: &SendMemory, n: usize) -> bool {
        let first = lease.chunks.first().len();
        if first == memory.chunk {
            return true;
        }
        let is_alone = self.len == 0 || self.chunks.count() == 1 && lease.at > 0;
        first < memory.chunk && lease.chunks.count() == 1 && is_alone && n <= first
    }

    #[cold]
    fn append_lease(&mut self, lease: &mut SendLease, memory: &mut SendMemory, n: usize) {
        let mut left = n;
        for room in lease.slices_mut() {
            let text = &room[..room.len().min(left)];
            left -= self.append(&[IoSlice::new(text)], memory, left);
        }
    }
}

impl Chunks {
    /// One alone, as [`SendMemory::take`] gives it.
    fn of(chunk: Chunk, memory: &mut SendMemory) -> Self {
        match chunk {
            Chunk::Lent(buffer) => Self::Lent(buffer),
            own @ Chunk::Own(_) => {
                let mut list = memory.take_list();
                list.0.push_back(own);
                Self::Many(Some(list))
            }
        }
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
