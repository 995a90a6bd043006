//! What a stack knows of its networks: its interfaces with their addresses, and the routes. It changes while packets flow
//! (`netchan address`, `netchan route`): each side has a view of it, which it refreshes once a burst.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use proto::{
    ip::{
        address::{self, ADDRESSES_MAX, Address, Addresses},
        route::{self, NextHop, ROUTES_MAX, Route, RouteError, Via},
    },
    wire::ethernet::MacAddr,
};

use crate::link::{Segmentation, lease::PipeTable};

/// What an MTU may be set to at least: no router has to cut what is so short (RFC 791 §3.1, RFC 8200 §5).
const MTU_MIN_V4: usize = 576;
/// The same of IPv6.
pub const MTU_MIN_V6: usize = 1280;

/// One interface as the rest of the stack sees it.
#[derive(Clone, Debug)]
pub struct InterfaceFacts {
    /// The link as the user wrote it.
    pub name: String,
    /// Our link address.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// What that may be set to: as at the start, when the buffers were made.
    pub mtu_max: usize,
    /// What its link does with more text than that.
    pub segmentation: Segmentation,
    /// Our addresses on it.
    pub addresses: Addresses,
    /// Where it is a lease: the lender's link address. Whatever the destination, the lender finds the next hop, and other applications have our
    /// addresses, too.
    pub lender: Option<MacAddr>,
    /// Where its connections get pipes to other leases of the lender's.
    pub pipes: Option<Arc<PipeTable>>,
}

impl InterfaceFacts {
    /// Its name as programs know interfaces (SO_BINDTODEVICE, SIOCGIFNAME): without the kind of link.
    pub fn device(&self) -> &str {
        // The name of a daemon's link stands behind that link's own kind.
        let named = (self.name.strip_prefix("daemon:")).unwrap_or(&self.name);
        let name = named.split_once(':').map_or(named, |(_, name)| name);
        name.split(',').next().unwrap_or(name)
    }
}

/// A link as a program is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The interfaces and the routes, as they are at one moment.
#[derive(Clone, Debug)]
pub struct Network {
    /// Interfaces by number.
    pub interfaces: Vec<InterfaceFacts>,
    /// The interface of 127.0.0.0/8 and ::1, all of which are ours then; `None`: they are the kernel's. Where several processes share them it is that of the
    /// leases, and they are not among its addresses: nothing on its link may know of them. Else it has no others ([`Self::lo`]).
    pub loopback: Option<u8>,
    /// Where packets go.
    pub routes: route::Table,
}

impl Network {
    /// Changes the MTU of an interface.
    ///
    /// # Errors
    /// Why not: less than IP takes, or more than the buffers hold.
    pub fn set_mtu(&mut self, number: usize, mtu: usize) -> Result<(), String> {
        let facts = &mut self.interfaces[number];
        let device = facts.device();
        if mtu > facts.mtu_max {
            return Err(format!(
                "{mtu} is more than the {} bytes that the buffers of {device} hold since the start: `mtu={mtu}` in its link's options",
                facts.mtu_max
            ));
        }
        let speaks_v6 = facts.addresses.iter().any(|a| a.ip().is_ipv6());
        if speaks_v6 && mtu < MTU_MIN_V6 {
            return Err(format!(
                "{device} has IPv6 addresses, which need an MTU of {MTU_MIN_V6} bytes at least (RFC 8200 §5), not {mtu}"
            ));
        }
        if mtu < MTU_MIN_V4 {
            return Err(format!(
                "{mtu} is less than the {MTU_MIN_V4} bytes that every host takes (RFC 791)"
            ));
        }
        facts.mtu = mtu;
        Ok(())
    }

