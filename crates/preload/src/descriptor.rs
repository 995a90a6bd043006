//! close, dup, fcntl and ioctl: what happens to numbers.
//!
//! Every number of ours is a number of the kernel's too, so the kernel does its half of each call. A vfork child has
//! descriptors of its own but its parent's memory: there only the kernel's half is done.

use std::{io, os::fd::RawFd, sync::atomic::Ordering::Relaxed};

use libc::{c_int, c_uint, c_ulong};
use netchan::{own, socket::Kind};

use crate::{
    buffers,
    epoll::{self, EPOLLS},
    errno::fail,
    lifecycle,
    options::{Setting, device},
    state::{self, Live, SOCKETS, SocketState},
    sys,
};

/// Whether `fd` leads to anything of ours.
#[inline]
pub fn is_tracked(fd: RawFd) -> bool {
    !SOCKETS.is_vacant(fd) || !EPOLLS.is_vacant(fd)
}

/// close(2) on a tracked number.
pub fn close(fd: RawFd) -> io::Result<c_int> {
    forget(fd);
    sys::close(fd).map(|()| 0)
}

/// Takes a number out of the tables, before the kernel may give it to somebody else.
fn forget(fd: RawFd) {
    if !lifecycle::owns_table() {
        return;
    }
    if let Some(removed) = SOCKETS.remove(fd) {
        state::forget_number(fd, removed);
    }
    epoll::closed(fd);
}

/// The kernel gave out `fd` anew: what the tables say of it is of a number that was closed where this library did not see it.
pub fn renewed(fd: RawFd) {
    if is_tracked(fd) {
        forget(fd);
    }
}

/// Closes a number that this library made.
pub fn close_ours(fd: RawFd) {
    let _ = close(fd);
}

/// The process ends: netchan's sockets are closed, numbers stay.
pub fn close_at_exit(fd: RawFd) {
    if let Some(removed) = SOCKETS.remove(fd) {
        state::forget_number(fd, removed);
    }
}

/// close_range(2), and with it closefrom(3): what is ours in the range is forgotten, netchan's own numbers are left out.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> io::Result<()> {
    let flags_known = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    if first > last || flags.cast_unsigned() & !flags_known != 0 {
        return fail(libc::EINVAL);
    }
    let number = |n: c_uint| c_int::try_from(n).unwrap_or(c_int::MAX);
    if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
        let (first, last) = (number(first), number(last));
        for fd in SOCKETS.occupied(first, last) {
            forget(fd);
        }
        for fd in EPOLLS.occupied(first, last) {
            forget(fd);
        }
    }
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
    if !lifecycle::owns_table() {
        return;
    }
    if lifecycle::is_forked() {
        share_orphan(old, new);
        return;
    }
    if let Some(handle) = SOCKETS.get(old) {
        // Out of the table's range it would be a dead number; nobody dups so far up.
        if let Ok(Some(before)) = SOCKETS.insert(new, &handle) {
            state::forget_number(new, before);
        }
    }
    if let Some(handle) = EPOLLS.get(old) {
        let _ = EPOLLS.insert(new, &handle);
    }
}

/// In a forked child: the duplicate of a parent's socket is one too.
fn share_orphan(old: RawFd, new: RawFd) {
    if let Some(handle) = SOCKETS.get(old) {
        if let Ok(Some(before)) = SOCKETS.insert(new, &handle) {
            std::mem::forget(before.handle);
        }
        std::mem::forget(handle);
    }
}

/// dup2(2) and dup3(2) with a tracked number on either side; `old` differs from `new`.
pub fn dup_onto(old: RawFd, new: RawFd, flags: c_int) -> io::Result<c_int> {
    let number = sys::dup3(old, new, flags)?; // what fails leaves `new` alone
    if is_tracked(new) {
        forget(new);
    }
    duplicated(old, number);
    Ok(number)
}

