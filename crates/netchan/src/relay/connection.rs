//! A connection that is carried: bytes between netchan's socket and the end of a pair of streams.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::Shutdown,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send, shutdown},
};

use super::{End, Sides, Turn};
use crate::socket::{Readiness, ReceiveFlags, Socket};

/// Blocks of each direction that one turn moves.
const BLOCKS: usize = 8;

/// A connection, and the pair that its bytes go through.
#[derive(Debug)]
pub struct Connection<S> {
    sides: S,
    end: End,
    /// From the peer, and not taken by the pair yet.
    inward: Rest,
    /// To the peer, and not taken by the socket yet.
    outward: Rest,
    /// The peer has not said its last.
    peer_talks: bool,
    /// No process has said its last.
    processes_talk: bool,
    /// The processes read no more; what comes is dropped, as by a socket that was shut for reading.
    is_deaf: bool,
}

/// What is left of a block.
#[derive(Debug, Default)]
struct Rest {
    bytes: Vec<u8>,
    taken: usize,
}

impl Rest {
    fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    fn fill(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.taken = 0;
    }

    fn left(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn take(&mut self, n: usize) {
        self.taken += n;
        if self.is_empty() {
            // An idle connection keeps no block.
            *self = Self::default();
        }
    }
}

impl<S: Sides> Connection<S> {
    /// One that is connected, or about to be.
    pub fn new(sides: S) -> Self {
        Self {
            sides,
            end: End::default(),
            inward: Rest::default(),
            outward: Rest::default(),
            peer_talks: true,
            processes_talk: true,
            is_deaf: false,
        }
    }

    /// What it goes between.
    pub const fn sides(&self) -> &S {
        &self.sides
    }

    /// What is known of the pair's end.
    pub const fn end_mut(&mut self) -> &mut End {
        &mut self.end
    }

    /// What it waits for at the socket.
    pub fn wants(&self) -> Readiness {
        let mut wanted = Readiness::NONE;
        if self.peer_talks && self.inward.is_empty() {
            wanted = wanted | Readiness::READABLE;
        }
        if !self.outward.is_empty() {
            wanted = wanted | Readiness::WRITABLE;
        }
        wanted
    }

    /// Moves what there is.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn turn<N>(&mut self, room: &mut [u8]) -> io::Result<Turn<N>> {
        for _ in 0..BLOCKS {
            let came = self.move_in(room)?;
            let went = self.move_out(room)?;
            if self.is_over() {
                self.close()?;
                return Ok(Turn::Over);
            }
            if !came && !went {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::Again)
    }

    fn is_over(&self) -> bool {
        let all_is_out = !self.processes_talk && self.outward.is_empty();
        let all_is_in = !self.peer_talks && self.inward.is_empty();
        all_is_out && (self.end.has_hung_up || all_is_in)
    }

    /// No process holds it, or both ways are over. Like a kernel, a reset where something was not read.
    fn close(&mut self) -> io::Result<()> {
        let is_read = self.inward.is_empty() || self.is_deaf;
        match self.sides.socket() {
            Some(socket) if !is_read => socket.disconnect(),
            _ => Ok(()),
        }
    }

    /// From the peer to the processes: whether anything moved.
    fn move_in(&mut self, room: &mut [u8]) -> io::Result<bool> {
        let (Some(socket), Some(end)) = (self.sides.socket(), self.sides.end()) else {
            return Ok(false);
        };
        let mut moved = false;
        if self.peer_talks && self.inward.is_empty() {
            let mut buffers = [IoSliceMut::new(room)];
            match socket.receive(&mut buffers, ReceiveFlags::default()) {
                Ok(received) if received.len == 0 => {
                    self.peer_talks = false;
                    moved = true;
                    let _ = shutdown(end, rustix::net::Shutdown::Write); // it may have hung up
                }
                Ok(received) => {
                    self.inward
                        .fill(room.get(..received.len).unwrap_or_default());
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if !self.inward.is_empty() && (self.end.is_writable || self.is_deaf) {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(end, self.inward.left(), flags) {
                Ok(n) => {
                    self.inward.take(n);
                    moved = true;
                }
                Err(Errno::AGAIN) => self.end.is_writable = false,
                Err(Errno::INTR) => moved = true,
                // What no process has read makes the close a reset.
                Err(_) if has_hung_up(end) => self.end.has_hung_up = true,
                Err(_) => {
                    self.is_deaf = true;
                    self.inward = Rest::default();
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// From the processes to the peer: whether anything moved.
    fn move_out(&mut self, room: &mut [u8]) -> io::Result<bool> {
        let (Some(socket), Some(end)) = (self.sides.socket(), self.sides.end()) else {
            return Ok(false);
        };
        let mut moved = false;
        if self.processes_talk && self.outward.is_empty() && self.end.is_readable {
            match recv(end, &mut *room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.processes_talk = false;
                    moved = true;
                    self.end.has_hung_up |= has_hung_up(end);
                    if !self.end.has_hung_up {
                        // What it answers, that it is over by now, is seen at the next look.
                        let _ = socket.shutdown(Shutdown::Write);
                    }
                }
                Ok((n, _)) => {
                    self.outward.fill(room.get(..n).unwrap_or_default());
                    moved = true;
                }
                Err(Errno::AGAIN) => self.end.is_readable = false,
                Err(Errno::INTR) => moved = true,
                // The last process left something unread.
                Err(error) => {
                    reset(socket);
                    return Err(error.into());
                }
            }
        }
        if !self.outward.is_empty() {
            match socket.send(&[IoSlice::new(self.outward.left())], None) {
                Ok(n) => {
                    self.outward.take(n);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Shut in this process: what others write is refused, and what the peer says still comes.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && self.peer_talks => {
                    self.processes_talk = false;
                    self.outward = Rest::default();
                    let _ = shutdown(end, rustix::net::Shutdown::Read); // it may have hung up
                    moved = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }
}

fn reset(socket: &Socket) {
    let _ = socket.disconnect(); // of a stream it says nothing
}

/// Whether the other end is held by no process any more, or shut in both ways.
fn has_hung_up(end: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    let asked = poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}
