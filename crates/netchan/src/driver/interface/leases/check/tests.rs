//! What an application may send, and what not.

use std::net::SocketAddr;

use percore::slab::Slab;
use proto::{
    ip::{
        address::{Address, Addresses},
        route,
    },
    wire::{checksum, ethernet::MacAddr, ipv6::extension::FragmentHeader},
};

use super::*;
use crate::{
    driver::network::InterfaceFacts,
    link::lease::{Binding, PortRange},
    packet::HEADROOM,
};

const OURS: &str = "10.0.0.2";
const THEIRS: &str = "192.0.2.1";
const OURS_V6: &str = "fd00::2";
const THEIRS_V6: &str = "2001:db8::1";

fn net() -> Network {
    let mut addresses = Addresses::new();
    for address in ["10.0.0.2/24", "fd00::2/64"] {
        addresses.add(address.parse::<Address>().unwrap()).unwrap();
    }
    Network {
        interfaces: vec![InterfaceFacts {
            name: "tap:nc0".into(),
            mac: MacAddr([2; 6]),
            mtu: 1500,
            mtu_max: 1500,
            segmentation: Segmentation::None,
            addresses,
            lender: None,
            pipes: None,
        }],
        loopback: None,
        routes: route::Table::new(),
    }
}

/// Cuts streams, and no datagrams.
const CUTS: Segmentation = Segmentation::Offloaded { datagrams: false };

/// With port 80 of TCP at one address, 53 of UDP at all, the identifier 7, and 40,000 to 40,015.
fn rights() -> Rights {
    let mut rights = Rights::default();
    let bind = |transport, address: &str| Binding {
        transport,
        address: address.parse::<SocketAddr>().unwrap(),
    };
    rights.ports.bind(&bind(Transport::Tcp, "10.0.0.2:80"));
    for any in ["0.0.0.0", "[::]"] {
        rights
            .ports
            .bind(&bind(Transport::Udp, &format!("{any}:53")));
        rights
            .ports
            .bind(&bind(Transport::Ping, &format!("{any}:7")));
    }
    rights.ports.add_ports(PortRange(40_000, 40_015));
    rights
}

/// An IP packet with a transport header from `port`.
fn packet(ends: (&str, &str), protocol: Protocol, port: u16, payload: usize) -> Vec<u8> {
    let mut upper = vec![0; if protocol == Protocol::TCP { 20 } else { 8 } + payload];
    upper[..2].copy_from_slice(&port.to_be_bytes());
    if protocol == Protocol::TCP {
        upper[12] = 5 << 4;
    }
    let (source, destination): (IpAddr, IpAddr) =
        (ends.0.parse().unwrap(), ends.1.parse().unwrap());
    let mut bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut bytes = vec![0; ipv4::HEADER_LEN];
            let header = ipv4::Header::new(protocol, source, destination);
            header.emit(upper.len(), &mut bytes);
            bytes
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut bytes = vec![0; ipv6::HEADER_LEN];
            let header = ipv6::Header::new(protocol, source, destination);
            header.emit(upper.len(), &mut bytes);
            bytes
        }
        _ => panic!("of two families"),
    };
    bytes.extend(upper);
    bytes
}

/// What *check* says of these bytes with so long segments.
fn check(
    rights: &mut Rights,
    bytes: &[u8],
    segment: u16,
    link: (usize, Segmentation),
) -> Result<usize, Refusal> {
    check_at(&net(), rights, bytes, segment, link)
}

/// The same of a lender with these networks.
fn check_at(
    net: &Network,
    rights: &mut Rights,
    bytes: &[u8],
    segment: u16,
    link: (usize, Segmentation),
) -> Result<usize, Refusal> {
    let mut slab = Slab::new(1, HEADROOM + 65_536).unwrap();
    let mut packet = Packet::new(slab.alloc().unwrap(), HEADROOM);
    packet.room_mut()[..bytes.len()].copy_from_slice(bytes);
    packet.set_len(bytes.len());
    packet.meta.segment = segment;
    rights.check(&mut packet, (net, 0), link)?;
    assert_eq!(packet.bytes(), &bytes[..packet.len()]);
    Ok(packet.len())
}

