//! The sleeps of a [`Waiter`]: each on one doorbell, or on one call of ppoll(2).

use std::io;

use percore::doorbell::{Doorbell, Sleep, Woken, several};
use proto::time::{Duration, Instant};

use super::Waiter;
use crate::{
    stack::sleep::{asleep, ppoll, readable, timeout},
    sys::{self, SignalsHeld},
};

/// How long a leader sleeps on doorbells alone, which do not tell that a link is gone; after that it sleeps on descriptors. So a program that has nothing to do
/// wakes once more, and no more often.
const BY_BELLS: Duration = Duration::from_millis(10);

impl Waiter {
    /// Whether the link leader's next sleep may be by doorbells alone: nothing else is to wake it, and no signal is held back.
    pub(super) fn sleeps_by_bells(&self, leads_links: bool, fds: &[libc::pollfd]) -> bool {
        leads_links
            && self.lets_signals_in
            && !self.has_slept_long
            && fds.is_empty()
            && several::are_there()
    }

    /// The link leader's sleep by doorbells alone: that of the shard that it leads, which is armed so, and those of the queues in its lane. Where one of these
    /// has other means, or nothing rings in a while, it sleeps on descriptors from then on, until this wait has had something to do.
    pub(super) fn sleep_by_bells(
        &mut self,
        number: usize,
        until: Instant,
        now: Instant,
    ) -> io::Result<usize> {
        let stack = self.stack.clone();
        let doorbell = &stack.sockets.cells[number].doorbell;
        self.bells.clear();
        let mut event = self.bells.add(doorbell).then_some(until);
        for queue in stack.driver.queues_in_lane_of(number) {
            let Some(so_far) = event else { break };
            let next = stack.next_event_by_bells(queue, &mut self.bells);
            event = next.map(|next| next.min(so_far));
        }
        let last = now + BY_BELLS;
        let woken = match event {
            None => Woken::TimedOut,
            Some(at) if at <= now => Woken::Rung,
            Some(at) => {
                let until = at.min(last);
                asleep(&stack, until, now, || {
                    self.bells.sleep(Some(until.since(now)))
                })
            }
        };
        doorbell.disarm();
        let lane = stack.driver.queues_in_lane_of(number);
        lane.for_each(|queue| stack.leave_bells(queue));
        match woken {
            Woken::Interrupted => return Err(io::ErrorKind::Interrupted.into()),
            Woken::TimedOut if event.is_none_or(|at| at > last) => self.has_slept_long = true,
            Woken::TimedOut | Woken::Rung => _ = stack.turn_led(number, stack.clock.now()),
        }
        Ok(0)
    }

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
            self.has_slept_long &= !stack.turn_led(number, now);
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
