//! Frames made by hand, for the hostile cases: independent of the wire formats under test, and easy to break.

use std::net::{Ipv4Addr, Ipv6Addr};

/// SplitMix64: what was sent follows from the seed.
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.byte()).collect()
    }
}

/// Which host sends to which.
#[derive(Clone, Copy)]
pub struct Ends {
    pub source_mac: [u8; 6],
    pub target_mac: [u8; 6],
    pub source: [u8; 4],
    pub target: [u8; 4],
    pub source6: [u8; 16],
    pub target6: [u8; 16],
}

impl Ends {
    /// From the kernel's end of the link to netchan's.
    pub fn new(target_mac: [u8; 6]) -> Self {
        let v6 = |n: u16| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n).octets();
        Self {
            source_mac: [2, 0, 0, 0, 0, 9],
            target_mac,
            source: Ipv4Addr::new(10, 77, 0, 9).octets(),
            target: Ipv4Addr::new(10, 77, 0, 2).octets(),
            source6: v6(9),
            target6: v6(2),
        }
    }
}

/// The internet checksum over `parts`, each of even length but the last.
pub fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let folded = u16::try_from(sum).unwrap_or(0);
    (!folded).to_be_bytes()
}

fn short(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes()
}

/// An Ethernet frame.
pub fn ethernet(ends: &Ends, kind: u16, payload: &[u8]) -> Vec<u8> {
    [
        &ends.target_mac,
        &ends.source_mac,
        &kind.to_be_bytes()[..],
        payload,
    ]
    .concat()
}

/// IPv4 with `options` (a multiple of 4 bytes); `fragment` is the flags-and-offset field.
pub fn ipv4_with(
    ends: &Ends,
    protocol: u8,
    fragment: u16,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut header = vec![0x40 | u8::try_from(header_len / 4).unwrap_or(15), 0];
    header.extend(short(header_len + payload.len()));
    header.extend([0x12, 0x34]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(ends.source);
    header.extend(ends.target);
    header.extend(options);
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum);
    ethernet(ends, 0x0800, &[&header, payload].concat())
}

/// Plain IPv4.
pub fn ipv4(ends: &Ends, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(ends, protocol, 0x4000, &[], payload)
}

/// IPv6.
pub fn ipv6(ends: &Ends, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(short(payload.len()));
    header.extend([next, 255]);
    header.extend(ends.source6);
    header.extend(ends.target6);
    ethernet(ends, 0x86dd, &[&header, payload].concat())
}

/// Fills in a transport checksum at `at`, with the pseudo-header of the family.
fn summed(ends: &Ends, v6: bool, protocol: u8, at: usize, mut payload: Vec<u8>) -> Vec<u8> {
    let length = short(payload.len());
    let sum = if v6 {
        checksum(&[
            &ends.source6,
            &ends.target6,
            &length,
            &[0, protocol],
            &payload,
        ])
    } else {
        checksum(&[
            &ends.source,
            &ends.target,
            &[0, protocol],
            &length,
            &payload,
        ])
    };
    payload[at..at + 2].copy_from_slice(&sum);
    payload
}

/// An IP packet of either family around a transport message whose checksum is at `at`.
pub fn transport(ends: &Ends, v6: bool, protocol: u8, at: usize, message: Vec<u8>) -> Vec<u8> {
    let message = summed(ends, v6, protocol, at, message);
    if v6 {
        ipv6(ends, protocol, &message)
    } else {
        ipv4(ends, protocol, &message)
    }
}

/// A TCP segment's fields.
pub struct Segment<'a> {
    pub ports: (u16, u16),
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

