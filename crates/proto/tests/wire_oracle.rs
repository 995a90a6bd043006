//! smoltcp's wire layer as the oracle: the same bytes, the same verdict, the same fields.
//!
//! Where the two differ on purpose, the test says where; everywhere else a difference fails.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proto::wire::checksum;
use proto::wire::tcp::{Flags, Header, SeqNum};
use proto::wire::{Protocol, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp, udp};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as peer;

mod wire_common;
use wire_common::{
    arp_packet, bytes, discovery, icmpv4_message, icmpv6_message, ipv4_header, ipv6_header,
    tcp_header, udp_header, v4, v6,
};

fn caps() -> ChecksumCapabilities {
    ChecksumCapabilities::default()
}

/// A few changed bytes: where, and to what.
type Changes = Vec<(prop::sample::Index, u8)>;

fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
}

fn apply(packet: &mut [u8], changes: &Changes) {
    for (at, value) in changes {
        let at = at.index(packet.len().max(1));
        if let Some(byte) = packet.get_mut(at) {
            *byte = *value;
        }
    }
}

/// Puts a right checksum over all of `bytes` at `at`; odd changes then reach behind that check.
fn fix_sum(pseudo: checksum::Partial, bytes: &mut [u8], at: usize) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.fill(0);
        let sum = checksum::finish(pseudo + checksum::sum(bytes));
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn emitted(emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut buf = vec![0; 4096];
    let len = emit(&mut buf);
    buf.truncate(len);
    buf
}

fn check_arp(bytes: &[u8]) {
    let theirs = peer::ArpPacket::new_checked(bytes).and_then(|p| peer::ArpRepr::parse(&p));
    match (arp::Packet::parse(bytes), theirs) {
        (Ok(ours), Ok(theirs)) => {
            let operation = match ours.operation {
                arp::Operation::Request => peer::ArpOperation::Request,
                arp::Operation::Reply => peer::ArpOperation::Reply,
            };
            let expected = peer::ArpRepr::EthernetIpv4 {
                operation,
                source_hardware_addr: peer::EthernetAddress(ours.sender_mac.0),
                source_protocol_addr: ours.sender_ip,
                target_hardware_addr: peer::EthernetAddress(ours.target_mac.0),
                target_protocol_addr: ours.target_ip,
            };
            assert_eq!(theirs, expected);
        }
        // On purpose: they take any operation, we take two.
        (Err(_), Ok(peer::ArpRepr::EthernetIpv4 { operation, .. })) => {
            assert!(matches!(operation, peer::ArpOperation::Unknown(_)));
        }
        (ours, theirs) => assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?} {theirs:?}"),
    }
}

fn check_ipv4(packet: &[u8]) {
    let view = peer::Ipv4Packet::new_checked(packet);
    let theirs = view.is_ok_and(|view| view.version() == 4 && view.verify_checksum());
    let ours = ipv4::Header::parse(packet);
    assert_eq!(ours.is_ok(), theirs, "{ours:?}");
    let Ok(ours) = ours else { return };
    let view = peer::Ipv4Packet::new_unchecked(packet);
    assert_eq!(ours.tos, (view.dscp() << 2) | view.ecn());
    assert_eq!(ours.total_len, view.total_len());
    assert_eq!(ours.header_len, view.header_len());
    assert_eq!(ours.ident, view.ident());
    assert_eq!(ours.dont_fragment, view.dont_frag());
    assert_eq!(ours.more_fragments, view.more_frags());
    assert_eq!(ours.fragment_offset, view.frag_offset());
    assert_eq!(ours.ttl, view.hop_limit());
    assert_eq!(ours.protocol.0, u8::from(view.next_header()));
    assert_eq!(
        (ours.source, ours.destination),
        (view.src_addr(), view.dst_addr())
    );
    assert_eq!(ours.payload(packet), view.payload());
}

fn check_ipv6(packet: &[u8]) {
    let view = peer::Ipv6Packet::new_checked(packet);
    let theirs = view.is_ok_and(|view| view.version() == 6);
    let ours = ipv6::Header::parse(packet);
    assert_eq!(ours.is_ok(), theirs, "{ours:?}");
    let Ok(ours) = ours else { return };
    let view = peer::Ipv6Packet::new_unchecked(packet);
    assert_eq!(ours.traffic_class, view.traffic_class());
    assert_eq!(ours.flow_label, view.flow_label());
    assert_eq!(ours.payload_len, view.payload_len());
    assert_eq!(ours.next_header.0, u8::from(view.next_header()));
    assert_eq!(ours.hop_limit, view.hop_limit());
    assert_eq!(
        (ours.source, ours.destination),
        (view.src_addr(), view.dst_addr())
    );
    assert_eq!(ours.payload(packet), view.payload());
}

