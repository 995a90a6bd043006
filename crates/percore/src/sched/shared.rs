//! What the cores of a machine share with each other and with its watches: heartbeats, bells, remote wakes.

use crate::{
    doorbell::Doorbell,
    sync::{AtomicU32, AtomicU64, Mutex, Ordering},
};
use crossbeam_utils::CachePadded;
use std::{
    ptr,
    sync::{Arc, atomic::AtomicPtr},
    task::Wake,
};

/// What the cores and their watches share.
pub(super) struct Shared {
    pub beats: Box<[CachePadded<Beat>]>,
    pub remote_wakes: Box<[CachePadded<RemoteWakes>]>,
    bells: Arc<[Doorbell]>,
    stopped: AtomicU32,
}

impl Shared {
    pub fn new(cores: usize, bells: Arc<[Doorbell]>) -> Self {
        Self {
            beats: (0..cores).map(|_| CachePadded::new(Beat::new())).collect(),
            remote_wakes: (0..cores)
                .map(|_| CachePadded::new(RemoteWakes::new()))
                .collect(),
            bells,
            stopped: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    pub fn beat(&self, core: usize) -> &Beat {
        &self.beats[core]
    }

    pub fn ring(&self, core: usize) {
        self.bells[core].ring();
    }

    pub fn stop(&self) {
        self.stopped.store(1, Ordering::Release); // pairs with Acquire in `is_stopped`
        self.bells.iter().for_each(|bell| _ = bell.ring());
    }

    #[inline(always)]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) != 0 // pairs with Release in `stop`
    }
}

/// A core's pulse: written by the core with plain stores, read by every watch. Relaxed: a watcher wants to know that something moves.
#[derive(Debug)]
pub(super) struct Beat {
    pub turns: AtomicU64,
    pub state: AtomicU32,
    /// The name of the task that runs, or of what the core does else. A thin pointer to a `&'static str`, or null.
    runs: AtomicPtr<&'static str>,
}

pub(super) const NOT_STARTED: u32 = 0;
pub(super) const RUNNING: u32 = 1;
pub(super) const ASLEEP: u32 = 2;
pub(super) const ENDED: u32 = 3;

impl Beat {
    fn new() -> Self {
        Self {
            turns: AtomicU64::new(0),
            state: AtomicU32::new(NOT_STARTED),
            runs: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A turn of the loop begins.
    #[inline(always)]
    pub fn turn(&self) {
        let turns = self.turns.load(Ordering::Relaxed); // ours
        self.turns.store(turns.wrapping_add(1), Ordering::Relaxed);
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn runs(&self, name: &'static &'static str) {
        let name = ptr::from_ref(name).cast_mut();
        self.runs.store(name, Ordering::Relaxed); // what it points to has been there since the program was loaded
    }

    pub fn sleeps(&self) {
        self.state.store(ASLEEP, Ordering::Relaxed);
    }

    pub fn wakes(&self) {
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    pub fn ends(&self) {
        self.state.store(ENDED, Ordering::Relaxed);
    }

    pub fn name(&self) -> Option<&'static str> {
        let name = self.runs.load(Ordering::Relaxed);
        // SAFETY: null, or from a `&'static &'static str` in `runs`.
        let name: Option<&'static &'static str> = unsafe { name.as_ref() };
        name.copied()
    }
}

/// A task's waker, which a future may give to any thread: slower than `wakeup`, since it takes a mutex.
pub(super) struct RemoteWaker {
    pub shared: Arc<Shared>,
    pub core: usize,
    pub task: u32,
    /// Not 0 while it is in the core's list, once.
    pub queued: AtomicU32,
}

impl Wake for RemoteWaker {
    fn wake(self: Arc<Self>) {
        // Acquire and Release: a thread that finds it queued has what it did before seen by the poll that follows (pairs with `drain`).
        if self.queued.swap(1, Ordering::AcqRel) == 0 {
            let (shared, core) = (self.shared.clone(), self.core);
            shared.remote_wakes[core].push(self);
            shared.ring(core);
        }
    }
}

/// The tasks of one core that were woken by their wakers, from any thread, and that it has not made ready yet.
#[derive(Default)]
pub(super) struct RemoteWakes {
    /// `None` once the core has ended.
    list: Mutex<Option<Vec<Arc<RemoteWaker>>>>,
    /// Not 0 while there is something in it, to spare the core the lock.
    some: AtomicU32,
}

impl RemoteWakes {
    pub fn new() -> Self {
        Self {
            list: Mutex::new(Some(Vec::new())),
            some: AtomicU32::new(0),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Option<Vec<Arc<RemoteWaker>>>) -> R) -> R {
        #[cfg(not(loom))]
        let list = self.list.lock();
        #[cfg(not(loom))]
        let mut list = list.unwrap_or_else(std::sync::PoisonError::into_inner); // a list has no broken state
        #[cfg(loom)]
        let mut list = self.list.lock().expect("a model that panicked is over");
        f(&mut list)
    }

    fn push(&self, waker: Arc<RemoteWaker>) {
        self.with(|list| list.as_mut().map(|list| list.push(waker)));
        self.some.store(1, Ordering::Release); // pairs with Acquire in `drain`; then the doorbell
    }

    pub fn is_empty(&self) -> bool {
        self.some.load(Ordering::Acquire) == 0 // pairs with Release in `push`
    }

    /// Gives the tasks that were woken to `make_ready`. How many.
    pub fn drain(&self, mut make_ready: impl FnMut(u32)) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.some.store(0, Ordering::Relaxed); // before the list is read: a later wake sets it again
        let mut woken = self.with(|list| list.as_mut().map(std::mem::take).unwrap_or_default());
        let n = woken.len();
        for waker in woken.drain(..) {
            // Pairs with `wake`: from here on it can be queued again.
            waker.queued.swap(0, Ordering::AcqRel);
            make_ready(waker.task);
        }
        n
    }

    /// From now on no waker is kept.
    pub fn close(&self) {
        let left = self.with(Option::take);
        drop(left); // outside the lock: it may be the last of a task's waker
    }
}
