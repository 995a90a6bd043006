//! Packets in, one behind the other with nothing between them, so that a segment can be known by the one before it.
//!
//! A sender with much to say sends segments that differ in nothing but their text. What header prediction found out about the first one of such a
//! *run* holds for those behind it: they are compared with it, summed and queued, and that is all (generic receive offload, without one packet
//! being made of many: there is nothing to wait for, to copy or to take apart again). A run ends with the burst it came in.

use proto::{
    time::Instant,
    wire::{ipv4::Protocol, tcp::RunKey},
};

use super::Shard;
use crate::{counters::Counter, packet::Packet, tap::Way};

/// A shard that takes packets, and does nothing else until this is dropped.
pub struct ReceiveBatch<'a> {
    pub(super) shard: &'a mut Shard,
    /// The last packet was text of the connection `Shard::recent`, and was predicted, or followed one that was: what the next one is to
    /// have alike.
    pub(super) run: Option<RunKey>,
    /// Segments that were not the first of their run.
    pub(super) followed: u32,
    /// Not 0: taps look.
    watched: u32,
    pub(super) now: Instant,
}

impl<'a> ReceiveBatch<'a> {
    /// For packets that have arrived by `now`.
    #[inline]
    pub(super) const fn new(shard: &'a mut Shard, now: Instant) -> Self {
        Self {
            watched: shard.is_watched() as u32,
            shard,
            run: None,
            followed: 0,
            now,
        }
    }
}

impl ReceiveBatch<'_> {
    /// Takes a packet that `steer` sent here: it starts at its IP header, and its `meta` is filled in.
    #[inline(always)]
    pub fn input(&mut self, packet: Packet) {
        if packet.meta.seen | self.watched != 0 {
            return self.input_seen(packet);
        }
        self.input_untimed(packet);
    }

    /// The same for one whose way is timed, or that taps look at.
    #[cold]
    #[inline(never)]
    fn input_seen(&mut self, packet: Packet) {
        if self.watched == 0 {
            return self.input_timed(packet);
        }
        let (link, now) = (packet.meta.interface, self.now);
        if packet.meta.course.is_of_peer() {
            self.shard.taps.pass(&packet, (link, Way::In), now); // else it is one of its own
        }
        match packet.meta.seen {
            0 => self.input_untimed(packet),
            _ => self.input_timed(packet),
        }
        self.shard.taps.is_through(link, now);
    }

    fn input_timed(&mut self, mut packet: Packet) {
        let timed = self.shard.begin_timed(&mut packet);
        self.input_untimed(packet);
        self.shard.end_timed(&timed);
    }

    #[inline(always)]
    fn input_untimed(&mut self, packet: Packet) {
        if packet.meta.protocol == Protocol::TCP && packet.meta.course.is_of_peer() {
            return self.tcp_input(packet);
        }
        self.run = None;
        self.shard.input_other(packet, self.now);
    }
}

impl Drop for ReceiveBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.followed > 0 {
            let (counters, number) = (&self.shard.counters, self.shard.number);
            counters.add(number, Counter::TcpIn, self.followed.into());
            counters.add(number, Counter::TcpFollowed, self.followed.into());
        }
    }
}
