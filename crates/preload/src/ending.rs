//! The end of the process that has the stack, however it comes: the kernel would close its sockets in good order, and so do we.
//!
//! After `exit` the exit handlers do it. _exit(2) may be called where nothing may be locked (a signal handler that has interrupted malloc(3)), as
//! may the handler that stands for SIG_DFL of the signals by which people end programs: there another thread does it, and is waited for.

use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use libc::c_int;

use crate::{line, process, real, sys};

/// How long a program that ends waits for what it has sent to be acknowledged.
pub const DRAIN: Duration = Duration::from_secs(5);

/// How long is waited for the other thread: what it takes at most, and a second.
const PATIENCE: Duration = Duration::from_secs(DRAIN.as_secs() + 1);
const STEP: Duration = Duration::from_millis(1);

static ASKED: AtomicBool = AtomicBool::new(false);
static DONE: AtomicBool = AtomicBool::new(false);

/// Whether this process is to end, asked by the thread that hears.
pub fn is_asked() -> bool {
    ASKED.load(Acquire) // pairs with Release in finish
}

/// In a process that goes on with the stack of one that was about to end: it is not.
pub fn is_anothers() {
    ASKED.store(false, Relaxed); // before there is a thread that hears
}

/// In a child that begins anew.
pub fn begin_anew() {
    is_anothers();
    DONE.store(false, Relaxed);
    DYING.store(false, Relaxed);
}

/// The sockets are closed.
pub fn done() {
    DONE.store(true, Release); // pairs with Acquire in finish
}

/// Before the process ends without exit handlers: its sockets are closed, and peers have what was sent. Takes no lock and no memory.
pub fn finish() {
    if !process::has_sockets() || DONE.load(Acquire) {
        return;
    }
    ASKED.store(true, Release); // pairs with Acquire in is_asked
    if !line::wake() {
        return;
    }
    let steps = PATIENCE.as_nanos() / STEP.as_nanos();
    for _ in 0..steps {
        if DONE.load(Acquire) {
            return;
        }
        sys::nap(STEP);
    }
}

/// The signals by which people, terminals and service managers end a program.
pub const SIGNALS: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

static DYING: AtomicBool = AtomicBool::new(false);

/// Whether a handler of ours stands for SIG_DFL of `signal`. Not in the first process of a namespace, which no SIG_DFL ends.
pub fn stands_for_default(signal: c_int) -> bool {
    SIGNALS.contains(&signal) && process::running().is_some() && sys::pid() != 1
}

/// As SIG_DFL would; a second one does not wait for the first.
pub fn by_default(signal: c_int) {
    if !SIGNALS.contains(&signal) {
        return;
    }
    if !DYING.swap(true, Relaxed) {
        finish();
    }
    // SAFETY: zeroed is SIG_DFL with no flags.
    let action = unsafe { std::mem::zeroed::<libc::sigaction>() };
    // SAFETY: `action` is one.
    unsafe { (real::SIGACTION.get())(signal, &raw const action, std::ptr::null_mut()) };
    sys::raise_now(signal);
}
