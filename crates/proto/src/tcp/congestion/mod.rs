//! How much may be in flight, and how fast it leaves. The algorithm is a choice per connection; the window is kept here.

mod algorithm;
mod bbr;
mod control;
mod cubic;
mod dctcp;
mod hystart;
mod reno;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // totals that wrap, and lengths of tests
mod tests;
mod usage;

use alloc::boxed::Box;

use algorithm::Algorithm;
pub(super) use algorithm::{Ack, Cause, LostSegment, Phase, RateSample, Window};
use usage::Usage;

use crate::tcp::image::{Imaged, imaged};
use crate::time::Instant;

// A new one is a file of its own, which implements `Algorithm`, and a row here. BBR's model is large, and lies elsewhere.
control::controls! {
    /// `reno`: RFC 5681, RFC 6582.
    NewReno, "reno", reno::NewReno;
    /// `cubic`: RFC 9438, with HyStart++ (RFC 9406).
    #[default]
    Cubic, "cubic", cubic::Cubic;
    /// `dctcp`: RFC 8257. Only where all of the network marks (ECN).
    Dctcp, "dctcp", dctcp::Dctcp;
    /// `bbr`: version 3 (draft-ietf-ccwg-bbr).
    Bbr, "bbr", Box<bbr::Bbr>;
}

/// An idle connection holds this much of it.
const _: () = assert!(size_of::<Control>() <= 40);

/// The congestion window and what moves it.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Congestion {
    pub window: Window,
    control: Control,
    /// SO_MAX_PACING_RATE, in bytes per second; 0: none.
    pub pacing_rate_max: u64,
    usage: Usage,
}

/// The largest window kept: the sequence space allows no more in flight (RFC 7323 §2.3).
const CWND_MAX: u32 = 1 << 30;

/// RFC 6928 §2: the initial window, as `segments` of `mss` bytes, at least two of them.
pub(super) fn initial_window(segments: u32, mss: u32) -> u32 {
    segments.max(2).saturating_mul(mss).min(CWND_MAX)
}

impl Congestion {
    pub fn new(control: CongestionControl, is_paced: bool, slow_start_limit: u8) -> Self {
        Self {
            window: Window {
                cwnd: 0,
                ssthresh: u32::MAX,
                mss: 1,
                pacing_rate: 0,
                is_paced,
                slow_start_limit,
            },
            control: Control::new(control),
            pacing_rate_max: 0,
            usage: Usage::NONE,
        }
    }

    /// The window is `cwnd` bytes and segments have `mss`: the handshake is over, or the first segment leaves.
    pub fn open(&mut self, cwnd: u32, mss: u32) {
        self.window.cwnd = cwnd;
        self.window.ssthresh = u32::MAX;
        self.window.mss = mss;
    }

    /// The connection is open.
    pub fn opened(&mut self, srtt_us: u32, now: Instant) {
        self.control.on_open(&mut self.window, srtt_us, now);
        self.set_pace(srtt_us);
    }

    /// Another algorithm from now on, with the window as it is.
    pub fn change(&mut self, control: CongestionControl, srtt_us: u32, now: Instant) {
        self.control = Control::new(control);
        self.window.pacing_rate = 0;
        self.opened(srtt_us, now);
    }

    /// The limit of the pace changed.
    pub fn opened_pace(&mut self, srtt_us: u32) {
        if !self.control.owns_window() {
            self.window.pacing_rate = 0;
        }
        self.set_pace(srtt_us);
    }

    /// Which it is.
    pub fn control(&self) -> CongestionControl {
        self.control.which()
    }

    /// Bytes per second; 0: not paced.
    #[inline]
    pub const fn pacing_rate(&self) -> u64 {
        self.window.pacing_rate
    }

    /// An acknowledgment with news.
    #[inline(always)]
    pub fn acknowledged(&mut self, ack: &Ack) {
        self.control.on_ack(&mut self.window, ack);
        self.window.cwnd = self.window.cwnd.clamp(self.window.mss, CWND_MAX);
        if self.window.is_paced || self.pacing_rate_max > 0 {
            self.set_pace(ack.srtt_us);
        }
    }

