//! The application's side of a lease: ports that the lender has to give before a socket can have them, and that go back to it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering::AcqRel},
    thread,
    time::Duration,
};

use proto::{membership::Filter, tcp::State};

use super::Stack;
use crate::{
    api::{
        Kind,
        binding::{BindRequest, Released},
    },
    channel::PacketProtocol,
    ephemeral::EphemeralPorts,
    limits,
    link::lease::{Binding, Lease, PortRange, Reuse, Transport, covers},
    sys,
};

/// Between two looks whether the last connection of a port has ended.
const LOOK: Duration = Duration::from_secs(1);

impl Stack {
    /// Asks the lenders of this stack's links, if there are such, for a port that a socket named. Waits for their answer.
    ///
    /// # Errors
    /// A lender's errno.
    pub(super) fn lease_port(&self, request: &BindRequest) -> Result<(), i32> {
        let leases = self.control.leases.all();
        let reuse = Reuse {
            address: request.reuse_address,
            port: request.reuse_port,
        };
        let port = Released {
            kind: request.kind,
            address: request.address,
            v6_only: request.v6_only,
        };
        let all = (leases.iter()).flat_map(|lease| bindings(&port, lease).map(move |b| (lease, b)));
        for (number, (lease, binding)) in all.clone().enumerate() {
            if let Err(errno) = lease.bind(binding, reuse) {
                for (lease, binding) in all.take(number) {
                    self.unbind(lease, binding);
                }
                return Err(errno);
            }
        }
        Ok(())
    }

    /// A listener is about to end: what is new is others' from now on, where they share its port.
    pub fn leave_port(&self, id: u64) {
        let leases = self.control.leases.all();
        if leases.is_empty() {
            return;
        }
        let Some(port) = self.control.directory.named(id) else {
            return;
        };
        for lease in &leases {
            bindings(&port, lease).for_each(|binding| lease.leave(binding));
        }
    }

    /// Ends what [`bind`](Self::bind) gave. A port that a lender gave goes back to it, once no connection has it.
    pub fn release_port(self: &Arc<Self>, id: u64) {
        let Some(port) = self.control.directory.release(id) else {
            return;
        };
        let leases = self.control.leases.all();
        let mut lives_on = false;
        for lease in &leases {
            for binding in bindings(&port, lease) {
                lives_on |= self.unbind(lease, binding);
            }
        }
        if lives_on {
            self.settle_later();
        }
    }

    /// A thread looks from now on when the last connections of ports have ended that are to go back.
    pub fn settle_later(self: &Arc<Self>) {
        let is_needed = self.threaded && !self.control.leases.all().is_empty();
        if !is_needed || self.control.leases.is_settling.swap(true, AcqRel) {
            return;
        }
        let stack = Arc::downgrade(self);
        let started = sys::spawn("netchan-ports", move || {
            loop {
                thread::park_timeout(LOOK);
                let Some(stack) = stack.upgrade() else {
                    return;
                };
                // First: a port that is released from now on may not be seen here any more.
                stack.control.leases.is_settling.swap(false, AcqRel);
                let goes_on = !stack.is_stopping() && stack.settle_ports();
                if !goes_on || stack.control.leases.is_settling.swap(true, AcqRel) {
                    return;
                }
            }
        });
        // Without it the next port that is released looks after this one, too.
        if let Ok(thread) = started {
            let mut threads = self.control.threads.lock();
            threads.retain(|thread| !thread.is_finished());
            threads.push(thread);
        }
    }

    /// Gives back the ports of ended sockets that no connection has any more, and tells lenders of groups that were left. Whether there are others.
    fn settle_ports(&self) -> bool {
        let leases = self.control.leases.all();
        let mut lives_on = false;
        for lease in &leases {
            lives_on |= !lease.settle_groups();
            for (binding, is_closed) in lease.unbound() {
                lives_on |= self.close_port(lease, binding, is_closed);
            }
        }
        lives_on
    }

    /// Whether connections keep the port of a socket that has ended.
    fn unbind(&self, lease: &Arc<dyn Lease>, binding: Binding) -> bool {
        lease.unbind(binding) && self.close_port(lease, binding, false)
    }