fn check_udp(from: IpAddr, to: IpAddr, datagram: &[u8]) {
    let theirs = peer::UdpPacket::new_checked(datagram)
        .and_then(|p| peer::UdpRepr::parse(&p, &from.into(), &to.into(), &caps()));
    let ours = udp::Header::parse(datagram)
        .ok()
        .filter(|ours| ours.verify(from, to, datagram));
    match (ours, theirs) {
        (Some(ours), Ok(theirs)) => {
            assert_eq!(ours.source_port, theirs.src_port);
            assert_eq!(ours.destination_port, theirs.dst_port);
            let view = peer::UdpPacket::new_unchecked(datagram);
            assert_eq!(ours.payload(datagram), view.payload());
        }
        // On purpose: they take a missing checksum over IPv6 as well.
        (None, Ok(_)) => assert!(from.is_ipv6() && datagram[6..8] == [0, 0]),
        // On purpose: they refuse a datagram to port 0, which is one that no socket is for.
        (Some(ours), Err(_)) if ours.destination_port == 0 => {}
        (ours, theirs) => assert_eq!(ours.is_some(), theirs.is_ok(), "{ours:?} {theirs:?}"),
    }
}

fn check_tcp(from: IpAddr, to: IpAddr, segment: &[u8]) {
    let theirs = peer::TcpPacket::new_checked(segment)
        .and_then(|p| peer::TcpRepr::parse(&p, &from.into(), &to.into(), &caps()));
    let whole = tcp::verify_checksum(from, to, segment);
    let ours = Header::parse(segment);
    let (Ok((ours, at)), Ok(theirs)) = (ours, &theirs) else {
        // What they take, we take. Not the other way round, on purpose: they refuse port 0, odd
        // flags, and options whose length is not theirs; a state machine has to see those.
        assert!(theirs.is_err(), "{ours:?} {theirs:?}");
        return;
    };
    assert!(whole, "they found the checksum right");
    assert_eq!(ours.source_port, theirs.src_port);
    assert_eq!(ours.destination_port, theirs.dst_port);
    assert_eq!(ours.seq, SeqNum(theirs.seq_number.0.cast_unsigned()));
    let ack = theirs.ack_number.map(|ack| SeqNum(ack.0.cast_unsigned()));
    assert_eq!(ours.flags.contains(Flags::ACK).then_some(ours.ack), ack);
    assert_eq!(ours.window, theirs.window_len);
    assert_eq!(&segment[at..], theirs.payload);
    check_tcp_options(&ours, theirs, &segment[20..at]);
}

fn check_tcp_options(ours: &Header, theirs: &peer::TcpRepr<'_>, area: &[u8]) {
    // On purpose: of two options of a kind they take the last and we the first.
    if has_twins(area) {
        return;
    }
    let options = &ours.options;
    if ours.flags.contains(Flags::SYN) {
        assert_eq!(options.mss, theirs.max_seg_size);
        // On purpose: theirs is clamped here, ours where it is used.
        assert_eq!(
            options.window_scale.map(|shift| shift.min(14)),
            theirs.window_scale
        );
        assert_eq!(options.sack_permitted, theirs.sack_permitted);
    } else {
        // On purpose: no negotiation outside SYN.
        assert_eq!((options.mss, options.window_scale), (None, None));
        assert!(!options.sack_permitted);
    }
    let timestamps = theirs.timestamp.map(|stamp| (stamp.tsval, stamp.tsecr));
    assert_eq!(
        options.timestamps.map(|stamp| (stamp.value, stamp.echo)),
        timestamps
    );
    // On purpose: they keep three blocks of four.
    let blocks: Vec<_> = options
        .sack
        .as_slice()
        .iter()
        .take(3)
        .map(|(l, r)| (l.0, r.0))
        .collect();
    let their_blocks: Vec<_> = theirs.sack_ranges.iter().flatten().copied().collect();
    assert_eq!(blocks, their_blocks);
}

/// Whether some option kind comes twice.
fn has_twins(mut area: &[u8]) -> bool {
    let mut seen = vec![];
    while let [kind, rest @ ..] = area {
        match kind {
            0 => return false,
            1 => area = rest,
            _ if seen.contains(kind) => return true,
            _ => {
                seen.push(*kind);
                let len = rest.first().map_or(1, |len| usize::from(*len));
                area = area.get(len..).unwrap_or_default();
            }
        }
    }
    false
}

