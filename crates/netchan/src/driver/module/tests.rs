//! Modules by themselves (rules, limits, accounts, hostile packets) and in a stack.

mod alone;
mod in_a_stack;

use std::net::IpAddr;

use proto::wire::ipv4::Protocol;

use crate::emit::{IpFields, emit_ip, ip_header_len};

/// An IP packet between two ends; of TCP and UDP with these ports and nothing more.
fn packet(from: &str, to: &str, protocol: Protocol, ports: (u16, u16)) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let header = ip_header_len(from);
    let mut bytes = vec![0; header + 28];
    assert!(emit_ip(
        &mut bytes,
        from,
        to,
        protocol,
        IpFields::default(),
        28
    ));
    bytes[header..header + 2].copy_from_slice(&ports.0.to_be_bytes());
    bytes[header + 2..header + 4].copy_from_slice(&ports.1.to_be_bytes());
    bytes
}
