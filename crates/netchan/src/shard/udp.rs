//! UDP sockets in a shard, and ping sockets, which are the same but for what a datagram is.

mod errors;
mod notices;
mod ping;
mod receive;
mod room;
mod route_cache;
mod send;
#[cfg(test)]
mod send_tests;
#[cfg(test)]
mod tests;
mod text;
mod together;
mod uncut;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::Waker,
};

use netchan_base::shelf::UNCOUNTED;
use proto::{
    tcp::Shelf as _,
    time::Instant,
    wire::{
        ipv4::Protocol,
        udp::{HEADER_LEN, Header},
    },
};

pub(super) use self::errors::Report;
pub(super) use self::text::Text;
use self::{errors::ErrorQueue, notices::Notices, receive::Waiting, send::Corked};
pub use self::{
    notices::Stamped, ping::Echo, route_cache::RouteCache, send::Destination, together::Together,
};
use super::{
    Addresses, Binding, Shard, Shelf,
    bound::{Member, Place},
    samples::Reader,
    wakers::Wakers,
    widen,
};
use crate::{
    api::{Readiness, UdpOptions, multicast::Settings},
    counters::Counter,
    driver::steer::short,
    emit::IpFields,
    flow::FlowKey,
    limits,
    packet::Packet,
};

/// A UDP socket's part in one shard.
#[derive(Debug)]
pub struct UdpSocket {
    /// Unspecified: every address of the family (of both, if IPv6 and not `v6_only`).
    pub local: SocketAddr,
    /// UDP, or of a ping socket ICMP or ICMPv6.
    protocol: Protocol,
    /// Set by connect(2): only this peer is heard (a ping socket hears all).
    pub peer: Option<SocketAddr>,
    v6_only: bool,
    /// As [`Binding`] has them.
    order: u64,
    shares: bool,
    queue: VecDeque<Waiting>,
    /// What these count against SO_RCVBUF, bytes.
    queued: usize,
    /// Memory that they hold.
    memory: usize,
    /// Datagrams dropped because there was no room for them.
    drops: u32,
    error: Option<i32>,
    /// Shared with its other parts, if there are any.
    together: Option<Arc<Together>>,
    /// IP_RECVERR, IPV6_RECVERR.
    errors: Option<Box<ErrorQueue>>,
    /// What it has to tell of its sends.
    notices: Option<Box<Notices>>,
    /// UDP_CORK, MSG_MORE.
    corked: Option<Box<Corked>>,
    wakers: Wakers,
    /// Addresses of the IP header of what it sends.
    pub fields: IpFields,
    options: UdpOptions,
    read_shut: bool,
    write_shut: bool,
    /// Buffers that its last send needed and did not find; 0: it found them.
    lacks: u16,
    /// It is among those that are told when there are buffers.
    waits: bool,
    /// Its groups, and how it sends to any, if it ever said so.
    pub(super) multicast: Option<Arc<Settings>>,
}

impl UdpSocket {
    /// How well it fits a datagram; `None`: not at all.
    pub(super) fn score(&self, local: SocketAddr, remote: SocketAddr, interface: u8) -> Option<u8> {
        let device = self.options.device.unwrap_or(interface);
        // Port 0 is that of one that lost its own.
        if self.local.port() != local.port() || local.port() == 0 || device != interface {
            return None;
        }
        let mut score = match (self.local.ip(), local.ip()) {
            (mine, its) if mine == its => 3,
            (IpAddr::V4(mine), IpAddr::V4(_)) if mine.is_unspecified() => 2,
            (IpAddr::V6(mine), IpAddr::V6(_)) if mine.is_unspecified() => 2,
            (IpAddr::V6(mine), IpAddr::V4(_)) if mine.is_unspecified() && !self.v6_only => 1,
            _ => return None,
        };
        match self.peer {
            Some(peer) if peer == remote => score += 4,
            Some(_) if self.hears_host(remote.ip()) => score += 4,
            Some(_) => return None,
            None => {}
        }
        Some(score)
    }

    /// Whether its peer is all of this host: one without a port is (as on Linux).
    fn hears_host(&self, host: IpAddr) -> bool {
        self.peer == Some(SocketAddr::new(host, 0))
    }

    /// Where it is found, and as what.
    fn member(&self, number: u32) -> (Place, Member) {
        let is_ping = self.is_ping();
        let member = Member {
            at_home: false,
            number,
            order: self.order,
            shares: self.shares && !is_ping,
            connected: self.peer.is_some() && !is_ping,
            cpu: self.options.cpu,
        };
        let place = Place::new(self.local, self.v6_only || is_ping);
        (place.on(self.options.device), member)
    }

