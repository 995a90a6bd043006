//! What a received packet's addresses must not be: RFC 1122 §3.2.1.3, RFC 4291 §2.5-§2.7.

use super::address::{Addresses, Destination};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why the addresses of a received packet condemn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Martian {
    /// The source is a multicast address.
    MulticastSource,
    /// The source is 255.255.255.255, the broadcast address of one of our networks, or in 240/4.
    BroadcastSource,
    /// The source is 127/8 or ::1, but the packet came over a wire.
    LoopbackSource,
    /// The source is 0/8 or :: where that is not allowed.
    UnspecifiedSource,
    /// The source (or destination) is an IPv4-mapped or IPv4-compatible IPv6 address.
    MappedAddress,
    /// The source is one of our own addresses (LAND, or an address conflict).
    OwnSource,
    /// The source is a link-local address, and the destination is beyond the link.
    LinkLocalSource,
    /// The destination is 127/8, ::1, 0.0.0.0 or :: on a wire; or one that no router passes on.
    BadDestination,
    /// The destination is not ours. Not an attack by itself; counted apart.
    NotOurs,
}

/// Judges the addresses of a packet that came over a wire, and says what its destination is to us.
/// `loopback`: the interface is the loopback interface, where our own addresses and 127/8 are at
/// home.
///
/// A source of `::` passes only to a multicast destination (duplicate address detection, RFC 4862
/// §5.4.2; MLD); the protocol above still has to want it. A source of 0.0.0.0 never passes: DHCP's
/// server side is not served.
///
/// # Errors
/// The first rule broken.
#[inline]
pub fn addresses(
    source: IpAddr,
    destination: IpAddr,
    ours: &Addresses,
    loopback: bool,
) -> Result<Destination, Martian> {
    if loopback {
        return on_loopback(source, destination, ours);
    }
    let to = ours.classify(destination);
    match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(dst)) => source_v4(from, ours, dst)?,
        (IpAddr::V6(from), IpAddr::V6(dst)) => source_v6(from, ours, dst)?,
        _ => return Err(Martian::BadDestination),
    }
    if to == Destination::Other {
        Err(Martian::NotOurs)
    } else {
        Ok(to)
    }
}

/// The part of [`addresses`] that judges an IPv4 source, for a packet that came over a wire to `dst`, which is ours.
///
/// # Errors
/// The first rule broken.
#[inline]
pub fn source_v4(from: Ipv4Addr, ours: &Addresses, dst: Ipv4Addr) -> Result<(), Martian> {
    // RFC 1122 §3.2.1.3 (a)-(g); negative 6, 11
    match from.octets()[0] {
        0 => return Err(Martian::UnspecifiedSource),
        127 => return Err(Martian::LoopbackSource),
        224..=239 => return Err(Martian::MulticastSource),
        240..=255 => return Err(Martian::BroadcastSource),
        _ => {}
    }
    if matches!(dst.octets()[0], 0 | 127) {
        return Err(Martian::BadDestination);
    }
    if ours.is_local_v4(from) {
        return Err(Martian::OwnSource);
    }
    if ours.is_broadcast_v4(from) {
        return Err(Martian::BroadcastSource);
    }
    Ok(())
}

#[inline]
fn source_v6(from: Ipv6Addr, ours: &Addresses, dst: Ipv6Addr) -> Result<(), Martian> {
    if from.is_multicast() {
        return Err(Martian::MulticastSource); // RFC 4291 §2.7
    }
    if from.to_bits() >> 32 == 0 || from.to_ipv4_mapped().is_some() {
        // ::, ::1 and the IPv4 embeddings of RFC 4291 §2.5.2, §2.5.3, §2.5.5; negative 50
        return match from.to_bits() {
            0 if dst.is_multicast() => Ok(()),
            0 => Err(Martian::UnspecifiedSource),
            1 => Err(Martian::LoopbackSource),
            _ => Err(Martian::MappedAddress),
        };
    }
    if dst.to_bits() >> 32 == 0 {
        return Err(Martian::BadDestination);
    }
    if dst.to_ipv4_mapped().is_some() {
        return Err(Martian::MappedAddress);
    }
    if ours.is_local_v6(from) {
        return Err(Martian::OwnSource);
    }
    Ok(())
}

/// On the loopback interface both ends are ours or 127/8, ::1; only what can be no sender at all is
/// refused.
fn on_loopback(
    source: IpAddr,
    destination: IpAddr,
    ours: &Addresses,
) -> Result<Destination, Martian> {
    if source.is_multicast() {
        return Err(Martian::MulticastSource);
    }
    if source == IpAddr::V4(Ipv4Addr::BROADCAST) || ours.is_broadcast(source) {
        return Err(Martian::BroadcastSource);
    }
    if source.is_unspecified() {
        return Err(Martian::UnspecifiedSource);
    }
    if source.is_ipv4() != destination.is_ipv4() || destination.is_unspecified() {
        return Err(Martian::BadDestination);
    }
    if destination.is_loopback() {
        return Ok(Destination::Ours);
    }
    match ours.classify(destination) {
        Destination::Other => Err(Martian::NotOurs),
        to => Ok(to),
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
