//! TCP (RFC 9293): one connection as a state machine over segments, time and byte counts.

/// TCP_INFO's facts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {}
