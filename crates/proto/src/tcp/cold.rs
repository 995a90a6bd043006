//! Cold state: what few connections ever need, allocated when it is first written. Until then a connection holds a null pointer.
//!
//! Reading what was never written reads a constant. Nothing here may be written on the path of packets that arrive in order: an idle connection
//! is to hold 1 KiB at most, and the packet path is to allocate nothing.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::ops::{Deref, DerefMut};

use super::config::Config;
use super::image::{Distance, Imaged, imaged, plain};
use super::pacing::{Pacer, PacerImage};
use super::prr::Prr;
use super::undo::Undo;
use super::variables::millis;
use crate::time::Instant;
use crate::wire::tcp::{SackBlocks, SeqNum};

/// A type with a default that nearly every connection keeps.
pub(super) trait HasDefault: Clone + 'static {
    /// The default.
    const DEFAULT: &'static Self;
}

/// A value that is boxed once it differs from the default.
#[derive(Clone, Debug)]
pub(super) struct BoxedDefault<T>(Option<Box<T>>);

impl<T: HasDefault> BoxedDefault<T> {
    /// The default, not boxed.
    pub const DEFAULT: Self = Self(None);

    /// Whether it was ever written.
    #[inline]
    pub const fn is_made(&self) -> bool {
        self.0.is_some()
    }

    /// `value`, boxed if it is not the default.
    pub fn of(value: T) -> Self
    where
        T: PartialEq,
    {
        Self((value != *T::DEFAULT).then(|| Box::new(value)))
    }

    /// Makes it `value`.
    pub fn set(&mut self, value: T)
    where
        T: PartialEq,
    {
        if value != **self {
            **self = value;
        }
    }

    /// Bytes of heap that it takes.
    pub const fn heap_bytes(&self) -> usize {
        if self.is_made() { size_of::<T>() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self) -> &mut T {
        self.0.insert(Box::new(T::DEFAULT.clone()))
    }
}

impl<T: HasDefault> Deref for BoxedDefault<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => T::DEFAULT,
        }
    }
}

impl<T: HasDefault> DerefMut for BoxedDefault<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        if self.0.is_none() {
            return self.make();
        }
        match &mut self.0 {
            Some(value) => value,
            None => unreachable!("it was made"),
        }
    }
}

impl<T: HasDefault + Imaged> Imaged for BoxedDefault<T> {
    type Image = Option<T::Image>;
    fn image(&self, now: Instant) -> Self::Image {
        let Self(value) = self;
        value.image(now)
    }
    fn from_image(image: Self::Image, now: Instant) -> Self {
        Self(Imaged::from_image(image, now))
    }
}

#[cfg(test)]
impl<T: HasDefault + PartialEq> PartialEq for BoxedDefault<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// What of a connection's [`Config`] is asked for once in its life or less: at its beginning, at its end, by a keep-alive timer, by an
/// untrusted peer. Durations in milliseconds. The defaults cost nothing; other values cost memory in each connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Periods {
    pub time_wait_ms: u32,
    pub fin_wait_2_ms: u32,
    pub keepalive_idle_ms: u32,
    pub keepalive_interval_ms: u32,
    pub keepalive_probes: u8,
    pub challenge_acks: u8,
    /// Segments.
    pub initial_cwnd: u16,
    /// Segments.
    pub burst_segments_min: u16,
}

impl Periods {
    pub fn new(config: &Config) -> Self {
        let keepalive = config.keepalive.unwrap_or_default();
        Self {
            time_wait_ms: millis(config.time_wait),
            fin_wait_2_ms: millis(config.fin_wait_2),
            keepalive_idle_ms: millis(keepalive.idle),
            keepalive_interval_ms: millis(keepalive.interval),
            keepalive_probes: keepalive.probes.max(1),
            challenge_acks: config.challenge_acks,
            initial_cwnd: u16::try_from(config.initial_cwnd).unwrap_or(u16::MAX),
            burst_segments_min: config.burst_segments_min,
        }
    }
}

impl HasDefault for Periods {
    const DEFAULT: &'static Self = &Self {
        time_wait_ms: 60_000,
        fin_wait_2_ms: 60_000,
        keepalive_idle_ms: 7_200_000,
        keepalive_interval_ms: 75_000,
        keepalive_probes: 9,
        challenge_acks: 10,
        initial_cwnd: 10,
        burst_segments_min: 2,
    };
}

