//! Text that goes past TCP: a connection between two leases of one lender may have a pipe in each direction (`link::lease::PipeTable`), into which one
//! side writes and out of which the other reads, without a packet. TCP opens and closes the connection.
//!
//! Each direction's text stands in this order: what TCP carried before the pipe began, what the pipe carries, what TCP carries once it has ended. The side
//! that writes says with which sequence number its pipe begins; it ends its pipe for good where text has to go in packets (a tap, a module, urgent data).

use std::io::IoSlice;

use proto::{
    tcp::Events,
    time::Instant,
    wire::tcp::{Header, SeqNum},
};

use super::{Shard, TcpSocket, sink::Sink};
use crate::{
    api::ReceiveFlags,
    counters::Counter,
    flow::Tuple,
    link::lease::{Pipe, PipeTable, Stream},
    packet::{Course, Packet},
    shard::time_wait,
};

/// A connection's pipes.
#[derive(Debug)]
pub(super) struct Piped {
    pipe: Pipe,
    outward: Outward,
    /// All that will come by the pipe from the peer was read.
    is_drained: bool,
    /// Text has to go in packets: so many bytes may still come by the pipe. What the peer wrote before it knew is no more than twice what fits.
    allowance: Option<usize>,
}

/// How text goes to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outward {
    /// By TCP, until the peer has the pipes, too.
    Waits,
    /// By the pipe.
    Open,
    /// By TCP.
    Ended,
}

/// Text that can be read, by how it came: first that of TCP from before the pipe, then the pipe's, then that of TCP from behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    before: usize,
    piped: usize,
    behind: usize,
}

impl Parts {
    const fn all(self) -> usize {
        self.before + self.piped + self.behind
    }

    /// There is nothing in a pipe.
    pub(super) const fn is_plain(self) -> bool {
        self.piped == 0
    }
}

impl Piped {
    fn new(pipe: Pipe) -> Self {
        Self {
            pipe,
            outward: Outward::Waits,
            is_drained: false,
            allowance: None,
        }
    }

    /// No more text goes to the peer by the pipe.
    fn end(&mut self) {
        if self.outward == Outward::Open {
            self.pipe.end.finish();
            self.pipe.tell();
        }
        self.outward = Outward::Ended;
    }

    /// Whether text goes by the pipe now, the next byte being number `next`. `is_held`: it has to go in packets.
    fn is_open(&mut self, is_held: bool, next: SeqNum) -> bool {
        if self.outward == Outward::Ended {
            return false;
        }
        let is_held = is_held || self.pipe.is_held();
        let is_met = self.pipe.end.is_met();
        match self.outward {
            Outward::Waits if is_met && !is_held => {
                self.pipe.end.begin(next.0);
                self.outward = Outward::Open;
            }
            // The peer reads it no more: what is written now its TCP resets.
            Outward::Open if is_held || !is_met => self.end(),
            _ => {}
        }
        self.outward == Outward::Open
    }

    /// The peer wrote more than it may, or an index that it cannot have reached.
    fn is_broken(&self) -> bool {
        let is_beyond = self.allowance == Some(0) && self.pipe.end.readable() > 0;
        is_beyond || self.pipe.end.is_corrupt()
    }

    /// As Linux: a third of the buffer is free.
    fn has_room(&self) -> bool {
        let all = self.pipe.end.pipes().layout().bytes() as usize; // widening: u32 to usize
        self.pipe.end.room() > all / 3
    }
}

