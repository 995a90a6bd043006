//! Errors in: what happened, and to which of our packets (RFC 1122 §3.2.2, RFC 4443 §2.4, RFC 5927
//! §4). The packet quoted must be ours; whether its connection and sequence number exist is the
//! transport's question.

use core::net::IpAddr;

use super::DropReason;
use super::quote::{Seen, see_v4, see_v6};
use crate::ip::address::Addresses;
use crate::ip::path_mtu::{MTU_MIN_V4, MTU_MIN_V6};
use crate::wire::tcp::SeqNum;
use crate::wire::{Protocol, icmpv4, icmpv6};

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No socket listens on the port.
    PortUnreachable,
    /// The host does not speak the protocol.
    ProtocolUnreachable,
    /// The host does not answer.
    HostUnreachable,
    /// There is no route.
    NetUnreachable,
    /// A filter refused it.
    Prohibited,
    /// Too long for a link on the way, which carries this many octets; 0: an old router did not
    /// say.
    PacketTooBig(u32),
    /// Its hops were used up.
    TimeExceeded,
    /// Some of its fragments were missing.
    ReassemblyTimeout,
    /// A field was wrong, at this offset from the start of the IP header.
    ParameterProblem(u32),
    /// Something else that IPv6 calls an error (RFC 4443 §2.4 a: for the upper layer).
    Other {
        /// ICMPv6 type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl Kind {
    /// Whether RFC 1122 §4.2.3.9 calls it a hard error: one that no waiting mends. On a connection
    /// that is established even these are only noted (RFC 5927 §5.2; negative 34).
    #[must_use]
    pub const fn is_hard(self) -> bool {
        matches!(
            self,
            Self::PortUnreachable | Self::ProtocolUnreachable | Self::Prohibited
        )
    }
}

/// An error, matched to the packet it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingError {
    /// The packet's upper layer: TCP, UDP, or ICMP echo.
    pub protocol: Protocol,
    /// Our end: its source. Of an echo request the port is the identifier.
    pub local: (IpAddr, u16),
    /// The other end: its destination. Of an echo request the port is 0.
    pub remote: (IpAddr, u16),
    /// What happened.
    pub kind: Kind,
    /// Of a TCP segment: its sequence number, to be looked for in what is unacknowledged (RFC 5927
    /// §4.1).
    pub quoted_seq: Option<SeqNum>,
    /// Octets of the packet as it was sent, by its own header (which an attacker may have invented).
    pub quoted_len: u16,
}

/// An ICMP error that [`icmpv4::Message::parse`] found right, and the packet it quotes.
///
/// # Errors
/// The reasons that begin with `Quote`, and [`DropReason::Mtu`].
pub fn parse_v4(
    message: &icmpv4::Message,
    quote: &[u8],
    ours: &Addresses,
) -> Result<IncomingError, DropReason> {
    use icmpv4::{Message, unreachable};
    let kind = match *message {
        Message::DestinationUnreachable { code, mtu } => match code {
            unreachable::PROTOCOL => Kind::ProtocolUnreachable,
            unreachable::PORT => Kind::PortUnreachable,
            unreachable::FRAGMENTATION_NEEDED if mtu != 0 && mtu < MTU_MIN_V4 => {
                return Err(DropReason::Mtu);
            }
            unreachable::FRAGMENTATION_NEEDED => Kind::PacketTooBig(u32::from(mtu)),
            // RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1: 6 and 11 are about networks, 7, 8 and 12 about
            // hosts.
            unreachable::NETWORK | 6 | 11 => Kind::NetUnreachable,
            9 | 10 | unreachable::ADMINISTRATIVELY_PROHIBITED => Kind::Prohibited,
            _ => Kind::HostUnreachable,
        },
        Message::TimeExceeded {
            code: icmpv4::time_exceeded::REASSEMBLY,
        } => Kind::ReassemblyTimeout,
        Message::TimeExceeded { .. } => Kind::TimeExceeded,
        Message::ParameterProblem { pointer, .. } => Kind::ParameterProblem(u32::from(pointer)),
        _ => return Err(DropReason::Unsupported),
    };
    matched(kind, see_v4(quote).ok_or(DropReason::QuoteMalformed)?, ours)
}

/// [`parse_v4`] for ICMPv6.
///
/// # Errors
/// As [`parse_v4`].
pub fn parse_v6(
    message: &icmpv6::Message,
    quote: &[u8],
    ours: &Addresses,
) -> Result<IncomingError, DropReason> {
    use icmpv6::{Message, parameter, unreachable};
    let kind = match *message {
        Message::DestinationUnreachable { code } => match code {
            unreachable::PORT => Kind::PortUnreachable,
            unreachable::ADDRESS => Kind::HostUnreachable,
            unreachable::NO_ROUTE | unreachable::BEYOND_SCOPE => Kind::NetUnreachable,
            _ => Kind::Prohibited,
        },
        // RFC 8200 §5, RFC 8021: nothing below 1280 is believed, nor answered with atomic
        // fragments.
        Message::PacketTooBig { mtu } if mtu < u32::from(MTU_MIN_V6) => {
            return Err(DropReason::Mtu);
        }
        Message::PacketTooBig { mtu } => Kind::PacketTooBig(mtu),
        Message::TimeExceeded {
            code: icmpv6::time_exceeded::REASSEMBLY,
        } => Kind::ReassemblyTimeout,
        Message::TimeExceeded { .. } => Kind::TimeExceeded,
        Message::ParameterProblem {
            code: parameter::UNKNOWN_NEXT_HEADER,
            ..
        } => Kind::ProtocolUnreachable,
        Message::ParameterProblem { pointer, .. } => Kind::ParameterProblem(pointer),
        Message::Other { kind, code, .. } => Kind::Other { kind, code },
        _ => return Err(DropReason::Unsupported),
    };
    matched(kind, see_v6(quote).ok_or(DropReason::QuoteMalformed)?, ours)
}

/// The ends of the packet quoted, if it can be ours.
fn matched(kind: Kind, seen: Seen<'_>, ours: &Addresses) -> Result<IncomingError, DropReason> {
    if !ours.is_local(seen.source) {
        return Err(DropReason::QuoteNotOurs); // negative 31
    }
    if seen.later_fragment {
        return Err(DropReason::QuoteFragment);
    }
    // RFC 792 promises 8 octets: ports, and of TCP the sequence number.
    let &[a, b, c, d, s0, s1, s2, s3] = seen
        .upper
        .first_chunk::<8>()
        .ok_or(DropReason::QuoteMalformed)?;
    let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let (local, remote, quoted_seq) = match seen.protocol {
        Protocol::TCP => (
            first,
            second,
            Some(SeqNum(u32::from_be_bytes([s0, s1, s2, s3]))),
        ),
        Protocol::UDP => (first, second, None),
        // What we send of ICMP and may hear about is the echo request; its identifier stands for
        // the port.
        Protocol::ICMP if a == 8 && seen.source.is_ipv4() => {
            (u16::from_be_bytes([s0, s1]), 0, None)
        }
        Protocol::ICMPV6 if a == 128 => (u16::from_be_bytes([s0, s1]), 0, None),
        _ => return Err(DropReason::QuoteProtocol), // negative 32
    };
    Ok(IncomingError {
        protocol: seen.protocol,
        local: (seen.source, local),
        remote: (seen.destination, remote),
        kind,
        quoted_seq,
        quoted_len: seen.total_len,
    })
}
