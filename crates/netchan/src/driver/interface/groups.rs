//! Multicast groups of an interface: what sockets joined, put together (RFC 9776 §3.2), and IGMP and MLD in and out.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proto::{
    ip::{address, keyed::Seed},
    membership::{Filter, Membership, Pending, Say, Version},
    time::Instant,
    wire::{
        igmp, ipv4,
        ipv6::{self, extension},
        membership::Message,
        mld,
    },
};

use super::{Interface, ends_of};
use crate::{
    counters::Counter,
    driver::network::InterfaceFacts,
    limits,
    packet::{HEADROOM, Packet},
    tap::Begins,
};

/// The number under which the interface itself is in a group (the solicited-node groups); sockets have other numbers.
pub(super) const OURSELVES: u64 = 0;

/// The groups of one interface.
#[derive(Debug)]
pub struct Groups {
    /// What each socket, by its number, wants of a group.
    wishes: BTreeMap<IpAddr, Vec<(u64, Filter)>>,
    v4: Membership,
    v6: Membership,
    /// Routers are told; of a lease its lender tells them.
    tells: bool,
    /// Our own groups have been joined.
    begun: bool,
    /// Scratch: what is to be sent.
    said: Vec<Say>,
}

impl Groups {
    /// In none yet; the solicited-node groups of IPv6 addresses are joined at the first look at the timers.
    pub fn new(seed: Seed, facts: &InterfaceFacts) -> Self {
        let mut wishes: BTreeMap<IpAddr, Vec<(u64, Filter)>> = BTreeMap::new();
        for address in facts.addresses.iter() {
            if let IpAddr::V6(ip) = address.ip()
                && !ip.is_loopback()
            {
                let group = IpAddr::V6(address::solicited_node(ip));
                wishes.insert(group, vec![(OURSELVES, Filter::ANY_SOURCE)]);
            }
        }
        Self {
            wishes,
            v4: Membership::new(seed.derive(4)),
            v6: Membership::new(seed.derive(6)),
            tells: true,
            begun: false,
            said: Vec::new(),
        }
    }

    /// Those of a further queue of a link: none, ever; and those of a lease, of which this host's routers hear nothing.
    pub fn none() -> Self {
        let seed = Seed([0; 2]); // for delays that never come
        Self {
            wishes: BTreeMap::new(),
            v4: Membership::new(seed),
            v6: Membership::new(seed),
            tells: false,
            begun: true,
            said: Vec::new(),
        }
    }

