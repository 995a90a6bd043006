//! Where pipes lie, and their ends.

use super::{
    handshake,
    room::{self, WAITS},
};
use crate::{
    own::Own,
    region::{MapError, Region, whole_pages},
    ring::{ByteConsumer, ByteProducer, Layout},
};
use std::{
    fmt, io,
    ops::Range,
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use crate::edge::Which;

/// Bytes that what one side writes has to itself.
const LINE: usize = 128;
/// Where each side counts, where it says that it holds the other one back, and where it stands that a process has mapped it.
const POSTS: usize = 0;
const HOLDS: usize = 2 * LINE;
const TAKEN: usize = 4 * LINE;
/// Where the slots' lines begin: one of each side for each slot.
const SLOTS: usize = 5 * LINE;

/// In a slot's line: the handshake's word, what the side says of the text that it sends, where that begins, and the label.
const STATE: usize = 0;
const FLAGS: usize = 4;
const START: usize = 8;
const LABEL_AT: usize = 16;
/// In the line of [`POSTS`], behind the count of all: that of offers, and what the last [`LOG`] posts were about, a word each.
const OFFERS: usize = 4;
const LOG_AT: usize = LINE / 2;
/// Of so many posts it can be told what they were about ([`Pipes::posted`]).
pub const LOG: u32 = 16;
/// Such a word: the post's number but for its first bits, and in the last bits the slot.
const SLOT_BITS: u32 = 11;
/// In the place of a slot: several, or something else.
const NO_SLOT: u32 = (1 << SLOT_BITS) - 1;

/// The side has begun to send, from [`START`] on.
const BEGUN: u32 = 1;
/// It sends no more.
const ENDED: u32 = 1 << 1;

/// A ring that was read as it was written goes on at its beginning after so many bytes: less than a cache of the first level holds, for both directions.
const RESTART: usize = 8 << 10;

/// Most slots, and bytes of a ring.
const SLOTS_MAX: u32 = 1024;
const BYTES_MAX: u32 = 1 << 22;
/// Least bytes of a ring.
const BYTES_MIN: u32 = 4096;

/// Bytes of a label.
pub const LABEL: usize = 8 * WORDS;
const WORDS: usize = 8;

/// Which stream is offered, as the two sides understand it.
pub type Label = [u8; LABEL];

/// How many streams, and how large their rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipesLayout {
    slots: u32,
    bytes: u32,
}

impl PipesLayout {
    /// `slots` streams (an even number, at most 1,024; half of them are each side's to offer) with rings of `bytes` bytes (a power of two, 4 KiB to 4 MiB).
    /// `None` for other numbers.
    pub fn new(slots: u32, bytes: u32) -> Option<Self> {
        let fits = (2..=SLOTS_MAX).contains(&slots)
            && slots.is_multiple_of(2)
            && (BYTES_MIN..=BYTES_MAX).contains(&bytes)
            && bytes.is_power_of_two();
        fits.then_some(Self { slots, bytes })
    }

    /// How many streams there can be at a time.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of a ring.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Bytes that a ring takes.
    fn ring(self) -> usize {
        let layout = Layout::of::<u8>(self.bytes as usize); // widening: u32 to usize, as everywhere here
        layout.map_or(0, |layout| layout.bytes())
    }

    /// Bytes from one ring to the next.
    fn step(self) -> usize {
        self.ring().next_multiple_of(LINE)
    }

    /// Where the line of a slot lies that a side writes.
    fn line(self, slot: u32, side: Which) -> usize {
        SLOTS + (2 * slot as usize + place(side)) * LINE
    }

    /// Where the ring of a slot lies that a side writes.
    fn ring_at(self, slot: u32, side: Which) -> usize {
        SLOTS + 2 * self.slots as usize * LINE + (2 * slot as usize + place(side)) * self.step()
    }

    pub(super) fn file_bytes(self) -> usize {
        // At most 8 GiB: it does not overflow.
        whole_pages(self.ring_at(self.slots, Which::Maker)).unwrap_or(usize::MAX)
    }
}

/// Where the word of a post lies in its side's line.
const fn log_at(number: u32) -> usize {
    LOG_AT + size_of::<u32>() * (number % LOG) as usize // widening: u32 to usize
}

/// The word of a post.
const fn logged(number: u32, slot: u32) -> u32 {
    number << SLOT_BITS | slot
}

