//! Where a trace lies: a header and records, on the heap or in memory that another process can read.
//!
//! A record is a sequence lock: its first word is 0 while it is written and else says which record of the endless sequence it holds.

use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::ptr::NonNull;

/// Bits of a tag that hold the event; the others hold the record's number plus one, as far as they reach.
const EVENT_BITS: u32 = 16;
const ARGS_MAX: usize = super::ARGS_MAX;

/// The writer's state, alone on its cache line. All zero is an empty trace that is switched off.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    written: AtomicU64,
    on: AtomicU32,
}

impl Header {
    pub const SIZE: usize = 128;

    #[cfg(not(loom))]
    pub const fn new() -> Self {
        let (written, on) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { written, on }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        let (written, on) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { written, on }
    }

    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed) != 0
    }

    pub fn switch(&self, on: bool) {
        self.on.store(u32::from(on), Ordering::Relaxed);
    }

    /// Number of records written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire) // pairs with Release in `Place::write`
    }
}

/// One record: a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    tag: AtomicU64,
    stamp: AtomicU64,
    args: [AtomicU64; ARGS_MAX],
}

/// What a slot was found to hold.
pub(super) struct Found {
    pub event: u16,
    pub stamp: u64,
    pub args: [u64; ARGS_MAX],
}

/// The tag of record `number`, which is never 0 in the lifetime of a machine (2^48 records).
#[inline(always)]
pub(super) fn tag(number: u64, event: u16) -> u64 {
    number.wrapping_add(1) << EVENT_BITS | u64::from(event)
}

impl Slot {
    /// Record `number`, if this slot holds it, whole.
    pub fn read(&self, number: u64) -> Option<Found> {
        let found = self.tag.load(Ordering::Acquire); // pairs with Release in `Place::write`
        // Truncation: the low bits are the event.
        #[allow(clippy::cast_possible_truncation)]
        let event = found as u16;
        if found != tag(number, event) {
            return None;
        }
        let stamp = self.stamp.load(Ordering::Relaxed); // ordered by the tag, before and after
        let args = std::array::from_fn(|i| self.args[i].load(Ordering::Relaxed));
        // Pairs with the fence in `Place::write`: if anything of the above was from a later record, the tag is not what it was.
        fence(Ordering::Acquire);
        let whole = self.tag.load(Ordering::Relaxed) == found;
        whole.then_some(Found { event, stamp, args })
    }
}

/// A reference to a header and records that its maker keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    header: NonNull<Header>,
    slots: NonNull<Slot>,
    /// Not in the header, where an untrusted peer may write.
    mask: u64,
}

impl Place {
    /// A place without records, whose header must stay switched off.
    #[cfg(not(loom))]
    pub const fn nowhere(header: &'static Header) -> Self {
        Self {
            header: NonNull::from_ref(header),
            slots: NonNull::dangling(),
            mask: 0,
        }
    }

    #[inline(always)]
    pub fn header(&self) -> &Header {
        // SAFETY: valid as long as this place: its maker's promise. Only atomics inside.
        unsafe { self.header.as_ref() }
    }

    pub fn records(&self) -> u64 {
        self.mask + 1
    }

    /// The slot of record `number`. Not for a place without records.
    #[inline(always)]
    pub fn slot(&self, number: u64) -> &Slot {
        // Truncation: the mask is below a number of records in memory.
        #[allow(clippy::cast_possible_truncation)]
        let index = (number & self.mask) as usize;
        // SAFETY: the mask keeps the index below the number of slots.
        let slot = unsafe { self.slots.add(index) };
        // SAFETY: valid as long as this place; only atomics inside.
        unsafe { slot.as_ref() }
    }

    /// Writes the next record. For the one writer only.
    #[inline(always)]
    pub fn write<const N: usize>(&self, event: u16, stamp: u64, args: [u64; N]) {
        let header = self.header();
        let number = header.written.load(Ordering::Relaxed); // ours
        let slot = self.slot(number);
        slot.tag.store(0, Ordering::Relaxed);
        // Pairs with the fence in `Slot::read`: a reader that sees one of the next stores sees that the tag is no longer what it was.
        fence(Ordering::Release);
        slot.stamp.store(stamp, Ordering::Relaxed);
        for (to, arg) in slot.args.iter().zip(args) {
            to.store(arg, Ordering::Relaxed);
        }
        // pairs with Acquire in `Slot::read`
        slot.tag.store(tag(number, event), Ordering::Release);
        // pairs with Acquire in `Header::written`
        header
            .written
            .store(number.wrapping_add(1), Ordering::Release);
    }
}

/// Bytes that a trace of `records` records takes (rounded up to a power of two, at least 1).
///
/// # Panics
/// If that is more than the address space holds.
pub const fn bytes(records: usize) -> usize {
    let slots = records.next_power_of_two().checked_mul(size_of::<Slot>());
    let bytes = slots.expect("a trace larger than the address space");
    bytes + Header::SIZE
}

/// A place and what keeps it alive.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    place: Place,
    /// `None` over foreign memory.
    _heap: Option<Arc<Heap>>,
}

#[derive(Debug)]
struct Heap {
    header: Box<CachePadded<Header>>,
    slots: Box<[Slot]>,
}

// SAFETY: a place is shared by design: atomics in memory that lives as long as it.
unsafe impl Send for Memory {}

impl Memory {
    pub fn heap(records: usize) -> Self {
        let zero = || AtomicU64::new(0);
        let slot = |_| Slot {
            tag: zero(),
            stamp: zero(),
            args: std::array::from_fn(|_| zero()),
        };
        let heap = Heap {
            header: Box::new(CachePadded::new(Header::new())),
            slots: (0..records.next_power_of_two()).map(slot).collect(),
        };
        let place = Place {
            header: NonNull::from(&**heap.header),
            slots: NonNull::from(&*heap.slots).cast(),
            mask: heap.slots.len() as u64 - 1, // widening: usize to u64
        };
        let _heap = Some(Arc::new(heap));
        Self { place, _heap }
    }

    /// Over `memory`, of which the caller vouches for everything but size and alignment.
    #[cfg(not(loom))]
    pub fn foreign(memory: NonNull<[u8]>) -> Result<Self, crate::ring::BadMemory> {
        use crate::ring::BadMemory;
        let (have, need) = (memory.len(), bytes(1));
        if have < need {
            return Err(BadMemory::TooSmall { need, have });
        }
        let start = memory.cast::<u8>();
        if !start.addr().get().is_multiple_of(align_of::<Slot>()) {
            return Err(BadMemory::Misaligned(align_of::<Slot>()));
        }
        let fit = (have - Header::SIZE) / size_of::<Slot>();
        // SAFETY: the memory is longer than a header.
        let slots = unsafe { start.add(Header::SIZE) };
        let place = Place {
            header: start.cast(),
            slots: slots.cast(),
            // The largest power of two that fits. Widening: usize to u64.
            mask: (1 << fit.ilog2()) - 1,
        };
        let _heap = None;
        Ok(Self { place, _heap })
    }

    #[inline(always)]
    pub fn place(&self) -> &Place {
        &self.place
    }
}
