//! The application's end: BSD sockets, non-blocking at the core; blocking, async and epoll stand on the same three calls.

mod ao;
pub(crate) mod attendant;
mod datagram;
mod fast_open;
mod message;
pub(crate) mod multicast;
mod options;
mod std_like;
mod stream;
mod tcp_info;
pub(crate) mod wait;

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    task::Waker,
    time::Duration,
};

use percore::lock::{Mutex, mutex};
use proto::tcp::CongestionControl;
pub use proto::tcp::{AoAlgorithm, AoCounts, AoKey, FastOpenKeys, FastOpenMode, Md5Key};

pub(crate) use self::message::UdpOptions;
pub use self::{
    ao::{AoChoice, AoInfo, AoKeyInfo, AoPeerKey},
    message::{
        DatagramInfo, Discovery, ErrorOrigin, ReceivedError, SendInfo, SocketError, UdpOption,
    },
    multicast::{Multicast, Via},
    std_like::{Incoming, TcpListener, TcpStream, UdpSocket},
    tcp_info::LEN as TCP_INFO_LEN,
    wait::Waiter,
};
use self::{
    datagram::Datagram,
    options::Fresh,
    stream::{Listening, Stream},
};
use crate::{directory::BindRequest, errno::error, locks, net::Net, stack::Stack};

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
    /// TCP_CONGESTION.
    Congestion(CongestionControl),
    /// TCP_SYNCNT: how often a SYN is sent again, 1 to 127.
    SynCount(u8),
    /// TCP_LINGER2: how long FIN-WAIT-2 lasts once the socket is closed; zero is the stack's setting, `None` not at all.
    Linger2(Option<Duration>),
    /// TCP_DEFER_ACCEPT: how long a listener keeps a connection to itself that says nothing; zero is off. Rounded up to the time of a
    /// retransmission.
    DeferAccept(Duration),
    /// SO_MAX_PACING_RATE, bytes a second; `u64::MAX` is no limit.
    PacingRateMax(u64),
    /// TCP_WINDOW_CLAMP: no wider window is offered, bytes; 0 is no limit.
    WindowClamp(u32),
    /// SO_RCVLOWAT: a stream is readable from so many bytes on.
    ReceiveLowWater(u32),
    /// TCP_NOTSENT_LOWAT: a stream is writable while fewer bytes wait to be sent for the first time; 0 is no limit.
    UnsentLowWater(u32),
    /// SO_OOBINLINE: urgent data is read like all other.
    UrgentInline(bool),
    /// TCP_MD5SIG_EXT: the key (RFC 2385) for peers in the network of `prefix` bits; `None` takes it away. Cannot be read.
    Md5Key {
        peer: IpAddr,
        prefix: u8,
        key: Option<Md5Key>,
    },
    /// TCP_FASTOPEN of a listener: most connections that may be read before their handshake is over (RFC 7413 §5.1); 0 is off.
    FastOpen(u32),
    /// TCP_FASTOPEN_CONNECT: where the peer is known, connect succeeds at once, and the first write goes with the SYN.
    FastOpenConnect(bool),
    /// TCP_FASTOPEN_NO_COOKIE: only where no address can be forged.
    FastOpenNoCookie(bool),
    /// TCP_FASTOPEN_KEY of a listener; `None` is the stack's own.
    FastOpenKeys(Option<FastOpenKeys>),
    /// Groups, and what is sent to them.
    Multicast(Multicast),
    /// IP_TTL / IPV6_UNICAST_HOPS.
    Ttl(u8),
    /// IP_TOS / IPV6_TCLASS.
    TypeOfService(u8),
    /// One that datagram sockets have.
    Udp(UdpOption),
}

/// One socket, as socket(2) makes it. Every call returns at once (`WouldBlock`, `InProgress`); waiting is [`Waiter`]'s.
/// Usable from any thread; dropping it closes it (a graceful close goes on in the stack).
pub struct Socket {
    /// Keeps the stack running.
    net: Net,
    domain: Domain,
    kind: Kind,
    /// What it has become.
    role: OnceLock<Role>,
    /// Options and the binding, before it became anything and for those who ask later.
    fresh: Mutex<Fresh>,
}

