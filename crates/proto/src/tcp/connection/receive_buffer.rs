//! The receive buffer widens; `tcp::receive_buffer` has the rule.

use super::Connection;
use crate::tcp::receive_buffer::ReceiveTuning;
use crate::tcp::variables::RECEIVE_BUFFER_MAX;
use crate::time::{Duration, Instant};
use crate::wire::tcp::Timestamps;

impl Connection {
    /// Text arrived in order: once a round trip its buffer is looked at.
    #[inline(always)]
    pub(super) fn tune_receive_buffer(&mut self, timestamps: Option<Timestamps>, now: Instant) {
        if now >= self.tuning.look_at {
            self.look_at_receive_buffer(timestamps, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_receive_buffer(&mut self, timestamps: Option<Timestamps>, now: Instant) {
        match self.receiver_rtt_us(timestamps, now) {
            Some(sample) => self.tuning.measured(sample),
            None if self.tuning.rtt_us == 0 => self.tuning.rtt_us = self.rtt.srtt_us,
            None => {}
        }
        if self.tuning.rtt_us == 0 {
            return;
        }
        let read = self.rcv.nxt - self.unread;
        let (buffer, mss) = (self.settings.receive_buffer, u32::from(self.rcv.mss));
        if let Some(room) = self.tuning.look(read, buffer, mss, now) {
            self.settings.receive_buffer = room;
        }
    }

    /// The time since we sent what the peer's timestamp echoes.
    fn receiver_rtt_us(&self, timestamps: Option<Timestamps>, now: Instant) -> Option<u32> {
        let echo = timestamps.filter(|_| self.timestamps)?.echo;
        let elapsed = self.timestamp_value(now).wrapping_sub(echo);
        // The clock ticks in milliseconds. Longer than an hour is nonsense.
        (echo != 0 && elapsed < 1 << 22).then(|| elapsed.max(1) * 1000)
    }

    /// Bytes kept for the application from now on, whatever it takes. A window already offered is not taken back
    /// (RFC 9293 SHLD-14); the shift stays as agreed upon.
    pub fn set_receive_buffer(&mut self, bytes: u32) {
        let most = 65535_u32 << self.rcv.scale;
        self.settings.receive_buffer = bytes.clamp(1, RECEIVE_BUFFER_MAX.min(most));
        self.tuning = ReceiveTuning::new(0);
        self.consumed(0);
    }

    /// The buffer is not to hold more than `bytes`, now or by its own growth: the place that there is for what its peer was promised.
    pub fn bound_receive_buffer(&mut self, bytes: u32) {
        self.settings.receive_buffer = self.settings.receive_buffer.min(bytes.max(1));
        self.tuning.most = self.tuning.most.min(bytes);
    }

    /// The application waits for so many bytes at once: there is room for them, unless its buffer has a fixed size.
    pub fn expect_at_once(&mut self, bytes: u32) {
        let room = bytes.min(self.tuning.most / 2);
        if room > self.settings.receive_buffer {
            self.settings.receive_buffer = room;
            self.consumed(0);
        }
    }

    /// The round trip as the receiver sees it, and what the application took in the best one.
    pub(super) const fn receive_space(&self) -> (Duration, u32) {
        let rtt = Duration::from_micros(self.tuning.rtt_us as u64);
        (rtt, self.tuning.taken)
    }
}

#[cfg(test)]
#[path = "../tests/receive_buffer.rs"]
mod tests;
