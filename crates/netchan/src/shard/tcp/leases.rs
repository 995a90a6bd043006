//! A stream's text, written by the program right into memory of the send queue.

use super::Shard;
use crate::shard::send_queue::SendLease;

impl Shard {
    /// Room for the next bytes of a connection, at most `wanted`, and no more than [`Self::tcp_send`] would take now.
    ///
    /// # Errors
    /// As there; EAGAIN also of a connection that is not open yet.
    pub fn tcp_reserve(&mut self, number: u32, wanted: usize) -> Result<SendLease, i32> {
        let most = self.tcp_room_for(number, wanted)?;
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        if most == 0 && wanted > 0 {
            socket.connection.send_queue_is_full(true);
            return Err(libc::EAGAIN);
        }
        Ok(socket.send.lease(&mut self.send_memory, most))
    }

    /// Sends the first `n` bytes of what was written to a lease: of any, but without a copy only to the connection that gave it, and that was
    /// sent nothing meanwhile. How many.
    ///
    /// # Errors
    /// As [`Self::tcp_send`]; what was written is gone.
    pub fn tcp_commit(&mut self, number: u32, lease: SendLease, n: usize) -> Result<usize, i32> {
        let asked = n.min(lease.len());
        let most = self.tcp_room_for(number, asked)?;
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        let taken = socket.send.commit(lease, &mut self.send_memory, most);
        self.pool.memory_mut().add(taken);
        socket.note_held(&mut self.memory.tcp_shares);
        socket.connection.send_queue_is_full(taken < asked);
        if taken == 0 && asked > 0 {
            return Err(libc::EAGAIN);
        }
        socket
            .connection
            .written(u32::try_from(taken).unwrap_or(u32::MAX));
        self.mark_dirty(number);
        Ok(taken)
    }

    /// How many of `wanted` bytes the send queue, the memory and the socket's share have room for.
    fn tcp_room_for(&mut self, number: u32, wanted: usize) -> Result<usize, i32> {
        self.tcp_leave_pipes(number);
        let mut most = wanted;
        let mut socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        if self.pool.memory().lacks(most)
            || (self.memory.tcp_shares).lacks(socket.peer, socket.held().into(), most)
        {
            most = self.memory_to_send(number, most);
            socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        }
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        if !socket.connection.is_open_for_writing() {
            return Err(libc::EPIPE);
        }
        if !socket.connection.can_send() {
            return Err(libc::EAGAIN);
        }
        let mut room = socket.may_append();
        if room < most && socket.widen_send_queue(self.host.send_buffer_max) {
            room = socket.may_append();
        }
        Ok(most.min(room))
    }
}
