//! TIME-WAIT, apart from the connection: a small record that answers what still arrives. For a connection of which no more than its last segment is known, FIN-WAIT-2,
//! too.

use super::connection::Connection;
use super::variables::from_millis;
use super::variables::timestamp_clock;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Header, Options, SeqNum, Timestamps};

/// A connection in TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub struct TimeWait {
    local_port: u16,
    remote_port: u16,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    window: u16,
    timestamps: bool,
    ts_recent: u32,
    ts_offset: u32,
    /// Rate limit of answers: the next one not before, by the low half of a clock in milliseconds.
    answer_after_ms: u32,
    linger_ms: u32,
    /// The peer's FIN is yet to come: it is as FIN-WAIT-2 until then.
    awaits_end: bool,
    expires: Instant,
}

/// What TIME-WAIT makes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWaitVerdict {
    /// Nothing.
    Drop,
    /// Send this acknowledgment.
    Acknowledge(Header),
    /// Text that no application reads any more: forget the record, and answer with a reset.
    Refuse,
    /// A SYN of a new connection: forget the record and let LISTEN have the segment. The new
    /// connection's initial sequence number must be at least the one given (RFC 9293 MAY-2).
    Reuse {
        /// Beyond everything the old connection sent.
        iss: SeqNum,
    },
}

/// Between two acknowledgments that do not answer a FIN or a SYN, so that two TIME-WAITs that
/// disagree do not talk for ever.
const ANSWER_INTERVAL_MS: u32 = 500;
/// How far beyond the old connection the new one begins.
const ISS_GAP: u32 = 65_535 + 2;

impl TimeWait {
    /// The record of a connection that is in [`super::State::TimeWait`].
    pub fn new(connection: &Connection, now: Instant) -> Self {
        let linger_ms = connection.periods.time_wait_ms;
        Self {
            local_port: connection.local_port,
            remote_port: connection.remote_port,
            snd_nxt: connection.snd.nxt,
            rcv_nxt: connection.rcv.nxt,
            window: connection.window_to_announce(),
            timestamps: connection.timestamps,
            ts_recent: connection.ts_recent,
            ts_offset: connection.ts_offset,
            answer_after_ms: timestamp_clock(now),
            linger_ms,
            awaits_end: false,
            expires: now + from_millis(linger_ms),
        }
    }

    /// The record of a connection that another TCP of this host has closed, and whose peer has acknowledged that. `last`: the last segment that it sent, as it would
    /// send it now, with the sequence number behind its end. Whether the peer has ended its direction, too, is not known: until its FIN comes, the record is as
    /// FIN-WAIT-2.
    pub fn taken_over(last: &Header, time_wait: Duration, now: Instant) -> Self {
        let linger_ms = u32::try_from(time_wait.as_millis()).unwrap_or(u32::MAX);
        let clock = timestamp_clock(now);
        let timestamps = last.options.timestamps;
        Self {
            local_port: last.source_port,
            remote_port: last.destination_port,
            snd_nxt: last.seq,
            rcv_nxt: last.ack,
            window: last.window,
            timestamps: timestamps.is_some(),
            ts_recent: timestamps.map_or(0, |ts| ts.echo),
            ts_offset: timestamps.map_or(0, |ts| ts.value.wrapping_sub(clock)),
            answer_after_ms: clock,
            linger_ms,
            awaits_end: true,
            expires: now + from_millis(linger_ms),
        }
    }

    /// Whether the peer's FIN may be yet to come.
    pub const fn awaits_end(&self) -> bool {
        self.awaits_end
    }

    /// When the record may be forgotten.
    pub const fn expires(&self) -> Instant {
        self.expires
    }

    /// Where a connection of the application's from the same port to the same peer's begins, if timestamps keep what is left of the
    /// old one out of it (RFC 7323 §5.3; RFC 6191 for the peer's end).
    pub fn reopens(&self) -> Option<SeqNum> {
        self.timestamps.then(|| self.snd_nxt + ISS_GAP)
    }

