//! Looking before a sleep: for as long as `spin` or SO_BUSY_POLL says, and while it pays.

use std::{io, time::Duration};

use proto::time::Instant;

use super::{Waiter, sleep::look};
use crate::{
    socket::Socket,
    stack::{Stack, visitors::Doing},
};

/// So many looks in a row that found nothing are worth a try; after that waits begin to go without.
const MISSES: u32 = 4;

/// Waits without a look between two tries, at most: 2 to the power of this.
const PAUSE_SHIFT: u32 = 6;

/// So many tries to one look at the links, where what comes comes past them.
const TRIES: u32 = 8;

/// That is known after so many times, and forgotten after as many; [`Spins::past_links`] goes to twice as many.
const SURE: u32 = 2;

/// Two moments of a look lie no further apart, unless another thread had the core in between.
const LATE: Duration = Duration::from_micros(200);

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The wait is over, and no sleep was needed.
    News,
    Nothing,
    /// Another thread wanted the core.
    Preempted,
}

/// Whether a thread's looks pay: they go on as long as they find something now and then, and become rare where they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spins {
    /// Looks in a row that found nothing.
    misses: u32,
    /// Waits until the next try.
    pause: u32,
    /// How often of late something came by pipes, past the links ([`Waiter::try_first`]).
    past_links: u32,
}

impl Spins {
    /// Whether the wait that begins looks first.
    fn begins(&mut self) -> bool {
        let is_on = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_on
    }

    /// How many tries come to one look at the links.
    const fn tries(&self) -> u32 {
        if self.past_links >= SURE { TRIES } else { 1 }
    }

    /// Something was found, right after a look at the links that brought something, or not.
    fn came(&mut self, by_links: bool) {
        self.past_links = match by_links {
            true => self.past_links.saturating_sub(1),
            false => (self.past_links + 1).min(2 * SURE),
        };
    }

    fn ended(&mut self, found: Found) {
        self.misses = match found {
            Found::News => 0,
            Found::Nothing => self.misses + 1,
            Found::Preempted => self.misses.max(MISSES - 1) + 1,
        }
        .min(MISSES + PAUSE_SHIFT);
        if let Some(more) = self.misses.checked_sub(MISSES) {
            self.pause = 1 << more;
        }
    }
}

impl Waiter {
    /// Tries again and again for as long as a wait for `socket` would look before it sleeps, with its shard and the links in this thread's hands: what
    /// comes meanwhile needs no waker. `attempt` says `WouldBlock` where it is to go on. `None`: nothing came, looks do not pay, or another
    /// thread leads; the wait that follows looks in the last case alone.
    pub fn try_first<R>(
        &mut self,
        socket: &Socket,
        timeout: Option<Duration>,
        attempt: impl FnMut() -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        self.has_spun = false;
        let stack = self.stack.clone();
        let spin = (self.spin).max(Duration::from_nanos(stack.spin_ns));
        if spin.is_zero() || !stack.threaded || stack.stepped || !stack.has_leaders() {
            return None;
        }
        let number = match stack.has_one_leader() {
            true => 0,
            false => socket.shard()?,
        };
        stack.end_batch();
        let cell = &stack.sockets.cells[number];
        self.has_spun = !self.spins.begins();
        if self.has_spun || !cell.lead() {
            return None;
        }
        let leads_links = stack.lead_links(number);
        self.visitor.does(match leads_links {
            true => Doing::LeadsLinks(number),
            false => Doing::LeadsShard(number),
        });
        let now = stack.clock.now();
        let deadline = timeout.map_or(Instant::FAR, |timeout| now + timeout);
        let (tries, mut tried, mut by_links) = (self.spins.tries(), 0, false);
        let (found, result) = try_until(now + spin, deadline, &stack, attempt, |now| {
            tried += 1;
            by_links = tried % tries == 0 && leads_links && stack.turn_led(number, now);
            if by_links || stack.next_timer_of_waiting(number) <= now {
                stack.turn_waiting(number);
            }
        });
        self.visitor.does(Doing::Program);
        if leads_links {
            stack.stop_leading_links(number);
        }
        self.leave(number, leads_links);
        if let Some(found) = found {
            if found == Found::News && tried > 0 {
                self.spins.came(by_links);
            }
            self.spins.ended(found);
            self.has_spun = result.is_none();
        }
        result
    }

    /// Turns a shard, which it leads, once; then, if `spin` is not zero, again and again for so long.
    pub(super) fn turn_and_spin(
        &mut self,
        number: usize,
        leads_links: bool,
        spin: Duration,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) {
        self.stack.turn_waiting(number);
        if !spin.is_zero() && !self.parker.has_wake() {
            let stack = self.stack.clone();
            self.spin_while(spin, fds, deadline, |now| {
                if leads_links {
                    stack.turn_led(number, now);
                }
                stack.turn_waiting(number);
            });
        }
    }

