//! How a stack's threads and those that wait for its sockets sleep: on descriptors, until a time.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use percore::doorbell::Sleep;
use proto::time::Instant;

use super::{Stack, driver_side::SharedQueue};
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

impl Stack {
    /// For a queue's thread that is about to sleep: what is for it rings from now on. How it has to sleep, if not for applications with leases of its link as `how`
    /// says.
    pub(super) fn arm(&self, queue: usize, how: Sleep) -> Sleep {
        let how = if self.lends(queue) { Sleep::Fd } else { how };
        self.driver.queues[queue].doorbell.arm(how);
        how
    }

    /// Its last look, after it has armed, and taken what was there then: whether it may sleep as `how` says. What applications with leases send rings from then on;
    /// before it, it may lie there without having rung.
    pub(super) fn may_sleep(&self, queue: usize, how: Sleep) -> bool {
        // The first lease may have come since `arm`. Either this look sees it, or its ring (`open_lease`) sees the armed bell: the fence in `Doorbell::arm` is the
        // partner of that in `Doorbell::ring`.
        if !self.lends(queue) {
            return true;
        }
        let doorbell = &self.driver.queues[queue].doorbell;
        how == Sleep::Fd && self.with_interface(queue, |interface| interface.arm_leases(doorbell))
    }

    /// Whether parts of a queue's link are lent.
    fn lends(&self, queue: usize) -> bool {
        self.driver.lends() && self.driver.queues[queue].lease_bells.get().is_some()
    }

    /// Sleeps on a queue's doorbell, the bells of leases, and the descriptor of its `link`. Whether that has ended the sleep.
    pub(super) fn sleep_on_bells(
        &self,
        queue: usize,
        link: Option<libc::pollfd>,
        until: Instant,
        now: Instant,
    ) -> io::Result<bool> {
        let SharedQueue {
            facts, lease_bells, ..
        } = &self.driver.queues[queue];
        let bell = readable(facts.doorbell.fd());
        let leases = lease_bells.get().map(|bells| readable(bells.as_fd()));
        let mut fds = [bell; 3];
        let mut used = 1;
        for fd in [link, leases].into_iter().flatten() {
            fds[used] = fd;
            used += 1;
        }
        ppoll(&mut fds[..used], until, now)?;
        Ok(link.is_some() && fds[1].revents != 0)
    }
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
