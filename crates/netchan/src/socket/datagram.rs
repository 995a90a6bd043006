//! A socket that speaks UDP, or a ping socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use proto::{time::Instant, wire::ipv4::Protocol};

use super::{Other, Role, Socket, SocketOption, multicast::bound_source, options::SocketOptions};
use crate::api::multicast::Settings;
use crate::api::{
    Domain, Kind, Readiness, ReceiveFlags, Received, ReceivedError, SendInfo, UdpOption,
};
use crate::{
    driver::{network::Network, steer::spread},
    errno::error,
    flow::FlowKey,
    shard::{Destination, Echo, Shard, Stamped, Together},
    stack::Stack,
};

/// A UDP or a ping socket: a part of it in each shard, since anyone may send to it; or in one, where each socket has a shard of its own.
pub(super) struct Datagram {
    /// UDP, or ICMP or ICMPv6.
    protocol: Protocol,
    /// The shard of the first part.
    begin: usize,
    parts: Vec<u32>,
    /// Where receive looks first: each shard gets its turn.
    next: AtomicUsize,
    /// What they share, where there are several.
    together: Option<Arc<Together>>,
}

impl Datagram {
    fn each(&self, stack: &Stack, mut f: impl FnMut(&mut Shard, u32) + Send) {
        for (shard, &part) in (self.begin..).zip(&self.parts) {
            stack.with_shard(shard, |shard, _| f(shard, part));
        }
    }

    /// As a socket has one error, which the next call answers: the part at `at` gets what any part has.
    fn gather(&self, stack: &Stack, at: usize) {
        if !(self.together.as_ref()).is_some_and(|together| together.take_raised()) {
            return;
        }
        if let Some(errno) = self.take_error(stack) {
            stack.with_shard(self.begin + at, |shard, _| {
                shard.udp_raise(self.parts[at], errno);
            });
        }
    }

