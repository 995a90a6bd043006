//! bind, listen, connect, accept, shutdown and names, on netchan's sockets.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    os::fd::RawFd,
    sync::atomic::Ordering::Relaxed,
};

use libc::{c_int, sockaddr, socklen_t};
use netchan::socket::{Domain, Kind, Readiness, Socket};

use crate::{
    address::{self, FAMILY, Given},
    decide,
    errno::{self, fail, is_under_way},
    numbers, placeholder,
    state::{Live, SOCKETS, SocketState, Undecided},
    sys, wait,
};

/// What socket(2)'s arguments mean, if netchan can serve them.
pub fn kind_of(domain: c_int, kind: c_int, protocol: c_int) -> Option<(Domain, Kind)> {
    let domain = match domain {
        libc::AF_INET => Domain::V4,
        libc::AF_INET6 => Domain::V6,
        _ => return None,
    };
    let plain = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    match (plain, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Some((domain, Kind::Stream)),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some((domain, Kind::Datagram)),
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMP) if domain == Domain::V4 => {
            Some((domain, Kind::Ping))
        }
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6) if domain == Domain::V6 => {
            Some((domain, Kind::Ping))
        }
        _ => None,
    }
}

/// bind(2) on netchan's socket.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn bind(live: Live<'_>, pointer: *const sockaddr, len: socklen_t) -> io::Result<usize> {
    // SAFETY: the caller's.
    let address = unsafe { address::read_bound(pointer, len, live.state.domain) }?;
    live.socket.bind(address)?;
    live.state.changed();
    Ok(0)
}

/// listen(2) on netchan's socket.
pub fn listen(live: Live<'_>, backlog: c_int) -> io::Result<usize> {
    if live.state.kind != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
    // Negative is "as many as allowed", as in Linux; the stack caps it.
    live.socket
        .listen(usize::try_from(backlog).unwrap_or(4096))?;
    live.state.changed();
    Ok(0)
}

/// connect(2) on netchan's socket.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn connect(
    live: Live<'_>,
    pointer: *const sockaddr,
    len: socklen_t,
) -> io::Result<usize> {
    let given = match live.state.kind {
        // SAFETY: the caller's.
        Kind::Stream => unsafe { address::read_own(pointer, len, live.state.domain) },
        // SAFETY: the caller's.
        Kind::Datagram | Kind::Ping => unsafe { address::read(pointer, len, live.state.domain) },
    };
    let peer = match given {
        Ok(Given::Inet(peer)) => peer,
        Ok(Given::Unspecified) => {
            live.socket.disconnect()?;
            live.state.changed();
            return Ok(0);
        }
        // As Linux: what it is comes before what the address is.
        Err(wrong) if errno::code(&wrong) != libc::EFAULT && len >= FAMILY => {
            return live
                .socket
                .connect_again()
                .unwrap_or(Err(wrong))
                .map(|()| 0);
        }
        Err(wrong) => return Err(wrong),
    };
    let first = live.socket.connect(peer);
    live.state.changed();
    let nonblocking = live.state.nonblocking.load(Relaxed);
    let under_way = match first {
        Err(error) if is_under_way(&error) && !nonblocking => error,
        result => return result.map(|()| 0),
    };
    let timeout = live.state.send_timeout();
    let waited = wait::until(live, Readiness::WRITABLE, false, timeout, || {
        match live.socket.connect(peer) {
            Err(error) if is_under_way(&error) => fail(libc::EAGAIN),
            result => result,
        }
    });
    match waited {
        // As Linux: SO_SNDTIMEO has passed, the connection goes on being made.
        Err(error) if errno::would_block(&error) => Err(under_way),
        // Another thread collected the success in between.
        Err(error) if errno::code(&error) == libc::EISCONN => Ok(0),
        result => result.map(|()| 0),
    }
}

/// accept4(2) on netchan's socket.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn accept(
    live: Live<'_>,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> io::Result<usize> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    if live.state.kind != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
    let nonblocking = live.state.nonblocking.load(Relaxed);
    let timeout = live.state.receive_timeout();
    let accepted = wait::until(live, Readiness::READABLE, nonblocking, timeout, || {
        accept_one(live, flags)
    });
    live.state.watch.taken(live.socket);
    let (fd, peer) = accepted?;
    // SAFETY: the caller's.
    if let Err(error) = unsafe { address::write(peer, live.state.domain, pointer, len) } {
        numbers::close_ours(fd);
        return Err(error);
    }
    Ok(usize::try_from(fd).unwrap_or(0))
}

/// One try: the number first where a connection waits, so that EMFILE loses none.
fn accept_one(live: Live<'_>, flags: c_int) -> io::Result<(RawFd, SocketAddr)> {
    if !live.socket.readiness().contains(Readiness::READABLE) {
        let (socket, peer) = live.socket.accept()?; // says why not, or was just in time
        return Ok((
            number(live, socket, placeholder::make(wants_close(flags))?, flags)?,
            peer,
        ));
    }
    let fd = placeholder::make(wants_close(flags))?;
    match live.socket.accept() {
        Ok((socket, peer)) => Ok((number(live, socket, fd, flags)?, peer)),
        Err(error) => {
            let _ = sys::close(fd);
            Err(error)
        }
    }
}

fn wants_close(flags: c_int) -> bool {
    flags & libc::SOCK_CLOEXEC != 0
}

/// Lets `fd` lead to an accepted connection.
fn number(live: Live<'_>, socket: Socket, fd: RawFd, flags: c_int) -> io::Result<RawFd> {
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let state = SocketState::decided(live.state.domain, Kind::Stream, socket, nonblocking);
    state.inherit(live.state);
    numbers::renewed(fd);
    if SOCKETS.insert(fd, &SOCKETS.create(state)).is_err() {
        let _ = sys::close(fd);
        return fail(libc::EMFILE); // beyond the table
    }
    Ok(fd)
}

/// getsockname(2) on netchan's socket.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn local_name(
    live: Live<'_>,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<usize> {
    if pointer.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    unsafe { address::write(live.socket.local_address(), live.state.domain, pointer, len) }?;
    Ok(0)
}

/// getpeername(2) on netchan's socket.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn peer_name(
    live: Live<'_>,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<usize> {
    let peer = live.socket.peer_address()?;
    if pointer.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    unsafe { address::write(peer, live.state.domain, pointer, len) }?;
    Ok(0)
}

/// What shutdown(2) is asked for.
fn how(how: c_int) -> Option<Shutdown> {
    Some(match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return None,
    })
}

/// shutdown(2) on netchan's socket.
pub fn shutdown(live: Live<'_>, wanted: c_int) -> io::Result<usize> {
    let how = how(wanted).ok_or_else(|| errno::error(libc::EINVAL))?;
    let result = live.socket.shutdown(how).map(|()| 0);
    live.state.changed();
    result
}

/// shutdown(2) on one that is the kernel's as yet.
pub fn note_shutdown(fd: RawFd, wanted: c_int) {
    if let Some(how) = how(wanted) {
        decide::note_setting(fd, Undecided::Shutdown(how));
    }
}
