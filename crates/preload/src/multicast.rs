//! Options of multicast: the structures of ip(7), ipv6(7) and RFC 3678 read and written. Whole source filters are in [`filter`].

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use libc::c_int;
use netchan::socket::{Kind, Multicast, SocketOption, Via};

pub mod filter;

use crate::{
    errno,
    errno::fail,
    state::Live,
    values::{self, int, invalid},
};

// As Linux has them; the libc crate lacks some.
const IP_MULTICAST_ALL: c_int = 49;
const IPV6_MULTICAST_ALL: c_int = 29;
const MCAST_JOIN_GROUP: c_int = 42;
const MCAST_BLOCK_SOURCE: c_int = 43;
const MCAST_UNBLOCK_SOURCE: c_int = 44;
const MCAST_LEAVE_GROUP: c_int = 45;
const MCAST_JOIN_SOURCE_GROUP: c_int = 46;
const MCAST_LEAVE_SOURCE_GROUP: c_int = 47;

/// Bytes of a struct sockaddr_storage, and where one begins behind an interface's index.
const STORAGE: usize = 128;
const BEHIND_INDEX: usize = 8;

/// What a call does with a source.
#[derive(Clone, Copy)]
enum Deed {
    Join,
    Leave,
    Block,
    Unblock,
}

impl Deed {
    const fn with(self, group: IpAddr, via: Via, source: IpAddr) -> Multicast {
        match self {
            Self::Join => Multicast::Join {
                group,
                via,
                source: Some(source),
            },
            Self::Leave => Multicast::Leave {
                group,
                via,
                source: Some(source),
            },
            Self::Block => Multicast::Block { group, via, source },
            Self::Unblock => Multicast::Unblock { group, via, source },
        }
    }

    const fn of_protocol(name: c_int) -> Option<Self> {
        Some(match name {
            MCAST_JOIN_SOURCE_GROUP => Self::Join,
            MCAST_LEAVE_SOURCE_GROUP => Self::Leave,
            MCAST_BLOCK_SOURCE => Self::Block,
            MCAST_UNBLOCK_SOURCE => Self::Unblock,
            _ => return None,
        })
    }
}

/// Whether an option names an interface of netchan's, or joins a group on one: the socket is netchan's from then on (C7), for the
/// kernel's interfaces are others.
pub fn decides(level: c_int, name: c_int, kind: Kind) -> bool {
    let names = match level {
        libc::IPPROTO_IP => matches!(
            name,
            libc::IP_MULTICAST_IF
                | libc::IP_ADD_MEMBERSHIP
                | libc::IP_ADD_SOURCE_MEMBERSHIP
                | MCAST_JOIN_GROUP
                | MCAST_JOIN_SOURCE_GROUP
        ),
        libc::IPPROTO_IPV6 => matches!(
            name,
            libc::IPV6_MULTICAST_IF
                | libc::IPV6_ADD_MEMBERSHIP
                | MCAST_JOIN_GROUP
                | MCAST_JOIN_SOURCE_GROUP
        ),
        _ => false,
    };
    names && kind != Kind::Stream
}

/// Reads an option; `None`: none of multicast.
pub fn parse(level: c_int, name: c_int, value: &[u8]) -> Option<io::Result<SocketOption>> {
    match level {
        libc::IPPROTO_IP => parse_ip(name, value),
        libc::IPPROTO_IPV6 => parse_ipv6(name, value),
        _ => None,
    }
}

/// Reads an option of IPPROTO_IP; `None`: none of multicast.
fn parse_ip(name: c_int, value: &[u8]) -> Option<io::Result<SocketOption>> {
    let option = match name {
        libc::IP_MULTICAST_IF => interface_v4(value),
        libc::IP_MULTICAST_TTL => int_or_byte(value).and_then(|ttl| match ttl {
            -1 => Ok(Multicast::Ttl(1)),
            _ => Ok(Multicast::Ttl(u8::try_from(ttl).map_err(|_| invalid())?)),
        }),
        libc::IP_MULTICAST_LOOP => int_or_byte(value).map(|on| Multicast::LoopV4(on != 0)),
        IP_MULTICAST_ALL => int_or_byte(value).and_then(strict).map(Multicast::AllV4),
        libc::IP_ADD_MEMBERSHIP => membership(value).map(|(group, via)| Multicast::Join {
            group,
            via,
            source: None,
        }),
        libc::IP_DROP_MEMBERSHIP => membership(value).map(|(group, via)| Multicast::Leave {
            group,
            via,
            source: None,
        }),
        libc::IP_ADD_SOURCE_MEMBERSHIP => source_v4(value, Deed::Join),
        libc::IP_DROP_SOURCE_MEMBERSHIP => source_v4(value, Deed::Leave),
        libc::IP_BLOCK_SOURCE => source_v4(value, Deed::Block),
        libc::IP_UNBLOCK_SOURCE => source_v4(value, Deed::Unblock),
        _ => return parse_protocol(libc::AF_INET, name, value),
    };
    Some(option.map(SocketOption::Multicast))
}

