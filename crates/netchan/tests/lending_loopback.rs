//! 127.0.0.0/8 and ::1 of a lender, which applications share: how they reach each other there, what is kept out, and that nothing of it leaves the host.

mod joined_leases;
mod lease_service;

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut, Read, Write},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::Duration,
};

use joined_leases::{counter, join, join_as, kept, part, piped, tell_ports, tell_ports_as};
use lease_service::{LENDER, LENDER_V6, PEER, application, lender_and_peer, lender_of, pattern};
use netchan::{
    Clock, Lent, Net,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket},
    tap::{Options, Tap},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A lender that lends its loopback addresses, and a peer.
fn lender() -> (Net, Net) {
    let settings = Net::builder().loopback(true).lends_loopback(true);
    lender_of(settings, &wire::Options::default())
}

/// An application that shares them.
fn sharing(lender: &Net, name: &str) -> (Net, Arc<Lent>) {
    application(lender, name, Net::builder().loopback(true))
}

/// Bytes both ways between `client` and `server`, which listens at `bound`, by way of `to`. The address that the client came from.
fn echo(client: &Net, server: &Net, (bound, to): (&str, &str), len: usize) -> IpAddr {
    let listener = server.tcp().listen(bound).unwrap();
    let sent = pattern(len, 7);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (mut stream, from) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = vec![0; len];
            stream.read_exact(&mut got).unwrap();
            stream.write_all(&got).unwrap();
            from
        });
        let to: SocketAddr = to.parse().unwrap();
        let mut stream = (client.tcp().connect_timeout(to, PATIENCE))
            .unwrap_or_else(|e| panic!("{bound} by {to}: {e}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; len];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent, "{bound} by {to}: other bytes");
        let (came, own) = (serving.join().unwrap(), stream.local_addr().unwrap());
        assert_eq!(
            (came.ip().to_canonical(), came.port()),
            (own.ip(), own.port())
        );
        own.ip()
    })
}

#[test]
fn applications_reach_each_other_there() {
    let (lender, _peer) = lender();
    let (first, _first) = sharing(&lender, "first");
    let (second, _second) = sharing(&lender, "second");
    for (bound, to, from) in [
        ("127.0.0.1:80", "127.0.0.1:80", "127.0.0.1"),
        ("127.9.8.7:81", "127.9.8.7:81", "127.0.0.1"),
        ("0.0.0.0:82", "127.0.0.5:82", "127.0.0.1"),
        ("127.0.0.1:83", "0.0.0.0:83", "127.0.0.1"),
        ("0.0.0.0:84", "10.0.0.1:84", LENDER),
        ("[::1]:85", "[::1]:85", "::1"),
        ("[::]:86", "[::1]:86", "::1"),
        ("[::]:87", "127.0.0.1:87", "127.0.0.1"),
        ("[::]:88", "[fd00::1]:88", LENDER_V6),
    ] {
        let from: IpAddr = from.parse().unwrap();
        for (client, server) in [(&first, &second), (&second, &second)] {
            let came = echo(client, server, (bound, to), 300_000);
            assert_eq!(came, from, "{bound} by {to}");
        }
        let came = echo(&lender, &second, (bound, to), 100_000);
        assert_eq!(came, from, "the lender's own, {bound} by {to}");
    }
    // The lender may listen there itself.
    echo(&first, &lender, ("127.0.0.1:90", "127.0.0.1:90"), 100_000);
    echo(&first, &lender, ("0.0.0.0:91", "127.0.0.1:91"), 100_000);
}

/// Until it is there, 10 s at most.
fn eventually<T>(look: impl FnMut(u32) -> Option<T>) -> Option<T> {
    let wait = |n| {
        thread::sleep(Duration::from_millis(u64::from(n > 0)));
        n
    };
    (0..10_000).map(wait).find_map(look)
}

/// What a socket of `net` at `from` is told when it connects to port 9 of `to`.
fn refusal(net: &Net, from: &str, to: &str) -> Option<ErrorKind> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let domain = match from.is_ipv4() {
        true => Domain::V4,
        false => Domain::V6,
    };
    let socket = Socket::new(net, domain, Kind::Stream).unwrap();
    socket.bind((from, 0).into()).unwrap();
    let _ = socket.connect((to, 9).into()); // is under way
    eventually(|_| socket.take_error().map(|error| error.kind()))
}