    /// From whichever part has something.
    fn receive(
        &self,
        stack: &Stack,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> Result<Received, i32> {
        let count = self.parts.len();
        let first = self.turn();
        self.gather(stack, first % count);
        let mut result = Err(libc::EAGAIN);
        for step in 0..count {
            let at = (first + step) % count;
            let part = self.parts[at];
            let found = stack.with_shard_fresh(self.begin + at, |shard, now| {
                shard.udp_receive(part, buffers, flags, now)
            });
            match found {
                Err(libc::EAGAIN) => {}
                // The end of what comes in: what another part has goes before.
                Ok(end) if end.from.is_none() => result = Ok(end),
                found => return found,
            }
        }
        result
    }

    /// The part whose turn it is to receive: that with what came first, as far as is known.
    fn turn(&self) -> usize {
        let first = (self.together.as_ref()).and_then(|together| together.first());
        first.unwrap_or_else(|| self.next.fetch_add(1, Relaxed)) // only spreads the load
    }

    pub fn first<R: Send>(&self, stack: &Stack, f: impl FnOnce(&mut Shard, u32) -> R + Send) -> R {
        stack.with_shard(self.begin, |shard, _| f(shard, self.parts[0]))
    }

    /// The part that receives what `to` answers, ICMP errors included: what they say of the path is known where it is needed.
    fn toward<R: Send>(
        &self,
        stack: &Stack,
        to: &Destination,
        f: impl FnOnce(&mut Shard, u32, Instant) -> R + Send,
    ) -> R {
        let at = match self.parts.len() {
            1 => 0,
            count => {
                let is_ping = self.protocol != Protocol::UDP;
                let key = FlowKey {
                    local: to.local.ip(),
                    remote: to.remote.ip(),
                    local_port: to.local.port(),
                    remote_port: if is_ping { 0 } else { to.remote.port() },
                    protocol: self.protocol,
                };
                spread(stack.control.host.flow_hash.hash(&key), count)
            }
        };
        self.gather(stack, at);
        let part = self.parts[at];
        stack.with_shard(self.begin + at, |shard, now| f(shard, part, now))
    }

    /// A send's result; its first part, which tells of sends, gets the time stamps that it asked for.
    fn stamp<T>(&self, stack: &Stack, (sent, stamped): (T, Option<Stamped>)) -> T {
        if let Some(stamped) = stamped {
            let now = stack.clock.now();
            self.first(stack, |shard, part| shard.udp_stamp(part, stamped, now));
        }
        sent
    }

    /// The shard where it lives, if that is one.
    pub const fn shard(&self) -> Option<usize> {
        if self.parts.len() == 1 {
            Some(self.begin)
        } else {
            None
        }
    }

    pub fn local(&self, stack: &Stack) -> SocketAddr {
        self.first(stack, |shard, part| shard.udp(part).map(|s| s.local))
            .unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
    }

    pub fn peer(&self, stack: &Stack) -> Option<SocketAddr> {
        self.first(stack, |shard, part| shard.udp(part)?.peer)
    }

    /// Hands the options to all parts; without UDP_CORK, what waited for more goes.
    pub fn set_options(&self, stack: &Stack, option: SocketOption, options: &SocketOptions) {
        let of_shards = options.udp_options(&stack.control.host);
        self.each(stack, |shard, part| {
            shard.udp_set_options(part, options.fields(), of_shards);
        });
        if option == SocketOption::Udp(UdpOption::Cork(false)) {
            // As Linux: what becomes of it is not told.
            let sent = stack.with_shard(self.begin, |shard, now| {
                let sent = shard.udp_uncork(self.parts[0], now);
                (sent, shard.udp_take_stamped())
            });
            let _ = self.stamp(stack, sent);
        }
    }

    pub fn set_multicast(&self, stack: &Stack, settings: &Arc<Settings>) {
        self.each(stack, |shard, part| {
            if let Some(socket) = shard.udp_mut(part) {
                socket.set_multicast(Some(settings.clone()));
            }
        });
    }

    /// As Linux: without a peer it is an error, but has its effect.
    pub fn shutdown(&self, stack: &Stack, read: bool, write: bool) -> Result<(), i32> {
        self.each(stack, |shard, part| shard.udp_shutdown(part, read, write));
        self.peer(stack).map(|_| ()).ok_or(libc::ENOTCONN)
    }

    pub fn readiness(&self, stack: &Stack) -> Readiness {
        let (mut ready, mut writable) = (Readiness::NONE, true);
        self.each(stack, |shard, part| {
            let part = shard.udp_readiness(part);
            ready = ready | part;
            writable &= part.contains(Readiness::WRITABLE);
        });
        // Where the next datagram goes says which part sends it.
        if !writable {
            ready.0 &= !Readiness::WRITABLE.0;
        }
        ready
    }

    /// A part that is not writable, if any is.
    fn stuck(&self, stack: &Stack) -> Option<usize> {
        let mut stuck = None;
        let mut at = 0;
        self.each(stack, |shard, part| {
            if !shard.udp_readiness(part).contains(Readiness::WRITABLE) {
                stuck = Some(at);
            }
            at += 1;
        });
        stuck
    }

    pub fn register(&self, stack: &Stack, interest: Readiness, waker: &Waker) -> bool {
        let asks_all = self.parts.len() > 1 && interest.contains(Readiness::WRITABLE);
        let stuck = if asks_all { self.stuck(stack) } else { None };
        let rest = Readiness(interest.0 & !Readiness::WRITABLE.0);
        let (mut ready, mut at) = (false, 0);
        self.each(stack, |shard, part| {
            let wants = stuck.is_none_or(|stuck| stuck == at);
            ready |= shard.udp_register(part, if wants { interest } else { rest }, waker);
            at += 1;
        });
        ready
    }

    pub fn deregister(&self, stack: &Stack, waker: &Waker) {
        self.each(stack, |shard, part| shard.udp_deregister(part, waker));
    }

    pub fn take_error(&self, stack: &Stack) -> Option<i32> {
        let mut error = None;
        self.each(stack, |shard, part| {
            if error.is_none() {
                error = shard.udp_take_error(part);
            }
        });
        error
    }

    pub fn available(&self, stack: &Stack) -> usize {
        let of = |at: usize| {
            stack.with_shard(self.begin + at, |shard, _| {
                let socket = shard.udp(self.parts[at]);
                socket.map_or(0, crate::shard::UdpSocket::first_len)
            })
        };
        let Some(together) = &self.together else {
            return of(0);
        };
        // What has come and is not taken in yet becomes known by the look at it.
        (0..self.parts.len()).for_each(|at| _ = of(at));
        together.first().map_or(0, of)
    }

    pub fn close(&self, stack: &Stack) {
        self.each(stack, Shard::udp_close);
    }
}

impl Socket {
    /// A bound datagram socket starts to receive.
    pub(super) fn open_datagram(&self, options: &SocketOptions) -> io::Result<()> {
        let protocol = self.kind.protocol(self.domain);
        let Some(binding) = options.as_bound(protocol) else {
            return Err(error(libc::EINVAL));
        };
        if let Some(Role::Datagram(datagram)) = self.role() {
            // It was bound before.
            datagram.each(self.stack(), |shard, part| {
                shard.udp_bind_again(part, &binding);
            });
            return Ok(());
        }
        let shards = match &self.stack().control.host.assignment {
            Some(assignment) => {
                let own = assignment.of_port(binding.address.port());
                own..own + 1
            }
            None => 0..self.stack().sockets.cells.len(),
        };
        let mut datagram = Datagram {
            protocol,
            begin: shards.start,
            parts: Vec::with_capacity(shards.len()),
            next: AtomicUsize::new(0),
            together: (shards.len() > 1).then(|| Arc::new(Together::new(shards.len()))),
        };
        let of_shards = options.udp_options(&self.stack().control.host);
        for shard in shards {
            let part = self.stack().with_shard(shard, |shard, _| {
                shard.udp_open(
                    &binding,
                    (options.fields(), of_shards),
                    datagram.together.clone(),
                )
            });
            match part {
                Some(part) => datagram.parts.push(part),
                None => {
                    datagram.close(self.stack());
                    return Err(error(libc::ENOBUFS));
                }
            }
        }
        if let Some(settings) = &options.multicast {
            datagram.set_multicast(self.stack(), settings);
        }
        if options.shut != (false, false) {
            let _ = datagram.shutdown(self.stack(), options.shut.0, options.shut.1); // without a peer: an error
        }
        let _ = self.other.set(Box::new(Other::Datagram(datagram)));
        Ok(())
    }

