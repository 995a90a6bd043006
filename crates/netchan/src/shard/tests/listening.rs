//! What gives way at a listener, and what a listener tells when it hears no more.

use super::*;
use crate::{limits, shard::bound::Place};

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
    // One that was done before an older one is still in the queue, and is passed over.
    let mut peer = Paper {
        port: 5002,
        next: SeqNum(1001),
        acked: SeqNum(0),
    };
    let number = world.number_of(5002);
    let iss = world.shard(1, |shard, _| shard.tcp(number).unwrap().connection.iss());
    peer.acked = iss + 1;
    world.segment(&peer, Flags::ACK, peer.next, &[]);
    assert_eq!(depths(&world), (1, limits::SYN_QUEUE - 1));
    for port in 9001..9005 {
        begin(&world, port);
    }
    let left = [5001, 5002, 5004, 5005, 9004].map(|port| there(&world, port));
    assert_eq!(left, [false, true, false, true, true]);
    assert_eq!(depths(&world), (1, limits::SYN_QUEUE));
    let (done, from) = listener.accept().unwrap();
    assert_eq!(from.port(), 5002);
    assert_eq!(send(&done, b"x", None), Ok(1), "it is open");
}

/// Another process was to accept here: what waits and what begins is counted and reset, until a process serves again.
#[test]
fn what_is_not_accepted_is_counted() {
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

/// The last link is gone: each waiter is told.
#[test]
fn waiters_are_told_that_the_link_is_gone() {
    let world = World::new();
    let listener = world.bound(0, Kind::Stream, "10.0.0.1:90");
    listener.listen(8).unwrap();
    let datagrams = world.bound(0, Kind::Datagram, "10.0.0.1:90");
    // A connection with ourselves, by the link's addresses.
    let own = world.socket(0, Kind::Stream);
    let _ = own.connect(to("10.0.0.1:90"));
    world.pass(5);
    let (_accepted, _) = listener.accept().unwrap();
    let waits = [&listener, &datagrams, &own].map(|socket| {
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
    assert_eq!(waits.map(|bell| bell.rang() > 0), [true; 3]);
    assert!(code(listener.accept().map(|_| ())).is_err_and(|code| code != libc::EAGAIN));
}

/// listen(2) again: another backlog; after shutdown(2) it hears again, with what its options say by then.
#[test]
fn a_listener_listens_again() {
    let world = World::new();
    let listener = port_80(&world, 0);
    let calls = |port: u16| {
        let (mut peer, before) = (begin(&world, port), depths(&world).0);
        let iss = world.shard(1, |shard, _| {
            let mut all = shard.connections();
            let found = all.find(|(_, s)| s.key().remote_port == port);
            found.map(|(_, socket)| socket.connection.iss())
        });
        let Some(iss) = iss else {
            return false;
        };
        (peer.next, peer.acked) = (peer.next + 1, iss + 1);
        world.segment(&peer, Flags::ACK, peer.next, &[]);
        depths(&world).0 > before
    };
    assert!(calls(5000) && !calls(5001), "a backlog of 0 takes one");
    listener.listen(1).unwrap();
    assert!(calls(5002) && !calls(5003));
    listener.shutdown(std::net::Shutdown::Read).unwrap();
    world.settle();
    let refused = |world: &World| {
        let client = world.socket(0, Kind::Stream);
        let _ = client.connect(to("10.0.0.2:80"));
        world.pass(5);
        code(client.finish_connect())
    };
    assert_eq!(refused(&world), Err(libc::ECONNREFUSED));
    listener.listen(4).unwrap();
    assert_eq!(refused(&world), Ok(()));
    assert!(listener.accept().is_ok());
    assert_eq!(
        world.shard(1, |shard, _| shard.listeners().next().unwrap().1.backlog()),
        4
    );
}

/// SO_INCOMING_CPU and SO_BINDTODEVICE of a listener count from the moment they are set.
#[test]
fn a_listener_moves_with_its_options() {
    let world = World::new();
    let listener = port_80(&world, 8);
    let heard = |world: &World| {
        let client = world.socket(0, Kind::Stream);
        let _ = client.connect(to("10.0.0.2:80"));
        world.pass(5);
        listener.accept().is_ok()
    };
    assert!(heard(&world));
    let member = |world: &World, device| {
        let place = Place::new(to("10.0.0.2:80"), false).on(device);
        world.shard(1, |shard, _| {
            let (number, _) = shard.listeners().next().unwrap();
            let member = shard.lookup.listeners.remove(place, number).unwrap();
            shard.lookup.listeners.set(place, member);
            member.cpu
        })
    };
    assert_eq!(member(&world, None), None);
    listener
        .set_option(crate::socket::SocketOption::IncomingCpu(Some(3)))
        .unwrap();
    assert_eq!(member(&world, None), Some(3));
    assert!(heard(&world));
    listener
        .set_option(crate::socket::SocketOption::Device(Some(0)))
        .unwrap();
    assert!(heard(&world));
    assert_eq!(member(&world, Some(0)), Some(3));
}

/// As Linux: while the accept queue is full a handshake's end is left out, and comes again; text of a connection that waits there is taken.
#[test]
fn a_handshake_does_not_end_while_the_queue_is_full() {
    let world = World::new();
    let listener = port_80(&world, 0);
    let mut peers = [5000, 5001].map(|port| begin(&world, port));
    for peer in &mut peers {
        let number = world.number_of(peer.port);
        let iss = world.shard(1, |shard, _| shard.tcp(number).unwrap().connection.iss());
        (peer.next, peer.acked) = (peer.next + 1, iss + 1);
    }
    let [first, second] = peers;
    let ends = |peer: &Paper| world.segment(peer, Flags::ACK, peer.next, &[]);
    ends(&first);
    ends(&second);
    let full = |world: &World| world.counter(1, "drop_tcp_accept_queue_full");
    assert_eq!((depths(&world), full(&world)), ((1, 1), 1));
    world.segment(&first, Flags::ACK, first.next, b"text");
    assert_eq!(full(&world), 1);
    let (accepted, from) = listener.accept().unwrap();
    assert_eq!(
        (from.port(), receive(&accepted)),
        (5000, Ok(b"text".to_vec()))
    );
    ends(&second);
    assert_eq!((depths(&world), full(&world)), ((1, 0), 1));
    assert_eq!(listener.accept().unwrap().1.port(), 5001);
}