const fn place(side: Which) -> usize {
    match side {
        Which::Maker => 0,
        Which::Mapper => 1,
    }
}

const fn other(side: Which) -> Which {
    match side {
        Which::Maker => Which::Mapper,
        Which::Mapper => Which::Maker,
    }
}

/// What a look at a slot saw; of none yet: [`Look::default`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How much the other side has written, and how much taken: indices that wrap.
    written: usize,
    taken: usize,
    said: [u32; 2],
}

/// What the other side has said of the text that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Behind which other text it comes, once it has begun.
    pub start: Option<u32>,
    /// It sends no more: it has said so, or has let go of its end.
    pub is_finished: bool,
}

/// One side's view of the pipes between two processes.
pub struct Pipes {
    region: Region,
    layout: PipesLayout,
    side: Which,
    /// Slots of which this process has an end.
    claimed: Box<[AtomicBool]>,
}

// SAFETY: shared references lead to atomics, and to rings whose ends are made once each (`claimed`).
unsafe impl Sync for Pipes {}

impl fmt::Debug for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipes {{ {:?} of {:?} }}", self.side, self.layout)
    }
}

impl Pipes {
    /// The file of new pipes, for two other processes to map. It takes memory as it is written.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn between(layout: PipesLayout) -> io::Result<Own> {
        let (_, file) = Region::shared(layout.file_bytes(), 0)?;
        Ok(file)
    }

    /// Maps a side, once. `file` is not needed afterwards.
    ///
    /// # Errors
    /// The file is not sealed, not of memory, or not of the layout's size; a process has mapped that side before; mmap(2)'s.
    pub fn map(file: impl AsFd, layout: PipesLayout, side: Which) -> Result<Self, MapError> {
        let region = Region::borrowed(file, layout.file_bytes())?;
        let claimed = (0..layout.slots).map(|_| AtomicBool::new(false)).collect();
        let pipes = Self {
            region,
            layout,
            side,
            claimed,
        };
        let taken = pipes.word(TAKEN + place(side) * size_of::<AtomicU32>());
        // Relaxed: nothing else is told by it.
        if taken.swap(1, Ordering::Relaxed) != 0 {
            return Err(MapError::Taken);
        }
        Ok(pipes)
    }

    /// What it was mapped by.
    pub fn layout(&self) -> PipesLayout {
        self.layout
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: a place of the layout, which is mapped whole.
        unsafe { self.region.base().add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in the mapping, which stays as long as `self`; aligned, as all places of words are; code of this process uses it as this atomic only.
        unsafe { self.at(offset).cast().as_ref() }
    }

    pub(super) fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.at(offset).cast().as_ref() }
    }

    /// The published index of the writer of a ring that a side writes, its first word, or that of the reader, a line behind it.
    fn index(&self, slot: u32, side: Which, line: usize) -> &AtomicUsize {
        let at = self.layout.ring_at(slot, side) + line;
        // SAFETY: as above; a ring's ends use it as this atomic, too.
        unsafe { self.at(at).cast().as_ref() }
    }

    /// Says that there is something for the other side in `slot`; `None`: anywhere. Its doorbell is to be rung after this.
    #[inline]
    pub fn post(&self, slot: Option<u32>) {
        let line = POSTS + place(self.side) * LINE;
        // Release pairs with Acquire in `posts`: a side that sees the count sees what it is about. Several threads of this process may count.
        let number = self
            .word(line)
            .fetch_add(1, Ordering::Release)
            .wrapping_add(1);
        // Relaxed: with the next count of this thread's it is seen. Before that, the other side looks everywhere.
        let word = self.word(line + log_at(number));
        word.store(logged(number, slot.unwrap_or(NO_SLOT)), Ordering::Relaxed);
    }

    /// Which slot the other side's post with this number was about. `None`: it cannot be told (any more), or was not about one alone.
    #[inline]
    pub fn posted(&self, number: u32) -> Option<u32> {
        let line = POSTS + place(other(self.side)) * LINE;
        let word = self.word(line + log_at(number)).load(Ordering::Relaxed);
        let slot = word & NO_SLOT;
        (word == logged(number, slot) && slot < self.layout.slots).then_some(slot)
    }

    /// How often the other side has said so; wraps.
    #[inline]
    pub fn posts(&self) -> u32 {
        let word = self.word(POSTS + place(other(self.side)) * LINE);
        word.load(Ordering::Acquire) // pairs with Release in `post`
    }

    /// How often the other side has offered a stream; wraps.
    pub fn offers(&self) -> u32 {
        let word = self.word(POSTS + place(other(self.side)) * LINE + OFFERS);
        word.load(Ordering::Acquire) // pairs with Release in `offer`
    }

    /// Asks the other side to send nothing more, or no longer asks it.
    pub fn hold(&self, is_held: bool) {
        let word = self.word(HOLDS + place(self.side) * LINE);
        word.store(is_held.into(), Ordering::Release); // pairs with Acquire in `is_held`
    }

    /// Whether the other side asks that nothing more be sent.
    #[inline]
    pub fn is_held(&self) -> bool {
        let word = self.word(HOLDS + place(other(self.side)) * LINE);
        word.load(Ordering::Acquire) != 0 // pairs with Release in `hold`
    }

    /// The slots in which this side offers.
    fn own_slots(&self) -> Range<u32> {
        self.slots_of(self.side)
    }

    /// Those in which the other side does.
    pub fn far_slots(&self) -> Range<u32> {
        self.slots_of(other(self.side))
    }

    fn slots_of(&self, side: Which) -> Range<u32> {
        let half = self.layout.slots / 2;
        match side {
            Which::Maker => 0..half,
            Which::Mapper => half..self.layout.slots,
        }
    }

    fn state(&self, slot: u32, side: Which) -> &AtomicU32 {
        self.word(self.layout.line(slot, side) + STATE)
    }

    /// What the other side has done in a slot since a look whose answer was `before`, if this side has not seen it yet: text that it has written and that
    /// was not read, room that it has made and that is waited for, what it has said. `None`: nothing.
    #[inline]
    pub fn look(&self, slot: u32, before: &Look) -> Option<Look> {
        if slot >= self.layout.slots {
            return None;
        }
        let (near, far) = (self.side, other(self.side));
        // Relaxed, here and below: hints; what reads or writes the ring looks again.
        let index = |side, line| self.index(slot, side, line).load(Ordering::Relaxed);
        let word = |side, at| {
            let word = self.word(self.layout.line(slot, side) + at);
            word.load(Ordering::Relaxed)
        };
        let now = Look {
            written: index(far, 0),
            taken: index(near, LINE),
            said: [word(far, STATE), word(far, FLAGS)],
        };
        let is_unread = now.written != before.written && now.written != index(far, LINE);
        let is_awaited = now.taken != before.taken && word(near, FLAGS) & WAITS != 0;
        (is_unread || is_awaited || now.said != before.said).then_some(now)
    }

    /// Offers a stream; `None`: all slots are in use. The other side hears of it with the next [`post`](Self::post).
    pub fn offer(self: &Arc<Self>, label: &Label) -> Option<End> {
        self.own_slots().find_map(|slot| {
            let far = self.state(slot, other(self.side));
            let claim = self.claim(slot)?;
            let own = self.state(slot, self.side);
            let generation = handshake::next(own, far)?;
            for side in [Which::Maker, Which::Mapper] {
                self.clear_ring(slot, side);
            }
            let line = self.layout.line(slot, self.side);
            let (words, _) = label.as_chunks();
            for (n, word) in words.iter().enumerate() {
                let place = self.word64(line + LABEL_AT + n * size_of::<u64>());
                // Relaxed, and below: the handshake's word is written behind it.
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
            let end = self.end(slot, generation, claim)?;
            handshake::offer(own, generation);
            let offers = self.word(POSTS + place(self.side) * LINE + OFFERS);
            offers.fetch_add(1, Ordering::Release); // pairs with Acquire in `offers`
            Some(end)
        })
    }

    /// The stream that the other side offers in a slot of its own, and that nothing here has answered; what it is called by [`accept`](Self::accept), and
    /// its label, a copy.
    pub fn offered(&self, slot: u32) -> Option<(u32, Label)> {
        if !self.far_slots().contains(&slot) || self.is_claimed(slot) {
            return None;
        }
        let generation = handshake::offered(self.state(slot, other(self.side)))?;
        if handshake::is_answered(self.state(slot, self.side), generation) {
            return None;
        }
        let line = self.layout.line(slot, other(self.side));
        let mut label = [0; LABEL];
        let (words, _) = label.as_chunks_mut();
        for (n, word) in words.iter_mut().enumerate() {
            let place = self.word64(line + LABEL_AT + n * size_of::<u64>());
            *word = place.load(Ordering::Relaxed).to_ne_bytes(); // behind the handshake's word
        }
        Some((generation, label))
    }

    /// Accepts a stream that the other side offers; `None`: it does not any more. It hears of it with the next [`post`](Self::post).
    pub fn accept(self: &Arc<Self>, slot: u32, generation: u32) -> Option<End> {
        if !self.far_slots().contains(&slot) {
            return None;
        }
        let claim = self.claim(slot)?;
        let (own, far) = (
            self.state(slot, self.side),
            self.state(slot, other(self.side)),
        );
        // What this side has sent there, and let go of, may still be read.
        if handshake::is_answered(own, generation) {
            return None;
        }
        // The flags first: the other side reads them once it is accepted.
        self.clear_flags(slot);
        if !handshake::accept(own, far, generation) {
            return None;
        }
        self.end(slot, generation, claim)
    }

    fn clear_ring(&self, slot: u32, side: Which) {
        self.clear_flags(slot);
        let at = self.layout.ring_at(slot, side);
        // A ring's header: two lines with an index, a word that says that the end is gone, and an index again.
        for line in [0, LINE] {
            for word in 0..3 {
                let word = self.word64(at + line + word * size_of::<u64>());
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    fn clear_flags(&self, slot: u32) {
        let line = self.layout.line(slot, self.side);
        self.word(line + FLAGS).store(0, Ordering::Relaxed);
        self.word(line + START).store(0, Ordering::Relaxed);
    }

    fn is_claimed(&self, slot: u32) -> bool {
        let claimed = self.claimed.get(slot as usize);
        claimed.is_none_or(|claimed| claimed.load(Ordering::Relaxed))
    }

    /// Claims a slot for one end in this process.
    fn claim(self: &Arc<Self>, slot: u32) -> Option<Claim> {
        let claimed = self.claimed.get(slot as usize)?;
        // Acquire pairs with Release in `Claim::drop`: the ends that were there are gone.
        let before = claimed.swap(true, Ordering::Acquire);
        (!before).then(|| Claim {
            pipes: self.clone(),
            slot,
            generation: None,
        })
    }

    /// This side's end of a stream, in a slot that it has claimed.
    fn end(&self, slot: u32, generation: u32, mut claim: Claim) -> Option<End> {
        let ring = |side| {
            let start = self.at(self.layout.ring_at(slot, side));
            NonNull::slice_from_raw_parts(start, self.layout.ring())
        };
        let bytes = self.layout.bytes as usize;
        claim.generation = Some(generation);
        // SAFETY: in the mapping, which stays as long as the claim, and cannot be shortened; zero when the offering side wrote its offer; the claim keeps
        // each end the only one of its kind in this process, and what another one writes is a foreign process's doing.
        let writer = unsafe { ByteProducer::from_raw(ring(self.side), bytes) };
        // SAFETY: as above.
        let reader = unsafe { ByteConsumer::from_raw(ring(other(self.side)), bytes) };
        Some(End {
            writer: writer.ok()?,
            reader: reader.ok()?,
            flags: 0,
            is_staged: false,
            claim,
        })
    }
}

/// A slot that this process has an end of. The other side learns when it has it no more.
#[derive(Debug)]
struct Claim {
    pipes: Arc<Pipes>,
    slot: u32,
    /// Of the stream, once there is one.
    generation: Option<u32>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let pipes = &self.pipes;
        if let Some(generation) = self.generation {
            handshake::let_go(pipes.state(self.slot, pipes.side), generation);
        }
        if let Some(claimed) = pipes.claimed.get(self.slot as usize) {
            claimed.store(false, Ordering::Release); // pairs with Acquire in `claim`
        }
    }
}

/// This side's end of a stream. Dropped, it lets go of it; what it sent can still be read.
#[derive(Debug)]
pub struct End {
    writer: ByteProducer,
    reader: ByteConsumer,
    /// What we have said of the text that we send.
    flags: u32,
    /// Text was written, and not published yet.
    is_staged: bool,
    /// Last: the rings' ends write when they are dropped, and the slot is free after it.
    claim: Claim,
}

impl End {
    /// Its slot.
    #[inline]
    pub const fn slot(&self) -> u32 {
        self.claim.slot
    }

    /// The pipes that it is of.
    #[inline]
    pub const fn pipes(&self) -> &Arc<Pipes> {
        &self.claim.pipes
    }

    #[inline]
    fn far_line(&self) -> usize {
        let pipes = self.pipes();
        pipes.layout.line(self.slot(), other(pipes.side))
    }

    #[inline]
    fn far_state(&self) -> &AtomicU32 {
        let pipes = self.pipes();
        pipes.state(self.slot(), other(pipes.side))
    }

    /// Whether the other side has an end of it; `None`: it never had.
    #[inline]
    fn accepted(&self) -> Option<bool> {
        handshake::accepted(self.far_state(), self.claim.generation?)
    }

    /// Whether the other side has an end of it, too: of a stream that it was offered, or that it has offered.
    #[inline]
    pub fn is_met(&self) -> bool {
        self.accepted() == Some(true)
    }

    fn say(&mut self, flags: u32) {
        self.flags = flags;
        let word = self.own_flags();
        word.store(flags, Ordering::Release); // pairs with Acquire in `heard`
    }

    fn own_flags(&self) -> &AtomicU32 {
        let pipes = self.pipes();
        pipes.word(pipes.layout.line(self.slot(), pipes.side) + FLAGS)
    }

    #[inline]
    fn far_flags(&self) -> &AtomicU32 {
        self.pipes().word(self.far_line() + FLAGS)
    }

    /// Text is sent by it from now on; `start` says behind which other text.
    pub fn begin(&mut self, start: u32) {
        let pipes = self.pipes();
        let line = pipes.layout.line(self.slot(), pipes.side);
        pipes.word(line + START).store(start, Ordering::Relaxed); // the flags are written behind it
        self.say(self.flags | BEGUN);
    }

    /// No more text is sent by it.
    pub fn finish(&mut self) {
        self.say(self.flags | ENDED);
    }

    /// What the other side says of the text that it sends. What it sent before it said so is seen by the next look at the ring.
    #[inline]
    pub fn heard(&self) -> Heard {
        // As long as it has had no end, what stands there is of an earlier stream.
        let Some(is_met) = self.accepted() else {
            return Heard::default();
        };
        let flags = self.far_flags().load(Ordering::Acquire); // pairs with Release in `say`
        let start = || self.pipes().word(self.far_line() + START);
        Heard {
            start: (flags & BEGUN != 0).then(|| start().load(Ordering::Relaxed)), // written before the flags
            is_finished: flags & ENDED != 0 || !is_met,
        }
    }

    /// Asks to be told when there is room, until [`write`](Self::write) is called next; how much there is.
    pub fn ask_for_room(&mut self) -> usize {
        self.flags |= WAITS;
        room::ask(self.own_flags(), self.flags);
        self.writer.free()
    }

    /// Whether it has asked for that.
    pub const fn waits_for_room(&self) -> bool {
        self.flags & WAITS != 0
    }

    /// Writes as many of `bytes` as there is room for; how many. Seen with the next [`publish`](Self::publish).
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.flags & WAITS != 0 {
            self.say(self.flags & !WAITS);
        }
        if !self.is_staged {
            self.writer.restart(RESTART);
            self.is_staged = true;
        }
        self.writer.stage(bytes)
    }

    /// Shows what was written. [`Pipes::post`] is to follow.
    #[inline]
    pub fn publish(&mut self) {
        self.is_staged = false;
        self.writer.publish();
    }

    /// Bytes that can be written.
    #[inline]
    pub fn room(&self) -> usize {
        self.writer.free()
    }

    /// Bytes that were written, and that the other side has not taken.
    #[inline]
    pub fn unread(&self) -> usize {
        self.writer.capacity() - self.writer.free()
    }

    /// Bytes that can be read.
    #[inline]
    pub fn readable(&self) -> usize {
        self.reader.waiting()
    }

    /// Copies bytes from the `skip`th of them on, which stay; how many.
    #[inline]
    pub fn copy(&mut self, skip: usize, into: &mut [u8]) -> usize {
        self.reader.copy(skip, into)
    }

    /// Takes `n` bytes, or as many as there are. True: the other side waits for room, so [`Pipes::post`] is to follow.
    #[inline]
    pub fn take(&mut self, n: usize) -> bool {
        self.reader.discard(n);
        // Without an end on the other side, what stands there is of an earlier stream.
        room::is_awaited(self.far_flags()) && self.accepted().is_some()
    }

    /// Whether the other side ever wrote an index that it cannot have reached.
    #[inline]
    pub fn is_corrupt(&self) -> bool {
        self.writer.is_corrupt() || self.reader.is_corrupt()
    }
}
