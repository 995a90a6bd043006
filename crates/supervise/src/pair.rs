//! The pair of UNIX sockets that stands for a stream: the program has one end at its number, the other is ours.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use netchan::{
    relay::{Sides, name::Name},
    socket::Socket,
};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
        send, socketpair, sockopt,
    },
};

/// What makes a full end small: the kernel doubles it, and has a least.
const SMALL: usize = 1;
/// Pieces that fill such an end, and more.
const PIECES: usize = 64;

/// netchan's socket, and our end.
pub struct Ends {
    /// The socket.
    pub socket: Socket,
    end: OwnedFd,
}

impl Sides for Ends {
    fn socket(&self) -> Option<&Socket> {
        Some(&self.socket)
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        Some(self.end.as_fd())
    }
}

/// A pair, before it is known whose it is.
pub struct Pair {
    /// For the program.
    pub shared: OwnedFd,
    /// What the kernel calls the program's end (SO_COOKIE): no other socket has it, ever.
    pub name: u64,
    end: OwnedFd,
}

impl Pair {
    /// A pair whose program's end waits, or does not.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new(nonblocking: bool) -> io::Result<Self> {
        Self::of_kind(SocketType::STREAM, nonblocking)
    }

    /// The same that keeps messages apart, for datagrams.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_messages(nonblocking: bool) -> io::Result<Self> {
        Self::of_kind(SocketType::SEQPACKET, nonblocking)
    }

    /// Says what the program's end stands for.
    ///
    /// # Errors
    /// The system's.
    pub fn call(&self, name: &Name) -> io::Result<()> {
        let name = SocketAddrUnix::new_abstract_name(&name.encode())?;
        Ok(bind(&self.shared, &name)?)
    }

    fn of_kind(kind: SocketType, nonblocking: bool) -> io::Result<Self> {
        let (shared, end) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        if nonblocking {
            fcntl_setfl(&shared, fcntl_getfl(&shared)? | OFlags::NONBLOCK)?;
        }
        let name = sockopt::socket_cookie(&shared)?;
        Ok(Self { shared, name, end })
    }

    /// It stands for this socket: the program's end, and ours.
    pub fn of(self, socket: Socket) -> (OwnedFd, Ends) {
        let end = self.end;
        (self.shared, Ends { socket, end })
    }
}

impl Ends {
    /// Makes the program's end readable: there is something to accept.
    pub fn ring(&self) {
        // One that hung up is told nothing.
        let _ = send(&self.end, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Drops what fills the program's end ([`fill`]), and says once more that it can be written. What the program writes as soon as there is room stays.
    pub fn drain(&self, shared: &OwnedFd, filled: Filled) {
        let _ = sockopt::set_socket_send_buffer_size(shared, filled.room / 2); // the kernel doubles it
        let (mut bytes, mut left) = ([0; 4096], filled.bytes);
        while left > 0 {
            let most = left.min(bytes.len());
            match recv(&self.end, &mut bytes[..most], RecvFlags::DONTWAIT) {
                Ok((n @ 1.., _)) => left -= n.min(left),
                _ => break, // it hung up
            }
        }
    }

    /// The program reads the end, and writes no more.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.end, rustix::net::Shutdown::Write); // it may have hung up
    }
}

/// Takes back what [`Ends::ring`] said.
pub fn hush(shared: &OwnedFd) {
    let _ = recv(shared, &mut [0; 1], RecvFlags::DONTWAIT); // the program may have taken it
}

/// An end that is full.
#[derive(Clone, Copy)]
pub struct Filled {
    /// The room that it had.
    room: usize,
    /// What fills it.
    bytes: usize,
}

/// Lets the program's end be full, until its connection is there: what waits to write to it is woken then, as by a kernel.
///
/// # Errors
/// The system's.
pub fn fill(shared: &OwnedFd) -> io::Result<Filled> {
    let room = sockopt::socket_send_buffer_size(shared)?;
    sockopt::set_socket_send_buffer_size(shared, SMALL)?;
    let piece = [0; 1024];
    let sends = || send(shared, &piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let bytes = (0..PIECES).map_while(|_| sends().ok()).sum();
    Ok(Filled { room, bytes })
}
