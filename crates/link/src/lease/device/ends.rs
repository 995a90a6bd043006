//! Both ends of a packet, where it is one that a short cut takes: a whole segment or datagram behind an IP header alone.

use std::net::{IpAddr, SocketAddr};

use proto::wire::{
    ipv4::{self, Protocol},
    ipv6,
    tcp::Flags,
};

use crate::lease::Transport;

/// Where the flags of TCP lie in its header.
const FLAGS: usize = 13;

/// Whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub transport: Transport,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Of TCP; none of UDP.
    pub flags: Flags,
}

impl Ends {
    /// Of an IP packet. `None`: of another protocol, a fragment, behind options or extension headers, or cut short.
    pub fn of(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::v4(packet.first_chunk::<{ ipv4::HEADER_LEN }>()?, packet),
            6 => Self::v6(packet.first_chunk::<{ ipv6::HEADER_LEN }>()?, packet),
            _ => None,
        }
    }

    fn v4(header: &[u8; ipv4::HEADER_LEN], packet: &[u8]) -> Option<Self> {
        const WITHOUT_OPTIONS: u8 = 0x45;
        /// More fragments, and the offset (RFC 791 §3.1).
        const FRAGMENT: u16 = 0x3fff;
        let [
            first,
            _,
            _,
            _,
            _,
            _,
            f0,
            f1,
            _,
            protocol,
            _,
            _,
            addresses @ ..,
        ] = *header;
        let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
        if first != WITHOUT_OPTIONS || u16::from_be_bytes([f0, f1]) & FRAGMENT != 0 {
            return None;
        }
        let ends = ([s0, s1, s2, s3].into(), [d0, d1, d2, d3].into());
        Self::behind(ends, Protocol(protocol), packet.get(ipv4::HEADER_LEN..)?)
    }

    fn v6(header: &[u8; ipv6::HEADER_LEN], packet: &[u8]) -> Option<Self> {
        let [_, _, _, _, _, _, next, _, addresses @ ..] = header;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let ends = ((*source).into(), (*destination.first_chunk::<16>()?).into());
        Self::behind(ends, Protocol(*next), packet.get(ipv6::HEADER_LEN..)?)
    }

    fn behind(ends: (IpAddr, IpAddr), protocol: Protocol, upper: &[u8]) -> Option<Self> {
        let (transport, flags) = match protocol {
            Protocol::TCP => (Transport::Tcp, Flags(u16::from(*upper.get(FLAGS)?))),
            Protocol::UDP => (Transport::Udp, Flags(0)),
            _ => return None,
        };
        let [s0, s1, d0, d1] = *upper.first_chunk()?;
        Some(Self {
            transport,
            source: (ends.0, u16::from_be_bytes([s0, s1])).into(),
            destination: (ends.1, u16::from_be_bytes([d0, d1])).into(),
            flags,
        })
    }
}
