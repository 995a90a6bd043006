//! Packets whose way is timed (`trace::latency`): from the moment the shard takes one until the application has read what it brought.
//!
//! What waits to be read is kept with the bytes, or datagrams, that lie before its end; each read takes off what it read. So it does not matter where
//! the payload lies by then: it may have been copied, joined with others or put back in order.

use std::collections::VecDeque;

use proto::wire::ipv4::Protocol;

use super::{Shard, time_wait};
use crate::{
    flow::Tuple,
    limits,
    packet::{Course, Packet},
    trace::{
        self,
        latency::{Latencies, Station, ticks, ticks_to_ns},
        trigger,
    },
};

/// Which socket reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Reader {
    /// A connection, by its number.
    Tcp(u32),
    /// A UDP or ping socket, by its number.
    Udp(u32),
}

/// A packet that waits to be read.
#[derive(Debug)]
struct Sample {
    reader: Reader,
    /// Bytes or datagrams until its last one is read.
    left: u32,
    id: u64,
    seen: u32,
    /// When the protocol was through with it; once its waiters were called, when that was.
    since: u32,
    /// A waiter is to be called for it.
    wakes: bool,
}

/// Those of a shard, and what was measured.
#[derive(Debug)]
pub(crate) struct Samples {
    shard: u64,
    /// The oldest is first, and is dropped for a new one where there is no room.
    waiting: VecDeque<Sample>,
    pub(crate) latencies: Latencies,
    /// A timed packet is just being taken.
    is_taking: bool,
    /// The socket that queued it, and as which datagram from the front.
    queued: Option<(u32, u32)>,
}

/// What is remembered while the protocol has a packet.
pub(in crate::shard) struct Timed {
    id: u64,
    seen: u32,
    taken: u32,
    /// The connection that it is for, and the bytes that could be read there before.
    connection: Option<(u32, u32)>,
    /// Waiters that are to be called already.
    woken: usize,
}

impl Samples {
    /// None yet. All memory is taken now.
    pub fn new(shard: usize) -> Self {
        Self {
            shard: shard as u64,
            waiting: VecDeque::with_capacity(limits::TIMED_PACKETS),
            latencies: Latencies::new(),
            is_taking: false,
            queued: None,
        }
    }

    /// A datagram was queued by a socket, behind so many others.
    #[inline]
    pub(in crate::shard) fn queued(&mut self, number: u32, before: usize) {
        if self.is_taking {
            let place = u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1);
            self.queued = Some((number, place));
        }
    }

    /// The application has read so many bytes, or datagrams.
    #[inline]
    pub(in crate::shard) fn read(&mut self, reader: Reader, n: u32) {
        if !self.waiting.is_empty() {
            self.read_some(reader, n);
        }
    }

    #[cold]
    #[inline(never)]
    fn read_some(&mut self, reader: Reader, n: u32) {
        let (now, shard, latencies) = (ticks(), self.shard, &mut self.latencies);
        self.waiting.retain_mut(|sample| {
            if sample.reader != reader {
                return true;
            }
            sample.left = sample.left.saturating_sub(n);
            if sample.left > 0 {
                return true;
            }
            let all = now.wrapping_sub(sample.seen);
            latencies.note(Station::Read, now.wrapping_sub(sample.since));
            latencies.note(Station::Total, all);
            if trace::is_watched() {
                let after_ns = ticks_to_ns(all.into());
                trace::detail(trace::PACKET_READ, [sample.id, shard, after_ns]);
            }
            trigger::took(|| ticks_to_ns(all.into()));
            false
        });
    }

    /// The waiters are called now for which packets of this turn were.
    #[inline]
    pub(crate) fn woke(&mut self) {
        if !self.waiting.is_empty() {
            self.woke_some();
        }
    }

    #[cold]
    #[inline(never)]
    fn woke_some(&mut self) {
        let now = ticks();
        for sample in self.waiting.iter_mut().filter(|sample| sample.wakes) {
            let took = now.wrapping_sub(std::mem::replace(&mut sample.since, now));
            sample.wakes = false;
            self.latencies.note(Station::Wake, took);
            trace::detail(trace::PACKET_WOKE, [self.shard, sample.id]);
        }
    }

    /// That socket reads no more; the number may be another one's soon.
    #[inline]
    pub(in crate::shard) fn forget(&mut self, reader: Reader) {
        if !self.waiting.is_empty() {
            self.waiting.retain(|sample| sample.reader != reader);
        }
    }
}

impl Shard {
    /// The protocol is about to take a packet whose way is timed; from here on it is like any other.
    pub(super) fn begin_timed(&mut self, packet: &mut Packet) -> Timed {
        let (id, taken) = (packet.timed_id(), ticks());
        let seen = std::mem::take(&mut packet.meta.seen);
        let handed = std::mem::take(&mut packet.meta.handed);
        let way = taken.wrapping_sub(seen);
        let latencies = &mut self.samples.latencies;
        if handed == 0 {
            latencies.note(Station::Steer, way); // the link is the shard's own
        } else {
            latencies.note(Station::Steer, handed.into());
            latencies.note(Station::Channel, way.saturating_sub(handed.into()));
        }
        trace::detail(trace::PACKET_TAKEN, [self.number as u64, id]);
        self.samples.is_taking = true;
        Timed {
            id,
            seen,
            taken,
            connection: self.readable_before(packet),
            woken: self.woken.len(),
        }
    }

    /// The connection that a packet is for, and what can be read there.
    fn readable_before(&self, packet: &Packet) -> Option<(u32, u32)> {
        if packet.meta.protocol != Protocol::TCP || packet.meta.course == Course::RETURNED {
            return None;
        }
        let tuple = Tuple::of_received(packet.bytes(), packet.meta.upper.into())?;
        let found = self.find_tuple(packet.meta.flow, &tuple)?;
        let number = time_wait::split(found).ok()?;
        Some((number, self.tcp.get(number)?.receive.readable_bytes()))
    }

    /// The protocol is through with it: if there is more to read than before, it waits to be read.
    pub(super) fn end_timed(&mut self, timed: &Timed) {
        let now = ticks();
        let woken = self.woken.len() > timed.woken;
        let more = timed.connection.and_then(|(number, before)| {
            let readable = self.tcp.get(number)?.receive.readable_bytes();
            (readable > before).then_some((Reader::Tcp(number), readable))
        });
        let samples = &mut self.samples;
        samples.is_taking = false;
        let took = now.wrapping_sub(timed.taken);
        samples.latencies.note(Station::Protocol, took);
        trace::detail(trace::PACKET_DONE, [samples.shard, timed.id]);
        let datagram = samples.queued.take();
        let datagram = datagram.map(|(number, place)| (Reader::Udp(number), place));
        let Some((reader, left)) = more.or(datagram) else {
            return;
        };
        if samples.waiting.len() == limits::TIMED_PACKETS {
            samples.waiting.pop_front();
        }
        samples.waiting.push_back(Sample {
            reader,
            left,
            id: timed.id,
            seen: timed.seen,
            since: now,
            wakes: woken,
        });
    }
}
