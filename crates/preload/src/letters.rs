//! Transfers on datagram sockets that several processes hold (`crossing`): the kernel carries each datagram behind a head, which is put on and taken off
//! here. Waiting, signals and cancellation are the kernel's.
//!
//! Each function answers `None` where `fd` is no such socket.

mod sending;

use std::{io, mem::MaybeUninit, os::fd::RawFd, ptr, slice};

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t};
use netchan::{
    relay::letter::{Arrived, HEAD, Head, Inward},
    socket::{
        Domain,
        options::{CallerOption, Setting, parse},
    },
};

use crate::{
    address,
    ancillary::{self, ToTell},
    buffers,
    crossing::{self, Crossing},
    edge,
    errno::{self, fail},
    real, sys, wait,
};

pub use self::sending::{connect, send, send_message, send_messages, send_vectors};

/// Parts of a message that are sorted out in a small place.
const FEW: usize = 17;
/// As many as the kernel takes, and the head.
const MOST: usize = buffers::VECTORS_MAX + 1;

/// What a call said and was answered: nothing where the kernel has set errno.
type Answer<T> = Result<T, ()>;

/// errno, and nothing.
fn refuse<T>(code: c_int) -> Answer<T> {
    errno::set(code);
    Err(())
}

/// A result as C has it.
fn int(result: Answer<usize>) -> isize {
    result.map_or(-1, |n| isize::try_from(n).unwrap_or(isize::MAX))
}

/// Runs `call` on the head and these parts, as one message's.
///
/// # Safety
/// `vectors` must be readable for `count` entries, or NULL.
unsafe fn with_parts<T>(
    head: *mut Head,
    vectors: *const iovec,
    count: usize,
    call: impl FnOnce(&mut [iovec]) -> Answer<T>,
) -> Answer<T> {
    if count >= MOST {
        return refuse(libc::EMSGSIZE);
    }
    if count > 0 && buffers::is_bad(vectors) {
        return refuse(libc::EFAULT);
    }
    let vectors = if count == 0 {
        &[]
    } else {
        // SAFETY: not NULL; the caller vouches for the rest.
        unsafe { slice::from_raw_parts(vectors, count) }
    };
    if count < FEW {
        return call(put_together::<FEW>(head, vectors, &mut few()));
    }
    many(head, vectors, call)
}

/// No memory is taken: the call may be a handler's.
#[inline(never)]
fn many<T>(
    head: *mut Head,
    vectors: &[iovec],
    call: impl FnOnce(&mut [iovec]) -> Answer<T>,
) -> Answer<T> {
    call(put_together::<MOST>(head, vectors, &mut few()))
}

const fn few<const N: usize>() -> [iovec; N] {
    [iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }; N]
}

fn put_together<'a, const N: usize>(
    head: *mut Head,
    vectors: &[iovec],
    room: &'a mut [iovec; N],
) -> &'a mut [iovec] {
    let first = iovec {
        iov_base: head.cast(),
        iov_len: HEAD,
    };
    let all = [first].into_iter().chain(vectors.iter().copied());
    room.iter_mut().zip(all).for_each(|(to, part)| *to = part);
    room.get_mut(..=vectors.len()).unwrap_or_default()
}

/// A message of these parts, without a name and ancillary data.
fn message(parts: &mut [iovec]) -> msghdr {
    // SAFETY: zeroed is a message of nothing.
    let mut message = unsafe { MaybeUninit::<msghdr>::zeroed().assume_init() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    message
}

/// What came.
struct Taken {
    /// Bytes of its text that were written; with MSG_TRUNC all that it had.
    len: usize,
    is_cut: bool,
    arrived: Arrived,
}

/// Waits for the next datagram as the kernel waits for it.
///
/// # Safety
/// `vectors` must be readable for `count` entries, each writable for its length; or NULL.
unsafe fn take(
    fd: RawFd,
    crossing: &Crossing,
    (vectors, count): (*const iovec, usize),
    flags: c_int,
) -> Answer<Taken> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return refuse(libc::EAGAIN); // what there was to say is not told here
    }
    let mut head = [0; HEAD];
    let receive = |parts: &mut [iovec]| {
        let mut message = message(parts);
        // SAFETY: the message describes `head` and the caller's parts.
        let got = unsafe { (real::RECVMSG.get())(fd, &raw mut message, flags) };
        let len = usize::try_from(got).map_err(|_| ())?;
        Ok((len, message.msg_flags & libc::MSG_TRUNC != 0))
    };
    // SAFETY: the caller's.
    let (len, is_cut) = unsafe { with_parts(&raw mut head, vectors, count, receive) }?;
    if len == 0 {
        crossing.answers.hold_back(); // it would ask again and again
        return refuse(libc::ENETDOWN);
    }
    match Inward::decode(&head) {
        Some(Inward::Datagram(arrived)) if len >= HEAD => {
            let age = sys::monotonic().saturating_sub(arrived.at);
            crossing.arrival.note(&crossing.asked, age);
            Ok(Taken {
                len: len - HEAD,
                is_cut,
                arrived,
            })
        }
        Some(Inward::Failed(code)) => {
            if flags & libc::MSG_PEEK != 0 {
                forget_one(fd); // as an error of the kernel's, which is told once
            }
            refuse(code)
        }
        _ => refuse(libc::EIO),
    }
}

