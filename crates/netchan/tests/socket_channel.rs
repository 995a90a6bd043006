//! One shard for each socket: where sockets live, which thread turns their shards, and what happens while none does.

use std::{
    io::{IoSlice, IoSliceMut, Read, Write},
    net::SocketAddr,
    thread,
    time::Duration,
};

use netchan::{
    Net, Regime, TcpListener, TcpStream,
    link::wire,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket, Waiter},
};

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

fn pair(shards: usize) -> (Net, Net) {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let net = Net::builder().link_with(link).address(address).unwrap();
        let net = net.regime(Regime::SocketChannel).shards(shards);
        net.start().unwrap()
    };
    (
        start(Box::new(ours), "10.0.0.1/24"),
        start(Box::new(theirs), "10.0.0.2/24"),
    )
}

/// `column` of `netchan show shards`, by shard.
fn shards(net: &Net, column: &str) -> Vec<u64> {
    let rows = net.show("shards").unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row[column].as_u64().unwrap()).collect()
}

fn echo_once(mut stream: &TcpStream, mut peer: &TcpStream, byte: u8) {
    let mut got = [0];
    stream.write_all(&[byte]).unwrap();
    peer.read_exact(&mut got).unwrap();
    assert_eq!(got, [byte]);
    peer.write_all(&[!byte]).unwrap();
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, [!byte]);
}

fn connect(client: &Net, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let stream = client
        .tcp()
        .connect(std::net::SocketAddr::from(SERVER))
        .unwrap();
    (stream, listener.accept().unwrap().0)
}

#[test]
fn each_connection_has_a_shard_of_its_own_while_there_are_free_ones() {
    let (client, server) = pair(16);
    let listener = server.tcp().listen("0.0.0.0:80").unwrap();
    let mut pairs: Vec<_> = (0..16).map(|_| connect(&client, &listener)).collect();
    for (byte, (stream, peer)) in (0..).zip(&pairs) {
        echo_once(stream, peer, byte);
    }
    assert_eq!(shards(&client, "connections"), [1; 16]);
    assert_eq!(shards(&server, "connections"), [1; 16]);
    // The next ones share, and all go on.
    pairs.extend((0..48).map(|_| connect(&client, &listener)));
    for (byte, (stream, peer)) in (0..).zip(&pairs) {
        echo_once(stream, peer, byte);
    }
    let sum = |net| shards(net, "connections").iter().sum::<u64>();
    assert_eq!((sum(&client), sum(&server)), (64, 64));
}

#[test]
fn thousands_of_short_connections() {
    let (client, server) = pair(64);
    let listener = server.tcp().listen("0.0.0.0:80").unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = [0; 4];
                    stream.read_exact(&mut request).unwrap();
                    stream.write_all(&request).unwrap();
                }
            });
            scope.spawn(|| {
                for number in 0..1000_u32 {
                    let mut stream = client
                        .tcp()
                        .connect(std::net::SocketAddr::from(SERVER))
                        .unwrap();
                    stream.write_all(&number.to_le_bytes()).unwrap();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).unwrap();
                    assert_eq!(answer, number.to_le_bytes());
                }
            });
        }
    });
}

