//! The states of a flow, and how long each lasts without a packet.

use std::time::Duration;

/// A flow's state. TCP's are those of nf_conntrack, simplified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// TCP: a SYN was seen.
    SynSent,
    /// TCP: it was answered.
    SynReceived,
    /// TCP: it was begun before it was seen, and only one end has been seen.
    PickedUp,
    /// Any other protocol: not answered.
    Asked,
    /// TCP: open.
    Established,
    /// TCP: one end has closed.
    FinWait,
    /// TCP: that was acknowledged.
    CloseWait,
    /// TCP: both have closed.
    LastAck,
    /// TCP: that was acknowledged.
    TimeWait,
    /// TCP: reset.
    Closed,
    /// An echo that was answered.
    Echoed,
    /// Any other protocol: answered.
    Stream,
}

/// How many states there are.
pub const STATES: usize = 12;

impl State {
    /// All of them, by number.
    pub const ALL: [Self; STATES] = [
        Self::SynSent,
        Self::SynReceived,
        Self::PickedUp,
        Self::Asked,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
        Self::Echoed,
        Self::Stream,
    ];

    /// Those of flows that only one end has spoken for, or where nothing is agreed on: the first to go when there is no room.
    pub const HALF_OPEN: [Self; 4] = [
        Self::SynSent,
        Self::SynReceived,
        Self::PickedUp,
        Self::Asked,
    ];

    /// Those of connections that are over: the next to go.
    pub const OVER: [Self; 2] = [Self::Closed, Self::TimeWait];

    /// Its name, as nf_conntrack has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN_SENT",
            Self::SynReceived => "SYN_RECV",
            Self::PickedUp => "PICKED_UP",
            Self::Asked => "UNREPLIED",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Closed => "CLOSE",
            Self::Echoed => "REPLIED",
            Self::Stream => "ASSURED",
        }
    }

    /// How long a flow stays in it without a packet. Those of nf_conntrack, but that what is picked up or unanswered waits no longer than a SYN's
    /// answer; RFC 5382 REQ-5 wants 2 h 4 min at least of an open connection, RFC 4787 REQ-5 two minutes of UDP, RFC 5508 REQ-2 a minute of an echo.
    pub const fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Self::Closed => 10,
            Self::Asked | Self::LastAck => 30,
            Self::SynReceived | Self::PickedUp | Self::CloseWait | Self::Echoed => 60,
            Self::SynSent | Self::FinWait | Self::TimeWait => 120,
            Self::Stream => 180,
            Self::Established => 5 * 86_400,
        })
    }
}
