//! Lending parts of a link to applications in other processes (C4): what `netchan daemon` is made of.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use percore::lock::{Mutex, mutex};
use proto::wire::ipv4::Protocol;

use super::{InterfaceFacts, Net};
use crate::{
    api::{
        Kind,
        binding::{BindRequest, PortChange},
    },
    channel::{LeaseCore, LeaseFiles, LeasePorts, LeaseSize, LeasedPort, PacketProtocol, PairEnd},
    errno::invalid,
    flow::FlowKey,
    limits,
    link::lease::{
        Binding, FILES, Membership, PortRange, Reuse, Terms, Transport, VERSION, covers,
    },
    locks,
};

/// A part of a link that is lent to an application: packets of the ports that it has go to it, and what it sends is checked and goes out by the link.
/// Dropping it ends the lease: its ports are free, its buffers come back, and the application sees the end.
///
/// The application opens it as [`LeasedLink`](crate::link::lease::LeasedLink) from [`files`](Self::files) and [`terms`](Self::terms).
pub struct Lent {
    net: Net,
    link: usize,
    user: u32,
    core: Arc<LeaseCore>,
    files: LeaseFiles,
    set: LeaseSet,
}

/// The leases that one application has side by side, of different links: they have the same ports for sockets that name none, and none keeps another one from a
/// port.
#[derive(Clone)]
pub struct LeaseSet(Arc<Set>);

struct Set {
    net: Net,
    /// By which ports are known as its own: never another one's.
    number: u64,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    cores: Vec<Arc<LeaseCore>>,
    ranges: Vec<PortRange>,
}

impl Drop for Set {
    fn drop(&mut self) {
        let ranges = &self.members.lock().ranges;
        self.net.stack().control.directory.take_back(ranges);
    }
}

impl LeaseSet {
    /// Whether a lease of the link named `link` may come beside these: there is none of it.
    #[must_use]
    pub fn has_room_for(&self, link: &str) -> bool {
        let Ok(link) = self.0.net.lent_link(link) else {
            return false;
        };
        let members = self.0.members.lock();
        members.cores.iter().all(|core| core.link != link)
    }

    fn add(&self, core: &Arc<LeaseCore>) -> Result<(), i32> {
        let mut members = self.0.members.lock();
        members.cores.push(core.clone());
        if members.ranges.is_empty() {
            drop(members);
            return self.more_ports().map(drop);
        }
        for &range in &members.ranges {
            self.0.net.give_ports(core, range);
        }
        Ok(())
    }

    fn remove(&self, number: u64) {
        let mut members = self.0.members.lock();
        members.cores.retain(|core| core.number != number);
    }

    fn more_ports(&self) -> Result<Vec<PortRange>, i32> {
        let net = &self.0.net;
        let mut members = self.0.members.lock();
        let has: u32 = members.ranges.iter().map(|range| range.count()).sum();
        let has = usize::try_from(has).unwrap_or(usize::MAX);
        let count = has.clamp(limits::LEASE_PORTS, limits::LEASE_PORTS_MAX);
        if has + count > limits::LEASE_PORTS_ALL {
            return Err(libc::EADDRNOTAVAIL);
        }
        let count = u16::try_from(count).map_err(|_| libc::EADDRNOTAVAIL)?;
        let range = net.stack().control.directory.lend(count)?;
        members.ranges.push(range);
        for core in &members.cores {
            net.give_ports(core, range);
        }
        Ok(vec![range])
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("number", &self.core.number)
            .field("holder", &self.core.holder)
            .finish_non_exhaustive()
    }
}

impl Net {
    /// Lends a part of the link named `link` (as `netchan show` has it; empty: the only one) to `holder`, which people read, of a `user`. It has a few ports for
    /// sockets that name none, and gets others by [`Lent::bind`].
    ///
    /// While there is a lease, threads that wait for sockets of this process do not poll the links: the links' threads do.
    ///
    /// # Errors
    /// `InvalidInput`: no such link, or there are several and none is named; EOPNOTSUPP: the link has several queues; EMFILE: 4,096 leases;
    /// EADDRNOTAVAIL: no ports are left; the system's.
    pub fn lend(&self, link: &str, holder: &str, user: u32) -> io::Result<Lent> {
        self.lend_beside(None, link, holder, user, LeaseSize::MOST)
    }