    /// Binds one that is bound to nothing, or is no more.
    pub(super) fn bind_datagram(&self, options: &mut SocketOptions) -> io::Result<()> {
        if options.binding().is_none() {
            self.bind_any(options)?;
            self.open_datagram(options)?;
        }
        Ok(())
    }

    /// connect(2) with AF_UNSPEC: it has no peer any more, and no port, unless bind(2) named that.
    pub(super) fn disconnect_datagram(&self, options: &mut SocketOptions) -> io::Result<()> {
        let Some(Role::Datagram(datagram)) = self.role() else {
            return Ok(()); // as Linux says of one that never had any
        };
        // Where each socket has a shard of its own the port says which: it stays.
        if self.stack().control.host.assignment.is_none() {
            self.release(options);
        }
        let mut local = (options.source()).unwrap_or_else(|| SocketAddr::new(self.wildcard(), 0));
        if self.domain == Domain::V6 && local.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            // As Linux: the mapped wildcard counts as an address, and what a connect made of it stays.
            local.set_ip(datagram.local(self.stack()).ip());
        }
        if options.mapped_source.is_some() {
            options.mapped_source = None;
        }
        datagram.each(self.stack(), |shard, part| {
            shard.udp_connect(part, local, None);
        });
        self.stands_at(options, local.ip());
        Ok(())
    }