fn forget_one(fd: RawFd) {
    let none = ptr::null_mut();
    // SAFETY: no byte is written.
    unsafe { (real::RECV.get())(fd, none, 0, libc::MSG_DONTWAIT) };
}

/// read(2), recv(2) and recvfrom(2) in one.
///
/// # Safety
/// As recvfrom(2).
#[inline]
pub unsafe fn receive(
    fd: RawFd,
    (buffer, len): (*mut c_void, size_t),
    flags: c_int,
    (from, from_len): (*mut sockaddr, *mut socklen_t),
) -> Option<isize> {
    let crossing = crossing::get(fd)?;
    let part = iovec {
        iov_base: buffer,
        iov_len: len,
    };
    // SAFETY: the caller's.
    let taken = unsafe { take(fd, &crossing, (&raw const part, 1), flags) };
    Some(int(taken.and_then(|taken| {
        let domain = crossing.name.domain;
        // SAFETY: the caller's.
        told(|| unsafe { write_name(&taken.arrived, domain, from, from_len) })?;
        Ok(taken.len)
    })))
}

/// read(2), whose read of nothing answers at once.
///
/// # Safety
/// As read(2).
#[inline]
pub unsafe fn read(fd: RawFd, buffer: *mut c_void, len: size_t) -> Option<isize> {
    let no_name = (ptr::null_mut(), ptr::null_mut());
    match len {
        0 => crossing::get(fd).map(|_| 0),
        // SAFETY: the caller's.
        _ => unsafe { receive(fd, (buffer, len), 0, no_name) },
    }
}

/// What is to be said of a datagram that was taken, at the C edge.
fn told(tell: impl FnOnce() -> io::Result<()>) -> Answer<()> {
    match edge::unit(tell) {
        0 => Ok(()),
        _ => Err(()),
    }
}

