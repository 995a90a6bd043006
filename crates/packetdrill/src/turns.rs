//! Whose turn it is: packetdrill makes blocking calls from a second thread while its first one feeds packets and lets time pass.
//!
//! Real time must not show. So the world moves only while every other thread rests: waits for the world to
//! move, or is outside. One that was woken and comes back from its call is waited for until it has asked what time it is, which packetdrill
//! does first of all to see whether the call took as long as the script says.

use std::{
    cell::Cell,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, ThreadId},
    time::Duration,
};

/// How long, in real time, a thread waits for another: long enough for a busy machine, short enough for a test that has gone wrong.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Turns {
    /// Moves of the world.
    moves: u64,
    /// Threads that are at work inside.
    busy: usize,
    /// Threads that wait for the next move.
    resting: usize,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns {
    moves: 0,
    busy: 0,
    resting: 0,
});
static CHANGED: Condvar = Condvar::new();
static RETURNED: AtomicBool = AtomicBool::new(false);
static FIRST: OnceLock<ThreadId> = OnceLock::new();

thread_local! {
    /// In a call through the table.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The call had to wait.
    static WAITED: Cell<bool> = const { Cell::new(false) };
    /// It came back, and has not asked for the time since.
    static OWES: Cell<bool> = const { Cell::new(false) };
}

fn lock() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread is the one that does what is not waited for: its own waits are for time alone.
pub fn begin() {
    let _ = FIRST.set(thread::current().id()); // one script a process: the first one stays
}

/// Whether it is.
pub fn is_first() -> bool {
    FIRST
        .get()
        .is_none_or(|first| *first == thread::current().id())
}

/// Runs a call of the table.
pub fn inside<T>(call: impl FnOnce() -> T) -> T {
    if is_first() {
        return call();
    }
    paid();
    lock().busy += 1;
    INSIDE.set(true);
    WAITED.set(false);
    let result = call();
    INSIDE.set(false);
    if WAITED.get() {
        OWES.set(true);
    } else {
        rest();
    }
    result
}

/// One thread at work less.
fn rest() {
    let mut turns = lock();
    turns.busy = turns.busy.saturating_sub(1);
    CHANGED.notify_all();
}

/// The calling thread has asked for the time: whether others waited for that.
pub fn paid() -> bool {
    let owed = OWES.replace(false);
    if owed {
        RETURNED.store(true, Relaxed); // read once the first thread has been told to go on
        rest();
    }
    owed
}

/// Whether another thread has come back from a call since this was last asked. What it does then is packetdrill's own business, behind a
/// lock of packetdrill's that the first thread leaves free only while it sleeps: it must sleep in earnest.
pub fn took_result() -> bool {
    RETURNED.swap(false, Relaxed)
}

/// Waits until all other threads rest. Called before the world moves.
pub fn settle() {
    let turns = lock();
    let waited = CHANGED.wait_timeout_while(turns, PATIENCE, |turns| turns.busy > 0);
    let (mut turns, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    if timeout.timed_out() {
        turns.busy = 0; // the busy thread does not come back: the script decides what that means
    }
}

/// The world has moved: each thread that rests looks again, and all have done so when this returns.
pub fn moved() {
    let mut turns = lock();
    turns.moves += 1;
    turns.busy += std::mem::take(&mut turns.resting);
    drop(turns);
    CHANGED.notify_all();
    settle();
}

/// Rests until the world moves; false if it does not within `PATIENCE`.
pub fn await_move() -> bool {
    WAITED.set(true);
    let mut turns = lock();
    let seen = turns.moves;
    turns.resting += 1;
    if INSIDE.get() {
        turns.busy = turns.busy.saturating_sub(1);
    }
    CHANGED.notify_all();
    let waited = CHANGED.wait_timeout_while(turns, PATIENCE, |turns| turns.moves == seen);
    let (mut turns, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    if timeout.timed_out() {
        turns.resting = turns.resting.saturating_sub(1);
        turns.busy += 1;
        return false;
    }
    if !INSIDE.get() {
        turns.busy = turns.busy.saturating_sub(1); // came past the table: no thread waits for its return
        CHANGED.notify_all();
    }
    true
}
