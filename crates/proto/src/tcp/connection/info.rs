//! What can be told of a connection: the source of TCP_INFO and of `show`.

use super::Connection;
use crate::tcp::busy::{of_ticks, ticks};
use crate::tcp::congestion::CongestionControl;
use crate::tcp::congestion::Phase;
use crate::tcp::rack::DUPLICATE_THRESHOLD;
use crate::tcp::types::State;
use crate::time::{Duration, Instant};

/// Where loss recovery stands, in the order of Linux's `tcpi_ca_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Repair {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// Duplicate acknowledgments or SACK blocks: something was lost or came late.
    Disorder,
    /// The window is being reduced because the network marked segments (ECN).
    Reduced,
    /// Losses that acknowledgments reported are repaired.
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

/// What the send side knows of its segments, its path and its pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it; units are in them, segments where there is none
pub struct Sending {
    pub congestion: CongestionControl,
    pub repair: Repair,
    /// Sacked; thought lost, also if it was sent again; and sent again: of what is not yet acknowledged.
    pub sacked: u32,
    pub lost: u32,
    pub retransmitted: u32,
    /// By how many segments the path is expected to reorder, and how often it was seen to.
    pub reordering: u32,
    pub reorderings_seen: u32,
    /// Duplicates that the peer reported (RFC 2883).
    pub duplicates_reported: u32,
    pub data_segments: u32,
    pub bytes: u64,
    pub bytes_retransmitted: u64,
    /// Delivered so far, of them with a congestion mark.
    pub delivered: u32,
    pub delivered_marked: u32,
    /// Bytes a second of the last delivery rate sample, and whether the application was its limit.
    pub delivery_rate: u64,
    pub is_app_limited: bool,
    /// Bytes a second at which text leaves; 0: not paced.
    pub pacing_rate: u64,
    /// Time with something to send; of it held back by the peer's window, and by a send queue that was full.
    pub busy: Duration,
    pub window_limited: Duration,
    pub buffer_limited: Duration,
    /// Expiries of the retransmission timer, of SYNs, too; those of them that came first after an acknowledgment of something; and the time from a
    /// first one until what it found lost had arrived, to the millisecond, what goes on included.
    pub timeouts: u32,
    pub timeout_recoveries: u32,
    pub timeout_time: Duration,
    /// Reductions taken back (RFC 4015, RFC 5682, RFC 3708), and tail loss probes (RFC 8985).
    pub undos: u32,
    pub tail_probes: u32,
    /// ECN was agreed upon, and a mark was seen.
    pub ecn: bool,
    pub ecn_seen: bool,
}

/// A connection in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it; units are in them
pub struct Info {
    pub state: State,
    pub timestamps: bool,
    pub sack: bool,
    pub window_scaling: bool,
    /// Text in a SYN was taken (RFC 7413).
    pub syn_data: bool,
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
    pub receive_buffer_bytes: u32,
    /// The round trip as the receiver sees it, and what the application took in the last one.
    pub receive_rtt: Duration,
    pub receive_space_bytes: u32,
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
    pub data_segments_in: u32,
    pub delayed_ack: Duration,
    /// Retransmissions of the same data without an answer, and whether they are window probes.
    pub attempts: u8,
    pub is_probing: bool,
    pub keepalives_unanswered: u8,
    pub last_received: Instant,
    pub last_sent: Instant,
    /// How long ago text came, or the connection was opened.
    pub since_text: Duration,
    pub sending: Sending,
}

impl Connection {
    /// The congestion window, bytes.
    #[inline]
    pub const fn cwnd(&self) -> u32 {
        self.congestion.window.cwnd
    }

    /// What the path holds, bytes: the delivery rate of the last sample for the least round trip, so the bandwidth-delay product without what stands in
    /// queues. 0 before there is a sample, and so where all is delivered within a microsecond.
    pub fn path_holds(&self) -> u32 {
        /// Samples over less are of a turn of the peer's, not of the path, µs.
        const INTERVAL_MIN: u32 = 16;

        let (bytes, interval_us) = self.rate.last;
        let held = u64::from(bytes) * u64::from(self.rtt.min_us());
        u32::try_from(held / u64::from(interval_us.max(INTERVAL_MIN))).unwrap_or(u32::MAX)
    }

    /// The retransmission timeout.
    pub fn rto(&self) -> Duration {
        Duration::from_micros(self.rtt.rto_us())
    }

    /// The connection in figures, as of the last segment.
    pub fn info(&self) -> Info {
        self.info_at(self.last_received.max(self.last_sent))
    }

