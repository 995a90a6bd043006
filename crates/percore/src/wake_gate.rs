//! A wake gate: a thread that looks after what others change says that it sleeps, and until when. A thread whose change is due earlier wakes it, and no
//! other thread does.
//!
//! Guarantees:
//! * No change is missed: either the thread that made it is told to wake the sleeper, or the sleeper's look after [`WakeGate::close`] finds it.
//! * Of several changes one is told.
//! * While the gate is open a change costs a fence and a load.

#[cfg(all(test, loom))]
mod loom_tests;

use crate::sync::{AtomicU64, Ordering, fence};

/// Whether a thread sleeps, and until when.
///
/// The sleeper's order: arm its bell, look at what others change, [`close`](Self::close), look once more, sleep, [`open`](Self::open).
/// Another thread's: change something, [`pass`](Self::pass); if that says so, ring the bell.
#[derive(Debug)]
pub struct WakeGate {
    /// Nanoseconds of the sleeper's clock; 0: it does not sleep.
    until: AtomicU64,
}

impl Default for WakeGate {
    /// An open one.
    fn default() -> Self {
        Self {
            until: AtomicU64::new(0),
        }
    }
}

impl WakeGate {
    /// The calling thread sleeps until `until_ns`, if it is not woken. It looks once more at what others change after this.
    pub fn close(&self, until_ns: u64) {
        // A swap, for the models: a store would be ordered by the fence as well, but loom lets a load that follows another thread's older swap miss it
        // (as in the doorbell's model). It comes once a sleep. AcqRel: for the same reason.
        self.until.swap(until_ns.max(1), Ordering::AcqRel);
        // Partner: the fence in `pass`. Either that sees the gate closed, or the look after this sees the change.
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake.
    pub fn open(&self) {
        // Relaxed: a thread that sees it late rings a thread that is awake.
        self.until.store(0, Ordering::Relaxed);
    }

    /// Whether the sleeper is, or is about to be, asleep.
    pub fn is_closed(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0 // a hint
    }

    /// The calling thread changed something that is due at `at_ns`; 0: at once. Whether it has to ring the sleeper's bell.
    #[inline]
    pub fn pass(&self, at_ns: u64) -> bool {
        // Partner: the fence in `close`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence; the swap takes the turn to ring.
        at_ns < self.until.load(Ordering::Relaxed) && self.until.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn open_gate_tells_nothing() {
        let gate = WakeGate::default();
        assert!(!gate.is_closed() && !gate.pass(0));
    }

    #[test]
    fn closed_gate_tells_the_first_change_that_is_due_earlier() {
        let gate = WakeGate::default();
        gate.close(10);
        assert!(gate.is_closed());
        assert!(!gate.pass(10) && !gate.pass(u64::MAX) && gate.is_closed());
        assert!(gate.pass(9));
        assert!(!gate.is_closed() && !gate.pass(0), "once");
        gate.close(0);
        assert!(gate.pass(0), "at once is before any time");
        gate.close(u64::MAX);
        gate.open();
        assert!(!gate.is_closed() && !gate.pass(0));
    }
}
