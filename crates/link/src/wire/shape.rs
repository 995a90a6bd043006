//! The model of one direction: what happens to a frame is decided here, when it is sent, as a function of the seed, the
//! moment and the frames before it; nothing else. So the same calls give the same trace.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use netchan_base::{packet::Packet, units::Probability};
use proto::time::Instant;

use super::Options;

use crate::random::Random;

/// Frames of a queue at most, whatever was asked for: 65536 × 16 bytes.
const QUEUE_MAX: usize = 1 << 16;

/// What one direction did to its frames. Written by the sending end only, read by anyone (Relaxed: plain numbers).
#[derive(Debug, Default)]
#[repr(align(128))] // away from what the other side reads
pub struct Impairments {
    /// Lost by chance, frames hit by corruption that no checksum covers included.
    pub lost: AtomicU64,
    /// Dropped because the queue was full.
    pub overflowed: AtomicU64,
    /// Sent twice.
    pub duplicated: AtomicU64,
    /// Changed.
    pub corrupted: AtomicU64,
    /// Held back.
    pub reordered: AtomicU64,
}

impl Impairments {
    /// Frames that never arrive.
    pub fn missed(&self) -> u64 {
        self.lost.load(Relaxed) + self.overflowed.load(Relaxed)
    }
}

/// Adds one; the caller is the only writer.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Never arrives.
    Drop,
    /// Arrives at `due`: `late` for one of its kind, and `twice`.
    Deliver {
        due: Instant,
        late: bool,
        twice: bool,
    },
}

/// One direction's state.
#[derive(Debug)]
pub(super) struct Shape {
    /// Nanoseconds, as the next.
    delay: u64,
    jitter: u64,
    reorder: Probability,
    extent: u64,
    loss: Probability,
    duplicate: Probability,
    corrupt: Probability,
    rate: Option<u64>,
    queue: Queue,
    random: Random,
    /// When the line is free again.
    free_at: Instant,
    /// Bits × 10⁹ that the nanoseconds so far have not accounted for; less than `rate`.
    remainder: u64,
}

impl Shape {
    pub fn new(options: &Options, direction: u64) -> Self {
        let limited = options.queue_frames.is_some() || options.queue_bytes.is_some();
        let frames = options
            .queue_frames
            .unwrap_or(match (limited, options.rate) {
                (false, Some(_)) => Options::QUEUE,
                (false, None) => 0,
                // Only bytes are limited: as many frames as there could be of the shortest kind.
                (true, _) => (options.queue_bytes.unwrap_or(0) / 60 + 1).min(QUEUE_MAX),
            });
        let tracked = limited || options.rate.is_some();
        Self {
            delay: nanoseconds(options.delay),
            jitter: nanoseconds(options.jitter),
            reorder: options.reorder,
            extent: nanoseconds(options.extent),
            loss: options.loss,
            duplicate: options.duplicate,
            corrupt: options.corrupt,
            rate: options.rate.map(std::num::NonZeroU64::get),
            queue: Queue::new(tracked.then_some(frames), options.queue_bytes),
            // Each direction draws from a sequence of its own.
            random: Random::new(options.seed.wrapping_add(direction << 32)),
            free_at: Instant::ZERO,
            remainder: 0,
        }
    }

    /// Whether frames that do not fit the ring are dropped, or else left with the sender. With a rate the queue is
    /// what the model says, and a full ring only means that the receiver was not asked for a while.
    pub const fn drops_when_full(&self) -> bool {
        self.rate.is_none() && self.queue.frames_max.is_some()
    }

    /// Counts a frame for which there was no room.
    pub fn overflow(&self, seen: &Impairments) {
        count(&seen.overflowed);
    }

    /// Decides over `packet`, sent at `now`; may change its bytes.
    pub fn admit(&mut self, now: Instant, packet: &mut Packet, seen: &Impairments) -> Verdict {
        if !self.queue.admits(now, packet.len()) {
            count(&seen.overflowed);
            return Verdict::Drop;
        }
        let sent = self.serialise(now, packet.len());
        let arrives = later(sent, self.delay);
        // A lost frame has passed through the queue and over the line all the same.
        self.queue.enter(
            if self.rate.is_some() { sent } else { arrives },
            packet.len(),
        );
        let lost = self.random.hit(self.loss);
        if lost || (self.random.hit(self.corrupt) && !self.spoil(packet, seen)) {
            count(&seen.lost);
            return Verdict::Drop;
        }
        let mut due = arrives;
        if self.jitter > 0 {
            due = later(due, self.random.below(self.jitter + 1));
        }
        if self.random.hit(self.reorder) {
            count(&seen.reordered);
            due = later(due, 1 + self.random.below(self.extent.max(1)));
        }
        let twice = self.random.hit(self.duplicate);
        if twice {
            count(&seen.duplicated);
        }
        Verdict::Deliver {
            due,
            late: due > arrives,
            twice,
        }
    }

