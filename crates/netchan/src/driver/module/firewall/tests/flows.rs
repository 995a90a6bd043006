//! Tracked flows: their states, their time, their bounds.

use super::*;

/// What is not known is dropped; what goes out is remembered.
const OUTWARD: &str = "table inet t {
  chain in {
    type filter hook input priority 0; policy drop;
    ct state established accept
    ct state related accept
    ct state invalid drop
    tcp dport 80 ct state new accept
  }
}";

const US: &str = "192.0.2.1";
const PEER: &str = "192.0.2.9";

#[test]
fn a_connection_goes_through_its_states() {
    let mut bench = Bench::new(OUTWARD);
    let ports = (4000, 80);
    let of_peer = |flags, seq, ack, text| tcp(PEER, US, ports, (flags, seq, ack, text));
    let of_ours = |flags, seq, ack, text| tcp(US, PEER, (80, 4000), (flags, seq, ack, text));
    for (is_ours, flags, seq, ack, text, state) in [
        (false, SYN, 100, 0, 0, "SYN_SENT"),
        (false, SYN, 100, 0, 0, "SYN_SENT"),
        (true, SYN | ACK, 900, 101, 0, "SYN_RECV"),
        (false, ACK, 101, 901, 0, "ESTABLISHED"),
        (false, ACK, 101, 901, 500, "ESTABLISHED"),
        (true, ACK, 901, 601, 1000, "ESTABLISHED"),
        (false, FIN | ACK, 601, 1901, 0, "FIN_WAIT"),
        (true, ACK, 1901, 602, 0, "CLOSE_WAIT"),
        (true, FIN | ACK, 1901, 602, 0, "LAST_ACK"),
        (false, ACK, 602, 1902, 0, "TIME_WAIT"),
        // The same ports again.
        (false, SYN, 70_000, 0, 0, "SYN_SENT"),
        (true, RST | ACK, 0, 70_001, 0, "CLOSE"),
    ] {
        let passed = match is_ours {
            true => bench.output(&of_ours(flags, seq, ack, text)),
            false => bench.input(&of_peer(flags, seq, ack, text)),
        };
        assert!(passed, "{state}");
        assert_eq!(bench.state(), state);
    }
    let flow = &bench.flows()[0];
    assert_eq!(
        (flow["source"].as_str(), flow["packets_out"].as_u64()),
        (Some("192.0.2.9:4000"), Some(1))
    );
}

#[test]
fn what_lies_outside_of_the_windows_is_invalid() {
    let mut bench = Bench::new(OUTWARD);
    let of_peer = |flags, seq, ack, text| tcp(PEER, US, (4000, 80), (flags, seq, ack, text));
    assert!(bench.input(&of_peer(SYN, u32::MAX - 3, 0, 0)));
    // An answer to another SYN.
    assert!(bench.output(&tcp(US, PEER, (80, 4000), (SYN | ACK, 900, 77, 0))));
    assert_eq!(
        bench.state(),
        "SYN_SENT",
        "output lets it pass, and it changes nothing"
    );
    assert!(bench.output(&tcp(
        US,
        PEER,
        (80, 4000),
        (SYN | ACK, 900, u32::MAX - 2, 0)
    )));
    let begin = u32::MAX - 2; // text wraps
    assert!(bench.input(&of_peer(ACK, begin, 901, 100)));
    assert_eq!(bench.state(), "ESTABLISHED");
    for (flags, seq, ack) in [
        (ACK, begin.wrapping_add(100_000), 901), // beyond the window
        (ACK, begin.wrapping_sub(100_000), 901), // long ago
        (ACK, begin.wrapping_add(100), 5000),    // of what was never sent
        (ACK, begin.wrapping_add(100), 901_u32.wrapping_sub(100_000)),
        (RST, begin.wrapping_add(1_000_000), 0), // blind
    ] {
        assert!(
            !bench.input(&of_peer(flags, seq, ack, 10)),
            "{flags} {seq} {ack}"
        );
        assert_eq!(bench.state(), "ESTABLISHED");
    }
    assert!(bench.input(&of_peer(ACK, begin.wrapping_add(100), 901, 100)));
    assert!(bench.input(&of_peer(RST, begin.wrapping_add(200), 0, 0)));
    assert_eq!(bench.state(), "CLOSE");
}

