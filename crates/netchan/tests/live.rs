//! Addresses, routes and MTUs change while packets flow, in every regime: no byte is lost, and a call that follows a change goes by it.

mod two_stacks;

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use netchan::{
    Instant, Net, Regime, TcpStream,
    link::wire,
    module::{Boxed, Module, Point, Verdict, View},
    socket::{Discovery, SocketOption, UdpOption},
};

use two_stacks::pair;

/// Changes, while the stream flows.
const CHANGES: usize = 60;
const BLOCK: [u8; 1000] = [7; 1000];
/// A datagram that is not answered in this time is sent again, so often.
const AGAIN: Duration = Duration::from_millis(200);
const TRIES: usize = 100;

#[test]
fn every_regime_goes_on_while_addresses_and_routes_change() {
    for regime in Regime::ALL {
        let (client, server) = pair(regime);
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let over = AtomicBool::new(false);
        let (sent, received) = thread::scope(|scope| {
            let sink = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut block, mut bytes) = ([0; 4096], 0);
                loop {
                    match stream.read(&mut block).unwrap() {
                        0 => break bytes,
                        n => {
                            assert!(block[..n].iter().all(|&b| b == 7), "{regime}");
                            bytes += n;
                        }
                    }
                }
            });
            let source = scope.spawn(|| {
                let mut stream = client.tcp().connect("10.0.0.2:7").unwrap();
                let mut bytes = 0;
                while bytes == 0 || !over.load(Relaxed) {
                    stream.write_all(&BLOCK).unwrap();
                    bytes += BLOCK.len();
                }
                bytes
            });
            let ends = SetOnDrop(&over);
            for _ in 0..CHANGES {
                change(regime, &client, &server);
            }
            drop(ends);
            (source.join().unwrap(), sink.join().unwrap())
        });
        assert_eq!(sent, received, "{regime}");
        assert!(sent > 0, "{regime}");
    }
}

/// Ends the source, also where a change fails: the scope waits for it.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// More errors at once than the limit lets pass, each of which reaches its sender.
#[test]
fn without_a_limit_every_sender_is_told() {
    for regime in Regime::ALL {
        let (client, server) = pair(regime);
        server.set("icmp.rate_limit", "false").unwrap();
        let asker = client.udp().bind("10.0.0.1:0").unwrap();
        asker.connect("10.0.0.2:9").unwrap();
        asker
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        for n in 0..30 {
            asker.send(b"ask").unwrap();
            let refused = asker.recv(&mut [0; 16]).err().unwrap();
            let kind = refused.kind();
            assert_eq!(
                kind,
                ErrorKind::ConnectionRefused,
                "{regime}, {n}: {refused}"
            );
        }
    }
}

/// Looks at what comes: the longest packet since it was asked last.
struct Longest(Arc<AtomicUsize>);

impl Module for Longest {
    fn name(&self) -> &str {
        "longest"
    }
    fn points(&self) -> &[Point] {
        &[Point::In]
    }
    fn packet(&self, _: Point, packet: &View<'_>, _: Instant) -> Verdict {
        self.0.fetch_max(packet.len(), Relaxed);
        Verdict::Pass
    }
}

/// Waits until packets flow of which the longest has so many bytes, for as long as a thousand reads take.
fn flows_in(longest: &AtomicUsize, mtu: usize, stream: &mut TcpStream, regime: Regime) {
    let mut seen = Vec::new();
    for _ in 0..1000 {
        longest.store(0, Relaxed);
        stream.read_exact(&mut [0; 64 << 10]).unwrap();
        let now = longest.load(Relaxed);
        if now == mtu {
            return;
        }
        seen.push(now);
    }
    panic!("{regime}: {seen:?} for an MTU of {mtu}");
}

