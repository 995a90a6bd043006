//! A line through two samples of both clocks: nanoseconds as a function of cycles.

use super::{PUBLISH_NS_MAX, SAMPLE_WIDTH_NS_MAX, monotonic_ns, tsc};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Binary places of a rate. 52: one cycle may last from 2^-52 ns to 4 µs, and a rate of 0.4 ns has 50 bits.
const PLACES: u32 = 52;

/// The longest line in cycles: half of all there are (58 years at 5 GHz), so that a counter that is behind the start can be told.
const LENGTH_MAX: u64 = u64::MAX / 2;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub cycles: u64,
    pub ns: u64,
    /// Cycles between the two readings of the counter around that of the clock; the error is at most half of it.
    pub width: u64,
}

impl Sample {
    /// The sharpest of a few.
    pub fn take() -> Self {
        let once = |_| {
            let before = tsc::cycles();
            let ns = monotonic_ns();
            Self::between(before, ns, tsc::cycles())
        };
        let first = once(0);
        (1..10).map(once).fold(first, Self::sharper)
    }

    /// The clock said `ns` between these two readings of the counter.
    pub fn between(before: u64, ns: u64, after: u64) -> Self {
        let width = after.saturating_sub(before);
        let cycles = before + width / 2;
        Self { cycles, ns, width }
    }

    /// Of two the sharper; of equal ones the first.
    pub fn sharper(self, other: Self) -> Self {
        if other.width < self.width {
            other
        } else {
            self
        }
    }

    /// Whether nothing came between: no counter is faster than 10 GHz.
    pub fn is_sharp(&self) -> bool {
        self.width < SAMPLE_WIDTH_NS_MAX * 10
    }
}

/// Nanoseconds per cycle, with `PLACES` binary places.
pub(super) fn rate_between(a: Sample, b: Sample) -> u64 {
    let ns = u128::from(b.ns.saturating_sub(a.ns)) << PLACES;
    let cycles = u128::from(b.cycles.saturating_sub(a.cycles).max(1));
    u64::try_from(ns / cycles).unwrap_or(u64::MAX).max(1)
}

/// `cycles` times `rate`, in nanoseconds, rounded down.
#[inline(always)]
pub(super) fn scale(cycles: u64, rate: u64) -> u64 {
    let ns = (u128::from(cycles) * u128::from(rate)) >> PLACES;
    // Truncation: 2^64 ns are 584 years.
    #[allow(clippy::cast_possible_truncation)]
    let ns = ns as u64;
    ns
}

/// Cycles per second at `rate`, rounded to the nearest.
pub(super) fn hz(rate: u64) -> u64 {
    let rate = u128::from(rate.max(1));
    let hz = ((1_000_000_000_u128 << PLACES) + rate / 2) / rate;
    u64::try_from(hz).unwrap_or(u64::MAX)
}

/// Written once, before it is published; Relaxed throughout, ordered by `DRAWN`.
#[derive(Debug)]
pub(super) struct Line {
    start_cycles: AtomicU64,
    start_ns: AtomicU64,
    rate: AtomicU64,
    /// Cycles after which the next line is due.
    length: AtomicU64,
}

impl Line {
    pub const fn new() -> Self {
        Self {
            start_cycles: AtomicU64::new(0),
            start_ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            length: AtomicU64::new(0),
        }
    }

    /// Draws the line with the rate between two samples, from the second one on, until `next` ns after the first; never below the
    /// line `before` or the kernel's clock, whose values have been given out.
    pub fn draw(&self, first: Sample, now: Sample, before: Option<&Line>, next: Option<u64>) {
        let rate = rate_between(first, now);
        // The clock was read somewhere in the sample: at its start, we assume, so as not to be behind it.
        let mut start_ns = now.ns + scale(now.width, rate) / 2 + 1;
        if let Some(before) = before {
            // If we shall be slower than before: others may use the old line for as long as we may take to publish.
            let faster = before.rate().saturating_sub(rate);
            let lead = scale(cycles_in(PUBLISH_NS_MAX, rate), faster);
            start_ns = start_ns.max(before.extrapolate(now.cycles) + lead + 1);
        }
        let length = match next {
            Some(next) => cycles_in(next.saturating_sub(now.ns - first.ns), rate),
            None => LENGTH_MAX,
        }
        .min(LENGTH_MAX);
        self.start_cycles.store(now.cycles, Relaxed);
        self.start_ns.store(start_ns, Relaxed);
        self.rate.store(rate, Relaxed);
        self.length.store(length, Relaxed);
    }

    /// The line's value; `None` before its start and when the next line is due.
    #[inline(always)]
    pub fn at(&self, cycles: u64) -> Option<u64> {
        let since = cycles.wrapping_sub(self.start_cycles.load(Relaxed));
        // Before the start `since` wraps round to more than any length.
        if since >= self.length.load(Relaxed) {
            return None;
        }
        Some(self.start_ns.load(Relaxed) + scale(since, self.rate.load(Relaxed)))
    }

    /// The line's value, also beyond its end; before its start, the value there.
    pub fn extrapolate(&self, cycles: u64) -> u64 {
        let since = cycles.saturating_sub(self.start());
        self.start_ns.load(Relaxed) + scale(since, self.rate())
    }

    pub fn start(&self) -> u64 {
        self.start_cycles.load(Relaxed)
    }

    pub fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// How many cycles `ns` last.
    pub fn cycles_in(&self, ns: u64) -> u64 {
        cycles_in(ns, self.rate())
    }
}

fn cycles_in(ns: u64, rate: u64) -> u64 {
    let cycles = (u128::from(ns) << PLACES) / u128::from(rate.max(1));
    u64::try_from(cycles).unwrap_or(u64::MAX)
}
