//! The edge: rings in both directions and a doorbell on each side, in one sealed memfd that two processes map.
//!
//! Each direction has a ring of items and, the other way round, a ring of what comes back for them (the names of buffers that are free again).
//! One side makes the edge ([`create`]) and gives the other one the file and a socket; the other side maps it ([`map`]), once: a second process would
//! begin in rings that are not new. The two are alike then, but for the [`Notice`], which the maker alone writes. A process may also make an edge between
//! two others ([`between`]).
//!
//! Guarantees:
//! * Whatever the other process writes into the memory, this side reads and writes nothing outside of it, never waits and never panics
//!   ([`ring`](crate::ring), over foreign memory). An index that cannot be reads as full or empty, and is remembered.
//! * What is taken is a copy that the other side cannot change.
//! * Each cache line is written by one side, but for the doorbells' words.
//! * No wake-up is lost while both sides keep the order of [`Doorbell`].

#[cfg(test)]
mod tests;

use crate::{
    doorbell::{Doorbell, Word, socket_pair},
    own::Own,
    region::{MapError, Region, whole_pages},
    ring::{Consumer, Layout, Plain, Producer},
};
use rustix::io::fcntl_dupfd_cloexec;
use std::{
    fmt, io,
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Bytes that a doorbell's word has to itself.
const WORD: usize = 128;
/// Where the notice stands: behind the maker's word, in a line of its own.
const NOTICE: usize = 64;
/// Where it stands that a process has mapped a side: behind the mapper's word, in a line of its own; a word for each.
const TAKEN: usize = WORD + 64;
/// Most slots of a ring.
const SLOTS_MAX: u32 = 1 << 16;

/// The size of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeLayout {
    slots: u32,
}

impl EdgeLayout {
    /// Rings of `slots` slots each: a power of two, at most 65,536. `None` for other numbers.
    pub fn new(slots: u32) -> Option<Self> {
        let fits = slots.is_power_of_two() && slots <= SLOTS_MAX;
        fits.then_some(Self { slots })
    }

    /// Slots of each ring.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Where the four rings begin, and where the last one ends.
    fn places<T: Plain, R: Plain>(self) -> ([usize; 4], usize) {
        let slots = self.slots as usize; // widening: u32 to usize
        let bytes = |layout: Option<Layout>| layout.map_or(0, |layout| layout.bytes());
        let (items, returns) = (bytes(Layout::of::<T>(slots)), bytes(Layout::of::<R>(slots)));
        let mut at = 2 * WORD;
        let places = [items, returns, items, returns].map(|bytes| {
            let place = at;
            at = (at + bytes).next_multiple_of(WORD);
            place
        });
        (places, at)
    }

    /// The length of the file.
    fn file_bytes<T: Plain, R: Plain>(self) -> usize {
        whole_pages(self.places::<T, R>().1).unwrap_or(usize::MAX) // at most 65,536 slots: it does not overflow
    }
}

/// The mapping, kept by each part of a side.
#[derive(Debug)]
struct Memory(Region);

// SAFETY: shared references give its address only; what lies there is touched by the ends of rings, each alone of its kind, and by doorbells, which are
// atomic.
unsafe impl Sync for Memory {}

impl Memory {
    /// The `bytes` bytes from `offset` on, which are inside.
    fn part(&self, offset: usize, bytes: usize) -> NonNull<[u8]> {
        // SAFETY: the layout says so, by which the region was made or its size was checked.
        let start = unsafe { self.0.base().add(offset) };
        NonNull::slice_from_raw_parts(start, bytes)
    }

    /// Not 0 once a process has mapped this side of the edge. A process that writes something else there harms itself alone.
    fn taken(&self, which: Which) -> &AtomicU32 {
        self.word(match which {
            Which::Mapper => TAKEN,
            Which::Maker => TAKEN + size_of::<AtomicU32>(),
        })
    }

    /// The word at `offset`, which is one of the constants above.
    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = self
            .part(offset, size_of::<AtomicU32>())
            .cast::<AtomicU32>();
        // SAFETY: in the mapping, which stays as long as `self`; aligned; code of this process uses it as this atomic only.
        unsafe { at.as_ref() }
    }
}

/// What this side sends: items, and what comes back for them.
#[derive(Debug)]
pub struct Sending<T: Plain, R: Plain> {
    items: Producer<T>,
    returns: Consumer<R>,
    /// Last: the ends write to it when they are dropped.
    _memory: Arc<Memory>,
}

