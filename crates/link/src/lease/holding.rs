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
    /// Of all protocols, at all addresses.
    ranges: Vec<PortRange>,
    /// It shares 127.0.0.0/8 and ::1.
    loopback: bool,
}

impl Holding {
    /// It has a port from now on.
    pub fn bind(&mut self, binding: &Binding) {
        self.bindings.insert(*binding);
    }

    /// It has it no more.
    pub fn unbind(&mut self, binding: &Binding) {
        self.bindings.remove(binding);
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
        is_bound(ip) || is_bound(wildcard(ip))
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
