//! Malformed IPv6, extension headers and neighbour discovery that broke other stacks: groups 38 to
//! 42 and 44 to 47 of the negative cases, as far as the bytes alone can tell.

use std::net::Ipv6Addr;

use proto::wire::ethernet::MacAddr;
use proto::wire::ipv6::extension::{
    Drop, FragmentHeader, HEADERS_MAX, Problem, Upper, walk, walk_reassembled,
};
use proto::wire::ndp::options::{Opt, Options, Prefix};
use proto::wire::ndp::{self, Message};
use proto::wire::{Error, Protocol, ipv6};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const NONE: u8 = 59;
const DESTINATION: u8 = 60;

fn parameter(code: u8, pointer: u32) -> Result<Upper, Problem> {
    Err(Problem::Parameter {
        code,
        pointer,
        even_if_multicast: false,
    })
}

fn dropped(reason: Drop) -> Result<Upper, Problem> {
    Err(Problem::Drop(reason))
}

fn start(first: u8, payload: &[u8]) -> Result<Upper, Problem> {
    walk(Protocol(first), payload)
}

/// The protocol found and where.
fn found(first: u8, payload: &[u8]) -> (u8, usize) {
    let upper = start(first, payload).unwrap();
    (upper.protocol.0, upper.offset)
}

#[test]
fn negative_38_payload_lengths() {
    let mut packet = vec![0; 48];
    let header = ipv6::Header::new(Protocol::UDP, HOST, HOST);
    assert_eq!(header.emit(8, &mut packet), 40);
    for length in [9_u16, 1000, 65_535] {
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(ipv6::Header::parse(&packet), Err(Error::Length));
    }
    packet[4..6].copy_from_slice(&3_u16.to_be_bytes());
    assert_eq!(
        ipv6::Header::parse(&packet).unwrap().payload(&packet).len(),
        3,
        "padding trimmed"
    );
    // 0 without a jumbo option is an empty payload; with one it is a jumbogram, which is not for
    // us: its hop-by-hop header lies outside the payload.
    packet[4..6].fill(0);
    packet[6] = HOP_BY_HOP;
    let header = ipv6::Header::parse(&packet).unwrap();
    assert_eq!(header.payload(&packet), b"");
    assert_eq!(
        walk(header.next_header, header.payload(&packet)),
        dropped(Drop::Truncated)
    );
    packet[0] = 0x45;
    assert_eq!(ipv6::Header::parse(&packet), Err(Error::Version));
}

