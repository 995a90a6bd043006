//! What a packet's next hop is, and its link address: of a group, by the routes, from the table of neighbours.

use std::net::IpAddr;

use proto::{
    icmp::error::Kind,
    neighbor::{Resolution, Settled},
    time::Instant,
    wire::ethernet::MacAddr,
};

use super::Interface;
use crate::{
    counters::Counter,
    limits,
    packet::{Hint, Packet},
    tap::Begins,
};

impl Interface {
    /// Finds the next hop's link address and stamps the frame header; the frame goes to the link's queue, or the packet waits for its neighbour.
    pub fn stamp(&mut self, destination: IpAddr, packet: Packet, now: Instant) {
        if let Some(lender) = self.facts().lender {
            return self.stamp_for(lender, packet);
        }
        if let Some(mac) = self.group_mac(destination) {
            if packet.meta.to_group.get() {
                return self.loop_back(packet); // the copy for our own members
            }
            return self.frame(mac, packet);
        }
        if self.host.net.is_local(destination) {
            return self.loop_back(packet);
        }
        // What is sent on its own account carries its socket's mark there.
        let mark = packet.meta.flow;
        let Some(hop) = self.next_hop(destination, mark) else {
            self.count_lost(Counter::DropNoRoute, &packet, Begins::Own);
            return self.give_back(Kind::NetUnreachable, packet);
        };
        let due = self.neighbors.deadline();
        match packet.meta.hint {
            Hint::PROGRESS => self.neighbors.confirm(hop, now),
            Hint::DOUBT => {
                self.neighbors.doubt(hop, now);
                self.hops.forget();
            }
            _ => {}
        }
        let resolved = self.resolve(hop, packet, now);
        self.timer_moved |= is_earlier(self.neighbors.deadline(), due);
        let Some((mac, packet)) = resolved else {
            return;
        };
        // The hop cache does not know marks, and saves a check that what a module has changed did not pass.
        let is_sure =
            !self.host.net.routes.depends_on_mark(destination) && !packet.meta.translated.get();
        if let Some(settled) = self.neighbors.settled(hop, now).filter(|_| is_sure) {
            self.hops.put(
                &packet,
                self.host.net.interfaces[usize::from(self.number)].mac,
                &settled,
            );
        }
        self.frame(mac, packet);
    }

    /// Of a lease: the lender finds the next hop.
    fn stamp_for(&mut self, lender: MacAddr, packet: Packet) {
        let settled = Settled {
            mac: lender,
            until: Instant::FAR,
            confirm_from: Instant::FAR,
        };
        let ours = self.facts().mac;
        self.hops.put(&packet, ours, &settled);
        self.frame(lender, packet);
    }

    /// The next hop's link address, for this packet; or it waits for it, and comes back from the table.
    pub(super) fn resolve(
        &mut self,
        hop: IpAddr,
        packet: Packet,
        now: Instant,
    ) -> Option<(MacAddr, Packet)> {
        match self.neighbors.resolve(hop, packet, now) {
            Resolution::Ready(mac, packet) => return Some((mac, packet)),
            Resolution::Queued { solicit, displaced } => {
                if let Some(packet) = displaced {
                    self.count_lost(Counter::DropNeighbor, &packet, Begins::Own);
                }
                if solicit {
                    self.solicit(hop, None, now);
                }
            }
            Resolution::Dropped(packet, _) => {
                self.count_lost(Counter::DropNeighbor, &packet, Begins::Own);
            }
        }
        None
    }

    /// Keeps a packet for one of our own addresses until the receiving half takes it in.
    pub(super) fn loop_back(&mut self, packet: Packet) {
        if self.local.len() < limits::LINK_QUEUE {
            self.local.push_back(packet);
            self.returned = true;
        } else {
            self.count_lost(Counter::DropLinkQueue, &packet, Begins::Own);
        }
    }

    #[inline]
    pub(super) fn next_hop(&self, destination: IpAddr, mark: u32) -> Option<IpAddr> {
        if self.facts().addresses.is_on_link(destination) {
            return Some(destination);
        }
        let routes = &self.host.net.routes;
        let next = routes.lookup_marked(destination, mark)?;
        if next.interface == u16::from(self.number) {
            return Some(next.neighbor(destination));
        }
        // It leaves here because its socket said so: as Linux, by a route of this link's, else its destination is a neighbour.
        let next = routes.lookup_by(destination, self.number.into(), mark);
        Some(next.map_or(destination, |next| next.neighbor(destination)))
    }

    /// The link address of a multicast group or of broadcast.
    fn group_mac(&self, destination: IpAddr) -> Option<MacAddr> {
        match destination {
            IpAddr::V4(ip) if ip.is_multicast() => Some(MacAddr::from_multicast_v4(ip)),
            IpAddr::V6(ip) if ip.is_multicast() => Some(MacAddr::from_multicast_v6(ip)),
            IpAddr::V4(_) if self.facts().addresses.is_broadcast(destination) => {
                Some(MacAddr::BROADCAST)
            }
            _ => None,
        }
    }
}

/// Whether a timer is due earlier than it was.
fn is_earlier(due: Option<Instant>, was: Option<Instant>) -> bool {
    due.is_some_and(|due| was.is_none_or(|was| due < was))
}
