//! What gives way when memory is short: the text behind gaps of the connection with most of it, and which sockets are told when there is memory again.

use proto::wire::tcp::Flags;

use super::Shard;
use crate::{
    shard::tests::{Bell, Paper, World, receive, send, to},
    socket::{Kind, Readiness, Socket, SocketOption},
};

/// Peers with so many pieces behind a gap each, and the second host's connections to them.
fn holders(world: &World, pieces: &[u32]) -> (Socket, Vec<(Paper, Socket, u32)>) {
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(64).unwrap();
    let all = (3000..).zip(pieces).map(|(port, &pieces)| {
        let (peer, socket) = world.opens(&listener, port);
        for piece in 0..pieces {
            let seq = peer.next + 1000 + 2000 * piece;
            world.segment(&peer, Flags::ACK, seq, &[7; 1000]);
        }
        let number = world.number_of(port);
        assert_eq!(gaps(world, number), pieces);
        (peer, socket, number)
    });
    let all = all.collect();
    (listener, all)
}

fn gaps(world: &World, number: u32) -> u32 {
    world.shard(1, |shard, _| {
        shard.tcp(number).map_or(0, |s| s.receive.gaps())
    })
}

/// How many pieces each lost, when a packet of this connection made room for itself.
fn lost(world: &World, of: &[u32], number: u32, is_behind: bool) -> Vec<u32> {
    let held = || -> Vec<u32> { of.iter().map(|&n| gaps(world, n)).collect() };
    let before = held();
    world.shard(1, |shard, _| shard.prune_worst(number, is_behind, 100));
    world.settle();
    before.iter().zip(held()).map(|(b, a)| b - a).collect()
}

fn pruned(world: &World) -> u64 {
    world.counter(1, "drop_tcp_pruned")
}

#[test]
fn the_holder_of_most_behind_gaps_gives_way() {
    let world = World::new();
    let (_listener, peers) = holders(&world, &[3, 8, 5, 0]);
    let numbers: Vec<u32> = peers.iter().map(|(_, _, number)| *number).collect();
    // For text in order of one that holds nothing.
    let gone = lost(&world, &numbers, numbers[3], false);
    assert_eq!(gone, [0, 1, 0, 0], "no more than it takes");
    assert_eq!(pruned(&world), u64::from(gone[1]));
    // Its own rules are for the one that holds most.
    let (_listener, world) = (_listener, World::new());
    let (_other, peers) = holders(&world, &[3, 8, 5, 0]);
    let numbers: Vec<u32> = peers.iter().map(|(_, _, number)| *number).collect();
    for is_behind in [false, true] {
        assert_eq!(lost(&world, &numbers, numbers[1], is_behind), [0; 4]);
    }
    // Text behind a gap of one that holds less.
    let gone = lost(&world, &numbers, numbers[0], true);
    assert_eq!(gone, [0, 1, 0, 0]);
}

/// Text behind a gap does not take the place of what another one has as little of.
#[test]
fn a_holder_of_as_little_keeps_it() {
    let world = World::new();
    let (_listener, peers) = holders(&world, &[4, 4]);
    let numbers: Vec<u32> = peers.iter().map(|(_, _, number)| *number).collect();
    for number in &numbers {
        assert_eq!(lost(&world, &numbers, *number, true), [0; 2]);
    }
    assert_eq!(pruned(&world), 0);
}

/// One that was reset, or whose gaps were filled, is passed over: the next one gives way.
#[test]
fn what_is_known_of_holders_is_looked_at_again() {
    for is_reset in [true, false] {
        let world = World::new();
        let (_listener, mut peers) = holders(&world, &[3, 0, 9]);
        let (peer, socket, _) = peers.pop().unwrap();
        if is_reset {
            world.segment(&peer, Flags::RST, peer.next, &[]);
            drop(socket);
        } else {
            for piece in 0..9 {
                let seq = peer.next + 2000 * piece;
                world.segment(&peer, Flags::ACK, seq, &[7; 1000]);
            }
            while receive(&socket).is_ok_and(|t| !t.is_empty()) {}
        }
        let numbers: Vec<u32> = peers.iter().map(|(_, _, number)| *number).collect();
        let gone = lost(&world, &[numbers[0]], numbers[1], false);
        assert!(gone[0] > 0, "reset {is_reset}");
    }
}

