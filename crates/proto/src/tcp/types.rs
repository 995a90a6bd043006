//! The words a connection and its caller exchange: states, events, drops, segments to send.

use crate::ip::Ecn;
use crate::wire::tcp::Header;

/// The eleven states of RFC 9293 §3.3.2. A [`super::Connection`] is never in `Listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for a connection request.
    Listen,
    /// Waiting for the answer to our SYN.
    SynSent,
    /// Waiting for the acknowledgment of our SYN, having received one.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// Our FIN is queued or sent, not yet acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has sent its FIN; we may still send.
    CloseWait,
    /// Both have sent a FIN, ours is not yet acknowledged.
    Closing,
    /// The peer's FIN came first; ours is not yet acknowledged.
    LastAck,
    /// Both sides are done; old duplicates are waited out.
    TimeWait,
}

impl State {
    /// Whether both initial sequence numbers are known and acknowledged.
    pub const fn is_synchronized(self) -> bool {
        self as u8 >= Self::Established as u8
    }
}

/// Why a connection ended otherwise than by FINs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The peer sent RST on an open connection (RFC 9293 MUST-12).
    Reset,
    /// The peer answered our SYN with RST, or its host said that the port is unreachable.
    Refused,
    /// No answer within R2, the user timeout, or the keep-alive probes.
    TimedOut,
    /// The network said that the host cannot be reached.
    HostUnreachable,
    /// The network said that the network cannot be reached.
    NetworkUnreachable,
    /// The host does not speak TCP.
    ProtocolUnreachable,
    /// The network said that there is no such host.
    HostUnknown,
    /// The network said that the host is cut off (ICMP's "source host isolated").
    HostIsolated,
    /// The network said that a source route failed.
    SourceRoute,
    /// The network said that its rules forbid it (ICMPv6 alone; ICMP's codes count as unreachable).
    Prohibited,
    /// The network or the host did not understand a header.
    BadHeader,
    /// Ended by [`super::Connection::abort`].
    Aborted,
}

/// A set of things that happened, for the socket to act upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Events(pub u16);

impl Events {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The connection is open both ways.
    pub const ESTABLISHED: Self = Self(1 << 0);
    /// In-order bytes were added to the receive queue.
    pub const READABLE: Self = Self(1 << 1);
    /// Bytes were acknowledged: the send queue has room.
    pub const WRITABLE: Self = Self(1 << 2);
    /// The peer's FIN was reached: end of stream after what is queued.
    pub const PEER_CLOSED: Self = Self(1 << 3);
    /// The connection ended by an error; see [`super::Connection::error`].
    pub const RESET: Self = Self(1 << 4);
    /// The connection is gone: drop it once `output` says `None`.
    pub const CLOSED: Self = Self(1 << 5);
    /// The connection entered TIME-WAIT: replace it by its [`super::TimeWait`] record.
    pub const TIME_WAIT: Self = Self(1 << 6);
    /// Our FIN was acknowledged: everything written has arrived.
    pub const FIN_ACKED: Self = Self(1 << 7);
    /// A new urgent pointer (RFC 9293 MUST-32).
    pub const URGENT: Self = Self(1 << 8);
    /// With [`Self::URGENT`]: the octet of the urgent pointer before it is the next that the application would read.
    pub const URGENT_MISSED: Self = Self(1 << 11);
    /// R1 was passed: repeated retransmissions without an answer (RFC 9293 MUST-20, SHLD-9).
    /// A good moment to doubt the next hop.
    pub const STALLED: Self = Self(1 << 9);
    /// Segments are taken for lost before any timer expired: they are sent again (fast retransmit).
    pub const LOSS: Self = Self(1 << 10);

    /// Whether all of `other` happened.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether any of `other` happened.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// Whether nothing happened.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
impl core::ops::BitOr for Events {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
impl core::ops::BitOrAssign for Events {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Why a segment, or the text in it, was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Drop {
    /// The connection is closed.
    Closed,
    /// Outside the receive window (RFC 9293 §3.10.7.4, first).
    Sequence,
    /// All of it was received before.
    Duplicate,
    /// Older than the last timestamp (RFC 7323 §5.3); of a SYN-ACK: an echo of what no SYN of ours said.
    Paws,
    /// No timestamp although they were agreed upon and are insisted upon (RFC 7323 §3.2).
    TimestampMissing,
    /// A RST that is not exactly at RCV.NXT (RFC 5961 §3).
    Reset,
    /// A SYN within an open connection (RFC 5961 §4).
    Syn,
    /// No ACK flag where there must be one.
    NoAck,
    /// An acknowledgment of what was never sent, or far too old (RFC 5961 §5).
    Ack,
    /// Flags that make no sense together.
    Flags,
    /// Text after the window's end.
    Window,
    /// Text after the peer's FIN.
    AfterFin,
    /// Text that will not be read: the connection was closed.
    NoReader,
    /// No room for another segment (pool, or this connection's share of it).
    Memory,
    /// All connections together hold as much memory as they may.
    Limit,
    /// Too many gaps already.
    Gaps,
}

/// What a segment led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Bytes the caller drops from the front of the send queue.
    pub acked: u32,
    /// What happened.
    pub events: Events,
    /// Why the segment, or its text, was not taken; `None` if it was.
    pub drop: Option<Drop>,
    /// Its text was taken by header prediction: the next segment may be one for [`super::Connection::follow`].
    pub predicted: bool,
}

/// One segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The header, ports included; the checksum is the emitter's.
    pub header: Header,
    /// First byte of the text, counted from the front of the send queue.
    pub offset: u32,
    /// Bytes of text: more than `segment` only as [`super::Config::burst`] allows.
    pub len: u32,
    /// Bytes of text in each segment that it has to be cut into; the last may have less.
    pub segment: u16,
    /// What the IP header has to say.
    pub ecn: Ecn,
}

/// What LISTEN makes of a segment (RFC 9293 §3.10.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A SYN: open a connection.
    Open,
    /// Answer with this RST.
    Reset(Header),
    /// Nothing.
    Drop(Drop),
}
