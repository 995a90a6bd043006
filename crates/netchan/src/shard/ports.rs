//! The local ports of a shard's connections, TIME-WAIT included: what bind(2) must not give away, as on Linux.

use std::net::IpAddr;

use super::Shard;
use crate::{api::binding::BindRequest, flow::FlowKey};

/// What a connection's socket said of sharing its port, in a byte: SO_REUSEADDR, SO_REUSEPORT and IPV6_V6ONLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse(u8);

impl Reuse {
    const ADDRESS: u8 = 1;
    const PORT: u8 = 2;
    /// Beside [`Kept::RESETS`].
    const V6_ONLY: u8 = 8;
    /// Of no socket of this stack: it stands against no bind.
    const ELSEWHERE: u8 = 16;

    /// Of a connection that was another process's, whose port this stack may lend at once.
    pub const fn of_another_process() -> Self {
        Self(Self::ELSEWHERE)
    }

    /// Of a socket.
    pub const fn new(address: bool, port: bool, v6_only: bool) -> Self {
        Self(address as u8 | (port as u8) << 1 | (v6_only as u8) << 3)
    }

    /// Whether a bind that says this, too, may share the port with it.
    const fn shares_with(self, other: Self) -> bool {
        self.0 & other.0 & (Self::ADDRESS | Self::PORT) != 0 || self.0 & Self::ELSEWHERE != 0
    }

    const fn is_v6_only(self) -> bool {
        self.0 & Self::V6_ONLY != 0
    }
}

/// What a connection keeps for its end, in a byte: whether closing resets it (SO_LINGER of no time), and [`Reuse`].
#[derive(Clone, Copy, Debug)]
pub struct Kept(u8);

impl Kept {
    const RESETS: u8 = 4;

    /// Of a connection that begins.
    pub const fn new(resets: bool, reuse: Reuse) -> Self {
        Self((resets as u8) << 2 | reuse.0)
    }

    /// Closing resets it.
    pub const fn resets(self) -> bool {
        self.0 & Self::RESETS != 0
    }

    /// Changes that.
    pub const fn set_resets(&mut self, resets: bool) {
        *self = Self::new(resets, self.reuse());
    }

    /// Changes how it shares its port.
    pub const fn set_reuse(&mut self, reuse: Reuse) {
        *self = Self::new(self.resets(), reuse);
    }

    /// How it shares its port.
    pub const fn reuse(self) -> Reuse {
        Reuse(self.0 & !Self::RESETS)
    }
}

/// How many connections have each port.
#[derive(Debug)]
pub struct Ports {
    /// Reserved at the start, touched where a port is used.
    uses: Vec<u32>,
    total: usize,
    /// Counter of RFC 6056's algorithm.
    pub counter: u32,
}

impl Ports {
    /// None used.
    pub fn new() -> Self {
        Self {
            uses: vec![0; 1 << 16],
            total: 0,
            counter: 0,
        }
    }

    /// One more connection has it.
    #[inline]
    pub fn take(&mut self, port: u16) {
        self.uses[usize::from(port)] += 1;
        self.total += 1;
    }

    /// One has it no more.
    #[inline]
    pub fn give_back(&mut self, port: u16) {
        self.uses[usize::from(port)] -= 1;
        self.total -= 1;
    }

    /// Connections that have one.
    pub const fn total(&self) -> usize {
        self.total
    }
}

impl Shard {
    /// The connections that have a port: those that live, then those in TIME-WAIT.
    pub fn connections_at(&self, port: u16) -> Vec<FlowKey> {
        if self.ports.uses[usize::from(port)] == 0 {
            return Vec::new();
        }
        let sockets = self.tcp.iter().map(|(_, socket)| socket);
        let connected = sockets.filter(|socket| !socket.detached_flow);
        let waiting = self.time_waits.iter().map(|waiting| waiting.key);
        let all = connected.map(|socket| socket.key()).chain(waiting);
        all.filter(|key| key.local_port == port).collect()
    }

    /// Whether a connection here stands against a bind: it has the port, an address that would be taken in, and not both share.
    pub fn stands_against(&self, request: &BindRequest) -> bool {
        let port = request.address.port();
        if self.ports.uses[usize::from(port)] == 0 {
            return false;
        }
        let wanted = Reuse::new(request.reuse_address, request.reuse_port, request.v6_only);
        let stands = |ip: IpAddr, reuse: Reuse| {
            request.covers(ip, reuse.is_v6_only()) && !reuse.shares_with(wanted)
        };
        let mut sockets = self.tcp.iter().map(|(_, socket)| socket);
        let connected = sockets.any(|socket| {
            let key = socket.key();
            !socket.detached_flow
                && key.local_port == port
                && stands(key.local, socket.kept.reuse())
        });
        let mut waiting = self.time_waits.iter();
        connected || waiting.any(|w| w.key.local_port == port && stands(w.key.local, w.reuse))
    }
}
