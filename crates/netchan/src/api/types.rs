//! What socket calls take and give.

use std::net::SocketAddr;

use proto::wire::ipv4::Protocol;

use crate::api::DatagramInfo;

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// AF_INET.
    V4,
    /// AF_INET6; takes IPv4 peers as mapped addresses unless IPV6_V6ONLY is set.
    V6,
}

/// Socket type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SOCK_STREAM over TCP.
    Stream,
    /// SOCK_DGRAM over UDP.
    Datagram,
    /// SOCK_DGRAM over ICMP, or ICMPv6: a ping socket. It sends echo requests, whole messages whose identifier is its port, and receives
    /// the replies to them.
    Ping,
}

impl Kind {
    /// The protocol that a socket of this kind and family speaks.
    pub(crate) const fn protocol(self, domain: Domain) -> Protocol {
        match (self, domain) {
            (Self::Stream, _) => Protocol::TCP,
            (Self::Datagram, _) => Protocol::UDP,
            (Self::Ping, Domain::V4) => Protocol::ICMP,
            (Self::Ping, Domain::V6) => Protocol::ICMPV6,
        }
    }
}

/// Flags of one receive call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveFlags {
    /// MSG_PEEK: leave the data where it is.
    pub peek: bool,
    /// MSG_TRUNC: report a datagram's whole length.
    pub truncate: bool,
    /// MSG_OOB: a stream's urgent byte; never waits.
    pub urgent: bool,
    /// Less than SO_RCVLOWAT of a stream (and less than the buffers hold) is `WouldBlock`: for calls that wait.
    pub enough: bool,
}

/// What a receive call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the buffers (a datagram's whole length with [`ReceiveFlags::truncate`]); 0 on a stream: its end.
    pub len: usize,
    /// Where a datagram came from.
    pub from: Option<SocketAddr>,
    /// A datagram was longer than the buffers.
    pub truncated: bool,
    /// What else is known of a datagram.
    pub info: Option<DatagramInfo>,
}

impl Received {
    pub(crate) const fn stream(len: usize) -> Self {
        Self {
            len,
            from: None,
            truncated: false,
            info: None,
        }
    }
}
