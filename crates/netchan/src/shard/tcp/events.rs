//! What happened to a connection: which waiters are woken, what becomes of its flow, and when it is freed.

use std::num::NonZero;

use proto::{
    tcp::{Events, TimeWait},
    time::Instant,
};

use super::Shard;
use crate::{
    api::Readiness,
    shard::{samples::Reader, time_wait::Waiting},
};

/// Events that change more than readiness to read and write.
pub(super) const RARE: Events = Events(!(Events::READABLE.0 | Events::WRITABLE.0));

impl Shard {
    #[inline]
    pub(in crate::shard) fn events(&mut self, number: u32, events: Events, now: Instant) {
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
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if ready.contains(Readiness::READABLE) {
            socket.came_by.is_readable(&mut self.arrivals, now);
        }
        if !socket.wakers.is_empty() {
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
            if self.has_pipes {
                self.tcp_accept_pipes(number); // the offer may have come ahead of the last segment
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
            if events.contains(Events::URGENT_MISSED) {
                self.tcp_urgent_missed(number);
            }
        }
        let Some(socket) = self.tcp.get_mut(number) else {
            return ready;
        };
        if events.contains(Events::RESET) {
            socket.error = socket.end().and_then(NonZero::new);
            ready = Readiness(!0);
        }
        if events.intersects(Events::RESET | Events::CLOSED) {
            // It will not be acknowledged.
            let queued = socket
                .send
                .advance(socket.send.len(), &mut self.send_memory);
            self.pool.memory_mut().remove(queued);
            socket.note_held(&mut self.memory.tcp_shares);
            // What comes right behind, in the same burst, finds no connection any more.
            self.detach_flow(number);
        }
        let Some(socket) = self.tcp.get_mut(number) else {
            return ready;
        };
        if events.contains(Events::TIME_WAIT) {
            ready = ready | Readiness::HANGUP | Readiness::READABLE;
            let waiting = Waiting::new(
                socket.key(),
                socket.hash,
                TimeWait::new(&socket.connection, now),
                socket.interface,
                socket.kept.reuse(),
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
    pub(super) fn detach_flow(&mut self, number: u32) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if std::mem::replace(&mut socket.detached_flow, true) {
            return;
        }
        let (hash, key) = (socket.hash, socket.key());
        self.remove_flow(hash, number);
        self.ports.give_back(key.local_port);
        self.flow_ends(hash, &key);
    }

    /// Frees a connection that is over and that no socket holds.
    pub(super) fn reap(&mut self, number: u32) {
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        // What waits to be accepted stays there, whatever became of it.
        let waits = socket.listener().is_some() && socket.was_open;
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
        socket.forget_records(self.pool.memory_mut());
        socket.note_held(&mut self.memory.tcp_shares);
        let waits = socket.waits_for_memory;
        self.detach_flow(number);
        self.timers.disarm(number);
        self.tcp.discard(number);
        self.samples.forget(Reader::Tcp(number));
        if self.tcp.len() == 0 {
            self.send_memory.release();
        }
        self.memory_freed(waits.then_some(number));
        self.publish_load();
        if let Some(listener) = listener {
            self.embryo_gone(listener);
        }
    }
}
