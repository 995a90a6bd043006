//! Connections that move from shard to shard, to where the thread is that waits for them.

use percore::lock::MutexGuard;
use proto::time::Instant;

use super::{
    Stack,
    cell::Held,
    hold::{lock, try_lock},
};
use crate::{packet::Packet, shard::Movable};

impl Stack {
    /// Moves connection `number` of shard `from` to another one, if it can be now; `moved` hears its number there, while both are held.
    pub fn move_connection(
        &self,
        (from, number): (usize, u32),
        to: usize,
        moved: impl FnOnce(u32),
    ) -> Movable {
        if from == to {
            return Movable::Now;
        }
        // Classifiers hear of a flow by one shard's requests at a time: those of two have no order.
        for is_second in [false, true] {
            // No turn of it: nothing is taken in or sent.
            let mut held = self.sockets.cells[from].held.lock();
            let movable = held.shard.tcp_movable(number);
            if movable != Movable::Now {
                return movable;
            }
            if held.requests_are_heeded() {
                return self.move_from(held, number, to, moved);
            }
            drop(held);
            if !is_second {
                self.heed_requests();
            }
        }
        Movable::Later
    }

    fn move_from(
        &self,
        mut held: MutexGuard<'_, Held>,
        number: u32,
        to: usize,
        moved: impl FnOnce(u32),
    ) -> Movable {
        let now = self.clock.now();
        // No thread that has one shard waits for another: this one comes back.
        let Some(mut other) = try_lock(&self.sockets.cells[to], to) else {
            return Movable::Later;
        };
        // Of both shards' times the later one: the connection's clock does not go back. And first the one that it comes to: what changes of the network
        // between the two it hears of in one of them.
        let now = other.shard.no_earlier(now);
        let now = other.shard.no_earlier(held.shard.no_earlier(now));
        let taken = (other.shard.tcp_has_room())
            .then(|| held.shard.tcp_take(number))
            .flatten();
        let put = taken.and_then(|socket| other.shard.tcp_put(socket));
        let waits = put.is_some_and(|number| {
            moved(number);
            other.shard.tcp_has_waiters(number)
        });
        // What the shard has to do now takes locks that are not taken under another shard.
        drop(held);
        self.leave(&self.sockets.cells[to], other, now);
        if waits && self.threaded {
            // A thread that waits for it may turn the shard where it was.
            self.hand_over(to);
            self.turn_in_background(to);
        }
        put.map_or(Movable::Later, |_| Movable::Now)
    }

    /// Packets that came to a shard in which their connections do not live any more. It is no turn of their shard: what waits in the channels of that one came
    /// later.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_on(&self, passed: Vec<(usize, Packet)>, now: Instant) {
        let mut passed = passed.into_iter().peekable();
        while let Some((number, first)) = passed.next() {
            let cell = &self.sockets.cells[number];
            let mut held = lock(cell, number);
            let now = held.shard.no_earlier(now);
            let mut batch = held.shard.receive_batch(now);
            batch.input(first);
            while let Some((_, packet)) = passed.next_if(|&(next, _)| next == number) {
                batch.input(packet);
            }
            drop(batch);
            self.leave(cell, held, now);
        }
    }
}
