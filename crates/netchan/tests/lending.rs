//! Leases: a lender with a link, applications that run TCP and UDP themselves, and a peer on the wire. All in one process; what crosses between lender and
//! application crosses as between two.

mod lease_service;

use std::{
    io::{IoSlice, IoSliceMut, Read, Write},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::Duration,
};

use lease_service::{LENDER, LENDER_V6, PEER, PEER_V6, application, lender_and_peer, pattern};
use netchan::{
    Clock, LeaseSize, Net, PacketChannel, PacketProtocol,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};
use rustix::fs::fstat;

/// One connection from `client` to `server`, which listens at `address`; bytes both ways.
fn echo(client: &Net, server: &Net, address: &str, len: usize) {
    let listener = server.tcp().listen(address).unwrap();
    let sent = pattern(len, 7);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let mut got = vec![0; len];
            stream.read_exact(&mut got).unwrap();
            assert!(got == sent, "what came is what was sent");
            stream.write_all(&got).unwrap();
        });
        let mut stream = client.tcp().connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut back = vec![0; len];
        let writer = stream.try_clone().unwrap();
        scope.spawn(|| {
            let mut writer = writer;
            writer.write_all(&sent).unwrap();
        });
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent, "what came back is what was sent");
    });
}

#[test]
fn an_application_serves_a_peer_and_connects_to_it() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "test", Net::builder());
    for (ours, theirs) in [
        (LENDER.to_owned(), PEER.to_owned()),
        (format!("[{LENDER_V6}]"), format!("[{PEER_V6}]")),
    ] {
        echo(&peer, &application, &format!("{ours}:80"), 3_000_000);
        echo(&application, &peer, &format!("{theirs}:81"), 3_000_000);
    }
}

#[test]
fn applications_share_an_address_and_reach_each_other() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (first, _first) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    let own = first
        .tcp()
        .listen((LENDER.parse::<IpAddr>().unwrap(), 80))
        .unwrap();
    let taken = second.tcp().listen((LENDER.parse::<IpAddr>().unwrap(), 80));
    assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    let taken = lender.tcp().listen("0.0.0.0:80");
    assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    drop(own);
    for address in [format!("{LENDER}:90"), format!("[{LENDER_V6}]:90")] {
        echo(&first, &second, &address, 1_000_000);
    }
    echo(&peer, &first, &format!("{LENDER}:91"), 100_000);
    echo(&peer, &second, &format!("{LENDER}:92"), 100_000);
    // And each reaches itself, and the lender.
    echo(&first, &first, &format!("{LENDER}:93"), 100_000);
    echo(&first, &lender, &format!("{LENDER}:94"), 100_000);
    echo(&lender, &first, &format!("{LENDER}:95"), 100_000);
}

/// As redis and nginx listen: a socket for each family at one port.
#[test]
fn one_application_has_a_port_in_both_families() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "both", Net::builder());
    let listeners =
        [(Domain::V4, "0.0.0.0:80"), (Domain::V6, "[::]:80")].map(|(domain, address)| {
            let listener = Socket::new(&application, domain, Kind::Stream).unwrap();
            listener
                .set_option(SocketOption::V6Only(domain == Domain::V6))
                .unwrap();
            listener.bind(address.parse().unwrap()).unwrap();
            listener.listen(8).unwrap();
            listener
        });
    for (address, listener) in [(LENDER, &listeners[0]), (LENDER_V6, &listeners[1])] {
        let address = SocketAddr::new(address.parse().unwrap(), 80);
        let _client = peer.tcp().connect(address).unwrap();
        let is_there = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            listener.accept().is_ok()
        });
        assert!(is_there, "{address}");
    }
}

#[test]
fn ports_come_as_they_are_needed() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, lent) = application(&lender, "many", Net::builder());
    let listener = peer
        .tcp()
        .listen((PEER.parse::<IpAddr>().unwrap(), 80))
        .unwrap();
    let has = || {
        lent.terms()
            .ports
            .iter()
            .map(|range| range.count())
            .sum::<u32>()
    };
    assert_eq!(has(), 16);
    let mut all = Vec::new();
    for _ in 0..100 {
        let stream = application
            .tcp()
            .connect((PEER.parse::<IpAddr>().unwrap(), 80))
            .unwrap();
        let (accepted, from) = listener.accept().unwrap();
        let is_leased = |port| {
            lent.terms()
                .ports
                .iter()
                .any(|r| (r.0..=r.1).contains(&port))
        };
        assert!(is_leased(from.port()), "{from}");
        all.push((stream, accepted));
    }
    assert_eq!(has(), 128);
    // One application does not have them all.
    let refused = (0..100).find_map(|_| lent.more_ports().err());
    assert_eq!((refused, has()), (Some(libc::EADDRNOTAVAIL), 8192));
    assert!(lender.lend("", "another", 0).is_ok());
}

