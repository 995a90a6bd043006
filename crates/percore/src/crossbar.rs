//! The crossbar (D3): a ring for each ordered pair of cores, and a doorbell for each core.
//!
//! Guarantees:
//! * [`Outbox::send`], [`Outbox::send_passive`] and [`Inbox::receive`] are wait-free; no two cores write the same cache line (see [`ring`]).
//! * Messages from one core to another arrive in order, each once; between different pairs there is no order.
//! * A message is seen after the sender's next [`Outbox::flush`]. That rings the doorbell of each core for which there was an *active* message,
//!   once for all of them: a system call at most, and only if that core sleeps. *Passive* messages ring nothing: they wait until the
//!   core looks.
//! * A full ring gives the message back, and counts it.
//! * No wake-up is lost: [`Inbox::sleep`] looks at its rings once more after it has said that it is going to sleep.
//!
//! The cores that take part are fixed at the start. A core has a ring to itself, too, so that the same code runs on one core and on many (D1).

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::{
    doorbell::{Doorbell, Sleep},
    ring::{Consumer, Producer, ring},
};
use std::{fmt, io, sync::Arc, time::Duration};

/// One core's end of the crossbar: everything it can send and receive. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Port<T> {
    /// Where its messages go.
    pub to: Outbox<T>,
    /// Where others' come from, and where it sleeps.
    pub from: Inbox<T>,
}

/// One core's rings to all cores.
pub struct Outbox<T> {
    me: usize,
    rings: Box<[OutRing<T>]>,
    bells: Arc<[Doorbell]>,
}

/// The ring to one core.
struct OutRing<T> {
    ring: Producer<T>,
    staged: Staged,
    refused: u64,
}

/// What the next flush owes a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Staged {
    Nothing,
    Passive,
    Active,
}

/// What comes to one core from all cores.
pub struct Inbox<T> {
    me: usize,
    rings: Box<[Consumer<T>]>,
    /// Where the next [`receive`](Inbox::receive) begins, so that no ring is always last.
    first: usize,
    bells: Arc<[Doorbell]>,
}

/// The ports of `cores` cores, whose rings hold `capacity` messages each (rounded up to a power of two, at least 1).
///
/// # Errors
/// As [`Doorbell::new`]: too many open files, or out of memory.
pub fn crossbar<T>(cores: usize, capacity: usize) -> io::Result<Vec<Port<T>>> {
    let bells = (0..cores).map(|_| Doorbell::new());
    let bells: Arc<[_]> = bells.collect::<io::Result<Vec<_>>>()?.into();
    let mut rings_to: Vec<Vec<Consumer<T>>> = (0..cores).map(|_| Vec::new()).collect();
    let mut rings_from = Vec::new();
    for _ in 0..cores {
        let out_ring = |rings: &mut Vec<_>| {
            let (ring, end) = ring(capacity);
            rings.push(end);
            let (staged, refused) = (Staged::Nothing, 0);
            OutRing {
                ring,
                staged,
                refused,
            }
        };
        rings_from.push(rings_to.iter_mut().map(out_ring).collect());
    }
    let ends = rings_from.into_iter().zip(rings_to).enumerate();
    let port = |(me, (out, rings)): (usize, (Box<[_]>, Vec<_>))| {
        let (first, rings) = (0, rings.into());
        let to = Outbox {
            me,
            rings: out,
            bells: bells.clone(),
        };
        let from = Inbox {
            me,
            rings,
            first,
            bells: bells.clone(),
        };
        Port { to, from }
    };
    Ok(ends.map(port).collect())
}

impl<T> fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Outbox {{ of core {} of {} }}",
            self.me,
            self.rings.len()
        )
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox {{ of core {} of {} }}", self.me, self.cores())
    }
}

impl<T> Outbox<T> {
    /// Stages an active message: the next [`flush`](Self::flush) makes it visible and wakes the core if it sleeps. Full gives it back.
    ///
    /// # Panics
    /// If there is no such core.
    #[inline]
    pub fn send(&mut self, to: usize, message: T) -> Result<(), T> {
        self.rings[to].stage(message, Staged::Active)
    }

