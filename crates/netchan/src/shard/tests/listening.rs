//! Who gives way at a listener, and what a listener tells when it hears no more.

use super::*;
use crate::limits;

fn port_80(world: &World, backlog: usize) -> Socket {
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(backlog).unwrap();
    listener
}

fn depths(world: &World) -> (usize, usize) {
    world.shard(1, |shard, _| shard.listeners().next().unwrap().1.depths())
}

fn begin(world: &World, port: u16) -> Paper {
    let peer = Paper {
        port,
        next: SeqNum(1000),
        acked: SeqNum(0),
    };
    world.segment(&peer, Flags::SYN, peer.next, &[]);
    peer
}

/// RFC 4987 §3: under a flood the oldest handshake gives way; a connection, however it began, does not.
#[test]
fn the_oldest_handshake_gives_way_and_no_connection() {
    let config = proto::tcp::Config {
        syn_cookies: proto::tcp::SynCookies::Off,
        ..proto::tcp::Config::default()
    };
    let world = World::with(|builder| builder.tcp(config));
    let listener = port_80(&world, 4096);
    let (_peer, accepted) = world.opens(&listener, 4000);
    let most = u16::try_from(limits::SYN_QUEUE).unwrap();
    for port in 5000..5000 + most {
        begin(&world, port);
    }
    let there = |world: &World, port: u16| {
        world.shard(1, |shard, _| {
            shard
                .connections()
                .any(|(_, s)| s.key().remote_port == port)
        })
    };
    assert_eq!(depths(&world), (0, limits::SYN_QUEUE));
    assert_eq!(world.counter(1, "drop_tcp_syn_queue_full"), 0);
    begin(&world, 9000);
    assert_eq!(depths(&world), (0, limits::SYN_QUEUE));
    assert_eq!(world.counter(1, "drop_tcp_syn_queue_full"), 1);
    assert!(!there(&world, 5000) && there(&world, 5001) && there(&world, 9000));
    assert!(there(&world, 4000) && send(&accepted, b"x", None) == Ok(1));
}

/// Another process was to accept here: what waits and what begins is counted and reset, until somebody serves again.
#[test]
fn what_nobody_accepts_is_counted() {
    let world = World::new();
    let listener = port_80(&world, 8);
    let client = world.socket(0, Kind::Stream);
    let _ = client.connect(to("10.0.0.2:80"));
    world.pass(5);
    begin(&world, 5000);
    begin(&world, 5001);
    assert_eq!(depths(&world), (1, 2));
    let number = world.shard(1, |shard, now| {
        let number = shard.listeners().next().unwrap().0;
        shard.refuse_at(number, now);
        number
    });
    world.settle();
    assert_eq!(world.counter(1, "drop_tcp_listener_unserved"), 3);
    assert_eq!(depths(&world), (0, 0));
    assert_eq!(receive(&client), Err(libc::ECONNRESET));
    let refused = world.socket(0, Kind::Stream);
    let _ = refused.connect(to("10.0.0.2:80"));
    world.pass(5);
    assert_eq!(code(refused.finish_connect()), Err(libc::ECONNREFUSED));
    world.shard(1, |shard, _| shard.serve_at(number));
    let served = world.socket(0, Kind::Stream);
    let _ = served.connect(to("10.0.0.2:80"));
    world.pass(5);
    assert!(listener.accept().is_ok());
}

/// The last link is gone: whoever waits for anything is told.
#[test]
fn who_waits_is_told_that_the_link_is_gone() {
    let world = World::new();
    let listener = world.bound(0, Kind::Stream, "10.0.0.1:90");
    listener.listen(8).unwrap();
    let datagrams = world.bound(0, Kind::Datagram, "10.0.0.1:90");
    let waits = [&listener, &datagrams].map(|socket| {
        let (bell, waker) = Bell::new();
        socket.register(crate::api::Readiness::READABLE, &waker);
        assert_eq!(bell.rang(), 0);
        bell
    });
    let World { nets, clock } = world;
    let [ours, theirs] = nets;
    drop(theirs);
    for _ in 0..10 {
        clock.advance(std::time::Duration::from_millis(1));
        ours.poll();
    }
    assert_eq!(waits.map(|bell| bell.rang() > 0), [true; 2]);
    assert!(code(listener.accept().map(|_| ())).is_err_and(|code| code != libc::EAGAIN));
}
