//! A place that frames pass, or that drops them: the ends of the taps that look at it, and of what is written into it.

use std::{cell::Cell, io, sync::Arc, time::Duration};

use percore::{
    lock::{Mutex, mutex},
    ring::{Consumer, Producer, ring},
    slab::Slab,
    snapshot::View,
};
use proto::time::Instant;

use super::{
    Begins, COUNTERS, DROPPED_BUFFERS, DROPPED_FULL, Filter, List, MATCHED, Note, Reason, Record,
    SEEN, State, Subject, TAKEN, Way, frame::frame_of, writer::Written,
};
use crate::{counters::Counter, limits, locks, packet::Packet, sys};

/// Whether there is code for taps at all. Measurements leave it out to see what taps cost where there are none.
const TAPS: bool = !cfg!(feature = "without-taps");

/// Where a point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a link, where frames go this way.
    Link(u8, Way),
    /// In a shard.
    Shard(usize),
}

/// The ends of a tap that its points have not yet taken; by point.
pub(super) type Ends = Vec<Mutex<Option<End>>>;

/// A point's end of a tap.
pub(super) struct End {
    ring: Producer<Record>,
    /// Buffers for copies, the smallest first.
    slabs: Vec<Slab>,
}

/// Ends for those points that are `wanted`, and the rings that come out of them.
///
/// # Errors
/// When there is no memory for them.
pub(super) fn ends(wanted: &[bool], snap: usize) -> io::Result<(Ends, Vec<Consumer<Record>>)> {
    let (mut ends, mut rings) = (Vec::new(), Vec::new());
    let points = wanted.iter().filter(|wanted| **wanted).count();
    // Of many points few are busy.
    let share = if points > limits::TAP_POINTS { 8 } else { 1 };
    for is_wanted in wanted {
        let end = if *is_wanted {
            let (producer, consumer) = ring(limits::TAP_RECORDS / share);
            rings.push(consumer);
            Some(End {
                ring: producer,
                slabs: slabs(snap, share)?,
            })
        } else {
            None
        };
        ends.push(mutex(&locks::TAP, end));
    }
    Ok((ends, rings))
}

