//! The attendant of channel-fed shards: turns those where no thread sits.
//!
//! Each such shard has a *line* to the attendant. While the line is open, a thread that puts a packet into one of the shard's channels calls the
//! attendant; while it is closed the packet waits for the owner's next call. A line is opened
//! * of several shards, by a thread that waits for several sockets, or in an event loop of its own, and so sits nowhere ([`Stack::hand_over`]);
//! * by a thread that gets up while others stand, waiting for the same shard;
//! * by the attendant, for a shard where no thread has sat for two ticks;
//! * by the attendant, for a packet that no connection has asked for: a SYN, which no thread waits for in the shard that it was given.
//!
//! It is closed by a thread that sits down. The attendant looks at seats a hundred times a second; where for two ticks no seat was free,
//! or changed hands, it rests until it is told of a free one, of a shard that was handed over, or of a timer that is due earlier than it knows.

use std::time::Duration;

use percore::doorbell::Sleep;
use proto::time::Instant;

use super::{
    Stack,
    cell::Cell,
    seat::Seat,
    sleep::{TICK, asleep, timeout},
    watch,
};
use crate::limits::SHARDS_MAX;

impl Stack {
    /// Leaves a shard to the attendant, unless a thread sits there: then it is left when that thread gets up. For threads that
    /// wait without sitting down; they look into the shard after this.
    pub fn hand_over(&self, number: usize) {
        let cell = &self.sockets.cells[number];
        if let Some(line) = &cell.line
            && cell.seat.hand_over()
        {
            line.open();
            self.sockets.attendant.tell(); // its timers
        }
    }

    /// Leaves a shard to the attendant, if no thread sits there; whether it has it now. The caller looks into the shard after this.
    pub fn leave_to_attendant(&self, number: usize) -> bool {
        let cell = &self.sockets.cells[number];
        match &cell.line {
            Some(line) if cell.seat.attend() => {
                line.open();
                self.sockets.attendant.tell(); // its timers
                true
            }
            _ => false,
        }
    }

    /// Turns a shard on the attendant's behalf, if no thread sits there, and leaves its line open.
    fn serve(&self, number: usize) {
        if self.leave_to_attendant(number) {
            self.turn_for_attendant(number);
        }
    }
}

/// The attendant's life.
pub(crate) fn attend(stack: &Stack) {
    let bell = &stack.sockets.attendant.bell;
    let mut rounds = Rounds::new(stack.clock.now());
    while !stack.is_stopping() {
        let now = stack.clock.now();
        watch::turning(now);
        if rounds.turn(stack, now).0 {
            continue;
        }
        bell.arm(Sleep::Futex);
        // Once more after arming: what came before it may not have rung.
        let now = stack.clock.now();
        let (called, until) = rounds.turn(stack, now);
        let until = if called {
            now
        } else {
            rounds.rest(stack, until)
        };
        if until > now && !stack.is_stopping() {
            watch::asleep(now);
            asleep(stack, until, now, || bell.wait(timeout(until, now)));
        }
        bell.disarm();
        stack.sockets.attendant.gate().open();
    }
}

/// The attendant's rounds.
pub(crate) struct Rounds {
    /// For how many ticks no thread has sat there.
    free: [u8; SHARDS_MAX],
    next_tick: Instant,
    /// The timers of the shards that it has.
    next_timer: Instant,
    /// How often seats had been taken by the last tick, all together; wraps.
    terms: u32,
    /// Between the last two ticks none was, nor was one free.
    is_quiet: bool,
}

impl Rounds {
    /// The first begins now.
    pub const fn new(now: Instant) -> Self {
        Self {
            free: [0; SHARDS_MAX],
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

    /// Serves the shards that called and what is due. Whether any called, and when the next round is due.
    pub fn turn(&mut self, stack: &Stack, now: Instant) -> (bool, Instant) {
        let mut calls = stack.sockets.attendant.take_calls();
        let called = calls != 0;
        while calls != 0 {
            stack.serve(calls.trailing_zeros() as usize);
            calls &= calls - 1;
        }
        if now >= self.next_tick || stack.sockets.is_attended() {
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
        let seats = || stack.sockets.cells.iter().map(|cell| &cell.seat);
        let terms = seats().fold(0, |sum: u32, seat| sum.wrapping_add(seat.terms()));
        self.is_quiet = terms == self.terms && !seats().any(Seat::is_free);
        self.terms = terms;
    }

    /// When the attendant, which has nothing to do until `until`, is to wake: without ticks, if nothing happens.
    fn rest(&self, stack: &Stack, until: Instant) -> Instant {
        if !self.is_quiet {
            return until;
        }
        stack.sockets.attendant.gate().close(self.next_timer.0);
        // Of what changed before that it was not told.
        if stack.sockets.cells.iter().any(|cell| cell.seat.is_free()) {
            return until;
        }
        let attended = stack
            .sockets
            .cells
            .iter()
            .filter(|cell| cell.seat.is_attended());
        let timers = attended.map(Cell::next_timer);
        timers.fold(self.next_timer, Instant::min)
    }
}

/// Takes a shard where no thread has sat for two ticks.
fn tick(stack: &Stack, number: usize, free: &mut u8) {
    if !stack.sockets.cells[number].seat.is_free() {
        *free = 0;
        return;
    }
    *free += 1;
    if *free >= 2 || stack.sockets.is_attended() {
        *free = 0;
        stack.serve(number);
    }
}

/// Serves the timers of shards where no thread sits; when the next one is due.
fn serve_timers(stack: &Stack, now: Instant) -> Instant {
    let mut next = Instant::FAR;
    for (number, cell) in stack.sockets.cells.iter().enumerate() {
        if cell.next_timer() <= now && !cell.seat.is_taken() {
            stack.turn_for_attendant(number);
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