#[test]
fn datagrams_pass_whole_and_in_fragments() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "datagrams", Net::builder());
    for (ours, theirs) in [(LENDER, PEER), (LENDER_V6, PEER_V6)] {
        let address = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        let ours = application.udp().bind(address(ours, 53)).unwrap();
        let theirs = peer.udp().bind(address(theirs, 5353)).unwrap();
        for socket in [&ours, &theirs] {
            socket
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
        }
        for len in [0, 1, 1000, 1472, 1473, 8000, 40_000] {
            let (sent, mut got) = (pattern(len, 3), vec![0; 65_536]);
            theirs.send_to(&sent, ours.local_addr().unwrap()).unwrap();
            let (n, from) = ours.recv_from(&mut got).unwrap();
            assert!(got[..n] == sent, "{len} bytes in");
            ours.send_to(&sent, from).unwrap();
            let (n, _) = theirs.recv_from(&mut got).unwrap();
            assert!(got[..n] == sent, "{len} bytes out");
        }
    }
}

/// A machine has many programs, and most of them are idle.
#[test]
fn an_idle_application_takes_little_memory() {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let (idle, lent) = application(&lender, "idle", Net::builder());
    let _listener = idle.tcp().listen("0.0.0.0:80").unwrap();
    // fstat(2): what a file has of memory, in units of 512 bytes.
    let taken = |file| u64::try_from(rustix::fs::fstat(file).unwrap().st_blocks).unwrap() * 512;
    let files = lent.files();
    let taken: Vec<_> = files[..3].iter().map(taken).collect();
    assert!(taken.iter().sum::<u64>() <= 8 << 20, "{taken:?} bytes");
}

#[test]
fn what_a_lease_had_is_free_after_it() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    for round in 0..20 {
        let (application, lent) = application(&lender, "brief", Net::builder());
        let listener = application.tcp().listen("0.0.0.0:80").unwrap();
        let mut client = peer
            .tcp()
            .connect((LENDER.parse::<IpAddr>().unwrap(), 80))
            .unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        drop(application);
        drop((listener, _accepted));
        let is_gone = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            Arc::strong_count(&lent) == 1
        });
        assert!(is_gone, "the application's socket was closed");
        drop(lent);
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let _ = client.write_all(b"is there anybody?");
        let read = client.read(&mut [0; 1]);
        assert!(matches!(read, Ok(0) | Err(_)), "round {round}: {read:?}");
        // The port is free for the lender, too.
        drop(lender.tcp().listen("0.0.0.0:80").unwrap());
    }
}

/// A program that has closed its connections in order is let go as by a kernel: their peers hear its end, and no reset, until they send more.
#[test]
fn peers_of_a_program_that_ends_in_order_are_let_be() {
    for is_in_order in [true, false] {
        let (lender, peer) = lender_and_peer(&wire::Options::default());
        let (application, lent) = application(&lender, "orderly", Net::builder());
        let listener = application.tcp().listen("0.0.0.0:80").unwrap();
        let at: SocketAddr = format!("{LENDER}:80").parse().unwrap();
        let mut client = peer.tcp().connect_timeout(at, PATIENCE).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"the last").unwrap();
        if is_in_order {
            drop(accepted);
            assert!(application.drain(PATIENCE));
        } else {
            assert!(application.drain(PATIENCE));
            drop(accepted); // with the program
        }
        drop((listener, application));
        let is_gone = || (Arc::strong_count(&lent) == 1).then_some(());
        assert!(eventually(|_| is_gone()).is_some());
        drop(lent);
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = [0; 9];
        let read = client.read(&mut got[..8]);
        assert!(!is_in_order || read.is_ok() && &got[..8] == b"the last");
        let state = |_| Some(client.peer_addr().is_ok()).filter(|is_open| *is_open == is_in_order);
        assert!(eventually(state).is_some(), "in order: {is_in_order}");
        assert!(!is_in_order || client.read(&mut got).is_ok_and(|n| n == 0));
        // What is sent to it is refused.
        let refused = eventually(|_| client.write_all(b"more").err());
        assert!(refused.is_some());
    }
}

