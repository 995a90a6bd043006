//! ICMP as connections and sockets see it: errors that come back about what they sent, and the errors they cause.

use proto::time::Instant;

use super::{Addresses, Shard};
use crate::{counters::Counter, packet::Packet};

/// Limits answers to packets that belong to nobody: a token bucket.
#[derive(Debug)]
pub struct Limiter {
    tokens: u32,
    refilled: Instant,
}

/// Answers a second, and at once after silence.
const RESETS_PER_S: u32 = 1000;

impl Limiter {
    /// Full.
    pub const fn new(now: Instant) -> Self {
        Self { tokens: RESETS_PER_S, refilled: now }
    }

    /// Whether a reset may go out.
    pub fn allow_reset(&mut self, now: Instant) -> bool {
        let new = now.since(self.refilled).as_micros() * u128::from(RESETS_PER_S) / 1_000_000;
        if new > 0 {
            self.refilled = now;
            self.tokens = u32::try_from(new).unwrap_or(RESETS_PER_S).saturating_add(self.tokens).min(RESETS_PER_S);
        }
        self.tokens = match self.tokens.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }
}

impl Shard {
    pub(super) fn icmp_input(&mut self, _packet: &Packet, _addresses: Addresses, _now: Instant) {
        self.count(Counter::DropIcmp);
    }

    pub(super) fn port_unreachable(&mut self, _packet: &Packet, _addresses: Addresses, _now: Instant) {}
}
