//! Urgent data as programs know it from BSD (RFC 6093 §3.1): one byte out of line, and a mark in the stream where it stood.
//!
//! The byte stays in the receive queue, as RFC 9293 §3.8.5 has it; reads stop at it, and the next one passes over it.

use std::io::IoSliceMut;

use super::{Shard, TcpSocket, sink::Sink};
use crate::api::ReceiveFlags;

impl TcpSocket {
    /// Bytes to be read before the urgent byte, if there is one ahead.
    fn mark(&self) -> Option<u32> {
        let remaining = self.connection.urgent_remaining()?;
        Some(remaining.saturating_sub(1))
    }

    /// SIOCATMARK: the next byte is the urgent one.
    pub fn is_at_mark(&self) -> bool {
        self.mark() == Some(0) && self.parts().is_plain()
    }

    /// The urgent byte has come, and is not taken yet.
    pub(super) fn has_urgent_byte(&self) -> bool {
        let there = self.receive.readable_bytes();
        !self.urgent_taken && self.mark().is_some_and(|mark| mark < there)
    }

    /// FIONREAD: what can be read up to the mark.
    pub fn bytes_in_line(&self) -> u32 {
        let there = self.readable_bytes();
        match self.mark() {
            _ if !self.parts().is_plain() => there,
            Some(mark) if !self.watermarks.urgent_inline => there.min(mark),
            _ => there,
        }
    }

    /// A new urgent pointer.
    pub(super) const fn urgent_announced(&mut self) {
        self.urgent_taken = false;
    }
}

impl Shard {
    /// recv(2) with MSG_OOB: the urgent byte, without a wait.
    ///
    /// # Errors
    /// As Linux: EINVAL (there is none, it was taken, or it is in line), EAGAIN (not here yet), ENOTCONN.
    pub(super) fn tcp_receive_urgent(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, i32> {
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        let mark = match socket.mark() {
            Some(mark) if !socket.watermarks.urgent_inline && !socket.urgent_taken => mark as usize,
            _ => return Err(libc::EINVAL),
        };
        // As Linux: after a reset, but not after the peer's end.
        if socket.is_over() && !socket.connection.peer_closed() {
            return Err(libc::ENOTCONN);
        }
        let mut before = 0;
        let byte = socket.receive.iter(&self.pool).find_map(|packet| {
            let byte = packet.bytes().get(mark - before).copied();
            before += packet.len();
            byte
        });
        let Some(byte) = byte else {
            return if socket.end_of_stream() {
                Ok(0)
            } else {
                Err(libc::EAGAIN)
            };
        };
        socket.urgent_taken |= !peek;
        let room = buffers.iter_mut().find_map(|buffer| buffer.first_mut());
        Ok(room.map_or(0, |room| {
            *room = byte;
            1
        }))
    }

    /// Another byte is urgent now, and the one before, out of line, is the next in the queue. As Linux: it is not read any more.
    #[cold]
    pub(super) fn tcp_urgent_missed(&mut self, number: u32) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if socket.watermarks.urgent_inline {
            return;
        }
        let mut left = 1;
        let take = |packet: &crate::packet::Packet| {
            let n = left.min(packet.len());
            left -= n;
            n
        };
        let n = (socket.receive).consume(&mut self.pool, take);
        self.tcp_consumed(number, n);
    }

    /// A read while urgent data is ahead: up to the mark, or from behind it.
    #[cold]
    #[inline(never)]
    pub(super) fn tcp_receive_at_mark(
        &mut self,
        number: u32,
        to: &mut impl Sink,
        flags: ReceiveFlags,
    ) -> Result<usize, i32> {
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        let has_room = to.room() > 0;
        let mut left = match socket.mark() {
            Some(mark) if mark > 0 => mark as usize,
            _ => usize::MAX,
        };
        // Only on the way to what is behind it: a read of nothing leaves it.
        let passes = socket.is_at_mark() && !socket.watermarks.urgent_inline && has_room;
        let mut skip = usize::from(passes);
        let mut copied = 0;
        let mut take = |bytes: &[u8]| {
            let passed = skip.min(bytes.len());
            skip -= passed;
            let bytes = &bytes[passed..];
            let put = to.put(&bytes[..bytes.len().min(left)]);
            left -= put;
            copied += put;
            passed + put
        };
        if flags.peek {
            for packet in socket.receive.iter(&self.pool) {
                take(packet.bytes());
            }
        } else {
            let n = (socket.receive).consume(&mut self.pool, |packet| take(packet.bytes()));
            self.tcp_consumed(number, n);
        }
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        if copied > 0 || !has_room {
            return Ok(copied);
        }
        // As if nothing were there, which an urgent byte that is passed over is not.
        socket.nothing_to_read()
    }
}
