//! Addresses and routes change while packets flow, in every regime: no byte is lost, and a call that follows a change goes by it.

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use netchan::{Net, Regime, link::wire};

/// Changes, while the stream flows.
const CHANGES: usize = 60;
const BLOCK: [u8; 1000] = [7; 1000];
/// A datagram that is not answered in this time is sent again, so often.
const AGAIN: Duration = Duration::from_millis(200);
const TRIES: usize = 100;

fn pair(regime: Regime) -> (Net, Net) {
    let (near, far) = wire::pair(&wire::Options::default());
    let one = |end: wire::Wire, address: &str| {
        let net = Net::builder().regime(regime).link_with(Box::new(end));
        net.address(address).unwrap().start().unwrap()
    };
    (one(near, "10.0.0.1/24"), one(far, "10.0.0.2/24"))
}

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
