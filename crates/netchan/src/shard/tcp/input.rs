//! Segments in: to their connection, a TIME-WAIT record, a listener, or none of them.

use proto::{
    ip::Ecn,
    tcp::{self, TimeWaitVerdict},
    time::Instant,
    wire::{
        checksum,
        ipv4::Protocol,
        tcp::{Flags, Header, RunKey, SeqNum},
    },
};

use super::{Shard, TcpSocket, events::RARE};
use crate::{
    counters::Counter,
    flow::{FlowKey, Tuple},
    packet::{Hint, Packet},
    shard::{Addresses, ReceiveBatch, memory::Refusal, read_addresses, time_wait},
};

/// Where the low eight flags stand in a TCP header.
const FLAGS_AT: usize = 13;

/// The TTL or hop limit of an IP packet, whose header has been checked.
fn hops_of(packet: &[u8]) -> u8 {
    let at = if packet.first().is_some_and(|first| first >> 4 == 4) {
        8
    } else {
        7
    };
    packet.get(at).copied().unwrap_or_default()
}

impl ReceiveBatch<'_> {
    #[inline(never)]
    pub(in crate::shard) fn tcp_input(&mut self, packet: Packet) {
        let mut slot = Some(packet);
        if self.follow(&mut slot) {
            return;
        }
        let Some(packet) = &mut slot else {
            return;
        };
        let (shard, now) = (&mut *self.shard, self.now);
        shard.count(Counter::TcpIn);
        let upper = usize::from(packet.meta.upper);
        let bytes = packet.bytes();
        // Nearly always it is for the same connection as the last one, or for another that is open, and its header has one of two layouts.
        let socket = match shard.tcp.get(shard.recent) {
            Some(socket) if socket.tuple().names(bytes, upper) && !socket.detached_flow => {
                Some(socket)
            }
            _ => shard.turn_to(packet.meta.flow, bytes, upper),
        };
        if let Some(socket) = socket
            && socket.auth.is_none()
            && let Some(segment) = bytes.get(upper..)
            && (packet.meta.checksum_verified.get() || socket.template.is_valid(segment))
            && let Some((header, text)) = Header::parse_fast(segment)
        {
            let ecn = Ecn::of_packet(bytes);
            self.run = RunKey::of(segment, text);
            packet.pull(upper + text);
            if !shard.segment(shard.recent, &header, ecn, &mut slot, now) {
                self.run = None;
            }
            return;
        }
        self.run = None;
        if let Some(packet) = slot {
            self.shard.any_tcp_input(packet, now);
        }
    }
}

impl Shard {
    /// The connection of a packet that is not the last one's, which it is from now on. What has a SYN, and mostly begins one, is not looked for.
    #[inline(never)]
    fn turn_to(&mut self, flow: u32, bytes: &[u8], upper: usize) -> Option<&TcpSocket> {
        let flags = *bytes.get(upper + FLAGS_AT)?;
        if Flags(flags.into()).contains(Flags::SYN) {
            return None;
        }
        let found = self.find_tuple(flow, &Tuple::of_received(bytes, upper)?)?;
        self.recent = time_wait::split(found).ok()?;
        self.tcp.get(self.recent)
    }

    /// [`Shard::find_tuple`], which has nothing to do where [`Self::turn_to`] found it already.
    #[inline]
    pub(super) fn find_of_packet(&self, flow: u32, tuple: &Tuple) -> Option<u32> {
        let is_recent = |s: &TcpSocket| s.tuple() == tuple && !s.detached_flow;
        if self.tcp.get(self.recent).is_some_and(is_recent) {
            return Some(self.recent);
        }
        self.find_tuple(flow, tuple)
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
        let found = self.find_of_packet(packet.meta.flow, &tuple);
        if found.is_none()
            && let Some(shard) = self.moved_to(packet.meta.flow, &tuple.tcp_key())
        {
            return self.pass_on(shard, packet);
        }
        let ecn = Ecn::of_packet(packet.bytes());
        packet.meta.ecn = ecn as u8;
        match found.map(time_wait::split) {
            Some(Ok(number)) => {
                let segment = packet.bytes().get(upper..).unwrap_or_default();
                if !self.is_authentic(number, segment) {
                    return;
                }
                self.recent = number;
                packet.pull(upper + text);
                self.segment(number, &header, ecn, &mut Some(packet), now);
            }
            other => self.segment_elsewhere(other, &header, upper + text, packet, now),
        }
    }