/// The same of IPPROTO_IPV6.
fn parse_ipv6(name: c_int, value: &[u8]) -> Option<io::Result<SocketOption>> {
    let option = match name {
        libc::IPV6_MULTICAST_IF => int(value)
            .and_then(|index| u32::try_from(index).map_err(|_| errno::error(libc::ENODEV)))
            .map(Multicast::InterfaceV6),
        libc::IPV6_MULTICAST_HOPS => int(value).and_then(|hops| match hops {
            -1 => Ok(Multicast::Hops(1)),
            _ => Ok(Multicast::Hops(u8::try_from(hops).map_err(|_| invalid())?)),
        }),
        libc::IPV6_MULTICAST_LOOP => int(value).and_then(strict).map(Multicast::LoopV6),
        IPV6_MULTICAST_ALL => int(value).map(|on| Multicast::AllV6(on != 0)),
        libc::IPV6_ADD_MEMBERSHIP => request_v6(value).map(|(group, via)| Multicast::Join {
            group,
            via,
            source: None,
        }),
        libc::IPV6_DROP_MEMBERSHIP => request_v6(value).map(|(group, via)| Multicast::Leave {
            group,
            via,
            source: None,
        }),
        _ => return parse_protocol(libc::AF_INET6, name, value),
    };
    Some(option.map(SocketOption::Multicast))
}

/// The options of RFC 3678 §5, which both families have.
fn parse_protocol(family: c_int, name: c_int, value: &[u8]) -> Option<io::Result<SocketOption>> {
    let option = match (name, Deed::of_protocol(name)) {
        (_, Some(deed)) => group_source(family, value, deed),
        (MCAST_JOIN_GROUP, None) => {
            group_request(family, value).map(|(group, via)| Multicast::Join {
                group,
                via,
                source: None,
            })
        }
        (MCAST_LEAVE_GROUP, None) => {
            group_request(family, value).map(|(group, via)| Multicast::Leave {
                group,
                via,
                source: None,
            })
        }
        _ => return None,
    };
    Some(option.map(SocketOption::Multicast))
}

/// What a program reads: a number, or an address.
pub enum Answer {
    /// An int.
    Int(c_int),
    /// A struct in_addr.
    Address([u8; 4]),
}

/// getsockopt; `None`: no option of multicast that can be read.
pub fn get(live: Live<'_>, level: c_int, name: c_int) -> Option<io::Result<Answer>> {
    let like = match (level, name) {
        (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => Multicast::InterfaceV4(Via::Index(0)),
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL) => Multicast::Ttl(0),
        (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP) => Multicast::LoopV4(false),
        (libc::IPPROTO_IP, IP_MULTICAST_ALL) => Multicast::AllV4(false),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) => Multicast::InterfaceV6(0),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS) => Multicast::Hops(0),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP) => Multicast::LoopV6(false),
        (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL) => Multicast::AllV6(false),
        _ => return None,
    };
    let value = live.socket.option(SocketOption::Multicast(like));
    Some(value.map(|value| match value {
        SocketOption::Multicast(value) => answer(value),
        _ => Answer::Int(0),
    }))
}

fn answer(value: Multicast) -> Answer {
    match value {
        Multicast::InterfaceV4(Via::Address(ip)) => Answer::Address(ip.octets()),
        Multicast::InterfaceV6(index) => Answer::Int(index.cast_signed()),
        Multicast::Ttl(n) | Multicast::Hops(n) => Answer::Int(n.into()),
        Multicast::LoopV4(on)
        | Multicast::LoopV6(on)
        | Multicast::AllV4(on)
        | Multicast::AllV6(on) => Answer::Int(on.into()),
        _ => Answer::Address([0; 4]),
    }
}

