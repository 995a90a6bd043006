//! Taps: copies of the frames that enter and leave links, for a capture.
//!
//! A link has two points, where frames come in and where they go out. Each point keeps the ends of the taps that look at it: a ring and memory of its own,
//! so that it shares no lock and no writable cache line with a reader or another point. Without a tap, a burst costs one load. A frame for which a
//! tap has no room is counted there and lost to that tap alone; the frame itself never waits. A reader is not woken: it looks when it likes.
//!
//! * Attached and detached through an epoch's list (`percore::snapshot`), which each point compares once a burst.
//! * Received frames are seen before anything else looks at them; sent ones when the link has taken them. What the kernel cuts and sums later (offload)
//!   is seen uncut and with a checksum of the pseudo header alone, as tcpdump sees it on a host; [`Record::segment`] tells.
//! * What a stack sends to itself is on no link, so no tap of links sees it.
//! * A merged frame (receive offload) is seen as the kernel merged it.
//!
//! Further in, each shard has a point, too. [`Subject`] says what a tap looks at: links, what is dropped wherever that is, a shard, a socket. What shards
//! take and send has no frame header; the one that it came with is shown, or zeros. A shard looks whether taps have come once a turn.
//!
//! While drops are watched, a shard keeps the first [`limits::TAP_DROPPED`] bytes of each packet that it takes until it is through with it: a connection
//! frees what it refuses. Links need not: there a packet that is dropped is at hand.
//!
//! [`Writer`] is the other way: frames that go out of a link, or into the stack as if they had come in by it.

pub mod filter;
mod frame;
mod point;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use percore::{counter::PerCore, ring::Consumer, snapshot::Snapshot};
use proto::time::Instant;
use serde::{Deserialize, Serialize};

pub(crate) use self::frame::Begins;
pub(crate) use self::point::{Place, Point};
pub use self::{
    filter::{BadProgram, Filter, Instruction},
    frame::Flow,
    writer::{WriteError, Writer},
};
use self::{
    point::{Ends, ends},
    writer::Pipe,
};
use crate::{
    channel::{Watched, Watcher},
    clock::Clock,
    counters::Counter,
    limits,
    packet::Packet,
};

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Into the stack.
    In,
    /// Out of it.
    Out,
}

/// What a tap looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Frames that enter and leave links.
    #[default]
    Links,
    /// What the stack drops, links and shards, with the reason.
    Drops,
    /// What the shard with this number takes and sends.
    Shard(usize),
    /// What goes to a socket and comes from it, in whatever shard.
    Socket(Flow),
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reason(u16);

impl Reason {
    /// It was not, as far as is known.
    pub const NONE: Self = Self(0);
    /// In front of the numbers of modules; those of counters are smaller.
    const MODULE: u16 = 1 << 15;

    #[allow(clippy::cast_possible_truncation)] // there are a hundred
    pub(crate) const fn counted(counter: Counter) -> Self {
        Self(counter as u16 + 1)
    }

    /// A module with this number, as far as it fits.
    pub(crate) fn module(id: u64) -> Self {
        Self(Self::MODULE | u16::try_from(id).unwrap_or(u16::MAX))
    }

    /// Its number in a capture; 0: none.
    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    /// What a capture's number means.
    pub(crate) const fn numbered(number: u16) -> Self {
        Self(number)
    }

    /// What is counted, as `netchan show drops` has it; the number of the module that dropped it; neither: it was not dropped.
    pub fn name(self) -> Option<Result<&'static str, u16>> {
        match self.0 {
            0 => None,
            module if module & Self::MODULE != 0 => Some(Err(module & !Self::MODULE)),
            counter => {
                let counter = Counter::ALL.get(usize::from(counter) - 1);
                let name = counter.map_or("unknown", |counter| counter.name());
                Some(Ok(name.trim_start_matches("drop_")))
            }
        }
    }
}

