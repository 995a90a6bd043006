//! Packets of any protocol through an application's own channel (C6): what raw sockets and packet sockets are elsewhere. Packets are read where they
//! lie.

mod lent;

use std::{
    fmt,
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use percore::lock::{Mutex, mutex};
use proto::wire::{
    ethernet::{EtherType, MacAddr},
    ipv4::Protocol,
};

use self::lent::Held;
pub use self::lent::LentPacket;
use super::{
    std_like::{Settings, block_on, checked},
    wait::Waiter,
};
use crate::{
    api::Readiness,
    channel::{PacketChannelCore, PacketProtocol},
    errno::{error, invalid},
    limits, locks,
    net::Net,
    shard::{PacketFields, Path, Shard},
    stack::Stack,
};

/// TTL and hop limit, unless a send says otherwise: as Linux. Of packets to groups 1, as it, too.
const TTL: u8 = 64;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketDestination {
    /// An IP packet, to a host or a group.
    Host(IpAddr),
    /// A frame, by the link with this number ([`Net::link_named`]) to a station or a group of stations.
    Station {
        /// The link.
        link: u8,
        /// The station.
        mac: MacAddr,
    },
}

impl From<IpAddr> for PacketDestination {
    fn from(ip: IpAddr) -> Self {
        Self::Host(ip)
    }
}

impl From<Ipv4Addr> for PacketDestination {
    fn from(ip: Ipv4Addr) -> Self {
        Self::Host(ip.into())
    }
}

impl From<Ipv6Addr> for PacketDestination {
    fn from(ip: Ipv6Addr) -> Self {
        Self::Host(ip.into())
    }
}

/// What an IP packet's header shall say; a frame has nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions {
    /// One of our addresses; `None`: ours on the link that the route leads by.
    pub source: Option<IpAddr>,
    /// The link that it leaves by; `None`: that of the route.
    pub link: Option<u8>,
    /// TTL or hop limit; `None`: 64, to groups 1.
    pub ttl: Option<u8>,
    /// Type of service or traffic class.
    pub tos: u8,
    /// EMSGSIZE for what is longer than the path takes, instead of fragments; no router cuts it, either.
    pub dont_fragment: bool,
}

/// An application's own channel for packets of one protocol that the stack does not speak. Usable from any thread; dropping it closes it: the
/// protocol is unserved then, and the packets that wait are gone.
///
/// From each link leads a ring of 512 packets. What finds it full is dropped and counted (`drop_packet_channel_full`, [`Self::drops`]), and so is what comes while
/// less than a quarter of the link's receive buffers are free (`drop_packet_channel_buffers`). Fragments are put together before. Packets of every
/// address of ours, and of groups that the stack is in, are heard; modules see IP packets first.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// # let net = netchan::Net::builder().link("tap:nc0")?.address("10.77.0.2/24")?.start()?;
/// use netchan::PacketProtocol;
///
/// let channel = net.packet_channel(PacketProtocol::Ip(253))?; // for experiments (RFC 3692)
/// let packet = channel.recv()?;
/// let from = packet.source_ip().expect("an IP packet");
/// channel.send_to(packet.payload(), from)?; // the buffer goes home when `packet` is dropped
/// # Ok(())
/// # }
/// ```
pub struct PacketChannel {
    net: Net,
    core: Arc<PacketChannelCore>,
    /// The shard whose buffers it sends from.
    shard: usize,
    held: Arc<Held>,
    settings: Mutex<Settings>,
}

