//! An interface's addresses: parsing `10.77.0.2/24`, what is ours, what is broadcast, which groups
//! we are in, and which address to send from (RFC 6724).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address with the length of its network's prefix, as in `fd77::2/64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    ip: IpAddr,
    prefix_len: u8,
}

/// Why a text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// There is no `/`: the length of the network's prefix is missing.
    NoPrefix,
    /// What stands before the `/` is neither an IPv4 nor an IPv6 address.
    BadIp,
    /// What stands after the `/` is not a number from 0 to 32 (IPv4) or 128 (IPv6).
    BadPrefix,
    /// A host cannot own this address: unspecified, multicast, broadcast, the network itself,
    /// IPv4-mapped.
    NotUnicast,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPrefix => "the prefix length is missing: write it like 10.77.0.2/24 or fd77::2/64",
            Self::BadIp => "not an IPv4 or IPv6 address before the '/'",
            Self::BadPrefix => "the prefix length after the '/' must be 0 to 32 for IPv4, 0 to 128 for IPv6",
            Self::NotUnicast => {
                "no host can own this address (unspecified, multicast, broadcast or the network's own)"
            }
        })
    }
}

impl core::error::Error for AddressError {}

impl Address {
    /// An address that a host can own.
    ///
    /// # Errors
    /// [`AddressError::BadPrefix`] and [`AddressError::NotUnicast`].
    pub fn new(ip: IpAddr, prefix_len: u8) -> Result<Self, AddressError> {
        let address = Self { ip, prefix_len };
        if prefix_len > bits(ip) {
            return Err(AddressError::BadPrefix);
        }
        let unicast = match ip {
            IpAddr::V4(v4) => {
                let host_all_zero = prefix_len < 31 && address.network() == ip;
                !v4.is_unspecified()
                    && !v4.is_multicast()
                    && !v4.is_broadcast()
                    && !host_all_zero
                    && address.broadcast() != Some(v4)
            }
            IpAddr::V6(v6) => {
                !v6.is_unspecified() && !v6.is_multicast() && v6.to_ipv4_mapped().is_none()
            }
        };
        if unicast {
            Ok(address)
        } else {
            Err(AddressError::NotUnicast)
        }
    }

    /// The address itself.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The length of the network's prefix in bits.
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// The first address of the network.
    pub fn network(&self) -> IpAddr {
        match self.ip {
            IpAddr::V4(ip) => {
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask4(self.prefix_len)))
            }
            IpAddr::V6(ip) => {
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask6(self.prefix_len)))
            }
        }
    }

    /// Whether `ip` lies in the same network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()) & mask4(self.prefix_len) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()) & mask6(self.prefix_len) == 0
            }
            _ => false,
        }
    }

    /// The network's directed broadcast address; a /31 (RFC 3021), a /32 and IPv6 have none.
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.ip {
            IpAddr::V4(ip) if self.prefix_len < 31 => {
                Some(Ipv4Addr::from_bits(ip.to_bits() | !mask4(self.prefix_len)))
            }
            _ => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (ip, prefix) = text.trim().split_once('/').ok_or(AddressError::NoPrefix)?;
        let ip = ip.parse().map_err(|_| AddressError::BadIp)?;
        if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return Err(AddressError::BadPrefix);
        }
        Self::new(ip, prefix.parse().map_err(|_| AddressError::BadPrefix)?)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The octets as one number, in memory's order.
#[inline]
const fn word4(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

#[inline]
const fn word6(ip: Ipv6Addr) -> u128 {
    u128::from_ne_bytes(ip.octets())
}

/// Bits in an address of this family.
pub(crate) const fn bits(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The netmask of `len` bits (more than 32 count as 32).
pub(crate) fn mask4(len: u8) -> u32 {
    u32::MAX
        .checked_shl(32 - u32::from(len.min(32)))
        .unwrap_or(0)
}

/// The netmask of `len` bits (more than 128 count as 128).
pub(crate) fn mask6(len: u8) -> u128 {
    u128::MAX
        .checked_shl(128 - u32::from(len.min(128)))
        .unwrap_or(0)
}

/// The solicited-node multicast address of `ip` (RFC 4291 §2.7.1).
#[must_use]
pub fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | (ip.to_bits() & 0x00ff_ffff))
}

