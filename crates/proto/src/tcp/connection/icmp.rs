//! What ICMP may do to a connection: end an attempt to connect (RFC 5461 §4.1), else little (RFC 9293 §3.9.2.2, RFC 5927).

use super::Connection;
use crate::tcp::types::{Error, Events, State};
use crate::wire::tcp::SeqNum;

/// An ICMP or ICMPv6 error that quoted a segment of this connection. Source Quench has no place
/// here: it is dropped before (RFC 9293 MUST-55).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The segment did not arrive, for this reason.
    Failed(Failure),
    /// The segment was too big; `mss` is the next hop's MTU less the IP and TCP headers, the MTU
    /// already raised to the least one (68, 1280).
    TooBig {
        /// Bytes of text and TCP options that fit.
        mss: u16,
    },
}

/// What a type and a code say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: Error,
    /// No waiting mends it (RFC 1122 §4.2.3.9).
    hard: bool,
    /// Ends a handshake that the peer began, as on Linux.
    ends_request: bool,
}

impl IcmpError {
    /// What an ICMP error of this type and code is, as in Linux's `icmp_err_convert`; `None`: no error, or not one for TCP.
    /// "Fragmentation needed" (3, 4) is [`Self::TooBig`].
    #[must_use]
    pub const fn v4(kind: u8, code: u8) -> Option<Self> {
        let reason = match (kind, code) {
            (3, 0 | 6 | 9 | 11) => Error::NetworkUnreachable,
            (3, 1 | 10 | 12..=15) | (11, _) => Error::HostUnreachable,
            (3, 2) => Error::ProtocolUnreachable,
            (3, 3) => Error::Refused,
            (3, 5) => Error::SourceRoute,
            (3, 7) => Error::HostUnknown,
            (3, 8) => Error::HostIsolated,
            (12, _) => Error::BadHeader,
            _ => return None,
        };
        Some(Self::Failed(Failure {
            reason,
            hard: matches!((kind, code), (3, 2 | 3 | 9 | 10 | 13)),
            ends_request: matches!((kind, code), (3, 0 | 1) | (11 | 12, _)),
        }))
    }

    /// Failure that an ICMPv6 error reports: Linux's `icmpv6_err_convert`. "Packet too big" (2) is [`Self::TooBig`].
    #[must_use]
    pub const fn v6(kind: u8, code: u8) -> Option<Self> {
        let reason = match (kind, code) {
            (2 | 128.., _) => return None,
            (1, 0) => Error::NetworkUnreachable,
            (1, 1 | 5 | 6) => Error::Prohibited,
            (1, 2 | 3) | (3, _) => Error::HostUnreachable,
            (1, 4) => Error::Refused,
            _ => Error::BadHeader,
        };
        let hard = matches!((kind, code), (1, 1 | 4..) | (4, _));
        Some(Self::Failed(Failure {
            reason,
            hard,
            ends_request: hard,
        }))
    }
}

impl Connection {
    /// Takes an ICMP error whose quotation matched this connection's addresses and ports. `held`: the application has the connection.
    ///
    /// `quoted_seq` must lie in what is in flight, or the error is ignored (RFC 5927 §4.1).
    /// Errors end an attempt to connect ([`crate::tcp::IcmpWhileConnecting`]), never an open connection (RFC 5927 §5.2,
    /// RFC 9293 MUST-56).
    pub fn on_icmp(&mut self, error: IcmpError, quoted_seq: SeqNum, held: bool) -> Events {
        // Text flows before the SYN-ACK of a Fast Open is acknowledged.
        let oldest = if self.is_early() {
            self.iss
        } else {
            self.snd.una
        };
        if self.state == State::Closed || quoted_seq < oldest || quoted_seq >= self.snd.nxt {
            return Events::NONE;
        }
        let failure = match error {
            IcmpError::TooBig { mss } => {
                self.too_big(mss, quoted_seq);
                self.syn_was_too_big();
                return Events::NONE;
            }
            IcmpError::Failed(failure) => failure,
        };
        if !self.ends_by(failure, held) {
            self.soft_error = Some(failure.reason);
            Events::NONE
        } else if self.passive {
            // Back to LISTEN: the application never heard of it.
            self.fall_back_to_listen(failure.reason)
        } else {
            self.finish(Some(failure.reason))
        }
    }

    /// Whether the handshake is given up. With Fast Open the application may have the connection by now: then it is an open one.
    const fn ends_by(&self, failure: Failure, held: bool) -> bool {
        let at_once = failure.hard || !self.icmp_is_noted;
        match self.state {
            State::SynSent => at_once,
            State::SynReceived if !self.passive => at_once,
            State::SynReceived if self.is_early() => at_once && !held,
            State::SynReceived if self.icmp_is_noted => failure.hard,
            State::SynReceived => failure.ends_request,
            _ => false,
        }
    }
}
