//! The segments of a train behind its first: what is asked of each, and what is done with it.

use proto::{ip::Ecn, tcp::Events};

use crate::{packet::Packet, shard::Intake};

impl Intake<'_> {
    /// Whether a packet is the next segment of the train: then what its text comes behind, and what its IP header says of congestion.
    #[inline(always)]
    pub(super) fn follows(&self, packet: &Packet) -> Option<(usize, Ecn)> {
        let train = self.train.as_ref()?;
        let shard = &*self.shard;
        let upper = usize::from(packet.meta.upper);
        let bytes = packet.bytes();
        let segment = bytes.get(upper..)?;
        let (seq, text) = train.read(segment)?;
        let socket = shard.tcp.get(shard.recent)?;
        let ecn = Ecn::of_packet(bytes);
        let len = u32::try_from(segment.len() - text).ok()?;
        let memory = packet.true_size();
        let (conn, queue, pool) = (&socket.connection, &socket.receive, &shard.pool);
        let follows = socket.tuple().names(bytes, upper)
            && conn.may_follow(seq, len, ecn, memory, queue, pool)
            && !pool.shelf().is_busy()
            && !(shard.memory.tcp_shares).lacks(socket.peer, socket.held().into(), memory)
            && (packet.meta.checksum_verified.get() || socket.template.is_valid(segment));
        follows.then_some((upper + text, ecn))
    }

    /// Takes the next segment of the train.
    #[inline(always)]
    pub(super) fn follow(&mut self, ecn: Ecn, packet: Packet) {
        self.followed += 1;
        let (shard, now) = (&mut *self.shard, self.now);
        let number = shard.recent;
        let Some(socket) = shard.tcp.get_mut(number) else {
            return;
        };
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
    }
}

#[cfg(test)]
mod tests;
