//! TCP in a shard: segments to connections, connections to segments, and what the socket calls do to a connection.

mod burst;
mod calls;
mod filling;
mod open;
mod shape;
#[cfg(test)]
mod size;
mod tell;
mod urgent;

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZero,
    sync::Arc,
    task::Waker,
};

use percore::slab::Buffer;
use proto::{
    ip::Ecn,
    tcp::{
        self, Connection, Events, ReceiveQueue, State, Template, TimeWait, TimeWaitVerdict,
        Transmit,
    },
    time::{Duration, Instant},
    wire::{
        checksum,
        ipv4::Protocol,
        tcp::{Flags, Header, SeqNum},
    },
};

use self::filling::Filling;
pub use self::shape::Shape;
use super::{
    Addresses, Auth, FastOpenOptions, Keys, Shard, read_addresses,
    send_queue::SendQueue,
    time_wait::{self, Waiting},
    wakers::Wakers,
};
use crate::{
    channel::Request,
    counters::Counter,
    emit::{self, IpFields},
    errno,
    link::Segmentation,
    packet::{Hint, Packet},
    socket::Readiness,
    steer::flow::{FlowKey, Tuple},
};

/// A connection with what surrounds it.
#[derive(Debug)]
pub struct TcpSocket {
    /// The flow's short hash.
    pub hash: u32,
    /// The protocol.
    pub connection: Connection,
    pub(super) receive: ReceiveQueue<Packet>,
    pub(super) send: SendQueue,
    wakers: Wakers,
    /// SO_ERROR.
    error: Option<NonZero<i32>>,
    /// The listener it came by, until it is accepted: its number inverted, so that none takes no more room.
    came_by: Option<NonZero<u32>>,
    /// A socket of the application holds it.
    pub(super) attached: bool,
    /// Its flow has been taken out of the table: closed, or in TIME-WAIT.
    pub(super) detached_flow: bool,
    pub(super) dirty: bool,
    read_shut: bool,
    /// The urgent byte ahead was read out of line.
    urgent_taken: bool,
    /// Options that change when it is ready.
    pub(super) shape: Shape,
    /// Most bytes in the send queue.
    send_limit: u32,
    /// More memory would let it send or receive more: it is on the shard's list.
    pub(super) waits_for_memory: bool,
    /// The trace has been told that the peer's window is closed.
    told_closed: bool,
    /// The handshake was over once: tells "refused" from "reset".
    was_open: bool,
    /// What was learned of the next hop since the last packet.
    hint: Hint,
    /// Its flow, and the IP header fields of what it sends, with all else that does not change.
    pub(super) template: emit::Template,
    interface: u8,
    /// What its link does with more text than fits a packet.
    pub(super) segmentation: Segmentation,
    /// SO_LINGER of no time: closing resets it.
    pub(super) resets: bool,
    /// What its segments are signed with.
    pub(super) auth: Option<Box<Auth>>,
}

/// What a socket call asks a connection to be.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Instead of the stack's TCP settings.
    pub own: Option<Box<Template>>,
    /// TCP_NODELAY is off.
    pub nagle: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// TCP_QUICKACK.
    pub quick_ack: bool,
    /// IP header fields.
    pub fields: IpFields,
    /// SO_LINGER.
    pub linger: Option<Duration>,
    /// TCP_DEFER_ACCEPT, in retransmissions of the SYN-ACK.
    pub defer_accept: u8,
    /// TCP_MD5SIG, TCP_AO_ADD_KEY.
    pub keys: Option<Arc<Keys>>,
    /// TCP_MAXSEG.
    pub max_segment: Option<u16>,
    /// TCP_FASTOPEN.
    pub fast_open: FastOpenOptions,
}

/// What connect(2) asks for.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The address the socket is bound to.
    pub source: Option<IpAddr>,
    /// The port it is bound to; 0: one is chosen.
    pub port: u16,
    /// Whom to connect to.
    pub remote: SocketAddr,
    /// Its SYN may carry what is written first.
    pub fast: bool,
    /// What its socket says.
    pub options: &'a TcpOptions,
}