#[test]
fn flags_that_make_no_sense_are_invalid() {
    let mut bench = Bench::new(OUTWARD);
    for flags in [
        0,
        FIN,
        SYN | FIN,
        SYN | RST,
        FIN | SYN | RST | ACK,
        RST | FIN,
    ] {
        assert!(
            !bench.input(&tcp(PEER, US, (4000, 80), (flags, 1, 0, 0))),
            "{flags}"
        );
    }
    assert!(
        !bench.input(&tcp(PEER, US, (4000, 80), (SYN | ACK, 1, 1, 0))),
        "an answer to nothing"
    );
    assert!(!bench.input(&tcp(PEER, US, (4000, 80), (RST, 1, 1, 0))));
    let mut short = tcp(PEER, US, (4000, 80), (SYN, 1, 0, 0));
    short[32] = 0x40; // a header of 16 bytes
    assert!(!bench.input(&short));
    assert!(bench.flows().is_empty());
}

#[test]
fn answers_come_in_where_questions_went_out() {
    for (us, peer) in [(US, PEER), ("2001:db8::1", "2001:db8::9")] {
        let mut bench = Bench::new(OUTWARD);
        let question = udp(us, peer, (4000, 53), b"?");
        let answer = udp(peer, us, (53, 4000), b"!");
        assert!(!bench.input(&answer));
        assert!(bench.output(&question));
        assert_eq!(bench.state(), "UNREPLIED");
        assert!(
            !bench.input(&udp(peer, us, (54, 4000), b"!")),
            "another port"
        );
        // Nothing listens there: an error about the question, and one about what was never said.
        assert!(bench.input(&error(peer, us, &question)));
        assert!(!bench.input(&error(peer, us, &udp(us, peer, (4001, 53), b"?"))));
        assert!(
            !bench.input(&error(peer, us, &error(us, peer, &answer))),
            "about an error"
        );
        assert!(bench.input(&answer));
        assert_eq!(bench.state(), "ASSURED");
        // An echo.
        assert!(!bench.input(&echo(peer, us, true, 7)));
        assert!(!bench.input(&echo(peer, us, false, 7)));
        assert!(bench.output(&echo(us, peer, true, 7)));
        assert!(!bench.input(&echo(peer, us, false, 8)));
        assert!(bench.input(&echo(peer, us, false, 7)));
        assert!(
            !bench.input(&echo(peer, us, true, 7)),
            "the other way it is a question"
        );
    }
}

/// One that was begun before is picked up, and open once both ends have spoken.
#[test]
fn a_connection_under_way_is_picked_up() {
    let mut bench = Bench::new(OUTWARD);
    assert!(
        !bench.input(&tcp(PEER, US, (80, 4000), (ACK, 900, 100, 10))),
        "new, and not to port 80"
    );
    assert!(bench.output(&tcp(US, PEER, (4000, 80), (ACK, 100, 900, 10))));
    assert_eq!(bench.state(), "PICKED_UP");
    assert!(bench.input(&tcp(PEER, US, (80, 4000), (ACK, 900, 110, 10))));
    assert_eq!(bench.state(), "ESTABLISHED");
}

