//! What socket calls answer at the edges of a connection's life and of its buffers, and which waiters they wake.

use std::{
    io::{IoSlice, IoSliceMut},
    net::Shutdown,
};

use crate::{
    api::{Readiness, ReceiveFlags, StampRequest},
    link::wire,
    shard::tests::{Bell, World, code, receive, send, to},
    socket::{Kind, Socket, SocketOption},
};

const BLOCK: [u8; 4096] = [7; 4096];

/// Writes until no more is taken; how much was.
fn fill(socket: &Socket) -> usize {
    std::iter::from_fn(|| send(socket, &BLOCK, None).ok()).sum()
}

/// The number of the first host's only connection.
fn number(world: &World) -> u32 {
    world.shard(0, |shard, _| shard.connections().next().unwrap().0)
}

/// A larger buffer makes a full one writable: a waiter is told when it is set.
#[test]
fn a_setting_wakes_its_waiters() {
    let world = World::new();
    let (client, _server) = world.connection();
    client.set_option(SocketOption::SendBuffer(8192)).unwrap();
    fill(&client);
    let (bell, waker) = Bell::new();
    client.register(Readiness::WRITABLE, &waker);
    assert_eq!(bell.rang(), 0);
    client
        .set_option(SocketOption::SendBuffer(1 << 20))
        .unwrap();
    assert_eq!(bell.rang(), 1);
    assert!(client.readiness().contains(Readiness::WRITABLE));
}

/// A waiter that has left is not told.
#[test]
fn a_waker_that_has_left_stays_silent() {
    let world = World::new();
    let (client, server) = world.connection();
    let (bell, waker) = Bell::new();
    for (stays, rings) in [(true, 1), (false, 0)] {
        server.register(Readiness::READABLE, &waker);
        if !stays {
            server.deregister(&waker);
        }
        send(&client, b"x", None).unwrap();
        world.pass(1);
        assert_eq!(bell.rang(), rings);
        assert_eq!(receive(&server), Ok(b"x".to_vec()));
    }
    // Of a listener, too.
    let listener = world.bound(1, Kind::Stream, "10.0.0.2:81");
    listener.listen(8).unwrap();
    for (stays, rings) in [(true, 1), (false, 0)] {
        listener.register(Readiness::READABLE, &waker);
        if !stays {
            listener.deregister(&waker);
        }
        let caller = world.socket(0, Kind::Stream);
        let _ = caller.connect(to("10.0.0.2:81"));
        world.pass(5);
        assert_eq!(bell.rang(), rings);
        assert!(listener.accept().is_ok());
    }
}

/// What is said to have room is taken, and no more than that; without a connection to write to there is nothing to say.
#[test]
fn room_to_send_is_what_a_send_takes() {
    let world = World::new();
    let lonely = world.socket(0, Kind::Stream);
    let (client, server) = world.connection();
    let room = |world: &World| {
        let number = number(world);
        world.shard(0, |shard, _| shard.tcp_send_room(number))
    };
    let first = room(&world).unwrap();
    assert!(first > 100, "{first}");
    assert_eq!(send(&client, &BLOCK[..100], None), Ok(100));
    assert_eq!(room(&world), Some(first - 100));
    client.set_option(SocketOption::SendBuffer(8192)).unwrap();
    fill(&client);
    assert_eq!(room(&world), Some(0), "a size that was asked for stays");
    assert_eq!(send(&client, &BLOCK, None), Err(libc::EAGAIN));
    // Nothing to send is no error, in a full buffer either.
    assert_eq!(send(&client, &[], None), Ok(0));
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(room(&world), None);
    assert_eq!(send(&client, b"x", None), Err(libc::EPIPE));
    drop(server);
    assert_eq!(world.shard(0, |shard, _| shard.tcp_send_room(77)), None);
    // A handshake that is not over: there may be room later.
    let _ = lonely.connect(to("10.0.0.9:80"));
    let numbers = world.shard(0, |shard, _| {
        let syn_sent = |s: &crate::shard::TcpSocket| !s.was_open();
        let found = shard.connections().filter(|(_, s)| syn_sent(s));
        found.map(|(number, _)| number).collect::<Vec<_>>()
    });
    assert_eq!(numbers.len(), 1);
    let of_lonely = world.shard(0, |shard, _| shard.tcp_send_room(numbers[0]));
    assert_eq!(of_lonely, Some(0));
}