/// An answer finds its way between any two addresses of the host, also where no socket listens, and that soon.
#[test]
fn where_nobody_listens_is_refused_at_once() {
    let (lender, _peer) = lender();
    let (first, _first) = sharing(&lender, "first");
    let (_second, _lent) = sharing(&lender, "second");
    let started = Clock::Real.now();
    for family in [
        &["127.0.0.1", "127.9.8.7", LENDER, "0.0.0.0"][..],
        &["::1", LENDER_V6, "::"],
    ] {
        for from in family {
            for to in family {
                let told = refusal(&first, from, to);
                let expected = Some(ErrorKind::ConnectionRefused);
                assert_eq!(told, expected, "from {from} to {to}");
            }
        }
    }
    for to in ["127.0.0.1:9", "127.9.8.7:9", "[::1]:9"] {
        let to: SocketAddr = to.parse().unwrap();
        let domain = if to.is_ipv4() { Domain::V4 } else { Domain::V6 };
        let socket = Socket::new(&first, domain, Kind::Datagram).unwrap();
        socket.connect(to).unwrap();
        socket.send(&[IoSlice::new(b"x")], None).unwrap();
        let told = eventually(|_| socket.take_error()).and_then(|e| e.raw_os_error());
        assert_eq!(told, Some(libc::ECONNREFUSED), "{to}");
    }
    assert!(Clock::Real.now().since(started) < Duration::from_secs(10));
}

fn errno<T>(refused: std::io::Result<T>) -> Option<i32> {
    refused.err()?.raw_os_error()
}

#[test]
fn a_port_is_one_applications_at_an_address() {
    let (lender, _peer) = lender();
    let (first, _first) = sharing(&lender, "first");
    let (second, _second) = sharing(&lender, "second");
    let taken = Some(libc::EADDRINUSE);
    let own = first.tcp().listen("127.0.0.1:80").unwrap();
    for address in ["127.0.0.1:80", "0.0.0.0:80", "[::]:80"] {
        assert_eq!(errno(second.tcp().listen(address)), taken, "{address}");
        assert_eq!(errno(lender.tcp().listen(address)), taken, "{address}");
    }
    // Two addresses are two places, and what is for one of them does not come to the other.
    let (others, at_lender) = (["127.0.0.2:80", "[::1]:80"], format!("{LENDER}:80"));
    for address in others.into_iter().chain([&*at_lender]) {
        let listener = second.tcp().listen(address).unwrap();
        for (net, at) in [(&first, &own), (&second, &listener)] {
            let to = at.local_addr().unwrap();
            let _client = net.tcp().connect_timeout(to, PATIENCE).unwrap();
            assert_eq!(at.accept().unwrap().0.local_addr().unwrap(), to);
        }
    }
    let everywhere = second.udp().bind("[::]:53").unwrap();
    assert_eq!(errno(first.udp().bind("127.0.0.1:53")), taken);
    drop(everywhere);
}

#[test]
fn datagrams_and_echoes() {
    let (lender, _peer) = lender();
    let (first, _first) = sharing(&lender, "first");
    let (second, _second) = sharing(&lender, "second");
    for (bound, to, from) in [
        ("127.0.0.1:53", "127.0.0.1:53", "127.0.0.1"),
        ("127.1.2.3:54", "127.1.2.3:54", "127.0.0.1"),
        ("0.0.0.0:55", "127.0.0.5:55", "127.0.0.1"),
        ("[::1]:56", "[::1]:56", "::1"),
        ("[::]:57", "127.0.0.1:57", "127.0.0.1"),
    ] {
        let server = second.udp().bind(bound).unwrap();
        let to: SocketAddr = to.parse().unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = first.udp().bind(any).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        // What fits a packet, and what goes in fragments.
        for len in [0, 1, 1400, 8000, 40_000] {
            let (sent, mut got) = (pattern(len, 3), vec![0; 65_536]);
            client.send_to(&sent, to).unwrap();
            let (n, back) = server.recv_from(&mut got).unwrap();
            assert!(got[..n] == sent, "{bound}: {len} bytes");
            assert_eq!(back.ip().to_canonical(), from.parse::<IpAddr>().unwrap());
            server.send_to(&sent, back).unwrap();
            let (n, _) = client.recv_from(&mut got).unwrap();
            assert!(got[..n] == sent, "{bound}: {len} bytes back");
        }
    }
    for (domain, to) in [
        (Domain::V4, "127.0.0.1"),
        (Domain::V4, "127.8.8.8"),
        (Domain::V6, "::1"),
    ] {
        let to = SocketAddr::new(to.parse().unwrap(), 0);
        let socket = Socket::new(&first, domain, Kind::Ping).unwrap();
        let kind = if domain == Domain::V4 { 8 } else { 128 };
        for len in [56, 3000] {
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 1][..], &pattern(len, 5)].concat();
            socket.send(&[IoSlice::new(&message)], Some(to)).unwrap();
            let mut room = vec![0; 4000];
            let came = eventually(|_| {
                let mut rooms = [IoSliceMut::new(&mut room)];
                socket.receive(&mut rooms, ReceiveFlags::default()).ok()
            });
            let came = came.unwrap_or_else(|| panic!("{to}: {len} bytes"));
            assert_eq!((came.from, came.len), (Some(to), 8 + len));
            assert!(room[8..came.len] == pattern(len, 5));
        }
    }
    let leases = lender.show("leases").unwrap();
    let mut leases = leases.as_array().unwrap().iter();
    assert!(leases.all(|lease| lease["refused"] == 0), "{leases:?}");
}

