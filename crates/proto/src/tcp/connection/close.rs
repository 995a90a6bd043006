//! The ends of a connection, and what CLOSED and LISTEN answer.

use super::Connection;
use crate::tcp::cold::Periods;
use crate::tcp::types::{Drop, Error, Events, Listen, State};
use crate::tcp::variables::{Pending, from_millis, millis};
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Header, SeqNum};

impl Connection {
    /// No more will be written: a FIN follows what is queued (RFC 9293 §3.10.4). Receiving goes on.
    pub fn shutdown(&mut self) -> Events {
        if self.fin_queued {
            return Events::NONE;
        }
        match self.state {
            State::SynSent => return self.finish(None),
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            // The FIN waits for the handshake's end.
            State::SynReceived => {}
            _ => return Events::NONE,
        }
        self.fin_queued = true;
        self.pending.set(Pending::SEND);
        Events::NONE
    }

    /// No more will be read, but what comes is taken (RFC 9293 has no name for it) until our FIN, too, is queued.
    pub const fn shut_reading(&mut self) {
        self.read_shut = true;
    }

    /// No more will be written, as was said before the connection begins. As Linux: a FIN follows the handshake of one that answers
    /// a SYN, or crosses one; of one that was connected only [`Self::shutdown`].
    pub fn shut_writing_before(&mut self) {
        self.no_writer = true;
        if self.state == State::SynReceived {
            self.shutdown();
        }
    }

    /// The application will neither write nor read. With `unread` bytes that the application has not taken,
    /// the peer learns that data was lost: RST (RFC 9293 SHLD-3). Otherwise as [`Self::shutdown`],
    /// with a limit on FIN-WAIT-2; text that still comes is answered with RST.
    pub fn close(&mut self, unread: u32, now: Instant) -> Events {
        if unread > 0 && (self.state.is_synchronized() || self.is_early()) {
            return self.abort();
        }
        self.no_reader = true;
        if self.state == State::FinWait2 {
            self.timers.linger = now + from_millis(self.periods.fin_wait_2_ms);
        }
        self.shutdown()
    }

    /// How long FIN-WAIT-2 waits for the peer's FIN once the application reads no more; zero: not at all.
    pub fn set_fin_wait_2(&mut self, limit: Duration) {
        self.periods.set(Periods {
            fin_wait_2_ms: millis(limit),
            ..*self.periods
        });
    }

    /// Ends the connection at once; `output` emits the RST (RFC 9293 §3.10.5).
    pub fn abort(&mut self) -> Events {
        let reset = matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::Closing
                | State::LastAck
        );
        let events = self.finish(Some(Error::Aborted));
        if reset {
            self.pending.set(Pending::RST);
        }
        events
    }
}

/// What a CLOSED port answers (RFC 9293 §3.10.7.1): a RST, or nothing to a RST.
///
/// `payload_len` is the segment's text in bytes.
pub fn reset_for(header: &Header, payload_len: u32) -> Option<Header> {
    if header.flags.contains(Flags::RST) {
        return None;
    }
    let mut reset = Header {
        source_port: header.destination_port,
        destination_port: header.source_port,
        ..Header::default()
    };
    if header.flags.contains(Flags::ACK) {
        reset.seq = header.ack;
        reset.flags = Flags::RST;
    } else {
        let syn = u32::from(header.flags.contains(Flags::SYN));
        let fin = u32::from(header.flags.contains(Flags::FIN));
        reset.seq = SeqNum(0);
        reset.ack = header.seq + payload_len + syn + fin;
        reset.flags = Flags::RST | Flags::ACK;
    }
    Some(reset)
}

/// What LISTEN makes of a segment (RFC 9293 §3.10.7.2): RST is ignored, ACK refused, SYN opens.
/// A SYN with FIN is ignored (`negative 57`).
pub fn listen(header: &Header, payload_len: u32) -> Listen {
    if header.flags.contains(Flags::RST) {
        return Listen::Drop(Drop::Reset);
    }
    if header.flags.contains(Flags::ACK) {
        return reset_for(header, payload_len).map_or(Listen::Drop(Drop::Ack), Listen::Reset);
    }
    match (
        header.flags.contains(Flags::SYN),
        header.flags.contains(Flags::FIN),
    ) {
        (true, false) => Listen::Open,
        _ => Listen::Drop(Drop::Flags),
    }
}
