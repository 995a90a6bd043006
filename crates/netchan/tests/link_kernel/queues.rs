//! Links with several queues against the kernel: a TAP whose ends follow the flows, packet sockets to which flows are dealt out.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    process::Command,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use netchan::{
    Net, Regime, TcpListener,
    socket::{Domain, Kind, Socket, SocketOption},
};
use serde_json::Value;

use crate::namespace::{self, ip, veth};

const LINKS: [&str; 2] = [
    "tap:nc0,queues=3,peer=10.77.0.1/24;fd77::1/64",
    "packet:v0,queues=3",
];
const PATIENCE: Duration = Duration::from_secs(20);
const STREAMS: u8 = 12;

/// What is there once for the test's namespace: the veth; a TAP comes with its link.
fn within(link: &str, up: &mut bool) {
    if link.starts_with("packet") && !std::mem::replace(up, true) {
        ip("link delete nc0");
        veth();
    }
}

fn start(link: &str, regime: Regime, shards: Option<usize>) -> Net {
    let builder = Net::builder().link(link).unwrap().regime(regime);
    let builder = match shards {
        Some(shards) => builder.shards(shards),
        None => builder,
    };
    let builder = builder.address("10.77.0.2/24").unwrap();
    builder.address("fd77::2/64").unwrap().start().unwrap()
}

fn rows(net: &Net, topic: &str) -> Vec<Value> {
    net.show(topic).unwrap().as_array().unwrap().clone()
}

/// A stream of the kernel's: so many bytes there and back, each as it should be.
fn ask(number: u8, at: &str) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for round in 0..40_u8 {
        let sent: Vec<u8> = (0..3000_u32)
            .map(|n| number ^ round ^ n.to_le_bytes()[0])
            .collect();
        stream.write_all(&sent).unwrap();
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, sent);
    }
}

fn echo(mut stream: netchan::TcpStream) {
    let mut bytes = [0; 4096];
    loop {
        let n = stream.read(&mut bytes).unwrap();
        if n == 0 {
            return;
        }
        stream.write_all(&bytes[..n]).unwrap();
    }
}

fn serve(net: &Net, streams: u8) -> thread::JoinHandle<()> {
    let listener = net.tcp().listen("[::]:7").unwrap();
    thread::spawn(move || {
        let streams = (0..streams).map(|_| listener.accept().unwrap().0);
        let serving: Vec<_> = streams.map(|s| thread::spawn(move || echo(s))).collect();
        serving.into_iter().for_each(|one| one.join().unwrap());
    })
}

/// Streams both ways, datagrams and echo requests over all queues; then what the stack says of them.
fn carries(link: &str, regime: Regime) {
    let shards = match regime {
        Regime::Locked => Some(4),
        Regime::PerCpu => Some(3),
        _ => None,
    };
    let net = start(link, regime, shards);
    let serving = serve(&net, STREAMS);
    let asking: Vec<_> = (0..STREAMS)
        .map(|n| {
            let at = ["10.77.0.2:7", "[fd77::2]:7"][usize::from(n % 2)];
            thread::spawn(move || ask(n, at))
        })
        .collect();
    asking.into_iter().for_each(|one| one.join().unwrap());
    serving.join().unwrap();
    // Connections of its own, from each shard that there is.
    let kernel = std::net::TcpListener::bind("10.77.0.1:0").unwrap();
    let at = kernel.local_addr().unwrap();
    let outgoing: Vec<_> = (0..6_u8)
        .map(|n| {
            let net = net.clone();
            thread::spawn(move || {
                let mut stream = net.tcp().connect(at).unwrap();
                stream.write_all(&[n; 1000]).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert_eq!(got, [n; 1000]);
            })
        })
        .collect();
    for _ in 0..6 {
        let (mut stream, _) = kernel.accept().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        stream.write_all(&got).unwrap();
    }
    outgoing.into_iter().for_each(|one| one.join().unwrap());
    datagrams(&net);
    for to in ["10.77.0.2", "fd77::2"] {
        let pinged = Command::new("ping")
            .args(["-c", "2", "-i", "0.01", "-W", "5", to])
            .output();
        assert!(pinged.unwrap().status.success(), "{link} {regime}: {to}");
    }
    let links = rows(&net, "links");
    let several = if regime == Regime::Giant || regime == Regime::DriverChannel {
        1
    } else {
        3
    };
    assert_eq!(links[0]["queues"], several, "{link} {regime}");
    assert_eq!(links[0]["rx_no_buffer"], 0, "{link} {regime}");
}

/// From many ports of the kernel's, so that they come by all queues, and back.
fn datagrams(net: &Net) {
    let ours = net.udp().bind("0.0.0.0:9").unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let theirs: Vec<_> = (0..16_u8)
        .map(|n| {
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&[n; 100], "10.77.0.2:9").unwrap();
            socket
        })
        .collect();
    for _ in &theirs {
        let mut bytes = [0; 200];
        let (n, from) = ours.recv_from(&mut bytes).unwrap();
        ours.send_to(&bytes[..n], from).unwrap();
    }
    for (n, socket) in (0..).zip(&theirs) {
        let mut bytes = [0; 200];
        let n_bytes = socket.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..n_bytes], [n; 100]);
    }
}

