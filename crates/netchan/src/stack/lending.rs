//! The lender's side of leases: they come and go, and get ports. Their ends lie in the halves of their link's first queue.

use std::{io, sync::Arc};

use proto::wire::ipv4::Protocol;

use super::Stack;
use crate::{
    channel::{LeaseCore, LeaseFiles, PacketProtocol, lease},
    errno::error,
    limits,
    link::lease::{Binding, PortRange},
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
        let (end, source, files) = lease((number, link), holder)?;
        let core = end.core().clone();
        // A thread that waits for a socket of this process does not look at leases.
        self.driver.keep_links();
        let bells = self.with_interface(queue, |interface| {
            interface.leases.add(source)?;
            interface.leases.bells()
        })?;
        let _ = shared.lease_bells.set(bells); // the same as before, where it was set
        self.control.lent.lock().all.push(core.clone());
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

    /// Ends a lease: what the application has comes back, and its packets are no more. The peers of its connections hear of it.
    pub fn close_lease(&self, link: usize, lease: &LeaseCore) {
        self.silence_lease(link, lease);
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        let number = lease.number;
        let now = self.clock.now();
        self.with_interface(queue, |interface| {
            interface.refresh(now);
            interface.end_lease(number, now);
        });
        self.driver.queues[queue].doorbell.ring(); // the link's thread sends what was said
        self.control.host.taps.watched.remove(number);
        let mut lent = self.control.lent.lock();
        lent.all.retain(|core| core.number != number);
    }

    /// A lease has a port from now on.
    pub fn bind_lease(&self, link: usize, lease: u64, binding: &Binding) {
        let Some(&queue) = self.driver.links[link].first() else {
            return;
        };
        self.with_receive(queue, |receive| {
            if let Some(leases) = &mut receive.steer.leases {
                leases.bind(lease, binding);
            }
        });
        self.with_interface(queue, |interface| interface.leases.bind(lease, binding));
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

    /// A lease has the packets of an IP protocol number from now on. False: another one has them, or the lender itself.
    pub fn give_packets(&self, link: usize, lease: u64, protocol: u8) -> bool {
        let Some(&queue) = self.driver.links[link].first() else {
            return false;
        };
        let mut own = self.packet_channels().into_iter();
        if own.any(|core| core.protocol() == PacketProtocol::Ip(protocol)) {
            return false;
        }
        let protocol = Protocol(protocol);
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
        let PacketProtocol::Ip(number) = protocol else {
            return false;
        };
        (0..self.driver.queues.len()).any(|queue| {
            self.with_receive(queue, |receive| {
                let leases = receive.steer.leases.as_ref();
                leases.is_some_and(|all| all.find_protocol(Protocol(number)).is_some())
            })
        })
    }

    /// All leases.
    pub fn leases(&self) -> Vec<Arc<LeaseCore>> {
        self.control.lent.lock().all.clone()
    }
}
