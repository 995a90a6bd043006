//! Socket options: which there are, and setting and reading them. What a socket keeps of them is in [`kept`].

mod kept;

use std::{io, net::IpAddr, time::Duration};

use proto::tcp::{CongestionControl, FastOpenKeys, Md5Key};

pub(in crate::socket) use self::kept::SocketOptions;
use super::{Role, Socket};
use crate::api::{Domain, Kind, UdpOption};
use crate::api::{binding::PortChange, multicast::Multicast};
use crate::{errno::error, shard::TcpSocket};

/// What TCP_MAXSEG may be, as in Linux.
const MAX_SEGMENT: std::ops::RangeInclusive<u16> = 88..=32_767;

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
    /// TCP_QUICKACK. listen and connect forget what was set before, as in Linux.
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
    /// IP_TTL: hops that packets of IPv4 go at most, 1 to 255.
    Ttl(u8),
    /// IP_TOS, of packets of IPv4.
    TypeOfService(u8),
    /// IPV6_UNICAST_HOPS, of IPv6 sockets: hops that packets of IPv6 go at most, 0 to 255 (0: they reach this link's hosts, as those of 1 do).
    HopLimit(u8),
    /// IPV6_TCLASS, of IPv6 sockets and their packets of IPv6.
    TrafficClass(u8),
    /// SO_MARK: a number that modules see with each packet.
    Mark(u32),
    /// SO_BINDTODEVICE: the number of the link that it receives from and sends to, from 0 on; `None`: any.
    Device(Option<u8>),
    /// SO_INCOMING_CPU: among sockets that share a port (SO_REUSEPORT) one that names the processor on which a packet is taken in goes before
    /// the others; `None`: it names none.
    IncomingCpu(Option<u16>),
    /// One that datagram sockets have.
    Udp(UdpOption),
}

const fn is_for_streams(option: SocketOption) -> bool {
    use SocketOption as O;
    matches!(
        option,
        O::NoDelay(_)
            | O::Cork(_)
            | O::QuickAck(_)
            | O::MaxSegment(_)
            | O::KeepIdle(_)
            | O::KeepInterval(_)
            | O::KeepCount(_)
            | O::UserTimeout(_)
            | O::Congestion(_)
            | O::SynCount(_)
            | O::Linger2(_)
            | O::DeferAccept(_)
            | O::WindowClamp(_)
            | O::UnsentLowWater(_)
            | O::Md5Key { .. }
            | O::FastOpen(_)
            | O::FastOpenConnect(_)
            | O::FastOpenNoCookie(_)
            | O::FastOpenKeys(_)
    )
}

const fn is_for_ipv6(option: SocketOption) -> bool {
    use SocketOption as O;
    matches!(option, O::HopLimit(_) | O::TrafficClass(_))
}

const fn is_for_datagrams(option: SocketOption) -> bool {
    use UdpOption as U;
    matches!(option, SocketOption::Udp(udp) if !matches!(udp, U::ReceiveErrors(_) | U::ReceiveErrorsV6(_) | U::Discovery(_)))
}

impl Socket {
    /// Whether this kind of socket has the option.
    fn has(&self, option: SocketOption) -> bool {
        if is_for_ipv6(option) && self.domain == Domain::V4 {
            return false;
        }
        match self.kind {
            Kind::Stream => !is_for_datagrams(option),
            Kind::Datagram => !is_for_streams(option),
            Kind::Ping => !is_for_streams(option) && !is_for_datagrams(option),
        }
    }

    /// Whether it has a port: one that bind(2) or listen(2) gave it, or its connection's, as long as that lives.
    fn has_port(&self) -> bool {
        let mut options = self.options.lock();
        if let Some(Role::Stream(stream)) = self.role() {
            if !stream.is_over(self.stack()) {
                return true;
            }
            self.release_ended(stream, &mut options);
        }
        // One that was connected and is no more may have none, though it is a datagram socket still.
        options.binding().is_some() || matches!(self.role(), Some(Role::Listening(_)))
    }