    /// connect(2) on a datagram socket, which has a port.
    pub(super) fn connect_datagram(
        &self,
        options: &mut SocketOptions,
        peer: SocketAddr,
    ) -> io::Result<()> {
        if self.stack().control.host.network().is_broadcast(peer.ip()) && !options.may_broadcast() {
            return Err(error(libc::EACCES));
        }
        let (_, source) =
            (self.way_to(options, peer.ip())).ok_or_else(|| error(libc::ENETUNREACH))?;
        let Some(Role::Datagram(datagram)) = self.role() else {
            return Err(error(libc::EINVAL));
        };
        // As Linux: a connected socket has the source address that its first route gives it, until it is disconnected.
        let mut local = datagram.local(self.stack());
        if local.ip().is_unspecified() {
            local.set_ip(source);
        } else if local.is_ipv6() && peer.is_ipv4() && options.mapped_source.is_none() {
            // The same of IPv4, beside its IPv6 address.
            options.mapped_source = Some(source);
        }
        datagram.each(self.stack(), |shard, part| {
            shard.udp_connect(part, local, Some(peer));
        });
        self.stands_at(options, local.ip());
        Ok(())
    }

    /// As [`send`](Self::send), with what shall go with the datagram; with a segment size it becomes many datagrams (up to 128, 64 KiB in
    /// all). For datagram sockets.
    ///
    /// ```no_run
    /// # use std::{io::IoSlice, net::SocketAddr};
    /// # use netchan::socket::{SendInfo, Socket};
    /// # fn f(socket: &Socket, to: SocketAddr) -> std::io::Result<()> {
    /// // Ten datagrams of 1200 bytes.
    /// socket.send_message(&[IoSlice::new(&[0; 12_000])], Some(to), &SendInfo::segmented(1200))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for `send`; ENETUNREACH or `InvalidInput` for a source that is no address of ours, `InvalidInput` for too many datagrams, ENODEV, `Unsupported` for a
    /// stream.
    pub fn send_message(
        &self,
        buffers: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        info: &SendInfo,
    ) -> io::Result<usize> {
        if self.kind == Kind::Stream {
            return Err(error(libc::EOPNOTSUPP));
        }
        if self.role().is_none() {
            self.bind_datagram(&mut self.options.lock())?;
        }
        let sent = if self.kind == Kind::Ping {
            self.send_echo(buffers, to, info)
        } else {
            self.send_datagram(buffers, (to, None), info)
        };
        if sent.is_err() {
            let _ = self.bind_to_send(); // the first error is the one to tell
        }
        sent
    }

    /// Gives a datagram socket that is bound to nothing, or lost its port with its peer, a port, as on Linux any send does, whatever becomes
    /// of it.
    ///
    /// # Errors
    /// `AddrInUse`: no port is free.
    pub fn bind_to_send(&self) -> io::Result<()> {
        if self.kind == Kind::Stream {
            return Ok(());
        }
        self.bind_datagram(&mut self.options.lock())
    }

    /// A ping socket's send: what more there may be of a message is not waited for, and it is never cut into many.
    fn send_echo(
        &self,
        buffers: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        info: &SendInfo,
    ) -> io::Result<usize> {
        let echo = Echo::read(self.kind.protocol(self.domain), buffers).map_err(error)?;
        let is_mapped = |to: SocketAddr| to.is_ipv4() || to.ip().to_canonical().is_ipv4();
        if self.domain == Domain::V6 && to.is_some_and(is_mapped) {
            return Err(error(libc::EINVAL));
        }
        let info = SendInfo {
            more: false,
            segment: None,
            ..*info
        };
        self.send_datagram(buffers, (to, Some(echo)), &info)
    }

