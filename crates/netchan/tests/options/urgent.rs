//! Urgent data as BSD's sockets have it (RFC 6093 §3.1, RFC 9293 MUST-30, MUST-31, MUST-33, MUST-62).

use std::{io::IoSlice, time::Duration};

use netchan::{
    link::wire::{self, Probability},
    socket::{Kind, Readiness, ReceiveFlags, Socket, SocketOption},
};
use proto::tcp::Config;

use super::{World, code, is_readable, receive, receive_with, send, server as address};

const URGENT: ReceiveFlags = ReceiveFlags {
    urgent: true,
    peek: false,
    truncate: false,
    enough: false,
};
const PEEK: ReceiveFlags = ReceiveFlags {
    peek: true,
    ..URGENT
};

fn send_urgent(socket: &Socket, bytes: &[u8]) -> Result<usize, i32> {
    code(socket.send_urgent(&[IoSlice::new(bytes)]))
}

/// A connection over which "abc" came, its last byte urgent, and "def" behind it.
fn with_a_mark(inline: bool) -> (World, Socket, Socket) {
    let world = World::plain();
    let (client, server) = world.pair(&[SocketOption::NoDelay(true)]);
    server
        .set_option(SocketOption::UrgentInline(inline))
        .unwrap();
    assert_eq!(
        code(server.receive(&mut [], URGENT)).err(),
        Some(libc::EINVAL)
    );
    assert_eq!(send_urgent(&client, b"abc"), Ok(3));
    world.settle();
    assert_eq!(send(&client, b"def"), Ok(3));
    world.settle();
    (world, client, server)
}

#[test]
fn the_urgent_byte_is_out_of_line() {
    let (_world, _client, server) = with_a_mark(false);
    assert!(server.readiness().contains(Readiness::PRIORITY));
    assert_eq!(server.available(), 2, "up to the mark");
    assert!(!server.is_at_mark());
    assert_eq!(receive_with(&server, 10, PEEK), Ok(b"c".to_vec()));
    assert_eq!(receive_with(&server, 10, URGENT), Ok(b"c".to_vec()));
    assert_eq!(receive_with(&server, 10, URGENT), Err(libc::EINVAL), "once");
    assert!(!server.readiness().contains(Readiness::PRIORITY));
    assert_eq!(receive(&server, 10), Ok(b"ab".to_vec()), "reads stop at it");
    assert!(server.is_at_mark() && is_readable(&server));
    assert_eq!(
        receive(&server, 10),
        Ok(b"def".to_vec()),
        "and pass over it"
    );
    assert!(!server.is_at_mark());
    assert_eq!(receive_with(&server, 10, URGENT), Err(libc::EINVAL));
}

#[test]
fn it_is_passed_over_though_it_was_not_taken() {
    let (_world, _client, server) = with_a_mark(false);
    let peek = ReceiveFlags {
        urgent: false,
        ..PEEK
    };
    assert_eq!(receive_with(&server, 10, peek), Ok(b"ab".to_vec()));
    assert_eq!(receive(&server, 1), Ok(b"a".to_vec()));
    assert_eq!(receive(&server, 9), Ok(b"b".to_vec()));
    assert_eq!(receive_with(&server, 10, peek), Ok(b"def".to_vec()));
    assert!(server.is_at_mark(), "a look does not pass the mark");
    assert_eq!(receive(&server, 2), Ok(b"de".to_vec()));
    assert_eq!(receive(&server, 2), Ok(b"f".to_vec()));
}

#[test]
fn in_line_it_is_read_like_all_other() {
    let (_world, _client, server) = with_a_mark(true);
    assert_eq!(receive_with(&server, 10, URGENT), Err(libc::EINVAL));
    assert!(server.readiness().contains(Readiness::PRIORITY));
    assert_eq!(server.available(), 6);
    assert_eq!(
        receive(&server, 10),
        Ok(b"ab".to_vec()),
        "still to the mark"
    );
    assert!(server.is_at_mark());
    assert_eq!(receive(&server, 10), Ok(b"cdef".to_vec()));
}

#[test]
fn alone_it_makes_nothing_readable() {
    let world = World::plain();
    let (client, server) = world.pair(&[SocketOption::NoDelay(true)]);
    assert_eq!(send_urgent(&client, b"!"), Ok(1));
    world.settle();
    let ready = server.readiness();
    assert!(ready.contains(Readiness::PRIORITY) && !is_readable(&server));
    assert_eq!(receive_with(&server, 1, URGENT), Ok(b"!".to_vec()));
    assert_eq!(receive(&server, 1), Err(libc::EAGAIN));
    assert_eq!(send(&client, b"x"), Ok(1));
    world.settle();
    assert!(is_readable(&server));
    assert_eq!(receive(&server, 9), Ok(b"x".to_vec()));
}

