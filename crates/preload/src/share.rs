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
        AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept, accept_with,
        bind, connect, getsockname, listen, shutdown, socket_with, socketpair,
        sockopt::socket_peercred,
    },
    process::geteuid,
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

/// Connections that may wait at a keeper's name.
const CALLERS: i32 = 16;

fn keepers_name(of: u32) -> String {
    format!("netchan-keeper {of}")
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// A socket that listens at an abstract name. It does not wait.
///
/// # Errors
/// The system's: another one has the name.
pub fn listen_at(name: &[u8], waiting: i32) -> io::Result<Own> {
    let door = Own::open(socket)?;
    bind(&door, &SocketAddrUnix::new_abstract_name(name)?)?;
    listen(&door, waiting)?;
    Ok(door)
}

/// A connection to it.
///
/// # Errors
/// The system's: `ConnectionRefused`: there is none; `WouldBlock`: it is asked by many at this moment.
pub fn connect_to(name: &[u8]) -> io::Result<Own> {
    let socket = Own::open(socket)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// The next one that waits there.
///
/// # Errors
/// The system's: `WouldBlock`: there is none.
pub fn accept_at(door: RawFd) -> io::Result<Own> {
    // SAFETY: the kernel says so where it is not open.
    let door = unsafe { BorrowedFd::borrow_raw(door) };
    Own::open(|| {
        Ok(accept_with(
            door,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        )?)
    })
}

/// A socket by which it is known that this process keeps the stack of the process `of`, which has ended. What connects there asks nothing else, and is to be taken
/// off its queue ([`answer_callers`]).
///
/// # Errors
/// The system's: another one has the name.
pub fn keep_for(of: u32) -> io::Result<Own> {
    listen_at(keepers_name(of).as_bytes(), CALLERS)
}

/// Takes off its queue whatever has connected to [`keep_for`]'s socket.
pub fn answer_callers(door: &Own) {
    while accept(door).is_ok() {}
}

/// Whether what listened for this connection is this user's or root's: others may have the name, too.
pub fn is_believed(connection: &Own) -> bool {
    socket_peercred(connection).is_ok_and(|by| by.uid.is_root() || by.uid == geteuid())
}

/// Whether a process of this user's, or root's, keeps the stack of the process `of`: others may have the name, and are not believed.
pub fn has_keeper(of: u32) -> bool {
    match connect_to(keepers_name(of).as_bytes()) {
        Ok(asks) => is_believed(&asks),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock, // it is asked by many at this moment
    }
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
