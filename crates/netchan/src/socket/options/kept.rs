//! What a socket keeps of its options: from the start, and handed to the connection once there is one.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
    time::Duration,
};

use proto::{
    tcp::{Keepalive, Md5Key, retries_in, retry_budget, time_of},
    wire::ipv4::Protocol,
};

use super::SocketOption;
use crate::{
    api::{Domain, Kind, UdpOptions, multicast::Settings},
    driver::host::Host,
    emit::IpFields,
    errno::error,
    limits,
    shard::{
        Binding, FastOpenOptions, Keys, RECEIVE_BUFFER_MIN, Reuse, TcpOptions, TcpOverrides,
        Watermarks,
    },
    socket::{ao, earlier::Earlier},
};

/// A socket's options and binding.
#[derive(Clone, Debug, Default)]
pub(in crate::socket) struct SocketOptions {
    pub reuse_address: bool,
    pub reuse_port: bool,
    pub v6_only: bool,
    broadcast: bool,
    pub keep_alive: bool,
    /// `None`, here and below: as the stack's TCP settings say.
    no_delay: Option<bool>,
    cork: Option<bool>,
    quick_ack: Option<bool>,
    /// TCP_FASTOPEN_CONNECT.
    pub fast_connect: bool,
    urgent_inline: bool,
    fields: Fields,
    binding: Option<Arc<Bound>>,
    /// It was accepted: `binding` is its listener's, of which it has the address, as in Linux, but not the port.
    is_lent: bool,
    /// shutdown(2) of what was neither connected nor anything else: reading, writing.
    pub shut: (bool, bool),
    /// What nearly no socket sets: an accepted one shares it with its listener until it does.
    seldom: Option<Arc<Seldom>>,
}

/// What the IP header says beside the addresses, but for what only IPv6 has.
#[derive(Clone, Copy, Debug)]
struct Fields {
    ttl: u8,
    tos: u8,
    may_be_cut: bool,
}

impl Default for Fields {
    fn default() -> Self {
        let IpFields {
            ttl,
            tos,
            may_be_cut,
            ..
        } = IpFields::default();
        Self {
            ttl,
            tos,
            may_be_cut,
        }
    }
}

/// What a socket is bound to.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Its number in the directory; `None`: the port was given up.
    id: Option<u64>,
    address: SocketAddr,
    /// bind(2) named the port: it stays when a connection ends.
    names_port: bool,
    /// It was bound after its last connection, whose address is shown no more.
    is_anew: bool,
    /// A bind has named an address, this one or another before it: that of a connection stays when it ends.
    keeps_address: bool,
}

/// Options that are set seldom: read through [`SocketOptions`], which makes a copy of its own when one is set.
#[derive(Clone, Debug)]
pub(in crate::socket) struct Seldom {
    pub keepalive: Keepalive,
    /// Without keep-alive, which is there once it is switched on.
    pub overrides: TcpOverrides,
    linger: Option<Duration>,
    /// Of IPv6.
    hops: u8,
    class: u8,
    send_buffer: Option<usize>,
    max_segment: Option<u16>,
    fast_open: FastOpenOptions,
    pacing_rate_max: u64,
    low_water: u32,
    unsent_low_water: u32,
    /// TCP_MD5SIG, TCP_AO_ADD_KEY.
    keys: Option<Arc<Keys>>,
    /// Groups, if it ever said anything of them.
    pub multicast: Option<Arc<Settings>>,
    /// Those of datagram sockets.
    pub udp: UdpOptions,
    /// The IPv4 address that a datagram socket sends from which has an IPv6 one: a connect to IPv4 gave it.
    pub mapped_source: Option<IpAddr>,
    /// A listener's.
    pub earlier: Earlier,
}

/// What a socket has that set none of them.
static USUAL: LazyLock<Seldom> = LazyLock::new(Seldom::default);

/// Linux's SOCK_MIN_SNDBUF, before it is doubled.
const SEND_BUFFER_MIN: usize = 2304;

/// As Linux: a window clamp is not less than half of the least buffer.
const fn clamp_kept(bytes: u32) -> u32 {
    if bytes == 0 || bytes > RECEIVE_BUFFER_MIN {
        bytes
    } else {
        RECEIVE_BUFFER_MIN
    }
}

