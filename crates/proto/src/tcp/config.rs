//! What one endpoint's TCP may do: the settings a connection is opened with.

use super::congestion::CongestionControl;
use super::fast_open_cookie::FastOpenMode;
use super::user_timeout::UserTimeoutOption;
use crate::time::Duration;

/// Keep-alive (RFC 9293 §3.8.4), off unless asked for (MUST-25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Between two probes.
    pub interval: Duration,
    /// Probes without an answer before the connection is given up.
    pub probes: u8,
}

impl Default for Keepalive {
    /// Two hours (RFC 9293 MUST-28), then nine probes 75 s apart, as is common.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

/// Explicit congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnMode {
    /// Neither asked for nor agreed to.
    Off,
    /// Agreed to if the peer asks (Linux's `tcp_ecn = 2`).
    #[default]
    Passive,
    /// Asked for as in RFC 3168, and agreed to.
    Classic,
    /// Accurate ECN asked for (RFC 9768), and either agreed to.
    Accurate,
}

impl EcnMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Passive, Self::Classic, Self::Accurate];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Passive => "passive",
            Self::Classic => "classic",
            Self::Accurate => "accurate",
        }
    }

    /// The one with this name.
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Whether larger segments than an unknown path may take are probed for (RFC 4821). Names and meaning are those of Linux's `tcp_mtu_probing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MtuProbing {
    /// `off`: only routers say what the path takes (RFC 1191, RFC 8201).
    Off,
    /// `blackhole`: once repeated timeouts suggest that routers say nothing.
    #[default]
    BlackHole,
    /// `always`: segments begin small.
    Always,
}

impl MtuProbing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::BlackHole, Self::Always];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::BlackHole => "blackhole",
            Self::Always => "always",
        }
    }

    /// The one with this name.
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// When listeners answer with cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SynCookies {
    /// Never: a full SYN queue gives up its oldest handshake.
    Off,
    /// While the SYN queue is full.
    #[default]
    WhenFull,
    /// Always.
    Always,
}

impl SynCookies {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::WhenFull, Self::Always];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::WhenFull => "when-full",
            Self::Always => "always",
        }
    }
}

/// What an ICMP error that reports no more than a passing trouble does to an attempt to connect. Either way, an error that no waiting
/// mends ends it, and none ends an open connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IcmpWhileConnecting {
    /// `end`: ends it at once (RFC 5461 §4.1), as Linux does.
    #[default]
    End,
    /// `note`: it goes on, and the error is the reason given if it fails (RFC 1122 §4.2.3.9).
    Note,
}

