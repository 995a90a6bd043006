//! recvmsg, sendmsg, recvmmsg and sendmmsg on netchan's sockets: transfers with names and ancillary data.

use std::io::{self, IoSlice, IoSliceMut};

use libc::{c_int, c_uint, mmsghdr, msghdr, socklen_t};
use netchan::socket::Kind;

use crate::{
    address,
    ancillary::{self, Along},
    buffers,
    errno::{fail, would_block},
    stamping,
    state::Live,
    transfer::{destination, receive, receive_error, send_with},
    wait,
};

/// recvmsg(2) on netchan's socket.
///
/// # Safety
/// `message` must be a valid msghdr for receiving, or NULL.
pub unsafe fn receive_message(
    live: Live<'_>,
    message: *mut msghdr,
    flags: c_int,
) -> io::Result<usize> {
    if buffers::is_bad(message) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let message = unsafe { &mut *message };
    name_len(message)?;
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: the caller's.
        return match unsafe { stamping::receive(live, message) } {
            Err(error) if would_block(&error) && live.state.kind != Kind::Stream => {
                // SAFETY: the caller's.
                unsafe { receive_error_message(live, message) }
            }
            told => told,
        };
    }
    let count = message.msg_iovlen;
    let receive = |buffers: &mut [IoSliceMut<'_>]| receive(live, buffers, flags);
    // SAFETY: the caller's.
    let received =
        unsafe { buffers::with_writable(message.msg_iov, count, libc::EMSGSIZE, receive) }?;
    match received.from {
        Some(from) => {
            let len = &raw mut message.msg_namelen;
            // SAFETY: the caller's.
            unsafe { address::write(from, live.state.domain, message.msg_name.cast(), len) }?;
        }
        None if message.msg_name.is_null() => {} // as it was
        None => message.msg_namelen = 0,
    }
    let told = if live.state.kind == Kind::Stream {
        // SAFETY: the caller's.
        unsafe { ancillary::tell_of_stream(message, live) }
    } else {
        // SAFETY: the caller's.
        unsafe { ancillary::tell(message, &received, live) }
    };
    message.msg_flags = told | truncated(received.truncated) | flags & libc::MSG_OOB;
    Ok(received.len)
}

/// How long a message's name is, which Linux reads as a signed number: EINVAL where that is negative. One that is longer than all addresses is cut.
fn name_len(message: &msghdr) -> io::Result<socklen_t> {
    match c_int::try_from(message.msg_namelen) {
        Err(_) if !message.msg_name.is_null() => fail(libc::EINVAL),
        _ => Ok(message.msg_namelen.min(address::LONGEST)),
    }
}

const fn truncated(is: bool) -> c_int {
    if is { libc::MSG_TRUNC } else { 0 }
}

/// recvmsg(2) with MSG_ERRQUEUE: the payload of the datagram that an error is about, and the error as ancillary data.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
unsafe fn receive_error_message(live: Live<'_>, message: &mut msghdr) -> io::Result<usize> {
    let receive = |buffers: &mut [IoSliceMut<'_>]| receive_error(live, buffers);
    let count = message.msg_iovlen;
    // SAFETY: the caller's.
    let received =
        unsafe { buffers::with_writable(message.msg_iov, count, libc::EMSGSIZE, receive) }?;
    let (error, domain) = (&received.error, live.state.domain);
    let len = &raw mut message.msg_namelen;
    // SAFETY: the caller's.
    unsafe { address::write(error.destination, domain, message.msg_name.cast(), len) }?;
    // SAFETY: the caller's.
    let told = unsafe { ancillary::tell_error(message, error, domain) };
    message.msg_flags = told | truncated(received.truncated);
    Ok(received.len)
}

/// sendmsg(2) on netchan's socket.
///
/// # Safety
/// `message` must be a valid msghdr for sending, or NULL.
pub unsafe fn send_message(
    live: Live<'_>,
    message: *const msghdr,
    flags: c_int,
) -> io::Result<usize> {
    if buffers::is_bad(message) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let message = unsafe { &*message };
    let name_len = name_len(message)?;
    // As Linux: a name without a length is none.
    let name = if name_len == 0 {
        std::ptr::null()
    } else {
        message.msg_name.cast_const()
    };
    let along = if message.msg_controllen == 0 || message.msg_control.is_null() {
        Along::default()
    } else {
        // SAFETY: the caller's.
        unsafe { ancillary::read(message, live) }?
    };
    // SAFETY: the caller's.
    let to = unsafe { destination(live, name.cast(), name_len, flags) }?;
    let count = message.msg_iovlen;
    let send = |buffers: &mut [IoSlice<'_>]| send_with(live, buffers, to, along, flags);
    // SAFETY: the caller's.
    unsafe { buffers::with_readable(message.msg_iov, count, libc::EMSGSIZE, send) }
}

/// sendmmsg(2): how many messages went; an error only if the first failed.
///
/// # Safety
/// `messages` must hold `count` valid entries, or be NULL.
pub unsafe fn send_messages(
    live: Live<'_>,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> io::Result<usize> {
    if buffers::is_bad(messages) && count > 0 {
        return fail(libc::EFAULT);
    }
    let count = (count as usize).min(buffers::VECTORS_MAX);
    for at in 0..count {
        let entry = messages.wrapping_add(at);
        // SAFETY: at < count; the caller vouches for the entries.
        let header = unsafe { &raw mut (*entry).msg_hdr };
        // SAFETY: the caller's.
        match unsafe { send_message(live, header, flags) } {
            // SAFETY: at < count.
            Ok(len) => unsafe { (*entry).msg_len = c_uint::try_from(len).unwrap_or(c_uint::MAX) },
            Err(error) if at == 0 => return Err(error),
            Err(_) => return Ok(at),
        }
    }
    Ok(count)
}

/// recvmmsg(2): how many messages came; an error only if the first failed. As in Linux, `timeout` is looked at after each
/// message.
///
/// # Safety
/// `messages` must hold `count` valid entries, or be NULL; `timeout` must be readable, or NULL.
pub unsafe fn receive_messages(
    live: Live<'_>,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *const libc::timespec,
) -> io::Result<usize> {
    if buffers::is_bad(messages) && count > 0 {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    let deadline = wait::Deadline::after(unsafe { wait::timespec(timeout) }?);
    let mut flags = flags;
    let count = (count as usize).min(buffers::VECTORS_MAX);
    for at in 0..count {
        let entry = messages.wrapping_add(at);
        // SAFETY: at < count; the caller vouches for the entries.
        let header = unsafe { &raw mut (*entry).msg_hdr };
        // SAFETY: the caller's.
        match unsafe { receive_message(live, header, flags & !libc::MSG_WAITFORONE) } {
            // SAFETY: at < count.
            Ok(len) => unsafe { (*entry).msg_len = c_uint::try_from(len).unwrap_or(c_uint::MAX) },
            Err(error) if at == 0 => return Err(error),
            Err(_) => return Ok(at),
        }
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        if deadline.passed() {
            return Ok(at + 1);
        }
    }
    Ok(count)
}