fn check_whole(bytes: &[u8]) -> Result<usize, Refusal> {
    check(&mut rights(), bytes, 0, (1500, Segmentation::None))
}

#[test]
fn a_lease_sends_from_its_ports() {
    let (v4, v6) = ((OURS, THEIRS), (OURS_V6, THEIRS_V6));
    let (tcp, udp) = (Protocol::TCP, Protocol::UDP);
    for (ends, protocol, port, may) in [
        (v4, tcp, 80, true),
        (v4, tcp, 81, false),
        (v4, udp, 80, false),
        (v6, tcp, 80, false),
        (v4, udp, 53, true),
        (v6, udp, 53, true),
        (v6, tcp, 53, false),
        (v4, tcp, 40_000, true),
        (v6, udp, 40_015, true),
        (v4, tcp, 40_016, false),
        (v4, tcp, 39_999, false),
    ] {
        let bytes = packet(ends, protocol, port, 100);
        let expected = may.then_some(bytes.len()).ok_or(Refusal::Port);
        assert_eq!(
            check_whole(&bytes),
            expected,
            "{ends:?} {protocol:?} {port}"
        );
    }
}

#[test]
fn only_our_addresses_are_sources() {
    for source in [
        THEIRS,
        "127.0.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "10.0.0.3",
    ] {
        let bytes = packet((source, THEIRS), Protocol::TCP, 80, 0);
        assert_eq!(check_whole(&bytes), Err(Refusal::Source), "{source}");
    }
    for source in [THEIRS_V6, "::1", "::", "ff02::1", "fd00::3"] {
        let bytes = packet((source, THEIRS_V6), Protocol::UDP, 53, 0);
        assert_eq!(check_whole(&bytes), Err(Refusal::Source), "{source}");
    }
}

/// What is from a loopback address goes to an address of this host, if the lease shares these; nothing goes to one that is not lent.
#[test]
fn loopback_addresses_stay_on_this_host() {
    let kernels = net();
    let lending = Network {
        loopback: Some(0),
        ..net()
    };
    let mut own = net(); // it has them for itself
    let mut lo = own.interfaces[0].clone();
    lo.addresses = Addresses::new();
    lo.addresses.add("127.0.0.1/8".parse().unwrap()).unwrap();
    own.interfaces.push(lo);
    own.loopback = Some(1);
    let (may, source, destination) = (Ok(()), Err(Refusal::Source), Err(Refusal::Destination));
    let v4 = [
        ("127.0.0.1", "127.0.0.1", may, source),
        ("127.7.7.7", "127.0.0.2", may, source),
        ("127.0.0.1", OURS, may, source),
        (OURS, "127.0.0.1", may, may),
        ("127.0.0.1", THEIRS, source, source),
        ("127.0.0.1", "10.0.0.3", source, source),
        ("127.0.0.1", "224.0.0.1", source, source),
        ("127.0.0.1", "255.255.255.255", source, source),
        (THEIRS, "127.0.0.1", source, source),
    ];
    let v6 = [
        ("::1", "::1", may, source),
        (OURS_V6, "::1", may, may),
        ("::1", THEIRS_V6, source, source),
        ("::1", "ff02::1", source, source),
        (THEIRS_V6, "::1", source, source),
    ];
    for (from, to, shared, apart) in v4.into_iter().chain(v6) {
        let bytes = packet((from, to), Protocol::UDP, 53, 10);
        let wire = (1500, Segmentation::None);
        for (net, shares, expected) in [(&lending, true, shared), (&lending, false, apart)] {
            let mut rights = rights();
            if shares {
                rights.ports.share_loopback();
            }
            let said = check_at(net, &mut rights, &bytes, 0, wire).map(|_| ());
            assert_eq!(said, expected, "{from} to {to}, shares them: {shares}");
        }
        for net in [&kernels, &own] {
            let expected = if apart == may { destination } else { source };
            let said = check_at(net, &mut rights(), &bytes, 0, wire).map(|_| ());
            assert_eq!(said, expected, "{from} to {to}, not lent");
        }
    }
    // A port is the lease's there as elsewhere.
    let mut rights = rights();
    rights.ports.share_loopback();
    let wire = (1500, Segmentation::None);
    for port in [54, 80] {
        let bytes = packet(("127.0.0.1", "127.0.0.1"), Protocol::TCP, port, 10);
        let said = check_at(&lending, &mut rights, &bytes, 0, wire);
        assert_eq!(said, Err(Refusal::Port), "{port}, at another address");
    }
}

