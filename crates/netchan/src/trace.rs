//! The trace (D8): what this stack can tell of itself, declared here in English with units; how it is recorded and read.
//!
//! Each thread that touches a stack writes to a ring of its own (`percore::trace`), which the process makes when its first stack starts, for
//! as many events as that says (`trace_events`): recording allocates nothing and waits for no thread. What is rare is always recorded; what happens in every turn, burst or call only while
//! it is watched ([`Level::All`], or `netchan trace start`): else it costs one branch that goes the same way each time.
//!
//! Rings and level belong to the process, as threads do: where several stacks live in one process, their events are in one log.

pub(crate) mod latency;
mod log;
mod rings;
pub mod stages;
mod stop_on;
#[cfg(test)]
mod tests;
pub(crate) mod trigger;

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

pub use percore::trace::{Cost, Offset};
use percore::trace::{Event, Table};

pub(crate) use self::rings::{ForFork, Sums, begin_anew, each as each_thread, held_for_fork, here};
pub(crate) use self::{log::answer, log::summary, rings::events, rings::prepare};

// ---- The events. A number is a place in the table below; `netchan trace --event` takes the names. -------------------------------------

pub(crate) const THREAD: Event<1> = Event::new(0, "thread", "{thread} begins to write here");
pub(crate) const LINK_IN: Event<2> = Event::new(1, "link-in", "{link} brought {frames}");
pub(crate) const LINK_OUT: Event<2> =
    Event::new(2, "link-out", "{link} took {packets} out of its channels");
pub(crate) const DROP: Event<2> = Event::new(3, "drop", "{link} dropped a packet, {reason}");
pub(crate) const HOST_WORK: Event<2> = Event::new(
    4,
    "host-work",
    "{link} has a packet for the host itself: {kind} (0 ARP, 1 ICMP, 2 fragment, 3 unserved)",
);
pub(crate) const HANDED_CHANNEL: Event<3> = Event::new(
    5,
    "hand-channel",
    "{link} put {packets} into the channel to {shard}",
);
pub(crate) const HANDED_CALL: Event<2> =
    Event::new(6, "hand-call", "called {shard} with {packets}");
pub(crate) const CHANNEL_FULL: Event<3> = Event::new(
    7,
    "channel-full",
    "{link} dropped {packets}: the channel to {shard} is full",
);
pub(crate) const TURN_BEGIN: Event<1> = Event::new(8, "turn-begin", "turns {shard}");
pub(crate) const TURN_END: Event<1> = Event::new(9, "turn-end", "lets go of {shard}");
pub(crate) const SENT: Event<3> = Event::new(10, "shard-out", "{shard} hands {packets} to {link}");
pub(crate) const LOCK_WAITED: Event<2> =
    Event::new(11, "lock-waited", "waited for {shard} for {time ns}");
pub(crate) const ASLEEP: Event<1> = Event::new(12, "sleep", "goes to sleep, for {at_most us}");
pub(crate) const AWAKE: Event<1> = Event::new(13, "wake", "woke after {asleep us}");
pub(crate) const SHARD_LED: Event<1> =
    Event::new(14, "shard-led", "leads {shard}: turns it for all that wait");
pub(crate) const SHARD_LEFT: Event<1> = Event::new(15, "shard-left", "stops leading {shard}");
pub(crate) const TCP_CONNECT: Event<4> = Event::new(
    16,
    "tcp-connect",
    "{shard} {connection}: opens from {local_port} to {remote_port}",
);
pub(crate) const TCP_ESTABLISHED: Event<4> = Event::new(
    17,
    "tcp-established",
    "{shard} {connection}: open, {local_port} {remote_port}",
);
pub(crate) const TCP_PEER_CLOSED: Event<4> = Event::new(
    18,
    "tcp-peer-closed",
    "{shard} {connection}: the peer has sent its last, {local_port} {remote_port}",
);
pub(crate) const TCP_CLOSED: Event<4> = Event::new(
    19,
    "tcp-closed",
    "{shard} {connection}: over, {local_port} {remote_port}",
);
pub(crate) const TCP_RESET: Event<4> = Event::new(
    20,
    "tcp-reset",
    "{shard} {connection}: ended by an error, {errno} {remote_port}",
);
pub(crate) const TCP_TIME_WAIT: Event<4> = Event::new(
    21,
    "tcp-time-wait",
    "{shard} {connection}: waits out old duplicates, {local_port} {remote_port}",
);
pub(crate) const TCP_TIMEOUT: Event<4> = Event::new(
    22,
    "tcp-timeout",
    "{shard} {connection}: the retransmission timer expired, {attempt} in a row, the next after {rto ms}",
);
pub(crate) const TCP_FAST_RETRANSMIT: Event<4> = Event::new(
    23,
    "tcp-fast-retransmit",
    "{shard} {connection}: segments are taken for lost, {in_flight bytes} {window bytes}",
);
pub(crate) const TCP_ZERO_WINDOW: Event<3> = Event::new(
    24,
    "tcp-zero-window",
    "{shard} {connection}: the peer takes no more, {unsent bytes} wait",
);
pub(crate) const TCP_PERSIST: Event<3> = Event::new(
    25,
    "tcp-persist",
    "{shard} {connection}: asks for the closed window, {attempt}",
);
pub(crate) const TCP_WINDOW_OPEN: Event<3> = Event::new(
    26,
    "tcp-window-open",
    "{shard} {connection}: the peer takes again, {window bytes}",
);
pub(crate) const TIMER: Event<2> = Event::new(27, "timer", "{shard} {connection}: a timer expired");
pub(crate) const MODULE_DROP: Event<2> =
    Event::new(28, "module-drop", "{module} dropped a packet, {slot}");
