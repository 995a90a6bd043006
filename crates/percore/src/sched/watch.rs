//! Who watches over the cores (F8): a heartbeat for each, which nobody has to stop for, and the end of all loops.

use super::tasks::Strangers;
use crate::{
    doorbell::Doorbell,
    sync::{AtomicU32, AtomicU64, Ordering},
};
use crossbeam_utils::CachePadded;
use std::{
    fmt, ptr,
    sync::{Arc, atomic::AtomicPtr},
    time::Duration,
};

/// What the cores and those who watch them share.
pub(super) struct Shared {
    beats: Box<[CachePadded<Beat>]>,
    pub strangers: Box<[CachePadded<Strangers>]>,
    bells: Arc<[Doorbell]>,
    stopped: AtomicU32,
}

impl Shared {
    pub fn new(cores: usize, bells: Arc<[Doorbell]>) -> Self {
        Self {
            beats: (0..cores).map(|_| CachePadded::new(Beat::new())).collect(),
            strangers: (0..cores)
                .map(|_| CachePadded::new(Strangers::new()))
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

/// A core's pulse: written by the core with plain stores, read by whoever watches. Relaxed: a watcher wants to know that something moves.
#[derive(Debug)]
pub(super) struct Beat {
    turns: AtomicU64,
    state: AtomicU32,
    /// The name of the task that runs, or of what the core does else. A thin pointer to a `&'static str`, or null.
    runs: AtomicPtr<&'static str>,
}

const NOT_STARTED: u32 = 0;
const RUNNING: u32 = 1;
const ASLEEP: u32 = 2;
const ENDED: u32 = 3;

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

    fn name(&self) -> Option<&'static str> {
        let name = self.runs.load(Ordering::Relaxed);
        // SAFETY: null, or from a `&'static &'static str` in `runs`.
        let name: Option<&'static &'static str> = unsafe { name.as_ref() };
        name.copied()
    }
}

/// What a core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nobody has taken its seat.
    NotStarted,
    /// Turning its loop.
    Running,
    /// Asleep on its doorbell.
    Asleep,
    /// Its loop has ended.
    Ended,
}

/// A core, as it was a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreState {
    /// What it does.
    pub doing: Doing,
    /// The name of the task that runs; what ran last, if it sleeps.
    pub runs: Option<&'static str>,
    /// Turns of its loop so far.
    pub turns: u64,
}

/// A core whose loop does not turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its number.
    pub core: usize,
    /// The task that does not give way.
    pub runs: Option<&'static str>,
    /// Since it was first seen in this turn.
    pub since_ns: u64,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            core,
            runs,
            since_ns,
        } = self;
        let (ms, runs) = (since_ns / 1_000_000, runs.unwrap_or("its start"));
        write!(
            f,
            "core {core} has not turned for {ms} ms: it runs '{runs}'"
        )
    }
}

/// Watches over the cores of a machine, from any thread. Makes no thread: call [`check`](Self::check) now and then.
pub struct Watch {
    shared: Arc<Shared>,
    /// Each core's turns, and when they were first seen.
    seen: Vec<(u64, u64)>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.cores()).finish()
    }
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let seen = vec![(0, 0); shared.beats.len()];
        Self { shared, seen }
    }

    /// Every core, by number.
    pub fn cores(&self) -> Vec<CoreState> {
        let state = |beat: &CachePadded<Beat>| CoreState {
            doing: match beat.state.load(Ordering::Relaxed) {
                NOT_STARTED => Doing::NotStarted,
                ASLEEP => Doing::Asleep,
                ENDED => Doing::Ended,
                _ => Doing::Running,
            },
            runs: beat.name(),
            turns: beat.turns.load(Ordering::Relaxed),
        };
        self.shared.beats.iter().map(state).collect()
    }

    /// The cores that are awake and have been seen in the same turn for at least `limit`. `now_ns` is [`crate::clock::now_ns`]. Call it several
    /// times in each `limit`.
    pub fn check(&mut self, now_ns: u64, limit: Duration) -> Vec<Stuck> {
        let mut stuck = Vec::new();
        let cores = self.cores().into_iter().enumerate();
        for ((core, state), seen) in cores.zip(&mut self.seen) {
            if state.doing != Doing::Running || state.turns != seen.0 {
                *seen = (state.turns, now_ns);
                continue;
            }
            let since_ns = now_ns.saturating_sub(seen.1);
            if u128::from(since_ns) >= limit.as_nanos() {
                stuck.push(Stuck {
                    core,
                    runs: state.runs,
                    since_ns,
                });
            }
        }
        stuck
    }

    /// Wakes a core that sleeps, so that it asks its sources.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn ring(&self, core: usize) {
        self.shared.ring(core);
    }

    /// Ends the loops of all cores, each after its turn. A core that is stuck does not end.
    pub fn stop(&self) {
        self.shared.stop();
    }
}
