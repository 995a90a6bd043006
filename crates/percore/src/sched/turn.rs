//! The loop: one turn of it, what interrupts a task, and what happens when there is nothing to do.

use super::{Core, Idle, Message};
use crate::{clock, sync::spin_loop, witness};
use std::time::Duration;

/// What one source may do in one turn.
const SOURCE_BUDGET: usize = 64;

impl<M: 'static> Core<M> {
    /// The loop, until it is stopped.
    pub(super) fn turn_until_stopped(&self) {
        let mut idle_since = None;
        while !self.0.shared.is_stopped() {
            if self.turn() > 0 {
                idle_since = None;
                continue;
            }
            match self.0.settings.idle {
                Idle::Spin => spin_loop(),
                Idle::Sleep => self.nap(),
                Idle::SpinThenSleep(limit) => {
                    let now = clock::now_ns();
                    let since = *idle_since.get_or_insert(now);
                    if u128::from(now.saturating_sub(since)) < limit.as_nanos() {
                        spin_loop();
                    } else {
                        self.nap();
                        idle_since = None;
                    }
                }
            }
        }
    }

    /// Everything once, each up to its bound: what comes from outside first, so that the tasks that it makes ready run in the same turn; what
    /// they send last. How much there was to do.
    fn turn(&self) -> usize {
        let beat = self.0.shared.beat(self.number());
        beat.turn();
        let mut work = self.ask_sources();
        work += self.interrupts();
        work += self
            .0
            .tasks
            .run(self.0.settings.tasks_per_turn, beat, |task| {
                self.assert_not_critical(task);
            });
        self.settle();
        self.flush();
        work
    }

    /// Messages, remote wakes and timers: what makes tasks ready.
    pub(super) fn interrupts(&self) -> usize {
        let mut work = self.take_messages();
        work +=
            self.0.shared.remote_wakes[self.number()].drain(|task| self.0.tasks.make_ready(task));
        let mut sleepers = self.0.sleepers.borrow_mut();
        if sleepers.next_deadline().is_some() {
            let ready = |task| self.0.tasks.make_ready(task);
            work += sleepers.expire(clock::now_ns(), self.0.settings.tasks_per_turn, ready);
        }
        work
    }

    fn take_messages(&self) -> usize {
        // A handler that passes a preemption point: the messages are being taken in already.
        let (Ok(mut inbox), Ok(mut handler)) = (
            self.0.inbox.try_borrow_mut(),
            self.0.handler.try_borrow_mut(),
        ) else {
            return 0;
        };
        let most = self.0.settings.messages_per_turn;
        inbox.receive(most, |from, message| match message {
            Message::Wakeup(key) => _ = self.wakeup(key),
            Message::User(message) => handler(self, from, message),
        })
    }

    fn ask_sources(&self) -> usize {
        // A source that adds a source: it is asked from the next turn on.
        let mut sources = std::mem::take(&mut *self.0.sources.borrow_mut());
        let work = (sources.iter_mut())
            .map(|source| source(self, SOURCE_BUDGET))
            .sum();
        let mut now = self.0.sources.borrow_mut();
        sources.append(&mut now);
        *now = sources;
        work
    }

    /// Sends the wake-ups for which there was no room.
    fn settle(&self) {
        let mut owed = self.0.owed.borrow_mut();
        if owed.is_empty() {
            return;
        }
        let mut outbox = self.0.outbox.borrow_mut();
        // What is sent is no longer owed, and nothing is lost: it is asked once per turn for each.
        owed.retain(|&(core, key)| {
            !outbox.is_gone(core) && outbox.send(core, Message::Wakeup(key)).is_err()
        });
    }

    /// Sleeps until there is something to do: a message, a remote wake, a source, a deadline, the end.
    fn nap(&self) {
        witness::sleeping("the scheduler");
        if !self.0.owed.borrow().is_empty() {
            return; // a wake-up still has to be sent
        }
        let until = self.0.sleepers.borrow_mut().next_deadline();
        let timeout = until.map(|until| {
            let ns = until.saturating_sub(clock::now_ns());
            Duration::from_nanos(ns)
        });
        let beat = self.0.shared.beat(self.number());
        beat.sleeps();
        let something = || {
            let work = self.ask_sources();
            let woken = !self.0.shared.remote_wakes[self.number()].is_empty();
            work > 0 || woken || self.0.tasks.has_ready() || self.0.shared.is_stopped()
        };
        self.0.inbox.borrow_mut().sleep(timeout, something);
        beat.wakes();
    }
}

/// The end of a core, also by a panic.
pub(super) struct End<'a, M: 'static>(pub &'a Core<M>);

impl<M> Drop for End<'_, M> {
    fn drop(&mut self) {
        let core = self.0;
        core.0.shared.remote_wakes[core.number()].close();
        core.0.tasks.clear();
        core.0.sources.borrow_mut().clear();
        core.flush();
        core.0.shared.beat(core.number()).ends();
    }
}
