//! How much may be in flight. The algorithm is a choice per connection; the window is kept here.

#[allow(dead_code)] // until recovery is on it
mod algorithm;
#[allow(dead_code)] // likewise
mod bbr;
#[allow(dead_code)] // likewise
mod control;
#[allow(dead_code)] // likewise
mod cubic;
#[allow(dead_code)] // likewise
mod dctcp;
#[allow(dead_code)] // likewise
mod hystart;
mod newreno;
#[allow(dead_code)] // likewise
mod reno;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // totals that wrap, and lengths of tests
mod tests;

use newreno::NewReno;

/// The congestion window and what moves it.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Congestion {
    /// Bytes that may be in flight.
    pub cwnd: u32,
    /// Slow start below, congestion avoidance from here on.
    pub ssthresh: u32,
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
enum Algorithm {
    NewReno(NewReno),
}

/// The largest window kept: the sequence space allows no more in flight (RFC 7323 §2.3).
const CWND_MAX: u32 = 1 << 30;

/// RFC 6928 §2: the initial window, as `segments` of `mss` bytes, at least two of them.
pub(super) fn initial_window(segments: u32, mss: u32) -> u32 {
    segments.max(2).saturating_mul(mss).min(CWND_MAX)
}

impl Congestion {
    pub const fn new(cwnd: u32) -> Self {
        Self {
            cwnd,
            ssthresh: u32::MAX,
            algorithm: Algorithm::NewReno(NewReno::new()),
        }
    }

    /// Whether in slow start.
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// New data was acknowledged outside of recovery. `flight` is what was in flight before: a
    /// window that is not used does not grow (RFC 7661).
    pub fn acknowledged(&mut self, bytes: u32, flight: u32, mss: u32) {
        let used = if self.in_slow_start() {
            self.cwnd / 2 <= flight
        } else {
            self.cwnd <= flight.saturating_add(mss)
        };
        if used {
            let Algorithm::NewReno(algorithm) = &mut self.algorithm;
            self.cwnd = algorithm
                .grow(self.cwnd, self.ssthresh, bytes, mss)
                .min(CWND_MAX);
        }
    }

    /// A loss was noticed by duplicate acknowledgments: recovery begins (RFC 6675 §5, step 4.2).
    pub fn enter_recovery(&mut self, flight: u32, mss: u32) {
        self.ssthresh = NewReno::reduced(flight, mss);
        self.cwnd = self.ssthresh;
        let Algorithm::NewReno(algorithm) = &mut self.algorithm;
        algorithm.reset();
    }

    /// Recovery is over (RFC 6582 §3.2, full acknowledgment, first choice: no burst).
    pub fn leave_recovery(&mut self, flight: u32, mss: u32) {
        self.cwnd = self
            .ssthresh
            .min(flight.max(mss).saturating_add(mss))
            .max(mss);
    }

    /// The retransmission timer expired (RFC 5681 §3.1). `first` is false when the same data
    /// timed out before: then the threshold stays.
    pub fn timed_out(&mut self, flight: u32, mss: u32, first: bool) {
        if first {
            self.ssthresh = NewReno::reduced(flight, mss);
        }
        self.cwnd = mss;
        let Algorithm::NewReno(algorithm) = &mut self.algorithm;
        algorithm.reset();
    }

    /// Nothing was sent for a retransmission timeout (RFC 5681 §4.1).
    pub fn restart_after_idle(&mut self, initial: u32) {
        self.cwnd = self.cwnd.min(initial);
    }

    /// The segment size changed.
    pub fn mss_changed(&mut self, mss: u32) {
        self.cwnd = self.cwnd.max(mss);
    }
}
