//! What a socket keeps of its options: from the start, and handed to the connection once there is one.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
};

use proto::{
    tcp::{Keepalive, Md5Key},
    wire::ipv4::Protocol,
};

use super::{OptionValues, SocketOption};
use crate::{
    api::{Domain, Kind, UdpOption, UdpOptions, multicast::Settings},
    driver::host::Host,
    emit::IpFields,
    errno::error,
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
    pub broadcast: bool,
    pub keep_alive: bool,
    /// `None`, here and below: as the stack's TCP settings say.
    pub no_delay: Option<bool>,
    pub cork: Option<bool>,
    pub quick_ack: Option<bool>,
    /// TCP_FASTOPEN_CONNECT.
    pub fast_connect: bool,
    pub urgent_inline: bool,
    pub fields: Fields,
    binding: Option<Arc<Bound>>,
    /// It was accepted: `binding` is its listener's, of which it has the address, as in Linux, but not the port.
    is_lent: bool,
    /// shutdown(2) of what was neither connected nor anything else: reading, writing.
    pub shut: (bool, bool),
    /// What nearly no socket sets: an accepted one shares it with its listener until it does.
    cold: Option<Arc<ColdOptions>>,
}

/// What the IP header says beside the addresses, but for what only IPv6 has.
#[derive(Clone, Copy, Debug)]
pub(in crate::socket) struct Fields {
    pub ttl: u8,
    pub tos: u8,
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

/// Options that few sockets set: read through [`SocketOptions`], which makes a copy of its own when one is set.
#[derive(Clone, Debug)]
pub(in crate::socket) struct ColdOptions {
    pub keepalive: Keepalive,
    /// Without keep-alive, which is there once it is switched on.
    pub overrides: TcpOverrides,
    /// Those that are kept as they were set.
    pub values: OptionValues,
    pub send_buffer: Option<usize>,
    pub max_segment: Option<u16>,
    pub fast_open: FastOpenOptions,
    pub low_water: u32,
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
static COLD_DEFAULTS: LazyLock<ColdOptions> = LazyLock::new(ColdOptions::default);

/// As Linux: a window clamp is not less than half of the least buffer.
pub(super) const fn clamp_kept(bytes: u32) -> u32 {
    if bytes == 0 || bytes > RECEIVE_BUFFER_MIN {
        bytes
    } else {
        RECEIVE_BUFFER_MIN
    }
}

impl Deref for SocketOptions {
    type Target = ColdOptions;
    fn deref(&self) -> &ColdOptions {
        self.cold.as_deref().unwrap_or(&COLD_DEFAULTS)
    }
}

impl DerefMut for SocketOptions {
    fn deref_mut(&mut self) -> &mut ColdOptions {
        Arc::make_mut(self.cold.get_or_insert_default())
    }
}

impl Default for ColdOptions {
    fn default() -> Self {
        Self {
            keepalive: Keepalive::default(),
            overrides: TcpOverrides::default(),
            values: OptionValues::default(),
            send_buffer: None,
            max_segment: None,
            fast_open: FastOpenOptions::default(),
            low_water: 1,
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
            at_home: false,
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
            linger: self.values.linger,
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
        (self.values.pacing_rate_max != u64::MAX).then_some(self.values.pacing_rate_max.max(1))
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
            unsent_low_water: match self.values.unsent_low_water {
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
            hops: self.values.hops,
            class: self.values.class,
            may_be_cut,
        }
    }

    /// SO_BROADCAST.
    pub const fn may_broadcast(&self) -> bool {
        self.broadcast
    }

    /// Keeps one that datagram sockets have.
    pub fn set_udp(&mut self, option: UdpOption) {
        self.udp.set(option);
        self.fields.may_be_cut = !self.udp.discovery.sets_df();
    }
}