/// Few frames are long: most buffers are small.
fn slabs(longest: usize, share: usize) -> io::Result<Vec<Slab>> {
    let mut slabs = Vec::new();
    for (buffers, size) in limits::TAP_BUFFERS {
        let size = size.min(longest.next_multiple_of(64));
        slabs.push(Slab::with_ready(buffers / share, size, 0)?);
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
    /// Copies of frames that the link has not yet taken, or of which is not known yet what becomes of them, with their places in the burst.
    pending: Vec<(usize, Copied)>,
}

/// What is known of frames beside their bytes.
#[derive(Clone, Copy)]
struct Known {
    link: u8,
    way: Way,
    now: Instant,
    segment: u16,
    note: Note,
}

/// Reasons for which the packet in a shard's hands is dropped: of a datagram for several sockets there are several.
const REASONS: usize = 4;

/// A point, in the hands of the half or the shard that it belongs to.
pub(crate) struct Point {
    list: View<List>,
    place: Place,
    /// Its slot among the ends and counters of each tap.
    slot: usize,
    /// Taps that look at what passes.
    attached: Vec<Attached>,
    /// Taps that look at what is dropped.
    droppers: Vec<Attached>,
    /// What is written into it, by number.
    written: Vec<(u64, Consumer<Written>)>,
    /// A frame that was put together to be looked at.
    frame: Vec<u8>,
    /// A tap asks what becomes of the frames of this link, or which are those of this shard.
    asks: bool,
    /// What became of the frames of the burst that was seen last.
    fates: Vec<Note>,
    /// The length of the frame whose beginning `frame` keeps, until a shard is through with its packet; 0: none.
    kept: u32,
    /// Why that packet was dropped. (A cell: what counts a drop need not be able to change the shard.)
    reasons: Cell<[Reason; REASONS]>,
}

impl Point {
    pub(super) fn new(list: View<List>, place: Place, slot: usize) -> Self {
        Self {
            list,
            place,
            slot,
            attached: Vec::new(),
            droppers: Vec::new(),
            written: Vec::new(),
            frame: Vec::new(),
            asks: false,
            fates: Vec::new(),
            kept: 0,
            reasons: Cell::default(),
        }
    }

    /// Whether a tap looks at what passes now, or something is written: asked once a burst.
    #[inline(always)]
    pub fn is_watched(&mut self) -> bool {
        self.refresh();
        TAPS && (!self.attached.is_empty() || !self.written.is_empty())
    }

    /// Looks whether taps have come or gone.
    #[inline(always)]
    pub fn refresh(&mut self) {
        if TAPS && self.list.refresh().is_some() {
            self.follow();
        }
    }

    /// Whether a tap looked at anything here at the last [`Self::refresh`].
    #[inline(always)]
    pub const fn has_taps(&self) -> bool {
        TAPS && (!self.attached.is_empty() || !self.droppers.is_empty())
    }

    /// Whether a tap asks what becomes of what this link receives ([`Self::judge`]), or which frames are this shard's ([`Meta::sender`](crate::packet::Meta::sender)).
    #[inline(always)]
    pub const fn asks(&self) -> bool {
        TAPS && self.asks
    }

    /// Whether a tap looks at what is dropped. For links, where a packet is dropped.
    #[inline]
    pub fn watches_drops(&mut self) -> bool {
        self.refresh();
        TAPS && !self.droppers.is_empty()
    }

    /// Taps have come or gone.
    #[cold]
    #[inline(never)]
    fn follow(&mut self) {
        let (index, list) = (self.slot, &*self.list);
        let is_listed = |here: &Attached| list.taps.iter().any(|tap| tap.id == here.tap.id);
        self.attached.retain(is_listed);
        self.droppers.retain(is_listed);
        for tap in &list.taps {
            // It is there for one point, once. A tap that was attached before this point began has ends, too.
            let Some(end) = tap.ends.get(index).and_then(|end| end.lock().take()) else {
                continue;
            };
            let attached = Attached {
                filter: tap.filter.view(),
                tap: tap.clone(),
                end,
                pending: Vec::with_capacity(limits::TAP_BURST),
            };
            match tap.subject {
                Subject::Drops => self.droppers.push(attached),
                _ => self.attached.push(attached),
            }
        }
        self.asks = match self.place {
            Place::Link(..) => self.attached.iter().any(|here| here.tap.verdicts),
            // Those of the links that it sends by.
            Place::Shard(_) => list.taps.iter().any(|tap| {
                tap.verdicts && tap.subject == Subject::Links && tap.way != Some(Way::In)
            }),
        };
        (self.written).retain(|(id, _)| list.pipes.iter().any(|pipe| pipe.id == *id));
        for pipe in &list.pipes {
            if let Some(end) = pipe.end_for(self.slot) {
                self.written.push((pipe.id, end));
            }
        }
    }

    /// What is known of all that passes here now.
    fn known(&self, now: Instant) -> Known {
        let (link, way, shard) = match self.place {
            Place::Link(link, way) => (link, way, None),
            Place::Shard(number) => (0, Way::In, u8::try_from(number).ok()),
        };
        let note = Note {
            shard,
            core: sys::processor(),
            ..Note::default()
        };
        Known {
            link,
            way,
            now,
            segment: 0,
            note,
        }
    }

    /// Takes up to `most` frames that were written for this point's link.
    #[cold]
    #[inline(never)]
    pub fn take_written(&mut self, most: usize, mut take: impl FnMut(Written)) {
        let mut left = most;
        for (_, end) in &mut self.written {
            left -= end.pop_batch(left, &mut take);
        }
    }

    /// Shows a received burst to the taps. Those that ask what becomes of it get it with [`Self::settle`].
    #[cold]
    #[inline(never)]
    pub fn see<'a>(&mut self, frames: impl Iterator<Item = &'a Packet> + Clone, now: Instant) {
        let known = self.known(now);
        for here in &mut self.attached {
            here.filter.refresh();
            let mut count = [0; COUNTERS];
            for (place, frame) in frames.clone().enumerate() {
                count[SEEN] += 1;
                match here.copy_of(frame, known) {
                    Some(copy) if here.tap.verdicts => here.pending.push((place, copy)),
                    Some(copy) => here.end.put(copy, &mut count),
                    None => {}
                }
            }
            here.publish(&count, self.slot);
        }
    }

    /// Shows the taps a packet that was on no link: one that a program of this host sends to another one. `fate`: what becomes of it.
    #[cold]
    #[inline(never)]
    pub fn see_returned(&mut self, packet: &Packet, fate: Note, now: Instant) {
        let most = most_of(&self.attached);
        let Some(length) = frame_of(packet, Begins::Own, most, &mut self.frame) else {
            return;
        };
        let mut known = self.known(now);
        known.segment = packet.meta.segment;
        if self.asks {
            let core = known.note.core;
            known.note = Note { core, ..fate };
        }
        show(&mut self.attached, &self.frame, length, known, self.slot);
    }

    /// What becomes of the next frame of the burst that was seen last.
    #[cold]
    pub fn judge(&mut self, fate: Note) {
        self.fates.push(fate);
    }

    /// The burst is judged: those that asked get their copies.
    #[cold]
    #[inline(never)]
    pub fn settle(&mut self) {
        for here in &mut self.attached {
            let mut count = [0; COUNTERS];
            for (place, mut copy) in here.pending.drain(..) {
                if let (Some(record), Some(fate)) = (&mut copy, self.fates.get(place)) {
                    let core = record.note.core;
                    record.note = Note { core, ..*fate };
                }
                here.end.put(copy, &mut count);
            }
            here.publish(&count, self.slot);
        }
        self.fates.clear();
    }

    /// Copies frames that the link is about to be given, at most [`limits::TAP_BURST`]. [`Self::sent`] says how many it took.
    #[cold]
    #[inline(never)]
    pub fn offer<'a>(&mut self, frames: impl Iterator<Item = &'a Packet> + Clone, now: Instant) {
        let known = self.known(now);
        for here in &mut self.attached {
            here.filter.refresh();
            for (place, frame) in frames.clone().take(limits::TAP_BURST).enumerate() {
                let mut known = known;
                if here.tap.verdicts {
                    known.note.shard = frame.meta.sender();
                }
                if let Some(copy) = here.copy_of(frame, known) {
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

    /// Shows the taps a packet that a link drops.
    #[cold]
    #[inline(never)]
    pub fn lost(&mut self, reason: Reason, packet: &Packet, begins: Begins, now: Instant) {
        let most = most_of(&self.droppers);
        let Some(length) = frame_of(packet, begins, most, &mut self.frame) else {
            return;
        };
        let mut known = self.known(now);
        known.note.reason = reason;
        known.segment = packet.meta.segment;
        if begins == Begins::Network {
            known.way = Way::In; // though it is the half that transmits which drops it
        }
        show(&mut self.droppers, &self.frame, length, known, self.slot);
    }

    /// A shard takes a packet that came by a link, or is about to send it by one: shows it to the taps. What is taken is kept for those that look at drops, until
    /// [`Self::is_through`].
    #[cold]
    #[inline(never)]
    pub fn pass(&mut self, packet: &Packet, (link, way): (u8, Way), now: Instant) {
        let begins = match way {
            Way::In => Begins::Network,
            Way::Out => Begins::Own,
        };
        let most = most_of(&self.attached).max(match way {
            Way::In => most_of(&self.droppers).min(limits::TAP_DROPPED),
            Way::Out => 0,
        });
        let Some(length) = frame_of(packet, begins, most, &mut self.frame) else {
            return;
        };
        let known = Known {
            link,
            way,
            segment: packet.meta.segment,
            ..self.known(now)
        };
        for here in &mut self.attached {
            let is_its = match here.tap.subject {
                Subject::Socket(flow) => flow.has(packet.bytes(), way),
                _ => true,
            };
            if is_its && here.admits(known) {
                here.show(&self.frame, length, known, self.slot);
            }
        }
        if way == Way::In && !self.droppers.is_empty() {
            self.kept = length;
            self.reasons.set([Reason::NONE; REASONS]);
        }
    }

    /// The packet in the shard's hands is dropped.
    #[inline]
    pub fn note_drop(&self, counter: Counter) {
        if self.kept > 0 {
            self.keep_reason(counter);
        }
    }

    #[cold]
    fn keep_reason(&self, counter: Counter) {
        let mut reasons = self.reasons.get();
        if let Some(free) = reasons.iter_mut().find(|reason| **reason == Reason::NONE) {
            *free = Reason::counted(counter);
        }
        self.reasons.set(reasons);
    }

    /// The shard is through with the packet that it took last, which came by `link`: if it was dropped, the taps see it.
    #[cold]
    #[inline(never)]
    pub fn is_through(&mut self, link: u8, now: Instant) {
        let length = std::mem::take(&mut self.kept);
        let reasons = self.reasons.get();
        let noted = reasons.iter().filter(|reason| **reason != Reason::NONE);
        for &reason in noted.take_while(|_| length > 0) {
            let mut known = Known {
                link,
                ..self.known(now)
            };
            known.note.reason = reason;
            let most = self.frame.len().min(limits::TAP_DROPPED);
            let kept = self.frame.get(..most).unwrap_or_default();
            show(&mut self.droppers, kept, length, known, self.slot);
        }
    }
}

/// The most bytes that one of these keeps of a frame.
fn most_of(attached: &[Attached]) -> usize {
    let most = attached.iter().map(|here| here.tap.snap).max();
    most.unwrap_or(0)
}

/// Shows a frame to those that look at its link and way.
fn show(droppers: &mut [Attached], bytes: &[u8], length: u32, known: Known, slot: usize) {
    for here in droppers.iter_mut().filter(|here| here.admits(known)) {
        here.show(bytes, length, known, slot);
    }
}

/// A copy of a frame that passed a filter; `None`: no buffer was left for it.
type Copied = Option<Record>;

impl Attached {
    /// Whether it looks at what came this way, by this link.
    fn admits(&self, known: Known) -> bool {
        let (link, way) = (self.tap.link, self.tap.way);
        link.is_none_or(|link| link == known.link) && way.is_none_or(|way| way == known.way)
    }

    fn copy_of(&mut self, frame: &Packet, known: Known) -> Option<Copied> {
        let bytes = frame.bytes();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let segment = frame.meta.segment;
        self.copy(bytes, length, Known { segment, ..known })
    }

    /// Shows it one frame, at once.
    fn show(&mut self, bytes: &[u8], length: u32, known: Known, slot: usize) {
        self.filter.refresh();
        let mut count = [0; COUNTERS];
        count[SEEN] = 1;
        if let Some(copy) = self.copy(bytes, length, known) {
            self.end.put(copy, &mut count);
        }
        self.publish(&count, slot);
    }

    /// `None`: the frame does not pass.
    fn copy(&mut self, bytes: &[u8], length: u32, known: Known) -> Option<Copied> {
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
        let Known {
            link,
            way,
            now,
            segment,
            note,
        } = known;
        Some(Some(Record {
            packet,
            at: now,
            time: Duration::ZERO,
            length,
            link,
            way,
            segment,
            note,
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