    /// The connection in figures. Looks at every segment under way: not for the path of packets.
    pub fn info_at(&self, now: Instant) -> Info {
        let micros = |us: u32| Duration::from_micros(u64::from(us));
        let (c, s) = (&self.counters, &*self.cold);
        Info {
            state: self.state,
            timestamps: self.timestamps,
            sack: self.sack,
            window_scaling: self.scaling,
            syn_data: self.has_syn_data(),
            send_scale: self.snd.scale,
            receive_scale: self.rcv.scale,
            rtt: micros(self.rtt.srtt_us),
            rtt_variation: micros(self.rtt.rttvar_us),
            rtt_min: micros(match self.rtt.min_us() {
                u32::MAX => 0,
                min => min,
            }),
            rto: self.rto(),
            backoff: self.rtt.backoff(),
            cwnd_bytes: self.cwnd(),
            ssthresh_bytes: self.congestion.window.ssthresh,
            send_mss: self.snd.mss,
            receive_mss: self.rcv.mss,
            announced_mss: self.settings.mss,
            in_flight_bytes: (self.snd.nxt - self.snd.una).max(0).unsigned_abs(),
            unsent_bytes: self.unsent(),
            unread_bytes: self.unread,
            send_window_bytes: self.snd.wnd,
            receive_window_bytes: (self.rcv.edge - self.rcv.nxt).max(0).unsigned_abs(),
            receive_buffer_bytes: self.settings.receive_buffer,
            receive_rtt: self.receive_space().0,
            receive_space_bytes: self.receive_space().1,
            in_recovery: self.recovery.is_repairing(),
            retransmits: s.retransmits,
            timeouts: u32::from(s.timeouts),
            recoveries: u32::from(s.recoveries),
            bytes_acked: c.bytes_acked,
            bytes_received: c.bytes_received,
            segments_in: c.segments_in,
            segments_out: c.segments_out,
            duplicate_segments: s.duplicate_segments,
            out_of_order_segments: s.out_of_order,
            data_segments_in: c.data_segments_in,
            delayed_ack: micros(self.settings.delayed_ack_us),
            attempts: self.attempts,
            is_probing: self.probing,
            keepalives_unanswered: self.keepalives_sent,
            last_received: self.last_received,
            last_sent: self.last_sent,
            since_text: of_ticks(ticks(now).wrapping_sub(self.busy.last_text)),
            sending: self.sending(now),
        }
    }

    /// What the send side has to say. NewReno keeps no records of segments: what it cannot say is zero.
    fn sending(&self, now: Instant) -> Sending {
        let segments = |bytes: u32| bytes.div_ceil(u32::from(self.snd.mss).max(1));
        let repair = match self.recovery.phase {
            Phase::Loss => Repair::Loss,
            Phase::Recovery => Repair::Recovery,
            Phase::Reducing => Repair::Reduced,
            Phase::Open if self.recovery.duplicates > 0 || self.sent.sacked() > 0 => {
                Repair::Disorder
            }
            Phase::Open => Repair::Open,
        };
        let (c, s) = (&self.counters, &*self.cold);
        let outstanding = (self.snd.nxt - self.snd.una).max(0).unsigned_abs();
        let (bytes, interval_us) = self.rate.last;
        let going_on = now.since(s.timeout_since);
        let [busy, window_limited, buffer_limited] = self.busy.times(now);
        // What is repaired counts as lost until it arrives; a tail loss probe repairs nothing that is known to be lost.
        let repaired = if self.recovery.is_repairing() {
            self.sent.retransmitted()
        } else {
            0
        };
        Sending {
            congestion: self.congestion.control(),
            repair,
            sacked: segments(self.sent.sacked()),
            lost: segments(self.sent.lost() + repaired),
            retransmitted: segments(self.sent.retransmitted()),
            reordering: u32::from(s.reordering).max(DUPLICATE_THRESHOLD),
            reorderings_seen: s.reorderings.into(),
            duplicates_reported: s.dsacks,
            data_segments: c.data_segments,
            bytes: c.bytes_acked + u64::from(outstanding) + s.bytes_retransmitted,
            bytes_retransmitted: s.bytes_retransmitted,
            // Our SYN was the first.
            delivered: segments(self.rate.delivered) + u32::from(self.state.is_synchronized()),
            delivery_rate: (u64::from(bytes) * 1_000_000)
                .checked_div(interval_us.into())
                .unwrap_or(0),
            is_app_limited: self.rate.is_app_limited(),
            pacing_rate: self.congestion.pacing_rate(),
            busy,
            window_limited,
            buffer_limited,
            timeouts: s.timeouts.into(),
            timeout_recoveries: s.timeout_recoveries.into(),
            timeout_time: Duration::from_millis(s.timeout_ms.into()) + going_on,
            undos: s.undos.into(),
            tail_probes: s.tail_probes.into(),
            delivered_marked: segments(s.bytes_marked),
            ecn: self.ecn.is_on(),
            ecn_seen: self.ecn.is_on() && self.ecn.seen,
        }
    }
}
