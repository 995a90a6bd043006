//! A link, one way: a queue before a transmitter of some rate, and a wire behind it that delays, loses, repeats, corrupts and reorders.
//!
//! A link knows no clock but the times it is told, and no packet but its size and ECN field, so that it serves virtual time and, between two real
//! stacks, real time.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
};

use proto::{
    ip::Ecn,
    time::{Duration, Instant},
};

use super::{codel::Codel, dice::Dice};

/// Losses in bursts (Gilbert, Elliott): a good state without losses and a bad one with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// From good to bad, chances in a million for each packet.
    pub enter_ppm: u32,
    /// From bad to good.
    pub leave_ppm: u32,
    /// Losses in the bad state.
    pub loss_ppm: u32,
}

/// How a link treats packets; chances are in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkShape {
    /// Of every packet.
    pub delay: Duration,
    /// Further delay, up to this; the order is kept.
    pub jitter: Duration,
    /// Lost, each packet by itself.
    pub loss_ppm: u32,
    /// Packets of at most so many bytes are not lost.
    pub spared: u32,
    /// The packets of these numbers, from 1, of those that are not spared, are lost whatever chance says.
    pub doomed: [u32; 2],
    /// Lost in bursts.
    pub bursts: Option<Bursts>,
    /// Come later than those sent after them.
    pub late_ppm: u32,
    /// By so much.
    pub late_by: Duration,
    /// Come twice.
    pub duplicate_ppm: u32,
    /// Come broken: the checksum tells, and they are dropped.
    pub corrupt_ppm: u32,
    /// Bytes a second; 0: no queue.
    pub rate: u64,
    /// Bytes that may wait.
    pub queue_max: u64,
    /// Packets that find so many bytes waiting are marked if they can be.
    pub mark_from: Option<u64>,
    /// The queue is under controlled delay.
    pub codel: bool,
    /// Largest packet.
    pub mtu: u32,
}

impl Default for LinkShape {
    /// Nothing but a delay of 5 ms.
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(5),
            jitter: Duration::ZERO,
            loss_ppm: 0,
            spared: 0,
            doomed: [0; 2],
            bursts: None,
            late_ppm: 0,
            late_by: Duration::ZERO,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            rate: 0,
            queue_max: u64::MAX,
            mark_from: None,
            codel: false,
            mtu: 65_535,
        }
    }
}

/// A packet, as a link sees it.
#[derive(Clone, Debug)]
pub struct Packet<T> {
    /// Bytes, IP header included.
    pub size: u32,
    /// Whether it can be marked, or is.
    pub ecn: Ecn,
    /// What it carries.
    pub body: T,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct LinkCounts {
    pub sent: u64,
    pub sent_bytes: u64,
    pub delivered: u64,
    pub lost: u64,
    pub corrupted: u64,
    pub duplicated: u64,
    pub late: u64,
    pub overflowed: u64,
    pub condemned: u64,
    pub marked: u64,
    pub too_big: u64,
    pub queue_peak_bytes: u64,
}

impl LinkShape {
    /// Whether each packet arrives, once at least, and none behind one that was sent later.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        let loses = self.loss_ppm > 0 || self.bursts.is_some() || self.doomed != [0; 2];
        let overflows = self.rate > 0 && (self.queue_max < u64::MAX || self.codel);
        !loses && !overflows && self.corrupt_ppm == 0 && self.late_ppm == 0
    }
}

/// Larger than the link's MTU: the packet is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// What would have fitted.
    pub mtu: u32,
}

