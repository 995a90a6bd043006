//! The application's end: BSD sockets, non-blocking at the core; blocking, async and epoll stand on the same three calls.

mod addresses;
mod ao;
mod datagram;
mod earlier;
mod fast_open;
mod listening;
pub(crate) mod multicast;
mod notices;
pub mod options;
mod packet_channel;
mod register;
mod std_like;
mod stream;
mod tcp_info;
mod transfer;
pub(crate) mod wait;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    sync::{Arc, OnceLock},
};

use percore::lock::{Mutex, mutex};
pub use proto::membership::Mode as FilterMode;
pub use proto::tcp::{AoAlgorithm, AoCounts, AoKey, FastOpenKeys, FastOpenMode, Md5Key};

pub use self::{
    ao::{AoChoice, AoInfo, AoKeyInfo, AoPeerKey},
    multicast::GroupFilter,
    options::SocketOption,
    packet_channel::{LentPacket, PacketChannel, PacketDestination, PacketOptions},
    std_like::{Incoming, TcpListener, TcpStream, UdpSocket},
    tcp_info::LEN as TCP_INFO_LEN,
    wait::{Shards, Waiter},
};
use self::{
    datagram::Datagram,
    listening::Listening,
    options::SocketOptions,
    stream::{Phase, Stream},
};
pub use crate::api::{
    DatagramInfo, Discovery, Domain, ErrorOrigin, Kind, Notice, ReceiveFlags, Received,
    ReceivedError, SendInfo, SentPacket, SocketError, Stamp, StampRequest, UdpOption,
};
pub use crate::api::{
    Readiness,
    multicast::{Multicast, Via},
};
pub use crate::channel::PacketProtocol;
pub use crate::shard::SendLease;
use crate::{
    api::binding::{BindRequest, PortChange},
    errno::error,
    locks,
    net::Net,
    stack::Stack,
};

/// One socket, as socket(2) makes it. Every call returns at once (`WouldBlock`, `InProgress`); waiting is [`Waiter`]'s.
/// Usable from any thread; dropping it closes it (a graceful close goes on in the stack).
pub struct Socket {
    /// Keeps the stack running.
    net: Net,
    domain: Domain,
    kind: Kind,
    /// The connection that a stream is or was.
    stream: Stream,
    /// What else it has become.
    other: OnceLock<Box<Other>>,
    /// Options and the binding, before it became anything and for later questions.
    options: Mutex<SocketOptions>,
}

/// What is made once, and stays: a stream may end listening, and listen again.
enum Other {
    Listening(Listening),
    Datagram(Datagram),
}

