//! Packets that no honest host sends: for one host in a broadcast or multicast frame, and with IPv4 options that are wrong. RFC 1122 §3.2.1.8, §3.2.2,
//! §3.3.6, §4.2.3.10.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use proto::wire::{
    checksum,
    ethernet::MacAddr,
    ipv4::{self, Protocol},
    tcp::{Flags, Header, SeqNum},
};

use crate::raw::{HOST, ROUTER, Raw};

const BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 255);
const GROUP: MacAddr = MacAddr([1, 0, 0x5e, 0, 0, 1]);

/// An IPv4 packet with these options, from the router.
fn packet(to: Ipv4Addr, protocol: Protocol, options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let mut bytes = vec![0; 20];
    ipv4::Header::new(protocol, ROUTER, to).emit(0, &mut bytes);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(payload);
    bytes[0] = 0x45 + u8::try_from(options.len() / 4).unwrap();
    let len = u16::try_from(bytes.len()).unwrap();
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    sum_up(&mut bytes, options.len());
    bytes
}

/// The header's checksum.
fn sum_up(bytes: &mut [u8], options: usize) {
    bytes[10..12].fill(0);
    let sum = checksum::checksum(&bytes[..20 + options]).to_be_bytes();
    bytes[10..12].copy_from_slice(&sum);
}

fn segment(port: u16, flags: Flags) -> Vec<u8> {
    let header = Header {
        source_port: 1000,
        destination_port: port,
        seq: SeqNum(7),
        ack: SeqNum(9),
        flags,
        window: 1000,
        ..Header::default()
    };
    let mut bytes = vec![0; header.len()];
    let (from, to) = (IpAddr::V4(ROUTER), IpAddr::V4(HOST));
    header.emit_with_checksum(&mut bytes, checksum::sum(&[]), 0, from, to);
    bytes
}

/// A datagram without a checksum.
fn datagram(port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    vec![3, 0xe8, high, low, 0, 9, 0, 0, b'?']
}

/// An ICMP message without more than its type and code.
fn message(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum::checksum(&bytes).to_be_bytes();
    bytes[2..4].copy_from_slice(&sum);
    bytes
}

/// Flags of the segments that came.
fn flags(heard: &[Vec<u8>]) -> Vec<Flags> {
    let segments = heard.iter().filter(|packet| packet[9] == Protocol::TCP.0);
    segments
        .map(|packet| Header::parse(&packet[20..]).unwrap().0.flags)
        .collect()
}

#[test]
fn tcp_hears_nothing_in_everybodys_frame() {
    let mut raw = Raw::new();
    let _listener = raw.net.tcp().listen("0.0.0.0:80").unwrap();
    let syn = |port| packet(HOST, Protocol::TCP, &[], &segment(port, Flags::SYN));
    let ack = packet(HOST, Protocol::TCP, &[], &segment(80, Flags::ACK));
    let mut strange = 0;
    for packet in [syn(81), ack, syn(80)] {
        for mac in [MacAddr::BROADCAST, GROUP] {
            assert_eq!(raw.frame(Some(mac), &packet), [[0; 0]; 0]);
            strange += 1;
        }
        assert_eq!(flags(&raw.frame(None, &packet)).len(), 1, "to us alone");
    }
    assert_eq!(raw.counter("drop_link_group"), strange);
    // For all hosts by its IP address.
    let packet = packet(BROADCAST, Protocol::TCP, &[], &segment(80, Flags::SYN));
    for mac in [None, Some(MacAddr::BROADCAST)] {
        assert_eq!(raw.frame(mac, &packet), [[0; 0]; 0]);
    }
    assert_eq!(raw.counter("drop_ip_destination"), 2);
}

/// Of UDP it is heard, as on Linux; no ICMP error is ever sent about it, be it a fragment that waits for the others.
#[test]
fn no_error_is_sent_about_everybodys_frame() {
    let mut raw = Raw::new();
    let socket = raw.net.udp().bind("0.0.0.0:7").unwrap();
    socket.set_nonblocking(true).unwrap();
    let here = packet(HOST, Protocol::UDP, &[], &datagram(7));
    let nowhere = packet(HOST, Protocol::UDP, &[], &datagram(8));
    let unserved = packet(HOST, Protocol(99), &[], b"what?");
    let wrong = packet(HOST, Protocol::UDP, &[7, 2, 0, 0], &datagram(7));
    let mut fragment = packet(HOST, Protocol::UDP, &[], &[0; 64]);
    fragment[6] = 0x20;
    sum_up(&mut fragment, 0);
    for mac in [MacAddr::BROADCAST, GROUP] {
        for packet in [&here, &nowhere, &unserved, &wrong, &fragment] {
            assert_eq!(raw.frame(Some(mac), packet), [[0; 0]; 0], "{packet:?}");
        }
        assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 1);
    }
    raw.clock.advance(Duration::from_secs(100));
    assert_eq!(raw.turn(), [[0; 0]; 0], "fragments do not come");
    assert_eq!(raw.counter("drop_link_group"), 2);
    // To us alone, errors are.
    for packet in [&nowhere, &unserved, &wrong] {
        let heard = raw.frame(None, packet);
        assert_eq!((heard.len(), heard[0][9]), (1, Protocol::ICMP.0));
    }
    assert_eq!(raw.frame(None, &fragment), [[0; 0]; 0]);
    raw.clock.advance(Duration::from_secs(100));
    let heard = raw.turn();
    assert_eq!(
        (heard.len(), &heard[0][20..22]),
        (1, &[11, 1][..]),
        "time exceeded"
    );
}

