//! An interface whose addresses, or the routes, have changed while packets flow.

use proto::{ip::address::solicited_node, membership::Filter, time::Instant};
use std::net::IpAddr;

use super::{Interface, claim, groups::OURSELVES};
use crate::driver::network::Network;

impl Interface {
    /// New addresses are announced, old ones given up; what was derived from addresses and routes is forgotten.
    #[cold]
    pub(super) fn networks_changed(&mut self, before: &Network, now: Instant) {
        if std::ptr::eq(before, &*self.host.net) {
            return; // it was something else
        }
        if self.is_further() {
            return; // the first queue's forgets
        }
        self.hops.forget();
        let number = usize::from(self.number);
        let addresses = |net: &Network| -> Vec<IpAddr> {
            let ours = net.interfaces[number].addresses.iter().map(|a| a.ip());
            ours.filter(|ip| !ip.is_loopback()).collect()
        };
        let (old, new) = (addresses(before), addresses(&self.host.net));
        if old == new || self.facts().lender.is_some() {
            return;
        }
        self.claims.retain(|claim| new.contains(&claim.ip()));
        self.conflicts = 0; // its bits are places among the claims
        for ip in new.iter().filter(|ip| !old.contains(ip)) {
            let claim = claim(*ip, now, &mut self.random);
            self.claims.push(claim);
        }
        self.move_own_groups(&solicited_nodes(&old), &solicited_nodes(&new), now);
        self.look_at = now;
        self.timer_moved = true;
    }

    /// Leaves and joins the solicited-node groups (RFC 4861 §7.2.1).
    fn move_own_groups(&mut self, old: &[IpAddr], new: &[IpAddr], now: Instant) {
        for &group in old.iter().filter(|group| !new.contains(group)) {
            self.wish(OURSELVES, group, Filter::NO_SOURCE, now);
        }
        for &group in new.iter().filter(|group| !old.contains(group)) {
            self.wish(OURSELVES, group, Filter::ANY_SOURCE, now);
        }
    }
}

/// The solicited-node groups of those that are IPv6's.
fn solicited_nodes(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let group = |ip: &IpAddr| match ip {
        IpAddr::V6(ip) => Some(solicited_node(*ip).into()),
        IpAddr::V4(_) => None,
    };
    addresses.iter().filter_map(group).collect()
}