    /// Something new leaves.
    #[inline]
    pub const fn sent(&mut self) {
        self.usage.sent();
    }

    /// An acknowledgment came while `pipe` bytes were under way; `round_ends`: the first of a round trip. Whether the window was what held
    /// sending back.
    #[inline]
    pub fn note_usage(&mut self, pipe: u32, round_ends: bool) -> bool {
        self.usage.note(pipe, round_ends, &self.window);
        self.usage.is_limit(&self.window)
    }

    /// For algorithms without a pace of their own: twice the window a round trip in slow start, 1.2 times afterwards, so that the
    /// window, not the pace, is the limit.
    fn rate_of_window(&self, srtt_us: u32) -> u64 {
        let percent = if self.window.in_slow_start() {
            200
        } else {
            120
        };
        let per_round = u64::from(self.window.cwnd) * percent / 100;
        (per_round * 1_000_000)
            .checked_div(srtt_us.into())
            .unwrap_or(0)
    }

    /// Bytes per second at which text leaves, or would with pacing.
    pub fn rate(&self, srtt_us: u32) -> u64 {
        match self.window.pacing_rate {
            0 => self.rate_of_window(srtt_us),
            rate => rate,
        }
    }

    /// The pace, where there is one.
    fn set_pace(&mut self, srtt_us: u32) {
        if !self.control.owns_window() {
            self.window.pacing_rate = match self.window.is_paced {
                true => self.rate_of_window(srtt_us),
                false => 0,
            };
        }
        let window = &mut self.window;
        if self.pacing_rate_max > 0 {
            window.pacing_rate = match window.pacing_rate {
                0 => self.pacing_rate_max,
                rate => rate.min(self.pacing_rate_max),
            };
        }
    }

    /// An episode of congestion begins.
    pub fn reduce(&mut self, cause: Cause, flight: u32, now: Instant) {
        let ssthresh = self.control.reduce(&self.window, cause, flight, now);
        self.window.ssthresh = ssthresh.max(self.window.mss);
    }

    /// Recovery is over (RFC 9937 §6: the window is set to ssthresh).
    pub fn recovered(&mut self, now: Instant) {
        if !self.control.owns_window() {
            self.window.cwnd = self.window.ssthresh.clamp(self.window.mss, CWND_MAX);
        }
        self.control.on_recovered(&mut self.window, now);
    }

    /// The retransmission timer expired (RFC 5681 §3.1).
    pub fn timed_out(&mut self, first: bool, flight: u32, now: Instant) {
        self.control
            .on_timeout(&mut self.window, first, flight, now);
        self.window.ssthresh = self.window.ssthresh.max(self.window.mss);
    }

    /// The reduction was for nothing; the window is what it was.
    pub fn undone(&mut self) {
        self.control.on_undo(&mut self.window);
    }

    /// A segment was found lost.
    pub fn lost(&mut self, segment: &LostSegment) {
        self.control.on_lost(&mut self.window, segment);
    }

    /// New text leaves after a silence.
    pub fn restart(&mut self, idle_us: u64, rto_us: u64, now: Instant) {
        self.control
            .on_restart(&mut self.window, idle_us, rto_us, now);
    }

    /// Whether the algorithm moves the window in recovery, too.
    #[inline]
    pub fn owns_window(&self) -> bool {
        self.control.owns_window()
    }

    /// The segment size changed.
    pub fn mss_changed(&mut self, mss: u32) {
        self.window.mss = mss;
        self.window.cwnd = self.window.cwnd.max(mss);
    }
}

imaged! {
    /// [`Congestion`] as plain data.
    pub(super) struct CongestionImage of Congestion {
        window: Window as part,
        control: ControlImage as part,
        pacing_rate_max: u64,
        usage: Usage as part,
    }
}

impl Congestion {
    /// Whether a connection could have come to it.
    pub fn is_sound(&self) -> bool {
        let window = &self.window;
        let opened = window.cwnd >= window.mss && window.cwnd <= CWND_MAX;
        let sizes = window.mss > 0 && window.mss <= 0xffff && (window.cwnd == 0 || opened);
        sizes && self.control.is_sound()
    }
}
