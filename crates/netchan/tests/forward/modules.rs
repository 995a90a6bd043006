//! Modules at the point `forward`: they see what passes through, and nothing else does.

use std::{cell::Cell, net::IpAddr, time::Duration};

use netchan::{
    Net, Regime, UdpSocket,
    config::Config,
    module::{Boxed, Module, Point, Verdict, View},
};
use proto::{neighbor::ndp, time::Instant};

use crate::{
    raw::{OWN, Raw, datagram},
    streams::{SERVER, counter},
};

/// The modules of a configuration.
fn modules(text: &str) -> Vec<Boxed> {
    let config = Config::parse(text, "x").unwrap();
    config.modules.iter().map(|m| m.make().unwrap()).collect()
}

fn said(net: &Net, name: &str, what: &str) -> u64 {
    let rows = net.show("modules").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).expect("it is loaded");
    row[what].as_u64().unwrap()
}

fn listen(net: &Net, any: &str, port: u16) -> UdpSocket {
    let socket = net.udp().bind(format!("{any}:{port}")).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

const ANY: [&str; 2] = ["0.0.0.0", "[::]"];

/// Sends a datagram of each family through the router to `port`; which of them came.
fn through(raw: &mut Raw, port: u16) -> [bool; 2] {
    [0, 1].map(|family| {
        let socket = listen(&raw.server, ANY[family], port);
        let packet = datagram(OWN[family], SERVER[family], 20, |f| f.port = port);
        assert!(raw.ask(&packet).is_empty());
        socket.recv_from(&mut [0; 64]).is_ok()
    })
}

const WALL: &str = r#"
[[module]]
name = "wall"
kind = "filter"
rules = ["drop forward proto udp to any port 9", "drop in proto udp to any port 10"]
"#;

#[test]
fn a_filter_stands_in_the_way_through() {
    for regime in [Regime::Giant, Regime::Locked] {
        for (late, giant) in [(false, false), (true, false), (true, true), (false, true)] {
            let all = || {
                let all = modules(WALL).into_iter();
                all.map(move |m| if giant { m.under_giant() } else { m })
            };
            let mut raw = Raw::new(1500, |mut builder| {
                if !late {
                    builder = all().fold(builder, netchan::Builder::module);
                }
                builder.regime(regime)
            });
            if late {
                assert_eq!(through(&mut raw, 9), [true; 2]);
                all().for_each(|module| raw.router.load_module(module).unwrap());
            }
            let before = counter(&raw.router, "forwarded");
            assert_eq!(through(&mut raw, 9), [false; 2], "{regime}");
            assert_eq!(counter(&raw.router, "forwarded"), before);
            // Its rule for `in` is not for what passes through.
            assert_eq!(through(&mut raw, 10), [true; 2], "{regime}");
            assert_eq!(said(&raw.router, "wall", "dropped_packets"), 2);
            // Nor is the one for `forward` for what is for the router, on either of its links.
            let ours = [["10.1.0.1", "10.2.0.1"], ["fd01::1", "fd02::1"]];
            for (family, targets) in ours.into_iter().enumerate() {
                let socket = listen(&raw.router, ANY[family], 9);
                for target in targets {
                    raw.ask(&datagram(OWN[family], target, 20, |_| ()));
                    assert!(socket.recv_from(&mut [0; 64]).is_ok(), "{regime} {target}");
                }
            }
            raw.router.unload_module("wall").unwrap();
            assert_eq!(through(&mut raw, 9), [true; 2], "{regime}");
        }
    }
}

#[test]
fn a_limiter_lets_its_rate_through() {
    let text = r#"
[[module]]
name = "slow"
kind = "limiter"
point = "forward"
packets_per_second = 10
burst = 5
each = [32, 128]
"#;
    for regime in [Regime::Giant, Regime::Locked] {
        let mut raw = Raw::new(1500, |builder| {
            modules(text)
                .into_iter()
                .fold(builder, netchan::Builder::module)
                .regime(regime)
        });
        let passed = |raw: &mut Raw, source: &str| {
            let before = counter(&raw.router, "forwarded");
            for _ in 0..20 {
                raw.ask(&datagram(source, SERVER[0], 20, |_| ()));
            }
            counter(&raw.router, "forwarded") - before
        };
        // By their sources, of which each has a bucket; the server's ICMP errors in return have theirs.
        assert!((5..=12).contains(&passed(&mut raw, OWN[0])), "{regime}");
        assert!(
            (5..=12).contains(&passed(&mut raw, "10.1.0.10")),
            "{regime}"
        );
        raw.clock.advance(Duration::from_secs(1));
        assert!((5..=12).contains(&passed(&mut raw, OWN[0])), "{regime}");
    }
}

/// A module of one's own, with a plain cell: it needs Giant.
struct Watcher(Cell<u64>);

impl Module for Watcher {
    fn name(&self) -> &str {
        "watcher"
    }
    fn points(&self) -> &[Point] {
        &[Point::Forward]
    }
    fn packet(&self, point: Point, packet: &View<'_>, _: Instant) -> Verdict {
        assert_eq!(point, Point::Forward);
        let own = OWN.map(|own| own.parse::<IpAddr>().unwrap());
        assert!(own.contains(&packet.source()));
        assert_eq!(
            packet.bytes()[if packet.source().is_ipv4() { 8 } else { 7 }],
            63
        );
        self.0.set(self.0.get() + 1);
        Verdict::Pass
    }
    fn describe(&self) -> String {
        format!("{} seen", self.0.get())
    }
}

#[test]
fn a_module_of_ones_own_sees_what_passes() {
    for regime in [Regime::Giant, Regime::Locked] {
        let mut raw = Raw::new(1500, |builder| builder.regime(regime));
        let watcher = Boxed::giant(Watcher(Cell::new(0)));
        raw.router.load_module(watcher).unwrap();
        assert_eq!(through(&mut raw, 9), [true; 2]);
        raw.ask(&datagram(OWN[0], "10.1.0.1", 20, |_| ())); // for the router
        raw.ask(&datagram(OWN[0], "192.0.2.1", 20, |_| ())); // goes nowhere
        raw.ask(&datagram(OWN[0], SERVER[0], 20, |f| f.hops = 1));
        assert_eq!(said(&raw.router, "watcher", "seen_packets"), 2);
    }
}

/// What calls itself neighbour discovery and is for another link is none: a rule that drops everything drops it, too.
#[test]
fn nothing_passes_by_its_name() {
    let text = "[[module]]\nname = \"shut\"\nkind = \"filter\"\nrules = [\"drop forward\"]";
    let mut raw = Raw::new(1500, |builder| {
        modules(text)
            .into_iter()
            .fold(builder, netchan::Builder::module)
    });
    let mut asks = ndp::solicitation(
        crate::raw::MAC,
        OWN[1].parse().unwrap(),
        SERVER[1].parse().unwrap(),
        None,
    );
    asks.destination = SERVER[1].parse().unwrap();
    let mut bytes = [0; 128];
    let len = asks.emit(&mut bytes);
    raw.ask(&bytes[..len]);
    assert_eq!(said(&raw.router, "shut", "dropped_packets"), 1);
    assert_eq!(counter(&raw.router, "forwarded"), 0);
}
