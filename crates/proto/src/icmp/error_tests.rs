//! Errors out: where they go, and all the rules of silence; negative 17, 32.

use super::super::tests::{T0, limiter, message4, ours, v4, v6};
use super::super::{DropReason, Incoming, incoming, receive_v4, receive_v6};
use super::*;
use crate::ip::address::Destination;
use std::vec::Vec;

fn answer(kind: Kind, packet: &[u8], link_group: bool) -> Result<Vec<u8>, Silent> {
    let mut buf = [0; 1280];
    let sent = respond(
        kind,
        packet,
        link_group,
        &ours(),
        Some(&mut limiter()),
        T0,
        &mut buf,
    );
    sent.map(|Response { len, .. }| buf[..len].to_vec())
}

/// What the receiver of an error makes of it.
fn heard(packet: &[u8], theirs: &Addresses) -> Result<Incoming<'static>, DropReason> {
    let error = |incoming| match incoming {
        Incoming::Error(error) => Incoming::Error(error),
        other => panic!("{other:?}"),
    };
    if packet[0] >> 4 == 4 {
        let header = ipv4::Header::parse(packet).unwrap();
        receive_v4(header.payload(packet), Destination::Ours, theirs).map(error)
    } else {
        let header = ipv6::Header::parse(packet).unwrap();
        let (source, destination) = (header.source, header.destination);
        let bytes = header.payload(packet);
        receive_v6(source, destination, bytes, Destination::Ours, false, theirs).map(error)
    }
}

#[test]
fn port_unreachable_reaches_the_sender() {
    let mut theirs = Addresses::new();
    theirs.add("10.77.0.9/24".parse().unwrap()).unwrap();
    theirs.add("fd77::9/64".parse().unwrap()).unwrap();
    let udp = [0x03, 0xe8, 0x07, 0xd0, 0, 8, 0, 0];
    for packet in [
        v4(Protocol::UDP, "10.77.0.9", "10.77.0.2", &udp),
        v6(Protocol::UDP, "fd77::9", "fd77::2", &udp),
    ] {
        let error = answer(Kind::PortUnreachable, &packet, false).unwrap();
        let Ok(Incoming::Error(error)) = heard(&error, &theirs) else {
            panic!("an error")
        };
        assert_eq!(
            (error.kind, error.protocol),
            (incoming::Kind::PortUnreachable, Protocol::UDP)
        );
        assert_eq!((error.local.1, error.remote.1), (1000, 2000));
        assert!(theirs.is_local(error.local.0) && ours().is_local(error.remote.0));
        assert!(error.kind.is_hard() && usize::from(error.quoted_len) == packet.len());
    }
}

#[test]
fn an_error_quotes_no_more_than_its_family_allows_and_no_padding() {
    for (packet, max) in [
        (v4(Protocol::UDP, "10.77.0.9", "10.77.0.2", &[7; 1400]), 576),
        (v6(Protocol::UDP, "fd77::9", "fd77::2", &[7; 1400]), 1280),
    ] {
        assert_eq!(
            answer(Kind::PortUnreachable, &packet, false).unwrap().len(),
            max
        );
    }
    let mut padded = v4(Protocol::UDP, "10.77.0.9", "10.77.0.2", &[7; 10]);
    padded.extend_from_slice(&[0; 16]);
    assert_eq!(
        answer(Kind::PortUnreachable, &padded, false).unwrap().len(),
        20 + 8 + 30
    );
    let long = v4(Protocol::UDP, "10.77.0.9", "10.77.0.2", &[7; 1400]);
    let sent = respond(
        Kind::PortUnreachable,
        &long,
        false,
        &ours(),
        Some(&mut limiter()),
        T0,
        &mut [0; 100],
    );
    assert_eq!(sent, Err(Silent::NoRoom));
}

#[test]
fn negative_32_rules_of_silence_ipv4() {
    let port = Kind::PortUnreachable;
    let unreachable = icmpv4::Message::DestinationUnreachable { code: 1, mtu: 0 };
    for message in [
        unreachable,
        icmpv4::Message::Redirect {
            code: 0,
            gateway: [1, 1, 1, 1].into(),
        },
        icmpv4::Message::TimeExceeded { code: 0 },
        icmpv4::Message::ParameterProblem {
            code: 0,
            pointer: 0,
        },
        icmpv4::Message::Other {
            kind: 4,
            code: 0,
            rest: [0; 4],
        },
        icmpv4::Message::Other {
            kind: 77,
            code: 0,
            rest: [0; 4],
        },
    ] {
        let packet = v4(
            Protocol::ICMP,
            "10.77.0.9",
            "10.77.0.2",
            &message4(message, &[0; 28]),
        );
        assert_eq!(
            answer(port, &packet, false),
            Err(Silent::AboutError),
            "{message:?}"
        );
    }
}

