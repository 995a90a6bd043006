//! One function for each parser: whatever the bytes, it neither panics nor contradicts itself.
//! The tests of hostile input and the fuzz targets both run these.
#![allow(dead_code)] // each user runs its part

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::wire::checksum;
use proto::wire::ethernet::EtherType;
use proto::wire::ipv6::extension::{Problem, Upper, walk, walk_reassembled};
use proto::wire::membership::{Message, Version};
use proto::wire::ndp::options::{Opt, Options};
use proto::wire::quote::Quote;
use proto::wire::tcp::{self, Flags, SackBlocks};
use proto::wire::{
    Error, Protocol, arp, ethernet, icmpv4, icmpv6, igmp, ipv4, ipv6, mld, ndp, udp,
};

/// All of them.
pub fn everything(bytes: &[u8]) {
    sums(bytes);
    ethernet(bytes);
    arp(bytes);
    ipv4(bytes);
    ipv4_options(bytes);
    ipv6(bytes);
    extensions(bytes);
    quote(bytes);
    icmpv4(bytes);
    icmpv6(bytes);
    ndp(bytes);
    membership(bytes);
    udp(bytes);
    tcp(bytes);
}

/// Both ways to sum agree, wherever the bytes are cut.
pub fn sums(bytes: &[u8]) {
    let sum = checksum::checksum(bytes);
    let mut copy = vec![0; bytes.len()];
    assert_eq!(
        checksum::finish(checksum::copy_and_sum(bytes, &mut copy)),
        sum
    );
    assert_eq!(copy, bytes);
    let cut = bytes
        .first()
        .map_or(0, |cut| usize::from(*cut) % (bytes.len() + 1));
    let (head, tail) = bytes.split_at(cut);
    let both = checksum::combine(checksum::sum(head), cut, checksum::sum(tail));
    assert_eq!(checksum::finish(both), sum);
}

