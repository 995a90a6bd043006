//! What a shard tells of itself, and what it knows of others.

use std::time::Duration;

use super::*;
use crate::{
    limits,
    shard::peers::Peers,
    socket::{Multicast, SocketOption},
};

fn rows(world: &World, what: &str) -> Vec<[u64; 3]> {
    let rows = world.nets[1].show("memory").unwrap();
    let rows = rows.as_array().unwrap().iter();
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().unwrap();
    let its = |row: &&serde_json::Value| row["what"] == what && row["of"] == "shard 0";
    rows.filter(its)
        .map(|row| ["free", "all", "each_bytes"].map(|name| number(row, name)))
        .collect()
}

/// `netchan show memory`: what is in use is not free, and is again once it was read.
#[test]
fn memory_in_use_is_not_free() {
    let world = World::new();
    let (client, server) = world.connection();
    let whats = ["transmit buffers", "segment nodes", "shelf"];
    let before = whats.map(|what| rows(&world, what));
    let counts = before.each_ref().map(Vec::len);
    assert_eq!(counts, [1, 1, 3]);
    assert!(
        before
            .iter()
            .flatten()
            .all(|&[free, all, _]| free > 1 && free <= all)
    );
    let sizes: Vec<u64> = before[2].iter().map(|row| row[2]).collect();
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    assert!(before[0][0][2] >= 1500, "a packet of the link fits");
    assert_eq!(before[1][0][0], before[1][0][1], "no segment waits");
    for _ in 0..20 {
        send(&client, &[7; 100], None).unwrap();
        world.pass(1);
    }
    world.pass(100);
    let free = |what| rows(&world, what).iter().map(|row| row[0]).sum::<u64>();
    let was = |of: usize| before[of].iter().map(|row| row[0]).sum::<u64>();
    assert!(free("segment nodes") < was(1));
    assert_eq!(receive(&server).unwrap().len(), 2000);
    world.pass(100);
    assert_eq!((free("segment nodes"), free("shelf")), (was(1), was(2)));
}

/// Of two peers that share a place each has its own route and address.
#[test]
fn peers_at_one_place_are_not_taken_for_each_other() {
    let world = World::new();
    let (v4, v6) = (to("10.0.0.2:80"), to("[fd77::2]:80"));
    world.shard(0, |shard, _| {
        let mut peers = Peers::new();
        for remote in [v4, v6, v4, v4, v6] {
            let found = peers.get(&shard.host, remote, None, (None, 0)).unwrap();
            let ours: IpAddr = if remote == v4 { "10.0.0.1" } else { "fd77::1" }
                .parse()
                .unwrap();
            assert_eq!((found.source, found.interface), (ours, 0));
        }
        // From another address of ours, which no other entry takes over.
        let other = Some("10.0.0.3".parse().unwrap());
        let found = peers.get(&shard.host, v4, other, (None, 0)).unwrap();
        assert_eq!(Some(found.source), other);
        let usual = peers.get(&shard.host, v4, None, (None, 0)).unwrap();
        assert_eq!(usual.source, IpAddr::from([10, 0, 0, 1]));
        assert!(
            peers
                .get(&shard.host, to("192.0.2.1:80"), None, (None, 0))
                .is_none()
        );
    });
}

/// What was known of peers goes with the addresses by which they were reached.
#[test]
fn another_address_is_used_once_one_is_gone() {
    let world = World::new();
    let ours = |world: &World| {
        let client = world.socket(0, Kind::Stream);
        let _ = client.connect(to("10.0.0.2:80"));
        client.local_address().ip()
    };
    assert_eq!(ours(&world), IpAddr::from([10, 0, 0, 1]));
    let host = &world.nets[0].stack().control.host;
    let gone = host.change_network(|net| net.remove_address(0, [10, 0, 0, 1].into()));
    gone.unwrap();
    world.settle();
    assert_eq!(ours(&world), IpAddr::from([10, 0, 0, 3]));
}

