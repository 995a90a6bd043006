//! Translated addresses and ports. [`Bench::through`] holds that every checksum is right.

use super::*;

const MASQUERADE: &str = "table inet t {
  chain post {
    type nat hook postrouting priority srcnat;
    ip saddr 10.1.0.0/16 oifname \"ext\" masquerade
    ip6 saddr fd01::/16 oifname \"ext\" masquerade
  }
}";

/// Inside, its address outside, and a peer there.
const FAMILIES: [(&str, &str, &str); 2] = [
    ("10.1.0.9", "192.0.2.1", "192.0.2.9"),
    ("fd01::9", "2001:db8::1", "2001:db8::9"),
];

fn end(ip: &str, port: u16) -> String {
    std::net::SocketAddr::new(super::ip(ip), port).to_string()
}

#[test]
fn a_source_is_masked_and_answers_find_back() {
    for (inside, outside, peer) in FAMILIES {
        let mut bench = Bench::new(MASQUERADE);
        let out = bench
            .through(&udp(inside, peer, (4000, 53), b"odd"), 0)
            .unwrap();
        assert_eq!(
            ends(&out),
            (end(outside, 4000), end(peer, 53)),
            "the port is kept"
        );
        let back = bench
            .through(&udp(peer, outside, (53, 4000), b"!"), 1)
            .unwrap();
        assert_eq!(ends(&back), (end(peer, 53), end(inside, 4000)));
        // From elsewhere it is no answer: it stays what it was.
        let other = udp(peer, outside, (54, 4000), b"!");
        let (_, arrived) = bench.show(Point::Arrival, &other, (Some(1), None));
        assert_eq!(arrived, other);
        // TCP, and an echo.
        let out = bench
            .through(&tcp(inside, peer, (4000, 80), (SYN, 1, 0, 3)), 0)
            .unwrap();
        assert_eq!(ends(&out).0, end(outside, 4000));
        let back = bench
            .through(&tcp(peer, outside, (80, 4000), (SYN | ACK, 9, 5, 0)), 1)
            .unwrap();
        assert_eq!(ends(&back).1, end(inside, 4000));
        let out = bench.through(&echo(inside, peer, true, 77), 0).unwrap();
        assert_eq!(ends(&out), (outside.to_owned(), peer.to_owned()));
        let back = bench.through(&echo(peer, outside, false, 77), 1).unwrap();
        assert_eq!(ends(&back), (peer.to_owned(), inside.to_owned()));
        assert_eq!(bench.flows()[0]["source_becomes"], end(outside, 4000));
    }
}

/// Two hosts inside with one port: the second gets another, and the same one to every destination.
#[test]
fn a_port_that_is_taken_is_exchanged() {
    for (inside, outside, peer) in FAMILIES {
        let mut bench = Bench::new(MASQUERADE);
        let other = inside.replace('9', "8");
        assert!(
            bench
                .through(&udp(inside, peer, (4000, 53), b"?"), 0)
                .is_some()
        );
        let out = bench
            .through(&udp(&other, peer, (4000, 53), b"?"), 0)
            .unwrap();
        let (source, _) = ends(&out);
        let port: u16 = source.rsplit(':').next().unwrap().parse().unwrap();
        assert!(port >= 1024 && port != 4000, "{source}");
        let back = bench
            .through(&udp(peer, outside, (53, port), b"!"), 1)
            .unwrap();
        assert_eq!(ends(&back).1, end(&other, 4000));
        let back = bench
            .through(&udp(peer, outside, (53, 4000), b"!"), 1)
            .unwrap();
        assert_eq!(ends(&back).1, end(inside, 4000));
        // Two pings with one identifier.
        assert!(bench.through(&echo(inside, peer, true, 7), 0).is_some());
        let out = bench.through(&echo(&other, peer, true, 7), 0).unwrap();
        let ident = u16::from_be_bytes(
            *View::parse(&out).unwrap().upper()[4..]
                .first_chunk()
                .unwrap(),
        );
        assert_ne!(ident, 7);
        let back = bench
            .through(&echo(peer, outside, false, ident), 1)
            .unwrap();
        assert_eq!(ends(&back).1, other);
        assert_eq!(View::parse(&back).unwrap().upper()[4..6], [0, 7]);
    }
}

