//! Packets made by hand: each rule of forwarding, with its answer and its counter.

use std::{net::IpAddr, time::Duration};

use netchan::{Net, Regime, UdpSocket};
use proto::{
    ip::fragment,
    wire::{
        checksum,
        ethernet::{EtherType, MacAddr},
        icmpv4::{self, unreachable},
        icmpv6, ipv4, ipv6,
    },
};

use crate::{
    raw::{Message, OWN, Raw, datagram, icmp},
    streams::{SERVER, counter},
};

/// All under the shard's lock, and each half under its own.
const REGIMES: [Regime; 2] = [Regime::Giant, Regime::Locked];

fn each(mtu: usize, case: impl Fn(Raw)) {
    for regime in REGIMES {
        case(Raw::new(mtu, |builder| builder.regime(regime)));
    }
}

fn listen(server: &Net, any: &str) -> UdpSocket {
    let socket = server.udp().bind(format!("{any}:9")).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn both() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let any = ["0.0.0.0", "[::]"];
    let ends = OWN.into_iter().zip(SERVER);
    ends.zip(any).map(|((own, server), any)| (own, server, any))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The only frame that came back, as ICMP.
fn answer(frames: &[Vec<u8>]) -> (IpAddr, Message, Vec<u8>) {
    let all: Vec<_> = frames.iter().filter_map(|frame| icmp(frame)).collect();
    assert_eq!(all.len(), 1, "{frames:x?}");
    all.into_iter().next().unwrap()
}

#[test]
fn a_datagram_arrives_as_it_was_sent_but_for_a_hop() {
    each(1500, |mut raw| {
        for (own, server, any) in both() {
            let socket = listen(&raw.server, any);
            assert!(raw.ask(&datagram(own, server, 700, |_| ())).is_empty());
            let mut buffer = [0; 2048];
            let (n, from) = socket.recv_from(&mut buffer).expect("it arrived");
            assert_eq!((from.ip(), from.port()), (ip(own), 12345));
            assert_eq!(buffer[..n], [0x5a; 700]);
        }
        assert_eq!(counter(&raw.router, "forwarded"), 2);
        assert_eq!(counter(&raw.server, "drop_ip_checksum"), 0);
    });
}

/// As traceroute does it. RFC 1812 §5.3.1, RFC 4443 §3.3.
#[test]
fn the_last_hop_ends_at_the_router() {
    each(1500, |mut raw| {
        for (hops, nth) in [(1, 1), (0, 2)] {
            for (own, server, _) in both() {
                let sent = datagram(own, server, 20, |fields| fields.hops = hops);
                let (from, message, quote) = answer(&raw.ask(&sent));
                let (near, exceeded) = if from.is_ipv4() {
                    let code = icmpv4::time_exceeded::IN_TRANSIT;
                    (
                        "10.1.0.1",
                        Message::V4(icmpv4::Message::TimeExceeded { code }),
                    )
                } else {
                    let code = icmpv6::time_exceeded::IN_TRANSIT;
                    (
                        "fd01::1",
                        Message::V6(icmpv6::Message::TimeExceeded { code }),
                    )
                };
                assert_eq!((from, message), (ip(near), exceeded));
                assert_eq!(quote, sent, "quoted as it was received");
            }
            assert_eq!(counter(&raw.router, "drop_forward_hops"), 2 * nth);
        }
        // The next one is the server, which no host answers for there.
        for (own, server, _) in both() {
            let sent = datagram(own, server, 20, |fields| fields.hops = 2);
            assert_eq!(answer(&raw.ask(&sent)).0, ip(server));
        }
        assert_eq!(counter(&raw.router, "forwarded"), 4, "there and back");
    });
}

/// RFC 1812 §5.2.7.1, RFC 1191 §4, RFC 4443 §3.2.
#[test]
fn too_long_for_the_next_link() {
    each(1280, |mut raw| {
        for (own, server, _) in both() {
            let (from, message, _) = answer(&raw.ask(&datagram(own, server, 1300, |_| ())));
            let (near, too_big) = if from.is_ipv4() {
                let code = unreachable::FRAGMENTATION_NEEDED;
                let message = icmpv4::Message::DestinationUnreachable { code, mtu: 1280 };
                ("10.1.0.1", Message::V4(message))
            } else {
                (
                    "fd01::1",
                    Message::V6(icmpv6::Message::PacketTooBig { mtu: 1280 }),
                )
            };
            assert_eq!((from, message), (ip(near), too_big));
        }
        assert_eq!(counter(&raw.router, "drop_forward_too_big"), 2);
        assert_eq!(counter(&raw.router, "forwarded"), 0);
    });
}

#[test]
fn cut_where_that_is_allowed() {
    each(576, |mut raw| {
        let socket = listen(&raw.server, "0.0.0.0");
        let sent = datagram(OWN[0], SERVER[0], 1400, |fields| {
            fields.dont_fragment = false
        });
        assert!(raw.ask(&sent).is_empty());
        let mut buffer = [0; 2048];
        assert_eq!(socket.recv_from(&mut buffer).expect("it arrived").0, 1400);
        assert_eq!(buffer[..1400], [0x5a; 1400]);
        assert_eq!(counter(&raw.server, "fragments_in"), 3);
        assert_eq!(counter(&raw.router, "forwarded"), 1);
        assert_eq!(counter(&raw.router, "fragments_in"), 0);
    });
}

/// RFC 1812 §5.3.9 lets a router put nothing together; RFC 8200 §4.5 forbids it to. A fragment may be cut again.
#[test]
fn fragments_go_on_as_they_are() {
    for (mtu, pieces) in [(1500, 2), (576, 3)] {
        each(mtu, |mut raw| {
            let socket = listen(&raw.server, "0.0.0.0");
            let whole = datagram(OWN[0], SERVER[0], 1400, |fields| {
                fields.dont_fragment = false
            });
            let header = ipv4::Header::parse(&whole).unwrap();
            for piece in fragment::v4(&header, &[], whole.len() - 20, 1000).unwrap() {
                let mut bytes = [0; 1000];
                let len = piece.emit(&whole[20..], &mut bytes);
                assert!(raw.ask(&bytes[..len]).is_empty());
            }
            assert_eq!(
                socket.recv_from(&mut [0; 2048]).expect("it arrived").0,
                1400
            );
            assert_eq!(counter(&raw.server, "fragments_in"), pieces);
            assert_eq!(counter(&raw.router, "fragments_in"), 0);
        });
    }
    each(1500, |mut raw| {
        let socket = listen(&raw.server, "[::]");
        let whole = datagram(OWN[1], SERVER[1], 1400, |_| ());
        let header = ipv6::Header::parse(&whole).unwrap();
        for piece in fragment::v6(&header, whole.len() - 40, 1280, 7).unwrap() {
            let mut bytes = [0; 1280];
            let len = piece.emit(&whole[40..], &mut bytes);
            assert!(raw.ask(&bytes[..len]).is_empty());
        }
        assert_eq!(
            socket.recv_from(&mut [0; 2048]).expect("it arrived").0,
            1400
        );
        assert_eq!(counter(&raw.router, "fragments_in"), 0);
    });
}

#[test]
fn nowhere_to_go() {
    each(1500, |mut raw| {
        for (own, far) in [(OWN[0], "192.0.2.1"), (OWN[1], "2001:db8::1")] {
            let (from, message, _) = answer(&raw.ask(&datagram(own, far, 20, |_| ())));
            let expected = if from.is_ipv4() {
                let code = unreachable::NETWORK;
                Message::V4(icmpv4::Message::DestinationUnreachable { code, mtu: 0 })
            } else {
                let code = icmpv6::unreachable::NO_ROUTE;
                Message::V6(icmpv6::Message::DestinationUnreachable { code })
            };
            assert_eq!(message, expected);
        }
        assert_eq!(counter(&raw.router, "drop_no_route"), 2);
    });
}

/// RFC 1812 §5.2.7.1, RFC 4861 §7.2.2: found out at the second link, said on the first.
#[test]
fn a_next_hop_that_does_not_answer() {
    each(1500, |mut raw| {
        for (own, far) in [(OWN[0], "10.2.0.77"), (OWN[1], "fd02::77")] {
            assert!(raw.ask(&datagram(own, far, 20, |_| ())).is_empty());
            let mut came = Vec::new();
            for _ in 0..50 {
                raw.clock.advance(Duration::from_millis(100));
                came.extend(raw.turn());
            }
            came.retain(|frame| icmp(frame).is_some_and(|(.., quote)| !quote.is_empty()));
            let (from, message, _) = answer(&came);
            let (near, expected) = if from.is_ipv4() {
                let code = unreachable::HOST;
                let message = icmpv4::Message::DestinationUnreachable { code, mtu: 0 };
                ("10.1.0.1", Message::V4(message))
            } else {
                let code = icmpv6::unreachable::ADDRESS;
                (
                    "fd01::1",
                    Message::V6(icmpv6::Message::DestinationUnreachable { code }),
                )
            };
            assert_eq!(
                (from, message),
                (ip(near), expected),
                "from our address on the way out"
            );
        }
        assert_eq!(counter(&raw.router, "drop_neighbor_unresolved"), 2);
    });
}

/// Many hosts that are not there: what waits for them has its bound, and keeps no receive buffer.
#[test]
fn absent_neighbours_take_no_more_than_their_share() {
    each(1500, |mut raw| {
        let socket = listen(&raw.server, "0.0.0.0");
        for n in 0..3000_u32 {
            let far = format!("10.2.0.{}", 3 + n % 250);
            let packet = datagram(OWN[0], &far, 20, |_| ());
            raw.send(EtherType::IPV4, raw.mac, &packet);
            if n % 32 == 31 {
                raw.router.poll();
                raw.router.poll();
            }
        }
        raw.turn();
        assert!(counter(&raw.router, "drop_neighbor_unresolved") > 0);
        let rows = raw.router.show("memory").unwrap();
        for row in rows.as_array().unwrap() {
            if row["what"] == "receive buffers" {
                assert_eq!(row["free"], row["all"], "{row}");
            }
        }
        // A host that is there is reached, as soon as those others are given up.
        for _ in 0..50 {
            raw.clock.advance(Duration::from_millis(100));
            raw.turn();
        }
        raw.ask(&datagram(OWN[0], SERVER[0], 20, |_| ()));
        assert!(socket.recv_from(&mut [0; 64]).is_ok());
    });
}

/// Out of the link that it came in by (no redirect is sent), and to our own address on the other link.
#[test]
fn turned_around_and_taken_in() {
    each(1500, |mut raw| {
        for (own, other) in OWN.into_iter().zip(["10.1.0.77", "fd01::77"]) {
            raw.ask(&datagram(own, other, 20, |_| ()));
        }
        assert_eq!(counter(&raw.router, "forwarded"), 2);
        for (own, far, any) in [(OWN[0], "10.2.0.1", "0.0.0.0"), (OWN[1], "fd02::1", "[::]")] {
            let socket = raw.router.udp().bind(format!("{any}:9")).unwrap();
            socket.set_nonblocking(true).unwrap();
            // RFC 1812 §5.2.3: what is for us has arrived, whatever its hops say.
            raw.ask(&datagram(own, far, 20, |fields| fields.hops = 1));
            let (n, from) = socket.recv_from(&mut [0; 64]).expect("it arrived");
            assert_eq!((n, from.ip()), (20, ip(own)));
            let mut broken = datagram(own, far, 20, |_| ());
            *broken.last_mut().unwrap() ^= 1;
            raw.ask(&broken);
            assert!(socket.recv_from(&mut [0; 64]).is_err());
        }
        assert_eq!(counter(&raw.router, "drop_udp_checksum"), 2);
        // No socket has the port: the answer finds its way back by the first link.
        let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1, 7, 7];
        let sum = checksum::checksum(&echo).to_be_bytes();
        echo[2..4].copy_from_slice(&sum);
        let header = ipv4::Header::new(
            ipv4::Protocol::ICMP,
            "10.1.0.9".parse().unwrap(),
            "10.2.0.1".parse().unwrap(),
        );
        let mut packet = vec![0; 20];
        header.emit(echo.len(), &mut packet);
        packet.extend_from_slice(&echo);
        let (from, message, _) = answer(&raw.ask(&packet));
        assert_eq!(from, ip("10.2.0.1"));
        assert_eq!(
            message,
            Message::V4(icmpv4::Message::EchoReply { ident: 1, seq: 1 })
        );
    });
}

