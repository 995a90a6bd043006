//! What socket calls do to a connection.

use std::{
    io::{IoSlice, IoSliceMut},
    num::NonZero,
    task::Waker,
};

use proto::{tcp::Events, time::Instant};

use super::{
    Shard, TcpSocket, Wakers,
    sink::{Filling, Forget, Look, Sink},
};
use crate::{
    api::{Readiness, ReceiveFlags},
    shard::samples::Reader,
};

impl Shard {
    /// The connection with this number.
    pub fn tcp(&self, number: u32) -> Option<&TcpSocket> {
        self.tcp.get(number)
    }

    pub(in crate::shard) fn tcp_mut(&mut self, number: u32) -> Option<&mut TcpSocket> {
        self.tcp.get_mut(number)
    }

    /// Connections with their numbers.
    pub fn connections(&self) -> impl Iterator<Item = (u32, &TcpSocket)> {
        self.tcp.iter()
    }

    /// Lets the application's socket change a connection's settings.
    pub fn tcp_with(&mut self, number: u32, change: impl FnOnce(&mut TcpSocket)) {
        if let Some(socket) = self.tcp.get_mut(number) {
            change(socket);
            // It may be ready for more than before.
            socket.wakers.wake(Readiness(!0), &mut self.woken);
            self.mark_dirty(number);
        }
        self.bound_own(number); // whatever buffer it asked for
    }

    /// Appends to a connection's send queue; how many bytes.
    ///
    /// # Errors
    /// An errno: EAGAIN (no room, or not yet connected), EPIPE, ENOTCONN, or the connection's error.
    #[inline]
    pub fn tcp_send(&mut self, number: u32, buffers: &[IoSlice<'_>]) -> Result<usize, i32> {
        if self.has_pipes
            && let Some(sent) = self.tcp_send_piped(number, buffers)
        {
            return sent;
        }
        let mut most = match buffers {
            [one] => one.len(),
            more => more.iter().map(|b| b.len()).sum(),
        };
        let asked = most;
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
            return self.tcp_send_first(number, buffers);
        }
        let mut room = socket.may_append();
        if room < most && socket.widen_send_queue(self.host.send_buffer_max) {
            room = socket.may_append();
        }
        let most = most.min(room);
        let n = socket.send.append(buffers, &mut self.send_memory, most);
        self.pool.memory_mut().add(n);
        socket.note_held(&mut self.memory.tcp_shares);
        socket.connection.send_queue_is_full(n < asked);
        if n == 0 && buffers.iter().any(|b| !b.is_empty()) {
            return Err(libc::EAGAIN);
        }
        socket
            .connection
            .written(u32::try_from(n).unwrap_or(u32::MAX));
        if !std::mem::replace(&mut socket.dirty, true) {
            self.dirty.push(number);
        }
        Ok(n)
    }

    /// How much [`Self::tcp_send`] would take at most; `None`: it would answer an error that waiting does not change.
    pub fn tcp_send_room(&mut self, number: u32) -> Option<usize> {
        let most = self.host.send_buffer_max;
        let socket = self.tcp.get_mut(number)?;
        if socket.error.is_some() || !socket.connection.is_open_for_writing() {
            return None;
        }
        if !socket.connection.can_send() {
            return Some(0);
        }
        if let Some(room) = socket.pipe_room() {
            return Some(room);
        }
        if socket.may_append() == 0 {
            socket.widen_send_queue(most);
        }
        Some(socket.may_append())
    }

    /// Copies received bytes out; 0 is the end of the stream (or empty buffers).
    ///
    /// # Errors
    /// An errno: EAGAIN, ENOTCONN, or the connection's error.
    #[inline]
    pub fn tcp_receive(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
        now: Instant,
    ) -> Result<usize, i32> {
        if flags.urgent {
            return self.tcp_receive_urgent(number, buffers, flags.peek);
        }
        self.tcp_receive_into(number, &mut Filling::new(buffers), flags, now)
    }

