//! ICMP errors and what sockets are told of them: RFC 1122 §4.1.3.3, RFC 1191, RFC 5927, ip(7)'s IP_RECVERR and IP_MTU_DISCOVER.

use std::{
    io::IoSliceMut,
    net::{IpAddr, SocketAddr},
};

use netchan::socket::{
    Discovery, Domain, ErrorOrigin, Kind, Readiness, ReceivedError, Socket, UdpOption,
};

use crate::{
    Pair, errno,
    raw::{ROUTER, Raw},
    receive, send, udp,
};

const FAR: &str = "198.18.0.1:9";

fn far() -> SocketAddr {
    FAR.parse().unwrap()
}

fn queued(socket: &Socket, room: &mut [u8]) -> std::io::Result<ReceivedError> {
    socket.receive_error(&mut [IoSliceMut::new(room)])
}

fn socket(raw: &Raw) -> Socket {
    let socket = Socket::new(&raw.net, Domain::V4, Kind::Datagram).unwrap();
    socket.bind("0.0.0.0:53".parse().unwrap()).unwrap();
    socket
}

#[test]
fn rfc_1122_4_1_3_3_a_connected_socket_is_told_an_unconnected_one_only_if_it_asks() {
    let mut raw = Raw::new();
    let socket = socket(&raw);
    send(&socket, b"hello", far()).unwrap();
    let sent = raw.turn().pop().unwrap();
    raw.icmp(&sent, 3, 3, 0, 28);
    assert!(socket.take_error().is_none());
    socket.connect(far()).unwrap();
    for (kind, code, expected) in [
        (3, 3, Some(libc::ECONNREFUSED)),
        (3, 1, Some(libc::EHOSTUNREACH)),
        (3, 0, Some(libc::ENETUNREACH)),
        (3, 2, Some(libc::ENOPROTOOPT)),
        (3, 13, Some(libc::EHOSTUNREACH)),
        (12, 0, Some(libc::EPROTO)),
        (11, 0, None), // a hop too many may be one's own wish: for a socket that asks
    ] {
        raw.icmp(&sent, kind, code, 0, 28);
        let error = socket.take_error().map(|e| e.raw_os_error().unwrap());
        assert_eq!(error, expected, "{kind} {code}");
    }
    let mut room = [0; 64];
    raw.icmp(&sent, 3, 3, 0, 28);
    assert_eq!(socket.readiness(), Readiness::WRITABLE | Readiness::ERROR);
    assert_eq!(errno(receive(&socket, &mut room)), libc::ECONNREFUSED);
    raw.icmp(&sent, 3, 3, 0, 28);
    assert_eq!(errno(send(&socket, b"x", far())), libc::ECONNREFUSED);
    assert_eq!(errno(queued(&socket, &mut room)), libc::EAGAIN);
}

#[test]
fn the_error_queue_says_what_happened_to_which_datagram() {
    let mut raw = Raw::new();
    let socket = socket(&raw);
    udp(&socket, UdpOption::ReceiveErrors(true));
    send(&socket, b"who is there?", far()).unwrap();
    let sent = raw.turn().pop().unwrap();
    raw.icmp(&sent, 11, 0, 0, 1000);
    raw.icmp(&sent, 3, 3, 0, 28 + 3); // routers may quote less (RFC 792: 8 octets)
    let mut room = [0; 64];
    assert!(socket.readiness().contains(Readiness::ERROR));
    let first = queued(&socket, &mut room).unwrap();
    assert_eq!(&room[..first.len], b"who is there?");
    let error = first.error;
    assert_eq!(
        (error.errno, error.origin),
        (libc::EHOSTUNREACH, ErrorOrigin::Icmp)
    );
    assert_eq!((error.kind, error.code, error.info), (11, 0, 0));
    assert_eq!(error.destination, far());
    assert_eq!(error.offender, Some(IpAddr::from(ROUTER)));
    // The next one is pending now, until it is taken, too.
    let mut few = [0; 2];
    let second = queued(&socket, &mut few).unwrap();
    assert_eq!((second.len, second.truncated, &few), (2, true, b"wh"));
    assert_eq!(second.error.errno, libc::ECONNREFUSED);
    assert!(socket.take_error().is_none());
    assert_eq!(socket.readiness(), Readiness::WRITABLE);
    // Bounded, whatever comes.
    for _ in 0..1000 {
        raw.icmp(&sent, 3, 3, 0, 1000);
    }
    assert!(raw.counter("drop_udp_error_queue_full") >= 900);
    let left = std::iter::from_fn(|| queued(&socket, &mut room).ok()).count();
    assert_eq!(left, 64);
    // What is no datagram of ours belongs to no socket (RFC 5927 §4).
    let dropped = raw.counter("drop_icmp");
    let mut other = sent;
    other[20..22].copy_from_slice(&77u16.to_be_bytes());
    raw.icmp(&other, 3, 3, 0, 1000);
    assert_eq!(raw.counter("drop_icmp"), dropped + 1);
    assert!(socket.take_error().is_none());
}

