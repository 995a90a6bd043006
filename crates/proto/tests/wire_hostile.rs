//! Bytes from anywhere: random, cut, and packets of ours with a few bytes changed. Nothing panics,
//! and what a parser accepts holds together (the assertions are in `wire_common/probe.rs`).

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use proptest::prelude::*;
use proto::wire::ethernet::{EtherType, MacAddr};
use proto::wire::ipv6::extension::FragmentHeader;
use proto::wire::{Protocol, ethernet, icmpv6, ipv6, tcp};

mod wire_common;
use wire_common::{
    arp_packet, bytes, discovery, ethernet_header, icmpv4_message, icmpv6_message, ipv4_header,
    ipv6_header, ndp_options, probe, tcp_header, udp_header,
};

const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

fn emitted(emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut buf = vec![0; 4096];
    let len = emit(&mut buf);
    buf.truncate(len);
    buf
}

/// A packet of every kind, as we would send it.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let with = |mut head: Vec<u8>, tail: Vec<u8>| {
        head.extend(tail);
        head
    };
    prop_oneof![
        ethernet_header().prop_map(|header| emitted(|buf| header.emit(buf))),
        arp_packet().prop_map(|packet| emitted(|buf| packet.emit(buf))),
        (ipv4_header(), bytes(60)).prop_map(move |(header, payload)| {
            with(emitted(|buf| header.emit(payload.len(), buf)), payload)
        }),
        (ipv6_header(), bytes(60)).prop_map(move |(header, payload)| {
            with(emitted(|buf| header.emit(payload.len(), buf)), payload)
        }),
        (icmpv4_message(), bytes(60))
            .prop_map(|(message, payload)| { emitted(|buf| message.emit(&payload, buf)) }),
        (icmpv6_message(), bytes(60))
            .prop_map(|(message, payload)| { emitted(|buf| message.emit(V6, V6, &payload, buf)) }),
        discovery().prop_map(|packet| {
            emitted(|buf| {
                packet
                    .message
                    .borrow()
                    .emit(packet.source, packet.destination, buf)
            })
        }),
        ndp_options(),
        (udp_header(), bytes(60)).prop_map(move |(header, payload)| {
            let (sum, ip) = (proto::wire::checksum::sum(&payload), V4.into());
            with(
                emitted(|buf| header.emit(ip, ip, sum, payload.len(), buf)),
                payload,
            )
        }),
        (tcp_header(), bytes(60))
            .prop_map(move |(header, payload)| with(emitted(|buf| header.emit(buf)), payload)),
        chain(),
    ]
}

/// A chain of IPv6 extension headers behind the byte that names its first.
fn chain() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![0_u8, 43, 44, 60, 60, 6, 17, 58, 59, 200]);
    let header = (kind, 0_u8..3, prop::collection::vec(any::<u8>(), 6..30));
    (prop::collection::vec(header, 0..12), any::<u8>()).prop_map(|(headers, last)| {
        let mut bytes = vec![];
        for (kind, units, mut body) in headers {
            body.resize(usize::from(units) * 8 + 6, 0);
            // Mostly well-formed: padding, or a fragment or routing header that says little.
            match (kind, body[0] & 3) {
                (44, _) => body.truncate(6),
                (43, 0..3) => body[1] = 0,
                (0 | 60, 0..3) => body.fill(0),
                _ => {}
            }
            bytes.extend([kind, units]);
            bytes.extend(body);
        }
        // Each header names the next: shift the names by one header.
        bytes.push(last);
        bytes
    })
}

/// All 40 bytes of options, without the NOPs that we would put between them: SACK beside AccECN, and beside timestamps and a user timeout.
#[test]
fn options_packed_closer_than_ours() {
    let sack = |blocks: u8| [&[5, 2 + 8 * blocks][..], &vec![7; 8 * usize::from(blocks)]].concat();
    let accecn = [172, 5, 1, 2, 3, 1];
    let timestamps = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    for options in [
        [&sack(4)[..], &accecn].concat(),
        [&timestamps[..], &sack(3), &[28, 4, 0, 9]].concat(),
    ] {
        assert_eq!(options.len(), 40);
        let mut segment = vec![0; 20];
        segment[12] = 15 << 4;
        segment[13] = 16;
        segment.extend(options);
        assert!(tcp::Header::parse(&segment).is_ok());
        probe::tcp(&segment);
    }
}

/// Each parser gets what the fuzzer kept for any of them.
#[test]
fn bytes_that_the_fuzzer_kept() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut count = 0;
    for target in fs::read_dir(seeds).expect("the corpora") {
        let folder = target.expect("an entry").path();
        for entry in fs::read_dir(folder).expect("a corpus") {
            let bytes = fs::read(entry.expect("an entry").path()).expect("a seed");
            probe::everything(&bytes);
            count += 1;
        }
    }
    assert!(count >= 50, "{count} seeds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes(bytes in bytes(200)) {
        probe::everything(&bytes);
    }

    #[test]
    fn every_prefix_of_a_packet(packet in packet()) {
        for end in 0..=packet.len() {
            probe::everything(&packet[..end]);
        }
    }

    #[test]
    fn mutated_packets(
        mut packet in packet(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        extra in bytes(8),
    ) {
        for (at, value) in changes {
            let at = at.index(packet.len().max(1));
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        packet.extend(extra);
        probe::everything(&packet);
    }
}

/// A whole frame under every single-byte change: each byte, each of 256 values, all parsers in turn.
#[test]
fn every_byte_of_a_frame_may_be_anything() {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let mut frame = emitted(|buf| ethernet::Header::new(mac, mac, EtherType::IPV6).emit(buf));
    let upper =
        emitted(|buf| icmpv6::Message::EchoRequest { ident: 1, seq: 2 }.emit(V6, V6, b"ping", buf));
    // Hop-by-hop padding, then an atomic fragment, then the echo.
    let mut payload = vec![Protocol::FRAGMENT.0, 0, 1, 4, 0, 0, 0, 0];
    let fragment = FragmentHeader {
        next_header: Protocol::ICMPV6,
        ..FragmentHeader::default()
    };
    payload.extend(emitted(|buf| fragment.emit(buf)));
    payload.extend(upper);
    let header = ipv6::Header::new(Protocol::HOP_BY_HOP, V6, V6);
    frame.extend(emitted(|buf| header.emit(payload.len(), buf)));
    frame.extend(payload);
    for at in 0..frame.len() {
        for value in 0..=255 {
            let mut changed = frame.clone();
            changed[at] = value;
            probe::frame(&changed);
        }
    }
    for end in 0..frame.len() {
        probe::frame(&frame[..end]);
    }
}
