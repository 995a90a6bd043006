//! ICMP for IPv4 (RFC 792, RFC 1191 for the MTU, RFC 4884 for the length of the quote).

use core::net::Ipv4Addr;

use super::Error;
use super::checksum;

/// Bytes before the echoed data or the quoted packet.
pub const HEADER_LEN: usize = 8;

/// Codes of [`Message::DestinationUnreachable`] that the stack names.
#[allow(missing_docs)]
pub mod unreachable {
    pub const NETWORK: u8 = 0;
    pub const HOST: u8 = 1;
    pub const PROTOCOL: u8 = 2;
    pub const PORT: u8 = 3;
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Codes of [`Message::TimeExceeded`].
#[allow(missing_docs)]
pub mod time_exceeded {
    pub const IN_TRANSIT: u8 = 0;
    pub const REASSEMBLY: u8 = 1;
}

/// Type of an echo request.
pub const ECHO_REQUEST: u8 = kind::ECHO_REQUEST;
/// Type of the reply to one.
pub const ECHO_REPLY: u8 = kind::ECHO_REPLY;

/// Message types.
mod kind {
    pub const ECHO_REPLY: u8 = 0;
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    pub const REDIRECT: u8 = 5;
    pub const ECHO_REQUEST: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    pub const TIMESTAMP_REQUEST: u8 = 13;
    pub const TIMESTAMP_REPLY: u8 = 14;
    pub const ADDRESS_MASK_REQUEST: u8 = 17;
    pub const ADDRESS_MASK_REPLY: u8 = 18;
}

/// A message's first eight bytes; echoed data or the quoted packet go beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Type 8: send the payload back.
    EchoRequest {
        /// Which process asks.
        ident: u16,
        /// Which of its requests.
        seq: u16,
    },
    /// Type 0: the payload came back.
    EchoReply {
        /// As in the request.
        ident: u16,
        /// As in the request.
        seq: u16,
    },
    /// Type 3, quoting the packet.
    DestinationUnreachable {
        /// Why; see [`mod@unreachable`].
        code: u8,
        /// With code 4 the next hop's MTU in bytes, 0 from routers older than RFC 1191; else 0.
        mtu: u16,
    },
    /// Type 5, quoting the packet.
    Redirect {
        /// 0..=3: for the network or the host, with or without its type of service.
        code: u8,
        /// The better first hop.
        gateway: Ipv4Addr,
    },
    /// Type 11, quoting the packet.
    TimeExceeded {
        /// See [`time_exceeded`].
        code: u8,
    },
    /// Type 12, quoting the packet.
    ParameterProblem {
        /// 0: the pointer says where; 1: an option is missing; 2: bad length.
        code: u8,
        /// Offset of the wrong byte in the quoted packet, with code 0.
        pointer: u8,
    },
    /// Any other type, its length checked where it is fixed; never answered (RFC 1122 §3.2.2).
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
    /// about it (RFC 1122 §3.2.2).
    pub const fn is_error(&self) -> bool {
        match self {
            Self::DestinationUnreachable { .. }
            | Self::Redirect { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => true,
            // Source quench quotes as well; it is deprecated (RFC 6633) and ignored.
            Self::Other { kind, .. } => *kind == 4,
            Self::EchoRequest { .. } | Self::EchoReply { .. } => false,
        }
    }

    /// The message in `bytes`, a whole IP payload, and what it carries: echoed data, or as much of
    /// the quoted packet as is there (without an RFC 4884 extension). The quote is not checked.
    ///
    /// # Errors
    /// `Truncated` below 8 bytes; `Checksum`; `Length` for a timestamp or address mask message
    /// that is not of its one length; `Value` for an echo with a code, or a redirect with a code
    /// above 3.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (h, payload) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Error::Truncated)?;
        if !checksum::is_valid(checksum::sum(bytes)) {
            return Err(Error::Checksum);
        }
        let [kind, code, _, _, a, b, c, d] = *h;
        let first = u16::from_be_bytes([a, b]);
        let second = u16::from_be_bytes([c, d]);
        let message = match (kind, code) {
            (kind::ECHO_REQUEST, 0) => Self::EchoRequest {
                ident: first,
                seq: second,
            },
            (kind::ECHO_REPLY, 0) => Self::EchoReply {
                ident: first,
                seq: second,
            },
            (kind::ECHO_REQUEST | kind::ECHO_REPLY, _) => return Err(Error::Value),
            (kind::DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED) => {
                Self::DestinationUnreachable { code, mtu: second }
            }
            (kind::DESTINATION_UNREACHABLE, _) => Self::DestinationUnreachable { code, mtu: 0 },
            (kind::REDIRECT, 0..=3) => Self::Redirect {
                code,
                gateway: Ipv4Addr::new(a, b, c, d),
            },
            (kind::REDIRECT, _) => return Err(Error::Value),
            (kind::TIME_EXCEEDED, _) => Self::TimeExceeded { code },
            (kind::PARAMETER_PROBLEM, _) => Self::ParameterProblem { code, pointer: a },
            (kind::TIMESTAMP_REQUEST | kind::TIMESTAMP_REPLY, _) if payload.len() != 12 => {
                return Err(Error::Length);
            }
            (kind::ADDRESS_MASK_REQUEST | kind::ADDRESS_MASK_REPLY, _) if payload.len() != 4 => {
                return Err(Error::Length);
            }
            _ => Self::Other {
                kind,
                code,
                rest: [a, b, c, d],
            },
        };
        let quote_words = match message {
            Self::DestinationUnreachable { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => usize::from(b),
            _ => 0,
        };
        // RFC 4884 §4: a length of 0 (or a lie) means that all of it is the quote.
        let quote = payload
            .get(..quote_words * 4)
            .filter(|quote| !quote.is_empty());
        Ok((message, quote.unwrap_or(payload)))
    }

    /// Writes the message with `payload` behind it, checksum included, to the front of `buf`;
    /// returns the length of both, 0 if they do not fit.
    ///
    /// The caller cuts a quoted packet: to 576 bytes of IP packet in all (RFC 1812 §4.3.2.3).
    pub fn emit(&self, payload: &[u8], buf: &mut [u8]) -> usize {
        let Some((h, rest)) = buf.split_first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let Some(place) = rest.get_mut(..payload.len()) else {
            return 0;
        };
        let (kind, code, [a, b, c, d]) = self.fields();
        let mut bytes = [kind, code, 0, 0, a, b, c, d];
        let sum = checksum::sum_array(&bytes) + checksum::copy_and_sum(payload, place);
        [bytes[2], bytes[3]] = checksum::finish(sum).to_be_bytes();
        *h = bytes;
        HEADER_LEN + payload.len()
    }

    /// Type, code, and the four bytes behind the checksum.
    fn fields(&self) -> (u8, u8, [u8; 4]) {
        let pair = |ident: u16, seq: u16| {
            let ([a, b], [c, d]) = (ident.to_be_bytes(), seq.to_be_bytes());
            [a, b, c, d]
        };
        match *self {
            Self::EchoRequest { ident, seq } => (kind::ECHO_REQUEST, 0, pair(ident, seq)),
            Self::EchoReply { ident, seq } => (kind::ECHO_REPLY, 0, pair(ident, seq)),
            Self::DestinationUnreachable { code, mtu } => {
                let mtu = if code == unreachable::FRAGMENTATION_NEEDED {
                    mtu
                } else {
                    0
                };
                (kind::DESTINATION_UNREACHABLE, code, pair(0, mtu))
            }
            Self::Redirect { code, gateway } => (kind::REDIRECT, code, gateway.octets()),
            Self::TimeExceeded { code } => (kind::TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => {
                (kind::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
            }
            Self::Other { kind, code, rest } => (kind, code, rest),
        }
    }
}