/// Output that finds no buffer is looked at again soon, and leaves once there is one.
#[test]
fn output_without_a_buffer_waits_for_one() {
    let world = World::new();
    let (client, server) = world.connection();
    world.pass(500);
    let next = |world: &World| world.shard(0, |shard, now| shard.next_timer(now).since(now));
    assert!(next(&world) > limits::BUFFER_RETRY);
    let taken = world.shard(0, |shard, _| {
        std::iter::from_fn(|| shard.slab.alloc()).collect::<Vec<_>>()
    });
    send(&client, b"text", None).unwrap();
    assert_eq!(next(&world), limits::BUFFER_RETRY);
    world.pass(10);
    assert_eq!(receive(&server), Err(libc::EAGAIN));
    world.shard(0, |shard, _| {
        taken.into_iter().for_each(|b| shard.slab.free(b))
    });
    world.pass(2);
    assert_eq!(receive(&server), Ok(b"text".to_vec()));
    world.pass(500);
    assert!(next(&world) > limits::BUFFER_RETRY);
}

/// Bytes that are not read yet, and one for the end.
#[test]
fn what_is_unread_is_counted() {
    let world = World::new();
    let (client, server) = world.connection();
    assert_eq!(server.unread(), 0);
    send(&client, b"text", None).unwrap();
    world.pass(1);
    assert_eq!(server.unread(), 4);
    drop(client);
    world.pass(1);
    assert_eq!(server.unread(), 5);
}

/// As Linux: an accepted connection says by which link and with how many hops its peer's SYN came.
#[test]
fn an_accepted_connection_knows_how_its_peer_came() {
    let world = World::new();
    let (client, server) = world.connection();
    let ttl = |socket: &Socket| {
        let got = socket.option(SocketOption::Multicast(Multicast::Ttl(0)));
        match got.unwrap() {
            SocketOption::Multicast(Multicast::Ttl(ttl)) => ttl,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((ttl(&client), ttl(&server)), (1, 64));
    let far = world.socket(0, Kind::Stream);
    far.set_option(SocketOption::Ttl(9)).unwrap();
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:81");
    listener.listen(8).unwrap();
    let _ = far.connect(to("10.0.0.2:81"));
    world.pass(5);
    assert_eq!(ttl(&listener.accept().unwrap().0), 9);
}

/// A call that has something already leaves the error to the next one.
#[test]
fn an_error_waits_for_the_next_call() {
    let world = World::new();
    let (client, server) = world.connection();
    let reset = SocketOption::Linger(Some(Duration::ZERO));
    let text = [std::io::IoSlice::new(b"more")];
    assert_eq!(code(client.send_rest(&text, false)), Ok(4));
    let mut room = [0; 8];
    let mut rest = || {
        let mut buffers = [std::io::IoSliceMut::new(&mut room)];
        code(client.receive_rest(&mut buffers, ReceiveFlags::default())).map(|got| got.len)
    };
    assert_eq!(rest(), Err(libc::EAGAIN));
    server.set_option(reset).unwrap();
    drop(server);
    world.pass(1);
    assert_eq!(
        (rest(), code(client.send_rest(&text, false))),
        (Ok(0), Ok(0))
    );
    assert_eq!(receive(&client), Err(libc::ECONNRESET));
    assert_eq!(code(client.send_rest(&text, false)), Err(libc::EPIPE));
}

/// RFC 1122 §4.2.3.9: a neighbour that does not answer ends a handshake soon, over both families.
#[test]
fn a_silent_neighbour_ends_a_handshake() {
    for (domain, there) in [(Domain::V4, "10.0.0.9:80"), (Domain::V6, "[fd77::9]:80")] {
        let world = World::new();
        let client = Socket::new(&world.nets[0], domain, Kind::Stream).unwrap();
        let _ = client.connect(to(there));
        world.pass(6000);
        assert_eq!(
            code(client.finish_connect()),
            Err(libc::EHOSTUNREACH),
            "{there}"
        );
    }
}

/// A shard without sockets has claimed no memory for any.
#[test]
fn a_shard_without_sockets_claims_no_memory() {
    let world = World::new();
    let claimed = |world: &World| {
        let accounts = world.nets[1].stack().sockets.memory.iter();
        accounts
            .map(|account| account.claimed())
            .collect::<Vec<_>>()
    };
    let before = claimed(&world);
    let (client, server) = world.connection();
    let reader = world.bound(1, Kind::Datagram, "10.0.0.2:700");
    send(&client, &[7; 1000], None).unwrap();
    let writer = world.socket(0, Kind::Datagram);
    send(&writer, &[7; 1000], Some(to("10.0.0.2:700"))).unwrap();
    world.pass(2);
    let during = claimed(&world);
    assert!(
        during
            .iter()
            .zip(&before)
            .all(|(during, before)| during > before)
    );
    drop((client, server, reader));
    world.pass(100);
    assert_eq!(claimed(&world), before);
}
