//! Shards with a backlog (F5, dispatch `hybrid`): how a link comes by without waiting, and how a shard's holder does what was left to it.
//!
//! [`percore::lock::Backlog`] says what each has to do so that nothing is stranded: a holder of a shard takes its backlog, and a thread that lets
//! go of one looks again. `Stack::hold_here` does both; a thread that only looks at a shard without a turn calls the first link's thread instead.

#[cfg(test)]
mod tests;

use percore::lock::{Backlog, MutexGuard};
use proto::time::Instant;

use super::{
    Stack,
    hold::{lock, try_lock},
};
use crate::{
    shard::Shard,
    stack::{
        cell::{Cell, Held},
        rx,
    },
};

/// How often a thread that has let go of a shard takes it again for what was left meanwhile, before that is handed on to the first link's
/// thread: a link that brings packets without end does not keep a socket call from its end.
const ROUNDS: usize = 4;

impl Stack {
    /// The receiving side's turn of a shard, unless another thread holds it: then `f` is not called.
    #[inline]
    pub fn try_shard_at(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Shard, Instant),
    ) -> bool {
        let cell = &self.sockets.cells[number];
        let Some(mut held) = try_lock(cell, number) else {
            return false;
        };
        let now = self.enter(cell, &mut held, now);
        f(&mut held.shard, now);
        self.leave(cell, held, now);
        true
    }

    /// Packets were put into a shard's backlog, because another thread holds it. If that is over, it is the caller's turn.
    pub fn leave_with_holder(&self, number: usize, now: Instant) {
        let cell = &self.sockets.cells[number];
        let Some(backlog) = &cell.backlog else { return };
        if let Some(mut held) = backlog.leave(|| try_lock(cell, number)) {
            let now = self.enter(cell, &mut held, now);
            self.leave(cell, held, now);
        }
    }

    /// For a shard's holder: what was left to it.
    #[inline(never)]
    pub(super) fn take_backlog(cell: &Cell, held: &mut Held, now: Instant) {
        if cell.backlog.as_ref().is_some_and(Backlog::take) {
            rx::take_backlog(held, now);
        }
    }

    /// The end of a turn of a shard with a backlog.
    #[inline(never)]
    pub(super) fn leave_backlog(&self, cell: &Cell, mut held: MutexGuard<'_, Held>, now: Instant) {
        let number = held.shard.number();
        Self::take_backlog(cell, &mut held, now);
        self.let_go(cell, held, now);
        let Some(backlog) = &cell.backlog else { return };
        for _ in 0..ROUNDS {
            let Some(mut held) = backlog.look(|| try_lock(cell, number)) else {
                return;
            };
            // What was left came later than the turn began.
            let now = self.clock.now();
            let now = self.enter(cell, &mut held, now);
            self.let_go(cell, held, now);
        }
        self.passed_by(cell);
    }

    /// After an unlock without a turn: if something was left meanwhile, the first link's thread takes it.
    pub fn passed_by(&self, cell: &Cell) {
        if let Some(backlog) = &cell.backlog {
            // Another thread may hold it by now, and will look, too: then the call is for nothing.
            if backlog.look(|| Some(())).is_some() {
                self.driver.call_first_link();
            }
        }
    }

    /// The first link's thread: timers, and what links left that passed by. It waits for a shard only for its timers, and only if it is not
    /// `busy`.
    pub(super) fn look_after_shards(&self, now: Instant, busy: bool) {
        self.take_backlogs(now);
        for (number, cell) in self.sockets.cells.iter().enumerate() {
            if cell.next_timer() > now {
                continue;
            }
            if busy {
                self.try_shard_at(number, now, |_, _| ());
            } else {
                self.hold(number, now, |_, _| ());
            }
        }
    }

    /// Takes the backlogs of shards that no thread holds. A holder does it, too.
    pub fn take_backlogs(&self, now: Instant) {
        for (number, cell) in self.sockets.cells.iter().enumerate() {
            if cell.backlog.as_ref().is_some_and(Backlog::is_waiting) {
                self.try_shard_at(number, now, |_, _| ());
            }
        }
    }

    /// Turns a link while the caller holds a shard with a backlog (`steps`).
    pub fn turn_link_while_held(&self, link: usize, shard: usize, now: Instant) -> bool {
        let cell = &self.sockets.cells[shard];
        let Some(halves) = &self.driver.queues[link].halves else {
            return false;
        };
        if cell.backlog.is_none() {
            return false; // its thread would wait
        }
        // One thread stands for two here: in the order of its locks, the link comes first.
        let mut side = halves.receive.lock();
        let mut held = lock(cell, shard);
        let now = self.enter(cell, &mut held, now);
        let work = self.turn_halves(link, &mut side, &halves.interface, now);
        self.leave(cell, held, now);
        self.tell_if_gone(link, now);
        work
    }
}
