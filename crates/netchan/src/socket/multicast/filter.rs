//! Whole source filters (RFC 3678 §4.1.3, §5.1.3): one call sets, or tells, which sources a socket hears in a group.

use std::{io, net::IpAddr};

use proto::membership::{Filter, Mode};

use super::Change;
use crate::api::multicast::{Settings, Via, link_of};
use crate::{errno::error, limits, socket::Socket};

/// IP_MSFILTER, MCAST_MSFILTER: which sources a socket hears in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFilter {
    /// Whether the sources are all that are heard, or all that are not.
    pub mode: Mode,
    /// At most [`limits::GROUP_SOURCES`], or [`limits::GROUP_SOURCES_V6`], of the group's family.
    pub sources: Vec<IpAddr>,
}

impl GroupFilter {
    fn read(&self, group: IpAddr) -> Result<Filter, i32> {
        let most = match group {
            IpAddr::V4(_) => limits::GROUP_SOURCES,
            IpAddr::V6(_) => limits::GROUP_SOURCES_V6,
        };
        if self.sources.len() > most {
            return Err(libc::ENOBUFS);
        }
        let mut filter = Filter::of(self.mode);
        for source in &self.sources {
            if source.is_ipv4() != group.is_ipv4() {
                return Err(libc::EADDRNOTAVAIL);
            }
            filter.add(*source); // twice is once
        }
        Ok(filter)
    }
}

impl Socket {
    /// Replaces the filter of a group that was joined before; one that admits no source leaves it.
    ///
    /// # Errors
    /// EINVAL (no group, or not joined), ENODEV, ENOBUFS (too many sources), `AddrNotAvailable` (a source of another family; left, but
    /// never joined).
    pub fn set_group_filter(
        &self,
        group: IpAddr,
        via: Via,
        filter: &GroupFilter,
    ) -> io::Result<()> {
        let wanted = filter.read(group).map_err(error)?;
        self.change_multicast(|change| change.replace(group, via, wanted))
    }

    /// The filter of a group that was joined before.
    ///
    /// # Errors
    /// EINVAL (no group), ENODEV, `AddrNotAvailable` (not joined).
    pub fn group_filter(&self, group: IpAddr, via: Via) -> io::Result<GroupFilter> {
        if !group.is_multicast() {
            return Err(error(libc::EINVAL));
        }
        let link = link_of(&self.stack().control.host.network(), group, via)
            .ok_or_else(|| error(libc::ENODEV))?;
        let options = self.options.lock();
        let settings = Settings::or_default(options.multicast.as_deref());
        let at = settings.find(group, Some(link));
        let at = at.ok_or_else(|| error(libc::EADDRNOTAVAIL))?;
        let filter = &settings.members[at].filter;
        Ok(GroupFilter {
            mode: filter.mode(),
            sources: filter.sources().to_vec(),
        })
    }
}

impl Change<'_> {
    fn replace(
        &mut self,
        group: IpAddr,
        via: Via,
        filter: Filter,
    ) -> Result<Option<(IpAddr, u8)>, i32> {
        if filter.admits_none() && group.is_multicast() {
            link_of(self.net, group, via).ok_or(libc::ENODEV)?;
            return self.leave(group, via);
        }
        self.with_member(group, via, |settings, at| {
            settings.members[at].filter = filter;
            Ok(())
        })
    }
}
