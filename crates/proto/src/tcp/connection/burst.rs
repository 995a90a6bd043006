//! How much text leaves together, where the caller that emits it cuts it into segments, or the link does.

use super::Connection;

/// What a rate in bytes per second is shifted by for the bytes of a burst: those of about a millisecond, as in Linux.
const RATE_SHIFT: u32 = 10;
/// For each so many microseconds of the least round trip, as a shift, the part of a burst that near peers have beside that is halved.
const NEAR_SHIFT: u32 = 9;
/// That part of the nearest: as much as a link takes in one piece.
const NEAR_BYTES: u32 = 1 << 16;

impl Connection {
    /// Bytes of text that may leave together, in whole segments of `full` bytes: one, or as many as [`Self::burst_limit`] and the
    /// `room` in both windows allow.
    #[inline(always)]
    pub(super) fn segments_that_may_go(&self, text: u32, room: u32, full: u32) -> u32 {
        if text <= full || self.settings.burst < 2 * full {
            return full;
        }
        let most = self.burst_limit(full).min(room).min(text);
        (most - most % full).max(full)
    }

    /// Most bytes of a burst at this moment, as in Linux: half of either window, so that while one is under way there is another whose
    /// acknowledgment lets the next one leave; and, from [`crate::tcp::Config::burst_segments_min`] on, no more than about a millisecond of
    /// the path's rate, so that queues on it stay short. A near peer's come back so soon that they may be larger.
    fn burst_limit(&self, full: u32) -> u32 {
        let most = self.settings.burst;
        let windows = (self.congestion.window.cwnd / 2).min(self.half_window());
        let near = NEAR_BYTES
            .checked_shr(self.rtt.min_us() >> NEAR_SHIFT)
            .unwrap_or(0);
        if self.rtt.srtt_us == 0 || near >= most.min(windows) {
            return most.min(windows);
        }
        let rate = self.congestion.rate(self.rtt.srtt_us) >> RATE_SHIFT;
        let by_rate = u32::try_from(rate).unwrap_or(u32::MAX).saturating_add(near);
        let least = u32::from(self.periods.burst_segments_min) * full;
        most.min(by_rate.max(least)).min(windows)
    }

    /// Half the largest window that the peer ever offered; a tiny one is not divided.
    fn half_window(&self) -> u32 {
        let window = self.snd.wnd_max;
        if window > u32::from(self.settings.default_mss) {
            window / 2
        } else {
            window
        }
    }
}
