//! 127.0.0.0/8 and ::1 as a stack's own: what talks to itself there, what hears it, and what stays out.

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use netchan::{
    Net, Regime,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};

const PATIENCE: Duration = Duration::from_secs(20);
const REGIMES: [Regime; 3] = [Regime::Locked, Regime::PerCpu, Regime::AppChannel];

/// The wire's other end, and a stack at 10.0.0.1 and fd00::1, on a wire that nothing else is on, with the loopback addresses.
fn start(regime: Regime) -> (Net, wire::Wire) {
    let (ours, end) = wire::pair(&wire::Options::default());
    let net = Net::builder().regime(regime).link_with(Box::new(ours));
    let net = net.address("10.0.0.1/24").unwrap();
    let net = net.address("fd00::1/64").unwrap();
    let net = net.gateway("10.0.0.9").unwrap().loopback(true);
    (net.start().unwrap(), end)
}

/// Sends `text` to a listener at `bound` by way of `peer` and has it back; the address that the client came from.
fn echo(net: &Net, bound: &str, peer: &str, text: &[u8]) -> SocketAddr {
    let listener = net.tcp().listen(bound).unwrap();
    let mut to: SocketAddr = peer.parse().unwrap();
    to.set_port(listener.local_addr().unwrap().port());
    let server = thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut block = vec![0; 50_000];
        loop {
            match stream.read(&mut block).unwrap() {
                0 => return from,
                n => stream.write_all(&block[..n]).unwrap(),
            }
        }
    });
    let mut stream = net.tcp().connect_timeout(to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text).unwrap();
    let mut got = vec![0; text.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == text, "{bound} by {peer}: other bytes");
    let from = stream.local_addr().unwrap();
    drop(stream);
    assert_eq!(server.join().unwrap(), from);
    from
}

#[test]
fn streams_in_three_regimes() {
    let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    for regime in REGIMES {
        let (net, _end) = start(regime);
        for (bound, peer, from) in [
            ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
            ("127.9.8.7:0", "127.9.8.7:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.5:0", "127.0.0.1"),
            ("127.0.0.1:0", "0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "10.0.0.1:0", "10.0.0.1"),
            ("[::1]:0", "[::1]:0", "::1"),
            ("[::]:0", "[::1]:0", "::1"),
            ("[::1]:0", "[::]:0", "::1"),
        ] {
            let came = echo(&net, bound, peer, &text).ip();
            assert_eq!(
                came,
                from.parse::<IpAddr>().unwrap(),
                "{regime:?} {bound} {peer}"
            );
        }
    }
}

#[test]
fn datagrams_in_three_regimes() {
    for regime in REGIMES {
        let (net, _end) = start(regime);
        for (bound, peer, from) in [
            ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
            ("127.1.2.3:0", "127.1.2.3:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.5:0", "127.0.0.1"),
            ("0.0.0.0:0", "10.0.0.1:0", "10.0.0.1"),
            ("[::1]:0", "[::1]:0", "::1"),
            ("[::]:0", "[::1]:0", "::1"),
            ("[::]:0", "[fd00::1]:0", "fd00::1"),
        ] {
            let server = net.udp().bind(bound).unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut to: SocketAddr = peer.parse().unwrap();
            to.set_port(server.local_addr().unwrap().port());
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = net.udp().bind(any).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = vec![0; 65_536];
            // One byte; as much as fits a packet; as much as fits none, and goes in fragments.
            for len in [1, 8_000, 65_000] {
                client.send_to(&vec![7; len], to).unwrap();
                let (n, back) = server
                    .recv_from(&mut got)
                    .unwrap_or_else(|e| panic!("{regime:?} {bound} {len}: {e}"));
                assert_eq!(
                    (n, back.ip()),
                    (len, from.parse().unwrap()),
                    "{regime:?} {bound}"
                );
                server.send_to(&got[..n], back).unwrap();
                // From a wildcard address the answer goes out from where the route says, as in Linux.
                let (n, _) = client.recv_from(&mut got).unwrap();
                assert_eq!(n, len, "{regime:?} {bound}: back");
            }
        }
    }
}

#[test]
fn nothing_leaves_from_a_loopback_address_or_is_chosen_for_others() {
    let (net, _end) = start(Regime::Locked);
    let outside: SocketAddr = "10.0.0.7:9".parse().unwrap();
    let beyond: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let local = net.udp().bind("127.0.0.1:0").unwrap();
    for to in [outside, beyond] {
        let refused = local.send_to(b"x", to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{to}");
        let refused = local.connect(to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{to}");
        let open = net.udp().bind("0.0.0.0:0").unwrap();
        open.connect(to).unwrap();
        assert_eq!(open.local_addr().unwrap().ip(), Ipv4Addr::new(10, 0, 0, 1));
    }
}

#[test]
fn without_it_they_are_no_addresses() {
    let (ours, _end) = wire::pair(&wire::Options::default());
    let net = Net::builder().link_with(Box::new(ours));
    let net = net.address("10.0.0.1/24").unwrap().start().unwrap();
    let refused = net.udp().bind("127.0.0.1:0").err().map(|e| e.kind());
    assert_eq!(refused, Some(ErrorKind::AddrNotAvailable));
}

#[test]
fn it_may_be_the_only_interface() {
    let net = Net::builder().loopback(true).start().unwrap();
    echo(&net, "127.0.0.1:0", "127.0.0.1:0", b"alone");
    echo(&net, "[::]:0", "[::1]:0", b"alone");
    let beyond = net.tcp().connect("192.0.2.1:9");
    assert_eq!(
        beyond.err().map(|e| e.kind()),
        Some(ErrorKind::NetworkUnreachable)
    );
    assert!(Net::builder().start().is_err());
}

/// What a socket at `from` is told when it connects to port 9 of `to`, where no socket listens.
fn refusal(net: &Net, from: &str, to: &str) -> Option<ErrorKind> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let domain = if from.is_ipv4() {
        Domain::V4
    } else {
        Domain::V6
    };
    let socket = Socket::new(net, domain, Kind::Stream).unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let _ = socket.connect(SocketAddr::new(to, 9)); // is under way
    (0..PATIENCE.as_millis()).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        socket.take_error().map(|error| error.kind())
    })
}