/// Copies for members on this host are of what is for many; and that is UDP's, or of a protocol that was given.
#[test]
fn what_is_for_many_is_known_as_such() {
    let one = Ok(Cast::One);
    let many = |hops| Ok(Cast::Many { hops });
    let wrong = Err(Refusal::Destination);
    let (udp, tcp) = (Protocol::UDP, Protocol::TCP);
    for (ends, protocol, port, said, with_copies) in [
        ((OURS, THEIRS), udp, 53, one, wrong),
        ((OURS, OURS), udp, 53, one, wrong),
        ((OURS_V6, THEIRS_V6), udp, 53, one, wrong),
        ((OURS, THEIRS), tcp, 80, one, wrong),
        ((OURS, "239.1.2.3"), udp, 53, many(64), many(64)),
        ((OURS_V6, "ff02::fb"), udp, 53, many(64), many(64)),
        ((OURS, "239.1.2.3"), Protocol(253), 0, many(64), many(64)),
        ((OURS, "239.1.2.3"), tcp, 80, wrong, wrong),
        ((OURS_V6, "ff02::fb"), tcp, 40_000, wrong, wrong),
        // Without copies a broadcast goes as any packet.
        ((OURS, "10.0.0.255"), udp, 53, one, many(64)),
        ((OURS, "255.255.255.255"), udp, 53, one, many(64)),
        ((OURS, "10.0.0.255"), tcp, 80, one, wrong),
        (
            (OURS, "239.1.2.3"),
            udp,
            80,
            Err(Refusal::Port),
            Err(Refusal::Port),
        ),
    ] {
        let bytes = packet(ends, protocol, port, 10);
        for (loops, expected) in [(false, said), (true, with_copies)] {
            let mut rights = rights();
            rights.protocols.insert(PacketProtocol::Ip(253));
            let mut slab = Slab::new(1, HEADROOM + 2048).unwrap();
            let mut packet = Packet::new(slab.alloc().unwrap(), HEADROOM);
            packet.room_mut()[..bytes.len()].copy_from_slice(&bytes);
            packet.set_len(bytes.len());
            packet.meta.to_group = loops.into();
            let link = (1500, Segmentation::None);
            let cast = rights.check(&mut packet, (&net(), 0), link);
            assert_eq!(cast, expected, "{ends:?} {protocol:?} {loops}");
        }
    }
    // Nothing is cut for a group: its members here get whole datagrams.
    let bytes = packet((OURS, "239.1.2.3"), udp, 53, 3000);
    let all = Segmentation::Offloaded { datagrams: true };
    let cut = check(&mut rights(), &bytes, 1000, (1500, all));
    assert_eq!(cut, Err(Refusal::Length));
}

/// An echo message of this type and code.
fn echo(ends: (&str, &str), protocol: Protocol, (kind, code): (u8, u8), ident: u16) -> Vec<u8> {
    let mut bytes = packet(ends, protocol, 0, 32);
    let at = bytes.len() - 40;
    bytes[at..at + 2].copy_from_slice(&[kind, code]);
    bytes[at + 4..at + 6].copy_from_slice(&ident.to_be_bytes());
    bytes
}