/// The router's own connection that looks like one that it masks gets another port, too.
#[test]
fn our_own_flows_do_not_collide() {
    let mut bench = Bench::new(MASQUERADE);
    let (inside, outside, peer) = FAMILIES[0];
    assert!(
        bench
            .through(&udp(inside, peer, (4000, 53), b"?"), 0)
            .is_some()
    );
    let (verdict, out) = bench.show(
        Point::Out,
        &udp(outside, peer, (4000, 53), b"?"),
        (None, Some(1)),
    );
    assert_eq!(verdict, Verdict::Pass);
    assert!(
        is_right(&out) && ends(&out).0 != end(outside, 4000),
        "{:?}",
        ends(&out)
    );
    let port: u16 = ends(&out).0.rsplit(':').next().unwrap().parse().unwrap();
    let (_, back) = bench.show(
        Point::Arrival,
        &udp(peer, outside, (53, port), b"!"),
        (Some(1), None),
    );
    assert_eq!(ends(&back).1, end(outside, 4000));
    let back = bench
        .through(&udp(peer, outside, (53, 4000), b"!"), 1)
        .unwrap();
    assert_eq!(ends(&back).1, end(inside, 4000));
}

#[test]
fn where_no_port_is_left_a_flow_is_refused() {
    let rules = MASQUERADE.replace(
        "ip saddr 10.1.0.0/16 oifname \"ext\" masquerade",
        "ip saddr 10.1.0.0/16 udp dport 53 masquerade to :2000-2003",
    );
    let mut bench = Bench::new(&rules);
    let sent = |bench: &mut Bench, port: u16, peer: &str| {
        let out = bench.through(&udp("10.1.0.9", peer, (port, 53), b"?"), 0)?;
        Some(ends(&out).0)
    };
    let mut ports: Vec<_> = (3000..3004)
        .map(|port| sent(&mut bench, port, "192.0.2.9").unwrap())
        .collect();
    ports.sort();
    assert_eq!(
        ports,
        [
            "192.0.2.1:2000",
            "192.0.2.1:2001",
            "192.0.2.1:2002",
            "192.0.2.1:2003"
        ]
    );
    assert_eq!(sent(&mut bench, 3004, "192.0.2.9"), None);
    assert!(bench.wall.describe().contains("1 without a port"));
    assert!(
        sent(&mut bench, 3004, "192.0.2.10").is_some(),
        "to another they are free"
    );
    assert_eq!(bench.flows().len(), 5, "the refused one is not tracked");
}

#[test]
fn errors_are_translated_with_what_they_quote() {
    for (inside, outside, peer) in FAMILIES {
        let mut bench = Bench::new(MASQUERADE);
        let router = format!("{}77", &peer[..peer.len() - 1]);
        for packet in [
            udp(inside, peer, (4000, 53), b"a question"),
            tcp(inside, peer, (4000, 80), (SYN, 1, 0, 0)),
            echo(inside, peer, true, 5),
        ] {
            let out = bench.through(&packet, 0).unwrap();
            // From the peer, and from a router on the way; whole, and as little as RFC 792 wants.
            for from in [peer, &router] {
                let back = bench.through(&error(from, outside, &out), 1).unwrap();
                assert_eq!(ends(&back), (from.to_owned(), inside.to_owned()));
                let quote = &View::parse(&back).unwrap().upper()[8..];
                assert_eq!(quote, packet, "as it was sent");
            }
        }
        // Cut behind eight bytes of its upper layer: there is no TCP checksum to change.
        let packet = tcp(inside, peer, (4000, 80), (SYN, 1, 0, 0));
        let out = bench.through(&packet, 0).unwrap();
        let head = ip_header_len(super::ip(inside));
        let cut = error(peer, outside, &out[..head + 8]);
        let (_, arrived) = bench.show(Point::Arrival, &cut, (Some(1), None));
        let view = View::parse(&arrived).unwrap();
        assert_eq!(view.upper()[8..], packet[..head + 8]);
        let v4 = view.source().is_ipv4();
        let pseudo = checksum::pseudo_header(
            view.source(),
            view.destination(),
            view.protocol(),
            view.upper().len(),
        )
        .unwrap();
        let sum = checksum::sum(view.upper());
        assert!(checksum::is_valid(if v4 { sum } else { pseudo + sum }));
    }
}