/// What becomes of a packet with options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Taken,
    /// Dropped, counted, and not answered.
    Dropped,
    /// Answered with a parameter problem that points here.
    Problem(u8),
}

const CASES: [(&[u8], Fate); 20] = [
    (&[1, 1, 1, 1], Fate::Taken),
    (&[0, 0xff, 0xff, 0xff], Fate::Taken), // behind the end of the options
    (&[148, 4, 0, 0], Fate::Taken),        // router alert
    (&[99, 4, 1, 2], Fate::Taken),         // unknown
    (&[7, 7, 4, 0, 0, 0, 0, 1], Fate::Taken),
    (&[131, 7, 8, 10, 0, 0, 2, 1], Fate::Taken), // a source route that ends here
    (&[137, 7, 8, 10, 0, 0, 2, 1], Fate::Taken),
    (&[131, 7, 4, 10, 0, 0, 3, 1], Fate::Dropped),
    (&[137, 7, 4, 10, 0, 0, 3, 1], Fate::Dropped),
    (&[1, 131, 11, 8, 10, 0, 0, 3, 10, 0, 0, 4], Fate::Dropped),
    (&[7, 2, 0, 0], Fate::Problem(21)),
    (&[7, 7, 5, 0, 0, 0, 0, 1], Fate::Problem(22)),
    (&[7, 6, 4, 0, 0, 0, 1, 1], Fate::Problem(21)),
    (&[131, 7, 3, 10, 0, 0, 2, 1], Fate::Problem(22)),
    (
        &[131, 3, 4, 137, 7, 8, 10, 0, 0, 2, 1, 1],
        Fate::Problem(23),
    ),
    (&[99, 0, 1, 1], Fate::Problem(21)),
    (&[99, 1, 1, 1], Fate::Problem(21)),
    (&[1, 1, 99, 3], Fate::Problem(23)),
    (&[1, 1, 1, 99], Fate::Problem(23)),
    (&[68, 8, 5, 2, 0, 0, 0, 0], Fate::Problem(23)),
];

#[test]
fn options_are_looked_at_whatever_comes_behind_them() {
    for (options, fate) in CASES {
        let mut raw = Raw::new(); // errors are limited
        let _listener = raw.net.tcp().listen("0.0.0.0:80").unwrap();
        let socket = raw.net.udp().bind("0.0.0.0:7").unwrap();
        socket.set_nonblocking(true).unwrap();
        let payloads = [
            (Protocol::UDP, datagram(7)),
            (Protocol::TCP, segment(80, Flags::ACK)),
            (Protocol::ICMP, message(8)),
            (Protocol(99), b"what?".to_vec()),
        ];
        for (protocol, payload) in payloads {
            let dropped = raw.counter("drop_ip_options");
            let heard = raw.frame(None, &packet(HOST, protocol, options, &payload));
            let problem = |heard: &[Vec<u8>]| match heard {
                [one] if one[9] == Protocol::ICMP.0 && one[20..22] == [12, 0] => Some(one[24]),
                _ => None,
            };
            let got = match (raw.counter("drop_ip_options") - dropped, problem(&heard)) {
                (0, None) if protocol == Protocol::UDP => {
                    assert!(heard.is_empty() && socket.recv(&mut [0; 9]).is_ok());
                    Fate::Taken
                }
                (0, None) if heard.len() == 1 => Fate::Taken,
                (1, None) if heard.is_empty() => Fate::Dropped,
                (1, Some(pointer)) => Fate::Problem(pointer),
                other => panic!("{options:?}, {protocol:?}: {other:?}, {heard:?}"),
            };
            assert_eq!(got, fate, "{options:?} before {protocol:?}");
            assert!(socket.recv(&mut [0; 9]).is_err());
        }
        // About a broadcast, an ICMP error and a later fragment nothing is said.
        let silent = [
            packet(BROADCAST, Protocol::UDP, options, &datagram(9)),
            packet(HOST, Protocol::ICMP, options, &message(3)),
        ];
        for packet in silent {
            assert_eq!(raw.frame(None, &packet), [[0; 0]; 0], "{options:?}");
        }
    }
}
