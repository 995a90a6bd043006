//! ICMP and ICMPv6 (RFC 792, RFC 1122 §3.2.2, RFC 4443): what a message that came in is
//! ([`receive_v4`], [`receive_v6`]), the answer to an echo ([`echo`]), errors out under all their
//! rules ([`error`]) and no faster than allowed ([`limit`]), errors in matched to what they quote
//! ([`incoming`]).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ip::address::{Addresses, Destination};
use crate::wire::{Error, icmpv4, icmpv6};

pub mod echo;
pub mod error;
pub mod incoming;
pub mod limit;
mod quote;

pub use incoming::{IncomingError, Kind};

/// A message that is worth something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// To be answered with [`echo::reply_v4`] or [`echo::reply_v6`].
    EchoRequest,
    /// An echo request was answered: for the socket that asked.
    EchoReply {
        /// Which socket.
        ident: u16,
        /// Which of its requests.
        seq: u16,
        /// What was sent along.
        data: &'a [u8],
    },
    /// An error about a packet that looks like ours: for the transport, which matches it to what it
    /// has sent.
    Error(IncomingError),
    /// To be given to [`crate::wire::ndp::Message::parse`] and the neighbour table.
    NeighborDiscovery,
}

/// Why a message is dropped, in silence all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Shorter than its type must be, or of a wrong length or code (negative 30, 37).
    Malformed,
    /// The checksum does not match (negative 30).
    Checksum,
    /// An echo request to a broadcast or IPv4 multicast address (RFC 1122 §3.2.2.6; negative 36).
    EchoToGroup,
    /// An error to a broadcast or multicast address (negative 32).
    ErrorToGroup,
    /// A redirect: not followed (negative 35).
    Redirect,
    /// Source quench (RFC 6633).
    SourceQuench,
    /// A type that hosts do not answer: timestamp, address mask, router discovery, unknown ones
    /// (RFC 4443 §2.4 b).
    Unsupported,
    /// The packet quoted is cut before its ports, or malformed (negative 31).
    QuoteMalformed,
    /// The packet quoted was not sent by us (negative 31).
    QuoteNotOurs,
    /// The packet quoted is a fragment without ports.
    QuoteFragment,
    /// The packet quoted is itself an ICMP error (negative 32), or of a protocol that is not
    /// sent here.
    QuoteProtocol,
    /// The MTU reported is one that no link has (negative 33).
    Mtu,
}

impl From<Error> for DropReason {
    fn from(error: Error) -> Self {
        match error {
            Error::Checksum => Self::Checksum,
            _ => Self::Malformed,
        }
    }
}

/// Takes in `bytes`, an IPv4 payload whose addresses have passed [`crate::ip::validate`]; `to` is
/// what the destination is to us.
///
/// # Errors
/// See [`DropReason`].
pub fn receive_v4<'a>(
    bytes: &'a [u8],
    to: Destination,
    ours: &Addresses,
) -> Result<Incoming<'a>, DropReason> {
    let (message, payload) = icmpv4::Message::parse(bytes)?;
    match message {
        icmpv4::Message::EchoRequest { .. } if to != Destination::Ours => {
            Err(DropReason::EchoToGroup)
        }
        icmpv4::Message::EchoRequest { .. } => Ok(Incoming::EchoRequest),
        icmpv4::Message::EchoReply { ident, seq } => Ok(Incoming::EchoReply {
            ident,
            seq,
            data: payload,
        }),
        icmpv4::Message::Redirect { .. } => Err(DropReason::Redirect),
        icmpv4::Message::Other { kind: 4, .. } => Err(DropReason::SourceQuench),
        icmpv4::Message::Other { .. } => Err(DropReason::Unsupported),
        _ if to != Destination::Ours => Err(DropReason::ErrorToGroup),
        message => incoming::parse_v4(&message, payload, ours).map(Incoming::Error),
    }
}

/// Takes in `bytes`, an IPv6 upper-layer packet, as [`receive_v4`]. `fragmented`: it came in
/// fragments, or with a fragment header; then it can be no neighbour discovery (RFC 6980 §5).
///
/// # Errors
/// See [`DropReason`].
pub fn receive_v6<'a>(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    bytes: &'a [u8],
    to: Destination,
    fragmented: bool,
    ours: &Addresses,
) -> Result<Incoming<'a>, DropReason> {
    let (message, payload) = icmpv6::Message::parse(source, destination, bytes)?;
    match message {
        // RFC 4443 §4.2: a request to a group is answered; one from nowhere cannot be.
        icmpv6::Message::EchoRequest { .. } if source.is_unspecified() => {
            Err(DropReason::Malformed)
        }
        icmpv6::Message::EchoRequest { .. } => Ok(Incoming::EchoRequest),
        icmpv6::Message::EchoReply { ident, seq } => Ok(Incoming::EchoReply {
            ident,
            seq,
            data: payload,
        }),
        icmpv6::Message::NeighborDiscovery if fragmented => Err(DropReason::Malformed),
        icmpv6::Message::NeighborDiscovery => Ok(Incoming::NeighborDiscovery),
        icmpv6::Message::Other { kind, .. } if kind >= 128 => Err(DropReason::Unsupported),
        _ if to != Destination::Ours => Err(DropReason::ErrorToGroup),
        message => incoming::parse_v6(&message, payload, ours).map(Incoming::Error),
    }
}

/// Whether one host can be behind `source`, so that it can be answered (RFC 1122 §3.2.2: not zero,
/// another's loopback, broadcast, multicast or class E; RFC 4443 §2.4 e.6).
fn is_one_host(source: IpAddr, ours: &Addresses) -> bool {
    if source.is_loopback() {
        // On the loopback interface these are ourselves.
        return ours
            .iter()
            .any(|a| a.ip().is_loopback() && a.contains(source));
    }
    match source {
        IpAddr::V4(ip) => {
            let class = ip.octets()[0];
            !matches!(class, 0 | 224..) && ip != Ipv4Addr::BROADCAST && !ours.is_broadcast(source)
        }
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    }
}

#[cfg(test)]
mod tests;
