//! The congestion controls on a path made of numbers: rate, delay, buffer, losses, marks.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod path;
mod random;
mod reno;

use super::algorithm::{Ack, Phase, RateSample, Window};
use crate::time::Instant;
use crate::wire::tcp::SeqNum;

const MSS: u32 = 1448;

/// A window in congestion avoidance.
fn avoiding(segments: u32) -> Window {
    Window {
        cwnd: segments * MSS,
        ssthresh: segments * MSS,
        mss: MSS,
        pacing_rate: 0,
        is_paced: false,
        slow_start_limit: 0,
    }
}

/// A window at a connection's beginning.
fn beginning() -> Window {
    Window {
        cwnd: 10 * MSS,
        ssthresh: u32::MAX,
        mss: MSS,
        pacing_rate: 0,
        is_paced: false,
        slow_start_limit: 0,
    }
}

/// An acknowledgment of `bytes` that the window had held back.
fn ack(now_us: u64, bytes: u32, rtt_us: u32) -> Ack {
    Ack {
        now: Instant(now_us * 1_000),
        acked: bytes,
        delivered: bytes,
        delivered_total: 0,
        lost: 0,
        marked: 0,
        in_flight: 0,
        rtt_us: Some(rtt_us),
        srtt_us: rtt_us,
        una: SeqNum(0),
        nxt: SeqNum(0),
        phase: Phase::Open,
        is_cwnd_limited: true,
        rate: RateSample::default(),
    }
}
