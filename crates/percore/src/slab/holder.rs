//! The holder's side of a slab, and the buffers.

use super::{
    local,
    orphans::{self, SlabMemory},
    remote_free::{QUEUES, ReadUpTo, RemoteFrees},
};
use crate::{
    own::Own,
    region::Region,
    sync::{AtomicU32, AtomicU64, Ordering},
};
use std::{
    fmt, io,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

const LINE: usize = 64;
/// The magazine: allocations between two looks at the queues. Looking only when dry would walk through the whole slab before it takes a
/// warm buffer again; 64 makes the look (a cache miss per active queue) about 1 ns per allocation, and larger ones gain nothing
/// (`netchan lab run slab`, by magazine).
const MAGAZINE: usize = 64;
/// Of large buffers fewer: what is walked through between two looks shall stay in a core's own cache (1 MiB or more of L2 is usual), with
/// room for what is copied from it and to it.
const MAGAZINE_BYTES: usize = 256 << 10;
/// The least, of the largest: a look costs as much as copying a few hundred bytes.
const MAGAZINE_MIN: usize = 4;

/// What a slab's buffers and holder share. The first line is written when the slab is made, when its holder ends, and when buffers become
/// scarce or are no longer.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    /// The slab's id while it has a holder, then 0.
    id: AtomicU64,
    base: NonNull<u8>,
    /// Bytes in each buffer.
    size: usize,
    /// See [`Buffer::is_scarce`].
    scarce: AtomicU32,
    pub(super) remote_frees: RemoteFrees,
}

impl Head {
    /// The number that names the buffer at `data`.
    #[inline(always)]
    fn line_of(&self, data: NonNull<u8>) -> u32 {
        let offset = data.addr().get() - self.base.addr().get();
        // Fits: `Slab::new` refuses a slab with 2^32 lines.
        #[allow(clippy::cast_possible_truncation)]
        let line = (offset / LINE) as u32;
        line
    }

    /// The buffer that `line_of` named so.
    #[inline(always)]
    fn data_of(&self, line: u32) -> NonNull<u8> {
        // SAFETY: the number of a buffer, so inside the region. Widening: u32 to usize.
        unsafe { self.base.add(line as usize * LINE) }
    }
}

/// What a slab of some size takes.
pub(super) struct Geometry {
    /// Buffers.
    pub count: u32,
    /// Cache lines of all buffers.
    pub lines: usize,
    /// Bytes in each buffer.
    pub size: usize,
}

impl Geometry {
    /// Of `buffers` buffers of `size` bytes each; errors as [`Slab::new`].
    pub fn of(buffers: usize, size: usize) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "slab larger than 256 GiB");
        let lines_each = size.div_ceil(LINE).max(1) | 1; // odd: see the module's docs
        let lines = buffers
            .checked_mul(lines_each)
            .and_then(|n| u32::try_from(n).ok());
        let count = u32::try_from(buffers).ok().filter(|&n| n < 1 << 31);
        let (lines, count) = lines.zip(count).ok_or_else(too_large)?;
        Ok(Self {
            count,
            lines: lines as usize, // widening: u32 to usize
            size: size.div_ceil(LINE).max(1) * LINE,
        })
    }
}

/// Bytes from one buffer of `size` bytes to the next.
pub(super) fn step_bytes(size: usize) -> usize {
    ((size / LINE) | 1) * LINE
}

/// Bytes of the remote-free queues of a slab with this many buffers.
fn queue_bytes(buffers: u32) -> usize {
    QUEUES * RemoteFrees::slots_each(buffers) as usize * size_of::<u32>() // widening: u32 to usize
}