/// What a socket has become.
enum Role {
    Stream(Stream),
    Listening(Box<Listening>),
    Datagram(Box<Datagram>),
}

impl Socket {
    /// socket(2).
    ///
    /// # Errors
    /// None yet: a socket costs nothing until it is bound or connected.
    pub fn new(net: &Net, domain: Domain, kind: Kind) -> io::Result<Self> {
        Ok(Self::on(net.clone(), domain, kind))
    }

    fn on(net: Net, domain: Domain, kind: Kind) -> Self {
        Self {
            net,
            domain,
            kind,
            role: OnceLock::new(),
            fresh: mutex(&locks::FRESH, Fresh::default()),
        }
    }

    /// bind(2).
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`, `InvalidInput` (bound already), EAFNOSUPPORT.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let address = self.inward(address)?;
        let mut fresh = self.fresh.lock();
        if fresh.binding().is_some() || self.role.get().is_some() {
            return Err(error(libc::EINVAL));
        }
        self.bind_fresh(&mut fresh, address)?;
        if self.kind == Kind::Datagram {
            self.open_datagram(&fresh)?;
        }
        Ok(())
    }

    fn bind_fresh(&self, fresh: &mut Fresh, address: SocketAddr) -> io::Result<()> {
        let ip = address.ip();
        if !ip.is_unspecified()
            && !self.stack().host.is_local(ip)
            && !self.stack().host.is_group(ip)
        {
            return Err(error(libc::EADDRNOTAVAIL));
        }
        let request = BindRequest {
            kind: self.kind,
            address,
            v6_only: fresh.v6_only,
            reuse_address: fresh.reuse_address,
            reuse_port: fresh.reuse_port,
        };
        let (id, address) = self.stack().directory.bind(request).map_err(error)?;
        fresh.bind(id, address);
        Ok(())
    }

    /// listen(2); again changes the backlog.
    ///
    /// # Errors
    /// `AddrInUse`, `Unsupported` for a datagram socket, `InvalidInput` for a connected one.
    pub fn listen(&self, backlog: usize) -> io::Result<()> {
        if self.kind == Kind::Datagram {
            return Err(error(libc::EOPNOTSUPP));
        }
        let mut fresh = self.fresh.lock();
        match self.role.get() {
            None => {}
            Some(Role::Listening(listening)) => {
                listening.set_backlog(self.stack(), backlog);
                return Ok(());
            }
            Some(_) => return Err(error(libc::EINVAL)),
        }
        if fresh.binding().is_none() {
            self.bind_fresh(&mut fresh, SocketAddr::new(self.wildcard(), 0))?;
        }
        let Some((id, address)) = fresh.binding() else {
            return Err(error(libc::EINVAL));
        };
        self.stack().directory.listen(id).map_err(error)?;
        let listening = Listening::open(self.stack(), address, backlog, &fresh)?;
        let _ = self.role.set(Role::Listening(Box::new(listening)));
        Ok(())
    }

    /// connect(2) without waiting: a stream answers EINPROGRESS, then EALREADY, then (once writable) `Ok` or the error; EISCONN later.
    ///
    /// # Errors
    /// As said, and ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT.
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let fast = self.kind == Kind::Stream && self.fresh.lock().fast_connect;
        self.connect_as(address, fast)
    }

    fn connect_as(&self, address: SocketAddr, fast: bool) -> io::Result<()> {
        let mut remote = self.inward(address)?;
        if remote.ip().is_unspecified() {
            // As everyone does: to this host itself.
            let own = self
                .stack()
                .host
                .source_for_family(remote.ip())
                .ok_or_else(|| error(libc::ENETUNREACH))?;
            remote.set_ip(own);
        }
        let mut fresh = self.fresh.lock();
        if self.kind == Kind::Datagram {
            return self.connect_datagram(&mut fresh, Some(remote));
        }
        if remote.ip().is_multicast()
            || remote.port() == 0
            || remote.ip() == IpAddr::V4(Ipv4Addr::BROADCAST)
            || self.stack().host.is_broadcast(remote.ip())
        {
            return Err(error(libc::EADDRNOTAVAIL)); // RFC 9293 MUST-46
        }
        match self.role.get() {
            Some(Role::Stream(stream)) => {
                match stream.connect_again(self.stack(), remote, &fresh) {
                    Some(result) => result,
                    None => Err(error(libc::EINPROGRESS)),
                }
            }
            Some(_) => Err(error(libc::EISCONN)),
            None => {
                let bound = fresh.binding().map(|(_, address)| address);
                let stream = Stream::open(self.stack(), bound, remote, &fresh, fast)?;
                stream.begin(self.stack(), &fresh);
                let is_held = fast && stream.is_held(self.stack());
                let _ = self.role.set(Role::Stream(stream));
                if is_held {
                    return Ok(());
                }
                Err(error(libc::EINPROGRESS))
            }
        }
    }

    /// connect(2) with AF_UNSPEC on a datagram socket: forgets its peer.
    ///
    /// # Errors
    /// `Unsupported` for a stream.
    pub fn disconnect(&self) -> io::Result<()> {
        if self.kind == Kind::Stream {
            return Err(error(libc::EOPNOTSUPP));
        }
        self.connect_datagram(&mut self.fresh.lock(), None)
    }

    /// accept(2) without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, `InvalidInput` if it does not listen.
    pub fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        let Some(Role::Listening(listening)) = self.role.get() else {
            return Err(error(libc::EINVAL));
        };
        let Some((stream, remote)) = listening.accept(self.stack()) else {
            let cut_off = self
                .stack()
                .ports
                .iter()
                .all(|port| port.gone.load(Relaxed));
            return Err(error(if cut_off {
                libc::ENETDOWN
            } else {
                libc::EAGAIN
            }));
        };
        let remote = self.outward(remote);
        let inherited = self.fresh.lock().inherited();
        stream.begin(self.stack(), &inherited);
        let socket = Self {
            net: self.net.clone(),
            domain: self.domain,
            kind: Kind::Stream,
            role: OnceLock::from(Role::Stream(stream)),
            fresh: mutex(&locks::FRESH, inherited),
        };
        Ok((socket, remote))
    }

    /// sendmsg(2) without waiting: as much of a stream as there is room for (at least 1 byte or `WouldBlock`), a datagram whole.
    ///
    /// # Errors
    /// `WouldBlock`, `NotConnected`, `BrokenPipe`, EMSGSIZE, ENETUNREACH, or the pending error.
    #[inline]
    pub fn send(&self, buffers: &[IoSlice<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.send(self.stack(), buffers, None).map_err(error),
            None if self.kind == Kind::Stream => Err(error(libc::EPIPE)),
            Some(Role::Listening(_)) => Err(error(libc::EPIPE)),
            _ => self.send_message(buffers, to, &SendInfo::default()),
        }
    }

    /// As [`send`](Self::send) on a stream; the last byte is urgent (MSG_OOB). New programs have better ways (RFC 6093 §5).
    ///
    /// # Errors
    /// As there; `Unsupported` for a datagram.
    pub fn send_urgent(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.send_urgent(self.stack(), buffers).map_err(error),
            _ if self.kind == Kind::Datagram => Err(error(libc::EOPNOTSUPP)),
            _ => Err(error(libc::EPIPE)),
        }
    }

    /// SIOCATMARK: whether the next byte of a stream is the urgent one.
    pub fn is_at_mark(&self) -> bool {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.is_at_mark(self.stack()),
            _ => false,
        }
    }

    /// SO_INCOMING_CPU: the number of the shard where it lives, if that is one.
    pub fn incoming_cpu(&self) -> Option<usize> {
        self.shard()
    }

    /// recvmsg(2) without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, `NotConnected`, or the pending error.
    #[inline]
    pub fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> io::Result<Received> {
        match self.role.get() {
            Some(Role::Stream(stream)) => {
                let len = stream
                    .receive(self.stack(), buffers, flags, None)
                    .map_err(error)?;
                Ok(Received::stream(len))
            }
            Some(Role::Datagram(_)) => self.receive_datagram(buffers, flags),
            Some(Role::Listening(_)) => Err(error(libc::ENOTCONN)),
            None if self.kind == Kind::Datagram => Err(error(libc::EAGAIN)),
            None => Err(error(libc::ENOTCONN)),
        }
    }

    /// shutdown(2).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.shutdown(self.stack(), read, write).map_err(error),
            Some(Role::Datagram(datagram)) => datagram.shutdown(self.stack(), read).map_err(error),
            Some(Role::Listening(_)) | None => Err(error(libc::ENOTCONN)),
        }
    }

    /// What it is ready for at this moment.
    pub fn readiness(&self) -> Readiness {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.readiness(self.stack()),
            Some(Role::Listening(listening)) => listening.readiness(self.stack()),
            Some(Role::Datagram(datagram)) => datagram.readiness(self.stack()),
            None if self.kind == Kind::Datagram => Readiness::WRITABLE,
            // As Linux says of a stream that was never connected.
            None => Readiness::WRITABLE | Readiness::HANGUP,
        }
    }

    /// Wakes `waker` once when any of `interest` (errors and hang-ups always) may hold; at once where it holds already.
    /// One registration for each waker (`Waker::will_wake`): a later one adds to it. Spurious wakes are allowed.
    /// A socket that is neither bound nor connected wakes nobody.
    ///
    /// True if it may hold already, and the waker was woken; false: nothing of it holds, no need to look again.
    pub fn register(&self, interest: Readiness, waker: &Waker) -> bool {
        // Whoever waits does not sit at the one shard of several: `Waiter::register` is for those who do.
        if self.stack().layout.leases()
            && let Some(number) = self.shard()
        {
            self.stack().hand_over(number);
        }
        self.register_in_place(interest, waker)
    }

    /// The one shard where it lives, if there is one.
    fn shard(&self) -> Option<usize> {
        match self.role.get()? {
            Role::Stream(stream) => Some(stream.shard()),
            Role::Datagram(datagram) => datagram.shard(),
            Role::Listening(_) => None,
        }
    }

    fn register_in_place(&self, interest: Readiness, waker: &Waker) -> bool {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.register(self.stack(), interest, waker),
            Some(Role::Listening(listening)) => listening.register(self.stack(), interest, waker),
            Some(Role::Datagram(datagram)) => datagram.register(self.stack(), interest, waker),
            None => false,
        }
    }

    /// A stream's [`receive`](Self::receive) by a thread that will sit down to wait for more: registers its waker where the call would
    /// block, else forgets it, all in one turn of the shard.
    fn receive_or_wait(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
        waker: &Waker,
    ) -> io::Result<usize> {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream
                .receive(self.stack(), buffers, flags, Some(waker))
                .map_err(error),
            _ => self.receive(buffers, flags).map(|received| received.len),
        }
    }

    /// The same for [`send`](Self::send).
    fn send_or_wait(&self, buffers: &[IoSlice<'_>], waker: &Waker) -> io::Result<usize> {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream
                .send(self.stack(), buffers, Some(waker))
                .map_err(error),
            _ => self.send(buffers, None),
        }
    }

    /// Forgets `waker`.
    pub fn deregister(&self, waker: &Waker) {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.deregister(self.stack(), waker),
            Some(Role::Listening(listening)) => listening.deregister(self.stack(), waker),
            Some(Role::Datagram(datagram)) => datagram.deregister(self.stack(), waker),
            None => {}
        }
    }

    /// SO_ERROR: takes the pending error.
    pub fn take_error(&self) -> Option<io::Error> {
        let errno = match self.role.get()? {
            Role::Stream(stream) => stream.take_error(self.stack()),
            Role::Listening(_) => None,
            Role::Datagram(datagram) => datagram.take_error(self.stack()),
        };
        errno.map(error)
    }

    /// FIONREAD: bytes of a stream, or of the first datagram.
    pub fn available(&self) -> usize {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.available(self.stack()),
            Some(Role::Datagram(datagram)) => datagram.available(self.stack()),
            _ => 0,
        }
    }

    /// SIOCOUTQ: bytes not yet acknowledged.
    pub fn unacknowledged(&self) -> usize {
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.unacknowledged(self.stack()),
            _ => 0,
        }
    }

    /// getsockname(2).
    pub fn local_address(&self) -> SocketAddr {
        let inner = match self.role.get() {
            Some(Role::Stream(stream)) => stream
                .local(self.stack())
                .unwrap_or_else(|| SocketAddr::new(self.wildcard(), 0)),
            Some(Role::Listening(listening)) => listening.address(),
            Some(Role::Datagram(datagram)) => datagram.local(self.stack()),
            None => {
                let binding = self.fresh.lock().binding();
                binding.map_or(SocketAddr::new(self.wildcard(), 0), |(_, address)| address)
            }
        };
        self.outward(inner)
    }

    /// getpeername(2).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let peer = match self.role.get() {
            Some(Role::Stream(stream)) if stream.is_connected(self.stack()) => {
                stream.remote(self.stack())
            }
            Some(Role::Datagram(datagram)) => datagram.peer(self.stack()),
            _ => None,
        };
        peer.map(|peer| self.outward(peer))
            .ok_or_else(|| error(libc::ENOTCONN))
    }

    /// TCP_INFO's facts for a stream.
    pub fn tcp_info(&self) -> Option<proto::tcp::Info> {
        match self.role.get()? {
            Role::Stream(stream) => stream.info(self.stack()),
            _ => None,
        }
    }

    /// TCP_INFO as Linux's `struct tcp_info` has it, up to `tcpi_total_rto_time`; `None` for datagrams.
    pub fn tcp_info_as_linux(&self) -> Option<[u8; TCP_INFO_LEN]> {
        match self.role.get() {
            Some(Role::Stream(stream)) => {
                let info = stream.info(self.stack())?;
                let pace_max = self.fresh.lock().pacing_limit();
                let now = self.stack().clock.now();
                Some(tcp_info::encode(&info, pace_max, now))
            }
            Some(Role::Listening(listening)) => {
                let (waiting, backlog) = listening.depth(self.stack());
                Some(tcp_info::of_listener(waiting, backlog))
            }
            Some(Role::Datagram(_)) => None,
            None => (self.kind == Kind::Stream).then(tcp_info::of_closed),
        }
    }

    /// Its family.
    pub const fn domain(&self) -> Domain {
        self.domain
    }

    /// Its type.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether listen(2) was called.
    pub fn is_listening(&self) -> bool {
        matches!(self.role.get(), Some(Role::Listening(_)))
    }

    /// The stack it lives on.
    pub(crate) fn stack(&self) -> &Arc<Stack> {
        self.net.stack()
    }

    const fn wildcard(&self) -> IpAddr {
        match self.domain {
            Domain::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Domain::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// An address as callers write it to one as the stack uses it: mapped IPv4 becomes IPv4.
    fn inward(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        match (self.domain, address) {
            (Domain::V4, SocketAddr::V4(_)) => Ok(address),
            (Domain::V6, SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
                Some(v4) if self.fresh.lock().v6_only => {
                    let _ = v4;
                    Err(error(libc::ENETUNREACH))
                }
                Some(v4) => Ok(SocketAddr::new(v4.into(), v6.port())),
                None => Ok(SocketAddr::new((*v6.ip()).into(), v6.port())),
            },
            _ => Err(error(libc::EAFNOSUPPORT)),
        }
    }

    /// The other way.
    const fn outward(&self, address: SocketAddr) -> SocketAddr {
        match (self.domain, address) {
            (Domain::V6, SocketAddr::V4(v4)) => {
                SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
            }
            _ => address,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.leave_groups();
        match self.role.get() {
            Some(Role::Stream(stream)) => stream.close(self.stack()),
            Some(Role::Listening(listening)) => listening.close(self.stack()),
            Some(Role::Datagram(datagram)) => datagram.close(self.stack()),
            None => {}
        }
        if let Some((id, _)) = self.fresh.get_mut().binding() {
            self.stack().directory.release(id);
        }
    }
}
