//! Building IP packets: payload first (copied and summed in one pass), then the headers in front of it; and cutting what is longer than the MTU.

pub mod frame;

use std::net::IpAddr;

use percore::slab::{Buffer, Slab};
use proto::ip::{Ecn, fragment};
use proto::wire::{
    checksum::{self, Partial, Small},
    ipv4::{self, Protocol},
    ipv6, tcp,
};

use crate::{
    flow::{FlowKey, Tuple},
    packet::{HEADROOM, Packet},
};

/// Where the checksum stands in a TCP header (RFC 9293 §3.1).
pub const TCP_CHECKSUM: usize = tcp::CHECKSUM_AT;

/// Where in its buffer the text of a long segment begins: at a cache line, with room in front for the longest headers. The kernel copies it with a
/// string instruction, which is slower where source and destination lie differently beside lines (one stream over a veth: 5 to 10 % less).
const TEXT_AT: usize = (HEADROOM + 40 + 60_usize).next_multiple_of(64);
/// From so many bytes on text is long: a line more in front of it does not matter.
const LONG: usize = 4096;

/// The most that a packet with an IP packet of `len` bytes takes of a buffer.
pub const fn buffer_for(len: usize) -> usize {
    TEXT_AT + len
}

/// Of the IPv4 header's byte 6.
const DF: u8 = 0x40;

/// What the IP header of a flow's packets says beside the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFields {
    /// IPv4's TTL.
    pub ttl: u8,
    /// IPv4's type of service.
    pub tos: u8,
    /// IPv6's hop limit: a socket may send packets of both, and says of each what it likes.
    pub hops: u8,
    /// IPv6's traffic class.
    pub class: u8,
    /// No DF in a connection's packets, which are numbered then (RFC 6864 §4.2).
    pub may_be_cut: bool,
}

impl Default for IpFields {
    fn default() -> Self {
        Self {
            ttl: 64,
            tos: 0,
            hops: 64,
            class: 0,
            may_be_cut: false,
        }
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
            header.hop_limit = fields.hops;
            header.traffic_class = fields.class;
            header.emit(payload_len, buf) != 0
        }
        _ => false,
    }
}

/// What the packets of one TCP connection have in common: their IP header but for lengths, and what is summed once for all.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// Whose they are: addresses and ports.
    tuple: Tuple,
    /// The IP header without addresses, lengths and checksum: of IPv4 bytes 0, 1 and 4 to 9, of IPv6 0 to 3, 6 and 7.
    head: [u8; 8],
    /// Of the IP header, its lengths and its checksum zero.
    ip_sum: Small,
    /// Of the pseudo header, its length zero.
    pseudo: Small,
}

impl Template {
    /// For packets of a flow. The two bits of ECN are TCP's own, whatever `fields` say.
    pub fn new(key: &FlowKey, mut fields: IpFields) -> Self {
        let (local, remote) = (key.local, key.remote);
        fields.tos = Ecn::NotEct.in_tos(fields.tos);
        fields.class = Ecn::NotEct.in_tos(fields.class);
        let mut ip = [0; ipv6::HEADER_LEN];
        let ip_len = ip_header_len(remote);
        emit_ip(&mut ip, local, remote, Protocol::TCP, fields, 0);
        if ip_len == ipv4::HEADER_LEN {
            ip[2..4].fill(0);
            ip[10..12].fill(0);
            if fields.may_be_cut {
                ip[6] &= !DF;
                // Where two connections of the same hosts begin is not the same place.
                let begin = key.local_port.wrapping_mul(0x9e37) ^ key.remote_port;
                ip[4..6].copy_from_slice(&begin.to_be_bytes());
            }
        }
        let ip_sum = checksum::sum(&ip[..ip_len]).into();
        let pseudo = checksum::pseudo_header(local, remote, Protocol::TCP, 0).unwrap_or_default();
        let [a, b, c, d, e, f, g, h, i, j, ..] = ip;
        Self {
            tuple: Tuple::of_key(key),
            head: if ip_len == ipv4::HEADER_LEN {
                [a, b, e, f, g, h, i, j]
            } else {
                [a, b, c, d, g, h, 0, 0]
            },
            ip_sum,
            pseudo: pseudo.into(),
        }
    }

    /// The flow, as its packets have it when they come in.
    #[inline]
    pub const fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    #[inline]
    const fn is_v4(&self) -> bool {
        self.head[0] >> 4 == 4
    }