struct Flying<T> {
    at: Instant,
    order: u64,
    packet: Packet<T>,
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<T> Eq for Flying<T> {}
impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Flying<T> {
    /// The heap's greatest is the first to arrive.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// One way between two places.
pub struct Link<T> {
    shape: LinkShape,
    dice: Dice,
    bad: bool,
    queue: VecDeque<(Instant, Packet<T>)>,
    queued: u64,
    codel: Codel,
    /// The packet that is being transmitted, and until when.
    service: Option<(Instant, Packet<T>)>,
    flying: BinaryHeap<Flying<T>>,
    order: u64,
    last_arrival: Instant,
    counts: LinkCounts,
    /// Packets so far that were not spared.
    unspared: u32,
}

impl<T: Clone> Link<T> {
    /// A link; what it does follows from `seed`.
    #[must_use]
    pub fn new(shape: LinkShape, seed: u64) -> Self {
        Self {
            shape,
            dice: Dice::new(seed),
            bad: false,
            queue: VecDeque::new(),
            queued: 0,
            codel: Codel::default(),
            service: None,
            flying: BinaryHeap::new(),
            order: 0,
            last_arrival: Instant::ZERO,
            counts: LinkCounts::default(),
            unspared: 0,
        }
    }

    /// Its shape.
    #[must_use]
    pub const fn shape(&self) -> &LinkShape {
        &self.shape
    }

    /// Another path from now on. What waits stays, what flies arrives as it would have; a shorter path overtakes.
    pub fn change(&mut self, shape: LinkShape) {
        self.shape = shape;
        self.last_arrival = Instant::ZERO;
    }

    /// What became of packets so far.
    #[must_use]
    pub const fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    /// A packet enters.
    ///
    /// # Errors
    /// If it does not fit through; it is gone.
    pub fn send(&mut self, mut packet: Packet<T>, now: Instant) -> Result<(), TooBig> {
        let mtu = self.shape.mtu;
        if packet.size > mtu {
            self.counts.too_big += 1;
            return Err(TooBig { mtu });
        }
        self.transmit(now);
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(packet.size);
        let full = self.queued + u64::from(packet.size) > self.shape.queue_max;
        if full && !self.queue.is_empty() {
            self.counts.overflowed += 1;
            return Ok(());
        }
        if self.shape.mark_from.is_some_and(|from| self.queued >= from) {
            self.mark(&mut packet);
        }
        self.queued += u64::from(packet.size);
        self.counts.queue_peak_bytes = self.counts.queue_peak_bytes.max(self.queued);
        self.queue.push_back((now, packet));
        if self.service.is_none() {
            self.serve(now);
        }
        Ok(())
    }

    /// When something happens next.
    #[must_use]
    pub fn next(&self) -> Instant {
        let served = self.service.as_ref().map_or(Instant::FAR, |(at, _)| *at);
        let arrives = self.flying.peek().map_or(Instant::FAR, |f| f.at);
        served.min(arrives)
    }

    /// The next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Packet<T>> {
        self.transmit(now);
        if self.flying.peek()?.at > now {
            return None;
        }
        self.counts.delivered += 1;
        self.flying.pop().map(|f| f.packet)
    }

    /// Packets in it, waiting or flying.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.len() + usize::from(self.service.is_some()) + self.flying.len()
    }

    /// Whether the packet could be marked.
    fn mark(&mut self, packet: &mut Packet<T>) -> bool {
        let can = packet.ecn != Ecn::NotEct;
        if can {
            packet.ecn = Ecn::Ce;
            self.counts.marked += 1;
        }
        can
    }

    /// Everything that is transmitted by `now` goes onto the wire.
    fn transmit(&mut self, now: Instant) {
        while let Some((done, packet)) = self.service.take_if(|(done, _)| *done <= now) {
            self.fly(packet, done);
            self.serve(done);
        }
    }

    /// The next packet goes into the transmitter.
    fn serve(&mut self, now: Instant) {
        while let Some((entered, mut packet)) = self.queue.pop_front() {
            self.queued -= u64::from(packet.size);
            if self.shape.codel
                && self.codel.condemns(entered, self.queued, now)
                && !self.mark(&mut packet)
            {
                self.counts.condemned += 1;
                continue;
            }
            if self.shape.rate == 0 {
                self.fly(packet, now);
                continue;
            }
            let nanos = u64::from(packet.size) * 1_000_000_000 / self.shape.rate;
            self.service = Some((now + Duration::from_nanos(nanos), packet));
            return;
        }
    }

    fn is_lost(&mut self) -> bool {
        if let Some(bursts) = self.shape.bursts {
            let change = if self.bad {
                bursts.leave_ppm
            } else {
                bursts.enter_ppm
            };
            self.bad ^= self.dice.per_million(change);
            if self.bad && self.dice.per_million(bursts.loss_ppm) {
                return true;
            }
        }
        self.dice.per_million(self.shape.loss_ppm)
    }

    fn is_doomed_or_lost(&mut self) -> bool {
        self.unspared += 1;
        self.shape.doomed.contains(&self.unspared) || self.is_lost()
    }

    fn fly(&mut self, packet: Packet<T>, now: Instant) {
        if packet.size > self.shape.spared && self.is_doomed_or_lost() {
            self.counts.lost += 1;
            return;
        }
        if self.dice.per_million(self.shape.corrupt_ppm) {
            self.counts.corrupted += 1;
            return;
        }
        if self.dice.per_million(self.shape.duplicate_ppm) {
            self.counts.duplicated += 1;
            self.arrive(packet.clone(), now);
        }
        self.arrive(packet, now);
    }

    fn arrive(&mut self, packet: Packet<T>, now: Instant) {
        let mut at = now + self.shape.delay;
        if self.shape.jitter > Duration::ZERO {
            let most = u64::try_from(self.shape.jitter.as_nanos()).unwrap_or(u64::MAX);
            at = at + Duration::from_nanos(self.dice.below(most));
        }
        if self.dice.per_million(self.shape.late_ppm) {
            self.counts.late += 1;
            at = at + self.shape.late_by;
        } else {
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        self.order += 1;
        let order = self.order;
        self.flying.push(Flying { at, order, packet });
    }
}

#[cfg(test)]
mod tests;
