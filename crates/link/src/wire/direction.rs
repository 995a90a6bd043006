//! One direction of a wire: its sending half, its receiving half and what they share.

use std::{
    cmp::{Ordering as Order, Reverse},
    collections::{BinaryHeap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, Release, SeqCst},
        },
    },
};

use netchan_base::packet::{Meta, Packet};
use percore::{
    doorbell::Doorbell,
    ring::{Consumer, Producer, ring},
    slab::Slab,
};
use proto::time::Instant;

use super::{
    Options,
    shape::{Impairments, Shape, Verdict},
};

use crate::{RxStatistics, TxStatistics};

/// Frames that can be on their way to one end behind its ring; more wait in the ring, then at the sender.
/// 16384 × 56 bytes, once for frames in order and once for those that are not.
const WAITING_MAX: usize = 16_384;

/// What the two halves share beside the ring. Written rarely, but for `seen`, which has lines of its own.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Rung when there is something to receive.
    pub receiver: OnceLock<Arc<Doorbell>>,
    /// Rung when there is room again.
    pub sender: OnceLock<Arc<Doorbell>>,
    /// The sender found the ring full. Set before it looks again; see `Incoming::unblock`.
    pub blocked: AtomicBool,
    /// One half was dropped.
    pub closed: AtomicBool,
    pub seen: Impairments,
}

/// A frame under way.
#[derive(Debug)]
struct Timed {
    due: Instant,
    /// Number in the order of sending: frames due together arrive in it.
    order: u64,
    /// Comes later than its like, by chance: others may overtake it.
    late: bool,
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
        waiting: Waiting,
    },
}

