//! What goes in and out of a socket: send, receive, and what is asked about both.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    task::Waker,
};

use super::{Role, Socket};
use crate::{
    api::{Kind, ReceiveFlags, Received, SendInfo},
    errno::error,
    shard::SendLease,
};

impl Socket {
    /// sendmsg(2) without waiting: as much of a stream as there is room for (at least 1 byte or `WouldBlock`), a datagram whole.
    ///
    /// # Errors
    /// `WouldBlock`, `NotConnected`, `BrokenPipe`, EMSGSIZE, ENETUNREACH, or the pending error.
    #[inline]
    pub fn send(&self, buffers: &[IoSlice<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream.send(self.stack(), buffers, None).map_err(error),
            None if self.kind == Kind::Stream => {
                Err(self.take_error().unwrap_or_else(|| error(libc::EPIPE)))
            }
            Some(Role::Listening(_)) => {
                Err(self.take_error().unwrap_or_else(|| error(libc::EPIPE)))
            }
            _ => self.send_message(buffers, to, &SendInfo::default()),
        }
    }

    /// As [`send`](Self::send) on a stream; the last byte is urgent (MSG_OOB). New programs have better ways (RFC 6093 §5).
    ///
    /// # Errors
    /// As there; `Unsupported` for a datagram.
    pub fn send_urgent(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream.send_urgent(self.stack(), buffers).map_err(error),
            _ if self.kind != Kind::Stream => Err(error(libc::EOPNOTSUPP)),
            _ => Err(self.take_error().unwrap_or_else(|| error(libc::EPIPE))),
        }
    }

    /// SIOCATMARK: whether the next byte of a stream is the urgent one.
    pub fn is_at_mark(&self) -> bool {
        match self.role() {
            Some(Role::Stream(stream)) => stream.is_at_mark(self.stack()),
            _ => false,
        }
    }

    /// recvmsg(2) without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, `NotConnected`, or the pending error.
    #[inline]
    pub fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> io::Result<Received> {
        match self.role() {
            Some(Role::Stream(stream)) => {
                let len = stream
                    .receive(self.stack(), buffers, flags, None)
                    .map_err(error)?;
                Ok(Received::stream(len))
            }
            Some(Role::Datagram(_)) => self.receive_datagram(buffers, flags),
            Some(Role::Listening(_)) => Err(error(libc::ENOTCONN)),
            // As Linux: shut down is the end to a call that would wait.
            None if self.kind != Kind::Stream => {
                let ends = flags.enough && self.options.lock().shut.0;
                ends.then(|| Received::stream(0))
                    .ok_or_else(|| error(libc::EAGAIN))
            }
            // There is no urgent byte; as in Linux the pending error waits for another call.
            None if flags.urgent => Err(error(libc::EINVAL)),
            None => match self.take_error() {
                Some(pending) => Err(pending),
                None if self.options.lock().shut.0 => Ok(Received::stream(0)),
                None => Err(error(libc::ENOTCONN)),
            },
        }
    }

    /// Receives more on a stream, for a call that has something already: 0 where its pending error is next, which waits for another call.
    ///
    /// # Errors
    /// `WouldBlock`, `NotConnected`.
    pub fn receive_rest(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> io::Result<Received> {
        match self.role() {
            Some(Role::Stream(stream)) => stream
                .receive_rest(self.stack(), buffers, flags)
                .map(Received::stream)
                .map_err(error),
            _ => Ok(Received::stream(0)),
        }
    }

    /// The same for [`send`](Self::send), or for [`send_urgent`](Self::send_urgent).
    ///
    /// # Errors
    /// `WouldBlock`, `BrokenPipe`, `NotConnected`.
    pub fn send_rest(&self, buffers: &[IoSlice<'_>], urgent: bool) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream
                .send_rest(self.stack(), buffers, urgent)
                .map_err(error),
            _ => Ok(0),
        }
    }

    /// Shows `look` what a stream has received, piece by piece and in order, where it lies, without taking it; how many bytes there were. 0 is the end of the
    /// stream. With a waker: registers it where the call would block, else forgets it.
    ///
    /// `look` runs while the stream's shard is held: it must call nothing of this stack, or waits for itself for ever.
    ///
    /// What was shown stays where it is until it is taken, the stream is disconnected, connected or bound anew, or the socket is dropped: what arrives is put
    /// behind it, and a reset leaves it. (For libraries that hand pointers to other languages; no Rust program can have any.)
    ///
    /// # Errors
    /// As for [`receive`](Self::receive); `NotConnected` for what is no stream.
    pub fn peek_segments(
        &self,
        look: impl FnMut(&[u8]) + Send,
        waker: Option<&Waker>,
    ) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream
                .peek_segments(self.stack(), look, waker)
                .map_err(error),
            _ => self.receive_nothing(),
        }
    }

    /// Takes at most `n` bytes that a stream has received and copies none; how many. 0 is the end of the stream, unless `n` is.
    ///
    /// # Errors
    /// As for [`peek_segments`](Self::peek_segments).
    pub fn consume(&self, n: usize) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream.forget(self.stack(), n).map_err(error),
            _ => self.receive_nothing(),
        }
    }

    /// Room for the next bytes of a stream, at most `wanted`, in memory of its send queue; less where there is less. With a waker: registers it where
    /// the call would block, else forgets it. [`commit`](Self::commit) sends what was written there.
    ///
    /// # Errors
    /// As for [`send`](Self::send); `Unsupported` for a datagram socket.
    pub fn reserve(&self, wanted: usize, waker: Option<&Waker>) -> io::Result<SendLease> {
        match self.role() {
            Some(Role::Stream(stream)) => {
                stream.reserve(self.stack(), wanted, waker).map_err(error)
            }
            _ => Err(self.cannot_lease()),
        }
    }

    /// Sends the first `n` bytes of what was written to a lease. How many: fewer than `n` only where other threads have sent meanwhile, or memory has
    /// become short; the rest is gone. A lease of another stream, or of this one before it was sent anything else, is copied.
    ///
    /// # Errors
    /// As for [`send`](Self::send); then nothing of it is sent.
    pub fn commit(&self, lease: SendLease, n: usize) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream.commit(self.stack(), lease, n).map_err(error),
            _ => Err(self.cannot_lease()),
        }
    }

    fn cannot_lease(&self) -> io::Error {
        if self.kind != Kind::Stream {
            return error(libc::EOPNOTSUPP);
        }
        self.take_error().unwrap_or_else(|| error(libc::EPIPE))
    }

    /// What `receive` says to a socket that is no stream with a connection.
    fn receive_nothing(&self) -> io::Result<usize> {
        if self.kind != Kind::Stream {
            return Err(error(libc::ENOTCONN));
        }
        self.receive(&mut [], ReceiveFlags::default())
            .map(|received| received.len)
    }

    /// A stream's [`receive`](Self::receive) by a thread that will wait for more: registers its waker where the call would
    /// block, else forgets it, all in one turn of the shard.
    pub(super) fn receive_or_wait(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
        waker: &Waker,
    ) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream
                .receive(self.stack(), buffers, flags, Some(waker))
                .map_err(error),
            _ => self.receive(buffers, flags).map(|received| received.len),
        }
    }

    /// The same for [`send`](Self::send).
    pub(super) fn send_or_wait(&self, buffers: &[IoSlice<'_>], waker: &Waker) -> io::Result<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream
                .send(self.stack(), buffers, Some(waker))
                .map_err(error),
            _ => self.send(buffers, None),
        }
    }

    /// FIONREAD: bytes of a stream, or of the first datagram.
    pub fn available(&self) -> usize {
        match self.role() {
            Some(Role::Stream(stream)) => stream.available(self.stack()),
            Some(Role::Datagram(datagram)) => datagram.available(self.stack()),
            _ => 0,
        }
    }

    /// SIOCOUTQ: bytes not yet acknowledged.
    pub fn unacknowledged(&self) -> usize {
        match self.role() {
            Some(Role::Stream(stream)) => stream.unacknowledged(self.stack()),
            _ => 0,
        }
    }

    /// How many bytes a stream takes at this moment; `None` where sending says why it takes none.
    pub fn send_room(&self) -> Option<usize> {
        match self.role() {
            Some(Role::Stream(stream)) => stream.send_room(self.stack()),
            _ => None,
        }
    }

    /// TCP_INQ: what can be read without a wait, and 1 for the end of the stream, once it came.
    pub fn unread(&self) -> usize {
        match self.role() {
            Some(Role::Stream(stream)) => stream.unread(self.stack()),
            _ => 0,
        }
    }

    /// What a stream was given so far ends a record (MSG_EOR): no segment has text from before and from behind it.
    pub fn end_record(&self) {
        if let Some(Role::Stream(stream)) = self.role() {
            stream.with(self.stack(), |socket| socket.connection.end_record());
        }
    }
}