/// Where no size was asked for, a full queue grows with what the peer takes, as far as the stack's setting goes.
#[test]
fn a_full_queue_widens_for_a_question_and_for_a_write() {
    for by_asking in [true, false] {
        let world = World::new();
        let (client, server) = world.connection();
        let before = fill(&client);
        // The congestion window opens while all is read.
        for _ in 0..50 {
            world.pass(1);
            while receive(&server).is_ok_and(|text| !text.is_empty()) {}
            fill(&client);
        }
        let all = if by_asking {
            let number = number(&world);
            let room = world.shard(0, |shard, _| shard.tcp_send_room(number));
            client.unacknowledged() + room.unwrap()
        } else {
            fill(&client);
            client.unacknowledged()
        };
        assert!(all >= before, "{all} after {before}");
        let queued = world.shard(0, |shard, _| {
            shard.connections().next().unwrap().1.queued_bytes()
        });
        assert_eq!(queued, client.unacknowledged());
    }
}

/// RFC 9293 MUST-31: the last byte is urgent; a send of nothing marks nothing.
#[test]
fn an_empty_urgent_send_marks_nothing() {
    let world = World::new();
    let (client, server) = world.connection();
    for (text, is_urgent) in [(&b""[..], false), (b"ab!", true)] {
        let sent = client.send_urgent(&[IoSlice::new(text)]);
        assert_eq!(code(sent), Ok(text.len()));
        world.pass(1);
        assert_eq!(server.readiness().contains(Readiness::PRIORITY), is_urgent);
    }
    assert_eq!(server.available(), 2, "up to the mark");
    assert!(!server.is_at_mark());
    let take = |peek| {
        let (mut byte, flags) = (
            [0; 2],
            ReceiveFlags {
                urgent: true,
                peek,
                ..ReceiveFlags::default()
            },
        );
        let got = code(server.receive(&mut [IoSliceMut::new(&mut byte)], flags));
        got.map(|got| (got.len, byte[0]))
    };
    assert_eq!(take(true), Ok((1, b'!')));
    assert_eq!(take(false), Ok((1, b'!')));
    assert_eq!(take(false), Err(libc::EINVAL), "taken");
    assert!(!server.readiness().contains(Readiness::PRIORITY));
    assert_eq!(receive(&server), Ok(b"ab".to_vec()));
    assert!(server.is_at_mark());
    // Announced before it comes: ready once it is here, and not before.
    send(&client, b"cd", None).unwrap();
    world.pass(1);
    assert_eq!(receive(&server), Ok(b"cd".to_vec()));
}

/// shutdown(2) before, during and after a connection.
#[test]
fn shutdown_is_for_connections_that_are() {
    let shutdowns = [Shutdown::Read, Shutdown::Write, Shutdown::Both];
    for how in shutdowns {
        let world = World::new();
        let (client, server) = world.connection();
        let number = number(&world);
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        let shut = |world: &World| {
            world.shard(0, |shard, now| shard.tcp_shutdown(number, read, write, now))
        };
        let (bell, waker) = Bell::new();
        client.register(Readiness::READABLE, &waker);
        assert_eq!(shut(&world), Ok(()));
        world.pass(1);
        assert_eq!(bell.rang(), u32::from(read), "{how:?}");
        assert_eq!(shut(&world), Ok(()), "again");
        // Over, by the peer's reset.
        server
            .set_option(SocketOption::Linger(Some(std::time::Duration::ZERO)))
            .unwrap();
        drop(server);
        world.pass(5);
        assert_eq!(shut(&world), Err(libc::ENOTCONN), "{how:?}");
        assert_eq!(
            world.shard(0, |s, now| s.tcp_shutdown(55, read, write, now)),
            Err(libc::ENOTCONN)
        );
    }
    let world = World::new();
    let early = world.socket(0, Kind::Stream);
    let _ = early.connect(to("10.0.0.9:80"));
    let number = number(&world);
    let shut = world.shard(0, |shard, now| shard.tcp_shutdown(number, true, true, now));
    assert_eq!(shut, Err(libc::ENOTCONN), "not yet open");
}

