//! Steer, the classifier: whose is this packet? Checks what every packet must satisfy (link header, IP header, addresses),
//! then: exact flow → by flow hash over the shards → the host's own work (ARP, NDP, ICMP, fragments).

pub mod leases;
pub mod pending_opens;
pub mod table;

use std::net::IpAddr;

use proto::{
    ip::{
        address::Destination,
        forward,
        validate::{self, Martian},
    },
    time::Instant,
    wire::{
        Error as WireError, checksum,
        ethernet::{self, EtherType, MacAddr},
        igmp,
        ipv4::{self, Protocol},
        ipv6,
        tcp::Flags,
    },
};

use self::{leases::LeaseTable, pending_opens::PendingOpens, table::FlowTable};
use crate::flow::FlowKey;
use crate::{
    channel::{PacketEnd, PacketProtocol, Request},
    counters::Counter,
    driver::{host::HostView, module::Rejection},
    packet::{Flag, Packet},
};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To a shard: the packet now starts at its IP header, is cut to its IP length, and its `meta` is filled in.
    Shard(usize),
    /// To a shard that the flow table names ([`Steer::shard_of`]), by this hash: its bucket is on the way into the cache.
    Flow(u64),
    /// To the host's own work at the interface; starts at its IP header, too.
    Host(HostWork),
    /// To a packet channel, by the number of its end ([`Steer::packet_ends`]); starts at its IP header, too.
    Packet(usize),
    /// To an application with a lease, by the number of its end ([`Steer::leases`]); starts at its IP header, too.
    Lease(usize),
    /// To each lease that has its UDP port and is in its group, and to this process's own sockets; starts at its IP header, too.
    Many,
    /// The same of a frame of an EtherType that the lease has; starts at its frame header.
    LeasedFrame(usize),
    /// To a packet channel of an EtherType; starts at its frame header. Its `meta` says where that ends.
    Frame(usize),
    /// On, to another host: it came in a frame for us, and its addresses may leave the link. Starts at its IP header, too.
    Forward,
    /// Nowhere, and why.
    Drop(Counter),
}

/// The host's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWork {
    /// An ARP packet.
    Arp,
    /// ICMP, ICMPv6 with NDP.
    Icmp,
    /// IGMP.
    Membership,
    /// A fragment of IPv4 or IPv6.
    Fragment,
    /// IPv4 or IPv6 with a protocol that is not served, or options or extension headers that ask for an answer: an ICMP error is due.
    Unserved,
    /// What a module rejected on its way in: its sender is told.
    Rejected(Rejection),
    /// A frame that a writer wants to go out as it is.
    Written,
}

impl HostWork {
    /// Its number in traces.
    pub const fn number(self) -> u64 {
        match self {
            Self::Arp => 0,
            Self::Icmp => 1,
            Self::Membership => 2,
            Self::Fragment => 3,
            Self::Unserved => 4,
            Self::Rejected(_) => 5,
            Self::Written => 6,
        }
    }
}

/// How shards are chosen.
#[derive(Debug)]
pub enum Placement {
    /// There is one.
    Single,
    /// By the flow's hash.
    Hash {
        /// Number of shards.
        shards: usize,
    },
    /// By the flow table, where applications have entered what is theirs; by hash what is in no table.
    Lease {
        /// Number of shards.
        shards: usize,
        /// Flow to shard.
        flows: FlowTable,
        /// Connections that peers begin, where each is to have a shard of its own.
        pending_opens: Option<PendingOpens>,
    },
}

/// Which of the queues of a link one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NthQueue {
    /// Its number among them.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

impl NthQueue {
    /// The only one.
    pub const ONLY: Self = Self { number: 0, of: 1 };
}

/// The classifier of one queue of an interface.
#[derive(Debug)]
pub struct Steer {
    /// How shards are chosen.
    pub placement: Placement,
    interface: u8,
    nth: NthQueue,
    last: LastFlow,
    /// This link's ends of packet channels.
    pub packet_ends: Vec<PacketEnd>,
    /// Where the link is lent: which ports are leased, and the leases' ends.
    pub leases: Option<Box<LeaseTable>>,
}

