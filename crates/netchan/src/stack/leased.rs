//! The application's side of a lease: ports that the lender has to give before a socket can have them.

use std::{net::SocketAddr, sync::Arc};

use super::Stack;
use crate::{
    api::{Kind, binding::BindRequest},
    channel::PacketProtocol,
    ephemeral::EphemeralPorts,
    link::lease::{Lease, Transport},
};

impl Stack {
    /// Asks the lenders of this stack's links, if there are such, for a port that a socket named. Waits for their answer.
    ///
    /// # Errors
    /// A lender's errno.
    pub(super) fn lease_port(&self, request: &BindRequest) -> Result<(), i32> {
        let transport = match request.kind {
            Kind::Stream => Transport::Tcp,
            Kind::Datagram => Transport::Udp,
            Kind::Ping => Transport::Ping,
        };
        let ip = request.address.ip();
        if ip.is_multicast() {
            return Ok(());
        }
        let address = SocketAddr::new(ip, request.address.port());
        let leases = self.control.leases.lock().clone();
        // Loopback addresses are lent by one of them, or are this stack's own.
        let mut leases = (leases.iter()).filter(|lease| !ip.is_loopback() || lease.has_loopback());
        leases.try_for_each(|lease| lease.bind(transport, address))
    }

    /// Asks the lenders of this stack's links, if there are such, for the packets of a protocol. Waits for their answer.
    ///
    /// # Errors
    /// A lender's errno; EOPNOTSUPP: frames, which no lease has.
    pub(super) fn lease_packets(&self, protocol: PacketProtocol) -> Result<(), i32> {
        let leases = self.control.leases.lock().clone();
        let mut leases = leases.iter();
        leases.try_for_each(|lease| match protocol {
            PacketProtocol::Ip(number) => lease.packets(number),
            PacketProtocol::EtherType(_) => Err(libc::EOPNOTSUPP),
        })
    }

    /// Asks for more ports for sockets that name none. Whether there are more than before.
    #[cold]
    pub fn lease_more_ports(&self) -> bool {
        let leases = self.control.leases.lock().clone();
        if !leases.iter().any(|lease| lease.more_ports().is_ok()) {
            return false;
        }
        let ports = ephemeral_ports(&leases);
        (self.control.host.live).update(|live| live.ports = Arc::new(ports));
        true
    }
}

/// The ports of sockets that name none, of a stack whose links have these leases.
pub(crate) fn ephemeral_ports(leases: &[Arc<dyn Lease>]) -> EphemeralPorts {
    EphemeralPorts::of_lease(leases.iter().flat_map(|lease| lease.ports()).collect())
}