    /// Whether `ip` is an address of ours.
    #[inline]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        let mut interfaces = self.interfaces.iter();
        interfaces.any(|i| i.addresses.is_local(ip)) || self.loopback_for(ip).is_some()
    }

    /// What becomes of more payload to `remote` than a packet on this interface may have. To an address of ours it takes a short cut: uncut and without
    /// checksums, as it never comes to the link.
    pub fn segmentation(&self, interface: u8, remote: IpAddr) -> Segmentation {
        let facts = self.interfaces.get(usize::from(interface));
        let is_lease = facts.is_some_and(|i| i.lender.is_some());
        if self.is_local(remote) && !is_lease {
            return Segmentation::Offloaded { datagrams: false };
        }
        facts.map_or(Segmentation::None, |i| i.segmentation)
    }

    /// The interface for a loopback address that is ours.
    #[inline]
    fn loopback_for(&self, ip: IpAddr) -> Option<u8> {
        self.loopback.filter(|_| ip.is_loopback())
    }

    /// The interface that loopback addresses have for themselves.
    pub fn lo(&self) -> Option<u8> {
        let number = self.loopback?;
        let mut addresses = self.interfaces.get(usize::from(number))?.addresses.iter();
        addresses.any(|a| a.ip().is_loopback()).then_some(number)
    }

    /// Whether loopback addresses are lent with this interface: then leases may share them.
    pub fn lends_loopback(&self, number: usize) -> bool {
        let is_here = self.loopback.map(usize::from) == Some(number);
        is_here && self.interfaces[number].lender.is_none()
    }

    /// Whether what comes from this address of ours may go there by an interface: a loopback address stays on this host (RFC 1122 §3.2.1.3 (g), RFC 4291 §2.5.3).
    #[inline]
    pub fn may_send(&self, interface: u8, source: IpAddr, destination: IpAddr) -> bool {
        !source.is_loopback() || self.is_local(destination) || self.lo() == Some(interface)
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
    /// addresses to another comes in by either's. A loopback address is there, whichever it is.
    pub fn addresses_with(&self, ip: IpAddr, number: u8) -> Cow<'_, Addresses> {
        match self.interface_of(ip).map(u8::try_from) {
            Some(Ok(number)) => self.addresses_at(ip, number),
            _ => self.addresses_at(ip, number),
        }
    }

    /// The addresses of the interface with this number, by which a packet for `ip` came that is answered; of a loopback address, those of a host that has it.
    pub fn addresses_at(&self, ip: IpAddr, number: u8) -> Cow<'_, Addresses> {
        match self.loopback_for(ip) {
            Some(_) => Cow::Owned(with_loopback(ip)),
            None => Cow::Borrowed(&self.interfaces[usize::from(number)].addresses),
        }
    }

    /// Our first address of the family of `like`.
    pub fn source_for_family(&self, like: IpAddr) -> Option<IpAddr> {
        let mut all = self.interfaces.iter().flat_map(|i| i.addresses.iter());
        all.find(|a| a.ip().is_ipv4() == like.is_ipv4())
            .map(|a| a.ip())
    }

    /// What 0.0.0.0 and :: are as a destination.
    pub fn this_host(&self, like: IpAddr) -> Option<IpAddr> {
        let own = self.loopback.map(|_| loopback_like(like));
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
            return Some((number, loopback_like(destination)));
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

/// Changes. What they refuse they say in a sentence; then nothing is changed.
impl Network {
    /// Adds an address to a link, with the route to its network; of IPv6, the link-local address, too, that every interface has (RFC 4291 §2.8).
    ///
    /// # Errors
    /// A link has it already, or this one has [`ADDRESSES_MAX`]; the link is loopback's, and it is no loopback address; the route table is full.
    pub fn add_address(&mut self, number: usize, new: Address) -> Result<(), String> {
        let ip = new.ip();
        // A link-local address is its link's alone (RFC 4291 §2.5.6): another link may have the same.
        let counts = |at: usize| at == number || !address::is_link_local(ip);
        let mut all = self.interfaces.iter().enumerate();
        if let Some((_, other)) =
            all.find(|(at, i)| counts(*at) && i.addresses.iter().any(|a| a.ip() == ip))
        {
            return Err(format!("{} has {ip} already", other.name));
        }
        self.refuse_loopback(number, ip)?;
        self.put_address(number, new)?;
        let has_link_local = |i: &InterfaceFacts| {
            let mut all = i.addresses.iter();
            all.any(|a| a.ip().is_ipv6() && address::is_link_local(a.ip()))
        };
        let facts = &self.interfaces[number];
        if ip.is_ipv6() && !ip.is_loopback() && !has_link_local(facts) {
            let own = Address::new(link_local(facts.mac).into(), 64).map_err(|e| e.to_string())?;
            self.put_address(number, own)?;
        }
        Ok(())
    }

    fn refuse_loopback(&self, number: usize, ip: IpAddr) -> Result<(), String> {
        let is_loopback = self.lo().map(usize::from) == Some(number);
        let name = &self.interfaces[number].name;
        if is_loopback && !ip.is_loopback() {
            return Err(format!("{name} is for loopback addresses only"));
        }
        Ok(())
    }

    fn put_address(&mut self, number: usize, new: Address) -> Result<(), String> {
        let InterfaceFacts {
            name, addresses, ..
        } = &mut self.interfaces[number];
        let full = |_| format!("{name} has {ADDRESSES_MAX} addresses already");
        addresses.add(new).map_err(full)?;
        self.put_route(number, new.network(), new.prefix_len(), 0, Via::OnLink)
    }

    /// Removes an address from a link; and the route to its network, unless another address of the link is in it; and the routes whose gateway is no
    /// neighbour any more.
    ///
    /// # Errors
    /// The link does not have it, or it is loopback's.
    pub fn remove_address(&mut self, number: usize, ip: IpAddr) -> Result<(), String> {
        if ip.is_loopback() {
            return Err("a loopback address stays".to_owned());
        }
        let InterfaceFacts {
            name, addresses, ..
        } = &mut self.interfaces[number];
        let Some(gone) = addresses.iter().find(|a| a.ip() == ip) else {
            return Err(format!("{name} does not have {ip}"));
        };
        addresses.remove(ip);
        let network = |a: &Address| (a.network(), a.prefix_len());
        let has_network = addresses.iter().any(|a| network(&a) == network(&gone));
        let addresses = addresses.clone();
        self.routes.retain(|route| {
            let (is_here, of) = (here(route, number), (route.network, route.prefix_len));
            let is_networks =
                route.mark == 0 && route.next.via == Via::OnLink && of == network(&gone);
            let is_lost = match route.next.via {
                Via::Gateway(gateway) => !addresses.is_on_link(gateway),
                Via::OnLink => is_networks && !has_network,
            };
            !(is_here && is_lost)
        });
        Ok(())
    }

    /// Adds a route by a link, or replaces the one to the same network for the same mark.
    ///
    /// # Errors
    /// The gateway is no neighbour, or is of another family; the table is full.
    pub fn add_route(
        &mut self,
        number: usize,
        (network, prefix_len, mark): (IpAddr, u8, u32),
        gateway: Option<IpAddr>,
    ) -> Result<(), String> {
        let InterfaceFacts {
            name, addresses, ..
        } = &self.interfaces[number];
        if let Some(gateway) = gateway {
            if !addresses.is_on_link(gateway) {
                return Err(format!("gateway {gateway} is on none of {name}'s networks"));
            }
            if addresses.is_local(gateway) {
                return Err(format!("gateway {gateway} is {name}'s own address"));
            }
        }
        let via = gateway.map_or(Via::OnLink, Via::Gateway);
        self.put_route(number, network, prefix_len, mark, via)
    }

    fn put_route(
        &mut self,
        number: usize,
        network: IpAddr,
        prefix_len: u8,
        mark: u32,
        via: Via,
    ) -> Result<(), String> {
        let route = Route {
            network,
            prefix_len,
            mark,
            next: NextHop {
                interface: u16::try_from(number).unwrap_or(u16::MAX),
                via,
            },
        };
        let why = |error| match error {
            RouteError::Full => format!("there are {ROUTES_MAX} routes already"),
            RouteError::Mismatch => "its gateway is of another family".to_owned(),
            RouteError::Gateway => "its gateway is no host".to_owned(),
        };
        let to = format!("{network}/{prefix_len}");
        (self.routes.add(route)).map_err(|error| format!("route to {to}: {}", why(error)))
    }

    /// Removes the route to a network for a mark (0: the one for all); by one link, or whatever link it leads by.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_route(
        &mut self,
        number: Option<usize>,
        (network, prefix_len, mark): (IpAddr, u8, u32),
    ) -> Result<(), String> {
        let is = |route: &Route| {
            (route.network, route.prefix_len, route.mark) == (network, prefix_len, mark)
                && number.is_none_or(|number| here(route, number))
        };
        match self.routes.retain(|route| !is(route)) {
            0 => Err(format!("there is no route to {network}/{prefix_len}")),
            _ => Ok(()),
        }
    }
}

/// The loopback address that packets to others of its family come from, as with Linux.
const fn loopback_like(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

/// The addresses of a host that is at this loopback address.
fn with_loopback(ip: IpAddr) -> Addresses {
    let mut addresses = Addresses::new();
    let (network, first) = match ip {
        IpAddr::V4(_) => (8, loopback_like(ip)),
        IpAddr::V6(_) => (128, loopback_like(ip)),
    };
    for own in [first, ip] {
        if let Ok(own) = Address::new(own, network) {
            let _ = addresses.add(own); // there is room for two
        }
    }
    addresses
}

/// Whether a route leads by this link.
fn here(route: &Route, number: usize) -> bool {
    usize::from(route.next.interface) == number
}

/// The link-local address of a MAC address (RFC 4291, appendix A).
const fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let be = u16::from_be_bytes;
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        be([a ^ 2, b]),
        be([c, 0xff]),
        be([0xfe, d]),
        be([e, f]),
    )
}

#[cfg(test)]
mod tests;
