//! The firewall in a stack that forwards: flows, translations, answers to what is rejected, and rules that change under traffic.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use netchan::{
    Builder, Clock, Net, Regime, Threads,
    module::{
        Boxed,
        firewall::{Firewall, Settings},
    },
};
use proto::{
    ip::fragment,
    wire::{ethernet, icmpv4, icmpv6, ipv4},
};

use crate::{
    raw::{Message, OWN, Raw, datagram, icmp},
    streams::{SERVER, World, counter},
};

fn wall(rules: &str) -> Boxed {
    let settings = Settings::new(rules).unwrap_or_else(|fault| panic!("{fault}\n{rules}"));
    Boxed::any(Firewall::new("wall", settings).unwrap())
}

/// Masks what is behind the first link, whose names no rule needs.
const MASK: &str = "table inet t {
  chain post {
    type nat hook postrouting priority srcnat;
    ip saddr 10.1.0.0/16 masquerade
    ip6 saddr fd01::/16 masquerade
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    tcp dport 80 accept
    udp dport 9 accept
    tcp dport 81 reject with tcp reset
    udp dport 10 reject
  }
}";

fn rows(net: &Net, topic: &str) -> Vec<serde_json::Value> {
    net.show(topic).unwrap().as_array().unwrap().clone()
}

/// Connects and sends `bytes`; what the server saw as the peer. All of it arrives.
fn transfer(world: &World, server: &str, bytes: usize) -> SocketAddr {
    let any = if server.contains(':') {
        "[::]:80"
    } else {
        "0.0.0.0:80"
    };
    let listener = world.server.tcp().listen(any).unwrap();
    let serves = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all.len().to_le_bytes()).unwrap();
        peer
    });
    let target = SocketAddr::new(server.parse().unwrap(), 80);
    let mut stream = world.client.tcp().connect(target).unwrap();
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut len = [0; 8];
    stream.read_exact(&mut len).unwrap();
    assert_eq!(usize::from_le_bytes(len), bytes);
    serves.join().unwrap()
}

#[test]
fn streams_are_masked_in_every_regime() {
    for regime in Regime::here() {
        for giant in [false, true] {
            let settings = |b: Builder| {
                let wall = wall(MASK);
                b.regime(regime)
                    .module(if giant { wall.under_giant() } else { wall })
            };
            let world = World::new(Threads::Own, &Clock::Real, 1500, settings);
            for (server, router) in SERVER.into_iter().zip(["10.2.0.1", "fd02::1"]) {
                let peer = transfer(&world, server, 1_000_000);
                assert_eq!(peer.ip().to_string(), router, "{regime}");
            }
            let flows = rows(&world.router, "flows");
            assert_eq!(flows.len(), 2, "{flows:?}");
            assert!(
                flows
                    .iter()
                    .all(|row| row["module"] == "wall" && !row["source_becomes"].is_null())
            );
            let rules = rows(&world.router, "rules");
            let accepted = rules
                .iter()
                .find(|row| row["rule"] == "tcp dport 80 accept")
                .unwrap();
            assert!(accepted["packets"].as_u64().unwrap() >= 2, "{accepted}");
        }
    }
}

