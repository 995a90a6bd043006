//! A running stack: what `netchan::Net` is, and how one is started.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    link::Link,
    socket::{TcpListener, TcpStream, UdpSocket},
};

/// How packet processing is placed on cores and shared state is guarded (see ARCHITECTURE.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Regime {
    /// One lock around everything.
    Giant,
    /// Many shards by flow hash, each under its lock.
    Locked,
    /// One shard per core, held by its core only.
    PerCpu,
    /// One shard, held by a network thread fed by a channel.
    DriverChannel,
    /// One shard per socket, held by the thread in the socket call.
    SocketChannel,
    /// One shard per application (thread), fed by a channel.
    #[default]
    AppChannel,
}

/// Where protocol work for a received packet runs (F5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// In the thread that received it.
    #[default]
    Direct,
    /// In a protocol thread, by a queue.
    Deferred,
    /// Direct while nobody is in the way, else queued.
    Hybrid,
}

/// Who turns the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// A link thread of its own, and an attendant for shards whose application is away.
    #[default]
    Own,
    /// None: each socket call and [`Net::poll`] turn the link and the shards. For in-memory links, tests and one core.
    Caller,
}

/// Settings before the start.
pub struct Builder {}

impl Builder {
    /// Adds a link by its specification, `KIND[:NAME][,option=value]...`.
    pub fn link(self, specification: &str) -> io::Result<Self> {
        let _ = specification;
        unimplemented!()
    }
    /// Adds a link of your own.
    pub fn link_with(self, link: Box<dyn Link>) -> Self {
        let _ = link;
        unimplemented!()
    }
    /// An address with its prefix length, for the link named last.
    pub fn address(self, address: &str) -> io::Result<Self> {
        let _ = address;
        unimplemented!()
    }
    /// The default gateway for the link named last; once per family.
    pub fn gateway(self, gateway: &str) -> io::Result<Self> {
        let _ = gateway;
        unimplemented!()
    }
    /// The regime; default `app-channel`.
    pub fn regime(self, regime: Regime) -> Self {
        let _ = regime;
        unimplemented!()
    }
    /// Number of shards where the regime leaves it open.
    pub fn shards(self, shards: usize) -> Self {
        let _ = shards;
        unimplemented!()
    }
    /// Who turns the stack.
    pub fn threads(self, threads: Threads) -> Self {
        let _ = threads;
        unimplemented!()
    }
    /// Its clock.
    pub fn clock(self, clock: Clock) -> Self {
        let _ = clock;
        unimplemented!()
    }
    /// Makes keys, initial sequence numbers and ports a function of `seed`: for tests that replay. Otherwise from getrandom(2).
    pub fn seed(self, seed: u64) -> Self {
        let _ = seed;
        unimplemented!()
    }
    /// Starts it.
    pub fn start(self) -> io::Result<Net> {
        unimplemented!()
    }
}

/// A running stack; clones share it, the last one stops it.
#[derive(Clone)]
pub struct Net {
    pub(crate) _inner: Arc<()>,
}

impl Net {
    /// Settings before the start.
    pub fn builder() -> Builder {
        Builder {}
    }
    /// TCP.
    pub fn tcp(&self) -> Tcp<'_> {
        Tcp { net: self }
    }
    /// UDP.
    pub fn udp(&self) -> Udp<'_> {
        Udp { net: self }
    }
    /// Turns the links and shards once, without waiting: for [`Threads::Caller`]. True if there was work.
    pub fn poll(&self) -> bool {
        unimplemented!()
    }
    /// When `poll` has something to do by time alone; `None` if never. For virtual time.
    pub fn next_event(&self) -> Option<proto::time::Instant> {
        unimplemented!()
    }
    /// Its clock.
    pub fn clock(&self) -> &Clock {
        unimplemented!()
    }
    /// Whether `ip` is one of this stack's own addresses.
    pub fn is_local(&self, ip: std::net::IpAddr) -> bool {
        let _ = ip;
        unimplemented!()
    }
    /// The facts behind `netchan show TOPIC` as JSON; `None` for an unknown topic.
    pub fn show(&self, topic: &str) -> Option<serde_json::Value> {
        let _ = topic;
        unimplemented!()
    }
}

/// TCP of one stack.
#[derive(Clone, Copy)]
pub struct Tcp<'a> {
    net: &'a Net,
}

impl Tcp<'_> {
    /// Listens on `address` (`"0.0.0.0:80"`, `"[::]:80"`) with a backlog of 1024.
    pub fn listen(&self, address: &str) -> io::Result<TcpListener> {
        let _ = (address, self.net);
        unimplemented!()
    }
    /// Opens a connection and waits for it.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let _ = address;
        unimplemented!()
    }
    /// Opens a connection and waits for it at most `timeout`.
    pub fn connect_timeout(&self, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let _ = (address, timeout);
        unimplemented!()
    }
}

/// UDP of one stack.
#[derive(Clone, Copy)]
pub struct Udp<'a> {
    net: &'a Net,
}

impl Udp<'_> {
    /// A socket bound to `address`.
    pub fn bind(&self, address: &str) -> io::Result<UdpSocket> {
        let _ = (address, self.net);
        unimplemented!()
    }
}
