//! Slow start and congestion avoidance (RFC 5681), counting bytes (RFC 3465).

/// The additive increase of congestion avoidance, one segment per window acknowledged.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct NewReno {
    /// Bytes acknowledged since the window last grew.
    credit: u32,
}

/// Segments that one acknowledgment may add in slow start. RFC 3465 §2.3 has 2, for receivers that
/// acknowledge every second segment; ours, and those behind receive offload, acknowledge a burst
/// at once. What is counted are bytes, so splitting acknowledgments gains nothing (`negative 64`).
const SLOW_START_LIMIT: u32 = 16;

impl NewReno {
    pub const fn new() -> Self {
        Self { credit: 0 }
    }

    pub fn reset(&mut self) {
        self.credit = 0;
    }

    /// Half of what was in flight (RFC 5681 equation 4).
    pub fn reduced(flight: u32, mss: u32) -> u32 {
        (flight / 2).max(mss.saturating_mul(2))
    }

    /// The window after `bytes` more were acknowledged.
    pub fn grow(&mut self, cwnd: u32, ssthresh: u32, bytes: u32, mss: u32) -> u32 {
        if cwnd < ssthresh {
            return cwnd.saturating_add(bytes.min(mss.saturating_mul(SLOW_START_LIMIT)));
        }
        self.credit = self.credit.saturating_add(bytes.min(cwnd));
        if self.credit < cwnd {
            return cwnd;
        }
        self.credit -= cwnd;
        cwnd.saturating_add(mss)
    }
}
