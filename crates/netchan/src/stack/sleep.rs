//! How a stack's threads and those that wait for its sockets sleep: on descriptors, until a time.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

use proto::time::Instant;

use super::Stack;
use crate::{
    sys,
    trace::{self, stages},
};

/// Runs `sleep`, and tells the trace and the stages of it.
pub(crate) fn asleep<R>(
    stack: &Stack,
    until: Instant,
    now: Instant,
    sleep: impl FnOnce() -> R,
) -> R {
    if !trace::is_watched() {
        return sleep();
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    trace::detail(trace::ASLEEP, [micros(until.since(now))]);
    let result = stages::sleeping(sleep);
    let slept = stack.clock.now().since(now);
    trace::detail(trace::AWAKE, [micros(slept)]);
    result
}

/// An entry for poll(2) that waits for input.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// poll(2) until `until`.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], until: Instant, now: Instant) -> io::Result<usize> {
    sys::ppoll(fds, timeout(until, now), None)
}

/// What is left until `until`; `None`: for ever.
pub(crate) fn timeout(until: Instant, now: Instant) -> Option<Duration> {
    (until != Instant::FAR).then(|| until.since(now))
}

/// 10 ms: a peer's retransmission timer is 200 ms at least, so that two of these go unnoticed, and a hundred wake-ups a second cost 0.05 % of a core.
pub(crate) const TICK: Duration = Duration::from_millis(10);