/// As IPPROTO_IP has it, but not nothing.
fn int_or_byte(value: &[u8]) -> io::Result<c_int> {
    if value.is_empty() {
        return fail(libc::EINVAL);
    }
    values::int_or_byte(value)
}

/// A flag that may be 0 or 1 only.
fn strict(value: c_int) -> io::Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => fail(libc::EINVAL),
    }
}

fn ipv4(value: &[u8], at: usize) -> io::Result<Ipv4Addr> {
    let rest = value.get(at..).unwrap_or_default();
    let octets = rest.first_chunk::<4>().ok_or_else(invalid)?;
    Ok(Ipv4Addr::from(*octets))
}

/// An index as the structures have it, where it stands; not there, 0.
fn index(value: &[u8], at: usize) -> u32 {
    let rest = value.get(at..).unwrap_or_default();
    rest.first_chunk::<4>()
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

/// By index, where one is given; else by address.
const fn via(index: u32, address: Ipv4Addr) -> Via {
    if index > 0 {
        Via::Index(index)
    } else {
        Via::Address(address)
    }
}

/// A struct ip_mreqn, or the shorter struct ip_mreq.
fn membership(value: &[u8]) -> io::Result<(IpAddr, Via)> {
    let (group, address) = (ipv4(value, 0)?, ipv4(value, 4)?);
    Ok((group.into(), via(index(value, 8), address)))
}

/// A struct ip_mreqn, ip_mreq, or in_addr.
fn interface_v4(value: &[u8]) -> io::Result<Multicast> {
    let (address, index) = match value.len() {
        0..4 => return fail(libc::EINVAL),
        4..8 => (ipv4(value, 0)?, 0),
        _ => (ipv4(value, 4)?, index(value, 8)),
    };
    Ok(Multicast::InterfaceV4(via(index, address)))
}

/// A struct ip_mreq_source: group, interface, source.
fn source_v4(value: &[u8], deed: Deed) -> io::Result<Multicast> {
    if value.len() != 12 {
        return fail(libc::EINVAL);
    }
    let (group, via) = (ipv4(value, 0)?, Via::Address(ipv4(value, 4)?));
    Ok(deed.with(group.into(), via, ipv4(value, 8)?.into()))
}

/// A struct ipv6_mreq.
fn request_v6(value: &[u8]) -> io::Result<(IpAddr, Via)> {
    let (group, _) = value.split_first_chunk::<16>().ok_or_else(invalid)?;
    if value.len() < 20 {
        return fail(libc::EINVAL);
    }
    let group = IpAddr::from(Ipv6Addr::from(*group));
    Ok((group, Via::Index(index(value, 16))))
}

/// A struct group_req: index, group.
fn group_request(family: c_int, value: &[u8]) -> io::Result<(IpAddr, Via)> {
    let group = storage(value, BEHIND_INDEX)?;
    match group {
        (its, Some(group)) if its == family => Ok((group, Via::Index(index(value, 0)))),
        _ if family == libc::AF_INET6 => fail(libc::EADDRNOTAVAIL),
        _ => fail(libc::EINVAL),
    }
}

/// A struct group_source_req: index, group, source.
fn group_source(family: c_int, value: &[u8], deed: Deed) -> io::Result<Multicast> {
    let group = storage(value, BEHIND_INDEX)?;
    let source = storage(value, BEHIND_INDEX + STORAGE)?;
    match (group, source) {
        ((a, Some(group)), (b, Some(source))) if a == family && b == family => {
            Ok(deed.with(group, Via::Index(index(value, 0)), source))
        }
        _ if family == libc::AF_INET6 => fail(libc::EADDRNOTAVAIL),
        _ => fail(libc::EINVAL),
    }
}

/// Family and address of a struct sockaddr_storage.
fn storage(value: &[u8], at: usize) -> io::Result<(c_int, Option<IpAddr>)> {
    let bytes = value.get(at..at + STORAGE).ok_or_else(invalid)?;
    let family = c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let ip = match family {
        libc::AF_INET => Some(ipv4(bytes, 4)?.into()),
        libc::AF_INET6 => {
            let octets = bytes[8..].first_chunk::<16>();
            octets.map(|octets| Ipv6Addr::from(*octets).into())
        }
        _ => None,
    };
    Ok((family, ip))
}
