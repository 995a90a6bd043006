//! The sleeps of a [`Waiter`]: each on one doorbell, or on one call of ppoll(2).

use std::io;

use percore::doorbell::{Doorbell, Sleep, Woken};
use proto::time::Instant;

use super::Waiter;
use crate::{
    stack::sleep::{asleep, ppoll, readable, timeout},
    sys::{self, SignalsHeld},
};

impl Waiter {
    /// The link leader's sleep: on the doorbell of the shard that it leads, on `fds`, and on the queues in its lane, which it turns if they have something.
    pub(super) fn sleep_leading(
        &mut self,
        number: usize,
        fds: &mut [libc::pollfd],
        until: Instant,
        now: Instant,
        held: Option<&SignalsHeld>,
    ) -> io::Result<usize> {
        let stack = self.stack.clone();
        let doorbell = &stack.sockets.cells[number].doorbell;
        let own = fds.len();
        self.fds.clear();
        self.fds.extend_from_slice(fds);
        self.fds.push(readable(doorbell.fd()));
        let mut link_event = Instant::FAR;
        for queue in stack.driver.queues_in_lane_of(number) {
            self.fds.extend(stack.pollfd_of(queue));
            link_event = link_event.min(stack.next_event_of(queue));
        }
        let timeout = timeout(until.min(link_event), now);
        asleep(&stack, until, now, || {
            sys::ppoll(&mut self.fds, timeout, held)
        })?;
        self.has_looked = true;
        doorbell.disarm(); // what follows is no news to the thread that does it
        let (ours, links) = self.fds.split_at(own + 1);
        let now = stack.clock.now();
        if links.iter().any(|link| link.revents != 0) || link_event <= now {
            stack.turn_led(number, now);
        }
        fds.copy_from_slice(&ours[..own]);
        Ok(fds.iter().filter(|fd| fd.revents != 0).count())
    }

    /// On the thread's own doorbell, and on `fds`.
    pub(super) fn sleep_parked(
        &mut self,
        fds: &mut [libc::pollfd],
        deadline: Instant,
        held: Option<&SignalsHeld>,
    ) -> io::Result<usize> {
        let how = if fds.is_empty() && held.is_none() {
            Sleep::Futex
        } else {
            Sleep::Fd
        };
        let parker = self.parker.clone();
        parker.doorbell.arm(how);
        let now = self.stack.clock.now();
        let slept = if parker.has_wake() || now >= deadline {
            Ok(0)
        } else {
            self.sleep(&parker.doorbell, how, fds, deadline, now, held)
        };
        parker.doorbell.disarm();
        slept
    }

    /// On the links and their doorbells, for a thread that turns everything.
    pub(super) fn sleep_on_links(
        &mut self,
        fds: &mut [libc::pollfd],
        until: Instant,
        now: Instant,
    ) -> io::Result<usize> {
        let stack = self.stack.clone();
        let own = fds.len();
        self.fds.clear();
        self.fds.extend_from_slice(fds);
        self.parker.doorbell.arm(Sleep::Fd);
        self.fds.push(readable(self.parker.doorbell.fd()));
        for (number, shared) in stack.driver.queues.iter().enumerate() {
            shared.doorbell.arm(Sleep::Fd);
            self.fds.push(readable(shared.doorbell.fd()));
            self.fds.extend(stack.pollfd_of(number));
        }
        // After arming once more: what came before it may not have rung.
        let work = stack.turn_links();
        let slept = if work || self.parker.has_wake() {
            Ok(0)
        } else {
            asleep(&stack, until, now, || ppoll(&mut self.fds, until, now))
        };
        self.parker.doorbell.disarm();
        stack
            .driver
            .queues
            .iter()
            .for_each(|shared| shared.doorbell.disarm());
        slept?;
        fds.copy_from_slice(&self.fds[..own]);
        Ok(fds.iter().filter(|fd| fd.revents != 0).count())
    }

    /// Sleeps on a doorbell and `fds`.
    pub(super) fn sleep(
        &mut self,
        doorbell: &Doorbell,
        how: Sleep,
        fds: &mut [libc::pollfd],
        until: Instant,
        now: Instant,
        held: Option<&SignalsHeld>,
    ) -> io::Result<usize> {
        if how == Sleep::Futex {
            let timeout = timeout(until, now);
            return match asleep(&self.stack, until, now, || doorbell.sleep(timeout)) {
                Woken::Rung | Woken::TimedOut => Ok(0),
                Woken::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            };
        }
        self.fds.clear();
        self.fds.extend_from_slice(fds);
        self.fds.push(readable(doorbell.fd()));
        let timeout = timeout(until, now);
        asleep(&self.stack, until, now, || {
            sys::ppoll(&mut self.fds, timeout, held)
        })?;
        self.has_looked = true;
        let own = fds.len();
        fds.copy_from_slice(&self.fds[..own]);
        Ok(fds.iter().filter(|fd| fd.revents != 0).count())
    }
}

/// Whether any of `fds` is ready at this moment.
pub(super) fn look(fds: &mut [libc::pollfd]) -> io::Result<usize> {
    if fds.is_empty() {
        return Ok(0);
    }
    ppoll(fds, Instant::ZERO, Instant::ZERO)
}
