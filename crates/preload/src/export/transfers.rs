//! read, write, send, recv and their variants, sendfile, splice.

use std::io::{IoSlice, IoSliceMut};

use libc::{c_int, c_uint, c_void, iovec, size_t, sockaddr, socklen_t, ssize_t};

use crate::{
    address, buffers, decide, edge, errno, letters, messages, netlink, passing, real, region,
    serve, splice,
    state::{Live, SOCKETS},
    transfer,
};

/// read(2), recv(2) and recvfrom(2) in one. A read of 0 bytes answers at once, as Linux's does.
///
/// # Safety
/// As recvfrom(2).
unsafe fn receive(
    live: Live<'_>,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> std::io::Result<usize> {
    let discards = flags & libc::MSG_TRUNC != 0 && buffer.is_null();
    let received = if discards && live.state.kind == netchan::socket::Kind::Stream {
        transfer::discard(live, len, flags)?
    } else {
        // SAFETY: the caller's.
        let buffer = unsafe { buffers::writable(buffer, len) }?;
        transfer::receive(live, &mut [IoSliceMut::new(buffer)], flags)?
    };
    match received.from {
        // SAFETY: the caller's.
        Some(peer) => unsafe { address::write(peer, live.state.domain, from, from_len) }?,
        None if from.is_null() || from_len.is_null() => {}
        None if buffers::is_bad(from_len) => return errno::fail(libc::EFAULT),
        None => {
            // SAFETY: not NULL; the caller vouches for the rest.
            let room = unsafe { from_len.read_unaligned() };
            // As Linux, which reads it as a signed number once the text has been taken.
            if c_int::try_from(room).is_err() {
                return errno::fail(libc::EINVAL);
            }
            // SAFETY: as above.
            unsafe { from_len.write_unaligned(0) };
        }
    }
    Ok(received.len)
}

/// Whose name is not asked for.
const NO_NAME: (*mut sockaddr, *mut socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());

/// read(2).
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    let served = serve::serve(fd, |live| {
        let none = std::ptr::null_mut();
        if len == 0 {
            return Ok(0);
        }
        // SAFETY: the caller's.
        unsafe { receive(live, buffer, len, 0, none, std::ptr::null_mut()) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::read(fd, buffer, len) };
    // SAFETY: the caller's.
    let listed = || unsafe { netlink::receive_into(fd, (buffer, len), 0, NO_NAME) };
    // SAFETY: the caller's.
    (served.or_else(across).or_else(listed))
        .unwrap_or_else(|| unsafe { (real::READ.get())(fd, buffer, len) })
}

/// recv(2).
///
/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let served = serve::serve(fd, |live| {
        let none = std::ptr::null_mut();
        // SAFETY: the caller's.
        unsafe { receive(live, buffer, len, flags, none, std::ptr::null_mut()) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::receive(fd, (buffer, len), flags, NO_NAME) };
    // SAFETY: the caller's.
    let listed = || unsafe { netlink::receive_into(fd, (buffer, len), flags, NO_NAME) };
    // SAFETY: the caller's.
    (served.or_else(across).or_else(listed))
        .unwrap_or_else(|| unsafe { (real::RECV.get())(fd, buffer, len, flags) })
}

/// recvfrom(2).
///
/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let served = serve::serve(fd, |live| {
        // SAFETY: the caller's.
        unsafe { receive(live, buffer, len, flags, from, from_len) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::receive(fd, (buffer, len), flags, (from, from_len)) };
    // SAFETY: the caller's.
    let listed = || unsafe { netlink::receive_into(fd, (buffer, len), flags, (from, from_len)) };
    (served.or_else(across).or_else(listed)).unwrap_or_else(|| {
        // SAFETY: the caller's.
        unsafe { (real::RECVFROM.get())(fd, buffer, len, flags, from, from_len) }
    })
}

/// The end of a program whose buffer is smaller than what it asks to have filled: what the checked variants are for.
fn overflow() -> ! {
    // SAFETY: ends the process, as the C library does.
    unsafe { libc::abort() }
}

/// read(2), as `_FORTIFY_SOURCE` calls it.
///
/// # Safety
/// As read(2); `room` is the buffer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    if len > room {
        overflow();
    }
    // SAFETY: the caller's.
    unsafe { read(fd, buffer, len) }
}

/// recv(2), as `_FORTIFY_SOURCE` calls it.
///
/// # Safety
/// As recv(2); `room` is the buffer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len > room {
        overflow();
    }
    // SAFETY: the caller's.
    unsafe { recv(fd, buffer, len, flags) }
}