/// A reset behind the urgent byte is an error, not the end of the stream (the differential case's seed 100019 on a veth).
#[test]
fn a_reset_behind_it_is_told() {
    for looks in [false, true] {
        let world = World::plain();
        let (client, server) = world.pair(&[SocketOption::NoDelay(true)]);
        assert_eq!(send_urgent(&client, b"ab!"), Ok(3));
        world.settle();
        assert_eq!(receive(&server, 9), Ok(b"ab".to_vec()));
        let reset = SocketOption::Linger(Some(Duration::ZERO));
        client.set_option(reset).unwrap();
        drop(client);
        world.settle();
        let flags = ReceiveFlags {
            peek: looks,
            ..ReceiveFlags::default()
        };
        let got = receive_with(&server, 9, flags);
        assert_eq!(got, Err(libc::ECONNRESET), "peek: {looks}");
        assert_eq!(receive(&server, 9), Ok(Vec::new()), "once");
    }
}

#[test]
fn a_later_mark_replaces_the_first() {
    let world = World::plain();
    let (client, server) = world.pair(&[SocketOption::NoDelay(true)]);
    assert_eq!(send_urgent(&client, b"ab"), Ok(2));
    world.settle();
    assert_eq!(receive_with(&server, 1, URGENT), Ok(b"b".to_vec()));
    assert_eq!(send_urgent(&client, b"cd"), Ok(2));
    world.settle();
    assert_eq!(receive_with(&server, 1, URGENT), Ok(b"d".to_vec()));
    assert_eq!(receive(&server, 9), Ok(b"abc".to_vec()));
}

/// The urgent byte is out of the reach of 16 bits, much is on its way, and some of that has to be sent again (RFC 9293 §3.8.5).
#[test]
fn far_ahead_it_is_the_right_one() {
    const ALL: usize = 250_000;
    let text: Vec<u8> = (0..ALL).map(|i| (i / 251 + i).to_le_bytes()[0]).collect();
    let (last, before) = text.split_last().unwrap();
    for seed in 1..=10 {
        let options = wire::Options {
            delay: Duration::from_millis(5),
            loss: Probability::new(0.03),
            seed,
            ..wire::Options::default()
        };
        let config = Config {
            initial_cwnd: 100,
            receive_buffer: 130_000,
            ..Config::default()
        };
        let world = World::over(&options, |builder| builder.tcp(config).send_buffer(1 << 20));
        let (listener, client) = (world.listener(), world.socket(0, Kind::Stream));
        assert_eq!(code(client.connect(address())), Err(libc::EINPROGRESS));
        // What the handshake loses takes seconds.
        let accepted = (0..20_000).find_map(|_| {
            world.pass(Duration::from_millis(1));
            listener.accept().ok()
        });
        let (server, _) = accepted.unwrap();
        client.connect(address()).unwrap();
        // The window is not scaled before.
        assert_eq!(send(&client, b"-"), Ok(1));
        world.pass(Duration::from_secs(2));
        assert_eq!(receive(&server, 10), Ok(b"-".to_vec()));
        // More than the window takes, so that nothing leaves while the first is sent again.
        assert_eq!(send(&client, &text[..150_000]), Ok(150_000));
        world.pass(Duration::from_millis(1));
        assert_eq!(send_urgent(&client, &text[150_000..]), Ok(100_000));
        let (mut read, mut urgent) = (0, None);
        for ms in 0..60_000 {
            world.pass(Duration::from_millis(1));
            if let Ok(byte) = receive_with(&server, 1, URGENT) {
                assert_eq!((byte, urgent), (vec![*last], None), "seed {seed}");
                urgent = Some(ms);
            }
            if ms > 1000 && read < before.len() {
                let some = receive(&server, 4000.min(before.len() - read)).unwrap_or_default();
                assert_eq!(some, before[read..][..some.len()], "seed {seed}");
                read += some.len();
            } else if urgent.is_some() {
                break;
            }
        }
        assert_eq!(
            (read, urgent.is_some()),
            (before.len(), true),
            "seed {seed}"
        );
    }
}

#[test]
fn datagrams_have_none() {
    let world = World::plain();
    let socket = world.socket(0, Kind::Datagram);
    assert_eq!(send_urgent(&socket, b"x"), Err(libc::EOPNOTSUPP));
    assert!(!socket.is_at_mark());
}
