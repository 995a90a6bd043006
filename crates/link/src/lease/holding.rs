//! The ports that a lease has, as packets are checked against them.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::terms::{Binding, PortRange, Transport};

/// The ports of a lease.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    bindings: HashSet<Binding>,
    /// Ports of UDP that it has at groups, of IPv4 or of IPv6: a socket that is bound there sends from the host's own addresses.
    at_groups: HashSet<(u16, bool)>,
    /// Of all protocols, at all addresses.
    ranges: Vec<PortRange>,
    /// It shares 127.0.0.0/8 and ::1.
    loopback: bool,
}

impl Holding {
    /// It has a port from now on.
    pub fn bind(&mut self, binding: &Binding) {
        self.bindings.insert(*binding);
        self.at_groups.extend(at_group(binding));
    }

    /// It has it no more.
    pub fn unbind(&mut self, binding: &Binding) {
        self.bindings.remove(binding);
        if let Some(place) = at_group(binding)
            && !self
                .bindings
                .iter()
                .any(|other| at_group(other) == Some(place))
        {
            self.at_groups.remove(&place);
        }
    }

    /// It has these ports.
    pub fn add_ports(&mut self, ports: PortRange) {
        self.ranges.push(ports);
    }

    /// It shares 127.0.0.0/8 and ::1 from now on: its ports are there, too.
    pub const fn share_loopback(&mut self) {
        self.loopback = true;
    }

    /// Whether it has ports at this address: at a loopback address only where it shares these.
    #[must_use]
    pub const fn is_at(&self, ip: IpAddr) -> bool {
        self.loopback || !ip.is_loopback()
    }

    /// Whether it has this one.
    #[must_use]
    pub fn has(&self, transport: Transport, address: SocketAddr) -> bool {
        let (ip, port) = (address.ip(), address.port());
        if !self.is_at(ip) {
            return false;
        }
        let in_range = |range: &PortRange| (range.0..=range.1).contains(&port);
        if self.ranges.iter().any(in_range) {
            return true;
        }
        let is_bound = |ip| {
            let address = SocketAddr::new(ip, port);
            self.bindings.contains(&Binding { transport, address })
        };
        let is_at_group =
            || transport == Transport::Udp && self.at_groups.contains(&(port, ip.is_ipv4()));
        is_bound(ip) || is_bound(wildcard(ip)) || is_at_group()
    }
}

/// The port and family of a binding of UDP at a group.
const fn at_group(binding: &Binding) -> Option<(u16, bool)> {
    let (ip, port) = (binding.address.ip(), binding.address.port());
    match (binding.transport, ip.is_multicast()) {
        (Transport::Udp, true) => Some((port, ip.is_ipv4())),
        _ => None,
    }
}

/// Whether a binding at `bound` takes what is for `address`.
#[must_use]
pub fn covers(bound: IpAddr, address: IpAddr) -> bool {
    bound == address || bound == wildcard(address)
}

/// The unspecified address of an address's family.
const fn wildcard(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(address: &str) -> Binding {
        Binding {
            transport: Transport::Udp,
            address: address.parse().unwrap(),
        }
    }

    /// As on Linux: a socket that is bound to a group sends from its port, at an address of the host's.
    #[test]
    fn a_port_at_a_group_is_one_to_send_from() {
        let mut holding = Holding::default();
        let has = |holding: &Holding, transport, from: &str| {
            holding.has(transport, from.parse().unwrap())
        };
        let (first, second) = (udp("239.0.0.1:5353"), udp("239.0.0.2:5353"));
        holding.bind(&first);
        holding.bind(&second);
        for (transport, from, may) in [
            (Transport::Udp, "10.0.0.2:5353", true),
            (Transport::Udp, "10.0.0.2:5354", false),
            (Transport::Tcp, "10.0.0.2:5353", false),
            (Transport::Udp, "[fd00::2]:5353", false),
            (Transport::Udp, "127.0.0.1:5353", false),
        ] {
            assert_eq!(has(&holding, transport, from), may, "{transport:?} {from}");
        }
        holding.unbind(&first);
        assert!(has(&holding, Transport::Udp, "10.0.0.2:5353"));
        holding.unbind(&second);
        assert!(!has(&holding, Transport::Udp, "10.0.0.2:5353"));
    }
}