    /// Whether an option's value is in range, and not too late.
    fn check_option(&self, option: SocketOption) -> io::Result<()> {
        match option {
            SocketOption::V6Only(_) if self.has_port() => return Err(error(libc::EINVAL)),
            SocketOption::MaxSegment(bytes) if bytes > 0 && !MAX_SEGMENT.contains(&bytes) => {
                return Err(error(libc::EINVAL));
            }
            SocketOption::WindowClamp(0) if self.role().is_some() => {
                return Err(error(libc::EINVAL));
            }
            SocketOption::FastOpenConnect(true)
                if !self.stack().control.host.tcp().fast_open.client =>
            {
                return Err(error(libc::EOPNOTSUPP));
            }
            SocketOption::FastOpenConnect(_) if self.role().is_some() => {
                return Err(error(libc::EINVAL));
            }
            SocketOption::FastOpen(_) | SocketOption::FastOpenNoCookie(_)
                if matches!(self.role(), Some(Role::Stream(_))) =>
            {
                return Err(error(libc::EINVAL));
            }
            SocketOption::Device(Some(number)) => return self.check_device(number),
            SocketOption::KeepCount(0)
            | SocketOption::Ttl(0)
            | SocketOption::SynCount(0 | 128..) => return Err(error(libc::EINVAL)),
            _ => {}
        }
        Ok(())
    }

    /// A link that there is, and of a connection the one that it runs over.
    fn check_device(&self, number: u8) -> io::Result<()> {
        if usize::from(number) >= self.stack().control.host.network().interfaces.len() {
            return Err(error(libc::ENODEV));
        }
        if let Some(Role::Stream(stream)) = self.role() {
            let leaves = |socket: &TcpSocket| socket.interface() != number && !socket.is_over();
            if stream.hold(self.stack(), |shard, at| shard.tcp(at).is_some_and(leaves)) {
                return Err(error(libc::EINVAL));
            }
        }
        Ok(())
    }

    /// Sets an option.
    ///
    /// # Errors
    /// ENOPROTOOPT where it has no meaning for this socket; `InvalidInput` for a value out of range, or one that comes too late.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        if let SocketOption::Multicast(option) = option {
            return self.set_multicast(option);
        }
        if !self.has(option) {
            return Err(error(libc::ENOPROTOOPT));
        }
        let option = match (self.kind, option) {
            // The two bits of ECN are TCP's own (RFC 3168 §5).
            (Kind::Stream, SocketOption::TypeOfService(tos)) => {
                SocketOption::TypeOfService(tos & !3)
            }
            (Kind::Stream, SocketOption::TrafficClass(class)) => {
                SocketOption::TrafficClass(class & !3)
            }
            (_, option) => option,
        };
        self.check_option(option)?;
        // Held to the end: of two calls at a time the later one must not be told to the shard before the other.
        let mut options = self.options.lock();
        if let Some(Role::Listening(listening)) = self.role() {
            options.keep_for(&listening.waiting(self.stack()));
        }
        options.set_key(option)?;
        options.apply(option);
        if let Some((id, _)) = options.binding() {
            self.tell_directory(id, option, &options);
        }
        let options = &*options;
        match self.role() {
            Some(Role::Stream(stream)) => {
                let now = self.stack().clock.now();
                let tcp = self.stack().control.host.tcp();
                let fin_wait_2 = matches!(option, SocketOption::Linger2(_))
                    .then(|| options.overrides.fin_wait_2(&tcp));
                let syn_timeout = matches!(option, SocketOption::SynCount(_))
                    .then(|| options.overrides.syn_timeout(&tcp));
                stream.with(self.stack(), |socket| {
                    if let Some(fin_wait_2) = fin_wait_2 {
                        socket.connection.set_fin_wait_2(fin_wait_2);
                    }
                    if let Some(syn_timeout) = syn_timeout {
                        socket.connection.set_syn_timeout(syn_timeout);
                    }
                    if matches!(option, SocketOption::Md5Key { .. }) {
                        socket.sign_with_md5(options.key_of(socket.key().remote));
                    }
                    apply_to(socket, option, options, now);
                });
            }
            Some(Role::Datagram(datagram)) => datagram.set_options(self.stack(), option, options),
            Some(Role::Listening(listening)) => {
                listening.set_options(self.stack(), &options.tcp_options());
            }
            None => {}
        }
        Ok(())
    }

    /// What stands against others' binds.
    fn tell_directory(&self, id: u64, option: SocketOption, options: &SocketOptions) {
        let change = match option {
            SocketOption::Device(device) => PortChange::Device(device),
            SocketOption::ReuseAddress(_) | SocketOption::ReusePort(_) => PortChange::Reuse {
                address: options.reuse_address,
                port: options.reuse_port,
            },
            _ => return,
        };
        self.stack().control.directory.change(id, change);
    }

    /// MSG_MORE of a stream: until it is told `false` small segments wait as with TCP_CORK, which stays as it is.
    pub fn set_more(&self, more: bool) {
        let stack = self.stack();
        let options = self.options.lock(); // to the end, as in `set_option`
        let corked = options.corked(&stack.control.host);
        if let Some(Role::Stream(stream)) = self.role() {
            stream.with(stack, |socket| socket.connection.set_cork(more || corked));
        }
    }

    /// The current value of the option that `like` names (its payload is ignored).
    ///
    /// # Errors
    /// ENOPROTOOPT where it has no meaning for this socket.
    pub fn option(&self, like: SocketOption) -> io::Result<SocketOption> {
        let is_secret = matches!(like, SocketOption::Md5Key { .. });
        if is_secret || !self.has(like) {
            return Err(error(libc::ENOPROTOOPT));
        }
        if let (SocketOption::MaxSegment(_), Some(Role::Stream(stream))) = (like, self.role())
            && let Some(mss) = stream.send_mss(self.stack())
        {
            return Ok(SocketOption::MaxSegment(mss));
        }
        // Where it never said, the stack's setting of when it was opened counts, which may be another by now.
        if let (SocketOption::Congestion(_), Some(Role::Stream(stream))) = (like, self.role())
            && let Some(info) = stream.info(self.stack())
        {
            return Ok(SocketOption::Congestion(info.sending.congestion));
        }
        if let SocketOption::Multicast(like) = like
            && let Some(Role::Stream(stream)) = self.role()
            && let Some(answer) = stream.multicast_option(self.stack(), like)
        {
            return Ok(SocketOption::Multicast(answer));
        }
        Ok(self.options.lock().read(&self.stack().control.host, like))
    }
}