    /// The same, beside leases of other links that the same application has, and of a size.
    ///
    /// # Errors
    /// As for [`lend`](Self::lend).
    pub fn lend_beside(
        &self,
        beside: Option<&LeaseSet>,
        link: &str,
        holder: &str,
        user: u32,
        size: LeaseSize,
    ) -> io::Result<Lent> {
        let link = self.lent_link(link)?;
        let stack = self.stack();
        let (core, files) = stack.open_lease(link, holder.to_owned(), size)?;
        let set = || {
            LeaseSet(Arc::new(Set {
                net: self.clone(),
                number: core.number,
                members: mutex(&locks::LEASE_SETS, Members::default()),
            }))
        };
        let set = beside.cloned().unwrap_or_else(set);
        let lent = Lent {
            net: self.clone(),
            link,
            user,
            core,
            files,
            set,
        };
        let given = lent.set.add(&lent.core);
        given.map_err(io::Error::from_raw_os_error)?;
        Ok(lent)
    }

    /// Ports for sockets that name none.
    fn give_ports(&self, core: &LeaseCore, range: PortRange) {
        core.ports.lock().ranges.push(range);
        self.stack().give_ports(core.link, core.number, range);
    }

    /// Its links, by their names, where all of them can be lent; none where one is another process's itself, or has several queues.
    #[must_use]
    pub fn lendable(&self) -> Vec<String> {
        let stack = self.stack();
        let net = stack.control.host.network();
        let can_be = |facts: &InterfaceFacts, queues: &Vec<usize>| {
            let is_ours = facts.lender.is_none() && queues.len() == 1;
            is_ours.then(|| facts.device().to_owned())
        };
        let links = net.interfaces.iter().zip(&stack.driver.links);
        let all: Option<_> = links.map(|(facts, queues)| can_be(facts, queues)).collect();
        all.unwrap_or_default()
    }

    fn lent_link(&self, name: &str) -> io::Result<usize> {
        if !name.is_empty() {
            let number = self.link_named(name).map(usize::from);
            return number.ok_or_else(|| invalid(format!("there is no link `{name}`")));
        }
        let links = self.links();
        let mut real = (0..links.len()).filter(|&n| !links[n].is_loopback);
        match (real.next(), real.next()) {
            (Some(only), None) => Ok(only),
            (None, _) if !links.is_empty() => Ok(0), // loopback addresses alone
            _ => Err(invalid("there are several links: one has to be named")),
        }
    }
}

impl Lent {
    /// What the application has to know.
    pub fn terms(&self) -> Terms {
        let net = self.net.stack().control.host.network();
        let facts = &net.interfaces[self.link];
        Terms {
            version: VERSION,
            link: facts.name.clone(),
            mac: facts.mac.0,
            mtu: facts.mtu,
            segmentation: facts.segmentation.into(),
            addresses: facts.addresses.iter().map(|a| a.to_string()).collect(),
            inward: self.files.inward.encode(),
            outward: self.files.outward.encode(),
            slots: self.files.edge.slots(),
            ports: self.core.ports.lock().ranges.clone(),
            loopback: net.lends_loopback(self.link),
        }
    }

    /// What the application has to be given, in the order in which it takes them.
    pub fn files(&self) -> [BorrowedFd<'_>; FILES] {
        self.files.all()
    }

    /// The leases that it stands beside, or may.
    pub fn set(&self) -> LeaseSet {
        self.set.clone()
    }

    /// The memory that it may come to take, bytes.
    pub fn memory(&self) -> u64 {
        self.core.size.memory()
    }

    /// The lease's number; never another one's.
    pub fn number(&self) -> u64 {
        self.core.number
    }