/// recvfrom(2), as `_FORTIFY_SOURCE` calls it.
///
/// # Safety
/// As recvfrom(2); `room` is the buffer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        overflow();
    }
    // SAFETY: the caller's.
    unsafe { recvfrom(fd, buffer, len, flags, from, from_len) }
}

/// As [`serve::serve`], for sends without a destination: they may be what decides which stack serves a datagram socket.
#[inline]
fn serve_send(
    fd: c_int,
    mut call: impl FnMut(Live<'_>) -> std::io::Result<usize>,
) -> Option<isize> {
    if SOCKETS.is_vacant(fd) {
        return None;
    }
    serve::serve(fd, &mut call).or_else(|| {
        if edge::unit(|| decide::before_unaddressed(fd)) < 0 {
            return Some(-1);
        }
        serve::serve(fd, call)
    })
}

/// write(2).
///
/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    let served = serve_send(fd, |live| {
        // SAFETY: the caller's.
        let buffer = unsafe { buffers::readable(buffer, len) }?;
        transfer::send(live, &mut [IoSlice::new(buffer)], None, 0)
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::send(fd, (buffer, len), 0, (std::ptr::null(), 0)) };
    served.or_else(across).unwrap_or_else(|| {
        // SAFETY: the caller's.
        let sent = unsafe { (real::WRITE.get())(fd, buffer, len) };
        // SAFETY: the caller's.
        unsafe { netlink::sent_from(fd, (buffer, len), sent) }
    })
}

/// send(2).
///
/// # Safety
/// As send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let served = serve_send(fd, |live| {
        // SAFETY: the caller's.
        let buffer = unsafe { buffers::readable(buffer, len) }?;
        transfer::send(live, &mut [IoSlice::new(buffer)], None, flags)
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::send(fd, (buffer, len), flags, (std::ptr::null(), 0)) };
    served.or_else(across).unwrap_or_else(|| {
        // SAFETY: the caller's.
        let sent = unsafe { (real::SEND.get())(fd, buffer, len, flags) };
        // SAFETY: the caller's.
        unsafe { netlink::sent_from(fd, (buffer, len), sent) }
    })
}

/// sendto(2).
///
/// # Safety
/// As sendto(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if !to.is_null() && !SOCKETS.is_vacant(fd) {
        // SAFETY: the caller's.
        if edge::unit(|| unsafe { decide::before_datagram(fd, to, to_len, flags) }) < 0 {
            return -1;
        }
    }
    let served = serve_send(fd, |live| {
        // SAFETY: the caller's.
        let buffer = unsafe { buffers::readable(buffer, len) }?;
        // SAFETY: the caller's.
        let to = unsafe { transfer::destination(live, to, to_len, flags) }?;
        transfer::send(live, &mut [IoSlice::new(buffer)], to, flags)
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::send(fd, (buffer, len), flags, (to, to_len)) };
    served.or_else(across).unwrap_or_else(|| {
        // SAFETY: the caller's.
        let sent = unsafe { (real::SENDTO.get())(fd, buffer, len, flags, to, to_len) };
        // SAFETY: the caller's.
        unsafe { netlink::sent_from(fd, (buffer, len), sent) }
    })
}

/// readv(2).
///
/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let served = serve::serve(fd, |live| {
        let count = usize::try_from(count).map_err(|_| errno::error(libc::EINVAL))?;
        let receive = |buffers: &mut [IoSliceMut<'_>]| {
            if buffers.iter().all(|buffer| buffer.is_empty()) {
                return Ok(0);
            }
            transfer::receive(live, buffers, 0).map(|received| received.len)
        };
        // SAFETY: the caller's.
        unsafe { buffers::with_writable(vectors, count, libc::EINVAL, receive) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::receive_vectors(fd, vectors, count) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::READV.get())(fd, vectors, count) })
}

/// writev(2).
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let served = serve_send(fd, |live| {
        let count = usize::try_from(count).map_err(|_| errno::error(libc::EINVAL))?;
        let send = |buffers: &mut [IoSlice<'_>]| transfer::send(live, buffers, None, 0);
        // SAFETY: the caller's.
        unsafe { buffers::with_readable(vectors, count, libc::EINVAL, send) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::send_vectors(fd, vectors, count) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::WRITEV.get())(fd, vectors, count) })
}