fn apply_to(
    socket: &mut TcpSocket,
    option: SocketOption,
    options: &SocketOptions,
    now: proto::time::Instant,
) {
    let connection = &mut socket.connection;
    match option {
        SocketOption::NoDelay(on) => connection.set_nagle(!on),
        SocketOption::Cork(on) => connection.set_cork(on),
        SocketOption::QuickAck(on) => connection.set_quick_ack(on),
        SocketOption::KeepAlive(_)
        | SocketOption::KeepIdle(_)
        | SocketOption::KeepInterval(_)
        | SocketOption::KeepCount(_) => {
            connection.set_keepalive(options.keep_alive.then_some(options.keepalive), now);
        }
        SocketOption::UserTimeout(timeout) => connection.set_user_timeout(timeout),
        SocketOption::Congestion(control) => connection.set_congestion(control, now),
        SocketOption::PacingRateMax(_) => {
            connection.set_pacing_rate_max(options.pacing_limit().unwrap_or(0));
        }
        SocketOption::ReceiveBuffer(_) | SocketOption::WindowClamp(_) => {
            let now_kept = connection.info().receive_buffer_bytes;
            connection.set_receive_buffer(options.overrides.receive_room(now_kept));
        }
        SocketOption::ReceiveLowWater(_)
        | SocketOption::UnsentLowWater(_)
        | SocketOption::UrgentInline(_)
        | SocketOption::Mark(_)
        | SocketOption::SendBuffer(_) => socket.set_watermarks(options.watermarks()),
        SocketOption::Linger(linger) => socket.set_linger(linger),
        SocketOption::ReuseAddress(_) | SocketOption::ReusePort(_) => {
            socket.set_reuse(options.reuse());
        }
        SocketOption::Ttl(_)
        | SocketOption::TypeOfService(_)
        | SocketOption::HopLimit(_)
        | SocketOption::TrafficClass(_)
        | SocketOption::Udp(UdpOption::Discovery(_)) => socket.set_fields(options.fields()),
        _ => {}
    }
}