const INWARD: &str = "table inet t {
  chain pre {
    type nat hook prerouting priority dstnat;
    iifname \"ext\" ip daddr 192.0.2.1 tcp dport 80 dnat ip to 10.1.0.2:8080
    iifname \"ext\" ip6 daddr 2001:db8::1 tcp dport 80 dnat ip6 to [fd01::2]:8080
    udp dport 53 redirect to :5353
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    ip saddr 192.0.2.66 drop
    ip daddr 10.1.0.2 tcp dport 8080 accept
    ip6 daddr fd01::2 tcp dport 8080 accept
  }
}";

#[test]
fn a_destination_is_translated_and_its_answers_too() {
    for (outside, inside, peer) in [
        ("192.0.2.1", "10.1.0.2", "192.0.2.9"),
        ("2001:db8::1", "fd01::2", "2001:db8::9"),
    ] {
        let mut bench = Bench::new(INWARD);
        let syn = tcp(peer, outside, (4000, 80), (SYN, 100, 0, 0));
        let there = bench.through(&syn, 1).unwrap();
        assert_eq!(
            ends(&there),
            (end(peer, 4000), end(inside, 8080)),
            "rules see it so"
        );
        let back = bench
            .through(
                &tcp(inside, peer, (8080, 4000), (SYN | ACK, 900, 101, 0)),
                0,
            )
            .unwrap();
        assert_eq!(ends(&back), (end(outside, 80), end(peer, 4000)));
        let there = bench
            .through(&tcp(peer, outside, (4000, 80), (ACK, 101, 901, 5)), 1)
            .unwrap();
        assert_eq!(ends(&there).1, end(inside, 8080));
        assert_eq!(bench.state(), "ESTABLISHED");
        assert_eq!(bench.flows()[0]["destination_becomes"], end(inside, 8080));
        // An error about an answer, from the peer, and about a request, from the server: in the name of the address that it was for.
        let about = bench.through(&error(peer, outside, &back), 1).unwrap();
        assert_eq!(ends(&about), (peer.to_owned(), inside.to_owned()));
        let about = bench.through(&error(inside, peer, &there), 0).unwrap();
        assert_eq!(ends(&about), (outside.to_owned(), peer.to_owned()));
    }
}

/// A flow that the rules refuse behind its translation is not kept.
#[test]
fn a_refused_flow_is_forgotten() {
    let mut bench = Bench::new(INWARD);
    assert!(
        bench
            .through(
                &tcp("192.0.2.66", "192.0.2.1", (4000, 80), (SYN, 100, 0, 0)),
                1
            )
            .is_none()
    );
    assert!(bench.flows().is_empty());
}

#[test]
fn a_redirected_datagram_is_for_this_host() {
    let mut bench = Bench::new(INWARD);
    let (_, arrived) = bench.show(
        Point::Arrival,
        &udp("10.1.0.9", "8.8.8.8", (4000, 53), b"?"),
        (Some(0), None),
    );
    assert_eq!(
        ends(&arrived),
        (end("10.1.0.9", 4000), end("10.1.0.1", 5353))
    );
    assert!(is_right(&arrived));
    assert_eq!(
        bench.show(Point::In, &arrived, (Some(0), None)).0,
        Verdict::Pass
    );
    let (_, answer) = bench.show(
        Point::Out,
        &udp("10.1.0.1", "10.1.0.9", (5353, 4000), b"!"),
        (None, Some(0)),
    );
    assert_eq!(ends(&answer), (end("8.8.8.8", 53), end("10.1.0.9", 4000)));
    assert!(is_right(&answer));
}

