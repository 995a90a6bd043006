//! Multicast at a datagram socket: the options, and what a socket has set, which its parts in the shards share.

use std::net::{IpAddr, Ipv4Addr};

use proto::membership::{Filter, Mode};

use crate::{
    driver::host::HostView,
    driver::network::{InterfaceFacts, Network},
    limits,
};

/// How a call names an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By its index: the number of the link, from 1 on; 0: whichever leads to the group.
    Index(u32),
    /// By an address of ours on it; 0.0.0.0: whichever leads to the group.
    Address(Ipv4Addr),
}

/// Options of multicast, as in ip(7) and ipv6(7). Those with a group concern the group's family, those without one say which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, MCAST_JOIN_GROUP; with a source IP_ADD_SOURCE_MEMBERSHIP, MCAST_JOIN_SOURCE_GROUP.
    Join {
        /// The group.
        group: IpAddr,
        /// Where.
        via: Via,
        /// Only this one is heard, and others that are joined so.
        source: Option<IpAddr>,
    },
    /// IP_DROP_MEMBERSHIP and its like; with a source IP_DROP_SOURCE_MEMBERSHIP, MCAST_LEAVE_SOURCE_GROUP.
    Leave {
        /// The group.
        group: IpAddr,
        /// Where.
        via: Via,
        /// This one is heard no more; with the last one the group is left.
        source: Option<IpAddr>,
    },
    /// IP_BLOCK_SOURCE, MCAST_BLOCK_SOURCE: all but this one.
    Block {
        /// The group, which was joined before.
        group: IpAddr,
        /// Where.
        via: Via,
        /// Not heard.
        source: IpAddr,
    },
    /// IP_UNBLOCK_SOURCE, MCAST_UNBLOCK_SOURCE.
    Unblock {
        /// The group.
        group: IpAddr,
        /// Where.
        via: Via,
        /// Heard again.
        source: IpAddr,
    },
    /// IP_MULTICAST_IF: what is sent to groups leaves there. Reads as the address that was set.
    InterfaceV4(Via),
    /// IPV6_MULTICAST_IF.
    InterfaceV6(u32),
    /// IP_MULTICAST_TTL.
    Ttl(u8),
    /// IPV6_MULTICAST_HOPS.
    Hops(u8),
    /// IP_MULTICAST_LOOP: our own members hear it, too.
    LoopV4(bool),
    /// IPV6_MULTICAST_LOOP.
    LoopV6(bool),
    /// IP_MULTICAST_ALL: also groups that other sockets joined are heard.
    AllV4(bool),
    /// IPV6_MULTICAST_ALL.
    AllV6(bool),
}

/// A group that a socket is in.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub group: IpAddr,
    pub interface: u8,
    pub filter: Filter,
}

/// What a socket has set. Shared with its parts in the shards.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The socket's number among those that were in a group; 0: it never was.
    pub(crate) number: u64,
    pub(crate) members: Vec<Member>,
    pub(crate) interface_v4: Option<u8>,
    /// What IP_MULTICAST_IF said, for getsockopt; the source address of what is sent.
    pub(crate) address_v4: Ipv4Addr,
    pub(crate) interface_v6: Option<u8>,
    pub(crate) ttl: u8,
    pub(crate) hops: u8,
    pub(crate) loop_v4: bool,
    pub(crate) loop_v6: bool,
    pub(crate) all_v4: bool,
    pub(crate) all_v6: bool,
}

static DEFAULT: Settings = Settings {
    number: 0,
    members: Vec::new(),
    interface_v4: None,
    address_v4: Ipv4Addr::UNSPECIFIED,
    interface_v6: None,
    ttl: 1,
    hops: 1,
    loop_v4: true,
    loop_v6: true,
    all_v4: true,
    all_v6: true,
};

impl Settings {
    /// Those of a socket that has set nothing.
    pub const fn or_default(settings: Option<&Self>) -> &Self {
        match settings {
            Some(settings) => settings,
            None => &DEFAULT,
        }
    }

    /// TTL or hop limit of what goes to `group`.
    pub const fn ttl(&self, group: IpAddr) -> u8 {
        match group {
            IpAddr::V4(_) => self.ttl,
            IpAddr::V6(_) => self.hops,
        }
    }

    /// Whether our own members hear what goes to `group`.
    pub const fn loops(&self, group: IpAddr) -> bool {
        match group {
            IpAddr::V4(_) => self.loop_v4,
            IpAddr::V6(_) => self.loop_v6,
        }
    }

