//! ARP for IPv4 over Ethernet (RFC 826), and nothing else that ARP could carry.

use core::net::Ipv4Addr;

use super::Error;
use super::ethernet::MacAddr;

/// Bytes of a packet.
pub const LEN: usize = 28;

/// What a packet wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks which host has the target protocol address.
    Request,
    /// The sender has it.
    Reply,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Sender's hardware address.
    pub sender_mac: MacAddr,
    /// Sender's protocol address; 0.0.0.0 in a probe (RFC 5227 §2.1.1).
    pub sender_ip: Ipv4Addr,
    /// Target's hardware address; meaningless in a request.
    pub target_mac: MacAddr,
    /// Target's protocol address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// The packet at the front of `bytes`; what follows it is Ethernet padding.
    ///
    /// # Errors
    /// `Truncated` below 28 bytes; `Version` for other hardware or protocol types; `Length` for
    /// hardware or protocol addresses that are not 6 and 4 bytes; `Value` for an operation other
    /// than request and reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let p = bytes.first_chunk::<LEN>().ok_or(Error::Truncated)?;
        if p[..4] != [0, 1, 0x08, 0x00] {
            return Err(Error::Version);
        }
        if p[4..6] != [6, 4] {
            return Err(Error::Length);
        }
        let operation = match (p[6], p[7]) {
            (0, 1) => Operation::Request,
            (0, 2) => Operation::Reply,
            _ => return Err(Error::Value),
        };
        Ok(Self {
            operation,
            sender_mac: MacAddr([p[8], p[9], p[10], p[11], p[12], p[13]]),
            sender_ip: Ipv4Addr::new(p[14], p[15], p[16], p[17]),
            target_mac: MacAddr([p[18], p[19], p[20], p[21], p[22], p[23]]),
            target_ip: Ipv4Addr::new(p[24], p[25], p[26], p[27]),
        })
    }

    /// Whether the sender can be a neighbour at all: one station's hardware address, and a
    /// protocol address that is a host's or, in a probe, 0.0.0.0.
    pub fn sender_is_plausible(&self) -> bool {
        let ip = self.sender_ip;
        let probe = ip.is_unspecified() && self.operation == Operation::Request;
        // 0/8 (but for probes), 127/8, multicast, class E and broadcast are no host's address.
        let host = !matches!(ip.octets()[0], 0 | 127 | 224..);
        self.sender_mac.is_unicast() && (host || probe)
    }

    /// Writes the packet to the front of `buf`; returns 28, or 0 if it does not fit.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let Some(p) = buf.first_chunk_mut::<LEN>() else {
            return 0;
        };
        let operation = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        p[..8].copy_from_slice(&[0, 1, 0x08, 0x00, 6, 4, 0, operation]);
        p[8..14].copy_from_slice(&self.sender_mac.0);
        p[14..18].copy_from_slice(&self.sender_ip.octets());
        p[18..24].copy_from_slice(&self.target_mac.0);
        p[24..28].copy_from_slice(&self.target_ip.octets());
        LEN
    }
}