/// A connection that is not on the list is found by the hand that goes round.
#[test]
fn a_holder_that_is_not_listed_is_found() {
    let world = World::new();
    let (_listener, peers) = holders(&world, &[6, 0]);
    let numbers: Vec<u32> = peers.iter().map(|(_, _, number)| *number).collect();
    world.shard(1, |shard, _| {
        let places = shard.tcp.places();
        shard.memory.behind = super::behind::Holders::default();
        assert!(places < 32, "one look passes all");
    });
    let gone = lost(&world, &numbers, numbers[1], false);
    assert!(gone[0] > 0);
}

fn waits(shard: &Shard, number: u32) -> bool {
    shard.tcp(number).unwrap().waits_for_memory
}

/// A connection that waits for memory is told within two ticks of there being some, whatever its own timers do.
#[test]
fn a_waiter_for_memory_is_told_soon() {
    let world = World::new();
    let (client, _server) = world.connection();
    world.pass(500); // nothing is under way
    let (bell, waker) = Bell::new();
    client.register(Readiness::READABLE, &waker);
    let number = world.shard(0, |shard, _| {
        let number = shard.connections().next().unwrap().0;
        for _ in 0..2 {
            shard.wait_for_memory(number);
            assert!(waits(shard, number) && shard.timers.is_armed(number));
            shard.check(); // it is on the list, once
        }
        number
    });
    world.pass(2);
    assert!(!world.shard(0, |shard, _| waits(shard, number)));
    assert_eq!(bell.rang(), 0, "it waits for text, not for room");
    client.deregister(&waker);
    assert_eq!(send(&client, b"x", None), Ok(1));
}

/// Memory that datagrams gave back is another's; what is refused has a reason, and is not claimed for good.
#[test]
fn datagrams_beyond_their_memory_are_refused_with_a_reason() {
    let few = 256 << 10;
    let world = World::with(|builder| builder.udp_memory(few).udp_shares(few, few));
    let reader = world.bound(1, Kind::Datagram, "10.0.0.2:700");
    let room = SocketOption::ReceiveBuffer(8 << 20);
    reader.set_option(room).unwrap();
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let there = Some(to("10.0.0.2:700"));
    let mut counts = Vec::new();
    for _ in 0..3 {
        for _ in 0..400 {
            send(&writer, &[7; 1400], there).unwrap();
            world.nets.iter().for_each(|net| _ = net.poll());
        }
        world.settle();
        let held = world.shard(1, |shard, _| shard.memory_held()[1]);
        assert!(held > few as u64 / 2 && held <= few as u64, "{held}");
        let next = || receive(&reader).ok();
        counts.push(std::iter::from_fn(next).count());
        world.settle();
        assert_eq!(world.shard(1, |shard, _| shard.memory_held()[1]), 0);
    }
    assert!(counts[0] > 50 && counts == [counts[0]; 3], "{counts:?}");
    let refused: u64 = [
        "drop_udp_memory_limit",
        "drop_udp_socket_share",
        "drop_udp_peer_share",
    ]
    .into_iter()
    .map(|name| world.counter(1, name))
    .sum();
    assert_eq!(refused, 1200 - 3 * counts[0] as u64);
}

/// However many connections there are, the hand that goes round comes to all of them.
#[test]
fn the_hand_goes_all_the_way_round() {
    let world = World::new();
    let mut pieces = [0; 90];
    pieces[80] = 6;
    let (_listener, peers) = holders(&world, &pieces);
    let numbers: Vec<u32> = peers.iter().map(|(_, _, number)| *number).collect();
    let forget = |world: &World| {
        world.shard(1, |shard, _| {
            shard.memory.behind = super::behind::Holders::default();
            shard.tcp.places()
        })
    };
    assert!(forget(&world) >= 90);
    let looks = (0..8).take_while(|_| lost(&world, &[numbers[80]], numbers[1], false) == [0]);
    assert!((1..4).contains(&looks.count()), "not in the first look");
}
