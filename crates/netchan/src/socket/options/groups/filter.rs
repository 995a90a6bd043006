//! IP_MSFILTER and MCAST_MSFILTER: whole source filters, as struct ip_msfilter and struct group_filter have them.

use std::{io, net::IpAddr};

use libc::c_int;
use proto::membership::Mode;

use super::{super::values::invalid, BEHIND_INDEX, STORAGE, index, ipv4, storage};
use crate::{
    api::multicast::Via,
    errno::fail,
    limits,
    socket::{GroupFilter, Socket},
};

const MCAST_INCLUDE: u32 = 1;
/// Linux's sysctl_optmem_max: no longer structure is looked at.
const LONGEST: usize = 128 << 10;

/// A structure of these: how its fields lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// struct ip_msfilter: group, interface (an address), mode, count, sources of 4 bytes.
    V4,
    /// struct group_filter: interface (an index), group, mode, count, sources; addresses are struct sockaddr_storage.
    Group(c_int),
}

/// What stands before the sources.
struct Head {
    group: IpAddr,
    via: Via,
    mode: u32,
    count: usize,
}

impl Layout {
    /// Bytes before the sources.
    const fn head_len(self) -> usize {
        match self {
            Self::V4 => 16,
            Self::Group(_) => BEHIND_INDEX + STORAGE + 8,
        }
    }

    /// Bytes of a source.
    const fn source_len(self) -> usize {
        match self {
            Self::V4 => 4,
            Self::Group(_) => STORAGE,
        }
    }

    /// What is said to a group of another family when a filter is set, and when it is read: as Linux.
    const fn stranger(self) -> [c_int; 2] {
        match self {
            Self::Group(libc::AF_INET6) => [libc::EINVAL, libc::EADDRNOTAVAIL],
            _ => [libc::EADDRNOTAVAIL, libc::EINVAL],
        }
    }

    /// Reads the head; `wrong` is said where the group is of another family.
    fn head(self, value: &[u8], wrong: c_int) -> io::Result<Head> {
        let value = value.get(..self.head_len()).ok_or_else(invalid)?;
        let (group, via) = match self {
            Self::V4 => (ipv4(value, 0)?.into(), Via::Address(ipv4(value, 4)?)),
            Self::Group(family) => {
                let group = self.address(value, BEHIND_INDEX, family, wrong)?;
                (group, Via::Index(index(value, 0)))
            }
        };
        let rest = self.head_len() - 8;
        Ok(Head {
            group,
            via,
            mode: index(value, rest),
            count: index(value, rest + 4) as usize,
        })
    }

    fn address(self, value: &[u8], at: usize, family: c_int, wrong: c_int) -> io::Result<IpAddr> {
        match storage(value, at)? {
            (its, Some(ip)) if its == family => Ok(ip),
            _ => fail(wrong),
        }
    }

    fn source(self, value: &[u8], number: usize) -> io::Result<IpAddr> {
        let at = self.head_len() + number * self.source_len();
        match self {
            Self::V4 => ipv4(value, at).map(IpAddr::from),
            Self::Group(family) => self.address(value, at, family, libc::EADDRNOTAVAIL),
        }
    }

    /// Writes a source, all of whose bytes are 0, as Linux does.
    fn put(self, place: &mut [u8], source: IpAddr) {
        match (self, source) {
            (Self::V4, IpAddr::V4(ip)) => place.copy_from_slice(&ip.octets()),
            (_, ip) => {
                let at = if ip.is_ipv4() { 4 } else { 8 };
                let family = if ip.is_ipv4() {
                    libc::AF_INET
                } else {
                    libc::AF_INET6
                };
                let family = u16::try_from(family).unwrap_or(0).to_ne_bytes();
                place[..2].copy_from_slice(&family);
                match ip {
                    IpAddr::V4(ip) => place[at..at + 4].copy_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => place[at..at + 16].copy_from_slice(&ip.octets()),
                }
            }
        }
    }

    /// setsockopt. A filter that admits no source leaves the group.
    ///
    /// # Errors
    /// As Linux: ENOBUFS (too many sources), EINVAL, EADDRNOTAVAIL.
    pub fn set(self, socket: &Socket, value: &[u8]) -> io::Result<()> {
        if value.len() > LONGEST {
            return fail(libc::ENOBUFS);
        }
        let head = self.head(value, self.stranger()[0])?;
        let most = match self {
            Layout::Group(libc::AF_INET6) => limits::GROUP_SOURCES_V6,
            _ => limits::GROUP_SOURCES,
        };
        if head.count > most {
            return fail(libc::ENOBUFS);
        }
        if value.len() < self.head_len() + head.count * self.source_len() {
            return fail(libc::EINVAL);
        }
        let mode = match head.mode {
            MCAST_INCLUDE => Mode::Include,
            0 => Mode::Exclude,
            _ => return fail(libc::EINVAL),
        };
        let sources = (0..head.count).map(|number| self.source(value, number));
        let filter = GroupFilter {
            mode,
            sources: sources.collect::<io::Result<_>>()?,
        };
        socket.set_group_filter(head.group, head.via, &filter)
    }

    /// getsockopt: the structure whose head is `asked`, with as many sources as that says there is room for, and how many there are.
    ///
    /// # Errors
    /// As Linux: EINVAL, EADDRNOTAVAIL.
    pub fn get(self, socket: &Socket, asked: &[u8]) -> io::Result<Vec<u8>> {
        let head = self.head(asked, self.stranger()[1])?;
        let filter = socket.group_filter(head.group, head.via)?;
        let mut bytes = asked[..self.head_len()].to_vec();
        let at = bytes.len() - 8;
        let mode = u32::from(filter.mode == Mode::Include) * MCAST_INCLUDE;
        let count = u32::try_from(filter.sources.len()).unwrap_or(u32::MAX);
        bytes[at..at + 4].copy_from_slice(&mode.to_ne_bytes());
        bytes[at + 4..].copy_from_slice(&count.to_ne_bytes());
        for source in filter.sources.into_iter().take(head.count) {
            let from = bytes.len();
            bytes.resize(from + self.source_len(), 0);
            self.put(&mut bytes[from..], source);
        }
        Ok(bytes)
    }
}