/// What became of a received frame at its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It is not known: [`Options::verdicts`] does not ask, or the frame was not received.
    #[default]
    Unknown,
    /// A shard has it.
    Shard,
    /// The host's own work: ARP, ICMP, fragments, and what a module rejects.
    Host,
    /// It goes on to another host.
    Forward,
    /// An application with a lease has it.
    Lease,
    /// A packet channel has it.
    PacketChannel,
    /// It was dropped; [`Note::reason`] says why.
    Drop,
}

impl Verdict {
    /// All that are known, by their numbers from 1.
    const ALL: [Self; 6] = [
        Self::Shard,
        Self::Host,
        Self::Forward,
        Self::Lease,
        Self::PacketChannel,
        Self::Drop,
    ];

    /// Its number in a capture; 0: [`Self::Unknown`].
    pub(crate) fn number(self) -> u16 {
        let place = Self::ALL.iter().position(|known| *known == self);
        place.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(0)
    }

    /// What a capture's number means.
    pub(crate) fn numbered(number: u16) -> Self {
        let place = usize::from(number).checked_sub(1);
        let known = place.and_then(|at| Self::ALL.get(at));
        known.copied().unwrap_or_default()
    }
}

/// What is known of a frame beside itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The shard that it was shown in; at a link, where [`Options::verdicts`] asks: the shard that has it, or that sent it. `None`: none.
    pub shard: Option<u8>,
    /// Whose it is.
    pub verdict: Verdict,
    /// The processor that did the work, as Linux numbers them.
    pub core: Option<u16>,
    /// Why it was dropped.
    pub reason: Reason,
}

/// What a tap is to look at, and what it keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it looks at.
    pub subject: Subject,
    /// The link's number; `None`: all of them.
    pub link: Option<u8>,
    /// `None`: both ways.
    pub way: Option<Way>,
    /// Bytes of a frame that are kept, 1 to 65,535.
    pub snap: usize,
    /// What passes.
    pub filter: Filter,
    /// Whether it is found out what becomes of a frame at a link ([`Note::verdict`]), and which shard has or sent it. The link classifies what it receives one
    /// by one then.
    pub verdicts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            subject: Subject::Links,
            link: None,
            way: None,
            snap: usize::from(u16::MAX),
            filter: Filter::default(),
            verdicts: false,
        }
    }
}

/// What a tap has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that passed its points.
    pub seen: u64,
    /// Of them, those that passed its filter.
    pub matched: u64,
    /// Of them, those that its reader gets.
    pub taken: u64,
    /// And those that were lost to it, because its ring was full.
    pub dropped_full: u64,
    /// Or because no buffer was free: its reader holds them, or reads too late.
    pub dropped_buffers: u64,
}

/// A copied frame.
#[derive(Debug)]
pub struct Record {
    packet: Packet,
    at: Instant,
    /// Time since 1970; with a virtual clock, the stack's own.
    pub time: Duration,
    /// Its length on the link, bytes.
    pub length: u32,
    /// The link's number.
    pub link: u8,
    /// Which way it went.
    pub way: Way,
    /// Not 0: the kernel cuts it into segments with so many bytes of text.
    pub segment: u16,
    /// What else is known of it.
    pub note: Note,
}

impl Record {
    /// Its first bytes, as many as the tap keeps, from the Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        self.packet.bytes()
    }
}

/// Counters of a tap, one slot for each point.
const COUNTERS: usize = 5;
const SEEN: usize = 0;
const MATCHED: usize = 1;
const TAKEN: usize = 2;
const DROPPED_FULL: usize = 3;
const DROPPED_BUFFERS: usize = 4;

/// What points and reader share of a tap.
pub(crate) struct State {
    /// Its number, never used again.
    pub id: u64,
    pub subject: Subject,
    pub link: Option<u8>,
    pub way: Option<Way>,
    pub snap: usize,
    pub verdicts: bool,
    pub filter: Arc<Snapshot<Filter>>,
    counters: PerCore<COUNTERS>,
    ends: Ends,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tap {}", self.id)
    }
}

