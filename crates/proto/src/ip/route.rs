//! The route table: longest prefix first, at most [`ROUTES_MAX`] of each family.

use super::address::{bits, mask4, mask6};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Routes of one family that a table holds. 64: a host's table; a lookup walks it in order.
pub const ROUTES_MAX: usize = 64;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// The destination is a neighbour itself.
    OnLink,
    /// This neighbour takes it further.
    Gateway(IpAddr),
}

/// The answer of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The destination itself, or a gateway.
    pub via: Via,
    /// The caller's number of the interface.
    pub interface: u16,
}

impl NextHop {
    /// The neighbour to resolve for a packet to `destination`.
    #[inline]
    #[must_use]
    pub const fn neighbor(&self, destination: IpAddr) -> IpAddr {
        match self.via {
            Via::OnLink => destination,
            Via::Gateway(gateway) => gateway,
        }
    }
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The network's address; bits past `prefix_len` are cleared when the route is added.
    pub network: IpAddr,
    /// The prefix' length in bits; 0 is the default route.
    pub prefix_len: u8,
    /// For packets with this mark (SO_MARK) only, before all routes without one; 0: for all.
    pub mark: u32,
    /// What to do with its packets.
    pub next: NextHop,
}

impl Route {
    /// Whether `destination` is of its network.
    fn leads_to(&self, destination: IpAddr) -> bool {
        match (self.network, destination) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                ip.to_bits() & mask4(self.prefix_len) == network.to_bits()
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                ip.to_bits() & mask6(self.prefix_len) == network.to_bits()
            }
            _ => false,
        }
    }

    /// Its network, bits past the prefix cleared.
    #[must_use]
    pub fn masked(&self) -> IpAddr {
        match self.network {
            IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() & mask4(self.prefix_len)).into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & mask6(self.prefix_len)).into(),
        }
    }
}

/// Why a route was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// [`ROUTES_MAX`] routes of this family are there.
    Full,
    /// The prefix is longer than an address, or network and gateway are of two families.
    Mismatch,
    /// The gateway is no unicast address.
    Gateway,
}

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    network: A,
    mask: A,
    prefix_len: u8,
    next: NextHop,
}

/// Routes of both families, each kept in order of falling prefix length, so that the first match is
/// the longest.
#[derive(Clone, Debug)]
pub struct Table {
    v4: [Option<Entry<u32>>; ROUTES_MAX],
    v6: [Option<Entry<u128>>; ROUTES_MAX],
    len4: usize,
    len6: usize,
    /// Those for one mark each, of both families, in order of falling prefix length: nearly always none.
    marked: Vec<Route>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            v4: [None; ROUTES_MAX],
            v6: [None; ROUTES_MAX],
            len4: 0,
            len6: 0,
            marked: Vec::new(),
        }
    }
}