/// RFC 1812 §5.3.4, §5.3.5, §5.3.7; RFC 3927 §7; RFC 4291 §2.5.6; RFC 2644.
#[test]
fn what_must_not_go_on() {
    each(1500, |mut raw| {
        let before = counter(&raw.server, "frames_in");
        let sources = [
            ("127.0.0.1", SERVER[0]),
            ("0.0.0.0", SERVER[0]),
            ("224.0.0.9", SERVER[0]),
            ("240.0.0.9", SERVER[0]),
            ("255.255.255.255", SERVER[0]),
            ("169.254.0.9", SERVER[0]),
            ("10.1.0.255", SERVER[0]),
            ("10.2.0.255", SERVER[0]),
            ("10.1.0.1", SERVER[0]),
            ("10.2.0.1", SERVER[0]),
            ("::", SERVER[1]),
            ("::1", SERVER[1]),
            ("ff02::1", SERVER[1]),
            ("fe80::9", SERVER[1]),
            ("::ffff:10.1.0.9", SERVER[1]),
            ("fd02::1", SERVER[1]),
        ];
        // The stacks have told each other their groups, from no address of theirs yet.
        let reports = counter(&raw.router, "drop_ip_source");
        for (n, (source, destination)) in (1..).zip(sources) {
            raw.ask(&datagram(source, destination, 20, |_| ()));
            let dropped = counter(&raw.router, "drop_ip_source") - reports;
            assert_eq!(dropped, n, "from {source}");
        }
        let destinations = [
            "127.0.0.1",
            "0.0.0.0",
            "224.0.1.9",
            "240.0.0.9",
            "169.254.0.9",
            "10.2.0.255",
            "::",
            "::1",
            "ff0e::9",
        ];
        for (n, destination) in (1..).zip(destinations) {
            let own = OWN[usize::from(destination.contains(':'))];
            raw.ask(&datagram(own, destination, 20, |_| ()));
            assert_eq!(
                counter(&raw.router, "drop_ip_destination"),
                n,
                "to {destination}"
            );
        }
        // In a frame for all; and in one for another host.
        let good = datagram(OWN[0], SERVER[0], 20, |_| ());
        raw.send(EtherType::IPV4, MacAddr::BROADCAST, &good);
        raw.turn();
        let sum = u64::try_from(destinations.len()).unwrap() + 1;
        assert_eq!(counter(&raw.router, "drop_ip_destination"), sum);
        raw.send(EtherType::IPV4, MacAddr([2, 9, 9, 9, 9, 9]), &good);
        raw.turn();
        assert_eq!(counter(&raw.router, "drop_other_mac"), 1);
        assert_eq!(counter(&raw.router, "forwarded"), 0);
        assert_eq!(counter(&raw.server, "frames_in"), before);
    });
}