/// What a socket is at the moment.
#[derive(Clone, Copy)]
enum Role<'a> {
    Stream(&'a Stream),
    Listening(&'a Listening),
    Datagram(&'a Datagram),
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
            stream: Stream::idle(),
            other: OnceLock::new(),
            options: mutex(&locks::FRESH, SocketOptions::new(kind, domain)),
        }
    }

    /// What it is at the moment; `None`: neither connects, nor listens, nor was ever bound.
    #[inline]
    fn role(&self) -> Option<Role<'_>> {
        let phase = self.stream.phase();
        if phase == Phase::Connection {
            return Some(Role::Stream(&self.stream));
        }
        match self.other.get()?.as_ref() {
            Other::Listening(listening) => {
                (phase == Phase::Listening).then_some(Role::Listening(listening))
            }
            Other::Datagram(datagram) => Some(Role::Datagram(datagram)),
        }
    }

    /// bind(2).
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`, `InvalidInput` (bound already), EAFNOSUPPORT.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        if address.is_ipv4() != (self.domain == Domain::V4) {
            return Err(error(libc::EAFNOSUPPORT));
        }
        let mut options = self.options.lock();
        if let Some(Role::Stream(stream)) = self.role()
            && stream.is_over(self.stack())
        {
            self.release_ended(stream, &mut options);
        } else if options.binding().is_some() || matches!(self.role(), Some(Role::Stream(_))) {
            return Err(error(libc::EINVAL));
        }
        let ip = address.ip().to_canonical();
        let is_mapped = ip.is_ipv4() != address.is_ipv4();
        if options.binding().is_some() || (is_mapped && options.v6_only) {
            return Err(error(libc::EINVAL));
        }
        if let Err(error) = self.bind_as(&mut options, SocketAddr::new(ip, address.port())) {
            let had_one = self.role().is_some() || options.source().is_some();
            if had_one
                && self.kind == Kind::Stream
                && error.raw_os_error() == Some(libc::EADDRINUSE)
            {
                let port = self.port_shown(&options);
                options.lose_address(self.wildcard(), port);
            }
            return Err(error);
        }
        if address.port() != 0 {
            options.port_is_named();
        }
        // As Linux: an IPv6 address is of IPv6 alone, from now on.
        options.v6_only |= ip.is_ipv6() && !ip.is_unspecified();
        if self.kind != Kind::Stream {
            self.open_datagram(&options)?;
        }
        Ok(())
    }

    /// Binds to a port that is free, and to the address that bind(2) named before, if it did.
    fn bind_any(&self, options: &mut SocketOptions) -> io::Result<()> {
        let any = SocketAddr::new(self.wildcard(), 0);
        self.bind_as(options, options.source().unwrap_or(any))
    }

    /// The address that counts for others' binds: of a connected socket that of its connection.
    fn stands_at(&self, options: &SocketOptions, ip: IpAddr) {
        if let Some((id, _)) = options.binding() {
            self.stack()
                .control
                .directory
                .change(id, PortChange::Address(ip));
        }
    }

    /// It is connected no more.
    fn stands_where_bound(&self, options: &mut SocketOptions) {
        if !options.is_bound_anew()
            && let Some(was) = self.stream.local(self.stack())
        {
            if self.domain == Domain::V6 && was.is_ipv4() {
                options.keep_mapped(was.ip());
            }
            options.keep_address(was.ip());
        }
        if let Some((_, address)) = options.binding() {
            self.stands_at(options, address.ip());
        }
    }

    /// A connection is over: with it goes its port, as in Linux, where it may be another's already.
    fn release_ended(&self, stream: &Stream, options: &mut SocketOptions) {
        let port = stream.local(self.stack()).map(|local| local.port());
        if port == Some(options.last_port()) {
            self.release(options);
        }
    }

    /// Gives up the port, unless bind(2) named it.
    fn release(&self, options: &mut SocketOptions) {
        if let Some(id) = options.unbind() {
            self.stack().release_port(id);
        }
    }

    fn bind_as(&self, options: &mut SocketOptions, address: SocketAddr) -> io::Result<()> {
        let ip = address.ip();
        if self.kind == Kind::Ping && self.stack().control.host.network().is_group(ip) {
            let refusal = if ip.is_ipv4() {
                libc::EADDRNOTAVAIL
            } else {
                libc::EINVAL
            };
            return Err(error(refusal));
        }
        if !ip.is_unspecified()
            && !self.stack().control.host.network().is_local(ip)
            && !self.stack().control.host.network().is_group(ip)
        {
            return Err(error(libc::EADDRNOTAVAIL));
        }
        let request = self.wish(options, address);
        let (id, address) = self.stack().bind(request).map_err(error)?;
        options.bind(id, address);
        Ok(())
    }

    fn wish(&self, options: &SocketOptions, address: SocketAddr) -> BindRequest {
        BindRequest {
            kind: self.kind,
            address,
            v6_only: options.v6_only,
            mapped: self.domain == Domain::V6 && address.is_ipv4(),
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port,
            device: options.udp.device,
            lease: None,
            user: None,
        }
    }

    /// listen(2); again changes the backlog.
    ///
    /// # Errors
    /// `AddrInUse`, `Unsupported` for a datagram socket, `InvalidInput` for a connected one.
    pub fn listen(&self, backlog: usize) -> io::Result<()> {
        if self.kind != Kind::Stream {
            return Err(error(libc::EOPNOTSUPP));
        }
        let mut options = self.options.lock();
        match self.role() {
            None => {}
            Some(Role::Listening(listening)) => {
                listening.set_backlog(self.stack(), backlog);
                return Ok(());
            }
            Some(_) => return Err(error(libc::EINVAL)),
        }
        if options.binding().is_none() {
            self.bind_any(&mut options)?;
        }
        let Some((id, address)) = options.binding() else {
            return Err(error(libc::EINVAL));
        };
        let wish = self.wish(&options, address);
        self.stack().listen(id, &wish).map_err(error)?;
        options.begins_anew();
        if let Some(Other::Listening(listening)) = self.other.get().map(Box::as_ref) {
            listening.again(self.stack(), backlog, &options);
        } else {
            let listening = Listening::open(self.stack(), backlog, &options)?;
            let _ = self.other.set(Box::new(Other::Listening(listening))); // `options` is locked
        }
        self.stream.listens();
        Ok(())
    }

    /// connect(2) without waiting: a stream answers EINPROGRESS, then EALREADY, then (once writable) `Ok` or the error; EISCONN later.
    ///
    /// # Errors
    /// As said, and ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT.
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let fast = self.kind == Kind::Stream && self.options.lock().fast_connect;
        self.connect_as(address, fast)
    }

    /// What connect(2) says whatever the address is: of a stream that was connected, connects or listens; `None`: of another the address
    /// decides. (A datagram socket gets a port by it, as in Linux.)
    pub fn connect_again(&self) -> Option<io::Result<()>> {
        let mut options = self.options.lock();
        match self.role() {
            Some(Role::Stream(stream)) => {
                let result = stream.connect_again(self.stack()).map_err(error);
                if self.role().is_none() {
                    // As Linux: what shutdown said before is forgotten, too.
                    options.shut = (false, false);
                    self.release_ended(stream, &mut options);
                    self.stands_where_bound(&mut options);
                }
                Some(result)
            }
            Some(Role::Listening(_)) => Some(Err(error(libc::EISCONN))),
            None if self.kind == Kind::Stream => None,
            Some(Role::Datagram(_)) | None => self.bind_datagram(&mut options).err().map(Err),
        }
    }

    fn connect_as(&self, address: SocketAddr, fast: bool) -> io::Result<()> {
        if let Some(result) = self.connect_again() {
            return result;
        }
        let mut remote = self.inward(address)?;
        let mut options = self.options.lock();
        if remote.ip().is_unspecified() {
            remote.set_ip(self.this_host(&options, remote.ip())?);
        }
        self.may_reach(&options, remote)?;
        if self.kind != Kind::Stream {
            return self.connect_datagram(&mut options, remote);
        }
        if remote.ip().is_multicast()
            || remote.ip() == IpAddr::V4(Ipv4Addr::BROADCAST)
            || self
                .stack()
                .control
                .host
                .network()
                .is_broadcast(remote.ip())
        {
            return Err(error(libc::ENETUNREACH)); // RFC 9293 MUST-46, with Linux's errno
        }
        let stream = &self.stream;
        if stream.phase() != Phase::Idle {
            return Err(error(libc::EALREADY)); // another thread was first
        }
        options.begins_anew();
        stream.connect(self.stack(), remote, &options, fast)?;
        options.is_connected();
        if options.binding().is_some()
            && let Some(local) = stream.local(self.stack())
        {
            self.stands_at(&options, local.ip());
        }
        if fast && stream.is_held(self.stack()) {
            return Ok(());
        }
        Err(error(libc::EINPROGRESS))
    }

    /// connect(2) with AF_UNSPEC: a datagram socket forgets its peer; a connection is reset, a listener closed, and the socket may do
    /// either again. A port that bind(2) did not name is given up.
    ///
    /// # Errors
    /// For a datagram socket, as connect.
    pub fn disconnect(&self) -> io::Result<()> {
        let mut options = self.options.lock();
        if self.kind != Kind::Stream {
            return self.disconnect_datagram(&mut options);
        }
        self.disconnect_stream(&mut options);
        Ok(())
    }

    fn disconnect_stream(&self, options: &mut SocketOptions) {
        options.shut = (false, false);
        match self.role() {
            Some(Role::Stream(stream)) if stream.is_over(self.stack()) => {
                self.release_ended(stream, options);
                stream.disconnect(self.stack());
            }
            Some(Role::Stream(stream)) => {
                self.release(options);
                stream.disconnect(self.stack());
            }
            Some(Role::Listening(listening)) => {
                self.release(options);
                if let Some((id, _)) = options.binding() {
                    self.stack()
                        .control
                        .directory
                        .change(id, PortChange::StopListening);
                }
                self.stream.rests(); // before the waiters are woken, by the shard's lock
                listening.shut(self.stack());
                options.forget_waiting();
            }
            Some(Role::Datagram(_)) | None => {}
        }
        self.stands_where_bound(options);
    }

    /// A listener that another process was to serve, and cannot: connections that wait are reset, and SYNs answered with RST, until this
    /// process accepts or waits here. Other sockets do not change.
    pub fn refuse(&self) {
        if let Some(Role::Listening(listening)) = self.role() {
            listening.refuse(self.stack());
            self.options.lock().forget_waiting();
        }
    }

    /// accept(2) without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, `InvalidInput` if it does not listen.
    pub fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        let Some(Role::Listening(listening)) = self.role() else {
            return Err(error(libc::EINVAL));
        };
        let Some((stream, remote)) = listening.accept(self.stack()) else {
            return Err(error(if self.stack().driver.all_are_gone() {
                libc::ENETDOWN
            } else {
                libc::EAGAIN
            }));
        };
        let remote = self.outward(remote);
        let inherited = self.options.lock().inherited_in(stream.shard());
        stream.begin(self.stack(), &inherited);
        let socket = Self {
            net: self.net.clone(),
            domain: self.domain,
            kind: Kind::Stream,
            stream,
            other: OnceLock::new(),
            options: mutex(&locks::FRESH, inherited),
        };
        Ok((socket, remote))
    }

    /// SO_INCOMING_CPU: the number of the shard where it lives, if that is one.
    pub fn incoming_cpu(&self) -> Option<usize> {
        self.shard()
    }

    /// shutdown(2).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        let mut options = self.options.lock();
        match self.role() {
            Some(Role::Stream(stream)) if stream.is_connecting(self.stack()) => {
                self.disconnect_stream(&mut options);
                Ok(())
            }
            Some(Role::Stream(stream)) => stream.shutdown(self.stack(), read, write).map_err(error),
            Some(Role::Datagram(datagram)) => {
                datagram.shutdown(self.stack(), read, write).map_err(error)
            }
            Some(Role::Listening(_)) => {
                if read {
                    self.disconnect_stream(&mut options);
                }
                Ok(())
            }
            None => {
                // As Linux: it has an effect all the same.
                options.shut = (options.shut.0 || read, options.shut.1 || write);
                Err(error(libc::ENOTCONN))
            }
        }
    }

    /// SO_ERROR: takes the pending error.
    pub fn take_error(&self) -> Option<io::Error> {
        let errno = match self.role() {
            Some(Role::Datagram(datagram)) => datagram.take_error(self.stack()),
            // One that was disconnected says so once, whatever became of it.
            Some(Role::Stream(_) | Role::Listening(_)) | None => {
                self.stream.take_error(self.stack())
            }
        };
        errno.map(error)
    }

    /// Whether a stream's end was sent, or is about to be, and the peer has not acknowledged it.
    pub fn awaits_answer_to_fin(&self) -> bool {
        use proto::tcp::State;
        let state = self.tcp_info().map(|info| info.state);
        matches!(
            state,
            Some(State::FinWait1 | State::Closing | State::LastAck)
        )
    }

    /// How long ago a stream's newest text came.
    pub fn since_text(&self) -> Option<std::time::Duration> {
        self.tcp_info().map(|info| info.since_text)
    }

    /// TCP_INFO's facts for a stream.
    pub fn tcp_info(&self) -> Option<proto::tcp::Info> {
        match self.role()? {
            Role::Stream(stream) => stream.info(self.stack()),
            _ => None,
        }
    }

    /// TCP_INFO as Linux's `struct tcp_info` has it, up to `tcpi_total_rto_time`; `None` for datagrams.
    pub fn tcp_info_as_linux(&self) -> Option<[u8; TCP_INFO_LEN]> {
        match self.role() {
            Some(Role::Stream(stream)) => {
                let info = stream.info(self.stack())?;
                let pace_max = self.options.lock().pacing_limit();
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
        matches!(self.role(), Some(Role::Listening(_)))
    }

    /// The stack it lives on.
    pub(crate) fn stack(&self) -> &Arc<Stack> {
        self.net.stack()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.leave_groups();
        let binding = self.options.get_mut().binding();
        match self.other.get().map(Box::as_ref) {
            Some(Other::Listening(listening)) => {
                if let Some((id, _)) = binding {
                    self.stack().leave_port(id);
                }
                listening.close(self.stack());
            }
            Some(Other::Datagram(datagram)) => datagram.close(self.stack()),
            None => {}
        }
        self.stream.close(self.stack());
        if let Some((id, _)) = binding {
            self.stack().release_port(id);
        }
    }
}
