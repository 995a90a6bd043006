//! Connecting and sending in one call (RFC 7413 §3; Linux's MSG_FASTOPEN).

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
};

use super::{Role, Socket};
use crate::api::Kind;
use crate::errno::error;

impl Socket {
    /// sendto(2) with MSG_FASTOPEN, without waiting: connects to `to`, and the SYN carries as much of `buffers` as fits, if the peer's
    /// cookie is known: how much. Else EINPROGRESS: nothing was taken, the SYN asks for a cookie, and it goes on as after
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    /// As said and as there; EALREADY while it connects, EISCONN, EOPNOTSUPP for a datagram socket and where Fast Open is off.
    pub fn send_fast(&self, buffers: &[IoSlice<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        if self.kind != Kind::Stream || !self.stack().control.host.tcp().fast_open.client {
            return Err(error(libc::EOPNOTSUPP));
        }
        match self.role() {
            None => {
                let to = to.ok_or_else(|| error(libc::EINVAL))?;
                self.connect_as(to, true)?;
                if let Some(Role::Stream(stream)) = self.role() {
                    stream.report_later();
                }
            }
            Some(Role::Stream(stream)) => stream.may_send_fast(self.stack()).map_err(error)?,
            Some(_) => return Err(error(libc::EISCONN)),
        }
        self.send(buffers, None)
    }

    /// Whether connect has succeeded although no SYN has left: that waits for the first write (TCP_FASTOPEN_CONNECT).
    pub fn waits_for_first_write(&self) -> bool {
        match self.role() {
            Some(Role::Stream(stream)) => stream.is_held(self.stack()),
            _ => false,
        }
    }

    /// More text than [`send_fast`](Self::send_fast) took waits for the end of the handshake, in a call that blocks: it carries the
    /// acknowledgment of the SYN-ACK then.
    pub fn text_follows(&self) {
        if let Some(Role::Stream(stream)) = self.role() {
            stream.text_follows(self.stack());
        }
    }

    /// What became of connecting: EALREADY while it goes on, then `Ok`, or the error.
    ///
    /// # Errors
    /// As said; ENOTCONN if connecting was not begun.
    pub fn finish_connect(&self) -> io::Result<()> {
        match self.role() {
            Some(Role::Stream(stream)) => stream.finish_connect(self.stack()).map_err(error),
            _ => Err(error(libc::ENOTCONN)),
        }
    }
}
