//! CUBIC (RFC 9438): after congestion the window follows a cubic curve, flat around the window at which congestion was met, and
//! never slower than Reno would be. Slow start is watched by HyStart++.
//!
//! The curve is W(t) = C (t - K)³ + W_max, in segments and seconds; here in bytes and milliseconds, in integers.

use super::algorithm::{Ack, Algorithm, Cause, Window};
use super::hystart::HyStart;
use super::reno::{self, CWND_MAX};
use crate::tcp::cold::{BoxedDefault, HasDefault};
use crate::tcp::image::{Distance, imaged};
use crate::time::Instant;

/// RFC 9438 §4.6: β_cubic, 0.7, as a fraction.
const BETA: (u64, u64) = (7, 10);
/// RFC 9438 §4.7: fast convergence, (1 + β_cubic) / 2.
const CONVERGENCE: (u64, u64) = (17, 20);
/// RFC 9438 §4.3: α_cubic, 3 (1 - β_cubic) / (1 + β_cubic): with it the Reno-like window, reduced by less, is on average as large as
/// Reno's.
const ALPHA: (u64, u64) = (9, 17);
/// No curve goes farther from its middle: in 524 s it passes 50 million segments.
const REACH_MS: u64 = 1 << 19;

/// What one connection's CUBIC knows.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Cubic {
    /// The window to begin with, and to begin again with.
    initial: u32,
    hystart: HyStart,
    /// Made when slow start ends: most connections never come so far.
    avoidance: BoxedDefault<Avoidance>,
}

/// What congestion avoidance needs.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
struct Avoidance {
    curve: Curve,
    /// The curve before the last congestion, should that have been a mistake (RFC 9438 §4.9).
    before: Curve,
    /// When the last acknowledgment came in congestion avoidance.
    last_ack: Instant,
    /// Remainder of the last growth, in 1/cwnd bytes.
    remainder: u32,
    /// Bytes acknowledged since the Reno-like window last grew.
    reno_credit: u32,
}

impl HasDefault for Avoidance {
    const DEFAULT: &'static Self = &Self {
        curve: Curve::NONE,
        before: Curve::NONE,
        last_ack: Instant::ZERO,
        remainder: 0,
        reno_credit: 0,
    };
}

/// One stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
struct Curve {
    /// Where it begins; [`Instant::FAR`]: with the next acknowledgment.
    epoch: Instant,
    /// K: milliseconds from there to its middle.
    middle_ms: u32,
    /// W_max: where it is flat.
    w_max: u32,
    /// cwnd_prior: the window before the last reduction.
    prior: u32,
    /// W_est: where Reno would be.
    reno: u32,
}

impl Curve {
    const NONE: Self = Self {
        epoch: Instant::FAR,
        middle_ms: 0,
        w_max: 0,
        prior: 0,
        reno: 0,
    };

    /// RFC 9438 §4.2: K = ∛((W_max - cwnd_epoch) / C), or zero if nothing was lost before (§4.8, §4.10).
    fn begin(&mut self, window: &Window, now: Instant) {
        self.epoch = now;
        self.reno = window.cwnd;
        let below = u64::from(self.w_max.saturating_sub(window.cwnd));
        if below == 0 {
            self.w_max = window.cwnd;
            self.middle_ms = 0;
        } else {
            // In ms³: 1 / C is 5 / 2, and 10⁹ ms³ are a s³. At most 2³⁰ × 2.5 × 10⁹ < 2⁶².
            self.middle_ms = cube_root(below * 2_500_000_000 / u64::from(window.mss.max(1)));
        }
    }

