//! What can be told of a connection: the source of TCP_INFO and of `show`.

use super::connection::Connection;
use super::types::State;
use crate::time::{Duration, Instant};

/// A connection in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it; units are in them
pub struct Info {
    pub state: State,
    pub timestamps: bool,
    pub sack: bool,
    pub send_scale: u8,
    pub receive_scale: u8,
    pub rtt: Duration,
    pub rtt_variation: Duration,
    pub rtt_min: Duration,
    pub rto: Duration,
    pub backoff: u8,
    pub cwnd_bytes: u32,
    pub ssthresh_bytes: u32,
    pub send_mss: u16,
    pub receive_mss: u16,
    pub announced_mss: u16,
    pub in_flight_bytes: u32,
    pub unsent_bytes: u32,
    pub unread_bytes: u32,
    pub send_window_bytes: u32,
    pub receive_window_bytes: u32,
    pub in_recovery: bool,
    pub retransmits: u32,
    pub timeouts: u32,
    pub recoveries: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segments_in: u32,
    pub segments_out: u32,
    pub duplicate_segments: u32,
    pub out_of_order_segments: u32,
    pub last_received: Instant,
    pub last_sent: Instant,
}

impl Connection {
    /// The connection in figures.
    pub fn info(&self) -> Info {
        let micros = |us: u32| Duration::from_micros(u64::from(us));
        let c = &self.counters;
        Info {
            state: self.state,
            timestamps: self.timestamps,
            sack: self.sack,
            send_scale: self.snd.scale,
            receive_scale: self.rcv.scale,
            rtt: micros(self.rtt.srtt_us),
            rtt_variation: micros(self.rtt.rttvar_us),
            rtt_min: micros(if self.rtt.min_us == u32::MAX {
                0
            } else {
                self.rtt.min_us
            }),
            rto: Duration::from_micros(self.rtt.rto_us()),
            backoff: self.rtt.backoff(),
            cwnd_bytes: self.congestion.cwnd,
            ssthresh_bytes: self.congestion.ssthresh,
            send_mss: self.snd.mss,
            receive_mss: self.rcv.mss,
            announced_mss: self.settings.mss,
            in_flight_bytes: (self.snd.nxt - self.snd.una).max(0).unsigned_abs(),
            unsent_bytes: self.unsent(),
            unread_bytes: self.unread,
            send_window_bytes: self.snd.wnd,
            receive_window_bytes: (self.rcv.edge - self.rcv.nxt).max(0).unsigned_abs(),
            in_recovery: self.recovery.active(),
            retransmits: c.retransmits,
            timeouts: u32::from(c.timeouts),
            recoveries: u32::from(c.recoveries),
            bytes_acked: c.bytes_acked,
            bytes_received: c.bytes_received,
            segments_in: c.segments_in,
            segments_out: c.segments_out,
            duplicate_segments: c.duplicate_segments,
            out_of_order_segments: c.out_of_order,
            last_received: self.last_received,
            last_sent: self.last_sent,
        }
    }
}
