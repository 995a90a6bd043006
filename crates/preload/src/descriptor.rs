//! fcntl and ioctl on netchan's sockets.

use std::{io, os::fd::RawFd, sync::atomic::Ordering::Relaxed};

use libc::{c_int, c_ulong};
use netchan::socket::Kind;

use crate::{
    buffers,
    errno::fail,
    numbers::duplicated,
    options::device,
    state::{Live, SocketState},
    sys,
};

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
            let nonblocking = flags & libc::O_NONBLOCK != 0;
            live.state.nonblocking.store(nonblocking, Relaxed);
            // Other processes may have it, too.
            live.state.share.get().is_none().then_some(Ok(0))
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
        libc::FIONBIO => {
            // SAFETY: the caller's.
            let set = unsafe { set_nonblocking(live.state, argument) };
            // Other processes may have it, too.
            return Some(set).filter(|set| set.is_err() || live.state.share.get().is_none());
        }
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
    let time = live.state.arrival.ask(&live.state.asked)?;
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