impl State {
    /// What it has counted.
    pub fn statistics(&self) -> Statistics {
        let read = |index| self.counters.read(index);
        Statistics {
            seen: read(SEEN),
            matched: read(MATCHED),
            taken: read(TAKEN),
            dropped_full: read(DROPPED_FULL),
            dropped_buffers: read(DROPPED_BUFFERS),
        }
    }
}

/// What looks at a stack, and what writes into it.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub taps: Vec<Arc<State>>,
    pub pipes: Vec<Arc<Pipe>>,
}

/// The taps of a stack.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    /// Their filters become machine code, where that can be.
    pub compiles: bool,
    /// What they and the modules are counted by.
    pub watched: Arc<Watched>,
    list: Arc<Snapshot<List>>,
    made: AtomicU64,
}

/// The points of a stack with so many shards, and queues of these links: the shards' first, then two of each queue. Each has the slot among the ends and
/// counters of every tap that its counters have among those of the stack.
pub(crate) fn places(shards: usize, queues: &[u8]) -> Vec<Place> {
    let mut places: Vec<Place> = (0..shards).map(Place::Shard).collect();
    for &link in queues {
        places.extend([Way::In, Way::Out].map(|way| Place::Link(link, way)));
    }
    places
}

impl Options {
    /// Whether anything that it asks for passes a place.
    fn wants(&self, place: Place) -> bool {
        let is_its = |link, way| {
            self.link.is_none_or(|wanted| wanted == link)
                && self.way.is_none_or(|wanted| wanted == way)
        };
        match (self.subject, place) {
            (Subject::Links | Subject::Drops, Place::Link(link, way)) => is_its(link, way),
            (Subject::Drops | Subject::Socket(_), Place::Shard(_)) => true,
            (Subject::Shard(wanted), Place::Shard(number)) => wanted == number,
            _ => false,
        }
    }
}

impl Taps {
    pub fn new(compiles: bool) -> Self {
        Self {
            compiles,
            ..Self::default()
        }
    }

    /// As its points run it.
    fn ready(&self, filter: Filter) -> Filter {
        if self.compiles {
            filter.compiled()
        } else {
            filter
        }
    }

    /// What one point keeps that has this slot among all.
    pub fn point(&self, place: Place, slot: usize) -> Point {
        Point::new(self.list.view(), place, slot)
    }

    /// All of them now.
    pub fn all(&self) -> Vec<Arc<State>> {
        self.list.read().taps.clone()
    }

    /// Attaches one to those of a stack's points that it asks for.
    ///
    /// # Errors
    /// `InvalidInput` for a link or a shard that is not there or a snap length of none; `QuotaExceeded` with [`limits::TAPS`] taps; `OutOfMemory`.
    pub fn attach(
        self: &Arc<Self>,
        options: Options,
        places: &[Place],
        clock: &Clock,
    ) -> io::Result<Tap> {
        let snap = options.snap;
        if snap == 0 || snap > usize::from(u16::MAX) {
            return Err(invalid("a tap keeps 1 to 65535 bytes of a frame"));
        }
        let has_link = |link| places.contains(&Place::Link(link, Way::In));
        if options.link.is_some_and(|link| !has_link(link)) {
            return Err(invalid("there is no link with that number"));
        }
        if let Subject::Shard(number) = options.subject
            && !places.contains(&Place::Shard(number))
        {
            let shards = places.iter().filter(|p| matches!(p, Place::Shard(_)));
            let last = shards.count().saturating_sub(1);
            return Err(invalid(format!(
                "there is no shard {number}: they are 0 to {last}"
            )));
        }
        let full = || {
            let most = limits::TAPS;
            io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("{most} taps are attached already"),
            )
        };
        if self.list.read().taps.len() >= limits::TAPS {
            return Err(full()); // before memory is taken
        }
        let wanted: Vec<bool> = places.iter().map(|&place| options.wants(place)).collect();
        let (ends, rings) = ends(&wanted, snap)?;
        let state = Arc::new(State {
            id: self.next_id(),
            subject: options.subject,
            link: options.link,
            way: options.way,
            snap,
            verdicts: options.verdicts,
            filter: Arc::new(Snapshot::new(self.ready(options.filter))),
            counters: PerCore::new(places.len()),
            ends,
        });
        let watcher = self.watched.watch();
        self.list.try_update(|list| {
            if list.taps.len() >= limits::TAPS {
                return Err(full());
            }
            list.taps.push(state.clone());
            Ok(())
        })?;
        Ok(Tap {
            heads: rings.iter().map(|_| None).collect(),
            rings,
            state,
            _watcher: watcher,
            taps: self.clone(),
            since: Statistics::default(),
            read: 0,
            epoch: epoch(clock),
        })
    }

    fn next_id(&self) -> u64 {
        // Relaxed: a number of its own.
        self.made.fetch_add(1, Relaxed) + 1
    }

    fn detach(&self, id: u64) {
        (self.list).update(|list| list.taps.retain(|tap| tap.id != id));
    }
}

