//! TCP_INFO in the layout of Linux's `struct tcp_info` (uapi/linux/tcp.h), up to `tcpi_accecn_opt_seen`.
//!
//! Figures that netchan does not have are zero: `fackets`, `last_ack_sent` (as in Linux), `rehash`, and those of accurate ECN (280 bytes, as Linux 6.18 has them).

use std::time::Duration;

use proto::{
    tcp::{Info, Repair, State},
    time::Instant,
};

/// Its length, bytes.
pub const LEN: usize = 280;

/// Linux's TCP_INFINITE_SSTHRESH.
const NO_THRESHOLD: u32 = 0x7fff_ffff;
/// TCPI_OPT_*, in their order.
const OPTIONS: [u8; 6] = [1, 2, 4, 8, 16, 32];

/// The facts of a connection, field by field, as they are `now`; `pace_max` is SO_MAX_PACING_RATE.
pub fn encode(info: &Info, pace_max: Option<u64>, now: Instant) -> [u8; LEN] {
    let mut out = Layout([0; LEN]);
    let sending = &info.sending;
    let mss = u32::from(info.send_mss).max(1);
    let [probes, retransmits] = if info.is_probing {
        [info.attempts, 0]
    } else {
        [info.keepalives_unanswered, info.attempts]
    };
    out.put(0, [linux_state(info.state), sending.repair as u8]);
    out.put(2, [retransmits, probes, info.backoff, options(info)]);
    let scales = info.send_scale & 0xf | info.receive_scale << 4;
    out.put(6, [scales, u8::from(sending.is_app_limited)]);
    out.word(8, micros(info.rto));
    out.word(12, micros(info.delayed_ack));
    out.word(16, info.send_mss.into());
    out.word(20, info.receive_mss.into());
    out.word(24, info.in_flight_bytes.div_ceil(mss));
    out.word(28, sending.sacked);
    out.word(32, sending.lost);
    out.word(36, sending.retransmitted);
    out.word(44, millis(now.since(info.last_sent)));
    // 48: when an acknowledgment was sent is "not remembered, sorry", says Linux, too.
    out.word(52, millis(info.since_text));
    out.word(56, millis(now.since(info.last_received)));
    out.word(60, u32::from(info.announced_mss) + 40); // the path MTU: headers of IPv4 and TCP
    out.word(64, info.receive_buffer_bytes);
    out.word(68, micros(info.rtt));
    out.word(72, micros(info.rtt_variation));
    out.word(76, threshold(info, mss));
    out.word(80, info.cwnd_bytes / mss);
    out.word(84, info.announced_mss.into());
    out.word(88, sending.reordering);
    out.word(92, micros(info.receive_rtt));
    out.word(96, info.receive_space_bytes);
    out.word(100, info.retransmits);
    traffic(&mut out, info);
    out.long(112, pace_max.unwrap_or(u64::MAX));
    out.0
}

/// From `tcpi_pacing_rate` on: rates, totals and times.
fn traffic(out: &mut Layout, info: &Info) {
    let sending = &info.sending;
    out.long(104, unless_zero(sending.pacing_rate));
    out.long(120, info.bytes_acked);
    out.long(128, info.bytes_received);
    out.word(136, info.segments_out);
    out.word(140, info.segments_in);
    out.word(144, info.unsent_bytes);
    out.word(148, micros(info.rtt_min));
    out.word(152, info.data_segments_in);
    out.word(156, sending.data_segments);
    out.long(160, sending.delivery_rate);
    out.long(168, long_micros(sending.busy));
    out.long(176, long_micros(sending.window_limited));
    out.long(184, long_micros(sending.buffer_limited));
    out.word(192, sending.delivered);
    out.word(196, sending.delivered_marked);
    out.long(200, sending.bytes);
    out.long(208, sending.bytes_retransmitted);
    out.word(216, sending.duplicates_reported);
    out.word(220, sending.reorderings_seen);
    out.word(224, info.out_of_order_segments);
    out.word(228, info.send_window_bytes);
    out.word(232, info.receive_window_bytes);
    out.put(240, short(sending.timeouts).to_ne_bytes());
    out.put(242, short(sending.timeout_recoveries).to_ne_bytes());
    out.word(244, millis(sending.timeout_time));
}

/// A listener: how many connections wait to be accepted, and how many may, stand where a connection has `unacked` and `sacked`.
pub fn of_listener(waiting: usize, backlog: usize) -> [u8; LEN] {
    let mut out = Layout([0; LEN]);
    out.put(0, [linux_state(State::Listen)]);
    out.word(24, u32::try_from(waiting).unwrap_or(u32::MAX));
    out.word(28, u32::try_from(backlog).unwrap_or(u32::MAX));
    out.0
}

/// A socket that was never connected.
pub fn of_closed() -> [u8; LEN] {
    let mut out = Layout([0; LEN]);
    out.put(0, [linux_state(State::Closed)]);
    out.word(76, NO_THRESHOLD);
    out.0
}

/// Bytes that are filled in, place by place.
struct Layout([u8; LEN]);

impl Layout {
    fn put<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        if let Some(target) = self.0.get_mut(at..at + N) {
            target.copy_from_slice(&value);
        }
    }

    fn word(&mut self, at: usize, value: u32) {
        self.put(at, value.to_ne_bytes());
    }

    fn long(&mut self, at: usize, value: u64) {
        self.put(at, value.to_ne_bytes());
    }
}

fn options(info: &Info) -> u8 {
    let facts = [
        info.timestamps,
        info.sack,
        info.window_scaling,
        info.sending.ecn,
        info.sending.ecn_seen,
        info.syn_data,
    ];
    let given = facts.into_iter().zip(OPTIONS).filter(|(has, _)| *has);
    given.map(|(_, bit)| bit).sum()
}

/// The slow start threshold in segments.
const fn threshold(info: &Info, mss: u32) -> u32 {
    if info.ssthresh_bytes >= NO_THRESHOLD {
        NO_THRESHOLD
    } else {
        info.ssthresh_bytes / mss
    }
}

/// A rate; 0, which is none, is "without limit" in C.
const fn unless_zero(rate: u64) -> u64 {
    if rate == 0 { u64::MAX } else { rate }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn long_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn short(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Linux's TCP_ESTABLISHED and so on.
const fn linux_state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        // As in Linux, where what is in TIME-WAIT is no socket any more, the application's says that it is closed.
        State::TimeWait | State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

// The order of `Repair` is that of Linux's TCP_CA_*.
const _: () = assert!(Repair::Reduced as u8 == 2 && Repair::Loss as u8 == 4);
