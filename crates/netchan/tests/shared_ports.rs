//! Ports that leases give back, and that several of them have: by SO_REUSEPORT and SO_REUSEADDR, and one for each family.

mod lease_service;

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{IpAddr, SocketAddr},
    thread,
    time::Duration,
};

use lease_service::{
    LENDER, LENDER_V6, PEER, application, application_of, lender_and_peer, pattern,
};
use netchan::{
    Lent, Net,
    link::{
        lease::{Binding, Reuse, Transport},
        wire,
    },
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};

const REUSE_PORT: SocketOption = SocketOption::ReusePort(true);
const REUSE_ADDRESS: SocketOption = SocketOption::ReuseAddress(true);

/// A socket with these options, bound there; streams listen.
fn try_bound(net: &Net, kind: Kind, at: &str, options: &[SocketOption]) -> io::Result<Socket> {
    let at: SocketAddr = at.parse().unwrap();
    let domain = if at.is_ipv4() { Domain::V4 } else { Domain::V6 };
    let socket = Socket::new(net, domain, kind)?;
    for option in options {
        socket.set_option(*option)?;
    }
    socket.bind(at)?;
    if kind == Kind::Stream {
        socket.listen(64)?;
    }
    Ok(socket)
}

/// The same of what is free, or will be: what is given back is heard here by another thread than what is asked for, as it is not in a daemon.
fn soon_bound(net: &Net, kind: Kind, at: &str, options: &[SocketOption]) -> Socket {
    soon(|| try_bound(net, kind, at, options).ok()).unwrap()
}

fn bound(net: &Net, at: &str, options: &[SocketOption]) -> Socket {
    soon_bound(net, Kind::Stream, at, options)
}

fn errno(refused: io::Result<Socket>) -> Option<i32> {
    refused.err()?.raw_os_error()
}

/// What `look` finds in the end.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..10_000).find_map(|_| {
        let found = look();
        if found.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        found
    })
}

fn receive(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    let received = socket.receive(&mut [IoSliceMut::new(into)], ReceiveFlags::default())?;
    Ok(received.len)
}

fn connect(client: &Net, to: &str) -> netchan::TcpStream {
    let stream = client.tcp().connect(to).unwrap();
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// Both ends of a connection that one of these listeners accepts, and which of them.
struct Connection {
    client: netchan::TcpStream,
    server: Socket,
    of: usize,
}

impl Connection {
    fn new(client: &Net, to: &str, listeners: &[&Socket]) -> Self {
        let client = connect(client, to);
        let accept = || {
            let mut all = listeners.iter().enumerate();
            all.find_map(|(of, listener)| Some((of, listener.accept().ok()?.0)))
        };
        let (of, server) = soon(accept).unwrap();
        Self { client, server, of }
    }

    /// Bytes there and back.
    fn echoes(&mut self) {
        let sent = pattern(3000, 7);
        self.client.write_all(&sent).unwrap();
        let mut got = Vec::new();
        let mut part = vec![0; 4096];
        while got.len() < sent.len() {
            let n = soon(|| receive(&self.server, &mut part).ok()).unwrap();
            assert!(n > 0, "the connection goes on");
            got.extend_from_slice(&part[..n]);
        }
        assert!(got == sent);
        assert_eq!(
            self.server.send(&[IoSlice::new(&got)], None).unwrap(),
            got.len()
        );
        let mut back = vec![0; sent.len()];
        self.client.read_exact(&mut back).unwrap();
        assert!(back == sent);
    }
}

#[test]
fn connections_of_a_shared_port_are_spread_and_stay_where_they_began() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let at = format!("{LENDER}:80");
    let applications: Vec<_> = ["first", "second", "third"]
        .map(|name| application(&lender, name, Net::builder()))
        .into();
    let listener = |number: usize| bound(&applications[number].0, "0.0.0.0:80", &[REUSE_PORT]);
    let (first, second) = (listener(0), listener(1));
    let connect = |listeners: &[&Socket]| -> Vec<Connection> {
        let connect = |_| Connection::new(&peer, &at, listeners);
        (0..40).map(connect).collect()
    };
    let mut connections = connect(&[&first, &second]);
    let of = |connections: &[Connection], number| {
        let is = |one: &&Connection| one.of == number;
        connections.iter().filter(is).count()
    };
    // Of 40 that a coin is thrown for, fewer than 5 are one side's once in millions of times.
    assert!(
        (5..36).contains(&of(&connections, 0)),
        "{}",
        of(&connections, 0)
    );
    let third = listener(2);
    let more = connect(&[&first, &second, &third]);
    assert!((0..3).all(|number| of(&more, number) > 2));
    connections.extend(more);
    connections.iter_mut().for_each(Connection::echoes);
    // One closes its listener: its connections go on, and nothing new comes to it.
    drop(second);
    connections.extend(connect(&[&first, &third]));
    connections.iter_mut().for_each(Connection::echoes);
    // One shares it no more: no packet of its connections is another one's.
    drop((first, third));
    connections.iter_mut().for_each(Connection::echoes);
    let refused = peer.tcp().connect(&*at).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

/// As a server does that is started anew: the old one serves its connections to their end.
#[test]
fn a_closed_port_is_anothers_while_connections_live_on() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (old, _old) = application(&lender, "old", Net::builder());
    let (new, _new) = application(&lender, "new", Net::builder());
    let (client, _client) = application(&lender, "client", Net::builder());
    let (at, any) = (format!("{LENDER}:80"), "0.0.0.0:80");
    let listener = bound(&old, any, &[REUSE_ADDRESS]);
    let taken = |options: &[SocketOption]| errno(try_bound(&new, Kind::Stream, any, options));
    assert_eq!(
        taken(&[REUSE_ADDRESS]),
        Some(libc::EADDRINUSE),
        "it listens"
    );
    let mut connections: Vec<_> = [&peer, &client, &lender]
        .map(|from| Connection::new(from, &at, &[&listener]))
        .into();
    drop(listener);
    assert_eq!(taken(&[]), Some(libc::EADDRINUSE), "it has connections");
    let listener = bound(&new, any, &[REUSE_ADDRESS]);
    for from in [&peer, &client, &lender] {
        connections.push(Connection::new(from, &at, &[&listener]));
    }
    connections.iter_mut().for_each(Connection::echoes);
    // The old one comes back as it may.
    let back = try_bound(&old, Kind::Stream, any, &[REUSE_ADDRESS]);
    assert_eq!(errno(back), Some(libc::EADDRINUSE));
    drop(listener);
    let back = bound(&old, any, &[REUSE_ADDRESS]);
    connections.push(Connection::new(&peer, &at, &[&back]));
    connections.iter_mut().for_each(Connection::echoes);
}