#[test]
fn rfc_1191_the_path_is_learned_and_heeded() {
    let mut raw = Raw::new();
    let socket = socket(&raw);
    socket.connect(far()).unwrap();
    assert_eq!(socket.path_mtu().unwrap(), 1500);
    send(&socket, &[1; 1472], far()).unwrap();
    let sent = raw.turn().pop().unwrap();
    assert_eq!((sent.len(), sent[6] & 0x40), (1500, 0x40), "DF");
    // RFC 5927 §7.2: what fits the path that is named was not too long for it.
    raw.icmp(&sent, 3, 4, 1500, 1000);
    assert!(socket.take_error().is_none());
    raw.icmp(&sent, 3, 4, 1300, 1000);
    assert_eq!(errno(send(&socket, &[1; 1400], far())), libc::EMSGSIZE);
    assert_eq!(socket.path_mtu().unwrap(), 1300);
    // IP_PMTUDISC_WANT: cut from now on.
    send(&socket, &[1; 1400], far()).unwrap();
    let cut = raw.turn();
    assert_eq!(cut.len(), 2);
    assert!(cut.iter().all(|p| p.len() <= 1300 && p[6] & 0x40 == 0));
    // IP_PMTUDISC_DO: refused, and told with the size that fits.
    udp(&socket, UdpOption::ReceiveErrors(true));
    udp(&socket, UdpOption::Discovery(Discovery::Do));
    assert_eq!(errno(send(&socket, &[1; 1273], far())), libc::EMSGSIZE);
    let told = queued(&socket, &mut []).unwrap().error;
    assert_eq!((told.origin, told.info), (ErrorOrigin::Local, 1300));
    assert_eq!(send(&socket, &[1; 1272], far()).unwrap(), 1272);
    assert_eq!(raw.turn()[0][6] & 0x40, 0x40);
    // IP_PMTUDISC_PROBE: by the link alone.
    udp(&socket, UdpOption::Discovery(Discovery::Probe));
    send(&socket, &[1; 1472], far()).unwrap();
    assert_eq!(raw.turn().pop().unwrap()[6] & 0x40, 0x40);
    assert_eq!(errno(send(&socket, &[1; 1473], far())), libc::EMSGSIZE);
    // IP_PMTUDISC_DONT: no DF, so each has an identification of its own (RFC 6864 §4.2).
    udp(&socket, UdpOption::Discovery(Discovery::Dont));
    send(&socket, b"a", far()).unwrap();
    send(&socket, b"b", far()).unwrap();
    let sent = raw.turn();
    assert!(sent.iter().all(|p| p[6] & 0x40 == 0));
    assert_ne!(sent[0][4..6], sent[1][4..6]);
    // A path of less than any has is not believed (RFC 8900 §3.7): no more than so many fragments.
    raw.icmp(&sent[0], 3, 4, 68, 1000);
    assert_eq!(socket.path_mtu().unwrap(), 1300);
}

#[test]
fn rfc_4443_errors_over_ipv6() {
    let pair = Pair::new();
    let [socket, _other] = pair.sockets(Domain::V6);
    udp(&socket, UdpOption::ReceiveErrorsV6(true));
    let closed: SocketAddr = "[fd77::2]:9".parse().unwrap();
    send(&socket, b"six", closed).unwrap();
    pair.turn();
    let mut room = [0; 16];
    let got = queued(&socket, &mut room).unwrap();
    assert_eq!(
        (&room[..got.len], got.error.errno),
        (&b"six"[..], libc::ECONNREFUSED)
    );
    assert_eq!(got.error.origin, ErrorOrigin::IcmpV6);
    assert_eq!(
        (got.error.kind, got.error.code, got.error.destination),
        (1, 4, closed)
    );
    assert_eq!(got.error.offender, Some(closed.ip()));
    // No host answers for that address: this host says so, as a router would (RFC 4443 §3.1).
    let absent: SocketAddr = "[fd77::99]:9".parse().unwrap();
    send(&socket, b"absent", absent).unwrap();
    for _ in 0..80 {
        pair.clock.advance(std::time::Duration::from_millis(100));
        pair.turn();
    }
    let got = queued(&socket, &mut room).unwrap();
    assert_eq!(
        (&room[..got.len], got.error.errno),
        (&b"absent"[..], libc::EHOSTUNREACH)
    );
    assert_eq!(got.error.offender, Some("fd77::1".parse().unwrap()));
}
