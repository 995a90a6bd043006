//! What all interfaces and shards of one stack know and none of them changes: addresses, routes, keys, settings.

use std::net::IpAddr;

use proto::{
    ip::{address::Addresses, route},
    tcp,
    wire::ethernet::MacAddr,
};

use crate::steer::flow::FlowHash;

/// One interface as the rest of the stack sees it.
#[derive(Clone, Debug)]
pub struct InterfaceFacts {
    /// The link as the user wrote it.
    pub name: String,
    /// Our link address.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Our addresses on it.
    pub addresses: Addresses,
}

/// Facts of one stack, fixed at its start and shared by everyone without a lock.
#[derive(Debug)]
pub struct Host {
    /// Interfaces by number.
    pub interfaces: Vec<InterfaceFacts>,
    /// Where packets go.
    pub routes: route::Table,
    /// The keyed hash of flows.
    pub flow_hash: FlowHash,
    /// Secret of initial sequence numbers, ports and timestamp offsets (RFC 6528, RFC 6056).
    pub secret: [u8; 16],
    /// What TCP connections start with; MSS and buffers are set for each interface and socket.
    pub tcp: tcp::Config,
    /// Bytes a stream's send queue holds at most.
    pub send_buffer: usize,
}

impl Host {
    /// Whether `ip` is an address of ours.
    #[inline]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.interfaces.iter().any(|i| i.addresses.is_local(ip))
    }

    /// The interface and source address for packets to `destination`; `None`: no route.
    pub fn route(&self, destination: IpAddr) -> Option<(u8, IpAddr)> {
        if self.is_local(destination) {
            let number = self.interfaces.iter().position(|i| i.addresses.is_local(destination))?;
            return Some((u8::try_from(number).ok()?, destination));
        }
        let next = self.routes.lookup(destination)?;
        let source = self.interfaces.get(usize::from(next.interface))?.addresses.source_for(destination)?;
        Some((next.interface, source))
    }
}