    /// Where the application says which other lease it would like a short cut to ([`Wish`](crate::link::lease::Wish)), and is told of short cuts
    /// ([`News`](crate::link::lease::News)). It does not wait. [`ring`](Self::ring) follows each thing that is sent there.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.core.news.as_fd()
    }

    /// Wakes the application for what was sent to it by [`news`](Self::news).
    pub fn ring(&self) {
        self.core.ring();
    }

    /// The ports that it asked for, and those of sockets that name none.
    pub fn ports(&self) -> (Vec<Binding>, Vec<PortRange>) {
        let ports = self.core.ports.lock();
        let bindings = ports.bindings.iter().map(|port| port.binding);
        (bindings.collect(), ports.ranges.clone())
    }

    /// Both ends of a short cut between this lease and another one: for this one's application, and for the other's. `number` is no other's.
    ///
    /// # Errors
    /// `Unsupported`: they are of different links; the system's: no memory, no descriptors.
    pub fn pair(&self, other: &Self, number: u64) -> io::Result<[PairEnd; 2]> {
        if self.link != other.link {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let ends = PairEnd::both(number)?;
        for lent in [self, other] {
            lent.core.pairs.add(1);
        }
        Ok(ends)
    }

    /// Gives the application a port, until it [gives it back](Self::give_back) or the lease ends. `reuse` says with which others it may share it, as a kernel's
    /// sockets do; of the TCP connections that several leases share a port for, each stays where it began. Again: so from now on.
    ///
    /// # Errors
    /// An errno. EINVAL: port 0; EADDRNOTAVAIL: no address of this host's, nor of UDP a group's, or a loopback address that it does not share; EADDRINUSE; ENOBUFS: it has 1,024.
    pub fn bind(&self, binding: Binding, reuse: Reuse) -> Result<(), i32> {
        let address = binding.address;
        let ip = address.ip().to_canonical();
        if address.port() == 0 {
            return Err(libc::EINVAL);
        }
        let stack = self.net.stack();
        let is_group = binding.transport == Transport::Udp && ip.is_multicast();
        let is_ours = |ip: IpAddr| {
            is_group || ip.is_unspecified() || stack.control.host.network().is_local(ip)
        };
        if !is_ours(ip) || ip.is_loopback() && !self.core.has_loopback() {
            return Err(libc::EADDRNOTAVAIL);
        }
        let binding = binding.canonical();
        let mut ports = self.core.ports.lock();
        let place = ports.place(&binding);
        let has_it = |&place: &usize| {
            let port = &ports.bindings[place];
            port.reuse == reuse && !port.is_closed
        };
        if place.filter(has_it).is_some() || ports.is_in_range(address.port()) {
            return Ok(());
        }
        if place.is_none() && ports.bindings.len() >= limits::LEASE_BINDINGS {
            return Err(libc::ENOBUFS);
        }
        let kind = match binding.transport {
            Transport::Tcp => Kind::Stream,
            Transport::Udp => Kind::Datagram,
            Transport::Ping => Kind::Ping,
        };
        let (id, _) = stack.bind(BindRequest {
            kind,
            address: binding.address,
            v6_only: true, // the other family is a binding of its own
            mapped: true,
            // Ping sockets say it from their beginning, as Linux's do, and would take each other's replies.
            reuse_address: reuse.address && binding.transport != Transport::Ping,
            reuse_port: reuse.port,
            device: None,
            lease: Some(self.set.0.number),
            user: Some(self.user),
        })?;
        let port = LeasedPort {
            id,
            binding,
            reuse,
            is_closed: false,
        };
        match place {
            Some(place) => {
                let before = std::mem::replace(&mut ports.bindings[place], port);
                stack.control.directory.release(before.id);
            }
            None => ports.bindings.push(port),
        }
        drop(ports);
        stack.bind_lease(self.link, self.core.number, &binding, reuse);
        Ok(())
    }

    /// Nothing new is to come to a port that the application has. Its TCP connections there stay its own, until it gives the port back; `others` are those
    /// that have not passed the lender, our end and the peer's. Again: there are these, too. Of a port that it has not, nothing.
    pub fn close(&self, binding: Binding, others: &[(SocketAddr, SocketAddr)]) {
        let binding = binding.canonical();
        let stack = self.net.stack();
        let mut ports = self.core.ports.lock();
        let Some(place) = ports.place(&binding) else {
            return;
        };
        let port = &mut ports.bindings[place];
        let was_closed = std::mem::replace(&mut port.is_closed, true);
        let id = port.id;
        drop(ports);
        if !was_closed {
            (stack.control.directory).change(id, PortChange::StopListening);
            stack.close_leased_port(self.link, self.core.number, &binding);
        }
        if binding.transport != Transport::Tcp {
            return;
        }
        let (at, port) = (binding.address.ip(), binding.address.port());
        let is_there = |local: &SocketAddr| local.port() == port && covers(at, local.ip());
        let flows = others.iter().filter(|(local, _)| is_there(local));
        let flows: Vec<_> = flows
            .map(|(local, remote)| FlowKey {
                local: local.ip(),
                remote: remote.ip(),
                local_port: port,
                remote_port: remote.port(),
                protocol: Protocol::TCP,
            })
            .collect();
        stack.pin_leased(self.link, self.core.number, &binding, &flows);
    }

    /// The application has a port no more, nor connections there. Of one that it has not, nothing.
    pub fn give_back(&self, binding: Binding) {
        let binding = binding.canonical();
        let stack = self.net.stack();
        let mut ports = self.core.ports.lock();
        let Some(place) = ports.place(&binding) else {
            return;
        };
        let port = ports.bindings.swap_remove(place);
        drop(ports);
        // First what comes: then others may have it.
        stack.unbind_lease(self.link, self.core.number, &binding);
        stack.control.directory.release(port.id);
    }

    /// The application hears this of a group from now on, on this link: of what comes for the UDP ports that it has, and of protocols of which it has the packets.
    /// Routers are told what all leases and this process's own sockets hear together.
    ///
    /// # Errors
    /// An errno, and nothing has changed. EINVAL: no group, or sources that are none; ENOBUFS: it is in 512 groups, has too many sources, or the link is in too
    /// many groups.
    pub fn join(&self, membership: &Membership) -> Result<(), i32> {
        let (group, filter) = (membership.group, membership.filter()?);
        // Held until it is done: what is asked for later comes later.
        let groups = &mut self.core.ports.lock().groups;
        let place = groups.iter().position(|there| *there == group);
        match place {
            None if filter.admits_none() => return Ok(()),
            None if groups.len() >= limits::LEASE_GROUPS => return Err(libc::ENOBUFS),
            _ => {}
        }
        if !self.net.stack().join_lease(&self.core, group, &filter) {
            return Err(libc::ENOBUFS);
        }
        match place {
            Some(place) if filter.admits_none() => {
                groups.swap_remove(place);
            }
            Some(_) => {}
            None => groups.push(group),
        }
        Ok(())
    }

    /// The same where a socket of the application has left a group: what the others hear. What cannot be is counted as nonsense.
    pub fn leave(&self, membership: &Membership) {
        if self.join(membership).is_err() {
            self.core.nonsense.add(1);
        }
    }

    /// The application's connections were closed in order, and their peers have acknowledged that: they are not reset when the lease ends.
    pub fn over(&self) {
        self.net.stack().lease_over(&self.core);
    }

    /// Lets the application share 127.0.0.0/8 and ::1 with other leases of the link: its ports are there, too, until the lease ends.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: they are not lent ([`Builder::lends_loopback`](super::Builder::lends_loopback)), or with another link.
    pub fn share_loopback(&self) -> Result<(), i32> {
        let stack = self.net.stack();
        if !stack.control.host.network().lends_loopback(self.link) {
            return Err(libc::EADDRNOTAVAIL);
        }
        stack.share_loopback(&self.core);
        Ok(())
    }

    /// Whether it does.
    pub fn has_loopback(&self) -> bool {
        self.core.has_loopback()
    }

    /// Gives the application the packets of an IP protocol number, to its address and from it, until the lease ends.
    ///
    /// # Errors
    /// An errno. EINVAL: this stack speaks it ([`PacketProtocol`]); EADDRINUSE: another lease has them, or this process; ENOBUFS: it has those of 256 protocols.
    pub fn packets(&self, protocol: u8) -> Result<(), i32> {
        self.give(PacketProtocol::Ip(protocol))
    }

    /// Gives the application the frames of an EtherType, to this link's address and to groups of stations, and from this link's address, until the lease ends.
    ///
    /// # Errors
    /// As for [`packets`](Self::packets).
    pub fn frames(&self, kind: u16) -> Result<(), i32> {
        self.give(PacketProtocol::EtherType(kind))
    }

    fn give(&self, protocol: PacketProtocol) -> Result<(), i32> {
        protocol.check().map_err(|_| libc::EINVAL)?;
        let has = |ports: &LeasePorts| ports.protocols.contains(&protocol);
        let ports = self.core.ports.lock();
        if has(&ports) {
            return Ok(());
        }
        if ports.protocols.len() >= limits::LEASE_PROTOCOLS {
            return Err(libc::ENOBUFS);
        }
        drop(ports); // before the halves' locks
        let stack = self.net.stack();
        if !stack.give_packets(self.link, self.core.number, protocol) {
            return Err(libc::EADDRINUSE);
        }
        let mut ports = self.core.ports.lock();
        if !has(&ports) {
            ports.protocols.push(protocol);
        }
        Ok(())
    }

    /// What comes for its ports is the lender's from now on, whose TCP answers that there is no such connection. The peers of its connections are told with its
    /// end, when it is dropped.
    pub fn silence(&self) {
        self.net.stack().silence_lease(self.link, &self.core);
    }

    /// Gives the application more ports for sockets that name none: as many as it has, 16 at first, 1,024 at most. Those that came.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: so many are not free, or it would have more than 8,192.
    pub fn more_ports(&self) -> Result<Vec<PortRange>, i32> {
        self.set.more_ports()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let stack = self.net.stack();
        stack.close_lease(self.link, &self.core);
        self.set.remove(self.core.number);
        let ports = std::mem::take(&mut *self.core.ports.lock());
        for port in ports.bindings {
            stack.control.directory.release(port.id);
        }
    }
}