    #[inline]
    const fn ip_len(&self) -> usize {
        if self.is_v4() {
            ipv4::HEADER_LEN
        } else {
            ipv6::HEADER_LEN
        }
    }

    /// Whether routers may cut its packets: each has a number of its own then.
    #[inline]
    pub const fn may_be_cut(&self) -> bool {
        self.is_v4() && self.head[4] & DF == 0
    }

    /// So many packets left, or segments that the link cuts from one: the next has a number that none of them has (RFC 6864 §4.2).
    #[cold]
    #[allow(clippy::cast_possible_truncation)] // the field has 16 bits
    pub fn advance(&mut self, packets: u32) {
        let [a, b, high, low, rest @ ..] = self.head;
        let ident = u16::from_be_bytes([high, low]).wrapping_add(packets as u16);
        let [high, low] = ident.to_be_bytes();
        let [e, f, g, h] = rest;
        self.head = [a, b, high, low, e, f, g, h];
        let mut ip = [0; ipv4::HEADER_LEN];
        ip[..2].copy_from_slice(&[a, b]);
        ip[4..10].copy_from_slice(&[high, low, e, f, g, h]);
        ip[12..].copy_from_slice(&self.tuple.sent_v4());
        self.ip_sum = checksum::sum(&ip).into();
    }

    #[inline]
    fn pseudo(&self) -> Partial {
        self.pseudo.into()
    }

    /// Whether a segment, of either direction (the pseudo headers of both have one sum), is as its checksum says.
    #[inline]
    pub fn is_valid(&self, segment: &[u8]) -> bool {
        let len = checksum::sum_array(&u16::try_from(segment.len()).unwrap_or(0).to_be_bytes());
        checksum::is_valid(self.pseudo() + len + checksum::sum(segment))
    }

    /// Builds a packet in `buffer`, with `ecn` in its IP header. `fill` writes the text to the slice it is given and returns its sum.
    /// `None`: the segment does not fit.
    #[inline(always)]
    pub fn packet(
        &self,
        buffer: Buffer,
        header: &tcp::Header,
        text_len: usize,
        ecn: Ecn,
        fill: impl FnOnce(&mut [u8]) -> Option<Partial>,
    ) -> Option<Packet> {
        self.packet_at(HEADROOM, buffer, header, text_len, ecn, fill)
    }

    /// The same, its first byte `headroom` bytes into the buffer.
    #[inline(always)]
    fn packet_at(
        &self,
        headroom: usize,
        buffer: Buffer,
        header: &tcp::Header,
        text_len: usize,
        ecn: Ecn,
        fill: impl FnOnce(&mut [u8]) -> Option<Partial>,
    ) -> Option<Packet> {
        let tcp_len = header.len();
        let upper = u16::try_from(tcp_len + text_len).ok()?;
        let mut packet = Packet::new(buffer, headroom);
        packet.set_len(self.ip_len() + usize::from(upper));
        let (ip, segment) = packet.bytes_mut().split_at_mut_checked(self.ip_len())?;
        let (tcp, text) = segment.split_at_mut_checked(tcp_len)?;
        if text.len() != text_len {
            return None;
        }
        let sum = fill(text)? + checksum::sum_array(&upper.to_be_bytes());
        header.emit_with_sum(tcp, self.pseudo() + sum);
        self.emit_ip(ip, upper, ecn)?;
        Some(packet)
    }

