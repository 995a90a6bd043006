//! A trigger: armed by one thread, fired at most once by any, and a count of what may still happen after that.
//!
//! Guarantees:
//! * Of all threads that fire an armed trigger one is told that it did; its cause is the one that is kept.
//! * After that, [`Trigger::pass`] lets exactly as many events through as [`Trigger::arm`] said, on all threads together, and tells one thread that
//!   its event was the last.
//! * [`Trigger::fire`] and [`Trigger::pass`] take a few atomic operations on one cache line. Whether a trigger is armed at all is better kept where
//!   it can be read for nothing: both are for cold paths.
//!
//! An event that began under an earlier arming may be counted under the next one: by one each thread, as it should be for something that people switch.

use crate::sync::{AtomicU64, Ordering};

const IDLE: u64 = 0;
const ARMED: u64 = 1;
/// A bit; the cause lies above the low two.
const FIRED: u64 = 2;
const STATE_BITS: u32 = 2;

/// What a trigger is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was asked for.
    Idle,
    /// It waits.
    Armed,
    /// It fired.
    Fired {
        /// As the thread that fired it said.
        cause: u32,
        /// [`crate::clock::cycles`] when it did; `None`: that is being written just now.
        stamp: Option<u64>,
        /// Events that may still pass.
        left: u64,
    },
}

/// Whether an event may happen after a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It may.
    Yes,
    /// It may, as the last one.
    Last,
    /// There were enough.
    No,
}

/// A trigger; see the module.
#[derive(Debug)]
#[repr(align(128))]
pub struct Trigger {
    state: AtomicU64,
    stamp: AtomicU64,
    left: AtomicU64,
}

impl Trigger {
    /// Idle.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        let (state, stamp, left) = (AtomicU64::new(IDLE), AtomicU64::new(0), AtomicU64::new(0));
        Self { state, stamp, left }
    }

    /// Idle.
    #[cfg(loom)]
    pub fn new() -> Self {
        let (state, stamp, left) = (AtomicU64::new(IDLE), AtomicU64::new(0), AtomicU64::new(0));
        Self { state, stamp, left }
    }

    /// Makes it wait for a cause, and lets `after` events pass once there was one. What it was at before is forgotten.
    pub fn arm(&self, after: u64) {
        self.disarm();
        self.stamp.store(0, Ordering::Relaxed);
        self.left.store(after, Ordering::Relaxed);
        // Both of the above are there for a thread that sees it armed: pairs with Acquire in `fire`.
        self.state.store(ARMED, Ordering::Release);
    }

    /// Forgets all.
    pub fn disarm(&self) {
        self.state.store(IDLE, Ordering::Relaxed);
    }

    /// Fires it at `stamp`, if it is armed: true for one thread.
    pub fn fire(&self, cause: u32, stamp: u64) -> bool {
        let fired = u64::from(cause) << STATE_BITS | FIRED;
        let (won, seen) = (Ordering::AcqRel, Ordering::Relaxed); // Acquire pairs with Release in `arm`, Release with Acquire in `state`
        let is_first = self.state.compare_exchange(ARMED, fired, won, seen).is_ok();
        if is_first {
            self.stamp.store(stamp.max(1), Ordering::Relaxed); // a figure by itself
        }
        is_first
    }

    /// Whether one more event may happen: before it is fired any.
    pub fn pass(&self) -> Pass {
        // Acquire pairs with Release in `fire`, which came behind `arm`: the count is this arming's.
        if !is_fired(self.state.load(Ordering::Acquire)) {
            return Pass::Yes;
        }
        // Relaxed: a figure by itself, and the last one is one thread's whatever the order.
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        match taken {
            Ok(1) => Pass::Last,
            Ok(_) => Pass::Yes,
            Err(_) => Pass::No,
        }
    }

    /// What it is at.
    pub fn state(&self) -> State {
        let state = self.state.load(Ordering::Acquire); // pairs with Release in `fire` and `arm`
        match state {
            IDLE => State::Idle,
            ARMED => State::Armed,
            _ => State::Fired {
                cause: u32::try_from(state >> STATE_BITS).unwrap_or(u32::MAX),
                stamp: Some(self.stamp.load(Ordering::Relaxed)).filter(|&stamp| stamp != 0),
                left: self.left.load(Ordering::Relaxed),
            },
        }
    }
}

const fn is_fired(state: u64) -> bool {
    state & FIRED != 0
}

impl Default for Trigger {
    fn default() -> Self {
        Self::new()
    }
}
