//! sigaction, signal and its variants, pthread_cancel.

use libc::{c_int, sighandler_t};

use crate::{real, region, signals};

/// sigaction(2).
///
/// # Safety
/// As sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { signals::action(signal, new, old) }
}

/// signal(3).
///
/// # Safety
/// As signal(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's.
    unsafe { signals::plain(number, handler, real::SIGNAL.get()) }
}

/// bsd_signal(3).
///
/// # Safety
/// As bsd_signal(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's.
    unsafe { signals::plain(number, handler, real::SIGNAL.get()) }
}

/// sysv_signal(3).
///
/// # Safety
/// As sysv_signal(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's.
    unsafe { signals::plain(number, handler, real::SYSV_SIGNAL.get()) }
}

/// signal(3) as programs without BSD's semantics call it.
///
/// # Safety
/// As sysv_signal(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __sysv_signal(
    number: c_int,
    handler: sighandler_t,
) -> sighandler_t {
    // SAFETY: the caller's.
    unsafe { signals::plain(number, handler, real::SYSV_SIGNAL.get()) }
}

/// sigset(3).
///
/// # Safety
/// As sigset(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigset(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's.
    unsafe { signals::plain(number, handler, real::SIGSET.get()) }
}

/// pthread_cancel(3).
///
/// # Safety
/// As pthread_cancel(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    region::cancel(thread)
}