    /// Looks whether other threads have woken it, before a sleep.
    pub(super) fn spin_parked(
        &mut self,
        spin: Duration,
        fds: &mut [libc::pollfd],
        deadline: Instant,
    ) {
        if !spin.is_zero() {
            self.spin_while(spin, fds, deadline, |_| ());
        }
    }

    fn spin_while(
        &mut self,
        spin: Duration,
        fds: &mut [libc::pollfd],
        deadline: Instant,
        mut turn: impl FnMut(Instant),
    ) {
        if std::mem::take(&mut self.has_spun) || !self.spins.begins() {
            return;
        }
        let mut before = self.stack.clock.now();
        let end = before + spin;
        let found = loop {
            let now = self.stack.clock.now();
            if self.parker.has_wake() || has_news(fds) {
                break Found::News;
            }
            if now >= deadline {
                return; // a wait as short as this says nothing
            }
            if now.since(before) > LATE {
                break Found::Preempted;
            }
            if now >= end {
                break Found::Nothing;
            }
            std::hint::spin_loop();
            turn(now);
            before = now;
        };
        self.spins.ended(found);
    }
}

/// Calls `attempt`, and `turn` in between, until one of `end` and `deadline` or until something else than `WouldBlock` comes of it. What the look came to;
/// `None`: it was too short to say.
fn try_until<R>(
    end: Instant,
    deadline: Instant,
    stack: &Stack,
    mut attempt: impl FnMut() -> io::Result<R>,
    mut turn: impl FnMut(Instant),
) -> (Option<Found>, Option<io::Result<R>>) {
    let mut before = stack.clock.now();
    loop {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return (Some(Found::News), Some(done)),
        }
        let now = stack.clock.now();
        if now >= deadline {
            return (None, None);
        }
        if now.since(before) > LATE {
            return (Some(Found::Preempted), None);
        }
        if now >= end {
            return (Some(Found::Nothing), None);
        }
        std::hint::spin_loop();
        turn(now);
        before = now;
    }
}

/// Whether the sleep that comes next would end at once, by one of `fds` or by an error.
fn has_news(fds: &mut [libc::pollfd]) -> bool {
    !matches!(look(fds), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many waits with the same end, those that looked.
    fn looks(spins: &mut Spins, waits: u32, found: Found) -> u32 {
        let mut wait = |_| {
            let looks = spins.begins();
            if looks {
                spins.ended(found);
            }
            u32::from(looks)
        };
        (0..waits).map(&mut wait).sum()
    }

    #[test]
    fn spins_that_find_something_go_on() {
        let mut spins = Spins::default();
        assert_eq!(looks(&mut spins, 1000, Found::News), 1000);
        // One in four is enough.
        for _ in 0..100 {
            assert_eq!(looks(&mut spins, MISSES - 1, Found::Nothing), MISSES - 1);
            assert_eq!(looks(&mut spins, 1, Found::News), 1);
        }
    }

    #[test]
    fn spins_in_vain_become_rare_and_come_back_with_the_first_that_pays() {
        let mut spins = Spins::default();
        let first = looks(&mut spins, 200, Found::Nothing);
        assert!((MISSES..20).contains(&first), "{first}");
        let rare = looks(&mut spins, 6500, Found::Nothing);
        assert!((95..=101).contains(&rare), "one of 65: {rare}");
        while !spins.begins() {}
        spins.ended(Found::News);
        assert_eq!(looks(&mut spins, 100, Found::News), 100);
    }

    #[test]
    fn links_are_looked_at_less_while_text_comes_past_them() {
        let mut spins = Spins::default();
        assert_eq!(spins.tries(), 1);
        (0..SURE).for_each(|_| spins.came(false));
        assert_eq!(spins.tries(), TRIES);
        // Now and then the look at the links finds it first.
        for _ in 0..100 {
            spins.came(false);
            spins.came(false);
            spins.came(true);
            assert_eq!(spins.tries(), TRIES);
        }
        (0..=SURE).for_each(|_| spins.came(true));
        assert_eq!(spins.tries(), 1);
    }

    #[test]
    fn spins_that_keep_another_thread_from_the_core_become_rare_at_once() {
        let mut spins = Spins::default();
        assert_eq!(looks(&mut spins, 2, Found::Preempted), 1);
        assert_eq!(looks(&mut spins, 3, Found::Preempted), 1);
        assert_eq!(looks(&mut spins, 5, Found::Preempted), 1);
        assert_eq!(looks(&mut spins, 10, Found::News), 10);
    }
}
