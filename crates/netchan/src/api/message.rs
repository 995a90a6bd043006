//! What goes with a datagram beside its payload: ancillary data both ways, options that only UDP has, and errors that came back.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// What a program may say of one send; the default is what the socket's options say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendInfo {
    /// IP_PKTINFO, IPV6_PKTINFO: the address of ours that it comes from.
    pub source: Option<IpAddr>,
    /// The same: the number of the interface that it leaves by.
    pub interface: Option<u8>,
    /// IP_TTL, IPV6_HOPLIMIT.
    pub ttl: Option<u8>,
    /// IP_TOS, IPV6_TCLASS.
    pub tos: Option<u8>,
    /// UDP_SEGMENT: bytes of payload in each of the datagrams that this send is cut into; 0 is one datagram.
    pub segment: Option<u16>,
    /// MSG_MORE: the datagram goes with the next send that does not say so.
    pub more: bool,
    /// MSG_OOB: no datagram over IPv4 is urgent (EOPNOTSUPP); over IPv6 it means nothing, as on Linux.
    pub urgent: bool,
    /// The time stamps it gets, for [`Socket::take_notice`](crate::socket::Socket::take_notice). Of a datagram that several sends make up, the
    /// first one's count.
    pub stamps: StampRequest,
}

impl SendInfo {
    /// For many datagrams of `segment` bytes each (the last one may be shorter).
    pub fn segmented(segment: u16) -> Self {
        Self {
            segment: Some(segment),
            ..Self::default()
        }
    }
}

/// What is known of a datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramInfo {
    /// Where it was sent to: IP_PKTINFO, IP_RECVORIGDSTADDR.
    pub destination: SocketAddr,
    /// The number of the interface that it came in by.
    pub interface: u8,
    /// TTL or hop limit that it came with.
    pub ttl: u8,
    /// Type of service or traffic class, its ECN bits included.
    pub tos: u8,
    /// UDP_GRO: these are several datagrams of so many bytes (the last one may be shorter); 0: it is one.
    pub segment: u16,
    /// How long ago it came in.
    pub age: Duration,
    /// SO_RXQ_OVFL: datagrams that this socket had dropped before it, because its queue was full.
    pub drops: u32,
}

/// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER: what becomes of a datagram longer than the path takes, and whether routers may cut it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    /// Never DF; cut to what the path takes.
    Dont,
    /// DF where it fits the path; else cut (RFC 1122 §3.3.3).
    #[default]
    Want,
    /// DF; EMSGSIZE where it is longer than the path takes.
    Do,
    /// DF; EMSGSIZE only where it is longer than the interface takes: for programs that probe (RFC 8899).
    Probe,
    /// No DF; what ICMP says of the path is not believed, EMSGSIZE beyond the interface's MTU.
    Interface,
    /// As `Interface`, but cut.
    Omit,
}

impl Discovery {
    /// Whether the known path MTU counts, or the interface's alone.
    pub(crate) const fn heeds_path(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    /// Whether ICMP may lower the path MTU.
    pub(crate) const fn learns(self) -> bool {
        !matches!(self, Self::Interface | Self::Omit)
    }

    /// Whether this host cuts what is too long.
    pub(crate) const fn may_cut(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Omit)
    }

    /// Whether routers are told not to.
    pub(crate) const fn sets_df(self) -> bool {
        matches!(self, Self::Want | Self::Do | Self::Probe)
    }
}

/// Options of datagram sockets (udp(7), ip(7)). Of a stream `Discovery` says whether its packets have DF; those above it are taken without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpOption {
    /// IP_RECVERR: errors about IPv4 are kept with what they are about, for [`Socket::receive_error`](crate::socket::Socket::receive_error),
    /// and an unconnected socket hears of them, too.
    ReceiveErrors(bool),
    /// IPV6_RECVERR: the same of those about IPv6.
    ReceiveErrorsV6(bool),
    /// IP_MTU_DISCOVER, IPV6_MTU_DISCOVER.
    Discovery(Discovery),
    /// UDP_SEGMENT: each send is cut into datagrams of so many bytes; 0 is off.
    Segment(u16),
    /// UDP_GRO: one receive may bring several datagrams of one sender and one size ([`DatagramInfo::segment`]).
    Merge(bool),
    /// UDP_CORK: sends add to one datagram, until it is taken off.
    Cork(bool),
    /// UDP_NO_CHECK6_TX: no checksum over IPv6 (RFC 6936).
    NoChecksumOut(bool),
    /// UDP_NO_CHECK6_RX: datagrams without one are taken over IPv6.
    NoChecksumIn(bool),
}