    /// W_cubic `t_ms` after the beginning (RFC 9438 equation 1).
    fn at(&self, t_ms: u64, mss: u32) -> u32 {
        let middle = u64::from(self.middle_ms);
        let distance = t_ms.abs_diff(middle).min(REACH_MS);
        // (2⁵⁷ / 10⁶) × 2³² would overflow by little, but no segment has more than 2¹⁶ bytes.
        let cubed = distance * distance * distance / 1_000_000;
        let rise = cubed * u64::from(mss.min(1 << 16)) * 2 / 5_000;
        let w_max = u64::from(self.w_max);
        let w = if t_ms < middle {
            w_max.saturating_sub(rise)
        } else {
            w_max + rise
        };
        narrow(w)
    }
}

/// As bytes of a window.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(CWND_MAX).min(CWND_MAX)
}

/// `of` times a fraction.
fn scaled(of: u32, (numerator, denominator): (u64, u64)) -> u32 {
    narrow(u64::from(of) * numerator / denominator)
}

/// The cube root, rounded down.
fn cube_root(of: u64) -> u32 {
    let mut root = 0_u64;
    // ∛2⁶⁴ has 22 bits.
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        // 2²² cubed overflows; none of these is as large.
        if next.checked_pow(3).is_some_and(|cube| cube <= of) {
            root = next;
        }
    }
    u32::try_from(root).unwrap_or(u32::MAX)
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            initial: 0,
            hystart: HyStart::new(),
            avoidance: BoxedDefault::DEFAULT,
        }
    }
}

impl Cubic {
    /// The threshold is passed, by `left` bytes of what was acknowledged.
    #[cold]
    #[inline(never)]
    fn leave_slow_start(&mut self, window: &mut Window, left: u32, ack: &Ack) {
        self.avoidance.last_ack = ack.now;
        self.avoidance.avoid(window, left, ack);
    }

    #[inline(never)]
    fn on_ack_in_avoidance(&mut self, window: &mut Window, ack: &Ack) {
        self.avoidance.skip_unused(ack);
        if ack.may_grow() {
            self.avoidance.avoid(window, ack.acked, ack);
        }
    }

    /// β_cubic of what was in flight, two segments at least (RFC 9438 §4.6).
    fn reduced(window: &Window, in_flight: u32) -> u32 {
        scaled(reno::flight(window, in_flight), BETA).max(window.mss.saturating_mul(2))
    }
}

impl Avoidance {
    /// Congestion avoidance by `bytes` acknowledged.
    fn avoid(&mut self, window: &mut Window, bytes: u32, ack: &Ack) {
        if self.curve.epoch == Instant::FAR {
            self.curve.begin(window, ack.now);
            self.remainder = 0;
            self.reno_credit = 0;
        }
        let reno = self.reno_window(window, bytes);
        let t_ms = u64::from(ack.now.micros_since(self.curve.epoch)) / 1_000;
        let now = self.curve.at(t_ms, window.mss);
        if now < reno {
            // RFC 9438 §4.3: where Reno is faster, be Reno.
            window.cwnd = window.cwnd.max(reno);
            return;
        }
        // §4.4, §4.5: where the curve will be a round trip from now, within half a window.
        let ahead = t_ms + u64::from(ack.srtt_us) / 1_000;
        let most = window.cwnd.saturating_add(window.cwnd / 2);
        let target = self.curve.at(ahead, window.mss).clamp(window.cwnd, most);
        let rise = u64::from(target - window.cwnd) * u64::from(bytes) + u64::from(self.remainder);
        let cwnd = u64::from(window.cwnd.max(1));
        self.remainder = narrow(rise % cwnd);
        reno::grow(window, narrow(rise / cwnd));
    }

    /// RFC 9438 §4.3 equation 4: W_est grows by α_cubic segments per window, by one once it is where the window was.
    fn reno_window(&mut self, window: &Window, bytes: u32) -> u32 {
        let catching_up = self.curve.reno < self.curve.prior;
        let counted = if catching_up {
            scaled(bytes, ALPHA)
        } else {
            bytes
        };
        self.reno_credit = self
            .reno_credit
            .saturating_add(counted.min(window.cwnd.max(1)));
        if self.reno_credit >= window.cwnd {
            self.reno_credit -= window.cwnd;
            self.curve.reno = self.curve.reno.saturating_add(window.mss).min(CWND_MAX);
        }
        self.curve.reno
    }

