//! Malformed ICMP, UDP and TCP that broke other stacks: groups 30, 31, 33, 37, 51 to 53 and 56 to 61
//! of the negative cases, as far as the bytes alone can tell.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::wire::checksum::{self, Partial};
use proto::wire::icmpv4::{self, Message};
use proto::wire::quote::Quote;
use proto::wire::tcp::{Flags, Header, Options, SackBlocks, SeqNum, Timestamps, verify_checksum};
use proto::wire::{Error, Protocol, icmpv6, ipv4, ipv6, udp};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

/// An ICMP message of these bytes with a right checksum.
fn icmp(head: [u8; 8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&head[..], payload].concat();
    bytes[2..4].fill(0);
    let sum = checksum::checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn negative_30_truncated_huge_and_damaged_icmp() {
    for payload in [0, 1, 65_507] {
        let payload = vec![7; payload];
        let echo = Message::EchoRequest { ident: 1, seq: 2 };
        let mut bytes = vec![0; 8 + payload.len()];
        assert_eq!(echo.emit(&payload, &mut bytes), bytes.len());
        assert_eq!(Message::parse(&bytes), Ok((echo, &payload[..])));
        for end in 0..8 {
            assert_eq!(Message::parse(&bytes[..end]), Err(Error::Truncated));
        }
        for bit in (0..bytes.len() * 8).step_by(1 + payload.len() / 8) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Message::parse(&bytes), Err(Error::Checksum), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert_eq!(
        Message::parse(&icmp([8, 1, 0, 0, 0, 1, 0, 2], b"")),
        Err(Error::Value)
    );
    // ICMPv6 for other addresses: the pseudo header tells.
    let (IpAddr::V6(a), IpAddr::V6(b)) = (A6, B6) else {
        panic!()
    };
    let mut bytes = [0; 8];
    let echo = icmpv6::Message::EchoReply { ident: 1, seq: 2 };
    assert_eq!(echo.emit(a, b, b"", &mut bytes), 8);
    assert!(icmpv6::Message::parse(a, b, &bytes).is_ok());
    assert_eq!(icmpv6::Message::parse(a, a, &bytes), Err(Error::Checksum));
    assert_eq!(
        icmpv6::Message::parse(a, b, &bytes[..7]),
        Err(Error::Truncated)
    );
}

/// An IPv4 packet as it was sent, cut to 28 bytes by the host that reports it.
fn sent() -> Vec<u8> {
    let mut packet = vec![0; 28];
    let (IpAddr::V4(a), IpAddr::V4(b)) = (A, B) else {
        panic!()
    };
    assert_eq!(
        ipv4::Header::new(Protocol::TCP, a, b).emit(1480, &mut packet),
        20
    );
    packet[20..].copy_from_slice(&[0x9c, 0x40, 0, 80, 1, 2, 3, 4]);
    packet
}

#[test]
fn negative_31_quotes() {
    let whole = sent();
    let quote = Quote::parse_v4(&whole).unwrap();
    assert_eq!(
        (quote.source, quote.destination, quote.protocol),
        (A, B, Protocol::TCP)
    );
    assert_eq!(
        (quote.ports(), quote.tcp_seq()),
        (Some((40_000, 80)), Some(SeqNum(0x0102_0304)))
    );
    for end in 0..20 {
        assert_eq!(Quote::parse_v4(&whole[..end]), Err(Error::Truncated));
    }
    for end in 20..28 {
        let quote = Quote::parse_v4(&whole[..end]).unwrap();
        assert_eq!(quote.ports().is_some(), end >= 24);
        assert_eq!(quote.tcp_seq().is_some(), end >= 28);
    }
    let changed = |at: usize, value: u8| {
        let mut quote = whole.clone();
        quote[at] = value;
        Quote::parse_v4(&quote).map(|quote| quote.upper.len())
    };
    assert_eq!(
        changed(0, 0x4f),
        Err(Error::Truncated),
        "IHL 15 without the bytes"
    );
    assert_eq!(changed(0, 0x44), Err(Error::Length));
    assert_eq!(changed(0, 0x65), Err(Error::Version));
    assert_eq!(changed(7, 1), Err(Error::Value), "not the first fragment");
    assert_eq!(
        changed(8, 1),
        Ok(8),
        "its checksum is stale: routers count the TTL down"
    );
    let mut short = whole.clone();
    short[2..4].copy_from_slice(&22_u16.to_be_bytes());
    assert_eq!(
        Quote::parse_v4(&short).unwrap().upper.len(),
        2,
        "RFC 4884 pads the quote"
    );
    short[2..4].copy_from_slice(&19_u16.to_be_bytes());
    assert_eq!(Quote::parse_v4(&short), Err(Error::Length));
}

#[test]
fn negative_31_quotes_of_ipv6() {
    let (IpAddr::V6(a), IpAddr::V6(b)) = (A6, B6) else {
        panic!()
    };
    let packet = |first: u8, chain: &[u8]| {
        let mut packet = vec![0; 40];
        ipv6::Header::new(Protocol(first), a, b).emit(1400, &mut packet);
        packet.extend(chain);
        packet
    };
    let upper = [0x9c, 0x40, 0, 80, 1, 2, 3, 4];
    let plain = packet(6, &upper);
    let quote = Quote::parse_v6(&plain).unwrap();
    assert_eq!((quote.source, quote.destination), (A6, B6));
    assert_eq!(quote.tcp_seq(), Some(SeqNum(0x0102_0304)));
    for end in 0..40 {
        assert_eq!(Quote::parse_v6(&plain[..end]), Err(Error::Truncated));
    }
    assert_eq!(Quote::parse_v6(&packet(6, &[])).unwrap().upper, b"");
    let first = [&[17, 0, 0, 1, 0, 0, 0, 7], &upper[..]].concat();
    let fragment = packet(44, &first);
    assert_eq!(
        Quote::parse_v6(&fragment).unwrap().ports(),
        Some((40_000, 80))
    );
    let later = packet(44, &[17, 0, 0, 9, 0, 0, 0, 7, 1, 2, 3, 4]);
    assert_eq!(Quote::parse_v6(&later), Err(Error::Value));
    assert_eq!(
        Quote::parse_v6(&packet(60, &[6, 0, 1, 4])),
        Err(Error::Truncated)
    );
    let endless = packet(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(50));
    assert_eq!(Quote::parse_v6(&endless), Err(Error::Length));
}

/// The MTU comes as it stands; what to believe of it is the path MTU cache's.
#[test]
fn negative_33_mtu_as_reported() {
    for mtu in [0_u16, 1, 67, 68, 1279, 65_535] {
        let [high, low] = mtu.to_be_bytes();
        let bytes = icmp([3, 4, 0, 0, 0, 0, high, low], &sent());
        let (message, quote) = Message::parse(&bytes).unwrap();
        assert_eq!(message, Message::DestinationUnreachable { code: 4, mtu });
        assert_eq!(quote, sent());
        assert!(message.is_error());
    }
    let bytes = icmp([3, 3, 0, 0, 0, 0, 5, 5], &sent());
    let (message, _) = Message::parse(&bytes).unwrap();
    assert_eq!(
        message,
        Message::DestinationUnreachable { code: 3, mtu: 0 },
        "only code 4 has one"
    );
    // RFC 4884: the quote ends where the length says, if it says anything that can be.
    let long = [&sent()[..], &[0x20; 100], b"extension"].concat();
    for (words, len) in [(0, 137), (32, 128), (200, 137)] {
        let bytes = icmp([3, 3, 0, 0, 0, words, 0, 0], &long);
        assert_eq!(Message::parse(&bytes).unwrap().1.len(), len);
    }
}

#[test]
fn negative_37_timestamp_and_mask_of_wrong_length() {
    for (kind, right) in [(13, 12), (14, 12), (17, 4), (18, 4)] {
        for len in 0..30 {
            let bytes = icmp([kind, 0, 0, 0, 0, 1, 0, 2], &vec![9; len]);
            let parsed = Message::parse(&bytes);
            if len == right {
                assert!(matches!(parsed, Ok((Message::Other { .. }, _))));
            } else {
                assert_eq!(parsed, Err(Error::Length), "type {kind} with {len} bytes");
            }
        }
    }
    let redirect = icmp([5, 4, 0, 0, 192, 0, 2, 9], &sent());
    assert_eq!(icmpv4::Message::parse(&redirect), Err(Error::Value));
}

fn datagram(source: IpAddr, destination: IpAddr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let header = udp::Header {
        source_port: 9,
        destination_port: 53,
        ..udp::Header::default()
    };
    let sum = checksum::sum(payload);
    assert_eq!(
        header.emit(source, destination, sum, payload.len(), &mut bytes),
        8
    );
    bytes.extend(payload);
    bytes
}

#[test]
fn negative_51_udp_lengths() {
    let good = datagram(A, B, b"12345");
    for length in [0_u16, 1, 7, 14, 1000, 65_535] {
        let mut bad = good.clone();
        bad[4..6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(
            udp::Header::parse(&bad),
            Err(Error::Length),
            "length {length}"
        );
    }
    for end in 0..8 {
        assert_eq!(udp::Header::parse(&good[..end]), Err(Error::Truncated));
    }
    // Shorter than the IP payload: the rest is padding, and the checksum does not cover it.
    let mut padded = good;
    padded.extend(b"padding");
    let header = udp::Header::parse(&padded).unwrap();
    assert_eq!(header.payload(&padded), b"12345");
    assert!(header.verify(A, B, &padded));
    let none = datagram(A, B, b"");
    assert_eq!(udp::Header::parse(&none).unwrap().payload(&none), b"");
}

#[test]
fn negative_52_udp_checksums() {
    for (source, destination) in [(A, B), (A6, B6)] {
        let mut bytes = datagram(source, destination, b"12345");
        let verify = |bytes: &[u8]| {
            udp::Header::parse(bytes)
                .unwrap()
                .verify(source, destination, bytes)
        };
        assert!(verify(&bytes));
        bytes[9] ^= 1;
        assert!(!verify(&bytes), "damaged");
        // None: fine over IPv4 (RFC 768), not over IPv6 (RFC 8200 §8.1; negative 49).
        bytes[6..8].fill(0);
        assert_eq!(verify(&bytes), source.is_ipv4());
    }
    // A sum that comes out as 0 is sent as 0xffff, and 0xffff is no "none".
    let mut zero = datagram(A, B, &[0, 0]);
    let sum = u16::from_be_bytes([zero[6], zero[7]]);
    zero = datagram(A, B, &sum.to_be_bytes());
    assert_eq!(zero[6..8], [0xff, 0xff]);
    assert!(udp::Header::parse(&zero).unwrap().verify(A, B, &zero));
}

#[test]
fn negative_53_port_zero() {
    let mut bytes = datagram(A, B, b"x");
    bytes[..2].fill(0);
    assert_eq!(
        udp::Header::parse(&bytes).unwrap().source_port,
        0,
        "means: do not answer"
    );
    bytes[2..4].fill(0);
    assert_eq!(udp::Header::parse(&bytes).unwrap().destination_port, 0);
    let none = proto::udp::receive(A, B, &bytes, true);
    assert_eq!(none, Err(proto::udp::DropReason::PortZero));
}

/// A segment with these flags and this option area, and two bytes of payload.
fn segment(flags: Flags, area: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let header = Header {
        source_port: 1,
        destination_port: 2,
        flags,
        ..Header::default()
    };
    assert_eq!(header.emit(&mut bytes), 20);
    bytes.extend(area);
    bytes[12] = (bytes[12] & 0x0f) | u8::try_from(bytes.len() * 4).unwrap();
    bytes.extend(b"hi");
    bytes
}

fn options(flags: Flags, area: &[u8]) -> Result<Options, Error> {
    Header::parse(&segment(flags, area)).map(|(header, at)| {
        assert_eq!(at, 20 + area.len());
        header.options
    })
}

#[test]
fn negative_56_data_offsets() {
    let mut bytes = segment(Flags::ACK, &[]);
    for words in 0..16_u8 {
        bytes[12] = words << 4;
        let expected = if words == 5 {
            Ok(20)
        } else {
            Err(Error::Length)
        };
        assert_eq!(
            Header::parse(&bytes).map(|(_, at)| at),
            expected,
            "data offset {words}"
        );
    }
    bytes.resize(60, 1);
    bytes[20..].fill(1);
    bytes[12] = 0xf0;
    assert_eq!(Header::parse(&bytes).map(|(_, at)| at), Ok(60));
    assert_eq!(Header::parse(&bytes[..59]), Err(Error::Length));
    // The timestamps' fast path does not read past the segment.
    let mut stamped = segment(Flags::ACK, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    stamped.truncate(31);
    assert_eq!(Header::parse(&stamped), Err(Error::Length));
}

#[test]
fn negative_57_any_flags_parse() {
    for flags in 0..0x200 {
        let bytes = segment(Flags(flags), &[]);
        assert_eq!(Header::parse(&bytes).unwrap().0.flags, Flags(flags));
    }
    // The three reserved bits are no flags.
    let mut bytes = segment(Flags::ACK, &[]);
    bytes[12] |= 0x0e;
    assert_eq!(Header::parse(&bytes).unwrap().0.flags, Flags::ACK);
}

#[test]
fn negative_58_option_lengths() {
    // RFC 9293 MUST-7: survive. Length 0 and 1, over the end, none at all.
    for area in [
        [9, 0, 0, 0],
        [9, 1, 0, 0],
        [9, 5, 0, 0],
        [9, 255, 0, 0],
        [1, 1, 1, 9],
        [1, 1, 2, 4],
        [2, 0, 0, 0],
        [8, 10, 0, 0],
    ] {
        assert_eq!(options(Flags::SYN, &area), Err(Error::Option), "{area:?}");
    }
    assert_eq!(
        options(Flags::SYN, &[9, 4, 0, 0]),
        Ok(Options::NONE),
        "unknown: MUST-6"
    );
    assert_eq!(
        options(Flags::SYN, &[0, 9, 0, 0]),
        Ok(Options::NONE),
        "behind the end"
    );
    assert_eq!(
        options(Flags::ACK, &[1; 40]),
        Ok(Options::NONE),
        "40 bytes of nothing"
    );
    let mut md5 = [0; 20];
    md5[..2].copy_from_slice(&[19, 18]);
    assert_eq!(
        options(Flags::SYN, &md5),
        Ok(Options::NONE),
        "MD5 that was not asked for"
    );
    // Known ones of another length count as unknown.
    assert_eq!(options(Flags::SYN, &[2, 3, 5, 0]), Ok(Options::NONE));
    assert_eq!(
        options(Flags::SYN, &[2, 5, 5, 5, 5, 0, 0, 0]),
        Ok(Options::NONE)
    );
    assert_eq!(options(Flags::SYN, &[4, 3, 0, 0]), Ok(Options::NONE));
    assert_eq!(options(Flags::SYN, &[3, 4, 7, 7]), Ok(Options::NONE));
    let mut stamps = [0; 12];
    for len in [2, 9, 11, 12] {
        stamps[..2].copy_from_slice(&[8, len]);
        assert_eq!(
            options(Flags::ACK, &stamps),
            Ok(Options::NONE),
            "timestamps of {len}"
        );
    }
}

#[test]
fn negative_58_option_values_and_places() {
    for mss in [0_u16, 1, 8, 65_535] {
        let [high, low] = mss.to_be_bytes();
        let found = options(Flags::SYN, &[2, 4, high, low]).unwrap();
        assert_eq!(found.mss, Some(mss), "as sent: the state machine clamps");
        // RFC 9293 MUST-65: none outside SYN.
        assert_eq!(options(Flags::ACK, &[2, 4, high, low]), Ok(Options::NONE));
    }
    for shift in [14, 15, 255] {
        let found = options(Flags::SYN, &[3, 3, shift, 0]).unwrap();
        assert_eq!(
            found.window_scale,
            Some(shift),
            "as sent: RFC 7323 §2.3 clamps with a log"
        );
        assert_eq!(options(Flags::ACK, &[3, 3, shift, 0]), Ok(Options::NONE));
    }
    let twice = options(Flags::SYN, &[2, 4, 0, 100, 2, 4, 0, 200]).unwrap();
    assert_eq!(twice.mss, Some(100), "the first counts");
    assert!(options(Flags::SYN, &[4, 2, 1, 1]).unwrap().sack_permitted);
    assert!(!options(Flags::ACK, &[4, 2, 1, 1]).unwrap().sack_permitted);
    // MUST-64: alignment does not matter.
    let crooked = [1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 2, 4, 5, 0xb4, 0];
    let found = options(Flags::SYN, &crooked).unwrap();
    assert_eq!(found.timestamps, Some(Timestamps { value: 1, echo: 2 }));
    assert_eq!(found.mss, Some(1460));
    // Two timestamps, the first in its usual place.
    let mut twins = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2].repeat(2);
    twins[19] = 9;
    let found = options(Flags::ACK, &twins).unwrap();
    assert_eq!(found.timestamps, Some(Timestamps { value: 1, echo: 2 }));
}

fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut area = vec![1, 1, 5, u8::try_from(2 + 8 * blocks.len()).unwrap()];
    for (left, right) in blocks {
        area.extend(left.to_be_bytes());
        area.extend(right.to_be_bytes());
    }
    area
}

/// What the blocks say is held against the send queue later; here they only have to be whole.
#[test]
fn negative_59_sack_blocks() {
    let nonsense = [(9, 5), (7, 7), (0xffff_ff00, 3), (9, 5)];
    for count in 0..=4 {
        let found = options(Flags::ACK, &sack(&nonsense[..count])).unwrap();
        let mut expected = SackBlocks::NONE;
        for (left, right) in &nonsense[..count] {
            assert!(expected.push(SeqNum(*left), SeqNum(*right)));
        }
        assert_eq!(found.sack, expected);
    }
    let mut expected = SackBlocks::NONE;
    for _ in 0..4 {
        assert!(expected.push(SeqNum(1), SeqNum(2)));
    }
    assert!(!expected.push(SeqNum(1), SeqNum(2)), "four is all");
    for len in 2..34 {
        let mut area = sack(&nonsense);
        area[3] = len;
        // The rest becomes unknown options or an error, never half a block.
        if let Ok(found) = options(Flags::ACK, &area) {
            assert_eq!(
                found.sack.as_slice().len(),
                if (len - 2) % 8 == 0 {
                    usize::from(len / 8)
                } else {
                    0
                }
            );
        }
    }
}

#[test]
fn negative_60_urgent_pointers_come_as_they_are() {
    for flags in [Flags::ACK, Flags::ACK | Flags::URG, Flags::SYN | Flags::URG] {
        for urgent in [0_u16, 1, 2, 3, 0x8000, 65_535] {
            let mut bytes = segment(flags, &[]);
            bytes[18..20].copy_from_slice(&urgent.to_be_bytes());
            let (header, at) = Header::parse(&bytes).unwrap();
            assert_eq!((header.urgent, header.flags, at), (urgent, flags, 20));
        }
    }
}

#[test]
fn negative_61_tcp_checksums() {
    for (source, destination) in [(A, B), (A6, B6)] {
        let payload = b"odd";
        let mut bytes = vec![0; 20];
        let header = Header {
            source_port: 1,
            destination_port: 2,
            ..Header::default()
        };
        let sum = checksum::sum(payload);
        assert_eq!(
            header.emit_with_checksum(&mut bytes, sum, 3, source, destination),
            20
        );
        bytes.extend(payload);
        let right = u16::from_be_bytes([bytes[16], bytes[17]]);
        for field in 0..=u16::MAX {
            bytes[16..18].copy_from_slice(&field.to_be_bytes());
            // 0 is no "none" in TCP; 0 and 0xffff are the same number, and only that.
            let same =
                field == right || ([0, 0xffff].contains(&field) && [0, 0xffff].contains(&right));
            assert_eq!(
                verify_checksum(source, destination, &bytes),
                same,
                "field {field:#x}"
            );
        }
        assert!(!verify_checksum(source, A, &[]));
    }
    assert!(!verify_checksum(A, B6, &[0; 20]));
    let sum = Partial::ZERO;
    assert_eq!(
        Header::default().emit_with_checksum(&mut [0; 20], sum, 0, A, B6),
        0
    );
}