/// A fixed set of equal buffers. Allocation and local free are plain memory operations of the holder (`&mut`);
/// a [`Buffer`] dropped anywhere goes home by a passive message that the holder reads when it runs dry, and now and then.
pub struct Slab {
    /// Always there but inside `drop`.
    memory: ManuallyDrop<SlabMemory>,
    /// Buffers at home, by address: nothing to compute between alloc and free. Last in, first out: the warmest goes first.
    free: Vec<NonNull<u8>>,
    /// The first of those that were never out, which are not listed there: what is not used costs nothing.
    fresh: usize,
    /// Allocations until the next look at the queues; never more than `free` has.
    fuel: usize,
    /// What `fuel` begins with.
    magazine: usize,
    exhausted: u64,
}

// SAFETY: the free list names buffers that no other has; the memory may be sent.
unsafe impl Send for Slab {}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (home, all, size) = (self.at_home(), self.capacity(), self.buffer_size());
        write!(
            f,
            "Slab {{ at least {home} of {all} buffers of {size} bytes at home }}"
        )
    }
}

impl Slab {
    /// `buffers` buffers of `size` bytes each (rounded up to a cache line, at least one), prefaulted (the first 512 MiB of them).
    ///
    /// # Errors
    /// `InvalidInput` if there are 2^31 buffers or 2^32 cache lines (256 GiB) or more; what mmap(2) and madvise(2) say when there
    /// is not enough memory.
    pub fn new(buffers: usize, size: usize) -> io::Result<Self> {
        Self::with_ready(buffers, size, buffers)
    }

