//! Flows: their key, and its keyed hash.

use std::net::{IpAddr, Ipv4Addr};

use proto::{
    siphash::Key,
    time::Instant,
    wire::{checksum, icmpv4, icmpv6, ipv4, ipv4::Protocol, ipv6, tcp::Header},
};

/// The type of an echo request.
pub const fn echo_request(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::ICMP => icmpv4::ECHO_REQUEST,
        _ => icmpv6::ECHO_REQUEST,
    }
}

/// The five numbers that name a flow, seen from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// TCP or UDP; ICMP or ICMPv6 of a ping socket, whose port is the identifier, and the peer's 0.
    pub protocol: Protocol,
}

impl FlowKey {
    /// TCP from port 1 to port 2, for tests.
    #[cfg(test)]
    pub fn between(local: &str, remote: &str) -> Self {
        let [local, remote] = [local, remote].map(|ip| ip.parse().unwrap());
        Self {
            local,
            remote,
            local_port: 1,
            remote_port: 2,
            protocol: Protocol::TCP,
        }
    }

    /// The flow of a packet that we sent: an IP header without options or extension headers, then ports.
    pub fn of_sent(bytes: &[u8]) -> Option<Self> {
        let (source, destination, protocol, upper): (IpAddr, IpAddr, u8, usize) =
            if bytes.first()? >> 4 == 4 {
                let header = bytes.first_chunk::<20>()?;
                let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
                (
                    [s0, s1, s2, s3].into(),
                    [d0, d1, d2, d3].into(),
                    header[9],
                    20,
                )
            } else {
                let (source, rest) = bytes.get(8..40)?.split_first_chunk::<16>()?;
                (
                    (*source).into(),
                    (*rest.first_chunk::<16>()?).into(),
                    *bytes.get(6)?,
                    40,
                )
            };
        let protocol = Protocol(protocol);
        let (local_port, remote_port) = match protocol {
            Protocol::TCP | Protocol::UDP => {
                let [s0, s1, d0, d1] = *bytes.get(upper..)?.first_chunk::<4>()?;
                (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]))
            }
            Protocol::ICMP | Protocol::ICMPV6 => {
                let [kind, _, _, _, i0, i1] = *bytes.get(upper..)?.first_chunk::<6>()?;
                if kind != echo_request(protocol) {
                    return None;
                }
                (u16::from_be_bytes([i0, i1]), 0)
            }
            _ => return None,
        };
        Some(Self {
            local: source,
            remote: destination,
            local_port,
            remote_port,
            protocol,
        })
    }

    /// The flow that an echo reply for an address of one host belongs to.
    pub fn of_echo_reply(bytes: &[u8], ident: u16, v6: bool) -> Option<Self> {
        let (local, remote): (IpAddr, IpAddr) = if v6 {
            let header = ipv6::Header::parse(bytes).ok()?;
            (header.destination.into(), header.source.into())
        } else {
            let header = ipv4::Header::parse(bytes).ok()?;
            (header.destination.into(), header.source.into())
        };
        let protocol = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
        Some(Self {
            local,
            remote,
            local_port: ident,
            remote_port: 0,
            protocol,
        })
    }
}

/// A connection of another process, which has closed it in order and has ended: its peer is answered by this stack from now on, as by a kernel.
#[derive(Debug)]
pub struct Closed {
    /// Its flow.
    pub key: FlowKey,
    /// The last segment that it sent, as it would send it now, with the sequence number behind its end.
    pub last: Header,
    /// When that was.
    pub at: Instant,
}

/// A flow as its packets name it when they come in: compared word by word, where a [`FlowKey`] has to look at families first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The peer's address and ours; of IPv4, both in the first word. No IPv6 packet is for `::`, so the families do not meet.
    ends: [u64; 4],
    /// The peer's port and ours.
    ports: u32,
}

impl Tuple {
    /// Of an IP packet whose upper layer, with its ports first, starts at `upper`.
    #[inline]
    pub fn of_received(bytes: &[u8], upper: usize) -> Option<Self> {
        let ports = u32::from_ne_bytes(*bytes.get(upper..)?.first_chunk()?);
        let word = |at: &[u8; 8]| u64::from_ne_bytes(*at);
        if bytes.first()? >> 4 == 4 {
            return Some(Self {
                ends: [word(bytes.get(12..)?.first_chunk()?), 0, 0, 0],
                ports,
            });
        }
        let ([a, b, c, d], []) = bytes.get(8..40)?.as_chunks::<8>() else {
            return None;
        };
        Some(Self {
            ends: [word(a), word(b), word(c), word(d)],
            ports,
        })
    }

