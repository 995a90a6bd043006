//! Multicast at a datagram socket: which groups it hears, and how it sends to them. The rules and errors are Linux's.

mod filter;
mod std_like;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use proto::membership::{Filter, Mode};

pub use self::filter::GroupFilter;
use super::{Role, Socket, options::SocketOptions};
use crate::api::Kind;
use crate::api::multicast::{Member, Multicast, Settings, Via, link_of};
use crate::{
    driver::network::Network,
    errno::error,
    limits,
    stack::{Stack, tx},
};

/// What one call changes.
struct Change<'a> {
    net: &'a Network,
    settings: &'a mut Settings,
}

impl Change<'_> {
    /// Does what an option says; the member whose filter changed, and its group and link.
    fn apply(&mut self, option: Multicast) -> Result<Option<(IpAddr, u8)>, i32> {
        let settings = &mut *self.settings;
        match option {
            Multicast::Join { group, via, source } => return self.join(group, via, source),
            Multicast::Leave {
                group,
                via,
                source: None,
            } => return self.leave(group, via),
            Multicast::Leave {
                group,
                via,
                source: Some(source),
            } => return self.with_member(group, via, |s, at| s.leave_source(at, source)),
            Multicast::Block { group, via, source } => {
                let block = |s: &mut Settings, at| s.add_source(at, Mode::Exclude, source);
                return self.with_member(group, via, block);
            }
            Multicast::Unblock { group, via, source } => {
                let unblock = |s: &mut Settings, at| s.remove_source(at, Mode::Exclude, source);
                return self.with_member(group, via, unblock);
            }
            Multicast::InterfaceV4(via) => {
                let any = matches!(via, Via::Index(0) | Via::Address(Ipv4Addr::UNSPECIFIED));
                let link = link_of(self.net, Ipv4Addr::UNSPECIFIED.into(), via);
                if !any && link.is_none() {
                    return Err(libc::EADDRNOTAVAIL);
                }
                settings.interface_v4 = link.filter(|_| !any);
                settings.address_v4 = match via {
                    Via::Address(ip) => ip,
                    Via::Index(_) => Ipv4Addr::UNSPECIFIED,
                };
            }
            Multicast::InterfaceV6(0) => settings.interface_v6 = None,
            Multicast::InterfaceV6(index) => {
                let any = Ipv6Addr::UNSPECIFIED.into();
                let link = link_of(self.net, any, Via::Index(index)).ok_or(libc::ENODEV)?;
                settings.interface_v6 = Some(link);
            }
            Multicast::Ttl(ttl) => settings.ttl = ttl,
            Multicast::Hops(hops) => settings.hops = hops,
            Multicast::LoopV4(on) => settings.loop_v4 = on,
            Multicast::LoopV6(on) => settings.loop_v6 = on,
            Multicast::AllV4(on) => settings.all_v4 = on,
            Multicast::AllV6(on) => settings.all_v6 = on,
        }
        Ok(None)
    }

    fn join(
        &mut self,
        group: IpAddr,
        via: Via,
        source: Option<IpAddr>,
    ) -> Result<Option<(IpAddr, u8)>, i32> {
        if !group.is_multicast() {
            return Err(libc::EINVAL);
        }
        let link = link_of(self.net, group, via).ok_or(libc::ENODEV)?;
        let settings = &mut *self.settings;
        let at = match (settings.find(group, Some(link)), source) {
            (Some(_), None) => return Err(libc::EADDRINUSE),
            (Some(at), Some(_)) => at,
            (None, _) => {
                let alike = |m: &&Member| m.group.is_ipv4() == group.is_ipv4();
                let count = settings.members.iter().filter(alike).count();
                if group.is_ipv4() && count >= limits::MEMBERSHIPS {
                    return Err(libc::ENOBUFS);
                }
                if count >= limits::MEMBERSHIPS_V6 {
                    return Err(libc::ENOMEM);
                }
                settings.members.push(Member {
                    group,
                    interface: link,
                    filter: source.map_or(Filter::ANY_SOURCE, |_| Filter::NO_SOURCE),
                });
                settings.members.len() - 1
            }
        };
        if let Some(source) = source {
            settings.add_source(at, Mode::Include, source)?;
        }
        Ok(Some((group, link)))
    }

    fn leave(&mut self, group: IpAddr, via: Via) -> Result<Option<(IpAddr, u8)>, i32> {
        if group.is_ipv6() && !group.is_multicast() {
            return Err(libc::EINVAL);
        }
        let any = matches!(via, Via::Index(0) | Via::Address(Ipv4Addr::UNSPECIFIED));
        let link = link_of(self.net, group, via);
        let settings = &mut *self.settings;
        let found = if any {
            settings.find(group, None)
        } else {
            link.and_then(|link| settings.find(group, Some(link)))
        };
        let member = settings.members.remove(found.ok_or(libc::EADDRNOTAVAIL)?);
        Ok(Some((group, member.interface)))
    }

    /// For calls about a source of a group that was joined before.
    fn with_member(
        &mut self,
        group: IpAddr,
        via: Via,
        change: impl FnOnce(&mut Settings, usize) -> Result<(), i32>,
    ) -> Result<Option<(IpAddr, u8)>, i32> {
        if !group.is_multicast() {
            return Err(libc::EINVAL);
        }
        let link = link_of(self.net, group, via).ok_or(libc::ENODEV)?;
        let at = (self.settings.find(group, Some(link))).ok_or(libc::EINVAL)?;
        change(self.settings, at)?;
        Ok(Some((group, link)))
    }
}