impl Shard {
    // --- packets in ---------------------------------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn tcp_input(&mut self, mut packet: Packet, now: Instant) {
        self.count(Counter::TcpIn);
        let upper = usize::from(packet.meta.upper);
        let bytes = packet.bytes();
        // Nearly always it is for the same connection as the last one, and its header has one of two layouts.
        if let Some(socket) = self.tcp.get(self.recent)
            && Tuple::of_received(bytes, upper) == Some(*socket.tuple())
            && !socket.detached_flow
            && socket.auth.is_none()
            && let Some(segment) = bytes.get(upper..)
            && (packet.meta.checksum_verified.get() || socket.template.is_valid(segment))
            && let Some((header, text)) = Header::parse_usual(segment)
        {
            let ecn = Ecn::of_packet(bytes);
            packet.pull(upper + text);
            return self.segment(self.recent, &header, ecn, packet, now);
        }
        self.any_tcp_input(packet, now);
    }

    /// A segment for whatever connection, with whatever header.
    #[inline(never)]
    fn any_tcp_input(&mut self, mut packet: Packet, now: Instant) {
        let upper = usize::from(packet.meta.upper);
        let Some(tuple) = Tuple::of_received(packet.bytes(), upper) else {
            return self.count(Counter::DropTcpHeader);
        };
        let segment = packet.bytes().get(upper..).unwrap_or_default();
        if !packet.meta.checksum_verified.get() {
            let sum = tuple.pseudo_header(Protocol::TCP, segment.len()) + checksum::sum(segment);
            if !checksum::is_valid(sum) {
                return self.count(Counter::DropTcpChecksum);
            }
        }
        let Ok((header, text)) = Header::parse(segment) else {
            return self.count(Counter::DropTcpHeader);
        };
        let ecn = Ecn::of_packet(packet.bytes());
        packet.meta.ecn = ecn as u8;
        match self
            .find_tuple(packet.meta.flow, &tuple)
            .map(time_wait::split)
        {
            Some(Ok(number)) => {
                let segment = packet.bytes().get(upper..).unwrap_or_default();
                if !self.is_authentic(number, segment) {
                    return;
                }
                self.recent = number;
                packet.pull(upper + text);
                self.segment(number, &header, ecn, packet, now);
            }
            other => self.segment_elsewhere(other, &header, upper + text, packet, now),
        }
    }

    /// A segment for a TIME-WAIT record, a listener, or nobody.
    #[inline(never)]
    fn segment_elsewhere(
        &mut self,
        found: Option<Result<u32, u32>>,
        header: &Header,
        text: usize,
        mut packet: Packet,
        now: Instant,
    ) {
        let Some(Addresses {
            source,
            destination,
        }) = read_addresses(&packet)
        else {
            return;
        };
        let key = FlowKey {
            local: destination,
            remote: source,
            local_port: header.destination_port,
            remote_port: header.source_port,
            protocol: Protocol::TCP,
        };
        if !self.is_authentic_elsewhere(found, &key, &packet) {
            return;
        }
        packet.pull(text);
        match found {
            Some(Err(number)) => self.segment_in_time_wait(number, &key, header, packet, now),
            _ => self.segment_without_connection(&key, header, packet, None, now),
        }
    }

    /// A segment for a connection.
    #[inline(always)]
    pub(super) fn segment(
        &mut self,
        number: u32,
        header: &Header,
        ecn: Ecn,
        packet: Packet,
        now: Instant,
    ) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if let Some(listener) = socket.listener()
            && socket.connection.state() == State::SynReceived
            && !socket.was_open
            && !header.flags.intersects(Flags::RST | Flags::SYN)
            && self.puts_off(listener, number, header, &packet)
        {
            return;
        }
        if self.pool.memory().lacks(packet.true_size()) {
            self.ask_for_segment(packet.true_size());
        }
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        let input = socket.connection.input(
            header,
            ecn,
            packet,
            &mut socket.receive,
            &mut self.pool,
            now,
        );
        if input.acked > 0 {
            let acked = socket
                .send
                .advance(input.acked as usize, &mut self.send_memory);
            self.pool.memory_mut().remove(acked);
            socket.hint = Hint::PROGRESS;
            if self.memory.tcp.is_off(self.pool.memory()) {
                self.memory.settle(self.pool.memory_mut());
            }
        }
        if input.drop.is_some() || input.events.intersects(RARE) || socket.connection.wants_output()
        {
            if self.pool.pruned() != self.memory.pruned {
                self.count_pruned();
            }
            if let Some(reason) = input.drop {
                self.refused(number, counter_of(reason));
            }
            self.events(number, input.events, now);
            return self.settle(number);
        }
        // Nothing to send, nothing rare: the timer, and whoever waits for it.
        self.timers.arm(number, socket.connection.deadline());
        if !socket.wakers.is_empty() {
            self.events(number, input.events, now);
        }
    }

    /// After what was rare: output if there may be some, else only the timer.
    fn settle(&mut self, number: u32) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if socket.connection.wants_output() || socket.is_over() {
            return self.mark_dirty(number);
        }
        self.timers.arm(number, socket.connection.deadline());
    }

    /// A segment that finds no connection: for a listener, or for nobody.
    fn segment_without_connection(
        &mut self,
        key: &FlowKey,
        header: &Header,
        packet: Packet,
        iss: Option<SeqNum>,
        now: Instant,
    ) {
        let text_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        if let Some(listener) = self.listener_for(key.local, key.local_port, packet.meta.flow) {
            match tcp::listen(header, text_len) {
                tcp::Listen::Open => self.open_passive(listener, key, header, packet, iss, now),
                tcp::Listen::Reset(_) if self.takes_cookies(listener, header, now) => {
                    self.cookie_came_back(listener, key, header, packet, now);
                }
                tcp::Listen::Reset(reset) => self.answer(key, &reset, packet.meta.interface, now),
                tcp::Listen::Drop(_) => self.count(Counter::DropTcpUnacceptable),
            }
            return;
        }
        self.count(Counter::DropTcpNoSocket);
        if let Some(reset) = tcp::reset_for(header, text_len) {
            self.answer(key, &reset, packet.meta.interface, now);
        }
    }

    fn segment_in_time_wait(
        &mut self,
        number: u32,
        key: &FlowKey,
        header: &Header,
        packet: Packet,
        now: Instant,
    ) {
        let text_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let Some(waiting) = self.time_waits.get_mut(number) else {
            return;
        };
        let interface = waiting.interface;
        match waiting.record.input(header, text_len, now) {
            TimeWaitVerdict::Drop => self.count(Counter::DropTcpUnacceptable),
            TimeWaitVerdict::Acknowledge(header) => {
                let auth = self.time_waits.auth(number);
                self.answer_signed(key, &header, interface, auth, now);
            }
            TimeWaitVerdict::Reuse { iss } => {
                self.remove_time_wait(number);
                self.segment_without_connection(key, header, packet, Some(iss), now);
            }
        }
    }

    /// Puts a packet into an outbox; without one no buffer was free.
    pub(super) fn send(&mut self, packet: Option<Packet>, interface: u8, counter: Counter) {
        let Some(mut packet) = packet else {
            return self.count(Counter::NoTransmitBuffer);
        };
        packet.meta.interface = interface;
        if let Some(outbox) = self.outboxes.get_mut(usize::from(interface)) {
            outbox.push_back(packet);
            self.count(counter);
        }
    }

    // --- what happened to a connection --------------------------------------------------------------------------

    #[inline]
    pub(super) fn events(&mut self, number: u32, events: Events, now: Instant) {
        if events.is_empty() {
            return;
        }
        let mut ready = Readiness::NONE;
        if events.contains(Events::READABLE) {
            ready = ready | Readiness::READABLE;
        }
        if events.contains(Events::WRITABLE) {
            ready = ready | Readiness::WRITABLE;
        }
        if events.intersects(RARE) {
            ready = ready | self.rare_events(number, events, now);
        }
        if let Some(socket) = self.tcp.get_mut(number)
            && !socket.wakers.is_empty()
        {
            let ready = socket.worth_telling(ready);
            socket.wakers.wake(ready, &mut self.woken);
        }
    }

    #[cold]
    fn rare_events(&mut self, number: u32, events: Events, now: Instant) -> Readiness {
        let mut ready = Readiness::NONE;
        self.tell_rare(number, events);
        let Some(socket) = self.tcp.get_mut(number) else {
            return ready;
        };
        let is_fast_open = socket.connection.is_fast_open();
        if events.contains(Events::ESTABLISHED) {
            let was_open = std::mem::replace(&mut socket.was_open, true);
            ready = ready | Readiness::WRITABLE;
            if let Some(listener) = socket.listener().filter(|_| !was_open) {
                self.handshake_done(listener, number);
            }
        }
        if events.contains(Events::PEER_CLOSED) {
            ready = ready | Readiness::READABLE | Readiness::READ_HANGUP;
        }
        if is_fast_open {
            self.fast_open_event(number, events, now);
        }
        let Some(socket) = self.tcp.get_mut(number) else {
            return ready;
        };
        if events.contains(Events::URGENT) {
            socket.urgent_announced();
            ready = ready | Readiness::PRIORITY;
        }
        if events.contains(Events::RESET) {
            let error = socket.connection.error();
            socket.error = error.and_then(|e| NonZero::new(errno::of_tcp(e, socket.was_open)));
            ready = Readiness(!0);
        }
        if events.intersects(Events::RESET | Events::CLOSED) {
            // Nobody will acknowledge it.
            let queued = socket
                .send
                .advance(socket.send.len(), &mut self.send_memory);
            self.pool.memory_mut().remove(queued);
        }
        if events.contains(Events::TIME_WAIT) {
            ready = ready | Readiness::HANGUP | Readiness::READABLE;
            let waiting = Waiting::new(
                socket.key(),
                socket.hash,
                TimeWait::new(&socket.connection, now),
                socket.interface,
            );
            // Its flow stays in the table, as the record's.
            if !std::mem::replace(&mut socket.detached_flow, true) {
                self.insert_time_wait(waiting, number);
            }
        } else if events.contains(Events::CLOSED) {
            ready = Readiness(!0);
        }
        ready
    }

    /// Takes a connection's flow out of the table (once).
    fn detach_flow(&mut self, number: u32) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if std::mem::replace(&mut socket.detached_flow, true) {
            return;
        }
        let (hash, key) = (socket.hash, socket.key());
        self.remove_flow(hash, number);
        self.request(Request::Remove, &key);
    }

    /// Frees a connection that is over and that nobody holds.
    fn reap(&mut self, number: u32) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        // What waits to be accepted stays there, whatever became of it.
        let waits = socket.came_by.is_some() && socket.was_open;
        if socket.attached
            || waits
            || !(socket.connection.is_finished() || socket.detached_flow)
            || socket.dirty
        {
            return;
        }
        let listener = socket.listener();
        socket.receive.clear(&mut self.pool);
        let queued = socket
            .send
            .advance(socket.send.len(), &mut self.send_memory);
        self.pool.memory_mut().remove(queued);
        let waits = socket.waits_for_memory;
        self.detach_flow(number);
        self.timers.disarm(number);
        self.tcp.discard(number);
        self.memory_freed(waits.then_some(number));
        self.publish_load();
        if let Some(listener) = listener {
            self.embryo_gone(listener, number);
        }
    }

    // --- packets out and timers -----------------------------------------------------------------------------------

    #[inline]
    pub(super) fn mark_dirty(&mut self, number: u32) {
        if let Some(socket) = self.tcp.get_mut(number)
            && !std::mem::replace(&mut socket.dirty, true)
        {
            self.dirty.push(number);
        }
    }

    /// Sends what a connection has to send, arms its timer, frees it if it is over.
    #[inline(always)]
    pub(super) fn tcp_output(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        socket.dirty = false;
        if self.memory.limits_windows() {
            socket.connection.limit_window(self.memory.window_bound);
        }
        let mut sent = 0;
        while socket.connection.wants_output() {
            // The buffer first: what `output` has given must be sent.
            let Some(buffer) = self.slab.alloc() else {
                socket.dirty = true;
                self.dirty.push(number);
                self.counters.add(self.number, Counter::NoTransmitBuffer, 1);
                break;
            };
            // Plain text, as nearly always, in code of its own: header and packet are built in registers.
            let transmit = socket.connection.output_text(now);
            let is_text = transmit.is_some();
            let Some(transmit) = transmit.or_else(|| socket.connection.output(now)) else {
                self.slab.free(buffer);
                socket.tell_window(self.number, number);
                break;
            };
            let Some(outbox) = self.outboxes.get_mut(usize::from(socket.interface)) else {
                continue;
            };
            let packet = if socket.is_for_link(&transmit) {
                let slabs = (&mut self.slab, self.bursts.as_mut());
                sent += socket.burst(buffer, &transmit, slabs, outbox);
                continue;
            } else if is_text {
                socket.packet(buffer, &transmit)
            } else {
                socket.packet_of_any(buffer, &transmit, (self.number, number))
            };
            if let Some(packet) = packet {
                outbox.push_back(packet);
                sent += 1;
            }
        }
        self.timers.arm(number, socket.connection.deadline());
        // A connection in TIME-WAIT lives on as its record.
        let over = (socket.connection.is_finished() || socket.detached_flow) && !socket.dirty;
        if sent > 0 && socket.limits_unsent() && !socket.wakers.is_empty() {
            let ready = socket.readiness(true);
            socket.wake(ready, &mut self.woken);
        }
        let is_short = self.memory.limits_windows() && socket.connection.is_short_of_window();
        self.counters.add(self.number, Counter::TcpOut, sent);
        if is_short {
            self.wait_for_memory(number);
        }
        if over {
            self.detach_flow(number);
            self.reap(number);
        }
    }

    pub(super) fn tcp_timer(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if socket.waits_for_memory {
            self.relieve(now);
        }
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if socket.connection.deadline() > now {
            self.timers.arm(number, socket.connection.deadline());
            return;
        }
        let attempts = socket.connection.attempts();
        let events = socket.connection.on_timer(now);
        let more = socket.connection.attempts();
        if more > attempts {
            socket.hint = Hint::DOUBT;
        }
        let is_fast_open = socket.connection.is_fast_open();
        let over = events.contains(Events::RESET);
        if is_fast_open && (more > attempts || over) {
            self.fast_open_timed_out(more, over, now);
        }
        self.tell_timer(number, if more > attempts { more } else { 0 });
        self.events(number, events, now);
        self.mark_dirty(number);
    }
}