/// A TCP segment in a frame.
pub fn tcp(ends: &Ends, v6: bool, segment: &Segment<'_>) -> Vec<u8> {
    let mut message = segment.ports.0.to_be_bytes().to_vec();
    message.extend(segment.ports.1.to_be_bytes());
    message.extend(segment.sequence.to_be_bytes());
    message.extend(segment.acknowledgement.to_be_bytes());
    let words = u8::try_from(5 + segment.options.len() / 4).unwrap_or(15);
    message.extend([words << 4, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
    message.extend(segment.options);
    message.extend(segment.payload);
    transport(ends, v6, 6, 16, message)
}

/// A UDP datagram in a frame.
pub fn udp(ends: &Ends, v6: bool, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut message = ports.0.to_be_bytes().to_vec();
    message.extend(ports.1.to_be_bytes());
    message.extend(short(8 + payload.len()));
    message.extend([0, 0]);
    message.extend(payload);
    transport(ends, v6, 17, 6, message)
}

/// An ARP message.
pub fn arp(ends: &Ends, operation: u16) -> Vec<u8> {
    let mut message = vec![0, 1, 8, 0, 6, 4];
    message.extend(operation.to_be_bytes());
    message.extend(ends.source_mac);
    message.extend(ends.source);
    message.extend(ends.target_mac);
    message.extend(ends.target);
    ethernet(ends, 0x0806, &message)
}

/// Well-formed frames of every kind a host meets: what the mutations begin with.
pub fn corpus(ends: &Ends, random: &mut Random) -> Vec<Vec<u8>> {
    let port = 8000;
    let payload = random.bytes(40);
    let options: [&[u8]; 4] = [
        &[],
        &[2, 4, 5, 180, 4, 2, 1, 1, 3, 3, 7, 0],
        &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9],
        &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0],
    ];
    let mut frames = vec![arp(ends, 1), arp(ends, 2)];
    for v6 in [false, true] {
        for flags in [
            0x02, 0x12, 0x10, 0x18, 0x04, 0x11, 0x14, 0x00, 0x3f, 0x29, 0x06, 0x03,
        ] {
            let segment = Segment {
                ports: (
                    1024 + u16::from(random.byte()),
                    if random.below(4) == 0 { 1 } else { port },
                ),
                sequence: u32::try_from(random.below(1 << 32)).unwrap_or(0),
                acknowledgement: u32::try_from(random.below(1 << 32)).unwrap_or(0),
                flags,
                options: options[random.below(4)],
                payload: if flags & 0x08 == 0 { &[] } else { &payload },
            };
            frames.push(tcp(ends, v6, &segment));
        }
        frames.push(udp(ends, v6, (5353, 53), &payload));
        frames.push(udp(ends, v6, (53, port), &[]));
    }
    frames.extend(control(ends, &payload));
    frames.extend(pieces(ends, random));
    frames
}