#[test]
fn a_port_goes_back_with_its_last_socket_and_connection() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (one, lent) = application(&lender, "one", Net::builder());
    let (other, _other) = application(&lender, "other", Net::builder());
    let (at, any) = (format!("{LENDER}:80"), "0.0.0.0:80");
    let (ours, theirs) = (format!("{LENDER}:53"), format!("{LENDER}:9"));
    for _ in 0..3 {
        // At once, of one and the other, by streams and datagrams and of both families.
        for net in [&one, &other] {
            drop(bound(net, "[::]:80", &[]));
            drop(bound(net, any, &[]));
            drop(soon_bound(net, Kind::Datagram, &ours, &[]));
            drop(soon_bound(net, Kind::Ping, &theirs, &[]));
        }
    }
    let listener = bound(&one, any, &[]);
    let connection = Connection::new(&peer, &at, &[&listener]);
    drop(listener);
    assert_eq!(lent.ports().0.len(), 1);
    let Connection { client, server, .. } = connection;
    drop(client); // the peer has TIME-WAIT
    assert_eq!(soon(|| receive(&server, &mut [0; 1]).ok()), Some(0));
    drop(server);
    let free = soon(|| try_bound(&other, Kind::Stream, any, &[]).ok());
    assert!(free.is_some(), "a thread has seen the last connection end");
    assert_eq!(lent.ports().0.len(), 0);
    // A connection of a socket that was bound is the same.
    let server = peer.tcp().listen(format!("{PEER}:81").as_str()).unwrap();
    let socket = Socket::new(&one, Domain::V4, Kind::Stream).unwrap();
    socket
        .bind(format!("{LENDER}:90").parse().unwrap())
        .unwrap();
    let _ = socket.connect(format!("{PEER}:81").parse().unwrap());
    let (stream, from) = server.accept().unwrap();
    assert_eq!((from.port(), lent.ports().0.len()), (90, 1));
    drop(stream); // the peer has TIME-WAIT
    assert_eq!(soon(|| receive(&socket, &mut [0; 1]).ok()), Some(0));
    drop(socket);
    assert!(soon(|| lent.ports().0.is_empty().then_some(())).is_some());
}

#[test]
fn a_port_is_one_leases_in_each_family() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (one, _one) = application(&lender, "one", Net::builder());
    let (other, _other) = application(&lender, "other", Net::builder());
    let both = bound(&one, "[::]:80", &[]);
    for (at, options) in [
        ("0.0.0.0:80", &[][..]),
        ("[::]:80", &[SocketOption::V6Only(true)][..]),
    ] {
        let taken = try_bound(&other, Kind::Stream, at, options);
        assert_eq!(errno(taken), Some(libc::EADDRINUSE), "{at}");
    }
    drop(both);
    let v4 = bound(&one, "0.0.0.0:80", &[]);
    // What of it could be had goes back where the other half is refused.
    assert_eq!(
        errno(try_bound(&other, Kind::Stream, "[::]:80", &[])),
        Some(libc::EADDRINUSE)
    );
    let v6 = bound(&other, "[::]:80", &[SocketOption::V6Only(true)]);
    let all = [&v4, &v6];
    for (to, of) in [
        (format!("{LENDER}:80"), 0),
        (format!("[{LENDER_V6}]:80"), 1),
    ] {
        let mut connection = Connection::new(&peer, &to, &all);
        assert_eq!(connection.of, of);
        connection.echoes();
    }
}