impl<T: Plain, R: Plain> Sending<T, R> {
    /// Writes an item, which the other side sees after [`publish`](Self::publish). Full gives it back.
    ///
    /// # Errors
    /// The item, where there is no room.
    #[inline]
    pub fn stage(&mut self, item: T) -> Result<(), T> {
        self.items.stage(item)
    }

    /// Makes what was staged visible.
    #[inline]
    pub fn publish(&mut self) {
        self.items.publish();
    }

    /// Items that there is room for.
    pub fn room(&mut self) -> usize {
        self.items.room()
    }

    /// Takes up to `max` returns, oldest first; how many came.
    #[inline]
    pub fn take_returns(&mut self, max: usize, take: impl FnMut(R)) -> usize {
        self.returns.pop_batch(max, take)
    }

    /// Whether the other side has said goodbye, or written an index that cannot be.
    pub fn is_over(&self) -> bool {
        self.items.is_abandoned() || self.items.is_corrupt() || self.returns.is_corrupt()
    }
}

/// What this side receives: items, and what it gives back for them.
#[derive(Debug)]
pub struct Receiving<T: Plain, R: Plain> {
    items: Consumer<T>,
    returns: Producer<R>,
    /// Last: the ends write to it when they are dropped.
    _memory: Arc<Memory>,
}

impl<T: Plain, R: Plain> Receiving<T, R> {
    /// Takes up to `max` items, oldest first; how many came.
    #[inline]
    pub fn take(&mut self, max: usize, take: impl FnMut(T)) -> usize {
        self.items.pop_batch(max, take)
    }

    /// Takes the oldest item.
    #[inline]
    pub fn take_one(&mut self) -> Option<T> {
        let mut item = None;
        self.items.pop_batch(1, |it| item = Some(it));
        item
    }

    /// Whether there was nothing at this moment.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.items.is_empty()
    }

    /// Gives something back, which the other side sees after [`publish_returns`](Self::publish_returns).
    ///
    /// # Errors
    /// It, where there is no room.
    #[inline]
    pub fn give_back(&mut self, it: R) -> Result<(), R> {
        self.returns.stage(it)
    }

    /// Makes what was given back visible.
    #[inline]
    pub fn publish_returns(&mut self) {
        self.returns.publish();
    }

    /// Whether the other side has said goodbye, or written an index that cannot be.
    pub fn is_over(&self) -> bool {
        self.items.is_abandoned() || self.items.is_corrupt() || self.returns.is_corrupt()
    }
}

/// A doorbell at the edge.
pub struct Bell {
    bell: Doorbell,
    /// Last: the word lies there.
    _memory: Arc<Memory>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bell.fmt(f)
    }
}

impl std::ops::Deref for Bell {
    type Target = Doorbell;

    fn deref(&self) -> &Doorbell {
        &self.bell
    }
}

/// A word that the maker writes and the mapper reads: what both have to know at each item, and what there is news of. It means what they agree on; 0 at
/// first. A mapper that writes there deceives itself alone.
#[derive(Clone, Debug)]
pub struct Notice(Arc<Memory>);

impl Notice {
    /// Writes it; the maker's.
    pub fn set(&self, value: u32) {
        // Release pairs with Acquire in `get`: what was done before is seen by a reader that finds this.
        self.0.word(NOTICE).store(value, Ordering::Release);
    }

    /// Reads it.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.word(NOTICE).load(Ordering::Acquire) // pairs with Release in `set`
    }
}

/// One side of an edge.
#[derive(Debug)]
pub struct Side<T: Plain, R: Plain> {
    /// To the other side.
    pub sending: Sending<T, R>,
    /// From the other side.
    pub receiving: Receiving<T, R>,
    /// This side sleeps on it.
    pub own_bell: Bell,
    /// This side rings it.
    pub far_bell: Bell,
    /// The maker's word to the mapper.
    pub notice: Notice,
}

/// What the other process needs for its side.
#[derive(Debug)]
pub struct FarEnd {
    /// The memory: no process can shorten, lengthen or unseal it.
    pub file: Own,
    /// Its end of the socket that carries wake-ups.
    pub socket: Own,
}

/// Which side. They differ in which rings and words are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of the process which made the edge; of an edge between two others, the one that is called so.
    Maker,
    /// The other one.
    Mapper,
}