/// The stack clock's zero since 1970.
fn epoch(clock: &Clock) -> Duration {
    match clock {
        Clock::Virtual(_) => Duration::ZERO,
        Clock::Real => {
            #[allow(clippy::disallowed_methods)] // capture files have wall-clock time
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let passed = Duration::from_nanos(clock.now().0);
            now.unwrap_or_default().saturating_sub(passed)
        }
    }
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

/// A reader's end of a tap. Dropped, it is detached; its points learn that with their next burst.
#[derive(Debug)]
pub struct Tap {
    state: Arc<State>,
    /// No packet goes past it.
    _watcher: Watcher,
    taps: Arc<Taps>,
    rings: Vec<Consumer<Record>>,
    /// The next of each ring: the oldest goes first.
    heads: Vec<Option<Record>>,
    /// What had been counted when the counters were cleared.
    since: Statistics,
    /// Frames that were read.
    read: u64,
    epoch: Duration,
}

impl Tap {
    /// The next frame; `None`: none waits now. Frames of one point come in order, those of several in the order of their time, as far as they are there.
    pub fn read(&mut self) -> Option<Record> {
        for (head, ring) in self.heads.iter_mut().zip(&mut self.rings) {
            if head.is_none() {
                *head = ring.pop();
            }
        }
        let waiting = self.heads.iter_mut().filter(|head| head.is_some());
        let oldest = waiting.min_by_key(|head| head.as_ref().map(|record| record.at))?;
        let mut record = oldest.take()?;
        record.time = self.epoch + Duration::from_nanos(record.at.0);
        self.read += 1;
        Some(record)
    }

    /// Takes it off: its points learn that with their next burst. What they have taken can still be read; [`Self::last`] says when that is all.
    pub fn detach(&self) {
        self.taps.detach(self.state.id);
    }

    /// Once it is detached, and no point is at a burst that it shows: what has been counted in the end. `None` as long as something waits to be read, or a
    /// point has counted it and not handed it over yet.
    pub fn last(&self) -> Option<Statistics> {
        let all = self.state.statistics();
        let found = all.taken + all.dropped_full + all.dropped_buffers;
        (all.taken == self.read && all.matched == found).then(|| self.since_cleared(all))
    }

    /// Puts another filter in the place of the one there is. Each point takes it with its next burst.
    pub fn set_filter(&self, filter: Filter) {
        self.state.filter.set(self.taps.ready(filter));
    }

    /// What has been counted since it was attached, or [`Self::clear`]ed.
    pub fn statistics(&self) -> Statistics {
        self.since_cleared(self.state.statistics())
    }

    fn since_cleared(&self, now: Statistics) -> Statistics {
        let since = self.since;
        Statistics {
            seen: now.seen.wrapping_sub(since.seen),
            matched: now.matched.wrapping_sub(since.matched),
            taken: now.taken.wrapping_sub(since.taken),
            dropped_full: now.dropped_full.wrapping_sub(since.dropped_full),
            dropped_buffers: now.dropped_buffers.wrapping_sub(since.dropped_buffers),
        }
    }

    /// Counts from zero again. The points go on as before.
    pub fn clear(&mut self) {
        self.since = self.state.statistics();
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.detach();
    }
}
