//! What ICMP may do to a connection (RFC 9293 §3.9.2.2, RFC 5927): little.

use super::connection::Connection;
use super::types::{Error, Events, State};
use crate::wire::tcp::SeqNum;

/// An ICMP or ICMPv6 error that quoted a segment of this connection. Source Quench has no place
/// here: it is dropped before (RFC 9293 MUST-55).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Nobody listens on the port.
    PortUnreachable,
    /// The host does not speak TCP.
    ProtocolUnreachable,
    /// The host cannot be reached, now.
    HostUnreachable,
    /// The network cannot be reached, now.
    NetworkUnreachable,
    /// Forbidden by somebody on the way.
    Prohibited,
    /// TTL or reassembly time ran out.
    TimeExceeded,
    /// A header field was not understood.
    ParameterProblem,
    /// The segment was too big; `mss` is the next hop's MTU less the IP and TCP headers, the MTU
    /// already raised to the least one (68, 1280).
    TooBig {
        /// Bytes of text and TCP options that fit.
        mss: u16,
    },
}

impl Connection {
    /// Takes an ICMP error whose quotation matched this connection's addresses and ports.
    ///
    /// `quoted_seq` must lie in what is in flight, or the error is ignored (RFC 5927 §4.1).
    /// Hard errors end an attempt to connect, never an open connection (RFC 5927 §5.2,
    /// RFC 9293 MUST-56).
    pub fn on_icmp(&mut self, error: IcmpError, quoted_seq: SeqNum) -> Events {
        if self.state == State::Closed || quoted_seq < self.snd.una || quoted_seq >= self.snd.nxt {
            return Events::NONE;
        }
        let (reason, hard) = match error {
            IcmpError::TooBig { mss } => {
                self.too_big(mss, quoted_seq);
                self.syn_was_too_big();
                return Events::NONE;
            }
            IcmpError::PortUnreachable => (Error::Refused, true),
            IcmpError::ProtocolUnreachable => (Error::ProtocolUnreachable, true),
            IcmpError::Prohibited => (Error::HostUnreachable, true),
            IcmpError::NetworkUnreachable => (Error::NetworkUnreachable, false),
            IcmpError::HostUnreachable | IcmpError::TimeExceeded | IcmpError::ParameterProblem => {
                (Error::HostUnreachable, false)
            }
        };
        if hard && matches!(self.state, State::SynSent | State::SynReceived) {
            return self.finish(Some(reason));
        }
        self.soft_error = Some(reason);
        Events::NONE
    }
}