/// Whether `ip` is a link-local unicast address (fe80::/10, 169.254/16).
#[must_use]
pub const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// What a destination is to one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// One of our unicast addresses.
    Ours,
    /// 255.255.255.255 or the broadcast address of one of our networks.
    Broadcast,
    /// A multicast group this interface listens to.
    Group,
    /// Anything else; not for this host.
    Other,
}

/// How many addresses, and how many joined groups, an interface can have.
pub const ADDRESSES_MAX: usize = 16;

/// The addresses of one interface, and the groups it listens to. A tentative address (RFC 4862
/// §5.4) must not be added before duplicate address detection has passed it.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    // These serve the checks that every received packet passes; `index` makes them from `all`.
    // They hold the octets as they stand in memory: nothing is swapped to compare.
    v4: Few<u32>,
    v6: Few<u128>,
    broadcasts: Few<u32>,
    all: Few<Option<Address>>,
    groups: Few<Option<IpAddr>>,
}

#[derive(Clone, Debug, Default)]
struct Few<T> {
    items: [T; ADDRESSES_MAX],
    len: usize,
}

impl<T: Copy + PartialEq + Default> Few<T> {
    fn push(&mut self, item: T) -> bool {
        let Some(slot) = self.items.get_mut(self.len) else {
            return false;
        };
        *slot = item;
        self.len += 1;
        true
    }
    #[inline]
    fn as_slice(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }
    /// For a handful this plain loop is faster than the slice's own search, which is made for many.
    #[allow(clippy::manual_contains)]
    #[inline]
    fn has(&self, item: T) -> bool {
        self.as_slice().iter().any(|x| *x == item)
    }
    fn remove(&mut self, item: T) -> bool {
        let Some(at) = self.as_slice().iter().position(|x| *x == item) else {
            return false;
        };
        self.items.copy_within(at + 1..self.len, at);
        self.len -= 1;
        true
    }
}

