//! Calls about a descriptor of the kernel's that stands for a stream which several processes hold (`share`): what the kernel does not know of it.
//!
//! Reading, writing, waiting and closing are the kernel's. Names, the family, options below the socket's own, and accepting are answered here, by what the
//! descriptor's name says, in any process that has this library.

use std::{io, mem::MaybeUninit, net::SocketAddr, os::fd::BorrowedFd, ptr};

use libc::{c_int, c_void, sockaddr, socklen_t};
use netchan::socket::options::parse;

use crate::{
    address, buffers, crossing, edge,
    errno::{self, fail},
    fork,
    line::{self, Said, VALUE_MAX, Wish},
    numbers, process, real,
    share::{self, Encoded, LEN, Name, Role},
    sys::{self, Fact},
};

/// getsockname(2) and, of a `peer`, getpeername(2); `None`: `fd` is no such descriptor.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn name(
    fd: c_int,
    is_peers: bool,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> Option<c_int> {
    let name = share::name_of(fd)?;
    Some(edge::unit(|| {
        let wanted = match (is_peers, name.role) {
            (false, _) => name.local,
            (true, Role::Connection) => name.peer,
            (true, Role::Listener) => return fail(libc::ENOTCONN),
            (true, Role::Datagrams) => peer_of_datagrams(fd, &name)?,
        };
        if pointer.is_null() || len.is_null() {
            return fail(libc::EFAULT);
        }
        // SAFETY: the caller's.
        unsafe { address::write(wanted, name.domain, pointer, len) }
    }))
}

/// This process may have connected it since.
fn peer_of_datagrams(fd: c_int, name: &Name) -> io::Result<SocketAddr> {
    let peer = match crossing::get(fd) {
        Some(crossing) => crossing.peer(),
        None => Some(name.peer).filter(|peer| peer.port() != 0),
    };
    peer.ok_or_else(|| errno::error(libc::ENOTCONN))
}

/// bind(2) or connect(2) (`call`) of a supervised program's UDP socket, which may be netchan's from then on; `None`: it is something else.
///
/// # Safety
/// As the call's.
pub unsafe fn supervised(
    call: libc::c_long,
    fd: c_int,
    pointer: *const sockaddr,
    len: socklen_t,
) -> Option<c_int> {
    if !process::is_supervised() || !sys::is_udp(fd) {
        return None;
    }
    Some(edge::unit(|| {
        // SAFETY: the caller's.
        unsafe { sys::ask_supervisor(call, fd, pointer, len) }?;
        if crossing::look_at(fd) {
            let _ = fork::claim(); // without it a vfork child takes the table for its own
        }
        Ok(())
    }))
}

/// listen(2) where the kernel has refused: once more on a listener is no error. False: `fd` is none.
pub fn listens(fd: c_int) -> bool {
    errno::get() == libc::EINVAL
        && share::name_of(fd).is_some_and(|name| name.role == Role::Listener)
}

/// accept4(2) where the kernel has refused; `None`: `fd` is no such listener. A cancellation point.
///
/// # Safety
/// As for [`address::write`].
pub unsafe fn accept(
    fd: c_int,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    if errno::get() != libc::EINVAL {
        return None;
    }
    share::name_of(fd).filter(|name| name.role == Role::Listener)?;
    if edge::unit(|| may_accept(fd, flags)) < 0 {
        return Some(-1);
    }
    let Some((new, name)) = take(fd, flags & libc::SOCK_CLOEXEC != 0) else {
        return Some(-1);
    };
    Some(edge::int(|| {
        numbers::fresh(new);
        if flags & libc::SOCK_NONBLOCK != 0 {
            // SAFETY: came just now.
            let new = unsafe { BorrowedFd::borrow_raw(new) };
            share::set_nonblocking(new, true)?;
        }
        // SAFETY: the caller's.
        if let Err(error) = unsafe { address::write(name.peer, name.domain, pointer, len) } {
            let _ = sys::close(new);
            return Err(error);
        }
        Ok(new)
    }))
}

/// A number must be left first: the kernel drops a descriptor for which there is none.
fn may_accept(listener: c_int, flags: c_int) -> io::Result<()> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    sys::close(sys::fcntl(listener, libc::F_DUPFD_CLOEXEC, 0)?)
}