/// Tells a link what a socket wants of a group, and its lender, where it is a lease. ENOBUFS: the link is in too many.
fn tell(
    stack: &Arc<Stack>,
    number: u64,
    (group, link): (IpAddr, u8),
    filter: Filter,
) -> Result<(), i32> {
    let leaves = filter.admits_none();
    if !leaves {
        stack.join_leased(link, number, group, &filter)?;
    }
    let is_taken = tell_link(stack, number, (group, link), filter);
    if leaves || !is_taken {
        stack.leave_leased(link, number, group);
    }
    is_taken.then_some(()).ok_or(libc::ENOBUFS)
}

/// The link's part of it. False: it is in too many.
fn tell_link(stack: &Stack, number: u64, (group, link): (IpAddr, u8), filter: Filter) -> bool {
    let now = stack.clock.now();
    let at = usize::from(link);
    let taken = stack.with_interface(at, |interface| {
        let taken = interface.wish(number, group, filter, now);
        tx::flush(interface, now);
        taken
    });
    // Its timers have changed.
    stack.driver.queues[at].doorbell.ring();
    taken
}

impl Socket {
    /// Sets an option of multicast.
    pub(super) fn set_multicast(&self, option: Multicast) -> io::Result<()> {
        if self.kind == Kind::Stream
            && let Some(code) = refused_by_streams(option)
        {
            return Err(error(code));
        }
        self.change_multicast(|change| change.apply(option))
    }

    /// Does what a call asks, and tells the link and the socket's parts.
    fn change_multicast(
        &self,
        apply: impl FnOnce(&mut Change<'_>) -> Result<Option<(IpAddr, u8)>, i32>,
    ) -> io::Result<()> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let stack = self.stack();
        let mut options = self.options.lock();
        let mut settings = Settings::or_default(options.multicast.as_deref()).clone();
        let net = stack.control.host.network();
        let mut change = Change {
            net: &net,
            settings: &mut settings,
        };
        let changed = apply(&mut change).map_err(error)?;
        if settings.number == 0 {
            // Relaxed: a number that no other socket has.
            settings.number = NUMBERS.fetch_add(1, Relaxed);
        }
        let number = settings.number;
        if let Some((group, link)) = changed {
            let filter = settings.wish(group, link);
            tell(stack, number, (group, link), filter).map_err(error)?;
        }
        let settings = Arc::new(settings);
        options.multicast = Some(settings.clone());
        if let Some(Role::Datagram(datagram)) = self.role() {
            datagram.set_multicast(stack, &settings);
        }
        Ok(())
    }

    /// Leaves all groups: the socket is closed.
    pub(super) fn leave_groups(&mut self) {
        let Some(settings) = self.options.get_mut().multicast.clone() else {
            return;
        };
        for member in &settings.members {
            let place = (member.group, member.interface);
            // What is left is left, whatever the link says.
            let _ = tell(self.stack(), settings.number, place, Filter::NO_SOURCE);
        }
    }

    /// The interface and source address for packets to `ip`; `None`: no route.
    pub(super) fn way_to(&self, options: &SocketOptions, ip: IpAddr) -> Option<(u8, IpAddr)> {
        let net = self.stack().control.host.network();
        let mark = options.udp.mark;
        if let Some(device) = options.udp.device {
            return net.route_by(Some(device), ip, mark);
        }
        if ip.is_multicast() {
            let settings = Settings::or_default(options.multicast.as_deref());
            // As Linux: by the interface of its own address, where none was chosen.
            let own = (self.source_of(options, ip)).filter(|own| own.is_ipv4() && ip.is_ipv4());
            let by_own = own
                .filter(|_| settings.interface_v4.is_none())
                .and_then(|own| Some((u8::try_from(net.interface_of(own)?).ok()?, own)));
            return by_own.or_else(|| settings.way(&net, ip));
        }
        net.route(ip, mark)
    }
}

/// What Linux says to a stream; `None`: it takes it, without effect.
const fn refused_by_streams(option: Multicast) -> Option<i32> {
    use Multicast as M;
    match option {
        M::InterfaceV4(_) | M::Ttl(_) => Some(libc::EINVAL),
        M::InterfaceV6(_) | M::Hops(_) => Some(libc::ENOPROTOOPT),
        M::LoopV4(_) | M::LoopV6(_) | M::AllV4(_) | M::AllV6(_) => None,
        M::Join { .. } | M::Leave { .. } | M::Block { .. } | M::Unblock { .. } => {
            Some(libc::EPROTO)
        }
    }
}

impl SocketOptions {
    /// The value of the option that `like` names.
    pub(super) fn read_multicast(&self, like: Multicast) -> Multicast {
        let settings = Settings::or_default(self.multicast.as_deref());
        match like {
            Multicast::InterfaceV4(_) => Multicast::InterfaceV4(Via::Address(settings.address_v4)),
            Multicast::InterfaceV6(_) => {
                Multicast::InterfaceV6(settings.interface_v6.map_or(0, |link| u32::from(link) + 1))
            }
            Multicast::Ttl(_) => Multicast::Ttl(settings.ttl),
            Multicast::Hops(_) => Multicast::Hops(settings.hops),
            Multicast::LoopV4(_) => Multicast::LoopV4(settings.loop_v4),
            Multicast::LoopV6(_) => Multicast::LoopV6(settings.loop_v6),
            Multicast::AllV4(_) => Multicast::AllV4(settings.all_v4),
            Multicast::AllV6(_) => Multicast::AllV6(settings.all_v6),
            Multicast::Join { .. }
            | Multicast::Leave { .. }
            | Multicast::Block { .. }
            | Multicast::Unblock { .. } => like,
        }
    }
}

/// The source address of what a socket sends that is bound to `local`: a group's or broadcast address is none (as Linux).
pub(super) fn bound_source(net: &Network, local: SocketAddr) -> Option<IpAddr> {
    let ip = local.ip();
    (!ip.is_unspecified() && !net.is_group(ip)).then_some(ip)
}