/// One that does not share them is not there, whatever it is bound to; and none is reached from outside.
#[test]
fn others_are_not_there() {
    let (lender, peer) = lender();
    let (first, _first) = sharing(&lender, "first");
    let (apart, lent) = application(&lender, "apart", Net::builder());
    let _everywhere = apart.tcp().listen("0.0.0.0:80").unwrap();
    assert_eq!(
        refused_or_not(&first, "127.0.0.1:80"),
        ErrorKind::ConnectionRefused
    );
    // By its other address it is, and is answered.
    first
        .tcp()
        .connect((LENDER.parse::<IpAddr>().unwrap(), 80))
        .unwrap();
    // It has the port alone all the same, as with a kernel.
    assert_eq!(
        errno(first.tcp().listen("127.0.0.1:80")),
        Some(libc::EADDRINUSE)
    );
    assert_eq!(
        errno(apart.tcp().listen("127.0.0.1:81")),
        Some(libc::EADDRNOTAVAIL)
    );
    let binding = netchan::link::lease::Binding {
        transport: netchan::link::lease::Transport::Tcp,
        address: "127.0.0.1:81".parse().unwrap(),
    };
    assert_eq!(
        lent.bind(binding, netchan::link::lease::Reuse::default()),
        Err(libc::EADDRNOTAVAIL)
    );
    assert_eq!(
        peer.tcp().connect("127.0.0.1:80").unwrap_err().kind(),
        ErrorKind::NetworkUnreachable
    );
}

fn refused_or_not(net: &Net, to: &str) -> ErrorKind {
    let refused = net.tcp().connect_timeout(to.parse().unwrap(), PATIENCE);
    refused.map(drop).unwrap_err().kind()
}

/// Where the lender does not lend them, each application that wants them has its own.
#[test]
fn without_a_lender_of_them_each_has_its_own() {
    for settings in [Net::builder(), Net::builder().loopback(true)] {
        let (lender, _peer) = lender_of(settings, &wire::Options::default());
        let (first, lent) = sharing(&lender, "first");
        let (second, _second) = sharing(&lender, "second");
        assert!(!lent.terms().loopback);
        assert_eq!(lent.share_loopback(), Err(libc::EADDRNOTAVAIL));
        let _first = first.tcp().listen("127.0.0.1:80").unwrap();
        echo(&second, &second, ("127.0.0.1:80", "127.0.0.1:80"), 1000);
        assert_eq!(
            refused_or_not(&second, "127.0.0.1:80"),
            ErrorKind::ConnectionRefused
        );
        // And what they share still is shared.
        let at = format!("{LENDER}:90");
        echo(&second, &first, (&at, &at), 1000);
    }
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let (none, _lent) = application(&lender, "none", Net::builder());
    assert_eq!(
        errno(none.tcp().listen("127.0.0.1:80")),
        Some(libc::EADDRNOTAVAIL)
    );
}

/// Packets that the lender has carried between leases.
fn carried(lender: &Net) -> u64 {
    let leases = lender.show("leases").unwrap();
    let all = leases.as_array().unwrap().iter();
    all.map(|lease| lease["packets_in"].as_u64().unwrap()).sum()
}