/// recvmsg(2).
///
/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> ssize_t {
    let served = serve::serve(fd, |live| {
        // SAFETY: the caller's.
        unsafe { messages::receive_message(live, message, flags) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::receive_message(fd, message, flags) };
    // SAFETY: the caller's.
    let listed = || unsafe { netlink::receive_message(fd, message, flags) };
    if let Some(result) = served.or_else(across).or_else(listed) {
        return result;
    }
    // SAFETY: the caller's.
    let result = unsafe { (real::RECVMSG.get())(fd, message, flags) };
    if result >= 0 {
        // SAFETY: the kernel has filled it in.
        unsafe { passing::after(message) };
    }
    result
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> ssize_t {
    if !SOCKETS.is_vacant(fd) {
        // SAFETY: the caller's.
        if edge::unit(|| unsafe { decide::before_message(fd, message, flags) }) < 0 {
            return -1;
        }
    }
    let served = serve_send(fd, |live| {
        // SAFETY: the caller's.
        unsafe { messages::send_message(live, message, flags) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::send_message(fd, message, flags) };
    served.or_else(across).unwrap_or_else(|| {
        // SAFETY: the caller's.
        unsafe { passing::before(message) };
        // SAFETY: the caller's.
        let sent = unsafe { (real::SENDMSG.get())(fd, message, flags) };
        // SAFETY: the caller's.
        unsafe { netlink::sent_message(fd, message, sent) }
    })
}

/// recvmmsg(2).
///
/// # Safety
/// As recvmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let served = serve::serve_int(fd, |live| {
        // SAFETY: the caller's.
        unsafe { messages::receive_messages(live, messages, count, flags, timeout) }
    });
    // SAFETY: the caller's.
    let across = || unsafe { letters::receive_messages(fd, (messages, count), flags, timeout) };
    served.or_else(across).unwrap_or_else(|| {
        // SAFETY: the caller's.
        unsafe { (real::RECVMMSG.get())(fd, messages, count, flags, timeout) }
    })
}

/// sendmmsg(2).
///
/// # Safety
/// As sendmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !SOCKETS.is_vacant(fd) && !buffers::is_bad(messages) && count > 0 {
        // SAFETY: the first of `count` entries.
        let first = unsafe { &raw const (*messages).msg_hdr };
        // SAFETY: the caller's.
        if edge::unit(|| unsafe { decide::before_message(fd, first, flags) }) < 0 {
            return -1;
        }
    }
    let served = serve_send(fd, |live| {
        // SAFETY: the caller's.
        unsafe { messages::send_messages(live, messages, count, flags) }
    });
    let served = served.map(|sent| c_int::try_from(sent).unwrap_or(c_int::MAX));
    // SAFETY: the caller's.
    let across = || unsafe { letters::send_messages(fd, (messages, count), flags) };
    // SAFETY: the caller's.
    served
        .or_else(across)
        .unwrap_or_else(|| unsafe { (real::SENDMMSG.get())(fd, messages, count, flags) })
}

/// sendfile(2) to netchan's socket; from one is EINVAL, as from any socket. No cancellation point in the C library.
///
/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    input: c_int,
    offset: *mut i64,
    count: size_t,
) -> ssize_t {
    let send = |live: Live<'_>| {
        if !SOCKETS.is_vacant(input) {
            return errno::fail(libc::EINVAL);
        }
        // SAFETY: the caller's.
        unsafe { transfer::send_file(live, input, offset, count) }
    };
    let served = match SOCKETS.is_vacant(out) {
        true => None,
        false => region::uncancelled(|| serve::serve(out, send)),
    };
    // SAFETY: the caller's.
    served.unwrap_or_else(|| unsafe { (real::SENDFILE.get())(out, input, offset, count) })
}

/// sendfile(2) with 64-bit offsets, which are the only ones here.
///
/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    input: c_int,
    offset: *mut i64,
    count: size_t,
) -> ssize_t {
    if SOCKETS.is_vacant(out) {
        // SAFETY: the caller's.
        return unsafe { (real::SENDFILE64.get())(out, input, offset, count) };
    }
    // SAFETY: the caller's.
    unsafe { sendfile(out, input, offset, count) }
}

/// splice(2).
///
/// # Safety
/// As splice(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    input: c_int,
    input_offset: *mut i64,
    out: c_int,
    out_offset: *mut i64,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let seeks = !input_offset.is_null() || !out_offset.is_null();
    let served = serve::serve(input, |live| match seeks {
        true => splice::refuse_offset(!out_offset.is_null()),
        false => splice::out_of(live, out, len, flags),
    });
    let served = served.or_else(|| {
        serve::serve(out, |live| match seeks {
            true => splice::refuse_offset(!input_offset.is_null()),
            false => splice::into(live, input, len, flags),
        })
    });
    served.unwrap_or_else(|| {
        // SAFETY: the caller's.
        unsafe { (real::SPLICE.get())(input, input_offset, out, out_offset, len, flags) }
    })
}