    fn send_datagram(
        &self,
        buffers: &[IoSlice<'_>],
        (to, echo): (Option<SocketAddr>, Option<Echo>),
        info: &SendInfo,
    ) -> io::Result<usize> {
        let Some(Role::Datagram(datagram)) = self.role() else {
            return Err(error(libc::EINVAL));
        };
        if echo.is_none()
            && let Some(sent) = self.send_at_once(datagram, buffers, to, info)
        {
            return sent;
        }
        let facts = |shard: &mut Shard, part| {
            let socket = shard.udp(part)?;
            let ends = (socket.local, socket.peer);
            Some((ends, (socket.device(), socket.mark()), socket.corked()))
        };
        let ((mut local, peer), wish, (is_corked, under_way)) = datagram
            .first(self.stack(), facts)
            .ok_or_else(|| error(libc::EBADF))?;
        if local.port() == 0 {
            // It was connected once, and lost its port with its peer.
            self.bind_datagram(&mut self.options.lock())?;
            local = datagram.local(self.stack());
        }
        if info.urgent && self.domain == Domain::V4 {
            return Err(error(libc::EOPNOTSUPP));
        }
        let to = match under_way {
            Some(to) => to,
            None => {
                let remote = self.remote(to, peer, info)?;
                if local.is_ipv6()
                    && remote.is_ipv4()
                    && let Some(source) = self.options.lock().mapped_source
                {
                    local.set_ip(source);
                }
                let net = self.stack().control.host.network();
                self.destination(&net, (local, remote), info, wish)?
            }
        };
        if let Some(echo) = echo {
            let send = |shard: &mut Shard, part, now| {
                let sent = shard.ping_send(part, (to, echo), info, buffers, now);
                (sent, shard.udp_take_stamped())
            };
            let sent = datagram.toward(self.stack(), &to, send);
            return datagram.stamp(self.stack(), sent).map_err(error);
        }
        // What several sends make up is put together in one place.
        if info.more || is_corked {
            datagram.gather(self.stack(), 0);
            let send = |shard: &mut Shard, now| {
                let sent = shard.udp_send(datagram.parts[0], to, info, buffers, now);
                (sent, shard.udp_take_stamped())
            };
            let sent = self.stack().with_shard(datagram.begin, send);
            return datagram.stamp(self.stack(), sent).map_err(error);
        }
        let sent = datagram.toward(self.stack(), &to, |shard, part, now| {
            let sent = shard.udp_send(part, to, info, buffers, now);
            (sent, shard.udp_take_stamped())
        });
        datagram.stamp(self.stack(), sent).map_err(error)
    }

    /// The ordinary datagram: of a socket that lives in one shard, whole, to one host. The shard is held once. `None`: it is not that.
    fn send_at_once(
        &self,
        datagram: &Datagram,
        buffers: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        info: &SendInfo,
    ) -> Option<io::Result<usize>> {
        let &[part] = datagram.parts.as_slice() else {
            return None;
        };
        // Of IPv6 an address may mean IPv4, which the socket's lock knows.
        if info.more || info.urgent || (self.domain == Domain::V6 && to.is_some()) {
            return None;
        }
        (self.stack()).with_shard_to_send(datagram.begin, |shard, now| {
            let socket = shard.udp(part)?;
            let (local, wish) = (socket.local, (socket.device(), socket.mark()));
            let remote = to.or(socket.peer)?;
            // What several sends make up.
            if socket.is_corked() {
                return None;
            }
            let by_routes = info.source.is_none() && info.interface.is_none() && wish == (None, 0);
            let known = (shard.udp_route.get(local, remote)).filter(|_| by_routes);
            let to = match known {
                Some(to) => Ok(to),
                None => {
                    let found = self.one_host(shard.network(), (local, remote), info, wish)?;
                    if let Ok(to) = found
                        && by_routes
                    {
                        shard.udp_route.put(local, to);
                    }
                    found
                }
            };
            let sent =
                to.and_then(|to| (shard.udp_send(part, to, info, buffers, now)).map_err(error));
            if let Some(stamped) = shard.udp_take_stamped() {
                shard.udp_stamp(part, stamped, now);
            }
            Some(sent)
        })
    }

    /// Where a datagram to one host goes. `None`: a port has to be found first, a right to send asked for, or something refused.
    #[inline(never)]
    fn one_host(
        &self,
        net: &Network,
        (local, remote): (SocketAddr, SocketAddr),
        info: &SendInfo,
        wish: (Option<u8>, u32),
    ) -> Option<io::Result<Destination>> {
        let ip = remote.ip();
        if local.port() == 0
            || remote.port() == 0
            || local.is_ipv4() != remote.is_ipv4()
            || ip.is_unspecified()
            || ip.is_multicast()
            || net.is_broadcast(ip)
            || self.stays(net, None, (local.ip(), ip))
        {
            return None;
        }
        Some(self.destination(net, (local, remote), info, wish))
    }

    /// Where a datagram goes: `to`, or to the peer. Linux's refusals in Linux's order.
    fn remote(
        &self,
        to: Option<SocketAddr>,
        peer: Option<SocketAddr>,
        info: &SendInfo,
    ) -> io::Result<SocketAddr> {
        let options = self.options.lock();
        let mut remote = match to {
            Some(to) if to.is_ipv4() && options.v6_only => return Err(error(libc::ENETUNREACH)),
            Some(to) => self.inward_by(&options, to)?,
            None => peer.ok_or_else(|| error(libc::EDESTADDRREQ))?,
        };
        // `::` may be IPv4's this host.
        let this_host = (remote.ip().is_unspecified())
            .then(|| self.this_host(&options, remote.ip()))
            .transpose()?;
        let is_ipv4 = this_host.unwrap_or(remote.ip()).is_ipv4();
        if info.urgent && is_ipv4 {
            return Err(error(libc::EOPNOTSUPP));
        }
        // As Linux: what connect took is not asked again, but of an IPv6 socket's IPv4 peer.
        let is_ping = self.kind == Kind::Ping;
        let is_asked = to.is_some() || (self.domain == Domain::V6 && is_ipv4) || is_ping;
        if is_asked && remote.port() == 0 && !is_ping {
            return Err(error(libc::EINVAL));
        }
        if let Some(this_host) = this_host {
            remote.set_ip(this_host);
        }
        self.may_reach(&options, remote)?;
        if is_asked
            && self
                .stack()
                .control
                .host
                .network()
                .is_broadcast(remote.ip())
            && !options.may_broadcast()
        {
            return Err(error(libc::EACCES));
        }
        Ok(remote)
    }

    /// From where to where a datagram goes, by the socket's own address, the route, and what the program says.
    fn destination(
        &self,
        net: &Network,
        (local, remote): (SocketAddr, SocketAddr),
        info: &SendInfo,
        (device, mark): (Option<u8>, u32),
    ) -> io::Result<Destination> {
        let strays = device.is_some() && info.interface.is_some() && info.interface != device;
        // As Linux: of IPv4 what the call says counts.
        if strays && remote.is_ipv6() {
            return Err(error(libc::EINVAL));
        }
        let route = match info.interface {
            Some(number) => {
                let interface = net.interfaces.get(usize::from(number));
                let interface = interface.ok_or_else(|| error(libc::ENODEV))?;
                let source = interface.addresses.source_for(remote.ip());
                source.map(|source| (number, source))
            }
            None if device.is_some() => net.route_by(device, remote.ip(), mark),
            None if remote.ip().is_multicast() => self.way_to(&self.options.lock(), remote.ip()),
            None => net.route(remote.ip(), mark),
        };
        let (interface, source) = route.ok_or_else(|| error(libc::ENETUNREACH))?;
        let ip = match info.source.map(|ip| ip.to_canonical()) {
            Some(ip) if ip.is_unspecified() => source,
            Some(ip) if net.is_local(ip) && ip.is_ipv4() == remote.is_ipv4() => ip,
            // As Linux, which looks for a route from there.
            Some(IpAddr::V4(_)) if remote.is_ipv4() => return Err(error(libc::ENETUNREACH)),
            Some(_) => return Err(error(libc::EINVAL)),
            None => bound_source(net, local)
                .filter(|ip| ip.is_ipv4() == remote.is_ipv4())
                .unwrap_or(source),
        };
        if self.stays(net, Some(interface), (ip, remote.ip())) {
            return Err(error(libc::EINVAL));
        }
        Ok(Destination {
            local: SocketAddr::new(ip, local.port()),
            remote,
            interface,
        })
    }

    /// Takes the oldest error that a socket with [`UdpOption::ReceiveErrors`] keeps, with the payload of the datagram that it is about
    /// (recvmsg(2) with MSG_ERRQUEUE). Never waits.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn receive_error(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<ReceivedError> {
        let Some(Role::Datagram(datagram)) = self.role() else {
            return Err(error(libc::EAGAIN));
        };
        for (shard, &part) in (datagram.begin..).zip(&datagram.parts) {
            let receive = |shard: &mut Shard, _| shard.udp_receive_error(part, buffers);
            match self.stack().with_shard_fresh(shard, receive) {
                Err(libc::EAGAIN) => {}
                Err(errno) => return Err(error(errno)),
                Ok(mut received) => {
                    let error = &mut received.error;
                    error.destination = self.outward(error.destination);
                    error.offender = error.offender.map(|ip| self.outward_ip(ip));
                    return Ok(received);
                }
            }
        }
        Err(error(libc::EAGAIN))
    }