/// An interface holds [`ADDRESSES_MAX`] addresses (or groups) already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Addresses {
    /// No address.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address; the first of each family is the primary one. Adding one that is there
    /// changes its prefix.
    ///
    /// # Errors
    /// [`TooMany`] when [`ADDRESSES_MAX`] are there.
    pub fn add(&mut self, address: Address) -> Result<(), TooMany> {
        let here = self.all.items.iter_mut().take(self.all.len).flatten();
        if let Some(old) = here.into_iter().find(|a| a.ip == address.ip) {
            *old = address;
        } else if !self.all.push(Some(address)) {
            return Err(TooMany);
        }
        self.index();
        Ok(())
    }

    /// Removes an address; false when it was not there.
    pub fn remove(&mut self, ip: IpAddr) -> bool {
        let Some(address) = self.iter().find(|a| a.ip == ip) else {
            return false;
        };
        self.all.remove(Some(address));
        self.index();
        true
    }

    /// Makes the arrays for the packet path anew. Each is as large as the one of all addresses.
    fn index(&mut self) {
        (self.v4, self.v6, self.broadcasts) = (Few::default(), Few::default(), Few::default());
        for address in self.all.as_slice().iter().flatten() {
            match address.ip {
                IpAddr::V4(ip) => self.v4.push(word4(ip)),
                IpAddr::V6(ip) => self.v6.push(word6(ip)),
            };
            if let Some(ip) = address.broadcast() {
                self.broadcasts.push(word4(ip));
            }
        }
    }

    /// The addresses, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = Address> {
        self.all.as_slice().iter().copied().flatten()
    }

    /// Whether `ip` is one of our unicast addresses.
    #[inline]
    #[must_use]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.is_local_v4(ip),
            IpAddr::V6(ip) => self.is_local_v6(ip),
        }
    }

    /// [`Self::is_local`] for IPv4.
    #[inline]
    #[must_use]
    pub fn is_local_v4(&self, ip: Ipv4Addr) -> bool {
        self.v4.has(word4(ip))
    }

    /// [`Self::is_local`] for IPv6.
    #[inline]
    #[must_use]
    pub fn is_local_v6(&self, ip: Ipv6Addr) -> bool {
        self.v6.has(word6(ip))
    }

    /// Whether `ip` is the limited broadcast address or that of one of our networks.
    #[must_use]
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(v4) if self.is_broadcast_v4(v4))
    }

    /// [`Self::is_broadcast`] for IPv4.
    #[inline]
    #[must_use]
    pub fn is_broadcast_v4(&self, ip: Ipv4Addr) -> bool {
        let word = word4(ip);
        word == u32::MAX || self.broadcasts.has(word)
    }

    /// Whether `ip` lies in one of our networks (and so is a neighbour's, or ours). IPv6 link-local
    /// always does.
    #[must_use]
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
            || self.iter().any(|a| a.contains(ip))
    }

    /// Joins a multicast group (the all-nodes and solicited-node groups need no joining).
    ///
    /// # Errors
    /// [`TooMany`] when [`ADDRESSES_MAX`] groups are joined, or the address is no multicast
    /// address.
    pub fn join(&mut self, group: IpAddr) -> Result<(), TooMany> {
        if self.groups.as_slice().contains(&Some(group)) {
            return Ok(());
        }
        if group.is_multicast() && self.groups.push(Some(group)) {
            Ok(())
        } else {
            Err(TooMany)
        }
    }

    /// Leaves a group; false when it was not joined.
    pub fn leave(&mut self, group: IpAddr) -> bool {
        self.groups.remove(Some(group))
    }

    /// Whether this interface listens to the group: all-nodes (RFC 1112 §4, RFC 4291 §2.8), the
    /// solicited-node groups of our addresses, and joined ones.
    #[must_use]
    pub fn is_member(&self, group: IpAddr) -> bool {
        const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
        const ALL_NODES_INTERFACE: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);
        const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let built_in = match group {
            IpAddr::V4(v4) => v4 == ALL_SYSTEMS,
            IpAddr::V6(v6) => {
                v6 == ALL_NODES
                    || v6 == ALL_NODES_INTERFACE
                    || self
                        .iter()
                        .any(|a| matches!(a.ip, IpAddr::V6(ours) if solicited_node(ours) == v6))
            }
        };
        built_in || (group.is_multicast() && self.groups.as_slice().contains(&Some(group)))
    }

    /// What a received packet's destination is to us; our own addresses are looked at first.
    #[inline]
    #[must_use]
    pub fn classify(&self, ip: IpAddr) -> Destination {
        if self.is_local(ip) {
            Destination::Ours
        } else {
            self.classify_other(ip)
        }
    }

    #[inline(never)]
    fn classify_other(&self, ip: IpAddr) -> Destination {
        if ip.is_multicast() {
            if self.is_member(ip) {
                Destination::Group
            } else {
                Destination::Other
            }
        } else if self.is_broadcast(ip) {
            Destination::Broadcast
        } else {
            Destination::Other
        }
    }

    /// The address to send from to `destination`: RFC 6724 §5 rules 1 (same address), 2 (scope) and
    /// 8 (longest common prefix), then the order of adding. IPv4 likewise (RFC 1122 §3.3.4.3).
    /// `None`: no address of its family.
    #[must_use]
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let mut best: Option<(Preference, IpAddr)> = None;
        for address in self
            .iter()
            .filter(|a| a.ip.is_ipv4() == destination.is_ipv4())
        {
            let preference = preference(&address, destination);
            if best.is_none_or(|(b, _)| preference > b) {
                best = Some((preference, address.ip));
            }
        }
        best.map(|(_, ip)| ip)
    }
}

/// Larger is better: (rule 1, rule 2, rule 6 in short: not crossing between ULA and global, rule
/// 8).
type Preference = (bool, i16, bool, u32);

fn preference(candidate: &Address, destination: IpAddr) -> Preference {
    let (want, have) = (
        i16::from(scope(destination)),
        i16::from(scope(candidate.ip)),
    );
    // Rule 2: the smallest scope that is not smaller than the destination's; else the largest one.
    let by_scope = if have >= want { 32 - have } else { have - 32 };
    let same_label = is_unique_local(candidate.ip) == is_unique_local(destination);
    let common = match (candidate.ip, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    // Rule 8 counts no further than the source's own prefix (RFC 6724 §2.2).
    (
        candidate.ip == destination,
        by_scope,
        same_label,
        common.min(u32::from(candidate.prefix_len)),
    )
}

fn is_unique_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unique_local())
}

/// RFC 6724 §3.1, with the numbers of RFC 4291 §2.7: 1 interface, 2 link, 5 site, 14 global.
fn scope(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V6(v6) if v6.is_multicast() => v6.octets()[1] & 0x0f,
        IpAddr::V6(v6) if v6.is_loopback() => 2,
        IpAddr::V4(v4) if v4.is_loopback() => 2,
        _ if is_link_local(ip) => 2,
        _ => 14,
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
