//! The groups that leases are in, and which of them a datagram to many is for: those that have its UDP port and, of a group, are in it with a filter that lets its
//! source in. The work is bounded by the number of leases in the group; of a broadcast, and of a group in which every host is, by that of leases with the port.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use proto::membership::Filter;

use super::LeaseTable;
use crate::{flow::FlowKey, link::lease::covers};

/// The groups of a link's leases.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The ends of those that are in each, and what they hear.
    members: HashMap<IpAddr, Vec<(usize, Filter)>>,
    /// UDP ports that ends have at all addresses, or at a group.
    ports: HashSet<(usize, SocketAddr)>,
}

impl Groups {
    /// An end has a port of UDP.
    pub fn bind(&mut self, end: usize, address: SocketAddr) {
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            self.ports.insert((end, address));
        }
    }

    /// It has it no more.
    pub fn unbind(&mut self, end: usize, address: SocketAddr) {
        self.ports.remove(&(end, address));
    }

    /// A lease has ended.
    pub fn remove(&mut self, end: usize) {
        self.ports.retain(|(holder, _)| *holder != end);
        for members in self.members.values_mut() {
            members.retain(|(member, _)| *member != end);
        }
        self.members.retain(|_, members| !members.is_empty());
    }

    fn join(&mut self, end: usize, group: IpAddr, filter: &Filter) {
        let members = self.members.entry(group).or_default();
        members.retain(|(member, _)| *member != end);
        if !filter.admits_none() {
            members.push((end, filter.clone()));
        }
        if members.is_empty() {
            self.members.remove(&group);
        }
    }

    /// The ends in a group that hear a source.
    fn hearing(&self, group: IpAddr, source: IpAddr) -> impl Iterator<Item = usize> {
        let members = self.members.get(&group).into_iter().flatten();
        let hearing = members.filter(move |(_, filter)| filter.hears(source));
        hearing.map(|(end, _)| *end)
    }

    /// Whether an end has a port of UDP where what is for a group comes.
    fn has_port(&self, end: usize, group: SocketAddr) -> bool {
        let everywhere: IpAddr = match group {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let wildcard = SocketAddr::new(everywhere, group.port());
        self.ports.contains(&(end, wildcard)) || self.ports.contains(&(end, group))
    }
}

impl LeaseTable {
    /// A lease hears this of a group from now on; nothing, where it admits no source.
    pub fn join(&mut self, lease: u64, group: IpAddr, filter: &Filter) {
        if let Some(end) = self.end_of(lease) {
            self.groups.join(end, group, filter);
        }
    }

    /// Whether the lease at an end hears a source in a group.
    pub fn is_member(&self, end: usize, group: IpAddr, source: IpAddr) -> bool {
        let mut hearing = self.groups.hearing(group, source);
        hearing.any(|member| member == end)
    }

    /// Adds the ends that a datagram to many is for to `found`. `is_everyones`: no lease has to be in its group, since every host is, or it is none.
    pub fn hearers(&self, key: &FlowKey, is_everyones: bool, found: &mut Vec<usize>) {
        if !is_everyones {
            let to = SocketAddr::new(key.local, key.local_port);
            let hearing = self.groups.hearing(key.local, key.remote);
            return found.extend(hearing.filter(|&end| self.groups.has_port(end, to)));
        }
        let number = self.udp.get(usize::from(key.local_port)).copied();
        let number = number.and_then(|number| number.checked_sub(1));
        let place = number.and_then(|number| self.places.get(number as usize)); // widening: u32 to usize
        let holders = place.into_iter().flat_map(|place| &place.holders);
        let theirs = holders.filter(|holder| covers(holder.address, key.local));
        found.extend(theirs.map(|holder| holder.end));
        found.sort_unstable();
        found.dedup();
    }
}

#[cfg(test)]
mod tests {
    use proto::{membership::Mode, wire::ipv4::Protocol};

    use super::*;
    use crate::{
        channel::{LeaseSize, lease},
        link::lease::{Binding, PortRange, Reuse, Transport},
    };