#[test]
fn a_lease_asks_for_echoes_by_its_identifiers() {
    let (v4, v6) = ((OURS, THEIRS), (OURS_V6, THEIRS_V6));
    let (icmp, icmpv6) = (Protocol::ICMP, Protocol::ICMPV6);
    let (port, protocol) = (Err(Refusal::Port), Err(Refusal::Protocol));
    for (ends, of, kind, ident, expected) in [
        (v4, icmp, (8, 0), 7, Ok(())),
        (v4, icmp, (8, 0), 40_000, Ok(())),
        (v4, icmp, (8, 0), 80, port),
        (v4, icmp, (8, 0), 53, port),
        (v4, icmp, (8, 1), 7, protocol),
        (v4, icmp, (0, 0), 7, protocol),
        (v4, icmp, (128, 0), 7, protocol),
        (v4, icmpv6, (128, 0), 7, protocol),
        (v6, icmpv6, (128, 0), 7, Ok(())),
        (v6, icmpv6, (128, 0), 40_015, Ok(())),
        (v6, icmpv6, (128, 0), 8, port),
        (v6, icmpv6, (129, 0), 7, protocol),
        (v6, icmpv6, (134, 0), 7, protocol),
    ] {
        let bytes = echo(ends, of, kind, ident);
        let may = check_whole(&bytes).map(|_| ());
        assert_eq!(may, expected, "{of:?} {kind:?} {ident}");
    }
    let bytes = echo(v4, icmp, (8, 0), 7);
    let segment = check(&mut rights(), &bytes, 64, (1500, CUTS));
    assert_eq!(segment, Err(Refusal::Length), "nothing cuts it");
    for cut in 1..=40 {
        assert_eq!(
            check_whole(&bytes[..bytes.len() - cut]),
            Err(Refusal::Header)
        );
    }
}

#[test]
fn packets_of_a_protocol_that_was_given_pass() {
    let mut rights = rights();
    rights.protocols.insert(PacketProtocol::Ip(253));
    let mut check =
        |bytes: &[u8], segment| check(&mut rights, bytes, segment, (1500, CUTS)).map(|_| ());
    for ends in [(OURS, THEIRS), (OURS_V6, THEIRS_V6)] {
        for (protocol, segment, expected) in [
            (253, 0, Ok(())),
            (253, 100, Err(Refusal::Length)),
            (254, 0, Err(Refusal::Protocol)),
            (59, 0, Err(Refusal::Protocol)),
        ] {
            let bytes = packet(ends, Protocol(protocol), 0, 300);
            assert_eq!(check(&bytes, segment), expected, "{ends:?} {protocol}");
        }
        let long = packet(ends, Protocol(253), 0, 2000);
        assert_eq!(check(&long, 0), Err(Refusal::Length));
    }
    let foreign = packet((THEIRS, THEIRS), Protocol(253), 0, 0);
    assert_eq!(check(&foreign, 0), Err(Refusal::Source));
}

/// What *check* says of a frame with this header and so much behind it: where it goes, and its type.
fn check_frame(
    header: &ethernet::Header,
    payload: usize,
    cut: usize,
) -> Result<(MacAddr, EtherType), Refusal> {
    let mut rights = rights();
    rights.protocols.insert(PacketProtocol::EtherType(0x88b5));
    rights.protocols.insert(PacketProtocol::Ip(253));
    let mut slab = Slab::new(1, HEADROOM + 65_536).unwrap();
    let mut frame = Packet::new(slab.alloc().unwrap(), HEADROOM);
    let len = header.len() + payload;
    header.emit(frame.room_mut());
    frame.set_len(len - cut);
    let passed = rights.check_frame(&mut frame, MacAddr([2; 6]), 1500)?;
    assert_eq!(frame.len(), payload - cut, "the header is off");
    assert!(frame.push(ethernet::HEADER_LEN).is_some());
    Ok(passed)
}