/// # Safety
/// As for [`address::write`].
unsafe fn write_name(
    arrived: &Arrived,
    domain: Domain,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<()> {
    match arrived.from {
        // SAFETY: the caller's.
        Some(from) => unsafe { address::write(from, domain, pointer, len) },
        None => Ok(()),
    }
}

/// readv(2).
///
/// # Safety
/// As readv(2).
#[inline]
pub unsafe fn receive_vectors(fd: RawFd, vectors: *const iovec, count: c_int) -> Option<isize> {
    let crossing = crossing::get(fd)?;
    let Ok(count) = usize::try_from(count) else {
        return Some(int(refuse(libc::EINVAL)));
    };
    // SAFETY: the caller's.
    let taken = unsafe { take(fd, &crossing, (vectors, count), 0) };
    Some(int(taken.map(|taken| taken.len)))
}

/// recvmsg(2).
///
/// # Safety
/// As recvmsg(2).
#[inline]
pub unsafe fn receive_message(fd: RawFd, message: *mut msghdr, flags: c_int) -> Option<isize> {
    let crossing = crossing::get(fd)?;
    // SAFETY: the caller's.
    Some(int(unsafe { receive_into(fd, &crossing, message, flags) }))
}

/// # Safety
/// As recvmsg(2).
unsafe fn receive_into(
    fd: RawFd,
    crossing: &Crossing,
    message: *mut msghdr,
    flags: c_int,
) -> Answer<usize> {
    if buffers::is_bad(message) {
        return refuse(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let message = unsafe { &mut *message };
    let parts = (message.msg_iov.cast_const(), message.msg_iovlen);
    // SAFETY: the caller's.
    let taken = unsafe { take(fd, crossing, parts, flags) }?;
    told(|| {
        let (name, len) = (message.msg_name.cast(), &raw mut message.msg_namelen);
        // SAFETY: the caller's.
        unsafe { write_name(&taken.arrived, crossing.name.domain, name, len) }?;
        let to_tell = ToTell {
            asked: &crossing.asked,
            domain: crossing.name.domain,
            stamped: crossing.tells_arrivals(),
        };
        let mut info = taken.arrived.info;
        if let Some(info) = &mut info {
            info.age = sys::monotonic().saturating_sub(taken.arrived.at);
        }
        let answer_from = || taken.arrived.answer_from;
        // SAFETY: the caller's.
        let flags = unsafe { ancillary::tell_of_datagram(message, info, &to_tell, answer_from) };
        message.msg_flags = flags | if taken.is_cut { libc::MSG_TRUNC } else { 0 };
        Ok(())
    })?;
    Ok(taken.len)
}

/// recvmmsg(2).
///
/// # Safety
/// As recvmmsg(2).
#[inline]
pub unsafe fn receive_messages(
    fd: RawFd,
    (messages, count): (*mut mmsghdr, c_uint),
    flags: c_int,
    timeout: *const libc::timespec,
) -> Option<c_int> {
    let crossing = crossing::get(fd)?;
    // SAFETY: the caller's.
    let answer = unsafe { receive_several(fd, &crossing, (messages, count), flags, timeout) };
    Some(c_int::try_from(int(answer)).unwrap_or(c_int::MAX))
}

/// # Safety
/// As recvmmsg(2).
unsafe fn receive_several(
    fd: RawFd,
    crossing: &Crossing,
    (messages, count): (*mut mmsghdr, c_uint),
    flags: c_int,
    timeout: *const libc::timespec,
) -> Answer<usize> {
    if buffers::is_bad(messages) && count > 0 {
        return refuse(libc::EFAULT);
    }
    // SAFETY: the caller's.
    let limit = match unsafe { wait::timespec(timeout) } {
        Ok(limit) => limit,
        Err(error) => return refuse(errno::code(&error)),
    };
    let deadline = wait::Deadline::after(limit);
    let mut flags = flags;
    let count = (count as usize).min(buffers::VECTORS_MAX);
    for at in 0..count {
        let entry = messages.wrapping_add(at);
        // SAFETY: at < count; the caller vouches for the entries.
        let header = unsafe { &raw mut (*entry).msg_hdr };
        // SAFETY: the caller's.
        match unsafe { receive_into(fd, crossing, header, flags & !libc::MSG_WAITFORONE) } {
            // SAFETY: at < count.
            Ok(len) => unsafe { (*entry).msg_len = c_uint::try_from(len).unwrap_or(c_uint::MAX) },
            Err(()) if at == 0 => return Err(()),
            Err(()) => return Ok(at),
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

/// setsockopt(2) of what is kept for each process: what recvmsg(2) tells. `None`: something else.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn set_option(
    fd: RawFd,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Option<c_int> {
    let crossing = crossing::get(fd)?;
    // SAFETY: the caller's.
    let value = unsafe { buffers::readable(value, len as usize) }.ok()?;
    match parse(level, name, value).ok()? {
        Setting::Caller(CallerOption::Flag(flag, on)) => crossing.asked.set(flag, on),
        Setting::Caller(CallerOption::Timestamping(flags)) => crossing.set_stamping(flags),
        _ => return None,
    }
    Some(0)
}

/// ioctl(2) with FIONREAD: bytes of the next datagram.
///
/// # Safety
/// `place` must be writable.
pub unsafe fn unread(fd: RawFd, place: *mut c_int) -> Option<c_int> {
    let _crossing = crossing::get(fd)?;
    Some(edge::unit(|| {
        if buffers::is_bad(place) {
            return fail(libc::EFAULT);
        }
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        // SAFETY: no byte is written.
        let whole = unsafe { (real::RECV.get())(fd, ptr::null_mut(), 0, flags) };
        let text = usize::try_from(whole).unwrap_or(0).saturating_sub(HEAD);
        // SAFETY: not NULL; the caller vouches for the rest.
        unsafe { place.write_unaligned(c_int::try_from(text).unwrap_or(c_int::MAX)) };
        Ok(())
    }))
}
