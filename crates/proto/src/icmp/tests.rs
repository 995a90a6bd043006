//! Echo, and errors in: negative 30 to 37.

use super::error::{Silent, respond};
use super::limit::{Config, Limiter};
use super::*;
use crate::ip::Seed;
use crate::time::Instant;
use crate::wire::tcp::SeqNum;
use crate::wire::{Protocol, checksum, ipv4, ipv6};
use proptest::prelude::*;
use std::vec::Vec;

pub(super) const T0: Instant = Instant(1_000_000_000_000);

pub(super) fn ours() -> Addresses {
    let mut all = Addresses::new();
    all.add("10.77.0.2/24".parse().unwrap()).unwrap();
    all.add("fd77::2/64".parse().unwrap()).unwrap();
    all
}
pub(super) fn limiter() -> Limiter {
    Limiter::new(Config::default(), Seed([1, 2]))
}
pub(super) fn v4(protocol: Protocol, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header::new(protocol, from.parse().unwrap(), to.parse().unwrap());
    let mut packet = std::vec![0; 20];
    assert_eq!(header.emit(payload.len(), &mut packet), 20);
    packet.extend_from_slice(payload);
    packet
}
pub(super) fn v6(protocol: Protocol, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header::new(protocol, from.parse().unwrap(), to.parse().unwrap());
    let mut packet = std::vec![0; 40];
    assert_eq!(header.emit(payload.len(), &mut packet), 40);
    packet.extend_from_slice(payload);
    packet
}
pub(super) fn message4(message: icmpv4::Message, payload: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; 8 + payload.len()];
    assert_eq!(message.emit(payload, &mut bytes), bytes.len());
    bytes
}
fn message6(message: icmpv6::Message, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; 8 + payload.len()];
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    assert_eq!(message.emit(from, to, payload, &mut bytes), bytes.len());
    bytes
}

#[test]
fn echo_returns_the_data_whole() {
    for len in [0, 1, 56, 65_507] {
        let data = std::vec![0x5a; len];
        let request = icmpv4::Message::EchoRequest { ident: 7, seq: 9 };
        let packet = v4(
            Protocol::ICMP,
            "10.77.0.9",
            "10.77.0.2",
            &message4(request, &data),
        );
        let header = ipv4::Header::parse(&packet).unwrap();
        let bytes = header.payload(&packet);
        assert_eq!(
            receive_v4(bytes, Destination::Ours, &ours()),
            Ok(Incoming::EchoRequest)
        );
        let mut buf = std::vec![0; 65_535];
        let sent = echo::reply_v4(&header, bytes, &ours(), 1500, &mut buf).unwrap();
        let header = ipv4::Header::parse(&buf[..sent]).unwrap();
        assert_eq!(
            (header.source, header.destination),
            ([10, 77, 0, 2].into(), [10, 77, 0, 9].into())
        );
        assert_eq!(header.dont_fragment, sent <= 1500);
        let got = receive_v4(header.payload(&buf[..sent]), Destination::Ours, &ours());
        assert_eq!(
            got,
            Ok(Incoming::EchoReply {
                ident: 7,
                seq: 9,
                data: &data
            })
        );
    }
}

#[test]
fn echo_over_ipv6_also_to_groups() {
    for to in ["fd77::2", "ff02::1"] {
        let request = icmpv6::Message::EchoRequest { ident: 7, seq: 9 };
        let packet = v6(
            Protocol::ICMPV6,
            "fd77::9",
            to,
            &message6(request, "fd77::9", to, b"data"),
        );
        let header = ipv6::Header::parse(&packet).unwrap();
        let mut buf = [0; 1500];
        let sent = echo::reply_v6(&header, header.payload(&packet), &ours(), &mut buf).unwrap();
        let header = ipv6::Header::parse(&buf[..sent]).unwrap();
        assert_eq!(header.source, "fd77::2".parse::<Ipv6Addr>().unwrap());
        let bytes = header.payload(&buf[..sent]);
        let got = receive_v6(
            header.source,
            header.destination,
            bytes,
            Destination::Ours,
            false,
            &ours(),
        );
        assert_eq!(
            got,
            Ok(Incoming::EchoReply {
                ident: 7,
                seq: 9,
                data: b"data"
            })
        );
    }
}

#[test]
fn negative_36_smurf() {
    let request = icmpv4::Message::EchoRequest { ident: 7, seq: 9 };
    let bytes = message4(request, b"data");
    for to in [Destination::Broadcast, Destination::Group] {
        assert_eq!(
            receive_v4(&bytes, to, &ours()),
            Err(DropReason::EchoToGroup)
        );
    }
    let packet = v4(Protocol::ICMP, "10.77.0.9", "10.77.0.255", &bytes);
    let header = ipv4::Header::parse(&packet).unwrap();
    let sent = echo::reply_v4(&header, &bytes, &ours(), 1500, &mut [0; 100]);
    assert_eq!(sent, Err(echo::Silent::NotOurs));
    let packet = v4(Protocol::ICMP, "10.77.0.255", "10.77.0.2", &bytes);
    let header = ipv4::Header::parse(&packet).unwrap();
    let sent = echo::reply_v4(&header, &bytes, &ours(), 1500, &mut [0; 100]);
    assert_eq!(sent, Err(echo::Silent::SourceNotUnique));
}

