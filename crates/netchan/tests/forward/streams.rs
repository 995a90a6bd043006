//! A client, a router, a server: TCP through the router in each of its regimes.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr},
    thread,
};

use netchan::{
    Builder, Clock, Dispatch, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};

/// The three stacks. `mtu` is the router's on the way to the server.
pub struct World {
    pub client: Net,
    pub router: Net,
    pub server: Net,
}

/// The server's addresses.
pub const SERVER: [&str; 2] = ["10.2.0.2", "fd02::2"];

pub fn host(link: wire::Wire, clock: &Clock, number: u8) -> Builder {
    let end = 2;
    let builder = Net::builder()
        .clock(clock.clone())
        .link_with(Box::new(link));
    let builder = builder.address(&format!("10.{number}.0.{end}/24")).unwrap();
    let builder = builder.address(&format!("fd0{number}::{end}/64")).unwrap();
    let builder = builder.gateway(&format!("10.{number}.0.1")).unwrap();
    builder.gateway(&format!("fd0{number}::1")).unwrap().seed(7)
}

pub fn router(links: [wire::Wire; 2], clock: &Clock) -> Builder {
    let mut builder = Net::builder().clock(clock.clone()).forwarding(true).seed(9);
    for (link, number) in links.into_iter().zip(1..) {
        builder = builder.link_with(Box::new(link));
        builder = builder.address(&format!("10.{number}.0.1/24")).unwrap();
        builder = builder.address(&format!("fd0{number}::1/64")).unwrap();
    }
    builder
}

impl World {
    pub fn new(
        threads: Threads,
        clock: &Clock,
        mtu: usize,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let (near, first) = wire::pair(&wire::Options::default());
        let narrow = wire::Options {
            mtu,
            seed: 2,
            ..wire::Options::default()
        };
        let (second, far) = wire::pair_with(&narrow, &wire::Options::default());
        let start = |builder: Builder| builder.threads(threads).start().unwrap();
        Self {
            client: start(host(near, clock, 1)),
            router: start(settings(router([first, second], clock))),
            server: start(host(far, clock, 2)),
        }
    }
}

pub fn counter(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no counter {name}"))["value"]
        .as_u64()
        .unwrap()
}

fn modes() -> impl Iterator<Item = (Regime, Dispatch)> {
    let goes = |&(regime, dispatch): &(Regime, Dispatch)| {
        let layout = regime.layout(None);
        layout.is_some_and(|layout| layout.dispatched(dispatch).is_ok())
    };
    Regime::here()
        .flat_map(|r| Dispatch::ALL.map(|dispatch| (r, dispatch)))
        .filter(goes)
}

fn hash(sum: u64, bytes: &[u8]) -> u64 {
    let step = |s: u64, b: &u8| s.wrapping_mul(31).wrapping_add(u64::from(*b));
    bytes.iter().fold(sum, step)
}

fn data(total: usize) -> Vec<u8> {
    let byte = |i: usize| (i * 7 + i / 251).to_le_bytes()[0];
    (0..total).map(byte).collect()
}

#[test]
fn streams_pass_every_regime_of_the_router_with_threads() {
    for (regime, dispatch) in modes() {
        let settings = |b: Builder| b.regime(regime).dispatch(dispatch);
        let world = World::new(Threads::Own, &Clock::Real, 1500, settings);
        for (server, any) in SERVER.into_iter().zip(["0.0.0.0:80", "[::]:80"]) {
            let listener = world.server.tcp().listen(any).unwrap();
            let echo = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut sum, mut buffer) = (0, vec![0; 65536]);
                loop {
                    match stream.read(&mut buffer).unwrap() {
                        0 => break,
                        n => sum = hash(sum, &buffer[..n]),
                    }
                }
                stream.write_all(&sum.to_le_bytes()).unwrap();
            });
            let target = SocketAddr::new(server.parse::<IpAddr>().unwrap(), 80);
            let mut stream = world.client.tcp().connect(target).unwrap();
            let data = data(4_000_000);
            stream.write_all(&data).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = [0; 8];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(
                u64::from_le_bytes(answer),
                hash(0, &data),
                "{regime} {server}"
            );
            echo.join().unwrap();
        }
        let rows = world.router.show("channels").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        assert_eq!(
            rows.by_ref()
                .filter(|row| row["next_link"].is_string())
                .count(),
            4
        );
        // 4 MB there and acknowledgments back, in segments of at most 1460 bytes, twice.
        assert!(counter(&world.router, "forwarded") > 2 * 2740, "{regime}");
    }
}