    /// Whether connections keep it; the lender is told, now or, where it has too much to read, later.
    fn close_port(&self, lease: &Arc<dyn Lease>, binding: Binding, is_closed: bool) -> bool {
        let (ip, port) = (binding.address.ip(), binding.address.port());
        let mut connections = Vec::new();
        if binding.transport == Transport::Tcp {
            for number in 0..self.sockets.cells.len() {
                connections
                    .append(&mut self.with_shard(number, |shard, _| shard.connections_at(port)));
            }
        }
        connections.retain(|key| covers(ip, key.local));
        if connections.is_empty() {
            return !lease.give_back(binding);
        }
        if !is_closed {
            let addresses: Vec<IpAddr> = lease.addresses().iter().map(|a| a.ip()).collect();
            let is_near = |remote: IpAddr| remote.is_loopback() || addresses.contains(&remote);
            let near = connections.iter().filter(|key| is_near(key.remote));
            let ends = near.map(|key| {
                let local = SocketAddr::new(key.local, key.local_port);
                (local, SocketAddr::new(key.remote, key.remote_port))
            });
            let ends: Vec<_> = ends.take(limits::LEASE_CLOSED_FLOWS).collect();
            lease.close(binding, &ends);
        }
        true
    }

    /// Asks the lenders of this stack's links, if there are such, for the packets of a protocol. Waits for their answer.
    ///
    /// # Errors
    /// A lender's errno.
    pub(super) fn lease_packets(&self, protocol: PacketProtocol) -> Result<(), i32> {
        let leases = self.control.leases.all();
        let mut leases = leases.iter();
        leases.try_for_each(|lease| match protocol {
            PacketProtocol::Ip(number) => lease.packets(number),
            PacketProtocol::EtherType(kind) => lease.frames(kind),
        })
    }

    /// A socket, by its number, hears this of a group on a link from now on: asks the link's lender, if it has one. Waits for its answer.
    ///
    /// # Errors
    /// The lender's errno.
    pub fn join_leased(
        &self,
        link: u8,
        socket: u64,
        group: IpAddr,
        filter: &Filter,
    ) -> Result<(), i32> {
        match self.control.leases.of(link) {
            Some(lease) => lease.join_group(socket, group, filter),
            None => Ok(()),
        }
    }

    /// Where all connections were closed in order, and their peers know: lenders let them be when this process ends.
    pub fn tell_lenders_if_over(&self) {
        let leases = self.control.leases.all();
        let is_over = |state| matches!(state, State::FinWait2 | State::TimeWait | State::Closed);
        if !leases.is_empty() && self.all_connections(|connection| is_over(connection.state())) {
            leases.iter().for_each(|lease| lease.over());
        }
    }

    /// It hears nothing of it any more: tells the lender, now or later.
    pub fn leave_leased(self: &Arc<Self>, link: u8, socket: u64, group: IpAddr) {
        if let Some(lease) = self.control.leases.of(link)
            && !lease.leave_group(socket, group)
        {
            self.settle_later();
        }
    }

    /// Asks for more ports for sockets that name none. Whether there are more than before.
    #[cold]
    pub fn lease_more_ports(&self) -> bool {
        let leases = self.control.leases.all();
        if !leases.iter().any(|lease| lease.more_ports().is_ok()) {
            return false;
        }
        let ports = ephemeral_ports(&leases);
        (self.control.host.live).update(|live| live.ports = Arc::new(ports));
        true
    }
}

/// What is asked of a lender for a port that a socket has: a wildcard of both families is two bindings.
fn bindings(
    port: &Released,
    lease: &Arc<dyn Lease>,
) -> impl Iterator<Item = Binding> + Clone + use<> {
    let transport = match port.kind {
        Kind::Stream => Transport::Tcp,
        Kind::Datagram => Transport::Udp,
        Kind::Ping => Transport::Ping,
    };
    let (ip, number) = (port.address.ip(), port.address.port());
    // Loopback addresses are lent by one of the leases, or are this stack's own.
    let is_lent = match port.kind {
        Kind::Datagram => true,
        Kind::Stream | Kind::Ping => !ip.is_multicast(),
    } && (!ip.is_loopback() || lease.has_loopback());
    let takes_both = ip.is_ipv6() && ip.is_unspecified() && !port.v6_only;
    let own = is_lent.then_some(ip);
    let other = takes_both.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let addresses = own.into_iter().chain(other);
    addresses.map(move |ip| Binding {
        transport,
        address: SocketAddr::new(ip, number),
    })
}

/// The ports of sockets that name none, of a stack whose links have these leases.
pub(crate) fn ephemeral_ports(leases: &[Arc<dyn Lease>]) -> EphemeralPorts {
    let mut ranges: Vec<PortRange> = leases.iter().flat_map(|lease| lease.ports()).collect();
    ranges.sort_unstable_by_key(|range| (range.0, range.1));
    ranges.dedup(); // those that stand side by side have the same
    EphemeralPorts::of_lease(ranges)
}