/// The flow that last passed [`Steer::quick`], as its packets name it. They come in runs: what was found out for one (its
/// addresses are in order; its hash) holds for the next.
#[derive(Debug)]
struct LastFlow {
    /// Source and destination.
    ends: u64,
    ports: u32,
    protocol: Protocol,
    /// 0: there was none.
    hash: u64,
}

impl LastFlow {
    /// No packet that passes has this protocol.
    const NONE: Self = Self {
        ends: 0,
        ports: 0,
        protocol: Protocol(0),
        hash: 0,
    };
}

/// What the checks of the internet layer found.
struct Checked {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    /// Offset of the upper layer's header.
    upper: usize,
    /// The packet's length by its IP header.
    len: usize,
    to: Destination,
}

impl Steer {
    /// The number of its interface.
    pub const fn interface(&self) -> u8 {
        self.interface
    }

    /// For the only queue of interface number `interface`.
    pub const fn new(interface: u8, placement: Placement) -> Self {
        Self {
            placement,
            interface,
            nth: NthQueue::ONLY,
            last: LastFlow::NONE,
            packet_ends: Vec::new(),
            leases: None,
        }
    }

    /// The same for one of several queues.
    #[must_use]
    pub fn of_queue(self, nth: NthQueue) -> Self {
        Self { nth, ..self }
    }

    /// Whether its link has further queues, by which packets of a flow may have come before.
    pub const fn is_one_of_several(&self) -> bool {
        self.nth.of > 1
    }

    /// The end of the packet channel for these packets, which nothing else takes.
    #[cold]
    fn packet_end(&self, protocol: PacketProtocol) -> Option<usize> {
        let mut ends = self.packet_ends.iter();
        ends.position(|end| end.protocol() == protocol)
    }

    /// The end of the lease that has these packets.
    #[cold]
    fn leased_end(&self, protocol: PacketProtocol) -> Option<usize> {
        self.leases.as_ref()?.find_protocol(protocol)
    }

    /// Where a flow's packet goes that may be a lease's. Apart, so that what lends nothing does not pay for it.
    #[inline(never)]
    fn lent(&self, key: &FlowKey, hash: u64, to: Destination) -> Option<Verdict> {
        if to != Destination::Ours {
            return Some(Verdict::Many); // UDP: TCP was refused before
        }
        self.lease_of(key, hash).map(Verdict::Lease)
    }

    /// Whether the lease that has a protocol is in the group that a packet of it is for, if it is for one.
    #[cold]
    fn is_for_lease(&self, host: &HostView, end: usize, checked: &Checked) -> bool {
        let facts = &host.net.interfaces[usize::from(self.interface)];
        let (group, source) = (checked.destination, checked.source);
        checked.to != Destination::Group
            || facts.addresses.is_member(group)
            || (self.leases.as_ref()).is_some_and(|all| all.is_member(end, group, source))
    }

    /// The addresses have changed: what was found out for the last flow holds no more.
    pub const fn forget(&mut self) {
        self.last = LastFlow::NONE;
    }

