//! One packet's whole way, both directions: two stacks over an in-memory wire.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::SocketAddr,
    thread,
};

use netchan::{
    Clock, Dispatch, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};

/// Every regime, and every other place for protocol work where the regime leaves a choice (F5).
fn modes() -> Vec<(Regime, Dispatch)> {
    let goes = |&(regime, dispatch): &(Regime, Dispatch)| {
        let layout = regime.layout(None);
        layout.is_some_and(|layout| layout.dispatched(dispatch).is_ok())
    };
    let all = Regime::here().flat_map(|r| Dispatch::ALL.map(|dispatch| (r, dispatch)));
    let modes: Vec<_> = all.filter(goes).collect();
    assert!(modes.len() >= Regime::here().count() + 2, "{modes:?}");
    modes
}

fn pair((regime, dispatch): (Regime, Dispatch), threads: Threads, clock: &Clock) -> (Net, Net) {
    let (a, b) = wire::pair(&wire::Options::default());
    let start = |link, address: &str, v6: &str| {
        Net::builder()
            .clock(clock.clone())
            .link_with(link)
            .address(address)
            .unwrap()
            .address(v6)
            .unwrap()
            .regime(regime)
            .dispatch(dispatch)
            .threads(threads)
            .seed(7)
            .start()
            .unwrap()
    };
    (
        start(Box::new(a), "10.0.0.1/24", "fd00::1/64"),
        start(Box::new(b), "10.0.0.2/24", "fd00::2/64"),
    )
}

#[test]
fn bytes_pass_without_threads() {
    for mode in modes() {
        for target in ["10.0.0.2:80", "[fd00::2]:80"] {
            let clock = Clock::new_virtual();
            let (a, b) = pair(mode, Threads::Caller, &clock);
            let target: SocketAddr = target.parse().unwrap();
            let domain = if target.is_ipv4() {
                Domain::V4
            } else {
                Domain::V6
            };
            let listener = Socket::new(&b, domain, Kind::Stream).unwrap();
            listener.bind(target).unwrap();
            listener.listen(10).unwrap();
            let client = Socket::new(&a, domain, Kind::Stream).unwrap();
            assert_eq!(
                client.connect(target).unwrap_err().raw_os_error(),
                Some(libc::EINPROGRESS)
            );
            let mut server = None;
            for _ in 0..50 {
                a.poll();
                b.poll();
                if server.is_none() {
                    server = listener.accept().ok();
                }
            }
            let (server, from) = server.expect("a connection");
            assert_eq!(from, client.local_address());
            client.connect(target).unwrap();
            assert_eq!(client.send(&[IoSlice::new(b"hello")], None).unwrap(), 5);
            let mut buf = [0; 16];
            let n = (0..10)
                .find_map(|_| {
                    server
                        .receive(&mut [IoSliceMut::new(&mut buf)], ReceiveFlags::default())
                        .ok()
                })
                .expect("data")
                .len;
            assert_eq!(&buf[..n], b"hello");
        }
    }
}

#[test]
fn bytes_pass_between_threads() {
    for mode in modes() {
        let (a, b) = pair(mode, Threads::Own, &Clock::Real);
        let listener = b.tcp().listen("0.0.0.0:80").unwrap();
        let total = 20_000_000_usize;
        let server = thread::spawn(move || -> io::Result<u64> {
            let (mut stream, _) = listener.accept()?;
            let mut sum = 0_u64;
            let mut buf = vec![0; 65536];
            loop {
                let n = stream.read(&mut buf)?;
                if n == 0 {
                    break;
                }
                sum = buf[..n]
                    .iter()
                    .fold(sum, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
            }
            stream.write_all(&sum.to_le_bytes())?;
            Ok(sum)
        });
        let mut stream = a.tcp().connect("10.0.0.2:80").unwrap();
        let data: Vec<u8> = (0..total)
            .map(|i| (i * 7 + i / 251).to_le_bytes()[0])
            .collect();
        let expected = data
            .iter()
            .fold(0_u64, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
        stream.write_all(&data).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(u64::from_le_bytes(answer), expected, "{mode:?}");
        assert_eq!(server.join().unwrap().unwrap(), expected);
        let shown = b.show("counters").unwrap();
        let mut rows = shown.as_array().unwrap().iter();
        let followed = rows.find(|row| row["name"] == "tcp_segments_followed");
        assert_ne!(followed.unwrap()["value"], 0, "no runs in {mode:?}");
    }
}

/// Several shards behind channels: each flow is entered in the flow table while it lasts, and found there.
#[test]
fn flows_are_leased_while_they_last() {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let net = Net::builder().link_with(link).address(address).unwrap();
        net.regime(Regime::AppChannel).shards(4).start().unwrap()
    };
    let client = start(Box::new(ours), "10.0.0.1/24");
    let server = start(Box::new(theirs), "10.0.0.2/24");
    let leased = |net: &Net| {
        let rows = net.show("memory").unwrap();
        let table = rows.as_array().unwrap().iter();
        let row = table.clone().find(|row| row["what"] == "flow table");
        let row = row.expect("four shards have a flow table");
        row["all"].as_u64().unwrap() - row["free"].as_u64().unwrap()
    };
    let soon = |what: &str, is: &dyn Fn() -> bool| {
        let there = (0..500).any(|_| {
            thread::sleep(std::time::Duration::from_millis(10));
            is()
        });
        assert!(there, "{what}: {} and {}", leased(&client), leased(&server));
    };
    let listener = server.tcp().listen("0.0.0.0:80").unwrap();
    let mut pairs = Vec::new();
    for i in 0..32_u8 {
        let mut stream = client.tcp().connect("10.0.0.2:80").unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(&[i]).unwrap();
        let mut byte = [0];
        accepted.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [i]);
        pairs.push((stream, accepted));
    }
    soon("all leased", &|| {
        leased(&client) == 32 && leased(&server) == 32
    });
    // The side that closes first keeps its flows through TIME-WAIT, the other gives them back.
    for (stream, mut accepted) in pairs {
        drop(stream);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    }
    soon("given back", &|| {
        leased(&client) == 32 && leased(&server) == 0
    });
}

/// The far end of the wire goes away: all that wait learn it at once.
#[test]
fn a_vanished_link_ends_what_hangs_on_it() {
    for mode in modes() {
        let (a, b) = pair(mode, Threads::Own, &Clock::Real);
        let listener = b.tcp().listen("0.0.0.0:80").unwrap();
        let mut stream = a.tcp().connect("10.0.0.2:80").unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let waiting = thread::spawn(move || listener.accept().err().and_then(|e| e.raw_os_error()));
        let reading = thread::spawn(move || {
            (&accepted)
                .read(&mut [0])
                .err()
                .and_then(|e| e.raw_os_error())
        });
        thread::sleep(std::time::Duration::from_millis(50));
        stream.write_all(b"").unwrap();
        // The stream keeps its stack; both must go for the link to go.
        drop(stream);
        drop(a);
        assert!(
            matches!(reading.join().unwrap(), Some(libc::ENETDOWN) | None),
            "{mode:?}"
        );
        assert_eq!(waiting.join().unwrap(), Some(libc::ENETDOWN), "{mode:?}");
        assert_eq!(
            b.tcp()
                .connect("10.0.0.1:80")
                .err()
                .and_then(|e| e.raw_os_error()),
            Some(libc::ENETDOWN)
        );
    }
}