fn side<T: Plain, R: Plain>(
    memory: Memory,
    layout: EdgeLayout,
    socket: Own,
    which: Which,
) -> io::Result<Side<T, R>> {
    let memory = Arc::new(memory);
    let slots = layout.slots as usize; // widening: u32 to usize
    let (places, _) = layout.places::<T, R>();
    let items = |n: usize| {
        let bytes = Layout::of::<T>(slots).map_or(0, |layout| layout.bytes());
        memory.part(places[n], bytes)
    };
    let returns = |n: usize| {
        let bytes = Layout::of::<R>(slots).map_or(0, |layout| layout.bytes());
        memory.part(places[n], bytes)
    };
    let bell = |n: usize, socket| {
        let word = memory.part(n * WORD, WORD).cast::<Word>();
        // SAFETY: in the mapping, which stays as long as the bell; zero when the edge was made, and only views like this one touch it.
        let bell = unsafe { Doorbell::from_raw(word, socket) };
        Bell {
            bell,
            _memory: memory.clone(),
        }
    };
    // Rings 0 and 1 are those of what the maker sends, 2 and 3 those of what it receives.
    let (out, into, own, far) = match which {
        Which::Maker => (0, 2, 0, 1),
        Which::Mapper => (2, 0, 1, 0),
    };
    let bad = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    // SAFETY: in the mapping, which stays as long as the end and cannot be shortened; zero when the edge was made; each end is made once for each mapping,
    // and what another mapping of the same file writes is a foreign process's doing.
    let out_items = unsafe { Producer::from_raw(items(out), slots) };
    // SAFETY: as above.
    let out_returns = unsafe { Consumer::from_raw(returns(out + 1), slots) };
    // SAFETY: as above.
    let into_items = unsafe { Consumer::from_raw(items(into), slots) };
    // SAFETY: as above.
    let into_returns = unsafe { Producer::from_raw(returns(into + 1), slots) };
    let sending = Sending {
        items: out_items.map_err(bad)?,
        returns: out_returns.map_err(bad)?,
        _memory: memory.clone(),
    };
    let receiving = Receiving {
        items: into_items.map_err(bad)?,
        returns: into_returns.map_err(bad)?,
        _memory: memory.clone(),
    };
    Ok(Side {
        sending,
        receiving,
        // By the system call: std's way leads through the C library, which a program may have replaced (preload).
        own_bell: bell(own, Own::open(|| Ok(fcntl_dupfd_cloexec(&socket, 0)?))?),
        far_bell: bell(far, socket),
        notice: Notice(memory),
    })
}

/// Makes an edge: this side, and what the other process needs.
///
/// # Errors
/// Those of memfd_create(2), ftruncate(2), mmap(2), socketpair(2) and dup(2).
pub fn create<T: Plain, R: Plain>(layout: EdgeLayout) -> io::Result<(Side<T, R>, FarEnd)> {
    let bytes = layout.file_bytes::<T, R>();
    let (region, file) = Region::shared(bytes, 0)?;
    let (own, socket) = socket_pair()?;
    let (own, socket) = (Own::keep(own), Own::keep(socket));
    let side = side(Memory(region), layout, own, Which::Maker)?;
    Ok((side, FarEnd { file, socket }))
}

/// Makes an edge between two other processes: the memory, and a socket for the maker's side and one for the mapper's.
///
/// # Errors
/// As [`create`]'s.
pub fn between<T: Plain, R: Plain>(layout: EdgeLayout) -> io::Result<(Own, [Own; 2])> {
    let (_, file) = Region::shared(layout.file_bytes::<T, R>(), 0)?;
    let (one, other) = socket_pair()?;
    Ok((file, [Own::keep(one), Own::keep(other)]))
}

/// Maps a side of an edge that another process made: the mapper's, or, of one [`between`] two others, either. `file` is not needed afterwards.
///
/// # Errors
/// The file is not sealed, not of memory, or not of the layout's size; a process has mapped that side before; mmap(2)'s and dup(2)'s.
pub fn map<T: Plain, R: Plain>(
    file: impl AsFd,
    layout: EdgeLayout,
    socket: Own,
    which: Which,
) -> Result<Side<T, R>, MapError> {
    let memory = Memory(Region::borrowed(file, layout.file_bytes::<T, R>())?);
    // Relaxed: nothing else is told by it.
    if memory.taken(which).swap(1, Ordering::Relaxed) != 0 {
        return Err(MapError::Taken);
    }
    side(memory, layout, socket, which).map_err(MapError::System)
}

/// Whether a process has mapped the mapper's side: then no other one can.
///
/// # Errors
/// As [`map`], where the file is none of an edge.
pub fn is_taken<T: Plain, R: Plain>(file: impl AsFd, layout: EdgeLayout) -> Result<bool, MapError> {
    let memory = Memory(Region::borrowed(file, layout.file_bytes::<T, R>())?);
    Ok(memory.taken(Which::Mapper).load(Ordering::Relaxed) != 0)
}
