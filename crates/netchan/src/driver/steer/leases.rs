//! Which ports of a link are leased, and to which applications (C4).

mod groups;

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use indexmap::{IndexMap, map::Entry};
use proto::wire::ipv4::Protocol;

use crate::{
    channel::{Form, LeaseEnd, PacketProtocol},
    counters::Counter,
    driver::steer::{Steer, spread},
    flow::FlowKey,
    limits,
    link::lease::{Binding, PortRange, Reuse, Transport, covers},
    packet::Packet,
};

const PORTS: usize = 1 << 16;

/// The leases of a link, and their ends.
#[derive(Debug)]
pub struct LeaseTable {
    ends: Vec<Option<LeaseEnd>>,
    /// How many connections are pinned to each end.
    pins: Vec<usize>,
    /// For each port of TCP, of UDP and each identifier of echo: 0, or one more than its place.
    tcp: Box<[u32]>,
    udp: Box<[u32]>,
    ping: Box<[u32]>,
    places: Vec<Place>,
    /// Protocols without ports, and EtherTypes: the ends of those that have them.
    protocols: HashMap<PacketProtocol, usize>,
    /// Ends to which something was given.
    staged: Vec<usize>,
    groups: groups::Groups,
}

/// A port.
#[derive(Debug, Default)]
struct Place {
    /// Those to which something new may come, in the order in which they came.
    holders: Vec<Holder>,
    /// Connections that are not where their hash says, and their ends: those of leases that take no new ones, and those that were there before others shared
    /// the port, or no longer did.
    pinned: IndexMap<FlowKey, Pin>,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug)]
struct Pin {
    end: usize,
    /// Its application said so: its packets do not tell.
    is_told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Unspecified: at all addresses of its family.
    address: IpAddr,
    end: usize,
    /// It shares the port by SO_REUSEPORT.
    shares: bool,
}

impl Place {
    /// The end that a packet to `address` is for. As Linux: those that are bound to this very address come before those that are bound to all of them; of several
    /// that share the port the flow's hash chooses one, else what came last has it.
    #[inline]
    fn end(
        &self,
        address: IpAddr,
        is_there: impl Fn(&Holder) -> bool + Copy,
        flow: impl FnOnce() -> (FlowKey, u64),
    ) -> Option<usize> {
        let takes = |holder: &&Holder| covers(holder.address, address) && is_there(holder);
        if self.pinned.is_empty() {
            let mut all = self.holders.iter().filter(takes);
            match (all.next(), all.next()) {
                (None, _) => return None,
                (Some(only), None) => return Some(only.end),
                (Some(_), Some(_)) => {}
            }
        }
        self.choose(address, is_there, flow())
    }

    #[inline(never)]
    fn choose(
        &self,
        address: IpAddr,
        is_there: impl Fn(&Holder) -> bool,
        (key, hash): (FlowKey, u64),
    ) -> Option<usize> {
        if let Some(pin) = self.pinned.get(&key) {
            return Some(pin.end);
        }
        let is_exact = |holder: &&Holder| holder.address == address && is_there(holder);
        let is_wide = |holder: &&Holder| covers(holder.address, address) && is_there(holder);
        let last =
            (self.holders.iter().rfind(is_exact)).or_else(|| self.holders.iter().rfind(is_wide))?;
        if !last.shares {
            return Some(last.end);
        }
        let group = self.group(last.address).filter(|holder| is_there(holder));
        let chosen = spread(hash, group.clone().count());
        group.clone().nth(chosen).map(|holder| holder.end)
    }

    /// Those that share the port at the same address.
    fn group(&self, address: IpAddr) -> impl Iterator<Item = &Holder> + Clone {
        let is_one = move |holder: &&Holder| holder.shares && holder.address == address;
        self.holders.iter().filter(is_one)
    }
}

impl Steer {
    /// The end of the lease that a flow, with this hash, is of.
    #[inline]
    pub fn lease_of(&self, key: &FlowKey, hash: u64) -> Option<usize> {
        let port = (key.protocol, key.local, key.local_port);
        (self.leases.as_ref()?).find(port, || (*key, hash))
    }