#[test]
fn every_regime_carries_all_traffic_over_several_queues() {
    let test = "queues::every_regime_carries_all_traffic_over_several_queues";
    namespace::with_tap(test, || {
        let mut up = false;
        ip("tuntap add dev nc0 mode tap multi_queue");
        for link in LINKS {
            within(link, &mut up);
            for regime in Regime::ALL {
                carries(link, regime);
            }
        }
    });
}

/// Where nothing says how many shards there are, each queue has one; and what begins by a queue stays in its shard.
#[test]
fn connections_live_where_they_come_in() {
    namespace::with_tap("queues::connections_live_where_they_come_in", || {
        let mut up = false;
        ip("tuntap add dev nc0 mode tap multi_queue");
        for link in LINKS {
            within(link, &mut up);
            let net = start(link, Regime::AppChannel, None);
            let listener = net.tcp().listen("0.0.0.0:7").unwrap();
            let streams: Vec<_> = (0..24)
                .map(|_| TcpStream::connect("10.77.0.2:7").unwrap())
                .collect();
            let accepted: Vec<_> = streams.iter().map(|_| listener.accept().unwrap()).collect();
            let shards = rows(&net, "shards");
            assert_eq!(shards.len(), 3, "{link}");
            for shard in &shards {
                assert!(
                    shard["connections"].as_u64().unwrap() > 0,
                    "{link}: {shards:?}"
                );
            }
            for mut near in &streams {
                let of_this = |(_, from): &&(_, SocketAddr)| *from == near.local_addr().unwrap();
                let (far, _) = accepted.iter().find(of_this).expect("it was accepted");
                let mut far = far;
                near.write_all(&[7; 100]).unwrap();
                far.read_exact(&mut [0; 100]).unwrap();
            }
        }
    });
}

/// Threads that each have a listener of their own at one port (SO_REUSEPORT) get what comes in by the queue of the shard that they turn.
#[test]
fn listeners_that_share_a_port_have_a_shard_each() {
    namespace::with_tap(
        "queues::listeners_that_share_a_port_have_a_shard_each",
        || {
            let mut up = false;
            ip("tuntap add dev nc0 mode tap multi_queue");
            for link in LINKS {
                within(link, &mut up);
                let net = start(link, Regime::AppChannel, None);
                let listening = Arc::new(Barrier::new(4));
                let serving: Vec<_> = (0..3)
                    .map(|_| {
                        let (net, listening) = (net.clone(), listening.clone());
                        thread::spawn(move || serves_its_own(&net, &listening))
                    })
                    .collect();
                listening.wait();
                let streams: Vec<_> = (0..48)
                    .map(|_| {
                        let mut stream = TcpStream::connect("10.77.0.2:7").unwrap();
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        let mut thread = [0];
                        stream.read_exact(&mut thread).unwrap();
                        (thread[0], stream)
                    })
                    .collect();
                let sockets = rows(&net, "sockets");
                let mut shards_of = [const { Vec::new() }; 256];
                for (thread, stream) in &streams {
                    let remote = stream.local_addr().unwrap().to_string();
                    let row = sockets.iter().find(|row| row["remote"] == remote.as_str());
                    let row = row.unwrap_or_else(|| panic!("no {remote}: {sockets:?}"));
                    shards_of[usize::from(*thread)].push(row["shard"].as_u64().unwrap());
                }
                let used: Vec<_> = shards_of
                    .iter()
                    .filter(|shards| !shards.is_empty())
                    .collect();
                assert_eq!(used.len(), 3, "{link}: each thread has some: {shards_of:?}");
                for shards in used {
                    assert!(
                        shards.iter().all(|shard| *shard == shards[0]),
                        "{link}: {shards:?}"
                    );
                }
                drop(streams);
                serving.into_iter().for_each(|one| one.join().unwrap());
            }
        },
    );
}

/// Accepts from a listener of its own, and says on each stream which thread it is, until the streams have ended.
fn serves_its_own(net: &Net, listening: &Barrier) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let me = NEXT.fetch_add(1, Relaxed);
    let socket = Socket::new(net, Domain::V4, Kind::Stream).unwrap();
    socket.set_option(SocketOption::ReusePort(true)).unwrap();
    socket.bind("0.0.0.0:7".parse().unwrap()).unwrap();
    socket.listen(64).unwrap();
    listening.wait();
    let listener = TcpListener::from_socket(socket);
    let mut streams = Vec::new();
    let mut ended = false;
    while !ended {
        listener.set_nonblocking(true).unwrap();
        while let Ok((mut stream, _)) = listener.accept() {
            stream.write_all(&[me]).unwrap();
            streams.push(stream);
        }
        ended = !streams.is_empty() && streams.iter_mut().all(is_over);
        thread::sleep(Duration::from_micros(200));
    }
}

fn is_over(stream: &mut netchan::TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.read(&mut [0]), Ok(0))
}
