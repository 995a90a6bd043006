//! The background poller: the thread that turns the channel-fed shards which no thread of the application leads.
//!
//! Each such shard has a *background call*. While the call is armed, a thread that puts a packet into one of the shard's channels calls the
//! background poller; while it is not, the packet waits for the shard's leader, or for the application's next call. A call is armed
//! * where there are several shards, by a thread that waits for several sockets, or in an event loop of its own, and so leads no shard
//!   ([`Stack::hand_over`]);
//! * by a thread that stops leading while others follow, waiting for the same shard;
//! * by the background poller, for a shard that no thread has led for two ticks, nor turned by a call that looked at the links;
//! * by the background poller, for a packet that no connection has asked for: a SYN, which no thread waits for in the shard that it was given.
//!
//! A thread that comes to lead the shard disarms it. The background poller looks at the shards' leaders a hundred times a second; where for two ticks
//! no shard was without one, or changed its leader, it rests until it is woken for a shard that was left, for one that was handed over, or for a
//! timer that is due earlier than it knows.

use std::time::Duration;

use percore::doorbell::Sleep;
use proto::time::Instant;

use super::{
    Stack,
    cell::Cell,
    shard_leader::ShardLeader,
    sleep::{TICK, asleep, timeout},
    watch,
};
use crate::limits::SHARDS_MAX;

impl Stack {
    /// Leaves a shard to the background poller; one that a thread leads, when that thread stops. For threads that wait and lead no shard; they look
    /// into the shard after this.
    pub fn hand_over(&self, number: usize) {
        let cell = &self.sockets.cells[number];
        if let Some(call) = &cell.background_call
            && cell.leader.hand_over()
        {
            call.arm();
            self.sockets.background.wake(); // its timers
        }
    }

    /// Leaves a shard to the background poller, if no thread leads it; whether the background poller has it now. The caller looks into the shard
    /// after this.
    pub fn leave_to_background(&self, number: usize) -> bool {
        let cell = &self.sockets.cells[number];
        match &cell.background_call {
            Some(call) if cell.leader.leave_to_background() => {
                call.arm();
                self.sockets.background.wake(); // its timers
                true
            }
            _ => false,
        }
    }

    /// Turns a shard in the background poller, if no thread leads it, and leaves its call armed.
    fn serve(&self, number: usize) {
        if self.leave_to_background(number) {
            self.turn_in_background(number);
        }
    }
}

/// Runs the background poller until the stack stops.
pub(crate) fn poll(stack: &Stack) {
    let bell = &stack.sockets.background.bell;
    let mut background = BackgroundLoop::new(stack.clock.now());
    while !stack.is_stopping() {
        let now = stack.clock.now();
        watch::turning(now);
        if background.turn(stack, now).0 {
            continue;
        }
        bell.arm(Sleep::Futex);
        // Once more after arming: what came before it may not have rung.
        let now = stack.clock.now();
        let (called, until) = background.turn(stack, now);
        let until = if called {
            now
        } else {
            background.rest(stack, until)
        };
        if until > now && !stack.is_stopping() {
            watch::asleep(now);
            asleep(stack, until, now, || bell.wait(timeout(until, now)));
        }
        bell.disarm();
        stack.sockets.background.gate().open();
    }
}

/// For how long a shard has had no leader.
#[derive(Clone, Copy)]
struct Free {
    ticks: u8,
    /// How often threads had come to lead it, or turned it, by the last tick; wraps.
    terms: u32,
}

impl Free {
    const NOT: Self = Self { ticks: 0, terms: 0 };
}

/// The background poller's loop, a turn at a time.
pub(crate) struct BackgroundLoop {
    free: [Free; SHARDS_MAX],
    next_tick: Instant,
    /// When the timers of the shards that the background poller has are due.
    next_timer: Instant,
    /// How often threads had come to lead a shard by the last tick, all shards together; wraps.
    terms: u32,
    /// Between the last two ticks no thread came to lead a shard, nor was one without a leader.
    is_quiet: bool,
}

impl BackgroundLoop {
    /// A loop whose first tick is due now.
    pub const fn new(now: Instant) -> Self {
        Self {
            free: [Free::NOT; SHARDS_MAX],
            next_tick: now,
            next_timer: Instant::FAR,
            terms: 0,
            is_quiet: false,
        }
    }

    /// When the next tick is due.
    pub const fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Serves the shards that called and what is due. Whether any called, and when the next turn is due.
    pub fn turn(&mut self, stack: &Stack, now: Instant) -> (bool, Instant) {
        let mut calls = stack.sockets.background.take_calls();
        let called = calls != 0;
        while calls != 0 {
            stack.serve(calls.trailing_zeros() as usize);
            calls &= calls - 1;
        }
        if now >= self.next_tick || stack.sockets.polls_in_background() {
            self.next_tick = now + TICK;
            for (number, free) in self
                .free
                .iter_mut()
                .enumerate()
                .take(stack.sockets.cells.len())
            {
                tick(stack, number, free);
            }
            self.look_for_quiet(stack);
        }
        self.next_timer = serve_timers(stack, now);
        (called, self.next_timer.min(self.next_tick))
    }

    fn look_for_quiet(&mut self, stack: &Stack) {
        let leaders = || stack.sockets.cells.iter().map(|cell| &cell.leader);
        let terms = leaders().fold(0, |sum: u32, leader| sum.wrapping_add(leader.terms()));
        self.is_quiet = terms == self.terms && !leaders().any(ShardLeader::is_free);
        self.terms = terms;
    }

    /// When the background poller, which has nothing to do until `until`, is to wake: without ticks, if nothing happens.
    fn rest(&self, stack: &Stack, until: Instant) -> Instant {
        if !self.is_quiet {
            return until;
        }
        stack.sockets.background.gate().close(self.next_timer.0);
        // For what changed before that it was not woken.
        if stack.sockets.cells.iter().any(|cell| cell.leader.is_free()) {
            return until;
        }
        let in_background = stack
            .sockets
            .cells
            .iter()
            .filter(|cell| cell.leader.is_in_background());
        let timers = in_background.map(Cell::next_timer);
        timers.fold(self.next_timer, Instant::min)
    }
}

/// Takes a shard that has had no leader for two ticks.
fn tick(stack: &Stack, number: usize, free: &mut Free) {
    let leader = &stack.sockets.cells[number].leader;
    let terms = leader.terms();
    if !leader.is_free() || terms != free.terms {
        *free = Free { ticks: 0, terms };
    }
    if !leader.is_free() {
        return;
    }
    free.ticks += 1;
    if free.ticks >= 2 || stack.sockets.polls_in_background() {
        free.ticks = 0;
        stack.serve(number);
    }
}

/// Serves the timers of shards that no thread leads; when the next one is due.
fn serve_timers(stack: &Stack, now: Instant) -> Instant {
    let mut next = Instant::FAR;
    for (number, cell) in stack.sockets.cells.iter().enumerate() {
        if cell.next_timer() <= now && !cell.leader.is_led() {
            stack.turn_in_background(number);
        }
        if cell.leader.is_in_background() {
            // As of the turn that may just have been.
            next = next.min(cell.next_timer().max(now + LEAST));
        }
    }
    next
}

/// Between two looks at timers: a shard that another thread is about to serve must not keep the background poller awake.
const LEAST: Duration = Duration::from_millis(1);