/// A program has closed its connections in order, and has ended. Their peers close them later: the lender's own TCP answers, as a kernel's does.
#[test]
fn the_lender_answers_for_what_a_program_has_closed() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, lent) = application(&lender, "orderly", Net::builder());
    let listener = application.tcp().listen("0.0.0.0:80").unwrap();
    let clients = [(); 3].map(|()| peer.tcp().connect(format!("{LENDER}:80")).unwrap());
    (0..3).for_each(|_| drop(listener.accept().unwrap()));
    assert!(application.drain(PATIENCE));
    drop((listener, application));
    let is_gone = || (Arc::strong_count(&lent) == 1).then_some(());
    assert!(eventually(|_| is_gone()).is_some());
    drop(lent);
    let states = |net: &Net| -> Vec<String> {
        let sockets = net.show("sockets").unwrap();
        let rows = sockets.as_array().unwrap().iter();
        rows.map(|row| row["state"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(states(&lender), ["FIN-WAIT-2"; 3]);
    let [first, second, mut third] = clients;
    drop((first, second));
    assert!(peer.drain(PATIENCE), "their ends are acknowledged");
    let mut left = states(&lender);
    left.sort();
    assert_eq!(left, ["FIN-WAIT-2", "TIME-WAIT", "TIME-WAIT"]);
    // Text comes for a program that is not there.
    third.write_all(b"more").unwrap();
    let refused = eventually(|_| third.write_all(b"more").err());
    assert!(refused.is_some());
    assert_eq!(states(&lender), ["TIME-WAIT"; 2]);
    // The port is the next program's at once.
    drop(lender.tcp().listen("0.0.0.0:80").unwrap());
}

/// Sockets that are bound without naming a port, as Tcl's are before they connect: their connections' TIME-WAIT may take all that a lease begins with.
#[test]
fn ports_that_ended_connections_have_are_not_all_there_are() {
    const TIMES: usize = 100;
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "binds", Net::builder());
    let listener = peer.tcp().listen((PEER, 80)).unwrap();
    let at = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        for _ in 0..TIMES {
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    });
    for number in 0..TIMES {
        let socket = Socket::new(&application, Domain::V4, Kind::Stream).unwrap();
        socket.set_option(SocketOption::ReuseAddress(true)).unwrap();
        let bound = socket.bind("0.0.0.0:0".parse().unwrap());
        assert!(bound.is_ok(), "{number}: {bound:?}");
        let is_made = |tried: std::io::Result<()>| match tried.map_err(|e| e.raw_os_error()) {
            Ok(()) | Err(Some(libc::EISCONN)) => Some(()),
            Err(_) => None, // in progress
        };
        assert!(eventually(|_| is_made(socket.connect(at))).is_some());
        drop(socket);
    }
    serving.join().unwrap();
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Until it is there, 10 s at most.
fn eventually<T>(look: impl FnMut(u32) -> Option<T>) -> Option<T> {
    let wait = |n| {
        thread::sleep(Duration::from_millis(u64::from(n > 0)));
        n
    };
    (0..10_000).map(wait).find_map(look)
}

fn ping(net: &Net, domain: Domain, ident: u16) -> std::io::Result<Socket> {
    let socket = Socket::new(net, domain, Kind::Ping)?;
    let any = match domain {
        Domain::V4 => "0.0.0.0",
        Domain::V6 => "::",
    };
    socket.bind((any.parse::<IpAddr>().unwrap(), ident).into())?;
    Ok(socket)
}

/// A ping socket on a lease, whose identifier it names or not, and one of the lender's: each hears its own echoes only.
#[test]
fn echoes_come_back_to_the_application_that_asked() {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let (first, _first) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    for (domain, to) in [
        (Domain::V4, PEER),
        (Domain::V6, PEER_V6),
        (Domain::V4, LENDER),
        (Domain::V6, LENDER_V6),
    ] {
        let to = SocketAddr::new(to.parse().unwrap(), 0);
        let sockets = [(&first, 7), (&second, 0), (&lender, 8), (&first, 0)]
            .map(|(net, ident)| ping(net, domain, ident).unwrap());
        let taken = ping(&second, domain, 7).err().expect("another's");
        assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
        // The last one is cut.
        for len in [0, 56, 3000] {
            for (number, socket) in (0..).zip(&sockets) {
                let kind = if domain == Domain::V4 { 8 } else { 128 };
                let head = [kind, 0, 0, 0, 0, 0, 0, number];
                let message = [&head[..], &pattern(len, number)].concat();
                socket.send(&[IoSlice::new(&message)], Some(to)).unwrap();
            }
            for (number, socket) in (0..).zip(&sockets) {
                let mut room = vec![0; 4000];
                let came = eventually(|_| {
                    let mut rooms = [IoSliceMut::new(&mut room)];
                    socket.receive(&mut rooms, ReceiveFlags::default()).ok()
                });
                let came = came.unwrap_or_else(|| panic!("{to} {number}: {len} bytes"));
                assert_eq!((came.from, came.len), (Some(to), 8 + len));
                assert_eq!(
                    (room[7], &room[8..came.len]),
                    (number, &*pattern(len, number))
                );
                let mut rooms = [IoSliceMut::new(&mut room)];
                assert!(
                    socket.receive(&mut rooms, ReceiveFlags::default()).is_err(),
                    "one each"
                );
            }
        }
        drop(sockets);
    }
    let leases = lender.show("leases").unwrap();
    let leases = leases.as_array().unwrap();
    assert!(
        leases.iter().all(|lease| lease["refused"] == 0),
        "{leases:?}"
    );
}

/// The lender finds no way for a packet of an application's: the application hears why.
#[test]
fn an_application_hears_that_there_is_no_way() {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let (application, _lent) = application(&lender, "test", Net::builder());
    for (to, expected) in [
        ("10.0.0.77:80", libc::EHOSTUNREACH),
        ("[fd00::77]:80", libc::EHOSTUNREACH),
        ("192.0.2.1:80", libc::ENETUNREACH),
        ("[2001:db8::1]:80", libc::ENETUNREACH),
    ] {
        let started = Clock::Real.now();
        let refused = application.tcp().connect(to).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(expected), "{to}");
        assert!(
            Clock::Real.now().since(started) < Duration::from_secs(8),
            "{to}"
        );
        let to: SocketAddr = to.parse().unwrap();
        let domain = if to.is_ipv4() { Domain::V4 } else { Domain::V6 };
        let socket = Socket::new(&application, domain, Kind::Datagram).unwrap();
        socket.connect(to).unwrap();
        let told = eventually(|n| {
            if n % 1000 == 0 {
                let _ = socket.send(&[IoSlice::new(b"x")], None);
            }
            socket.take_error()
        });
        assert_eq!(told.and_then(|e| e.raw_os_error()), Some(expected), "{to}");
    }
}