#[test]
fn negative_32_more_rules_of_silence_ipv4() {
    let port = Kind::PortUnreachable;
    let udp = |from: &str, to: &str| v4(Protocol::UDP, from, to, &[0; 8]);
    let cut = v4(Protocol::ICMP, "10.77.0.9", "10.77.0.2", &[]);
    assert_eq!(
        answer(port, &cut, false),
        Err(Silent::AboutError),
        "unseen counts as one"
    );
    for to in ["10.77.0.255", "255.255.255.255", "224.0.0.1"] {
        assert_eq!(
            answer(port, &udp("10.77.0.9", to), false),
            Err(Silent::ToGroup)
        );
    }
    assert_eq!(
        answer(port, &udp("10.77.0.9", "10.77.0.2"), true),
        Err(Silent::LinkGroup)
    );
    for from in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "10.77.0.255",
    ] {
        assert_eq!(
            answer(port, &udp(from, "10.77.0.2"), false),
            Err(Silent::SourceNotUnique)
        );
    }
    let mut later = udp("10.77.0.9", "10.77.0.2");
    later[7] = 1;
    assert_eq!(answer(port, &later, false), Err(Silent::LaterFragment));
    for cut in 0..20 {
        let packet = udp("10.77.0.9", "10.77.0.2");
        assert_eq!(answer(port, &packet[..cut], false), Err(Silent::Malformed));
    }
}

#[test]
fn negative_32_rules_of_silence_ipv6() {
    let port = Kind::PortUnreachable;
    let udp = |from: &str, to: &str| v6(Protocol::UDP, from, to, &[0; 8]);
    for kind in [1, 2, 3, 4, 100, 127, 137] {
        let packet = v6(
            Protocol::ICMPV6,
            "fd77::9",
            "fd77::2",
            &[kind, 0, 0, 0, 0, 0, 0, 0],
        );
        assert_eq!(
            answer(port, &packet, false),
            Err(Silent::AboutError),
            "type {kind}"
        );
    }
    // Hidden behind an extension header as well.
    let hidden = [58, 0, 1, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let packet = v6(Protocol::DESTINATION_OPTIONS, "fd77::9", "fd77::2", &hidden);
    assert_eq!(answer(port, &packet, false), Err(Silent::AboutError));
    assert_eq!(
        answer(port, &udp("fd77::9", "ff02::1"), false),
        Err(Silent::ToGroup)
    );
    assert_eq!(
        answer(port, &udp("fd77::9", "fd77::2"), true),
        Err(Silent::LinkGroup)
    );
    for from in ["::", "::1", "ff02::1"] {
        assert_eq!(
            answer(port, &udp(from, "fd77::2"), false),
            Err(Silent::SourceNotUnique)
        );
    }
    let problem = |even_if_group| Kind::ParameterProblem {
        code: 2,
        pointer: 42,
        even_if_group,
    };
    assert_eq!(
        answer(problem(false), &udp("fd77::9", "ff02::1"), true),
        Err(Silent::ToGroup)
    );
    let sent = answer(problem(true), &udp("fd77::9", "ff02::1"), true).unwrap();
    assert_eq!(
        ipv6::Header::parse(&sent).unwrap().source,
        "fd77::2".parse::<Ipv6Addr>().unwrap()
    );
    let big = Kind::PacketTooBig { mtu: 1280 };
    assert!(answer(big, &udp("fd77::9", "ff02::1"), true).is_ok());
}

#[test]
fn negative_17_errors_are_rate_limited() {
    let packet = v4(Protocol(200), "10.77.0.9", "10.77.0.2", &[0; 8]);
    let (mut limiter, mut buf) = (limiter(), [0; 1280]);
    let kind = Kind::ProtocolUnreachable { pointer: 9 };
    let sent = (0..1000)
        .filter(|_| {
            respond(
                kind,
                &packet,
                false,
                &ours(),
                Some(&mut limiter),
                T0,
                &mut buf,
            )
            .is_ok()
        })
        .count();
    assert_eq!(sent, 10);
}