pub(crate) const MEMORY: Event<3> = Event::new(
    29,
    "memory-limit",
    "{shard} {connection}: no memory for received text, {queued bytes} wait to be read",
);
pub(crate) const HANDED_ON: Event<2> = Event::new(
    30,
    "hand-on",
    "{link} put packets for other hosts into the channel to {next_link}",
);
pub(crate) const HANDED_BACKLOG: Event<3> = Event::new(
    31,
    "hand-backlog",
    "{link} left {packets} to the holder of {shard}",
);
pub(crate) const BACKLOG_FULL: Event<3> = Event::new(
    32,
    "backlog-full",
    "{link} dropped {packets}: another thread holds {shard}, and its backlog is full",
);

// Of the packets that are timed (`latency`), while details are recorded all: `{packet hex}` is the same from the link to the application.
pub(crate) const PACKET_IN: Event<3> =
    Event::new(33, "packet-in", "{link} brought {packet hex}, {size bytes}");
pub(crate) const PACKET_HANDED: Event<3> = Event::new(
    34,
    "packet-hand",
    "{link} hands {packet hex} over to {shard}",
);
pub(crate) const PACKET_TAKEN: Event<2> =
    Event::new(35, "packet-take", "{shard} takes {packet hex}");
pub(crate) const PACKET_DONE: Event<2> =
    Event::new(36, "packet-done", "{shard} is through with {packet hex}");
pub(crate) const PACKET_WOKE: Event<2> = Event::new(
    37,
    "packet-wake",
    "{shard} calls the waiters for what {packet hex} brought",
);
pub(crate) const PACKET_READ: Event<3> = Event::new(
    38,
    "packet-read",
    "the application has read {packet hex} of {shard}, {after ns} behind the link",
);
pub(crate) const SHARD_DROP: Event<2> =
    Event::new(39, "shard-drop", "{shard} dropped a packet, {reason}");
pub(crate) const DEPTH_IN: Event<3> = Event::new(
    40,
    "depth-in",
    "in the channel from {queue} to {shard} are {packets}",
);
pub(crate) const DEPTH_OUT: Event<3> = Event::new(
    41,
    "depth-out",
    "in the channel from {shard} to {queue} are {packets}",
);
pub(crate) const GIANT_WAITED: Event<1> =
    Event::new(42, "giant-waited", "waited for Giant for {time ns}");
pub(crate) const THREAD_HANGS: Event<1> = Event::new(
    43,
    "thread-hangs",
    "{thread} has not come out of its turn for a second",
);
pub(crate) const SHARD_HANGS: Event<2> = Event::new(
    44,
    "shard-hangs",
    "no thread has taken one of the {packets} of {shard} for a second",
);
pub(crate) const TRIGGERED: Event<2> = Event::new(
    45,
    "trigger",
    "what was waited for has come: {cause} (0 drop, 1 latency, 2 hanging thread, 3 hanging shard, 4 module's drop), {figure}",
);

