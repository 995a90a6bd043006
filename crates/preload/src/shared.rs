//! Sockets that several processes hold: what is made ready for them before a fork, and how such a socket comes to all of them alike.
//!
//! Before a fork each connection, listener and bound datagram socket of this process gets the shared end of a pair (`share`) at its numbers, and nothing else changes: this
//! process goes on to use netchan's socket. Only when a child uses its descriptor, or this process closes its last one while others have theirs, does
//! the socket become one of the kernel's for all of them: the tables forget it, and the relay carries it between the socket and the pair. Of a datagram
//! socket a table of their own remembers it (`crossing`).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use netchan::socket::{Kind, Socket};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::{
    crossing, instances, locks, process, relay,
    share::{self, Name, Role},
    state::{SOCKETS, SocketState},
    sys,
    table::Handle,
};

/// Before a fork, while no number is given back: whatever a child can use stands at its numbers. A stream for which no descriptor is left is not shared.
pub fn prepare() {
    if !process::has_sockets() {
        return;
    }
    SOCKETS.visit(|fd, state| {
        let is_ready =
            state.kind == Kind::Ping || state.share.get().is_some() || state.is_inherited();
        if let Some(socket) = state.socket.get().filter(|_| !is_ready)
            && let Some(name) = name(state, socket)
        {
            let _ = put_pair(fd, state, &name);
        }
    });
}

/// What a socket is called; `None`: it is a stream that is neither connected nor listens, or may be handed back to the kernel.
fn name(state: &SocketState, socket: &Socket) -> Option<Name> {
    let local = socket.local_address();
    let (role, peer) = if state.kind == Kind::Datagram {
        let is_bound = local.port() != 0 && !state.returnable.load(Relaxed);
        let peer = socket.peer_address().unwrap_or(crossing::NONE);
        is_bound.then_some((Role::Datagrams, peer))?
    } else if socket.is_listening() {
        (Role::Listener, local)
    } else {
        (Role::Connection, socket.peer_address().ok()?)
    };
    Some(Name {
        role,
        domain: state.domain,
        number: state.name.number,
        local,
        peer,
        asked: state.asked.bits(),
    })
}

fn put_pair(fd: RawFd, state: &Handle<SocketState>, name: &Name) -> io::Result<()> {
    let (shared, ours) = share::pair(name.role)?;
    share::set_name(shared.as_fd(), &name.encode())?;
    share::set_nonblocking(shared.as_fd(), state.nonblocking.load(Relaxed))?;
    for (which, timeout) in [
        (Timeout::Recv, state.receive_timeout()),
        (Timeout::Send, state.send_timeout()),
    ] {
        if timeout.is_some_and(|time| !time.is_zero()) {
            set_socket_timeout(&shared, which, timeout)?;
        }
    }
    put(shared.as_raw_fd(), fd)?;
    if state.numbers() > 1 {
        SOCKETS.visit(|other_fd, other| {
            if other_fd != fd && other.address() == state.address() {
                let _ = put(shared.as_raw_fd(), other_fd); // else a child has no use of this one
            }
        });
    }
    let _ = state.share.set(ours); // one fork at a time
    Ok(())
}

/// Lets `fd` be a duplicate of `shared`; it stays open on exec if it did before.
fn put(shared: RawFd, fd: RawFd) -> io::Result<()> {
    let flags = sys::fcntl(fd, libc::F_GETFD, 0)?;
    let closes = if flags & libc::FD_CLOEXEC != 0 {
        libc::O_CLOEXEC
    } else {
        0
    };
    sys::dup3(shared, fd, closes).map(|_| ())
}

/// Another process uses the stream: from now on it is carried, for this one, too. False: it is none that can be.
pub fn carry(state: &Handle<SocketState>) -> bool {
    if state.share.get().is_none() {
        return false;
    }
    // In the lock: for a second caller it is carried when it is so for all.
    let is_first = {
        let _numbers = locks::keeping_numbers();
        let is_first = !state.is_carried.swap(true, SeqCst);
        if is_first {
            enter_crossings(state);
            SOCKETS.remove_all(state);
        }
        is_first
    };
    if is_first {
        instances::handed_back(state);
        state.close(); // what waits looks again
        relay::carry(state.clone());
    }
    true
}

/// All that can be carried is, from now on: this process becomes another program.
pub fn carry_all() {
    {
        let _numbers = locks::keeping_numbers();
        prepare();
    }
    for fd in SOCKETS.occupied(0, RawFd::MAX) {
        if let Some(state) = SOCKETS.get(fd).filter(|state| !state.is_inherited()) {
            carry(&state);
        }
    }
}

/// shutdown(2), by this process: what a child has written goes out before, also where it was not heard of yet that one uses the stream.
pub fn before_shutdown(fd: RawFd) {
    if !process::owns_table() {
        return;
    }
    if let Some(state) = SOCKETS.get(fd)
        && state.kind == Kind::Stream
        && !state.is_inherited()
        && let Some(ours) = state.share.get()
    {
        let mut fds = [libc::pollfd {
            fd: ours.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        if sys::poll_now(&mut fds).is_ok_and(|n| n > 0) {
            carry(&state);
        }
    }
}

/// Another process gets the socket with a message. One that cannot be shared is a plain socket of the kernel's to it.
pub fn hand_over(fd: RawFd, state: &Handle<SocketState>) {
    if state.share.get().is_none()
        && let Some(socket) = state.socket.get().filter(|_| state.kind != Kind::Ping)
        && let Some(name) = name(state, socket)
    {
        let _numbers = locks::keeping_numbers();
        let _ = put_pair(fd, state, &name); // without descriptors it stays as it is
    }
    carry(state);
}

/// The numbers of a datagram socket are known as such from now on.
fn enter_crossings(state: &Handle<SocketState>) {
    if state.kind == Kind::Datagram {
        SOCKETS.visit(|fd, other| {
            if other.address() == state.address() {
                crossing::enter(fd, state);
            }
        });
    }
}

/// The last number of a stream is closed in this process: it is carried if another process has one, or could have one. False: none could.
pub fn leave(state: &Handle<SocketState>) -> bool {
    if state.share.get().is_none() {
        return false;
    }
    if !state.is_carried.swap(true, SeqCst) {
        relay::carry(state.clone());
    }
    true
}

/// In a forked child, about to use a socket of its parent: it is the kernel's from now on, and the parent learns it. False: it cannot be shared.
pub fn adopt(fd: RawFd, state: &SocketState) -> bool {
    if state.share.get().is_none() {
        return false;
    }
    state.name.tell();
    if state.kind == Kind::Datagram {
        crossing::enter(fd, state);
    }
    SOCKETS.remove(fd);
    true
}

/// In a forked child, about to become another program, which may use what stays open.
pub fn before_exec() {
    if !process::has_parents_sockets() {
        return;
    }
    SOCKETS.visit(|fd, state| {
        let flags = sys::fcntl(fd, libc::F_GETFD, 0);
        let stays = flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0);
        if stays && state.share.get().is_some() && state.is_inherited() {
            state.name.tell();
        }
    });
}
