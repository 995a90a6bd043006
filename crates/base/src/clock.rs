//! The stack's clock: the machine's cycle clock, or a virtual one that a test turns.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use proto::time::{Duration, Instant};

/// Where a stack takes its time from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// `percore::clock`, monotonic nanoseconds.
    #[default]
    Real,
    /// Stands still until [`Clock::advance`]. Clones share it, so that two stacks and the wire between them live in one time.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// A virtual clock that starts one second after the origin.
    pub fn new_virtual() -> Self {
        Self::Virtual(Arc::new(AtomicU64::new(1_000_000_000)))
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Instant {
        match self {
            Self::Real => Instant(percore::clock::now_ns()),
            // Relaxed: a number on its own, it publishes nothing.
            Self::Virtual(t) => Instant(t.load(Relaxed)),
        }
    }

    /// Turns a virtual clock forward; a real one takes no orders.
    pub fn advance(&self, by: Duration) {
        if let Self::Virtual(t) = self {
            t.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// Turns a virtual clock to `at` if that is later.
    pub fn advance_to(&self, at: Instant) {
        if let Self::Virtual(t) = self {
            t.fetch_max(at.0, Relaxed);
        }
    }
}
