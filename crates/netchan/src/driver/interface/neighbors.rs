//! Neighbours of an interface: ARP and NDP packets out and in, and the timers behind them.

use std::net::{IpAddr, Ipv6Addr};

use proto::{
    icmp::error::Kind,
    neighbor::{
        Action, Learned, arp,
        claim::{Say, Verdict},
        ndp,
    },
    time::Instant,
    wire::{arp as wire_arp, ethernet::MacAddr, ndp::Message},
};

use super::Interface;
use crate::{
    counters::Counter,
    limits,
    packet::{Course, HEADROOM, Packet},
    tap::Begins,
};

impl Interface {
    /// Lets time pass for neighbours, address claims and reassembly.
    pub fn run_timers(&mut self, now: Instant) {
        self.announce(now);
        self.report_groups(now);
        self.expire_fragments(now);
        if self.neighbors.deadline().is_some_and(|at| at <= now) {
            self.hops.forget();
            let mut actions = std::mem::take(&mut self.actions);
            self.neighbors.on_timer(now, |action| actions.push(action));
            for action in actions.drain(..) {
                match action {
                    Action::Solicit { ip, to } => self.solicit(ip, to, now),
                    Action::Undeliverable { packet, .. } => self.undeliverable(packet, now),
                    Action::Lost { .. } => {}
                }
            }
            self.actions = actions;
        }
    }

    /// The next hop does not answer: the sender learns it as from a router (RFC 1122 §3.2.2.1), at the next turn of the receiving side;
    /// and from one, if this is on its way through (RFC 1812 §5.2.7.1, RFC 4861 §7.2.2).
    fn undeliverable(&mut self, packet: Packet, now: Instant) {
        self.count_lost(Counter::DropNeighbor, &packet, Begins::Own);
        if packet.meta.course == Course::THROUGH {
            return self.send_forward_error(Kind::HostUnreachable, &packet, now);
        }
        self.give_back(Kind::HostUnreachable, packet);
    }

    /// Keeps a packet of this host's that does not go out until the receiving half tells its sender why.
    pub(super) fn give_back(&mut self, why: Kind, packet: Packet) {
        if self.unreachable.len() < limits::UNREACHABLE {
            self.unreachable.push((why, packet));
        }
    }

    fn announce(&mut self, now: Instant) {
        for at in 0..self.claims.len() {
            while let Some(claim) = self.claims.get_mut(at)
                && claim.deadline().is_some_and(|deadline| deadline <= now)
            {
                let ip = claim.ip();
                let Some(say) = claim.on_timer(now, &mut self.random) else {
                    break;
                };
                let mac = self.facts().mac;
                match (say, ip) {
                    (Say::Announce, IpAddr::V4(ip)) => {
                        self.send_arp(&arp::announcement(mac, ip), MacAddr::BROADCAST)
                    }
                    (Say::Probe, IpAddr::V4(ip)) => {
                        self.send_arp(&arp::probe(mac, ip), MacAddr::BROADCAST)
                    }
                    (Say::Announce, IpAddr::V6(ip)) => {
                        self.send_ndp(&ndp::advertisement(ip, mac, None), now)
                    }
                    (Say::Probe, IpAddr::V6(ip)) => self.send_ndp(&ndp::probe(ip), now),
                }
            }
        }
    }

