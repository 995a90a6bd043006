//! ICMPv6 (RFC 4443): errors and echo. Neighbour discovery goes on in [`super::ndp`].

use core::net::Ipv6Addr;

use super::checksum;
use super::{Error, Protocol};

/// Bytes before the echoed data or the quoted packet.
pub const HEADER_LEN: usize = 8;

/// Codes of [`Message::DestinationUnreachable`].
#[allow(missing_docs)]
pub mod unreachable {
    pub const NO_ROUTE: u8 = 0;
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    pub const BEYOND_SCOPE: u8 = 2;
    pub const ADDRESS: u8 = 3;
    pub const PORT: u8 = 4;
    pub const SOURCE_POLICY: u8 = 5;
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of [`Message::TimeExceeded`].
#[allow(missing_docs)]
pub mod time_exceeded {
    pub const IN_TRANSIT: u8 = 0;
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of [`Message::ParameterProblem`].
#[allow(missing_docs)]
pub mod parameter {
    pub const ERRONEOUS_FIELD: u8 = 0;
    pub const UNKNOWN_NEXT_HEADER: u8 = 1;
    pub const UNKNOWN_OPTION: u8 = 2;
    pub const FIRST_FRAGMENT_INCOMPLETE: u8 = 3;
}

/// Type of an echo request.
pub const ECHO_REQUEST: u8 = kind::ECHO_REQUEST;
/// Type of the reply to one.
pub const ECHO_REPLY: u8 = kind::ECHO_REPLY;

/// Message types.
mod kind {
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const REDIRECT: u8 = 137;
}

/// A message's first eight bytes; echoed data or the quoted packet go beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Type 1, quoting the packet.
    DestinationUnreachable {
        /// Why; see [`mod@unreachable`].
        code: u8,
    },
    /// Type 2, quoting the packet.
    PacketTooBig {
        /// The next link's MTU in bytes; anything, even below 1280.
        mtu: u32,
    },
    /// Type 3, quoting the packet.
    TimeExceeded {
        /// See [`time_exceeded`].
        code: u8,
    },
    /// Type 4, quoting the packet.
    ParameterProblem {
        /// See [`parameter`].
        code: u8,
        /// Offset of the wrong byte in the quoted packet; may lie beyond the quote.
        pointer: u32,
    },
    /// Type 128: send the payload back.
    EchoRequest {
        /// Which process asks.
        ident: u16,
        /// Which of its requests.
        seq: u16,
    },
    /// Type 129: the payload came back.
    EchoReply {
        /// As in the request.
        ident: u16,
        /// As in the request.
        seq: u16,
    },
    /// Types 133 to 137: give the same bytes to [`super::ndp::Message::parse`].
    NeighborDiscovery,
    /// Any other type. Below 128 an error, which goes to the upper layer; above, dropped
    /// (RFC 4443 §2.4).
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The four bytes behind the checksum.
        rest: [u8; 4],
    },
}

