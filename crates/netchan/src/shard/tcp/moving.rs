//! A connection that moves to another shard: taken out of the one with all that is its own, and put into the other (`Stack::move_connection`).

use super::{Shard, TcpSocket};
use crate::{channel::Request, counters::Counter, packet::Hint, shard::samples::Reader};

/// How often a connection moves at most: two threads that both wait for it must not throw it to and fro.
const MOST: u8 = 4;

/// Whether a connection can live elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movable {
    /// At this moment.
    Now,
    /// Once what it received is read, and in order, and its handshake is over.
    Later,
    /// It stays where it is.
    Never,
}

impl TcpSocket {
    /// Only what a peer began moves: the local port of another connection is one of its shard's.
    fn movable(&self) -> Movable {
        let is_own = self.attached && self.was_open && self.listener().is_none();
        if !is_own || self.auth.is_some() || self.hops == 0 || self.moves_or_epoch == MOST {
            return Movable::Never;
        }
        // One that is over needs no place any more; it says nothing of the others of its set.
        if !self.is_over() && self.receive.segments_held() == 0 && !self.waits_for_memory {
            Movable::Now
        } else {
            Movable::Later
        }
    }
}

impl Shard {
    /// Whether a connection can live elsewhere.
    pub fn tcp_movable(&self, number: u32) -> Movable {
        let socket = self.tcp.get(number);
        match socket.map_or(Movable::Never, TcpSocket::movable) {
            // Its listener counts it by its number here.
            Movable::Now if self.is_early(number) => Movable::Later,
            movable => movable,
        }
    }

    /// Whether a thread waits for it.
    pub fn tcp_has_waiters(&self, number: u32) -> bool {
        (self.tcp.get(number)).is_some_and(|socket| !socket.wakers.is_empty())
    }

    /// Whether there is room for one more.
    pub fn tcp_has_room(&self) -> bool {
        self.tcp.len() < self.tcp.capacity()
    }

    /// Takes a connection out, if it can move now.
    pub fn tcp_take(&mut self, number: u32) -> Option<TcpSocket> {
        if self.tcp_movable(number) != Movable::Now {
            return None;
        }
        let socket = self.tcp.get_mut(number)?;
        let memory = self.pool.memory_mut();
        memory.remove(socket.send.len());
        socket.forget_records(memory);
        let (noted, hash, key) = (socket.noted, socket.hash, socket.key());
        (self.memory.tcp_shares).change(socket.peer, noted.into(), 0);
        if socket.dirty {
            self.dirty.retain(|&listed| listed != number);
        }
        self.remove_flow(hash, number);
        self.ports.give_back(key.local_port);
        self.timers.disarm(number);
        let socket = self.tcp.remove(number);
        self.samples.forget(Reader::Tcp(number));
        if self.tcp.len() == 0 {
            self.send_memory.release();
        }
        self.memory_freed(None);
        self.publish_load();
        socket
    }

    /// Puts a connection in that was taken out of another shard; there [is room](Self::tcp_has_room). The number that it has from now on.
    pub fn tcp_put(&mut self, mut socket: TcpSocket) -> Option<u32> {
        let (hash, key) = (socket.hash, socket.key());
        socket.moves_or_epoch += 1;
        socket.hint = Hint::NONE;
        socket.peer = self.memory.tcp_shares.peer(key.remote);
        (socket.dirty, socket.noted) = (false, 0);
        // What memory allows is another thing here; the output that follows says it, where there is a limit.
        socket.connection.limit_window(u32::MAX);
        socket.connection.consumed(0);
        let memory = self.pool.memory_mut();
        memory.add(socket.send.len());
        socket.note_records(memory);
        socket.note_held(&mut self.memory.tcp_shares);
        let number = self.tcp.insert(socket).ok()?;
        self.insert_flow(hash, number);
        self.ports.take(key.local_port);
        self.host.moved.set(hash, &key, self.number);
        self.request(Request::Move, &key);
        self.count(Counter::TcpMoved);
        self.mark_dirty(number); // its timer is set there
        if self.memory.tcp.is_off(self.pool.memory()) {
            self.memory.settle(self.pool.memory_mut());
        }
        Some(number)
    }
}