    /// When the last bit of a frame of `len` bytes, offered at `now`, has left.
    fn serialise(&mut self, now: Instant, len: usize) -> Instant {
        let Some(rate) = self.rate else { return now };
        if self.free_at < now {
            (self.free_at, self.remainder) = (now, 0);
        }
        // At most 65557 × 8 × 10⁹ + rate: fits.
        let work = (len as u64 * 8)
            .saturating_mul(1_000_000_000)
            .saturating_add(self.remainder);
        self.remainder = work % rate;
        self.free_at = later(self.free_at, work / rate);
        self.free_at
    }

    /// Changes a byte so that a checksum is sure to notice; false if nothing in the frame has one.
    ///
    /// A changed byte never turns 0x0000 into 0xffff, so the Internet checksum (RFC 1071) over it cannot come out right again.
    fn spoil(&mut self, packet: &mut Packet, seen: &Impairments) -> bool {
        let bytes = packet.bytes_mut();
        let Some(range) = covered(bytes) else {
            return false;
        };
        let width = (range.end - range.start) as u64;
        // Below the width of a range of a slice: fits.
        let mut at = range.start + usize::try_from(self.random.below(width)).unwrap_or(0);
        if range.hop_limit == Some(at) {
            at += 1;
        }
        // 1..=255 keeps at least one bit different.
        let flip = u8::try_from(1 + self.random.below(255)).unwrap_or(1);
        let Some(byte) = bytes.get_mut(at) else {
            return false;
        };
        *byte ^= flip;
        count(&seen.corrupted);
        true
    }
}

/// `at` and `ns` nanoseconds more.
const fn later(at: Instant, ns: u64) -> Instant {
    Instant(at.0.saturating_add(ns))
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX - 1)
}

/// The bytes of a frame that some checksum covers.
struct Covered {
    start: usize,
    end: usize,
    /// The one byte between them that none does.
    hop_limit: Option<usize>,
}

/// What of `frame` a checksum covers: an IPv4 packet whole (RFC 791: its header has its own); an IPv6 packet but for its first
/// four bytes and the hop limit (RFC 8200 §8.1: the pseudo-header has the rest). `None` for everything else.
fn covered(frame: &[u8]) -> Option<Covered> {
    let mut at = 12;
    let mut kind = word(frame, at)?;
    while matches!(kind, 0x8100 | 0x88a8) {
        at += 4;
        kind = word(frame, at)?;
    }
    let ip = at + 2;
    let total = match kind {
        0x0800 => usize::from(word(frame, ip + 2)?),
        0x86dd => 40 + usize::from(word(frame, ip + 4)?),
        _ => return None,
    };
    let end = frame.len().min(ip + total);
    let (start, hop_limit) = if kind == 0x0800 {
        (ip, None)
    } else {
        (ip + 4, Some(ip + 7))
    };
    (start + 4 < end).then_some(Covered {
        start,
        end,
        hop_limit,
    })
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame
        .get(at..at + 2)?
        .try_into()
        .ok()
        .map(u16::from_be_bytes)
}

/// What waits for the line: when each frame leaves, and how long it is.
#[derive(Debug)]
struct Queue {
    /// `None`: nothing is limited and nothing kept.
    frames_max: Option<usize>,
    bytes_max: usize,
    waiting: VecDeque<(Instant, usize)>,
    bytes: usize,
}

impl Queue {
    fn new(frames_max: Option<usize>, bytes_max: Option<usize>) -> Self {
        Self {
            frames_max,
            bytes_max: bytes_max.unwrap_or(usize::MAX),
            waiting: VecDeque::with_capacity(frames_max.unwrap_or(0).min(QUEUE_MAX)),
            bytes: 0,
        }
    }

    /// Whether there is room for `len` bytes more at `now`.
    fn admits(&mut self, now: Instant, len: usize) -> bool {
        let Some(frames_max) = self.frames_max else {
            return true;
        };
        while let Some(&(leaves, left)) = self.waiting.front() {
            if leaves > now {
                break;
            }
            self.waiting.pop_front();
            self.bytes -= left;
        }
        self.waiting.len() < frames_max && self.bytes.saturating_add(len) <= self.bytes_max
    }

    fn enter(&mut self, leaves: Instant, len: usize) {
        if self.frames_max.is_some() {
            self.waiting.push_back((leaves, len));
            self.bytes += len;
        }
    }
}