impl fmt::Debug for PacketChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketChannel")
            .field("protocol", &self.protocol())
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl PacketChannel {
    pub(crate) fn open(net: &Net, protocol: PacketProtocol) -> io::Result<Self> {
        protocol.check()?;
        let stack = net.stack();
        let core = stack.open_packet_channel(protocol).map_err(error)?;
        Ok(Self {
            net: net.clone(),
            core,
            shard: stack.shard_of_caller(),
            held: Arc::new(Held::new(limits::PACKETS_HELD)),
            settings: mutex(&locks::SETTINGS, Settings::default()),
        })
    }

    fn stack(&self) -> &Arc<Stack> {
        self.net.stack()
    }

    /// Of which packets it is.
    pub fn protocol(&self) -> PacketProtocol {
        self.core.protocol()
    }

    /// Receives a packet; waits for one.
    ///
    /// # Errors
    /// As for [`Self::recv_batch`].
    pub fn recv(&self) -> io::Result<LentPacket> {
        let mut one = None;
        self.receive(1, &mut |packet| one = Some(packet))?;
        one.ok_or_else(|| error(libc::EAGAIN))
    }

    /// Receives what waits, at most `most` packets, and waits for the first one. Appends them to `packets`; how many.
    ///
    /// # Errors
    /// `WouldBlock` after the read timeout, or of a channel that does not wait; ENOBUFS: the application holds as many packets as it may
    /// ([`Self::set_held_max`]); ENETDOWN: all links are gone.
    pub fn recv_batch(&self, packets: &mut Vec<LentPacket>, most: usize) -> io::Result<usize> {
        self.receive(most, &mut |packet| packets.push(packet))
    }

    fn receive(&self, most: usize, give: &mut dyn FnMut(LentPacket)) -> io::Result<usize> {
        let settings = *self.settings.lock();
        let mut call = || self.take(most, give);
        if settings.nonblocking {
            return call();
        }
        self.wait(Readiness::READABLE, settings.read_timeout, call)
    }

    /// What waits; where that is nothing, the links are looked at if no other thread does.
    fn take(&self, most: usize, give: &mut dyn FnMut(LentPacket)) -> io::Result<usize> {
        if most == 0 {
            return Ok(0);
        }
        let most = self.held.reserve(most);
        if most == 0 {
            return Err(error(libc::ENOBUFS));
        }
        let protocol = self.protocol();
        let mut put = |packet| give(LentPacket::new(packet, protocol, self.held.clone()));
        let mut count = self.core.take(most, &mut put);
        if count == 0 {
            self.stack().look_at_links(self.shard);
            count = self.core.take(most, &mut put);
        }
        self.held.give_back(most - count);
        if count == 0 {
            let is_cut_off = self.stack().driver.all_are_gone();
            let errno = if is_cut_off {
                libc::ENETDOWN
            } else {
                libc::EAGAIN
            };
            return Err(error(errno));
        }
        Ok(count)
    }

    /// Sends `payload` in a packet, and waits for a buffer if none is free. The stack makes the IP header, or that of the frame with the
    /// link's own address as the source.
    ///
    /// # Errors
    /// As for [`Self::send_message`].
    pub fn send_to(&self, payload: &[u8], to: impl Into<PacketDestination>) -> io::Result<usize> {
        let buffers = [IoSlice::new(payload)];
        self.send_message(&buffers, to.into(), &PacketOptions::default())
    }

    /// The same with what lies in several buffers, and with what the IP header shall say.
    ///
    /// A packet to a group is not sent to this host as well. Routes and neighbours are as for UDP; what an ICMP error says of an earlier packet is
    /// not told. A path's MTU is heeded where TCP or UDP have found it.
    ///
    /// # Errors
    /// `InvalidInput`: the destination is none for this channel's protocol, or unspecified, or a loopback address would leave the host; `WouldBlock`
    /// after the write timeout, or of a channel that does not wait; EMSGSIZE: more than one packet takes, or, with `dont_fragment` and for frames,
    /// than the path or link does; `NetworkUnreachable`; EADDRNOTAVAIL: the source is no address of ours; ENODEV: no such link; ENETDOWN: it is gone.
    pub fn send_message(
        &self,
        buffers: &[IoSlice<'_>],
        to: PacketDestination,
        options: &PacketOptions,
    ) -> io::Result<usize> {
        let settings = *self.settings.lock();
        let call = || match (self.protocol(), to) {
            (PacketProtocol::Ip(number), PacketDestination::Host(remote)) => {
                let path = self.path(remote.to_canonical(), options)?;
                let fields = fields(number, path.remote, options);
                let send = |shard: &mut Shard, now| shard.send_ip(&path, &fields, buffers, now);
                let sent = self.stack().with_shard_to_send(self.shard, send);
                sent.map_err(error)
            }
            (PacketProtocol::EtherType(kind), PacketDestination::Station { link, mac }) => {
                self.check_link(link)?;
                let send =
                    |shard: &mut Shard, _| shard.send_frame((link, mac), EtherType(kind), buffers);
                let sent = self.stack().with_shard_to_send(self.shard, send);
                sent.map_err(error)
            }
            (PacketProtocol::Ip(_), PacketDestination::Station { .. }) => {
                Err(invalid("IP packets are sent to IP addresses"))
            }
            (PacketProtocol::EtherType(_), PacketDestination::Host(_)) => {
                Err(invalid("frames are sent by a link to a station"))
            }
        };
        if settings.nonblocking {
            return call();
        }
        self.wait(Readiness::WRITABLE, settings.write_timeout, call)
    }

    /// From where to where a packet goes.
    fn path(&self, remote: IpAddr, options: &PacketOptions) -> io::Result<Path> {
        if remote.is_unspecified() {
            return Err(invalid("the destination is no address"));
        }
        let net = self.stack().control.host.network();
        let route = match options.link {
            None => net.route(remote, 0),
            Some(number) => {
                let facts = net.interfaces.get(usize::from(number));
                let facts = facts.ok_or_else(|| error(libc::ENODEV))?;
                let source = facts.addresses.source_for(remote);
                source.map(|source| (number, source))
            }
        };
        let (interface, own) = route.ok_or_else(|| error(libc::ENETUNREACH))?;
        let local = match options.source.map(|ip| ip.to_canonical()) {
            Some(ip) if ip.is_ipv4() == remote.is_ipv4() && net.is_local(ip) => ip,
            Some(_) => return Err(error(libc::EADDRNOTAVAIL)),
            None => own,
        };
        if !net.may_send(interface, local, remote) {
            return Err(invalid("a loopback address stays on this host"));
        }
        self.check_link(interface)?;
        Ok(Path {
            local,
            remote,
            interface,
        })
    }

    fn check_link(&self, link: u8) -> io::Result<()> {
        let driver = &self.stack().driver;
        if usize::from(link) >= driver.links.len() {
            return Err(error(libc::ENODEV));
        }
        if driver.is_gone(link.into()) {
            return Err(error(libc::ENETDOWN));
        }
        Ok(())
    }

    fn wait<R>(
        &self,
        interest: Readiness,
        timeout: Option<Duration>,
        call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        block_on(
            self.stack(),
            timeout,
            |waiter| waiter.register_packets(self, interest),
            |waker| self.deregister(waker),
            call,
        )
    }

    /// What it is ready for at this moment.
    pub fn readiness(&self) -> Readiness {
        let mut ready = Readiness::NONE;
        self.stack().look_at_links(self.shard);
        if self.core.depth() > 0 {
            ready = ready | Readiness::READABLE;
        }
        let is_writable = |shard: &mut Shard, _| shard.packets_are_writable();
        if self.stack().with_shard(self.shard, is_writable) {
            ready = ready | Readiness::WRITABLE;
        }
        ready
    }

    /// Wakes `waker` once when any of `interest` may hold; at once where it holds already. As [`Socket::register`](super::Socket::register); the waker is
    /// woken by a thread that turns a link, and must not call the stack itself. True if it was woken already.
    pub fn register(&self, interest: Readiness, waker: &Waker) -> bool {
        if self.stack().layout.leases() {
            self.stack().hand_over(self.shard);
        }
        self.register_in_place(interest, waker)
    }

    /// The same, whichever thread turns the shard.
    pub(super) fn register_in_place(&self, interest: Readiness, waker: &Waker) -> bool {
        let mut ready = false;
        if interest.contains(Readiness::READABLE) {
            ready |= self.core.register(waker);
            if !ready && self.stack().driver.all_are_gone() {
                waker.wake_by_ref();
                ready = true;
            }
        }
        if interest.contains(Readiness::WRITABLE) {
            let register = |shard: &mut Shard, _| shard.packets_register(waker);
            ready |= self.stack().with_shard(self.shard, register);
        }
        ready
    }

    /// Forgets `waker`.
    pub fn deregister(&self, waker: &Waker) {
        self.core.deregister(waker);
        (self.stack()).with_shard(self.shard, |shard, _| shard.packets_deregister(waker));
    }

    /// The shard whose buffers it sends from.
    pub(super) const fn shard(&self) -> usize {
        self.shard
    }

    /// Packets that the application holds.
    pub fn held(&self) -> usize {
        self.held.count()
    }

    /// How many it may hold: 512 if never set. What it holds already stays.
    pub fn set_held_max(&self, most: usize) {
        self.held.set_most(most);
    }

    /// Packets that were dropped because its ring was full, or few receive buffers were free.
    pub fn drops(&self) -> u64 {
        self.core.drops()
    }

    /// How long a receive waits; `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.settings.lock().read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long a send waits; `None`: for ever.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.settings.lock().write_timeout = checked(timeout)?;
        Ok(())
    }

    /// Calls do not wait.
    ///
    /// # Errors
    /// Never; as in `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.settings.lock().nonblocking = nonblocking;
        Ok(())
    }
}

impl Drop for PacketChannel {
    fn drop(&mut self) {
        self.stack().close_packet_channel(&self.core);
    }
}

impl Waiter {
    /// As [`Waiter::register`], for a packet channel.
    pub fn register_packets(&mut self, channel: &PacketChannel, interest: Readiness) -> bool {
        self.expect_shard(channel.shard());
        channel.register_in_place(interest, self.waker())
    }
}

/// What the IP header of a packet to `remote` says.
fn fields(protocol: u8, remote: IpAddr, options: &PacketOptions) -> PacketFields {
    let ttl = if remote.is_multicast() { 1 } else { TTL };
    PacketFields {
        protocol: Protocol(protocol),
        ttl: options.ttl.unwrap_or(ttl),
        tos: options.tos,
        dont_fragment: options.dont_fragment,
    }
}
