//! The wire: two ends in one process. Packet handles move, bytes stay; each direction is a ring of one writer and one reader.
//!
//! A direction without impairments is that ring and nothing else. One with impairments has a model in front of it
//! (`shape`), which decides when a frame is sent whether and when it arrives, and a heap behind it, which lets frames
//! overtake each other. Time is the `now` of each call, real or virtual; the same seed and the same calls give the same trace.
//!
//! Each end may be used by a thread of its own, or both by one: nothing blocks. A wire whose other end was dropped is
//! [`LinkError::Gone`], once what was under way has arrived.

mod options;
pub(crate) mod registry;
mod shape;
#[cfg(test)]
mod tests;

use std::{
    cmp::{Ordering as Order, Reverse},
    collections::{BinaryHeap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
};

use percore::{
    doorbell::Doorbell,
    ring::{Consumer, Producer, ring},
    slab::Slab,
};
use proto::time::Instant;

use self::shape::{Shape, Verdict};
pub use self::{options::Options, shape::Impairments};
pub use super::random::Probability;
use super::{FRAME_OVERHEAD, Link, LinkError, Properties, Statistics, mac};
use crate::packet::{Meta, Packet};

/// Frames that can be on their way to one end behind its ring: 16384 × 56 bytes. More wait in the ring, then at the sender.
const WAITING_MAX: usize = 16_384;

/// Both ends of a wire that treats the frames of each direction as `options` says.
#[must_use]
pub fn pair(options: &Options) -> (Wire, Wire) {
    pair_with(options, options)
}

/// Both ends of a wire: `first` for what the first end sends, `second` for what the second one sends.
#[must_use]
pub fn pair_with(first: &Options, second: &Options) -> (Wire, Wire) {
    let (out0, in1) = direction(first, 0);
    let (out1, in0) = direction(second, 1);
    let (mut a, mut b) = (
        Wire::new("wire", first, 0, out0),
        Wire::new("wire", second, 1, out1),
    );
    let frame_max = a.properties.frame_max.max(b.properties.frame_max);
    (a.properties.frame_max, b.properties.frame_max) = (frame_max, frame_max);
    (a.incoming, b.incoming) = (Some(in0), Some(in1));
    (a, b)
}

/// What the two ends of one direction share beside the ring.
#[derive(Debug, Default)]
struct Direction {
    /// Rung when there is something to receive.
    receiver: OnceLock<Arc<Doorbell>>,
    /// Rung when there is room again.
    sender: OnceLock<Arc<Doorbell>>,
    /// The sender found the ring full. Set before it looks again; see `Incoming::unblock`.
    blocked: AtomicBool,
    seen: Impairments,
}

/// A frame under way.
#[derive(Debug)]
struct Timed {
    due: Instant,
    /// Number in the order of sending: frames due together arrive in it.
    order: u64,
    twice: bool,
    packet: Packet,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Order {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

#[derive(Debug)]
enum Out {
    Plain(Producer<Packet>),
    Shaped {
        ring: Producer<Timed>,
        shape: Box<Shape>,
        order: u64,
    },
}

#[derive(Debug)]
enum In {
    Plain(Consumer<Packet>),
    Shaped {
        ring: Consumer<Timed>,
        waiting: BinaryHeap<Reverse<Timed>>,
    },
}

/// The receiving half of a direction.
#[derive(Debug)]
struct Incoming {
    lane: In,
    direction: Arc<Direction>,
    trusted: bool,
}

/// The sending half of a direction.
#[derive(Debug)]
struct Outgoing {
    lane: Out,
    direction: Arc<Direction>,
}

/// Makes one direction; `number` (0 or 1) keeps the chances of the two apart.
fn direction(options: &Options, number: u64) -> (Outgoing, Incoming) {
    let direction = Arc::new(Direction::default());
    let (out, lane) = if options.shapes() {
        let (producer, consumer) = ring(options.slots());
        let shape = Box::new(Shape::new(options, number));
        let waiting = BinaryHeap::with_capacity(WAITING_MAX);
        (
            Out::Shaped {
                ring: producer,
                shape,
                order: 0,
            },
            In::Shaped {
                ring: consumer,
                waiting,
            },
        )
    } else {
        let (producer, consumer) = ring(options.slots());
        (Out::Plain(producer), In::Plain(consumer))
    };
    let incoming = Incoming {
        lane,
        direction: direction.clone(),
        trusted: options.trusted,
    };
    (
        Outgoing {
            lane: out,
            direction,
        },
        incoming,
    )
}

impl Outgoing {
    /// Sends from the front of `frames` until it is empty or the ring full.
    fn send(&mut self, now: Instant, frames: &mut VecDeque<Packet>) {
        match &mut self.lane {
            Out::Plain(ring) => {
                ring.push_batch(frames);
            }
            Out::Shaped { ring, shape, order } => {
                while !frames.is_empty() {
                    // Room first: a frame that stays must not have drawn from the generator.
                    let full = ring.room() == 0;
                    if full && !shape.drops_when_full() {
                        break;
                    }
                    let Some(mut packet) = frames.pop_front() else {
                        break;
                    };
                    if full {
                        shape.overflow(&self.direction.seen);
                        continue;
                    }
                    let Verdict::Deliver { due, twice } =
                        shape.admit(now, &mut packet, &self.direction.seen)
                    else {
                        continue;
                    };
                    *order += 1;
                    // There was room, and nobody else fills it.
                    let _ = ring.stage(Timed {
                        due,
                        order: *order,
                        twice,
                        packet,
                    });
                }
                ring.publish();
            }
        }
    }

    fn peer_gone(&self) -> bool {
        match &self.lane {
            Out::Plain(ring) => ring.is_abandoned(),
            Out::Shaped { ring, .. } => ring.is_abandoned(),
        }
    }

    fn ring_bell(&self) {
        if let Some(bell) = self.direction.receiver.get() {
            bell.ring();
        }
    }
}

impl Incoming {
    /// Appends what has arrived at `now`, at most `max`.
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
        counts: &mut Statistics,
    ) -> usize {
        let meta = Meta {
            checksum_verified: self.trusted,
            ..Meta::default()
        };
        let mut bytes = 0;
        let mut hand_over = |mut packet: Packet| {
            packet.meta = meta;
            bytes += packet.len() as u64;
            burst.push_back(packet);
        };
        let n = match &mut self.lane {
            In::Plain(ring) => ring.pop_batch(max, hand_over),
            In::Shaped { ring, waiting } => {
                let room = WAITING_MAX.saturating_sub(waiting.len()) / 2; // each may come twice
                ring.pop_batch(room, |timed| {
                    if timed.twice {
                        waiting.extend(copy(&timed, slab, counts).map(Reverse));
                    }
                    waiting.push(Reverse(timed));
                });
                let mut n = 0;
                while n < max && waiting.peek().is_some_and(|next| next.0.due <= now) {
                    let Some(Reverse(timed)) = waiting.pop() else {
                        break;
                    };
                    hand_over(timed.packet);
                    n += 1;
                }
                n
            }
        };
        counts.rx_packets += n as u64;
        counts.rx_bytes += bytes;
        self.unblock();
        n
    }

    /// Tells a sender who found the ring full that there is room.
    ///
    /// The sender sets the flag, then looks once more; we take, then look at the flag. Between our taking and our looking
    /// there is no fence, so the flag can be missed, but not for good: who is about to sleep has passed the fence of
    /// `Doorbell::arm` and looks here again.
    fn unblock(&self) {
        // Relaxed, as said: pairs with the SeqCst store in Wire::transmit through that fence
        let blocked = &self.direction.blocked;
        if blocked.load(Relaxed)
            && blocked.swap(false, SeqCst)
            && let Some(bell) = self.direction.sender.get()
        {
            bell.ring();
        }
    }

    /// Whether nothing is under way.
    fn is_empty(&mut self) -> bool {
        match &mut self.lane {
            In::Plain(ring) => ring.is_empty(),
            In::Shaped { ring, waiting } => waiting.is_empty() && ring.is_empty(),
        }
    }

    fn peer_gone(&self) -> bool {
        match &self.lane {
            In::Plain(ring) => ring.is_abandoned(),
            In::Shaped { ring, .. } => ring.is_abandoned(),
        }
    }

    fn next_event(&self) -> Instant {
        match &self.lane {
            In::Plain(_) => Instant::FAR,
            In::Shaped { waiting, .. } => waiting.peek().map_or(Instant::FAR, |next| next.0.due),
        }
    }
}

/// A second copy of a frame, in a buffer of `slab`; `None` (counted) where there is none or it is too small.
fn copy(timed: &Timed, slab: &mut Slab, counts: &mut Statistics) -> Option<Timed> {
    let Some(buffer) = slab.alloc() else {
        counts.rx_no_buffer += 1;
        return None;
    };
    let mut packet = Packet::new(buffer, 0);
    let bytes = timed.packet.bytes();
    let Some(room) = packet.room_mut().get_mut(..bytes.len()) else {
        counts.rx_length += 1;
        return None;
    };
    room.copy_from_slice(bytes);
    packet.set_len(bytes.len());
    Some(Timed {
        due: timed.due,
        order: timed.order,
        twice: false,
        packet,
    })
}

/// One end of a wire.
#[derive(Debug)]
pub struct Wire {
    properties: Properties,
    out: Outgoing,
    /// `None` while nobody has opened the other end of a wire with a name.
    incoming: Option<Incoming>,
    /// Where the half that `incoming` waits for will be put.
    slot: Option<Arc<registry::Slot>>,
    bell: Option<Arc<Doorbell>>,
    /// Longest frame this end sends, bytes.
    longest: usize,
    counts: Statistics,
}

impl Wire {
    fn new(name: &str, options: &Options, end: u8, out: Outgoing) -> Self {
        let mac = options.mac.unwrap_or_else(|| {
            mac::derive(&[
                b"wire",
                name.as_bytes(),
                &options.seed.to_be_bytes(),
                &[end],
            ])
        });
        let longest = options.mtu + FRAME_OVERHEAD;
        let properties = Properties {
            name: name.to_owned(),
            kind: "wire",
            mac,
            mtu: options.mtu,
            frame_max: longest,
        };
        Self {
            properties,
            out,
            incoming: None,
            slot: None,
            bell: None,
            longest,
            counts: Statistics::default(),
        }
    }

    /// What the wire did to the frames this end sent, and goes on doing: a live view for who gives the end away.
    #[must_use]
    pub fn impairments(&self) -> WireView {
        WireView {
            direction: self.out.direction.clone(),
        }
    }

    /// Takes the receiving half once the other end has been opened; false before that.
    fn join(&mut self) -> bool {
        let Some(incoming) = self.slot.as_ref().and_then(|slot| slot.take()) else {
            return false;
        };
        if let Some(bell) = &self.bell {
            // A wire has one receiver: this is the first and only time.
            let _ = incoming.direction.receiver.set(bell.clone());
        }
        self.incoming = Some(incoming);
        self.slot = None;
        true
    }

    /// Counts `frames`, and drops those that are longer than the wire takes.
    fn weigh(&mut self, frames: &mut VecDeque<Packet>) -> u64 {
        let (mut bytes, mut longest) = (0, 0);
        for frame in &*frames {
            bytes += frame.len() as u64;
            longest = longest.max(frame.len());
        }
        if longest > self.longest {
            let before = frames.len();
            frames.retain(|frame| frame.len() <= self.longest);
            self.counts.tx_errors += (before - frames.len()) as u64;
            bytes = frames.iter().map(|frame| frame.len() as u64).sum();
        }
        bytes
    }
}

/// A live view of what a wire does to the frames of one direction.
#[derive(Clone, Debug)]
pub struct WireView {
    direction: Arc<Direction>,
}

impl std::ops::Deref for WireView {
    type Target = Impairments;
    fn deref(&self) -> &Impairments {
        &self.direction.seen
    }
}

fn gone() -> LinkError {
    LinkError::Gone("the other end of the wire was dropped".into())
}

impl Link for Wire {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn attach(&mut self, doorbell: Arc<Doorbell>) {
        // A second bell for one end is not rung: `attach` is called once.
        let _ = self.out.direction.sender.set(doorbell.clone());
        if let Some(incoming) = &self.incoming {
            let _ = incoming.direction.receiver.set(doorbell.clone());
        }
        self.bell = Some(doorbell);
    }

    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        if self.incoming.is_none() && !self.join() {
            return Ok(0);
        }
        let Some(incoming) = &mut self.incoming else {
            return Ok(0);
        };
        let n = incoming.receive(now, slab, burst, max, &mut self.counts);
        // In this order: what was sent before the end was dropped is seen by the second look.
        if n == 0 && incoming.peer_gone() && incoming.is_empty() {
            return Err(gone());
        }
        Ok(n)
    }

    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        if frames.is_empty() {
            return Ok(0);
        }
        if self.out.peer_gone() {
            return Err(gone());
        }
        let offered = frames.len();
        let bytes = self.weigh(frames);
        let fit = frames.len();
        self.out.send(now, frames);
        if !frames.is_empty() {
            // Say so, then look again: see Incoming::unblock.
            self.out.direction.blocked.store(true, SeqCst); // pairs with the swap there
            fence(SeqCst); // partner: the fence in Doorbell::arm
            self.out.send(now, frames);
        }
        if frames.len() < fit {
            self.out.ring_bell();
        }
        self.counts.tx_packets += (fit - frames.len()) as u64;
        self.counts.tx_bytes += bytes - frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        Ok(offered - frames.len())
    }

    fn next_event(&self) -> Instant {
        self.incoming
            .as_ref()
            .map_or(Instant::FAR, Incoming::next_event)
    }

    fn statistics(&self) -> Statistics {
        let missed = self
            .incoming
            .as_ref()
            .map_or(0, |incoming| incoming.direction.seen.missed());
        Statistics {
            rx_missed: missed,
            ..self.counts
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The ring tells the peer when its end goes, which is after this; a peer that sleeps has to be told to look, so let
        // the rings go first.
        let (receiver, sender) = (
            self.out.direction.receiver.get().cloned(),
            self.incoming
                .as_ref()
                .and_then(|incoming| incoming.direction.sender.get().cloned()),
        );
        self.incoming = None;
        if self.slot.take().is_some() {
            registry::sweep();
        }
        self.out.lane = Out::Plain(ring(1).0);
        for bell in [receiver, sender].into_iter().flatten() {
            bell.ring();
        }
    }
}