/// Headers that lie, and options.
#[test]
fn malformed_packets_end_here() {
    each(1500, |mut raw| {
        let good = datagram(OWN[0], SERVER[0], 20, |_| ());
        let mut broken = good.clone();
        broken[10] ^= 1;
        assert!(raw.ask(&broken).is_empty());
        assert_eq!(counter(&raw.router, "drop_ip_checksum"), 1);
        for cut in [1, 19, 20, 47] {
            assert!(raw.ask(&good[..cut]).is_empty());
        }
        let six = datagram(OWN[1], SERVER[1], 20, |_| ());
        for cut in [1, 39, 67] {
            assert!(raw.ask(&six[..cut]).is_empty());
        }
        assert_eq!(counter(&raw.router, "drop_ip_header"), 7);
        // A source route is dropped in silence; an option that lies is answered (RFC 1812 §4.3.3.5).
        let with = |options: &[u8]| {
            let mut packet = good[..20].to_vec();
            packet.extend_from_slice(options);
            packet.extend_from_slice(&good[20..]);
            packet[0] += u8::try_from(options.len() / 4).unwrap();
            packet[3] += u8::try_from(options.len()).unwrap();
            let header_len = 20 + options.len();
            packet[10..12].fill(0);
            let sum = checksum::checksum(&packet[..header_len]).to_be_bytes();
            packet[10..12].copy_from_slice(&sum);
            packet
        };
        assert!(raw.ask(&with(&[131, 7, 4, 10, 2, 0, 2, 0])).is_empty());
        let (_, message, _) = answer(&raw.ask(&with(&[7, 9, 4, 0])));
        let expected = icmpv4::Message::ParameterProblem {
            code: 0,
            pointer: 21,
        };
        assert_eq!(message, Message::V4(expected));
        assert_eq!(counter(&raw.router, "drop_forward_options"), 2);
        assert_eq!(counter(&raw.router, "forwarded"), 0);
        let socket = listen(&raw.server, "0.0.0.0");
        assert!(raw.ask(&with(&[1, 1, 1, 0])).is_empty());
        assert!(
            socket.recv_from(&mut [0; 64]).is_ok(),
            "other options go on"
        );
    });
}

/// RFC 1812 §4.3.2.8, RFC 4443 §2.4 f: a flood is not answered in kind.
#[test]
fn errors_are_limited() {
    each(1500, |mut raw| {
        let sent = datagram(OWN[0], SERVER[0], 20, |fields| fields.hops = 1);
        let answers: usize = (0..100).map(|_| raw.ask(&sent).len()).sum();
        assert!((1..=20).contains(&answers), "{answers}");
        assert_eq!(counter(&raw.router, "drop_forward_hops"), 100);
    });
}