/// An application has the packets of a protocol for itself, to its peers and from them, whole and in fragments.
#[test]
fn an_application_has_the_packets_of_a_protocol() {
    const OURS: PacketProtocol = PacketProtocol::Ip(253);
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (first, first_lent) = application(&lender, "first", Net::builder());
    let (second, _second) = application(&lender, "second", Net::builder());
    let errno = |refused: std::io::Result<PacketChannel>| refused.err()?.raw_os_error();
    let own = first.packet_channel(OURS).unwrap();
    assert_eq!(errno(second.packet_channel(OURS)), Some(libc::EADDRINUSE));
    assert_eq!(errno(lender.packet_channel(OURS)), Some(libc::EADDRINUSE));
    let other = second.packet_channel(PacketProtocol::Ip(254)).unwrap();
    let theirs = [253, 254].map(|n| peer.packet_channel(PacketProtocol::Ip(n)).unwrap());
    for (channel, peers) in [&own, &other].into_iter().zip(&theirs) {
        for (from, to) in [(LENDER, PEER), (LENDER_V6, PEER_V6)] {
            let [from, to]: [IpAddr; 2] = [from, to].map(|ip| ip.parse().unwrap());
            for len in [0, 1, 1400, 4000] {
                let sent = pattern(len, 9);
                channel.send_to(&sent, to).unwrap();
                for (at, back) in [(peers, from), (channel, to)] {
                    at.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    let got = at.recv().unwrap();
                    assert!(got.payload() == sent, "{to} {len}");
                    if back == from {
                        peers.send_to(got.payload(), back).unwrap();
                    }
                }
            }
        }
    }
    // It is free with its lease.
    drop((own, first, first_lent));
    let again = eventually(|_| second.packet_channel(OURS).ok());
    assert!(again.is_some());
    let leases = lender.show("leases").unwrap();
    let leases = leases.as_array().unwrap();
    assert!(
        leases.iter().all(|lease| lease["refused"] == 0),
        "{leases:?}"
    );
}

/// Both of a lease's slabs take memory: those that see packets of the application's, and of the lender's.
#[test]
fn the_smallest_lease_carries_all_and_leaves_no_memory() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let lend = |size| lender.lend_beside(None, "", "small", 0, size).unwrap();
    let lent = Arc::new(lend(LeaseSize::LEAST));
    assert!(lent.memory() * 16 == lend(LeaseSize::MOST).memory());
    let slabs: Vec<_> = lent.files()[..2]
        .iter()
        .map(|file| file.try_clone_to_owned().unwrap())
        .collect();
    let link = lease_service::leased(&lent, |_| ());
    let small = Net::builder().link_with(Box::new(link)).start().unwrap();
    echo(&peer, &small, &format!("{LENDER}:80"), 3_000_000);
    echo(&small, &peer, &format!("{PEER}:81"), 3_000_000);
    let taken = || {
        slabs
            .iter()
            .map(|slab| fstat(slab).unwrap().st_blocks)
            .sum::<i64>()
            * 512
    };
    assert!((1..=2 * 64 * (66 << 10)).contains(&taken()), "{}", taken());
    // Other processes may have the files for longer.
    drop((small, lent));
    let is_gone = (0..10_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        taken() == 0
    });
    assert!(is_gone, "{} bytes", taken());
}