/// IGMP and MLD: what passes says only what its rules allow.
pub fn membership(bytes: &[u8]) {
    if let Ok(header) = ipv4::Header::parse(bytes) {
        heard(&igmp::parse(&header, bytes), true);
    }
    // The bytes as a message whose header and checksum are right, so that more than the checksum is tried.
    let mut packet = vec![0; igmp::IP_HEADER + 8];
    igmp::emit_leave(Ipv4Addr::new(10, 0, 0, 1), igmp::ALL_SYSTEMS, &mut packet);
    packet.truncate(igmp::IP_HEADER);
    packet.extend_from_slice(bytes);
    if let (8.., Ok(len)) = (bytes.len(), u16::try_from(packet.len())) {
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[19] = 1; // to all systems
        for (from, to, field) in [(0, 24, 10), (24, packet.len(), 26)] {
            packet[field..field + 2].fill(0);
            let sum = checksum::checksum(&packet[from..to]).to_be_bytes();
            packet[field..field + 2].copy_from_slice(&sum);
        }
        let header = ipv4::Header::parse(&packet).unwrap();
        heard(&igmp::parse(&header, &packet), true);
    }
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let mut header = ipv6::Header::new(Protocol::ICMPV6, from, mld::ALL_NODES);
    header.hop_limit = 1;
    if bytes.len() >= 8 {
        let mut message = bytes.to_vec();
        message[2..4].fill(0);
        let len = u32::try_from(message.len()).unwrap();
        let pseudo = checksum::pseudo_header_v6(from, mld::ALL_NODES, Protocol::ICMPV6, len);
        let sum = checksum::finish(pseudo + checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        heard(&mld::parse(&header, &message, true), false);
        assert!(
            mld::parse(&header, &message, false).is_err(),
            "no router alert"
        );
    }
}

fn heard(message: &Result<Message<'_>, Error>, v4: bool) {
    match message {
        Ok(Message::Query(query)) => {
            assert!(
                query
                    .group
                    .is_none_or(|g| g.is_multicast() && g.is_ipv4() == v4)
            );
            assert!(query.group.is_some() || query.sources.is_empty());
            assert!(v4 || query.version > Version::First);
            assert!(query.robustness < 8);
            assert!(query.sources.iter().all(|source| source.is_ipv4() == v4));
            assert_eq!(query.sources.iter().count() == 0, query.sources.is_empty());
        }
        Ok(Message::Report(group)) => assert!(group.is_multicast() && group.is_ipv4() == v4),
        Ok(Message::ForRouters) | Err(_) => {}
    }
}

pub fn ethernet(frame: &[u8]) {
    if let Ok((header, len)) = ethernet::Header::parse(frame) {
        assert!(len == header.len() && len <= frame.len());
        let mut again = frame.to_vec();
        assert_eq!(header.emit(&mut again), len);
        assert_eq!(ethernet::Header::parse(&again), Ok((header, len)));
        if header.ethertype.is_length() {
            assert!(usize::from(header.ethertype.0) <= frame.len() - len);
        }
    }
}

/// The way of a frame through the parsers, each layer on what the one below calls its payload.
pub fn frame(frame: &[u8]) {
    ethernet(frame);
    let Ok((link, at)) = ethernet::Header::parse(frame) else {
        return;
    };
    let packet = &frame[at..];
    match link.ethertype {
        EtherType::ARP => arp(packet),
        EtherType::IPV4 => {
            ipv4(packet);
            if let Ok(header) = ipv4::Header::parse(packet) {
                upper(header.protocol, header.payload(packet));
            }
        }
        EtherType::IPV6 => {
            ipv6(packet);
            let Ok(header) = ipv6::Header::parse(packet) else {
                return;
            };
            let payload = header.payload(packet);
            extensions(&[&[header.next_header.0], payload].concat());
            if let Ok(found) = walk(header.next_header, payload) {
                upper(found.protocol, &payload[found.offset..]);
            }
        }
        _ => {}
    }
}

fn upper(protocol: Protocol, payload: &[u8]) {
    match protocol {
        Protocol::ICMP => icmpv4(payload),
        Protocol::ICMPV6 => {
            icmpv6(payload);
            ndp(payload);
        }
        Protocol::UDP => udp(payload),
        Protocol::TCP => tcp(payload),
        _ => {}
    }
}

pub fn arp(bytes: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(bytes) {
        let mut again = [0; arp::LEN];
        assert_eq!(packet.emit(&mut again), arp::LEN);
        assert_eq!(again, bytes[..arp::LEN]);
        let _ = packet.sender_is_plausible();
    }
}

/// The bytes as they are, and with a right header checksum.
pub fn ipv4(packet: &[u8]) {
    ipv4_once(packet);
    let mut whole = packet.to_vec();
    let header_len = packet
        .first()
        .map_or(0, |first| usize::from(first & 0x0f) * 4);
    if whole.len() >= 20 && header_len <= whole.len() {
        whole[10..12].fill(0);
        let sum = checksum::checksum(&whole[..header_len.max(20)]);
        whole[10..12].copy_from_slice(&sum.to_be_bytes());
        ipv4_once(&whole);
    }
}

fn ipv4_once(packet: &[u8]) {
    let Ok(header) = ipv4::Header::parse(packet) else {
        return;
    };
    let range = header.payload_range();
    assert!(20 <= range.start && range.start <= range.end && range.end <= packet.len());
    assert_eq!(header.payload(packet), &packet[range.clone()]);
    assert_eq!(header.options(packet), &packet[20..range.start]);
    ipv4_options(header.options(packet));
    let mut again = packet.to_vec();
    assert_eq!(header.emit(range.len(), &mut again), 20);
    if range.start == 20 {
        assert_eq!(ipv4::Header::parse(&again), Ok(header));
    }
}

pub fn ipv4_options(area: &[u8]) {
    let area = area.get(..40).unwrap_or(area);
    let mut end = 0;
    for (count, option) in ipv4::options::iter(area).enumerate() {
        assert!(count < 40, "options without end");
        match option {
            Ok(option) => {
                let start = usize::from(option.pointer) - 20;
                assert!(start >= end, "options overlap");
                assert_eq!(option.kind, area[start]);
                end = start + 2 + option.data.len();
                assert!(end <= area.len());
            }
            Err(problem) => assert!(usize::from(problem.pointer) < 20 + area.len()),
        }
    }
    if let Err(problem) = ipv4::options::check(area) {
        assert!(usize::from(problem.pointer) < 20 + area.len() + 1);
    }
}

pub fn ipv6(packet: &[u8]) {
    let Ok(header) = ipv6::Header::parse(packet) else {
        return;
    };
    let payload = header.payload(packet);
    assert_eq!(payload.len(), usize::from(header.payload_len));
    let mut again = [0; 40];
    assert_eq!(header.emit(payload.len(), &mut again), 40);
    assert_eq!(again, packet[..40]);
}

/// The first byte is the next header, the rest the payload.
pub fn extensions(bytes: &[u8]) {
    let Some((next, payload)) = bytes.split_first() else {
        return;
    };
    for (whole, result) in [
        (false, walk(Protocol(*next), payload)),
        (true, walk_reassembled(Protocol(*next), payload)),
    ] {
        match result {
            Ok(upper) => check_upper(&upper, payload, whole),
            Err(Problem::Parameter { code, pointer, .. }) => {
                assert!(code <= 3);
                assert!(pointer == 0 || (pointer as usize) < 40 + payload.len());
            }
            Err(Problem::Drop(_)) => {}
        }
    }
}

fn check_upper(upper: &Upper, payload: &[u8], whole: bool) {
    assert!(upper.offset <= payload.len());
    assert!(upper.fragment.is_some() || upper.protocol != Protocol::NO_NEXT_HEADER);
    if upper.offset == 0 {
        assert_eq!(upper.protocol_pointer, 6);
    } else {
        let at = upper.protocol_pointer as usize - 40;
        assert_eq!(
            payload[at], upper.protocol.0,
            "the pointer names another protocol"
        );
    }
    if let Some(fragment) = upper.fragment {
        let data = payload.len() - upper.offset;
        assert!(!whole && upper.fragmented && !fragment.is_atomic());
        assert!(data > 0 && usize::from(fragment.offset) + data <= 65_535);
        assert!(!fragment.more || data.is_multiple_of(8));
    }
}

pub fn quote(bytes: &[u8]) {
    for quote in [Quote::parse_v4(bytes), Quote::parse_v6(bytes)]
        .into_iter()
        .flatten()
    {
        assert!(quote.upper.len() <= bytes.len() - 20);
        assert_eq!(quote.source.is_ipv4(), quote.destination.is_ipv4());
        let _ = (quote.ports(), quote.tcp_seq());
    }
}

/// The bytes as they are, and with a right checksum.
pub fn icmpv4(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    if whole.len() >= 4 {
        whole[2..4].fill(0);
        let sum = checksum::checksum(&whole);
        whole[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    for bytes in [bytes, &whole] {
        let Ok((message, payload)) = icmpv4::Message::parse(bytes) else {
            continue;
        };
        assert!(payload.len() <= bytes.len() - 8);
        let _ = (message.is_error(), Quote::parse_v4(payload));
        let mut again = vec![0; bytes.len()];
        assert_eq!(message.emit(payload, &mut again), 8 + payload.len());
        let emitted = &again[..8 + payload.len()];
        assert_eq!(icmpv4::Message::parse(emitted), Ok((message, payload)));
    }
}

/// Addresses that the bytes choose, so that a mutation can reach every rule about them.
fn addresses(bytes: &[u8]) -> (Ipv6Addr, Ipv6Addr) {
    let some = |at: usize| match bytes.get(at).map_or(0, |byte| byte % 5) {
        0 => Ipv6Addr::UNSPECIFIED,
        1 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 7),
        2 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        3 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7),
    };
    (some(2), some(3))
}

/// The bytes with a right checksum for these addresses.
fn with_sum_v6(source: Ipv6Addr, destination: Ipv6Addr, bytes: &[u8]) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    if let (Some(_), Ok(len)) = (whole.get(3), u32::try_from(bytes.len())) {
        whole[2..4].fill(0);
        let pseudo = checksum::pseudo_header_v6(source, destination, Protocol::ICMPV6, len);
        let sum = checksum::finish(pseudo + checksum::sum(&whole));
        whole[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    whole
}

pub fn icmpv6(bytes: &[u8]) {
    let (from, to) = addresses(bytes);
    let whole = with_sum_v6(from, to, bytes);
    for bytes in [bytes, &whole] {
        let Ok((message, payload)) = icmpv6::Message::parse(from, to, bytes) else {
            continue;
        };
        assert!(payload.len() <= bytes.len() - 8);
        let _ = (message.is_error(), Quote::parse_v6(payload));
        let mut again = vec![0; bytes.len()];
        let len = message.emit(from, to, payload, &mut again);
        if message != icmpv6::Message::NeighborDiscovery {
            assert_eq!(
                icmpv6::Message::parse(from, to, &again[..len]),
                Ok((message, payload))
            );
        }
    }
}

pub fn ndp(bytes: &[u8]) {
    let (from, to) = addresses(bytes);
    if let Ok(options) = Options::parse(bytes) {
        check_options(&options);
    }
    let Ok(message) = ndp::Message::parse(from, to, 255, bytes) else {
        return;
    };
    assert_eq!(ndp::Message::parse(from, to, 64, bytes), Err(Error::Value));
    let mut again = vec![0; bytes.len() + 16];
    let len = message.emit(from, to, &mut again);
    // An empty quote is not sent, unknown options are not kept; but what is said stays said.
    assert!(len >= 8);
    assert_eq!(
        ndp::Message::parse(from, to, 255, &again[..len]),
        Ok(message)
    );
    if let ndp::Message::RouterAdvertisement(advertisement) = message {
        check_options(&advertisement.options);
    }
}

fn check_options(options: &Options<'_>) {
    let len = options.as_bytes().len();
    assert_eq!(len % 8, 0);
    assert!(options.iter().count() <= len / 8, "options without end");
    for option in options.iter() {
        let mut buf = [0; 2048];
        let written = option.emit(&mut buf);
        match option {
            Opt::Malformed { .. } => assert_eq!(written, 0),
            _ => assert!(Options::parse(&buf[..written]).unwrap().iter().eq([option])),
        }
    }
}

pub fn udp(datagram: &[u8]) {
    let Ok(header) = udp::Header::parse(datagram) else {
        return;
    };
    let payload = header.payload(datagram);
    assert_eq!(payload.len() + 8, usize::from(header.length));
    let addresses = [
        (
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V4(Ipv4Addr::BROADCAST),
        ),
        (
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ),
    ];
    for (from, to) in addresses {
        let _ = header.verify(from, to, datagram);
        let mut again = datagram.to_vec();
        let sum = checksum::sum(payload);
        assert_eq!(header.emit(from, to, sum, payload.len(), &mut again), 8);
        let parsed = udp::Header::parse(&again).unwrap();
        assert!(parsed.checksum != 0 && parsed.verify(from, to, &again));
    }
}

/// Others may pack their options closer than we do: of SACK blocks what fits is sent (RFC 2018 §3), and the AccECN option gives way to all others
/// (RFC 9768 §3.2.3.3).
fn as_sent(header: &mut tcp::Header) {
    let options = &mut header.options;
    let stamps = if options.timestamps.is_some() { 12 } else { 0 };
    let timeout = if options.user_timeout == 0 { 0 } else { 4 };
    let mut sack = SackBlocks::NONE;
    for (left, right) in (options.sack.as_slice().iter()).take((36 - stamps - timeout) / 8) {
        sack.push(*left, *right);
    }
    options.sack = sack;
    let syn = header.flags.contains(Flags::SYN);
    if let Some(counters) = options.accecn {
        options.accecn = None;
        let room = 40 - options.len(syn);
        if usize::from(2 + 3 * counters.len) <= room {
            options.accecn = Some(counters);
        }
    }
}

pub fn tcp(segment: &[u8]) {
    let (a, b) = (
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    );
    for (from, to) in [(a, a), (b, b), (a, b)] {
        let _ = tcp::verify_checksum(from, to, segment);
    }
    let Ok((mut header, len)) = tcp::Header::parse(segment) else {
        return;
    };
    assert!((20..=60).contains(&len) && len % 4 == 0 && len <= segment.len());
    if header.flags.contains(Flags::SYN) {
        // Taken where they stand, not sent: there are no blocks before there is a connection.
        header.options.sack = SackBlocks::NONE;
    }
    as_sent(&mut header);
    let mut again = [0; 60];
    let written = header.emit(&mut again);
    assert!(written > 0);
    assert_eq!(tcp::Header::parse(&again[..written]), Ok((header, written)));
}
