//! What an idle connection takes, part by part, so that none of them grows unnoticed. `netchan lab run tcp` measures the whole.

use std::io::IoSlice;

use crate::{
    Net, Threads,
    link::wire,
    shard::{table::Table, tcp::TcpSocket, timer::Wheel},
    socket::{Domain, Kind, Socket, SocketOption},
};

/// A connection without text under way or waiting has nothing on the heap: its place in the shard's table, its timer's node, its entry in the
/// table of flows, which is at least 7/16 full before it grows, with a byte of its own for each place; and the application's handle.
#[test]
fn an_idle_connection_is_small() {
    let place = Table::<TcpSocket>::SLOT;
    let (node, handle) = (Wheel::NODE, size_of::<Socket>());
    let flow = (size_of::<u32>() + 1) * 16_usize.div_ceil(7);
    let whole = place + node + flow + handle;
    println!("idle: {place} + {node} + {flow} + {handle} = {whole} bytes");
    assert_eq!((node, flow), (16, 15));
    assert!(handle <= 120 && place <= 840, "{place}, {handle}");
}

fn host(wire: wire::Wire, address: &str) -> Net {
    let builder = Net::builder().threads(Threads::Caller);
    let builder = builder.link_with(Box::new(wire)).address(address).unwrap();
    builder.start().unwrap()
}

/// What streams hold in the first shard: as the account says, their text, and the records of what they sent.
fn held(net: &Net) -> (u64, u64, u64) {
    net.stack().with_shard(0, |shard, _| {
        shard.check_memory();
        let text = shard
            .tcp
            .iter()
            .map(|(_, s)| s.send.len() as u64 + u64::from(s.receive.memory()));
        let records = shard.tcp.iter().map(|(_, s)| u64::from(s.records));
        let (text, records) = (text.sum(), records.sum());
        (shard.memory_held()[0], text, records)
    })
}

/// The records of what was sent are memory that a peer makes us hold: they are counted as such, with its socket's and its peer's share, and
/// given back with the connection, also if the program keeps that.
#[test]
fn records_of_what_was_sent_are_charged() {
    let (first, second) = wire::pair(&wire::Options::default());
    let (ours, theirs) = (host(first, "10.0.0.1/24"), host(second, "10.0.0.2/24"));
    let listener = Socket::new(&theirs, Domain::V4, Kind::Stream).unwrap();
    listener.bind("10.0.0.2:80".parse().unwrap()).unwrap();
    listener.listen(1).unwrap();
    let socket = Socket::new(&ours, Domain::V4, Kind::Stream).unwrap();
    socket.set_option(SocketOption::NoDelay(true)).unwrap();
    let _ = socket.connect("10.0.0.2:80".parse().unwrap());
    for _ in 0..10 {
        ours.poll();
        theirs.poll();
    }
    assert_eq!(held(&ours), (0, 0, 0), "an idle connection has none");
    // The peer is not turned: nothing is acknowledged.
    for n in 1..=10 {
        socket.send(&[IoSlice::new(b"x")], None).unwrap();
        ours.poll();
        let (all, text, records) = held(&ours);
        assert_eq!((all, text), (text + records, n));
        assert!(
            (32 * n..=2 * 32 * n + 128).contains(&records),
            "{records} for {n}"
        );
    }
    for _ in 0..10 {
        ours.poll();
        theirs.poll();
    }
    let (all, text, records) = held(&ours);
    assert_eq!(
        (all, text),
        (records, 0),
        "what is kept for the next flight stays counted"
    );
    let (server, _) = listener.accept().unwrap();
    let at_once = SocketOption::Linger(Some(std::time::Duration::ZERO));
    server.set_option(at_once).unwrap();
    drop(server);
    for _ in 0..10 {
        theirs.poll();
        ours.poll();
    }
    assert_eq!(held(&ours), (0, 0, 0), "reset, and not closed yet");
    drop(socket);
}
