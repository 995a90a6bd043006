//! A port that a connection has, or had a moment ago, is not given away.

use std::time::Duration;

use super::*;
use crate::{api::binding::BindRequest, socket::SocketOption};

fn request(address: SocketAddr) -> BindRequest {
    BindRequest {
        kind: Kind::Stream,
        address,
        v6_only: false,
        mapped: false,
        reuse_address: false,
        reuse_port: false,
        device: None,
        lease: None,
        user: None,
    }
}

fn stands(world: &World, request: &BindRequest) -> bool {
    world.shard(0, |shard, _| shard.stands_against(request))
}

/// A connection from the first host, whose socket has said this of sharing its port: both ends, and the port.
fn connected(world: &World, [address, port]: [bool; 2]) -> (Socket, Socket, u16) {
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(8).unwrap();
    let client = world.socket(0, Kind::Stream);
    client
        .set_option(SocketOption::ReuseAddress(address))
        .unwrap();
    client.set_option(SocketOption::ReusePort(port)).unwrap();
    let _ = client.connect(to("10.0.0.2:80"));
    world.pass(5);
    let (server, _) = listener.accept().unwrap();
    let ours = client.local_address().port();
    (client, server, ours)
}

const BOTH: [bool; 2] = [false, true];

/// As Linux: sockets may share a port where both have said so, by SO_REUSEADDR or by SO_REUSEPORT; while one is in TIME-WAIT, too.
#[test]
fn a_port_is_shared_where_both_say_so() {
    for ours in BOTH.map(|a| BOTH.map(|p| [a, p])).concat() {
        let world = World::new();
        let (client, server, port) = connected(&world, ours);
        let check = |when: &str| {
            for theirs in BOTH.map(|a| BOTH.map(|p| [a, p])).concat() {
                let wanted = BindRequest {
                    reuse_address: theirs[0],
                    reuse_port: theirs[1],
                    ..request(SocketAddr::new([10, 0, 0, 1].into(), port))
                };
                let shared = (ours[0] && theirs[0]) || (ours[1] && theirs[1]);
                assert_eq!(
                    stands(&world, &wanted),
                    !shared,
                    "{when} {ours:?} {theirs:?}"
                );
            }
        };
        check("open");
        drop(client);
        world.pass(2);
        drop(server);
        world.pass(2);
        assert_eq!(world.shard(0, |shard, _| shard.time_waits().count()), 1);
        check("TIME-WAIT");
    }
}

/// Another port, and an address that it does not take in, are free.
#[test]
fn a_connection_stands_against_its_own_address() {
    let world = World::new();
    let (client, server, port) = connected(&world, [false; 2]);
    let check = |when: &str| {
        for (address, is_taken) in [
            (SocketAddr::new([10, 0, 0, 1].into(), port), true),
            (SocketAddr::new([0, 0, 0, 0].into(), port), true),
            (SocketAddr::new("::".parse().unwrap(), port), true),
            (SocketAddr::new([10, 0, 0, 3].into(), port), false),
            (SocketAddr::new([10, 0, 0, 1].into(), port ^ 1), false),
        ] {
            assert_eq!(
                stands(&world, &request(address)),
                is_taken,
                "{when} {address}"
            );
        }
    };
    check("open");
    // Another connection, with a port of its own, which stands against that alone.
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:81");
    listener.listen(8).unwrap();
    let other = world.bound(0, Kind::Stream, &format!("10.0.0.3:{}", port ^ 1));
    let _ = other.connect(to("10.0.0.2:81"));
    world.pass(5);
    check("open, beside another");
    drop(client);
    world.pass(2);
    drop(server);
    world.pass(2);
    check("TIME-WAIT");
    // And after it nothing does.
    world.clock.advance(Duration::from_secs(61));
    world.settle();
    let again = request(SocketAddr::new([10, 0, 0, 1].into(), port));
    assert!(!stands(&world, &again));
}

/// As Linux: IPv4's wildcard takes in IPv6's addresses, too, but not those of a socket that is for IPv6 alone.
#[test]
fn a_socket_of_ipv6_alone_leaves_ipv4s_wildcard() {
    for v6_only in BOTH {
        let world = World::new();
        let listener = Socket::new(&world.nets[1], Domain::V6, Kind::Stream).unwrap();
        listener.bind(to("[fd77::2]:80")).unwrap();
        listener.listen(8).unwrap();
        let client = Socket::new(&world.nets[0], Domain::V6, Kind::Stream).unwrap();
        client.set_option(SocketOption::V6Only(v6_only)).unwrap();
        let _ = client.connect(to("[fd77::2]:80"));
        world.pass(5);
        let port = client.local_address().port();
        let wildcard = |ip: &str| request(SocketAddr::new(ip.parse().unwrap(), port));
        assert_eq!(stands(&world, &wildcard("0.0.0.0")), !v6_only);
        assert!(stands(&world, &wildcard("::")));
        // Closed, it stands as it did.
        drop(client);
        world.pass(2);
        drop(listener.accept().unwrap());
        world.pass(2);
        assert_eq!(world.shard(0, |shard, _| shard.time_waits().count()), 1);
        assert_eq!(stands(&world, &wildcard("0.0.0.0")), !v6_only);
    }
}