impl Deref for SocketOptions {
    type Target = Seldom;
    fn deref(&self) -> &Seldom {
        self.seldom.as_deref().unwrap_or(&USUAL)
    }
}

impl DerefMut for SocketOptions {
    fn deref_mut(&mut self) -> &mut Seldom {
        Arc::make_mut(self.seldom.get_or_insert_default())
    }
}

impl Default for Seldom {
    fn default() -> Self {
        let IpFields { hops, class, .. } = IpFields::default();
        Self {
            hops,
            class,
            keepalive: Keepalive::default(),
            overrides: TcpOverrides::default(),
            linger: None,
            send_buffer: None,
            max_segment: None,
            fast_open: FastOpenOptions::default(),
            pacing_rate_max: u64::MAX,
            low_water: 1,
            unsent_low_water: 0,
            keys: None,
            multicast: None,
            udp: UdpOptions::default(),
            mapped_source: None,
            earlier: Earlier::NONE,
        }
    }
}

impl SocketOptions {
    /// Of a new socket. As Linux: one ping socket does not mind another with its identifier, and one of IPv6 has nothing to do with IPv4.
    pub fn new(kind: Kind, domain: Domain) -> Self {
        Self {
            reuse_address: kind == Kind::Ping,
            v6_only: kind == Kind::Ping && domain == Domain::V6,
            ..Self::default()
        }
    }

    /// Id in the directory, and address, once it is bound.
    pub fn binding(&self) -> Option<(u64, SocketAddr)> {
        let bound = self.binding.as_deref().filter(|_| !self.is_lent)?;
        Some((bound.id?, bound.address))
    }

    /// The same for a shard.
    pub fn as_bound(&self, protocol: Protocol) -> Option<Binding> {
        let (order, address) = self.binding()?;
        Some(Binding {
            address,
            v6_only: self.v6_only,
            order,
            shares: self.reuse_port,
            device: self.udp.device,
            protocol,
        })
    }

    /// It is bound, later than it was connected.
    pub fn bind(&mut self, id: u64, address: SocketAddr) {
        self.set_bound(Some(id), address);
    }

    fn set_bound(&mut self, id: Option<u64>, address: SocketAddr) {
        let before = self.binding.as_deref();
        let kept = before.is_some_and(|b| b.keeps_address || !b.address.ip().is_unspecified());
        self.is_lent = false;
        self.binding = Some(Arc::new(Bound {
            id,
            address,
            names_port: false,
            is_anew: true,
            keeps_address: kept || !address.ip().is_unspecified(),
        }));
    }

    /// A bind that failed leaves it without an address, as in Linux; the port that it had is shown still.
    pub fn lose_address(&mut self, wildcard: IpAddr, port: u16) {
        self.set_bound(None, SocketAddr::new(wildcard, port));
    }

    /// Whether it was bound after its last connection, if it had any.
    pub fn is_bound_anew(&self) -> bool {
        !self.is_lent && self.binding.as_deref().is_some_and(|bound| bound.is_anew)
    }

    /// There is a new connection.
    pub fn is_connected(&mut self) {
        if self.is_lent {
            return; // only a bind makes it anew, and gives it a binding of its own
        }
        if let Some(bound) = self.binding.as_mut().filter(|bound| bound.is_anew) {
            Arc::make_mut(bound).is_anew = false;
        }
    }

    /// bind(2) named the port.
    pub fn port_is_named(&mut self) {
        if let Some(bound) = &mut self.binding {
            Arc::make_mut(bound).names_port = true;
        }
    }

    /// The address to connect from: with a port, if it is bound.
    pub fn source(&self) -> Option<SocketAddr> {
        let bound = self.binding.as_deref()?;
        let port = match bound.id {
            Some(_) if !self.is_lent => bound.address.port(),
            _ => 0,
        };
        Some(SocketAddr::new(bound.address.ip(), port))
    }

    /// As Linux: one that was bound to IPv4's wildcard as a mapped address keeps the address that a connection gave it.
    pub fn keep_mapped(&mut self, was: IpAddr) {
        let mapped = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        if let Some(bound) = self.binding.as_mut().filter(|b| b.address.ip() == mapped) {
            Arc::make_mut(bound).address.set_ip(was);
        }
    }