/// Events that change more than readiness to read and write.
const RARE: Events = Events(!(Events::READABLE.0 | Events::WRITABLE.0));

impl TcpSocket {
    /// The packet of a segment that the connection gave to send.
    #[inline(always)]
    fn packet(&mut self, buffer: Buffer, transmit: &Transmit) -> Option<Packet> {
        let (offset, len) = (transmit.offset as usize, transmit.len as usize);
        let fill = |text: &mut [u8]| self.send.copy_out(offset, text);
        let mut packet = if self.auth.is_some() {
            self.signed(buffer, transmit)?
        } else {
            let header = &transmit.header;
            self.template
                .packet(buffer, header, len, transmit.ecn, fill)?
        };
        packet.meta.interface = self.interface;
        packet.meta.hint = std::mem::take(&mut self.hint);
        Some(packet)
    }

    #[inline(never)]
    fn packet_of_any(
        &mut self,
        buffer: Buffer,
        transmit: &Transmit,
        place: (usize, u32),
    ) -> Option<Packet> {
        self.tell_window(place.0, place.1);
        self.packet(buffer, transmit)
    }

    fn end_of_stream(&self) -> bool {
        self.read_shut
            || self.connection.peer_closed()
            || (self.was_open && self.connection.is_finished())
            || self.detached_flow
    }

