//! Whether a shard's invariants hold (F7): run at the end of each turn in a build with the feature `invariants`, and in no other.

use super::{Shard, time_wait};
use crate::limits;

/// A shard with more places than this looks at all of them only so seldom that it costs each turn about as much.
const EACH_TURN: usize = 32;

impl Shard {
    /// Panics if they do not.
    pub(crate) fn check(&mut self) {
        self.checked = self.checked.wrapping_add(1);
        let places = self.tcp.places() + self.flows.len();
        if places > EACH_TURN && !self.checked.is_multiple_of(places) {
            return;
        }
        let (mut nodes, mut flows, mut dirty) = (0, 0, 0);
        for (number, socket) in self.tcp.iter() {
            socket.connection.check();
            if socket.attached && !socket.is_over() {
                let (queued, readable) = (socket.send.len(), socket.receive.readable_bytes());
                socket.connection.check_queues(queued, readable);
            }
            nodes += socket.receive.segments_held() as usize;
            dirty += usize::from(socket.dirty);
            assert!(
                socket.dirty || self.timers.serves(number, socket.connection.deadline()),
                "the wheel knows its deadline: {socket:?}"
            );
            if !socket.detached_flow {
                flows += 1;
                let found = self.find(socket.hash, &socket.key());
                assert_eq!(found, Some(number), "its segments find it: {socket:?}");
            }
        }
        for waiting in self.time_waits.iter() {
            flows += 1;
            let found = self.find(waiting.hash, &waiting.key).map(time_wait::split);
            assert!(matches!(found, Some(Err(_))), "a record's segments find it");
        }
        assert_eq!(
            flows,
            self.flows.len(),
            "flows in the table, and what they belong to"
        );
        assert_eq!(flows, self.ports.total(), "ports in use");
        let listed = |number: &u32| self.tcp.get(*number).is_some_and(|socket| socket.dirty);
        assert!(
            self.dirty.iter().all(listed),
            "a connection on the list has something to send"
        );
        assert_eq!(
            dirty,
            self.dirty.len(),
            "a connection with something to send is on the list, once"
        );
        let free = self.pool.available() as usize;
        assert_eq!(nodes + free, self.segments, "segment nodes: held and free");
        self.udp.iter().for_each(|(_, socket)| socket.check());
        let datagrams: usize = self.udp.iter().map(|(_, socket)| socket.depth()).sum();
        assert_eq!(datagrams, self.udp_queued, "datagrams that wait");
        self.check_udp_lookup();
        self.check_memory();
        let waits = |socket: &super::TcpSocket| socket.listener().is_some() && socket.was_open();
        let waiting = self.tcp.iter().filter(|(_, s)| waits(s)).count();
        let ready: usize = self.listeners.iter().map(|(_, l)| l.depths().0).sum();
        assert_eq!(waiting, ready, "connections that wait to be accepted");
        for (_, listener) in self.listeners.iter() {
            let (ready, embryos) = listener.depths();
            assert!(ready <= limits::CONNECTIONS_PER_SHARD && embryos <= limits::SYN_QUEUE);
        }
        let (free, all) = (self.slab.available(), self.slab.capacity());
        assert!(free <= all, "transmit buffers: {free} free of {all}");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::{Net, Threads, link::wire, shard::Shard};

    /// A change of the counts without a reason.
    type Plant = fn(&mut Shard);

    #[test]
    fn books_that_do_not_balance_are_noticed() {
        let (a, _b) = wire::pair(&wire::Options::default());
        let builder = Net::builder().threads(Threads::Caller);
        let builder = builder.link_with(Box::new(a));
        let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
        let listener = net.tcp().listen("10.0.0.1:80").unwrap();
        let plants: [(Plant, Plant); 4] = [
            (|s| s.udp_queued += 1, |s| s.udp_queued -= 1),
            (|s| s.segments += 1, |s| s.segments -= 1),
            (|s| s.dirty.push(3), |s| s.dirty.truncate(s.dirty.len() - 1)),
            (|s| s.insert_flow(7, 9), |s| s.remove_flow(7, 9)),
        ];
        net.stack().with_shard(0, |shard, _| {
            shard.check();
            for (plant, undo) in plants {
                plant(shard);
                let checked = catch_unwind(AssertUnwindSafe(|| shard.check()));
                assert!(checked.is_err());
                undo(shard);
            }
            shard.check();
        });
        drop(listener);
    }
}
