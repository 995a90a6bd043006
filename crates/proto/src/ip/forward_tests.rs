//! What may go on, and what a hop changes.

use core::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::ip::keyed::{Random, Seed};
use crate::wire::Protocol;
use std::vec::Vec;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A datagram of 8 octets with these options.
fn datagram(ttl: u8, options: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        ttl,
        ..ipv4::Header::new(
            Protocol::UDP,
            [192, 0, 2, 1].into(),
            [198, 51, 100, 2].into(),
        )
    };
    let mut packet = alloc::vec![0; 20];
    header.emit(options.len() + 8, &mut packet);
    packet[0] = 0x45 + u8::try_from(options.len() / 4).unwrap();
    packet.extend_from_slice(options);
    packet[10..12].fill(0);
    let sum = checksum::checksum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet.extend_from_slice(&[0; 8]);
    packet
}

#[test]
fn what_must_stay_on_its_link_stays() {
    let passes = |from: &str, to: &str| addresses(ip(from), ip(to));
    assert_eq!(passes("192.0.2.1", "198.51.100.2"), Ok(()));
    assert_eq!(passes("2001:db8::1", "fd00::1"), Ok(()));
    // RFC 3927 §7, RFC 4291 §2.5.6
    let source = Err(Martian::LinkLocalSource);
    assert_eq!(passes("169.254.1.1", "198.51.100.2"), source);
    assert_eq!(passes("fe80::1", "2001:db8::1"), source);
    // RFC 1812 §5.3.4, §5.3.5, §5.3.7
    for to in [
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "169.254.1.1",
    ] {
        assert_eq!(
            passes("192.0.2.1", to),
            Err(Martian::BadDestination),
            "{to}"
        );
    }
    for to in ["ff02::1", "ff0e::1", "fe80::1"] {
        assert_eq!(
            passes("2001:db8::1", to),
            Err(Martian::BadDestination),
            "{to}"
        );
    }
}

#[test]
fn every_hop_leaves_a_right_checksum() {
    // RFC 1624 §3: the update is the sum made anew, whatever else the header says.
    let mut random = Random::new(Seed([1, 2]));
    for _ in 0..20_000 {
        let r = random.next_u64().to_le_bytes();
        let header = ipv4::Header {
            ttl: r[0].max(2),
            tos: r[1],
            ident: u16::from_le_bytes([r[2], r[3]]),
            ..ipv4::Header::new(
                Protocol(r[4]),
                Ipv4Addr::from([10, r[5], r[6], r[7]]),
                [192, 0, 2, 1].into(),
            )
        };
        let mut packet = [0; 20];
        header.emit(0, &mut packet);
        take_hop(&mut packet);
        let after = ipv4::Header::parse(&packet).expect("a right checksum");
        assert_eq!(after.ttl, header.ttl - 1);
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut packet = datagram(9, &[]);
    packet[10] ^= 1;
    take_hop(&mut packet);
    assert_eq!(
        ipv4::Header::parse(&packet),
        Err(crate::wire::Error::Checksum)
    );
}

#[test]
fn a_hop_of_ipv6_is_one_octet() {
    let mut packet = [0; 40];
    let header = ipv6::Header::new(Protocol::NO_NEXT_HEADER, [1; 16].into(), [2; 16].into());
    header.emit(0, &mut packet);
    let before = packet;
    take_hop(&mut packet);
    assert_eq!(
        check(&packet).map(|p| (p.hops, p.may_cut, p.len)),
        Ok((63, false, 40))
    );
    packet[7] += 1;
    assert_eq!(packet, before);
}

#[test]
fn options_go_on_unless_they_steer_or_lie() {
    let nops = datagram(9, &[1, 1, 1, 0]);
    assert_eq!(check(&nops).map(|p| (p.hops, p.len)), Ok((9, 32)));
    let record = datagram(9, &[7, 7, 4, 0, 0, 0, 0, 0]);
    assert!(check(&record).is_ok());
    // RFC 1812 §5.2.4.1
    for kind in [131, 137] {
        let routed = datagram(9, &[kind, 7, 4, 10, 0, 0, 1, 0]);
        assert_eq!(check(&routed), Err(Refused::SourceRoute));
    }
    let long = datagram(9, &[7, 9, 4, 0]);
    assert_eq!(check(&long), Err(Refused::Option { pointer: 21 }));
    assert_eq!(check(&long[..19]), Err(Refused::Malformed));
    assert_eq!(check(&[]), Err(Refused::Malformed));
    assert_eq!(check(&[0x60; 39]), Err(Refused::Malformed));
}