/// Time stamps of a send are news to a call that asks for errors, and none to a call that waits for text.
#[test]
fn notices_wake_only_calls_that_ask_for_them() {
    let world = World::new();
    let (client, _server) = world.connection();
    let request = StampRequest {
        scheduled: true,
        sent: true,
        acknowledged: true,
        with_id: true,
        ..StampRequest::default()
    };
    send(&client, b"hello", None).unwrap();
    client.stamp_send(request);
    world.pass(1);
    assert!(client.readiness().contains(Readiness::ERROR));
    let (bell, waker) = Bell::new();
    for (interest, rings) in [(Readiness::READABLE, 0), (Readiness::ERROR, 1)] {
        client.register(interest, &waker);
        assert_eq!(bell.rang(), rings, "{interest:?}");
        client.deregister(&waker);
    }
    let told = std::iter::from_fn(|| client.take_notice()).count();
    assert_eq!(told, 3);
    assert!(!client.readiness().contains(Readiness::ERROR));
    assert_eq!(
        world.counter(0, "drop_tcp_error_queue_full"),
        0,
        "none was lost"
    );
}

/// TCP_NOTSENT_LOWAT: writable while less waits to be sent for the first time.
#[test]
fn little_may_wait_to_be_sent_where_little_is_wanted() {
    let world = World::new();
    let (client, server) = world.connection();
    client
        .set_option(SocketOption::UnsentLowWater(2000))
        .unwrap();
    let (bell, waker) = Bell::new();
    fill(&client);
    let unsent = |world: &World| {
        world.shard(0, |shard, _| {
            shard.connections().next().unwrap().1.connection.unsent()
        })
    };
    assert!(!client.readiness().contains(Readiness::WRITABLE));
    client.register(Readiness::WRITABLE, &waker);
    assert_eq!(bell.rang(), 0);
    for _ in 0..20 {
        world.pass(1);
        while receive(&server).is_ok_and(|text| !text.is_empty()) {}
    }
    assert_eq!(bell.rang(), 1);
    assert_eq!(unsent(&world), 0);
    assert!(client.readiness().contains(Readiness::WRITABLE));
}

/// Buffers of a call, filled one after the other; where there is no room at all nothing is taken.
#[test]
fn text_goes_into_one_buffer_after_the_other() {
    let world = World::new();
    let (client, server) = world.connection();
    for round in 0..3_u8 {
        send(&client, &[round; 10], None).unwrap();
        world.pass(1);
    }
    let mut rooms = [vec![], vec![9; 7], vec![], vec![9; 8], vec![9; 30]];
    let mut buffers: Vec<_> = rooms.iter_mut().map(|room| IoSliceMut::new(room)).collect();
    let got = server.receive(
        &mut buffers,
        ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        },
    );
    assert_eq!(got.unwrap().len, 30);
    let whole: Vec<u8> = [0, 1, 2]
        .into_iter()
        .flat_map(|round| [round; 10])
        .collect();
    assert_eq!(rooms.concat(), [&whole[..], &[9; 15]].concat());
    assert_eq!(
        code(server.receive(&mut [], ReceiveFlags::default())).map(|got| got.len),
        Ok(0)
    );
    assert_eq!(receive(&server), Ok(whole));
}