/// Waits for the next connection in the queue, as the kernel waits in it, with signals and cancellation as they are there. `None`: errno says why.
fn take(listener: c_int, closes_on_exec: bool) -> Option<(c_int, Name)> {
    /// Words of a control message with one descriptor.
    const CONTROL: usize = 4;
    let mut text: Encoded = [0; LEN];
    let mut control = [0_usize; CONTROL];
    let mut part = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    // SAFETY: zeroed is a message of nothing.
    let mut message = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = if closes_on_exec {
        libc::MSG_CMSG_CLOEXEC
    } else {
        0
    };
    // SAFETY: the message describes `text` and `control`.
    let received = unsafe { (real::RECVMSG.get())(listener, &raw mut message, flags) };
    if received < 0 {
        return None;
    }
    if received == 0 {
        errno::set(libc::EINVAL); // as of one that listens no more
        return None;
    }
    let came = descriptor(&message);
    let name = Name::decode(text.get(..received.unsigned_abs()).unwrap_or_default());
    match (came, name) {
        (Some(new), Some(name)) => Some((new, name)),
        (came, _) => {
            came.map(sys::close);
            errno::set(libc::ECONNABORTED);
            None
        }
    }
}

/// The descriptor that came with a message.
fn descriptor(message: &libc::msghdr) -> Option<c_int> {
    // SAFETY: the kernel has filled it in.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: NULL, or in the message's own room.
    let header = unsafe { first.as_ref() }?;
    if header.cmsg_level != libc::SOL_SOCKET || header.cmsg_type != libc::SCM_RIGHTS {
        return None;
    }
    // SAFETY: a header of the kernel's.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: one of descriptors has one at least.
    Some(unsafe { data.cast::<c_int>().read_unaligned() })
}

/// getsockopt(2) of what the kernel would answer of the pair; `None`: the kernel answers.
///
/// # Safety
/// `value` must be writable for `*len` bytes, `len` readable and writable; either may be NULL.
pub unsafe fn option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<c_int> {
    let fact = sys::fact_asked(level, name)?;
    let of = share::name_of(fd)?;
    let answer = match fact {
        Fact::Type if of.role == Role::Datagrams => libc::SOCK_DGRAM,
        Fact::Protocol if of.role == Role::Datagrams => libc::IPPROTO_UDP,
        Fact::Type => libc::SOCK_STREAM,
        Fact::Family => address::family(of.domain),
        Fact::Protocol => libc::IPPROTO_TCP,
        Fact::Listens => c_int::from(of.role == Role::Listener),
    };
    Some(edge::unit(|| {
        if buffers::is_bad(value) || buffers::is_bad(len) {
            return fail(libc::EFAULT);
        }
        // SAFETY: not NULL; the caller vouches for the rest.
        let room = unsafe { len.read_unaligned() } as usize;
        if c_int::try_from(room).is_err() {
            return fail(libc::EINVAL);
        }
        let bytes = answer.to_ne_bytes();
        let given = room.min(bytes.len());
        // SAFETY: the caller vouches for `room` bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), given) };
        let given = socklen_t::try_from(given).unwrap_or(0);
        // SAFETY: as above.
        unsafe { len.write_unaligned(given) };
        Ok(())
    }))
}

/// setsockopt(2) where the kernel has refused: the process that has the stack sets it. `None`: `fd` is no such descriptor.
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
pub unsafe fn set_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Option<c_int> {
    let is_below = matches!(
        level,
        libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6
    );
    if !is_below || !matches!(errno::get(), libc::EOPNOTSUPP | libc::ENOPROTOOPT) {
        return None;
    }
    let number = share::name_of(fd)?.number;
    Some(edge::unit(|| {
        // SAFETY: the caller's.
        let value = unsafe { buffers::readable(value, len as usize) }?;
        parse(level, name, value)?;
        if value.len() > VALUE_MAX {
            return fail(libc::ENOPROTOOPT);
        }
        // A program that came by it through exec has no line: what it sets has no effect.
        line::say(&Said::Sets(Wish {
            number,
            level,
            name,
            value: value.to_vec(),
        }));
        Ok(())
    }))
}
