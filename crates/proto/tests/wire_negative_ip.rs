//! Malformed Ethernet, ARP and IPv4 that broke other stacks: groups 1 to 10 and 13 to 16 of the
//! negative cases, as far as the bytes alone can tell.

use std::net::Ipv4Addr;

use proto::wire::arp::{self, Operation, Packet};
use proto::wire::checksum;
use proto::wire::ethernet::{EtherType, Header, MacAddr, Tag};
use proto::wire::ipv4::options::{self, Problem, Summary};
use proto::wire::{Error, Protocol, ipv4};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// An untagged header of this type, and `rest`.
fn frame(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    assert_eq!(Header::new(MAC, MAC, EtherType(kind)).emit(&mut frame), 14);
    frame.extend(rest);
    frame
}

#[test]
fn negative_1_short_frames() {
    let whole = frame(0x0800, &[]);
    for end in 0..14 {
        assert_eq!(Header::parse(&whole[..end]), Err(Error::Truncated));
    }
    let (header, at) = Header::parse(&whole).unwrap();
    assert_eq!((header.ethertype, at), (EtherType::IPV4, 14));
    assert_eq!(ipv4::Header::parse(&whole[at..]), Err(Error::Truncated));
}

#[test]
fn negative_2_length_field_beyond_the_frame() {
    let llc = [0xaa; 46];
    let (header, at) = Header::parse(&frame(46, &llc)).unwrap();
    assert!(header.ethertype.is_length() && at == 14);
    assert_eq!(Header::parse(&frame(47, &llc)), Err(Error::Length));
    assert_eq!(Header::parse(&frame(1500, &llc)), Err(Error::Length));
    for undefined in 1501..1536 {
        assert_eq!(Header::parse(&frame(undefined, &llc)), Err(Error::Value));
    }
    assert!(Header::parse(&frame(1536, &llc)).is_ok());
}

#[test]
fn negative_3_tags_cut_short_and_stacked() {
    let one = frame(0x8100, &[0x20, 0x05, 0x08, 0x00]);
    let (header, at) = Header::parse(&one).unwrap();
    assert_eq!(
        (header.vlan, header.service, at),
        (Some(Tag(0x2005)), None, 18)
    );
    let tag = Tag(0x2005);
    assert_eq!(
        (tag.id(), tag.priority(), tag.drop_eligible()),
        (5, 1, false)
    );
    for end in 14..18 {
        assert_eq!(Header::parse(&one[..end]), Err(Error::Truncated));
    }
    for outer in [0x8100, 0x88a8] {
        let two = frame(outer, &[0, 7, 0x81, 0x00, 0, 9, 0x86, 0xdd]);
        let (header, at) = Header::parse(&two).unwrap();
        assert_eq!(
            (header.service, header.vlan, at),
            (Some(Tag(7)), Some(Tag(9)), 22)
        );
        assert_eq!(header.ethertype, EtherType::IPV6);
        for end in 14..22 {
            assert_eq!(Header::parse(&two[..end]), Err(Error::Truncated));
        }
    }
    let three = frame(0x8100, &[0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 0x08, 0]);
    assert_eq!(Header::parse(&three), Err(Error::Value));
    let service_inside = frame(0x8100, &[0, 1, 0x88, 0xa8, 0, 2, 0x08, 0]);
    assert_eq!(Header::parse(&service_inside), Err(Error::Value));
    // A length behind a tag is held against what is left behind the tag.
    assert_eq!(
        Header::parse(&frame(0x8100, &[0, 1, 0, 5, 1, 2, 3, 4])),
        Err(Error::Length)
    );
}

fn arp_bytes() -> Vec<u8> {
    let packet = Packet {
        operation: Operation::Request,
        sender_mac: MAC,
        sender_ip: HERE,
        target_mac: MacAddr::UNSPECIFIED,
        target_ip: THERE,
    };
    let mut bytes = vec![0; arp::LEN];
    assert_eq!(packet.emit(&mut bytes), arp::LEN);
    bytes
}

#[test]
fn negative_4_arp_of_other_shapes() {
    let good = arp_bytes();
    assert!(Packet::parse(&good).is_ok());
    for (at, value, error) in [
        (0, 1, Error::Version),
        (1, 6, Error::Version),
        (2, 0x86, Error::Version),
        (3, 6, Error::Version),
        (4, 0, Error::Length),
        (4, 8, Error::Length),
        (4, 255, Error::Length),
        (5, 0, Error::Length),
        (5, 16, Error::Length),
        (7, 0, Error::Value),
        (7, 3, Error::Value),
        (6, 1, Error::Value),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(Packet::parse(&bad), Err(error), "byte {at} = {value}");
    }
    let mut bad = good;
    bad[6..8].fill(0xff);
    assert_eq!(Packet::parse(&bad), Err(Error::Value));
}

