//! What a congestion control is told, and what it may change: the window and its pace.
//!
//! Loss recovery (what is lost, what is sent again) is not its business, only how much may be in flight. Everything is in bytes and
//! microseconds; running totals wrap at 2³².

use crate::tcp::image::plain;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// How much may be in flight, and how fast it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Window {
    /// Bytes that may be in flight.
    pub cwnd: u32,
    /// Slow start below, congestion avoidance from here on.
    pub ssthresh: u32,
    /// Bytes of text in a full segment.
    pub mss: u32,
    /// Bytes per second at which new text leaves; 0: as fast as the window allows.
    pub pacing_rate: u64,
    /// Paced even if the algorithm does not ask for it.
    pub is_paced: bool,
    /// Segments that one acknowledgment may add in slow start, if what it allows does not leave paced; 0: any number.
    pub slow_start_limit: u8,
}

impl Window {
    /// Whether in slow start.
    #[inline]
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

plain!(Window {
    cwnd,
    ssthresh,
    mss,
    pacing_rate,
    is_paced,
    slow_start_limit
});

/// Where loss recovery stands (RFC 9293 has no names for it; these are Linux's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// The window is being reduced because of ECN, nothing is lost.
    Reducing,
    /// Losses found by acknowledgments are repaired.
    Recovery,
    /// The retransmission timer expired; everything may be lost.
    Loss,
}

/// How fast the path delivered, as one acknowledgment tells (delivery rate estimation, draft-ietf-ccwg-bbr §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct RateSample {
    /// Bytes delivered over `interval_us`.
    pub delivered: u32,
    /// Microseconds; 0: this acknowledgment says nothing about the rate.
    pub interval_us: u32,
    /// All bytes delivered (running total) when the segment left that this sample is about.
    pub prior_delivered: u32,
    /// Bytes in flight when that segment left, itself included.
    pub tx_in_flight: u32,
    /// Bytes found lost between that segment's departure and now.
    pub lost: u32,
    /// The application, not the network, was the limit meanwhile.
    pub is_app_limited: bool,
}

impl RateSample {
    /// Bytes per second; `None` if there is no sample.
    pub const fn rate(&self) -> Option<u64> {
        if self.interval_us == 0 {
            return None;
        }
        Some(self.delivered as u64 * 1_000_000 / self.interval_us as u64)
    }
}

/// One acknowledgment that acknowledged, sacked or condemned something.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Ack {
    /// When it came.
    pub now: Instant,
    /// Bytes by which SND.UNA moved.
    pub acked: u32,
    /// Bytes acknowledged or sacked for the first time.
    pub delivered: u32,
    /// All bytes ever delivered (running total), these included.
    pub delivered_total: u32,
    /// Bytes that this acknowledgment lets appear lost.
    pub lost: u32,
    /// Of the delivered bytes, those that the network marked (ECN).
    pub marked: u32,
    /// Bytes in flight after it.
    pub in_flight: u32,
    /// The round trip that it measures, of segments sent once.
    pub rtt_us: Option<u32>,
    /// Smoothed round trip, 0 before the first.
    pub srtt_us: u32,
    /// SND.UNA after it.
    pub una: SeqNum,
    /// SND.NXT: what is sent from now on is acknowledged a round trip later.
    pub nxt: SeqNum,
    /// Where recovery stands after it.
    pub phase: Phase,
    /// The window, not the application or the peer, was what held sending back (RFC 9293 MUST-19, RFC 7661).
    pub is_cwnd_limited: bool,
    /// How fast.
    pub rate: RateSample,
}

impl Ack {
    /// Whether a loss-based window may grow by it.
    pub const fn may_grow(&self) -> bool {
        self.is_cwnd_limited && self.acked > 0 && matches!(self.phase, Phase::Open | Phase::Loss)
    }
}

/// Why the window has to become smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Cause {
    /// Segments were lost.
    Loss,
    /// The network marked segments (RFC 3168, RFC 8511).
    Ecn,
}

/// One segment that was found lost.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct LostSegment {
    /// Its bytes.
    pub bytes: u32,
    /// Bytes in flight when it left, itself included.
    pub tx_in_flight: u32,
    /// Bytes found lost since it left, itself included.
    pub lost: u32,
    /// Whether the application was the limit when it left.
    pub is_app_limited: bool,
}

/// A congestion control. All methods are told the window as it is and may change it.
pub(in super::super) trait Algorithm {
    /// The connection is open: the window is the initial one; `srtt_us` is 0 if nothing was measured.
    fn on_open(&mut self, window: &mut Window, srtt_us: u32, now: Instant) {
        let _ = (window, srtt_us, now);
    }
    /// An acknowledgment with news. In [`Phase::Recovery`] and [`Phase::Reducing`] proportional rate reduction moves the
    /// window afterwards, unless [`Self::owns_window`].
    fn on_ack(&mut self, window: &mut Window, ack: &Ack);
    /// An episode of congestion begins: the slow start threshold to come down to. The window itself is moved by the caller. `in_flight`
    /// is RFC 5681's FlightSize: all that was sent and is not acknowledged, lost or not.
    fn reduce(&mut self, window: &Window, cause: Cause, in_flight: u32, now: Instant) -> u32;
    /// The retransmission timer expired. `first`: not again for the same data. Sets ssthresh; the caller sets the window to one segment.
    fn on_timeout(&mut self, window: &mut Window, first: bool, in_flight: u32, now: Instant);
    /// Recovery ended; the window is at ssthresh.
    fn on_recovered(&mut self, window: &mut Window, now: Instant) {
        let _ = (window, now);
    }
    /// The reduction was for nothing: `window` has what it had before it.
    fn on_undo(&mut self, window: &mut Window) {
        let _ = window;
    }
    /// New text leaves while nothing was in flight, `idle_us` after the last did; `rto_us` is the retransmission timeout.
    fn on_restart(&mut self, window: &mut Window, idle_us: u64, rto_us: u64, now: Instant) {
        let _ = (window, idle_us, rto_us, now);
    }
    /// A segment was found lost; called before [`Self::on_ack`] of the acknowledgment that told.
    fn on_lost(&mut self, window: &mut Window, segment: &LostSegment) {
        let _ = (window, segment);
    }
    /// Whether it moves the window in recovery by itself and always wants to be paced.
    fn owns_window(&self) -> bool {
        false
    }
    /// Whether a connection could have come to this state: asked where it was put together of an image.
    fn is_sound(&self) -> bool {
        true
    }
}