#[test]
fn each_state_has_its_time() {
    let open = |bench: &mut Bench| {
        assert!(bench.input(&tcp(PEER, US, (4000, 80), (SYN, 100, 0, 0))));
    };
    let answer = |bench: &mut Bench| {
        assert!(bench.output(&tcp(US, PEER, (80, 4000), (SYN | ACK, 900, 101, 0))));
    };
    let settle = |bench: &mut Bench| {
        assert!(bench.input(&tcp(PEER, US, (4000, 80), (ACK, 101, 901, 0))));
    };
    type Steps<'a> = &'a [&'a dyn Fn(&mut Bench)];
    let steps: [(u64, Steps<'_>); 3] = [
        (120, &[&open]),
        (60, &[&open, &answer]),
        (5 * 86_400, &[&open, &answer, &settle]),
    ];
    for (seconds, steps) in steps {
        let mut bench = Bench::new(OUTWARD);
        steps.iter().for_each(|step| step(&mut bench));
        bench.wait(seconds - 1);
        assert_eq!(bench.flows()[0]["left_s"], 1);
        bench.output(&echo(US, PEER, true, 1)); // any packet takes out what is over
        assert_eq!(bench.flows().len(), 2);
        bench.wait(1);
        bench.output(&echo(US, PEER, true, 1));
        let is_tcp = |row: &serde_json::Value| row["protocol"] == 6;
        assert!(!bench.flows().iter().any(is_tcp), "{seconds}");
    }
    // Of UDP: 30 s for the answer, 180 s from then on.
    let mut bench = Bench::new(OUTWARD);
    assert!(bench.output(&udp(US, PEER, (4000, 53), b"?")));
    bench.wait(29);
    assert!(bench.input(&udp(PEER, US, (53, 4000), b"!")));
    bench.wait(179);
    assert!(bench.input(&udp(PEER, US, (53, 4000), b"!")));
    bench.wait(180);
    assert!(!bench.input(&udp(PEER, US, (53, 4000), b"!")));
}

/// A flow whose time is over is none, even where nothing has taken it out yet; what comes next begins another.
#[test]
fn what_is_over_is_not_found() {
    let mut bench = Bench::new(OUTWARD);
    for n in 0..50 {
        assert!(bench.output(&udp(US, PEER, (4000 + n, 53), b"?")));
    }
    bench.wait(31);
    assert!(!bench.input(&udp(PEER, US, (53, 4049), b"!")));
}

/// Half-open flows make room, the oldest first; open ones never; then new ones are refused.
#[test]
fn a_flood_of_syns_pushes_nobody_out() {
    const FLOWS: usize = 64;
    let mut bench = Bench::sized(OUTWARD, FLOWS, FLOWS);
    // Eight open connections.
    for n in 0..8 {
        let ports = (4000 + n, 80);
        assert!(bench.input(&tcp(PEER, US, ports, (SYN, 100, 0, 0))));
        assert!(bench.output(&tcp(US, PEER, (80, ports.0), (SYN | ACK, 900, 101, 0))));
        assert!(bench.input(&tcp(PEER, US, ports, (ACK, 101, 901, 0))));
    }
    for n in 0..10_000_u32 {
        bench.now = Instant(bench.now.0 + 1000);
        let [a, b, ..] = n.to_le_bytes();
        let source = format!("198.51.{b}.{a}");
        assert!(bench.input(&tcp(&source, US, (1024, 80), (SYN, n, 0, 0))));
    }
    let flows = bench.flows();
    assert_eq!(flows.len(), FLOWS);
    let open = flows.iter().filter(|row| row["state"] == "ESTABLISHED");
    assert_eq!(open.count(), 8);
    // The last 56 are there, the first are not.
    let has = |source: &str| flows.iter().any(|row| row["source"] == source);
    assert!(has("198.51.39.15:1024") && has("198.51.38.240:1024") && !has("198.51.0.0:1024"));
    let says = bench.wall.describe();
    assert!(
        says.contains("64 of 64 flows, 56 half-open") && says.contains("9944 evicted"),
        "{says}"
    );
    for n in 0..8 {
        assert!(
            bench.input(&tcp(PEER, US, (4000 + n, 80), (ACK, 101, 901, 10))),
            "{n}"
        );
    }
    // A connection that opens in the midst of it does.
    assert!(bench.input(&tcp(PEER, US, (5000, 80), (SYN, 100, 0, 0))));
    assert!(bench.output(&tcp(US, PEER, (80, 5000), (SYN | ACK, 900, 101, 0))));
    assert!(bench.input(&tcp(PEER, US, (5000, 80), (ACK, 101, 901, 0))));
    assert_eq!(bench.flows().len(), FLOWS);
}

#[test]
fn where_all_flows_are_open_new_ones_are_refused() {
    let mut bench = Bench::sized(OUTWARD, 4, 64);
    for n in 0..4 {
        let ports = (4000 + n, 80);
        assert!(bench.input(&tcp(PEER, US, ports, (SYN, 100, 0, 0))));
        assert!(bench.output(&tcp(US, PEER, (80, ports.0), (SYN | ACK, 900, 101, 0))));
        assert!(bench.input(&tcp(PEER, US, ports, (ACK, 101, 901, 0))));
    }
    assert!(!bench.input(&tcp(PEER, US, (5000, 80), (SYN, 100, 0, 0))));
    assert!(bench.wall.describe().contains("refused: 1 for room"));
    // One that is over makes room.
    assert!(bench.input(&tcp(PEER, US, (4000, 80), (RST, 101, 0, 0))));
    assert!(bench.input(&tcp(PEER, US, (5000, 80), (SYN, 100, 0, 0))));
}

#[test]
fn a_source_has_its_share() {
    let mut bench = Bench::sized(OUTWARD, 1024, 10);
    let opened = |bench: &mut Bench, source: &str, us: &str| {
        (0..20)
            .filter(|n| bench.input(&tcp(source, us, (4000 + n, 80), (SYN, 100, 0, 0))))
            .count()
    };
    assert_eq!(opened(&mut bench, PEER, US), 10);
    assert_eq!(
        opened(&mut bench, "192.0.2.10", US),
        10,
        "another's is its own"
    );
    assert!(bench.wall.describe().contains("20 for their source"));
    // All addresses of a /64 are one host's.
    assert_eq!(opened(&mut bench, "2001:db8::9", "2001:db8::1"), 10);
    assert_eq!(opened(&mut bench, "2001:db8::a", "2001:db8::1"), 0);
    bench.wait(121);
    assert_eq!(
        opened(&mut bench, PEER, US),
        10,
        "as they go, others may come"
    );
}

/// A new file takes the place of the old; flows stay; one with an error changes nothing.
#[test]
fn rules_are_replaced_and_flows_stay() {
    let mut bench = Bench::new(OUTWARD);
    assert!(bench.output(&udp(US, PEER, (4000, 53), b"?")));
    assert!(bench.input(&udp(PEER, US, (53, 4000), b"!")));
    let why = bench
        .wall
        .configure("table inet t {\n  chain in {\n    nonsense\n")
        .unwrap_err();
    assert!(why.starts_with("3:5: `nonsense`:"), "{why}");
    assert!(bench.input(&udp(PEER, US, (53, 4000), b"!")));
    assert_eq!(bench.counted(4).0, 2);
    let closed = "table inet t {\n chain in {\n  type filter hook input priority 0; policy drop;\n  ct state established accept\n }\n}";
    let done = bench.wall.configure(closed).unwrap();
    assert_eq!(done, "1 rules are in force, 1 flows stay");
    assert!(bench.input(&udp(PEER, US, (53, 4000), b"!")));
    assert!(
        !bench.input(&tcp(PEER, US, (4000, 80), (SYN, 1, 0, 0))),
        "port 80 is shut"
    );
    bench
        .wall
        .configure(
            "table inet t {\n chain in {\n  type filter hook input priority 0; policy drop;\n }\n}",
        )
        .unwrap();
    assert!(!bench.input(&udp(PEER, US, (53, 4000), b"!")));
}

/// Whatever bytes: no panic, and no more flows than there may be.
#[test]
fn hostile_packets_do_no_harm() {
    use proto::ip::keyed::{Random, Seed};
    let rules = "table inet t {
  chain pre { type nat hook prerouting priority -100; tcp dport 80 dnat ip to 10.1.0.2:8080; udp dport 1-9000 redirect to :53; }
  chain post { type nat hook postrouting priority 100; masquerade; }
}"
    .replace("; }\n", ";\n }\n");
    let mut bench = Bench::sized(&rules, 256, 256);
    let mut random = Random::new(Seed([5, 5]));
    let (asked, v6) = (
        udp("10.1.0.9", "192.0.2.9", (4000, 53), b"?"),
        udp("fd01::9", "2001:db8::9", (4000, 53), b"?"),
    );
    let whole = [
        tcp("10.1.0.9", "192.0.2.9", (4000, 80), (SYN, 1, 0, 0)),
        error("192.0.2.9", "192.0.2.1", &asked),
        error("2001:db8::9", "2001:db8::1", &v6),
        echo("fd01::9", "2001:db8::9", true, 9),
        asked,
        v6,
    ];
    for round in 0..20_000 {
        let mut bytes = whole[round % whole.len()].clone();
        let mut below = |n: usize| usize::try_from(random.below(n as u64)).unwrap();
        for _ in 0..below(4) {
            let at = below(bytes.len());
            bytes[at] = u8::try_from(below(256)).unwrap();
        }
        let cut = below(4) == 0;
        bytes.truncate(if cut {
            1 + below(bytes.len())
        } else {
            bytes.len()
        });
        if View::parse(&bytes).is_none() {
            continue;
        }
        for (point, links) in [
            (Point::Arrival, (Some(1), None)),
            (Point::Forward, (Some(0), Some(1))),
            (Point::In, (Some(0), None)),
            (Point::Out, (None, Some(0))),
        ] {
            bench.show(point, &bytes, links);
        }
        bench.now = Instant(bench.now.0 + 10_000_000);
    }
    assert!(bench.flows().len() <= 256);
}
