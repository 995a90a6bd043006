//! Routes, and addresses: which way datagrams and connections take, by their marks (SO_MARK) and as routes and addresses change under them; in
//! virtual time, frame by frame.

use std::{collections::VecDeque, io::IoSlice, net::Ipv4Addr, time::Duration};

use netchan::{
    Clock, Net, Regime, Threads,
    link::{LinkRx, LinkTx, wire},
    packet::Packet,
    socket::{Domain, Kind, Socket, SocketOption},
};
use percore::slab::Slab;
use proto::wire::{
    arp,
    ethernet::{self, EtherType, MacAddr},
};

/// The far end of a link: it answers for every address, with a station of its own each.
struct Far {
    wire: wire::Wire,
    slab: Slab,
    /// Addresses that were announced (RFC 5227).
    announced: Vec<Ipv4Addr>,
}

/// An IP packet as it left: by which link, to which station, from where.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    link: usize,
    station: u8,
    source: Ipv4Addr,
}

struct World {
    net: Net,
    clock: Clock,
    far: Vec<Far>,
}

/// What a link has beside the network 10.77.N.0/24 of its address 10.77.N.2: where, by which gateway, for which mark.
type Routes<'a> = &'a [(&'a str, Option<&'a str>, u32)];

impl World {
    fn new(regime: Regime, links: &[Routes<'_>]) -> Self {
        let clock = Clock::new_virtual();
        let mut builder = Net::builder().regime(regime).threads(Threads::Caller);
        let mut far = Vec::new();
        for (number, routes) in links.iter().enumerate() {
            let (near, wire) = wire::pair(&wire::Options::default());
            let slab = Slab::new(256, 2048).unwrap();
            far.push(Far {
                wire,
                slab,
                announced: Vec::new(),
            });
            builder = builder.link_with(Box::new(near));
            builder = builder.address(&format!("10.77.{number}.2/24")).unwrap();
            for &(to, gateway, mark) in *routes {
                builder = builder.route(to, gateway, mark).unwrap();
            }
        }
        let mut new = Self {
            net: builder.clock(clock.clone()).seed(5).start().unwrap(),
            clock,
            far,
        };
        new.pass();
        new
    }

    /// A while, in which each question for an address is answered; the packets that were sent to beyond the links meanwhile.
    fn pass(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        for _ in 0..30 {
            let now = self.clock.now();
            while self.net.poll() {}
            for (link, far) in self.far.iter_mut().enumerate() {
                let mut burst = VecDeque::new();
                (far.wire.receive(now, &mut far.slab, &mut burst, 64)).unwrap();
                for frame in burst {
                    let bytes = frame.bytes();
                    match bytes[12..14] {
                        [8, 6] => far.answer(bytes, now),
                        [8, 0] => sent.push(Sent {
                            link,
                            station: bytes[5],
                            source: Ipv4Addr::new(bytes[26], bytes[27], bytes[28], bytes[29]),
                        }),
                        _ => {}
                    }
                }
            }
            self.clock.advance(Duration::from_millis(10));
        }
        sent
    }

    fn socket(&self, kind: Kind, mark: u32) -> Socket {
        let socket = Socket::new(&self.net, Domain::V4, kind).unwrap();
        socket.set_option(SocketOption::Mark(mark)).unwrap();
        socket
    }

    /// Where a datagram goes.
    fn send(&mut self, socket: &Socket, to: &str) -> Vec<Sent> {
        let to = format!("{to}:9").parse().unwrap();
        socket.send(&[IoSlice::new(b"x")], Some(to)).unwrap();
        self.pass()
    }
}

impl Far {
    fn answer(&mut self, bytes: &[u8], now: proto::time::Instant) {
        let Ok(asked) = arp::Packet::parse(&bytes[14..]) else {
            return;
        };
        if asked.sender_ip == asked.target_ip {
            self.announced.push(asked.sender_ip);
            return;
        }
        let station = MacAddr([2, 0, 0, 0, 9, asked.target_ip.octets()[3]]);
        let answer = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: station,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        let mut frame = Packet::new(self.slab.alloc().unwrap(), 0);
        let (head, body) = frame.room_mut().split_at_mut(ethernet::HEADER_LEN);
        ethernet::Header::new(asked.sender_mac, station, EtherType::ARP).emit(head);
        let len = ethernet::HEADER_LEN + answer.emit(body);
        frame.set_len(len);
        self.wire
            .transmit(now, &mut VecDeque::from([frame]))
            .unwrap();
    }
}

fn by(link: usize, station: u8) -> Vec<Sent> {
    let third = u8::try_from(link).unwrap();
    vec![Sent {
        link,
        station,
        source: Ipv4Addr::new(10, 77, third, 2),
    }]
}

const REGIMES: [Regime; 3] = [Regime::AppChannel, Regime::Locked, Regime::PerCpu];

/// Two gateways on one link: the mark says which, packet by packet, whatever is remembered of the way to their destination.
#[test]
fn a_mark_chooses_among_gateways() {
    for regime in REGIMES {
        let routes: Routes<'_> = &[
            ("", Some("10.77.0.1"), 0),
            ("192.0.2.0/24", Some("10.77.0.3"), 0),
            ("", Some("10.77.0.7"), 7),
            ("192.0.2.0/25", Some("10.77.0.8"), 8),
        ];
        let mut world = World::new(regime, &[routes]);
        let [plain, seven, eight] = [0, 7, 8].map(|mark| world.socket(Kind::Datagram, mark));
        for _ in 0..3 {
            // A route for its mark goes before a longer one for all.
            assert_eq!(world.send(&plain, "192.0.2.1"), by(0, 3), "{regime}");
            assert_eq!(world.send(&seven, "192.0.2.1"), by(0, 7), "{regime}");
            assert_eq!(world.send(&eight, "192.0.2.1"), by(0, 8), "{regime}");
            // Another mark's is none; nor one that does not lead there.
            assert_eq!(world.send(&plain, "198.51.100.1"), by(0, 1), "{regime}");
            assert_eq!(world.send(&eight, "198.51.100.1"), by(0, 1), "{regime}");
            assert_eq!(world.send(&eight, "192.0.2.129"), by(0, 3), "{regime}");
            // A neighbour is reached without any.
            assert_eq!(world.send(&seven, "10.77.0.9"), by(0, 9), "{regime}");
        }
        // Another mark from now on.
        seven.set_option(SocketOption::Mark(0)).unwrap();
        assert_eq!(world.send(&seven, "192.0.2.1"), by(0, 3), "{regime}");
    }
}

