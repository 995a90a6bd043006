//! What a forked child is told of its parent's sockets, and the parent of the child's attempts.

use std::{
    io,
    os::fd::RawFd,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use libc::c_int;

use crate::{errno, instances, line::Answers, process, state::SOCKETS, sys};

/// The process that was told that it uses sockets of another one.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// A forked child used a socket of its parent, or an epoll instance with such: says so, once. The error that its calls answer.
#[cold]
pub fn refusal(fd: c_int) -> io::Error {
    say_orphan(fd);
    with_answers(fd, Answers::hold_back);
    errno::error(libc::EBADF)
}

/// The same, for poll: whether it reports `fd`.
#[cold]
pub fn is_reported(fd: c_int) -> bool {
    say_orphan(fd);
    with_answers(fd, Answers::is_reported).unwrap_or(true)
}

fn say_orphan(fd: c_int) {
    tell_parent(fd);
    let own = process::own_id();
    if TOLD.swap(own, Relaxed) != own {
        let owner = process::owner();
        sys::complain(&format!(
            "netchan: sockets made before fork() stay with process {owner}; process {own} cannot use them, and their clients are refused\n"
        ));
    }
}

/// Before listen(2) of a socket that has no port, in a program that a child has become: says, once, what it means where another process has bound it.
#[cold]
pub fn say_listens_nowhere(fd: RawFd) {
    let Some(owner) = process::stack_elsewhere().filter(|_| sys::is_blank_socket(fd)) else {
        return;
    };
    let own = process::own_id();
    if TOLD.swap(own, Relaxed) != own {
        sys::complain(&format!(
            "netchan: process {own} listens on a socket without a port: where it was bound in process {owner}, or before, it stays there: run it with --supervise\n"
        ));
    }
}

/// In a forked child, which would use `fd`: lets the parent know.
fn tell_parent(fd: RawFd) {
    if let Some(handle) = SOCKETS
        .get(fd)
        .filter(|handle| handle.socket.get().is_some())
    {
        handle.name.tell();
    }
}

/// In a forked child: what its calls about `fd`, a socket of its parent or an instance with such, were answered.
fn with_answers<T>(fd: RawFd, ask: impl FnOnce(&Answers) -> T) -> Option<T> {
    if let Some(handle) = SOCKETS.get(fd) {
        return Some(ask(&handle.name.answers));
    }
    instances::with_answers(fd, ask)
}
