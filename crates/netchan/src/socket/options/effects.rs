//! What each socket option does: its value's type, which sockets have it, where it is kept, and what it does to a connection that there is.
//! How a program names an option, and what its bytes mean, is in [`table`](super::table).

use std::{net::IpAddr, time::Duration};

use proto::{
    tcp,
    tcp::{CongestionControl, FastOpenKeys, Md5Key, retries_in, retry_budget, time_of},
    time::Instant,
};

use super::kept::{SocketOptions, clamp_kept};
use crate::{
    api::{UdpOption, binding::PortChange, multicast::Multicast},
    driver::host::Host,
    emit::IpFields,
    limits,
    shard::{RECEIVE_BUFFER_MIN, TcpSocket},
    socket::{Role, Socket, stream::Stream},
    stack::Stack,
};

/// What TCP_MAXSEG may be, as in Linux.
const MAX_SEGMENT: std::ops::RangeInclusive<u16> = 88..=32_767;

/// Linux's SOCK_MIN_SNDBUF, before it is doubled.
const SEND_BUFFER_MIN: usize = 2304;

/// Which sockets have an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    All,
    Streams,
    Datagrams,
    /// Those of IPv6.
    V6,
}

/// What a change of a connection needs beside the options: the time, and the stack's settings of TCP.
pub(super) struct Context {
    pub now: Instant,
    pub tcp: tcp::Config,
}

