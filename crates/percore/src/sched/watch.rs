//! A watch over the cores (F8): no core has to stop for it.

use super::shared::{ASLEEP, Beat, ENDED, NOT_STARTED, Shared};
use crate::sync::Ordering;
use crossbeam_utils::CachePadded;
use std::{fmt, sync::Arc, time::Duration};

/// What a core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// No thread has run its loop yet.
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