    /// As Linux: one that was bound to an address before, and is not now, keeps the one that a connection gave it.
    pub fn keep_address(&mut self, was: IpAddr) {
        let keeps =
            |bound: &&mut Arc<Bound>| bound.keeps_address && bound.address.ip().is_unspecified();
        if let Some(bound) = self.binding.as_mut().filter(keeps) {
            Arc::make_mut(bound).address.set_ip(was);
        }
    }

    /// The port that it has, or had last.
    pub fn last_port(&self) -> u16 {
        (self.binding.as_deref()).map_or(0, |bound| bound.address.port())
    }

    /// Gives up the port, unless bind(2) named it, and keeps the address: the id to release.
    pub fn unbind(&mut self) -> Option<u64> {
        let is_lent = self.is_lent;
        let bound = self.binding.as_mut();
        let bound = bound.filter(|bound| !is_lent && !bound.names_port)?;
        Arc::make_mut(bound).id.take()
    }

    /// What an accepted socket takes over from its listener: everything, of the binding the address, and as in Linux nothing about its queue.
    pub fn inherited(&self) -> Self {
        let mut new = Self {
            is_lent: true,
            ..self.clone()
        };
        if new.fast_open.queue > 0 || new.fast_open.keys.is_some() {
            (new.fast_open.queue, new.fast_open.keys) = (0, None);
        }
        new.without_waiting()
    }

    /// As Linux: it listens or connects, and what TCP_QUICKACK said before is forgotten.
    pub const fn begins_anew(&mut self) {
        self.quick_ack = None;
    }

    /// TCP_CORK.
    pub fn corked(&self, host: &Host) -> bool {
        self.cork.unwrap_or_else(|| host.tcp().cork)
    }

    /// What a connection starts with.
    pub fn tcp_options(&self) -> TcpOptions {
        let overrides = TcpOverrides {
            keepalive: self.keep_alive.then_some(self.keepalive),
            ..self.overrides
        };
        TcpOptions {
            own: (overrides != TcpOverrides::default()).then(|| Box::new(overrides)),
            nagle: self.no_delay.map(|no_delay| !no_delay),
            cork: self.cork,
            quick_ack: self.quick_ack,
            fields: self.fields(),
            linger: self.linger,
            keys: self.keys.clone(),
            max_segment: self.max_segment,
            mark: self.udp.mark,
            device: self.udp.device,
            cpu: self.udp.cpu,
            fast_open: self.fast_open,
            reuse: self.reuse(),
            shut: self.shut,
        }
    }

    /// TCP_MD5SIG: the keys are shared with what was opened before, which keeps those it has.
    pub fn set_key(&mut self, option: SocketOption) -> io::Result<()> {
        let SocketOption::Md5Key { peer, prefix, key } = option else {
            return Ok(());
        };
        let network = ao::canonical(peer, prefix);
        self.keys_mut().set(network, key).map_err(error)
    }