    /// `has_memory`: connections may hold more than they do.
    pub(super) fn readiness(&self, has_memory: bool) -> Readiness {
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
        let closed_for_writing = self.was_open && !self.connection.is_open_for_writing();
        // As Linux: writable once a third of the buffer is free; and where a write would answer at once with an error.
        if closed_for_writing
            || self.connection.is_held()
            || (self.connection.can_send()
                && self.may_append() > self.least_room()
                && (has_memory || self.send.len() == 0))
        {
            ready = ready | Readiness::WRITABLE;
        }
        if self.error.is_some() {
            ready = ready | Readiness::ERROR | Readiness::READABLE | Readiness::WRITABLE;
        }
        if over || (self.end_of_stream() && closed_for_writing) {
            ready = ready | Readiness::HANGUP;
        }
        ready
    }

    /// Wakes those who wait for any of `ready`.
    pub(super) fn wake(&mut self, ready: Readiness, woken: &mut Vec<Waker>) {
        self.wakers.wake(ready, woken);
    }

    /// Bytes in order.
    pub const fn readable_bytes(&self) -> u32 {
        self.receive.readable_bytes()
    }

    /// SIOCOUTQ.
    pub const fn queued_bytes(&self) -> usize {
        self.send.len()
    }

    /// Whether the handshake has been completed.
    pub const fn was_open(&self) -> bool {
        self.was_open
    }