#[test]
fn negative_30_37_malformed_messages() {
    let request = message4(icmpv4::Message::EchoRequest { ident: 7, seq: 9 }, b"data");
    for cut in 0..8 {
        let got = receive_v4(&request[..cut], Destination::Ours, &ours());
        assert_eq!(got, Err(DropReason::Malformed));
    }
    let mut bad = request;
    bad[9] ^= 1;
    assert_eq!(
        receive_v4(&bad, Destination::Ours, &ours()),
        Err(DropReason::Checksum)
    );
    for (kind, len, want) in [
        (13, 11, DropReason::Malformed),
        (13, 12, DropReason::Unsupported),
        (17, 5, DropReason::Malformed),
        (17, 4, DropReason::Unsupported),
        (4, 28, DropReason::SourceQuench),
        (9, 0, DropReason::Unsupported),
    ] {
        let message = icmpv4::Message::Other {
            kind,
            code: 0,
            rest: [0; 4],
        };
        let bytes = message4(message, &std::vec![0; len]);
        assert_eq!(
            receive_v4(&bytes, Destination::Ours, &ours()),
            Err(want),
            "{kind} {len}"
        );
    }
}

/// An IPv4 error to us that quotes this packet.
fn quoting(message: icmpv4::Message, quote: &[u8]) -> Result<IncomingError, DropReason> {
    let bytes = message4(message, quote);
    match receive_v4(&bytes, Destination::Ours, &ours())? {
        Incoming::Error(error) => Ok(error),
        other => panic!("{other:?}"),
    }
}
const UNREACHABLE: icmpv4::Message = icmpv4::Message::DestinationUnreachable { code: 1, mtu: 0 };
fn segment() -> Vec<u8> {
    let ports_and_seq = [0x03, 0xe8, 0, 80, 1, 2, 3, 4];
    v4(Protocol::TCP, "10.77.0.2", "192.0.2.1", &ports_and_seq)
}

#[test]
fn an_error_about_a_segment_names_its_connection_and_sequence() {
    let error = quoting(UNREACHABLE, &segment()).unwrap();
    let want = IncomingError {
        protocol: Protocol::TCP,
        local: ([10, 77, 0, 2].into(), 1000),
        remote: ([192, 0, 2, 1].into(), 80),
        kind: Kind::HostUnreachable,
        quoted_seq: Some(SeqNum(0x0102_0304)),
        quoted_len: 28,
    };
    assert_eq!(error, want);
    assert!(!error.kind.is_hard());
}

#[test]
fn negative_31_32_quotes_that_are_not_ours_or_not_whole() {
    let packet = segment();
    for cut in 0..28 {
        assert_eq!(
            quoting(UNREACHABLE, &packet[..cut]),
            Err(DropReason::QuoteMalformed),
            "{cut}"
        );
    }
    let mut long_header = packet.clone();
    long_header[0] = 0x4f;
    assert_eq!(
        quoting(UNREACHABLE, &long_header),
        Err(DropReason::QuoteMalformed)
    );
    for first in [0x44, 0x05, 0x65, 0xf5] {
        let mut bad = packet.clone();
        bad[0] = first;
        assert_eq!(quoting(UNREACHABLE, &bad), Err(DropReason::QuoteMalformed));
    }
    let stranger = v4(Protocol::TCP, "10.77.0.3", "192.0.2.1", &[0; 8]);
    assert_eq!(
        quoting(UNREACHABLE, &stranger),
        Err(DropReason::QuoteNotOurs)
    );
    let about_error = v4(
        Protocol::ICMP,
        "10.77.0.2",
        "192.0.2.1",
        &[3, 1, 0, 0, 0, 0, 0, 0],
    );
    assert_eq!(
        quoting(UNREACHABLE, &about_error),
        Err(DropReason::QuoteProtocol)
    );
    let mut later = packet;
    later[7] = 9;
    assert_eq!(quoting(UNREACHABLE, &later), Err(DropReason::QuoteFragment));
    let bytes = message4(UNREACHABLE, &segment());
    let got = receive_v4(&bytes, Destination::Broadcast, &ours());
    assert_eq!(got, Err(DropReason::ErrorToGroup));
}

#[test]
fn negative_33_mtus() {
    let too_big = |mtu| icmpv4::Message::DestinationUnreachable { code: 4, mtu };
    for mtu in [1, 67] {
        assert_eq!(quoting(too_big(mtu), &segment()), Err(DropReason::Mtu));
    }
    for mtu in [0, 68, 1400, 65535] {
        let kind = quoting(too_big(mtu), &segment()).unwrap().kind;
        assert_eq!(kind, Kind::PacketTooBig(u32::from(mtu)));
    }
    let sent = v6(Protocol::UDP, "fd77::2", "2001:db8::1", &[0; 8]);
    for (mtu, ok) in [(0, false), (1279, false), (1280, true), (u32::MAX, true)] {
        let message = icmpv6::Message::PacketTooBig { mtu };
        let got = incoming::parse_v6(&message, &sent, &ours());
        assert_eq!(got.is_ok(), ok, "{mtu}");
    }
}

