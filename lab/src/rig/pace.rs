//! Bursts at fixed moments. Absolute ones: a late burst does not make the next ones late.

use std::num::NonZeroU64;

use rustix::{
    thread::{clock_nanosleep_absolute, set_current_timer_slack},
    time::{ClockId, Timespec, clock_gettime},
};

use super::job::Pace;

const SECOND: u64 = 1_000_000_000;

/// Tells a generator when its next burst is due.
pub(super) struct Metronome {
    next_ns: u64,
    /// Between bursts; 0: they are due at once.
    interval_ns: u64,
    /// On a core of its own the generator waits awake.
    spins: bool,
}

impl Metronome {
    /// The first burst is due now.
    pub fn start(pace: Pace, spins: bool) -> Self {
        // Else the kernel may be 50 µs late by design. Refused, the rate that was reached tells it.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let interval_ns = (pace.burst.max(1) as u64 * SECOND)
            .checked_div(pace.per_second as u64)
            .unwrap_or(0);
        Self {
            next_ns: now_ns(),
            interval_ns,
            spins,
        }
    }

    /// Returns when the next burst is due.
    pub fn wait(&mut self) {
        if self.interval_ns == 0 {
            return;
        }
        while now_ns() < self.next_ns {
            if self.spins {
                std::hint::spin_loop();
                continue;
            }
            let due = Timespec {
                tv_sec: i64::try_from(self.next_ns / SECOND).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(self.next_ns % SECOND).unwrap_or(0),
            };
            // A signal ends it early: then once more.
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &due);
        }
        self.next_ns += self.interval_ns;
    }
}

/// The kernel's monotonic clock.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    s.unwrap_or(0) * SECOND + ns.unwrap_or(0)
}