/// fcntl(2) on netchan's socket; `None` where the kernel's half is all there is.
pub fn control(
    fd: RawFd,
    live: Live<'_>,
    command: c_int,
    argument: usize,
) -> Option<io::Result<usize>> {
    match command {
        libc::F_GETFL => {
            let nonblocking = live.state.nonblocking.load(Relaxed);
            let flags = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
            Some(Ok(usize::try_from(flags).unwrap_or(0)))
        }
        libc::F_SETFL => {
            let flags = c_int::try_from(argument & 0x7fff_ffff).unwrap_or(0);
            live.state
                .nonblocking
                .store(flags & libc::O_NONBLOCK != 0, Relaxed);
            Some(Ok(0))
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            Some(sys::fcntl(fd, command, argument).map(|new| {
                duplicated(fd, new);
                usize::try_from(new).unwrap_or(0)
            }))
        }
        _ => None,
    }
}

/// Whether fcntl's `command` makes a duplicate.
pub fn duplicates(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
}

const SIOCATMARK: c_ulong = 0x8905;
const SIOCGSTAMP: c_ulong = 0x8906;
const SIOCGSTAMPNS: c_ulong = 0x8907;

/// ioctl(2) on netchan's socket; `None` where the kernel's twin may answer (interfaces, FIOCLEX).
///
/// # Safety
/// `argument` must be what `request` asks for: for those served here, a pointer to an int or to a struct timeval, or NULL.
pub unsafe fn device_control(
    live: Live<'_>,
    request: c_ulong,
    argument: usize,
) -> Option<io::Result<usize>> {
    let value = match request {
        libc::FIONREAD if live.socket.is_listening() => return Some(fail(libc::EINVAL)),
        libc::FIONREAD => live.socket.available(),
        libc::TIOCOUTQ if live.socket.is_listening() => return Some(fail(libc::EINVAL)),
        libc::TIOCOUTQ => live.socket.unacknowledged(),
        SIOCATMARK if live.state.kind == Kind::Datagram => return Some(fail(libc::ENOTTY)),
        SIOCATMARK => usize::from(live.socket.is_at_mark()),
        // SAFETY: the caller's.
        libc::FIONBIO => return Some(unsafe { set_nonblocking(live.state, argument) }),
        // SAFETY: the caller's.
        SIOCGSTAMP | SIOCGSTAMPNS => return Some(unsafe { arrival(live, request, argument) }),
        // SAFETY: the caller's.
        _ => return unsafe { device::control(request, argument) },
    };
    let place = argument as *mut c_int;
    if buffers::is_bad(place) {
        return Some(fail(libc::EFAULT));
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    unsafe { place.write_unaligned(c_int::try_from(value).unwrap_or(c_int::MAX)) };
    Some(Ok(0))
}

/// SIOCGSTAMP and SIOCGSTAMPNS: a struct timeval or timespec, which are two words each.
///
/// # Safety
/// `argument` must be a pointer to one, or NULL.
unsafe fn arrival(live: Live<'_>, request: c_ulong, argument: usize) -> io::Result<usize> {
    let time = live.state.arrival.ask(live)?;
    let fraction = match request {
        SIOCGSTAMP => time.subsec_micros(),
        _ => time.subsec_nanos(),
    };
    let place = argument as *mut [i64; 2];
    if buffers::is_bad(place) {
        return fail(libc::EFAULT);
    }
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    // SAFETY: not NULL; the caller vouches for the rest.
    unsafe { place.write_unaligned([seconds, fraction.into()]) };
    Ok(0)
}

/// # Safety
/// `argument` must be a pointer to a readable int, or NULL.
unsafe fn set_nonblocking(state: &SocketState, argument: usize) -> io::Result<usize> {
    let place = argument as *const c_int;
    if buffers::is_bad(place) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let on = unsafe { place.read_unaligned() } != 0;
    state.nonblocking.store(on, Relaxed);
    Ok(0)
}

/// Remembers a setting of a socket while it is undecided.
pub fn note_setting(fd: RawFd, setting: Setting) {
    if lifecycle::is_forked() {
        return;
    }
    if let Some(handle) = SOCKETS
        .get(fd)
        .filter(|handle| handle.socket.get().is_none())
    {
        handle.undecided.lock().push(setting);
    }
}

/// Notes something else about a socket that is undecided.
pub fn note(fd: RawFd, change: impl FnOnce(&SocketState)) {
    if lifecycle::is_forked() {
        return;
    }
    if let Some(handle) = SOCKETS.get(fd) {
        change(&handle);
    }
}