    /// Whether it is a ping socket.
    pub fn is_ping(&self) -> bool {
        self.protocol != Protocol::UDP
    }

    /// What it speaks, for people.
    pub fn protocol_name(&self) -> &'static str {
        match self.protocol {
            Protocol::UDP => "udp",
            Protocol::ICMP => "icmp",
            _ => "icmpv6",
        }
    }

    /// The flow of a connected one.
    fn flow(&self) -> Option<FlowKey> {
        let peer = self.peer.filter(|_| !self.is_ping())?;
        Some(FlowKey {
            local: self.local.ip(),
            remote: peer.ip(),
            local_port: self.local.port(),
            remote_port: peer.port(),
            protocol: Protocol::UDP,
        })
    }

    /// Datagrams that wait.
    pub fn depth(&self) -> usize {
        self.queue.len()
    }

    /// Memory of the datagrams that wait.
    pub const fn memory(&self) -> usize {
        self.memory
    }

    /// Panics if what is counted against SO_RCVBUF is not what waits.
    pub(super) fn check(&self) {
        let of = |waiting: &Waiting| waiting.packet.len() + limits::UDP_OVERHEAD;
        let queued: usize = self.queue.iter().map(of).sum();
        assert_eq!(queued, self.queued, "datagrams in the receive buffer");
        let memory = self.queue.iter().map(|waiting| waiting.packet.true_size());
        assert_eq!(memory.sum::<usize>(), self.memory, "their memory");
    }

    /// FIONREAD: bytes of the first datagram.
    pub fn first_len(&self) -> usize {
        self.queue.front().map_or(0, |first| first.packet.len())
    }

    /// Whether a send adds to a datagram.
    pub fn is_corked(&self) -> bool {
        self.options.cork || self.corked.is_some()
    }

    /// Whether a send adds to a datagram, and where the one under way goes.
    pub fn corked(&self) -> (bool, Option<Destination>) {
        let to = self.corked.as_ref().and_then(|corked| corked.to());
        (self.options.cork || to.is_some(), to)
    }

    /// SO_BINDTODEVICE.
    pub(crate) const fn device(&self) -> Option<u8> {
        self.options.device
    }

    /// SO_MARK.
    pub(crate) const fn mark(&self) -> u32 {
        self.options.mark
    }

    fn set_options(&mut self, fields: IpFields, options: UdpOptions) {
        self.fields = fields;
        let is_off = |family: usize| self.options.errors[family] && !options.errors[family];
        let was = is_off(0) || is_off(1);
        self.options = options;
        self.keep_errors(was);
        // Not in the path of packets.
        let more = places(options).saturating_sub(self.queue.len());
        self.queue.reserve(more);
    }

    /// Whether SO_RCVBUF has room for a datagram with `len` bytes of payload: one always, if none waits.
    fn has_room_for(&self, len: usize) -> bool {
        let queued = self.queued + len + limits::UDP_OVERHEAD;
        self.queue.is_empty()
            || (queued <= room(self.options) && self.queue.len() < places(self.options))
    }

    /// `has_buffers`: to send from.
    fn readiness(&self, has_buffers: bool) -> Readiness {
        let mut ready = Readiness::NONE;
        // And where a send would answer at once with an error.
        if has_buffers || self.write_shut || self.error.is_some() {
            ready = ready | Readiness::WRITABLE;
        }
        if !self.queue.is_empty() {
            ready = ready | Readiness::READABLE;
        }
        if self.read_shut {
            ready = ready | Readiness::READABLE | Readiness::READ_HANGUP;
            if self.write_shut {
                ready = ready | Readiness::HANGUP;
            }
        }
        if self.error.is_some() || self.has_errors() || self.has_notices() {
            ready = ready | Readiness::ERROR;
        }
        ready
    }

    /// The next call answers `errno`, whatever part it comes to.
    fn raise(&mut self, errno: i32) {
        self.error = Some(errno);
        if let Some(together) = &self.together {
            together.raise();
        }
    }

    /// Its queue in this shard has another first datagram, or none.
    fn show_first(&self, shard: usize) {
        if let Some(together) = &self.together {
            together.show(shard, self.queue.front().map(|first| first.at));
        }
    }

    /// Whether a call with this interest need not wait. An error queue that holds something is no news to a call that waits for datagrams.
    fn meets(&self, interest: Readiness, has_buffers: bool) -> bool {
        let queued_only = self.error.is_none() && !interest.contains(Readiness::ERROR);
        let mut ready = self.readiness(has_buffers);
        if queued_only {
            ready.0 &= !Readiness::ERROR.0;
        }
        ready.intersects(interest | Readiness::ERROR | Readiness::HANGUP)
    }
}

