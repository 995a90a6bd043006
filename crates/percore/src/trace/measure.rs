//! What tracing costs on this machine, and how far the counters of two cores are apart: a trace says both, so that neither is taken for work.

use super::{Event, Writer};
use crate::clock;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    fmt,
    hint::{black_box, spin_loop},
    io,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// Events in one timed run: few enough that most runs are not disturbed.
const RUN: u64 = 1000;
const RUNS: usize = 50;
/// As large a ring as one would use, so that its cache misses are in the cost.
const RECORDS: usize = 4096;

const BARE: Event<0> = Event::new(0, "bare", "an event without arguments");
const FULL: Event<4> = Event::new(1, "full", "an event with {a} {b} {c} {d}");

/// Nanoseconds for one event, back to back on one core: the best run of many, since everything else is disturbance.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// An event without arguments.
    pub event_ns: f64,
    /// An event with four.
    pub event_args_ns: f64,
    /// What of it is reading the counter.
    pub stamp_ns: f64,
    /// An event with four arguments while the trace is switched off.
    pub off_ns: f64,
}

impl Cost {
    /// Measures on the calling thread, in about a millisecond, in a ring of its own.
    pub fn measure() -> Self {
        let writer = Writer::new(RECORDS);
        let bare = || writer.event(BARE, []);
        let full = |i| writer.event(FULL, black_box([i, 2, 3, 4]));
        let event_ns = best_of(|_| bare());
        let event_args_ns = best_of(full);
        let stamp_ns = best_of(|_| {
            black_box(clock::cycles());
        });
        writer.switch(false);
        let off_ns = best_of(full);
        Self {
            event_ns,
            event_args_ns,
            stamp_ns,
            off_ns,
        }
    }
}

fn best_of(mut once: impl FnMut(u64)) -> f64 {
    let mut run = |_| {
        let start = clock::cycles();
        (0..RUN).for_each(&mut once);
        clock::cycles().saturating_sub(start)
    };
    let best = (0..RUNS).map(&mut run).min().unwrap_or(0);
    // Precision: both are far below 2^52.
    clock::cycles_to_ns(best) as f64 / RUN as f64
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a trace event takes {:.1} ns, with four arguments {:.1} ns, of which reading the counter takes {:.1} ns; switched off {:.1} ns",
            self.event_ns, self.event_args_ns, self.stamp_ns, self.off_ns
        )
    }
}

/// How far the counter of one core is ahead of another's, and how well that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Cycles to subtract from the second core's stamps to have the first one's.
    pub cycles: i64,
    /// The true offset is not further off than this: half a round trip.
    pub error_max_cycles: u64,
}

/// Exchanges of which the fastest is taken.
const EXCHANGES: u64 = 2000;
/// Looks at the other side before the core is given away: the other one may need it.
const SPINS: u32 = 10_000;

impl Offset {
    /// Measures the counter of core `there` against that of core `here`, with two threads that run on them for about a millisecond.
    ///
    /// # Errors
    /// As sched_setaffinity(2): a core that is not there or not allowed.
    pub fn measure(here: usize, there: usize) -> io::Result<Self> {
        let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
        // Both are sure of their cores before one waits for the other.
        let (_back, ()) = (Pinned::to(here)?, Pinned::check(there)?);
        thread::scope(|scope| {
            let answer = || -> io::Result<()> {
                let _pinned = Pinned::to(there);
                for i in 1..=EXCHANGES {
                    wait(|| ping.load(Ordering::Acquire) == i);
                    pong.store(clock::cycles_in_order(), Ordering::Release);
                }
                _pinned.map(drop)
            };
            let other = scope.spawn(answer);
            let mut best = (u64::MAX, 0);
            let mut last = 0;
            for i in 1..=EXCHANGES {
                let before = clock::cycles_in_order();
                ping.store(i, Ordering::Release);
                let mut theirs = last;
                wait(|| {
                    theirs = pong.load(Ordering::Acquire);
                    theirs != last
                });
                let after = clock::cycles_in_order();
                last = theirs;
                let trip = after.saturating_sub(before);
                // The answer was stamped somewhere between: in the middle, we say.
                let offset = theirs.wrapping_sub(before + trip / 2).cast_signed();
                best = best.min((trip, offset));
            }
            other.join().map_err(|_| io::ErrorKind::Other)??;
            Ok(Self {
                cycles: best.1,
                error_max_cycles: best.0.div_ceil(2),
            })
        })
    }
}

fn wait(mut until: impl FnMut() -> bool) {
    let mut spins = 0;
    while !until() {
        spins += 1;
        if spins < SPINS {
            spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cycles,
            error_max_cycles,
        } = self;
        write!(f, "{cycles} cycles ahead, to within {error_max_cycles}")
    }
}

/// The calling thread's cores, which are given back at the end.
struct Pinned(CpuSet);

impl Pinned {
    fn to(core: usize) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        if core >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(core);
        sched_setaffinity(None, &set)?;
        Ok(Self(before))
    }

    /// Whether the calling thread could be on this core.
    fn check(core: usize) -> io::Result<()> {
        let here = sched_getaffinity(None)?;
        let there = Self::to(core).map(drop);
        sched_setaffinity(None, &here)?;
        there
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A core that has gone offline meanwhile: then the thread stays where it is.
        let _ = sched_setaffinity(None, &self.0);
    }
}