    /// A segment for a TIME-WAIT record, a listener, or neither.
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
        packet.meta.hops = hops_of(packet.bytes());
        packet.pull(text);
        match found {
            Some(Err(number)) => self.segment_in_time_wait(number, &key, header, packet, now),
            _ => self.segment_without_connection(&key, header, packet, None, now),
        }
    }

    /// A segment for a connection. Whether its text was taken by header prediction.
    #[inline(always)]
    pub(in crate::shard) fn segment(
        &mut self,
        number: u32,
        header: &Header,
        ecn: Ecn,
        slot: &mut Option<Packet>,
        now: Instant,
    ) -> bool {
        let (Some(mut socket), Some(packet)) = (self.tcp.get_mut(number), &*slot) else {
            return false;
        };
        let needs_way = (self.memory).needs_way(&self.pool, socket, packet.true_size());
        let mut refusal = None;
        if needs_way || socket.listener().is_some() {
            if self.puts_off(number, header.flags, packet) {
                return false;
            }
            refusal = (needs_way.then(|| self.make_way(number, packet, header.seq))).flatten();
            let Some(same) = self.tcp.get_mut(number) else {
                return false;
            };
            socket = same;
        }
        let input = socket.connection.input_from(
            header,
            ecn,
            slot,
            &mut socket.receive,
            &mut self.pool,
            now,
        );
        if let Some(refusal) = &refusal {
            self.pool.memory_mut().allow(refusal.allowed);
        }
        if socket.receive.gaps() > 0 {
            self.memory.behind.note(number, socket.receive.memory());
        }
        if input.acked > 0 {
            let acked = socket
                .send
                .advance(input.acked as usize, &mut self.send_memory);
            self.pool.memory_mut().remove(acked);
            socket.hint = Hint::PROGRESS;
            let told = socket.watermarks.is_made();
            if self.memory.tcp.is_off(self.pool.memory()) {
                self.memory.settle(self.pool.memory_mut());
            }
            if told {
                self.tcp_progress(number, acked, now);
                let Some(same) = self.tcp.get_mut(number) else {
                    return false;
                };
                socket = same;
            }
        }
        socket.note_records(self.pool.memory_mut());
        socket.note_held(&mut self.memory.tcp_shares);
        // A connection on the list for output already has its timer set there.
        let (wants, dirty) = (socket.connection.wants_output(), socket.dirty);
        let pruned = self.pool.pruned() != self.memory.pruned;
        if input.drop.is_some() || input.events.intersects(RARE) || (wants && !dirty) || pruned {
            if pruned {
                self.count_pruned();
            }
            if let Some(reason) = input.drop {
                self.refused(number, counter_of(reason, refusal.as_ref()));
            }
            self.events(number, input.events, now);
            self.settle(number);
            return input.predicted;
        }
        // Nothing more to send, nothing rare: the timer, and the waiters.
        if !dirty {
            self.timers.arm(number, socket.connection.deadline());
        }
        if !socket.wakers.is_empty() {
            self.events(number, input.events, now);
        }
        input.predicted
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

    /// A segment that finds no connection: for a listener, or for none.
    fn segment_without_connection(
        &mut self,
        key: &FlowKey,
        header: &Header,
        packet: Packet,
        iss: Option<SeqNum>,
        now: Instant,
    ) {
        let text_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let (flow, interface) = (packet.meta.flow, packet.meta.interface);
        let listener = self.listener_for(key.local, key.local_port, flow, interface);
        let unserved = listener.is_some_and(|number| self.is_unserved(number));
        if let Some(listener) = listener.filter(|_| !unserved) {
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
        self.count(if unserved {
            Counter::DropTcpUnserved
        } else {
            Counter::DropTcpNoSocket
        });
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
                self.answer_signed(key, &header, (interface, 0), auth, now);
            }
            TimeWaitVerdict::Refuse => {
                self.remove_time_wait(number);
                self.segment_without_connection(key, header, packet, None, now);
            }
            TimeWaitVerdict::Reuse { iss } => {
                self.remove_time_wait(number);
                self.segment_without_connection(key, header, packet, Some(iss), now);
            }
        }
    }
}

fn counter_of(reason: tcp::Drop, refusal: Option<&Refusal>) -> Counter {
    match reason {
        tcp::Drop::Limit => refusal.map_or(Counter::DropTcpLimit, |refusal| refusal.reason),
        tcp::Drop::Memory | tcp::Drop::Gaps => Counter::DropTcpMemory,
        _ => Counter::DropTcpUnacceptable,
    }
}