/// An answer finds its way between any two addresses of the host, and 0.0.0.0 is the one that the socket has.
#[test]
fn between_any_two_addresses() {
    let v4 = ["127.0.0.1", "127.9.8.7", "10.0.0.1", "0.0.0.0"];
    let v6 = ["::1", "fd00::1", "::"];
    for regime in REGIMES {
        let (net, _end) = start(regime);
        for family in [&v4[..], &v6[..]] {
            for (from, to) in family
                .iter()
                .flat_map(|&a| family.iter().map(move |&b| (a, b)))
            {
                let told = refusal(&net, from, to);
                assert_eq!(
                    told,
                    Some(ErrorKind::ConnectionRefused),
                    "{regime:?}: from {from} to {to}"
                );
            }
        }
        let socket = Socket::new(&net, Domain::V4, Kind::Datagram).unwrap();
        socket.bind("10.0.0.1:0".parse().unwrap()).unwrap();
        socket.connect("0.0.0.0:9".parse().unwrap()).unwrap();
        let peer = socket.peer_address().unwrap();
        assert_eq!(peer, "10.0.0.1:9".parse().unwrap());
    }
}

/// Each of 127.0.0.0/8 answers echoes, and says of itself that it has no socket at a port.
#[test]
fn any_of_them_answers() {
    let (net, _end) = start(Regime::Locked);
    for (domain, to) in [
        (Domain::V4, "127.0.0.1"),
        (Domain::V4, "127.9.8.7"),
        (Domain::V6, "::1"),
    ] {
        let to = SocketAddr::new(to.parse().unwrap(), 0);
        let socket = Socket::new(&net, domain, Kind::Ping).unwrap();
        let request = [
            if domain == Domain::V4 { 8 } else { 128 },
            0,
            0,
            0,
            0,
            0,
            0,
            1,
        ];
        socket.send(&[IoSlice::new(&request)], Some(to)).unwrap();
        let mut room = [0; 64];
        let came = (0..PATIENCE.as_millis()).find_map(|_| {
            thread::sleep(Duration::from_millis(1));
            let mut rooms = [IoSliceMut::new(&mut room)];
            socket.receive(&mut rooms, ReceiveFlags::default()).ok()
        });
        assert_eq!(came.and_then(|came| came.from), Some(to));
        let told = udp_refusal(&net, domain, to.ip());
        assert_eq!(told, Some(ErrorKind::ConnectionRefused), "{to}");
    }
}

/// What a datagram socket that is bound to an address, and connected to port 9 there, is told when it sends.
fn udp_refusal(net: &Net, domain: Domain, ip: IpAddr) -> Option<ErrorKind> {
    let socket = Socket::new(net, domain, Kind::Datagram).unwrap();
    socket.bind(SocketAddr::new(ip, 0)).unwrap();
    socket.connect(SocketAddr::new(ip, 9)).unwrap();
    socket.send(&[IoSlice::new(b"x")], None).unwrap();
    (0..PATIENCE.as_millis()).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        socket.take_error().map(|error| error.kind())
    })
}