    /// Whether the flow is gone.
    pub const fn is_over(&self) -> bool {
        self.detached_flow || self.connection.is_finished()
    }

    /// It may be accepted, read and written although the handshake is not over.
    pub(super) const fn set_open(&mut self) {
        self.was_open = true;
    }

    /// The listener it came by, until it is accepted.
    pub(super) fn listener(&self) -> Option<u32> {
        self.came_by.map(|inverted| !inverted.get())
    }

    /// It is accepted, or its listener closed.
    pub(super) const fn leave_listener(&mut self) {
        self.came_by = None;
    }

    /// The pending error, left in place.
    pub fn pending_error(&self) -> Option<i32> {
        self.error.map(NonZero::get)
    }

    /// It, taken.
    fn take_error(&mut self) -> Option<i32> {
        self.error.take().map(NonZero::get)
    }

    /// IP header fields of what it sends.
    pub fn set_fields(&mut self, fields: IpFields) {
        self.template = emit::Template::new(&self.key(), fields);
    }

    /// Its flow.
    pub fn key(&self) -> FlowKey {
        self.tuple().tcp_key()
    }

    /// The same as its packets have it.
    #[inline]
    pub(super) const fn tuple(&self) -> &Tuple {
        self.template.tuple()
    }

    /// Sets SO_LINGER: how long close(2) waits is its caller's business, but not at all is a reset.
    pub fn set_linger(&mut self, linger: Option<Duration>) {
        self.resets = linger == Some(Duration::ZERO);
    }
}

const fn counter_of(reason: tcp::Drop) -> Counter {
    match reason {
        tcp::Drop::Limit => Counter::DropTcpLimit,
        tcp::Drop::Memory | tcp::Drop::Gaps => Counter::DropTcpMemory,
        _ => Counter::DropTcpUnacceptable,
    }
}