/// RFC 9293 §3.6.1 and §3.10.7.4: 2 MSL from the last FIN; one that comes again begins them anew.
#[test]
fn time_wait_lasts_two_msl_from_the_last_fin() {
    let world = World::new();
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(8).unwrap();
    let waits = |world: &World| world.shard(1, |shard, _| shard.time_waits().count());
    let after = |world: &World, ms: u64| {
        world.clock.advance(Duration::from_millis(ms));
        world.settle();
        waits(world)
    };
    let (mut peer, socket) = world.opens(&listener, 4000);
    drop(socket);
    world.settle();
    peer.acked = peer.acked + 1;
    world.segment(&peer, Flags::ACK | Flags::FIN, peer.next, &[]);
    world.settle();
    assert_eq!(waits(&world), 1);
    assert_eq!(after(&world, 30_000), 1);
    world.segment(&peer, Flags::ACK | Flags::FIN, peer.next, &[]);
    world.settle();
    assert_eq!(after(&world, 30_000), 1, "60 s from the first FIN");
    assert_eq!(after(&world, 29_999), 1);
    // To the tick: its time is asked for, and then it is over.
    let due = world.shard(1, |shard, _| shard.time_waits.next());
    assert!(due <= world.clock.now() + Duration::from_millis(2));
    world.clock.advance_to(due);
    world.settle();
    assert_eq!(waits(&world), 0);
}

/// Of very many that end at once each turn takes some; what is left is due at once.
#[test]
fn many_that_end_at_once_take_several_turns() {
    let world = World::new();
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(300).unwrap();
    for port in 5000..5200 {
        let (mut peer, socket) = world.opens(&listener, port);
        drop(socket);
        peer.acked = peer.acked + 1;
        world.segment(&peer, Flags::ACK | Flags::FIN, peer.next, &[]);
    }
    world.settle();
    let left = |world: &World| world.shard(1, |shard, _| shard.time_waits().count());
    assert_eq!(left(&world), 200);
    world.clock.advance(Duration::from_secs(61));
    let now = world.clock.now();
    let turn = |shard: &mut Shard, now| {
        shard.expire_time_waits(now);
        (shard.time_waits().count(), shard.time_waits.next() <= now)
    };
    let turns: Vec<_> = (0..4)
        .map(|_| {
            world.nets[1]
                .stack()
                .with_shard(0, |shard, _| turn(shard, now))
        })
        .collect();
    assert!(
        turns
            .iter()
            .rev()
            .skip(1)
            .all(|(left, due)| *due == (*left > 0)),
        "{turns:?}"
    );
    world.settle();
    assert_eq!(left(&world), 0);
}

/// What an open connection says of sharing its port counts from then on.
#[test]
fn a_connection_may_change_its_mind() {
    let world = World::new();
    let (client, _server, port) = connected(&world, [false; 2]);
    let wanted = BindRequest {
        reuse_address: true,
        ..request(SocketAddr::new([10, 0, 0, 1].into(), port))
    };
    assert!(stands(&world, &wanted));
    client.set_option(SocketOption::ReuseAddress(true)).unwrap();
    assert!(!stands(&world, &wanted));
}

/// As Linux: a socket that binds the port of a connection that is in TIME-WAIT, with timestamps, may connect to the same peer at once.
#[test]
fn a_bound_port_connects_again_out_of_time_wait() {
    let world = World::new();
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(8).unwrap();
    let begin = |address: &str| {
        let client = world.socket(0, Kind::Stream);
        client.set_option(SocketOption::ReuseAddress(true)).unwrap();
        client.bind(to(address)).unwrap();
        let begun = code(client.connect(to("10.0.0.2:80")));
        (client, begun)
    };
    let (client, begun) = begin("10.0.0.1:7000");
    assert_eq!(begun, Err(libc::EINPROGRESS));
    world.pass(5);
    let (server, _) = listener.accept().unwrap();
    // While it is open, no other socket has it.
    assert_eq!(begin("10.0.0.1:7000").1, Err(libc::EADDRNOTAVAIL));
    drop(client);
    world.pass(2);
    drop(server);
    world.pass(20);
    assert_eq!(world.shard(0, |shard, _| shard.time_waits().count()), 1);
    let (client, begun) = begin("10.0.0.1:7000");
    assert_eq!(begun, Err(libc::EINPROGRESS));
    assert_eq!(world.shard(0, |shard, _| shard.time_waits().count()), 0);
    world.pass(5);
    let (server, _) = listener.accept().unwrap();
    assert_eq!(send(&client, b"again", None), Ok(5));
    world.pass(1);
    assert_eq!(receive(&server), Ok(b"again".to_vec()));
}
