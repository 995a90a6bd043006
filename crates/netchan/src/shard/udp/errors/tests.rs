//! What ICMP errors are to sockets, and what a queue of them keeps.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn about(protocol: Protocol, quoted_len: u16) -> IncomingError {
    IncomingError {
        protocol,
        local: ([10, 0, 0, 1].into(), 7000),
        remote: ([10, 0, 0, 2].into(), 53),
        kind: Kind::PortUnreachable,
        quoted_seq: None,
        quoted_len,
    }
}

/// A header of UDP and these bytes.
fn datagram(text: &[u8]) -> Vec<u8> {
    let len = u16::try_from(HEADER_LEN + text.len()).unwrap();
    [&[0x1b, 0x58, 0, 53][..], &len.to_be_bytes(), &[0, 0], text].concat()
}

/// The payload of a datagram of ours that an ICMP error quotes, whatever stands before it, as much as there is of it.
#[test]
fn the_payload_is_what_stands_behind_the_headers() {
    let upper = datagram(b"payload");
    let udp = |packet: &[u8]| payload_of(packet, &about(Protocol::UDP, 0)).to_vec();
    let v4 = |words: u8| vec![0x40 | words; usize::from(words) * 4];
    let v6 = |next: Protocol, len| {
        let mut headers = vec![0x60; len];
        headers[6] = next.0;
        headers
    };
    for headers in [
        v4(5),
        v4(6),
        v4(15),
        v6(Protocol::UDP, 40),
        v6(Protocol::FRAGMENT, 48),
    ] {
        let whole = [&headers[..], &upper].concat();
        assert_eq!(udp(&whole), b"payload");
        // Padded behind (RFC 4884 §5.1), cut, and cut before it.
        assert_eq!(udp(&[&whole[..], &[0; 9]].concat()), b"payload");
        assert_eq!(udp(&whole[..whole.len() - 3]), b"payl");
        assert_eq!(udp(&whole[..headers.len() + HEADER_LEN]), b"");
        assert_eq!(udp(&whole[..headers.len() + 3]), b"");
        assert_eq!(udp(&whole[..headers.len()]), b"");
    }
    // An echo request is all of it, as far as it was sent.
    let request = [&v4(5)[..], b"12345678ping", &[0; 7]].concat();
    let of = |len| payload_of(&request, &about(Protocol::ICMP, len));
    assert_eq!(of(32), b"12345678ping");
    assert_eq!(of(1000), &request[20..]);
    assert_eq!(of(10), b"");
}

/// As icmp(7) and ipv6(7) of Linux (`icmp_err_convert`, `tab_unreach`): the errno, and whether a connected socket hears of it unasked.
#[test]
fn an_icmp_error_is_an_errno() {
    use libc::{
        EACCES, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENONET, ENOPROTOOPT,
        EOPNOTSUPP, EPROTO,
    };
    let unreachable_v4 = [
        (ENETUNREACH, true),
        (EHOSTUNREACH, true),
        (ENOPROTOOPT, true),
        (ECONNREFUSED, true),
        (EMSGSIZE, true),
        (EOPNOTSUPP, false),
        (ENETUNREACH, true),
        (EHOSTDOWN, true),
        (ENONET, true),
        (ENETUNREACH, true),
        (EHOSTUNREACH, true),
        (ENETUNREACH, true),
        (EHOSTUNREACH, true),
    ];
    for (code, errno) in (0..).zip(unreachable_v4) {
        assert_eq!(errno_of(true, 3, code), errno, "code {code}");
    }
    let unreachable_v6 = [
        (ENETUNREACH, true),
        (EACCES, true),
        (EHOSTUNREACH, true),
        (EHOSTUNREACH, true),
        (ECONNREFUSED, true),
        (EACCES, true),
        (EACCES, true),
        (EPROTO, false),
    ];
    for (code, errno) in (0..).zip(unreachable_v6) {
        assert_eq!(errno_of(false, 1, code), errno, "code {code}");
    }
    assert_eq!(errno_of(false, 2, 0), (EMSGSIZE, true));
    for (is_v4, kind, errno) in [
        (true, 11, (EHOSTUNREACH, false)),
        (false, 3, (EHOSTUNREACH, false)),
        (true, 12, (EPROTO, true)),
        (false, 4, (EPROTO, true)),
        (true, 4, (EPROTO, false)),
        (false, 200, (EPROTO, false)),
    ] {
        assert_eq!(errno_of(is_v4, kind, 0), errno, "{is_v4} {kind}");
    }
}

fn error(errno: i32, origin: ErrorOrigin) -> SocketError {
    SocketError {
        errno,
        origin,
        kind: 3,
        code: 3,
        info: 0,
        destination: (Ipv4Addr::LOCALHOST, 53).into(),
        offender: Some(Ipv6Addr::LOCALHOST.into()),
    }
}

/// Each error keeps its own payload, read into as many buffers as there are; what does not fit them is gone, and said to be.
#[test]
fn errors_are_read_one_by_one() {
    let mut queue = ErrorQueue::new();
    assert!(queue.is_empty());
    for (errno, text) in [
        (1, &b"first"[..]),
        (2, b""),
        (3, b"third one"),
        (4, b"last"),
    ] {
        assert!(queue.push(error(errno, ErrorOrigin::Icmp), text));
    }
    let mut read = |sizes: &[usize]| {
        let mut room: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![b'.'; size]).collect();
        let mut buffers: Vec<_> = room.iter_mut().map(|r| IoSliceMut::new(r)).collect();
        let got = queue.pop(&mut buffers)?;
        let text = String::from_utf8(room.concat()).unwrap();
        Some((got.error.errno, got.len, got.truncated, text))
    };
    assert_eq!(read(&[2, 8]), Some((1, 5, false, "first.....".into())));
    assert_eq!(read(&[1]), Some((2, 0, false, ".".into())));
    assert_eq!(read(&[2, 3]), Some((3, 5, true, "third".into())));
    assert_eq!(read(&[4]), Some((4, 4, false, "last".into())));
    assert_eq!(read(&[4]), None);
    assert!(queue.is_empty() && queue.payloads.is_empty());
}

/// As Linux: what the next one is pends, unless it is this host's own.
#[test]
fn only_what_came_from_elsewhere_pends() {
    let mut queue = ErrorQueue::new();
    assert_eq!(queue.next_pending(), None);
    for (origin, pends) in [
        (ErrorOrigin::Icmp, Some(7)),
        (ErrorOrigin::Local, None),
        (ErrorOrigin::IcmpV6, Some(7)),
    ] {
        assert!(queue.push(error(7, origin), b"x"));
        assert_eq!(queue.next_pending(), pends);
        queue.pop(&mut []);
    }
}

/// So many errors, and so much payload; what is refused leaves nothing behind.
#[test]
fn a_full_queue_takes_no_more() {
    let mut queue = ErrorQueue::new();
    let icmp = error(7, ErrorOrigin::Icmp);
    for _ in 0..limits::UDP_ERRORS {
        assert!(queue.push(icmp, b"x"));
    }
    assert!(!queue.push(icmp, b"x"), "too many");
    assert_eq!(queue.payloads.len(), limits::UDP_ERRORS);
    let mut queue = ErrorQueue::new();
    let half = vec![0; limits::UDP_ERROR_BYTES / 2];
    assert!(
        queue.push(icmp, &half) && queue.push(icmp, &half),
        "just so much"
    );
    assert!(!queue.push(icmp, b"x"), "too much");
    assert!(queue.push(icmp, b""));
}
