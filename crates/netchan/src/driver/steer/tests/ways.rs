//! What the long way says of each kind of frame, and why it drops one: a row for each.

use std::net::{Ipv4Addr, Ipv6Addr};

use proto::membership::Filter;

use super::*;

const PEER: &str = "10.0.0.9";
const PEER6: &str = "fd00::9";
const OURS: &str = "10.0.0.2";
const OURS6: &str = "fd00::2";
const BROADCAST: [u8; 6] = [0xff; 6];
/// Ports 7000 and 53, and some more bytes.
const TEXT: [u8; 24] = {
    let mut text = [0; 24];
    (text[0], text[1], text[3]) = (0x1b, 0x58, 53);
    text
};
const FRAGMENT: Protocol = Protocol(44);
const UNKNOWN: Protocol = Protocol(200);

/// An IPv4 packet with these bytes of options.
fn v4(protocol: Protocol, from: &str, to: &str, options: &[u8], text: &[u8]) -> Vec<u8> {
    let (from, to): (Ipv4Addr, Ipv4Addr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut packet = vec![0; ipv4::HEADER_LEN];
    let len = options.len() + text.len();
    ipv4::Header::new(protocol, from, to).emit(len, &mut packet);
    packet.extend(options);
    packet[0] += u8::try_from(options.len() / 4).unwrap();
    packet.extend(text);
    sum(&mut packet);
    packet
}

/// Writes the header's checksum.
fn sum(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 0xf) * 4;
    packet[10..12].fill(0);
    let sum = checksum::checksum(&packet[..len]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
}

fn v6(next: Protocol, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut packet = vec![0; ipv6::HEADER_LEN];
    ipv6::Header::new(next, from, to).emit(payload.len(), &mut packet);
    packet.extend(payload);
    packet
}

/// A frame to `mac`; the type after `tag`.
fn frame_to(mac: [u8; 6], tag: &[u8], packet: &[u8]) -> Vec<u8> {
    let kind: u16 = if packet[0] >> 4 == 6 { 0x86dd } else { 0x800 };
    [
        &mac,
        &[2, 0, 0, 0, 0, 9][..],
        tag,
        &kind.to_be_bytes(),
        packet,
    ]
    .concat()
}

/// The verdict, and the packet as it is after it.
fn way(host: &HostView, frame: &[u8]) -> (Verdict, Vec<u8>, crate::packet::Meta) {
    let mut slab = Slab::new(1, 2048).unwrap();
    let mut packet = Packet::new(slab.alloc().unwrap(), 0);
    packet.set_len(frame.len());
    packet.bytes_mut().copy_from_slice(frame);
    let verdict = Steer::new(0, Placement::Single).classify(host, &mut packet);
    (verdict, packet.bytes().to_vec(), packet.meta)
}

/// The verdict on an IP packet in a frame for us.
fn verdict(host: &HostView, packet: &[u8]) -> Verdict {
    way(host, &frame_to(MAC, &[], packet)).0
}

const SHARD: Verdict = Verdict::Shard(0);
const SOURCE: Verdict = Verdict::Drop(Counter::DropIpSource);
const DESTINATION: Verdict = Verdict::Drop(Counter::DropIpDestination);

#[test]
fn a_frame_is_for_us_by_its_address_and_its_type() {
    let (host, udp) = (host(), v4(Protocol::UDP, PEER, OURS, &[], &TEXT));
    let to = |mac, tag: &[u8]| way(&host, &frame_to(mac, tag, &udp));
    assert_eq!(to(MAC, &[]).0, SHARD);
    assert!(to(BROADCAST, &[]).2.to_group.get() && !to(MAC, &[]).2.to_group.get());
    let others = to([2, 0, 0, 0, 0, 7], &[]).0;
    assert_eq!(others, Verdict::Drop(Counter::DropNotForUs));
    // IEEE 802.1Q §9.6: VLAN 0 is a priority and nothing else.
    let (verdict, bytes, meta) = to(MAC, &[0x81, 0, 0xa0, 0]);
    assert_eq!((verdict, bytes, meta.upper), (SHARD, udp.clone(), 20));
    let strange = Verdict::Drop(Counter::DropEtherType);
    assert_eq!(to(MAC, &[0x81, 0, 0xa0, 5]).0, strange);
    let of_kind = |kind: [u8; 2]| {
        let mut frame = frame_to(MAC, &[], &udp);
        frame[12..14].copy_from_slice(&kind);
        way(&host, &frame)
    };
    assert_eq!(of_kind([0x88, 0xcc]).0, strange);
    let (verdict, bytes, _) = of_kind([8, 6]);
    assert_eq!((verdict, bytes), (Verdict::Host(HostWork::Arp), udp));
    let short = way(&host, &[2; 10]).0;
    assert_eq!(short, Verdict::Drop(Counter::DropEthernet));
}

/// RFC 1122 §3.2.1, RFC 8200 §4: which part takes which protocol, and what none takes is answered.
#[test]
fn a_protocol_is_served_in_its_own_family() {
    let host = host();
    let (icmp, none) = (HostWork::Icmp, Verdict::Host(HostWork::Unserved));
    let of_v4 = |protocol| verdict(&host, &v4(protocol, PEER, OURS, &[], &TEXT));
    let of_v6 = |protocol| verdict(&host, &v6(protocol, PEER6, OURS6, &TEXT));
    for protocol in [Protocol::TCP, Protocol::UDP] {
        assert_eq!((of_v4(protocol), of_v6(protocol)), (SHARD, SHARD));
    }
    let membership = Verdict::Host(HostWork::Membership);
    assert_eq!(
        (of_v4(Protocol::IGMP), of_v6(Protocol::IGMP)),
        (membership, none)
    );
    assert_eq!(
        (of_v4(Protocol::ICMP), of_v6(Protocol::ICMP)),
        (Verdict::Host(icmp), none)
    );
    assert_eq!(
        (of_v4(Protocol::ICMPV6), of_v6(Protocol::ICMPV6)),
        (none, Verdict::Host(icmp))
    );
    assert_eq!((of_v4(UNKNOWN), of_v6(UNKNOWN)), (none, none));
}

#[test]
fn a_header_that_is_wrong_has_its_reason() {
    let host = host();
    let mut packet = v4(Protocol::UDP, PEER, OURS, &[], &TEXT);
    packet[10] ^= 1;
    assert_eq!(
        verdict(&host, &packet),
        Verdict::Drop(Counter::DropIpChecksum)
    );
    let wrong = Verdict::Drop(Counter::DropIpHeader);
    assert_eq!(verdict(&host, &packet[..19]), wrong);
    let packet = v6(Protocol::UDP, PEER6, OURS6, &TEXT);
    assert_eq!(verdict(&host, &packet[..39]), wrong);
    for (protocol, reason) in [
        (Protocol::TCP, Counter::DropTcpHeader),
        (Protocol::UDP, Counter::DropUdpHeader),
    ] {
        let short = [
            v4(protocol, PEER, OURS, &[], &TEXT[..3]),
            v6(protocol, PEER6, OURS6, &TEXT[..3]),
        ];
        for packet in short {
            assert_eq!(verdict(&host, &packet), Verdict::Drop(reason));
        }
    }
}

/// RFC 1122 §3.2.1.8: what is wrong with options is answered, and a source route that goes on ends here.
#[test]
fn options_of_a_packet_for_us_are_looked_at() {
    let host = host();
    let of = |options: &[u8]| {
        way(
            &host,
            &frame_to(MAC, &[], &v4(Protocol::UDP, PEER, OURS, options, &TEXT)),
        )
    };
    let (verdict, _, meta) = of(&[1, 1, 1, 0]);
    assert_eq!((verdict, meta.upper), (SHARD, 24));
    let loose = |pointer| [131, 7, pointer, 10, 0, 0, 7, 0];
    assert_eq!(of(&loose(8)).0, SHARD, "it has been everywhere");
    assert_eq!(of(&loose(4)).0, Verdict::Drop(Counter::DropIpOptions));
    assert_eq!(of(&[7, 99, 4, 0]).0, Verdict::Host(HostWork::Unserved));
}

#[test]
fn pieces_are_put_together_before_they_are_judged() {
    let (host, piece) = (host(), Verdict::Host(HostWork::Fragment));
    let mut first = v4(Protocol::UDP, PEER, OURS, &[], &TEXT);
    first[6] = 0x20; // more come
    sum(&mut first);
    assert_eq!(verdict(&host, &first), piece);
    let in_broadcast = way(&host, &frame_to(BROADCAST, &[], &first)).0;
    assert_eq!(in_broadcast, Verdict::Drop(Counter::DropLinkGroup));
    // A group's pieces come in multicast frames.
    let mut for_all = v4(Protocol::UDP, PEER, "224.0.0.1", &[], &TEXT);
    for_all[6] = 0x20;
    sum(&mut for_all);
    let frame = frame_to([1, 0, 0x5e, 0, 0, 1], &[], &for_all);
    assert_eq!(way(&host, &frame).0, piece);
}

/// RFC 8200 §4: the protocol is the one behind the extension headers.
#[test]
fn extension_headers_are_walked() {
    let host = host();
    let after = |next: Protocol, header: [u8; 8]| {
        let payload = [&header[..], &TEXT].concat();
        way(
            &host,
            &frame_to(MAC, &[], &v6(next, PEER6, OURS6, &payload)),
        )
    };
    let (hop_by_hop, padding) = (Protocol(0), [Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0]);
    let (verdict, _, meta) = after(hop_by_hop, padding);
    assert_eq!(
        (verdict, meta.upper, meta.protocol),
        (SHARD, 48, Protocol::UDP)
    );
    let (plain, ..) = way(
        &host,
        &frame_to(MAC, &[], &v6(Protocol::UDP, PEER6, OURS6, &TEXT)),
    );
    assert_eq!(plain, SHARD);
    // An option that is not known, of the kind that is answered (RFC 8200 §4.2).
    let (verdict, ..) = after(hop_by_hop, [Protocol::UDP.0, 0, 0xbe, 4, 0, 0, 0, 0]);
    assert_eq!(verdict, Verdict::Host(HostWork::Unserved));
    let (verdict, ..) = after(FRAGMENT, [Protocol::UDP.0, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(verdict, Verdict::Host(HostWork::Fragment));
}

/// What follows its header's length is the link's padding, and the ports are those behind the header.
#[test]
fn what_is_known_of_a_packet_goes_with_it() {
    let host = host();
    let (short, long) = (&TEXT[..8], [1, 1, 1, 0]);
    let rows = [
        v4(Protocol::UDP, PEER, OURS, &[], short),
        v4(Protocol::UDP, PEER, OURS, &long, short),
        v6(Protocol::UDP, PEER6, OURS6, short),
    ];
    for packet in rows {
        let mut frame = frame_to(MAC, &[], &packet);
        frame.extend([0; 30]);
        let (verdict, bytes, meta) = way(&host, &frame);
        assert_eq!((verdict, bytes), (SHARD, packet.clone()));
        let ends = if packet[0] >> 4 == 6 {
            (OURS6, PEER6)
        } else {
            (OURS, PEER)
        };
        let key = FlowKey {
            local: ends.0.parse().unwrap(),
            remote: ends.1.parse().unwrap(),
            local_port: 53,
            remote_port: 7000,
            protocol: Protocol::UDP,
        };
        assert_eq!(meta.flow, short_of(&host, &key));
        assert_eq!((meta.interface, meta.protocol), (0, Protocol::UDP));
    }
}

fn short_of(host: &HostView, key: &FlowKey) -> u32 {
    short(host.flow_hash.hash(key))
}

/// RFC 9293 MUST-57: no connection has a group at one end.
#[test]
fn groups_and_broadcasts_are_for_datagrams() {
    let host = host();
    for to in ["224.0.0.1", "10.0.0.255", "255.255.255.255"] {
        assert_eq!(
            verdict(&host, &v4(Protocol::UDP, PEER, to, &[], &TEXT)),
            SHARD
        );
        let tcp = verdict(&host, &v4(Protocol::TCP, PEER, to, &[], &TEXT));
        assert_eq!(tcp, DESTINATION);
    }
    let to_all = v6(Protocol::TCP, PEER6, "ff02::1", &TEXT);
    assert_eq!(verdict(&host, &to_all), DESTINATION);
}

/// A group that a socket has joined, on the interface where it did.
#[test]
fn a_joined_group_is_heard() {
    let packet = v4(Protocol::UDP, PEER, "239.1.2.3", &[], &TEXT);
    assert_eq!(verdict(&host(), &packet), DESTINATION);
    let joined = host_with(|_, live| {
        let group = "239.1.2.3".parse().unwrap();
        let groups = Arc::make_mut(&mut live.groups);
        groups.set(0, group, &Filter::ANY_SOURCE);
    });
    assert_eq!(verdict(&joined, &packet), SHARD);
}

/// RFC 4541 §2.1.1: a switch without an address asks from 0.0.0.0, with IGMP and all systems; nothing else may come from there.
#[test]
fn a_query_from_nowhere_is_heard() {
    let host = host();
    let from_nowhere =
        |protocol, to: &str| verdict(&host, &v4(protocol, "0.0.0.0", to, &[], &TEXT));
    let heard = from_nowhere(Protocol::IGMP, "224.0.0.1");
    assert_eq!(heard, Verdict::Host(HostWork::Membership));
    assert_eq!(from_nowhere(Protocol::UDP, "224.0.0.1"), SOURCE);
    assert_eq!(from_nowhere(Protocol::IGMP, OURS), SOURCE);
    let others = v4(Protocol::IGMP, "127.0.0.1", "224.0.0.1", &[], &TEXT);
    assert_eq!(verdict(&host, &others), SOURCE);
}

/// RFC 4862 §5.4.4: a neighbour solicitation or advertisement from an address of ours tells of its other owner; all else from there is forged.
#[test]
fn neighbour_discovery_from_our_own_address_is_heard() {
    let host = host();
    let from_us = |protocol, kind: u8, to: &str| {
        let mut text = TEXT;
        text[0] = kind;
        verdict(&host, &v6(protocol, OURS6, to, &text))
    };
    let heard = Verdict::Host(HostWork::Icmp);
    for kind in [135, 136] {
        assert_eq!(from_us(Protocol::ICMPV6, kind, "ff02::1"), heard);
        assert_eq!(from_us(Protocol::ICMPV6, kind, OURS6), heard);
        assert_eq!(from_us(Protocol::ICMPV6, kind, "fd00::77"), SOURCE);
        assert_eq!(from_us(Protocol::UDP, kind, "ff02::1"), SOURCE);
    }
    for kind in [128, 134, 137] {
        assert_eq!(from_us(Protocol::ICMPV6, kind, "ff02::1"), SOURCE);
    }
    // The same bytes in a packet of IPv4 are no such thing.
    let mut text = [0; 48];
    text[20] = 135;
    let mut packet = v4(Protocol::UDP, OURS, "224.0.0.1", &[], &text);
    packet[6] = Protocol::ICMPV6.0;
    sum(&mut packet);
    assert_eq!(verdict(&host, &packet), SOURCE);
}

/// Two interfaces: 10.0.0.2 and 10.1.0.2.
fn two(forwarding: bool) -> HostView {
    host_with(|host, live| {
        host.forwarding = forwarding;
        let net = Arc::make_mut(&mut live.net);
        net.interfaces.push(interface(1, &["10.1.0.2/24"]));
    })
}

/// What comes back without having been on a link is ours by whichever interface it comes; from a wire only by its own.
#[test]
fn our_own_packets_come_back_by_any_interface() {
    let returned = |host: &HostView, to: &str, loopback| {
        let bytes = v4(Protocol::UDP, OURS, to, &[], &TEXT);
        let mut slab = Slab::new(1, 2048).unwrap();
        let mut packet = Packet::new(slab.alloc().unwrap(), 0);
        packet.set_len(bytes.len());
        packet.bytes_mut().copy_from_slice(&bytes);
        Steer::new(0, Placement::Single).classify_ip(host, &mut packet, false, loopback)
    };
    for forwarding in [false, true] {
        let host = two(forwarding);
        for to in [OURS, "10.1.0.2"] {
            assert_eq!(returned(&host, to, true), Ok(SHARD), "{to}");
            assert_eq!(returned(&host, to, false), Err(Counter::DropIpSource));
        }
        // Another host's is not ours.
        assert_eq!(
            returned(&host, "10.2.0.2", true),
            Err(Counter::DropIpDestination)
        );
    }
}

/// What comes by a lease for a loopback address is for those that share these; and by a link that lends them they are martians still.
#[test]
fn a_loopback_address_is_meant_where_it_is_shared() {
    let host = |lender, loopback| {
        host_with(|_, live| {
            let net = Arc::make_mut(&mut live.net);
            net.interfaces[0].lender = lender;
            net.loopback = loopback;
        })
    };
    let lender = Some(MacAddr([2, 0, 0, 0, 0, 9]));
    for (lender, loopback, expected) in [
        (lender, Some(0), SHARD),
        (lender, Some(1), DESTINATION),
        (lender, None, DESTINATION),
        (None, Some(0), DESTINATION),
        (None, None, DESTINATION),
    ] {
        let host = host(lender, loopback);
        for to in ["127.0.0.1", "127.3.2.1"] {
            let bytes = v4(Protocol::UDP, PEER, to, &[], &TEXT);
            assert_eq!(verdict(&host, &bytes), expected, "{lender:?} {loopback:?}");
        }
        let from = v4(Protocol::UDP, "127.0.0.1", OURS, &[], &TEXT);
        let expected = if lender.is_some() { SHARD } else { SOURCE };
        assert_eq!(verdict(&host, &from), expected, "{lender:?} {loopback:?}");
    }
}

/// RFC 1812 §5.3: what a router passes on, and what it does not.
#[test]
fn a_router_passes_on_what_is_from_and_for_others() {
    let router = two(true);
    let packet = |from: &str, to: &str| v4(Protocol::UDP, from, to, &[], &TEXT);
    let passing = packet(PEER, "10.1.0.9");
    assert_eq!(verdict(&router, &passing), Verdict::Forward);
    assert_eq!(
        verdict(&two(false), &passing),
        DESTINATION,
        "a host is no router"
    );
    let in_broadcast = way(&router, &frame_to(BROADCAST, &[], &passing)).0;
    assert_eq!(in_broadcast, DESTINATION, "RFC 1812 §5.3.4");
    assert_eq!(
        verdict(&router, &packet(PEER, "10.1.0.255")),
        DESTINATION,
        "RFC 2644"
    );
    assert_eq!(
        verdict(&router, &packet("10.1.0.2", "10.1.0.9")),
        SOURCE,
        "our own"
    );
    assert_eq!(verdict(&router, &packet("10.1.0.255", "10.1.0.9")), SOURCE);
    assert_eq!(
        verdict(&router, &packet("169.254.0.9", "10.1.0.9")),
        SOURCE,
        "RFC 3927 §2.7"
    );
}