impl TcpSocket {
    /// Text that can be read.
    pub(super) fn parts(&self) -> Parts {
        let readable = self.receive.readable_bytes() as usize; // widening: u32 to usize
        let by_tcp = Parts {
            before: readable,
            ..Parts::default()
        };
        let Some(piped) = self.watermarks.piped().filter(|piped| !piped.is_drained) else {
            return by_tcp;
        };
        // Asked first: what was sent before is seen by the look behind it.
        let heard = piped.pipe.end.heard();
        let Some(start) = heard.start else {
            return by_tcp;
        };
        let until = usize::try_from(SeqNum(start) - self.connection.read_next()).unwrap_or(0);
        let before = until.min(readable);
        let in_pipe = || {
            let there = piped.pipe.end.readable();
            there.min(piped.allowance.unwrap_or(there))
        };
        Parts {
            before,
            // Not ahead of what TCP still has to bring.
            piped: if until <= readable { in_pipe() } else { 0 },
            behind: if heard.is_finished {
                readable - before
            } else {
                0
            },
        }
    }

    /// Bytes that can be read, also from a pipe.
    #[inline]
    pub fn readable_bytes(&self) -> u32 {
        if self.watermarks.piped().is_none() {
            return self.receive.readable_bytes();
        }
        u32::try_from(self.parts().all()).unwrap_or(u32::MAX)
    }

    /// Whether there is no more to be read until the peer takes some of what waits: a pipe is full.
    pub(super) fn pipe_is_full(&self) -> bool {
        self.watermarks.piped().is_some_and(|piped| {
            piped.pipe.end.readable() >= piped.pipe.end.pipes().layout().bytes() as usize // widening
        })
    }

    /// Bytes in a pipe that the peer has not taken.
    pub(super) fn unread_by_peer(&self) -> usize {
        match self.watermarks.piped() {
            Some(piped) if piped.outward != Outward::Waits => piped.pipe.end.unread(),
            _ => 0,
        }
    }

    /// Whether the pipe that text goes by has room enough; `None`: text goes by TCP.
    pub(super) fn pipe_has_room(&self) -> Option<bool> {
        let piped = self.watermarks.piped()?;
        (piped.outward == Outward::Open).then(|| piped.has_room())
    }

    /// Bytes that the pipe has room for that text goes by; `None`: it goes by TCP.
    pub(super) fn pipe_room(&self) -> Option<usize> {
        let piped = self.watermarks.piped()?;
        (piped.outward == Outward::Open).then(|| piped.pipe.end.room())
    }

    /// The application lets go of it.
    pub(super) fn close_pipes(&mut self) {
        if let Some(piped) = self.watermarks.take_piped() {
            piped.pipe.close();
        }
    }

    /// What both ends know of its connection.
    fn stream(&self) -> Stream {
        let key = self.key();
        Stream {
            local: (key.local, key.local_port).into(),
            remote: (key.remote, key.remote_port).into(),
            iss: self.connection.iss().0,
            irs: self.connection.irs().0,
        }
    }

    /// Whether it may have pipes: nothing of its text is to be signed.
    fn may_have_pipes(&self) -> bool {
        self.watermarks.piped().is_none()
            && self.was_open
            && self.auth.is_none()
            && !self.read_shut
            && !self.is_over()
            && !self.connection.peer_closed()
    }

    /// What is left in the peer's pipe is read, or forgotten: the place of the pipes is another connection's then.
    fn drop_pipes_if_over(&mut self) {
        // Asked first: what was sent before is seen by the look behind it.
        let is_finished = |p: &Piped| p.pipe.end.heard().is_finished;
        if !self.watermarks.piped().is_some_and(is_finished) {
            return;
        }
        let parts = self.parts();
        if let Some(piped) = self.watermarks.piped_mut() {
            piped.is_drained |= parts.before + parts.piped == 0;
        }
        let is_over = |p: &Piped| p.is_drained && p.outward == Outward::Ended;
        if self.watermarks.piped().is_some_and(is_over) {
            self.watermarks.take_piped();
        }
    }
}

impl Shard {
    /// Where the connections of a link get pipes.
    fn pipes_of(&self, interface: u8) -> Option<&PipeTable> {
        let facts = self.host.net.interfaces.get(usize::from(interface))?;
        facts.pipes.as_deref()
    }

