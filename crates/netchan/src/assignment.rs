//! The assignment of sockets to shards: which shard a socket gets where each is to have one of its own (`socket-channel`). Read and written when sockets come and
//! go, never for a packet that belongs to a connection.
//!
//! A shard without a socket is free, and goes to the next one that asks. Where none is free, sockets share: connections by their flow's
//! hash, datagram sockets by their port's.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// No socket is bound to this port.
const NO_SOCKET: u8 = u8::MAX;

/// How many sockets live in each shard, and where datagram sockets live.
#[derive(Debug)]
pub struct ShardAssignment {
    /// Connections and datagram sockets of each shard, as its last holder said; 1 for a shard that was claimed for one to come.
    loads: Vec<AtomicU32>,
    /// The shard of each bound UDP port.
    datagrams: Vec<AtomicU8>,
    /// Where the next connection that we begin looks first.
    next: AtomicUsize,
}

// Relaxed throughout: nothing else is published by these numbers. Sockets that claim one shard, since a number was old, share it.

impl ShardAssignment {
    /// All free.
    pub fn new(shards: usize) -> Self {
        Self {
            loads: (0..shards).map(|_| AtomicU32::new(0)).collect(),
            datagrams: (0..=u16::MAX).map(|_| AtomicU8::new(NO_SOCKET)).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Claims a free shard, if there is one: the first, whose memory is the warmest.
    pub fn claim(&self) -> Option<usize> {
        self.loads.iter().position(is_claimed)
    }

    /// A shard for a connection that we begin: a free one, if there is one, and each in its turn, since each has its own part of the
    /// local ports, which TIME-WAIT keeps for a while.
    pub fn claim_in_turn(&self) -> usize {
        let (first, count) = (self.next.fetch_add(1, Relaxed), self.loads.len());
        let mut turn = (0..count).map(|step| first.wrapping_add(step) % count);
        let free = turn.find(|&shard| is_claimed(&self.loads[shard]));
        free.unwrap_or(first % count)
    }

    /// Gives a claim back for which no socket came.
    pub fn give_back(&self, shard: usize) {
        let _ = self.loads[shard].compare_exchange(1, 0, Relaxed, Relaxed);
    }

    /// A shard's holder says how many sockets live there.
    pub fn publish(&self, shard: usize, sockets: usize) {
        self.loads[shard].store(u32::try_from(sockets).unwrap_or(u32::MAX), Relaxed);
    }

    /// The shard of the datagram sockets of `port`, bound or not.
    #[inline]
    pub fn of_port(&self, port: u16) -> usize {
        match self.datagrams[usize::from(port)].load(Relaxed) {
            // No socket is there: any shard can say so.
            NO_SOCKET => 0,
            shard => usize::from(shard),
        }
    }

    /// A datagram socket was bound to `port`: it gets a shard of its own, or that of the sockets that share its port.
    pub fn settle_port(&self, port: u16) {
        let place = &self.datagrams[usize::from(port)];
        if place.load(Relaxed) == NO_SOCKET {
            let shard = self
                .claim()
                .unwrap_or_else(|| usize::from(port) % self.loads.len());
            place.store(u8::try_from(shard).unwrap_or(0), Relaxed);
        }
    }

    /// The last datagram socket of `port` was closed.
    pub fn leave_port(&self, port: u16) {
        self.datagrams[usize::from(port)].store(NO_SOCKET, Relaxed);
    }
}

/// Claims a shard, if it is free.
fn is_claimed(load: &AtomicU32) -> bool {
    load.load(Relaxed) == 0 && load.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_a_free_shard_while_there_is_one() {
        let assignment = ShardAssignment::new(4);
        assert_eq!([0; 4].map(|_| assignment.claim()), [0, 1, 2, 3].map(Some));
        assert_eq!(assignment.claim(), None);
        assignment.publish(2, 0);
        assignment.give_back(1);
        assert_eq!([0; 3].map(|_| assignment.claim()), [Some(1), Some(2), None]);
        // A shard where sockets live is not given back by the claim that came first.
        assignment.publish(3, 2);
        assignment.give_back(3);
        assert_eq!(assignment.claim(), None);
    }

    #[test]
    fn connections_that_we_begin_take_turns() {
        let assignment = ShardAssignment::new(3);
        assignment.publish(1, 4);
        // 0, then 1 is not free, then none is.
        assert_eq!([0; 4].map(|_| assignment.claim_in_turn()), [0, 2, 2, 0]);
        assignment.publish(2, 0);
        assert_eq!(assignment.claim_in_turn(), 2);
    }

    #[test]
    fn a_port_keeps_its_shard_while_it_is_bound() {
        let assignment = ShardAssignment::new(2);
        assert_eq!(assignment.of_port(53), 0, "no socket's port");
        assignment.publish(0, 1);
        assignment.settle_port(53);
        assignment.settle_port(53);
        assert_eq!((assignment.of_port(53), assignment.claim()), (1, None));
        assignment.settle_port(7);
        assert_eq!(assignment.of_port(7), 1, "by its number: none is free");
        assignment.leave_port(53);
        assert_eq!(assignment.of_port(53), 0);
    }
}