fn check_icmpv4(bytes: &[u8]) {
    let theirs =
        peer::Icmpv4Packet::new_checked(bytes).and_then(|p| peer::Icmpv4Repr::parse(&p, &caps()));
    let ours = icmpv4::Message::parse(bytes);
    let Ok(theirs) = theirs else {
        // We take more types, and quotes that are cut. On echo the verdicts are the same.
        let echo = matches!(
            ours,
            Ok((
                icmpv4::Message::EchoRequest { .. } | icmpv4::Message::EchoReply { .. },
                _
            ))
        );
        assert!(!echo, "{ours:?}");
        return;
    };
    let (ours, payload) = ours.expect("they took it");
    match (ours, theirs) {
        (
            icmpv4::Message::EchoRequest { ident, seq },
            peer::Icmpv4Repr::EchoRequest {
                ident: their_ident,
                seq_no,
                data,
            },
        )
        | (
            icmpv4::Message::EchoReply { ident, seq },
            peer::Icmpv4Repr::EchoReply {
                ident: their_ident,
                seq_no,
                data,
            },
        ) => assert_eq!((ident, seq, payload), (their_ident, seq_no, data)),
        (
            icmpv4::Message::DestinationUnreachable { code, .. },
            peer::Icmpv4Repr::DstUnreachable { reason, .. },
        ) => assert_eq!(peer::Icmpv4DstUnreachable::from(code), reason),
        (icmpv4::Message::TimeExceeded { code }, peer::Icmpv4Repr::TimeExceeded { reason, .. }) => {
            assert_eq!(peer::Icmpv4TimeExceeded::from(code), reason)
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

fn check_icmpv6(from: Ipv6Addr, to: Ipv6Addr, bytes: &[u8]) {
    let theirs = peer::Icmpv6Packet::new_checked(bytes)
        .and_then(|p| peer::Icmpv6Repr::parse(&from, &to, &p, &caps()));
    let ours = icmpv6::Message::parse(from, to, bytes);
    let Ok(theirs) = theirs else {
        let echo = matches!(
            ours,
            Ok((
                icmpv6::Message::EchoRequest { .. } | icmpv6::Message::EchoReply { .. },
                _
            ))
        );
        assert!(!echo, "{ours:?}");
        return;
    };
    let (ours, payload) = match ours {
        Ok(ours) => ours,
        // On purpose: they take a message of 4 bytes if its type allows it.
        Err(error) => {
            assert!(bytes.len() < 8, "{error:?} but {theirs:?}");
            return;
        }
    };
    match (ours, theirs) {
        (
            icmpv6::Message::EchoRequest { ident, seq },
            peer::Icmpv6Repr::EchoRequest {
                ident: their_ident,
                seq_no,
                data,
            },
        )
        | (
            icmpv6::Message::EchoReply { ident, seq },
            peer::Icmpv6Repr::EchoReply {
                ident: their_ident,
                seq_no,
                data,
            },
        ) => assert_eq!((ident, seq, payload), (their_ident, seq_no, data)),
        (
            icmpv6::Message::DestinationUnreachable { code },
            peer::Icmpv6Repr::DstUnreachable { reason, .. },
        ) => assert_eq!(peer::Icmpv6DstUnreachable::from(code), reason),
        (
            icmpv6::Message::PacketTooBig { mtu },
            peer::Icmpv6Repr::PktTooBig { mtu: their_mtu, .. },
        ) => assert_eq!(mtu, their_mtu),
        (icmpv6::Message::TimeExceeded { code }, peer::Icmpv6Repr::TimeExceeded { reason, .. }) => {
            assert_eq!(peer::Icmpv6TimeExceeded::from(code), reason)
        }
        (
            icmpv6::Message::ParameterProblem { code, pointer },
            peer::Icmpv6Repr::ParamProblem {
                reason,
                pointer: their_pointer,
                ..
            },
        ) => {
            assert_eq!(peer::Icmpv6ParamProblem::from(code), reason);
            assert_eq!(pointer, their_pointer);
        }
        (icmpv6::Message::NeighborDiscovery, peer::Icmpv6Repr::Ndisc(_))
        | (icmpv6::Message::Other { .. }, peer::Icmpv6Repr::Mld(_)) => {}
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

/// They check no rules about addresses, so only accepted messages compare.
fn check_ndp(from: Ipv6Addr, to: Ipv6Addr, bytes: &[u8]) {
    let Ok(ours) = ndp::Message::parse(from, to, 255, bytes) else {
        return;
    };
    // On purpose: of two options of a kind they take the last and we the first.
    let options = match ours {
        ndp::Message::RouterSolicitation { .. } => &bytes[8..],
        ndp::Message::RouterAdvertisement(_) => &bytes[16..],
        ndp::Message::Redirect { .. } => &bytes[40..],
        _ => &bytes[24..],
    };
    if has_ndp_twins(options) {
        return;
    }
    let theirs = peer::Icmpv6Packet::new_checked(bytes).and_then(|p| peer::NdiscRepr::parse(&p));
    let Ok(theirs) = theirs else { return };
    compare_ndp(ours, theirs);
}

fn same_link(ours: Option<ethernet::MacAddr>, theirs: Option<peer::RawHardwareAddress>) {
    let theirs = theirs.map(|theirs| theirs.as_bytes().to_vec());
    assert_eq!(ours.map(|ours| ours.0.to_vec()), theirs);
}

fn compare_ndp(ours: ndp::Message<'_>, theirs: peer::NdiscRepr<'_>) {
    match (ours, theirs) {
        (
            ndp::Message::RouterSolicitation { source_link },
            peer::NdiscRepr::RouterSolicit { lladdr },
        ) => same_link(source_link, lladdr),
        (
            ndp::Message::RouterAdvertisement(ours),
            peer::NdiscRepr::RouterAdvert {
                hop_limit,
                router_lifetime,
                reachable_time,
                ..
            },
        ) => {
            assert_eq!(ours.hop_limit, hop_limit);
            assert_eq!(u64::from(ours.router_lifetime_s), router_lifetime.secs());
            assert_eq!(
                u64::from(ours.reachable_time_ms),
                reachable_time.total_millis()
            );
        }
        (
            ndp::Message::NeighborSolicitation {
                target,
                source_link,
            },
            peer::NdiscRepr::NeighborSolicit {
                target_addr,
                lladdr,
            },
        ) => {
            assert_eq!(target, target_addr);
            same_link(source_link, lladdr);
        }
        (
            ndp::Message::NeighborAdvertisement {
                target,
                router,
                target_link,
                ..
            },
            peer::NdiscRepr::NeighborAdvert {
                flags,
                target_addr,
                lladdr,
            },
        ) => {
            assert_eq!(target, target_addr);
            assert_eq!(router, flags.contains(peer::NdiscNeighborFlags::ROUTER));
            same_link(target_link, lladdr);
        }
        (
            ndp::Message::Redirect {
                target,
                destination,
                target_link,
                ..
            },
            peer::NdiscRepr::Redirect {
                target_addr,
                dest_addr,
                lladdr,
                ..
            },
        ) => {
            assert_eq!((target, destination), (target_addr, dest_addr));
            same_link(target_link, lladdr);
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

/// Whether some option kind comes twice.
fn has_ndp_twins(mut area: &[u8]) -> bool {
    let mut seen = vec![];
    while let [kind, units, ..] = area {
        if seen.contains(kind) {
            return true;
        }
        seen.push(*kind);
        area = &area[usize::from(*units) * 8..];
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arp_agrees(packet in arp_packet(), changes in changes(), cut in 0_usize..32) {
        let mut bytes = emitted(|buf| packet.emit(buf));
        check_arp(&bytes);
        apply(&mut bytes[..8], &changes);
        check_arp(&bytes);
        bytes.truncate(cut);
        check_arp(&bytes);
    }

    #[test]
    fn ipv4_agrees(
        header in ipv4_header(),
        payload in bytes(50),
        changes in changes(),
        ihl in any::<u8>(),
    ) {
        let mut packet = emitted(|buf| header.emit(payload.len(), buf));
        packet.extend(payload);
        check_ipv4(&packet);
        packet[0] = if ihl < 64 { ihl | 0x40 } else { packet[0] };
        apply(&mut packet, &changes);
        check_ipv4(&packet);
        let header_len = (usize::from(packet[0] & 0x0f) * 4).min(packet.len());
        fix_sum(checksum::Partial::ZERO, &mut packet[..header_len], 10);
        check_ipv4(&packet);
    }

    #[test]
    fn ipv6_agrees(header in ipv6_header(), payload in bytes(50), changes in changes()) {
        let mut packet = emitted(|buf| header.emit(payload.len(), buf));
        packet.extend(payload);
        check_ipv6(&packet);
        apply(&mut packet, &changes);
        check_ipv6(&packet);
    }

    #[test]
    fn udp_agrees(
        header in udp_header(),
        payload in bytes(50),
        v4 in (v4(), v4()),
        v6 in (v6(), v6()),
        changes in changes(),
    ) {
        let pairs = [(IpAddr::from(v4.0), IpAddr::from(v4.1)), (v6.0.into(), v6.1.into())];
        for (from, to) in pairs {
            let sum = checksum::sum(&payload);
            let mut datagram =
                emitted(|buf| header.emit(from, to, sum, payload.len(), buf));
            datagram.extend(&payload);
            check_udp(from, to, &datagram);
            apply(&mut datagram, &changes);
            check_udp(from, to, &datagram);
            datagram[6..8].fill(0);
            check_udp(from, to, &datagram);
        }
    }

    #[test]
    fn tcp_agrees(
        header in tcp_header(),
        payload in bytes(50),
        v4 in (v4(), v4()),
        v6 in (v6(), v6()),
        changes in changes(),
        options in bytes(40),
        plain in any::<bool>(),
    ) {
        let pairs = [(IpAddr::from(v4.0), IpAddr::from(v4.1)), (v6.0.into(), v6.1.into())];
        // Flags that they take: few random ones are.
        let flags = if plain { Flags::ACK | Flags::PSH } else { header.flags };
        let header = Header { flags, ..header };
        for (from, to) in pairs {
            let mut segment = emitted(|buf| header.emit(buf));
            let at = segment.len();
            segment.extend(&payload);
            let len = segment.len();
            let pseudo = checksum::pseudo_header(from, to, Protocol::TCP, len).unwrap();
            check_tcp(from, to, &segment);
            fix_sum(pseudo, &mut segment, 16);
            check_tcp(from, to, &segment);
            for (place, option) in segment[20..at].iter_mut().zip(&options) {
                *place = if plain { *place } else { *option };
            }
            apply(&mut segment, &changes);
            fix_sum(pseudo, &mut segment, 16);
            check_tcp(from, to, &segment);
        }
    }

    #[test]
    fn icmpv4_agrees(message in icmpv4_message(), payload in bytes(80), changes in changes()) {
        let mut bytes = emitted(|buf| message.emit(&payload, buf));
        check_icmpv4(&bytes);
        apply(&mut bytes, &changes);
        check_icmpv4(&bytes);
        fix_sum(checksum::Partial::ZERO, &mut bytes, 2);
        check_icmpv4(&bytes);
    }

    #[test]
    fn icmpv6_agrees(
        message in icmpv6_message(),
        payload in bytes(80),
        from in v6(),
        to in v6(),
        changes in changes(),
    ) {
        let mut bytes = emitted(|buf| message.emit(from, to, &payload, buf));
        check_icmpv6(from, to, &bytes);
        apply(&mut bytes, &changes);
        check_icmpv6(from, to, &bytes);
        let len = u32::try_from(bytes.len()).unwrap();
        let pseudo = checksum::pseudo_header_v6(from, to, Protocol::ICMPV6, len);
        fix_sum(pseudo, &mut bytes, 2);
        check_icmpv6(from, to, &bytes);
    }

    #[test]
    fn ndp_agrees(packet in discovery(), changes in changes()) {
        let (from, to) = (packet.source, packet.destination);
        let mut bytes = emitted(|buf| packet.message.borrow().emit(from, to, buf));
        check_ndp(from, to, &bytes);
        apply(&mut bytes, &changes);
        check_ndp(from, to, &bytes);
    }

    /// The sum itself, theirs over the same bytes.
    #[test]
    fn checksums_agree(header in ipv4_header()) {
        let packet = emitted(|buf| header.emit(0, buf));
        let mut theirs = packet.clone();
        peer::Ipv4Packet::new_unchecked(&mut theirs[..]).fill_checksum();
        prop_assert_eq!(packet, theirs);
    }
}

/// They emit, we read: the layouts of options are theirs here.
#[test]
fn a_segment_of_theirs_is_read_as_they_meant_it() {
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let repr = peer::TcpRepr {
        src_port: 1,
        dst_port: 2,
        control: peer::TcpControl::Syn,
        seq_number: peer::TcpSeqNumber(-5),
        ack_number: Some(peer::TcpSeqNumber(9)),
        window_len: 77,
        window_scale: Some(9),
        max_seg_size: Some(1400),
        sack_permitted: true,
        sack_ranges: [None; 3],
        timestamp: Some(peer::TcpTimestampRepr::new(3, 4)),
        payload: b"hello",
    };
    let mut segment = vec![0; repr.buffer_len()];
    let mut view = peer::TcpPacket::new_unchecked(&mut segment[..]);
    repr.emit(&mut view, &a.into(), &b.into(), &caps());
    check_tcp(a.into(), b.into(), &segment);
    let (header, at) = Header::parse(&segment).expect("well-formed");
    assert_eq!(header.seq, SeqNum(u32::MAX - 4));
    assert_eq!(header.flags, Flags::SYN | Flags::ACK);
    assert_eq!(header.options.window_scale, Some(9));
    assert_eq!(&segment[at..], b"hello");
}
