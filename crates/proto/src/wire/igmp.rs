//! IGMP: version 3 (RFC 9776), and what a host needs of versions 2 (RFC 2236) and 1 (RFC 1112).

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use super::ipv4::{self, options};
use super::membership::{Message, Pending, QUERY_TAIL, Query, Sources, Version, decode};
use super::{Error, Protocol, checksum};

/// Where general queries go, and nothing is reported of.
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Where leaves go (RFC 2236 §9).
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Where reports of version 3 go (RFC 9776 §4.2.14).
pub const ROUTERS_V3: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Bytes of the IPv4 header of all we send: with the router alert option.
pub const IP_HEADER: usize = ipv4::HEADER_LEN + 4;
/// Bytes of a message of version 1 or 2, and of the common part of a query.
const SHORT: usize = 8;
/// Bytes of a version 3 query before its sources.
const QUERY: usize = SHORT + QUERY_TAIL;

/// Message types.
mod kind {
    pub const QUERY: u8 = 0x11;
    pub const REPORT_V1: u8 = 0x12;
    pub const REPORT_V2: u8 = 0x16;
    pub const LEAVE: u8 = 0x17;
    pub const REPORT_V3: u8 = 0x22;
}

/// The message in `packet`, a whole IPv4 packet with `header`.
///
/// # Errors
/// `Truncated` below 8 bytes; `Checksum`; `Version` for a type that is not IGMP's; `Length` for a query whose sources are not there
/// or whose length is no version's (RFC 9776 §7.1); `Value` where the RFC says to ignore it: a query of version 2 or 3
/// without router alert, a general query to another group than all systems (§9.1), a group that is none.
pub fn parse<'a>(header: &ipv4::Header, packet: &'a [u8]) -> Result<Message<'a>, Error> {
    let bytes = header.payload(packet);
    let head = bytes.first_chunk::<SHORT>().ok_or(Error::Truncated)?;
    if !checksum::is_valid(checksum::sum(bytes)) {
        return Err(Error::Checksum);
    }
    let group = Ipv4Addr::new(head[4], head[5], head[6], head[7]);
    match head[0] {
        kind::QUERY => {
            let alert = options::iter(header.options(packet))
                .filter_map(Result::ok)
                .any(|option| option.kind == options::kind::ROUTER_ALERT);
            query(header.destination, head[1], group, bytes, alert)
        }
        kind::REPORT_V1 | kind::REPORT_V2 if group.is_multicast() => {
            Ok(Message::Report(group.into()))
        }
        kind::REPORT_V1 | kind::REPORT_V2 => Err(Error::Value),
        kind::LEAVE | kind::REPORT_V3 => Ok(Message::ForRouters),
        _ => Err(Error::Version),
    }
}

fn query(
    destination: Ipv4Addr,
    code: u8,
    group: Ipv4Addr,
    bytes: &[u8],
    alert: bool,
) -> Result<Message<'_>, Error> {
    let version = match bytes.len() {
        SHORT if code == 0 => Version::First,
        SHORT => Version::Second,
        QUERY.. => Version::Third,
        _ => return Err(Error::Length),
    };
    let is_general = group.is_unspecified();
    if (is_general && destination != ALL_SYSTEMS)
        || !(is_general || group.is_multicast())
        || (version > Version::First && !alert)
    {
        return Err(Error::Value);
    }
    let tenths = |n: u32| Duration::from_millis(u64::from(n) * 100);
    let mut query = Query {
        version,
        // Version 1 asks for all groups, whatever the field says (RFC 1112 App. I).
        group: (!is_general && version > Version::First).then_some(group.into()),
        max_response: match version {
            Version::First => Duration::from_secs(10), // RFC 2236 §4
            Version::Second => tenths(code.into()),
            Version::Third => tenths(decode(code.into(), 4)),
        },
        robustness: 0,
        interval: Duration::ZERO,
        sources: Sources::v4(&[]),
    };
    if version == Version::Third {
        query = query.parse_tail(bytes.get(SHORT..).ok_or(Error::Length)?)?;
    }
    Ok(Message::Query(query))
}

/// Writes a whole packet with a version 3 report, of as many records as fit into `room` (the MTU at most); its length, 0 if none fits.
pub fn emit_report(source: Ipv4Addr, pending: &mut Pending, room: &mut [u8]) -> usize {
    let Some((ip, message)) = room.split_at_mut_checked(IP_HEADER) else {
        return 0;
    };
    match pending.emit(kind::REPORT_V3, message) {
        0 => 0,
        len => finish(ip, message, source, ROUTERS_V3, len),
    }
}

/// Writes a whole packet with a report of version 1 or 2, to the group itself; its length.
pub fn emit_old_report(
    version: Version,
    source: Ipv4Addr,
    group: Ipv4Addr,
    room: &mut [u8],
) -> usize {
    let kind = match version {
        Version::First => kind::REPORT_V1,
        _ => kind::REPORT_V2,
    };
    emit_short(kind, source, group, group, room)
}

/// Writes a whole packet with a leave (version 2); its length.
pub fn emit_leave(source: Ipv4Addr, group: Ipv4Addr, room: &mut [u8]) -> usize {
    emit_short(kind::LEAVE, source, ALL_ROUTERS, group, room)
}

fn emit_short(kind: u8, source: Ipv4Addr, to: Ipv4Addr, group: Ipv4Addr, room: &mut [u8]) -> usize {
    let Some((ip, message)) = room.split_at_mut_checked(IP_HEADER) else {
        return 0;
    };
    let Some(head) = message.first_chunk_mut::<SHORT>() else {
        return 0;
    };
    let [a, b, c, d] = group.octets();
    *head = [kind, 0, 0, 0, a, b, c, d];
    finish(ip, message, source, to, SHORT)
}

/// The checksum of the message and the header in front: TTL 1, internetwork control, router alert (RFC 9776 §4).
fn finish(ip: &mut [u8], message: &mut [u8], source: Ipv4Addr, to: Ipv4Addr, len: usize) -> usize {
    const ALERT: [u8; 4] = [options::kind::ROUTER_ALERT, 4, 0, 0];
    let Some(message) = message.get_mut(..len) else {
        return 0;
    };
    let sum = checksum::finish(checksum::sum(message));
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let (Ok(total), Some(header)) = (
        u16::try_from(IP_HEADER + len),
        ip.first_chunk_mut::<IP_HEADER>(),
    ) else {
        return 0;
    };
    let [high, low] = total.to_be_bytes();
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (source.octets(), to.octets());
    let [a0, a1, a2, a3] = ALERT;
    *header = [
        0x46,
        0xc0,
        high,
        low,
        0,
        0,
        0x40,
        0,
        1,
        Protocol::IGMP.0,
        0,
        0,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
        a0,
        a1,
        a2,
        a3,
    ];
    let sum = checksum::finish(checksum::sum(header)).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    IP_HEADER + len
}

/// Whether membership in `group` is never reported.
pub(crate) fn is_silent(group: IpAddr) -> bool {
    group == IpAddr::V4(ALL_SYSTEMS)
}