    /// The end of the lease that has a flow of IPv4. Apart, so that what lends nothing does not pay for it.
    #[inline(never)]
    pub(super) fn lease_of_v4(
        &self,
        ends: u64,
        ports: u32,
        protocol: Protocol,
        hash: u64,
    ) -> Option<usize> {
        let [s0, s1, s2, s3, d0, d1, d2, d3] = ends.to_le_bytes();
        let [p0, p1, r0, r1] = ports.to_le_bytes();
        let key = FlowKey {
            local: [d0, d1, d2, d3].into(),
            remote: [s0, s1, s2, s3].into(),
            local_port: u16::from_be_bytes([p0, p1]),
            remote_port: u16::from_be_bytes([r0, r1]),
            protocol,
        };
        self.lease_of(&key, hash)
    }
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            ends: Vec::new(),
            pins: Vec::new(),
            tcp: vec![0; PORTS].into(),
            udp: vec![0; PORTS].into(),
            ping: vec![0; PORTS].into(),
            places: Vec::new(),
            protocols: HashMap::new(),
            staged: Vec::new(),
            groups: groups::Groups::default(),
        }
    }
}

impl LeaseTable {
    /// The end of the lease that has this port, or identifier of echo, at this address. `flow` says which flow it is, with its hash: it is asked where several
    /// may have the port.
    #[inline]
    pub fn find(
        &self,
        (protocol, address, port): (Protocol, IpAddr, u16),
        flow: impl FnOnce() -> (FlowKey, u64),
    ) -> Option<usize> {
        let places = match protocol {
            Protocol::TCP => &self.tcp,
            Protocol::UDP => &self.udp,
            Protocol::ICMP | Protocol::ICMPV6 => &self.ping,
            _ => return None,
        };
        let place = places.get(usize::from(port))?.checked_sub(1)?;
        let place = self.places.get(place as usize)?; // widening: u32 to usize
        if address.is_loopback() {
            return place.end(address, |holder| self.shares_loopback(holder), flow);
        }
        place.end(address, |_| true, flow)
    }

    /// Whether it is a lease's that is at loopback addresses, too.
    fn shares_loopback(&self, holder: &Holder) -> bool {
        let end = self.ends.get(holder.end).and_then(Option::as_ref);
        end.is_some_and(|end| end.core().has_loopback())
    }

    /// The end of the lease that has the packets of a protocol without ports, or the frames of an EtherType.
    pub fn find_protocol(&self, protocol: PacketProtocol) -> Option<usize> {
        self.protocols.get(&protocol).copied()
    }

    /// A lease has the packets of a protocol from now on. False: another one has them.
    pub fn add_protocol(&mut self, lease: u64, protocol: PacketProtocol) -> bool {
        let Some(end) = self.end_of(lease) else {
            return false;
        };
        *self.protocols.entry(protocol).or_insert(end) == end
    }

