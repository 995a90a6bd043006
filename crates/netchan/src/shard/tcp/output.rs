//! Segments out, and the timers that ask for them.

use std::collections::VecDeque;

use percore::slab::Buffer;
use proto::{
    tcp::{Events, Transmit},
    time::Instant,
};

use super::{Shard, TcpSocket};
use crate::{
    counters::Counter,
    packet::{Hint, Packet},
};

impl Shard {
    #[inline]
    pub(in crate::shard) fn mark_dirty(&mut self, number: u32) {
        if let Some(socket) = self.tcp.get_mut(number)
            && !std::mem::replace(&mut socket.dirty, true)
        {
            self.dirty.push(number);
        }
    }

    /// Sends what a connection has to send, arms its timer, frees it if it is over.
    #[inline(always)]
    pub(in crate::shard) fn tcp_output(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        socket.dirty = false;
        if self.memory.limits_windows() {
            let are_scarce = self.pool.shelf().is_busy();
            self.memory.limit_window(socket, are_scarce);
        }
        let (mut sent, burst) = (0, socket.connection.burst_max());
        let before = socket.connection.retransmits();
        while socket.connection.wants_output() {
            // The buffer first, and those that a burst may be cut into: what `output` has given must be sent.
            let Some(buffer) = self.slab.alloc() else {
                socket.dirty = true;
                self.dirty.push(number);
                self.counters.add(self.number, Counter::NoTransmitBuffer, 1);
                break;
            };
            if socket.connection.bursts_beyond(self.slab.at_home() + 1) {
                socket.fit_burst(&mut self.slab);
            }
            let Some(out) = self.outboxes.get_mut(usize::from(socket.interface)) else {
                self.slab.free(buffer);
                break;
            };
            let slabs = (&mut self.slab, self.bursts.as_mut());
            // Plain text, as nearly always, in code of its own: header and packet are built in registers, since nothing points to them.
            sent += if let Some(text) = socket.connection.output_text(now) {
                if socket.is_for_link(&text) {
                    socket.burst(buffer, text, slabs, out, (&self.counters, self.number))
                } else {
                    socket.put_segment(buffer, &text, out)
                }
            } else if let Some(other) = socket.connection.output(now) {
                if socket.is_for_link(&other) {
                    socket.burst(buffer, other, slabs, out, (&self.counters, self.number))
                } else {
                    socket.put_any_segment(buffer, &other, out, (self.number, number))
                }
            } else {
                self.slab.free(buffer);
                socket.tell_window(self.number, number);
                break;
            };
        }
        socket.connection.set_burst(burst);
        let again = socket.connection.retransmits().wrapping_sub(before);
        self.timers.arm(number, socket.connection.deadline());
        let grew = socket.note_records(self.pool.memory_mut());
        // A connection in TIME-WAIT lives on as its record.
        let over = (socket.connection.is_finished() || socket.detached_flow) && !socket.dirty;
        if sent > 0 && socket.watermarks.is_made() {
            let lost = socket.note_sent(now, &mut self.woken);
            self.counters.add(self.number, Counter::DropNotice, lost);
        }
        if sent > 0 && socket.limits_unsent() && !socket.wakers.is_empty() {
            let ready = socket.readiness(true);
            socket.wake(ready, &mut self.woken);
        }
        let is_short = self.memory.limits_windows() && socket.connection.is_short_of_window();
        self.counters.add(self.number, Counter::TcpOut, sent);
        self.count_again(again);
        if grew {
            self.records_changed(number);
        }
        if is_short {
            self.wait_for_memory(number);
        }
        if over {
            self.detach_flow(number);
            self.reap(number);
        }
    }

    #[inline]
    fn count_again(&self, n: u32) {
        if n > 0 {
            (self.counters).add(self.number, Counter::Retransmits, n.into());
        }
    }

    /// The records of what a connection sent take more or less memory than before.
    #[cold]
    #[inline(never)]
    fn records_changed(&mut self, number: u32) {
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.note_held(&mut self.memory.tcp_shares);
        }
        if self.memory.tcp.is_off(self.pool.memory()) {
            self.memory.settle(self.pool.memory_mut());
        }
    }

    pub(in crate::shard) fn tcp_timer(&mut self, number: u32, now: Instant) {
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

    /// Puts a packet into an outbox; without one no buffer was free.
    pub(in crate::shard) fn send(
        &mut self,
        packet: Option<Packet>,
        interface: u8,
        counter: Counter,
    ) {
        let Some(mut packet) = packet else {
            return self.count(Counter::NoTransmitBuffer);
        };
        packet.meta.interface = interface;
        if let Some(outbox) = self.outboxes.get_mut(usize::from(interface)) {
            outbox.push_back(packet);
            self.count(counter);
        }
    }
}

impl TcpSocket {
    /// Puts the packet of a segment that the connection gave to send into `outbox`. How many packets that were.
    #[inline(always)]
    fn put_segment(
        &mut self,
        buffer: Buffer,
        transmit: &Transmit,
        outbox: &mut VecDeque<Packet>,
    ) -> u64 {
        let (offset, len) = (transmit.offset as usize, transmit.len as usize);
        let fill = |text: &mut [u8]| self.send.copy_out(offset, text);
        let packet = if self.auth.is_some() {
            self.signed(buffer, *transmit)
        } else {
            let header = &transmit.header;
            self.template
                .packet(buffer, header, len, transmit.ecn, fill)
        };
        self.put(packet, outbox)
    }

    #[inline(never)]
    fn put_any_segment(
        &mut self,
        buffer: Buffer,
        transmit: &Transmit,
        outbox: &mut VecDeque<Packet>,
        place: (usize, u32),
    ) -> u64 {
        self.tell_window(place.0, place.1);
        self.put_segment(buffer, transmit, outbox)
    }
}
