//! What a socket keeps of its options: from the start, and handed to the connection once there is one.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
    time::Duration,
};

use proto::tcp::{
    Config, CongestionControl, Keepalive, Md5Key, Template, UserTimeoutOption, patience,
    retries_in, time_of,
};

use super::SocketOption;
use crate::{
    emit::IpFields,
    errno::error,
    host::Host,
    shard::{FastOpenOptions, Keys, Shape, TcpOptions},
    socket::{UdpOptions, ao, multicast},
};

/// A socket's options and binding.
#[derive(Clone, Debug)]
pub(in crate::socket) struct Fresh {
    pub reuse_address: bool,
    pub reuse_port: bool,
    pub v6_only: bool,
    broadcast: bool,
    pub keep_alive: bool,
    no_delay: bool,
    cork: bool,
    quick_ack: bool,
    /// TCP_FASTOPEN_CONNECT.
    pub fast_connect: bool,
    urgent_inline: bool,
    fields: IpFields,
    /// Id in the directory, and address.
    binding: Option<Arc<(u64, SocketAddr)>>,
    /// What nearly no socket sets: an accepted one shares it with its listener until it does.
    seldom: Option<Arc<Seldom>>,
}

/// Options that are set seldom: read through [`Fresh`], which makes a copy of its own when one is set.
#[derive(Clone, Debug)]
pub(in crate::socket) struct Seldom {
    pub keepalive: Keepalive,
    linger: Option<Duration>,
    receive_buffer: Option<usize>,
    send_buffer: Option<usize>,
    max_segment: Option<u16>,
    fast_open: FastOpenOptions,
    user_timeout: Duration,
    congestion: Option<CongestionControl>,
    /// 0: as the stack's setting.
    syn_count: u8,
    linger2: Option<Duration>,
    defer_accept: Duration,
    pacing_rate_max: u64,
    window_clamp: u32,
    low_water: u32,
    unsent_low_water: u32,
    /// TCP_MD5SIG, TCP_AO_ADD_KEY.
    keys: Option<Arc<Keys>>,
    /// Groups, if it ever said anything of them.
    pub multicast: Option<Arc<multicast::Settings>>,
    /// Those of datagram sockets.
    pub udp: UdpOptions,
}

/// What a socket has that set none of them.
static USUAL: LazyLock<Seldom> = LazyLock::new(Seldom::default);

/// Most that TCP_LINGER2 grants: as Linux.
const LINGER2_MAX: Duration = Duration::from_secs(120);

/// Linux's SOCK_MIN_RCVBUF and SOCK_MIN_SNDBUF, before they are doubled.
const RECEIVE_BUFFER_MIN: u32 = 1152;

const SEND_BUFFER_MIN: usize = 2304;

/// RFC 7323 §2.3: no window exceeds 1 GiB.
const RECEIVE_BUFFER_MAX: u32 = 1 << 30;

/// As Linux: a window clamp is not less than half of the least buffer.
const fn clamp_kept(bytes: u32) -> u32 {
    if bytes == 0 || bytes > RECEIVE_BUFFER_MIN {
        bytes
    } else {
        RECEIVE_BUFFER_MIN
    }
}

impl Deref for Fresh {
    type Target = Seldom;
    fn deref(&self) -> &Seldom {
        self.seldom.as_deref().unwrap_or(&USUAL)
    }
}

impl DerefMut for Fresh {
    fn deref_mut(&mut self) -> &mut Seldom {
        Arc::make_mut(self.seldom.get_or_insert_default())
    }
}

impl Default for Fresh {
    fn default() -> Self {
        Self {
            reuse_address: false,
            reuse_port: false,
            v6_only: false,
            broadcast: false,
            keep_alive: false,
            no_delay: false,
            cork: false,
            quick_ack: true,
            fast_connect: false,
            urgent_inline: false,
            fields: IpFields::default(),
            binding: None,
            seldom: None,
        }
    }
}

impl Default for Seldom {
    fn default() -> Self {
        Self {
            keepalive: Keepalive::default(),
            linger: None,
            receive_buffer: None,
            send_buffer: None,
            max_segment: None,
            fast_open: FastOpenOptions::default(),
            user_timeout: Duration::ZERO,
            congestion: None,
            syn_count: 0,
            linger2: Some(Duration::ZERO),
            defer_accept: Duration::ZERO,
            pacing_rate_max: u64::MAX,
            window_clamp: 0,
            low_water: 1,
            unsent_low_water: 0,
            keys: None,
            multicast: None,
            udp: UdpOptions::default(),
        }
    }
}

