//! Options of multicast: the structures of ip(7), ipv6(7) and RFC 3678 read and written. Whole source filters are in [`filter`].

pub mod filter;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use libc::c_int;

use super::{Setting, SocketOption, values::invalid};
use crate::{
    api::multicast::{Multicast, Via},
    errno::fail,
};

/// Bytes of a struct sockaddr_storage, and where one begins behind an interface's index.
const STORAGE: usize = 128;
const BEHIND_INDEX: usize = 8;

/// What a call does with a source.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    Join,
    Leave,
    Block,
    Unblock,
}

impl Deed {
    const fn with(self, group: IpAddr, via: Via, source: IpAddr) -> Setting {
        let from = Some(source);
        setting(match self {
            Self::Join => Multicast::Join {
                group,
                via,
                source: from,
            },
            Self::Leave => Multicast::Leave {
                group,
                via,
                source: from,
            },
            Self::Block => Multicast::Block { group, via, source },
            Self::Unblock => Multicast::Unblock { group, via, source },
        })
    }
}

const fn setting(deed: Multicast) -> Setting {
    Setting::Option(SocketOption::Multicast(deed))
}

/// A group is joined, with all its sources.
pub(super) const fn join((group, via): (IpAddr, Via)) -> Setting {
    setting(Multicast::Join {
        group,
        via,
        source: None,
    })
}

/// A group is left.
pub(super) const fn leave((group, via): (IpAddr, Via)) -> Setting {
    setting(Multicast::Leave {
        group,
        via,
        source: None,
    })
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
pub(super) fn membership(value: &[u8]) -> io::Result<(IpAddr, Via)> {
    let (group, address) = (ipv4(value, 0)?, ipv4(value, 4)?);
    Ok((group.into(), via(index(value, 8), address)))
}

/// A struct ip_mreqn, ip_mreq, or in_addr.
pub(super) fn interface_v4(value: &[u8]) -> io::Result<Setting> {
    let (address, index) = match value.len() {
        0..4 => return fail(libc::EINVAL),
        4..8 => (ipv4(value, 0)?, 0),
        _ => (ipv4(value, 4)?, index(value, 8)),
    };
    Ok(setting(Multicast::InterfaceV4(via(index, address))))
}

/// A struct ip_mreq_source: group, interface, source.
pub(super) fn source_v4(value: &[u8], deed: Deed) -> io::Result<Setting> {
    if value.len() != 12 {
        return fail(libc::EINVAL);
    }
    let (group, via) = (ipv4(value, 0)?, Via::Address(ipv4(value, 4)?));
    Ok(deed.with(group.into(), via, ipv4(value, 8)?.into()))
}

/// A struct ipv6_mreq.
pub(super) fn request_v6(value: &[u8]) -> io::Result<(IpAddr, Via)> {
    let (group, _) = value.split_first_chunk::<16>().ok_or_else(invalid)?;
    if value.len() < 20 {
        return fail(libc::EINVAL);
    }
    let group = IpAddr::from(Ipv6Addr::from(*group));
    Ok((group, Via::Index(index(value, 16))))
}

/// A struct group_req: index, group.
pub(super) fn group_request(family: c_int, value: &[u8]) -> io::Result<(IpAddr, Via)> {
    let group = storage(value, BEHIND_INDEX)?;
    match group {
        (its, Some(group)) if its == family => Ok((group, Via::Index(index(value, 0)))),
        _ if family == libc::AF_INET6 => fail(libc::EADDRNOTAVAIL),
        _ => fail(libc::EINVAL),
    }
}

/// A struct group_source_req: index, group, source.
pub(super) fn group_source(family: c_int, value: &[u8], deed: Deed) -> io::Result<Setting> {
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