/// Its owner does not come back: what the peer sends is acknowledged, the window fills and closes, and timers go on.
#[test]
fn a_shard_without_its_owner_acknowledges_and_times_out() {
    let (client, server) = pair(64);
    let listener = server.tcp().listen("0.0.0.0:80").unwrap();
    let (mut stream, mut peer) = connect(&client, &listener);
    let first = vec![7; 100_000]; // less than the first window, which does not grow while no thread reads (R4)
    stream.write_all(&first).unwrap();
    assert!(
        client.drain(Duration::from_secs(10)),
        "acknowledged although no thread reads"
    );
    // As much as fits the window and the sender's buffer; then nothing, until the peer reads.
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut silent) = (first.len(), 0);
    while silent < 20 || (sent < 360 << 10 && silent < 500) {
        match stream.write(&first) {
            Ok(n) => (sent, silent) = (sent + n, 0),
            Err(_) => {
                silent += 1;
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
    // 128 KiB of window, 256 KiB of send buffer, which may have grown with the congestion window.
    assert!((360 << 10..2 << 20).contains(&sent), "{sent} bytes");
    let mut left = sent;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        left -= peer.read(&mut buffer).unwrap();
    }
    // The peer closes while we are away: its end is acknowledged, and it does not wait for ours.
    drop(peer);
    assert!(server.drain(Duration::from_secs(10)), "the FIN, too");
}

#[test]
fn a_thread_that_waits_for_several_sockets_is_woken() {
    let (client, server) = pair(64);
    let listener = server.tcp().listen("0.0.0.0:80").unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..8).map(|_| connect(&client, &listener)).unzip();
    let mut waiter = Waiter::new(&client).unwrap();
    let mut byte = [0];
    for round in 0..50_usize {
        let chosen = round % 8;
        let sender = scope_send(&theirs[chosen]);
        loop {
            let ready = ours
                .iter()
                .position(|s| s.socket().readiness().contains(Readiness::READABLE));
            if let Some(at) = ready {
                assert_eq!(at, chosen);
                break;
            }
            for stream in &ours {
                waiter.register(stream.socket(), Readiness::READABLE);
            }
            waiter.wait(&mut [], Some(Duration::from_secs(5))).unwrap();
            for stream in &ours {
                stream.socket().deregister(waiter.waker());
            }
        }
        (&ours[chosen]).read_exact(&mut byte).unwrap();
        assert_eq!(sender, 1);
    }
}

fn scope_send(mut stream: &TcpStream) -> usize {
    stream.write(&[1]).unwrap()
}

#[test]
fn datagram_sockets_have_shards_of_their_own() {
    let (client, server) = pair(8);
    let bind = |net: &Net, port: u16| {
        let socket = Socket::new(net, Domain::V4, Kind::Datagram).unwrap();
        socket.bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
        socket
    };
    let servers: Vec<_> = (1..=8).map(|port| bind(&server, port)).collect();
    assert_eq!(shards(&server, "udp_sockets"), [1; 8]);
    let own = bind(&client, 9);
    let mut waiter = Waiter::new(&server).unwrap();
    for (port, socket) in (1..).zip(&servers) {
        let to = SocketAddr::from((SERVER.0, port));
        own.send(&[IoSlice::new(&port.to_le_bytes())], Some(to))
            .unwrap();
        let mut text = [0; 16];
        let received = loop {
            waiter.register(socket, Readiness::READABLE);
            let mut buffers = [IoSliceMut::new(&mut text)];
            if let Ok(received) = socket.receive(&mut buffers, ReceiveFlags::default()) {
                break received;
            }
            waiter.wait(&mut [], Some(Duration::from_secs(5))).unwrap();
        };
        socket.deregister(waiter.waker());
        assert_eq!(text[..received.len], port.to_le_bytes());
    }
    drop(servers);
    assert_eq!(shards(&server, "udp_sockets"), [0; 8]);
    // Freed shards are given out again.
    let again: Vec<_> = (11..=18).map(|port| bind(&server, port)).collect();
    assert_eq!(shards(&server, "udp_sockets"), [1; 8]);
    drop(again);
}

/// The stack ends, with all its threads, while others wait in it.
#[test]
fn an_end_under_load_is_an_end() {
    let (client, server) = pair(64);
    let listener = server.tcp().listen("0.0.0.0:80").unwrap();
    let pairs: Vec<_> = (0..8).map(|_| connect(&client, &listener)).collect();
    let workers: Vec<_> = pairs
        .into_iter()
        .map(|(mut stream, mut peer)| {
            thread::spawn(move || {
                let data = [1; 4096];
                let mut buffer = [0; 4096];
                for _ in 0..50 {
                    stream.write_all(&data).unwrap();
                    peer.read_exact(&mut buffer).unwrap();
                }
            })
        })
        .collect();
    drop((client, listener, server));
    for worker in workers {
        worker.join().unwrap();
    }
}