    /// Whether an IP packet is of this flow: [`Self::of_received`] would say the same.
    #[inline(always)]
    pub fn names(&self, bytes: &[u8], upper: usize) -> bool {
        let ports = bytes.get(upper..).and_then(<[u8]>::first_chunk);
        let [ends, rest @ ..] = &self.ends;
        if ports.is_none_or(|ports| u32::from_ne_bytes(*ports) != self.ports) {
            return false;
        }
        let (first, words) = match bytes {
            [first, words @ ..] => (first, words),
            [] => return false,
        };
        if first >> 4 == 4 {
            let word = words.get(11..).and_then(<[u8]>::first_chunk);
            return word.is_some_and(|word| u64::from_ne_bytes(*word) == *ends) && *rest == [0; 3];
        }
        Self::of_received(bytes, upper) == Some(*self)
    }

    /// Of packets that belong to `key`.
    pub fn of_key(key: &FlowKey) -> Self {
        let ([r0, r1], [l0, l1]) = (key.remote_port.to_be_bytes(), key.local_port.to_be_bytes());
        let ports = u32::from_ne_bytes([r0, r1, l0, l1]);
        let mut ends = [0; 32];
        let (first, second) = ends.split_at_mut(16);
        match (key.remote, key.local) {
            (IpAddr::V4(remote), IpAddr::V4(local)) => {
                first[..4].copy_from_slice(&remote.octets());
                first[4..8].copy_from_slice(&local.octets());
            }
            (remote, local) => {
                first.copy_from_slice(&v6_octets(remote));
                second.copy_from_slice(&v6_octets(local));
            }
        }
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(ends.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Self { ends: words, ports }
    }

    /// The addresses of an IPv4 packet that we send: our own, the peer's.
    #[inline]
    pub const fn sent_v4(&self) -> [u8; 8] {
        self.ends[0].rotate_left(32).to_ne_bytes()
    }

    /// Those of an IPv6 packet.
    #[inline]
    pub fn sent_v6(&self) -> [[u8; 8]; 4] {
        let [first, second, third, fourth] = self.ends.map(u64::to_ne_bytes);
        [third, fourth, first, second]
    }

    /// The flow of TCP that it names, seen from us.
    pub fn tcp_key(&self) -> FlowKey {
        let bytes = self.ends.map(u64::to_ne_bytes);
        let [first, second, third, fourth] = bytes;
        let (remote, local) = if self.ends[2..] == [0, 0] {
            let [r0, r1, r2, r3, l0, l1, l2, l3] = first;
            ([r0, r1, r2, r3].into(), [l0, l1, l2, l3].into())
        } else {
            let whole = |high: [u8; 8], low: [u8; 8]| {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(&high);
                octets[8..].copy_from_slice(&low);
                IpAddr::from(octets)
            };
            (whole(first, second), whole(third, fourth))
        };
        let [r0, r1, l0, l1] = self.ports.to_ne_bytes();
        FlowKey {
            local,
            remote,
            local_port: u16::from_be_bytes([l0, l1]),
            remote_port: u16::from_be_bytes([r0, r1]),
            protocol: Protocol::TCP,
        }
    }

    /// The sum of the TCP pseudo header for `len` bytes (RFC 9293 §3.1): the order of its words does not matter.
    #[inline]
    pub fn pseudo_header(&self, protocol: Protocol, len: usize) -> checksum::Partial {
        checksum::pseudo_header_of_words(&self.ends, protocol, len)
    }
}

/// A keyed hash: without the key, flows that collide cannot be chosen.
///
/// SipHash-1-3 of 15 bytes (IPv4: two addresses, two ports, the protocol, two zeros) or 39 (IPv6), taken as the 2 or 5 words that
/// SipHash makes of them.
#[derive(Clone, Debug)]
pub struct FlowHash(Key);

impl FlowHash {
    /// With a secret key.
    pub fn new(key: &[u8; 16]) -> Self {
        Self(Key::new(key))
    }