    /// How it shares its port.
    pub const fn reuse(&self) -> Reuse {
        Reuse::new(self.reuse_address, self.reuse_port, self.v6_only)
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

    /// SO_MAX_PACING_RATE, bytes a second, if it is a limit.
    pub fn pacing_limit(&self) -> Option<u64> {
        (self.pacing_rate_max != u64::MAX).then_some(self.pacing_rate_max.max(1))
    }

    /// [`Self::watermarks`], if any of it was set.
    pub fn own_watermarks(&self) -> Option<Watermarks> {
        let watermarks = self.watermarks();
        (watermarks != Watermarks::default()).then_some(watermarks)
    }

    /// What a datagram socket starts with.
    pub fn udp_options(&self, host: &Host) -> UdpOptions {
        let default = host.tcp().receive_buffer as usize;
        UdpOptions {
            receive_buffer: self.overrides.receive_buffer.unwrap_or(default),
            ..self.udp
        }
    }

    /// What changes readiness.
    pub fn watermarks(&self) -> Watermarks {
        let limit = self
            .send_buffer
            .map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Watermarks {
            low_water: self.low_water,
            unsent_low_water: match self.unsent_low_water {
                0 => u32::MAX,
                bytes => bytes,
            },
            send_limit: limit,
            urgent_inline: self.urgent_inline,
            mark: self.udp.mark,
        }
    }

    /// Fields of the IP header.
    pub fn fields(&self) -> IpFields {
        let Fields {
            ttl,
            tos,
            may_be_cut,
        } = self.fields;
        IpFields {
            ttl,
            tos,
            hops: self.hops,
            class: self.class,
            may_be_cut,
        }
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
                self.overrides.receive_buffer = Some(bytes.max(RECEIVE_BUFFER_MIN as usize));
            }
            SocketOption::SendBuffer(bytes) => {
                self.send_buffer = Some(bytes.max(SEND_BUFFER_MIN));
            }
            SocketOption::V6Only(on) => self.v6_only = on,
            SocketOption::NoDelay(on) => self.no_delay = Some(on),
            SocketOption::Cork(on) => self.cork = Some(on),
            SocketOption::QuickAck(on) => self.quick_ack = Some(on),
            SocketOption::MaxSegment(bytes) => self.max_segment = (bytes > 0).then_some(bytes),
            SocketOption::KeepIdle(idle) => self.keepalive.idle = idle,
            SocketOption::KeepInterval(interval) => self.keepalive.interval = interval,
            SocketOption::KeepCount(probes) => {
                self.keepalive.probes = u8::try_from(probes).unwrap_or(u8::MAX)
            }
            SocketOption::UserTimeout(timeout) => self.overrides.user_timeout = timeout,
            SocketOption::Congestion(control) => self.overrides.congestion = Some(control),
            SocketOption::SynCount(count) => self.overrides.syn_count = count,
            SocketOption::Linger2(limit) => self.overrides.linger2 = limit,
            SocketOption::DeferAccept(time) => self.overrides.defer_accept = time,
            SocketOption::PacingRateMax(rate) => self.pacing_rate_max = rate,
            SocketOption::WindowClamp(bytes) => self.overrides.window_clamp = clamp_kept(bytes),
            SocketOption::ReceiveLowWater(bytes) => self.low_water = bytes.max(1),
            SocketOption::UnsentLowWater(bytes) => self.unsent_low_water = bytes,
            SocketOption::UrgentInline(on) => self.urgent_inline = on,
            SocketOption::FastOpen(queue) => {
                self.fast_open.queue =
                    u32::try_from(limits::BACKLOG_MAX).map_or(queue, |most| queue.min(most));
            }
            SocketOption::FastOpenConnect(on) => self.fast_connect = on,
            SocketOption::FastOpenNoCookie(on) => self.fast_open.without_cookie = on,
            SocketOption::FastOpenKeys(keys) => self.fast_open.keys = keys,
            // By `set_key`, which may fail.
            SocketOption::Md5Key { .. } => {}
            // By `set_multicast`.
            SocketOption::Multicast(_) => {}
            SocketOption::Ttl(ttl) => self.fields.ttl = ttl,
            SocketOption::TypeOfService(tos) => self.fields.tos = tos,
            SocketOption::HopLimit(hops) => self.hops = hops,
            SocketOption::TrafficClass(class) => self.class = class,
            SocketOption::Mark(mark) => self.udp.mark = mark,
            SocketOption::Device(device) => self.udp.device = device,
            SocketOption::IncomingCpu(cpu) => self.udp.cpu = cpu,
            SocketOption::Udp(option) => {
                self.udp.set(option);
                self.fields.may_be_cut = !self.udp.discovery.sets_df();
            }
        }
    }

    /// What is kept of the option that `like` names.
    pub fn read(&self, host: &Host, like: SocketOption) -> SocketOption {
        let tcp = &host.tcp();
        match like {
            SocketOption::ReuseAddress(_) => SocketOption::ReuseAddress(self.reuse_address),
            SocketOption::ReusePort(_) => SocketOption::ReusePort(self.reuse_port),
            SocketOption::KeepAlive(_) => SocketOption::KeepAlive(self.keep_alive),
            SocketOption::Broadcast(_) => SocketOption::Broadcast(self.broadcast),
            SocketOption::Linger(_) => SocketOption::Linger(self.linger),
            SocketOption::ReceiveBuffer(_) => SocketOption::ReceiveBuffer(
                self.overrides
                    .receive_buffer
                    .unwrap_or(tcp.receive_buffer as usize),
            ),
            SocketOption::SendBuffer(_) => {
                SocketOption::SendBuffer(self.send_buffer.unwrap_or(host.send_buffer))
            }
            SocketOption::V6Only(_) => SocketOption::V6Only(self.v6_only),
            SocketOption::NoDelay(_) => SocketOption::NoDelay(self.no_delay.unwrap_or(!tcp.nagle)),
            SocketOption::Cork(_) => SocketOption::Cork(self.cork.unwrap_or(tcp.cork)),
            SocketOption::QuickAck(_) => {
                SocketOption::QuickAck(self.quick_ack.unwrap_or(tcp.quick_ack))
            }
            SocketOption::MaxSegment(_) => {
                SocketOption::MaxSegment(self.max_segment.unwrap_or(tcp.default_mss))
            }
            SocketOption::KeepIdle(_) => SocketOption::KeepIdle(self.keepalive.idle),
            SocketOption::KeepInterval(_) => SocketOption::KeepInterval(self.keepalive.interval),
            SocketOption::KeepCount(_) => SocketOption::KeepCount(self.keepalive.probes.into()),
            SocketOption::UserTimeout(_) => SocketOption::UserTimeout(self.overrides.user_timeout),
            SocketOption::Congestion(_) => {
                SocketOption::Congestion(self.overrides.congestion.unwrap_or(tcp.congestion))
            }
            SocketOption::SynCount(_) => SocketOption::SynCount(match self.overrides.syn_count {
                // How many fit into the time that the setting grants.
                0 => (1..=127)
                    .rfind(|&n| retry_budget(tcp, n) <= tcp.syn_timeout)
                    .unwrap_or(1),
                count => count,
            }),
            SocketOption::Linger2(_) => SocketOption::Linger2(
                self.overrides
                    .linger2
                    .map(|_| self.overrides.fin_wait_2(tcp)),
            ),
            SocketOption::DeferAccept(_) => {
                let retries = retries_in(tcp, self.overrides.defer_accept);
                SocketOption::DeferAccept(time_of(tcp, retries))
            }
            SocketOption::PacingRateMax(_) => SocketOption::PacingRateMax(self.pacing_rate_max),
            SocketOption::WindowClamp(_) => SocketOption::WindowClamp(self.overrides.window_clamp),
            SocketOption::ReceiveLowWater(_) => SocketOption::ReceiveLowWater(self.low_water),
            SocketOption::UnsentLowWater(_) => SocketOption::UnsentLowWater(self.unsent_low_water),
            SocketOption::UrgentInline(_) => SocketOption::UrgentInline(self.urgent_inline),
            SocketOption::FastOpen(_) => SocketOption::FastOpen(self.fast_open.queue),
            SocketOption::FastOpenConnect(_) => SocketOption::FastOpenConnect(self.fast_connect),
            SocketOption::FastOpenNoCookie(_) => {
                SocketOption::FastOpenNoCookie(self.fast_open.without_cookie)
            }
            SocketOption::FastOpenKeys(_) => {
                SocketOption::FastOpenKeys(self.fast_open.keys.or(tcp.fast_open.keys))
            }
            SocketOption::Md5Key { .. } => like,
            SocketOption::Multicast(like) => SocketOption::Multicast(self.read_multicast(like)),
            SocketOption::Ttl(_) => SocketOption::Ttl(self.fields.ttl),
            SocketOption::TypeOfService(_) => SocketOption::TypeOfService(self.fields.tos),
            SocketOption::HopLimit(_) => SocketOption::HopLimit(self.hops),
            SocketOption::TrafficClass(_) => SocketOption::TrafficClass(self.class),
            SocketOption::Mark(_) => SocketOption::Mark(self.udp.mark),
            SocketOption::Device(_) => SocketOption::Device(self.udp.device),
            SocketOption::IncomingCpu(_) => SocketOption::IncomingCpu(self.udp.cpu),
            SocketOption::Udp(like) => SocketOption::Udp(self.udp.get(like)),
        }
    }
}
