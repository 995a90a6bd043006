//! What stops the recording by itself, so that the moment before it can be read: a drop, a packet that took too long, a thread that hangs.
//!
//! Which of them are waited for are flags beside those that say what is recorded: a drop costs one load of them more than it did, and nothing
//! else costs anything. Once one has come, a settable number of events are still recorded, on all threads together, and then none: what
//! was before stays in the rings. It is the process's, as the rings are.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use percore::{
    clock,
    trace::{Pass, State, Trigger},
};

use super::{
    ARMED_DROP, ARMED_LATENCY, ARMED_WATCHDOG, DETAILS_ON, RARE_ON, STAGES_ON, STOPPING, TRIGGERED,
    change, has, note,
};

/// What is waited for; each is `None` or false where it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// A drop, for the reason with this number ([`MODULES`]: because a module says so), or any.
    pub drop: Option<Option<usize>>,
    /// A packet that took more than so many nanoseconds from the link to the application.
    pub latency_ns: Option<u64>,
    /// The watchdog's report.
    pub watchdog: bool,
}

/// Why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A drop, for the reason with this number.
    Drop(usize),
    /// A packet took so many microseconds.
    Latency(u32),
    /// The kernel's number of a thread that hangs.
    Thread(u32),
    /// A shard whose packets nothing takes.
    Shard(u32),
    /// A module with this number dropped a packet.
    Module(u32),
}

/// Stands for all modules among the numbers of reasons, which are those of counters: fewer.
pub(crate) const MODULES: usize = 0xffff;

const KIND_BITS: u32 = 3;
const FIGURE_MAX: u32 = u32::MAX >> KIND_BITS;
const ARMED: u8 = ARMED_DROP | ARMED_LATENCY | ARMED_WATCHDOG;
const ANY: u64 = u64::MAX;

static TRIGGER: Trigger = Trigger::new();
/// The number of the reason that is waited for, or [`ANY`].
static REASON: AtomicU64 = AtomicU64::new(ANY);
static LATENCY_NS: AtomicU64 = AtomicU64::new(u64::MAX);

impl Cause {
    const fn packed(self) -> u32 {
        let (kind, figure) = match self {
            // Truncation: there are a hundred reasons.
            #[allow(clippy::cast_possible_truncation)]
            Self::Drop(reason) => (0, reason as u32),
            Self::Latency(us) => (1, us),
            Self::Thread(number) => (2, number),
            Self::Shard(number) => (3, number),
            Self::Module(number) => (4, number),
        };
        let figure = if figure > FIGURE_MAX {
            FIGURE_MAX
        } else {
            figure
        };
        figure << KIND_BITS | kind
    }

    const fn unpacked(word: u32) -> Self {
        let figure = word >> KIND_BITS;
        match word & ((1 << KIND_BITS) - 1) {
            0 => Self::Drop(figure as usize),
            1 => Self::Latency(figure),
            2 => Self::Thread(figure),
            3 => Self::Shard(figure),
            _ => Self::Module(figure),
        }
    }
}

/// Waits for what is wanted; `after` events are recorded once it has come.
pub(crate) fn arm(wanted: Wanted, after: u64) {
    disarm();
    let reason = wanted.drop.flatten().map_or(ANY, |reason| reason as u64);
    REASON.store(reason, Relaxed);
    LATENCY_NS.store(wanted.latency_ns.unwrap_or(u64::MAX), Relaxed);
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    let bits = bit(wanted.drop.is_some(), ARMED_DROP)
        | bit(wanted.latency_ns.is_some(), ARMED_LATENCY)
        | bit(wanted.watchdog, ARMED_WATCHDOG);
    if bits != 0 {
        TRIGGER.arm(after);
        change(ARMED, bits);
    }
}

/// Waits for nothing any more, and forgets that something came.
pub(crate) fn disarm() {
    change(ARMED | STOPPING, 0);
    TRIGGER.disarm();
}

/// What is waited for just now.
pub(crate) fn wanted() -> Wanted {
    let reason = REASON.load(Relaxed);
    let reason = (reason != ANY).then(|| usize::try_from(reason).unwrap_or(usize::MAX));
    Wanted {
        drop: has(ARMED_DROP).then_some(reason),
        latency_ns: has(ARMED_LATENCY).then(|| LATENCY_NS.load(Relaxed)),
        watchdog: has(ARMED_WATCHDOG),
    }
}

/// What came, when ([`clock::cycles`]), and how many events are still to be recorded; `None`: nothing yet.
pub(crate) fn fired() -> Option<(Cause, Option<u64>, u64)> {
    match TRIGGER.state() {
        State::Fired { cause, stamp, left } => Some((Cause::unpacked(cause), stamp, left)),
        State::Idle | State::Armed => None,
    }
}

/// Whether a drop is waited for.
#[inline(always)]
pub(crate) fn waits_for_drops() -> bool {
    has(ARMED_DROP)
}

/// Packets were dropped, for the reason with this number.
#[cold]
#[inline(never)]
pub(crate) fn dropped(reason: usize, packets: u64) {
    let wanted = REASON.load(Relaxed);
    if packets > 0 && (wanted == ANY || wanted == reason as u64) {
        fire(Cause::Drop(reason));
    }
}

/// The module with this number dropped a packet.
#[cold]
#[inline(never)]
pub(crate) fn dropped_by_module(id: u64) {
    let wanted = REASON.load(Relaxed);
    if wanted == ANY || wanted == MODULES as u64 {
        fire(Cause::Module(u32::try_from(id).unwrap_or(u32::MAX)));
    }
}

/// A packet took so long from the link to the application.
pub(crate) fn took(ns: impl FnOnce() -> u64) {
    if has(ARMED_LATENCY) {
        let ns = ns();
        if ns > LATENCY_NS.load(Relaxed) {
            fire(Cause::Latency(u32::try_from(ns / 1000).unwrap_or(u32::MAX)));
        }
    }
}

/// The watchdog has something to report.
pub(crate) fn watchdog(cause: Cause) {
    if has(ARMED_WATCHDOG) {
        fire(cause);
    }
}

#[cold]
fn fire(cause: Cause) {
    let word = cause.packed();
    if !TRIGGER.fire(word, clock::cycles()) {
        return; // another thread was first
    }
    let kind = u64::from(word & ((1 << KIND_BITS) - 1));
    note(TRIGGERED, [kind, u64::from(word >> KIND_BITS)]);
    change(ARMED | STOPPING, STOPPING);
    if matches!(fired(), Some((_, _, 0))) {
        freeze();
    }
}

/// Whether an event is still to be recorded after what came; the last one ends the recording.
#[cold]
pub(super) fn passes() -> bool {
    let pass = TRIGGER.pass();
    if pass == Pass::Last {
        freeze();
    }
    pass != Pass::No
}

fn freeze() {
    change(RARE_ON | DETAILS_ON | STAGES_ON | STOPPING, 0);
}