/// Makes one direction; `number` (0 or 1) keeps the chances of the two apart.
pub(super) fn direction(options: &Options, number: u64) -> (Outgoing, Incoming) {
    let direction = Arc::new(Direction::default());
    let (out, lane) = if options.shapes() {
        let (producer, consumer) = ring(options.slots());
        let shape = Box::new(Shape::new(options, number));
        (
            Out::Shaped {
                ring: producer,
                shape,
                order: 0,
            },
            In::Shaped {
                ring: consumer,
                waiting: Waiting::new(),
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

/// The sending half.
#[derive(Debug)]
pub(super) struct Outgoing {
    lane: Out,
    pub direction: Arc<Direction>,
}

impl Outgoing {
    /// Sends from the front of `frames` until it is empty or the ring full. Frames longer than `longest` are dropped.
    #[inline(always)]
    pub fn send(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
        longest: usize,
        counts: &mut TxStatistics,
    ) {
        // A lone frame, the request or the response, without the machinery for many.
        if let (Out::Plain(ring), 1) = (&mut self.lane, frames.len())
            && let Some(len) = frames.front().map(Packet::len)
            && len <= longest
            && ring.push_batch(frames) == 1
        {
            counts.packets += 1;
            counts.bytes += len as u64;
            return;
        }
        self.send_all(now, frames, longest, counts);
    }

    #[inline(never)]
    fn send_all(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
        longest: usize,
        counts: &mut TxStatistics,
    ) {
        weigh(frames, longest, counts);
        let offered = frames.len();
        match &mut self.lane {
            Out::Plain(ring) => {
                ring.push_batch(frames);
            }
            Out::Shaped { ring, shape, order } => {
                let seen = &self.direction.seen;
                // Room first: a frame that stays must not have drawn from the generator.
                let mut room = ring.room();
                while room > 0
                    && let Some(mut packet) = frames.pop_front()
                {
                    let verdict = shape.admit(now, &mut packet, seen);
                    if let Verdict::Deliver { due, late, twice } = verdict {
                        room -= 1;
                        *order += 1;
                        // There is room, and no other sender fills it.
                        let _ = ring.stage(Timed {
                            due,
                            order: *order,
                            late,
                            twice,
                            packet,
                        });
                    }
                }
                ring.publish();
                while shape.drops_when_full() && frames.pop_front().is_some() {
                    shape.overflow(seen);
                }
            }
        }
        counts.packets += (offered - frames.len()) as u64;
        if !frames.is_empty() {
            counts.bytes -= frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        }
    }

    pub fn ring_bell(&self) {
        if let Some(bell) = self.direction.receiver.get() {
            bell.ring();
        }
    }
}

/// Counts the bytes of `frames`, and drops those that are longer than `longest`.
fn weigh(frames: &mut VecDeque<Packet>, longest: usize, counts: &mut TxStatistics) {
    let (mut bytes, mut most) = (0, 0);
    for frame in &*frames {
        bytes += frame.len() as u64;
        most = most.max(frame.len());
    }
    if most > longest {
        let before = frames.len();
        frames.retain(|frame| frame.len() <= longest);
        counts.errors += (before - frames.len()) as u64;
        bytes = frames.iter().map(|frame| frame.len() as u64).sum();
    }
    counts.bytes += bytes;
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // pairs with Acquire in Wire::receive: a receiver that sees it also sees the last frames
        self.direction.closed.store(true, Release);
        self.ring_bell();
    }
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Incoming {
    lane: In,
    pub direction: Arc<Direction>,
    trusted: bool,
}

impl Incoming {
    /// Appends what has arrived at `now`, at most `max`.
    #[inline(always)]
    pub fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
        counts: &mut RxStatistics,
    ) -> usize {
        let meta = Meta {
            checksum_verified: self.trusted.into(),
            ..Meta::default()
        };
        let (mut n, mut bytes) = (0, 0);
        let mut hand_over = |mut packet: Packet| {
            packet.meta = meta;
            n += 1;
            bytes += packet.len() as u64;
            burst.push_back(packet);
        };
        match &mut self.lane {
            In::Plain(ring) => match ring.len().min(max) {
                // A lone frame without the machinery for many.
                1 => {
                    if let Some(packet) = ring.pop() {
                        hand_over(own(packet, slab));
                    }
                }
                n => _ = ring.pop_batch(n, |packet| hand_over(own(packet, slab))),
            },
            In::Shaped { ring, waiting } => {
                receive_shaped(ring, waiting, now, slab, max, counts, &mut hand_over)
            }
        }
        counts.packets += n as u64;
        counts.bytes += bytes;
        self.unblock();
        n
    }

    /// Tells a sender that found the ring full that there is room.
    ///
    /// The sender sets the flag, then looks once more; we take, then look at the flag. Between our taking and our looking
    /// there is no fence, so the flag can be missed, but not for good: a sender about to sleep has passed the fence of
    /// `Doorbell::arm` and looks here again.
    fn unblock(&self) {
        let blocked = &self.direction.blocked;
        // Relaxed, as said: pairs with the SeqCst store in Wire::transmit through that fence
        if blocked.load(Relaxed)
            && blocked.swap(false, SeqCst)
            && let Some(bell) = self.direction.sender.get()
        {
            bell.ring();
        }
    }

    /// Whether nothing is under way.
    pub fn is_empty(&mut self) -> bool {
        match &mut self.lane {
            In::Plain(ring) => ring.is_empty(),
            In::Shaped { ring, waiting } => waiting.is_empty() && ring.is_empty(),
        }
    }

    pub fn next_event(&self) -> Instant {
        match &self.lane {
            In::Plain(_) => Instant::FAR,
            In::Shaped { waiting, .. } => waiting.next_due(),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // pairs with Acquire in Wire::transmit
        self.direction.closed.store(true, Release);
        if let Some(bell) = self.direction.sender.get() {
            bell.ring();
        }
    }
}

/// What has arrived of a direction with impairments, at most `max` frames.
#[inline(never)]
fn receive_shaped(
    ring: &mut Consumer<Timed>,
    waiting: &mut Waiting,
    now: Instant,
    slab: &mut Slab,
    max: usize,
    counts: &mut RxStatistics,
    hand_over: &mut impl FnMut(Packet),
) {
    let mut given = 0;
    ring.pop_batch(waiting.room(), |timed| {
        // The way of most frames where nothing waits: straight on.
        let straight = !timed.late && !timed.twice && timed.due <= now;
        if straight && given < max && waiting.is_empty() {
            given += 1;
            return hand_over(own(timed.packet, slab));
        }
        if timed.twice
            && let Some(copy) = copy(&timed, slab, counts)
        {
            waiting.push(copy);
        }
        let packet = own(timed.packet, slab);
        waiting.push(Timed { packet, ..timed });
    });
    while given < max
        && let Some(packet) = waiting.pop(now)
    {
        given += 1;
        hand_over(packet);
    }
}

/// A second copy of a frame, in a buffer of `slab`; `None` (counted) where there is none or it is too small.
fn copy(timed: &Timed, slab: &mut Slab, counts: &mut RxStatistics) -> Option<Timed> {
    let Some(buffer) = slab.alloc() else {
        counts.no_buffer += 1;
        return None;
    };
    let packet = match timed.packet.copy(buffer) {
        Ok(packet) => packet,
        Err(buffer) => {
            counts.length += 1;
            slab.free(buffer);
            return None;
        }
    };
    Some(Timed {
        due: timed.due,
        order: timed.order,
        late: timed.late,
        twice: false,
        packet,
    })
}

/// The frame in a buffer of ours if the sender's are scarce: it may wait long here (for a segment before it, for a reader), and what
/// it waits for may be what the sender has no buffer for.
#[inline]
fn own(packet: Packet, slab: &mut Slab) -> Packet {
    if packet.is_scarce() {
        return own_slowly(packet, slab);
    }
    packet
}

#[cold]
fn own_slowly(packet: Packet, slab: &mut Slab) -> Packet {
    let Some(buffer) = slab.alloc() else {
        return packet;
    };
    packet.copy(buffer).unwrap_or_else(|buffer| {
        slab.free(buffer);
        packet
    })
}

/// Frames that are not due: a queue for those that come in order, a heap for the others.
#[derive(Debug)]
struct Waiting {
    queue: VecDeque<Timed>,
    heap: BinaryHeap<Reverse<Timed>>,
}

impl Waiting {
    fn new() -> Self {
        Self {
            queue: VecDeque::with_capacity(WAITING_MAX),
            heap: BinaryHeap::with_capacity(WAITING_MAX),
        }
    }

    /// Frames that may be taken from the ring: each may come twice, and all may go to one place.
    fn room(&self) -> usize {
        (WAITING_MAX - self.queue.len().max(self.heap.len())) / 2
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.heap.is_empty()
    }

    fn push(&mut self, timed: Timed) {
        // In order even when a caller's clock goes backwards.
        if timed.late || self.queue.back().is_some_and(|last| timed < *last) {
            self.heap.push(Reverse(timed));
        } else {
            self.queue.push_back(timed);
        }
    }

    /// The first frame that is due at `now`.
    fn pop(&mut self, now: Instant) -> Option<Packet> {
        let (queued, heaped) = (self.queue.front(), self.heap.peek().map(|next| &next.0));
        let from_heap = match (queued, heaped) {
            (Some(queued), Some(heaped)) => heaped < queued,
            (queued, _) => queued.is_none(),
        };
        let next = if from_heap { heaped } else { queued };
        if next?.due > now {
            return None;
        }
        if from_heap {
            self.heap.pop().map(|timed| timed.0.packet)
        } else {
            self.queue.pop_front().map(|timed| timed.packet)
        }
    }

    fn next_due(&self) -> Instant {
        let queued = self.queue.front().map_or(Instant::FAR, |timed| timed.due);
        let heaped = self.heap.peek().map_or(Instant::FAR, |timed| timed.0.due);
        queued.min(heaped)
    }
}
