//! The header that Linux puts before a frame which is not finished (`struct virtio_net_hdr`, virtio 1.2 §5.1.6).

/// Its length, bytes. Numbers in it are in this machine's order: what a device older than virtio 1.0 has.
pub const LEN: usize = 10;

use netchan_base::packet::Packet;
use proto::wire::{
    ethernet, ipv4,
    tcp::{self, Flags},
    udp,
};

/// A header that says: nothing to do.
pub const PLAIN: [u8; LEN] = [0; LEN];

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
/// VIRTIO_NET_HDR_GSO_UDP_L4: datagrams, not fragments of one.
const GSO_UDP: u8 = 5;
/// Where a UDP header has its checksum.
const UDP_CHECKSUM: usize = 6;
const GSO_ECN: u8 = 0x80;

/// The header for a frame of ours: what [`Meta::segment`](netchan_base::packet::Meta::segment) says is left to be done.
pub fn header_for(frame: &Packet) -> [u8; LEN] {
    match frame.meta.segment {
        0 => PLAIN,
        segment => unfinished(frame, segment).unwrap_or(PLAIN),
    }
}

fn unfinished(frame: &Packet, segment: u16) -> Option<[u8; LEN]> {
    let start = ethernet::HEADER_LEN + usize::from(frame.meta.upper);
    if frame.meta.protocol == ipv4::Protocol::UDP {
        return header(
            GSO_UDP,
            [start + udp::HEADER_LEN, start, UDP_CHECKSUM],
            segment,
        );
    }
    let &[.., offset, flags] = frame.bytes().get(start..start + 14)? else {
        return None;
    };
    let headers = start + usize::from(offset >> 4) * 4;
    let places = [headers, start, tcp::CHECKSUM_AT];
    if frame.len().checked_sub(headers)? <= usize::from(segment) {
        return header(GSO_NONE, places, 0);
    }
    let kind = match usize::from(frame.meta.upper) {
        ipv4::HEADER_LEN => GSO_TCP4,
        _ => GSO_TCP6,
    };
    // RFC 3168 §6.1.2: CWR is said once, by the first segment.
    let cwr = u16::from(flags) & Flags::CWR.0 != 0;
    header(if cwr { kind | GSO_ECN } else { kind }, places, segment)
}

/// For a frame of this kind: bytes of its headers, where its checksum begins, and where behind that it stands.
fn header(kind: u8, places: [usize; 3], segment: u16) -> Option<[u8; LEN]> {
    let mut header = [0; LEN];
    let [headers, start, checksum] = places.map(u16::try_from);
    header[0] = NEEDS_CHECKSUM;
    header[1] = kind;
    if kind != GSO_NONE {
        header[2..4].copy_from_slice(&headers.ok()?.to_ne_bytes());
        header[4..6].copy_from_slice(&segment.to_ne_bytes());
    }
    header[6..8].copy_from_slice(&start.ok()?.to_ne_bytes());
    header[8..10].copy_from_slice(&checksum.ok()?.to_ne_bytes());
    Some(header)
}

/// What the header says of the frame behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An ordinary frame; its transport checksum still is to be looked at.
    Plain,
    /// The transport checksum need not be looked at: the frame never left this host (its checksum field holds only the sum
    /// of the pseudo-header), or a device has verified it. Many TCP segments merged into one are of this kind.
    Verified,
    /// UDP datagrams of one size merged into one: where their UDP header starts, bytes into the frame, and how many bytes of
    /// payload each has. Their checksums need not be looked at.
    Datagrams {
        /// Of the UDP header.
        start: usize,
        /// Of the payload.
        size: usize,
    },
    /// Something merged that we know nothing of.
    Unknown,
}

/// Reads the header at the start of `bytes`; `None` if there is none.
pub fn read(bytes: &[u8]) -> Option<Frame> {
    let header: &[u8; LEN] = bytes.first_chunk()?;
    Some(match (header[0], header[1] & !GSO_ECN) {
        (flags, GSO_NONE | GSO_TCP4 | GSO_TCP6) if flags & (NEEDS_CHECKSUM | DATA_VALID) != 0 => {
            Frame::Verified
        }
        (_, GSO_NONE | GSO_TCP4 | GSO_TCP6) => Frame::Plain,
        (flags, GSO_UDP) if flags & NEEDS_CHECKSUM != 0 => Frame::Datagrams {
            size: usize::from(u16::from_ne_bytes([header[4], header[5]])),
            start: usize::from(u16::from_ne_bytes([header[6], header[7]])),
        },
        _ => Frame::Unknown,
    })
}
