//! _Fork and clone, which run no handler of pthread_atfork(3), and _exit and daemon, which run none of atexit(3).

use std::{mem::ManuallyDrop, ptr};

use libc::{c_int, c_void, pid_t};
use netchan::several;

use crate::{buffers, ending, errno, fork, process, program, real, sys};

/// clone(2)'s start of a child.
type Start = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// _Fork(3).
///
/// # Safety
/// As _Fork(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Fork() -> pid_t {
    // SAFETY: takes nothing.
    fork::forks(|| unsafe { (real::FORK.get())() })
}

/// What a cloned child begins with. It lies in the parent's frame, of which the child has a copy.
struct Beginning {
    start: Start,
    argument: *mut c_void,
    held: ManuallyDrop<fork::ForFork>,
}

/// # Safety
/// `beginning` must be a [`Beginning`], in a process of its own.
unsafe extern "C-unwind" fn begin(beginning: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    let beginning = unsafe { &mut *beginning.cast::<Beginning>() };
    // SAFETY: the child's copies of the guards, dropped once.
    fork::begins(unsafe { ManuallyDrop::take(&mut beginning.held) });
    // SAFETY: as the program's own call of it.
    unsafe { (beginning.start)(beginning.argument) }
}

/// clone(2), as the C library has it. Variadic in C: what is not given comes as anything, and the kernel does not look.
///
/// # Safety
/// As clone(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn clone(
    start: Option<Start>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parents: *mut pid_t,
    tls: *mut c_void,
    childs: *mut pid_t,
) -> c_int {
    let real = real::CLONE.get();
    let Some(first) = start.filter(|_| flags & libc::CLONE_VM == 0 && process::is_tracking())
    else {
        // SAFETY: the caller's.
        return unsafe { real(start, stack, flags, argument, parents, tls, childs) };
    };
    let mut beginning = Beginning {
        start: first,
        argument,
        held: ManuallyDrop::new(fork::before()),
    };
    let at = ptr::from_mut(&mut beginning).cast();
    // SAFETY: the caller's, but for the start, which fits its argument.
    let child = unsafe { real(Some(begin), stack, flags, at, parents, tls, childs) };
    let code = errno::get();
    // SAFETY: the parent's guards, dropped once.
    fork::goes_on(unsafe { ManuallyDrop::take(&mut beginning.held) });
    errno::set(code);
    child
}

/// Whether a system call makes a process with memory of its own that goes on where its parent is.
///
/// # Safety
/// As the system call.
pub unsafe fn is_fork(number: libc::c_long, a: usize, b: usize) -> bool {
    const OF_MEMORY: usize = libc::CLONE_VM as usize;
    /// Words of clone_args: flags first, the stack's address sixth.
    const STACK: usize = 5;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => a & OF_MEMORY == 0 && b == 0,
        libc::SYS_clone3 => {
            let words = ptr::with_exposed_provenance::<u64>(a);
            if buffers::is_bad(words) || b < (STACK + 1) * size_of::<u64>() {
                return false;
            }
            // SAFETY: the caller vouches for `b` bytes.
            let flags = unsafe { words.read_unaligned() };
            // SAFETY: as above.
            let stack = unsafe { words.wrapping_add(STACK).read_unaligned() };
            flags & OF_MEMORY as u64 == 0 && stack == 0
        }
        _ => false,
    }
}

/// _exit(2).
///
/// # Safety
/// As _exit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    program::say_unused();
    ending::finish();
    sys::exit_group(status)
}

/// _Exit(3).
///
/// # Safety
/// As _Exit(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    // SAFETY: the caller's.
    unsafe { _exit(status) }
}

/// prctl(2).
///
/// # Safety
/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    note_prctl(option);
    let arguments = [option.cast_unsigned() as usize, a, b, c, d, 0]; // widening: u32 to usize
    // SAFETY: the caller's.
    let result = unsafe { sys::as_c(libc::SYS_prctl, arguments) };
    c_int::try_from(result).unwrap_or(-1)
}

/// A filter that is set now may end the process for calls that it does not know.
pub(super) fn note_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        several::forbid();
    }
}

/// daemon(3). The C library's own ends the parent where we do not see it.
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn daemon(stay: c_int, keep: c_int) -> c_int {
    if process::has_sockets() {
        // SAFETY: takes nothing.
        match unsafe { libc::fork() } {
            -1 => return -1,
            0 => {}
            // SAFETY: a number.
            _ => unsafe { _exit(0) },
        }
    }
    // Forks again, which leaves the child's child where it is to be.
    // SAFETY: numbers only.
    unsafe { (real::DAEMON.get())(stay, keep) }
}
