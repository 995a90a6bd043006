//! What a connection is ready for.

use std::task::Waker;

use super::TcpSocket;
use crate::api::Readiness;

impl TcpSocket {
    /// Nothing more will come, or be taken.
    pub(super) fn end_of_stream(&self) -> bool {
        self.read_shut
            || self.connection.peer_closed()
            || (self.was_open && self.connection.is_finished())
            || self.detached_flow
    }

    /// What a read says where there is no text: as Linux, a stream that its peer ended has no error to tell.
    pub(super) fn nothing_to_read(&mut self) -> Result<usize, i32> {
        if self.connection.peer_closed() {
            return Ok(0);
        }
        match self.take_error() {
            Some(error) => Err(error),
            None if self.end_of_stream() => Ok(0),
            None if self.was_open || !self.is_over() => Err(libc::EAGAIN),
            None => Err(libc::ENOTCONN),
        }
    }

    /// `has_memory`: connections may hold more than they do.
    pub(in crate::shard) fn readiness(&self, has_memory: bool) -> Readiness {
        let mut ready = Readiness::NONE;
        let over = self.connection.is_finished() || self.detached_flow;
        if self.has_text_to_read() || self.end_of_stream() {
            ready = ready | Readiness::READABLE;
        }
        if self.has_urgent_byte() {
            ready = ready | Readiness::PRIORITY;
        }
        if self.end_of_stream() {
            ready = ready | Readiness::READ_HANGUP;
        }
        let has_room = || match self.pipe_has_room() {
            Some(has_room) => has_room,
            None => self.may_append() > self.least_room() && (has_memory || self.send.len() == 0),
        };
        let closed_for_writing = over || (self.was_open && !self.connection.is_open_for_writing());
        // As Linux: writable once a third of the buffer is free; and where a write would answer at once with an error.
        if closed_for_writing
            || self.connection.is_held()
            || (self.connection.can_send() && has_room())
        {
            ready = ready | Readiness::WRITABLE;
        }
        if self.error.is_some() {
            ready = ready | Readiness::ERROR | Readiness::READABLE | Readiness::WRITABLE;
        }
        if over || (self.end_of_stream() && (closed_for_writing || self.connection.has_no_writer()))
        {
            ready = ready | Readiness::HANGUP;
        }
        ready
    }

    /// Wakes the waiters for any of `ready`.
    pub(in crate::shard) fn wake(&mut self, ready: Readiness, woken: &mut Vec<Waker>) {
        self.wakers.wake(ready, woken);
    }
}
