//! The program's signal handlers, called: as the kernel would at once, or later, at the end of the call that a signal came into.

use std::{
    mem::{self, MaybeUninit},
    ptr,
};

use libc::{c_int, c_void, siginfo_t};

use crate::{ending, errno, real};

/// A handler as the kernel calls it.
pub type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// A signal that came while its thread was inside netchan.
#[derive(Clone, Copy)]
pub struct Noted {
    pub signal: c_int,
    pub handler: usize,
    pub information: siginfo_t,
}

unsafe extern "C" {
    fn getcontext(context: *mut libc::ucontext_t) -> c_int;
}

/// Calls a handler, or what stands for SIG_DFL.
///
/// # Safety
/// As the handler wants it.
pub unsafe fn call(
    handler: usize,
    signal: c_int,
    information: *mut siginfo_t,
    context: *mut c_void,
) {
    if handler == libc::SIG_DFL {
        return ending::by_default(signal);
    }
    if handler == libc::SIG_IGN {
        return;
    }
    // SAFETY: the program installed it as a handler; one of one argument leaves the others alone.
    let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
    // SAFETY: the caller's.
    unsafe { handler(signal, information, context) };
}

/// Runs the handler of a signal that was put off, under the mask that it was installed with. Whether it was installed with SA_RESTART.
#[cold]
pub fn deliver(noted: &Noted) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks.
    unsafe { (real::SIGACTION.get())(noted.signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is valid, too.
    let mut action = unsafe { action.assume_init() };
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: a set of the system's.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, noted.signal) };
    }
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    let (set, old) = (&raw const action.sa_mask, before.as_mut_ptr());
    // SAFETY: two sets.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, old) };
    let code = errno::get();
    let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
    // SAFETY: writable.
    unsafe { getcontext(context.as_mut_ptr()) };
    let mut information = noted.information;
    let (information, context) = (&raw mut information, context.as_mut_ptr().cast());
    // SAFETY: as the kernel would.
    unsafe { call(noted.handler, noted.signal, information, context) };
    errno::set(code);
    // SAFETY: written by the call before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    action.sa_flags & libc::SA_RESTART != 0
}