    fn binding(address: &str) -> Binding {
        Binding {
            transport: Transport::Udp,
            address: address.parse().unwrap(),
        }
    }

    /// The numbers of the leases that a datagram from a source to a group's port is for. `is_everyones`: every host is in it.
    fn hearers(table: &LeaseTable, to: &str, from: &str, is_everyones: bool) -> Vec<usize> {
        let to: SocketAddr = to.parse().unwrap();
        let key = FlowKey {
            local: to.ip(),
            remote: from.parse().unwrap(),
            local_port: to.port(),
            remote_port: 9,
            protocol: Protocol::UDP,
        };
        let mut found = Vec::new();
        table.hearers(&key, is_everyones, &mut found);
        found.sort_unstable();
        found
    }

    #[test]
    fn a_datagram_is_for_those_that_are_in_its_group_and_have_its_port() {
        let mut table = LeaseTable::default();
        let mut others = Vec::new();
        for number in 10..16 {
            let (end, source, files) = lease((number, 0), "test".into(), LeaseSize::MOST).unwrap();
            table.add(end);
            others.push((source, files));
        }
        let group: IpAddr = "239.1.2.3".parse().unwrap();
        let source = "192.0.2.1";
        let mut only = Filter::of(Mode::Include);
        only.add("192.0.2.2".parse().unwrap());
        let reuse = Reuse::default();
        // At all addresses, at the group, at another group, at an address of the host's, in its range, and without the port.
        for (lease, address) in [
            (10, "0.0.0.0:5353"),
            (11, "239.1.2.3:5353"),
            (12, "239.1.2.4:5353"),
            (13, "10.0.0.2:5353"),
            (15, "[::]:5353"),
        ] {
            table.bind(lease, &binding(address), reuse);
        }
        table.add_ports(14, PortRange(5353, 5354));
        let hear = |table: &LeaseTable, from| hearers(table, "239.1.2.3:5353", from, false);
        assert_eq!(hear(&table, source), [0; 0]);
        for lease in 10..16 {
            table.join(lease, group, &Filter::ANY_SOURCE);
        }
        table.join(99, group, &Filter::ANY_SOURCE); // there is none
        assert_eq!(hear(&table, source), [0, 1, 4]);
        assert_eq!(hearers(&table, "239.1.2.3:5354", source, false), [4]);
        assert_eq!(hearers(&table, "239.1.2.4:5353", source, false), [0; 0]);
        // All of the port, whatever they have joined.
        assert_eq!(hearers(&table, "239.1.2.3:5353", source, true), [0, 1, 4]);
        assert_eq!(hearers(&table, "10.0.0.255:5353", source, true), [0, 4]);
        assert_eq!(hearers(&table, "[ff02::1]:5353", "fd00::1", true), [4, 5]);
        table.join(10, group, &only);
        assert_eq!(hear(&table, source), [1, 4]);
        assert_eq!(hear(&table, "192.0.2.2"), [0, 1, 4]);
        assert!(table.is_member(0, group, "192.0.2.2".parse().unwrap()));
        assert!(!table.is_member(0, group, source.parse().unwrap()));
        table.join(11, group, &Filter::NO_SOURCE);
        assert_eq!(hear(&table, source), [4]);
        table.join(11, group, &Filter::ANY_SOURCE);
        table.unbind(11, &binding("239.1.2.3:5353"));
        assert_eq!(hear(&table, source), [4]);
        // Its place is another's now, which is in none of its groups.
        table.remove(14);
        let (end, _source, _files) = lease((17, 0), "test".into(), LeaseSize::MOST).unwrap();
        table.add(end);
        assert_eq!(hear(&table, source), [0; 0]);
        table.add_ports(17, PortRange(5353, 5353));
        assert_eq!(hear(&table, source), [0; 0]);
        for lease in [10, 11, 12, 13, 15] {
            table.remove(lease);
        }
        assert!(table.groups.members.is_empty());
        assert_eq!(table.groups.ports.len(), 2); // of the last one
    }
}