#[test]
fn a_port_is_shared_with_those_of_the_same_user() {
    let (lender, _peer) = lender_and_peer(&wire::Options::default());
    let of = |name, user| application_of(&lender, (name, user), Net::builder(), |_| ());
    let (one, other, same) = (of("one", 1), of("other", 2), of("same", 1));
    let any = "0.0.0.0:8080";
    let _one = bound(&one.0, any, &[REUSE_PORT]);
    for net in [&other.0, &lender] {
        let taken = try_bound(net, Kind::Stream, any, &[REUSE_PORT]);
        assert_eq!(errno(taken), Some(libc::EADDRINUSE));
    }
    assert_eq!(
        errno(try_bound(&same.0, Kind::Stream, any, &[])),
        Some(libc::EADDRINUSE)
    );
    let _same = bound(&same.0, any, &[REUSE_PORT]);
}

#[test]
fn datagrams_of_a_shared_port_are_spread_or_go_to_the_last() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (one, _one) = application(&lender, "one", Net::builder());
    let (other, _other) = application(&lender, "other", Net::builder());
    let socket = |net: &Net, port: u16, option: &SocketOption| {
        let at = format!("0.0.0.0:{port}");
        try_bound(net, Kind::Datagram, &at, std::slice::from_ref(option)).unwrap()
    };
    // Few packets wait for the answer to an ARP request: it is asked before.
    assert!(peer.tcp().connect(format!("{LENDER}:9").as_str()).is_err());
    let count = |sockets: &[Socket; 2], port: u16| {
        for from in 0..40 {
            let sender = peer
                .udp()
                .bind((PEER.parse::<IpAddr>().unwrap(), 3000 + from));
            let to = format!("{LENDER}:{port}");
            sender.unwrap().send_to(b"x", &*to).unwrap();
        }
        let mut counts = [0; 2];
        let all = soon(|| {
            for (count, socket) in counts.iter_mut().zip(sockets) {
                while receive(socket, &mut [0; 8]).is_ok() {
                    *count += 1;
                }
            }
            (counts[0] + counts[1] == 40).then_some(())
        });
        assert!(all.is_some(), "{counts:?} came");
        counts
    };
    let shared = [&one, &other].map(|net| socket(net, 53, &REUSE_PORT));
    assert!(count(&shared, 53).iter().all(|&count| count >= 5));
    let last = [&one, &other].map(|net| socket(net, 54, &REUSE_ADDRESS));
    assert_eq!(count(&last, 54), [0, 40]);
}

/// One of them says something of a port.
fn lie(liars: &[Lent], below: &mut impl FnMut(u64) -> u64) {
    let lent = &liars[usize::try_from(below(3)).unwrap()];
    let address = |number: u64, port: u64| {
        let all = [
            LENDER,
            "0.0.0.0",
            "::",
            LENDER_V6,
            PEER,
            "127.0.0.1",
            "::ffff:10.0.0.1",
        ];
        let ip = all[usize::try_from(number).unwrap()]
            .parse::<IpAddr>()
            .unwrap();
        SocketAddr::new(ip, u16::try_from(port).unwrap())
    };
    let transports = [Transport::Tcp, Transport::Udp, Transport::Ping];
    let binding = Binding {
        transport: transports[usize::try_from(below(3)).unwrap()],
        address: address(below(7), 80 * below(2) + 8 * below(2)),
    };
    let reuse = Reuse {
        address: below(2) == 0,
        port: below(2) == 0,
    };
    match below(4) {
        0 => lent.give_back(binding),
        1 => {
            let flow = |_| (address(below(7), 80), address(below(7), below(65_536)));
            let flows: Vec<_> = (0..100).map(flow).collect();
            lent.close(binding, &flows);
        }
        _ => _ = lent.bind(binding, reuse),
    }
}

/// Whatever applications say of ports: nothing panics, connections of another one go on, and the ports are free when their leases have ended.
#[test]
fn nonsense_about_ports_harms_those_that_say_it() {
    let (lender, peer) = lender_and_peer(&wire::Options::default());
    let (honest, _honest) = application(&lender, "honest", Net::builder());
    let listener = bound(&honest, "0.0.0.0:80", &[REUSE_PORT, REUSE_ADDRESS]);
    let mut connection = Connection::new(&peer, &format!("{LENDER}:80"), &[&listener]);
    let seed = std::env::var("NETCHAN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("NETCHAN_SEED={seed}");
    let mut state = seed | 1;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    for _ in 0..20 {
        let liars: Vec<_> = (0..3)
            .map(|user| lender.lend("", "liar", user).unwrap())
            .collect();
        (0..300).for_each(|_| lie(&liars, &mut below));
        connection.echoes();
        let names: Vec<_> = liars.iter().map(|lent| lent.ports().0.len()).collect();
        assert!(names.iter().all(|&count| count < 50), "{names:?}");
    }
    drop(listener);
    drop(connection);
    for port in [8, 80, 88] {
        let free = soon(|| {
            lender
                .tcp()
                .listen(format!("{LENDER}:{port}").as_str())
                .ok()
        });
        assert!(free.is_some(), "{port}");
    }
}
