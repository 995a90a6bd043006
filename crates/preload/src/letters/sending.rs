//! Sends, and connect(2), on datagram sockets that several processes hold.

use std::{io, net::SocketAddr, os::fd::RawFd, ptr};

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t};
use netchan::{
    relay::letter::{HEAD, Outward},
    socket::{Domain, Kind, SendInfo},
};

use super::{Answer, int, message, refuse, told, with_parts};
use crate::{
    address::{self, Given},
    ancillary::{self, Sender},
    buffers,
    crossing::{self, Crossing},
    errno::{self, fail},
    real,
    table::Handle,
};

/// The longest text: a datagram's, or what UDP_SEGMENT cuts up.
const fn text_max(domain: Domain) -> usize {
    match domain {
        Domain::V4 => 65_507,
        Domain::V6 => 65_527,
    }
}

/// Where a datagram goes.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
unsafe fn destination(
    crossing: &Crossing,
    pointer: *const sockaddr,
    len: socklen_t,
) -> io::Result<Option<SocketAddr>> {
    let domain = crossing.name.domain;
    if pointer.is_null() {
        return match crossing.peer() {
            Some(_) => Ok(None),
            None => fail(libc::EDESTADDRREQ),
        };
    }
    // SAFETY: the caller's.
    match unsafe { address::read(pointer, len, domain) }? {
        Given::Inet(address) => Ok(Some(address)),
        Given::Unspecified if domain == Domain::V6 => Ok(None),
        // SAFETY: the caller's.
        Given::Unspecified => unsafe { address::read_v4(pointer, len) }.map(Some),
    }
}

/// Sends one datagram, waiting as the kernel waits.
///
/// # Safety
/// `vectors` must be readable for `count` entries, each readable for its length; or NULL.
unsafe fn put(
    fd: RawFd,
    crossing: &Crossing,
    (vectors, count): (*const iovec, usize),
    letter: Outward,
    flags: c_int,
) -> Answer<usize> {
    if flags & libc::MSG_OOB != 0 && crossing.name.domain == Domain::V4 {
        return refuse(libc::EOPNOTSUPP);
    }
    let mut head = letter.encode();
    let send = |parts: &mut [iovec]| {
        let lens = parts.iter().map(|part| part.iov_len);
        let len = lens.fold(0, usize::saturating_add);
        if len > HEAD + text_max(crossing.name.domain) {
            return refuse(libc::EMSGSIZE);
        }
        let message = message(parts);
        let flags = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message describes `head` and the caller's parts.
        let sent = unsafe { (real::SENDMSG.get())(fd, &raw const message, flags) };
        match usize::try_from(sent) {
            Ok(_) => Ok(len - HEAD),
            Err(_) if errno::get() == libc::EPIPE => {
                crossing.answers.hold_back(); // it would ask again and again
                refuse(libc::ENETDOWN)
            }
            Err(_) => Err(()),
        }
    };
    // SAFETY: the caller's.
    unsafe { with_parts(&raw mut head, vectors, count, send) }
}

/// What stands in `C`'s terms in a call about `crossing`, read at the edge.
fn asked<T>(read: impl FnOnce() -> io::Result<T>) -> Answer<T> {
    let mut value = None;
    let read = || {
        value = Some(read()?);
        Ok(())
    };
    told(read)?;
    value.ok_or(())
}

fn info(flags: c_int) -> SendInfo {
    SendInfo {
        more: flags & libc::MSG_MORE != 0,
        ..SendInfo::default()
    }
}

/// write(2), send(2) and sendto(2) in one.
///
/// # Safety
/// As sendto(2).
#[inline]
pub unsafe fn send(
    fd: RawFd,
    (buffer, len): (*const c_void, size_t),
    flags: c_int,
    (to, to_len): (*const sockaddr, socklen_t),
) -> Option<isize> {
    let crossing = crossing::get(fd)?;
    let part = iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len,
    };
    // SAFETY: the caller's.
    let to = asked(|| unsafe { destination(&crossing, to, to_len) });
    Some(int(to.and_then(|to| {
        let letter = Outward::Datagram(to, info(flags));
        // SAFETY: the caller's.
        unsafe { put(fd, &crossing, (&raw const part, 1), letter, flags) }
    })))
}