    const fn of(&mut self, group: IpAddr) -> &mut Membership {
        match group {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Instant {
        if !self.begun && !self.wishes.is_empty() {
            return Instant::ZERO;
        }
        self.v4.deadline().min(self.v6.deadline())
    }
}

impl Interface {
    /// Socket number `socket` wants to hear `filter` of `group`; a filter that admits no source is a leave. False: there are too many groups.
    pub fn wish(&mut self, socket: u64, group: IpAddr, filter: Filter, now: Instant) -> bool {
        let wishes = self.groups.wishes.entry(group).or_default();
        let old = wishes.iter().position(|wish| wish.0 == socket);
        match old {
            Some(at) if filter.admits_none() => {
                wishes.swap_remove(at);
            }
            Some(at) => wishes[at].1 = filter,
            None if filter.admits_none() => {}
            None => wishes.push((socket, filter)),
        }
        if self.tell(group, now) {
            return true;
        }
        // There was no room for a new group: it has no member.
        self.groups.wishes.remove(&group);
        false
    }

    /// Puts the wishes for a group together, and tells the routers and the rest of the stack.
    fn tell(&mut self, group: IpAddr, now: Instant) -> bool {
        let wishes = self.groups.wishes.get(&group);
        let merged = match wishes {
            Some(wishes) if wishes.len() > limits::GROUP_MERGED => Filter::ANY_SOURCE,
            _ => Filter::merge(wishes.into_iter().flatten().map(|wish| &wish.1)),
        };
        if merged.admits_none() {
            self.groups.wishes.remove(&group);
        }
        let mut said = std::mem::take(&mut self.groups.said);
        let say = &mut |say| said.push(say);
        let fits =
            !self.groups.tells || (self.groups.of(group)).set(group, merged.clone(), now, say);
        if fits {
            let number = self.number;
            (self.host).change_groups(|groups| groups.set(number, group, &merged));
        }
        self.say_all(said, now);
        fits
    }

    /// Joins the solicited-node groups of our addresses (RFC 4861 §7.2.1): at the beginning.
    fn join_own_groups(&mut self, now: Instant) {
        let own: Vec<IpAddr> = self.groups.wishes.keys().copied().collect();
        for group in own {
            self.tell(group, now);
        }
    }

    /// Reports that are due.
    pub(super) fn report_groups(&mut self, now: Instant) {
        if self.groups.deadline() > now {
            return;
        }
        if !std::mem::replace(&mut self.groups.begun, true) {
            self.join_own_groups(now);
        }
        let mut said = std::mem::take(&mut self.groups.said);
        self.groups.v4.on_timer(now, &mut |say| said.push(say));
        self.groups.v6.on_timer(now, &mut |say| said.push(say));
        self.say_all(said, now);
    }

    fn say_all(&mut self, mut said: Vec<Say>, now: Instant) {
        for say in said.drain(..) {
            match say {
                Say::Report(records) => self.say_report(records, now),
                Say::Join(version, IpAddr::V4(group)) => {
                    let from = self.igmp_source();
                    self.say_group(now, |room| {
                        igmp::emit_old_report(version, from, group, room)
                    });
                }
                Say::Join(_, IpAddr::V6(group)) => {
                    let from = self.mld_source();
                    self.say_group(now, |room| mld::emit_old_report(from, group, room));
                }
                Say::Leave(IpAddr::V4(group)) => {
                    let from = self.igmp_source();
                    self.say_group(now, |room| igmp::emit_leave(from, group, room));
                }
                Say::Leave(IpAddr::V6(group)) => {
                    let from = self.mld_source();
                    self.say_group(now, |room| mld::emit_done(from, group, room));
                }
            }
        }
        self.groups.said = said;
    }

    fn say_report(&mut self, records: Vec<proto::membership::Record>, now: Instant) {
        let v6 = records.first().is_some_and(|r| r.group.is_ipv6());
        let (from4, from6) = (self.igmp_source(), self.mld_source());
        let mut pending = Pending::new(records);
        while !pending.is_done() {
            let sent = self.say_group(now, |room| {
                if v6 {
                    mld::emit_report(from6, &mut pending, room)
                } else {
                    igmp::emit_report(from4, &mut pending, room)
                }
            });
            if !sent {
                return; // the next one tells it again
            }
        }
    }

    /// Sends what `write` puts into a buffer of the MTU, past the modules, on this link whatever the routes say. False: there was no buffer.
    fn say_group(&mut self, now: Instant, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(buffer) = self.slab.alloc() else {
            self.count(Counter::NoTransmitBuffer);
            return false;
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        let mtu = self.facts().mtu.min(packet.room_mut().len());
        let len = write(packet.room_mut().get_mut(..mtu).unwrap_or_default());
        packet.set_len(len);
        let Some((_, destination)) = ends_of(packet.bytes()) else {
            return false;
        };
        self.count(Counter::MembershipOut);
        if self.screen(&mut packet, now) {
            self.stamp(destination, packet, now);
        }
        true
    }

    /// RFC 9776 §4.2.13: 0.0.0.0 where there is no address.
    fn igmp_source(&self) -> Ipv4Addr {
        let ours = self.facts().addresses.iter().map(|a| a.ip());
        ours.filter_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
        .next()
        .unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// RFC 9777 §5.2.13: a link-local address, or `::` where there is none.
    fn mld_source(&self) -> Ipv6Addr {
        let ours = self.facts().addresses.iter().map(|a| a.ip());
        ours.filter_map(|ip| match ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
            _ => None,
        })
        .next()
        .unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// An IGMP message came in.
    pub(super) fn igmp_input(&mut self, packet: &Packet, now: Instant) {
        self.count(Counter::MembershipIn);
        let bytes = packet.bytes();
        match ipv4::Header::parse(bytes).and_then(|header| igmp::parse(&header, bytes)) {
            Ok(message) => hear(&mut self.groups.v4, &message, now),
            Err(_) => self.count_lost(Counter::DropMembership, packet, Begins::Network),
        }
    }

    /// Takes an ICMPv6 message if it is one of MLD's; `message` is where it begins.
    pub(super) fn mld_input(&mut self, packet: &Packet, now: Instant) -> bool {
        let bytes = packet.bytes();
        let message = bytes
            .get(usize::from(packet.meta.upper)..)
            .unwrap_or_default();
        let Ok(header) = ipv6::Header::parse(bytes) else {
            return false;
        };
        if !message.first().is_some_and(|&kind| mld::is_mld(kind)) {
            return false;
        }
        self.count(Counter::MembershipIn);
        let walked = extension::walk(header.next_header, header.payload(bytes));
        let alert = walked.is_ok_and(|upper| upper.router_alert && !upper.fragmented);
        match mld::parse(&header, message, alert) {
            Ok(message) => hear(&mut self.groups.v6, &message, now),
            Err(_) => self.count_lost(Counter::DropMembership, packet, Begins::Network),
        }
        true
    }

    /// The versions of IGMP and MLD that are spoken here.
    pub const fn membership_versions(&self) -> [Version; 2] {
        [self.groups.v4.version(), self.groups.v6.version()]
    }
}

fn hear(membership: &mut Membership, message: &Message<'_>, now: Instant) {
    match message {
        Message::Query(query) => membership.on_query(query, now),
        Message::Report(group) => membership.on_report(*group, now),
        Message::ForRouters => {}
    }
}
