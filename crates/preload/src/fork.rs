//! fork(2): what is held for its time, so that the child finds it whole, and what becomes of the child.

use std::{
    cell::Cell,
    io,
    sync::{MutexGuard, RwLockWriteGuard},
};

use libc::c_int;

use crate::{
    children,
    crossing::{CROSSINGS, Crossing},
    errno,
    instances::{EPOLLS, Instance},
    lending, line, locks, notices, process, real, region, relay, shared,
    state::{SOCKETS, SocketState},
    stdio, sys, table,
};

/// Before the first number is tracked, and after a fork without a stack: the table is this process's.
pub fn claim() -> io::Result<()> {
    if process::is_tracking() && !process::is_wiped() {
        return Ok(());
    }
    let _starting = process::starting();
    claim_held()
}

/// The same, with STARTING held.
pub fn claim_held() -> io::Result<()> {
    if process::track()? {
        // SAFETY: three functions of ours, which live as long as the process.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    }
    Ok(())
}

/// What no other thread may hold at the moment of a fork, because the child needs it. It takes no memory: _Fork(3) may be called in a
/// handler that has interrupted malloc(3), or another fork, so that no handler runs meanwhile.
pub struct ForFork {
    locks: Locks,
    signals: sys::SignalsHeld,
}

struct Locks {
    _giving_back: RwLockWriteGuard<'static, ()>,
    _starting: Guard<()>,
    _threads: region::ForFork,
    _streams: stdio::ForFork,
    _sockets: table::ForFork<SocketState>,
    _instances: table::ForFork<Instance>,
    _crossings: table::ForFork<Crossing>,
    _lending: lending::ForFork,
    _relay: relay::ForFork,
    _netchan: netchan::ForFork,
}

type Guard<T> = MutexGuard<'static, T>;

thread_local! {
    /// This thread forks a process that goes on with the stack.
    static LEAVES_STACK: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<Option<ForFork>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    let all = before();
    let _ = HELD.try_with(|held| held.set(Some(all)));
}

/// Before a fork: what the child needs is held by this thread.
pub fn before() -> ForFork {
    if process::has_sockets() {
        children::before();
    }
    let signals = sys::SignalsHeld::new();
    let giving_back = locks::keeping_numbers();
    shared::prepare(); // before the locks that it takes itself
    let locks = Locks {
        _giving_back: giving_back,
        _starting: process::starting(),
        _threads: region::held_for_fork(),
        _streams: stdio::held_for_fork(),
        _sockets: SOCKETS.held_for_fork(),
        _instances: EPOLLS.held_for_fork(),
        _crossings: CROSSINGS.held_for_fork(),
        _lending: lending::held_for_fork(),
        _relay: relay::held_for_fork(), // after it: its thread wakes this one's as it ends
        _netchan: netchan::held_for_fork(),
    };
    ForFork { locks, signals }
}

/// After it, in the parent.
pub fn goes_on(held: ForFork) {
    drop(held);
}

/// After it, in the child.
pub fn begins(held: ForFork) {
    let ForFork { locks, signals } = held;
    drop(locks);
    become_child();
    drop(signals);
}

/// A fork that runs no handler of pthread_atfork(3): ours run around it.
pub fn forks(fork: impl FnOnce() -> c_int) -> c_int {
    if !process::is_tracking() {
        return fork();
    }
    let held = before();
    match fork() {
        0 => begins(held),
        child => {
            let code = errno::get();
            goes_on(held);
            errno::set(code);
            return child;
        }
    }
    0
}

fn take_held() -> Option<ForFork> {
    HELD.try_with(Cell::take).ok().flatten()
}

extern "C" fn after_fork() {
    drop(take_held());
}

/// The child has no stack: what the parent's has open is closed, so that a link ends with the parent.
extern "C" fn in_child() {
    match take_held() {
        Some(held) => begins(held),
        None => become_child(),
    }
}

/// fork(2) of a process that is to go on with the stack: nothing of it is closed there.
pub fn with_stack() -> c_int {
    LEAVES_STACK.set(true);
    // SAFETY: takes nothing.
    let child = unsafe { libc::fork() };
    LEAVES_STACK.set(false);
    child
}

/// Once more, by the child that [`with_stack`] has made: a fork that runs no handlers.
pub fn again() -> c_int {
    // SAFETY: takes nothing.
    unsafe { (real::FORK.get())() }
}

fn become_child() {
    if LEAVES_STACK.get() {
        return;
    }
    if process::is_forked() {
        let [a, b, c, d, e, f, g, h] = line::childrens_ends();
        let kept = [a, b, c, d, e, f, g, h, sys::complaints(), notices::log()];
        netchan::own::abandon(&kept);
    } else {
        let _ = claim();
    }
}
