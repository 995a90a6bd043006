//! Building IP packets: payload first (copied and summed in one pass), then the headers in front of it; and cutting what is longer than the MTU.

use std::net::IpAddr;

use percore::slab::{Buffer, Slab};
use proto::ip::fragment;
use proto::wire::{
    checksum::Partial,
    ipv4::{self, Protocol},
    ipv6, tcp,
};

use crate::packet::{HEADROOM, Packet};

/// What the IP header of a flow's packets says beside the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFields {
    /// TTL or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
}

impl Default for IpFields {
    fn default() -> Self {
        Self { ttl: 64, tos: 0 }
    }
}

/// Bytes of the IP header in front of packets to `ip`.
#[inline]
pub const fn ip_header_len(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => ipv4::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN,
    }
}

/// Writes the IP header for `payload_len` bytes to the front of `buf`; false if it does not fit or the families differ.
#[inline]
pub fn emit_ip(
    buf: &mut [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    fields: IpFields,
    payload_len: usize,
) -> bool {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = ipv4::Header::new(protocol, source, destination);
            header.ttl = fields.ttl;
            header.tos = fields.tos;
            header.emit(payload_len, buf) != 0
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = ipv6::Header::new(protocol, source, destination);
            header.hop_limit = fields.ttl;
            header.traffic_class = fields.tos;
            header.emit(payload_len, buf) != 0
        }
        _ => false,
    }
}

/// Builds a TCP packet from `local` to `remote` in `buffer`. `fill` writes the text to the slice it is given and returns its sum.
/// `None`: the segment does not fit.
#[inline]
pub fn tcp_packet(
    buffer: Buffer,
    (local, remote): (IpAddr, IpAddr),
    fields: IpFields,
    header: &tcp::Header,
    text_len: usize,
    fill: impl FnOnce(&mut [u8]) -> Option<Partial>,
) -> Option<Packet> {
    let ip_len = ip_header_len(remote);
    let tcp_len = header.len();
    let mut packet = Packet::new(buffer, HEADROOM);
    packet.set_len(ip_len + tcp_len + text_len);
    let (headers, text) = packet.bytes_mut().split_at_mut_checked(ip_len + tcp_len)?;
    if text.len() != text_len {
        return None;
    }
    let sum = fill(text)?;
    let (ip, tcp) = headers.split_at_mut(ip_len);
    header.emit_with_checksum(tcp, sum, text_len, local, remote);
    emit_ip(ip, local, remote, Protocol::TCP, fields, tcp_len + text_len).then_some(packet)
}

/// Cuts `datagram`, a whole IP packet without options, into fragments for `mtu`, each handed to `out`.
/// False: no buffer was free for all of them (none has been handed out then), or it cannot be cut.
pub fn fragments(
    slab: &mut Slab,
    datagram: &[u8],
    mtu: usize,
    ident: u32,
    mut out: impl FnMut(Packet),
) -> bool {
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    let (pieces, payload) = match datagram.first().map(|b| b >> 4) {
        Some(4) => {
            let Ok(mut header) = ipv4::Header::parse(datagram) else {
                return false;
            };
            header.dont_fragment = false;
            #[allow(clippy::cast_possible_truncation)] // the field has 16 bits
            let low = ident as u16;
            header.ident = low;
            let payload = header.payload(datagram);
            (fragment::v4(&header, &[], payload.len(), mtu), payload)
        }
        Some(6) => {
            let Ok(header) = ipv6::Header::parse(datagram) else {
                return false;
            };
            let payload = header.payload(datagram);
            (fragment::v6(&header, payload.len(), mtu, ident), payload)
        }
        _ => return false,
    };
    let Ok(pieces) = pieces else { return false };
    if slab.available()
        < payload
            .len()
            .div_ceil(usize::from(mtu).saturating_sub(56).max(8))
            + 1
    {
        return false;
    }
    for piece in pieces {
        let Some(buffer) = slab.alloc() else {
            return false;
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        let len = piece.emit(payload, packet.room_mut());
        packet.set_len(len);
        out(packet);
    }
    true
}