/// Sends `total` bytes from the client to the server; all three stacks are turned by this thread.
pub fn stream(world: &World, server: &str, total: usize) {
    let target = SocketAddr::new(server.parse::<IpAddr>().unwrap(), 80);
    let domain = if target.is_ipv4() {
        Domain::V4
    } else {
        Domain::V6
    };
    let listener = Socket::new(&world.server, domain, Kind::Stream).unwrap();
    let reuse = SocketOption::ReuseAddress(true); // of the stream before, in TIME-WAIT
    listener.set_option(reuse).unwrap();
    listener.bind(target).unwrap();
    listener.listen(10).unwrap();
    let client = Socket::new(&world.client, domain, Kind::Stream).unwrap();
    let _ = client.connect(target);
    let (data, mut sent, mut got, mut server) = (data(total), 0, Vec::new(), None);
    let mut buffer = vec![0; 65536];
    for _ in 0..200_000 {
        for net in [&world.client, &world.router, &world.server] {
            net.poll();
        }
        world
            .client
            .clock()
            .advance(std::time::Duration::from_micros(100));
        match &server {
            None => server = listener.accept().ok().map(|(socket, _)| socket),
            Some(server) => {
                if sent < total {
                    let text = [std::io::IoSlice::new(&data[sent..])];
                    sent += client.send(&text, None).unwrap_or(0);
                }
                let mut into = [std::io::IoSliceMut::new(&mut buffer)];
                if let Ok(received) = server.receive(&mut into, ReceiveFlags::default()) {
                    got.extend_from_slice(&buffer[..received.len]);
                }
            }
        }
        if got.len() == total {
            break;
        }
    }
    assert_eq!(got.len(), total, "{target}");
    assert_eq!(hash(0, &got), hash(0, &data), "{target}");
}

#[test]
fn streams_pass_a_router_that_its_callers_turn() {
    for (regime, dispatch) in modes() {
        let settings = |b: Builder| b.regime(regime).dispatch(dispatch);
        let world = World::new(Threads::Caller, &Clock::new_virtual(), 1500, settings);
        SERVER
            .into_iter()
            .for_each(|server| stream(&world, server, 300_000));
    }
}

/// RFC 1191, RFC 8201: what the server says of its link is more than the router's way there takes, and the client learns it from the router.
#[test]
fn streams_find_the_mtu_behind_the_router() {
    for regime in [Regime::Giant, Regime::Locked] {
        let clock = Clock::new_virtual();
        let world = World::new(Threads::Caller, &clock, 1280, |b| b.regime(regime));
        for (server, nth) in SERVER.into_iter().zip(1..) {
            stream(&world, server, 300_000);
            assert!(counter(&world.router, "drop_forward_too_big") >= nth);
        }
        assert_eq!(counter(&world.server, "fragments_in"), 0);
    }
}

#[test]
fn nothing_passes_unless_it_is_asked_for() {
    let world = World::new(Threads::Caller, &Clock::new_virtual(), 1500, |b| {
        b.forwarding(false)
    });
    let poll = || {
        for _ in 0..20 {
            for net in [&world.client, &world.router, &world.server] {
                net.poll();
            }
        }
    };
    // What the stacks say of their groups has come and gone.
    poll();
    let before = counter(&world.router, "drop_ip_destination");
    let socket = world.client.udp().bind("0.0.0.0:0").unwrap();
    socket.send_to(b"x", "10.2.0.2:9").unwrap();
    poll();
    assert_eq!(counter(&world.router, "drop_ip_destination"), before + 1);
    assert_eq!(counter(&world.router, "forwarded"), 0);
    let rows = world.router.show("settings").unwrap();
    let is = |value: bool, from: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        rows.any(|r| r["name"] == "forwarding" && r["value"] == value && r["from"] == from)
    };
    assert!(is(false, "program"), "{rows}");
}
