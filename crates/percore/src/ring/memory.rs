//! Where a ring lies: its header and slots, on the heap or in memory shared with another process.

use crate::sync::{Arc, AtomicU32, AtomicUsize, Cell, Ordering};
use crossbeam_utils::CachePadded;
use std::{
    alloc::{alloc, dealloc, handle_alloc_error},
    fmt,
    mem::MaybeUninit,
    ptr::NonNull,
};

/// One end's published state; only that end writes it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Side {
    pub index: AtomicUsize,
    /// Not 0 once the end was dropped. Not a bool: a hostile peer may write any bytes.
    pub gone: AtomicU32,
    /// The producer's, of a ring of bytes: from which index it went on at the ring's beginning; 0: it has not yet (`ring::bytes`).
    pub left_at: AtomicUsize,
}

/// The start of every ring: all zero is an empty one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    pub producer: CachePadded<Side>,
    pub consumer: CachePadded<Side>,
}

impl Header {
    fn new() -> Self {
        let side = || {
            CachePadded::new(Side {
                index: AtomicUsize::new(0),
                gone: AtomicU32::new(0),
                left_at: AtomicUsize::new(0),
            })
        };
        Self {
            producer: side(),
            consumer: side(),
        }
    }
}

pub(super) type Slot<T> = Cell<MaybeUninit<T>>;

/// Types for which any bytes are a valid value, so that they can be read from memory that an untrusted peer writes.
///
/// # Safety
/// Every bit pattern must be a valid value of the type (no references, bools, enums, `char`s).
pub unsafe trait Plain: Copy + Send + 'static {}

// SAFETY: any bits are an integer; the same for the others.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: an array has no bytes but its elements'.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// What a ring over foreign memory needs: the header, then the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    capacity: usize,
    bytes: usize,
    align: usize,
    slots_at: usize,
}

impl Layout {
    /// The layout of a ring for `capacity` items of `T` (rounded up to a power of two, at least 1);
    /// `None` if that is more than the address space holds.
    pub const fn of<T>(capacity: usize) -> Option<Self> {
        let align = if align_of::<T>() > align_of::<Header>() {
            align_of::<T>()
        } else {
            align_of::<Header>()
        };
        let slots_at = size_of::<Header>().next_multiple_of(align);
        let Some(capacity) = capacity.checked_next_power_of_two() else {
            return None;
        };
        let Some(slots) = capacity.checked_mul(size_of::<Slot<T>>()) else {
            return None;
        };
        match slots.checked_add(slots_at) {
            Some(bytes) if bytes <= isize::MAX.cast_unsigned() - align => Some(Self {
                capacity,
                bytes,
                align,
                slots_at,
            }),
            _ => None,
        }
    }

    fn for_alloc(&self) -> std::alloc::Layout {
        // Checked in `of`, where the limits are the same.
        std::alloc::Layout::from_size_align(self.bytes, self.align).expect("capacity overflow")
    }

    /// Number of slots.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that the ring takes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the ring's address must be a multiple of.
    pub const fn align(&self) -> usize {
        self.align
    }
}

/// Why memory cannot hold a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMemory {
    /// More items than the address space holds.
    TooLarge,
    /// Fewer bytes than the layout asks for.
    TooSmall {
        /// Bytes that the layout asks for.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Its address is not a multiple of this.
    Misaligned(usize),
}

impl fmt::Display for BadMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "the ring would be larger than the address space"),
            Self::TooSmall { need, have } => {
                write!(f, "the ring needs {need} bytes, the memory has {have}")
            }
            Self::Misaligned(align) => {
                write!(f, "the ring's memory is not aligned to {align} bytes")
            }
        }
    }
}

impl std::error::Error for BadMemory {}

/// A reference to a ring's header and slots, and to what keeps them alive.
#[derive(Debug)]
pub(super) struct Place<T> {
    header: NonNull<Header>,
    slots: NonNull<Slot<T>>,
    pub mask: usize,
    /// `None` over foreign memory.
    heap: Option<Arc<Heap<T>>>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        Self {
            heap: self.heap.clone(),
            ..*self
        }
    }
}

impl<T> Place<T> {
    /// Over `memory`, of which `from_raw`'s caller vouches for everything but size and alignment.
    pub fn foreign(memory: NonNull<[u8]>, capacity: usize) -> Result<Self, BadMemory> {
        let layout = Layout::of::<T>(capacity).ok_or(BadMemory::TooLarge)?;
        let (need, have) = (layout.bytes, memory.len());
        if have < need {
            return Err(BadMemory::TooSmall { need, have });
        }
        let start = memory.cast::<u8>();
        if !start.addr().get().is_multiple_of(layout.align) {
            return Err(BadMemory::Misaligned(layout.align));
        }
        // SAFETY: `slots_at` is less than `bytes`, which the memory has.
        let slots = unsafe { start.add(layout.slots_at) };
        Ok(Self {
            header: start.cast(),
            slots: slots.cast(),
            mask: layout.capacity - 1,
            heap: None,
        })
    }

