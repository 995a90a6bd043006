//! The cycle clock: the one place where time is read.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a monotonic clock, read from the time-stamp counter where it is invariant.
///
/// Never goes backwards on one core. The origin is arbitrary but the same in the whole process.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}
