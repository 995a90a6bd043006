//! A listener that is carried: each connection that comes becomes a message in the queue from which all processes accept.

use std::{collections::VecDeque, io, mem::MaybeUninit, os::fd::AsFd};

use netchan::{
    own::Own,
    relay::{Connection, End, Sides as _, Turn},
    socket::Readiness,
};
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt},
};

use super::{Ends, Stream};
use crate::{
    errno::{self, would_block},
    line,
    share::{self, Encoded, Name, Role},
    sys,
};

/// Connections that one turn accepts.
const CONNECTIONS: usize = 32;

/// Bytes that its queue may hold, as the kernel counts them: some twenty connections. What comes beyond that waits where a backlog bounds it.
const QUEUE: usize = 16 << 10;

pub struct Listener {
    sides: Ends,
    end: End,
    /// Accepted, and the queue was full.
    waiting: Option<Message>,
    /// Those in the queue, and some that were taken out of it; the oldest first.
    queued: VecDeque<u64>,
    /// What one of them counts in the kernel's books.
    weight: usize,
}

/// One connection for the queue: its name, and the end that is to be shared.
struct Message {
    number: u64,
    name: Encoded,
    shared: Own,
}

impl Listener {
    pub fn new(sides: Ends) -> Self {
        if let Some(end) = sides.end() {
            let _ = sockopt::set_socket_send_buffer_size(end, QUEUE); // else it is longer
        }
        Self {
            sides,
            end: End::default(),
            waiting: None,
            queued: VecDeque::new(),
            weight: 0,
        }
    }

    /// Those that no process has accepted yet.
    pub fn untaken(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.forget_taken();
        let waiting = self.waiting.as_ref().map(|message| message.number);
        self.queued.iter().copied().chain(waiting)
    }

    fn forget_taken(&mut self) {
        let unsent = self.sides.end().map_or(0, sys::unsent);
        match (unsent, self.weight) {
            (0, _) => self.queued.clear(),
            (_, 0) => {} // not known yet
            (unsent, weight) => {
                let taken = self.queued.len().saturating_sub(unsent / weight);
                self.queued.drain(..taken);
            }
        }
    }

    pub fn sides(&self) -> &Ends {
        &self.sides
    }

    pub fn end_mut(&mut self) -> &mut End {
        &mut self.end
    }

    /// Accepts what there is.
    ///
    /// # Errors
    /// It listens no more.
    pub fn turn(&mut self) -> io::Result<Turn<(u64, Stream)>> {
        let mut accepted = Vec::new();
        let mut ends = None;
        for _ in 0..CONNECTIONS {
            if self.end.has_hung_up {
                ends = Some(Turn::Over);
                break;
            }
            match self.hand_out() {
                Handed::Out => {}
                Handed::Full => {
                    ends = Some(Turn::Waits);
                    break;
                }
                Handed::TooMany => {
                    ends = Some(Turn::Later);
                    break;
                }
            }
            match self.accept() {
                Ok(Some(connection)) => accepted.push(connection),
                Ok(None) => {
                    ends = Some(Turn::Waits);
                    break;
                }
                Err(error) if is_exhausted(&error) => {
                    ends = Some(Turn::Later);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // It looks again after these were entered, and finds what it waits for then.
        match accepted.is_empty() {
            true => Ok(ends.unwrap_or(Turn::Again)),
            false => Ok(Turn::Accepted(accepted)),
        }
    }

    /// What it waits for at the socket: of what is accepted none may wait.
    pub fn wants(&self) -> Readiness {
        match self.waiting {
            Some(_) => Readiness::NONE,
            None => Readiness::READABLE,
        }
    }

    /// Puts what waits into the queue.
    fn hand_out(&mut self) -> Handed {
        self.forget_taken();
        let (Some(message), Some(end)) = (&self.waiting, self.sides.end()) else {
            return Handed::Out;
        };
        if !self.end.is_writable {
            return Handed::Full;
        }
        let files = [message.shared.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let text = [io::IoSlice::new(&message.name)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(end, &text, &mut control, flags) {
            Ok(_) => {
                self.queued.push_back(message.number);
                self.waiting = None;
                if self.queued.len() == 1 {
                    self.weight = sys::unsent(end); // nothing, where it is taken by now
                }
            }
            Err(Errno::AGAIN) => {
                self.end.is_writable = false;
                return Handed::Full;
            }
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {
                return Handed::TooMany;
            }
            Err(_) => self.end.has_hung_up = true,
        }
        Handed::Out
    }

    fn accept(&mut self) -> io::Result<Option<(u64, Stream)>> {
        let (Ends::Of(state), None) = (&self.sides, &self.waiting) else {
            return Ok(None);
        };
        let Some(socket) = state.socket.get() else {
            return Ok(None);
        };
        if !socket.readiness().contains(Readiness::READABLE) {
            return Ok(None);
        }
        // The descriptors first: one that there are none for stays in the backlog.
        let (shared, ours) = share::own_pair(Role::Connection)?;
        let (connection, peer) = match socket.accept() {
            Ok(accepted) => accepted,
            Err(error) if would_block(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let number = line::Name::new().number;
        let name = Name {
            role: Role::Connection,
            domain: state.domain,
            number,
            local: connection.local_address(),
            peer,
            asked: 0,
        };
        let name = name.encode();
        share::set_name(shared.as_fd(), &name)?;
        self.waiting = Some(Message {
            number,
            name,
            shared,
        });
        let sides = Ends::Own(connection, ours);
        let stream = Stream::Connection(Connection::new(sides));
        Ok(Some((number, stream)))
    }
}

/// Whether the process or the system has no descriptor or memory left for now.
fn is_exhausted(error: &io::Error) -> bool {
    let code = errno::code(error);
    matches!(
        code,
        libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS
    )
}

/// What became of a message.
enum Handed {
    Out,
    Full,
    /// There are more descriptors on their way than the system allows.
    TooMany,
}
