//! TCP_INFO in the layout of Linux's `struct tcp_info` (uapi/linux/tcp.h), up to `tcpi_snd_wnd`.

use std::time::Duration;

use netchan::{TcpInfo, TcpState};

/// Its length.
pub const LEN: usize = 232;

/// The facts, field by field; those that netchan does not have are zero.
pub fn encode(info: &TcpInfo) -> [u8; LEN] {
    let mut out = [0; LEN];
    let mss = u32::from(info.send_mss).max(1);
    bytes(
        &mut out,
        0,
        &[
            linux_state(info.state),
            if info.in_recovery { 3 } else { 0 },
        ],
    );
    let options = u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.send_scale | info.receive_scale > 0) << 2;
    let scales = info.send_scale & 0xf | info.receive_scale << 4;
    bytes(&mut out, 4, &[info.backoff, options, scales]);
    let mut put = |at: usize, value: u32| bytes(&mut out, at, &value.to_ne_bytes());
    put(8, micros(info.rto));
    put(16, u32::from(info.send_mss));
    put(20, u32::from(info.receive_mss));
    put(24, info.in_flight_bytes.div_ceil(mss));
    put(60, u32::from(info.announced_mss) + 40); // the path MTU: headers of IPv4 and TCP
    put(68, micros(info.rtt));
    put(72, micros(info.rtt_variation));
    put(76, info.ssthresh_bytes / mss);
    put(80, info.cwnd_bytes / mss);
    put(84, u32::from(info.announced_mss));
    put(88, 3); // Linux's initial reordering degree
    put(96, info.receive_window_bytes);
    put(100, info.retransmits);
    put(136, info.segments_out);
    put(140, info.segments_in);
    put(144, info.unsent_bytes);
    put(148, micros(info.rtt_min));
    put(224, info.out_of_order_segments);
    put(228, info.send_window_bytes);
    bytes(&mut out, 120, &info.bytes_acked.to_ne_bytes());
    bytes(&mut out, 128, &info.bytes_received.to_ne_bytes());
    out
}

fn bytes(out: &mut [u8; LEN], at: usize, value: &[u8]) {
    if let Some(target) = out.get_mut(at..at + value.len()) {
        target.copy_from_slice(value);
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Linux's TCP_ESTABLISHED and so on.
fn linux_state(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Listen => 10,
        TcpState::Closing => 11,
    }
}
