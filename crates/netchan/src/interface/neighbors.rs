//! Neighbours of an interface: ARP and NDP packets out and in, and the timers behind them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::{
    neighbor::{Action, Evidence, Learned, arp, claim::Say},
    time::Instant,
    wire::{
        arp as wire_arp,
        ethernet::MacAddr,
        ipv4::Protocol,
        ndp::{self, Message},
    },
};

use super::Interface;
use crate::{
    counters::Counter,
    emit::{IpFields, emit_ip, ip_header_len},
    packet::{HEADROOM, Packet},
};

impl Interface {
    /// Lets time pass for neighbours, address claims and reassembly.
    pub fn run_timers(&mut self, now: Instant) {
        self.announce(now);
        self.expire_fragments(now);
        if self.neighbors.deadline().is_some_and(|at| at <= now) {
            let mut actions = Vec::new();
            self.neighbors.on_timer(now, |action| actions.push(action));
            for action in actions {
                match action {
                    Action::Solicit { ip, to } => self.solicit(ip, to),
                    Action::Undeliverable { .. } => self.count(Counter::DropNeighbor),
                    Action::Lost { .. } => {}
                }
            }
        }
    }

    fn announce(&mut self, now: Instant) {
        for at in 0..self.claims.len() {
            while let Some(claim) = self.claims.get_mut(at)
                && claim.deadline().is_some_and(|deadline| deadline <= now)
            {
                let ip = claim.ip();
                let Some(say) = claim.on_timer(now, &mut self.random) else { break };
                match (say, ip) {
                    (Say::Announce, IpAddr::V4(ip)) => self.send_arp(&arp::announcement(self.facts().mac, ip), MacAddr::BROADCAST),
                    (Say::Probe, IpAddr::V4(ip)) => self.send_arp(&arp::probe(self.facts().mac, ip), MacAddr::BROADCAST),
                    (Say::Announce, IpAddr::V6(ip)) => self.advertise(ip, None),
                    (Say::Probe, IpAddr::V6(ip)) => {
                        self.send_ndp(&Message::NeighborSolicitation { target: ip, source_link: None }, Ipv6Addr::UNSPECIFIED, ndp::solicited_node(ip));
                    }
                }
            }
        }
    }