#[test]
fn negative_39_options_over_their_end() {
    assert_eq!(found(HOP_BY_HOP, &[TCP, 0, 1, 4, 0, 0, 0, 0]), (TCP, 8));
    // Option length past the header: code 0 at the length, 40 + 3.
    assert_eq!(
        start(HOP_BY_HOP, &[TCP, 0, 1, 5, 0, 0, 0, 0]),
        parameter(0, 43)
    );
    assert_eq!(
        start(HOP_BY_HOP, &[TCP, 0, 1, 255, 0, 0, 0, 0]),
        parameter(0, 43)
    );
    assert_eq!(
        start(DESTINATION, &[TCP, 0, 0, 0, 0, 0, 1, 1]),
        parameter(0, 47)
    );
    assert_eq!(
        start(DESTINATION, &[TCP, 0, 0, 0, 0, 0, 0, 1]),
        parameter(0, 47),
        "no length"
    );
    // Pad N of 255 in a header that is long enough for it.
    let mut long = vec![0; 264];
    long[..4].copy_from_slice(&[TCP, 32, 1, 255]);
    assert_eq!(found(DESTINATION, &long), (TCP, 264));
    // Header length past the packet.
    assert_eq!(
        start(HOP_BY_HOP, &[TCP, 1, 1, 4, 0, 0, 0, 0]),
        dropped(Drop::Truncated)
    );
    assert_eq!(
        start(HOP_BY_HOP, &[TCP, 255, 1, 4, 0, 0, 0, 0]),
        dropped(Drop::Truncated)
    );
    for end in 0..8 {
        let header = [TCP, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(start(HOP_BY_HOP, &header[..end]), dropped(Drop::Truncated));
    }
    // Jumbo (0xc2: tell the sender unless multicast), whatever the length, whatever follows.
    for next in [TCP, FRAGMENT] {
        let jumbo = [next, 0, 0xc2, 4, 0, 0, 0xff, 0xff];
        assert_eq!(start(HOP_BY_HOP, &jumbo), parameter(2, 42));
    }
}

/// RFC 8200 §4.2: the top bits of an unknown option's type.
#[test]
fn unknown_options_by_their_action() {
    let with = |kind| start(DESTINATION, &[TCP, 0, 0, kind, 2, 0, 0, 0]);
    assert!(with(0x1e).is_ok());
    assert_eq!(with(0x5e), dropped(Drop::UnknownOption));
    let problem = |even_if_multicast| {
        Err(Problem::Parameter {
            code: 2,
            pointer: 43,
            even_if_multicast,
        })
    };
    assert_eq!(with(0x9e), problem(true));
    assert_eq!(with(0xde), problem(false));
    // A router alert (RFC 2711) counts in hop-by-hop options.
    let alert = [TCP, 0, 5, 2, 0, 0, 1, 0];
    assert!(start(HOP_BY_HOP, &alert).unwrap().router_alert);
    assert!(!start(DESTINATION, &alert).unwrap().router_alert);
}

#[test]
fn negative_40_order_and_number_of_headers() {
    let pad = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    // Hop-by-hop second: code 1 at the byte that names it.
    let second = [pad(HOP_BY_HOP), pad(TCP)].concat();
    assert_eq!(start(DESTINATION, &second), parameter(1, 40));
    assert_eq!(
        start(HOP_BY_HOP, &second),
        parameter(1, 40),
        "twice is not first, either"
    );
    assert_eq!(
        walk_reassembled(Protocol::HOP_BY_HOP, &second),
        parameter(1, 6)
    );
    // Anything else in any order.
    let mut route = pad(DESTINATION);
    route[2..4].copy_from_slice(&[9, 0]);
    let mixed = [pad(DESTINATION), pad(ROUTING), route, pad(TCP)].concat();
    assert_eq!(found(HOP_BY_HOP, &mixed), (TCP, 32));
    assert_eq!(start(HOP_BY_HOP, &mixed).unwrap().protocol_pointer, 64);
    // As many as allowed, and one more, and a hundred.
    for count in 1..=100 {
        let mut chain = pad(DESTINATION).repeat(count);
        chain[count * 8 - 8] = TCP;
        let expected = start(DESTINATION, &chain);
        if count <= HEADERS_MAX {
            assert_eq!(expected.map(|upper| upper.offset), Ok(count * 8));
        } else {
            assert_eq!(expected, dropped(Drop::TooManyHeaders));
        }
    }
}

/// A fragment header and `data`.
fn fragment(next: u8, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let header = FragmentHeader {
        next_header: Protocol(next),
        offset,
        more,
        ident: 7,
    };
    let mut bytes = vec![0; 8];
    assert_eq!(header.emit(&mut bytes), 8);
    bytes.extend(data);
    bytes
}

/// RFC 7112 §5, RFC 8200 §4.5: the first fragment has the whole chain.
#[test]
fn negative_40_chain_longer_than_the_first_fragment() {
    let cut = parameter(3, 0);
    assert_eq!(
        start(FRAGMENT, &fragment(TCP, 0, true, &[0x50; 16])),
        cut,
        "half a TCP header"
    );
    assert!(start(FRAGMENT, &fragment(TCP, 0, true, &[0x50; 24])).is_ok());
    assert_eq!(
        start(FRAGMENT, &fragment(TCP, 0, true, &[0xf0; 24])),
        cut,
        "options missing"
    );
    assert!(start(FRAGMENT, &fragment(17, 0, true, &[0; 8])).is_ok());
    let options = [TCP, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(
        start(FRAGMENT, &fragment(DESTINATION, 0, true, &options)),
        cut,
        "no TCP at all"
    );
    let long = [TCP, 2, 1, 4, 0, 0, 0, 0];
    assert_eq!(
        start(FRAGMENT, &fragment(DESTINATION, 0, true, &long)),
        cut,
        "cut in a header"
    );
    assert!(
        start(FRAGMENT, &fragment(TCP, 8, true, &[0; 8])).is_ok(),
        "only the first needs it"
    );
}

/// Groups 19, 22 and 23 meet IPv6 here (RFC 8200 §4.5).
#[test]
fn fragments_that_cannot_be() {
    let odd = fragment(TCP, 64, true, &[0; 13]);
    assert_eq!(
        start(FRAGMENT, &odd),
        parameter(0, 4),
        "at the payload length"
    );
    let beyond = fragment(TCP, 65_528, false, &[0; 8]);
    assert_eq!(start(FRAGMENT, &beyond), parameter(0, 42), "at the offset");
    assert!(start(FRAGMENT, &fragment(TCP, 65_528, false, &[0; 7])).is_ok());
    for more in [false, true] {
        let empty = fragment(TCP, 8, more, &[]);
        assert_eq!(start(FRAGMENT, &empty), dropped(Drop::EmptyFragment));
    }
    // Atomic fragments are whole (RFC 6946), but not for neighbour discovery (RFC 6980).
    let upper = start(FRAGMENT, &fragment(58, 0, false, &[0; 8])).unwrap();
    assert_eq!((upper.protocol, upper.offset), (Protocol::ICMPV6, 8));
    assert!(upper.fragment.is_none() && upper.fragmented);
    let nested = fragment(FRAGMENT, 0, false, &fragment(TCP, 0, false, &[0; 20]));
    assert_eq!(start(FRAGMENT, &nested), dropped(Drop::NestedFragment));
    let inner = fragment(TCP, 0, false, &[0; 20]);
    assert_eq!(
        walk_reassembled(Protocol::FRAGMENT, &inner),
        dropped(Drop::NestedFragment)
    );
    for end in 0..8 {
        assert_eq!(start(FRAGMENT, &inner[..end]), dropped(Drop::Truncated));
    }
}

#[test]
fn negative_41_routing_headers() {
    // Any type with segments left: code 0 at the type (RFC 5095 §3 for type 0, RFC 8200 §4.4).
    for (kind, units, left) in [
        (0, 2, 1),
        (0, 2, 2),
        (0, 2, 200),
        (0, 1, 1),
        (4, 2, 1),
        (99, 0, 9),
    ] {
        let mut header = vec![0; 24];
        header[..4].copy_from_slice(&[TCP, units, kind, left]);
        assert_eq!(
            start(ROUTING, &header),
            parameter(0, 42),
            "type {kind} left {left}"
        );
        // None left: passed over, odd length or not.
        header[3] = 0;
        assert_eq!(found(ROUTING, &header), (TCP, (usize::from(units) + 1) * 8));
        assert_eq!(
            start(ROUTING, &[TCP, 2, kind, 0, 0, 0, 0, 0]),
            dropped(Drop::Truncated)
        );
    }
}

#[test]
fn negative_42_nothing_or_something_unknown_next() {
    assert_eq!(start(NONE, &[]), dropped(Drop::NoNextHeader));
    assert_eq!(start(NONE, &[1, 2, 3]), dropped(Drop::NoNextHeader));
    assert_eq!(
        start(DESTINATION, &[NONE, 0, 1, 4, 0, 0, 0, 0, 9]),
        dropped(Drop::NoNextHeader)
    );
    // Unknown: the caller answers with code 1 at the byte that names it.
    let upper = start(200, &[0; 4]).unwrap();
    assert_eq!(
        (upper.protocol.0, upper.offset, upper.protocol_pointer),
        (200, 0, 6)
    );
    let upper = start(DESTINATION, &[200, 0, 1, 4, 0, 0, 0, 0]).unwrap();
    assert_eq!(
        (upper.protocol.0, upper.offset, upper.protocol_pointer),
        (200, 8, 40)
    );
}

/// A message's bytes; the checksum is ICMPv6's business.
fn bytes(message: Message<'_>) -> Vec<u8> {
    let mut buf = vec![0; 2048];
    let len = message.emit(ROUTER, HOST, &mut buf);
    assert_ne!(len, 0);
    buf.truncate(len);
    buf
}

fn solicitation(target: Ipv6Addr, source_link: Option<MacAddr>) -> Vec<u8> {
    bytes(Message::NeighborSolicitation {
        target,
        source_link,
    })
}

fn advertisement(options: &[u8]) -> Vec<u8> {
    let mut message = bytes(Message::RouterAdvertisement(ndp::RouterAdvertisement {
        hop_limit: 64,
        router_lifetime_s: 1800,
        ..ndp::RouterAdvertisement::default()
    }));
    message.extend(options);
    message
}

fn from_router(message: &[u8]) -> Result<Message<'_>, Error> {
    Message::parse(ROUTER, ALL_NODES, 255, message)
}

#[test]
fn negative_44_option_of_length_zero() {
    let zero = [1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Options::parse(&zero), Err(Error::Option));
    for message in [
        bytes(Message::RouterSolicitation { source_link: None }),
        advertisement(&[]),
        solicitation(HOST, None),
        bytes(Message::NeighborAdvertisement {
            target: HOST,
            router: false,
            solicited: false,
            replace: false,
            target_link: None,
        }),
        bytes(Message::Redirect {
            target: ROUTER,
            destination: HOST,
            target_link: None,
            redirected: &[],
        }),
    ] {
        assert!(from_router(&message).is_ok());
        for tail in [
            &zero[..],
            &[1, 2, 0, 0, 0, 0, 0, 0],
            &[1],
            &[200, 1, 0],
            &[1, 1, 0, 0, 0, 0, 0],
        ] {
            let bad = [&message, tail].concat();
            assert_eq!(
                from_router(&bad),
                Err(Error::Option),
                "type {} {tail:?}",
                message[0]
            );
        }
        // Cut anywhere, option or not: an error.
        for end in 0..message.len() {
            assert_eq!(from_router(&message[..end]), Err(Error::Truncated));
        }
    }
}

#[test]
fn negative_45_dns_options() {
    // CVE-2020-16898: an even length leaves half an address over.
    for units in 1..=9_u8 {
        let mut option = vec![7; usize::from(units) * 8];
        option[..2].copy_from_slice(&[25, units]);
        let message = advertisement(&option);
        let Ok(Message::RouterAdvertisement(router)) = from_router(&message) else {
            panic!()
        };
        let seen: Vec<_> = router.options.iter().collect();
        match seen[..] {
            [Opt::RecursiveDns { servers, .. }] => {
                assert!(units >= 3 && units % 2 == 1);
                assert_eq!(servers.len(), usize::from(units / 2));
            }
            [Opt::Malformed { kind: 25 }] => assert!(units < 3 || units % 2 == 0),
            ref other => panic!("{other:?}"),
        }
    }
    let search = |names: &[u8]| {
        let mut option = vec![
            31,
            u8::try_from(1 + names.len() / 8).unwrap(),
            0,
            0,
            0,
            0,
            0,
            60,
        ];
        option.extend(names);
        let options = Options::parse(&option).unwrap();
        options
            .iter()
            .all(|option| matches!(option, Opt::DnsSearch { .. }))
    };
    assert!(search(b"\x03lan\0\0\0\0"));
    assert!(search(b"\x01a\x01b\0\x01c\0"));
    assert!(!search(b"\x03lan\x03abc"), "unterminated");
    assert!(
        !search(b"\x07abc\0\0\0\0"),
        "a label over the end... of its name"
    );
    assert!(!search(b"\x20abcdefg"), "a label over the end");
    assert!(!search(b"\x03lan\xc0\x00\0\0"), "a compression pointer");
    assert!(!search(b"\x40abcdefg"), "a label of 64");
    assert!(!search(b"\x03lan\0\0\0x"), "garbage for padding");
    assert!(!search(b"\0\0\0\0\0\0\0\0"), "no name");
    let long = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(4);
    assert!(
        !search(&[&long[..], b"\0\0\0\0\0\0\0\0"].concat()),
        "257 bytes of name"
    );
}

#[test]
fn negative_46_router_advertisements() {
    let message = advertisement(&[]);
    assert!(from_router(&message).is_ok());
    for hop_limit in [0, 1, 64, 254] {
        let parsed = Message::parse(ROUTER, ALL_NODES, hop_limit, &message);
        assert_eq!(parsed, Err(Error::Value), "hop limit {hop_limit}");
    }
    for source in [HOST, Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, ALL_NODES] {
        assert_eq!(
            Message::parse(source, ALL_NODES, 255, &message),
            Err(Error::Value)
        );
    }
    let mut coded = message;
    coded[1] = 1;
    assert_eq!(from_router(&coded), Err(Error::Version));

    let mut prefix = [0; 32];
    let value = Prefix {
        prefix: HOST,
        len: 0,
        on_link: true,
        autonomous: true,
        valid_s: 5,
        preferred_s: 6,
    };
    assert_eq!(Opt::Prefix(value).emit(&mut prefix), 32);
    let only = |option: &[u8]| {
        let options = Options::parse(option).unwrap();
        let malformed = options
            .iter()
            .any(|option| matches!(option, Opt::Malformed { .. }));
        !malformed
    };
    assert!(
        only(&prefix),
        "a prefix of length 0 has meaning: the whole net is on link"
    );
    for len in [129, 200, 255] {
        prefix[2] = len;
        assert!(!only(&prefix), "prefix length {len}");
    }
    // 10 000 prefixes, as many as a packet holds at a time.
    prefix[2] = 64;
    let flood = advertisement(&prefix.repeat(2000));
    let Ok(Message::RouterAdvertisement(router)) = from_router(&flood) else {
        panic!()
    };
    assert_eq!(router.options.iter().count(), 2000);
    // MTU 0 or below 1280 is the reader's to refuse; one of another length is not an MTU.
    let options = Options::parse(&[5, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(options.iter().next(), Some(Opt::Mtu(0)));
    let mut long = [0; 16];
    long[..2].copy_from_slice(&[5, 2]);
    assert!(!only(&long));
    // A hardware address that is not Ethernet's spoils the message.
    let wide = [[1, 2, 0, 0, 0, 0, 0, 0], [0; 8]].concat();
    assert_eq!(from_router(&advertisement(&wide)), Err(Error::Option));
}

#[test]
fn negative_47_targets_and_sources() {
    let parse = |from, to, message: &[u8]| Message::parse(from, to, 255, message).map(drop);
    let multicast = solicitation(ALL_NODES, None);
    assert_eq!(parse(HOST, HOST, &multicast), Err(Error::Value));
    // Duplicate address detection: from no address, to the solicited-node group, without an address.
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let group = ndp::solicited_node(HOST);
    assert_eq!(group, "ff02::1:ff00:2".parse::<Ipv6Addr>().unwrap());
    let asks = solicitation(HOST, None);
    assert_eq!(parse(unspecified, group, &asks), Ok(()));
    assert_eq!(parse(unspecified, HOST, &asks), Err(Error::Value));
    assert_eq!(parse(unspecified, ALL_NODES, &asks), Err(Error::Value));
    assert_eq!(
        parse(unspecified, group, &solicitation(HOST, Some(MAC))),
        Err(Error::Value)
    );
    let routers = bytes(Message::RouterSolicitation {
        source_link: Some(MAC),
    });
    assert_eq!(parse(unspecified, ALL_NODES, &routers), Err(Error::Value));
    assert_eq!(parse(HOST, ALL_NODES, &routers), Ok(()));

    let answer = |target, solicited| {
        bytes(Message::NeighborAdvertisement {
            target,
            router: false,
            solicited,
            replace: true,
            target_link: Some(MAC),
        })
    };
    assert_eq!(parse(HOST, HOST, &answer(HOST, true)), Ok(()));
    assert_eq!(parse(HOST, ALL_NODES, &answer(HOST, false)), Ok(()));
    assert_eq!(
        parse(HOST, ALL_NODES, &answer(HOST, true)),
        Err(Error::Value)
    );
    assert_eq!(
        parse(HOST, HOST, &answer(ALL_NODES, false)),
        Err(Error::Value)
    );

    let redirect = |target, destination| {
        let quote = &[0; 8];
        bytes(Message::Redirect {
            target,
            destination,
            target_link: None,
            redirected: quote,
        })
    };
    assert_eq!(parse(ROUTER, HOST, &redirect(ROUTER, HOST)), Ok(()));
    assert_eq!(
        parse(ROUTER, HOST, &redirect(HOST, HOST)),
        Ok(()),
        "on link after all"
    );
    assert_eq!(
        parse(HOST, HOST, &redirect(ROUTER, HOST)),
        Err(Error::Value)
    );
    assert_eq!(
        parse(ROUTER, HOST, &redirect(HOST, ROUTER)),
        Err(Error::Value)
    );
    assert_eq!(
        parse(ROUTER, HOST, &redirect(ROUTER, ALL_NODES)),
        Err(Error::Value)
    );
}