    /// Gives a lease's application a copy of a packet, or of a frame.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn put(&mut self, end: usize, packet: &Packet, form: Form) -> Result<(), Counter> {
        let to = self.ends.get_mut(end).and_then(Option::as_mut);
        to.ok_or(Counter::DropLeaseFull)?.put(packet, form)?;
        if self.staged.last() != Some(&end) {
            self.staged.push(end);
        }
        Ok(())
    }

    /// Shows applications what they were given since the last time.
    #[inline]
    pub fn flush(&mut self) {
        while let Some(number) = self.staged.pop() {
            if let Some(Some(end)) = self.ends.get_mut(number) {
                end.flush();
            }
        }
    }

    /// One more lease.
    pub fn add(&mut self, end: LeaseEnd) {
        match self.ends.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(end),
            None => {
                self.ends.push(Some(end));
                self.pins.push(0);
            }
        }
    }

    /// A lease has ended.
    pub fn remove(&mut self, lease: u64) {
        let Some(end) = self.end_of(lease) else {
            return;
        };
        self.ends[end] = None;
        self.pins[end] = 0;
        self.groups.remove(end);
        self.protocols.retain(|_, holder| *holder != end);
        for place in &mut self.places {
            place.holders.retain(|holder| holder.end != end);
            place.pinned.retain(|_, pin| pin.end != end);
        }
        // A place without holders is as good as none, and is taken again by the port that has it.
    }

    fn end_of(&self, lease: u64) -> Option<usize> {
        let is = |end: &Option<LeaseEnd>| end.as_ref().is_some_and(|e| e.core().number == lease);
        self.ends.iter().position(is)
    }

    /// A lease has a port from now on, and shares it so.
    pub fn bind(&mut self, lease: u64, binding: &Binding, reuse: Reuse) {
        let address = binding.address;
        let place = (binding.transport, address.port());
        self.give(lease, place, address.ip(), reuse.port);
    }

    /// Nothing new comes to a lease at a port from now on.
    pub fn unbind(&mut self, lease: u64, binding: &Binding) {
        let (Some(end), ip) = (self.end_of(lease), binding.address.ip()) else {
            return;
        };
        if let Some(place) = self.place_of(binding) {
            let is_it = |holder: &Holder| holder.end == end && holder.address == ip;
            place.holders.retain(|holder| !is_it(holder));
        }
        if binding.transport == Transport::Udp {
            self.groups.unbind(end, binding.address);
        }
    }

    /// These connections of a lease at a port stay with it, whatever their hash says; one that another lease has stays there. A lease has at most
    /// [`LEASE_FLOWS`](limits::LEASE_FLOWS) of them.
    /// `is_told`: the lease's application says so.
    pub fn pin(&mut self, lease: u64, binding: &Binding, flows: &[FlowKey], is_told: bool) {
        let Some(end) = self.end_of(lease) else {
            return;
        };
        let mut left = limits::LEASE_FLOWS.saturating_sub(self.pins.get(end).copied().unwrap_or(0));
        let Some(place) = self.place_of(binding) else {
            return;
        };
        let before = place.pinned.len();
        for flow in flows {
            if left == 0 {
                break;
            }
            if let Entry::Vacant(vacant) = place.pinned.entry(*flow) {
                vacant.insert(Pin { end, is_told });
                left -= 1;
            }
        }
        let more = place.pinned.len() - before;
        if let Some(pins) = self.pins.get_mut(end) {
            *pins += more;
        }
    }

    /// Looks through the connections at a port below the place `below`: those that stay with a lease do so no more, but those in `keep`, and those that were told.
    /// Without `keep` none does. Where the next look goes on.
    pub fn prune(
        &mut self,
        (lease, binding): (u64, &Binding),
        keep: Option<&HashSet<FlowKey>>,
        below: usize,
    ) -> usize {
        let (Some(end), ip) = (self.end_of(lease), binding.address.ip()) else {
            return 0;
        };
        let Some(place) = self.place_of(binding) else {
            return 0;
        };
        let pinned = &mut place.pinned;
        let from = below.min(pinned.len());
        let begin = from.saturating_sub(limits::LEASE_LOOK);
        let mut fewer = 0;
        for at in (begin..from).rev() {
            let goes = |(key, pin): (&FlowKey, &Pin)| {
                let stays = keep.is_some_and(|keep| pin.is_told || keep.contains(key));
                pin.end == end && covers(ip, key.local) && !stays
            };
            if pinned.get_index(at).is_some_and(goes) {
                pinned.swap_remove_index(at);
                fewer += 1;
            }
        }
        if pinned.is_empty() {
            pinned.shrink_to_fit();
        }
        if let Some(pins) = self.pins.get_mut(end) {
            *pins -= fewer;
        }
        begin
    }

    /// The leases that have a port at this address, or at one that this takes in, or that takes it in; each with what it has.
    pub fn rivals(&self, binding: &Binding) -> Vec<(u64, Binding)> {
        let (ip, port) = (binding.address.ip(), binding.address.port());
        let holders = self
            .place(binding)
            .into_iter()
            .flat_map(|place| &place.holders);
        let rivals = holders.filter(|one| covers(one.address, ip) || covers(ip, one.address));
        let with_number = rivals.filter_map(|one| {
            let end = self.ends.get(one.end)?.as_ref()?;
            let address = (one.address, port).into();
            Some((
                end.core().number,
                Binding {
                    address,
                    ..*binding
                },
            ))
        });
        with_number.collect()
    }

    fn place(&self, binding: &Binding) -> Option<&Place> {
        self.places.get(self.number_of(binding)?)
    }

    fn place_of(&mut self, binding: &Binding) -> Option<&mut Place> {
        let number = self.number_of(binding)?;
        self.places.get_mut(number)
    }

    fn number_of(&self, binding: &Binding) -> Option<usize> {
        let numbers = match binding.transport {
            Transport::Tcp => &self.tcp,
            Transport::Udp => &self.udp,
            Transport::Ping => &self.ping,
        };
        let number = numbers.get(usize::from(binding.address.port()))?;
        Some(number.checked_sub(1)? as usize) // widening: u32 to usize
    }

    /// A lease has these ports of all protocols, at all addresses.
    pub fn add_ports(&mut self, lease: u64, ports: PortRange) {
        for port in ports.0..=ports.1 {
            for transport in [Transport::Tcp, Transport::Udp, Transport::Ping] {
                self.give(
                    lease,
                    (transport, port),
                    Ipv4Addr::UNSPECIFIED.into(),
                    false,
                );
                self.give(
                    lease,
                    (transport, port),
                    Ipv6Addr::UNSPECIFIED.into(),
                    false,
                );
            }
        }
    }

    fn give(
        &mut self,
        lease: u64,
        (transport, port): (Transport, u16),
        address: IpAddr,
        shares: bool,
    ) {
        let Some(end) = self.end_of(lease) else {
            return;
        };
        let places = match transport {
            Transport::Tcp => &mut self.tcp,
            Transport::Udp => &mut self.udp,
            Transport::Ping => &mut self.ping,
        };
        if transport == Transport::Udp {
            self.groups.bind(end, SocketAddr::new(address, port));
        }
        let place = &mut places[usize::from(port)];
        if *place == 0 {
            self.places.push(Place::default());
            *place = u32::try_from(self.places.len()).unwrap_or(0); // at most one for each port of three protocols
        }
        let Some(place) = self.places.get_mut((*place as usize).wrapping_sub(1)) else {
            return;
        };
        let is_it = |holder: &Holder| holder.end == end && holder.address == address;
        place.holders.retain(|holder| !is_it(holder));
        place.holders.push(Holder {
            address,
            end,
            shares,
        });
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{LeaseFiles, LeaseSize, LeaseSource, lease};

    const SHARED: Reuse = Reuse {
        address: false,
        port: true,
    };

    fn binding(transport: Transport, address: &str) -> Binding {
        Binding {
            transport,
            address: address.parse().unwrap(),
        }
    }

    /// A table of these leases.
    fn table(numbers: &[u64]) -> (LeaseTable, Vec<(LeaseSource, LeaseFiles)>) {
        let mut table = LeaseTable::default();
        let mut others = Vec::new();
        for &number in numbers {
            let (end, source, files) = lease((number, 0), "test".into(), LeaseSize::MOST).unwrap();
            table.add(end);
            others.push((source, files));
        }
        (table, others)
    }

    /// Which lease has a flow from a peer's port, with this hash.
    fn find(
        table: &LeaseTable,
        protocol: Protocol,
        to: (&str, u16),
        (remote_port, hash): (u16, u64),
    ) -> Option<u64> {
        let key = key(protocol, to, remote_port);
        let end = table.find((protocol, key.local, key.local_port), || (key, hash))?;
        Some(table.ends[end].as_ref().unwrap().core().number)
    }

    fn key(protocol: Protocol, (local, local_port): (&str, u16), remote_port: u16) -> FlowKey {
        FlowKey {
            local: local.parse().unwrap(),
            remote: "10.0.0.9".parse().unwrap(),
            local_port,
            remote_port,
            protocol,
        }
    }

    #[test]
    fn a_port_is_of_the_lease_that_has_it() {
        let (mut table, _others) = table(&[5, 6, 7]);
        let alone = Reuse::default();
        table.bind(5, &binding(Transport::Tcp, "10.0.0.2:80"), alone);
        table.bind(6, &binding(Transport::Tcp, "0.0.0.0:80"), alone);
        table.bind(7, &binding(Transport::Udp, "[::]:80"), alone);
        table.add_ports(7, PortRange(65_534, 65_535));
        table.bind(9, &binding(Transport::Tcp, "0.0.0.0:81"), alone); // there is none
        let (tcp, udp) = (Protocol::TCP, Protocol::UDP);
        for (protocol, ip, port, expected) in [
            (tcp, "10.0.0.2", 80, Some(5)),
            (tcp, "10.0.0.3", 80, Some(6)),
            (tcp, "fd00::2", 80, None),
            (udp, "10.0.0.2", 80, None),
            (udp, "fd00::2", 80, Some(7)),
            (tcp, "10.0.0.2", 81, None),
            (tcp, "fd00::2", 65_535, Some(7)),
            (udp, "10.0.0.2", 65_534, Some(7)),
            (tcp, "10.0.0.2", 65_533, None),
            (Protocol::ICMP, "10.0.0.2", 80, None),
        ] {
            let found = find(&table, protocol, (ip, port), (1, 0));
            assert_eq!(found, expected, "{protocol:?} {ip} {port}");
        }
        let (ip, frames) = (PacketProtocol::Ip, PacketProtocol::EtherType);
        for (lease, protocol, is_given) in [
            (5, ip(89), true),
            (5, ip(89), true),
            (6, ip(89), false),
            (6, frames(89), true),
            (5, frames(0x88b5), true),
            (6, frames(0x88b5), false),
            (9, frames(0x88b6), false),
        ] {
            assert_eq!(
                table.add_protocol(lease, protocol),
                is_given,
                "{lease} {protocol}"
            );
        }
        // At a loopback address only one that shares these.
        table.bind(5, &binding(Transport::Tcp, "127.0.0.1:82"), alone);
        for (number, shared) in [(6, None), (7, Some(7))] {
            table.ends[number - 5]
                .as_ref()
                .unwrap()
                .core()
                .share_loopback();
            assert_eq!(find(&table, tcp, ("127.0.0.1", 65_535), (1, 0)), shared);
            assert_eq!(find(&table, tcp, ("127.0.0.1", 80), (1, 0)), Some(6));
            assert_eq!(find(&table, tcp, ("::1", 80), (1, 0)), None);
            assert_eq!(find(&table, tcp, ("127.0.0.1", 82), (1, 0)), None);
        }
        table.remove(5);
        let held = [ip(89), frames(0x88b5), frames(89)].map(|of| table.find_protocol(of).is_some());
        assert_eq!(held, [false, false, true]);
        assert_eq!(find(&table, tcp, ("10.0.0.2", 80), (1, 0)), Some(6));
        // Its place is another's now, which has none of its ports.
        let (end, _source, _files) = lease((8, 0), "test".into(), LeaseSize::MOST).unwrap();
        table.add(end);
        table.unbind(6, &binding(Transport::Tcp, "0.0.0.0:81"));
        assert_eq!(find(&table, tcp, ("10.0.0.2", 80), (1, 0)), Some(6));
        table.unbind(6, &binding(Transport::Tcp, "0.0.0.0:80"));
        assert_eq!(find(&table, tcp, ("10.0.0.2", 80), (1, 0)), None);
        [6, 7, 8]
            .into_iter()
            .for_each(|number| table.remove(number));
        assert!(table.is_empty());
    }

    #[test]
    fn each_flow_of_a_shared_port_is_one_leases() {
        let (mut table, _others) = table(&[5, 6]);
        let (http, dns) = (
            binding(Transport::Tcp, "0.0.0.0:80"),
            binding(Transport::Udp, "0.0.0.0:53"),
        );
        for lease in [5, 6] {
            table.bind(lease, &http, SHARED);
            table.bind(
                lease,
                &dns,
                Reuse {
                    address: true,
                    port: false,
                },
            );
        }
        // The halves of the hashes.
        let of = |table: &LeaseTable, hash| find(table, Protocol::TCP, ("10.0.0.2", 80), (1, hash));
        let ends = [of(&table, 0), of(&table, u64::MAX)];
        let rivals = |of: &Binding| {
            let rivals = table.rivals(of).into_iter();
            rivals.map(|(lease, _)| lease).collect::<Vec<_>>()
        };
        assert_eq!((ends, rivals(&http)), ([Some(5), Some(6)], vec![5, 6]));
        assert_eq!(rivals(&binding(Transport::Udp, "10.0.0.2:53")), [5, 6]);
        assert_eq!(rivals(&binding(Transport::Tcp, "[::]:80")), [0; 0]);
        // The last one, where it is shared by address alone.
        assert_eq!(
            find(&table, Protocol::UDP, ("10.0.0.2", 53), (1, 0)),
            Some(6)
        );
        table.bind(5, &dns, Reuse::default());
        assert_eq!(
            find(&table, Protocol::UDP, ("10.0.0.2", 53), (1, 0)),
            Some(5)
        );
        // Another address is nearer.
        table.bind(6, &binding(Transport::Tcp, "10.0.0.2:80"), Reuse::default());
        assert_eq!([of(&table, 0), of(&table, u64::MAX)], [Some(6); 2]);
    }

    #[test]
    fn a_pinned_connection_stays_until_it_is_pruned() {
        let (mut table, _others) = table(&[5, 6]);
        let http = binding(Transport::Tcp, "0.0.0.0:80");
        let to = ("10.0.0.2", 80);
        let flows: Vec<_> = (0..1000).map(|port| key(Protocol::TCP, to, port)).collect();
        let of = |table: &LeaseTable, port| find(table, Protocol::TCP, to, (port, 0));
        table.bind(5, &http, Reuse::default());
        table.pin(5, &http, &flows, false);
        table.unbind(5, &http);
        table.bind(6, &http, Reuse::default());
        table.pin(6, &http, &flows, false); // they are another's
        assert_eq!((of(&table, 7), of(&table, 1000)), (Some(5), Some(6)));
        assert_eq!(table.pins, [1000, 0]);
        let prune = |table: &mut LeaseTable, keep: Option<&HashSet<FlowKey>>| {
            let (mut below, mut looks) = (usize::MAX, 0);
            while below > 0 {
                below = table.prune((5, &http), keep, below);
                looks += 1;
            }
            looks
        };
        assert_eq!(
            prune(&mut table, Some(&flows[..10].iter().copied().collect())),
            2
        );
        assert_eq!((of(&table, 7), of(&table, 10)), (Some(5), Some(6)));
        assert_eq!(table.pins, [10, 0]);
        // What was told stays until all goes.
        let told = key(Protocol::TCP, to, 2000);
        table.pin(5, &http, &[told], true);
        prune(&mut table, Some(&HashSet::new()));
        assert_eq!((of(&table, 7), of(&table, 2000)), (Some(6), Some(5)));
        prune(&mut table, None);
        assert_eq!((of(&table, 2000), &table.pins[..]), (Some(6), &[0, 0][..]));
        table.pin(5, &http, &flows, false);
        table.remove(5);
        assert_eq!((of(&table, 7), &table.pins[..]), (Some(6), &[0, 0][..]));
    }

    #[test]
    fn so_many_are_pinned_to_a_lease() {
        let (mut table, _others) = table(&[5]);
        let at = |port| {
            let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            Binding {
                transport: Transport::Tcp,
                address,
            }
        };
        for port in [80, 81] {
            table.bind(5, &at(port), SHARED);
            let to = ("10.0.0.2", port);
            let flows: Vec<_> = (0..10_000).map(|n| key(Protocol::TCP, to, n)).collect();
            table.pin(5, &at(port), &flows, false);
        }
        assert_eq!(table.pins, [limits::LEASE_FLOWS]);
    }
}
