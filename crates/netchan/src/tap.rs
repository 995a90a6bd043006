//! Taps: copies of the frames that enter and leave links, for a capture.
//!
//! A link has two points, where frames come in and where they go out. Each point keeps the ends of the taps that look at it: a ring and memory of its own,
//! so that it shares no lock and no writable cache line with a reader or another point. Without a tap, a burst costs one load. A frame for which a
//! tap has no room is counted there and lost to that tap alone; the frame itself never waits. A reader is not woken: it looks when it likes.
//!
//! * Attached and detached through an epoch's list (`percore::snapshot`), which each point compares once a burst.
//! * Received frames are seen before anything else looks at them; sent ones when the link has taken them. What the kernel cuts and sums later (offload)
//!   is seen uncut and with a checksum of the pseudo header alone, as tcpdump sees it on a host; [`Record::segment`] tells.
//! * What a stack sends to itself is on no link, so no tap sees it.
//! * A merged frame (receive offload) is seen as the kernel merged it.

pub mod filter;
mod point;
#[cfg(test)]
mod tests;

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

pub use self::filter::{BadProgram, Filter, Instruction};
pub(crate) use self::point::Point;
use self::point::{Ends, ends};
use crate::{clock::Clock, limits, packet::Packet};

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
#[derive(Clone, Debug)]
pub struct Options {
    /// The link's number; `None`: all of them.
    pub link: Option<u8>,
    /// `None`: both ways.
    pub way: Option<Way>,
    /// Bytes of a frame that are kept, 1 to 65,535.
    pub snap: usize,
    /// What passes.
    pub filter: Filter,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            link: None,
            way: None,
            snap: usize::from(u16::MAX),
            filter: Filter::default(),
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
    pub link: Option<u8>,
    pub way: Option<Way>,
    pub snap: usize,
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

/// The taps of a stack.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    /// Their filters become machine code, where that can be.
    pub compiles: bool,
    list: Arc<Snapshot<Vec<Arc<State>>>>,
    made: AtomicU64,
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

    /// What one point of a link's queue keeps.
    pub fn point(&self, link: u8, queue: u8, way: Way) -> Point {
        Point::new(self.list.view(), link, queue, way)
    }

    /// All of them now.
    pub fn all(&self) -> Vec<Arc<State>> {
        self.list.read().clone()
    }

    /// Attaches one to the points of a stack's queues, of which each is one of these links'.
    ///
    /// # Errors
    /// `InvalidInput` for a link that is not there or a snap length of none; `QuotaExceeded` with [`limits::TAPS`] taps; `OutOfMemory`.
    pub fn attach(
        self: &Arc<Self>,
        options: Options,
        queues: &[u8],
        clock: &Clock,
    ) -> io::Result<Tap> {
        let snap = options.snap;
        if snap == 0 || snap > usize::from(u16::MAX) {
            return Err(invalid("a tap keeps 1 to 65535 bytes of a frame"));
        }
        if options.link.is_some_and(|link| !queues.contains(&link)) {
            return Err(invalid("there is no link with that number"));
        }
        let full = || {
            let most = limits::TAPS;
            io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("{most} taps are attached already"),
            )
        };
        if self.list.read().len() >= limits::TAPS {
            return Err(full()); // before memory is taken
        }
        let wanted = |link, way| {
            options.link.is_none_or(|wanted| wanted == link)
                && options.way.is_none_or(|wanted| wanted == way)
        };
        let (ends, rings) = ends(queues, snap, wanted)?;
        let state = Arc::new(State {
            // Relaxed: a number of its own.
            id: self.made.fetch_add(1, Relaxed) + 1,
            link: options.link,
            way: options.way,
            snap,
            filter: Arc::new(Snapshot::new(self.ready(options.filter))),
            counters: PerCore::new(queues.len() * 2),
            ends,
        });
        self.list.try_update(|list| {
            if list.len() >= limits::TAPS {
                return Err(full());
            }
            list.push(state.clone());
            Ok(())
        })?;
        Ok(Tap {
            heads: rings.iter().map(|_| None).collect(),
            rings,
            state,
            taps: self.clone(),
            since: Statistics::default(),
            epoch: epoch(clock),
        })
    }

    fn detach(&self, id: u64) {
        self.list.update(|list| list.retain(|tap| tap.id != id));
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

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A reader's end of a tap. Dropped, it is detached; its points learn that with their next burst.
#[derive(Debug)]
pub struct Tap {
    state: Arc<State>,
    taps: Arc<Taps>,
    rings: Vec<Consumer<Record>>,
    /// The next of each ring: the oldest goes first.
    heads: Vec<Option<Record>>,
    /// What had been counted when the counters were cleared.
    since: Statistics,
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
        Some(record)
    }

    /// Puts another filter in the place of the one there is. Each point takes it with its next burst.
    pub fn set_filter(&self, filter: Filter) {
        self.state.filter.set(self.taps.ready(filter));
    }

    /// What has been counted since it was attached, or [`Self::clear`]ed.
    pub fn statistics(&self) -> Statistics {
        let (now, since) = (self.state.statistics(), self.since);
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
        self.taps.detach(self.state.id);
    }
}