    /// RFC 9438 §5.8: time in which the window was not used is no time of the curve.
    fn skip_unused(&mut self, ack: &Ack) {
        if !ack.is_cwnd_limited && self.curve.epoch != Instant::FAR {
            let unused = ack.now.micros_since(self.last_ack.max(self.curve.epoch));
            self.curve.epoch = self.curve.epoch.plus_micros(u64::from(unused));
        }
        self.last_ack = ack.now;
    }
}

impl Algorithm for Cubic {
    fn on_open(&mut self, window: &mut Window, _srtt_us: u32, _now: Instant) {
        self.initial = window.cwnd;
    }

    #[inline(always)]
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        if !window.in_slow_start() {
            return self.on_ack_in_avoidance(window, &{ *ack });
        }
        let mut left = 0;
        if ack.may_grow() {
            left = self.hystart.on_ack(window, ack);
        }
        if self.hystart.watch(ack) {
            window.ssthresh = window.cwnd;
        }
        if left > 0 {
            self.leave_slow_start(window, left, &{ *ack });
        }
    }

    fn reduce(&mut self, window: &Window, _cause: Cause, in_flight: u32, _now: Instant) -> u32 {
        self.hystart.stop();
        let avoidance = &mut *self.avoidance;
        avoidance.before = avoidance.curve;
        let cwnd = window.cwnd;
        // §4.7: a window that did not reach the last one makes room for others.
        let w_max = if cwnd < avoidance.curve.w_max {
            scaled(cwnd, CONVERGENCE)
        } else {
            cwnd
        };
        avoidance.curve = Curve {
            w_max,
            prior: cwnd,
            ..Curve::NONE
        };
        Self::reduced(window, in_flight)
    }

    fn on_timeout(&mut self, window: &mut Window, first: bool, in_flight: u32, _now: Instant) {
        self.hystart.stop();
        let avoidance = &mut *self.avoidance;
        if first {
            avoidance.before = avoidance.curve;
            window.ssthresh = Self::reduced(window, in_flight);
        }
        // §4.8: the next stage begins in the middle of its curve.
        avoidance.curve = Curve::NONE;
    }

    fn on_undo(&mut self, _window: &mut Window) {
        self.avoidance.curve = self.avoidance.before;
    }

    fn on_restart(&mut self, window: &mut Window, idle_us: u64, rto_us: u64, now: Instant) {
        let restarts = reno::restart(window, self.initial, idle_us, rto_us);
        if !self.avoidance.is_made() {
            return; // no curve has begun
        }
        let avoidance = &mut *self.avoidance;
        if restarts {
            // From the threshold on, a new curve to where the window was.
            avoidance.curve.epoch = Instant::FAR;
        } else if avoidance.curve.epoch != Instant::FAR {
            avoidance.curve.epoch = avoidance.curve.epoch.plus_micros(idle_us).min(now);
        }
        avoidance.last_ack = now;
    }
    fn is_sound(&self) -> bool {
        self.hystart.is_sound()
    }
}

imaged! {
    /// [`Cubic`] as plain data.
    pub(super) struct CubicImage of Cubic {
        initial: u32,
        hystart: HyStart as part,
        avoidance: Option<AvoidanceImage> as part,
    }
}

imaged! {
    /// [`Avoidance`] as plain data.
    struct AvoidanceImage of Avoidance {
        curve: CurveImage as part,
        before: CurveImage as part,
        last_ack: Distance as part,
        remainder: u32,
        reno_credit: u32,
    }
}

imaged! {
    /// A [`Curve`] as plain data.
    struct CurveImage of Curve {
        epoch: Distance as part,
        middle_ms: u32,
        w_max: u32,
        prior: u32,
        reno: u32,
    }
}