#[cfg(test)]
#[test]
fn default_periods_are_those_of_the_default_config() {
    assert_eq!(Periods::new(&Config::default()), *Periods::DEFAULT);
    assert!(!BoxedDefault::of(Periods::new(&Config::default())).is_made());
}

/// The part of a connection that pacing, loss, reordering, duplicates, urgent data and untrusted peers make.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Cold {
    /// When the next text may leave, of a connection that is paced.
    pub pacer: Pacer,
    pub prr: Prr,
    pub undo: Undo,
    /// Text behind gaps that the next acknowledgment reports.
    pub sack_blocks: SackBlocks,
    /// The urgent data that the peer announced ends here.
    pub urgent_end: SeqNum,
    /// What lies before is urgent, of what we send.
    pub urgent_out: SeqNum,
    /// Where records end that are not acknowledged, in order.
    pub records: VecDeque<SeqNum>,
    /// Sequence number of the RST owed for a segment of another connection (`Pending::REFUSE`).
    pub refuse_seq: SeqNum,
    /// Challenge acknowledgments of this period, and when that began, by [`crate::time::Instant::coarse`].
    pub challenges_sent: u8,
    pub challenges_since: u32,
    /// What a router said of the path's MTU (0: nothing), to be believed if the segment that it quoted stays unanswered.
    pub claim: u16,
    pub quoted: SeqNum,
    // Counters, for [`super::Info`].
    pub bytes_retransmitted: u64,
    /// Delivered with a mark (RFC 3168).
    pub bytes_marked: u32,
    pub retransmits: u32,
    pub dsacks: u32,
    pub duplicate_segments: u32,
    pub out_of_order: u32,
    /// Acknowledgments that showed reordering, and the farthest, in segments.
    pub reorderings: u16,
    pub reordering: u16,
    pub timeouts: u16,
    /// Timeouts before which an acknowledgment had brought something.
    pub timeout_recoveries: u16,
    /// How long what a timeout found lost took to be mended, all of it that is over, ms, and since when it goes on.
    pub timeout_ms: u32,
    pub timeout_since: Instant,
    pub recoveries: u16,
    pub undos: u16,
    pub tail_probes: u16,
}

impl HasDefault for Cold {
    const DEFAULT: &'static Self = &Self {
        pacer: Pacer::new(),
        prr: Prr::begin(0, 0),
        undo: Undo::NONE,
        sack_blocks: SackBlocks::NONE,
        urgent_end: SeqNum(0),
        urgent_out: SeqNum(0),
        records: VecDeque::new(),
        refuse_seq: SeqNum(0),
        challenges_sent: 0,
        challenges_since: 0,
        claim: 0,
        quoted: SeqNum(0),
        bytes_retransmitted: 0,
        bytes_marked: 0,
        retransmits: 0,
        dsacks: 0,
        duplicate_segments: 0,
        out_of_order: 0,
        reorderings: 0,
        reordering: 0,
        timeouts: 0,
        timeout_recoveries: 0,
        timeout_ms: 0,
        timeout_since: Instant::FAR,
        recoveries: 0,
        undos: 0,
        tail_probes: 0,
    };
}

plain!(Periods {
    time_wait_ms,
    fin_wait_2_ms,
    keepalive_idle_ms,
    keepalive_interval_ms,
    keepalive_probes,
    challenge_acks,
    initial_cwnd,
    burst_segments_min
});

imaged! {
    /// [`Cold`] as plain data.
    pub(super) struct ColdImage of Cold {
        pacer: PacerImage as part,
        prr: Prr as part,
        undo: Undo as part,
        sack_blocks: SackBlocks,
        urgent_end: SeqNum,
        urgent_out: SeqNum,
        records: Vec<SeqNum> as list,
        refuse_seq: SeqNum,
        challenges_sent: u8,
        challenges_since: u32 as coarse,
        claim: u16,
        quoted: SeqNum,
        bytes_retransmitted: u64,
        bytes_marked: u32,
        retransmits: u32,
        dsacks: u32,
        duplicate_segments: u32,
        out_of_order: u32,
        reorderings: u16,
        reordering: u16,
        timeouts: u16,
        timeout_recoveries: u16,
        timeout_ms: u32,
        timeout_since: Distance as part,
        recoveries: u16,
        undos: u16,
        tail_probes: u16,
    }
}

impl Cold {
    /// Whether a connection could have come to it.
    pub fn is_sound(&self) -> bool {
        let blocks = usize::from(self.sack_blocks.len) <= self.sack_blocks.blocks.len();
        blocks && self.prr.is_sound() && self.records.iter().is_sorted()
    }
}
