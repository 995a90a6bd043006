//! What a router asks of a packet before it passes it on, and what it changes in it: RFC 1812 §5, RFC 8200 §3, RFC 4291 §2.5.
//! Options and extension headers go on as they are: no route is recorded, no time stamped, no hop-by-hop option looked at
//! (RFC 8200 §4.3 leaves that to routers that are told to).

use core::net::IpAddr;

use super::address::is_link_local;
use super::validate::Martian;
use crate::wire::{
    checksum,
    ipv4::{self, options},
    ipv6,
};

/// Why a packet is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Its header is none.
    Malformed,
    /// An option is wrong, at this octet of the header (RFC 1812 §4.3.3.5: say so).
    Option {
        /// For the Parameter Problem.
        pointer: u8,
    },
    /// A source route. RFC 1812 §5.2.4.1 lets a router discard such; RFC 6274 §3.13.2.3 advises it.
    SourceRoute,
}

/// A packet that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Where it goes.
    pub destination: IpAddr,
    /// Octets, by its own header.
    pub len: usize,
    /// Hops that it has left; with one or none it ends here.
    pub hops: u8,
    /// Whether a router may cut it: IPv4 without DF.
    pub may_cut: bool,
}

/// Whether a packet between these addresses may leave the link it came from: [`super::validate::addresses`] has found nothing
/// wrong with them, but that the destination is not ours.
///
/// # Errors
/// RFC 1812 §5.3.7 (martians), §5.3.4 and §5.3.5 (groups and broadcasts), RFC 3927 §7 and RFC 4291 §2.5.6 (link-local).
pub fn addresses(source: IpAddr, destination: IpAddr) -> Result<(), Martian> {
    if is_link_local(source) {
        return Err(Martian::LinkLocalSource);
    }
    // 224/4 are groups, 240/4 is reserved.
    let no_host = matches!(destination, IpAddr::V4(ip) if ip.octets()[0] >= 224);
    if no_host || destination.is_multicast() || is_link_local(destination) {
        return Err(Martian::BadDestination);
    }
    Ok(())
}

/// Reads what a router wants to know of a packet.
///
/// # Errors
/// See [`Refused`].
pub fn check(packet: &[u8]) -> Result<Passing, Refused> {
    if packet.first().is_some_and(|b| b >> 4 == 6) {
        let header = ipv6::Header::parse(packet).map_err(|_| Refused::Malformed)?;
        return Ok(Passing {
            destination: header.destination.into(),
            len: ipv6::HEADER_LEN + usize::from(header.payload_len),
            hops: header.hop_limit,
            may_cut: false,
        });
    }
    let header = ipv4::Header::parse(packet).map_err(|_| Refused::Malformed)?;
    match options::check(header.options(packet)) {
        Err(problem) => {
            let pointer = problem.pointer;
            return Err(Refused::Option { pointer });
        }
        Ok(summary) if summary.source_route => return Err(Refused::SourceRoute),
        Ok(_) => {}
    }
    Ok(Passing {
        destination: header.destination.into(),
        len: usize::from(header.total_len),
        hops: header.ttl,
        may_cut: !header.dont_fragment,
    })
}

/// Takes a hop off a packet that [`check`] let pass with more than one (RFC 1812 §5.3.1, RFC 8200 §3). IPv4's checksum follows
/// by RFC 1624: what was wrong with it before stays wrong.
pub fn take_hop(packet: &mut [u8]) {
    const HOP_LIMIT: usize = 7;
    const TTL: usize = 8;
    if packet.first().is_some_and(|b| b >> 4 == 6) {
        if let Some(hops) = packet.get_mut(HOP_LIMIT) {
            *hops = hops.saturating_sub(1);
        }
        return;
    }
    let Some(header) = packet.first_chunk_mut::<{ ipv4::HEADER_LEN }>() else {
        return;
    };
    let before = u16::from_be_bytes([header[TTL], header[TTL + 1]]);
    header[TTL] = header[TTL].saturating_sub(1);
    let after = u16::from_be_bytes([header[TTL], header[TTL + 1]]);
    let sum = checksum::update(u16::from_be_bytes([header[10], header[11]]), before, after);
    [header[10], header[11]] = sum.to_be_bytes();
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