#[test]
fn frames_of_an_ethertype_that_was_given_pass() {
    let (ours, kind) = (MacAddr([2; 6]), EtherType(0x88b5));
    let header = |to, from, kind| ethernet::Header::new(to, from, kind);
    for to in [
        MacAddr([2, 0, 0, 0, 0, 9]),
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0x5e, 0, 0, 1]),
        ours,
    ] {
        for payload in [0, 1, 1500] {
            let checked = check_frame(&header(to, ours, kind), payload, 0);
            assert_eq!(checked, Ok((to, kind)), "{to} {payload}");
        }
        let long = check_frame(&header(to, ours, kind), 1501, 0);
        assert_eq!(long, Err(Refusal::Length));
        for from in [
            to.0.map(|byte| byte ^ 1),
            [0; 6],
            [0xff; 6],
            [2, 2, 2, 2, 2, 3],
        ] {
            let forged = check_frame(&header(to, MacAddr(from), kind), 60, 0);
            assert_eq!(forged, Err(Refusal::Source), "{from:?}");
        }
        for other in [
            EtherType(0x88b6),
            EtherType(0x0600),
            EtherType(0xffff),
            EtherType::ARP,
            EtherType::IPV4,
            EtherType::IPV6,
            EtherType(46),
            EtherType(253),
        ] {
            let checked = check_frame(&header(to, ours, other), 300, 0);
            assert_eq!(checked, Err(Refusal::Protocol), "{other:?}");
        }
        let undefined = check_frame(&header(to, ours, EtherType(1501)), 60, 0);
        assert_eq!(undefined, Err(Refusal::Header));
        let tag = Some(ethernet::Tag::new(0));
        for (vlan, service) in [(tag, None), (None, tag), (tag, tag)] {
            let tagged = ethernet::Header {
                vlan,
                service,
                ..header(to, ours, kind)
            };
            assert_eq!(check_frame(&tagged, 60, 0), Err(Refusal::Header));
        }
        for cut in 1..=ethernet::HEADER_LEN {
            let checked = check_frame(&header(to, ours, kind), 0, cut);
            assert_eq!(checked, Err(Refusal::Header), "cut by {cut}");
        }
    }
    // Without a right there is none.
    let mut slab = Slab::new(1, HEADROOM + 64).unwrap();
    let mut frame = Packet::new(slab.alloc().unwrap(), HEADROOM);
    header(MacAddr::BROADCAST, ours, kind).emit(frame.room_mut());
    frame.set_len(60);
    let none = Rights::default().check_frame(&mut frame, ours, 1500);
    assert_eq!(none, Err(Refusal::Protocol));
}

#[test]
fn only_tcp_udp_and_requests_for_echoes_pass() {
    for protocol in (0..=255).map(Protocol) {
        if matches!(protocol, Protocol::TCP | Protocol::UDP) {
            continue;
        }
        let bytes = packet((OURS, THEIRS), protocol, 53, 64);
        assert_eq!(check_whole(&bytes), Err(Refusal::Protocol), "{protocol:?}");
        let bytes = packet((OURS_V6, THEIRS_V6), protocol, 53, 64);
        assert!(check_whole(&bytes).is_err(), "{protocol:?}");
    }
}

#[test]
fn what_follows_the_packet_is_cut_off() {
    let bytes = packet((OURS, THEIRS), Protocol::TCP, 80, 10);
    let mut longer = bytes.clone();
    longer.extend([7; 100]);
    assert_eq!(check_whole(&longer), Ok(bytes.len()));
    let bytes = packet((OURS_V6, THEIRS_V6), Protocol::UDP, 53, 10);
    let mut longer = bytes.clone();
    longer.extend([7; 100]);
    assert_eq!(check_whole(&longer), Ok(bytes.len()));
}

#[test]
fn broken_headers_are_refused() {
    for bytes in [
        packet((OURS, THEIRS), Protocol::TCP, 80, 10),
        packet((OURS_V6, THEIRS_V6), Protocol::UDP, 53, 10),
    ] {
        for cut in 0..bytes.len() {
            assert!(check_whole(&bytes[..cut]).is_err(), "cut to {cut}");
        }
        for version in (0..16).filter(|v| ![4, 6].contains(v)) {
            let mut other = bytes.clone();
            other[0] = version << 4 | other[0] & 15;
            assert_eq!(check_whole(&other), Err(Refusal::Header));
        }
    }
    let mut checksum = packet((OURS, THEIRS), Protocol::TCP, 80, 10);
    checksum[10] ^= 1;
    assert_eq!(check_whole(&checksum), Err(Refusal::Header));
    let mut no_header = packet((OURS, THEIRS), Protocol::TCP, 80, 10);
    no_header[20 + 12] = 4 << 4;
    assert_eq!(check_whole(&no_header), Err(Refusal::Header));
    no_header[20 + 12] = 15 << 4;
    assert_eq!(
        check_whole(&no_header),
        Err(Refusal::Header),
        "a header longer than the segment"
    );
}