impl IcmpWhileConnecting {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::End, Self::Note];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Note => "note",
        }
    }

    /// The one with this name.
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The settings of one endpoint. Each connection keeps what it needs of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest segment we can receive and send, in bytes of text and TCP options: the link's MTU
    /// less 40 (IPv4) or 60 (IPv6). 64 and more.
    pub mss: u16,
    /// What the peer can receive if it does not say: 536 (IPv4) or 1220 (IPv6), RFC 9293 MUST-15.
    pub default_mss: u16,
    /// Bytes of received data kept for the application; also the largest window offered.
    /// At most 2³⁰.
    pub receive_buffer: u32,
    /// What that may grow to with what the application takes in a round trip; 0: it stays as it is.
    pub receive_buffer_max: u32,
    /// Received segments kept for one connection, in order and out of order together.
    pub max_segments: u32,
    /// Gaps in what was received out of order, for one connection.
    pub max_gaps: u16,
    /// Offer window scaling (RFC 7323 §2). The shift follows from the larger of the two above.
    pub window_scale: bool,
    /// Offer timestamps (RFC 7323 §3).
    pub timestamps: bool,
    /// Drop a segment without a timestamp where they were agreed upon (RFC 7323 §3.2, SHOULD). Off, it passes, as in Linux: there are
    /// hosts and boxes on the way that leave them out of some segments.
    pub timestamps_required: bool,
    /// Offer selective acknowledgment (RFC 2018).
    pub sack: bool,
    /// With SACK: find losses by time and probe silent tails (RACK-TLP, RFC 8985). Off, what arrived above a gap is counted (RFC 6675) and
    /// a silent tail waits for the timeout: for comparisons.
    pub rack: bool,
    /// Hold small segments back while others are in flight (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// Hold small segments back until uncorked or shut (Linux's TCP_CORK).
    pub cork: bool,
    /// Acknowledge a SYN-ACK, the peer's FIN and, until the application has answered any, the first segments at once. Off, they
    /// wait for company as later text does, for `delayed_ack` at most: for applications that answer
    /// soon (Linux's TCP_QUICKACK).
    pub quick_ack: bool,
    /// Longest an acknowledgment waits for company; below 500 ms (RFC 9293 MUST-40).
    pub delayed_ack: Duration,
    /// Probe idle connections.
    pub keepalive: Option<Keepalive>,
    /// Least retransmission timeout. RFC 6298 says 1 s; 200 ms is what Linux does.
    pub rto_min: Duration,
    /// Timeout before the first measurement (RFC 6298 §2.1).
    pub rto_initial: Duration,
    /// Greatest timeout, backed off included; 60 s or more (RFC 6298 §2.5).
    pub rto_max: Duration,
    /// R2: how long data may stay unacknowledged before the connection is given up
    /// (RFC 9293 MUST-20, SHLD-11). [`super::Connection::set_user_timeout`] changes it (MUST-21).
    pub retry_timeout: Duration,
    /// R2 of a SYN; 3 min or more (RFC 9293 MUST-23).
    pub syn_timeout: Duration,
    /// How long SYN-RECEIVED, opened passively, waits for the handshake's last segment.
    pub syn_received_timeout: Duration,
    /// TIME-WAIT: twice the longest life of a segment (RFC 9293 MUST-13).
    pub time_wait: Duration,
    /// How long FIN-WAIT-2 waits for the peer's FIN after [`super::Connection::close`].
    pub fin_wait_2: Duration,
    /// Initial congestion window in segments (RFC 6928: 10).
    pub initial_cwnd: u32,
    /// How the congestion window moves.
    pub congestion: CongestionControl,
    /// Segments that one acknowledgment may add in slow start where text does not leave paced (RFC 9406 §4.2 has 8, RFC 3465 §2.3 2);
    /// 0: all that it acknowledges, as in Linux: receivers with receive offload acknowledge many at once.
    pub slow_start_limit: u8,
    /// Explicit congestion notification.
    pub ecn: EcnMode,
    /// New text leaves at the rate of the window, not at once, whatever the congestion control; BBR always does so.
    pub pacing: bool,
    /// Most bytes of text that one [`super::Transmit`] holds where the link, or the caller that emits, cuts it into segments. One segment
    /// at least, whatever this says; less while windows are small or the path is slow.
    pub burst: u32,
    /// Segments that leave together if there is text for them, however slow the path (Linux's `tcp_min_tso_segs`).
    pub burst_segments_min: u16,
    /// Whether the peer is told of `retry_timeout`, and what it says is heard (RFC 5482).
    pub user_timeout_option: UserTimeoutOption,
    /// When listeners answer SYNs with cookies (RFC 4987 §3.6).
    pub syn_cookies: SynCookies,
    /// Which side of Fast Open is there for sockets that ask (RFC 7413).
    pub fast_open: FastOpenMode,
    /// Whether the path is probed.
    pub mtu_probing: MtuProbing,
    /// What ICMP errors do to handshakes.
    pub icmp_while_connecting: IcmpWhileConnecting,
    /// Most challenge acknowledgments in 5 s (RFC 5961 §7), for one connection.
    pub challenge_acks: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            default_mss: 536,
            receive_buffer: 1 << 20,
            receive_buffer_max: 0,
            max_segments: 4096,
            max_gaps: 256,
            window_scale: true,
            timestamps: true,
            timestamps_required: false,
            sack: true,
            rack: true,
            nagle: true,
            cork: false,
            quick_ack: true,
            delayed_ack: Duration::from_millis(40),
            keepalive: None,
            rto_min: Duration::from_millis(200),
            rto_initial: Duration::from_secs(1),
            rto_max: Duration::from_secs(120),
            // The sum of the fifteen timeouts, backed off from 200 ms, that others grant.
            retry_timeout: Duration::from_secs(924),
            syn_timeout: Duration::from_secs(180),
            // Five retransmissions from 1 s: 1 + 2 + 4 + 8 + 16 + 32.
            syn_received_timeout: Duration::from_secs(63),
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            initial_cwnd: 10,
            congestion: CongestionControl::default(),
            slow_start_limit: 0,
            ecn: EcnMode::default(),
            pacing: false,
            burst: 0,
            burst_segments_min: 2,
            user_timeout_option: UserTimeoutOption::default(),
            syn_cookies: SynCookies::default(),
            fast_open: FastOpenMode::default(),
            mtu_probing: MtuProbing::default(),
            icmp_while_connecting: IcmpWhileConnecting::default(),
            challenge_acks: 10,
        }
    }
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;