/// Whether the claim is believable at all; whether it was asked for is the neighbour table's.
#[test]
fn negative_5_and_6_arp_senders_of_no_host() {
    let good = Packet::parse(&arp_bytes()).unwrap();
    assert!(good.sender_is_plausible());
    for mac in [
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0x5e, 0, 0, 1]),
        MacAddr::UNSPECIFIED,
    ] {
        assert!(
            !Packet {
                sender_mac: mac,
                ..good
            }
            .sender_is_plausible(),
            "{mac}"
        );
    }
    for ip in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(127, 0, 0, 1),
        Ipv4Addr::new(127, 255, 255, 255),
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(0, 0, 0, 1),
        Ipv4Addr::new(240, 0, 0, 1),
    ] {
        for operation in [Operation::Request, Operation::Reply] {
            let packet = Packet {
                sender_ip: ip,
                operation,
                ..good
            };
            assert!(!packet.sender_is_plausible(), "{ip}");
        }
    }
    // 0.0.0.0 asks in a probe (RFC 5227 §2.1.1), and never answers.
    let probe = Packet {
        sender_ip: Ipv4Addr::UNSPECIFIED,
        ..good
    };
    assert!(probe.sender_is_plausible());
    assert!(
        !Packet {
            operation: Operation::Reply,
            ..probe
        }
        .sender_is_plausible()
    );
}

/// A datagram of 20 + `options` + 8 bytes with a right checksum after `change`.
fn datagram(options: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; 20];
    let header = ipv4::Header::new(Protocol::UDP, HERE, THERE);
    assert_eq!(header.emit(8 + options.len(), &mut packet), 20);
    packet.extend(options);
    let header_len = packet.len();
    packet[0] = 0x40 | u8::try_from(header_len / 4).unwrap();
    packet.extend([0xdd; 8]);
    change(&mut packet);
    packet[10..12].fill(0);
    let covered = (usize::from(packet[0] & 0x0f) * 4).clamp(20, packet.len());
    let sum = checksum::checksum(&packet[..covered]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn negative_7_other_versions() {
    for version in [0, 1, 5, 6, 15] {
        let packet = datagram(&[], |p| p[0] = (version << 4) | 5);
        assert_eq!(
            ipv4::Header::parse(&packet),
            Err(Error::Version),
            "version {version}"
        );
    }
}

#[test]
fn negative_8_header_lengths() {
    for ihl in 0..5 {
        let packet = datagram(&[], |p| p[0] = 0x40 | ihl);
        assert_eq!(
            ipv4::Header::parse(&packet),
            Err(Error::Length),
            "IHL {ihl}"
        );
    }
    // 28 bytes in all: seven words are the whole datagram, eight are beyond it and the frame.
    assert!(ipv4::Header::parse(&datagram(&[], |p| p[0] = 0x47)).is_ok());
    for ihl in 8..16 {
        let packet = datagram(&[], |p| p[0] = 0x40 | ihl);
        assert_eq!(
            ipv4::Header::parse(&packet),
            Err(Error::Length),
            "IHL {ihl}"
        );
    }
    // Beyond the datagram, but inside the frame: the padding is no header.
    let mut padded = datagram(&[], |p| p[0] = 0x48);
    padded.extend([0; 40]);
    assert_eq!(ipv4::Header::parse(&padded), Err(Error::Length));
}

#[test]
fn negative_9_total_lengths() {
    for total in [0_u16, 1, 19, 29, 1000, 65_535] {
        let packet = datagram(&[], |p| p[2..4].copy_from_slice(&total.to_be_bytes()));
        assert_eq!(
            ipv4::Header::parse(&packet),
            Err(Error::Length),
            "total length {total}"
        );
    }
    let bare = datagram(&[], |p| p[2..4].copy_from_slice(&20_u16.to_be_bytes()));
    assert_eq!(ipv4::Header::parse(&bare).unwrap().payload(&bare), b"");
    // Ethernet pads to 46 bytes: the padding is not delivered.
    let mut padded = datagram(&[], |_| {});
    padded.resize(46, 0xee);
    let header = ipv4::Header::parse(&padded).unwrap();
    assert_eq!(header.payload(&padded), [0xdd; 8]);
}

#[test]
fn negative_10_bad_header_checksum() {
    let good = datagram(&[7, 7, 4, 0, 0, 0, 0, 0], |_| {});
    assert!(ipv4::Header::parse(&good).is_ok());
    for bit in 0..28 * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(ipv4::Header::parse(&bad).is_err(), "bit {bit} went unseen");
    }
    let mut payload = good;
    payload[30] ^= 1;
    assert!(
        ipv4::Header::parse(&payload).is_ok(),
        "the header's checksum covers the header"
    );
}