    /// Takes a segment for the old connection's addresses and ports.
    ///
    /// A RST is ignored (RFC 1337 §3); text before the peer's FIN is refused (RFC 9293 §3.6.1); a SYN that must be newer, by its sequence number or its
    /// timestamp, opens anew (RFC 9293 MAY-2, SHLD-4; RFC 6191); a FIN again restarts the wait.
    pub fn input(&mut self, header: &Header, payload_len: u32, now: Instant) -> TimeWaitVerdict {
        if header.flags.contains(Flags::RST) {
            return TimeWaitVerdict::Drop;
        }
        if header.flags.contains(Flags::SYN) {
            if !header.flags.intersects(Flags::ACK | Flags::FIN) && self.is_newer(header) {
                return TimeWaitVerdict::Reuse {
                    iss: self.snd_nxt + ISS_GAP,
                };
            }
            return self.answer(now);
        }
        let ends = header.flags.contains(Flags::FIN | Flags::ACK)
            && header.ack == self.snd_nxt
            && self.is_timely(header);
        if self.awaits_end {
            if header.seq + payload_len > self.rcv_nxt && payload_len > 0 {
                return TimeWaitVerdict::Refuse;
            }
            if ends && header.seq + payload_len == self.rcv_nxt {
                self.rcv_nxt = self.rcv_nxt + 1;
                self.ts_recent = header.options.timestamps.map_or(0, |ts| ts.value);
                self.awaits_end = false;
            }
        }
        if ends && header.seq + payload_len + 1 == self.rcv_nxt {
            self.awaits_end = false;
            self.expires = now + from_millis(self.linger_ms);
            return TimeWaitVerdict::Acknowledge(self.acknowledgment(now));
        }
        let in_order = header.seq == self.rcv_nxt && payload_len == 0;
        if in_order && !header.flags.contains(Flags::FIN) && header.ack == self.snd_nxt {
            return TimeWaitVerdict::Drop;
        }
        self.answer(now)
    }

    /// RFC 6191 §2: newer by timestamp; if both have none, or the same, by sequence number. Where only the new connection has them, what
    /// is left of the old one has none and cannot get into it (RFC 7323 §3.2): any will do.
    fn is_newer(&self, header: &Header) -> bool {
        match (self.timestamps, header.options.timestamps) {
            (true, Some(ts)) => {
                let age = ts.value.wrapping_sub(self.ts_recent).cast_signed();
                age > 0 || (age == 0 && header.seq > self.rcv_nxt)
            }
            (false, Some(_)) => true,
            (_, None) => header.seq > self.rcv_nxt,
        }
    }

    /// PAWS (RFC 7323 §5.3 R1): not older than what was heard last, if both have timestamps.
    fn is_timely(&self, header: &Header) -> bool {
        let timely = |ts: Timestamps| ts.value.wrapping_sub(self.ts_recent).cast_signed() >= 0;
        !self.timestamps || header.options.timestamps.is_some_and(timely)
    }

    fn answer(&mut self, now: Instant) -> TimeWaitVerdict {
        let now_ms = timestamp_clock(now);
        if now_ms.wrapping_sub(self.answer_after_ms).cast_signed() < 0 {
            return TimeWaitVerdict::Drop;
        }
        self.answer_after_ms = now_ms.wrapping_add(ANSWER_INTERVAL_MS);
        TimeWaitVerdict::Acknowledge(self.acknowledgment(now))
    }

    fn acknowledgment(&self, now: Instant) -> Header {
        let timestamps = self.timestamps.then(|| Timestamps {
            value: timestamp_clock(now).wrapping_add(self.ts_offset),
            echo: self.ts_recent,
        });
        Header {
            source_port: self.local_port,
            destination_port: self.remote_port,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            window: self.window,
            urgent: 0,
            options: Options {
                timestamps,
                ..Options::default()
            },
        }
    }
}