impl Message {
    /// Whether this reports an error, and quotes the packet that caused it: no error may be sent
    /// about it, nor about a redirect (RFC 4443 §2.4 e).
    pub const fn is_error(&self) -> bool {
        match self {
            Self::DestinationUnreachable { .. }
            | Self::PacketTooBig { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => true,
            Self::Other { kind, .. } => *kind < 128,
            Self::EchoRequest { .. } | Self::EchoReply { .. } | Self::NeighborDiscovery => false,
        }
    }

    /// The message in `bytes`, a whole IPv6 upper-layer packet, and what it carries: echoed data,
    /// or as much of the quoted packet as is there (without an RFC 4884 extension). The quote is
    /// not checked.
    ///
    /// # Errors
    /// `Truncated` below 8 bytes; `Length` if no IPv6 packet is that long; `Checksum`; `Value` for
    /// an echo with a code.
    pub fn parse(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        bytes: &[u8],
    ) -> Result<(Self, &[u8]), Error> {
        let (h, payload) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Error::Truncated)?;
        let len = u32::try_from(bytes.len()).map_err(|_| Error::Length)?;
        let pseudo = checksum::pseudo_header_v6(source, destination, Protocol::ICMPV6, len);
        if !checksum::is_valid(pseudo + checksum::sum(bytes)) {
            return Err(Error::Checksum);
        }
        let [kind, code, _, _, a, b, c, d] = *h;
        let rest = [a, b, c, d];
        let ident = u16::from_be_bytes([a, b]);
        let seq = u16::from_be_bytes([c, d]);
        // RFC 4884 §4: these two say how long the quote is, in words of 8.
        let mut quote_words = 0;
        let message = match kind {
            kind::DESTINATION_UNREACHABLE => {
                quote_words = usize::from(a);
                Self::DestinationUnreachable { code }
            }
            kind::PACKET_TOO_BIG => Self::PacketTooBig {
                mtu: u32::from_be_bytes(rest),
            },
            kind::TIME_EXCEEDED => {
                quote_words = usize::from(a);
                Self::TimeExceeded { code }
            }
            kind::PARAMETER_PROBLEM => Self::ParameterProblem {
                code,
                pointer: u32::from_be_bytes(rest),
            },
            kind::ECHO_REQUEST | kind::ECHO_REPLY if code != 0 => return Err(Error::Value),
            kind::ECHO_REQUEST => Self::EchoRequest { ident, seq },
            kind::ECHO_REPLY => Self::EchoReply { ident, seq },
            kind::ROUTER_SOLICITATION..=kind::REDIRECT => Self::NeighborDiscovery,
            _ => Self::Other { kind, code, rest },
        };
        let quote = payload
            .get(..quote_words * 8)
            .filter(|quote| !quote.is_empty());
        Ok((message, quote.unwrap_or(payload)))
    }

    /// Writes the message with `payload` behind it, checksum included, to the front of `buf`;
    /// returns the length of both. 0 if they do not fit, or for [`Message::NeighborDiscovery`],
    /// which [`super::ndp::Message::emit`] writes.
    ///
    /// The caller cuts a quoted packet: to 1280 bytes of IPv6 packet in all (RFC 4443 §2.4 c).
    pub fn emit(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        payload: &[u8],
        buf: &mut [u8],
    ) -> usize {
        let Some((h, rest)) = buf.split_first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let Some(place) = rest.get_mut(..payload.len()) else {
            return 0;
        };
        let Some((kind, code, [a, b, c, d])) = self.fields() else {
            return 0;
        };
        let len = HEADER_LEN + payload.len();
        let Ok(wire_len) = u32::try_from(len) else {
            return 0;
        };
        let mut bytes = [kind, code, 0, 0, a, b, c, d];
        let sum = checksum::pseudo_header_v6(source, destination, Protocol::ICMPV6, wire_len)
            + checksum::sum_array(&bytes)
            + checksum::copy_and_sum(payload, place);
        [bytes[2], bytes[3]] = checksum::finish(sum).to_be_bytes();
        *h = bytes;
        len
    }

    /// Type, code, and the four bytes behind the checksum.
    fn fields(&self) -> Option<(u8, u8, [u8; 4])> {
        let pair = |ident: u16, seq: u16| {
            let ([a, b], [c, d]) = (ident.to_be_bytes(), seq.to_be_bytes());
            [a, b, c, d]
        };
        Some(match *self {
            Self::DestinationUnreachable { code } => (kind::DESTINATION_UNREACHABLE, code, [0; 4]),
            Self::PacketTooBig { mtu } => (kind::PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Self::TimeExceeded { code } => (kind::TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => {
                (kind::PARAMETER_PROBLEM, code, pointer.to_be_bytes())
            }
            Self::EchoRequest { ident, seq } => (kind::ECHO_REQUEST, 0, pair(ident, seq)),
            Self::EchoReply { ident, seq } => (kind::ECHO_REPLY, 0, pair(ident, seq)),
            Self::NeighborDiscovery => return None,
            Self::Other { kind, code, rest } => (kind, code, rest),
        })
    }
}