/// Makes of the effects: [`SocketOption`], the values that have no other place, and the functions that set and read them all.
///
/// Of each option: its name and the type of its value, which sockets have it, and
/// * `keep`: the field that has its value, and its default; or `get` and `set`, where it is kept elsewhere,
/// * `check`: what value is refused, or when, with which errno,
/// * `live`: what it changes at a connection that there is; those to come begin with `SocketOptions::tcp_options`,
/// * `now`: what a connection has instead, if it knows,
/// * `port`: what it changes at the socket's port, which others may want.
macro_rules! effects {
    ($(
        $(#[$doc:meta])*
        $name:ident($type:ty) of $sockets:ident {
            $(keep: $field:ident = $default:expr,)?
            $(get: $get:expr, set: $set:expr,)?
            $(check: $check:expr,)?
            $(live: $live:expr,)?
            $(now: $now:expr,)?
            $(port: $port:expr,)?
        }
    )*) => {
        /// Socket options that have a meaning here; the preload library maps getsockopt/setsockopt to them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SocketOption {
            $($(#[$doc])* $name($type),)*
            /// TCP_MD5SIG_EXT: the key (RFC 2385) for peers in the network of `prefix` bits; `None` takes it away. Cannot be read.
            #[allow(missing_docs)] // as said
            Md5Key { peer: IpAddr, prefix: u8, key: Option<Md5Key> },
            /// Groups, and what is sent to them.
            Multicast(Multicast),
            /// One that datagram sockets have.
            Udp(UdpOption),
        }

        /// Values of options that are kept as they were set.
        #[derive(Clone, Debug)]
        pub(in crate::socket) struct OptionValues {
            $($(pub $field: $type,)?)*
        }

        impl Default for OptionValues {
            fn default() -> Self {
                Self { $($($field: $default,)?)* }
            }
        }

        impl SocketOption {
            /// Which sockets have it.
            pub(super) const fn sockets(self) -> Sockets {
                match self {
                    $(Self::$name(_) => Sockets::$sockets,)*
                    Self::Md5Key { .. } => Sockets::Streams,
                    Self::Udp(UdpOption::ReceiveErrors(_) | UdpOption::ReceiveErrorsV6(_) | UdpOption::Discovery(_))
                    | Self::Multicast(_) => Sockets::All,
                    Self::Udp(_) => Sockets::Datagrams,
                }
            }

            /// Whether its value is in range, and not too late.
            #[allow(unused_variables)] // of those without a check
            pub(super) fn check(self, socket: &Socket) -> Result<(), i32> {
                match self {
                    $(Self::$name(value) => {
                        $(let check: fn(&Socket, $type) -> Result<(), i32> = $check;
                        check(socket, value)?;)?
                        Ok(())
                    })*
                    Self::Md5Key { .. } | Self::Multicast(_) | Self::Udp(_) => Ok(()),
                }
            }

            /// Changes a connection that there is; `options` have it by now.
            pub(super) fn change(self, socket: &mut TcpSocket, options: &SocketOptions, context: &Context) {
                match self {
                    $(Self::$name(_) => {
                        $(let live: fn(&mut TcpSocket, &SocketOptions, &Context) = $live;
                        live(socket, options, context);)?
                    })*
                    Self::Md5Key { .. } => socket.sign_with_md5(options.key_of(socket.key().remote)),
                    Self::Udp(UdpOption::Discovery(_)) => fields(socket, options, context),
                    Self::Multicast(_) | Self::Udp(_) => {}
                }
            }

            /// What a connection has of it, where that may be something else than was set.
            #[allow(unused_variables)] // of those without
            pub(super) fn of_connection(self, stream: &Stream, stack: &Stack) -> Option<Self> {
                match self {
                    $($(Self::$name(_) => {
                        let now: fn(&Stream, &Stack) -> Option<$type> = $now;
                        now(stream, stack).map(Self::$name)
                    })?)*
                    Self::Multicast(like) => stream.multicast_option(stack, like).map(Self::Multicast),
                    _ => None,
                }
            }

            /// What it changes at a port; `options` have it by now.
            pub(super) fn port_change(self, options: &SocketOptions) -> Option<PortChange> {
                match self {
                    $($(Self::$name(_) => {
                        let port: fn(&SocketOptions) -> PortChange = $port;
                        Some(port(options))
                    })?)*
                    _ => None,
                }
            }
        }

        impl SocketOptions {
            /// Keeps an option; of keys [`Self::set_key`] does, of groups `Socket::set_multicast`.
            pub fn apply(&mut self, option: SocketOption) {
                match option {
                    $(SocketOption::$name(value) => {
                        $(self.values.$field = value;)?
                        $(let set: fn(&mut Self, $type) = $set;
                        set(self, value);)?
                    })*
                    SocketOption::Md5Key { .. } | SocketOption::Multicast(_) => {}
                    SocketOption::Udp(option) => self.set_udp(option),
                }
            }

            /// What is kept of the option that `like` names.
            pub fn read(&self, host: &Host, like: SocketOption) -> SocketOption {
                match like {
                    $(SocketOption::$name(_) => SocketOption::$name({
                        $(self.values.$field)?
                        $({
                            let get: fn(&Self, &Host) -> $type = $get;
                            get(self, host)
                        })?
                    }),)*
                    SocketOption::Md5Key { .. } => like,
                    SocketOption::Multicast(like) => SocketOption::Multicast(self.read_multicast(like)),
                    SocketOption::Udp(like) => SocketOption::Udp(self.udp.get(like)),
                }
            }
        }
    };
}

effects! {
    /// SO_REUSEADDR.
    ReuseAddress(bool) of All {
        get: |o, _| o.reuse_address, set: |o, on| o.reuse_address = on,
        live: reuse,
        port: port_reuse,
    }
    /// SO_REUSEPORT.
    ReusePort(bool) of All {
        get: |o, _| o.reuse_port, set: |o, on| o.reuse_port = on,
        live: reuse,
        port: port_reuse,
    }
    /// SO_KEEPALIVE.
    KeepAlive(bool) of All {
        get: |o, _| o.keep_alive, set: |o, on| o.keep_alive = on,
        live: keepalive,
    }
    /// SO_BROADCAST.
    Broadcast(bool) of All {
        get: |o, _| o.broadcast, set: |o, on| o.broadcast = on,
    }
    /// SO_LINGER: `None` is off.
    Linger(Option<Duration>) of All {
        keep: linger = None,
        live: |socket, o, _| socket.set_linger(o.values.linger),
    }
    /// SO_RCVBUF, bytes.
    ReceiveBuffer(usize) of All {
        get: |o, host| o.overrides.receive_buffer.unwrap_or(host.tcp().receive_buffer as usize),
        set: |o, bytes| o.overrides.receive_buffer = Some(bytes.max(RECEIVE_BUFFER_MIN as usize)),
        live: receive_room,
    }
    /// SO_SNDBUF, bytes.
    SendBuffer(usize) of All {
        get: |o, host| o.send_buffer.unwrap_or(host.send_buffer),
        set: |o, bytes| o.send_buffer = Some(bytes.max(SEND_BUFFER_MIN)),
        live: watermarks,
    }
    /// SO_RCVLOWAT: a stream is readable from so many bytes on.
    ReceiveLowWater(u32) of All {
        get: |o, _| o.low_water, set: |o, bytes| o.low_water = bytes.max(1),
        live: watermarks,
    }
    /// SO_OOBINLINE: urgent data is read like all other.
    UrgentInline(bool) of All {
        get: |o, _| o.urgent_inline, set: |o, on| o.urgent_inline = on,
        live: watermarks,
    }
    /// SO_MARK: a number that modules see with each packet.
    Mark(u32) of All {
        get: |o, _| o.udp.mark, set: |o, mark| o.udp.mark = mark,
        live: watermarks,
    }
    /// SO_MAX_PACING_RATE, bytes a second; `u64::MAX` is no limit.
    PacingRateMax(u64) of All {
        keep: pacing_rate_max = u64::MAX,
        live: |socket, o, _| socket.connection.set_pacing_rate_max(o.pacing_limit().unwrap_or(0)),
    }
    /// SO_BINDTODEVICE: the number of the link that it receives from and sends to, from 0 on; `None`: any.
    Device(Option<u8>) of All {
        get: |o, _| o.udp.device, set: |o, device| o.udp.device = device,
        check: |socket, device| device.map_or(Ok(()), |number| socket.check_device(number)),
        port: |o| PortChange::Device(o.udp.device),
    }
    /// SO_INCOMING_CPU: among sockets that share a port (SO_REUSEPORT) one that names the processor on which a packet is taken in goes before
    /// the others; `None`: it names none.
    IncomingCpu(Option<u16>) of All {
        get: |o, _| o.udp.cpu, set: |o, cpu| o.udp.cpu = cpu,
    }

    /// TCP_NODELAY.
    NoDelay(bool) of Streams {
        get: |o, host| o.no_delay.unwrap_or_else(|| !host.tcp().nagle), set: |o, on| o.no_delay = Some(on),
        live: |socket, o, at| socket.connection.set_nagle(o.no_delay.map_or(at.tcp.nagle, |on| !on)),
    }
    /// TCP_CORK.
    Cork(bool) of Streams {
        get: SocketOptions::corked, set: |o, on| o.cork = Some(on),
        live: |socket, o, at| socket.connection.set_cork(o.cork.unwrap_or(at.tcp.cork)),
    }
    /// TCP_QUICKACK. listen and connect forget what was set before, as in Linux.
    QuickAck(bool) of Streams {
        get: |o, host| o.quick_ack.unwrap_or_else(|| host.tcp().quick_ack), set: |o, on| o.quick_ack = Some(on),
        live: |socket, o, at| socket.connection.set_quick_ack(o.quick_ack.unwrap_or(at.tcp.quick_ack)),
    }
    /// TCP_MAXSEG, bytes.
    MaxSegment(u16) of Streams {
        get: |o, host| o.max_segment.unwrap_or_else(|| host.tcp().default_mss),
        set: |o, bytes| o.max_segment = (bytes > 0).then_some(bytes),
        check: |_, bytes| refuse(bytes > 0 && !MAX_SEGMENT.contains(&bytes)),
        now: |stream, stack| stream.send_mss(stack),
    }
    /// TCP_KEEPIDLE.
    KeepIdle(Duration) of Streams {
        get: |o, _| o.keepalive.idle, set: |o, idle| o.keepalive.idle = idle,
        live: keepalive,
    }
    /// TCP_KEEPINTVL.
    KeepInterval(Duration) of Streams {
        get: |o, _| o.keepalive.interval, set: |o, interval| o.keepalive.interval = interval,
        live: keepalive,
    }
    /// TCP_KEEPCNT.
    KeepCount(u32) of Streams {
        get: |o, _| o.keepalive.probes.into(),
        set: |o, probes| o.keepalive.probes = u8::try_from(probes).unwrap_or(u8::MAX),
        check: |_, probes| refuse(probes == 0),
        live: keepalive,
    }
    /// TCP_USER_TIMEOUT.
    UserTimeout(Duration) of Streams {
        get: |o, _| o.overrides.user_timeout, set: |o, timeout| o.overrides.user_timeout = timeout,
        live: |socket, o, _| socket.connection.set_user_timeout(o.overrides.user_timeout),
    }
    /// TCP_CONGESTION.
    Congestion(CongestionControl) of Streams {
        get: |o, host| o.overrides.congestion.unwrap_or_else(|| host.tcp().congestion),
        set: |o, control| o.overrides.congestion = Some(control),
        live: |socket, o, at| {
            socket.connection.set_congestion(o.overrides.congestion.unwrap_or(at.tcp.congestion), at.now);
        },
        // Where it never said, the stack's setting of when it was opened counts, which may be another by now.
        now: |stream, stack| stream.info(stack).map(|info| info.sending.congestion),
    }
    /// TCP_SYNCNT: how often a SYN is sent again, 1 to 127.
    SynCount(u8) of Streams {
        get: |o, host| match o.overrides.syn_count {
            // How many fit into the time that the setting grants.
            0 => {
                let tcp = host.tcp();
                (1..=127).rfind(|&n| retry_budget(&tcp, n) <= tcp.syn_timeout).unwrap_or(1)
            }
            count => count,
        },
        set: |o, count| o.overrides.syn_count = count,
        check: |_, count| refuse(!(1..=127).contains(&count)),
        live: |socket, o, at| socket.connection.set_syn_timeout(o.overrides.syn_timeout(&at.tcp)),
    }
    /// TCP_LINGER2: how long FIN-WAIT-2 lasts once the socket is closed; zero is the stack's setting, `None` not at all.
    Linger2(Option<Duration>) of Streams {
        get: |o, host| o.overrides.linger2.map(|_| o.overrides.fin_wait_2(&host.tcp())),
        set: |o, limit| o.overrides.linger2 = limit,
        live: |socket, o, at| socket.connection.set_fin_wait_2(o.overrides.fin_wait_2(&at.tcp)),
    }
    /// TCP_DEFER_ACCEPT: how long a listener keeps a connection to itself that says nothing; zero is off. Rounded up to the time of a
    /// retransmission.
    DeferAccept(Duration) of Streams {
        get: |o, host| {
            let tcp = host.tcp();
            time_of(&tcp, retries_in(&tcp, o.overrides.defer_accept))
        },
        set: |o, time| o.overrides.defer_accept = time,
    }
    /// TCP_WINDOW_CLAMP: no wider window is offered, bytes; 0 is no limit.
    WindowClamp(u32) of Streams {
        get: |o, _| o.overrides.window_clamp, set: |o, bytes| o.overrides.window_clamp = clamp_kept(bytes),
        check: |socket, bytes| refuse(bytes == 0 && socket.role().is_some()),
        live: receive_room,
    }
    /// TCP_NOTSENT_LOWAT: a stream is writable while fewer bytes wait to be sent for the first time; 0 is no limit.
    UnsentLowWater(u32) of Streams {
        keep: unsent_low_water = 0,
        live: watermarks,
    }
    /// TCP_FASTOPEN of a listener: most connections that may be read before their handshake is over (RFC 7413 §5.1); 0 is off.
    FastOpen(u32) of Streams {
        get: |o, _| o.fast_open.queue,
        set: |o, queue| o.fast_open.queue = u32::try_from(limits::BACKLOG_MAX).map_or(queue, |most| queue.min(most)),
        check: |socket, _| refuse(socket.is_stream()),
    }
    /// TCP_FASTOPEN_CONNECT: where the peer is known, connect succeeds at once, and the first write goes with the SYN.
    FastOpenConnect(bool) of Streams {
        get: |o, _| o.fast_connect, set: |o, on| o.fast_connect = on,
        check: |socket, on| match on && !socket.stack().control.host.tcp().fast_open.client {
            true => Err(libc::EOPNOTSUPP),
            false => refuse(socket.role().is_some()),
        },
    }
    /// TCP_FASTOPEN_NO_COOKIE: only where no address can be forged.
    FastOpenNoCookie(bool) of Streams {
        get: |o, _| o.fast_open.without_cookie, set: |o, on| o.fast_open.without_cookie = on,
        check: |socket, _| refuse(socket.is_stream()),
    }
    /// TCP_FASTOPEN_KEY of a listener; `None` is the stack's own.
    FastOpenKeys(Option<FastOpenKeys>) of Streams {
        get: |o, host| o.fast_open.keys.or_else(|| host.tcp().fast_open.keys), set: |o, keys| o.fast_open.keys = keys,
    }

    /// IP_TTL: hops that packets of IPv4 go at most, 1 to 255.
    Ttl(u8) of All {
        get: |o, _| o.fields.ttl, set: |o, ttl| o.fields.ttl = ttl,
        check: |_, ttl| refuse(ttl == 0),
        live: fields,
    }
    /// IP_TOS, of packets of IPv4.
    TypeOfService(u8) of All {
        get: |o, _| o.fields.tos, set: |o, tos| o.fields.tos = tos,
        live: fields,
    }
    /// IPV6_V6ONLY.
    V6Only(bool) of All {
        get: |o, _| o.v6_only, set: |o, on| o.v6_only = on,
        check: |socket, _| refuse(socket.has_port()),
    }
    /// IPV6_UNICAST_HOPS, of IPv6 sockets: hops that packets of IPv6 go at most, 0 to 255 (0: they reach this link's hosts, as those of 1 do).
    HopLimit(u8) of V6 {
        keep: hops = IpFields::default().hops,
        live: fields,
    }
    /// IPV6_TCLASS, of IPv6 sockets and their packets of IPv6.
    TrafficClass(u8) of V6 {
        keep: class = IpFields::default().class,
        live: fields,
    }
}

/// EINVAL, if so.
const fn refuse(is_wrong: bool) -> Result<(), i32> {
    if is_wrong { Err(libc::EINVAL) } else { Ok(()) }
}

fn reuse(socket: &mut TcpSocket, options: &SocketOptions, _: &Context) {
    socket.set_reuse(options.reuse());
}

const fn port_reuse(options: &SocketOptions) -> PortChange {
    PortChange::Reuse {
        address: options.reuse_address,
        port: options.reuse_port,
    }
}

fn keepalive(socket: &mut TcpSocket, options: &SocketOptions, context: &Context) {
    let keepalive = options.keep_alive.then_some(options.keepalive);
    socket.connection.set_keepalive(keepalive, context.now);
}

fn watermarks(socket: &mut TcpSocket, options: &SocketOptions, _: &Context) {
    socket.set_watermarks(options.watermarks());
}

fn receive_room(socket: &mut TcpSocket, options: &SocketOptions, _: &Context) {
    let now_kept = socket.connection.info().receive_buffer_bytes;
    let room = options.overrides.receive_room(now_kept);
    socket.connection.set_receive_buffer(room);
}

fn fields(socket: &mut TcpSocket, options: &SocketOptions, _: &Context) {
    socket.set_fields(options.fields());
}

impl Socket {
    /// Whether it is or was a connection, or waits for its.
    fn is_stream(&self) -> bool {
        matches!(self.role(), Some(Role::Stream(_)))
    }
}