    /// Checks a frame and says where it goes.
    #[inline(always)]
    pub fn classify(&mut self, host: &HostView, packet: &mut Packet) -> Verdict {
        if let Some(verdict) = self.quick(host, packet) {
            return verdict;
        }
        match self.try_classify(host, packet) {
            Ok(verdict) => verdict,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// The way of almost every packet: TCP or UDP in a whole IPv4 datagram without options, from an ordinary address to one of ours.
    /// `None`, and nothing is changed: the long way decides. Both say the same of the same frame (a test compares them).
    #[inline(always)]
    fn quick(&mut self, host: &HostView, packet: &mut Packet) -> Option<Verdict> {
        let facts = &host.net.interfaces[usize::from(self.interface)];
        let frame = packet.bytes();
        let head = frame.first_chunk::<{ ethernet::HEADER_LEN + ipv4::HEADER_LEN + 4 }>()?;
        let (link, rest) = head.split_first_chunk::<{ ethernet::HEADER_LEN }>()?;
        let (ip, ports) = rest.split_first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let (to, ethertype) = (
            MacAddr([link[0], link[1], link[2], link[3], link[4], link[5]]),
            [link[12], link[13]],
        );
        let protocol = Protocol(ip[9]);
        let whole = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0;
        let usual = to == facts.mac && ethertype == [8, 0] && ip[0] == 0x45 && whole;
        if !usual
            || !matches!(protocol, Protocol::TCP | Protocol::UDP)
            || !checksum::is_valid(checksum::sum_array(ip))
        {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let room = frame.len() - ethernet::HEADER_LEN;
        if len > room || len < ipv4::HEADER_LEN + 4 {
            return None;
        }
        let ends = u64::from_le_bytes(*ip.last_chunk()?);
        let ports = u32::from_le_bytes([ports[2], ports[3], ports[0], ports[1]]);
        let last = &self.last;
        let hash = if (ends, ports, protocol) == (last.ends, last.ports, last.protocol) {
            last.hash
        } else {
            self.first_of_run(host, ends, ports, protocol)?
        };
        packet.pull(ethernet::HEADER_LEN);
        packet.truncate(len);
        let meta = &mut packet.meta;
        (meta.protocol, meta.flow, meta.interface, meta.to_group) =
            (protocol, short(hash), self.interface, Flag::NO);
        meta.upper = 20;
        let [p0, p1, ..] = ports.to_le_bytes();
        let port = u16::from_be_bytes([p0, p1]);
        if self.leases.is_some()
            && let Some(end) = self.lease_of_v4(ends, ports, protocol, hash)
        {
            return Some(Verdict::Lease(end));
        }
        Some(self.verdict(host, hash, protocol, port))
    }

    /// Checks the addresses of a packet of another flow than the last one's, and hashes it.
    #[inline(never)]
    fn first_of_run(
        &mut self,
        host: &HostView,
        ends: u64,
        ports: u32,
        protocol: Protocol,
    ) -> Option<u64> {
        let ours = &host.net.interfaces[usize::from(self.interface)].addresses;
        let [s0, s1, s2, s3, d0, d1, d2, d3] = ends.to_le_bytes();
        let (source, destination) = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
        if !ours.is_local_v4(destination.into())
            || validate::source_v4(source.into(), ours, destination.into()).is_err()
        {
            return None;
        }
        let (local, remote) = (u32::from_le_bytes(destination), u32::from_le_bytes(source));
        let hash = host.flow_hash.hash_v4(local, remote, ports, protocol);
        self.last = LastFlow {
            ends,
            ports,
            protocol,
            hash,
        };
        Some(hash)
    }

    #[inline(never)]
    fn try_classify(&self, host: &HostView, packet: &mut Packet) -> Result<Verdict, Counter> {
        let facts = &host.net.interfaces[usize::from(self.interface)];
        let (header, len) =
            ethernet::Header::parse(packet.bytes()).map_err(|_| Counter::DropEthernet)?;
        if header.destination != facts.mac && !header.destination.is_multicast() {
            return Err(Counter::DropNotForUs);
        }
        packet.meta.to_group = header.destination.is_multicast().into();
        // Priority tags (VLAN 0, IEEE 802.1Q §9.6) are ours, other VLANs are not.
        if header.vlan.is_some_and(|tag| tag.id() != 0) {
            return Err(Counter::DropEtherType);
        }
        match header.ethertype {
            EtherType::ARP => {
                packet.pull(len);
                return Ok(Verdict::Host(HostWork::Arp));
            }
            EtherType::IPV4 | EtherType::IPV6 => packet.pull(len),
            EtherType(kind) => {
                packet.meta.interface = self.interface;
                packet.meta.upper = u16::try_from(len).unwrap_or(u16::MAX);
                let kind = PacketProtocol::EtherType(kind);
                if let Some(end) = self.packet_end(kind) {
                    return Ok(Verdict::Frame(end));
                }
                let end = self.leased_end(kind).map(Verdict::LeasedFrame);
                return end.ok_or(Counter::DropEtherType);
            }
        }
        // What another application of the lender's sends from our address to our address is no stranger's.
        let is_lease = facts.lender.is_some();
        self.classify_ip(host, packet, header.ethertype == EtherType::IPV6, is_lease)
    }

    /// A packet that starts at its IP header: from a frame, put together from fragments, or (`loopback`) from ourselves.
    pub fn classify_ip(
        &self,
        host: &HostView,
        packet: &mut Packet,
        v6: bool,
        loopback: bool,
    ) -> Result<Verdict, Counter> {
        let checked = if v6 {
            self.check_v6(host, packet, loopback)?
        } else {
            self.check_v4(host, packet, loopback)?
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(other) => return Ok(other),
        };
        packet.truncate(checked.len);
        packet.meta.upper = u16::try_from(checked.upper).map_err(|_| Counter::DropExtension)?;
        packet.meta.interface = self.interface;
        packet.meta.protocol = checked.protocol;
        match checked.protocol {
            Protocol::TCP if checked.to != Destination::Ours => {
                return Err(Counter::DropIpDestination); // RFC 9293 MUST-57
            }
            // Its frame was a broadcast or multicast (RFC 1122 §4.2.3.10). No reset, either: it would tell a whole network of hosts to send one.
            Protocol::TCP if packet.meta.to_group.get() => return Err(Counter::DropLinkGroup),
            Protocol::TCP => {}
            Protocol::UDP => {}
            Protocol::ICMP if !v6 => return Ok(Verdict::Host(HostWork::Icmp)),
            Protocol::IGMP if !v6 => return Ok(Verdict::Host(HostWork::Membership)),
            Protocol::ICMPV6 if v6 => return Ok(Verdict::Host(HostWork::Icmp)),
            Protocol(number) => {
                let protocol = PacketProtocol::Ip(number);
                if let Some(end) = self.packet_end(protocol) {
                    return Ok(Verdict::Packet(end));
                }
                let end = self.leased_end(protocol);
                let end = end.filter(|&end| self.is_for_lease(host, end, &checked));
                let end = end.map(Verdict::Lease);
                return Ok(end.unwrap_or(Verdict::Host(HostWork::Unserved)));
            }
        }
        let ports = packet
            .bytes()
            .get(checked.upper..)
            .and_then(<[u8]>::first_chunk::<4>);
        let Some(&[s0, s1, d0, d1]) = ports else {
            return Err(if checked.protocol == Protocol::TCP {
                Counter::DropTcpHeader
            } else {
                Counter::DropUdpHeader
            });
        };
        let key = FlowKey {
            local: checked.destination,
            remote: checked.source,
            local_port: u16::from_be_bytes([d0, d1]),
            remote_port: u16::from_be_bytes([s0, s1]),
            protocol: checked.protocol,
        };
        let hash = host.flow_hash.hash(&key);
        packet.meta.flow = short(hash);
        if self.leases.is_some()
            && let Some(verdict) = self.lent(&key, hash, checked.to)
        {
            return Ok(verdict);
        }
        Ok(self.verdict(host, hash, key.protocol, key.local_port))
    }

    /// Where a flow's packet goes: at once where that takes no memory but the packet's.
    #[inline(always)]
    fn verdict(&self, host: &HostView, hash: u64, protocol: Protocol, local_port: u16) -> Verdict {
        match &self.placement {
            Placement::Single => Verdict::Shard(0),
            Placement::Hash { shards } => Verdict::Shard(spread(hash, *shards)),
            Placement::Lease { flows, .. } => {
                if protocol != Protocol::TCP
                    && let Some(assignment) = &host.assignment
                {
                    return Verdict::Shard(assignment.of_port(local_port));
                }
                flows.prefetch(hash);
                Verdict::Flow(hash)
            }
        }
    }

    /// Heeds a shard's request. False: the table is full, or the flow is another shard's; it goes on by its hash.
    pub fn heed(&mut self, request: Request, shard: usize) -> bool {
        let Placement::Lease {
            flows,
            pending_opens,
            ..
        } = &mut self.placement
        else {
            return true;
        };
        let Ok(number) = u16::try_from(shard) else {
            return false;
        };
        let is_other = |entry: u16| pending_opens::shard_of(entry) != number;
        match request {
            Request::Add(hash) => {
                if let Some(pending_opens) = pending_opens {
                    pending_opens.confirm(hash, shard);
                }
                !flows.get(hash).is_some_and(is_other) && flows.insert(hash, number)
            }
            Request::Move(hash) => flows.insert(hash, number),
            Request::Remove(hash) => {
                if !flows.get(hash).is_none_or(is_other) {
                    flows.remove(hash);
                }
                true
            }
        }
    }

    /// Flows in the table, where there is one.
    pub const fn flows(&self) -> Option<usize> {
        match &self.placement {
            Placement::Lease { flows, .. } => Some(flows.len()),
            Placement::Single | Placement::Hash { .. } => None,
        }
    }

    /// The shard for a flow's hash.
    #[inline(always)]
    pub fn shard_of(&self, hash: u64) -> usize {
        match &self.placement {
            Placement::Single => 0,
            Placement::Hash { shards } => spread(hash, *shards),
            Placement::Lease { shards, .. } => match self.leased(hash) {
                Some(shard) => shard,
                None => spread(hash, *shards),
            },
        }
    }

    /// The shard for a flow that has no packet here: of an ICMP error, or of a packet of ours that came back.
    pub fn shard_of_key(&self, host: &HostView, key: &FlowKey, hash: u64) -> usize {
        match self.verdict(host, hash, key.protocol, key.local_port) {
            Verdict::Shard(number) => number,
            _ => self.shard_of(hash),
        }
    }

    /// The shard that has leased a flow.
    #[inline(always)]
    pub fn leased(&self, hash: u64) -> Option<usize> {
        match &self.placement {
            Placement::Lease { flows, .. } => flows
                .get(hash)
                .map(|entry| usize::from(pending_opens::shard_of(entry))),
            Placement::Single | Placement::Hash { .. } => None,
        }
    }

    /// The shard for a packet (at its IP header) of a flow that no shard has leased: where it begins a connection, a free one if there is one.
    /// `is_bound`: whether a TCP socket has this port.
    #[cold]
    pub fn place(
        &mut self,
        host: &HostView,
        hash: u64,
        packet: &Packet,
        is_bound: impl FnOnce(u16) -> bool,
        now: Instant,
    ) -> usize {
        if let (
            Some(assignment),
            Placement::Lease {
                flows,
                pending_opens: Some(pending_opens),
                ..
            },
        ) = (&host.assignment, &mut self.placement)
            && let Some(port) = opened_port(packet)
            && is_bound(port)
            && let Some(shard) = pending_opens.begin(hash, assignment, flows, now)
        {
            return shard;
        }
        match &self.placement {
            // Its connection lives where it came in: what follows comes in there, too.
            Placement::Lease { shards, .. } if self.nth.of > 1 => {
                let NthQueue { number, of } = self.nth;
                number + of * spread(hash, (shards - number).div_ceil(of))
            }
            _ => self.shard_of(hash),
        }
    }

    fn check_v4(
        &self,
        host: &HostView,
        packet: &Packet,
        loopback: bool,
    ) -> Result<Result<Checked, Verdict>, Counter> {
        let header = ipv4::Header::parse(packet.bytes()).map_err(|error| match error {
            WireError::Checksum => Counter::DropIpChecksum,
            _ => Counter::DropIpHeader,
        })?;
        let ends = (header.source.into(), header.destination.into());
        let to = match self.addresses(host, packet, ends, loopback)? {
            Ok(to) => to,
            Err(onward) => return Ok(Err(onward)),
        };
        if usize::from(header.header_len) > ipv4::HEADER_LEN
            && let Some(verdict) = judge_options(header.options(packet.bytes()))?
        {
            return Ok(Err(verdict));
        }
        if header.is_fragment() {
            return fragment(packet, to);
        }
        Ok(Ok(Checked {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol: header.protocol,
            upper: usize::from(header.header_len),
            len: usize::from(header.total_len),
            to,
        }))
    }

    fn check_v6(
        &self,
        host: &HostView,
        packet: &Packet,
        loopback: bool,
    ) -> Result<Result<Checked, Verdict>, Counter> {
        let header = ipv6::Header::parse(packet.bytes()).map_err(|_| Counter::DropIpHeader)?;
        let ends = (header.source.into(), header.destination.into());
        let to = match self.addresses(host, packet, ends, loopback)? {
            Ok(to) => to,
            Err(onward) => return Ok(Err(onward)),
        };
        let len = ipv6::HEADER_LEN + usize::from(header.payload_len);
        let mut checked = Checked {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol: header.next_header,
            upper: ipv6::HEADER_LEN,
            len,
            to,
        };
        if matches!(
            header.next_header,
            Protocol::TCP | Protocol::UDP | Protocol::ICMPV6
        ) {
            return Ok(Ok(checked));
        }
        let payload = header.payload(packet.bytes());
        let walked = if packet.meta.reassembled.get() {
            ipv6::extension::walk_reassembled(header.next_header, payload)
        } else {
            ipv6::extension::walk(header.next_header, payload)
        };
        match walked {
            Ok(upper) if upper.fragment.is_some() => fragment(packet, to),
            Ok(upper) => {
                checked.protocol = upper.protocol;
                checked.upper += upper.offset;
                Ok(Ok(checked))
            }
            Err(_) => Ok(Err(Verdict::Host(HostWork::Unserved))),
        }
    }

    /// What the destination is to us; or the verdict, if it is another host's.
    fn addresses(
        &self,
        host: &HostView,
        packet: &Packet,
        (source, destination): (IpAddr, IpAddr),
        loopback: bool,
    ) -> Result<Result<Destination, Verdict>, Counter> {
        let facts = &host.net.interfaces[usize::from(self.interface)];
        let ours = &facts.addresses;
        let shares_loopback = || host.net.loopback == Some(self.interface);
        if loopback && destination.is_loopback() && facts.lender.is_some() && !shares_loopback() {
            return Err(reason(Martian::BadDestination)); // no lease that shares none is meant
        }
        match validate::addresses(source, destination, ours, loopback) {
            Ok(to) => Ok(Ok(to)),
            Err(Martian::UnspecifiedSource) if is_proxys_query(packet, destination) => {
                Ok(Ok(Destination::Group))
            }
            Err(Martian::OwnSource) if is_neighbour_discovery(packet) => {
                match ours.classify(destination) {
                    Destination::Other => Err(reason(Martian::OwnSource)),
                    to => Ok(Ok(to)),
                }
            }
            Err(Martian::NotOurs) if host.groups.is_member(self.interface, destination) => {
                Ok(Ok(Destination::Group))
            }
            // Our own packet has come back by the interface of its source, or of what it answers: the host's other addresses are ours.
            Err(Martian::NotOurs) if loopback && host.net.is_local(destination) => {
                Ok(Ok(Destination::Ours))
            }
            Err(Martian::NotOurs) if host.forwarding && !loopback => {
                passes(host, packet, source, destination).map_err(reason)?;
                Ok(Err(Verdict::Forward))
            }
            Err(martian) => Err(reason(martian)),
        }
    }
}

/// IPv4 options of a packet for us (RFC 1122 §3.2.1.8): what is wrong is answered, a source route that goes on is not followed.
#[cold]
fn judge_options(options: &[u8]) -> Result<Option<Verdict>, Counter> {
    match ipv4::options::check(options) {
        Ok(summary) if summary.route_unfinished => Err(Counter::DropIpOptions),
        Ok(_) => Ok(None),
        Err(_) => Ok(Some(Verdict::Host(HostWork::Unserved))),
    }
}

/// A fragment. One for an address of ours that came in a broadcast or multicast frame goes no further: the whole datagram would not show that.
fn fragment(packet: &Packet, to: Destination) -> Result<Result<Checked, Verdict>, Counter> {
    if to == Destination::Ours && packet.meta.to_group.get() {
        return Err(Counter::DropLinkGroup);
    }
    Ok(Err(Verdict::Host(HostWork::Fragment)))
}

/// A general IGMP query from 0.0.0.0: a switch that snoops and has no address asks that way (RFC 4541 §2.1.1).
fn is_proxys_query(packet: &Packet, destination: IpAddr) -> bool {
    const PROTOCOL: usize = 9;
    destination == IpAddr::V4(igmp::ALL_SYSTEMS)
        && packet.bytes().get(PROTOCOL) == Some(&Protocol::IGMP.0)
}

/// A neighbour solicitation or advertisement: from an address of ours it tells of a station that has it, too (RFC 4862 §5.4.4).
#[cold]
fn is_neighbour_discovery(packet: &Packet) -> bool {
    const NEXT_HEADER: usize = 6;
    const KIND: usize = ipv6::HEADER_LEN;
    let bytes = packet.bytes();
    bytes.first().is_some_and(|first| first >> 4 == 6)
        && bytes.get(NEXT_HEADER) == Some(&Protocol::ICMPV6.0)
        && matches!(bytes.get(KIND), Some(135 | 136))
}

const fn reason(martian: Martian) -> Counter {
    match martian {
        Martian::NotOurs | Martian::BadDestination => Counter::DropIpDestination,
        _ => Counter::DropIpSource,
    }
}

/// Whether a packet that is not for this interface may leave its link: what `proto` knows of addresses, and what this host knows of its
/// other interfaces.
#[cold]
#[inline(never)]
fn passes(
    host: &HostView,
    packet: &Packet,
    source: IpAddr,
    destination: IpAddr,
) -> Result<(), Martian> {
    forward::addresses(source, destination)?;
    if host.net.is_local(source) || host.net.is_broadcast(source) {
        return Err(Martian::OwnSource);
    }
    // A directed broadcast (RFC 2644), or a frame that was not for us alone (RFC 1812 §5.3.4).
    if host.net.is_broadcast(destination) || packet.meta.to_group.get() {
        return Err(Martian::BadDestination);
    }
    Ok(())
}

/// The port to which a packet begins a TCP connection: a SYN, and nothing that belongs to one (RFC 9293 §3.5).
fn opened_port(packet: &Packet) -> Option<u16> {
    const FLAGS: usize = 13;
    let segment = packet.bytes().get(usize::from(packet.meta.upper)..)?;
    let [_, _, p0, p1] = *segment.first_chunk::<4>()?;
    let flags = Flags(u16::from(*segment.get(FLAGS)?));
    let opens = packet.meta.protocol == Protocol::TCP
        && flags.contains(Flags::SYN)
        && !flags.intersects(Flags::ACK | Flags::RST);
    opens.then(|| u16::from_be_bytes([p0, p1]))
}

/// Maps a hash evenly to `0..n` without a division.
#[allow(clippy::cast_possible_truncation)] // the result is below n
pub const fn spread(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}

/// The half of the hash that a packet carries.
#[allow(clippy::cast_possible_truncation)] // that is the point
pub const fn short(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
pub(super) mod tests;
