//! fdopen and fileno.

use libc::{FILE, c_char, c_int};

use crate::{real, state, stdio};

/// fdopen(3).
///
/// # Safety
/// As fdopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if state::ask_here(fd, |_| Ok(0)) == Some(0) {
        // SAFETY: the caller's.
        return unsafe { stdio::open(fd, mode) };
    }
    // SAFETY: the caller's.
    unsafe { (real::FDOPEN.get())(fd, mode) }
}

/// fileno(3).
///
/// # Safety
/// As fileno(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fileno(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    stdio::number_of(stream).unwrap_or_else(|| unsafe { (real::FILENO.get())(stream) })
}

/// fileno_unlocked(3).
///
/// # Safety
/// As fileno(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    unsafe { fileno(stream) }
}