    /// Offers pipes for a connection that was opened here, if something has changed since the last time.
    #[inline(never)]
    pub(super) fn tcp_offer_pipes(&mut self, number: u32) {
        let Some(socket) = self.tcp.get(number) else {
            return;
        };
        let Some(table) = self.pipes_of(socket.interface) else {
            return;
        };
        let [epoch, ..] = table.epoch().to_le_bytes();
        if epoch == socket.moves_or_epoch
            || socket.connection.is_passive()
            || !socket.may_have_pipes()
        {
            return;
        }
        let pipe = table.offer(&socket.stream());
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.moves_or_epoch = epoch;
            if let Some(pipe) = pipe {
                socket.watermarks.set_piped(Piped::new(pipe));
            }
        }
    }

    /// Takes the pipes that the peer has offered for a connection, if it has.
    pub(super) fn tcp_accept_pipes(&mut self, number: u32) {
        let Some(socket) = self.tcp.get(number) else {
            return;
        };
        // What waits to be accepted may have them, what was closed may not: its peer's next byte has to be answered with a reset.
        let is_in_use = socket.attached || socket.listener().is_some();
        if !socket.connection.is_passive() || !is_in_use || !socket.may_have_pipes() {
            return;
        }
        let table = self.pipes_of(socket.interface);
        let pipe = table.and_then(|table| table.accept(&socket.stream()));
        if let (Some(pipe), Some(socket)) = (pipe, self.tcp.get_mut(number)) {
            socket.watermarks.set_piped(Piped::new(pipe));
        }
    }

    /// Writes text into a connection's pipe; `None`: it goes by TCP.
    ///
    /// # Errors
    /// As [`Shard::tcp_send`].
    #[inline(never)]
    pub(super) fn tcp_send_piped(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
    ) -> Option<Result<usize, i32>> {
        let socket = self.tcp.get(number)?;
        if socket.watermarks.piped().is_none() {
            self.tcp_offer_pipes(number);
            return None;
        }
        let is_held = (self.pipes_of(socket.interface)).is_none_or(PipeTable::is_held);
        let socket = self.tcp.get_mut(number)?;
        if socket.error.is_some()
            || !socket.connection.is_open_for_writing()
            || !socket.connection.can_send()
        {
            return None; // what the call says of it, it says there
        }
        let next = socket.connection.written_end();
        let piped = socket.watermarks.piped_mut()?;
        let was_open = piped.outward == Outward::Open;
        if !piped.is_open(is_held, next) {
            socket.drop_pipes_if_over();
            return None;
        }
        let end = &mut piped.pipe.end;
        let mut written = write(end, buffers);
        let asked: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if written < asked && end.ask_for_room() > 0 && written == 0 {
            written = write(end, buffers);
            if written < asked {
                end.ask_for_room();
            }
        }
        if written > 0 {
            end.publish();
            piped.pipe.tell();
        }
        if !was_open {
            self.count(Counter::TcpPiped);
        }
        if written == 0 && asked > 0 {
            return Some(Err(libc::EAGAIN));
        }
        Some(Ok(written))
    }

    /// Text goes by TCP from now on: what follows has something to it that a pipe does not carry.
    pub(super) fn tcp_leave_pipes(&mut self, number: u32) {
        if let Some(piped) = self
            .tcp
            .get_mut(number)
            .and_then(|s| s.watermarks.piped_mut())
        {
            piped.end();
        }
    }

    /// A call asks what a connection is ready for, and may wait: it hears of room in its pipe, and has one if it can.
    pub(super) fn tcp_ready_pipes(&mut self, number: u32) {
        self.tcp_offer_pipes(number);
        if let Some(piped) = self
            .tcp
            .get_mut(number)
            .and_then(|s| s.watermarks.piped_mut())
            && piped.outward == Outward::Open
            && !piped.has_room()
        {
            piped.pipe.end.ask_for_room();
        }
    }

    /// Reads a connection that has pipes.
    ///
    /// # Errors
    /// As [`Shard::tcp_receive`].
    #[inline(never)]
    pub(super) fn tcp_receive_piped(
        &mut self,
        number: u32,
        to: &mut impl Sink,
        flags: ReceiveFlags,
        now: Instant,
    ) -> Result<usize, i32> {
        self.limit_pipe(number);
        let socket = self.tcp.get_mut(number).ok_or(libc::ENOTCONN)?;
        let parts = socket.parts();
        if parts.all() == 0 {
            socket.drop_pipes_if_over();
            return socket.nothing_to_read();
        }
        if flags.enough && socket.is_short_of_low_water(to) {
            return Err(libc::EAGAIN);
        }
        // The mark is in the text of TCP, and a peer that sets one has ended its pipe.
        if socket.connection.urgent_remaining().is_some() && parts.piped == 0 {
            return self.tcp_receive_at_mark(number, to, flags);
        }
        if flags.peek {
            return Ok(self.tcp_peek_piped(number, to, parts));
        }
        let mut taken = self.tcp_take_text(number, to, parts.before);
        if taken == parts.before {
            taken += self.tcp_take_piped(number, to, parts.piped);
        }
        let has_mark = |socket: &TcpSocket| socket.connection.urgent_remaining().is_some();
        let is_ahead = taken < parts.before + parts.piped;
        if !is_ahead && !self.tcp.get(number).is_some_and(has_mark) {
            taken += self.tcp_take_text(number, to, parts.behind);
        }
        // Here, too: a peer whose pipe is nearly full writes nothing more, and no look would follow.
        if !self.tcp_break_pipes(number, now)
            && let Some(socket) = self.tcp.get_mut(number)
        {
            if taken == parts.all() {
                socket.came_by.is_read();
            }
            socket.drop_pipes_if_over();
        }
        Ok(taken)
    }

    /// Resets a connection whose peer wrote what it may not, if it did.
    fn tcp_break_pipes(&mut self, number: u32, now: Instant) -> bool {
        let piped = (self.tcp.get(number)).and_then(|socket| socket.watermarks.piped());
        let is_broken = piped.is_some_and(Piped::is_broken);
        if is_broken {
            self.count(Counter::TcpPipesBroken);
            self.tcp_disconnect(number, now);
        }
        is_broken
    }

    /// Takes at most `most` bytes that came by TCP.
    fn tcp_take_text(&mut self, number: u32, to: &mut impl Sink, most: usize) -> usize {
        let Some(socket) = self.tcp.get_mut(number).filter(|_| most > 0) else {
            return 0;
        };
        let mut left = most;
        let n = socket.receive.consume(&mut self.pool, |packet| {
            let bytes = packet.bytes();
            let n = to.put(bytes.get(..left).unwrap_or(bytes));
            left -= n;
            n
        });
        self.tcp_consumed(number, n);
        n as usize // widening: u32 to usize
    }

    /// Takes at most `most` bytes that came by a pipe.
    fn tcp_take_piped(&mut self, number: u32, to: &mut impl Sink, most: usize) -> usize {
        let Some(piped) = self
            .tcp
            .get_mut(number)
            .and_then(|s| s.watermarks.piped_mut())
        else {
            return 0;
        };
        let end = &mut piped.pipe.end;
        let n = to.draw(most, |skip, into| end.copy(skip, into));
        if end.take(n) {
            piped.pipe.tell();
        }
        if let Some(allowance) = &mut piped.allowance {
            *allowance = allowance.saturating_sub(n);
        }
        n
    }

    /// Copies what can be read, and takes none of it.
    fn tcp_peek_piped(&mut self, number: u32, to: &mut impl Sink, parts: Parts) -> usize {
        let Some(socket) = self.tcp.get_mut(number) else {
            return 0;
        };
        let (mut left, mut seen) = (parts.before, 0);
        for packet in socket.receive.iter(&self.pool) {
            let bytes = packet.bytes();
            let part = bytes.get(..left).unwrap_or(bytes);
            seen += to.put(part);
            left -= part.len();
        }
        if seen < parts.before {
            return seen;
        }
        if let Some(piped) = socket.watermarks.piped_mut() {
            let end = &mut piped.pipe.end;
            seen += to.draw(parts.piped, |skip, into| end.copy(skip, into));
        }
        if seen < parts.before + parts.piped {
            return seen;
        }
        let (mut skip, mut left) = (parts.before, parts.behind);
        for packet in socket.receive.iter(&self.pool) {
            let bytes = packet.bytes();
            let part = bytes.get(skip.min(bytes.len())..).unwrap_or_default();
            skip = skip.saturating_sub(bytes.len());
            let part = part.get(..left).unwrap_or(part);
            seen += to.put(part);
            left -= part.len();
        }
        seen
    }

    /// Where text has to go in packets, little more is taken from a pipe.
    fn limit_pipe(&mut self, number: u32) {
        let Some(socket) = self.tcp.get(number) else {
            return;
        };
        let is_held = (self.pipes_of(socket.interface)).is_none_or(PipeTable::is_held);
        if let Some(piped) = self
            .tcp
            .get_mut(number)
            .and_then(|s| s.watermarks.piped_mut())
        {
            let fits = piped.pipe.end.pipes().layout().bytes() as usize; // widening: u32 to usize
            // No longer held: a peer that has not seen that it was goes on by the pipe.
            piped.allowance = is_held.then(|| piped.allowance.unwrap_or(2 * fits));
        }
    }

    /// The link tells a connection something.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn tcp_told(&mut self, packet: Packet, now: Instant) {
        let upper = usize::from(packet.meta.upper);
        let Some(tuple) = Tuple::of_received(packet.bytes(), upper) else {
            return;
        };
        let segment = packet.bytes().get(upper..).unwrap_or_default();
        if Header::parse(segment).is_err() {
            return;
        }
        let found = self.find_of_packet(packet.meta.flow, &tuple);
        match found.map(time_wait::split) {
            Some(Ok(number)) if packet.meta.course == Course::BESIDE => {
                self.tcp_look_beside(number, now);
            }
            Some(Ok(number)) => {
                if let Some(socket) = self.tcp_mut(number) {
                    socket.connection.sent_in_vain();
                    self.mark_dirty(number);
                }
            }
            Some(Err(_)) => {} // nothing is read or sent there any more
            None => {
                if let Some(shard) = self.moved_to(packet.meta.flow, &tuple.tcp_key()) {
                    self.pass_on(shard, packet);
                }
            }
        }
    }

    /// Looks what a connection's pipes have, and wakes those that wait for it.
    pub(super) fn tcp_look_beside(&mut self, number: u32, now: Instant) {
        if self
            .tcp
            .get(number)
            .is_some_and(|s| s.watermarks.piped().is_none())
        {
            self.tcp_accept_pipes(number);
        }
        self.limit_pipe(number);
        if self.tcp_break_pipes(number, now) {
            return;
        }
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        let Some(piped) = socket.watermarks.piped_mut() else {
            return;
        };
        let mut events = Events::NONE;
        let was_open = piped.outward == Outward::Open;
        let is_held = piped.allowance.is_some();
        if was_open && !piped.is_open(is_held, SeqNum(0)) {
            events |= Events::WRITABLE;
        }
        if piped.outward == Outward::Open && piped.pipe.end.waits_for_room() && piped.has_room() {
            events |= Events::WRITABLE;
        }
        if socket.read_shut {
            let there = piped.pipe.end.readable();
            if piped.pipe.end.take(there) {
                piped.pipe.tell();
            }
        }
        if socket.parts().all() > 0 {
            events |= Events::READABLE;
        } else {
            socket.drop_pipes_if_over();
        }
        self.events(number, events, now);
    }
}

/// Writes as much of `buffers` as there is room for; how much.
fn write(end: &mut percore::pipe::End, buffers: &[IoSlice<'_>]) -> usize {
    let mut written = 0;
    for buffer in buffers {
        let n = end.write(buffer);
        written += n;
        if n < buffer.len() {
            break;
        }
    }
    written
}