/// What SO_RCVBUF grants, bytes: twice its value, as Linux.
const fn room(options: UdpOptions) -> usize {
    options.receive_buffer.saturating_mul(2)
}

/// Datagrams that this may be.
fn places(options: UdpOptions) -> usize {
    let places = room(options) / limits::UDP_OVERHEAD;
    places.clamp(1, limits::UDP_QUEUE_MAX)
}

impl Shard {
    #[inline]
    pub(super) fn udp_input(&mut self, packet: Packet, addresses: Addresses, now: Instant) {
        self.count(Counter::UdpIn);
        let Addresses {
            source,
            destination,
        } = addresses;
        let upper = usize::from(packet.meta.upper);
        let datagram = packet.bytes().get(upper..).unwrap_or_default();
        let Ok(header) = Header::parse(datagram) else {
            return self.count(Counter::DropUdpHeader);
        };
        let is_verified = packet.meta.checksum_verified.get();
        // RFC 8200 §8.1, RFC 6936: none at all is for sockets that say so.
        let is_bare = !is_verified && header.checksum == 0 && source.is_ipv6();
        if !is_verified && !is_bare && !header.verify(source, destination, datagram) {
            return self.count(Counter::DropUdpChecksum);
        }
        let local = SocketAddr::new(destination, header.destination_port);
        let remote = SocketAddr::new(source, header.source_port);
        if self.is_for_many(&packet, destination) {
            return self.udp_to_hearers(packet, &header, (local, remote), is_bare, now);
        }
        let (flow, interface) = (packet.meta.flow, packet.meta.interface);
        let Some(number) = self.udp_socket_for(local, remote, flow, interface) else {
            if is_bare {
                return self.count(Counter::DropUdpChecksum);
            }
            self.count(Counter::DropUdpNoSocket);
            return self.port_unreachable(&packet, addresses, now);
        };
        self.udp_keep(number, packet, &header, remote, is_bare, now);
    }

    /// Gives a datagram to a socket, if it has room for it.
    pub(super) fn udp_keep(
        &mut self,
        number: u32,
        packet: Packet,
        header: &Header,
        remote: SocketAddr,
        is_bare: bool,
        now: Instant,
    ) {
        let Some(socket) = self.udp.get_mut(number) else {
            return;
        };
        if is_bare && !socket.options.no_checksum_in {
            return self.count(Counter::DropUdpChecksum);
        }
        let headers = usize::from(packet.meta.upper) + HEADER_LEN;
        let len = usize::from(header.length) - HEADER_LEN;
        self.datagram_keep(number, packet, (headers, len), remote, now);
    }

    /// Gives what a datagram brings, `len` bytes behind its headers, to a socket, if it has room for it.
    #[inline]
    fn datagram_keep(
        &mut self,
        number: u32,
        mut packet: Packet,
        (headers, len): (usize, usize),
        remote: SocketAddr,
        now: Instant,
    ) {
        let Some(socket) = self.udp.get_mut(number) else {
            return;
        };
        if !socket.has_room_for(len) {
            socket.drops = socket.drops.wrapping_add(1);
            let is_ping = socket.is_ping();
            return self.count(if is_ping {
                Counter::DropPingQueue
            } else {
                Counter::DropUdpQueue
            });
        }
        let held = socket.memory as u64;
        let mut place = UNCOUNTED;
        if Shelf::moves_datagram(&packet, held == 0) {
            (packet, place) = (self.pool.shelf_mut()).keep_datagram(packet);
        }
        let peer = self.memory.udp_shares.peer(remote.ip());
        let memory = packet.true_size();
        let is_kept = self.may_keep_datagram(memory, held, peer);
        let Some(socket) = self.udp.get_mut(number) else {
            return;
        };
        if !is_kept {
            socket.drops = socket.drops.wrapping_add(1);
            drop(packet);
            return self.pool.shelf_mut().free(place);
        }
        self.udp_queued += 1;
        self.samples.queued(number, socket.queue.len());
        packet.pull(headers);
        packet.truncate(len);
        socket.queued += len + limits::UDP_OVERHEAD;
        socket.memory += memory;
        socket.queue.push_back(Waiting {
            packet,
            place,
            peer,
            from: remote,
            at: now,
            drops: socket.drops,
        });
        if socket.queue.len() == 1 {
            socket.show_first(self.number);
        }
        socket.wakers.wake(Readiness::READABLE, &mut self.woken);
    }

