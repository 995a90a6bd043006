//! The checksum that a link left out.

use super::*;

/// A packet with 25 octets of text, whose transport checksum is right.
fn packet(v6: bool, protocol: Protocol) -> Vec<u8> {
    let (at, upper) = (if v6 { 40 } else { 20 }, 45);
    let mut packet = vec![0; at];
    let (source, destination): (IpAddr, IpAddr) = if v6 {
        let header = ipv6::Header::new(protocol, [1; 16].into(), [2; 16].into());
        header.emit(upper, &mut packet);
        (header.source.into(), header.destination.into())
    } else {
        let header = ipv4::Header::new(protocol, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        header.emit(upper, &mut packet);
        (header.source.into(), header.destination.into())
    };
    packet.extend((0..45).map(|i| i * 5));
    let field = field(at, protocol);
    packet[field..field + 2].fill(0);
    let pseudo = checksum::pseudo_header(source, destination, protocol, upper).unwrap();
    let sum = checksum::finish(pseudo + checksum::sum(&packet[at..]));
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn field(at: usize, protocol: Protocol) -> usize {
    at + if protocol == Protocol::TCP { 16 } else { 6 }
}

#[test]
fn a_missing_checksum_is_made() {
    for v6 in [false, true] {
        for protocol in [Protocol::TCP, Protocol::UDP] {
            let right = packet(v6, protocol);
            let mut missing = right.clone();
            let at = field(if v6 { 40 } else { 20 }, protocol);
            // What the kernel leaves there: the sum of the pseudo header, or anything.
            missing[at..at + 2].copy_from_slice(&[0x12, 0x34]);
            finish_checksum(&mut missing);
            assert_eq!(missing, right, "{v6} {protocol:?}");
            finish_checksum(&mut missing);
            assert_eq!(missing, right, "a right one stays");
        }
    }
}

#[test]
fn what_has_none_gets_none() {
    // RFC 768: a datagram without a checksum; IPv6 knows no such (RFC 8200 §8.1).
    let mut without = packet(false, Protocol::UDP);
    without[26..28].fill(0);
    let before = without.clone();
    finish_checksum(&mut without);
    assert_eq!(without, before);
    let mut six = packet(true, Protocol::UDP);
    let right = six.clone();
    six[46..48].fill(0);
    finish_checksum(&mut six);
    assert_eq!(six, right);
    // Other protocols, fragments, and what is cut short.
    let mut ping = packet(false, Protocol::ICMP);
    let mut fragment = packet(false, Protocol::TCP);
    fragment[6] = 0x20;
    fragment[10..12].fill(0);
    let sum = checksum::checksum(&fragment[..20]).to_be_bytes();
    fragment[10..12].copy_from_slice(&sum);
    for packet in [&mut ping, &mut fragment] {
        let before = packet.clone();
        finish_checksum(packet);
        assert_eq!(*packet, before);
    }
    for len in 0..65 {
        finish_checksum(&mut packet(false, Protocol::TCP)[..len]);
    }
}