/// What the router tells of what it rejects comes from the address that was asked (TCP), or its own (ICMP).
#[test]
fn the_rejected_hear_of_it() {
    for regime in [Regime::Giant, Regime::Locked] {
        let mut raw = Raw::new(1500, |builder| builder.regime(regime).module(wall(MASK)));
        for (family, near) in [(0, "10.1.0.1"), (1, "fd01::1")] {
            let sent = datagram(OWN[family], SERVER[family], 20, |f| f.port = 10);
            let heard = raw.ask(&sent);
            let (from, message, quote) = heard.iter().find_map(|f| icmp(f)).expect("an answer");
            assert_eq!(from.to_string(), near);
            let expected = match family {
                0 => Message::V4(icmpv4::Message::DestinationUnreachable {
                    code: icmpv4::unreachable::PORT,
                    mtu: 0,
                }),
                _ => Message::V6(icmpv6::Message::DestinationUnreachable {
                    code: icmpv6::unreachable::PORT,
                }),
            };
            assert_eq!(message, expected);
            let ports = if family == 0 { 20..24 } else { 40..44 };
            assert_eq!(quote[ports.clone()], sent[ports]);
            // By the policy, nothing is heard.
            assert!(
                raw.ask(&datagram(OWN[family], SERVER[family], 20, |f| f.port = 11))
                    .is_empty()
            );
        }
        assert!(
            rows(&raw.router, "flows").is_empty(),
            "no flow begins with what is refused"
        );
    }
    let settings = |b: Builder| b.module(wall(MASK));
    let world = World::new(Threads::Own, &Clock::Real, 1500, settings);
    for server in SERVER {
        let target = SocketAddr::new(server.parse().unwrap(), 81);
        let error = world.client.tcp().connect(target).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

const HOST: &str = "table inet t {
  chain in {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    ct state invalid drop
    udp dport 5353 accept
    udp dport 12 reject
  }
  chain pre {
    type nat hook prerouting priority dstnat;
    udp dport 53 redirect to :5353
  }
}";

/// What is for port 53, of whatever address, is this host's, and is answered in that address's name.
#[test]
fn a_port_is_redirected_to_a_socket_here() {
    for (regime, near) in [
        (Regime::Giant, true),
        (Regime::Locked, false),
        (Regime::AppChannel, false),
    ] {
        for (family, any) in ["0.0.0.0:5353", "[::]:5353"].into_iter().enumerate() {
            let mut raw = Raw::new(1500, |builder| builder.regime(regime).module(wall(HOST)));
            let target = match near {
                true => ["10.1.0.1", "fd01::1"][family],
                false => SERVER[family],
            };
            let socket = raw.router.udp().bind(any).unwrap();
            socket.set_nonblocking(true).unwrap();
            let asked = datagram(OWN[family], target, 20, |f| f.port = 53);
            raw.ask(&asked);
            let (n, from) = socket.recv_from(&mut [0; 64]).unwrap();
            assert_eq!((n, from.ip().to_string()), (20, OWN[family].to_owned()));
            socket.send_to(b"an answer", from).unwrap();
            let heard = raw.turn();
            let answer = heard.iter().find(|frame| frame.ends_with(b"an answer"));
            let packet = &answer.expect("an answer")[ethernet::HEADER_LEN..];
            let (source, destination, port) = match family {
                0 => (12..16, 16..20, 20),
                _ => (8..24, 24..40, 40),
            };
            assert_eq!(packet[source], asked[destination], "{regime} from {target}");
            assert_eq!(packet[port..port + 2], asked[port + 2..port + 4]);
        }
    }
}

#[test]
fn the_host_is_shut_with_an_answer_and_without() {
    for regime in [Regime::Giant, Regime::Locked, Regime::AppChannel] {
        let mut raw = Raw::new(1500, |builder| builder.regime(regime).module(wall(HOST)));
        for (family, near) in ["10.1.0.1", "fd01::1"].into_iter().enumerate() {
            let heard = raw.ask(&datagram(OWN[family], near, 20, |f| f.port = 12));
            let has_quote =
                |frame: &Vec<u8>| icmp(frame).is_some_and(|(.., quote)| !quote.is_empty());
            assert!(heard.iter().any(has_quote), "{regime}");
            assert!(
                raw.ask(&datagram(OWN[family], near, 20, |f| f.port = 13))
                    .is_empty()
            );
        }
    }
}

/// IPv4: put together, masked, and cut again. IPv6: no flow's.
#[test]
fn fragments_are_put_together_for_translation() {
    let mut raw = Raw::new(576, |builder| builder.module(wall(MASK)));
    let socket = raw.server.udp().bind("0.0.0.0:9").unwrap();
    socket.set_nonblocking(true).unwrap();
    let whole = datagram(OWN[0], SERVER[0], 1400, |fields| {
        fields.dont_fragment = false
    });
    let header = ipv4::Header::parse(&whole).unwrap();
    for piece in fragment::v4(&header, &[], whole.len() - 20, 1000).unwrap() {
        let mut bytes = [0; 1000];
        let len = piece.emit(&whole[20..], &mut bytes);
        assert!(raw.ask(&bytes[..len]).is_empty());
    }
    let mut buffer = [0; 2048];
    let (n, from) = socket.recv_from(&mut buffer).expect("it arrived");
    assert_eq!((n, from.ip().to_string()), (1400, "10.2.0.1".to_owned()));
    assert_eq!(buffer[..1400], [0x5a; 1400]);
    assert_eq!(counter(&raw.router, "fragments_in"), 2);
    // The answer comes in fragments, too, to the router's address.
    socket.send_to(&[7; 1000], from).unwrap();
    let heard = raw.turn();
    let pieces: Vec<_> = heard
        .iter()
        .filter(|frame| frame[14] >> 4 == 4 && frame[23] == 17)
        .collect();
    assert_eq!(pieces.len(), 1, "the first link carries it whole");
    let header = ipv4::Header::parse(&pieces[0][14..]).unwrap();
    assert_eq!(header.destination.to_string(), OWN[0]);
}

/// Rules are exchanged again and again while streams pass: no byte is lost, and a file with an error changes nothing.
#[test]
fn rules_are_replaced_under_traffic() {
    for regime in [Regime::Locked, Regime::AppChannel, Regime::DriverChannel] {
        let settings = |b: Builder| b.regime(regime).module(wall(MASK));
        let world = World::new(Threads::Own, &Clock::Real, 1500, settings);
        let over = AtomicBool::new(false);
        let replaced = thread::scope(|scope| {
            let changer = scope.spawn(|| {
                let other =
                    MASK.replace("tcp dport 80 accept", "tcp dport { 79, 80 } counter accept");
                let mut count = 0_u32;
                while !over.load(Relaxed) {
                    for rules in [&*other, MASK] {
                        let done = world.router.configure_module("wall", rules).unwrap();
                        assert!(done.starts_with("7 rules are in force"), "{done}");
                        let bad = rules.replace("udp dport 9 accept", "udp dport nine accept");
                        let why = world.router.configure_module("wall", &bad).unwrap_err();
                        assert!(why.to_string().contains("`nine`"), "{why}");
                        count += 1;
                    }
                    thread::sleep(Duration::from_micros(200));
                }
                count
            });
            for server in SERVER {
                transfer(&world, server, 3_000_000);
            }
            over.store(true, Relaxed);
            changer.join().unwrap()
        });
        assert!(replaced >= 2, "{regime}");
        assert_eq!(rows(&world.router, "flows").len(), 2);
        let none = world.router.configure_module("absent", MASK).unwrap_err();
        assert!(
            none.to_string().contains("there is no module 'absent'"),
            "{none}"
        );
    }
}