/// RFC 1191 §3, RFC 8201 §4: a stream that flows goes by the MTU of its link as it is now, those that come begin with it, and a datagram that is not
/// to be cut is refused or goes.
#[test]
fn a_links_mtu_changes_while_packets_flow() {
    for regime in Regime::ALL {
        // Each segment by itself, as other links carry them.
        let (near, far) = wire::pair(&wire::Options {
            offload: false,
            ..wire::Options::default()
        });
        let longest = Arc::new(AtomicUsize::new(0));
        let client = Net::builder().regime(regime).link_with(Box::new(far));
        let client = client.module(Boxed::any(Longest(longest.clone())));
        let client = client.address("10.0.0.2/24").unwrap().start().unwrap();
        let server = Net::builder().regime(regime).link_with(Box::new(near));
        let server = server.address("10.0.0.1/24").unwrap().start().unwrap();
        let listener = server.tcp().listen("0.0.0.0:7").unwrap();
        let sender = server.udp().bind("10.0.0.1:9").unwrap();
        let whole = SocketOption::Udp(UdpOption::Discovery(Discovery::Do));
        sender.socket().set_option(whole).unwrap();
        let send = |bytes: usize| {
            let sent = sender.send_to(&vec![0; bytes], "10.0.0.2:9");
            sent.map_err(|error| error.raw_os_error())
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                while stream.write_all(&BLOCK).is_ok() {}
            });
            let mut stream = client.tcp().connect("10.0.0.1:7").unwrap();
            flows_in(&longest, 1500, &mut stream, regime);
            for mtu in [1000, 576, 1400, 1500] {
                server.set("link.#0.mtu", &mtu.to_string()).unwrap();
                assert_eq!(send(mtu - 28 + 1), Err(Some(libc::EMSGSIZE)), "{regime}");
                flows_in(&longest, mtu, &mut stream, regime);
                let (to, from) = (server.tcp(), client.tcp());
                let listener = to.listen("0.0.0.0:8").unwrap();
                let new = from.connect("10.0.0.1:8").unwrap();
                let (accepted, _) = listener.accept().unwrap();
                let mss = |stream: &TcpStream| {
                    let info = stream.socket().tcp_info().unwrap();
                    (usize::from(info.announced_mss), usize::from(info.send_mss))
                };
                assert_eq!(mss(&accepted).0, mtu - 40, "{regime}");
                // Twelve bytes of timestamps.
                assert_eq!(mss(&new), (1460, mtu - 52), "{regime}");
            }
            stream
                .socket()
                .set_option(SocketOption::Linger(Some(Duration::ZERO)))
                .unwrap();
        });
        assert_eq!(send(1472), Ok(1472), "{regime}");
    }
}

/// One round: a second network is there, is used, and goes.
fn change(regime: Regime, client: &Net, server: &Net) {
    let refused = server.udp().bind("10.9.0.2:9").err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable, "{regime}");
    server.add_address("", "10.9.0.2/24").unwrap();
    client.add_route("", "10.9.0.0/24", None, 0).unwrap();
    let hearer = server.udp().bind("10.9.0.2:9").unwrap();
    let asker = client.udp().bind("10.0.0.1:0").unwrap();
    hearer.set_read_timeout(Some(AGAIN)).unwrap();
    asker.set_read_timeout(Some(AGAIN)).unwrap();
    let mut block = [0; 16];
    let asked_and_answered = || {
        asker.send_to(b"ask", "10.9.0.2:9")?;
        let (n, from) = hearer.recv_from(&mut block)?;
        assert_eq!(&block[..n], b"ask", "{regime}");
        hearer.send_to(b"answer", from)?;
        let (n, from) = asker.recv_from(&mut block)?;
        assert_eq!(&block[..n], b"answer", "{regime}");
        io::Result::Ok(from.ip().to_string())
    };
    // The stream may fill a channel, and a datagram finds no room in it.
    let tries = std::iter::repeat_with(asked_and_answered).take(TRIES);
    let from = tries.flatten().next();
    assert_eq!(from.as_deref(), Some("10.9.0.2"), "{regime}");
    client.remove_route("", "10.9.0.0/24", 0).unwrap();
    let refused = asker.send_to(b"ask", "10.9.0.2:9").err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable, "{regime}");
    server.remove_address("", "10.9.0.2").unwrap();
}
