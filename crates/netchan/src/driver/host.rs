//! What all interfaces and shards of one stack know and none of them changes: addresses, routes, keys; and what changes: the groups, TCP's settings.

use std::{net::IpAddr, sync::Arc};

use proto::{
    ip::{address::Addresses, keyed::Seed, route},
    wire::ethernet::MacAddr,
};

use crate::{
    driver::{groups::Groups, settings::TcpNow},
    flow::FlowHash,
    link::Segmentation,
    places::Places,
};

/// One interface as the rest of the stack sees it.
#[derive(Clone, Debug)]
pub struct InterfaceFacts {
    /// The link as the user wrote it.
    pub name: String,
    /// Our link address.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// What its link does with more text than that.
    pub segmentation: Segmentation,
    /// Our addresses on it.
    pub addresses: Addresses,
}

impl InterfaceFacts {
    /// Its name as programs know interfaces (SO_BINDTODEVICE, SIOCGIFNAME): without the kind of link.
    pub fn device(&self) -> &str {
        let name = self
            .name
            .split_once(':')
            .map_or(&*self.name, |(_, name)| name);
        name.split(',').next().unwrap_or(name)
    }
}

/// A link as a program is told of it.
#[derive(Clone, Debug)]
pub struct LinkFacts {
    /// Its name without its kind.
    pub name: String,
    /// Our link address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Our addresses, and the bits of their networks' prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// It is this host's own: 127.0.0.0/8 and ::1.
    pub is_loopback: bool,
}

/// Facts of one stack, fixed at its start and shared by everyone without a lock, but for those that say otherwise.
#[derive(Debug)]
pub struct Host {
    /// Interfaces by number.
    pub interfaces: Vec<InterfaceFacts>,
    /// The interface of 127.0.0.0/8 and ::1, all of which are ours then; `None`: they are the kernel's.
    pub loopback: Option<u8>,
    /// Where packets go.
    pub routes: route::Table,
    /// Packets for other hosts are passed on (RFC 1812, RFC 8200); else they are dropped.
    pub forwarding: bool,
    /// SYNs that are passed on offer no longer segments than the links they cross here take.
    pub mss_clamp: bool,
    /// The keyed hash of flows.
    pub flow_hash: FlowHash,
    /// Secret of initial sequence numbers, ports and timestamp offsets (RFC 6528, RFC 6056).
    pub secret: [u8; 16],
    /// Seed of the interfaces' tables.
    pub seed: Seed,
    /// What TCP connections start with now; MSS and buffers are set for each interface and socket.
    pub tcp: TcpNow,
    /// Bytes a stream's send queue holds at most in the beginning.
    pub send_buffer: usize,
    /// What that grows to with the congestion window.
    pub send_buffer_max: usize,
    /// The multicast groups that interfaces are in; they change.
    pub groups: Groups,
    /// Where sockets live, if each has a shard of its own.
    pub places: Option<Arc<Places>>,
}

impl Host {
    /// Whether `ip` is an address of ours.
    #[inline]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        let mut interfaces = self.interfaces.iter();
        interfaces.any(|i| i.addresses.is_local(ip)) || self.loopback_for(ip).is_some()
    }

    /// The interface for a loopback address that is ours.
    #[inline]
    fn loopback_for(&self, ip: IpAddr) -> Option<u8> {
        self.loopback.filter(|_| ip.is_loopback())
    }

    /// Whether what comes from this address of ours may go there: a loopback address stays on this host (RFC 1122 §3.2.1.3 (g), RFC 4291 §2.5.3).
    #[inline]
    pub fn may_send(&self, source: IpAddr, destination: IpAddr) -> bool {
        !source.is_loopback() || self.is_local(destination)
    }

    /// Whether `ip` is multicast or a broadcast address of ours: a socket may be bound to it.
    pub fn is_group(&self, ip: IpAddr) -> bool {
        ip.is_multicast() || self.is_broadcast(ip)
    }

    /// Whether `ip` is the broadcast address, or one of our networks'.
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        self.interfaces.iter().any(|i| i.addresses.is_broadcast(ip))
    }

    /// The interface that has this address of ours.
    pub fn interface_of(&self, ip: IpAddr) -> Option<usize> {
        if let Some(number) = self.loopback_for(ip) {
            return Some(number.into());
        }
        self.interfaces
            .iter()
            .position(|i| i.addresses.is_local(ip))
    }

    /// The addresses of the interface with `ip`, which is ours, or of the one with this number: what we send ourselves from one of our
    /// addresses to another comes in by either's.
    pub fn addresses_with(&self, ip: IpAddr, number: u8) -> &Addresses {
        let number = self.interface_of(ip).unwrap_or(number.into());
        &self.interfaces[number].addresses
    }

    /// Our first address of the family of `like`.
    pub fn source_for_family(&self, like: IpAddr) -> Option<IpAddr> {
        let mut all = self.interfaces.iter().flat_map(|i| i.addresses.iter());
        all.find(|a| a.ip().is_ipv4() == like.is_ipv4())
            .map(|a| a.ip())
    }

    /// What 0.0.0.0 and :: are as a destination.
    pub fn this_host(&self, like: IpAddr) -> Option<IpAddr> {
        let number = self.loopback.map(usize::from);
        let loopback = number.and_then(|number| self.interfaces.get(number));
        let own = loopback.and_then(|lo| lo.addresses.source_for(like));
        own.or_else(|| self.source_for_family(like))
    }

    /// As [`route`](Self::route), for a socket that is bound to an interface: what is not for this host leaves there, if any route leads to it.
    pub fn route_by(
        &self,
        device: Option<u8>,
        destination: IpAddr,
        mark: u32,
    ) -> Option<(u8, IpAddr)> {
        let Some(number) = device.filter(|_| !self.is_local(destination)) else {
            return self.route(destination, mark);
        };
        let addresses = &self.interfaces.get(usize::from(number))?.addresses;
        let is_group = destination.is_multicast() || addresses.is_broadcast(destination);
        if !is_group && self.routes.lookup_marked(destination, mark).is_none() {
            return None;
        }
        Some((number, addresses.source_for(destination)?))
    }

    /// The interface and source address for packets to `destination` that are marked so (SO_MARK; 0: not at all); `None`: no route.
    pub fn route(&self, destination: IpAddr, mark: u32) -> Option<(u8, IpAddr)> {
        if let Some(number) = self.loopback_for(destination) {
            let facts = self.interfaces.get(usize::from(number))?;
            return Some((number, facts.addresses.source_for(destination)?));
        }
        if self.is_local(destination) {
            let number = self.interface_of(destination)?;
            return Some((u8::try_from(number).ok()?, destination));
        }
        let next = self.routes.lookup_marked(destination, mark)?;
        let source = self
            .interfaces
            .get(usize::from(next.interface))?
            .addresses
            .source_for(destination)?;
        Some((u8::try_from(next.interface).ok()?, source))
    }
}
