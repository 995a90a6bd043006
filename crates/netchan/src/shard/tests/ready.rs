//! What a socket is ready for at each moment of its life: as poll(2) says it of Linux's.

use std::{net::Shutdown, time::Duration};

use super::*;
use crate::{api::Readiness, socket::SocketOption};

fn is(socket: &Socket, what: &[Readiness]) -> bool {
    let wanted = what.iter().fold(Readiness::NONE, |all, &one| all | one);
    let ready = socket.readiness();
    if ready != wanted {
        println!("{ready:?} instead of {wanted:?}");
    }
    ready == wanted
}

use Readiness as R;

const END: [R; 2] = [R::READABLE, R::READ_HANGUP];

#[test]
fn from_the_first_syn_to_the_end() {
    let world = World::new();
    let idle = world.socket(0, Kind::Stream);
    assert!(is(&idle, &[R::WRITABLE, R::HANGUP]), "no connection");
    let opening = world.socket(0, Kind::Stream);
    let _ = opening.connect(to("10.0.0.9:80"));
    assert!(is(&opening, &[]), "SYN-SENT");
    let (client, server) = world.connection();
    assert!(is(&client, &[R::WRITABLE]) && is(&server, &[R::WRITABLE]));
    send(&client, b"text", None).unwrap();
    world.pass(1);
    assert!(is(&server, &[R::READABLE, R::WRITABLE]));
    client.shutdown(Shutdown::Write).unwrap();
    world.pass(1);
    assert!(is(&server, &[END[0], END[1], R::WRITABLE]), "CLOSE-WAIT");
    assert!(
        is(&client, &[R::WRITABLE]),
        "FIN-WAIT-2: a write fails at once"
    );
    assert_eq!(receive(&server), Ok(b"text".to_vec()));
    assert_eq!(receive(&server), Ok(vec![]));
    server.shutdown(Shutdown::Write).unwrap();
    world.pass(1);
    let over = [END[0], END[1], R::WRITABLE, R::HANGUP];
    assert!(is(&client, &over) && is(&server, &over));
}

/// shutdown(SHUT_RD) alone ends reading, not the connection.
#[test]
fn reading_that_was_shut_down_is_at_its_end() {
    let world = World::new();
    let (client, server) = world.connection();
    client.shutdown(Shutdown::Read).unwrap();
    assert!(is(&client, &[END[0], END[1], R::WRITABLE]));
    assert_eq!(receive(&client), Ok(vec![]));
    assert!(is(&server, &[R::WRITABLE]));
    client.shutdown(Shutdown::Write).unwrap();
    assert!(is(&client, &[END[0], END[1], R::WRITABLE, R::HANGUP]));
}

#[test]
fn a_reset_is_an_error_once() {
    let world = World::new();
    let (client, server) = world.connection();
    server
        .set_option(SocketOption::Linger(Some(Duration::ZERO)))
        .unwrap();
    drop(server);
    world.pass(1);
    let all = [END[0], END[1], R::WRITABLE, R::HANGUP];
    assert!(is(&client, &[&all[..], &[R::ERROR]].concat()));
    assert_eq!(receive(&client), Err(libc::ECONNRESET));
    assert!(is(&client, &all));
    assert_eq!(receive(&client), Ok(vec![]));
    assert_eq!(send(&client, b"x", None), Err(libc::EPIPE));
}

/// As Linux: writable again once a third of a full buffer is free, and no earlier.
#[test]
fn a_full_buffer_is_writable_once_a_third_is_free() {
    let world = World::new();
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(8).unwrap();
    let (mut peer, server) = world.opens(&listener, 4000);
    server.set_option(SocketOption::SendBuffer(30_000)).unwrap();
    while send(&server, &[7; 1000], None).is_ok() {}
    assert!(is(&server, &[]));
    let limit = server.unacknowledged();
    let mut seen = [0; 2];
    while server.unacknowledged() > 0 {
        peer.acked = peer.acked + 500;
        world.segment(&peer, Flags::ACK, peer.next, &[]);
        world.settle();
        let queued = server.unacknowledged();
        let writable = server.readiness().contains(R::WRITABLE);
        assert_eq!(writable, limit - queued > queued / 2, "{queued} of {limit}");
        seen[usize::from(writable)] += 1;
    }
    assert!(seen.iter().all(|&times| times > 10), "{seen:?}");
}

/// TCP_NOTSENT_LOWAT, as Linux: writable as soon as anything may be added.
#[test]
fn with_a_limit_for_what_is_unsent_less_makes_writable() {
    let world = World::new();
    let (client, server) = world.connection();
    let low = SocketOption::UnsentLowWater(5000);
    client.set_option(low).unwrap();
    while send(&client, &[7; 1000], None).is_ok() {}
    assert!(is(&client, &[]));
    let unsent = |world: &World| {
        world.shard(0, |shard, _| {
            let (_, socket) = shard.connections().next().unwrap();
            socket.connection.unsent()
        })
    };
    assert!(unsent(&world) >= 5000);
    for _ in 0..100 {
        let writable = client.readiness().contains(R::WRITABLE);
        assert_eq!(writable, unsent(&world) < 5000);
        let _ = receive(&server);
        world.pass(5);
    }
    assert_eq!(unsent(&world), 0);
}

/// SO_RCVLOWAT: readable with so much, or at the end; a read waits for as much, too, or for as much as it has room for.
#[test]
fn a_low_water_mark_is_waited_for() {
    let world = World::new();
    let (client, server) = world.connection();
    server
        .set_option(SocketOption::ReceiveLowWater(10))
        .unwrap();
    let (bell, waker) = Bell::new();
    server.register(R::READABLE, &waker);
    send(&client, b"123456789", None).unwrap();
    world.pass(1);
    assert!(is(&server, &[R::WRITABLE]) && bell.rang() == 0);
    send(&client, b"0", None).unwrap();
    world.pass(1);
    assert!(is(&server, &[R::READABLE, R::WRITABLE]));
    assert_eq!(bell.rang(), 1);
    assert_eq!(receive(&server), Ok(b"1234567890".to_vec()));
    // Less, and then the end.
    send(&client, b"abc", None).unwrap();
    world.pass(1);
    assert!(is(&server, &[R::WRITABLE]));
    drop(client);
    world.pass(1);
    assert!(is(&server, &[END[0], END[1], R::WRITABLE]));
    assert_eq!(receive(&server), Ok(b"abc".to_vec()));
}

/// A listener is readable while a connection waits, and hung up once it hears no more.
#[test]
fn a_listener_is_ready_for_accept() {
    let world = World::new();
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:80");
    listener.listen(8).unwrap();
    assert!(is(&listener, &[]));
    let client = world.socket(0, Kind::Stream);
    let _ = client.connect(to("10.0.0.2:80"));
    world.pass(5);
    assert!(is(&listener, &[R::READABLE]));
    assert!(listener.accept().is_ok() && is(&listener, &[]));
    let number = world.shard(1, |shard, _| shard.listeners().next().unwrap().0);
    let ready = |world: &World| world.shard(1, |shard, _| shard.listener_readiness(number));
    world.shard(1, |shard, now| shard.shut_listener(number, now));
    assert_eq!(ready(&world), R::HANGUP | R::WRITABLE);
    world.shard(1, |shard, now| shard.close_listener(number, now));
    assert_eq!(ready(&world), R::HANGUP);
}