    /// Builds a packet whose link makes the checksum, and cuts its text into segments of `segment` bytes where it is more
    /// ([`Segmentation::Offloaded`](crate::link::Segmentation)). `copy` writes the text to the slice it is given.
    pub fn unfinished(
        &self,
        buffer: Buffer,
        header: &tcp::Header,
        (text_len, segment): (usize, u16),
        ecn: Ecn,
        copy: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<Packet> {
        let headers = self.ip_len() + header.len();
        let headroom = if text_len >= LONG && TEXT_AT + text_len <= buffer.len() {
            TEXT_AT - headers
        } else {
            HEADROOM
        };
        let mut packet = self.packet_at(headroom, buffer, header, text_len, ecn, |text| {
            copy(text).map(|()| Partial::ZERO)
        })?;
        let upper = u16::try_from(packet.len() - self.ip_len()).ok()?;
        let pseudo = checksum::fold(self.pseudo() + checksum::sum_array(&upper.to_be_bytes()));
        let at = self.ip_len() + TCP_CHECKSUM;
        let field = packet.bytes_mut().get_mut(at..at + 2)?;
        field.copy_from_slice(&pseudo.to_be_bytes());
        packet.meta.segment = segment;
        packet.meta.upper = u16::try_from(self.ip_len()).ok()?;
        Some(packet)
    }

    /// Makes the checksum of a packet of [`Self::packet`] again, whose TCP header was changed.
    pub fn seal(&self, packet: &mut Packet) {
        let segment = packet
            .bytes_mut()
            .get_mut(self.ip_len()..)
            .unwrap_or_default();
        let len = u16::try_from(segment.len()).unwrap_or(0).to_be_bytes();
        if let Some(field) = segment.get_mut(16..18) {
            field.fill(0);
        }
        let sum = self.pseudo() + checksum::sum_array(&len) + checksum::sum(segment);
        let sum = checksum::finish(sum).to_be_bytes();
        if let Some(field) = segment.get_mut(16..18) {
            field.copy_from_slice(&sum);
        }
    }

    /// Writes the IP header in front of `upper` bytes.
    #[inline]
    fn emit_ip(&self, buf: &mut [u8], upper: u16, ecn: Ecn) -> Option<()> {
        let (ecn, [a, b, c, d, e, f, g, h]) = (ecn as u8, self.head);
        if self.is_v4() {
            let ip = buf.first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
            let [high, low] = upper.checked_add(20)?.to_be_bytes();
            ip[..10].copy_from_slice(&[a, b | ecn, high, low, c, d, e, f, g, h]);
            let sum = Partial::from(self.ip_sum) + checksum::sum_array(&[0, ecn, high, low]);
            ip[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
            ip[12..].copy_from_slice(&self.tuple.sent_v4());
        } else {
            let ip = buf.first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
            let [high, low] = upper.to_be_bytes();
            ip[..8].copy_from_slice(&[a, b | ecn << 4, c, d, high, low, e, f]);
            for (to, from) in ip[8..]
                .as_chunks_mut()
                .0
                .iter_mut()
                .zip(self.tuple.sent_v6())
            {
                *to = from;
            }
        }
        Some(())
    }
}

/// Cuts `datagram`, a whole IP packet without options, into fragments for `mtu`, each handed to `out`.
/// False: no buffer was free for all of them (none has been handed out then), or it cannot be cut.
pub fn fragments(
    slab: &mut Slab,
    datagram: &[u8],
    mtu: usize,
    ident: u32,
    out: impl FnMut(Packet),
) -> bool {
    let short = u16::try_from(mtu).unwrap_or(u16::MAX);
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
            (fragment::v4(&header, &[], payload.len(), short), payload)
        }
        Some(6) => {
            let Ok(header) = ipv6::Header::parse(datagram) else {
                return false;
            };
            let payload = header.payload(datagram);
            (fragment::v6(&header, payload.len(), short, ident), payload)
        }
        _ => return false,
    };
    let Ok(pieces) = pieces else { return false };
    let available = slab.available();
    emit_pieces(slab, pieces, payload, mtu, available, out)
}

/// The same for another host's IPv4 packet on its way through, which keeps its identification and options and may be a
/// fragment already; at most `available` buffers are taken.
pub fn cut_again(
    slab: &mut Slab,
    packet: &[u8],
    mtu: usize,
    available: usize,
    out: impl FnMut(Packet),
) -> bool {
    let Ok(header) = ipv4::Header::parse(packet) else {
        return false;
    };
    let (options, payload) = (header.options(packet), header.payload(packet));
    let short = u16::try_from(mtu).unwrap_or(u16::MAX);
    let Ok(pieces) = fragment::v4(&header, options, payload.len(), short) else {
        return false;
    };
    emit_pieces(slab, pieces, payload, mtu, available, out)
}

/// Buffers that must be free before a payload of `len` bytes is cut: as many as there may be pieces.
pub fn pieces_max(len: usize, mtu: usize) -> usize {
    // Headers have at most 60 octets, and 7 more may be left over at the end of a piece.
    len.div_ceil(mtu.saturating_sub(67).max(8)) + 1
}

fn emit_pieces(
    slab: &mut Slab,
    pieces: fragment::Fragments,
    payload: &[u8],
    mtu: usize,
    available: usize,
    mut out: impl FnMut(Packet),
) -> bool {
    if available < pieces_max(payload.len(), mtu) {
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

#[cfg(test)]
mod tests;
