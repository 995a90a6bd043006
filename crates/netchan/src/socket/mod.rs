//! The application's end: BSD sockets, non-blocking at the core; blocking, async and epoll stand on the same three calls.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr},
    task::Waker,
    time::Duration,
};

use crate::net::Net;

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// AF_INET.
    V4,
    /// AF_INET6; takes IPv4 peers as mapped addresses unless [`SocketOption::V6Only`].
    V6,
}

/// Socket type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SOCK_STREAM over TCP.
    Stream,
    /// SOCK_DGRAM over UDP.
    Datagram,
}

/// What a socket is ready for, level-triggered; the bits are poll(2)'s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Readiness(pub u16);

#[allow(missing_docs)]
impl Readiness {
    pub const NONE: Self = Self(0);
    pub const READABLE: Self = Self(0x001);
    pub const PRIORITY: Self = Self(0x002);
    pub const WRITABLE: Self = Self(0x004);
    pub const ERROR: Self = Self(0x008);
    pub const HANGUP: Self = Self(0x010);
    pub const READ_HANGUP: Self = Self(0x2000);
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Readiness {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Flags of one receive call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveFlags {
    /// MSG_PEEK: leave the data where it is.
    pub peek: bool,
    /// MSG_TRUNC: report a datagram's whole length.
    pub truncate: bool,
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
}

/// Socket options that have a meaning here; the preload library maps getsockopt/setsockopt to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in socket(7), tcp(7), ip(7), ipv6(7)
pub enum SocketOption {
    ReuseAddress(bool),
    ReusePort(bool),
    KeepAlive(bool),
    Broadcast(bool),
    /// SO_LINGER: `None` is off.
    Linger(Option<Duration>),
    /// SO_RCVBUF, bytes.
    ReceiveBuffer(usize),
    /// SO_SNDBUF, bytes.
    SendBuffer(usize),
    V6Only(bool),
    NoDelay(bool),
    Cork(bool),
    QuickAck(bool),
    /// TCP_MAXSEG, bytes.
    MaxSegment(u16),
    KeepIdle(Duration),
    KeepInterval(Duration),
    KeepCount(u32),
    UserTimeout(Duration),
    /// IP_TTL / IPV6_UNICAST_HOPS.
    Ttl(u8),
    /// IP_TOS / IPV6_TCLASS.
    TypeOfService(u8),
}

/// One socket, as socket(2) makes it. Every call returns at once (`WouldBlock`, `InProgress`); waiting is [`Waiter`]'s.
/// Usable from any thread; dropping the last handle closes it (a graceful close goes on in the stack).
pub struct Socket {}

impl Socket {
    /// socket(2).
    pub fn new(net: &Net, domain: Domain, kind: Kind) -> io::Result<Self> {
        let _ = (net, domain, kind);
        unimplemented!()
    }
    /// bind(2): `AddrInUse`, `AddrNotAvailable`, `InvalidInput` (bound already).
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let _ = address;
        unimplemented!()
    }
    /// listen(2); again changes the backlog.
    pub fn listen(&self, backlog: usize) -> io::Result<()> {
        let _ = backlog;
        unimplemented!()
    }
    /// connect(2) without waiting: a stream answers EINPROGRESS, then EALREADY, then (once writable) `Ok` or the error; EISCONN later.
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let _ = address;
        unimplemented!()
    }
    /// connect(2) with AF_UNSPEC on a datagram socket: forgets its peer.
    pub fn disconnect(&self) -> io::Result<()> {
        unimplemented!()
    }
    /// accept(2) without waiting.
    pub fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        unimplemented!()
    }
    /// sendmsg(2) without waiting: as much of a stream as there is room for (at least 1 byte or `WouldBlock`), a datagram whole.
    pub fn send(&self, buffers: &[IoSlice<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        let _ = (buffers, to);
        unimplemented!()
    }
    /// recvmsg(2) without waiting.
    pub fn receive(&self, buffers: &mut [IoSliceMut<'_>], flags: ReceiveFlags) -> io::Result<Received> {
        let _ = (buffers, flags);
        unimplemented!()
    }
    /// shutdown(2).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let _ = how;
        unimplemented!()
    }
    /// What it is ready for at this moment.
    pub fn readiness(&self) -> Readiness {
        unimplemented!()
    }
    /// Wakes `waker` once when any of `interest` (errors and hang-ups always) may hold; at once where it holds already.
    /// One registration for each waker (`Waker::will_wake`): a later one replaces it. Spurious wakes are allowed.
    pub fn register(&self, interest: Readiness, waker: &Waker) {
        let _ = (interest, waker);
        unimplemented!()
    }
    /// Forgets `waker`.
    pub fn deregister(&self, waker: &Waker) {
        let _ = waker;
        unimplemented!()
    }
    /// SO_ERROR: takes the pending error.
    pub fn take_error(&self) -> Option<io::Error> {
        unimplemented!()
    }
    /// Sets an option; `Unsupported` where it has no meaning for this socket.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        let _ = option;
        unimplemented!()
    }
    /// The current value of the option that `like` names (its payload is ignored).
    pub fn option(&self, like: SocketOption) -> io::Result<SocketOption> {
        let _ = like;
        unimplemented!()
    }
    /// FIONREAD: bytes of a stream, or of the first datagram.
    pub fn available(&self) -> usize {
        unimplemented!()
    }
    /// SIOCOUTQ: bytes not yet acknowledged.
    pub fn unacknowledged(&self) -> usize {
        unimplemented!()
    }
    /// getsockname(2).
    pub fn local_address(&self) -> SocketAddr {
        unimplemented!()
    }
    /// getpeername(2): `NotConnected`.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        unimplemented!()
    }
    /// TCP_INFO's facts for a stream.
    pub fn tcp_info(&self) -> Option<proto::tcp::Info> {
        unimplemented!()
    }
    /// Family and type, SO_ACCEPTCONN.
    pub fn domain(&self) -> Domain {
        unimplemented!()
    }
    /// Its type.
    pub fn kind(&self) -> Kind {
        unimplemented!()
    }
    /// Whether listen(2) was called.
    pub fn is_listening(&self) -> bool {
        unimplemented!()
    }
}