/// A route for a mark over another link: connections and datagrams leave there, from its address.
#[test]
fn a_mark_chooses_among_links() {
    for regime in REGIMES {
        let first: Routes<'_> = &[("", Some("10.77.0.1"), 0)];
        let second: Routes<'_> = &[("", Some("10.77.1.1"), 7)];
        let mut world = World::new(regime, &[first, second]);
        let [plain, seven] = [0, 7].map(|mark| world.socket(Kind::Datagram, mark));
        for _ in 0..2 {
            assert_eq!(world.send(&plain, "192.0.2.1"), by(0, 1), "{regime}");
            assert_eq!(world.send(&seven, "192.0.2.1"), by(1, 1), "{regime}");
        }
        for (mark, link) in [(0, 0), (7, 1), (8, 0), (7, 1)] {
            let stream = world.socket(Kind::Stream, mark);
            let _ = stream.connect("192.0.2.1:80".parse().unwrap());
            assert_eq!(world.pass(), by(link, 1), "{regime} {mark}");
        }
        // A connected datagram socket has the address of its first way, as on Linux.
        seven.connect("192.0.2.1:9".parse().unwrap()).unwrap();
        assert_eq!(
            seven.local_address().ip(),
            std::net::IpAddr::from([10, 77, 1, 2])
        );
        seven.send(&[IoSlice::new(b"x")], None).unwrap();
        assert_eq!(world.pass(), by(1, 1), "{regime}");
    }
}

/// Without a route for all there is none for what is not marked.
#[test]
fn only_what_is_marked_has_a_way() {
    let routes: Routes<'_> = &[("192.0.2.0/24", Some("10.77.0.7"), 7)];
    let mut world = World::new(Regime::AppChannel, &[routes]);
    for (mark, way) in [(0, None), (8, None), (7, Some(7))] {
        let socket = world.socket(Kind::Datagram, mark);
        let to = "192.0.2.1:9".parse().unwrap();
        let sent = socket.send(&[IoSlice::new(b"x")], Some(to));
        let refused = sent.as_ref().err().and_then(|e| e.raw_os_error());
        assert_eq!(
            refused,
            way.map_or(Some(libc::ENETUNREACH), |_| None),
            "{mark}"
        );
        assert_eq!(
            world.pass(),
            way.map_or_else(Vec::new, |at| by(0, at)),
            "{mark}"
        );
        let stream = world.socket(Kind::Stream, mark);
        let refused = stream.connect(to).err().and_then(|e| e.raw_os_error());
        assert_eq!(refused == Some(libc::ENETUNREACH), way.is_none(), "{mark}");
    }
}