    /// The same for a sink; `flags.urgent` does not count.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    fn tcp_receive_into(
        &mut self,
        number: u32,
        to: &mut impl Sink,
        flags: ReceiveFlags,
        now: Instant,
    ) -> Result<usize, i32> {
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        if socket.watermarks.piped().is_some() {
            return self.tcp_receive_piped(number, to, flags, now);
        }
        if socket.receive.readable_bytes() == 0 {
            return socket.nothing_to_read();
        }
        if flags.enough && socket.is_short_of_low_water(to) {
            return Err(libc::EAGAIN);
        }
        if socket.connection.urgent_remaining().is_some() {
            return self.tcp_receive_at_mark(number, to, flags);
        }
        if flags.peek {
            let segments = socket.receive.iter(&self.pool);
            return Ok(segments.map(|packet| to.put(packet.bytes())).sum());
        }
        let n = socket
            .receive
            .consume(&mut self.pool, |packet| to.put(packet.bytes()));
        self.tcp_consumed(number, n);
        Ok(n as usize)
    }

    /// Shows received text to `look`, piece by piece and in order, where it lies, and takes none of it. How much there was; 0 is the end of the stream.
    ///
    /// # Errors
    /// As for [`Self::tcp_receive`].
    pub fn tcp_peek_segments(
        &mut self,
        number: u32,
        look: impl FnMut(&[u8]),
        now: Instant,
    ) -> Result<usize, i32> {
        let flags = ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        };
        self.tcp_receive_into(number, &mut Look(look), flags, now)
    }

    /// Takes at most `n` received bytes and copies none. How many; 0 is the end of the stream (or `n` is 0).
    ///
    /// # Errors
    /// As for [`Self::tcp_receive`].
    pub fn tcp_forget(&mut self, number: u32, n: usize, now: Instant) -> Result<usize, i32> {
        self.tcp_receive_into(number, &mut Forget(n), ReceiveFlags::default(), now)
    }

    /// Bytes were read: a window update may be due, memory is free.
    #[inline]
    pub(super) fn tcp_consumed(&mut self, number: u32, n: u32) {
        self.samples.read(Reader::Tcp(number), n);
        if n > 0
            && let Some(socket) = self.tcp.get_mut(number)
        {
            socket.note_held(&mut self.memory.tcp_shares);
            if socket.receive.readable_bytes() == 0 && socket.watermarks.piped().is_none() {
                socket.came_by.is_read();
            }
            socket.connection.consumed(n);
            if socket.connection.wants_output() {
                self.mark_dirty(number);
            }
            if self.memory.tcp.is_off(self.pool.memory()) {
                self.memory.settle(self.pool.memory_mut());
            }
        }
    }

    /// As [`Self::tcp_send`]; the last byte taken is urgent (RFC 9293 MUST-31).
    ///
    /// # Errors
    /// As there.
    pub fn tcp_send_urgent(&mut self, number: u32, buffers: &[IoSlice<'_>]) -> Result<usize, i32> {
        self.tcp_leave_pipes(number);
        let n = self.tcp_send(number, buffers)?;
        if let Some(socket) = self.tcp.get_mut(number).filter(|_| n > 0) {
            socket.connection.mark_urgent();
        }
        Ok(n)
    }

    /// shutdown(2). Reading: later reads say end of stream.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn tcp_shutdown(
        &mut self,
        number: u32,
        read: bool,
        write: bool,
        now: Instant,
    ) -> Result<(), i32> {
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        if !socket.was_open || socket.connection.is_finished() || socket.detached_flow {
            return Err(libc::ENOTCONN);
        }
        if read {
            self.tcp_shut_reading(number)?;
        }
        if write {
            let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
            let events = socket.connection.shutdown();
            self.events(number, events | Events::WRITABLE, now);
            self.mark_dirty(number);
        }
        Ok(())
    }

    /// Later reads say end of stream.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn tcp_shut_reading(&mut self, number: u32) -> Result<(), i32> {
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        socket.read_shut = true;
        socket.connection.shut_reading();
        socket.wakers.wake(
            Readiness::READABLE | Readiness::READ_HANGUP,
            &mut self.woken,
        );
        Ok(())
    }

    /// What was shut before there was a connection.
    pub(in crate::shard) fn tcp_begin_shut(&mut self, number: u32, (read, write): (bool, bool)) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if read {
            socket.read_shut = true;
            socket.connection.shut_reading();
        }
        if write {
            socket.connection.shut_writing_before();
        }
    }

    /// connect(2) with AF_UNSPEC: an abort; the socket keeps the place, and ECONNRESET to tell once.
    #[cold]
    pub fn tcp_disconnect(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        let pending = socket.error;
        let was_over = socket.is_over();
        let events = socket.connection.abort();
        socket.receive.clear(&mut self.pool);
        socket.close_pipes();
        self.memory_freed(None);
        self.events(number, events | Events::CLOSED, now);
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.error = if was_over {
                pending
            } else {
                NonZero::new(libc::ECONNRESET)
            };
        }
        self.mark_dirty(number);
    }

    /// The application lets go of a connection: a graceful close, or an abort where data would be lost unread (RFC 9293 SHLD-3)
    /// or SO_LINGER is zero.
    pub fn tcp_close(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        socket.attached = false;
        socket.wakers = Wakers::default();
        let events = if socket.kept.resets() {
            socket.connection.abort()
        } else {
            let unread = socket.readable_bytes();
            socket.connection.close(unread, now)
        };
        socket.receive.clear(&mut self.pool);
        socket.close_pipes();
        socket.note_held(&mut self.memory.tcp_shares);
        self.memory_freed(None);
        self.events(number, events, now);
        self.mark_dirty(number);
    }

    /// The link of `interface` is gone for good: its connections end with ENETDOWN, and if it was the last one (`all`) listeners say so, too.
    pub fn link_gone(&mut self, interface: usize, all: bool, now: Instant) {
        let numbers: Vec<u32> = self
            .tcp
            .iter()
            .filter(|(_, s)| usize::from(s.interface) == interface)
            .map(|(number, _)| number)
            .collect();
        for number in numbers {
            let Some(socket) = self.tcp.get_mut(number) else {
                continue;
            };
            let events = socket.connection.abort();
            self.events(number, events, now);
            if let Some(socket) = self.tcp.get_mut(number) {
                socket.error = NonZero::new(libc::ENETDOWN);
                socket.wakers.wake(Readiness(!0), &mut self.woken);
            }
            self.mark_dirty(number);
        }
        if all {
            self.all_gone = true;
            self.wake_everyone();
        }
    }

    /// What a connection is ready for.
    pub fn tcp_readiness(&mut self, number: u32) -> Readiness {
        if self.tcp.get(number).is_none() {
            return Readiness::HANGUP | Readiness::ERROR;
        }
        if self.has_pipes {
            self.tcp_ready_pipes(number);
        }
        let is_short = self.memory.tcp.is_short() || self.is_over_share(number);
        let Some(socket) = self.tcp.get(number) else {
            return Readiness::HANGUP | Readiness::ERROR;
        };
        let ready = socket.readiness(!is_short);
        let notices = socket.has_notices();
        if is_short && !ready.contains(Readiness::WRITABLE) {
            self.wait_for_memory(number); // a caller that asks once may never register
        }
        if notices {
            return ready | Readiness::ERROR;
        }
        ready
    }

    /// The same, and since when it is readable: of two sockets of a stack that which became so first has the lower number, as numbers that wrap are compared.
    /// 0: that is not known.
    pub fn tcp_ready_since(&mut self, number: u32) -> (Readiness, u32) {
        let ready = self.tcp_readiness(number);
        let since = self
            .tcp
            .get(number)
            .map_or(0, |socket| socket.came_by.readable_since());
        (ready, since)
    }

    /// Registers a waker, or wakes it at once: then true.
    pub fn tcp_register(&mut self, number: u32, interest: Readiness, waker: &Waker) -> bool {
        let mut wanted = interest | Readiness::ERROR | Readiness::HANGUP;
        let now = self.tcp_readiness(number);
        let only_notices = |socket: &TcpSocket| socket.has_notices() && socket.error.is_none();
        if !interest.contains(Readiness::ERROR) && self.tcp.get(number).is_some_and(only_notices) {
            // For a call that waits it is no error.
            wanted = interest | Readiness::HANGUP;
        }
        match self.tcp.get_mut(number) {
            Some(socket) if !now.intersects(wanted) => {
                socket.wakers.register(interest, waker);
                false
            }
            _ => {
                waker.wake_by_ref();
                true
            }
        }
    }

    /// The end of a call that would wait: registers a waker if it `blocked`, else forgets it.
    #[cold]
    #[inline(never)]
    pub fn tcp_wait_for(&mut self, number: u32, interest: Readiness, waker: &Waker, blocked: bool) {
        if blocked {
            self.tcp_register(number, interest, waker);
        } else {
            self.tcp_deregister(number, waker);
        }
    }

    /// Forgets a waker.
    pub fn tcp_deregister(&mut self, number: u32, waker: &Waker) {
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.wakers.deregister(waker);
        }
    }

    /// SO_ERROR.
    pub fn tcp_take_error(&mut self, number: u32) -> Option<i32> {
        self.tcp.get_mut(number)?.take_error()
    }
}
