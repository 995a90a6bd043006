//! The rings of the process's threads: made once, lent to each thread at its first event, kept readable when it has ended.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use percore::trace::{self, Attached, Reader, Writer, attach, event};

use super::THREAD;
use crate::{limits, memory::probe};

/// One thread's ring and what is known of it.
pub(crate) struct Slot {
    /// The kernel's number of the thread that writes here, or wrote here last; 0: none yet.
    thread: AtomicU32,
    /// That thread has ended.
    ended: AtomicBool,
    /// What it spent its time on.
    pub sums: Sums,
    reader: Mutex<Reader>,
    /// The writing end, while no thread has it.
    writer: Mutex<Option<Writer>>,
}

/// Time by stage (`stages`), written by the slot's thread only.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// In cycles.
    pub cycles: [AtomicU64; crate::trace::stages::COUNT],
    /// Processor time in sleeps, by the kernel's clock, nanoseconds.
    pub asleep_ns: AtomicU64,
}

struct Rings {
    /// That each ring keeps.
    events: usize,
    slots: Vec<Slot>,
    /// Those that no thread has: never used ones first, then the ones whose threads ended first.
    free: Mutex<VecDeque<usize>>,
    /// Threads that found none.
    without: AtomicUsize,
    /// What the threads spent whose slots others have now.
    departed: Sums,
}

static RINGS: OnceLock<Rings> = OnceLock::new();

/// Makes the rings, so that nothing need be made later. They are the process's: its first stack says how many events each keeps, and what a later
/// one says is without effect.
///
/// # Errors
/// `OutOfMemory`, and no rings are made.
pub(crate) fn prepare(events: usize) -> io::Result<()> {
    if RINGS.get().is_none() {
        probe(limits::TRACE_THREADS * trace::bytes(events) + limits::SPARE)?;
    }
    RINGS.get_or_init(|| {
        let slot = |_| {
            let writer = Writer::new(events);
            Slot {
                thread: AtomicU32::new(0),
                ended: AtomicBool::new(false),
                sums: Sums::default(),
                reader: Mutex::new(writer.reader()),
                writer: Mutex::new(Some(writer)),
            }
        };
        Rings {
            events,
            slots: (0..limits::TRACE_THREADS).map(slot).collect(),
            free: Mutex::new((0..limits::TRACE_THREADS).collect()),
            without: AtomicUsize::new(0),
            departed: Sums::default(),
        }
    });
    Ok(())
}

/// How many events each ring keeps; 0: there are none yet.
pub(crate) fn events() -> usize {
    RINGS.get().map_or(0, |rings| rings.events)
}

/// The list of free rings, held.
#[derive(Debug)]
pub struct ForFork {
    _free: MutexGuard<'static, VecDeque<usize>>,
}

/// The same, for the time of a fork; `None`: there are no rings.
pub(crate) fn held_for_fork() -> Option<ForFork> {
    let rings = RINGS.get()?;
    Some(ForFork {
        _free: lock(&rings.free),
    })
}

/// In a forked child: the other threads' rings are of threads that are not here. They stay taken.
pub(crate) fn begin_anew() {
    let own = HERE.get().map(std::ptr::from_ref);
    for slot in RINGS.get().into_iter().flat_map(|rings| &rings.slots) {
        let thread = if own == Some(std::ptr::from_ref(slot)) {
            own_thread()
        } else {
            0
        };
        slot.thread.store(thread, Relaxed);
    }
}

/// The kernel's number of the calling thread.
fn own_thread() -> u32 {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    thread.get().unsigned_abs()
}

/// Gives the ring back when the thread ends.
struct Lent {
    slot: &'static Slot,
    number: usize,
    attached: Option<Attached>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        HERE.set(None);
        let writer = self.attached.take().map(Attached::detach);
        *lock(&self.slot.writer) = writer;
        self.slot.ended.store(true, Release); // pairs with Acquire in `each`
        if let Some(rings) = RINGS.get() {
            lock(&rings.free).push_back(self.number);
        }
    }
}

thread_local! {
    /// Whether this thread has asked for a ring: it does so once.
    static ASKED: Cell<bool> = const { Cell::new(false) };
    static HERE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
}

/// The calling thread's slot; `None` where there is none for it.
#[inline]
pub(crate) fn here() -> Option<&'static Slot> {
    HERE.get().or_else(ask)
}

#[cold]
fn ask() -> Option<&'static Slot> {
    let rings = RINGS.get()?;
    if ASKED.replace(true) {
        return None;
    }
    let Some(number) = lock(&rings.free).pop_front() else {
        rings.without.fetch_add(1, Relaxed); // a number to look at
        return None;
    };
    let slot = rings.slots.get(number)?;
    let attached = attach(lock(&slot.writer).take()?);
    slot.sums.move_to(&rings.departed);
    let thread = own_thread();
    slot.thread.store(thread, Relaxed);
    slot.ended.store(false, Release); // pairs with Acquire in `each`: with `thread`
    let lent = Lent {
        slot,
        number,
        attached: Some(attached),
    };
    // A thread in its last moments can keep nothing any more: then the ring goes back at once.
    LENT.try_with(|place| place.replace(Some(lent))).ok()?;
    HERE.set(Some(slot));
    event(THREAD, [thread.into()]);
    Some(slot)
}

impl Sums {
    fn move_to(&self, other: &Self) {
        let cells = self.cycles.iter().zip(&other.cycles);
        for (from, to) in cells.chain([(&self.asleep_ns, &other.asleep_ns)]) {
            to.fetch_add(from.swap(0, Relaxed), Relaxed); // numbers to look at
        }
    }
}

/// A thread that has a ring, for its reader.
pub(crate) struct Thread {
    /// The kernel's number.
    pub thread: u32,
    /// Its name, while it lives.
    pub name: Option<String>,
    /// The core it ran on last.
    pub core: Option<u32>,
    /// From its oldest record.
    pub reader: Reader,
    pub sums: &'static Sums,
}

/// All threads that have, or had, a ring; how many found none; what those spent whose rings others have now.
pub(crate) fn each() -> (Vec<Thread>, usize, Option<&'static Sums>) {
    let Some(rings) = RINGS.get() else {
        return (Vec::new(), 0, None);
    };
    let used = |slot: &'static Slot| {
        let ended = slot.ended.load(Acquire); // pairs with Release in `ask` and `Lent::drop`
        let thread = slot.thread.load(Relaxed);
        (thread != 0).then(|| Thread {
            thread,
            name: if ended { None } else { name(thread) },
            core: if ended { None } else { core(thread) },
            reader: lock(&slot.reader).clone(),
            sums: &slot.sums,
        })
    };
    let threads = rings.slots.iter().filter_map(used).collect();
    (threads, rings.without.load(Relaxed), Some(&rings.departed))
}

fn name(thread: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// proc(5): the processor is field 39 of `stat`, the 37th behind the name.
fn core(thread: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(36)?.parse().ok()
}

/// The standard library's mutex, not `crate::locks`': it is taken as threads end, when their thread-local words are gone already. No thread takes
/// another lock with one of these in hand.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No thread panics with one of these in hand; what is in them is whole in any case.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
