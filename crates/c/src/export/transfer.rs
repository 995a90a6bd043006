//! Sending and receiving.

use std::{
    ffi::c_void,
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    ptr,
};

use libc::{c_int, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use netchan::{
    c::{
        address::{self, Given},
        buffers,
    },
    socket::{Domain, Kind, Received},
};

use crate::{
    edge::{self, fail},
    socket::{self, Handle},
    transfer,
};

/// Where a datagram goes. A stream ignores the address, as Linux does once it is connected.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
unsafe fn destination(
    handle: &Handle,
    pointer: *const sockaddr,
    len: socklen_t,
) -> io::Result<Option<SocketAddr>> {
    let domain = handle.socket.domain();
    if pointer.is_null() || handle.socket.kind() == Kind::Stream {
        return Ok(None);
    }
    // SAFETY: the caller's.
    match (unsafe { address::read(pointer, len, domain) }?, domain) {
        (Given::Inet(address), _) => Ok(Some(address)),
        (Given::Unspecified, _) if handle.socket.kind() == Kind::Ping => fail(libc::EAFNOSUPPORT),
        // As Linux: to IPv6 it is no address, to IPv4 one of its own.
        (Given::Unspecified, Domain::V6) => Ok(None),
        // SAFETY: the caller's.
        (Given::Unspecified, Domain::V4) => unsafe { address::read_v4(pointer, len) }.map(Some),
    }
}

/// Tells where a datagram came from; of a stream, that there is no address.
///
/// # Safety
/// As for [`address::write`].
unsafe fn tell_source(
    handle: &Handle,
    received: &Received,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<()> {
    if let Some(from) = received.from {
        // SAFETY: the caller's.
        return unsafe { address::write(from, handle.socket.domain(), pointer, len) };
    }
    if !pointer.is_null() && !buffers::is_bad(len) {
        // SAFETY: not NULL; the caller vouches for the rest.
        unsafe { len.write_unaligned(0) };
    }
    Ok(())
}

/// send(2).
///
/// # Safety
/// `data` must be readable for `len` bytes, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_send(
    socket: *mut c_void,
    data: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's.
    unsafe { netchan_sendto(socket, data, len, flags, ptr::null(), 0) }
}

/// sendto(2).
///
/// # Safety
/// `data` must be readable for `len` bytes, or NULL; `to` for `to_len`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_sendto(
    socket: *mut c_void,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    edge::size(|| {
        let handle = socket::named(socket.addr())?;
        transfer::check_send(flags)?;
        // SAFETY: the caller's.
        let data = unsafe { buffers::readable(data, len) }?;
        // SAFETY: the caller's.
        let to = unsafe { destination(&handle, to, to_len) }?;
        transfer::send(&handle, &mut [IoSlice::new(data)], to, flags)
    })
}

/// recv(2).
///
/// # Safety
/// `data` must be writable for `len` bytes, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_recv(
    socket: *mut c_void,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's.
    unsafe { netchan_recvfrom(socket, data, len, flags, ptr::null_mut(), ptr::null_mut()) }
}

/// recvfrom(2).
///
/// # Safety
/// `data` must be writable for `len` bytes, or NULL; `from` and `from_len` as accept(2) has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_recvfrom(
    socket: *mut c_void,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    edge::size(|| {
        let handle = socket::named(socket.addr())?;
        transfer::check_receive(flags)?;
        // SAFETY: the caller's.
        let data = unsafe { buffers::writable(data, len) }?;
        let received = transfer::receive(&handle, &mut [IoSliceMut::new(data)], flags)?;
        // SAFETY: the caller's.
        unsafe { tell_source(&handle, &received, from, from_len) }?;
        Ok(received.len)
    })
}

/// sendmsg(2), without ancillary data.
///
/// # Safety
/// `message` must be a valid msghdr for sending, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_sendmsg(
    socket: *mut c_void,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    edge::size(|| {
        let handle = socket::named(socket.addr())?;
        transfer::check_send(flags)?;
        if buffers::is_bad(message) {
            return fail(libc::EFAULT);
        }
        // SAFETY: not NULL; the caller vouches for the rest.
        let message = unsafe { &*message };
        if message.msg_controllen > 0 {
            return fail(libc::EOPNOTSUPP);
        }
        // SAFETY: the caller's.
        let to = unsafe { destination(&handle, message.msg_name.cast(), message.msg_namelen) }?;
        let send = |buffers: &mut [IoSlice<'_>]| transfer::send(&handle, buffers, to, flags);
        let count = message.msg_iovlen;
        // SAFETY: the caller's.
        unsafe { buffers::with_readable(message.msg_iov, count, libc::EMSGSIZE, send) }
    })
}

/// recvmsg(2), without ancillary data.
///
/// # Safety
/// `message` must be a valid msghdr for receiving, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_recvmsg(
    socket: *mut c_void,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    edge::size(|| {
        let handle = socket::named(socket.addr())?;
        transfer::check_receive(flags)?;
        if buffers::is_bad(message) {
            return fail(libc::EFAULT);
        }
        // SAFETY: not NULL; the caller vouches for the rest.
        let message = unsafe { &mut *message };
        let receive = |buffers: &mut [IoSliceMut<'_>]| transfer::receive(&handle, buffers, flags);
        let count = message.msg_iovlen;
        // SAFETY: the caller's.
        let received =
            unsafe { buffers::with_writable(message.msg_iov, count, libc::EMSGSIZE, receive) }?;
        let name_len = &raw mut message.msg_namelen;
        // SAFETY: the caller's.
        unsafe { tell_source(&handle, &received, message.msg_name.cast(), name_len) }?;
        message.msg_controllen = 0;
        message.msg_flags = match received.truncated {
            true => libc::MSG_TRUNC,
            false => 0,
        };
        Ok(received.len)
    })
}