#[test]
fn negative_35_redirects_are_not_followed() {
    let redirect = icmpv4::Message::Redirect {
        code: 1,
        gateway: [10, 77, 0, 2].into(),
    };
    assert_eq!(quoting(redirect, &segment()), Err(DropReason::Redirect));
}

#[test]
fn what_the_codes_mean() {
    let v4_kind = |code| {
        quoting(
            icmpv4::Message::DestinationUnreachable { code, mtu: 0 },
            &segment(),
        )
        .unwrap()
        .kind
    };
    assert_eq!(
        (v4_kind(0), v4_kind(2)),
        (Kind::NetUnreachable, Kind::ProtocolUnreachable)
    );
    assert_eq!(
        (v4_kind(3), v4_kind(13)),
        (Kind::PortUnreachable, Kind::Prohibited)
    );
    assert_eq!(
        (v4_kind(5), v4_kind(200)),
        (Kind::HostUnreachable, Kind::HostUnreachable)
    );
    let echo = [128, 0, 0, 0, 0, 7, 0, 9];
    let sent = v6(Protocol::ICMPV6, "fd77::2", "2001:db8::1", &echo);
    let v6_error = |message| incoming::parse_v6(&message, &sent, &ours()).unwrap();
    let error = v6_error(icmpv6::Message::DestinationUnreachable { code: 3 });
    assert_eq!(
        (error.kind, error.local.1, error.remote.1),
        (Kind::HostUnreachable, 7, 0)
    );
    let error = v6_error(icmpv6::Message::ParameterProblem {
        code: 1,
        pointer: 40,
    });
    assert_eq!(error.kind, Kind::ProtocolUnreachable);
    let error = v6_error(icmpv6::Message::Other {
        kind: 100,
        code: 3,
        rest: [0; 4],
    });
    assert_eq!(error.kind, Kind::Other { kind: 100, code: 3 });
}

#[test]
fn neighbour_discovery_is_passed_on_unless_fragmented() {
    let (from, to) = ("fe80::9".parse().unwrap(), "fd77::2".parse().unwrap());
    let mut bytes = std::vec![135, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0; 16]);
    let sum = checksum::pseudo_header_v6(from, to, Protocol::ICMPV6, 24) + checksum::sum(&bytes);
    bytes[2..4].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    let receive = |fragmented| receive_v6(from, to, &bytes, Destination::Ours, fragmented, &ours());
    assert_eq!(receive(false), Ok(Incoming::NeighborDiscovery));
    assert_eq!(receive(true), Err(DropReason::Malformed), "RFC 6980");
}

proptest! {
    /// Any bytes, through every door: no panic, no answer to an error, no error longer than
    /// allowed.
    #[test]
    fn any_bytes_are_survived(
        six in any::<bool>(),
        next in prop::sample::select(std::vec![0u8, 1, 6, 17, 43, 44, 58, 59, 60, 200]),
        mut payload in prop::collection::vec(any::<u8>(), 0..120),
        noise in prop::collection::vec((0usize..160, any::<u8>()), 0..4),
    ) {
        let (ours, mut limiter, mut buf) = (ours(), limiter(), [0; 1280]);
        let mut packet = if six {
            v6(Protocol(next), "fd77::9", "fd77::2", &payload)
        } else {
            v4(Protocol(next), "10.77.0.9", "10.77.0.2", &payload)
        };
        for (at, byte) in noise {
            if let Some(b) = packet.get_mut(at) { *b = byte }
        }
        let sent = respond(error::Kind::PortUnreachable, &packet, false, &ours, Some(&mut limiter), T0, &mut buf);
        if let Ok(sent) = sent {
            let len_max = if sent.destination.is_ipv4() { 576 } else { 1280 };
            prop_assert!(sent.len <= len_max);
            let again = respond(error::Kind::PortUnreachable, &{ buf }[..sent.len], false, &ours, Some(&mut limiter), T0, &mut buf);
            prop_assert_eq!(again, Err(Silent::AboutError));
        }
        // As a message, with its checksum made right.
        if payload.len() >= 8 {
            payload[2..4].copy_from_slice(&[0, 0]);
            let sum = checksum::checksum(&payload);
            payload[2..4].copy_from_slice(&sum.to_be_bytes());
            let _ = receive_v4(&payload, Destination::Ours, &ours);
            let _ = incoming::parse_v6(&icmpv6::Message::TimeExceeded { code: 0 }, &packet, &ours);
            let _ = incoming::parse_v4(&UNREACHABLE, &packet, &ours);
            if let Ok(header) = ipv4::Header::parse(&packet) {
                let _ = echo::reply_v4(&header, &payload, &ours, 1500, &mut buf);
            }
        }
    }
}
