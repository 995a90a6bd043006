//! A TCP segment out of a captured frame: what its headers say, also where the capture cut it off.

use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    time::Duration,
};

use etherparse::{
    EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, LenSource, TcpOptionElement,
    TcpOptionsIterator, TcpSlice,
};

/// Bytes of a TCP header without options, and with as many as there can be.
const HEADER: usize = 20;
const HEADER_MAX: usize = 60;
/// The largest shift that there is (RFC 7323 2.3); larger ones count as this.
const SCALE_MAX: u8 = 14;
/// Lengths of the headers of Linux's cooked frames.
const SLL: usize = 16;
const SLL2: usize = 20;

/// What a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    Ethernet,
    /// IPv4 or IPv6.
    Ip,
    /// Linux cooked, as `any` is captured.
    Cooked,
    Cooked2,
    /// BSD's loopback: four bytes before the packet.
    Loopback,
}

/// Flags of a TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    pub const FIN: Self = Self(1);
    pub const SYN: Self = Self(2);
    pub const RST: Self = Self(4);
    pub const PSH: Self = Self(8);
    pub const ACK: Self = Self(16);

    /// Whether all of `these` are set.
    pub const fn has(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }

    /// With `these`, if `so`.
    #[must_use]
    pub const fn with(self, these: Self, so: bool) -> Self {
        Self(if so { self.0 | these.0 } else { self.0 })
    }

    /// As a number: FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// What is kept of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Since 1970.
    pub time: Duration,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    /// As it is in the header.
    pub window: u16,
    /// Bytes of text.
    pub text: u32,
    /// The window scale option.
    pub scale: Option<u8>,
    /// Options are missing that the capture cut off.
    pub is_cut: bool,
    /// SACK blocks; the first `sacks_len` are there.
    sacks: [(u32, u32); 4],
    sacks_len: u8,
}

impl Header {
    /// Numbers of the sequence that it takes: text, SYN and FIN.
    pub fn span(&self) -> i64 {
        let flag = |these| i64::from(self.flags.has(these));
        i64::from(self.text) + flag(Flags::SYN) + flag(Flags::FIN)
    }

    /// Its SACK blocks, left and right edge.
    pub fn sacks(&self) -> &[(u32, u32)] {
        self.sacks
            .get(..usize::from(self.sacks_len))
            .unwrap_or_default()
    }

    /// Takes one more block, if there is room.
    pub fn add_sack(&mut self, block: (u32, u32)) {
        if let Some(room) = self.sacks.get_mut(usize::from(self.sacks_len)) {
            *room = block;
            self.sacks_len += 1;
        }
    }
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub header: Header,
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Segment(Segment),
    /// A fragment of an IP packet with TCP in it.
    Fragment,
    /// TCP, but less than its header without options, or a header that is none.
    Unreadable,
    /// Something else.
    Other,
}

/// Looks into a frame that was captured at `time` and had `length` bytes; `bytes` are the first ones.
pub fn find(layer: Layer, time: Duration, length: u32, bytes: &[u8]) -> Found {
    let typed = |kind: Range<usize>, header: usize| {
        let kind = bytes.get(kind)?.first_chunk()?;
        let rest = bytes.get(header..)?;
        let kind = EtherType(u16::from_be_bytes(*kind));
        Some(LaxSlicedPacket::from_ether_type(kind, rest))
    };
    let packet = match layer {
        Layer::Ethernet => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Layer::Ip => LaxSlicedPacket::from_ip(bytes).ok(),
        Layer::Cooked => typed(14..16, SLL),
        Layer::Cooked2 => typed(0..2, SLL2),
        Layer::Loopback => bytes
            .get(4..)
            .and_then(|rest| LaxSlicedPacket::from_ip(rest).ok()),
    };
    let Some(net) = packet.and_then(|packet| packet.net) else {
        return Found::Other;
    };
    segment(&net, time, length, bytes)
}

fn segment(net: &LaxNetSlice<'_>, time: Duration, length: u32, bytes: &[u8]) -> Found {
    let Some(payload) = net.ip_payload_ref() else {
        return Found::Other;
    };
    if payload.ip_number != IpNumber::TCP {
        return Found::Other;
    }
    if payload.fragmented {
        return Found::Fragment;
    }
    // What stands before the TCP header: the IP header and its extensions.
    let (source, destination, before, whole) = match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let auth = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
            (
                IpAddr::V4(header.source_addr()),
                IpAddr::V4(header.destination_addr()),
                header.slice().len() + auth,
                usize::from(header.total_len()),
            )
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let (fixed, extensions) = (header.slice().len(), ip.extensions().slice().len());
            let whole = match usize::from(header.payload_length()) {
                0 => 0,
                length => length + fixed,
            };
            (
                IpAddr::V6(header.source_addr()),
                IpAddr::V6(header.destination_addr()),
                fixed + extensions,
                whole,
            )
        }
        LaxNetSlice::Arp(_) => return Found::Other,
    };
    // A packet that is longer than IP can say, as a link with offload has them, says nothing: the frame tells.
    let (rest, transport) = (
        usize::try_from(length).unwrap_or(usize::MAX),
        payload.payload,
    );
    let whole = match (whole, payload.len_source) {
        (0, LenSource::Slice) => {
            let start = transport.as_ptr().addr() - bytes.as_ptr().addr();
            rest.saturating_sub(start) + before
        }
        (whole, _) => whole,
    };
    let Some((mut header, ports, header_len)) = header(transport) else {
        return Found::Unreadable;
    };
    let text = whole.saturating_sub(before + header_len);
    header.text = u32::try_from(text).unwrap_or(u32::MAX);
    header.time = time;
    Found::Segment(Segment {
        from: SocketAddr::new(source, ports.0),
        to: SocketAddr::new(destination, ports.1),
        header,
    })
}

/// A TCP header, its ports and its length. Options may be cut off.
fn header(bytes: &[u8]) -> Option<(Header, (u16, u16), usize)> {
    let mut padded = [0; HEADER_MAX];
    let there = bytes.len().min(HEADER_MAX);
    if there < HEADER {
        return None;
    }
    padded
        .get_mut(..there)?
        .copy_from_slice(bytes.get(..there)?);
    let tcp = TcpSlice::from_slice(&padded).ok()?;
    let length = tcp.header_slice().len();
    let flags = Flags::default()
        .with(Flags::FIN, tcp.fin())
        .with(Flags::SYN, tcp.syn())
        .with(Flags::RST, tcp.rst())
        .with(Flags::PSH, tcp.psh())
        .with(Flags::ACK, tcp.ack());
    let mut header = Header {
        seq: tcp.sequence_number(),
        ack: tcp.acknowledgment_number(),
        flags,
        window: tcp.window_size(),
        is_cut: there < length,
        ..Header::default()
    };
    let options = bytes.get(HEADER..length.min(there)).unwrap_or_default();
    // The first that makes no sense, or is cut off, ends them.
    for option in TcpOptionsIterator::from_slice(options).map_while(Result::ok) {
        match option {
            TcpOptionElement::WindowScale(shift) => header.scale = Some(shift.min(SCALE_MAX)),
            TcpOptionElement::SelectiveAcknowledgement(first, more) => {
                for block in std::iter::once(Some(first)).chain(more).flatten() {
                    header.add_sack(block);
                }
            }
            _ => {}
        }
    }
    Some((header, (tcp.source_port(), tcp.destination_port()), length))
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