    /// Asks for a neighbour's link address: everyone, or the address known so far.
    pub(super) fn solicit(&mut self, ip: IpAddr, to: Option<MacAddr>) {
        let Some(source) = self.facts().addresses.source_for(ip) else { return };
        match (source, ip) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                self.send_arp(&arp::request(self.facts().mac, source, target), to.unwrap_or(MacAddr::BROADCAST));
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let message = Message::NeighborSolicitation { target, source_link: Some(self.facts().mac) };
                match to {
                    Some(mac) => self.send_ndp_to(&message, source, target, mac),
                    None => self.send_ndp(&message, source, ndp::solicited_node(target)),
                }
            }
            _ => {}
        }
    }

    fn send_arp(&mut self, message: &wire_arp::Packet, to: MacAddr) {
        let Some(buffer) = self.slab.alloc() else { return self.count(Counter::NoTransmitBuffer) };
        let mut packet = Packet::new(buffer, HEADROOM);
        let len = message.emit(packet.room_mut());
        packet.set_len(len);
        self.frame(to, packet);
    }

    fn send_ndp(&mut self, message: &Message<'_>, source: Ipv6Addr, destination: Ipv6Addr) {
        self.send_ndp_to(message, source, destination, MacAddr::from_multicast_v6(destination));
    }

    fn send_ndp_to(&mut self, message: &Message<'_>, source: Ipv6Addr, destination: Ipv6Addr, to: MacAddr) {
        let Some(buffer) = self.slab.alloc() else { return self.count(Counter::NoTransmitBuffer) };
        let mut packet = Packet::new(buffer, HEADROOM);
        let ip_len = ip_header_len(destination.into());
        let Some((ip, room)) = packet.room_mut().split_at_mut_checked(ip_len) else { return };
        let len = message.emit(source, destination, room);
        let fields = IpFields { ttl: ndp::HOP_LIMIT, tos: 0 };
        if len == 0 || !emit_ip(ip, source.into(), destination.into(), Protocol::ICMPV6, fields, len) {
            return self.count(Counter::DropCheck);
        }
        packet.set_len(ip_len + len);
        self.count(Counter::IcmpOut);
        self.frame(to, packet);
    }

    /// An ARP packet came in.
    pub(super) fn arp_input(&mut self, packet: &Packet, now: Instant) {
        self.count(Counter::ArpIn);
        let Ok(message) = wire_arp::Packet::parse(packet.bytes()) else { return self.count(Counter::DropArp) };
        let facts = &self.host.interfaces[usize::from(self.number)];
        match self.neighbors.on_arp(&message, &facts.addresses, facts.mac, now) {
            Ok(heard) => {
                if let Some(reply) = heard.reply {
                    self.send_arp(&reply, reply.target_mac);
                }
                self.learned(IpAddr::V4(message.sender_ip), heard.learned);
            }
            Err(arp::Refused::Conflict(ip)) => self.conflict(ip, now),
            Err(_) => self.count(Counter::DropArp),
        }
    }

    /// Somebody else uses our address: it is defended once in a while (RFC 5227 §2.4 (b)), and counted.
    fn conflict(&mut self, ip: Ipv4Addr, now: Instant) {
        self.count(Counter::AddressConflict);
        let verdict = self
            .claims
            .iter_mut()
            .find(|c| c.ip() == IpAddr::V4(ip))
            .and_then(|c| c.on_conflict(true, now));
        if verdict == Some(proto::neighbor::claim::Verdict::Defend) {
            self.send_arp(&arp::announcement(self.facts().mac, ip), MacAddr::BROADCAST);
        }
    }

    /// The table learned something: what waited for it goes out.
    fn learned(&mut self, ip: IpAddr, learned: Learned) {
        let Learned::Known { mac, queued: true, .. } = learned else { return };
        loop {
            let packet = self.neighbors.take_queued(ip).next();
            let Some(packet) = packet else { return };
            self.frame(mac, packet);
        }
    }

    /// A neighbour discovery message came in (its ICMPv6 checksum is right).
    pub(super) fn ndp_input(&mut self, source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, bytes: &[u8], now: Instant) {
        let Ok(message) = Message::parse(source, destination, hop_limit, bytes) else {
            return self.count(Counter::DropNdp);
        };
        match message {
            Message::NeighborSolicitation { target, source_link } => {
                if !self.facts().addresses.is_local_v6(target) {
                    return;
                }
                if source.is_unspecified() {
                    // Somebody checks whether the address is free (RFC 4862 §5.4.3).
                    return self.advertise(target, None);
                }
                let learned = self.neighbors.hear(source.into(), source_link, Evidence::Asked, now);
                self.learned(source.into(), learned);
                self.advertise(target, Some(source));
            }
            Message::NeighborAdvertisement { target, router, solicited, replace, target_link } => {
                if self.facts().addresses.is_local_v6(target) {
                    return self.count(Counter::AddressConflict);
                }
                let evidence = Evidence::Answered { solicited, over: replace, router: Some(router) };
                let learned = self.neighbors.hear(target.into(), target_link, evidence, now);
                self.learned(target.into(), learned);
            }
            // Routers and redirects are not listened to: addresses and routes are configured.
            Message::RouterSolicitation { .. } | Message::RouterAdvertisement(_) | Message::Redirect { .. } => {}
        }
    }

    /// Says that we have `target`: to who asked, or to all nodes.
    fn advertise(&mut self, target: Ipv6Addr, to: Option<Ipv6Addr>) {
        const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let message = Message::NeighborAdvertisement {
            target,
            router: false,
            solicited: to.is_some(),
            replace: true,
            target_link: Some(self.facts().mac),
        };
        match to.map(|ip| (ip, self.neighbors.lookup(ip.into()))) {
            Some((ip, Some(mac))) => self.send_ndp_to(&message, target, ip, mac),
            Some((ip, None)) => self.solicit(ip.into(), None),
            None => self.send_ndp(&message, target, ALL_NODES),
        }
    }

    /// Neighbours, for `netchan show neighbors`.
    pub fn neighbors(&self, now: Instant) -> impl Iterator<Item = proto::neighbor::Neighbor> {
        self.neighbors.iter(now)
    }
}
