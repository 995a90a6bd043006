//! What each thread spends its time on (C5's columns): link, protocol, socket, locks, scheduler, application.
//!
//! Switched off, as at the start, it costs what the trace's details cost: one branch that goes the same way each time. Switched on, a thread reads the cycle
//! counter where it goes from one kind of work to another, at the places of the trace's details, and adds up in memory of its own. A
//! sleep counts with the processor time that the kernel charges for it, not with its length. What the stack does not see is the application's.
//! A thread that the kernel interrupts is charged for the interruption: the columns are shares, the sum is better taken from the kernel.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use percore::clock;

use crate::trace::{self, Sums, each_thread};

/// How many kinds of work there are.
pub const COUNT: usize = 6;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Taking frames from links and giving frames to them, classifying, channels.
    Link,
    /// TCP, UDP, ICMP; timers.
    Protocol,
    /// Socket calls: copying to and from the application.
    Socket,
    /// Taking locks, and waiting for them.
    Locks,
    /// Falling asleep, waking others.
    Scheduler,
    /// The rest.
    Application,
}

impl Stage {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; COUNT] = [
        Self::Link,
        Self::Protocol,
        Self::Socket,
        Self::Locks,
        Self::Scheduler,
        Self::Application,
    ];

    /// Its column's head.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Protocol => "protocol",
            Self::Socket => "socket",
            Self::Locks => "locks",
            Self::Scheduler => "scheduler",
            Self::Application => "application",
        }
    }
}

/// What a thread spent, nanoseconds by stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The thread's name and number.
    pub thread: String,
    /// In the order of [`Stage::ALL`].
    pub ns: [u64; COUNT],
}

/// Changes each time it is switched on: what a thread noted before does not count.
static PERIOD: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
struct Now {
    period: u64,
    stage: Stage,
    since: u64,
}

thread_local! {
    /// What the thread did before it took the shard that it holds. (It holds one at a time.)
    static OUTSIDE: Cell<Stage> = const { Cell::new(Stage::Application) };
    static NOW: Cell<Now> = const { Cell::new(Now { period: 0, stage: Stage::Application, since: 0 }) };
}

/// Switches it on or off, for all stacks of this process. The sums go on from where they were.
pub fn switch(on: bool) {
    if on {
        PERIOD.fetch_add(1, Relaxed); // a number on its own
    }
    trace::change(trace::STAGES_ON, if on { trace::STAGES_ON } else { 0 });
}

/// Whether it is switched on.
pub(crate) fn are_on() -> bool {
    trace::has(trace::STAGES_ON)
}

/// What each thread has spent so far, ended ones included.
pub fn read() -> Vec<Spent> {
    let of = |thread: String, sums: &Sums| {
        let mut ns = std::array::from_fn(|i| clock::cycles_to_ns(sums.cycles[i].load(Relaxed)));
        ns[Stage::Scheduler as usize] += sums.asleep_ns.load(Relaxed);
        Spent { thread, ns }
    };
    let (threads, _, departed) = each_thread();
    let all = threads.into_iter().map(|thread| {
        let name = thread.name.unwrap_or_else(|| "(ended)".to_owned());
        of(format!("{name} {}", thread.thread), thread.sums)
    });
    let departed = departed.map(|sums| of("(ended)".to_owned(), sums));
    all.chain(departed)
        .filter(|spent| spent.ns != [0; COUNT])
        .collect()
}

/// The calling thread is one of the stack's own: what is not told apart is `stage`, not an application's.
pub(crate) fn belongs_to(stage: Stage) {
    NOW.set(Now { stage, ..NOW.get() });
}

/// From here on the calling thread does `stage`; what it did before, for [`back`]. `None` while this is switched off.
#[inline(always)]
pub(crate) fn enter(stage: Stage) -> Option<Stage> {
    if trace::is_watched() {
        return go(stage);
    }
    None
}

/// The calling thread takes a shard's lock.
pub(crate) fn begin_of_turn() {
    if let Some(before) = enter(Stage::Locks) {
        OUTSIDE.set(before);
    }
}

/// It has let go of it, and goes on with what it did before.
pub(crate) fn end_of_turn() {
    enter(OUTSIDE.get());
}

/// Goes on with what was done before.
#[inline(always)]
pub(crate) fn back(before: Option<Stage>) {
    if let Some(stage) = before {
        go(stage);
    }
}

#[cold]
#[inline(never)]
fn go(stage: Stage) -> Option<Stage> {
    let slot = are_on().then(trace::here)??;
    let (before, period, now) = (NOW.get(), PERIOD.load(Relaxed), clock::cycles());
    if before.period == period {
        let sum = &slot.sums.cycles[before.stage as usize];
        // Ours alone; read by others as a number.
        sum.store(
            sum.load(Relaxed) + now.saturating_sub(before.since),
            Relaxed,
        );
    }
    NOW.set(Now {
        period,
        stage,
        since: now,
    });
    Some(before.stage)
}

/// Runs `sleep`, which may put the thread to sleep, and charges what the kernel charges.
pub(crate) fn sleeping<R>(sleep: impl FnOnce() -> R) -> R {
    let Some(before) = enter(Stage::Scheduler) else {
        return sleep();
    };
    let begin = processor_ns();
    let result = sleep();
    let took = processor_ns().saturating_sub(begin);
    if let Some(slot) = trace::here() {
        let sum = &slot.sums.asleep_ns;
        sum.store(sum.load(Relaxed) + took, Relaxed); // ours alone
    }
    // The length of the sleep itself is charged to no stage.
    NOW.set(Now {
        since: clock::cycles(),
        ..NOW.get()
    });
    back(Some(before));
    result
}

/// Processor time of the calling thread.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (s, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    s.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}
