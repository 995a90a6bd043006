//! Packets whose way is timed: a sample always, all while details are recorded.

use std::{
    io::{IoSlice, IoSliceMut},
    net::SocketAddr,
    time::Duration,
};

use serde_json::Value;

use super::{Pair, alone};
use crate::{
    Net, Regime, Threads,
    api::{Domain, Kind, ReceiveFlags},
    link::wire,
    socket::Socket,
    trace::{
        answer,
        latency::{Latencies, Station},
    },
};

/// How many packets were timed at each station, the figures being in their order.
fn timed(net: &Net) -> Vec<(String, u64)> {
    let rows = net.show("stages").unwrap();
    let rows = rows.as_array().unwrap().iter();
    let rows = rows.filter(|row| !row["packets_to"].is_null());
    let row = |row: &Value| {
        let figures = ["p50_ns", "p90_ns", "p99_ns", "max_ns"];
        let figures = figures.map(|name| row[name].as_u64().unwrap());
        assert!(figures.is_sorted(), "{row}");
        let name = row["packets_to"].as_str().unwrap().to_owned();
        (name, row["timed"].as_u64().unwrap())
    };
    rows.map(row).collect()
}

fn send(pair: &Pair, client: &Socket, server: &Socket, to: Option<SocketAddr>, times: usize) {
    let mut buffer = [0; 8];
    for _ in 0..times {
        client.send(&[IoSlice::new(b"x")], to).unwrap();
        pair.turn(3, Duration::from_micros(10));
        let mut buffers = [IoSliceMut::new(&mut buffer)];
        let flags = ReceiveFlags::default();
        server.receive(&mut buffers, flags).unwrap();
    }
}

#[test]
fn segments_are_timed_without_being_asked() {
    let _alone = alone();
    let pair = Pair::new();
    let (client, server) = pair.connect();
    send(&pair, &client, &server, None, 61 * 20);
    let found = timed(&pair.nets[1]);
    let of = |name: &str| found.iter().find(|(n, _)| n == name).map_or(0, |(_, n)| *n);
    // One in 61: the handshake beside them makes it one more at most.
    assert!((20..=21).contains(&of("protocol")), "{found:?}");
    assert!((19..=21).contains(&of("total")), "{found:?}");
    assert_eq!(of("read"), of("total"));
    assert_eq!(of("steer"), of("protocol"));
}

#[test]
fn datagrams_are_timed_and_sockets_that_close_forget() {
    let _alone = alone();
    let pair = Pair::new();
    let to = SocketAddr::from(([10, 0, 0, 2], 53));
    let bound = || {
        let server = Socket::new(&pair.nets[1], Domain::V4, Kind::Datagram).unwrap();
        server.bind(to).unwrap();
        server
    };
    let client = Socket::new(&pair.nets[0], Domain::V4, Kind::Datagram).unwrap();
    let server = bound();
    send(&pair, &client, &server, Some(to), 61 * 10);
    let total = |found: &[(String, u64)]| found.last().unwrap().clone();
    let before = total(&timed(&pair.nets[1]));
    assert_eq!(before, ("total".to_owned(), 10));
    for _ in 0..61 {
        client.send(&[IoSlice::new(b"x")], Some(to)).unwrap();
    }
    pair.turn(3, Duration::from_micros(10));
    drop(server);
    let server = bound();
    send(&pair, &client, &server, Some(to), 30);
    assert_eq!(
        total(&timed(&pair.nets[1])),
        before,
        "the next socket did not read it"
    );
}

#[test]
fn all_are_joined_from_link_to_application_while_details_are_recorded() {
    let _alone = alone();
    for regime in Regime::ALL {
        let clock = crate::Clock::new_virtual();
        let (a, b) = wire::pair(&wire::Options::default());
        let start = |link, address: &str| {
            let builder = Net::builder().link_with(Box::new(link)).address(address);
            let builder = builder
                .unwrap()
                .regime(regime)
                .seed(1)
                .shards(1)
                .clock(clock.clone());
            builder.threads(Threads::Caller).start()
        };
        let (Ok(near), Ok(far)) = (start(a, "10.0.0.1/24"), start(b, "10.0.0.2/24")) else {
            continue; // it wants threads of its own
        };
        let begin = percore::clock::cycles();
        let pair = Pair {
            nets: [near, far],
            clock: clock.clone(),
            begin,
        };
        let (client, server) = pair.connect();
        answer("start").unwrap();
        send(&pair, &client, &server, None, 3);
        let events = pair.events();
        answer("stop").unwrap();
        let read = events.iter().filter(|e| e["event"] == "packet-read");
        let read: Vec<_> = read.map(|e| e["args"]["packet"].clone()).collect();
        assert!(read.len() >= 3, "{regime}");
        for packet in read {
            let way = events.iter().filter(|e| e["args"]["packet"] == packet);
            let way: Vec<_> = way.map(|e| e["event"].as_str().unwrap()).collect();
            let is_whole = ["packet-in", "packet-take", "packet-done", "packet-read"];
            let mut rest = way.iter();
            let found = is_whole.iter().all(|name| rest.any(|n| n == name));
            assert!(found, "{regime}: {way:?}");
        }
    }
}

#[test]
fn figures_of_several_shards_are_one() {
    let (mut all, mut one, mut other) = (Latencies::new(), Latencies::new(), Latencies::new());
    assert_eq!(all.summary(Station::Read), None);
    (1..=98).for_each(|_| one.note(Station::Read, 100));
    one.note(Station::Read, 10_000);
    other.note(Station::Read, u32::MAX);
    other.note(Station::Steer, 0);
    all.add(&one);
    all.add(&other);
    let read = all.summary(Station::Read).unwrap();
    assert_eq!(read.packets, 100);
    assert!(read.p50_ns == read.p90_ns && read.p90_ns < read.p99_ns && read.p99_ns < read.max_ns);
    assert_eq!(all.summary(Station::Steer).unwrap().packets, 1);
}