/// connect(2) with AF_UNSPEC, and what a connection says once it is over.
#[test]
fn a_connection_that_is_over_hangs_up() {
    let world = World::new();
    let (client, server) = world.connection();
    let number = number(&world);
    client.disconnect().unwrap();
    world.pass(1);
    let gone = Readiness::HANGUP | Readiness::ERROR;
    assert!(
        world
            .shard(0, |shard, _| shard.tcp_readiness(number))
            .contains(Readiness::HANGUP)
    );
    assert_eq!(world.shard(0, |shard, _| shard.tcp_readiness(99)), gone);
    assert_eq!(receive(&server), Err(libc::ECONNRESET));
    assert_eq!(receive(&server), Ok(Vec::new()), "told once");
    let (bell, waker) = Bell::new();
    server.register(Readiness::READABLE, &waker);
    assert_eq!(bell.rang(), 1);
}

/// A burst is no longer than the buffers that it may be cut into: what found none would be lost, on a link that loses nothing.
#[test]
fn a_burst_that_finds_few_buffers_loses_nothing() {
    let wire = wire::Options {
        offload: true,
        ..wire::Options::default()
    };
    for few in 0..6 {
        let world = World::over(&wire, |builder| builder);
        let (client, server) = world.connection();
        let mut taken = world.shard(0, |shard, _| {
            let large = shard.bursts.as_mut().unwrap();
            let large: Vec<_> = std::iter::from_fn(|| large.alloc()).collect();
            let mut ordinary: Vec<_> = std::iter::from_fn(|| shard.slab.alloc()).collect();
            ordinary.truncate(ordinary.len() - few);
            (large, ordinary)
        });
        let text = vec![7; 100_000];
        assert_eq!(send(&client, &text, None), Ok(text.len()));
        let mut read = Vec::new();
        let mut wait = |ms: u64| {
            for _ in 0..ms {
                world.pass(1);
                while let Ok(more) = receive(&server) {
                    read.extend(more);
                }
            }
            read.len()
        };
        assert_eq!(wait(100) > 0, few > 0, "{few}");
        taken.0.clear();
        taken.1.clear();
        assert_eq!(wait(100), text.len(), "{few}");
        // The answer to a lone segment is late, and may be probed for.
        assert!(client.tcp_info().unwrap().retransmits <= 1, "{few}");
    }
}

/// What `peek_segments` shows, segment by segment.
fn segments(socket: &Socket) -> Result<Vec<Vec<u8>>, i32> {
    let mut segments = Vec::new();
    let seen = code(socket.peek_segments(|bytes| segments.push(bytes.to_vec()), None))?;
    assert_eq!(segments.iter().map(Vec::len).sum::<usize>(), seen);
    Ok(segments)
}

#[test]
fn segments_that_are_lent_stay_until_they_are_consumed() {
    let world = World::new();
    let (client, server) = world.connection();
    assert_eq!(segments(&server), Err(libc::EAGAIN));
    assert_eq!(code(server.consume(1)), Err(libc::EAGAIN));
    for text in [&b"one"[..], b"two"] {
        send(&client, text, None).unwrap();
        world.pass(1);
    }
    let both = || segments(&server).map(|segments| segments.concat());
    assert_eq!(both(), Ok(b"onetwo".to_vec()));
    assert_eq!(both(), Ok(b"onetwo".to_vec()), "nothing was taken");
    assert_eq!(code(server.consume(0)), Ok(0));
    assert_eq!(code(server.consume(4)), Ok(4));
    assert_eq!(both(), Ok(b"wo".to_vec()));
    assert_eq!(code(server.consume(9)), Ok(2));
    assert_eq!(both(), Err(libc::EAGAIN));
    client.shutdown(Shutdown::Write).unwrap();
    world.pass(1);
    assert_eq!(both(), Ok(Vec::new()), "the end of the stream");
    assert_eq!(code(server.consume(1)), Ok(0));
    let datagrams = world.socket(0, Kind::Datagram);
    assert_eq!(segments(&datagrams), Err(libc::ENOTCONN));
    assert_eq!(code(datagrams.consume(1)), Err(libc::ENOTCONN));
}