/// writev(2).
///
/// # Safety
/// As writev(2).
#[inline]
pub unsafe fn send_vectors(fd: RawFd, vectors: *const iovec, count: c_int) -> Option<isize> {
    let crossing = crossing::get(fd)?;
    let Ok(count) = usize::try_from(count) else {
        return Some(int(refuse(libc::EINVAL)));
    };
    // SAFETY: NULL wants the peer.
    let to = asked(|| unsafe { destination(&crossing, ptr::null(), 0) });
    Some(int(to.and_then(|to| {
        let letter = Outward::Datagram(to, info(0));
        // SAFETY: the caller's.
        unsafe { put(fd, &crossing, (vectors, count), letter, 0) }
    })))
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
#[inline]
pub unsafe fn send_message(fd: RawFd, message: *const msghdr, flags: c_int) -> Option<isize> {
    let crossing = crossing::get(fd)?;
    // SAFETY: the caller's.
    Some(int(unsafe { send_out_of(fd, &crossing, message, flags) }))
}

/// # Safety
/// As sendmsg(2).
unsafe fn send_out_of(
    fd: RawFd,
    crossing: &Crossing,
    message: *const msghdr,
    flags: c_int,
) -> Answer<usize> {
    if buffers::is_bad(message) {
        return refuse(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let message = unsafe { &*message };
    let letter = asked(|| {
        let mut info = info(flags);
        if message.msg_controllen > 0 && !message.msg_control.is_null() {
            let sender = Sender {
                kind: Kind::Datagram,
                domain: crossing.name.domain,
                numbers_stamps: false,
            };
            // SAFETY: the caller's.
            let along = unsafe { ancillary::read_of(message, &sender) }?;
            info = SendInfo {
                more: info.more,
                ..along.info
            };
        }
        // SAFETY: the caller's.
        let to = unsafe { destination(crossing, message.msg_name.cast(), message.msg_namelen) }?;
        Ok(Outward::Datagram(to, info))
    })?;
    let parts = (message.msg_iov.cast_const(), message.msg_iovlen);
    // SAFETY: the caller's.
    unsafe { put(fd, crossing, parts, letter, flags) }
}

/// sendmmsg(2).
///
/// # Safety
/// As sendmmsg(2).
#[inline]
pub unsafe fn send_messages(
    fd: RawFd,
    (messages, count): (*mut mmsghdr, c_uint),
    flags: c_int,
) -> Option<c_int> {
    let crossing = crossing::get(fd)?;
    // SAFETY: the caller's.
    let answer = unsafe { send_several(fd, &crossing, (messages, count), flags) };
    Some(c_int::try_from(int(answer)).unwrap_or(c_int::MAX))
}

/// # Safety
/// As sendmmsg(2).
unsafe fn send_several(
    fd: RawFd,
    crossing: &Crossing,
    (messages, count): (*mut mmsghdr, c_uint),
    flags: c_int,
) -> Answer<usize> {
    if buffers::is_bad(messages) && count > 0 {
        return refuse(libc::EFAULT);
    }
    let count = (count as usize).min(buffers::VECTORS_MAX);
    for at in 0..count {
        let entry = messages.wrapping_add(at);
        // SAFETY: at < count; the caller vouches for the entries.
        let header = unsafe { &raw mut (*entry).msg_hdr };
        // SAFETY: the caller's.
        match unsafe { send_out_of(fd, crossing, header, flags) } {
            // SAFETY: at < count.
            Ok(len) => unsafe { (*entry).msg_len = c_uint::try_from(len).unwrap_or(c_uint::MAX) },
            Err(()) if at == 0 => return Err(()),
            Err(()) => return Ok(at),
        }
    }
    Ok(count)
}

/// connect(2): this process's from now on, and the socket's once the process that has the stack reads it.
///
/// # Safety
/// As connect(2).
pub unsafe fn connect(fd: RawFd, pointer: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let crossing: Handle<Crossing> = crossing::get(fd)?;
    // SAFETY: the caller's.
    let given = asked(|| unsafe { address::read(pointer, len, crossing.name.domain) });
    let done = given.and_then(|given| {
        let (letter, peer) = match given {
            Given::Inet(to) => (Outward::Connect(to), Some(to)),
            Given::Unspecified => (Outward::Disconnect, None),
        };
        // SAFETY: no part.
        unsafe { put(fd, &crossing, (ptr::null(), 0), letter, 0) }?;
        told(|| {
            crossing::connected(fd, peer);
            Ok(())
        })
    });
    Some(if done.is_ok() { 0 } else { -1 })
}