/// `show routes` has the mark, and a route that is none is refused.
#[test]
fn routes_are_shown_and_checked() {
    let routes: Routes<'_> = &[
        ("192.0.2.0/24", Some("10.77.0.7"), 7),
        ("198.51.100.0/24", None, 0),
    ];
    let world = World::new(Regime::AppChannel, &[routes]);
    let shown = world.net.show("routes").unwrap();
    let row = |network: &str| {
        let mut rows = shown.as_array().into_iter().flatten();
        rows.find(|row| row["network"] == network).cloned().unwrap()
    };
    assert_eq!(row("192.0.2.0/24")["mark"], 7);
    assert_eq!(row("192.0.2.0/24")["via"], "10.77.0.7");
    assert_eq!(row("198.51.100.0/24")["via"], "on link");
    assert_eq!(row("10.77.0.0/24")["mark"], 0);
    let (near, _far) = wire::pair(&wire::Options::default());
    let builder = Net::builder().link_with(Box::new(near));
    let builder = builder.address("10.77.0.2/24").unwrap();
    let builder = builder.route("", Some("10.78.0.1"), 7).unwrap();
    let refused = builder.start().err().map(|e| e.to_string()).unwrap();
    assert!(
        refused.contains("10.78.0.1 is on none of wire's networks"),
        "{refused}"
    );
    assert!(
        Net::builder().route("10.0.0.0/8", None, 0).is_err(),
        "of no link"
    );
}

/// A socket goes by the routes as they are at each packet; so does a connection, from the address that it has.
#[test]
fn routes_that_change_are_followed() {
    for regime in REGIMES {
        let first: Routes<'_> = &[("", Some("10.77.0.1"), 0)];
        let mut world = World::new(regime, &[first, &[]]);
        let net = world.net.clone();
        let plain = world.socket(Kind::Datagram, 0);
        assert_eq!(world.send(&plain, "192.0.2.1"), by(0, 1), "{regime}");
        net.add_route("#0", "192.0.2.0/24", Some("10.77.0.3"), 0)
            .unwrap();
        assert_eq!(world.send(&plain, "192.0.2.1"), by(0, 3), "{regime}");
        net.add_route("#0", "192.0.2.0/24", Some("10.77.0.4"), 0)
            .unwrap();
        assert_eq!(world.send(&plain, "192.0.2.1"), by(0, 4), "{regime}");
        let stream = world.socket(Kind::Stream, 0);
        let _ = stream.connect("192.0.2.1:80".parse().unwrap());
        assert_eq!(world.pass(), by(0, 4), "{regime}");
        net.remove_route("", "192.0.2.0/24", 0).unwrap();
        net.add_route("#1", "192.0.0.0/8", Some("10.77.1.9"), 0)
            .unwrap();
        assert_eq!(world.send(&plain, "192.0.2.1"), by(1, 9), "{regime}");
        // The SYN comes again after a second.
        let again: Vec<Sent> = (0..5).flat_map(|_| world.pass()).collect();
        let moved = Sent {
            link: 1,
            station: 9,
            source: Ipv4Addr::new(10, 77, 0, 2),
        };
        assert_eq!(again, vec![moved], "{regime}");
        // Another socket is bound to its link, whatever the routes.
        let bound = world.socket(Kind::Datagram, 0);
        bound.set_option(SocketOption::Device(Some(0))).unwrap();
        assert_eq!(world.send(&bound, "192.0.2.1"), by(0, 1), "{regime}");
        net.remove_route("", "0.0.0.0/0", 0).unwrap();
        let nowhere = plain.send(
            &[IoSlice::new(b"x")],
            Some("198.51.100.1:9".parse().unwrap()),
        );
        let nowhere = nowhere.err().and_then(|e| e.raw_os_error());
        assert_eq!(nowhere, Some(libc::ENETUNREACH), "{regime}");
    }
}