/// All of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UdpOptions {
    /// SO_RCVBUF, bytes.
    pub receive_buffer: usize,
    /// Of IPv4, of IPv6.
    pub errors: [bool; 2],
    pub discovery: Discovery,
    pub segment: u16,
    pub merge: bool,
    pub cork: bool,
    pub no_checksum_out: bool,
    pub no_checksum_in: bool,
    /// SO_MARK, of streams as well.
    pub mark: u32,
    /// SO_INCOMING_CPU, of streams as well.
    pub cpu: Option<u16>,
    /// SO_BINDTODEVICE, of streams as well.
    pub device: Option<u8>,
}

impl UdpOptions {
    pub const fn set(&mut self, option: UdpOption) {
        match option {
            UdpOption::ReceiveErrors(on) => self.errors[0] = on,
            UdpOption::ReceiveErrorsV6(on) => self.errors[1] = on,
            UdpOption::Discovery(mode) => self.discovery = mode,
            UdpOption::Segment(bytes) => self.segment = bytes,
            UdpOption::Merge(on) => self.merge = on,
            UdpOption::Cork(on) => self.cork = on,
            UdpOption::NoChecksumOut(on) => self.no_checksum_out = on,
            UdpOption::NoChecksumIn(on) => self.no_checksum_in = on,
        }
    }

    pub const fn get(&self, like: UdpOption) -> UdpOption {
        match like {
            UdpOption::ReceiveErrors(_) => UdpOption::ReceiveErrors(self.errors[0]),
            UdpOption::ReceiveErrorsV6(_) => UdpOption::ReceiveErrorsV6(self.errors[1]),
            UdpOption::Discovery(_) => UdpOption::Discovery(self.discovery),
            UdpOption::Segment(_) => UdpOption::Segment(self.segment),
            UdpOption::Merge(_) => UdpOption::Merge(self.merge),
            UdpOption::Cork(_) => UdpOption::Cork(self.cork),
            UdpOption::NoChecksumOut(_) => UdpOption::NoChecksumOut(self.no_checksum_out),
            UdpOption::NoChecksumIn(_) => UdpOption::NoChecksumIn(self.no_checksum_in),
        }
    }
}

/// Source of an error report (`ee_origin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// This host: the datagram was longer than the path takes.
    Local,
    /// ICMP: a router, or the other end; this host itself where no next hop answered.
    Icmp,
    /// ICMPv6.
    IcmpV6,
}

/// An error of the error queue (`struct sock_extended_err`), without the payload of what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketError {
    /// The errno that it is.
    pub errno: i32,
    /// Source of the report.
    pub origin: ErrorOrigin,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// The MTU of EMSGSIZE; the pointer of a parameter problem.
    pub info: u32,
    /// Where the datagram was sent to.
    pub destination: SocketAddr,
    /// Sender of the ICMP error.
    pub offender: Option<IpAddr>,
}

/// Which time stamps the last byte of a stream's send gets, or a datagram (SO_TIMESTAMPING).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampRequest {
    /// When it was handed on to be sent.
    pub scheduled: bool,
    /// When it was handed to the link.
    pub sent: bool,
    /// When the peer had acknowledged it.
    pub acknowledged: bool,
    /// They carry its place in the stream, or the datagram's number ([`Socket::number_stamps`](crate::socket::Socket::number_stamps)).
    pub with_id: bool,
    /// This number, and none is used up (SCM_TS_OPT_ID). For datagrams.
    pub id: Option<u32>,
    /// They carry the packet, of several the first ([`Socket::take_notice_with_packet`](crate::socket::Socket::take_notice_with_packet)). For datagrams.
    pub with_packet: bool,
}

/// A packet that was sent, as a time stamp of it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// An Ethernet header, whose addresses are zero, and the IP packet.
    pub frame: Vec<u8>,
    /// The address of ours that it came from.
    pub source: IpAddr,
    /// Where to and how it went.
    pub info: DatagramInfo,
}

impl StampRequest {
    /// Whether any is wanted.
    pub const fn is_any(self) -> bool {
        self.scheduled || self.sent || self.acknowledged
    }
}

/// What a time stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in `StampRequest`
pub enum Stamp {
    Scheduled,
    Sent,
    Acknowledged,
}

/// What a socket tells of its sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Zero-copy sends, by their numbers: what they sent was copied, their memory is free.
    ZeroCopy {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
    },
    /// Something happened to the last byte of a send.
    Stamp {
        /// What.
        stamp: Stamp,
        /// The byte's place, from where identifiers count, or the datagram's number.
        id: u32,
        /// How long ago.
        age: Duration,
    },
}

/// What a receive from the error queue brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedError {
    /// Bytes of the original datagram's payload, as far as it came back and fits the buffers.
    pub len: usize,
    /// More of it came back than fits.
    pub truncated: bool,
    /// What happened.
    pub error: SocketError,
}