    /// Whether what came by `interface` from `source` to `group` is wanted.
    pub fn hears(&self, host: &HostView, interface: u8, group: IpAddr, source: IpAddr) -> bool {
        let here = |m: &&Member| m.group == group && m.interface == interface;
        if let Some(member) = self.members.iter().find(here) {
            return member.filter.hears(source);
        }
        let all = match group {
            IpAddr::V4(_) => self.all_v4,
            IpAddr::V6(_) => self.all_v6,
        };
        // As Linux: whatever the interface lets in, by whomever; all hosts' groups are always joined.
        let facts = &host.net.interfaces[usize::from(interface)];
        all && (facts.addresses.is_member(group) || host.groups.takes(interface, group, source))
    }

    /// Where what is sent to `group` leaves, and from which address; `None`: nowhere.
    pub(crate) fn way(&self, net: &Network, group: IpAddr) -> Option<(u8, IpAddr)> {
        let (chosen, address) = match group {
            IpAddr::V4(_) => (self.interface_v4, self.address_v4),
            IpAddr::V6(_) => (self.interface_v6, Ipv4Addr::UNSPECIFIED),
        };
        let interface = chosen.or_else(|| leading_to(net, group))?;
        if !address.is_unspecified() {
            return Some((interface, address.into()));
        }
        let facts = net.interfaces.get(usize::from(interface))?;
        Some((interface, facts.addresses.source_for(group)?))
    }

    pub(crate) fn find(&self, group: IpAddr, interface: Option<u8>) -> Option<usize> {
        let here = |m: &Member| m.group == group && interface.is_none_or(|i| i == m.interface);
        self.members.iter().position(here)
    }

    pub(crate) fn add_source(&mut self, at: usize, mode: Mode, source: IpAddr) -> Result<(), i32> {
        let filter = &mut self.members[at].filter;
        if filter.mode() != mode {
            if !filter.sources().is_empty() {
                return Err(libc::EINVAL);
            }
            *filter = Filter::of(mode);
        }
        let most = match source {
            IpAddr::V4(_) => limits::GROUP_SOURCES,
            IpAddr::V6(_) => limits::GROUP_SOURCES_V6,
        };
        if filter.sources().len() >= most {
            return Err(libc::ENOBUFS);
        }
        if filter.add(source) {
            Ok(())
        } else {
            Err(libc::EADDRNOTAVAIL)
        }
    }

    pub(crate) fn remove_source(
        &mut self,
        at: usize,
        mode: Mode,
        source: IpAddr,
    ) -> Result<(), i32> {
        let filter = &mut self.members[at].filter;
        if filter.mode() != mode && !filter.sources().is_empty() {
            return Err(libc::EINVAL);
        }
        if filter.mode() == mode && filter.remove(source) {
            return Ok(());
        }
        Err(libc::EADDRNOTAVAIL)
    }
}

/// The link for a group where none is named: by the routes; else the first one with an address of the group's family. Loopback's has to be named, as with Linux.
pub(crate) fn leading_to(net: &Network, group: IpAddr) -> Option<u8> {
    let by_route = (net.routes.lookup(group)).and_then(|next| u8::try_from(next.interface).ok());
    let has_family = |facts: &InterfaceFacts| {
        (facts.addresses.iter()).any(|a| a.ip().is_ipv4() == group.is_ipv4())
    };
    let mut links = (0..).zip(&net.interfaces);
    let mut first = || links.find(|(number, facts)| net.lo() != Some(*number) && has_family(facts));
    by_route.or_else(|| first().map(|(number, _)| number))
}

/// The link that a call means, for `group`.
pub(crate) fn link_of(net: &Network, group: IpAddr, via: Via) -> Option<u8> {
    match via {
        Via::Index(0) => leading_to(net, group),
        Via::Address(ip) if ip.is_unspecified() => leading_to(net, group),
        Via::Address(ip) => u8::try_from(net.interface_of(ip.into())?).ok(),
        Via::Index(index) => {
            let at = usize::try_from(index).ok()?.checked_sub(1)?;
            u8::try_from(at).ok().filter(|_| at < net.interfaces.len())
        }
    }
}

impl Settings {
    /// Includes a source no more; the group is left with its last one.
    pub(crate) fn leave_source(&mut self, at: usize, source: IpAddr) -> Result<(), i32> {
        self.remove_source(at, Mode::Include, source)?;
        if self.members[at].filter.admits_none() {
            self.members.remove(at);
        }
        Ok(())
    }

    /// What it hears of a group on a link now.
    pub(crate) fn wish(&self, group: IpAddr, link: u8) -> Filter {
        self.find(group, Some(link))
            .map_or(Filter::NO_SOURCE, |at| self.members[at].filter.clone())
    }
}
