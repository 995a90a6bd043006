//! How many datagrams wait for a reader that is late: SO_RCVBUF says it, and what is dropped is counted.

use std::io::IoSlice;

use netchan::{
    Regime,
    link::wire,
    socket::{Kind, Socket, SocketOption},
};

use super::{SERVER, World, code, receive};

/// A datagram's own bytes beside its payload, against twice SO_RCVBUF.
const OVERHEAD: usize = 512;

/// Eight shards share the few buffers of a link with a large MTU.
fn world() -> World {
    let options = wire::Options {
        mtu: 65_535,
        ..wire::Options::default()
    };
    World::over(&options, |builder| builder.regime(Regime::Locked).shards(8))
}

/// A bound socket, and one that sends to it.
fn sockets(world: &World) -> [Socket; 2] {
    let [reader, writer] = [1, 0].map(|at| world.socket(at, Kind::Datagram));
    reader.bind(SERVER.into()).unwrap();
    [reader, writer]
}

fn send_many(world: &World, writer: &Socket, count: usize, len: usize) {
    let payload = vec![7; len];
    for _ in 0..count {
        let sent = writer.send(&[IoSlice::new(&payload)], Some(SERVER.into()));
        assert_eq!(code(sent), Ok(len));
        world.settle();
    }
}

fn read_all(reader: &Socket, len: usize) -> usize {
    let read = || receive(reader, 65_535).ok().map(|got| got.len() == len);
    std::iter::from_fn(read)
        .inspect(|whole| assert!(whole))
        .count()
}

fn dropped(world: &World, name: &str) -> u64 {
    let rows = world.nets[1].show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).unwrap();
    row["value"].as_u64().unwrap()
}

/// Each shard's share of the buffers is no limit of its own: it was, and ended this queue at 48.
#[test]
fn a_late_reader_finds_what_the_receive_buffer_holds() {
    let world = world();
    let [reader, writer] = sockets(&world);
    send_many(&world, &writer, 200, 100);
    assert_eq!(dropped(&world, "drop_udp_queue_full"), 0);
    assert_eq!(read_all(&reader, 100), 200);
}

#[test]
fn datagrams_beyond_so_rcvbuf_are_dropped_and_counted() {
    let world = world();
    let [reader, writer] = sockets(&world);
    for (buffer, len) in [(4096, 100), (65_536, 0), (16_384, 1400), (1152, 9000)] {
        let before = dropped(&world, "drop_udp_queue_full");
        reader
            .set_option(SocketOption::ReceiveBuffer(buffer))
            .unwrap();
        send_many(&world, &writer, 300, len);
        // The first one always, however long.
        let kept = (2 * buffer / (len + OVERHEAD)).max(1);
        assert_eq!(read_all(&reader, len), kept, "{buffer} bytes");
        let dropped = dropped(&world, "drop_udp_queue_full") - before;
        assert_eq!(dropped, 300 - kept as u64, "{buffer} bytes");
    }
}

/// Set before bind(2), too; and a smaller one takes nothing away that waits.
#[test]
fn so_rcvbuf_counts_from_the_beginning() {
    let world = world();
    let [reader, writer] = [1, 0].map(|at| world.socket(at, Kind::Datagram));
    reader
        .set_option(SocketOption::ReceiveBuffer(8192))
        .unwrap();
    reader.bind(SERVER.into()).unwrap();
    send_many(&world, &writer, 50, 512);
    reader
        .set_option(SocketOption::ReceiveBuffer(1152))
        .unwrap();
    assert_eq!(read_all(&reader, 512), 16);
    send_many(&world, &writer, 50, 512);
    assert_eq!(read_all(&reader, 512), 2);
}