    /// A new slab, of which only the first `ready` are prefaulted: the others take memory once they are needed.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_ready(buffers: usize, size: usize, ready: usize) -> io::Result<Self> {
        let Geometry { count, lines, size } = Geometry::of(buffers, size)?;
        let bytes = lines * LINE;
        let prefault = bytes.min(ready.saturating_mul(step_bytes(size)));
        let region = Region::new(bytes + queue_bytes(count), prefault)?;
        // SAFETY: `bytes` is less than the region has.
        let behind = unsafe { region.base().add(bytes) };
        // SAFETY: the region ends with the queues' words, aligned to a line, zero; it outlives every push and collect (see `orphans`).
        let remote_frees = unsafe { RemoteFrees::new(count, behind.cast()) };
        Ok(Self::over(buffers, size, region, None, remote_frees))
    }

    /// A new slab whose buffers lie in a sealed memfd that another process may map, and nothing else in it: free lists and queues stay here.
    /// A [`Buffer`] of it must not be dereferenced once another process has the file: that one may write to it at any time. So only
    /// for [`LendingSlab`](super::LendingSlab), which copies.
    ///
    /// # Errors
    /// As [`Self::new`], and memfd_create(2)'s.
    pub(super) fn shared(buffers: usize, size: usize, ready: usize) -> io::Result<(Self, Own)> {
        let Geometry { count, lines, size } = Geometry::of(buffers, size)?;
        let bytes = lines * LINE;
        let prefault = bytes.min(ready.saturating_mul(step_bytes(size)));
        let (region, file) = Region::shared(bytes, prefault)?;
        let queues = Region::new(queue_bytes(count), 0)?;
        // SAFETY: the region holds the queues' words, aligned to a page, zero; it outlives every push and collect (see `orphans`).
        let remote_frees = unsafe { RemoteFrees::new(count, queues.base().cast()) };
        let slab = Self::over(buffers, size, region, Some(queues), remote_frees);
        Ok((slab, file))
    }

    /// A slab over `region`, all of whose buffers are at home.
    fn over(
        buffers: usize,
        size: usize,
        region: Region,
        queues: Option<Region>,
        remote_frees: RemoteFrees,
    ) -> Self {
        let id = orphans::lock().enroll();
        let head = Head {
            id: AtomicU64::new(id),
            base: region.base(),
            size,
            scarce: AtomicU32::new(0),
            remote_frees,
        };
        let head = NonNull::from(Box::leak(Box::new(head)));
        Self {
            memory: ManuallyDrop::new(SlabMemory {
                head,
                region,
                queues,
                read: ReadUpTo::START,
                id,
                buffers,
            }),
            free: Vec::with_capacity(buffers),
            fresh: 0,
            fuel: 0,
            magazine: (MAGAZINE_BYTES / size.max(1)).clamp(MAGAZINE_MIN, MAGAZINE),
            exhausted: 0,
        }
    }

    /// The number of one of this slab's buffers, from 0; `None` for one of another slab.
    pub(super) fn index_of(&self, buffer: &Buffer) -> Option<usize> {
        let base = self.head().base.addr().get();
        let index = || (buffer.data.addr().get() - base) / self.step_bytes();
        (buffer.head == self.memory.head).then(index)
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: freed with the memory, which is ours.
        unsafe { self.memory.head.as_ref() }
    }

    /// Looks what came home every `magazine` allocations (at least 1; at first 64, of large buffers 256 KiB), and when it runs dry.
    pub fn set_magazine(&mut self, magazine: usize) {
        self.magazine = magazine.max(1);
    }

    /// A buffer with unspecified (old, but initialised) contents; `None` when all are out, which is counted.
    #[inline]
    pub fn alloc(&mut self) -> Option<Buffer> {
        if self.fuel == 0 {
            self.look();
        }
        let Some(data) = self.free.pop() else {
            self.exhausted += 1;
            return None;
        };
        self.fuel -= 1;
        let head = self.memory.head;
        Some(Buffer { data, head })
    }

    /// Takes in what came home and sets the time of the next look.
    #[cold]
    #[inline(never)]
    fn look(&mut self) {
        self.take_in();
        if self.free.is_empty() {
            self.list_fresh();
        }
        self.fuel = self.free.len().min(self.magazine);
        // Two marks, and a store only where one is passed: the line stays with all its readers.
        let (home, all) = (self.at_home(), self.capacity());
        let is_scarce = self.head().scarce.load(Ordering::Relaxed) != 0; // ours: only the holder writes it
        if is_scarce != (home < if is_scarce { all / 2 } else { all / 4 }) {
            self.head()
                .scarce
                .store(u32::from(!is_scarce), Ordering::Relaxed); // advice, which orders nothing
        }
    }

    /// Lists the next of those that were never out, the first on top.
    fn list_fresh(&mut self) {
        let end = self.capacity().min(self.fresh + MAGAZINE);
        let step = self.step_bytes() / LINE;
        // SAFETY: freed with the memory, which is ours.
        let head = unsafe { self.memory.head.as_ref() };
        // Every buffer is inside the region, as its last line is; `with_ready` has seen that the number of its lines fits.
        #[allow(clippy::cast_possible_truncation)]
        let address = |i: usize| head.data_of((i * step) as u32);
        self.free.extend((self.fresh..end).rev().map(address));
        self.fresh = end;
    }

    /// Buffers at home, without looking what came there.
    pub fn at_home(&self) -> usize {
        self.free.len() + (self.capacity() - self.fresh)
    }

    fn take_in(&mut self) {
        // SAFETY: freed with the memory, which is ours.
        let head = unsafe { self.memory.head.as_ref() };
        let free = &mut self.free;
        head.remote_frees
            .collect(&mut self.memory.read, |line| free.push(head.data_of(line)));
    }

    /// Local free: gives back a buffer at once. A buffer of another slab is dropped, i.e. goes home.
    #[inline]
    pub fn free(&mut self, buffer: Buffer) {
        if buffer.head == self.memory.head {
            let buffer = ManuallyDrop::new(buffer);
            self.free.push(buffer.data);
        }
    }

    /// Buffers that can be allocated now, after taking in what came home.
    pub fn available(&mut self) -> usize {
        self.take_in();
        self.at_home()
    }

    /// Under memory pressure: gives the memory of the buffers at home, but for the `keep` warmest, back to the system, and says how many
    /// bytes that was. The buffers stay: the thread that allocates one pays a page fault (2 µs for each page of it). A page goes when all buffers
    /// that it holds a part of are at home. Takes time in proportion to the slab; not for the path of anything.
    pub fn release_memory(&mut self, keep: usize) -> usize {
        self.take_in();
        self.fuel = 0;
        let cold = self.free.len().saturating_sub(keep);
        let base = self.head().base.addr().get();
        let step = self.step_bytes();
        let cold = &mut self.free[..cold];
        cold.sort_unstable();
        let mut released = 0;
        // Neighbours at home make one run; only the pages at its ends are shared with others.
        for run in cold.chunk_by(|a, b| a.addr().get() + step == b.addr().get()) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            let (from, to) = (first.addr().get() - base, last.addr().get() - base + step);
            // SAFETY: of buffers at home, which no thread uses, and the next one's contents are unspecified.
            released += unsafe { self.memory.region.discard(from, to) };
        }
        // The warm ones stay on top; of the others the lowest is next, so that neighbours go out together.
        cold.reverse();
        released
    }

    /// Bytes from one buffer to the next.
    fn step_bytes(&self) -> usize {
        step_bytes(self.buffer_size())
    }

    /// Allocations that found no buffer.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Number of buffers.
    pub fn capacity(&self) -> usize {
        self.memory.buffers
    }

    /// Bytes in each buffer.
    pub fn buffer_size(&self) -> usize {
        self.head().size
    }

    /// Buffers that ever came home by the list behind a mutex, because the thread that dropped them had no queue.
    pub fn overflowed(&self) -> u64 {
        self.head().remote_frees.overflowed()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: nothing uses the memory after this.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        let mut orphans = orphans::lock();
        // SAFETY: freed with the memory, which is here.
        let head = unsafe { memory.head.as_ref() };
        // Relaxed: a thread that reads it comes to the list of orphans and meets us in its lock; one that does not yet uses a queue, which is swept.
        head.id.store(0, Ordering::Relaxed);
        orphans.adopt(memory, self.at_home());
    }
}