    /// Asks for a neighbour's link address: everyone, or the address known so far.
    pub(super) fn solicit(&mut self, ip: IpAddr, to: Option<MacAddr>, now: Instant) {
        let Some(source) = self.facts().addresses.source_for(ip) else {
            return;
        };
        let mac = self.facts().mac;
        match (source, ip) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                self.send_arp(
                    &arp::request(mac, source, target),
                    to.unwrap_or(MacAddr::BROADCAST),
                );
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                self.send_ndp(&ndp::solicitation(mac, source, target, to), now);
            }
            _ => {}
        }
    }

    fn send_arp(&mut self, message: &wire_arp::Packet, to: MacAddr) {
        let Some(buffer) = self.slab.alloc() else {
            return self.count(Counter::NoTransmitBuffer);
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        let len = message.emit(packet.room_mut());
        packet.set_len(len);
        self.frame(to, packet);
    }

    fn send_ndp(&mut self, message: &ndp::Outgoing, now: Instant) {
        let Some(buffer) = self.slab.alloc() else {
            return self.count(Counter::NoTransmitBuffer);
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        let mut message = *message;
        if let Message::NeighborAdvertisement { router, .. } = &mut message.message {
            *router = self.host.forwarding; // RFC 4861 §7.2.4: IsRouter
        }
        let len = message.emit(packet.room_mut());
        packet.set_len(len);
        self.count(Counter::IcmpOut);
        match message.to {
            Some(mac) => self.frame(mac, packet),
            None => self.stamp(message.destination.into(), packet, now),
        }
    }

    /// An ARP packet came in.
    pub(super) fn arp_input(&mut self, packet: &Packet, now: Instant) {
        self.count(Counter::ArpIn);
        let Ok(message) = wire_arp::Packet::parse(packet.bytes()) else {
            return self.count_lost(Counter::DropArp, packet, Begins::Network);
        };
        self.hops.forget();
        let facts = &self.host.net.interfaces[usize::from(self.number)];
        match self
            .neighbors
            .on_arp(&message, &facts.addresses, facts.mac, now)
        {
            Ok(heard) => {
                if let Some(reply) = heard.reply {
                    self.send_arp(&reply, reply.target_mac);
                }
                self.learned(IpAddr::V4(message.sender_ip), heard.learned);
            }
            Err(arp::Refused::Conflict(ip)) => self.conflict(ip.into(), message.sender_mac, now),
            Err(_) => self.count_lost(Counter::DropArp, packet, Begins::Network),
        }
    }

    /// Another host uses our address: it is defended once in a while (RFC 5227 §2.4 (b)), and counted.
    #[cold]
    fn conflict(&mut self, ip: IpAddr, other: MacAddr, now: Instant) {
        if other == self.facts().mac {
            return self.count(Counter::DropNdp); // our own message, sent back by a bridge
        }
        self.count(Counter::AddressConflict);
        let at = self.claims.iter().position(|claim| claim.ip() == ip);
        // Said once for each address: the counter goes on.
        let bit = 1 << at.unwrap_or(0).min(63);
        if self.conflicts & bit == 0 {
            self.conflicts |= bit;
            tracing::error!(
                target: "netchan::link",
                link = %self.facts().name,
                address = %ip,
                other = %other,
                "address conflict on {}: {other} has our address {ip}, too; one of the two must change \
                 (address_conflicts counts how often)",
                self.facts().name
            );
        }
        let claim = at.and_then(|at| self.claims.get_mut(at));
        if claim.and_then(|claim| claim.on_conflict(true, now)) != Some(Verdict::Defend) {
            return;
        }
        let mac = self.facts().mac;
        match ip {
            IpAddr::V4(ip) => self.send_arp(&arp::announcement(mac, ip), MacAddr::BROADCAST),
            IpAddr::V6(ip) => self.send_ndp(&ndp::advertisement(ip, mac, None), now),
        }
    }

    /// The table learned something: what waited for it goes out.
    fn learned(&mut self, ip: IpAddr, learned: Learned) {
        let Learned::Known {
            mac, queued: true, ..
        } = learned
        else {
            return;
        };
        loop {
            let packet = self.neighbors.take_queued(ip).next();
            let Some(packet) = packet else { return };
            self.frame(mac, packet);
        }
    }

    /// A neighbour discovery message came in (its ICMPv6 checksum is right).
    pub(super) fn ndp_input(
        &mut self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        (packet, bytes): (&Packet, &[u8]),
        now: Instant,
    ) {
        let Ok(message) = Message::parse(source, destination, hop_limit, bytes) else {
            return self.count_lost(Counter::DropNdp, packet, Begins::Network);
        };
        self.hops.forget();
        let facts = &self.host.net.interfaces[usize::from(self.number)];
        match self
            .neighbors
            .on_ndp(&message, source, &facts.addresses, facts.mac, now)
        {
            Ok(heard) => {
                if let Some(reply) = heard.reply {
                    self.send_ndp(&reply, now);
                }
                let about = match message {
                    Message::NeighborAdvertisement { target, .. } => target,
                    _ => source,
                };
                self.learned(about.into(), heard.learned);
            }
            Err(ndp::Refused::Conflict(ip)) => {
                let link = match message {
                    Message::NeighborAdvertisement { target_link, .. } => target_link,
                    Message::NeighborSolicitation { source_link, .. } => source_link,
                    _ => None,
                };
                self.conflict(ip.into(), link.unwrap_or(MacAddr::UNSPECIFIED), now);
            }
            // Other hosts' business: what every host on a link hears all day.
            Err(ndp::Refused::NotOurs | ndp::Refused::NotForHosts) => {}
            Err(_) => self.count_lost(Counter::DropNdp, packet, Begins::Network),
        }
    }

    /// Neighbours, for `netchan show neighbors`.
    pub fn neighbors(&self, now: Instant) -> impl Iterator<Item = proto::neighbor::Neighbor> {
        self.neighbors.iter(now)
    }
}
