//! The attendant of channel-fed shards: turns those that nobody sits at.
//!
//! Each such shard has a *line* to the attendant. While the line is open, whoever puts a packet into one of the shard's channels calls the
//! attendant; while it is closed the packet waits for the owner's next call. A line is opened
//! * of several shards, by who waits for several sockets, or in an event loop of its own, and so sits nowhere ([`Stack::hand_over`]);
//! * by who gets up while others stand, waiting for the same shard;
//! * by the attendant, for a shard where nobody has sat for two ticks;
//! * by the attendant, for a packet that no connection has asked for: a SYN, which nobody waits for in the shard that it was given.
//!
//! It is closed by who sits down. A silent shard costs a look at its seat and its next timer, a hundred times a second.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

use percore::doorbell::{Doorbell, Sleep};
use proto::time::Instant;

use super::wait::{TICK, asleep};
use crate::{
    regime::{Holder, Layout, SHARDS_MAX},
    stack::Stack,
    watch,
};

/// How the attendant is called.
#[derive(Debug)]
pub struct Attendant {
    /// Rung to wake it.
    pub bell: Doorbell,
    /// Shards that called (a bit each).
    calls: AtomicU64,
}

impl Attendant {
    /// An attendant whom nobody calls yet.
    ///
    /// # Errors
    /// When the process has no descriptor left for its doorbell.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            bell: Doorbell::new()?,
            calls: AtomicU64::new(0),
        })
    }
}

/// A shard's line to the attendant.
#[derive(Debug)]
pub struct Line {
    attendant: Arc<Attendant>,
    shard: usize,
    open: AtomicBool,
}

impl Line {
    /// The line of shard number `shard`, closed.
    pub const fn new(attendant: Arc<Attendant>, shard: usize) -> Self {
        Self {
            attendant,
            shard,
            open: AtomicBool::new(false),
        }
    }

    /// The line of each shard that is the application's to turn.
    pub fn of_each(layout: Layout, attendant: &Arc<Attendant>) -> Vec<Option<Arc<Self>>> {
        let line = |number| Arc::new(Self::new(attendant.clone(), number));
        let attended = layout.holder == Holder::Application;
        (0..layout.shards)
            .map(|number| attended.then(|| line(number)))
            .collect()
    }

    /// Packets were put into a channel, and the shard's doorbell was rung after that: calls the attendant if the line is open, or `anyway`.
    #[inline]
    pub fn ring(&self, anyway: bool) {
        // Relaxed: ordered by the fence in the doorbell's `ring`; partner: the fence in `open`. Either we see the line open, or who
        // opened it sees the packets.
        if anyway || self.open.load(Relaxed) {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        // One call for each time that it is opened. SeqCst: before `calls`, so that who finds the call may open it again.
        self.open.store(false, SeqCst);
        // SeqCst: pairs with `take_calls`.
        self.attendant.calls.fetch_or(1 << self.shard, SeqCst);
        self.attendant.bell.ring();
    }

    /// Opens it; the caller looks into the channels after that.
    pub fn open(&self) {
        self.open.store(true, Relaxed);
        fence(SeqCst); // partner: the fence in the doorbell's `ring`, before our `ring`
    }

    /// Closes it. A call that is on its way finds somebody sitting there.
    pub fn close(&self) {
        // Relaxed: late, it costs a call for nothing.
        self.open.store(false, Relaxed);
    }
}

impl Stack {
    /// Leaves a shard to the attendant, unless somebody sits there: then it will be left to it when that one gets up. For those who
    /// wait without sitting down; they look into the shard after this.
    pub fn hand_over(&self, number: usize) {
        let cell = &self.cells[number];
        if let Some(line) = &cell.line
            && cell.seat.hand_over()
        {
            line.open();
        }
    }

    /// Leaves a shard to the attendant, if nobody sits there; whether it has it now. The caller looks into the shard after this.
    pub fn leave_to_attendant(&self, number: usize) -> bool {
        let cell = &self.cells[number];
        match &cell.line {
            Some(line) if cell.seat.attend() => {
                line.open();
                true
            }
            _ => false,
        }
    }

    /// Turns a shard on the attendant's behalf, if nobody sits there, and leaves its line open.
    fn serve(&self, number: usize) {
        if self.leave_to_attendant(number) {
            self.turn_shard(number);
        }
    }
}

/// The attendant's life.
pub(crate) fn attend(stack: &Stack) {
    let bell = &stack.attendant.bell;
    let mut rounds = Rounds::new(stack.clock.now());
    while !stack.is_stopping() {
        let now = stack.clock.now();
        watch::turning(now);
        if rounds.turn(stack, now).0 {
            continue;
        }
        bell.arm(Sleep::Futex);
        // Once more after arming: what came before it may have rung nobody.
        let now = stack.clock.now();
        let (called, until) = rounds.turn(stack, now);
        if !called && until > now && !stack.is_stopping() {
            watch::asleep(now);
            asleep(stack, until, now, || bell.wait(Some(until.since(now))));
        }
        bell.disarm();
    }
}

/// The attendant's rounds.
pub(crate) struct Rounds {
    /// For how many ticks nobody has sat there.
    free: [u8; SHARDS_MAX],
    next_tick: Instant,
}

impl Rounds {
    /// The first begins now.
    pub const fn new(now: Instant) -> Self {
        Self {
            free: [0; SHARDS_MAX],
            next_tick: now,
        }
    }

    /// When the next tick is due.
    pub const fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Serves who called and what is due. Whether somebody called, and when the next round is due.
    pub fn turn(&mut self, stack: &Stack, now: Instant) -> (bool, Instant) {
        // SeqCst: pairs with `call`; after the bell's `arm`, so that a call which is not seen here rings.
        let mut calls = stack.attendant.calls.swap(0, SeqCst);
        let called = calls != 0;
        while calls != 0 {
            stack.serve(calls.trailing_zeros() as usize);
            calls &= calls - 1;
        }
        if now >= self.next_tick || stack.is_attended() {
            self.next_tick = now + TICK;
            for (number, free) in self.free.iter_mut().enumerate().take(stack.cells.len()) {
                tick(stack, number, free);
            }
        }
        (called, serve_timers(stack, now).min(self.next_tick))
    }
}

/// Takes a shard where nobody has sat for two ticks.
fn tick(stack: &Stack, number: usize, free: &mut u8) {
    if !stack.cells[number].seat.is_free() {
        *free = 0;
        return;
    }
    *free += 1;
    if *free >= 2 || stack.is_attended() {
        *free = 0;
        stack.serve(number);
    }
}

/// Serves the timers of shards where nobody sits; when the next one is due.
fn serve_timers(stack: &Stack, now: Instant) -> Instant {
    let mut next = Instant::FAR;
    for (number, cell) in stack.cells.iter().enumerate() {
        if cell.next_timer() <= now && !cell.seat.is_taken() {
            stack.turn_shard(number);
        }
        if cell.seat.is_attended() {
            // As of the turn that may just have been.
            next = next.min(cell.next_timer().max(now + LEAST));
        }
    }
    next
}

/// Between two looks at timers: a shard that another thread is about to serve must not keep the attendant awake.
const LEAST: Duration = Duration::from_millis(1);