    /// Whether an untrusted peer may write to it. Only plain data lies in such memory.
    #[inline(always)]
    pub fn is_foreign(&self) -> bool {
        !std::mem::needs_drop::<T>() && self.heap.is_none()
    }

    #[inline(always)]
    pub fn header(&self) -> &Header {
        // SAFETY: valid as long as this place: the heap's or `from_raw`'s promise. Only atomics inside.
        unsafe { self.header.as_ref() }
    }

    /// The slot of a free-running index.
    #[inline(always)]
    pub fn slot(&self, index: usize) -> &Slot<T> {
        // SAFETY: the mask keeps the offset below the number of slots.
        let slot = unsafe { self.slots.add(index & self.mask) };
        // SAFETY: valid as long as this place; a cell may be shared.
        unsafe { slot.as_ref() }
    }
}

impl<T> Place<T> {
    /// The slots from a free-running index on, `n` of them or as many as there are before the first one follows the last.
    /// The caller owns them all.
    #[inline(always)]
    pub fn run<'a>(&self, index: usize, n: usize) -> &'a [Slot<T>] {
        let start = index & self.mask;
        let n = n.min(self.mask + 1 - start);
        // SAFETY: the mask keeps the offset below the number of slots.
        let first = unsafe { self.slots.add(start) };
        // SAFETY: so many slots follow; they are valid as long as this place, and cells may be shared.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), n) }
    }
}

/// A ring's memory on the heap: one allocation, aligned like foreign memory, so that an item of a cache line's size lies in one
/// cache line. The last end's drop frees it, and the items that are left.
#[derive(Debug)]
pub(super) struct Heap<T> {
    header: NonNull<Header>,
    slots: NonNull<Slot<T>>,
    layout: Layout,
}

// SAFETY: what the pointers name is this value's own, and only the ends touch it.
unsafe impl<T: Send> Send for Heap<T> {}
// SAFETY: nothing can be reached through a shared reference.
unsafe impl<T: Send> Sync for Heap<T> {}

impl<T> Heap<T> {
    pub fn place(capacity: usize) -> Place<T> {
        let layout = Layout::of::<T>(capacity).expect("capacity overflow");
        let for_alloc = layout.for_alloc();
        // SAFETY: not of size 0: there is always a header.
        let start = unsafe { alloc(for_alloc) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(for_alloc));
        // Prefaulted: the first lap shall not wait for the kernel.
        // SAFETY: our own new memory, and `bytes` of it.
        unsafe { start.write_bytes(0, layout.bytes) };
        let header = start.cast::<Header>();
        // SAFETY: the layout has place and alignment for it.
        unsafe { header.write(Header::new()) };
        // SAFETY: `slots_at` is at most `bytes`.
        let slots = unsafe { start.add(layout.slots_at) }.cast::<Slot<T>>();
        for i in 0..layout.capacity {
            // SAFETY: the layout has place for so many slots.
            let slot = unsafe { slots.add(i) };
            // SAFETY: as above, and it is aligned.
            unsafe { slot.write(Cell::new(MaybeUninit::uninit())) };
        }
        let heap = Self {
            header,
            slots,
            layout,
        };
        Place {
            header,
            slots,
            mask: layout.capacity - 1,
            heap: Some(Arc::new(heap)),
        }
    }

    /// Drops the items that were pushed and not popped.
    fn drop_items(&self) {
        // SAFETY: alive until `drop` frees it.
        let header = unsafe { self.header.as_ref() };
        // Relaxed, both: the drop of the last `Arc` comes after all that the ends did.
        let mut head = header.consumer.index.load(Ordering::Relaxed);
        let tail = header.producer.index.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: the mask keeps the offset below the number of slots.
            let slot = unsafe { self.slots.add(head & (self.layout.capacity - 1)) };
            // SAFETY: alive, and both ends are gone.
            let slot = unsafe { slot.as_ref() };
            slot.with_mut(|slot| {
                // SAFETY: between the indices, so written and not yet read; nothing else can reach it.
                let slot = unsafe { &mut *slot };
                // SAFETY: as above.
                unsafe { slot.assume_init_drop() }
            });
            head = head.wrapping_add(1);
        }
    }
}

impl<T> Drop for Heap<T> {
    fn drop(&mut self) {
        self.drop_items();
        let slots = NonNull::slice_from_raw_parts(self.slots, self.layout.capacity);
        // SAFETY: written in `place`; both ends are gone. (Only loom's cells and atomics have something to drop.)
        unsafe { slots.drop_in_place() };
        // SAFETY: as above.
        unsafe { self.header.drop_in_place() };
        // SAFETY: allocated in `place` with this layout.
        unsafe { dealloc(self.header.as_ptr().cast(), self.layout.for_alloc()) };
    }
}
