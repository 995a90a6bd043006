//! The lender's side of leases: they come and go, and get ports. Their ends lie in the halves of their link's first queue.

use std::{
    collections::HashSet,
    io,
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use proto::membership::Filter;

use super::{Stack, tx};
use crate::{
    channel::{LeaseCore, LeaseFiles, LeaseSize, PacketProtocol, lease},
    driver::steer::spread,
    errno::error,
    flow::{Closed, FlowKey},
    limits,
    link::lease::{Binding, PortRange, Reuse, Transport},
};

impl Stack {
    /// Lends a part of a link.
    ///
    /// # Errors
    /// EMFILE: there are as many leases as there may be; EOPNOTSUPP: the link has several queues; the system's.
    pub fn open_lease(
        &self,
        link: usize,
        holder: String,
        size: LeaseSize,
    ) -> io::Result<(Arc<LeaseCore>, LeaseFiles)> {
        let [queue] = *self.driver.links[link].as_slice() else {
            return Err(error(libc::EOPNOTSUPP));
        };
        let shared = &self.driver.queues[queue];
        let number = {
            let mut lent = self.control.lent.lock();
            if lent.all.len() >= limits::LEASES {
                return Err(error(libc::EMFILE));
            }
            lent.next += 1;
            lent.next
        };
        let (end, source, files) = lease((number, link), holder, size)?;
        let core = end.core().clone();
        let bells = self.with_interface(queue, |interface| {
            interface.leases.add(source)?;
            interface.leases.bells()
        })?;
        let _ = shared.lease_bells.set(bells); // the same as before, where it was set
        {
            let mut lent = self.control.lent.lock();
            lent.all.push(core.clone());
            self.driver.lends.store(true, Relaxed); // before the ring
        }
        self.control.host.taps.watched.add(core.clone());
        self.with_receive(queue, |receive| {
            receive.steer.leases.get_or_insert_default().add(end);
        });
        shared.doorbell.ring(); // the thread sleeps on the lease's bell, too, from now on
        Ok((core, files))
    }

    /// What comes for the ports of a lease is the lender's from now on. The lease ends later.
    pub fn silence_lease(&self, link: usize, lease: &LeaseCore) {
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        self.take_closed(link, queue, lease.number);
        self.with_receive(queue, |receive| {
            let leases = &mut receive.steer.leases;
            if let Some(all) = leases {
                all.remove(lease.number);
                if all.is_empty() {
                    *leases = None;
                }
            }
        });
    }

    /// The peers of the connections that a lease has closed in order are answered by the lender's own shards from now on (RFC 9293 §3.6).
    fn take_closed(&self, link: usize, queue: usize, lease: u64) {
        let now = self.clock.now();
        let closed = self.with_interface(queue, |interface| interface.closed_of(lease, now));
        if closed.is_empty() {
            return;
        }
        let interface = u8::try_from(link).unwrap_or(u8::MAX);
        let (hash, shards) = (&self.control.host.flow_hash, self.sockets.cells.len());
        for number in 0..shards {
            let its = |closed: &&Closed| spread(hash.hash(&closed.key), shards) == number;
            let all: Vec<_> = closed.iter().filter(its).collect();
            for part in all.chunks(limits::LEASE_LOOK) {
                self.with_shard(number, |shard, now| {
                    part.iter()
                        .for_each(|closed| shard.take_over(closed, interface, now));
                });
            }
        }
    }

    /// Ends a lease: what the application has comes back, and its packets are no more. The peers of its connections hear of it.
    pub fn close_lease(&self, link: usize, lease: &LeaseCore) {
        self.silence_lease(link, lease);
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        let number = lease.number;
        let now = self.clock.now();
        let groups = std::mem::take(&mut lease.ports.lock().groups);
        self.with_interface(queue, |interface| {
            interface.refresh(now);
            interface.end_lease(number, now);
            interface.leave_groups_of(number, &groups, now);
        });
        self.driver.queues[queue].doorbell.ring(); // the link's thread sends what was said
        self.control.host.taps.watched.remove(number);
        let mut lent = self.control.lent.lock();
        lent.all.retain(|core| core.number != number);
        self.driver.lends.store(!lent.all.is_empty(), Relaxed);
    }

    /// A lease has a port from now on. Connections of leases that have it, too, stay theirs.
    pub fn bind_lease(&self, link: usize, lease: u64, binding: &Binding, reuse: Reuse) {
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        self.pin_shared(queue, binding);
        self.with_receive(queue, |receive| {
            if let Some(leases) = &mut receive.steer.leases {
                leases.bind(lease, binding, reuse);
            }
        });
        self.with_interface(queue, |interface| interface.leases.bind(lease, binding));
    }

    /// Nothing new comes to a lease at a port from now on. Its connections there stay its own: those of which its packets tell.
    pub fn close_leased_port(&self, link: usize, lease: u64, binding: &Binding) {
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        self.pin_shared(queue, binding);
        if binding.transport == Transport::Tcp {
            self.pin(queue, lease, binding);
        }
        self.with_receive(queue, |receive| {
            if let Some(leases) = &mut receive.steer.leases {
                leases.unbind(lease, binding);
            }
        });
    }

    /// These connections, too, are a lease's.
    pub fn pin_leased(&self, link: usize, lease: u64, binding: &Binding, flows: &[FlowKey]) {
        if let Some(&queue) = self.driver.links[link].first() {
            self.with_receive(queue, |receive| {
                if let Some(leases) = &mut receive.steer.leases {
                    leases.pin(lease, binding, flows, true);
                }
            });
        }
    }

    /// A lease has a port no more.
    pub fn unbind_lease(&self, link: usize, lease: u64, binding: &Binding) {
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        self.pin_shared(queue, binding);
        self.with_receive(queue, |receive| {
            if let Some(leases) = &mut receive.steer.leases {
                leases.unbind(lease, binding);
            }
        });
        self.prune(queue, (lease, binding), None);
        self.with_interface(queue, |i| i.leases.unbind(lease, binding));
    }

    /// Before it changes which leases have a port: the connections that they have there stay where they are.
    fn pin_shared(&self, queue: usize, binding: &Binding) {
        if binding.transport != Transport::Tcp {
            return;
        }
        let rivals = self.with_receive(queue, |receive| {
            let leases = receive.steer.leases.as_ref();
            leases.map_or_else(Vec::new, |leases| leases.rivals(binding))
        });
        let mut looked = 0;
        for (lease, binding) in rivals {
            if looked < limits::LEASE_SHARED_FLOWS {
                looked += self.pin(queue, lease, &binding);
            }
        }
    }

    /// The connections that a lease has at a port are pinned to it, and no others but those that were told. Neither half is held for long at a time. How many of
    /// the lease's connections were gone through, at most.
    fn pin(&self, queue: usize, lease: u64, binding: &Binding) -> usize {
        let (mut flows, mut below, mut looked) = (Vec::new(), usize::MAX, 0);
        while below > 0 {
            looked += limits::LEASE_LOOK;
            below = self.with_interface(queue, |interface| {
                (interface.leases).flows_at((lease, binding), below, &mut flows)
            });
        }
        for part in flows.chunks(limits::LEASE_LOOK) {
            self.with_receive(queue, |receive| {
                if let Some(leases) = &mut receive.steer.leases {
                    leases.pin(lease, binding, part, false);
                }
            });
        }
        self.prune(queue, (lease, binding), Some(&flows.into_iter().collect()));
        looked
    }

    fn prune(&self, queue: usize, of: (u64, &Binding), keep: Option<&HashSet<FlowKey>>) {
        let mut below = usize::MAX;
        while below > 0 {
            below = self.with_receive(queue, |receive| {
                let leases = receive.steer.leases.as_mut();
                leases.map_or(0, |leases| leases.prune(of, keep, below))
            });
        }
    }

    /// A lease hears this of a group from now on; nothing, where it admits no source. False: the link is in too many groups.
    pub fn join_lease(&self, lease: &LeaseCore, group: IpAddr, filter: &Filter) -> bool {
        let Some(&queue) = self.driver.links[lease.link].first() else {
            return false;
        };
        let (number, now) = (lease.number, self.clock.now());
        let fits = self.with_interface(queue, |interface| {
            let fits = interface.wish_of_lease(number, group, filter.clone(), now);
            tx::flush(interface, now);
            fits
        });
        if fits {
            self.with_receive(queue, |receive| {
                if let Some(leases) = &mut receive.steer.leases {
                    leases.join(number, group, filter);
                }
            });
        }
        self.driver.queues[queue].doorbell.ring(); // its timers have changed
        fits
    }

    /// A lease's connections were closed in order: their peers hear nothing of its end.
    pub fn lease_over(&self, lease: &LeaseCore) {
        if let Some(&queue) = self.driver.links[lease.link].first() {
            self.with_interface(queue, |interface| interface.leases.over(lease.number));
        }
    }

    /// A lease shares the loopback addresses from now on.
    pub fn share_loopback(&self, lease: &LeaseCore) {
        let Some(&queue) = self.driver.links[lease.link].first() else {
            return;
        };
        lease.share_loopback();
        self.with_interface(queue, |interface| {
            interface.leases.share_loopback(lease.number);
        });
    }

    /// A lease has these ports for sockets that name none.
    pub fn give_ports(&self, link: usize, lease: u64, ports: PortRange) {
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        self.with_receive(queue, |receive| {
            if let Some(leases) = &mut receive.steer.leases {
                leases.add_ports(lease, ports);
            }
        });
        self.with_interface(queue, |interface| interface.leases.add_ports(lease, ports));
    }

    /// A lease has the packets of an IP protocol number, or the frames of an EtherType, from now on. False: another one has them, or the lender itself.
    pub fn give_packets(&self, link: usize, lease: u64, protocol: PacketProtocol) -> bool {
        let Some(&queue) = self.driver.links[link].first() else {
            return false;
        };
        let mut own = self.packet_channels().into_iter();
        if own.any(|core| core.protocol() == protocol) {
            return false;
        }
        let is_given = self.with_receive(queue, |receive| {
            let leases = receive.steer.leases.as_mut();
            leases.is_some_and(|leases| leases.add_protocol(lease, protocol))
        });
        if is_given {
            self.with_interface(queue, |i| i.leases.add_protocol(lease, protocol));
        }
        is_given
    }

    /// Whether a lease has the packets of a protocol.
    pub fn has_lent_packets(&self, protocol: PacketProtocol) -> bool {
        (0..self.driver.queues.len()).any(|queue| {
            self.with_receive(queue, |receive| {
                let leases = receive.steer.leases.as_ref();
                leases.is_some_and(|all| all.find_protocol(protocol).is_some())
            })
        })
    }

    /// All leases.
    pub fn leases(&self) -> Vec<Arc<LeaseCore>> {
        self.control.lent.lock().all.clone()
    }
}
