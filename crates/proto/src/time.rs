//! A moment, as an argument.

pub use core::time::Duration;

/// Nanoseconds since an arbitrary origin that all calls of one stack share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than everything.
    pub const FAR: Self = Self(u64::MAX);

    /// Time passed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// Whole microseconds passed since `earlier`, at most 2³² - 1; zero if `earlier` is later.
    #[inline]
    pub fn micros_since(self, earlier: Self) -> u32 {
        u32::try_from(self.0.saturating_sub(earlier.0) / 1_000).unwrap_or(u32::MAX)
    }
    /// This many microseconds later.
    #[must_use]
    #[inline]
    pub const fn plus_micros(self, us: u64) -> Self {
        Self(self.0.saturating_add(us.saturating_mul(1_000)))
    }
    /// The time in units of 2³⁰ ns (1.07 s), modulo 2³²: for what is compared over seconds or
    /// days, in four bytes and without a division.
    #[allow(clippy::cast_possible_truncation)] // modulo 2³² is what is meant
    #[inline]
    pub const fn coarse(self) -> u32 {
        (self.0 >> 30) as u32
    }
    /// Whole microseconds since the origin, modulo 2³²: for times that lie less than half an hour apart.
    #[allow(clippy::cast_possible_truncation)] // modulo 2³² is what is meant
    #[inline]
    pub const fn low_micros(self) -> u32 {
        (self.0 / 1000) as u32
    }
    /// The time in units of 2¹⁶ ns (65.5 µs), modulo 2³²: for what is summed up over days.
    #[allow(clippy::cast_possible_truncation)] // modulo 2³² is what is meant
    #[inline]
    pub const fn low_ticks(self) -> u32 {
        (self.0 >> 16) as u32
    }
    /// Whole milliseconds since the origin, modulo 2³²: what timestamps tick in (RFC 7323 §5.4).
    #[allow(clippy::cast_possible_truncation)] // modulo 2³² is what is meant
    #[inline]
    pub const fn low_millis(self) -> u32 {
        (self.0 / 1_000_000) as u32
    }
    /// Whole milliseconds since the origin.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl core::ops::Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}

/// A duration in nanoseconds, at most 584 years of them, without 128-bit arithmetic.
const fn nanos(d: Duration) -> u64 {
    d.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(d.subsec_nanos() as u64)
}
