//! What applications send to groups and to broadcast addresses: out by the link, and a copy to members on this host, the sender among them, where it wants so
//! (IP_MULTICAST_LOOP). The copy goes the way of what this host sends to itself; whose it is is found behind it, as of what comes by the link. And the
//! groups that leases are in.

use std::net::IpAddr;

use proto::{membership::Filter, time::Instant};

use super::{Interface, Leased};
use crate::{
    counters::Counter,
    driver::interface::ends_of,
    link::BURST,
    packet::{Flag, Packet},
    tap::Begins,
};

/// The numbers of leases among those of sockets, as members of groups: above all of these.
const LEASES_FROM: u64 = 1 << 63;

impl Interface {
    /// A lease hears this of a group from now on; nothing, where it admits no source. False: the link is in too many groups.
    pub fn wish_of_lease(
        &mut self,
        lease: u64,
        group: IpAddr,
        filter: Filter,
        now: Instant,
    ) -> bool {
        self.wish(LEASES_FROM | lease, group, filter, now)
    }

    /// A lease has ended: it leaves its groups.
    pub fn leave_groups_of(&mut self, lease: u64, groups: &[IpAddr], now: Instant) {
        for (number, &group) in groups.iter().enumerate() {
            self.wish_of_lease(lease, group, Filter::NO_SOURCE, now);
            // There may be more of them than the host has buffers for reports.
            if number % BURST == BURST - 1
                && let Err(error) = self.flush(now)
            {
                self.link_failed(&error);
            }
        }
    }

    /// Sends what has passed *check* and the modules to a group, or as a broadcast.
    #[cold]
    pub(super) fn send_to_many(
        &mut self,
        leased: &mut Leased,
        mut packet: Packet,
        hops: u8,
        now: Instant,
    ) {
        let loops = std::mem::replace(&mut packet.meta.to_group, Flag::NO).get();
        if loops && self.has_members(&packet) {
            match leased.source.copy_of(&packet) {
                Some(mut copy) => {
                    copy.meta.to_group = Flag::YES;
                    copy.meta.interface = self.number;
                    self.loop_back(copy);
                }
                None => self.count_lost(Counter::DropLeaseCopy, &packet, Begins::Own),
            }
        }
        if hops > 0 {
            self.send(packet, now);
        }
    }

    /// Whether a socket or a lease of this host may hear a packet to many.
    fn has_members(&self, packet: &Packet) -> bool {
        let Some((source, group)) = ends_of(packet.bytes()) else {
            return false;
        };
        !group.is_multicast()
            || self.facts().addresses.is_member(group)
            || (self.host.groups).takes(self.number, group, source)
    }
}
