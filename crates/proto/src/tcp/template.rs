//! What connections begin as: one connection made ready for a [`Config`], copied at each open. An open is a copy and the
//! few fields that differ; making one ready takes several hundred instructions.

use super::config::Config;
use super::connection::Connection;
use super::types::State;
use super::variables::{MSS_MIN, QUICK_ACKS, millis};
use crate::time::Instant;
use crate::wire::tcp::{Header, SeqNum};

/// A [`Config`] made ready for opening connections.
#[derive(Debug, Clone)]
pub struct Template {
    pub(super) connection: Connection,
    syn_retry_ms: u32,
    syn_received_retry_ms: u32,
}

/// What one connection begins with beside its template.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// From [`super::initial_sequence`].
    pub iss: SeqNum,
    /// From [`super::timestamp_offset`].
    pub ts_offset: u32,
    /// As [`Config::mss`].
    pub mss: u16,
    /// As [`Config::default_mss`].
    pub default_mss: u16,
    /// As [`Config::nagle`].
    pub nagle: bool,
    /// As [`Config::cork`].
    pub cork: bool,
    /// As [`Config::quick_ack`].
    pub quick_ack: bool,
    /// As [`Config::burst`].
    pub burst: u32,
}

impl Start {
    /// With what `config` says.
    pub const fn new(config: &Config, ports: (u16, u16), iss: SeqNum, ts_offset: u32) -> Self {
        Self {
            local_port: ports.0,
            remote_port: ports.1,
            iss,
            ts_offset,
            mss: config.mss,
            default_mss: config.default_mss,
            nagle: config.nagle,
            cork: config.cork,
            quick_ack: config.quick_ack,
            burst: config.burst,
        }
    }
}

impl Template {
    /// Makes `config` ready.
    pub fn new(config: &Config) -> Self {
        Self {
            connection: Connection::new(config),
            syn_retry_ms: millis(config.syn_timeout),
            syn_received_retry_ms: millis(config.syn_received_timeout),
        }
    }

    /// Begins an active open: SYN-SENT; `output` emits the SYN.
    pub fn active(&self, start: &Start, now: Instant) -> Connection {
        let mut connection = self.begin(start, now);
        connection.state = State::SynSent;
        connection.settings.syn_retry_ms = self.syn_retry_ms;
        connection
    }

    /// Answers a SYN for which [`super::listen`] said `Open`: SYN-RECEIVED; `output` emits the
    /// SYN-ACK. Text in the SYN is left to be sent again.
    pub fn passive(&self, start: &Start, syn: &Header, now: Instant) -> Connection {
        let mut connection = self.begin(start, now);
        connection.state = State::SynReceived;
        connection.passive = true;
        connection.settings.syn_retry_ms = self.syn_received_retry_ms;
        connection.take_syn(syn, now);
        connection
    }

    #[inline(always)] // or the connection is copied once more
    fn begin(&self, start: &Start, now: Instant) -> Connection {
        let mut connection = self.connection.clone();
        connection.nagle = start.nagle;
        connection.corked = start.cork;
        connection.quick_ack = start.quick_ack;
        connection.quick_acks = if start.quick_ack { QUICK_ACKS } else { 0 };
        connection.local_port = start.local_port;
        connection.remote_port = start.remote_port;
        connection.settings.mss = start.mss.max(MSS_MIN);
        connection.settings.burst = start.burst;
        connection.settings.default_mss = start.default_mss.max(MSS_MIN);
        connection.peer_mss = start.default_mss.max(MSS_MIN);
        let mss = start.default_mss.min(connection.settings.mss);
        connection.rcv.mss = mss;
        connection.begin_at(start.iss, mss);
        connection.ts_offset = start.ts_offset;
        connection.ts_recent_at = now.coarse();
        connection.ts_retransmitted = connection.timestamp_value(now);
        connection.last_received = now;
        connection.last_sent = now;
        connection.stalled_since = now;
        connection
    }
}
