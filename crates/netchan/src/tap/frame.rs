//! A packet as the frame that it was, or would have been: what a tap shows that looks at packets behind the link's edge.
//!
//! There a packet begins at its IP header. What came by a link still has its frame header in front, in the same buffer; to what the stack has made itself
//! none was given yet, and its addresses are zeros here.

use std::net::{IpAddr, SocketAddr};

use proto::wire::ipv4::Protocol;

use super::Way;
use crate::packet::Packet;

/// Bytes of a frame header without a tag.
const HEADER: usize = 14;
/// And of one with.
const TAGGED: usize = HEADER + 4;
/// Where an IPv4 packet says that it is a fragment behind the first.
const OFFSET: u16 = 0x1fff;

/// Where the bytes of a packet begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// At the frame header.
    Frame,
    /// Behind it; the packet came by a link.
    Network,
    /// There, too, but no frame header was made yet.
    Own,
}

/// Puts the first `most` bytes of a packet's frame into `room`. Returns how long the whole frame is.
pub(super) fn frame_of(
    packet: &Packet,
    begins: Begins,
    most: usize,
    room: &mut Vec<u8>,
) -> Option<u32> {
    let bytes = packet.bytes();
    room.clear();
    let header: &[u8] = match begins {
        Begins::Network => received_header(packet).unwrap_or_default(),
        Begins::Frame | Begins::Own => &[],
    };
    if header.is_empty() && begins != Begins::Frame {
        room.extend([0; HEADER - 2]);
        room.extend(kind_of(bytes).to_be_bytes());
    }
    room.extend(header);
    let whole = room.len() + bytes.len();
    let left = most.saturating_sub(room.len()).min(bytes.len());
    room.extend(bytes.get(..left).unwrap_or_default());
    room.truncate(most);
    u32::try_from(whole).ok()
}

/// The frame header that a received packet had, if it is there: a packet that was put together or copied has none.
fn received_header(packet: &Packet) -> Option<&[u8]> {
    let kind = kind_of(packet.bytes());
    let names_kind = |header: &[u8]| header.ends_with(&kind.to_be_bytes());
    // A tag makes it longer; then it begins where its buffer does.
    let tagged = packet.before(TAGGED).filter(|header| {
        packet.before(TAGGED + 1).is_none() && header.get(12..14) == Some(&[0x81, 0])
    });
    let plain = || packet.before(HEADER);
    tagged
        .or_else(plain)
        .filter(|header| kind == 0 || names_kind(header))
}

/// The EtherType of what begins so; 0: nothing known.
fn kind_of(bytes: &[u8]) -> u16 {
    match bytes {
        [first, ..] if first >> 4 == 4 => 0x0800,
        [first, ..] if first >> 4 == 6 => 0x86dd,
        [0, 1, 8, 0, ..] => 0x0806,
        _ => 0,
    }
}

/// The ends of a connection, or of a socket that has no peer: packets between them are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Of IP: 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// The socket's own end; the address may be unspecified.
    pub local: SocketAddr,
    /// The other; `None`: any.
    pub remote: Option<SocketAddr>,
}

impl Flow {
    /// Whether an IP packet that goes this way is its.
    pub(super) fn has(&self, packet: &[u8], way: Way) -> bool {
        let Some((protocol, source, destination)) = ends_of(packet) else {
            return false;
        };
        let (local, remote) = match way {
            Way::In => (destination, source),
            Way::Out => (source, destination),
        };
        let is_ip = |wanted: IpAddr, ip: IpAddr| wanted.is_unspecified() || wanted == ip;
        protocol == self.protocol
            && self.local.port() == local.port()
            && is_ip(self.local.ip(), local.ip())
            && (self.remote).is_none_or(|wanted| wanted == remote)
    }
}

/// Protocol, source and destination of a TCP segment or a datagram.
fn ends_of(packet: &[u8]) -> Option<(u8, SocketAddr, SocketAddr)> {
    let (protocol, upper, source, destination): (u8, usize, IpAddr, IpAddr) =
        if packet.first()? >> 4 == 4 {
            let head = packet.first_chunk::<20>()?;
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
                s0,
                s1,
                s2,
                s3,
                d0,
                d1,
                d2,
                d3,
            ] = *head;
            if u16::from_be_bytes([f0, f1]) & OFFSET != 0 {
                return None; // no ports in it
            }
            let upper = usize::from(first & 0xf) * 4;
            let (source, destination) = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
            (protocol, upper, source.into(), destination.into())
        } else {
            let head = packet.first_chunk::<40>()?;
            let source: [u8; 16] = *head.get(8..)?.first_chunk()?;
            let destination: [u8; 16] = *head.get(24..)?.first_chunk()?;
            (head[6], 40, source.into(), destination.into())
        };
    if protocol != Protocol::TCP.0 && protocol != Protocol::UDP.0 {
        return None;
    }
    let &[s0, s1, d0, d1] = packet.get(upper..)?.first_chunk::<4>()?;
    let (from, to) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    let ends = (
        SocketAddr::new(source, from),
        SocketAddr::new(destination, to),
    );
    Some((protocol, ends.0, ends.1))
}

