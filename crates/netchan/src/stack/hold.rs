//! How one comes to hold a shard, and what is done before it is let go.

use std::{cell::RefCell, task::Waker};

use percore::lock::MutexGuard;
use proto::time::Instant;

use super::Stack;
use crate::{
    driver::{
        interface::{Interface, Receive},
        module::Giant,
    },
    regime::{Handoff, Holder},
    shard::Shard,
    stack::{
        cell::{Cell, Held, LinkAccess, wake_all},
        rx, tx,
    },
    trace::{
        self,
        stages::{self, Stage},
    },
};

thread_local! {
    /// Where wakers wait for the lock to be let go; keeps its capacity from call to call.
    static WOKEN: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// What is done before a call holds its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing.
    Nothing,
    /// As [`Stack::with_shard_to_send`].
    Sending,
    /// As [`Stack::with_shard_fresh`].
    Links,
}

impl Stack {
    /// Holds a shard as `before` says.
    #[inline(always)]
    pub fn with_shard_after<R: Send>(
        &self,
        before: Before,
        number: usize,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        match before {
            Before::Nothing => self.with_shard(number, f),
            Before::Sending => self.with_shard_to_send(number, f),
            Before::Links => self.with_shard_fresh(number, f),
        }
    }

    /// Holds a shard for one call of `f`: what waits in its channels and timers comes first, what `f` leads to goes out after it.
    #[inline]
    pub fn with_shard<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        self.call(number, self.clock.now(), f)
    }

    /// A socket call.
    #[inline(always)]
    fn call<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        self.hold(number, now, |held, now| {
            stages::enter(Stage::Socket);
            f(&mut held.shard, now)
        })
    }

    /// The same for a call that sends: a program that does nothing else takes in the acknowledgments by it, while no other thread does.
    #[inline]
    pub fn with_shard_to_send<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        let now = self.clock.now();
        self.look_if_away(number, now);
        self.call(number, now, f)
    }

    /// The same for calls that want what has been received: where no thread does it, the links are turned first.
    #[inline]
    pub fn with_shard_fresh<R: Send>(
        &self,
        number: usize,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        let now = self.clock.now();
        if self.threaded {
            self.look_if_away(number, now);
        } else if !self.owns_links {
            self.turn_links();
        }
        self.hold(number, now, |held, now| {
            if let LinkAccess::Own(links) = &mut held.access {
                rx::receive_own(&self.driver, &mut held.shard, links, now);
            }
            stages::enter(Stage::Socket);
            f(&mut held.shard, now)
        })
    }

    /// For the receiving side, which turns the links itself.
    #[inline]
    pub fn with_shard_at<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Shard, Instant) -> R + Send,
    ) -> R {
        self.hold(number, now, |held, now| f(&mut held.shard, now))
    }

    /// A queue's transmitting half; with a link's number, that of its first queue. Packets to ourselves and earlier timers, which only the link's turn serves, call its thread.
    pub fn with_interface<R>(&self, number: usize, f: impl FnOnce(&mut Interface) -> R) -> R {
        let _giant = self.giant.as_deref().map(Giant::enter);
        let and_take_call = |interface: &mut Interface| (f(interface), interface.take_call());
        let shared = &self.driver.queues[number];
        let (result, calls) = match &shared.halves {
            Some(halves) => and_take_call(&mut halves.interface.lock()),
            None => {
                and_take_call(&mut self.sockets.cells[0].held.lock().own_links()[number].interface)
            }
        };
        if calls {
            shared.doorbell.ring(); // the link's own thread is awake: that costs nothing
        }
        result
    }

    /// A queue's receiving half.
    pub fn with_receive<R>(&self, number: usize, f: impl FnOnce(&mut Receive) -> R) -> R {
        let _giant = self.giant.as_deref().map(Giant::enter);
        match &self.driver.queues[number].halves {
            Some(halves) => f(&mut halves.receive.lock()),
            None => f(&mut self.sockets.cells[0].held.lock().own_links()[number].receive),
        }
    }

    /// `f` is given the time to go by: no earlier than what the shard has seen. The clock was looked at before the lock was had, and meanwhile another
    /// thread may have had it; a connection's clock that goes back would send old timestamps, which the peer drops (PAWS, RFC 7323 §5.3).
    #[inline]
    pub(super) fn hold<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Held, Instant) -> R + Send,
    ) -> R {
        if self.layout.holder == Holder::Core {
            return self.hold_owned(number, now, f);
        }
        self.hold_here(number, now, f)
    }

    /// Has a core's thread do it (D1, D7). What `f` leads to goes out, and the waiters are woken, at the end of that thread's turn.
    #[cold]
    #[inline(never)]
    fn hold_owned<R: Send>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Held, Instant) -> R + Send,
    ) -> R {
        if self.stepped {
            return self.hold_here(number, now, f); // one thread is caller and server
        }
        // The wait is no work of the application's; what the call does is accounted where it runs.
        let call = |held: &mut Held| {
            let now = held.shard.no_earlier(now);
            f(held, now)
        };
        match stages::sleeping(|| self.sockets.cells[number].ask(call)) {
            Ok(result) => result,
            Err(call) => self.hold_here(number, now, |held, _| call(held)),
        }
    }

    /// Looks at a shard, without a turn.
    pub(super) fn peek<R: Send>(&self, number: usize, f: impl FnOnce(&mut Held) -> R + Send) -> R {
        let cell = &self.sockets.cells[number];
        if self.stepped {
            return f(&mut cell.held.lock());
        }
        match cell.ask(f) {
            Ok(result) => result,
            Err(f) => {
                let result = f(&mut cell.held.lock());
                self.passed_by(cell);
                result
            }
        }
    }

    #[inline]
    fn hold_here<R>(
        &self,
        number: usize,
        now: Instant,
        f: impl FnOnce(&mut Held, Instant) -> R,
    ) -> R {
        let _giant = self.giant.as_deref().map(Giant::enter);
        let cell = &self.sockets.cells[number];
        let mut held = lock(cell, number);
        let now = self.enter(cell, &mut held, now);
        let result = f(&mut held, now);
        self.leave(cell, held, now);
        result
    }

    // Whatever does not depend on `f` is code of its own: inlined into every socket call it would not fit the instruction
    // cache (a connection's life cost 2,000 misses of it).

    /// The beginning of a turn; the time that it goes by.
    #[inline(always)]
    pub(super) fn enter(&self, cell: &Cell, held: &mut Held, now: Instant) -> Instant {
        let now = held.shard.no_earlier(now);
        if self.layout.holder == Holder::Application {
            rx::take_received(held, now);
        } else if cell.backlog.is_some() {
            Self::take_backlog(cell, held, now);
        }
        if held.shard.timers_are_due(now) {
            held.shard.run_timers(now);
        }
        now
    }

    #[inline(never)]
    pub(super) fn leave(&self, cell: &Cell, held: MutexGuard<'_, Held>, now: Instant) {
        if cell.backlog.is_some() {
            return self.leave_backlog(cell, held, now);
        }
        self.let_go(cell, held, now);
    }

    #[inline(always)]
    pub(super) fn let_go(&self, cell: &Cell, held: MutexGuard<'_, Held>, now: Instant) {
        if trace::is_watched() {
            return self.let_go_watched(cell, held, now);
        }
        self.let_go_as::<false>(cell, held, now);
    }

    /// The same while that is watched: with marks for the trace and the stages.
    #[cold]
    #[inline(never)]
    fn let_go_watched(&self, cell: &Cell, held: MutexGuard<'_, Held>, now: Instant) {
        stages::enter(Stage::Protocol);
        let number = held.shard.number() as u64;
        self.let_go_as::<true>(cell, held, now);
        trace::detail(trace::TURN_END, [number]);
        stages::end_of_turn();
    }

    #[inline(always)]
    fn let_go_as<const WATCHED: bool>(
        &self,
        cell: &Cell,
        mut held: MutexGuard<'_, Held>,
        now: Instant,
    ) {
        held.shard.finish(now);
        let (number, mut to_send, mut is_stuck) = (held.shard.number(), 0, false);
        let has_output = held.shard.has_output();
        if has_output {
            if WATCHED {
                sends(&held.shard);
            }
            to_send = tx::hand_out(self, &mut held, now);
            is_stuck = !held.shard.requests.is_empty();
        }
        if percore::checks::INVARIANTS {
            held.check();
        }
        let earlier = cell.publish_timer(held.shard.next_timer(now));
        if held.shard.woken.is_empty() && held.shard.passed.is_empty() {
            drop(held);
        } else {
            self.let_go_and_wake(held, now);
        }
        if is_stuck {
            self.heed_requests(); // the next turn hands out the rest
        }
        if to_send != 0 {
            self.send_or_hold(number, to_send, now);
        } else if has_output && self.layout.handoff == Handoff::Call {
            self.tell_of_links(now); // what was sent in this call may have found one gone
        }
        if earlier && self.threaded {
            self.timer_moved(cell);
        }
    }

    /// Frees the lock, then wakes what is to be woken: before that they would wake up only to wait for it. (A function of its own: what it needs of
    /// registers the others need not save.)
    #[inline(never)]
    fn let_go_and_wake(&self, mut held: MutexGuard<'_, Held>, now: Instant) {
        // A thread in its last moments (an exit handler, the end of a thread-local value) has none of its own any more.
        let mut woken = WOKEN.try_with(RefCell::take).unwrap_or_default();
        std::mem::swap(&mut woken, &mut held.shard.woken);
        let passed = std::mem::take(&mut held.shard.passed);
        held.shard.samples.woke();
        drop(held);
        if !passed.is_empty() {
            self.pass_on(passed, now);
        }
        let before = stages::enter(Stage::Scheduler);
        wake_all(&mut woken);
        stages::back(before);
        let _ = WOKEN.try_with(|place| place.replace(woken));
    }

    /// A timer became due earlier than the thread that sleeps for it knows.
    #[cold]
    #[inline(never)]
    fn timer_moved(&self, cell: &Cell) {
        match self.layout.holder {
            // A leader sleeps on the first shard's doorbell; one that is away comes back, or the first link's thread takes over. The fence of that ring
            // comes between the timer and the look at the leader; its partner is the one of `arm`, between that thread's take-over and its look at timers.
            Holder::Anyone => {
                self.sockets.cells[0].doorbell.ring();
                if !self.driver.lane_of_shard(0).leader.is_led() {
                    self.driver.call_first_link();
                }
            }
            // The background poller looks at the timers by itself, every tick, if it does not rest.
            Holder::Application if !cell.leader.is_led() => {
                if !self.awaits_link_leader() {
                    self.sockets.background.wake_for_timer(cell.next_timer());
                }
            }
            Holder::Application | Holder::Network => {
                cell.doorbell.ring();
            }
            // The thread that moved it looks at it before the next sleep.
            Holder::Core => {}
        }
    }
}