impl Fresh {
    /// Id in the directory, and address, once it is bound.
    pub fn binding(&self) -> Option<(u64, SocketAddr)> {
        self.binding.as_deref().copied()
    }

    /// It is bound.
    pub fn bind(&mut self, id: u64, address: SocketAddr) {
        self.binding = Some(Arc::new((id, address)));
    }

    /// What an accepted socket takes over from its listener: everything but the binding.
    pub fn inherited(&self) -> Self {
        Self {
            binding: None,
            ..self.clone()
        }
    }

    /// What a connection starts with.
    pub fn tcp_options(&self, host: &Host) -> TcpOptions {
        let special = self.keep_alive
            || self.receive_buffer.is_some()
            || self.window_clamp > 0
            || !self.user_timeout.is_zero()
            || self.congestion.is_some()
            || self.changes_patience();
        TcpOptions {
            own: special.then(|| Box::new(self.template(host))),
            nagle: !self.no_delay,
            cork: self.cork,
            quick_ack: self.quick_ack,
            fields: self.fields,
            linger: self.linger,
            defer_accept: retries_in(&host.tcp, self.defer_accept),
            keys: self.keys.clone(),
            max_segment: self.max_segment,
            fast_open: self.fast_open,
        }
    }

    /// For options that change more than a few switches.
    #[cold]
    fn template(&self, host: &Host) -> Template {
        let mut config = host.tcp;
        config.keepalive = self.keep_alive.then_some(self.keepalive);
        config.receive_buffer = self.receive_room(config.receive_buffer);
        // A size that was asked for stays; a clamp is where growth ends.
        config.receive_buffer_max = match (self.receive_buffer, self.window_clamp) {
            (Some(_), _) => 0,
            (None, 0) => config.receive_buffer_max,
            (None, clamp) => config.receive_buffer_max.min(clamp),
        };
        if !self.user_timeout.is_zero() {
            config.retry_timeout = self.user_timeout;
            if config.user_timeout_option == UserTimeoutOption::Negotiable {
                // The application's own counts (CHANGEABLE of RFC 5482 §3.1).
                config.user_timeout_option = UserTimeoutOption::Fixed;
            }
        }
        config.congestion = self.congestion.unwrap_or(config.congestion);
        self.set_patience(&mut config);
        Template::new(&config)
    }

    /// TCP_MD5SIG: the keys are shared with what was opened before, which keeps those it has.
    pub fn set_key(&mut self, option: SocketOption) -> io::Result<()> {
        let SocketOption::Md5Key { peer, prefix, key } = option else {
            return Ok(());
        };
        let network = ao::canonical(peer, prefix);
        self.keys_mut().set(network, key).map_err(error)
    }