#[cfg(test)]
mod tests {
    use percore::slab::Slab;

    use super::*;

    fn datagram(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0];
        packet.extend(source);
        packet.extend(destination);
        packet.extend(ports[0].to_be_bytes());
        packet.extend(ports[1].to_be_bytes());
        packet.extend([0, 8, 0, 0]);
        packet
    }

    fn packet(slab: &mut Slab, bytes: &[u8]) -> Packet {
        let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
        packet.set_len(bytes.len());
        packet.bytes_mut().copy_from_slice(bytes);
        packet
    }

    #[test]
    fn frame_header_is_found_again_or_zeros() {
        let mut slab = Slab::new(4, 256).expect("memory");
        let mut room = Vec::new();
        let ip = datagram([10, 0, 0, 1], [10, 0, 0, 2], [7, 8]);
        let header = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0];
        let frame = [&header[..], &ip].concat();
        let mut received = packet(&mut slab, &frame);
        assert_eq!(
            frame_of(&received, Begins::Frame, 1500, &mut room),
            Some(42)
        );
        assert_eq!(room, frame);
        received.pull(14);
        assert_eq!(
            frame_of(&received, Begins::Network, 1500, &mut room),
            Some(42)
        );
        assert_eq!(room, frame);
        assert_eq!(
            frame_of(&received, Begins::Network, 20, &mut room),
            Some(42)
        );
        assert_eq!(room, frame[..20]);
        assert_eq!(frame_of(&received, Begins::Own, 1500, &mut room), Some(42));
        assert_eq!(room[..14], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        assert_eq!(room[14..], ip);
        // One with a priority tag.
        let tagged = [&header[..12], &[0x81, 0, 0x20, 0, 8, 0], &ip].concat();
        let mut received = packet(&mut slab, &tagged);
        received.pull(18);
        assert_eq!(
            frame_of(&received, Begins::Network, 1500, &mut room),
            Some(46)
        );
        assert_eq!(room, tagged);
        // Nothing in front, or something else.
        let made = packet(&mut slab, &ip);
        assert_eq!(frame_of(&made, Begins::Network, 1500, &mut room), Some(42));
        assert_eq!(room[..14], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        let mut other = packet(&mut slab, &[&[9; 14], &ip[..]].concat());
        other.pull(14);
        assert_eq!(frame_of(&other, Begins::Network, 1500, &mut room), Some(42));
        assert_eq!(room[..12], [0; 12]);
    }

    #[test]
    fn flow_has_what_goes_between_its_ends() {
        let flow = |local: &str, remote: Option<&str>| Flow {
            protocol: 17,
            local: local.parse().expect("an address"),
            remote: remote.map(|remote| remote.parse().expect("an address")),
        };
        let there = datagram([10, 0, 0, 1], [10, 0, 0, 2], [7, 8]);
        let connected = flow("10.0.0.1:7", Some("10.0.0.2:8"));
        assert!(connected.has(&there, Way::Out) && !connected.has(&there, Way::In));
        assert!(flow("0.0.0.0:8", None).has(&there, Way::In));
        assert!(flow("[::]:8", None).has(&there, Way::In));
        assert!(!flow("10.0.0.3:8", None).has(&there, Way::In));
        assert!(!flow("10.0.0.2:9", None).has(&there, Way::In));
        assert!(!flow("10.0.0.2:8", Some("10.0.0.1:9")).has(&there, Way::In));
        let of_tcp = Flow {
            protocol: 6,
            ..connected
        };
        assert!(!of_tcp.has(&there, Way::Out));
        // Cut at any place, or a fragment without ports: no.
        for len in 0..24 {
            assert!(!connected.has(&there[..len], Way::Out), "{len}");
        }
        let mut fragment = there;
        fragment[7] = 3;
        assert!(!connected.has(&fragment, Way::Out));
    }
}