/// All of them.
pub(crate) static EVENTS: Table = Table::new(&[
    THREAD.line(),
    LINK_IN.line(),
    LINK_OUT.line(),
    DROP.line(),
    HOST_WORK.line(),
    HANDED_CHANNEL.line(),
    HANDED_CALL.line(),
    CHANNEL_FULL.line(),
    TURN_BEGIN.line(),
    TURN_END.line(),
    SENT.line(),
    LOCK_WAITED.line(),
    ASLEEP.line(),
    AWAKE.line(),
    SHARD_LED.line(),
    SHARD_LEFT.line(),
    TCP_CONNECT.line(),
    TCP_ESTABLISHED.line(),
    TCP_PEER_CLOSED.line(),
    TCP_CLOSED.line(),
    TCP_RESET.line(),
    TCP_TIME_WAIT.line(),
    TCP_TIMEOUT.line(),
    TCP_FAST_RETRANSMIT.line(),
    TCP_ZERO_WINDOW.line(),
    TCP_PERSIST.line(),
    TCP_WINDOW_OPEN.line(),
    TIMER.line(),
    MODULE_DROP.line(),
    MEMORY.line(),
    HANDED_ON.line(),
    HANDED_BACKLOG.line(),
    BACKLOG_FULL.line(),
    PACKET_IN.line(),
    PACKET_HANDED.line(),
    PACKET_TAKEN.line(),
    PACKET_DONE.line(),
    PACKET_WOKE.line(),
    PACKET_READ.line(),
    SHARD_DROP.line(),
    DEPTH_IN.line(),
    DEPTH_OUT.line(),
    GIANT_WAITED.line(),
    THREAD_HANGS.line(),
    SHARD_HANGS.line(),
    TRIGGERED.line(),
]);

/// How much is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Nothing.
    Off,
    /// What is rare: connections that begin and end, what was lost, dropped or refused.
    #[default]
    Rare,
    /// Every burst, turn, hand-over and sleep as well.
    All,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Rare, Self::All];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Rare => "rare",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| format!("no trace level `{text}`; it is one of off, rare, all"))
    }
}

const RARE_ON: u8 = 1;
const DETAILS_ON: u8 = 2;
pub(crate) const STAGES_ON: u8 = 4;
// What is waited for (`trigger`).
const ARMED_DROP: u8 = 8;
const ARMED_LATENCY: u8 = 16;
const ARMED_WATCHDOG: u8 = 32;
/// It has come: a few more events, then none.
const STOPPING: u8 = 64;

/// Read by all, written hardly ever: alone on its cache lines.
#[repr(align(128))]
struct Flags(AtomicU8);

static FLAGS: Flags = Flags(AtomicU8::new(RARE_ON));

/// Sets what this process records from now on, until something else is said: nothing stops it by itself.
pub(crate) fn set_level(level: Level) {
    trigger::disarm();
    let bits = match level {
        Level::Off => 0,
        Level::Rare => RARE_ON,
        Level::All => RARE_ON | DETAILS_ON,
    };
    change(RARE_ON | DETAILS_ON, bits);
}

/// What this process records.
pub fn level() -> Level {
    match FLAGS.0.load(Relaxed) {
        bits if bits & DETAILS_ON != 0 => Level::All,
        bits if bits & RARE_ON != 0 => Level::Rare,
        _ => Level::Off,
    }
}

/// Sets the flags of `mask` to `bits`.
pub(crate) fn change(mask: u8, bits: u8) {
    // Relaxed: flags on their own; a thread that sees them late records a moment later.
    let _ = FLAGS
        .0
        .fetch_update(Relaxed, Relaxed, |old| Some(old & !mask | bits & mask));
}

/// Whether any of the flags of `mask` is set.
#[inline(always)]
pub(crate) fn has(mask: u8) -> bool {
    FLAGS.0.load(Relaxed) & mask != 0
}

/// Whether what happens all the time is watched: then it is time for [`detail`] and `stages`.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    has(DETAILS_ON | STAGES_ON)
}

/// Gives the calling thread its ring now, ahead of its first event: for the stack's own threads, which come before the application's.
pub(crate) fn join() {
    here();
}

/// Records what happens all the time, while that is watched.
#[inline(always)]
pub(crate) fn detail<const N: usize>(event: Event<N>, args: [u64; N]) {
    if has(DETAILS_ON | STAGES_ON) {
        record(DETAILS_ON, event, args);
    }
}

/// Records what is rare.
#[inline(always)]
pub(crate) fn note<const N: usize>(event: Event<N>, args: [u64; N]) {
    record(RARE_ON, event, args);
}

#[cold]
#[inline(never)]
fn record<const N: usize>(flag: u8, event: Event<N>, args: [u64; N]) {
    let flags = FLAGS.0.load(Relaxed);
    if flags & flag == 0 || (flags & STOPPING != 0 && !trigger::passes()) {
        return;
    }
    if here().is_some() {
        percore::trace::event(event, args);
    }
}