/// One thread's way to wait: for wakers, for kernel descriptors, for a deadline, all at once.
/// While it waits it turns the shards that nobody else turns.
pub struct Waiter {}

impl Waiter {
    /// A waiter on `net`. Keep one for each thread.
    pub fn new(net: &Net) -> io::Result<Self> {
        let _ = net;
        unimplemented!()
    }
    /// Ends the wait when woken; hand it to [`Socket::register`].
    pub fn waker(&self) -> &Waker {
        unimplemented!()
    }
    /// Waits until the waker was woken since the last wait, or one of `fds` is ready (`revents` filled in as by poll(2)), or `timeout` has passed.
    /// Returns the number of ready `fds`; `Interrupted` when a signal handler ran.
    pub fn wait(&self, fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
        let _ = (fds, timeout);
        unimplemented!()
    }
}

/// A TCP connection, as `std::net::TcpStream`.
pub struct TcpStream {}

impl TcpStream {
    /// The socket underneath (async, options).
    pub fn socket(&self) -> &Socket {
        unimplemented!()
    }
}

impl Read for TcpStream {
    fn read(&mut self, _buf: &mut [u8]) -> io::Result<usize> {
        unimplemented!()
    }
}

impl Write for TcpStream {
    fn write(&mut self, _buf: &[u8]) -> io::Result<usize> {
        unimplemented!()
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A TCP listener, as `std::net::TcpListener`.
pub struct TcpListener {}

impl TcpListener {
    /// The socket underneath.
    pub fn socket(&self) -> &Socket {
        unimplemented!()
    }
    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        unimplemented!()
    }
}

/// A UDP socket, as `std::net::UdpSocket`.
pub struct UdpSocket {}

impl UdpSocket {
    /// The socket underneath.
    pub fn socket(&self) -> &Socket {
        unimplemented!()
    }
}
