//! What stands at the number of an accepted connection of netchan's: a duplicate of one socket of the kernel's.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use crate::sys;

/// An unconnected socket of the kernel's, open for good; -1: there is none yet.
static MODEL: AtomicI32 = AtomicI32::new(-1);

/// In a child that begins anew: its parent's is closed here.
pub fn begin_anew() {
    MODEL.store(-1, Relaxed); // no other thread looks
}

fn model() -> io::Result<RawFd> {
    let known = MODEL.load(Relaxed);
    if known >= 0 {
        return Ok(known);
    }
    let made = sys::socket()?;
    let number = made.as_raw_fd();
    match MODEL.compare_exchange(-1, number, Relaxed, Relaxed) {
        Ok(_) => {
            std::mem::forget(made);
            Ok(number)
        }
        Err(first) => Ok(first), // another thread's
    }
}

/// A descriptor number for an accepted connection: a duplicate of the model.
///
/// # Errors
/// The system's: no descriptor is left.
pub fn make(close_on_exec: bool) -> io::Result<RawFd> {
    let command = if close_on_exec {
        libc::F_DUPFD_CLOEXEC
    } else {
        libc::F_DUPFD
    };
    sys::fcntl(model()?, command, 0)
}
