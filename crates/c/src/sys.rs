//! System calls, and what fork(2) means.

use std::{
    io,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use libc::{c_int, pollfd};

/// This process was forked from one that had a stack: its threads are not here, and its locks may be held for ever.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether it was. Relaxed: the child's only thread wrote it.
pub fn is_child() -> bool {
    IS_CHILD.load(Relaxed)
}

/// Has children know that they are some, from now on.
pub fn watch_forks() {
    static ONCE: Once = Once::new();
    extern "C" fn in_child() {
        IS_CHILD.store(true, Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the handler writes one word, and this library stays loaded (build.rs).
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) }; // ENOMEM: children are not told
    });
}

/// poll(2).
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    let ms = match timeout {
        None => -1,
        Some(time) => c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX),
    };
    // SAFETY: as many entries as are said.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), count, ms) };
    usize::try_from(ready).map_err(|_| io::Error::last_os_error())
}
