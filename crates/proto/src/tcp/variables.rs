//! The variables of a connection (RFC 9293 §3.3.1), and what they are measured in.

use super::config::{Config, MtuProbing};
use super::image::plain;
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNum;

/// What `output` has to look at. Empty means: nothing to send, at the price of one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending(pub u8);

impl Pending {
    /// The SYN, or SYN-ACK.
    pub const SYN: u8 = 1 << 0;
    /// A RST that ends the connection.
    pub const RST: u8 = 1 << 1;
    /// A RST for a segment of another connection; ours goes on.
    pub const REFUSE: u8 = 1 << 2;
    /// Text, FIN or a retransmission may be possible.
    pub const SEND: u8 = 1 << 3;
    /// An acknowledgment.
    pub const ACK: u8 = 1 << 4;
    /// A zero-window probe.
    pub const PROBE: u8 = 1 << 5;
    /// A keep-alive probe.
    pub const KEEPALIVE: u8 = 1 << 6;
    /// A tail loss probe.
    pub const TAIL: u8 = 1 << 7;

    #[inline]
    pub fn set(&mut self, bits: u8) {
        self.0 |= bits;
    }
    #[inline]
    pub fn clear(&mut self, bits: u8) {
        self.0 &= !bits;
    }
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

/// What a connection keeps of its [`Config`], durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    pub mss: u16,
    pub max_gaps: u16,
    pub max_segments: u32,
    pub receive_buffer: u32,
    pub delayed_ack_us: u32,
    pub retry_ms: u32,
    pub syn_retry_ms: u32,
    pub burst: u32,
    pub mtu_probing: MtuProbing,
    pub rack: bool,
    /// What the path's family guarantees.
    pub default_mss: u16,
}

/// A duration in whole milliseconds, at most 2³² - 1 (49 days).
pub(super) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// `ms` milliseconds.
pub(super) const fn from_millis(ms: u32) -> Duration {
    Duration::from_millis(ms as u64)
}

impl Settings {
    pub fn new(config: &Config) -> Self {
        Self {
            mss: config.mss.max(MSS_MIN),
            max_gaps: config.max_gaps.max(1),
            max_segments: config.max_segments.max(8),
            receive_buffer: config.receive_buffer.clamp(1, RECEIVE_BUFFER_MAX),
            // RFC 9293 MUST-40.
            delayed_ack_us: super::rtt::micros(config.delayed_ack).min(499_000),
            retry_ms: millis(config.retry_timeout),
            syn_retry_ms: millis(config.syn_timeout),
            burst: config.burst,
            mtu_probing: config.mtu_probing,
            rack: config.rack,
            default_mss: config.default_mss.max(MSS_MIN),
        }
    }
}

/// Least segment size believed, options included: a smaller one only makes us send more headers (`negative 58`). Linux believes 48
/// (tcp_min_snd_mss, CVE-2019-11479); here the longest options leave 24 bytes to text, there 8.
pub(super) const MSS_MIN: u16 = 64;
/// RFC 7323 §2.3: no window exceeds 1 GiB.
pub(super) const RECEIVE_BUFFER_MAX: u32 = 1 << 30;
/// Bytes of the timestamps option, padded (RFC 7323 appendix A).
pub(super) const TIMESTAMPS_LEN: u16 = 12;

/// The send sequence variables, SND.x of the RFC. Text in the send queue ends at `end`; a FIN
/// takes that place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SendVariables {
    pub una: SeqNum,
    /// Next to send that was never sent. What is sent again is in the records ([`Sent`]).
    pub nxt: SeqNum,
    pub end: SeqNum,
    /// Where the last segment ended that was not full.
    pub small: SeqNum,
    pub wnd: u32,
    pub wnd_max: u32,
    pub wl1: SeqNum,
    pub wl2: SeqNum,
    pub scale: u8,
    /// What waits now goes whatever would hold it back.
    pub pushes: bool,
    /// Bytes of text in a full segment: peer's and path's limit, less the options always sent.
    pub mss: u16,
}

/// The receive sequence variables, RCV.x of the RFC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReceiveVariables {
    pub nxt: SeqNum,
    /// The farthest window edge ever announced.
    pub edge: SeqNum,
    pub scale: u8,
    /// The peer's full segment, as far as seen.
    pub mss: u16,
}

impl SendVariables {
    pub const fn new(iss: SeqNum, mss: u16) -> Self {
        Self {
            una: iss,
            nxt: iss,
            end: SeqNum(iss.0.wrapping_add(1)),
            small: iss,
            wnd: 0,
            wnd_max: 0,
            wl1: SeqNum(0),
            wl2: SeqNum(0),
            scale: 0,
            pushes: false,
            mss,
        }
    }
}

impl ReceiveVariables {
    pub const fn new(scale: u8, mss: u16) -> Self {
        Self {
            nxt: SeqNum(0),
            edge: SeqNum(0),
            scale,
            mss,
        }
    }
}

/// What one connection has done, for [`super::Info`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segments_in: u32,
    pub segments_out: u32,
    pub data_segments: u32,
    pub data_segments_in: u32,
}

/// Segments acknowledged at once in the beginning, so that the peer's slow start is quick.
pub(super) const QUICK_ACKS: u8 = 16;

/// Whether both ends talk in turn: acknowledgments ride along then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Talk {
    /// Text came, and none has left since.
    pub heard: bool,
    /// The application answers what comes: nothing is acknowledged at once for being among the first.
    pub interactive: bool,
}

/// The timestamp clock ticks in milliseconds (RFC 7323 §5.4), so that PAWS holds for 24 days.
#[inline]
pub(super) fn timestamp_clock(now: Instant) -> u32 {
    now.low_millis()
}

plain!(Settings {
    mss,
    max_gaps,
    max_segments,
    receive_buffer,
    delayed_ack_us,
    retry_ms,
    syn_retry_ms,
    burst,
    mtu_probing,
    rack,
    default_mss
});
plain!(SendVariables {
    una,
    nxt,
    end,
    small,
    wnd,
    wnd_max,
    wl1,
    wl2,
    scale,
    pushes,
    mss
});
plain!(ReceiveVariables {
    nxt,
    edge,
    scale,
    mss
});
plain!(Counters {
    bytes_acked,
    bytes_received,
    segments_in,
    segments_out,
    data_segments,
    data_segments_in
});
plain!(Talk { heard, interactive });

#[cfg(test)]
impl super::image::scramble::Scramble for Pending {
    fn scramble(&mut self, dice: &mut super::image::scramble::Scrambler) {
        self.0.scramble(dice);
    }
}

#[cfg(test)]
super::image::scramble::chosen! { MtuProbing: MtuProbing::Off, MtuProbing::BlackHole, MtuProbing::Always; }