    /// Stages a passive message: the next [`flush`](Self::flush) makes it visible, and wakes no core. Full gives it back.
    ///
    /// # Panics
    /// If there is no such core.
    #[inline]
    pub fn send_passive(&mut self, to: usize, message: T) -> Result<(), T> {
        self.rings[to].stage(message, Staged::Passive)
    }

    /// Makes everything staged visible: one store for each core that is to get something, and one ring of its doorbell if some of it is
    /// active. How many were asleep, i.e. how many system calls that took.
    #[inline]
    pub fn flush(&mut self) -> usize {
        let mut woken = 0;
        for (core, out) in self.rings.iter_mut().enumerate() {
            let staged = std::mem::replace(&mut out.staged, Staged::Nothing);
            if staged != Staged::Nothing {
                out.ring.publish();
                if staged == Staged::Active && core != self.me {
                    woken += usize::from(self.bells[core].ring());
                }
            }
        }
        woken
    }

    /// Messages that were given back because the ring to this core was full.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn refused(&self, to: usize) -> u64 {
        self.rings[to].refused
    }

    /// Whether this core's inbox was dropped: it will not read what is sent to it.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn is_gone(&self, core: usize) -> bool {
        self.rings[core].ring.is_abandoned()
    }
}

impl<T> OutRing<T> {
    #[inline(always)]
    fn stage(&mut self, message: T, how: Staged) -> Result<(), T> {
        let staged = self.ring.stage(message);
        match staged {
            Ok(()) => self.staged = self.staged.max(how),
            Err(_) => self.refused += 1,
        }
        staged
    }
}

impl<T> Drop for Outbox<T> {
    fn drop(&mut self) {
        // What was staged is still sent.
        self.flush();
    }
}

impl<T> Inbox<T> {
    /// Which core this is: ports are numbered in the order in which [`crossbar`] gave them.
    pub fn core(&self) -> usize {
        self.me
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.rings.len()
    }

    /// Takes up to `max` messages from each core, handing them to `take` with the number of the core they are from. How many came.
    #[inline]
    pub fn receive(&mut self, max: usize, mut take: impl FnMut(usize, T)) -> usize {
        let cores = self.rings.len();
        let first = self.first;
        self.first = if first + 1 < cores { first + 1 } else { 0 };
        let (before, from) = self.rings.split_at_mut(first);
        let mut n = 0;
        for (core, ring) in (first..cores).zip(from).chain((0..first).zip(before)) {
            n += ring.pop_batch(max, |message| take(core, message));
        }
        n
    }

    /// Whether there was no message at this moment.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.rings.iter_mut().all(Consumer::is_empty)
    }

    /// Messages from this core that wait (at least).
    ///
    /// # Panics
    /// If there is no such core.
    pub fn waiting(&mut self, from: usize) -> usize {
        self.rings[from].len()
    }

    /// This core's doorbell. Others than the crossbar may ring it, too; this core sleeps on it.
    pub fn doorbell(&self) -> &Doorbell {
        &self.bells[self.me]
    }

    /// All cores' doorbells, by core.
    pub fn doorbells(&self) -> Arc<[Doorbell]> {
        self.bells.clone()
    }

    /// Sleeps until there is a message or the doorbell is rung, or `timeout` has passed (`None`: no limit), unless `or` says that there is
    /// something else to do. [Flush](Outbox::flush) first: others may wait for us. May end early; false after `timeout` and a signal.
    pub fn sleep(&mut self, timeout: Option<Duration>, or: impl FnOnce() -> bool) -> bool {
        self.doorbell().arm(Sleep::Futex);
        // The second look: from here on every sender sees that we sleep.
        let rung = !self.is_empty() || or() || self.doorbell().wait(timeout);
        self.doorbell().disarm();
        rung
    }
}
