//! How the background poller is called: the thread that turns channel-fed shards which no other thread turns (`stack::background`).

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

/// The background poller, for the threads that wake it.
#[derive(Debug)]
pub struct BackgroundPoller {
    /// Rung to wake it.
    pub bell: Doorbell,
    /// Shards that called (a bit each).
    calls: AtomicU64,
    /// Closed while it sleeps without ticks.
    gate: WakeGate,
}

impl BackgroundPoller {
    /// A background poller without calls yet.
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

    /// Closed by the background poller that sleeps without ticks. It looks at leaders and timers once more after that.
    pub const fn gate(&self) -> &WakeGate {
        &self.gate
    }

    /// Wakes the background poller if it sleeps without ticks: a shard was left without a leader, or handed over.
    pub fn wake(&self) {
        self.wake_for_timer(Instant::ZERO);
    }

    /// Wakes the background poller if it sleeps for longer than until `at`: then timers of a shard that no thread leads are due, earlier than before.
    pub fn wake_for_timer(&self, at: Instant) {
        if self.gate.pass(at.0) {
            self.bell.ring();
        }
    }

    /// The shards that called since the last time, a bit each.
    pub fn take_calls(&self) -> u64 {
        // SeqCst: pairs with `BackgroundCall::call`; after the bell's `arm`, so that a call which is not seen here rings.
        self.calls.swap(0, SeqCst)
    }
}

/// A shard's call to the background poller: made once each time that it was armed.
#[derive(Debug)]
pub struct BackgroundCall {
    poller: Arc<BackgroundPoller>,
    shard: usize,
    armed: AtomicBool,
}

impl BackgroundCall {
    /// The call of shard number `shard`, disarmed.
    pub const fn new(poller: Arc<BackgroundPoller>, shard: usize) -> Self {
        Self {
            poller,
            shard,
            armed: AtomicBool::new(false),
        }
    }

    /// Calls the background poller if the call is armed, or `anyway`: packets were put into a channel, and the shard's doorbell was rung after that.
    #[inline]
    pub fn ring(&self, anyway: bool) {
        // Relaxed: ordered by the fence in the doorbell's `ring`; partner: the fence in `arm`. Either we see the call armed, or the thread
        // that armed it sees the packets.
        if anyway || self.armed.load(Relaxed) {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        // One call for each time that it is armed. SeqCst: before `calls`, so that the background poller, finding the call, may arm it again.
        self.armed.store(false, SeqCst);
        // SeqCst: pairs with `BackgroundPoller::take_calls`.
        self.poller.calls.fetch_or(1 << self.shard, SeqCst);
        self.poller.bell.ring();
    }

    /// Arms it; the caller looks into the channels after that.
    pub fn arm(&self) {
        self.armed.store(true, Relaxed);
        fence(SeqCst); // partner: the fence in the doorbell's `ring`, before our `ring`
    }

    /// Disarms it. A call that is on its way finds a thread that leads the shard.
    pub fn disarm(&self) {
        // Relaxed: late, it costs a call for nothing.
        self.armed.store(false, Relaxed);
    }
}