/// The verdict on an option area, through a whole datagram.
fn verdict(area: &[u8]) -> Result<Summary, Problem> {
    let packet = datagram(area, |_| {});
    let header = ipv4::Header::parse(&packet).unwrap();
    assert_eq!(header.options(&packet), area);
    assert_eq!(header.payload(&packet), [0xdd; 8]);
    options::check(header.options(&packet))
}

const fn wrong_at(pointer: u8) -> Result<Summary, Problem> {
    Err(Problem { pointer })
}

#[test]
fn negative_13_option_lengths_and_ends() {
    let fine = Ok(Summary::default());
    assert_eq!(verdict(&[]), fine);
    assert_eq!(verdict(&[1, 1, 1, 1]), fine, "no end, exactly full");
    assert_eq!(
        verdict(&[0, 0x99, 0x98, 0x97]),
        fine,
        "garbage behind the end is not looked at"
    );
    assert_eq!(verdict(&[99, 3, 0, 0]), fine, "unknown options are ignored");
    assert_eq!(verdict(&[99, 0, 0, 0]), wrong_at(21));
    assert_eq!(verdict(&[99, 1, 0, 0]), wrong_at(21));
    assert_eq!(verdict(&[99, 5, 0, 0]), wrong_at(21));
    assert_eq!(verdict(&[99, 255, 0, 0]), wrong_at(21));
    assert_eq!(
        verdict(&[1, 1, 1, 99]),
        wrong_at(23),
        "a type without a length"
    );
    assert_eq!(verdict(&[1, 99, 2, 99, 0, 0, 0, 0]), wrong_at(24));
    assert_eq!(
        verdict(&[148, 4, 0, 0]).map(|found| found.router_alert),
        Ok(true)
    );
    assert_eq!(verdict(&[148, 3, 0, 0]), wrong_at(21));
}

#[test]
fn negative_14_source_route_pointers() {
    // CVE-2019-12256: a pointer that leads out of the option.
    for kind in [131, 137, 7] {
        let route = |len, pointer| verdict(&[kind, len, pointer, 9, 9, 9, 9, 1]);
        for pointer in [0, 1, 3, 5, 6, 7, 9, 12, 255] {
            assert_eq!(
                route(7, pointer),
                wrong_at(22),
                "type {kind} pointer {pointer}"
            );
        }
        let source = kind != 7;
        let with_hops = Summary {
            source_route: source,
            route_unfinished: source,
            ..Summary::default()
        };
        let at_end = Summary {
            route_unfinished: false,
            ..with_hops
        };
        assert_eq!(route(7, 4), Ok(with_hops));
        assert_eq!(route(7, 8), Ok(at_end));
        assert_eq!(route(6, 4), wrong_at(21), "no whole address");
        assert_eq!(verdict(&[kind, 2, 1, 1]), wrong_at(21), "no pointer");
        assert_eq!(verdict(&[kind, 3, 4, 1]), Ok(at_end), "an empty route");
    }
    let two = [131, 3, 4, 1, 137, 3, 4, 1];
    assert_eq!(verdict(&two), wrong_at(24), "RFC 1122 §3.2.1.8 (c)");
}

#[test]
fn negative_15_record_route_and_timestamp_full() {
    let fine = Ok(Summary::default());
    let mut full = [9; 40];
    full[..3].copy_from_slice(&[7, 39, 40]);
    full[39] = 0;
    assert_eq!(verdict(&full), fine, "nine addresses, all taken");
    full[2] = 44;
    assert_eq!(verdict(&full), wrong_at(22));
    full[..4].copy_from_slice(&[68, 40, 41, 0xf0]);
    assert_eq!(
        verdict(&full),
        fine,
        "nine stamps taken, and 15 hosts had no room"
    );
    for pointer in [0, 1, 4, 6, 42, 45, 255] {
        full[2] = pointer;
        assert_eq!(verdict(&full), wrong_at(22), "pointer {pointer}");
    }
    full[2..4].copy_from_slice(&[5, 2]);
    assert_eq!(verdict(&full), wrong_at(23), "no such format");
    for format in [1, 3] {
        full[3] = format;
        full[2] = 13;
        assert_eq!(verdict(&full), fine);
        full[2] = 9;
        assert_eq!(
            verdict(&full),
            wrong_at(22),
            "inside a pair of address and stamp"
        );
    }
    assert_eq!(verdict(&[68, 3, 5, 1]), wrong_at(21));
    assert_eq!(verdict(&[68, 6, 5, 0, 1, 1, 1, 1]), wrong_at(21));
}

/// RFC 1122 §3.2.1.7: what has arrived here is not dropped for its TTL.
#[test]
fn negative_16_no_hops_left() {
    for ttl in [0, 1] {
        let packet = datagram(&[], |p| p[8] = ttl);
        assert_eq!(ipv4::Header::parse(&packet).unwrap().ttl, ttl);
    }
}