/// ICMP of both families: echo, errors that quote a packet, neighbour discovery, router advertisements, multicast listeners.
fn control(ends: &Ends, payload: &[u8]) -> Vec<Vec<u8>> {
    let quoted = ipv4(ends, 6, payload);
    let quoted6 = ipv6(ends, 6, payload);
    let icmp = |kind: u8, code: u8, rest: &[u8]| {
        let mut message = [&[kind, code, 0, 0], rest].concat();
        let sum = checksum(&[&message]);
        message[2..4].copy_from_slice(&sum);
        ipv4(ends, 1, &message)
    };
    let icmp6 = |kind: u8, code: u8, rest: &[u8]| {
        transport(ends, true, 58, 2, [&[kind, code, 0, 0], rest].concat())
    };
    let error = [&[0, 0, 2, 0], &quoted[14..]].concat();
    let error6 = [&[0, 0, 5, 0], &quoted6[14..]].concat();
    let mut frames = vec![
        icmp(8, 0, &[0, 1, 0, 1, 9, 9]),
        icmp(0, 0, &[0, 1, 0, 1]),
        icmp(13, 0, &[0; 16]),
    ];
    frames.extend(
        [(3, 3), (3, 4), (4, 0), (5, 1), (11, 0), (11, 1), (12, 0)]
            .map(|(k, c)| icmp(k, c, &error)),
    );
    frames.extend([
        icmp6(128, 0, &[0, 1, 0, 1, 9]),
        icmp6(129, 0, &[0, 1, 0, 1]),
    ]);
    frames.extend([(1, 4), (2, 0), (3, 0), (4, 1)].map(|(k, c)| icmp6(k, c, &error6)));
    let option = [&[1, 1], &ends.source_mac[..]].concat();
    let prefix = [
        &[3, 4, 64, 0xc0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        &ends.source6[..],
    ]
    .concat();
    frames.push(icmp6(133, 0, &[&[0; 4], &option[..]].concat()));
    frames.push(icmp6(
        134,
        0,
        &[&[64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0], &prefix[..], &option].concat(),
    ));
    frames.push(icmp6(
        135,
        0,
        &[&[0; 4], &ends.target6[..], &option].concat(),
    ));
    frames.push(icmp6(
        136,
        0,
        &[&[0x60, 0, 0, 0], &ends.source6[..], &option].concat(),
    ));
    frames.push(icmp6(
        137,
        0,
        &[&[0; 4], &ends.source6[..], &ends.source6].concat(),
    ));
    frames.push(icmp6(130, 0, &[0; 20]));
    frames
}

/// Fragments, options, extension headers, tags, lengths that lie.
fn pieces(ends: &Ends, random: &mut Random) -> Vec<Vec<u8>> {
    let data = random.bytes(64);
    let offset = u16::try_from(random.below(8192)).unwrap_or(0);
    let mut frames: Vec<Vec<u8>> = [0x2000, 0x2001, 0x0001, 0x1fff, 0x2000 | offset, offset]
        .iter()
        .map(|field| ipv4_with(ends, [6, 17, 1][random.below(3)], *field, &[], &data))
        .collect();
    for options in [
        [7, 7, 4, 1, 2, 3, 4, 0],
        [131, 7, 4, 10, 77, 0, 1, 0],
        [68, 8, 5, 1, 0, 0, 0, 0],
        [148, 4, 0, 0, 1, 1, 1, 0],
        [7, 0, 0, 0, 0, 0, 0, 0],
    ] {
        frames.push(ipv4_with(ends, 17, 0, &options, &data));
    }
    for (next, header) in [
        (0, [59, 0, 1, 4, 0, 0, 0, 0]),
        (0, [6, 0, 5, 2, 0, 0, 1, 0]),
        (60, [60, 0, 1, 4, 0, 0, 0, 0]),
        (43, [59, 2, 0, 1, 0, 0, 0, 0]),
        (44, [17, 0, 0, 1, 0, 0, 0, 7]),
        (44, [6, 0, 0xff, 0xf8, 0, 0, 0, 7]),
        (51, [59, 4, 0, 0, 0, 0, 0, 1]),
        (0, [0, 0, 0xc2, 4, 0, 1, 0, 0]),
    ] {
        frames.push(ipv6(ends, next, &[&header, &data[..]].concat()));
    }
    let chain: Vec<u8> = (0..100).flat_map(|_| [60, 0, 1, 4, 0, 0, 0, 0]).collect();
    frames.push(ipv6(ends, 60, &chain));
    frames.push(ethernet(ends, 0x8100, &[&[0, 5, 8, 0], &data[..]].concat()));
    frames.push(ethernet(ends, 0x05dc, &data));
    frames.push(ethernet(ends, 0x0800, &[]));
    // LAND: from ourselves to ourselves (negative 11).
    let land = Ends {
        source: ends.target,
        source6: ends.target6,
        ..*ends
    };
    for v6 in [false, true] {
        let syn = Segment {
            ports: (8000, 8000),
            sequence: 1,
            acknowledgement: 0,
            flags: 2,
            options: &[],
            payload: &[],
        };
        frames.push(tcp(&land, v6, &syn));
    }
    frames
}

/// `frame` with something wrong: bits, bytes, lengths, its end, its beginning.
pub fn mutate(frame: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for _ in 0..=random.below(4) {
        let at = if bytes.is_empty() {
            0
        } else {
            random.below(bytes.len())
        };
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend(random.bytes(at)),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            4 if !bytes.is_empty() => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                let noise = random.bytes(end - at);
                bytes[at..end].copy_from_slice(&noise);
            }
            5 if bytes.len() > 40 => {
                // Within the headers it hurts most.
                let at = 12 + random.below(28);
                bytes[at] = random.byte();
            }
            _ => {}
        }
    }
    if random.below(2) == 0 {
        mend(&mut bytes);
    }
    bytes.truncate(1514);
    bytes
}

/// Makes the IPv4 header checksum right again, so that what lies behind it is looked at.
fn mend(bytes: &mut [u8]) {
    let header_len = bytes.get(14).map_or(0, |b| usize::from(b & 15) * 4);
    let is_ipv4 = bytes.get(12..14) == Some(&[8, 0]);
    if let Some(header) = bytes
        .get_mut(14..14 + header_len)
        .filter(|h| is_ipv4 && h.len() >= 20)
    {
        header[10..12].fill(0);
        let sum = checksum(&[header]);
        header[10..12].copy_from_slice(&sum);
    }
}
