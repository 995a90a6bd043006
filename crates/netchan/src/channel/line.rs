//! A shard's line to the attendant, the thread that turns channel-fed shards which no other thread turns (`stack::attendant`).

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use percore::{doorbell::Doorbell, wake_gate::WakeGate};
use proto::time::Instant;

/// How the attendant is called.
#[derive(Debug)]
pub struct Attendant {
    /// Rung to wake it.
    pub bell: Doorbell,
    /// Shards that called (a bit each).
    calls: AtomicU64,
    /// Closed while it sleeps without ticks.
    gate: WakeGate,
}

impl Attendant {
    /// An attendant without calls yet.
    ///
    /// # Errors
    /// When the process has no descriptor left for its doorbell.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            bell: Doorbell::new()?,
            calls: AtomicU64::new(0),
            gate: WakeGate::default(),
        })
    }

    /// Closed by the attendant that sleeps without ticks. It looks at seats and timers once more after that.
    pub const fn gate(&self) -> &WakeGate {
        &self.gate
    }

    /// A seat was left free, or a shard was handed over: wakes the attendant if it sleeps without ticks.
    pub fn tell(&self) {
        self.tell_of_timer(Instant::ZERO);
    }

    /// The timers of a shard that no thread sits at are due at `at`, earlier than before: wakes the attendant if it sleeps for longer.
    pub fn tell_of_timer(&self, at: Instant) {
        if self.gate.pass(at.0) {
            self.bell.ring();
        }
    }

    /// The shards that called since the last time, a bit each.
    pub fn take_calls(&self) -> u64 {
        // SeqCst: pairs with `Line::call`; after the bell's `arm`, so that a call which is not seen here rings.
        self.calls.swap(0, SeqCst)
    }
}

/// A shard's line to the attendant.
#[derive(Debug)]
pub struct Line {
    attendant: Arc<Attendant>,
    shard: usize,
    open: AtomicBool,
}

impl Line {
    /// The line of shard number `shard`, closed.
    pub const fn new(attendant: Arc<Attendant>, shard: usize) -> Self {
        Self {
            attendant,
            shard,
            open: AtomicBool::new(false),
        }
    }

    /// Packets were put into a channel, and the shard's doorbell was rung after that: calls the attendant if the line is open, or `anyway`.
    #[inline]
    pub fn ring(&self, anyway: bool) {
        // Relaxed: ordered by the fence in the doorbell's `ring`; partner: the fence in `open`. Either we see the line open, or the thread
        // that opened it sees the packets.
        if anyway || self.open.load(Relaxed) {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        // One call for each time that it is opened. SeqCst: before `calls`, so that the attendant, finding the call, may open it again.
        self.open.store(false, SeqCst);
        // SeqCst: pairs with `Attendant::take_calls`.
        self.attendant.calls.fetch_or(1 << self.shard, SeqCst);
        self.attendant.bell.ring();
    }

    /// Opens it; the caller looks into the channels after that.
    pub fn open(&self) {
        self.open.store(true, Relaxed);
        fence(SeqCst); // partner: the fence in the doorbell's `ring`, before our `ring`
    }

    /// Closes it. A call that is on its way finds a thread sitting there.
    pub fn close(&self) {
        // Relaxed: late, it costs a call for nothing.
        self.open.store(false, Relaxed);
    }
}