/// Both translations at once: rules see the source that it came from and the destination that it goes to.
#[test]
fn both_ends_are_translated() {
    let rules = INWARD.replace("policy drop", "policy accept").replace(
        "  chain forward",
        "  chain post {\n    type nat hook postrouting priority srcnat;\n    ip daddr 10.1.0.2 snat to 10.1.0.1\n  }\n  chain forward",
    );
    let mut bench = Bench::new(&rules);
    let there = bench
        .through(
            &tcp("192.0.2.9", "192.0.2.1", (4000, 80), (SYN, 100, 0, 0)),
            1,
        )
        .unwrap();
    assert_eq!(ends(&there), (end("10.1.0.1", 4000), end("10.1.0.2", 8080)));
    let back = bench
        .through(
            &tcp(
                "10.1.0.2",
                "10.1.0.1",
                (8080, 4000),
                (SYN | ACK, 900, 101, 0),
            ),
            0,
        )
        .unwrap();
    assert_eq!(ends(&back), (end("192.0.2.1", 80), end("192.0.2.9", 4000)));
    let there = bench
        .through(
            &tcp("192.0.2.9", "192.0.2.1", (4000, 80), (ACK, 101, 901, 7)),
            1,
        )
        .unwrap();
    assert_eq!(ends(&there), (end("10.1.0.1", 4000), end("10.1.0.2", 8080)));
    let about = bench
        .through(&error("10.1.0.2", "10.1.0.1", &there), 0)
        .unwrap();
    assert_eq!(
        ends(&about),
        ("192.0.2.1".to_owned(), "192.0.2.9".to_owned())
    );
}

/// A datagram without a checksum stays without; one that is broken stays broken.
#[test]
fn sums_change_by_the_difference() {
    let mut bench = Bench::new(MASQUERADE);
    let mut none = udp("10.1.0.9", "192.0.2.9", (4000, 53), b"?");
    none[26..28].fill(0);
    let out = bench.through(&none, 0).unwrap();
    assert_eq!(out[26..28], [0, 0]);
    let mut broken = udp("10.1.0.9", "192.0.2.9", (4001, 53), b"?");
    *broken.last_mut().unwrap() ^= 1;
    let (_, out) = bench.show(Point::Forward, &broken, (Some(0), Some(1)));
    assert!(!is_right(&out));
    assert_eq!(ends(&out).0, "192.0.2.1:4001");
    // Every text: sums that become zero are written as 0xffff.
    for n in 0..=u16::MAX {
        let packet = udp("10.1.0.9", "192.0.2.9", (4002, 53), &n.to_be_bytes());
        let out = bench.through(&packet, 0).unwrap();
        assert_ne!(out[26..28], [0, 0]);
    }
}

/// What the link is to cut carries the sum of the pseudo header alone: the address changes it, the port does not.
#[test]
fn unfinished_sums_stay_so() {
    for (inside, outside, peer) in FAMILIES {
        let mut bench = Bench::new(MASQUERADE);
        let other = inside.replace('9', "8");
        assert!(
            bench
                .through(&tcp(&other, peer, (4000, 80), (SYN, 1, 0, 0)), 0)
                .is_some()
        );
        let head = ip_header_len(super::ip(inside));
        let mut packet = tcp(inside, peer, (4000, 80), (SYN, 1, 0, 100));
        let pseudo = |source: &str| {
            let sum =
                checksum::pseudo_header(super::ip(source), super::ip(peer), Protocol::TCP, 120);
            checksum::fold(sum.unwrap()).to_be_bytes()
        };
        packet[head + 16..head + 18].copy_from_slice(&pseudo(inside));
        let (verdict, out) = bench.show_partial(Point::Forward, &packet, (Some(0), Some(1)), 40);
        assert_eq!(verdict, Verdict::Pass);
        assert_ne!(ends(&out).0, end(outside, 4000), "its port is another");
        let (got, wanted) = (&out[head + 16..head + 18], pseudo(outside));
        assert_eq!(got, wanted, "{outside}");
    }
}

/// Of a flow that is translated, a fragment, and what is no flow's, goes as it came.
#[test]
fn what_is_no_flows_is_not_translated() {
    let mut bench = Bench::new(MASQUERADE);
    let mut fragment = udp("10.1.0.9", "192.0.2.9", (4000, 53), b"?");
    fragment[6] = 0x20; // more follow
    let (_, out) = bench.show(Point::Forward, &fragment, (Some(0), Some(1)));
    assert_eq!(out, fragment);
    assert!(bench.flows().is_empty() && bench.wall.describe().ends_with("1 invalid"));
}