    /// The socket for a datagram of the flow with this (short) hash: the one that is connected to its sender, or one that is bound to its
    /// destination.
    fn udp_socket_for(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        flow: u32,
        interface: u8,
    ) -> Option<u32> {
        let is_its =
            |s: &UdpSocket| s.peer == Some(remote) && s.score(local, remote, interface).is_some();
        let is_connected = |&number: &u32| self.udp.get(number).is_some_and(is_its);
        if !self.lookup.connected.is_empty()
            && let Some(&number) = self.lookup.connected.find(widen(flow), is_connected)
        {
            return Some(number);
        }
        if local.port() == 0 {
            return None;
        }
        if self.lookup.of_hosts > 0
            && let Some(number) = self.udp_socket_of_host(local, remote.ip(), interface)
        {
            return Some(number);
        }
        (self.lookup.datagrams).find(local.ip(), local.port(), flow, interface)
    }

    /// The socket at `local` whose peer is all of `host`.
    #[cold]
    fn udp_socket_of_host(&self, local: SocketAddr, host: IpAddr, interface: u8) -> Option<u32> {
        let is_so = |s: &UdpSocket| s.local == local && s.hears_host(host);
        let (ip, port) = (local.ip(), local.port());
        let mut hearers = self.lookup.datagrams.hearers(ip, port, interface);
        hearers.find(|&number| self.udp.get(number).is_some_and(is_so))
    }

    /// Enters a socket where it is found, by its address and its peer.
    fn udp_enter(&mut self, number: u32) {
        let Some(socket) = self.udp.get(number) else {
            return;
        };
        let (place, member) = socket.member(number);
        let is_ping = socket.is_ping();
        self.lookup.of_datagrams(is_ping).set(place, member);
        let Some(flow) = socket.flow() else { return };
        self.lookup.of_hosts += usize::from(flow.remote_port == 0);
        let (udp, hash) = (&self.udp, &self.host.flow_hash);
        let of = |key: &FlowKey| widen(short(hash.hash(key)));
        let again = |&n: &u32| udp.get(n).and_then(UdpSocket::flow).map_or(0, |f| of(&f));
        self.lookup
            .connected
            .insert_unique(of(&flow), number, again);
    }

    /// Takes it out there.
    fn udp_take_out(&mut self, number: u32) {
        let Some(socket) = self.udp.get(number) else {
            return;
        };
        let bound = self.lookup.of_datagrams(socket.is_ping());
        bound.remove(socket.member(number).0, number);
        if let Some(flow) = socket.flow() {
            self.lookup.of_hosts -= usize::from(flow.remote_port == 0);
            let hash = widen(short(self.host.flow_hash.hash(&flow)));
            if let Ok(entry) = self.lookup.connected.find_entry(hash, |&n| n == number) {
                entry.remove();
            }
        }
    }

    /// Takes over what the socket's options say.
    pub(crate) fn udp_set_options(&mut self, number: u32, fields: IpFields, options: UdpOptions) {
        let place = |socket: &UdpSocket| (socket.options.device, socket.options.cpu);
        let moves = self.udp.get(number).map(place) != Some((options.device, options.cpu));
        if moves {
            self.udp_take_out(number);
        }
        if let Some(socket) = self.udp.get_mut(number) {
            socket.set_options(fields, options);
        }
        if moves {
            self.udp_enter(number);
        }
    }

    /// Connects it to `peer`, or to none, with `local` as its address.
    pub fn udp_connect(&mut self, number: u32, local: SocketAddr, peer: Option<SocketAddr>) {
        self.udp_take_out(number);
        if let Some(socket) = self.udp.get_mut(number) {
            (socket.local, socket.peer) = (local, peer);
        }
        self.udp_enter(number);
    }

    /// It was bound before, lost its port with its peer, and is bound again.
    pub(crate) fn udp_bind_again(&mut self, number: u32, binding: &Binding) {
        self.udp_take_out(number);
        if let Some(socket) = self.udp.get_mut(number) {
            (socket.local, socket.v6_only) = (binding.address, binding.v6_only);
            (socket.order, socket.shares) = (binding.order, binding.shares);
        }
        self.udp_enter(number);
    }

