//! A datagram socket that is carried: each datagram goes through a pair that keeps messages apart, behind a head (`letter`) that says where it comes
//! from or goes to.
//!
//! What the processes do not take stays in the socket's own queue, whose bound is the socket's and which counts what it drops. Of what they write, what is no
//! letter and what cannot be sent is dropped and counted: the call that wrote it is over by then.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::SocketAddr,
    time::Duration,
};

use percore::clock::now_ns;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags, recvmsg,
        sendmsg,
    },
};

use super::{
    End, Sides, Turn,
    letter::{Arrived, HEAD, Head, Inward, Outward},
};
use crate::{
    counters::Counter,
    errno_of,
    shard::Shard,
    socket::{Domain, Readiness, ReceiveFlags, Received, SendInfo, Socket},
};

/// Datagrams of each direction that one turn moves.
const DATAGRAMS: usize = 64;

/// A datagram socket, and the pair that its datagrams go through.
#[derive(Debug)]
pub struct Datagrams<S> {
    sides: S,
    end: End,
    domain: Domain,
    /// Came, and not taken by the pair yet.
    inward: Option<(Head, Vec<u8>)>,
    /// To be sent, and not taken by the socket yet.
    outward: Option<(Option<SocketAddr>, SendInfo, Vec<u8>)>,
}

/// What a look at one direction came to.
enum Step {
    Moved,
    Nothing,
}

impl<S: Sides> Datagrams<S> {
    /// One of a socket of that family.
    pub fn new(sides: S, domain: Domain) -> Self {
        Self {
            sides,
            end: End::default(),
            domain,
            inward: None,
            outward: None,
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
        if self.inward.is_none() {
            wanted = wanted | Readiness::READABLE;
        }
        if self.outward.is_some() {
            wanted = wanted | Readiness::WRITABLE;
        }
        wanted
    }

    /// Moves what there is.
    ///
    /// # Errors
    /// None: the socket of a pair that fails is closed.
    pub fn turn<N>(&mut self, room: &mut [u8]) -> io::Result<Turn<N>> {
        for _ in 0..DATAGRAMS {
            let came = self.move_in(room);
            let went = self.move_out(room);
            if self.end.has_hung_up && self.outward.is_none() && !self.end.is_readable {
                return Ok(Turn::Over);
            }
            if matches!((came, went), (Step::Nothing, Step::Nothing)) {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::Again)
    }

    /// From peers to the processes.
    fn move_in(&mut self, room: &mut [u8]) -> Step {
        let (Some(socket), Some(end)) = (self.sides.socket(), self.sides.end()) else {
            return Step::Nothing;
        };
        if self.end.has_hung_up || !self.end.is_writable {
            return Step::Nothing;
        }
        let (head, text) = match &self.inward {
            Some((head, text)) => (*head, text.as_slice()),
            None => {
                let received = {
                    let mut buffers = [IoSliceMut::new(room)];
                    socket.receive(&mut buffers, ReceiveFlags::default())
                };
                match received {
                    Ok(received) => {
                        let text = room.get(..received.len).unwrap_or_default();
                        (arrived(socket, &received).encode(), text)
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Step::Nothing;
                    }
                    Err(error) => (Inward::Failed(errno_of(&error)).encode(), &[][..]),
                }
            }
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = [IoSlice::new(&head), IoSlice::new(text)];
        match sendmsg(end, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => self.inward = None,
            Err(error @ (Errno::AGAIN | Errno::INTR)) => {
                self.end.is_writable = error == Errno::INTR;
                if self.inward.is_none() {
                    let text = text.to_vec();
                    self.inward = Some((head, text));
                }
            }
            Err(Errno::NOBUFS | Errno::NOMEM) => {
                count_drop(socket);
                self.inward = None;
            }
            // No process reads any more.
            Err(_) => {
                self.inward = None;
                self.end.has_hung_up |= hung_up(end);
                self.end.is_writable = false;
                return Step::Nothing;
            }
        }
        Step::Moved
    }

    /// From the processes to peers.
    fn move_out(&mut self, room: &mut [u8]) -> Step {
        let (Some(socket), Some(end)) = (self.sides.socket(), self.sides.end()) else {
            return Step::Nothing;
        };
        if let Some((to, info, text)) = &self.outward {
            return match socket.send_message(&[IoSlice::new(text)], *to, info) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Nothing,
                sent => {
                    if sent.is_err() {
                        count_drop(socket);
                    }
                    self.outward = None;
                    Step::Moved
                }
            };
        }
        if !self.end.is_readable {
            return Step::Nothing;
        }
        let mut head = [0; HEAD];
        let message = {
            let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(room)];
            // Descriptors that come along find no room, and the kernel closes them.
            let mut none = RecvAncillaryBuffer::new(&mut [] as &mut [MaybeUninit<u8>]);
            recvmsg(end, &mut parts, &mut none, RecvFlags::DONTWAIT)
        };
        let message = match message {
            Ok(message) => message,
            Err(Errno::INTR) => return Step::Moved,
            Err(Errno::AGAIN) => {
                self.end.is_readable = false;
                return Step::Nothing;
            }
            Err(_) => {
                self.end.has_hung_up = true;
                self.end.is_readable = false;
                return Step::Nothing;
            }
        };
        if message.bytes == 0 && is_over(end) {
            self.end.has_hung_up |= hung_up(end);
            self.end.is_readable = false;
            return Step::Nothing;
        }
        let is_whole = message.bytes >= HEAD && !message.flags.contains(ReturnFlags::TRUNC);
        let text = room.get(..message.bytes.saturating_sub(HEAD));
        let sent = match (Outward::decode(&head), text.filter(|_| is_whole)) {
            (Ok(letter), Some(text)) => self.deliver(letter, text),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
        if sent.is_err()
            && let Some(socket) = self.sides.socket()
        {
            count_drop(socket);
        }
        Step::Moved
    }

    /// Does what a letter says.
    fn deliver(&mut self, letter: Outward, text: &[u8]) -> io::Result<()> {
        let Some(socket) = self.sides.socket() else {
            return Ok(());
        };
        let Outward::Datagram(to, info) = letter else {
            return match letter {
                Outward::Connect(to) => socket.connect(self.of_family(to)?),
                _ => socket.disconnect(),
            };
        };
        let to = to.map(|to| self.of_family(to)).transpose()?;
        match socket.send_message(&[IoSlice::new(text)], to, &info) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.outward = Some((to, info, text.to_vec()));
                Ok(())
            }
            sent => sent.map(|_| ()),
        }
    }