#[test]
fn options_are_refused() {
    let mut bytes = packet((OURS, THEIRS), Protocol::TCP, 80, 40);
    bytes[0] = 0x46;
    bytes[10..12].fill(0);
    let sum = checksum::checksum(&bytes[..24]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(check_whole(&bytes), Err(Refusal::Header));
}

#[test]
fn long_packets_are_for_links_that_cut_them() {
    let long = packet((OURS, THEIRS), Protocol::TCP, 80, 20_000);
    let check = |segment, link| check(&mut rights(), &long, segment, link);
    assert_eq!(check(0, (1500, CUTS)), Err(Refusal::Length));
    assert_eq!(
        check(1460, (1500, Segmentation::None)),
        Err(Refusal::Length)
    );
    assert_eq!(check(1460, (1500, CUTS)), Ok(long.len()));
    assert_eq!(check(1500, (1500, CUTS)), Err(Refusal::Length));
    assert_eq!(check(63, (1500, CUTS)), Err(Refusal::Length));
    assert_eq!(check(64, (1500, CUTS)), Ok(long.len()));
    assert_eq!(check(1460, (1500, Segmentation::Carried)), Ok(long.len()));
    let many = packet((OURS, THEIRS), Protocol::UDP, 53, 20_000);
    for (segmentation, expected) in [
        (CUTS, Err(Refusal::Length)),
        (Segmentation::Carried, Err(Refusal::Length)),
        (Segmentation::Offloaded { datagrams: true }, Ok(many.len())),
    ] {
        let said = super::tests::check(&mut rights(), &many, 1460, (1500, segmentation));
        assert_eq!(said, expected, "{segmentation:?}");
    }
}

/// A fragment of a datagram from port 53, or from `port` where it is the first.
fn fragment(v6: bool, ident: u8, offset: u8, port: u16) -> Vec<u8> {
    let ends = if v6 {
        (OURS_V6, THEIRS_V6)
    } else {
        (OURS, THEIRS)
    };
    let mut bytes = packet(ends, Protocol::UDP, port, 64);
    if v6 {
        let header = FragmentHeader {
            next_header: Protocol::UDP,
            offset: u16::from(offset) * 8,
            more: true,
            ident: ident.into(),
        };
        let mut between = [0; FRAGMENT_HEADER_LEN];
        header.emit(&mut between);
        bytes.splice(ipv6::HEADER_LEN..ipv6::HEADER_LEN, between);
        bytes[6] = 44;
        let len = u16::try_from(bytes.len() - ipv6::HEADER_LEN).unwrap();
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        return bytes;
    }
    bytes[4..8].copy_from_slice(&[0, ident, 0x20, offset]);
    bytes[10..12].fill(0);
    let sum = checksum::checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn fragments_follow_a_first_one_that_passed() {
    for v6 in [false, true] {
        let mut rights = rights();
        let mut check =
            |bytes: &[u8]| check(&mut rights, bytes, 0, (1500, Segmentation::None)).map(|_| ());
        assert_eq!(check(&fragment(v6, 1, 9, 53)), Err(Refusal::Fragment));
        assert_eq!(check(&fragment(v6, 1, 0, 54)), Err(Refusal::Port));
        assert_eq!(check(&fragment(v6, 1, 9, 53)), Err(Refusal::Fragment));
        assert_eq!(check(&fragment(v6, 1, 0, 53)), Ok(()));
        assert_eq!(check(&fragment(v6, 1, 9, 7)), Ok(()));
        assert_eq!(check(&fragment(v6, 2, 9, 53)), Err(Refusal::Fragment));
        // A few datagrams are known at a time, and no more.
        for ident in 10..10 + u8::try_from(limits::LEASE_FRAGMENTED).unwrap() {
            assert_eq!(check(&fragment(v6, ident, 0, 53)), Ok(()));
        }
        assert_eq!(check(&fragment(v6, 1, 9, 53)), Err(Refusal::Fragment));
        assert_eq!(check(&fragment(v6, 10, 9, 53)), Ok(()));
    }
}