    /// IP_MTU, IPV6_MTU: what the path to the peer of a connected datagram socket is known to take, bytes of an IP packet.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn path_mtu(&self) -> io::Result<usize> {
        let mtu = match self.role() {
            Some(Role::Datagram(datagram)) => {
                let ends = datagram.first(self.stack(), |shard, part| {
                    let socket = shard.udp(part)?;
                    Some((socket.local, socket.peer?))
                });
                ends.and_then(|(local, remote)| {
                    let to = Destination {
                        local,
                        remote,
                        interface: 0,
                    };
                    datagram.toward(self.stack(), &to, |shard, part, now| {
                        shard.udp_path_mtu(part, now)
                    })
                })
            }
            _ => None,
        };
        mtu.ok_or_else(|| error(libc::ENOTCONN))
    }

    fn outward_ip(&self, ip: IpAddr) -> IpAddr {
        self.outward(SocketAddr::new(ip, 0)).ip()
    }

    /// The address of ours that an answer to a datagram goes out from (`ipi_spec_dst`): what it was sent to, or if that is no host's (a
    /// group, a broadcast address) ours toward the sender.
    pub fn answer_from(&self, received: &Received) -> Option<IpAddr> {
        let (info, from) = (received.info?, received.from?);
        let net = self.stack().control.host.network();
        let to = info.destination.ip().to_canonical();
        if !net.is_group(to) {
            return Some(to);
        }
        let interface = net.interfaces.get(usize::from(info.interface))?;
        interface.addresses.source_for(from.ip().to_canonical())
    }

    pub(super) fn receive_datagram(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> io::Result<Received> {
        let Some(Role::Datagram(datagram)) = self.role() else {
            return Err(error(libc::EINVAL));
        };
        let mut result = match datagram.parts.as_slice() {
            &[part] => (self.stack()).with_shard_fresh(datagram.begin, |shard, now| {
                shard.udp_receive(part, buffers, flags, now)
            }),
            _ => datagram.receive(self.stack(), buffers, flags),
        };
        if self.domain == Domain::V6
            && let Ok(received) = &mut result
        {
            received.from = received.from.map(|from| self.outward(from));
            if let Some(info) = &mut received.info {
                info.destination = self.outward(info.destination);
            }
        }
        result.map_err(error)
    }
}
