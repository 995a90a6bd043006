//! The program's signal handlers, called through one of ours: it puts off those that come while their thread is inside netchan (`region`).
//!
//! The kernel keeps what was asked of it (flags, mask) but for the address, and the program is told its own. SIG_IGN is the kernel's alone, and
//! SIG_DFL but for the few signals before whose effect sockets are closed (`ending`). Faults are never put off, nor is SIGABRT. Handlers that were installed by a bare system call are not known here.

use std::{
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use libc::{c_int, c_void, sighandler_t, siginfo_t};

use crate::{
    ending,
    handlers::{self, Handler, Noted},
    process, real, region,
};

const SIGNALS: usize = 65;

/// The program's handlers. Relaxed: a signal that comes while one is installed finds either.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

fn place(signal: c_int) -> Option<&'static AtomicUsize> {
    HANDLERS.get(usize::try_from(signal).ok()?)
}

/// Our handler's address.
fn ours() -> sighandler_t {
    let handler: Handler = stand_in;
    handler as sighandler_t
}

/// Whether a signal tells of what its thread did this instant, and cannot wait.
fn is_fault(signal: c_int, code: c_int) -> bool {
    match signal {
        libc::SIGSEGV
        | libc::SIGBUS
        | libc::SIGFPE
        | libc::SIGILL
        | libc::SIGTRAP
        | libc::SIGSYS => code > 0,
        libc::SIGABRT => true,
        _ => false,
    }
}

/// Stands before every handler of the program. The kernel passes all three arguments whatever the flags say.
unsafe extern "C-unwind" fn stand_in(
    signal: c_int,
    information: *mut siginfo_t,
    context: *mut c_void,
) {
    let Some(handler) = place(signal).map(|place| place.load(Relaxed)) else {
        return;
    };
    // SAFETY: the kernel's.
    let known = unsafe { information.as_ref() };
    if let Some(&information) = known.filter(|known| !is_fault(signal, known.si_code)) {
        let noted = Noted {
            signal,
            handler,
            information,
        };
        if region::put_off(&noted) {
            return;
        }
    }
    // SAFETY: as the kernel would.
    unsafe { handlers::call(handler, signal, information, context) };
}

/// sigaction(2).
///
/// # Safety
/// As sigaction(2).
pub unsafe fn action(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let before = place(signal).map_or(0, |place| place.load(Relaxed));
    // SAFETY: the caller's.
    let mut changed = unsafe { new.as_ref() }.copied();
    if let Some(changed) = &mut changed {
        changed.sa_sigaction = stand_before(signal, changed.sa_sigaction);
    }
    let new = changed.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the caller's.
    let result = unsafe { (real::SIGACTION.get())(signal, new, old) };
    if result != 0 {
        // It failed: nothing changes.
        if let Some(place) = place(signal).filter(|_| changed.is_some()) {
            place.store(before, Relaxed);
        }
        return result;
    }
    // SAFETY: the caller's.
    if let Some(old) = unsafe { old.as_mut() } {
        old.sa_sigaction = own_name(old.sa_sigaction, before);
    }
    result
}

/// The handler that the kernel gets for `handler`, which is remembered. A vfork child has handlers of its own, but its parent's memory.
fn stand_before(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if process::is_vforked() {
        return handler;
    }
    let kept = handler == libc::SIG_DFL && !ending::stands_for_default(signal);
    let plain = kept || handler == libc::SIG_IGN || handler == ours();
    match place(signal).filter(|_| !plain) {
        Some(place) => {
            place.store(handler, Relaxed);
            ours()
        }
        None => handler,
    }
}

/// With the stack: SIG_DFL of the signals that end a program is ours from now on.
pub fn stand_for_defaults() {
    ending::SIGNALS.into_iter().for_each(stand_for_default);
}

/// Where `signal` has SIG_DFL, our handler stands for it from now on.
fn stand_for_default(signal: c_int) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks.
    unsafe { (real::SIGACTION.get())(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is valid, too.
    let mut action = unsafe { action.assume_init() };
    if action.sa_sigaction != libc::SIG_DFL || !ending::stands_for_default(signal) {
        return;
    }
    action.sa_sigaction = stand_before(signal, libc::SIG_DFL);
    // A second one comes through while the first one's handler waits.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
    // SAFETY: a handler of ours, which lives as long as the process.
    unsafe { (real::SIGACTION.get())(signal, &raw const action, ptr::null_mut()) };
}

/// What the program calls the handler that the kernel calls `handler`.
fn own_name(handler: sighandler_t, remembered: sighandler_t) -> sighandler_t {
    if handler == ours() {
        remembered
    } else {
        handler
    }
}

/// signal(3) and its variants; `kernels` is the C library's.
///
/// # Safety
/// As signal(3).
pub unsafe fn plain(
    signal: c_int,
    handler: sighandler_t,
    kernels: unsafe extern "C-unwind" fn(c_int, sighandler_t) -> sighandler_t,
) -> sighandler_t {
    const HOLD: sighandler_t = 2; // sigset(3)'s SIG_HOLD; no function has this address
    let before = place(signal).map_or(0, |place| place.load(Relaxed));
    let given = if handler == libc::SIG_ERR || handler == HOLD {
        handler
    } else {
        stand_before(signal, handler)
    };
    // SAFETY: the caller's.
    let was = unsafe { kernels(signal, given) };
    if was == libc::SIG_ERR
        && let Some(place) = place(signal)
    {
        place.store(before, Relaxed);
    }
    own_name(was, before)
}
