//! What stands at the number of a socket that several processes hold: one end of a pair of UNIX sockets.
//!
//! A socket of netchan's lives on the heap of the process that has the stack; other processes can have a descriptor of the kernel's alone. They share
//! one end of a pair, whose other end stays with that process. The kernel counts its holders, through fork, exec, dup and SCM_RIGHTS, and when the last
//! of them goes the other end learns it.
//!
//! Of a connection it is a pair of streams: bytes go through it as they would through the connection. Of a listener it is a pair that keeps messages
//! apart: each message is one accepted connection, its name as the text and its descriptor beside it. All that have the listener take from one queue. Of a
//! datagram socket it is such a pair, too, and each message a datagram behind a head (`netchan::relay::letter`).
//!
//! The shared end has an abstract name that says what it stands for, since a program that came by it through exec knows nothing else of it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
};

use netchan::own::Own;
pub use netchan::relay::name::{Encoded, LEN, Name, Role};
use rustix::{
    fs::OFlags,
    net::{
        AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname,
        shutdown, socketpair,
    },
};

use crate::locks;

/// A pair: the end that is to be shared, which has no name yet, and the one that stays. Both are closed on exec, and ours does not block.
///
/// # Errors
/// The system's: no descriptor is left.
pub fn pair(role: Role) -> io::Result<(OwnedFd, Own)> {
    let kind = match role {
        Role::Connection => SocketType::STREAM,
        Role::Listener | Role::Datagrams => SocketType::SEQPACKET,
    };
    let (shared, ours) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    set_nonblocking(ours.as_fd(), true)?;
    if role == Role::Listener {
        shutdown(&ours, Shutdown::Read)?; // what is written to a listener is refused
    }
    Ok((shared, Own::keep(ours)))
}

/// A pair of which both ends are ours as yet. No child is made meanwhile, which would keep an end that is not marked.
///
/// # Errors
/// As [`pair`].
pub fn own_pair(role: Role) -> io::Result<(Own, Own)> {
    let _no_fork = locks::giving_back();
    let (shared, ours) = pair(role)?;
    Ok((Own::keep(shared), ours))
}

/// O_NONBLOCK.
///
/// # Errors
/// The system's.
pub fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let flags = if on {
        OFlags::NONBLOCK
    } else {
        OFlags::empty()
    };
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// Gives a shared end its name.
///
/// # Errors
/// The system's.
pub fn set_name(shared: BorrowedFd<'_>, name: &Encoded) -> io::Result<()> {
    Ok(bind(shared, &SocketAddrUnix::new_abstract_name(name)?)?)
}

/// What `fd` stands for, if it is a shared end. One system call.
pub fn name_of(fd: RawFd) -> Option<Name> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel says so where it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let bound = SocketAddrUnix::try_from(getsockname(fd).ok()?).ok()?;
    Name::decode(bound.abstract_name()?)
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