/// An address that comes is announced, with a route to its network; one that goes takes the routes along that need it.
#[test]
fn addresses_that_change_are_announced_and_given_up() {
    for regime in REGIMES {
        let routes: Routes<'_> = &[("", Some("10.77.0.1"), 0)];
        let mut world = World::new(regime, &[routes]);
        let net = world.net.clone();
        let shown = |net: &Net| {
            let shown = net.show("routes").unwrap();
            let rows = shown.as_array().into_iter().flatten();
            let text = |row: &serde_json::Value| row["network"].as_str().unwrap().to_owned();
            rows.map(text).collect::<Vec<_>>()
        };
        let new = Ipv4Addr::new(10, 78, 0, 2);
        let socket = world.socket(Kind::Datagram, 0);
        assert_eq!(world.send(&socket, "10.78.0.9"), by(0, 1), "{regime}");
        net.add_address("", "10.78.0.2/24").unwrap();
        let sent = world.send(&socket, "10.78.0.9");
        let way = (sent[0].station, sent[0].source);
        assert_eq!(way, (9, new), "{regime}");
        (0..10).for_each(|_| _ = world.pass());
        assert!(world.far[0].announced.contains(&new), "{regime}");
        assert!(net.is_local(new.into()));
        net.add_route("", "10.79.0.0/16", Some("10.78.0.7"), 0)
            .unwrap();
        assert_eq!(
            shown(&net),
            ["10.77.0.0/24", "10.78.0.0/24", "10.79.0.0/16", "0.0.0.0/0"],
            "{regime}"
        );
        net.remove_address("", "10.78.0.2").unwrap();
        assert_eq!(shown(&net), ["10.77.0.0/24", "0.0.0.0/0"], "{regime}");
        assert!(!net.is_local(new.into()));
        assert_eq!(world.send(&socket, "10.78.0.9"), by(0, 1), "{regime}");
        let bound = world.socket(Kind::Datagram, 0);
        let refused = bound.bind("10.78.0.2:7".parse().unwrap()).err();
        let refused = refused.and_then(|e| e.raw_os_error());
        assert_eq!(refused, Some(libc::EADDRNOTAVAIL), "{regime}");
    }
}

/// What cannot be is refused in a sentence, and nothing is changed.
#[test]
fn changes_that_cannot_be_are_refused() {
    let world = World::new(Regime::AppChannel, &[&[], &[]]);
    let net = &world.net;
    let before = (net.show("addresses"), net.show("routes"));
    let says = |result: std::io::Result<()>, says: &str| {
        let error = result.expect_err(says);
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    };
    says(net.add_address("", "10.78.0.2/24"), "which link?");
    says(
        net.add_address("nc0", "10.78.0.2/24"),
        "there is no link `nc0`",
    );
    says(net.add_address("wire", "10.78.0.2/24"), "which `wire`?");
    says(net.add_address("#2", "10.78.0.2/24"), "no link `#2`");
    says(net.add_address("#0", "10.78.0.2/33"), "no address");
    says(net.add_address("#0", "127.0.0.9/8"), "of the start");
    says(net.add_address("#0", "ten"), "no address");
    says(net.add_address("#0", "224.0.0.1/4"), "no address");
    says(
        net.add_address("#0", "10.77.1.2/24"),
        "has 10.77.1.2 already",
    );
    says(
        net.remove_address("#0", "10.77.1.2"),
        "does not have 10.77.1.2",
    );
    says(net.remove_address("#0", "10.77.0.2/25"), "has 10.77.0.2/24");
    says(net.remove_address("#0", "x"), "no IPv4 or IPv6 address");
    says(net.add_route("#0", "", None, 0), "needs a gateway");
    says(net.add_route("#0", "10.1.1.1/8", None, 0), "bits beyond");
    says(
        net.add_route("#0", "10.0.0.0/8", Some("10.77.1.9"), 0),
        "on none of wire's networks",
    );
    says(
        net.add_route("#0", "10.0.0.0/8", Some("10.77.0.2"), 0),
        "own address",
    );
    says(
        net.remove_route("", "10.0.0.0/8", 0),
        "no route to 10.0.0.0/8",
    );
    says(net.remove_route("#1", "10.77.0.0/24", 0), "no route to");
    says(net.remove_route("", "10.77.0.0/24", 7), "no route to");
    assert_eq!(before, (net.show("addresses"), net.show("routes")));
    for n in 1..16 {
        let address = format!("10.90.{n}.1/24");
        net.add_address("#0", &address).unwrap();
    }
    says(
        net.add_address("#0", "10.91.0.1/24"),
        "has 16 addresses already",
    );
    assert!(!net.is_local(Ipv4Addr::new(10, 91, 0, 1).into()));
}