/// Where text lies that was shown, and what it is.
fn places(socket: &Socket) -> Vec<(usize, Vec<u8>)> {
    let mut places = Vec::new();
    let look = |bytes: &[u8]| places.push((bytes.as_ptr().addr(), bytes.to_vec()));
    assert!(socket.peek_segments(look, None).is_ok());
    places
}

/// Libraries whose callers keep pointers to it stand on this.
#[test]
fn what_was_shown_stays_where_it_is_until_it_is_taken() {
    let world = World::new();
    let (client, server) = world.connection();
    let mut shown: Vec<(usize, Vec<u8>)> = Vec::new();
    let stays = |shown: &[(usize, Vec<u8>)], now: &[(usize, Vec<u8>)]| {
        assert!(now.len() >= shown.len());
        for ((place, text), (place_now, text_now)) in shown.iter().zip(now) {
            assert_eq!(place, place_now);
            assert!(text_now.starts_with(text), "what comes is put behind it");
        }
    };
    // Some is put behind the segment before it, some has places of its own, some is lost and comes later.
    for len in [1, 1400, 3, 9000, 700, 30_000, 1, 1, 4096] {
        send(&client, &vec![u8::try_from(len % 251).unwrap(); len], None).unwrap();
        world.pass(2);
        let now = places(&server);
        stays(&shown, &now);
        shown = now;
    }
    // The peer resets: it goes with text unread.
    send(&server, b"unread", None).unwrap();
    world.pass(2);
    drop(client);
    world.pass(2);
    assert!(server.readiness().contains(Readiness::HANGUP));
    stays(&shown, &places(&server));
    let all: usize = shown.iter().map(|(_, text)| text.len()).sum();
    assert_eq!((all, code(server.consume(all))), (45_202, Ok(all)));
    assert_eq!(segments(&server), Err(libc::ECONNRESET));
}

/// Consuming opens the window as reading does.
#[test]
fn a_window_that_was_full_opens_with_what_is_consumed() {
    let world = World::new();
    let (client, server) = world.connection();
    server
        .set_option(SocketOption::ReceiveBuffer(8192))
        .unwrap();
    let mut consumed = 0;
    for _ in 0..200 {
        fill(&client);
        world.pass(2);
        let seen = segments(&server).map_or(0, |segments| segments.concat().len());
        consumed += seen;
        assert!(seen == 0 || code(server.consume(seen)) == Ok(seen));
    }
    assert!(consumed > 1 << 20, "{consumed}");
}

/// As read(2): lent text ends at the urgent mark, and the urgent byte itself is passed over.
#[test]
fn segments_end_at_the_urgent_mark() {
    let world = World::new();
    let (client, server) = world.connection();
    send(&client, b"ab", None).unwrap();
    client.send_urgent(&[IoSlice::new(b"!")]).unwrap();
    send(&client, b"cd", None).unwrap();
    world.pass(1);
    let shown = || segments(&server).map(|segments| segments.concat());
    assert_eq!(shown(), Ok(b"ab".to_vec()));
    assert_eq!(code(server.consume(9)), Ok(2));
    assert!(server.is_at_mark());
    assert_eq!(shown(), Ok(b"cd".to_vec()));
    assert_eq!(code(server.consume(1)), Ok(1));
    assert_eq!(receive(&server), Ok(b"d".to_vec()));
}

#[test]
fn a_wait_for_segments_wakes_once() {
    let world = World::new();
    let (client, server) = world.connection();
    let (bell, waker) = Bell::new();
    assert_eq!(
        code(server.peek_segments(|_| unreachable!(), Some(&waker))),
        Err(libc::EAGAIN)
    );
    send(&client, b"x", None).unwrap();
    world.pass(1);
    assert_eq!(bell.rang(), 1);
    assert_eq!(code(server.peek_segments(|_| (), Some(&waker))), Ok(1));
    send(&client, b"y", None).unwrap();
    world.pass(1);
    assert_eq!(bell.rang(), 0, "it waits no more");
}