#[test]
fn connections_go_past_the_lender_unless_a_tap_looks() {
    let (lender, _peer) = lender();
    let (client, one) = sharing(&lender, "client");
    let (server, other) = sharing(&lender, "server");
    let _kept = ["0.0.0.0:90", "[::1]:90"].map(|address| kept(&server, address));
    join(&one, &other);
    tell_ports(&other, &one);
    for ends in [
        ("0.0.0.0:90", "127.0.0.1:90"),
        ("0.0.0.0:90", "127.3.3.3:90"),
        ("[::1]:90", "[::1]:90"),
    ] {
        echo(&client, &server, ends, 200_000);
        let before = (carried(&lender), piped(&client), piped(&server));
        echo(&client, &server, ends, 3_000_000);
        assert!(carried(&lender) - before.0 < 20, "{ends:?}");
        assert!(piped(&client) > before.1 && piped(&server) > before.2);
    }
    thread::sleep(Duration::from_millis(500)); // the ends of the last connection
    let before = carried(&lender);
    let mut tap = lender.tap(Options::default()).unwrap();
    echo(&client, &server, ("0.0.0.0:90", "127.0.0.1:90"), 100_000);
    let mut seen = 0;
    let sees_all = eventually(|_| {
        seen += at_loopback(&mut tap);
        (seen > 5 && seen == carried(&lender) - before).then_some(())
    });
    assert!(
        sees_all.is_some(),
        "{seen} of {}",
        carried(&lender) - before
    );
}

/// How many packets a tap has that are between two addresses of 127.0.0.0/8.
fn at_loopback(tap: &mut Tap) -> u64 {
    let mut seen = 0;
    while let Some(record) = tap.read() {
        let frame = record.bytes();
        let is_v4 = frame.get(12..14) == Some(&[8, 0]);
        seen += u64::from(is_v4 && frame.get(26) == Some(&127) && frame.get(30) == Some(&127));
    }
    seen
}

/// A peer by a short cut that does not share them is not sent to there, and is not heard from there.
#[test]
fn a_short_cut_to_one_that_does_not_share_them() {
    let (lender, _peer) = lender();
    let (client, one) = sharing(&lender, "client");
    let (apart, other) = application(&lender, "apart", Net::builder());
    let at = format!("{LENDER}:90");
    let _kept = kept(&apart, "0.0.0.0:90");
    join_as(7, &one, &other);
    tell_ports_as(7, &other, &one);
    echo(&client, &apart, ("0.0.0.0:90", &at), 200_000);
    let before = piped(&client);
    echo(&client, &apart, ("0.0.0.0:90", &at), 3_000_000);
    assert!(piped(&client) > before, "there is a short cut");
    let _listener = apart.tcp().listen("0.0.0.0:90").unwrap();
    let started = Clock::Real.now();
    assert_eq!(
        refused_or_not(&client, "127.0.0.1:90"),
        ErrorKind::ConnectionRefused
    );
    assert!(Clock::Real.now().since(started) < Duration::from_secs(5));
    part(7, &one);
}

/// Nothing of all this is on the wire, and no socket sends from there to other hosts.
#[test]
fn nothing_leaves_the_host() {
    let (lender, peer) = lender();
    let (first, _first) = sharing(&lender, "first");
    let (second, _second) = sharing(&lender, "second");
    let before = counter(&peer, "frames_in");
    let (mut out, mut tap) = (0, peer.tap(Options::default()).unwrap());
    for (bound, to) in [
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("127.255.255.255:80", "127.255.255.255:80"),
    ] {
        echo(&first, &second, (bound, to), 100_000);
    }
    let local = first.udp().bind("127.0.0.1:0").unwrap();
    for to in [format!("{PEER}:9"), "192.0.2.1:9".to_owned()] {
        let to: SocketAddr = to.parse().unwrap();
        let refused = local.send_to(b"x", to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{to}");
    }
    let open = first.udp().bind("0.0.0.0:0").unwrap();
    open.connect(format!("{PEER}:9")).unwrap();
    assert_eq!(
        open.local_addr().unwrap().ip(),
        LENDER.parse::<IpAddr>().unwrap()
    );
    open.send(b"seen").unwrap();
    let arrived = eventually(|_| {
        out += at_loopback(&mut tap);
        (counter(&peer, "frames_in") > before).then_some(())
    });
    assert!(arrived.is_some(), "the wire is there");
    out += at_loopback(&mut tap);
    assert_eq!(out, 0);
    // The links do not show them, so that they are not taken for the wire's.
    for net in [&lender, &first] {
        let links = net.links();
        assert!(links.iter().all(|link| !link.is_loopback), "{links:?}");
        assert!(net.is_local("127.0.0.1".parse().unwrap()));
    }
}
