//! Names of sockets, what a stack says of them, and the filter.

use netchan::tap::{Filter, Instruction as Step};
use serde_json::json;

use super::*;

fn end(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn sockets_are_named_by_both_ends_by_one_or_by_port() {
    let (a, b) = (end("10.0.0.1:80"), end("[fd00::1]:4242"));
    assert_eq!(
        Named::parse("10.0.0.1:80-[fd00::1]:4242"),
        Some(Named::Both(a, b))
    );
    assert_eq!(Named::parse("10.0.0.1:80"), Some(Named::One(a)));
    assert_eq!(Named::parse(":80"), Some(Named::Port(80)));
    assert_eq!(Named::parse("80"), Some(Named::Port(80)));
    for wrong in ["", ":", "10.0.0.1", "70000", "a-b", "10.0.0.1:80-", "-"] {
        assert_eq!(Named::parse(wrong), None, "{wrong}");
    }
    let socket = Socket {
        local: a,
        remote: b,
        scales: [Scale::Unknown; 2],
    };
    for named in ["[fd00::1]:4242-10.0.0.1:80", "10.0.0.1:80", "4242", "80"] {
        assert!(
            Named::parse(named).is_some_and(|named| named.admits(&socket)),
            "{named}"
        );
    }
    for named in ["10.0.0.1:81", "81", "10.0.0.1:80-10.0.0.1:4242"] {
        assert!(
            !Named::parse(named).is_some_and(|named| named.admits(&socket)),
            "{named}"
        );
    }
}

#[test]
fn sockets_of_a_stack_have_two_ends_and_scales() {
    let facts = json!([
        { "protocol": "tcp", "local": "0.0.0.0:80", "remote": null },
        { "protocol": "udp", "local": "10.0.0.1:1", "remote": "10.0.0.2:2" },
        { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:3", "options": "ts sack wscale:7,3" },
        { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:4", "options": "ts" },
        { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:5" },
        { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:6", "options": "wscale:99,x" },
        { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:7", "state": "TIME-WAIT" },
        "nonsense",
    ]);
    let found: Vec<Socket> = sockets(&facts).collect();
    let scales: Vec<[Scale; 2]> = found.iter().map(|socket| socket.scales).collect();
    let unknown = [Scale::Unknown; 2];
    let agreed = [Scale::Known(3), Scale::Known(7)];
    assert_eq!(scales, [agreed, [Scale::Known(0); 2], unknown, unknown]);
}

/// A frame from one end to another.
fn frame(from: &str, to: &str, is_tagged: bool, options: usize) -> Vec<u8> {
    let (from, to) = (end(from), end(to));
    let (mut ip, ports) = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            let mut ip = vec![0x45; 20 + options];
            ip[0] = 0x40 | u8::try_from(5 + options / 4).expect("few");
            ip[6..8].fill(0);
            ip[9] = 6;
            ip[12..16].copy_from_slice(&from.ip().octets());
            ip[16..20].copy_from_slice(&to.ip().octets());
            ([&[8, 0], &ip[..]].concat(), [from.port(), to.port()])
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            let mut ip = [0x60; 40];
            ip[6] = 6;
            ip[8..24].copy_from_slice(&from.ip().octets());
            ip[24..40].copy_from_slice(&to.ip().octets());
            ([&[0x86, 0xdd], &ip[..]].concat(), [from.port(), to.port()])
        }
        _ => panic!("one family"),
    };
    ip.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    ip.extend([0; 16]);
    let tag: &[u8] = if is_tagged { &[0x81, 0, 0, 5] } else { &[] };
    [&[1; 12], tag, &ip].concat()
}

fn length(frame: &[u8]) -> u32 {
    u32::try_from(frame.len()).expect("short")
}

#[test]
fn filter_lets_one_connection_through() {
    for (a, b, other) in [
        ("10.0.0.1:80", "10.0.0.2:4242", "10.0.0.3:4242"),
        ("[fd00::1]:80", "[fd00::2]:4242", "[fd00::2:0:0]:4242"),
    ] {
        let program = program(end(a), end(b));
        let steps = program
            .iter()
            .map(|&(code, jt, jf, k)| Step { code, jt, jf, k });
        let filter = Filter::new(&steps.collect::<Vec<_>>()).expect("a program");
        let passes = |frame: &[u8]| filter.run(frame, length(frame)) > 0;
        for is_tagged in [false, true] {
            assert!(passes(&frame(a, b, is_tagged, 0)), "{a} {b}");
            assert!(passes(&frame(b, a, is_tagged, 0)), "{b} {a}");
            assert!(!passes(&frame(a, a, is_tagged, 0)));
            assert!(!passes(&frame(a, other, is_tagged, 0)));
            assert!(!passes(&frame(other, a, is_tagged, 0)));
        }
        let last = a.replace("80", "81");
        assert!(!passes(&frame(&last, b, false, 0)), "another port");
        let mut udp = frame(a, b, false, 0);
        let at = if a.starts_with('[') { 20 } else { 23 };
        udp[at] = 17;
        assert!(!passes(&udp) && !passes(&udp[..10]) && !passes(&[]));
    }
    let program = program(end("10.0.0.1:80"), end("10.0.0.2:4242"));
    let steps = program
        .iter()
        .map(|&(code, jt, jf, k)| Step { code, jt, jf, k });
    let filter = Filter::new(&steps.collect::<Vec<_>>()).expect("a program");
    let runs = |frame: &[u8]| filter.run(frame, length(frame)) > 0;
    assert!(
        runs(&frame("10.0.0.1:80", "10.0.0.2:4242", false, 12)),
        "IP options"
    );
    let mut fragment = frame("10.0.0.1:80", "10.0.0.2:4242", false, 0);
    fragment[21] = 1;
    assert!(!runs(&fragment));
}
