//! A place that frames pass: the ends of the taps that look at it.

use std::{io, sync::Arc, time::Duration};

use percore::{
    lock::{Mutex, mutex},
    ring::{Consumer, Producer, ring},
    slab::Slab,
    snapshot::View,
};
use proto::time::Instant;

use super::{
    COUNTERS, DROPPED_BUFFERS, DROPPED_FULL, Filter, MATCHED, Record, SEEN, State, TAKEN, Way,
};
use crate::{limits, locks, packet::Packet};

/// The ends of a tap that its points have not yet taken; by point.
pub(super) type Ends = Vec<Mutex<Option<End>>>;

/// A point's end of a tap.
pub(super) struct End {
    ring: Producer<Record>,
    /// Buffers for copies, the smallest first.
    slabs: Vec<Slab>,
}

/// Ends for those points of queues of these links that are `wanted`, and the rings that come out of them.
///
/// # Errors
/// When there is no memory for them.
pub(super) fn ends(
    queues: &[u8],
    snap: usize,
    wanted: impl Fn(u8, Way) -> bool,
) -> io::Result<(Ends, Vec<Consumer<Record>>)> {
    let (mut ends, mut rings) = (Vec::new(), Vec::new());
    for &link in queues {
        for way in [Way::In, Way::Out] {
            let end = if wanted(link, way) {
                let (producer, consumer) = ring(limits::TAP_RECORDS);
                rings.push(consumer);
                Some(End {
                    ring: producer,
                    slabs: slabs(snap)?,
                })
            } else {
                None
            };
            ends.push(mutex(&locks::TAP, end));
        }
    }
    Ok((ends, rings))
}

/// Few frames are long: most buffers are small.
fn slabs(longest: usize) -> io::Result<Vec<Slab>> {
    let mut slabs = Vec::new();
    for (buffers, size) in limits::TAP_BUFFERS {
        let size = size.min(longest.next_multiple_of(64));
        slabs.push(Slab::with_ready(buffers, size, 0)?);
        if size >= longest {
            break;
        }
    }
    Ok(slabs)
}

/// What looks at a point.
struct Attached {
    tap: Arc<State>,
    filter: View<Filter>,
    end: End,
    /// Copies of frames that the link has not yet taken, with their places in the burst.
    pending: Vec<(usize, Copied)>,
}

/// A point of a link, in the hands of the half that it belongs to.
pub(crate) struct Point {
    list: View<Vec<Arc<State>>>,
    link: u8,
    /// Its slot among the ends and counters of each tap.
    slot: usize,
    way: Way,
    attached: Vec<Attached>,
}

impl Point {
    pub(super) fn new(list: View<Vec<Arc<State>>>, link: u8, queue: u8, way: Way) -> Self {
        Self {
            list,
            link,
            slot: usize::from(queue) * 2 + usize::from(way == Way::Out),
            way,
            attached: Vec::new(),
        }
    }

    /// Whether a tap looks at what passes now: asked once a burst.
    #[inline(always)]
    pub fn is_watched(&mut self) -> bool {
        if self.list.refresh().is_some() {
            self.follow();
        }
        !self.attached.is_empty()
    }

    /// Taps have come or gone.
    #[cold]
    #[inline(never)]
    fn follow(&mut self) {
        let index = self.slot;
        let list = &*self.list;
        self.attached
            .retain(|here| list.iter().any(|tap| tap.id == here.tap.id));
        for tap in list {
            // It is there for one point, once. A tap that was attached before this point began has ends, too.
            let Some(end) = tap.ends.get(index).and_then(|end| end.lock().take()) else {
                continue;
            };
            self.attached.push(Attached {
                filter: tap.filter.view(),
                tap: tap.clone(),
                end,
                pending: Vec::with_capacity(limits::TAP_BURST),
            });
        }
    }

    /// Shows a received burst to the taps.
    #[cold]
    #[inline(never)]
    pub fn see<'a>(&mut self, frames: impl Iterator<Item = &'a Packet> + Clone, now: Instant) {
        let (link, way) = (self.link, self.way);
        for here in &mut self.attached {
            here.filter.refresh();
            let mut count = [0; COUNTERS];
            for frame in frames.clone() {
                count[SEEN] += 1;
                if let Some(copy) = here.copy(frame, link, way, now) {
                    here.end.put(copy, &mut count);
                }
            }
            here.publish(&count, self.slot);
        }
    }

    /// Copies frames that the link is about to be given, at most [`limits::TAP_BURST`]. [`Self::sent`] says how many it took.
    #[cold]
    #[inline(never)]
    pub fn offer<'a>(&mut self, frames: impl Iterator<Item = &'a Packet> + Clone, now: Instant) {
        let (link, way) = (self.link, self.way);
        for here in &mut self.attached {
            here.filter.refresh();
            for (place, frame) in frames.clone().take(limits::TAP_BURST).enumerate() {
                if let Some(copy) = here.copy(frame, link, way, now) {
                    here.pending.push((place, copy));
                }
            }
        }
    }

    /// The link took the first `n` of what was offered; the others are offered again.
    #[cold]
    #[inline(never)]
    pub fn sent(&mut self, n: usize) {
        for here in &mut self.attached {
            let mut count = [0; COUNTERS];
            count[SEEN] = n as u64;
            for (_, copy) in here.pending.drain(..).filter(|(place, _)| *place < n) {
                here.end.put(copy, &mut count);
            }
            here.publish(&count, self.slot);
        }
    }
}

/// A copy of a frame that passed a filter; `None`: no buffer was left for it.
type Copied = Option<Record>;

impl Attached {
    /// `None`: the frame does not pass.
    fn copy(&mut self, frame: &Packet, link: u8, way: Way, now: Instant) -> Option<Copied> {
        let bytes = frame.bytes();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let wanted = self.filter.run(bytes, length) as usize;
        if wanted == 0 {
            return None;
        }
        let kept = bytes.get(..wanted.min(self.tap.snap)).unwrap_or(bytes);
        let fitting = self
            .end
            .slabs
            .iter_mut()
            .filter(|slab| slab.buffer_size() >= kept.len());
        let Some(buffer) = fitting.into_iter().find_map(Slab::alloc) else {
            return Some(None);
        };
        let mut packet = Packet::new(buffer, 0);
        if let Some(room) = packet.room_mut().get_mut(..kept.len()) {
            room.copy_from_slice(kept);
        }
        packet.set_len(kept.len());
        Some(Some(Record {
            packet,
            at: now,
            time: Duration::ZERO,
            length,
            link,
            way,
            segment: frame.meta.segment,
        }))
    }

    fn publish(&mut self, count: &[u64; COUNTERS], slot: usize) {
        for (index, &n) in count.iter().enumerate().filter(|(_, n)| **n > 0) {
            self.tap.counters.add(slot, index, n);
        }
        // Behind the counters: a reader never has more than is counted.
        self.end.ring.publish();
    }
}

impl End {
    fn put(&mut self, copy: Copied, count: &mut [u64; COUNTERS]) {
        count[MATCHED] += 1;
        let outcome = match copy.map(|record| self.ring.stage(record)) {
            Some(Ok(())) => TAKEN,
            Some(Err(_)) => DROPPED_FULL,
            None => DROPPED_BUFFERS,
        };
        count[outcome] += 1;
    }
}
