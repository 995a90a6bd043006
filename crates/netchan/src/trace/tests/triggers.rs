//! What stops the recording, and what is left of the time before. Each in a process of its own: what is dropped in another test would stop it, too.

use std::{
    io::{IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use proto::time::Instant;
use serde_json::Value;

use super::{Pair, position, run_apart};
use crate::{
    Net,
    api::{Domain, Kind, ReceiveFlags},
    driver::module::{
        Boxed, Module, Point, Verdict, View,
        filter::{Filter, Rules},
    },
    link::wire,
    socket::Socket,
    trace::{
        Level, answer, level,
        trigger::{self, Cause},
    },
};

#[test]
fn drop_stops_it_and_what_was_before_is_kept() {
    run_apart("trace::tests::triggers::until_a_datagram_is_dropped");
}

#[test]
fn latency_stops_it() {
    run_apart("trace::tests::triggers::until_a_packet_is_late");
}

#[test]
fn watchdog_stops_it() {
    run_apart("trace::tests::triggers::until_the_watchdog_reports");
    run_apart("trace::tests::triggers::until_a_thread_hangs");
}

#[test]
fn drop_of_a_module_stops_it() {
    run_apart("trace::tests::triggers::until_a_module_drops");
}

fn state() -> Value {
    answer("read 0 0").unwrap()["trigger"].clone()
}

impl Pair {
    fn exchange(&self, (client, server): &(Socket, Socket), times: usize) {
        let mut buffer = [0; 8];
        for _ in 0..times {
            client.send(&[IoSlice::new(b"x")], None).unwrap();
            self.turn(3, Duration::from_micros(10));
            let mut buffers = [IoSliceMut::new(&mut buffer)];
            let flags = ReceiveFlags::default();
            server.receive(&mut buffers, flags).unwrap();
        }
    }
}

/// A datagram to a port that no socket has.
fn lose_a_datagram(pair: &Pair) {
    let socket = Socket::new(&pair.nets[0], Domain::V4, Kind::Datagram).unwrap();
    let closed = SocketAddr::from(([10, 0, 0, 2], 9));
    socket.send(&[IoSlice::new(b"lost")], Some(closed)).unwrap();
    pair.turn(10, Duration::from_micros(10));
}

/// A SYN to a port that no socket has.
fn lose_a_segment(pair: &Pair) {
    let socket = Socket::new(&pair.nets[0], Domain::V4, Kind::Stream).unwrap();
    let _ = socket.connect(SocketAddr::from(([10, 0, 0, 2], 9)));
    pair.turn(10, Duration::from_micros(10));
}

#[test]
#[ignore = "run by drop_stops_it_and_what_was_before_is_kept"]
fn until_a_datagram_is_dropped() {
    const AFTER: usize = 16;
    let pair = Pair::new();
    let sockets = pair.connect();
    let armed = answer(&format!("start drop=udp_no_socket {AFTER}")).unwrap();
    assert_eq!(armed["trigger"]["state"], "armed");
    assert_eq!(armed["trigger"]["why"], "waits for drop=drop_udp_no_socket");
    pair.exchange(&sockets, 10);
    lose_a_segment(&pair);
    assert_eq!(state()["state"], "armed", "another reason");
    lose_a_datagram(&pair);
    pair.exchange(&sockets, 100);
    assert_eq!(level(), Level::Off);

    let found = state();
    assert_eq!(found["state"], "stopped", "{found}");
    assert_eq!(found["why"], "a packet was dropped: drop_udp_no_socket");
    assert!(found["at_ns"].as_u64() > Some(0) && found["events_to_come"] == 0);
    let names = pair.names();
    let at = position(&names, "trigger");
    assert_eq!(names[at - 1], "shard-drop", "{:?}", &names[at - 5..]);
    assert_eq!(names.len() - at - 1, AFTER, "{:?}", &names[at..]);
    for name in ["link-in", "packet-in", "packet-read", "turn-begin"] {
        assert!(position(&names, name) < at, "{name} was before");
    }

    // Once more, for any reason, and nothing after it.
    assert_eq!(answer("start drop 0").unwrap()["level"], "all");
    lose_a_segment(&pair);
    assert_eq!(state()["why"], "a packet was dropped: drop_tcp_no_socket");
    let names = pair.names();
    assert_eq!(names.last().unwrap(), "trigger");
    let stopped = answer("stop").unwrap();
    assert_eq!(
        (&stopped["trigger"], &stopped["level"]),
        (&Value::Null, &"rare".into())
    );
    pair.exchange(&sockets, 100);
    assert_eq!(
        pair.names().len(),
        names.len(),
        "rare events only, of which there were none"
    );
}

#[test]
#[ignore = "run by drop_of_a_module_stops_it"]
fn until_a_module_drops() {
    let pair = Pair::new();
    let sockets = pair.connect();
    let rules = Rules {
        rules: vec!["drop in proto udp".parse().unwrap()],
        default: Verdict::Pass,
    };
    let wall = Boxed::any(Filter::new("wall", rules));
    pair.exchange(&sockets, 3);
    pair.nets[1].load_module(wall).unwrap();
    for (wanted, fires) in [
        ("drop=udp_no_socket", false),
        ("drop=module", true),
        ("drop", true),
    ] {
        answer(&format!("start {wanted} 0")).unwrap();
        lose_a_datagram(&pair);
        let found = state();
        let wanted_state = if fires { "stopped" } else { "armed" };
        assert_eq!(found["state"], wanted_state, "{wanted}: {found}");
        if fires {
            assert_eq!(found["why"], "module 1 dropped a packet");
            let names = pair.names();
            let at = position(&names, "trigger");
            assert_eq!(names[at - 1], "module-drop");
        }
    }
    assert_eq!(
        answer("start drop=module 0").unwrap()["trigger"]["why"],
        "waits for drop=module"
    );
    lose_a_segment(&pair);
    assert_eq!(
        state()["state"],
        "armed",
        "what the stack itself drops is another thing"
    );
}

#[test]
#[ignore = "run by latency_stops_it"]
fn until_a_packet_is_late() {
    let pair = Pair::new();
    let sockets = pair.connect();
    let armed = answer("start latency=10s 5").unwrap();
    assert_eq!(armed["trigger"]["why"], "waits for latency=10000000000ns");
    pair.exchange(&sockets, 100);
    assert_eq!(state()["state"], "armed");
    answer("start latency=2ms,watchdog 5").unwrap();
    let (client, server) = &sockets;
    client.send(&[IoSlice::new(b"late")], None).unwrap();
    pair.turn(3, Duration::from_micros(10));
    thread::sleep(Duration::from_millis(3)); // the application is slow
    let mut buffer = [0; 8];
    let mut buffers = [IoSliceMut::new(&mut buffer)];
    server
        .receive(&mut buffers, ReceiveFlags::default())
        .unwrap();
    pair.exchange(&sockets, 10);
    let found = state();
    assert_eq!(found["state"], "stopped", "{found}");
    let why = found["why"].as_str().unwrap();
    let us = why
        .strip_prefix("a packet took ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert!(us.parse::<u64>().unwrap() >= 3000, "{why}");
    let names = pair.names();
    let at = position(&names, "trigger");
    assert_eq!(names[at - 1], "packet-read");
    assert_eq!(names.len() - at - 1, 5);
}

#[test]
#[ignore = "run by watchdog_stops_it"]
fn until_the_watchdog_reports() {
    let pair = Pair::new();
    let sockets = pair.connect();
    trigger::watchdog(Cause::Thread(1));
    assert_eq!(state(), Value::Null, "it is not waited for");
    answer("start watchdog 3").unwrap();
    lose_a_datagram(&pair);
    assert_eq!(state()["state"], "armed", "drops are not waited for");
    trigger::watchdog(Cause::Thread(4711));
    trigger::watchdog(Cause::Shard(3));
    let found = state();
    assert_eq!(
        (&found["state"], &found["events_to_come"]),
        (&"stopping".into(), &3.into())
    );
    assert_eq!(found["why"], "thread 4711 has not come out of its turn");
    pair.exchange(&sockets, 10);
    assert_eq!(state()["state"], "stopped");
    answer("start watchdog 0").unwrap();
    trigger::watchdog(Cause::Shard(3));
    assert_eq!(state()["why"], "no thread takes the packets of shard 3");
}

/// Holds its thread until it is let go.
struct Hang(Arc<AtomicBool>);

impl Module for Hang {
    fn name(&self) -> &str {
        "hang"
    }
    fn points(&self) -> &[Point] {
        &[Point::In]
    }
    fn packet(&self, _: Point, _: &View<'_>, _: Instant) -> Verdict {
        while !self.0.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        Verdict::Pass
    }
}

#[test]
#[ignore = "run by watchdog_stops_it"]
fn until_a_thread_hangs() {
    let (ours, theirs) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let builder = Net::builder().link_with(Box::new(link)).address(address);
        builder.unwrap().start().unwrap()
    };
    let (client, server) = (start(ours, "10.0.0.1/24"), start(theirs, "10.0.0.2/24"));
    let go = Arc::new(AtomicBool::new(false));
    server.load_module(Boxed::any(Hang(go.clone()))).unwrap();
    answer("start watchdog 0").unwrap();
    let sender = client.udp().bind("0.0.0.0:0").unwrap();
    sender.send_to(b"x", "10.0.0.2:9").unwrap();
    let stopped = (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        state()["state"] == "stopped"
    });
    go.store(true, Ordering::SeqCst);
    let why = state()["why"].to_string();
    assert!(
        stopped && why.contains("has not come out of its turn"),
        "{why}"
    );
    let all = answer("read 1000000 0").unwrap();
    let names = all["events"].as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    let at = |name: &str| names.iter().position(|n| *n == name);
    let (hangs, trigger) = (at("thread-hangs"), at("trigger"));
    assert!(hangs.is_some() && hangs < trigger, "{names:?}");
    assert!(
        at("packet-in") < hangs && at("packet-in").is_some(),
        "{names:?}"
    );
}
