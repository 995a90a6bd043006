//! MLD: version 2 (RFC 9777), and what a host needs of version 1 (RFC 2710). Its messages are ICMPv6's.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use super::ipv6;
use super::membership::{Message, Pending, QUERY_TAIL, Query, Sources, Version, decode};
use super::{Error, Protocol, checksum};

/// Where general queries go, and nothing is reported of.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Where dones go (RFC 2710 §8).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Where reports of version 2 go (RFC 9777 §5.2.14).
pub const ROUTERS_V2: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Bytes of the headers of all we send: IPv6, and hop-by-hop options with a router alert.
pub const IP_HEADER: usize = ipv6::HEADER_LEN + 8;
/// Bytes of a message of version 1, and of the common part of a query.
const SHORT: usize = 24;
/// Bytes of a version 2 query before its sources.
const QUERY: usize = SHORT + QUERY_TAIL;

/// ICMPv6 types.
mod kind {
    pub const QUERY: u8 = 130;
    pub const REPORT_V1: u8 = 131;
    pub const DONE: u8 = 132;
    pub const REPORT_V2: u8 = 143;
}

/// Whether an ICMPv6 message of this type is MLD's.
pub const fn is_mld(kind: u8) -> bool {
    matches!(kind, kind::QUERY..=kind::DONE | kind::REPORT_V2)
}

/// The message in `bytes`, an IPv6 upper-layer packet behind `header`; `alert`: a hop-by-hop router alert was there.
///
/// # Errors
/// `Truncated`; `Checksum`; `Version` for a type that is not MLD's; `Length` for a query whose sources are not there or whose length is no
/// version's (RFC 9777 §8.1); `Value` where it must be dropped: the hop limit is not 1, the source is not link-local (a report's may
/// be unspecified), no router alert (§6.2), a general query to another group than all nodes (§5.1.15), a group that is none.
pub fn parse<'a>(
    header: &ipv6::Header,
    bytes: &'a [u8],
    alert: bool,
) -> Result<Message<'a>, Error> {
    let (source, destination) = (header.source, header.destination);
    let kind = *bytes.first().ok_or(Error::Truncated)?;
    if !is_mld(kind) {
        return Err(Error::Version);
    }
    let len = u32::try_from(bytes.len()).map_err(|_| Error::Length)?;
    let pseudo = checksum::pseudo_header_v6(source, destination, Protocol::ICMPV6, len);
    if !checksum::is_valid(pseudo + checksum::sum(bytes)) {
        return Err(Error::Checksum);
    }
    let from_link = source.is_unicast_link_local();
    let may_speak = from_link || (kind != kind::QUERY && source.is_unspecified());
    if header.hop_limit != 1 || !alert || !may_speak {
        return Err(Error::Value);
    }
    if matches!(kind, kind::DONE | kind::REPORT_V2) {
        return Ok(Message::ForRouters);
    }
    let head = bytes.first_chunk::<SHORT>().ok_or(Error::Truncated)?;
    let group = Ipv6Addr::from_octets(*head.last_chunk().ok_or(Error::Truncated)?);
    if kind == kind::REPORT_V1 {
        return if group.is_multicast() {
            Ok(Message::Report(group.into()))
        } else {
            Err(Error::Value)
        };
    }
    query(
        destination,
        u16::from_be_bytes([head[4], head[5]]),
        group,
        bytes,
    )
}

fn query(
    destination: Ipv6Addr,
    code: u16,
    group: Ipv6Addr,
    bytes: &[u8],
) -> Result<Message<'_>, Error> {
    let version = match bytes.len() {
        SHORT => Version::Second,
        QUERY.. => Version::Third,
        _ => return Err(Error::Length),
    };
    let is_general = group.is_unspecified();
    if (is_general && destination != ALL_NODES) || !(is_general || group.is_multicast()) {
        return Err(Error::Value);
    }
    let millis = match version {
        Version::Third => decode(code.into(), 12),
        _ => code.into(),
    };
    let mut query = Query {
        version,
        group: (!is_general).then_some(group.into()),
        max_response: Duration::from_millis(millis.into()),
        robustness: 0,
        interval: Duration::ZERO,
        sources: Sources::v6(&[]),
    };
    if version == Version::Third {
        query = query.parse_tail(bytes.get(SHORT..).ok_or(Error::Length)?)?;
    }
    Ok(Message::Query(query))
}

/// Writes a whole packet with a version 2 report, of as many records as fit into `room` (the MTU at most); its length, 0 if none fits.
/// `source`: a link-local address of ours, or unspecified where there is none (RFC 9777 §5.2.13).
pub fn emit_report(source: Ipv6Addr, pending: &mut Pending, room: &mut [u8]) -> usize {
    let Some((ip, message)) = room.split_at_mut_checked(IP_HEADER) else {
        return 0;
    };
    match pending.emit(kind::REPORT_V2, message) {
        0 => 0,
        len => finish(ip, message, source, ROUTERS_V2, len),
    }
}

/// Writes a whole packet with a version 1 report, to the group itself; its length.
pub fn emit_old_report(source: Ipv6Addr, group: Ipv6Addr, room: &mut [u8]) -> usize {
    emit_short(kind::REPORT_V1, source, group, group, room)
}

/// Writes a whole packet with a done (version 1); its length.
pub fn emit_done(source: Ipv6Addr, group: Ipv6Addr, room: &mut [u8]) -> usize {
    emit_short(kind::DONE, source, ALL_ROUTERS, group, room)
}

fn emit_short(kind: u8, source: Ipv6Addr, to: Ipv6Addr, group: Ipv6Addr, room: &mut [u8]) -> usize {
    let Some((ip, message)) = room.split_at_mut_checked(IP_HEADER) else {
        return 0;
    };
    let Some(head) = message.first_chunk_mut::<SHORT>() else {
        return 0;
    };
    *head = [0; SHORT];
    head[0] = kind;
    head[8..].copy_from_slice(&group.octets());
    finish(ip, message, source, to, SHORT)
}

/// The checksum of the message and the headers in front: hop limit 1, router alert (RFC 9777 §5).
fn finish(ip: &mut [u8], message: &mut [u8], source: Ipv6Addr, to: Ipv6Addr, len: usize) -> usize {
    // Padded with PadN to eight bytes; the alert's value 0 is MLD (RFC 2711 §2.1).
    const OPTIONS: [u8; 8] = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];
    let (Some(message), Ok(wire_len)) = (message.get_mut(..len), u32::try_from(len)) else {
        return 0;
    };
    let pseudo = checksum::pseudo_header_v6(source, to, Protocol::ICMPV6, wire_len);
    let sum = checksum::finish(pseudo + checksum::sum(message));
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let mut header = ipv6::Header::new(Protocol(0), source, to);
    header.hop_limit = 1;
    if header.emit(OPTIONS.len() + len, ip) == 0 {
        return 0;
    }
    let Some(options) = ip.get_mut(ipv6::HEADER_LEN..IP_HEADER) else {
        return 0;
    };
    options.copy_from_slice(&OPTIONS);
    IP_HEADER + len
}

/// Whether membership in `group` is never reported: all nodes, and what never leaves a node (RFC 9777 §6).
pub(crate) fn is_silent(group: IpAddr) -> bool {
    match group {
        IpAddr::V6(ip) => ip == ALL_NODES || ip.octets()[1] & 0x0f <= 1,
        IpAddr::V4(_) => false,
    }
}
