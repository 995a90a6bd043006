//! bind, listen, connect, accept, shutdown, names, and poll.

use std::{ffi::c_void, io, ptr, slice, time::Duration};

use libc::{c_int, nfds_t, sockaddr, socklen_t};
use netchan::{
    c::{address, buffers},
    socket::Kind,
};

use crate::{
    edge::{self, fail},
    names, poll,
    socket::{self, Handle},
};

/// Entries that one poll takes, as Linux's RLIMIT_NOFILE at most.
const ENTRIES_MAX: usize = 1 << 20;

/// bind(2).
///
/// # Safety
/// `address` must be readable for `len` bytes, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_bind(
    socket: *mut c_void,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    edge::unit(|| {
        let handle = socket::named(socket.addr())?;
        // SAFETY: the caller's.
        let address = unsafe { address::read_bound(address, len, handle.socket.domain()) }?;
        handle.socket.bind(address)
    })
}

/// listen(2).
#[unsafe(no_mangle)]
pub extern "C" fn netchan_listen(socket: *mut c_void, backlog: c_int) -> c_int {
    edge::unit(|| names::listen(&*socket::named(socket.addr())?, backlog))
}

/// connect(2).
///
/// # Safety
/// `address` must be readable for `len` bytes, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_connect(
    socket: *mut c_void,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    edge::unit(|| {
        let handle = socket::named(socket.addr())?;
        let domain = handle.socket.domain();
        let given = match handle.socket.kind() {
            // SAFETY: the caller's.
            Kind::Stream => unsafe { address::read_own(address, len, domain) },
            // SAFETY: the caller's.
            Kind::Datagram | Kind::Ping => unsafe { address::read(address, len, domain) },
        };
        names::connect(&handle, given?)
    })
}

/// accept(2).
///
/// # Safety
/// `address` must be writable for `*len` bytes, `len` readable and writable; either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_accept(
    socket: *mut c_void,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { netchan_accept4(socket, address, len, 0) }
}

/// accept4(2).
///
/// # Safety
/// As [`netchan_accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_accept4(
    socket: *mut c_void,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> *mut c_void {
    ptr::without_provenance_mut(edge::handle(|| {
        let handle = socket::named(socket.addr())?;
        let (accepted, peer) = names::accept(&handle, flags)?;
        // SAFETY: the caller's.
        let told = unsafe { address::write(peer, handle.socket.domain(), address, len) };
        if told.is_err() {
            socket::close(accepted)?;
        }
        told.map(|()| accepted)
    }))
}

/// shutdown(2).
#[unsafe(no_mangle)]
pub extern "C" fn netchan_shutdown(socket: *mut c_void, how: c_int) -> c_int {
    edge::unit(|| names::shutdown(&*socket::named(socket.addr())?, how))
}

/// getsockname(2).
///
/// # Safety
/// As [`netchan_accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_getsockname(
    socket: *mut c_void,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    edge::unit(|| unsafe {
        name(socket, address, len, |handle| {
            Ok(handle.socket.local_address())
        })
    })
}

/// getpeername(2).
///
/// # Safety
/// As [`netchan_accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_getpeername(
    socket: *mut c_void,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    edge::unit(|| unsafe { name(socket, address, len, |handle| handle.socket.peer_address()) })
}

/// # Safety
/// As [`netchan_accept`].
unsafe fn name(
    socket: *mut c_void,
    address: *mut sockaddr,
    len: *mut socklen_t,
    of: impl FnOnce(&Handle) -> io::Result<std::net::SocketAddr>,
) -> io::Result<()> {
    let handle = socket::named(socket.addr())?;
    let told = of(&handle)?;
    if address.is_null() || len.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    unsafe { address::write(told, handle.socket.domain(), address, len) }
}

/// poll(2).
///
/// # Safety
/// `fds` must be readable and writable for `count` entries, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_poll(
    fds: *mut poll::PollFd,
    count: nfds_t,
    timeout_ms: c_int,
) -> c_int {
    edge::int(|| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > ENTRIES_MAX {
            return fail(libc::EINVAL);
        }
        // Below zero: for ever.
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        if count == 0 {
            return poll::poll(&mut [], timeout);
        }
        if buffers::is_bad(fds) {
            return fail(libc::EFAULT);
        }
        // SAFETY: not NULL; the caller vouches for the rest.
        poll::poll(unsafe { slice::from_raw_parts_mut(fds, count) }, timeout)
    })
}
