//! The C library's streams that were made of netchan's sockets, and their numbers.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use libc::{FILE, c_int};

use crate::locks::hold;

/// The streams that were made here, and their numbers.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// There was one.
static MADE: AtomicBool = AtomicBool::new(false);

/// The list of streams, for the time of a fork.
pub fn held_for_fork() -> ForFork {
    ForFork {
        _streams: hold(&STREAMS),
    }
}

/// The list of streams, held.
pub struct ForFork {
    _streams: MutexGuard<'static, Vec<(usize, c_int)>>,
}

/// The number behind a stream that was made here.
pub fn number_of(stream: *mut FILE) -> Option<c_int> {
    // Relaxed: a thread that has a stream of ours has seen it made. A process without a stack takes no lock, for a fork to find.
    if !MADE.load(Relaxed) {
        return None;
    }
    let streams = hold(&STREAMS);
    streams
        .iter()
        .find(|(known, _)| *known == stream.addr())
        .map(|(_, fd)| *fd)
}

/// One more.
pub fn made(stream: *mut FILE, fd: c_int) {
    MADE.store(true, Relaxed);
    hold(&STREAMS).push((stream.addr(), fd));
}

/// Its number is closed.
pub fn closed(fd: c_int) {
    hold(&STREAMS).retain(|(_, number)| *number != fd);
}
