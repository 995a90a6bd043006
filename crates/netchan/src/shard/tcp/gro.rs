//! The segments of a run behind its first: what is asked of each, and what is done with it.

use proto::{ip::Ecn, tcp::Events};

use crate::{packet::Packet, shard::ReceiveBatch};

impl ReceiveBatch<'_> {
    /// Takes a packet if it is the next segment of the run: what is asked of it, and all that is done with it.
    #[inline(always)]
    pub(super) fn follow(&mut self, packet: &mut Option<Packet>) -> bool {
        let (Some(run), Some(next)) = (&self.run, packet.as_mut()) else {
            return false;
        };
        let (shard, now) = (&mut *self.shard, self.now);
        let number = shard.recent;
        let upper = usize::from(next.meta.upper);
        let bytes = next.bytes();
        let Some(segment) = bytes.get(upper..) else {
            return false;
        };
        let Some((seq, text)) = run.read(segment) else {
            return false;
        };
        let Some(socket) = shard.tcp.get_mut(number) else {
            return false;
        };
        let ecn = Ecn::of_packet(bytes);
        // What is longer than any packet does not fit the window either.
        let len = u32::try_from(segment.len() - text).unwrap_or(u32::MAX >> 2);
        let memory = next.true_size();
        let (conn, queue, pool) = (&socket.connection, &socket.receive, &shard.pool);
        let follows = socket.tuple().names(bytes, upper)
            && conn.may_follow(seq, len, ecn, memory, queue, pool)
            && !pool.shelf().is_busy()
            && !(shard.memory.tcp_shares).lacks(socket.peer, socket.noted.into(), memory)
            && (next.meta.checksum_verified.get() || socket.template.is_valid(segment));
        if !follows {
            return false;
        }
        next.pull(upper + text);
        self.followed += 1;
        let (queue, pool) = (&mut socket.receive, &mut shard.pool);
        socket.connection.follow(ecn, packet, queue, pool, now);
        socket.note_held(&mut shard.memory.tcp_shares);
        if !socket.dirty {
            if socket.connection.wants_output() {
                socket.dirty = true;
                shard.dirty.push(number);
            } else {
                shard.timers.arm(number, socket.connection.deadline());
            }
        }
        if !socket.wakers.is_empty() {
            shard.events(number, Events::READABLE, now);
        }
        true
    }
}

#[cfg(test)]
mod tests;