/// Takes a shard's lock.
#[inline(always)]
pub(super) fn lock(cell: &Cell, number: usize) -> MutexGuard<'_, Held> {
    if trace::is_watched() {
        lock_watched(cell, number)
    } else {
        cell.held.lock()
    }
}

/// Takes a shard's lock, unless another thread has it.
#[inline]
pub(super) fn try_lock(cell: &Cell, number: usize) -> Option<MutexGuard<'_, Held>> {
    let held = cell.held.try_lock()?;
    if trace::is_watched() {
        stages::begin_of_turn();
        taken(number);
    }
    Some(held)
}

/// Takes a shard's lock, and says how long that took if another thread had it.
#[cold]
#[inline(never)]
fn lock_watched(cell: &Cell, number: usize) -> MutexGuard<'_, Held> {
    stages::begin_of_turn();
    let held = cell.held.try_lock().unwrap_or_else(|| {
        let since = percore::clock::now_ns();
        let held = cell.held.lock();
        let waited = percore::clock::now_ns().saturating_sub(since);
        trace::detail(trace::LOCK_WAITED, [number as u64, waited]);
        held
    });
    taken(number);
    held
}

/// Marks, while that is watched, that a turn begins.
fn taken(number: usize) {
    trace::detail(trace::TURN_BEGIN, [number as u64]);
    stages::enter(Stage::Protocol);
}

/// Marks, while that is watched, that a shard sends.
fn sends(shard: &Shard) {
    for (link, outbox) in shard.outboxes.iter().enumerate() {
        let packets = outbox.len() as u64;
        if packets > 0 {
            let shard = shard.number() as u64;
            trace::detail(trace::SENT, [shard, packets, link as u64]);
        }
    }
    stages::enter(Stage::Link);
}
