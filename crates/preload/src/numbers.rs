//! What numbers lead to, and when they lead to nothing any more: close, dup.
//!
//! Every number of ours is a number of the kernel's too, so the kernel does its half of each call. A vfork child has
//! descriptors of its own but its parent's memory: there only the kernel's half is done.

use std::{io, net::Shutdown, os::fd::RawFd};

use libc::{c_int, c_uint};
use netchan::{
    own,
    socket::{Kind, SocketOption},
};

use crate::{
    crossing::CROSSINGS,
    edge,
    errno::fail,
    instances::{self, EPOLLS},
    locks, process, shared,
    state::{SOCKETS, SocketState},
    sys,
    table::{Handle, Removed},
    wait,
};

/// Whether `fd` leads to anything of ours.
#[inline]
pub fn is_tracked(fd: RawFd) -> bool {
    !SOCKETS.is_vacant(fd) || !EPOLLS.is_vacant(fd) || !CROSSINGS.is_vacant(fd)
}

/// A socket whose last number is gone, still to be closed: by what may wait, when no lock is held any more.
#[must_use]
struct Left(Option<Handle<SocketState>>);

impl Left {
    /// Wakes what waits for it, and lets go of it.
    fn close(self) {
        if let Some(state) = self.0 {
            if !shared::leave(&state) {
                linger(&state);
            }
            state.close();
        }
    }
}

/// close(2) on a tracked number.
pub fn close(fd: RawFd) -> io::Result<c_int> {
    let (left, closed) = {
        let _giving_back = locks::giving_back();
        (forget(fd), sys::close(fd))
    };
    left.close();
    closed.map(|()| 0)
}

/// Takes a number out of the tables, before the kernel may give it out again.
fn forget(fd: RawFd) -> Left {
    if !process::owns_table() {
        return Left(None);
    }
    let left = SOCKETS.remove(fd).and_then(|removed| end(fd, removed).0);
    instances::closed(fd);
    drop(CROSSINGS.remove(fd)); // the kernel counts its holders
    Left(left)
}

/// The kernel gave out `fd` anew: what the tables say of it is of a number that was closed where this library did not see it.
pub fn renewed(fd: RawFd) {
    if is_tracked(fd) {
        forget(fd).close();
    }
}

/// Ends what a number meant: with the last one epoll forgets it.
fn end(fd: RawFd, removed: Removed<SocketState>) -> Left {
    if removed.handle.is_inherited() {
        return Left(None);
    }
    instances::forget_number(fd, &removed.handle);
    Left(Some(removed.handle).filter(|_| removed.last))
}

/// SO_LINGER: close waits until the peer has everything, the FIN as well, or for the time set; in Linux also where the socket is non-blocking.
fn linger(state: &SocketState) {
    let Some(socket) = state.socket.get() else {
        return;
    };
    if state.kind != Kind::Stream {
        return;
    }
    let Ok(SocketOption::Linger(Some(limit))) = socket.option(SocketOption::Linger(None)) else {
        return;
    };
    // What is unread makes the close a reset, which nothing answers.
    if limit.is_zero() || socket.available() > 0 {
        return;
    }
    if socket.shutdown(Shutdown::Write).is_ok() {
        wait::until_closed(socket, limit);
    }
}

/// What a call that makes a descriptor returned: what the tables knew of the number is past.
#[inline]
pub fn fresh(fd: c_int) -> c_int {
    if fd >= 0 && is_tracked(fd) {
        return edge::int(|| {
            renewed(fd);
            Ok(fd)
        });
    }
    fd
}

/// Closes a number that this library made.
pub fn close_ours(fd: RawFd) {
    let _ = close(fd);
}

/// The process ends: netchan's sockets are closed, and numbers stay. What other processes may have is carried from now on; where it stood leads nowhere, so that it
/// is seen whether they do.
pub fn close_at_exit(fd: RawFd, blank: RawFd) {
    let Some(removed) = SOCKETS.remove(fd) else {
        return;
    };
    let is_shared = removed.handle.share.get().is_some() && !removed.handle.is_inherited();
    if is_shared && blank >= 0 {
        let _ = sys::dup3(blank, fd, libc::O_CLOEXEC); // of an open number: it has room
    }
    if let Some(state) = end(fd, removed).0 {
        if !(is_shared && shared::leave(&state)) {
            linger(&state);
        }
        state.close();
    }
}

/// Closes all numbers, but netchan's own.
pub fn close_all_but_own() {
    let _ = close_but_own(0, c_uint::MAX, 0); // what cannot be closed stays open
}

/// close_range(2), and with it closefrom(3): what is ours in the range is forgotten, netchan's own numbers are left out.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> io::Result<()> {
    let flags_known = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    if first > last || flags.cast_unsigned() & !flags_known != 0 {
        return fail(libc::EINVAL);
    }
    let number = |n: c_uint| c_int::try_from(n).unwrap_or(c_int::MAX);
    let mut left = Vec::new();
    let closed = {
        let _giving_back = locks::giving_back();
        if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
            let (first, last) = (number(first), number(last));
            left.extend(SOCKETS.occupied(first, last).into_iter().map(forget));
            left.extend(EPOLLS.occupied(first, last).into_iter().map(forget));
            left.extend(CROSSINGS.occupied(first, last).into_iter().map(forget));
        }
        close_but_own(first, last, flags)
    };
    left.into_iter().for_each(Left::close);
    closed
}

/// close_range(2) that leaves out netchan's own numbers.
fn close_but_own(first: c_uint, last: c_uint, flags: c_int) -> io::Result<()> {
    let number = |n: c_uint| c_int::try_from(n).unwrap_or(c_int::MAX);
    let mut from = first;
    while let Some(kept) = own::first_own(number(from), number(last)) {
        let kept = kept.cast_unsigned();
        if kept > from {
            sys::close_range(from, kept - 1, flags)?;
        }
        if kept == last {
            return Ok(());
        }
        from = kept + 1;
    }
    sys::close_range(from, last, flags)
}

/// `new` is a duplicate of `old` now: it means the same.
pub fn duplicated(old: RawFd, new: RawFd) {
    if !process::owns_table() {
        return;
    }
    if let Some(handle) = CROSSINGS.get(old) {
        let _ = CROSSINGS.insert(new, &handle); // out of the table's range it is the kernel's
    }
    if let Some(handle) = SOCKETS.get(old) {
        // Out of the table's range it would be a dead number; programs do not dup so far up.
        if let Ok(Some(before)) = SOCKETS.insert(new, &handle) {
            end(new, before).close();
        }
    }
    if let Some(handle) = EPOLLS.get(old) {
        let _ = EPOLLS.insert(new, &handle);
    }
}

/// dup2(2) and dup3(2) with a tracked number on either side; `old` differs from `new`.
pub fn dup_onto(old: RawFd, new: RawFd, flags: c_int) -> io::Result<c_int> {
    let (number, left) = {
        let _giving_back = locks::giving_back();
        let number = sys::dup3(old, new, flags)?; // what fails leaves `new` alone
        let left = if is_tracked(new) {
            forget(new)
        } else {
            Left(None)
        };
        (number, left)
    };
    left.close();
    duplicated(old, number);
    Ok(number)
}