    /// Panics if a socket is not found where it should be, or is found where it is not.
    pub(super) fn check_udp_lookup(&self) {
        for (number, socket) in self.udp.iter() {
            let (ip, port) = (socket.local.ip(), socket.local.port());
            let bound = if socket.is_ping() {
                &self.lookup.pings
            } else {
                &self.lookup.datagrams
            };
            let interface = socket.options.device.unwrap_or(0);
            let mut found = bound.hearers(ip, port, interface);
            assert!(found.any(|n| n == number), "a socket is not at its address");
        }
        let connected = self.udp.iter().filter(|(_, s)| s.flow().is_some()).count();
        assert_eq!(connected, self.lookup.connected.len(), "connected sockets");
        let is_of_host = |s: &UdpSocket| s.flow().is_some_and(|flow| flow.remote_port == 0);
        let of_hosts = self.udp.iter().filter(|(_, s)| is_of_host(s)).count();
        assert_eq!(of_hosts, self.lookup.of_hosts, "sockets of a whole host");
    }

    /// Opens a bound socket. `None`: too many.
    pub(crate) fn udp_open(
        &mut self,
        binding: &Binding,
        (fields, options): (IpFields, UdpOptions),
        together: Option<Arc<Together>>,
    ) -> Option<u32> {
        let mut socket = UdpSocket {
            local: binding.address,
            protocol: binding.protocol,
            peer: None,
            v6_only: binding.v6_only,
            order: binding.order,
            shares: binding.shares,
            queue: VecDeque::with_capacity(places(options)),
            queued: 0,
            memory: 0,
            drops: 0,
            error: None,
            together,
            errors: None,
            notices: None,
            corked: None,
            wakers: Wakers::default(),
            fields,
            options,
            read_shut: false,
            write_shut: false,
            lacks: 0,
            waits: false,
            multicast: None,
        };
        socket.keep_errors(false);
        let number = self.udp.insert(socket).ok()?;
        self.udp_enter(number);
        self.publish_load();
        Some(number)
    }

    /// The socket with this number.
    pub fn udp(&self, number: u32) -> Option<&UdpSocket> {
        self.udp.get(number)
    }

    /// The socket with this number, to change.
    pub fn udp_mut(&mut self, number: u32) -> Option<&mut UdpSocket> {
        self.udp.get_mut(number)
    }

    /// Closes it.
    pub fn udp_close(&mut self, number: u32) {
        self.udp_take_out(number);
        self.samples.forget(Reader::Udp(number));
        if let Some(socket) = self.udp.remove(number) {
            self.udp_queued -= socket.queue.len();
            for waiting in socket.queue {
                self.datagrams_gone(waiting.peer, waiting.packet.true_size());
                self.pool.shelf_mut().free(waiting.place);
            }
        }
        if self.udp.len() == 0 {
            self.memory.udp.give_back(&mut self.memory.datagrams);
        }
        self.publish_load();
    }

    /// Later receives say end of stream, later sends EPIPE.
    pub fn udp_shutdown(&mut self, number: u32, read: bool, write: bool) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.read_shut |= read;
            socket.write_shut |= write;
            socket.wakers.wake(Readiness(!0), &mut self.woken);
        }
    }

    /// What it is ready for.
    pub fn udp_readiness(&mut self, number: u32) -> Readiness {
        let has_buffers = self.udp_has_buffers(number);
        let socket = self.udp.get(number);
        socket.map_or(Readiness::HANGUP, |s| s.readiness(has_buffers))
    }

    /// Registers a waker, or wakes it at once: then true.
    pub fn udp_register(&mut self, number: u32, interest: Readiness, waker: &Waker) -> bool {
        let has_buffers = !interest.contains(Readiness::WRITABLE) || self.udp_has_buffers(number);
        match self.udp.get_mut(number) {
            Some(socket) if !socket.meets(interest, has_buffers) => {
                socket.wakers.register(interest, waker);
                false
            }
            _ => {
                waker.wake_by_ref();
                true
            }
        }
    }

    /// Forgets a waker.
    pub fn udp_deregister(&mut self, number: u32, waker: &Waker) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.wakers.deregister(waker);
        }
    }

    /// SO_ERROR.
    pub fn udp_take_error(&mut self, number: u32) -> Option<i32> {
        self.udp.get_mut(number)?.error.take()
    }

    /// An error that another part had.
    pub(crate) fn udp_raise(&mut self, number: u32, errno: i32) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.raise(errno);
        }
    }

    pub(super) fn wake_datagrams(&mut self) {
        for socket in self.udp.iter_mut() {
            socket.raise(libc::ENETDOWN);
            socket.wakers.wake(Readiness(!0), &mut self.woken);
        }
    }

    /// UDP sockets with their numbers.
    pub fn udp_sockets(&self) -> impl Iterator<Item = (u32, &UdpSocket)> {
        self.udp.iter()
    }
}