    /// Its keys.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_deref()
    }

    /// The same, to change.
    pub fn keys_mut(&mut self) -> &mut Keys {
        Arc::make_mut(self.keys.get_or_insert_default())
    }

    /// The key of RFC 2385 for `peer`.
    pub fn key_of(&self, peer: IpAddr) -> Option<Arc<Md5Key>> {
        self.keys.as_ref()?.md5_of(peer)
    }

    /// TCP_SYNCNT, TCP_LINGER2 or TCP_DEFER_ACCEPT was set.
    fn changes_patience(&self) -> bool {
        let linger2 = self.linger2 != Some(Duration::ZERO);
        self.syn_count > 0 || linger2 || !self.defer_accept.is_zero()
    }

    fn set_patience(&self, config: &mut Config) {
        if self.syn_count > 0 {
            config.syn_timeout = patience(config, self.syn_count);
        }
        config.fin_wait_2 = self.fin_wait_2(config);
        // A listener that waits for data has to wait that long.
        let retries = retries_in(config, self.defer_accept);
        let least = patience(config, retries);
        if retries > 0 && config.syn_received_timeout < least {
            config.syn_received_timeout = least;
        }
    }

    /// TCP_LINGER2, or the stack's setting.
    pub fn fin_wait_2(&self, config: &Config) -> Duration {
        match self.linger2 {
            None => Duration::ZERO,
            Some(Duration::ZERO) => config.fin_wait_2,
            Some(limit) => limit.min(LINGER2_MAX),
        }
    }

    /// SO_RCVBUF, or what there is without it; TCP_WINDOW_CLAMP, below which no window needs room.
    pub fn receive_room(&self, default: u32) -> u32 {
        let asked = self.receive_buffer;
        let bytes = asked.map_or(default, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let most = match self.window_clamp {
            0 => RECEIVE_BUFFER_MAX,
            clamp => clamp,
        };
        bytes
            .clamp(RECEIVE_BUFFER_MIN, RECEIVE_BUFFER_MAX)
            .min(most)
    }

    /// SO_MAX_PACING_RATE, bytes a second, if it is a limit.
    pub fn pacing_limit(&self) -> Option<u64> {
        (self.pacing_rate_max != u64::MAX).then_some(self.pacing_rate_max.max(1))
    }

    /// [`Self::shape`], if any of it was set.
    pub fn own_shape(&self) -> Option<Shape> {
        let shape = self.shape();
        (shape != Shape::default()).then_some(shape)
    }

    /// What changes readiness.
    pub fn shape(&self) -> Shape {
        let limit = self
            .send_buffer
            .map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Shape {
            low_water: self.low_water,
            unsent_low_water: match self.unsent_low_water {
                0 => u32::MAX,
                bytes => bytes,
            },
            send_limit: limit,
            urgent_inline: self.urgent_inline,
        }
    }

    /// Fields of the IP header.
    pub const fn fields(&self) -> IpFields {
        self.fields
    }

    /// SO_BROADCAST.
    pub const fn may_broadcast(&self) -> bool {
        self.broadcast
    }

    /// Keeps an option.
    pub fn apply(&mut self, option: SocketOption) {
        match option {
            SocketOption::ReuseAddress(on) => self.reuse_address = on,
            SocketOption::ReusePort(on) => self.reuse_port = on,
            SocketOption::KeepAlive(on) => self.keep_alive = on,
            SocketOption::Broadcast(on) => self.broadcast = on,
            SocketOption::Linger(linger) => self.linger = linger,
            SocketOption::ReceiveBuffer(bytes) => {
                self.receive_buffer = Some(bytes.max(RECEIVE_BUFFER_MIN as usize));
            }
            SocketOption::SendBuffer(bytes) => {
                self.send_buffer = Some(bytes.max(SEND_BUFFER_MIN));
            }
            SocketOption::V6Only(on) => self.v6_only = on,
            SocketOption::NoDelay(on) => self.no_delay = on,
            SocketOption::Cork(on) => self.cork = on,
            SocketOption::QuickAck(on) => self.quick_ack = on,
            SocketOption::MaxSegment(bytes) => self.max_segment = (bytes > 0).then_some(bytes),
            SocketOption::KeepIdle(idle) => self.keepalive.idle = idle,
            SocketOption::KeepInterval(interval) => self.keepalive.interval = interval,
            SocketOption::KeepCount(probes) => {
                self.keepalive.probes = u8::try_from(probes).unwrap_or(u8::MAX)
            }
            SocketOption::UserTimeout(timeout) => self.user_timeout = timeout,
            SocketOption::Congestion(control) => self.congestion = Some(control),
            SocketOption::SynCount(count) => self.syn_count = count,
            SocketOption::Linger2(limit) => self.linger2 = limit,
            SocketOption::DeferAccept(time) => self.defer_accept = time,
            SocketOption::PacingRateMax(rate) => self.pacing_rate_max = rate,
            SocketOption::WindowClamp(bytes) => self.window_clamp = clamp_kept(bytes),
            SocketOption::ReceiveLowWater(bytes) => self.low_water = bytes.max(1),
            SocketOption::UnsentLowWater(bytes) => self.unsent_low_water = bytes,
            SocketOption::UrgentInline(on) => self.urgent_inline = on,
            SocketOption::FastOpen(queue) => self.fast_open.queue = queue,
            SocketOption::FastOpenConnect(on) => self.fast_connect = on,
            SocketOption::FastOpenNoCookie(on) => self.fast_open.without_cookie = on,
            SocketOption::FastOpenKeys(keys) => self.fast_open.keys = keys,
            // By `set_key`, which may fail.
            SocketOption::Md5Key { .. } => {}
            // By `set_multicast`.
            SocketOption::Multicast(_) => {}
            SocketOption::Ttl(ttl) => self.fields.ttl = ttl,
            SocketOption::TypeOfService(tos) => self.fields.tos = tos,
            SocketOption::Udp(option) => self.udp.set(option),
        }
    }

    /// What is kept of the option that `like` names.
    pub fn read(&self, host: &Host, like: SocketOption) -> SocketOption {
        match like {
            SocketOption::ReuseAddress(_) => SocketOption::ReuseAddress(self.reuse_address),
            SocketOption::ReusePort(_) => SocketOption::ReusePort(self.reuse_port),
            SocketOption::KeepAlive(_) => SocketOption::KeepAlive(self.keep_alive),
            SocketOption::Broadcast(_) => SocketOption::Broadcast(self.broadcast),
            SocketOption::Linger(_) => SocketOption::Linger(self.linger),
            SocketOption::ReceiveBuffer(_) => SocketOption::ReceiveBuffer(
                self.receive_buffer
                    .unwrap_or(host.tcp.receive_buffer as usize),
            ),
            SocketOption::SendBuffer(_) => {
                SocketOption::SendBuffer(self.send_buffer.unwrap_or(host.send_buffer))
            }
            SocketOption::V6Only(_) => SocketOption::V6Only(self.v6_only),
            SocketOption::NoDelay(_) => SocketOption::NoDelay(self.no_delay),
            SocketOption::Cork(_) => SocketOption::Cork(self.cork),
            SocketOption::QuickAck(_) => SocketOption::QuickAck(self.quick_ack),
            SocketOption::MaxSegment(_) => {
                SocketOption::MaxSegment(self.max_segment.unwrap_or(host.tcp.default_mss))
            }
            SocketOption::KeepIdle(_) => SocketOption::KeepIdle(self.keepalive.idle),
            SocketOption::KeepInterval(_) => SocketOption::KeepInterval(self.keepalive.interval),
            SocketOption::KeepCount(_) => SocketOption::KeepCount(self.keepalive.probes.into()),
            SocketOption::UserTimeout(_) => SocketOption::UserTimeout(self.user_timeout),
            SocketOption::Congestion(_) => {
                SocketOption::Congestion(self.congestion.unwrap_or(host.tcp.congestion))
            }
            SocketOption::SynCount(_) => SocketOption::SynCount(match self.syn_count {
                // How many fit into the time that the setting grants.
                0 => (1..=127)
                    .rfind(|&n| patience(&host.tcp, n) <= host.tcp.syn_timeout)
                    .unwrap_or(1),
                count => count,
            }),
            SocketOption::Linger2(_) => {
                SocketOption::Linger2(self.linger2.map(|_| self.fin_wait_2(&host.tcp)))
            }
            SocketOption::DeferAccept(_) => {
                let retries = retries_in(&host.tcp, self.defer_accept);
                SocketOption::DeferAccept(time_of(&host.tcp, retries))
            }
            SocketOption::PacingRateMax(_) => SocketOption::PacingRateMax(self.pacing_rate_max),
            SocketOption::WindowClamp(_) => SocketOption::WindowClamp(self.window_clamp),
            SocketOption::ReceiveLowWater(_) => SocketOption::ReceiveLowWater(self.low_water),
            SocketOption::UnsentLowWater(_) => SocketOption::UnsentLowWater(self.unsent_low_water),
            SocketOption::UrgentInline(_) => SocketOption::UrgentInline(self.urgent_inline),
            SocketOption::FastOpen(_) => SocketOption::FastOpen(self.fast_open.queue),
            SocketOption::FastOpenConnect(_) => SocketOption::FastOpenConnect(self.fast_connect),
            SocketOption::FastOpenNoCookie(_) => {
                SocketOption::FastOpenNoCookie(self.fast_open.without_cookie)
            }
            SocketOption::FastOpenKeys(_) => {
                SocketOption::FastOpenKeys(self.fast_open.keys.or(host.tcp.fast_open.keys))
            }
            SocketOption::Md5Key { .. } => like,
            SocketOption::Multicast(like) => SocketOption::Multicast(self.read_multicast(like)),
            SocketOption::Ttl(_) => SocketOption::Ttl(self.fields.ttl),
            SocketOption::TypeOfService(_) => SocketOption::TypeOfService(self.fields.tos),
            SocketOption::Udp(like) => SocketOption::Udp(self.udp.get(like)),
        }
    }
}