    /// As the socket's own calls read addresses.
    fn of_family(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        match (self.domain, address) {
            (Domain::V4, SocketAddr::V6(_)) => Err(io::ErrorKind::InvalidInput.into()),
            (Domain::V6, SocketAddr::V4(v4)) => Ok((v4.ip().to_ipv6_mapped(), v4.port()).into()),
            (_, address) => Ok(address),
        }
    }
}

fn count_drop(socket: &Socket) {
    let count = |shard: &mut Shard, _| shard.count(Counter::DropUdpShared);
    socket.stack().with_shard(0, count);
}

fn arrived(socket: &Socket, received: &Received) -> Inward {
    let age = received.info.map_or(Duration::ZERO, |info| info.age);
    Inward::Datagram(Arrived {
        from: received.from,
        info: received.info,
        answer_from: socket.answer_from(received),
        at: Duration::from_nanos(now_ns()).saturating_sub(age),
    })
}

/// Whether the processes say no more.
fn is_over(end: std::os::fd::BorrowedFd<'_>) -> bool {
    asks(end, PollFlags::RDHUP | PollFlags::HUP)
}

/// Whether no process holds the other end any more, or both ways are shut.
fn hung_up(end: std::os::fd::BorrowedFd<'_>) -> bool {
    asks(end, PollFlags::HUP)
}

fn asks(end: std::os::fd::BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::RDHUP)];
    let asked = poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok() && fds[0].revents().intersects(what)
}