impl Table {
    /// No route.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route, or replaces the one with the same network, prefix length, mark and interface.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn add(&mut self, route: Route) -> Result<(), RouteError> {
        if route.prefix_len > bits(route.network) {
            return Err(RouteError::Mismatch);
        }
        if let Via::Gateway(gateway) = route.next.via {
            if gateway.is_ipv4() != route.network.is_ipv4() {
                return Err(RouteError::Mismatch);
            }
            if gateway.is_unspecified() || gateway.is_multicast() || gateway == Ipv4Addr::BROADCAST
            {
                return Err(RouteError::Gateway);
            }
        }
        if route.mark != 0 {
            return self.add_marked(route);
        }
        let (prefix_len, next) = (route.prefix_len, route.next);
        match route.network {
            IpAddr::V4(ip) => {
                let mask = mask4(prefix_len);
                let entry = Entry {
                    network: ip.to_bits() & mask,
                    mask,
                    prefix_len,
                    next,
                };
                insert(&mut self.v4, &mut self.len4, entry)
            }
            IpAddr::V6(ip) => {
                let mask = mask6(prefix_len);
                let entry = Entry {
                    network: ip.to_bits() & mask,
                    mask,
                    prefix_len,
                    next,
                };
                insert(&mut self.v6, &mut self.len6, entry)
            }
        }
    }

    fn add_marked(&mut self, route: Route) -> Result<(), RouteError> {
        let new = Route {
            network: route.masked(),
            ..route
        };
        let key = |r: &Route| (r.network, r.prefix_len, r.mark, r.next.interface);
        if let Some(old) = self.marked.iter_mut().find(|old| key(old) == key(&new)) {
            *old = new;
            return Ok(());
        }
        if self.marked.len() == ROUTES_MAX {
            return Err(RouteError::Full);
        }
        let longer = |old: &Route| old.prefix_len >= new.prefix_len;
        let at = self.marked.partition_point(longer);
        self.marked.insert(at, new);
        Ok(())
    }

    /// Keeps the routes for which `keep` says so; returns how many went.
    pub fn retain(&mut self, mut keep: impl FnMut(&Route) -> bool) -> usize {
        let (all, mut kept) = (self.iter().collect::<Vec<_>>(), Self::new());
        let mut gone = 0;
        for route in &all {
            if !keep(route) || kept.add(*route).is_err() {
                gone += 1;
            }
        }
        *self = kept;
        gone
    }

    /// As [`lookup`](Self::lookup), for what is marked: a route for its mark goes before those for all, and those for other marks are not
    /// for it. The most specific one of these. A mark of 0 is none.
    #[inline]
    #[must_use]
    pub fn lookup_marked(&self, destination: IpAddr, mark: u32) -> Option<NextHop> {
        let by_mark = self.find_marked(destination, mark, |_| true);
        by_mark.or_else(|| self.lookup(destination))
    }

    #[inline]
    fn find_marked(
        &self,
        destination: IpAddr,
        mark: u32,
        may: impl Fn(&Route) -> bool,
    ) -> Option<NextHop> {
        if self.marked.is_empty() || mark == 0 {
            return None;
        }
        let is = |r: &&Route| r.mark == mark && may(r) && r.leads_to(destination);
        self.marked.iter().find(is).map(|route| route.next)
    }

    /// Whether there may be two ways to `destination`, by what a packet is marked with.
    #[inline]
    #[must_use]
    pub fn depends_on_mark(&self, destination: IpAddr) -> bool {
        !self.marked.is_empty() && self.marked.iter().any(|r| r.leads_to(destination))
    }

    /// The next hop of the longest prefix that contains `destination`, among the routes for all; `None`: no route (report
    /// network unreachable).
    #[inline]
    #[must_use]
    pub fn lookup(&self, destination: IpAddr) -> Option<NextHop> {
        match destination {
            IpAddr::V4(ip) => {
                let ip = ip.to_bits();
                let entries = self.v4.iter().take(self.len4).flatten();
                entries
                    .into_iter()
                    .find(|e| ip & e.mask == e.network)
                    .map(|e| e.next)
            }
            IpAddr::V6(ip) => {
                let ip = ip.to_bits();
                let entries = self.v6.iter().take(self.len6).flatten();
                entries
                    .into_iter()
                    .find(|e| ip & e.mask == e.network)
                    .map(|e| e.next)
            }
        }
    }

    /// As [`lookup_marked`](Self::lookup_marked), among the routes through one interface.
    #[must_use]
    pub fn lookup_by(&self, destination: IpAddr, interface: u16, mark: u32) -> Option<NextHop> {
        let by_mark = self.find_marked(destination, mark, |r| r.next.interface == interface);
        by_mark.or_else(|| {
            let mut routes = self
                .iter()
                .filter(|r| r.mark == 0 && r.next.interface == interface);
            routes.find(|r| r.leads_to(destination)).map(|r| r.next)
        })
    }

    /// All routes: those for a mark, then those for all, IPv4 first; longest prefix first.
    pub fn iter(&self) -> impl Iterator<Item = Route> {
        let v4 = self.v4.iter().take(self.len4).flatten().map(|e| Route {
            network: IpAddr::V4(Ipv4Addr::from_bits(e.network)),
            prefix_len: e.prefix_len,
            mark: 0,
            next: e.next,
        });
        let v6 = self.v6.iter().take(self.len6).flatten().map(|e| Route {
            network: IpAddr::V6(Ipv6Addr::from_bits(e.network)),
            prefix_len: e.prefix_len,
            mark: 0,
            next: e.next,
        });
        self.marked.iter().copied().chain(v4).chain(v6)
    }
}

fn insert<A: Copy + PartialEq>(
    entries: &mut [Option<Entry<A>>; ROUTES_MAX],
    len: &mut usize,
    new: Entry<A>,
) -> Result<(), RouteError> {
    for old in entries.iter_mut().take(*len).flatten() {
        if old.network == new.network
            && old.prefix_len == new.prefix_len
            && old.next.interface == new.next.interface
        {
            *old = new;
            return Ok(());
        }
    }
    if *len == ROUTES_MAX {
        return Err(RouteError::Full);
    }
    let shorter = |e: &Option<Entry<A>>| e.is_some_and(|e| e.prefix_len < new.prefix_len);
    let at = entries.iter().take(*len).position(shorter).unwrap_or(*len);
    entries.copy_within(at..*len, at + 1);
    entries[at] = Some(new);
    *len += 1;
    Ok(())
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