    /// 64 bits for `key`: never 0, so that 0 can mean "none".
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        let [lp0, lp1] = key.local_port.to_be_bytes();
        let [rp0, rp1] = key.remote_port.to_be_bytes();
        let ports = u32::from_le_bytes([lp0, lp1, rp0, rp1]);
        match (key.local, key.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let word = |ip: Ipv4Addr| u32::from_le_bytes(ip.octets());
                self.hash_v4(word(local), word(remote), ports, key.protocol)
            }
            (local, remote) => {
                let words = |ip| u128::from_le_bytes(v6_octets(ip));
                let (low, high) = (|x: u128| low_word(x), |x: u128| low_word(x >> 64));
                let (local, remote) = (words(local), words(remote));
                self.sip(&[
                    low(local),
                    high(local),
                    low(remote),
                    high(remote),
                    last(39, ports, key.protocol),
                ])
            }
        }
    }

    /// [`Self::hash`] for IPv4, of words read from a packet little-endian: our address, the peer's, our port and the peer's.
    #[inline]
    pub fn hash_v4(&self, local: u32, remote: u32, ports: u32, protocol: Protocol) -> u64 {
        self.sip(&[
            u64::from(local) | u64::from(remote) << 32,
            last(15, ports, protocol),
        ])
    }

    /// With its lowest bit set.
    #[inline(always)]
    fn sip<const N: usize>(&self, words: &[u64; N]) -> u64 {
        self.0.hash::<1, 3>(words) | 1
    }
}

/// The last word of a message of `len` bytes: ports, protocol, two zeros, the length.
#[inline(always)]
fn last(len: u8, ports: u32, protocol: Protocol) -> u64 {
    u64::from(ports) | u64::from(protocol.0) << 32 | u64::from(len) << 56
}

/// The low half.
#[allow(clippy::cast_possible_truncation)] // the point of it
const fn low_word(x: u128) -> u64 {
    x as u64
}

const fn v6_octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher13;

    use super::*;

    /// A flow names its own packets, and none in which a bit of an address or a port is another; nor what is cut short.
    #[test]
    fn a_flow_names_its_packets_only() {
        for (upper, addresses) in [(20, 12..20), (40, 8..40)] {
            let mut packet: Vec<u8> = (0..60).map(|n| 90 + n).collect();
            packet[0] = if upper == 20 { 0x45 } else { 0x60 };
            let flow = Tuple::of_received(&packet, upper).expect("a whole header");
            assert!(flow.names(&packet, upper));
            assert!(!flow.names(&packet[..upper + 3], upper));
            assert!(!flow.names(&[], upper));
            for at in addresses.chain(upper..upper + 4) {
                for bit in 0..8 {
                    let mut other = packet.clone();
                    other[at] ^= 1 << bit;
                    assert!(!flow.names(&other, upper), "bit {bit} of byte {at}");
                    let meant = Tuple::of_received(&other, upper).expect("a whole header");
                    assert!(meant.names(&other, upper));
                }
            }
            // The same words under the other version.
            packet[0] ^= 0x20;
            assert!(!flow.names(&packet, upper));
        }
    }

    #[test]
    fn is_siphash() {
        let mut key = [0; 16];
        for seed in 1..200_u8 {
            key.iter_mut()
                .zip(seed..)
                .for_each(|(byte, n)| *byte = n.wrapping_mul(91));
            let ip = |v6: bool, n: u8| match v6 {
                false => IpAddr::from([10, seed, n, 7]),
                true => IpAddr::from([[n; 8], [seed; 8]].concat().try_into().unwrap_or([0; 16])),
            };
            for v6 in [false, true] {
                let (local, remote) = (ip(v6, 200), ip(v6, seed ^ 3));
                let flow = FlowKey {
                    local,
                    remote,
                    local_port: 0x1234,
                    remote_port: 0xfedc,
                    protocol: Protocol::TCP,
                };
                let mut bytes = Vec::new();
                for ip in [local, remote] {
                    match ip {
                        IpAddr::V4(ip) => bytes.extend(ip.octets()),
                        IpAddr::V6(ip) => bytes.extend(ip.octets()),
                    }
                }
                bytes.extend([0x12, 0x34, 0xfe, 0xdc, Protocol::TCP.0, 0, 0]);
                assert_eq!(
                    FlowHash::new(&key).hash(&flow),
                    SipHasher13::new_with_key(&key).hash(&bytes) | 1
                );
            }
        }
    }
}