/// Number of slabs in this process whose memory is mapped: those with a holder and those that wait for buffers.
pub fn mapped() -> usize {
    let mut orphans = orphans::lock();
    orphans.sweep();
    orphans.mapped()
}

/// An owned buffer of some slab: 16 bytes, `Send`. Dropping it anywhere sends it home (wait-free, no shared counter).
pub struct Buffer {
    data: NonNull<u8>,
    head: NonNull<Head>,
}

// SAFETY: a buffer is the one owner of its bytes; the head is shared by design (atomics, and words that never change).
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` gives `&[u8]` and nothing else.
unsafe impl Sync for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer {{ {} bytes at {:?} }}", self.len(), self.data)
    }
}

impl Buffer {
    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: the slab's memory and head stay until its last buffer is dropped, and this is one.
        unsafe { self.head.as_ref() }
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> usize {
        self.head().size
    }

    /// The first of its bytes.
    pub(super) fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Whether, at the last look of the holder, less than a quarter of its slab was at home (until half is again): code that will keep the
    /// buffer for long should copy what is in it and send it home. A wait for what only the holder can send would last for ever.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.head().scarce.load(Ordering::Relaxed) != 0 // advice, which orders nothing
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let head = self.head();
        let id = head.id.load(Ordering::Relaxed); // see `Slab::drop`
        match local::cached(id) {
            Some(queue) => {
                // SAFETY: the queue is a part of the head.
                let queue = unsafe { queue.as_ref() };
                queue.push(head.line_of(self.data));
            }
            None => self.reclaim_elsewhere(id),
        }
    }
}

impl Buffer {
    #[cold]
    #[inline(never)]
    fn reclaim_elsewhere(&self, id: u64) {
        let (head, line) = (self.head(), self.head().line_of(self.data));
        if id == 0 {
            orphans::lock().come_home(self.head);
        } else if let Some(queue) = local::find(head, id) {
            // SAFETY: the queue is a part of the head.
            let queue = unsafe { queue.as_ref() };
            queue.push(line);
        } else {
            head.remote_frees.push_overflow(line);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let size = self.head().size;
        // SAFETY: `size` initialised bytes inside the mapping, and this buffer owns them.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), size) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let size = self.head().size;
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), size) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
