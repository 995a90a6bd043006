//! What a stream tells: urgent bytes, errors, and time stamps of what it sent.

use std::{
    io::{IoSlice, IoSliceMut},
    time::Duration,
};

use super::*;
use crate::{
    api::{Readiness, StampRequest},
    limits,
    socket::SocketOption,
};

fn urgent(socket: &Socket, text: &[u8]) {
    assert_eq!(
        code(socket.send_urgent(&[IoSlice::new(text)])),
        Ok(text.len())
    );
}

/// recv(2) with MSG_OOB.
fn out_of_band(socket: &Socket) -> Result<Option<u8>, i32> {
    let mut byte = [0; 1];
    let flags = ReceiveFlags {
        urgent: true,
        ..ReceiveFlags::default()
    };
    let got = code(socket.receive(&mut [IoSliceMut::new(&mut byte)], flags))?;
    Ok((got.len == 1).then_some(byte[0]))
}

/// tcp(7), RFC 6093: a read ends before the urgent byte, however many segments lie before it, and goes on behind it.
#[test]
fn a_read_ends_at_the_mark() {
    for is_inline in [false, true] {
        let world = World::new();
        let (client, server) = world.connection();
        let option = SocketOption::UrgentInline(is_inline);
        server.set_option(option).unwrap();
        for text in [&b"abc"[..], b"de"] {
            send(&client, text, None).unwrap();
            world.pass(60);
        }
        urgent(&client, b"fg!");
        world.pass(60);
        send(&client, b"hij", None).unwrap();
        world.pass(60);
        assert!(!server.is_at_mark());
        let there = if is_inline { 11 } else { 7 };
        assert_eq!(server.available(), there);
        assert_eq!(receive(&server), Ok(b"abcdefg".to_vec()));
        assert!(server.is_at_mark());
        // A read of nothing passes nothing.
        assert_eq!(
            code(server.receive(&mut [], ReceiveFlags::default())).map(|got| got.len),
            Ok(0)
        );
        let none = &mut [IoSliceMut::new(&mut [])];
        assert_eq!(
            code(server.receive(none, ReceiveFlags::default())).map(|got| got.len),
            Ok(0)
        );
        assert!(server.is_at_mark());
        let mut byte = [0; 2];
        let (empty, room) = (&mut [][..], &mut byte[..]);
        let mut buffers = [IoSliceMut::new(empty), IoSliceMut::new(room)];
        let got = server
            .receive(&mut buffers, ReceiveFlags::default())
            .unwrap();
        assert_eq!(got.len, 2);
        assert_eq!(&byte, if is_inline { b"!h" } else { b"hi" });
        let rest: &[u8] = if is_inline { b"ij" } else { b"j" };
        assert_eq!(receive(&server), Ok(rest.to_vec()));
    }
}

/// MSG_OOB finds its byte wherever it lies; EAGAIN while it is on its way, EINVAL once it was taken, nothing more after the end.
#[test]
fn the_urgent_byte_is_found_behind_what_is_unread() {
    let world = World::new();
    let (client, server) = world.connection();
    assert_eq!(out_of_band(&server), Err(libc::EINVAL));
    for text in [&b"abc"[..], b"de"] {
        send(&client, text, None).unwrap();
        world.pass(60);
    }
    urgent(&client, b"fg!");
    world.pass(60);
    assert!(server.readiness().contains(Readiness::PRIORITY));
    assert_eq!(out_of_band(&server), Ok(Some(b'!')));
    assert_eq!(out_of_band(&server), Err(libc::EINVAL));
    assert!(!server.readiness().contains(Readiness::PRIORITY));
    assert_eq!(receive(&server), Ok(b"abcdefg".to_vec()));
    // Another one is news again; a reset takes it along.
    urgent(&client, b"?");
    world.pass(60);
    assert!(server.readiness().contains(Readiness::PRIORITY));
    client
        .set_option(SocketOption::Linger(Some(Duration::ZERO)))
        .unwrap();
    drop(client);
    world.pass(1);
    assert_eq!(out_of_band(&server), Err(libc::ENOTCONN));
}

/// As Linux: an urgent byte that was not taken before the next one came is lost; in line it is text.
#[test]
fn an_urgent_byte_gives_way_to_the_next() {
    for is_inline in [false, true] {
        let world = World::new();
        let (client, server) = world.connection();
        server
            .set_option(SocketOption::UrgentInline(is_inline))
            .unwrap();
        urgent(&client, b"ab!");
        world.pass(60);
        assert_eq!(receive(&server), Ok(b"ab".to_vec()));
        assert!(server.is_at_mark());
        urgent(&client, b"cd?");
        world.pass(60);
        let wanted: &[u8] = if is_inline { b"!cd" } else { b"cd" };
        assert_eq!(receive(&server), Ok(wanted.to_vec()));
        let last = if is_inline {
            Err(libc::EINVAL)
        } else {
            Ok(Some(b'?'))
        };
        assert_eq!(out_of_band(&server), last);
    }
}

/// SO_RCVLOWAT keeps text from being news, but not an urgent byte.
#[test]
fn a_waiter_for_urgent_news_is_told_once_the_byte_is_here() {
    let world = World::new();
    let (client, server) = world.connection();
    server
        .set_option(SocketOption::ReceiveLowWater(100))
        .unwrap();
    let (bell, waker) = Bell::new();
    server.register(Readiness::PRIORITY, &waker);
    send(&client, b"ab", None).unwrap();
    world.pass(60);
    assert_eq!(bell.rang(), 0);
    urgent(&client, b"!");
    world.pass(60);
    assert!(bell.rang() > 0);
    assert!(server.readiness().contains(Readiness::PRIORITY));
    assert!(
        !server.readiness().contains(Readiness::READABLE),
        "too little"
    );
}

const ALL: StampRequest = StampRequest {
    scheduled: true,
    sent: true,
    acknowledged: true,
    with_id: true,
    id: None,
    with_packet: false,
};

/// Time stamps that find no place are counted, exactly.
#[test]
fn time_stamps_of_a_stream_have_their_places() {
    let world = World::new();
    let (client, server) = world.connection();
    let lost = |world: &World| world.counter(0, "drop_tcp_error_queue_full");
    let taken = || std::iter::from_fn(|| client.take_notice()).count();
    send(&client, b"x", None).unwrap();
    client.stamp_send(ALL);
    assert_eq!((taken(), lost(&world)), (2, 0), "left at once");
    let (bell, waker) = Bell::new();
    client.register(Readiness::ERROR, &waker);
    world.pass(60);
    assert!(bell.rang() > 0, "acknowledged");
    assert_eq!((taken(), lost(&world)), (1, 0));
    // More than there are places for.
    for _ in 0..limits::SEND_NOTICES {
        send(&client, b"y", None).unwrap();
        client.stamp_send(ALL);
        world.pass(1);
    }
    world.pass(60);
    let kept = taken();
    assert_eq!(kept, limits::SEND_NOTICES);
    assert_eq!(lost(&world), (3 * limits::SEND_NOTICES - kept) as u64);
    assert_eq!(
        receive(&server).map(|text| text.len()),
        Ok(1 + limits::SEND_NOTICES)
    );
}

/// As many sends as there are places may wait for their acknowledgments, and not one more.
#[test]
fn so_many_sends_wait_for_their_time_stamps() {
    let world = World::new();
    let (client, _server) = world.connection();
    let request = StampRequest {
        acknowledged: true,
        ..StampRequest::default()
    };
    let lost = |world: &World| world.counter(0, "drop_tcp_error_queue_full");
    for _ in 0..limits::SEND_NOTICES {
        send(&client, b"y", None).unwrap();
        client.stamp_send(request);
    }
    assert_eq!(lost(&world), 0);
    send(&client, b"y", None).unwrap();
    client.stamp_send(request);
    assert_eq!(lost(&world), 1);
}

/// For a call that waits for text, a time stamp is no error; for one that asks for errors it is one, at once.
#[test]
fn a_time_stamp_wakes_a_call_that_asks_for_errors() {
    let world = World::new();
    let (client, server) = world.connection();
    send(&client, b"x", None).unwrap();
    client.stamp_send(ALL);
    assert!(client.readiness().contains(Readiness::ERROR));
    let rings = |interest| {
        let (bell, waker) = Bell::new();
        client.register(interest, &waker);
        let rang = bell.rang();
        client.deregister(&waker);
        rang
    };
    assert_eq!(rings(Readiness::READABLE), 0);
    assert_eq!(rings(Readiness::READABLE | Readiness::ERROR), 1);
    assert_eq!(rings(Readiness::WRITABLE), 1, "it is");
    // A real error is one for every call.
    server
        .set_option(SocketOption::Linger(Some(Duration::ZERO)))
        .unwrap();
    drop(server);
    world.pass(1);
    assert_eq!(rings(Readiness::READABLE), 1);
    // And without either there is nothing to say.
    let (quiet, _other) = world.connection();
    let (bell, waker) = Bell::new();
    quiet.register(Readiness::ERROR, &waker);
    assert_eq!(bell.rang(), 0);
}

/// Text of several segments fills several buffers, one behind the other.
#[test]
fn segments_fill_buffers_without_a_gap() {
    let world = World::new();
    let (client, server) = world.connection();
    let text = numbered(5000);
    assert_eq!(send(&client, &text, None), Ok(5000));
    world.pass(60);
    let mut room = [vec![0; 1000], vec![0; 3000], vec![0; 1100]];
    let mut buffers: Vec<_> = room.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let got = server
        .receive(&mut buffers, ReceiveFlags::default())
        .unwrap();
    assert_eq!(got.len, 5000);
    assert_eq!(room.concat()[..5000], text);
}

/// Bytes that differ from their neighbours near and far.
fn numbered(len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 7 + i / 256).to_le_bytes()[0])
        .collect()
}

/// The same marks in text of many segments, each with a buffer of its own.
#[test]
fn a_mark_is_found_in_another_segment() {
    let world = World::new();
    let (client, server) = world.connection();
    let text = numbered(5000);
    urgent(&client, &[&text[..], b"!"].concat());
    world.pass(60);
    assert_eq!(send(&client, &text[..3000], None), Ok(3000));
    world.pass(60);
    assert_eq!(server.available(), 5000);
    assert_eq!(out_of_band(&server), Ok(Some(b'!')));
    assert_eq!(receive(&server), Ok(text.clone()), "up to the mark");
    assert_eq!(
        receive(&server),
        Ok(text[..3000].to_vec()),
        "from behind it"
    );
    // A byte that was not taken fills what is left of its segment; the next one's text is whole.
    urgent(&client, &[&text[..1447], b"!"].concat());
    world.pass(60);
    assert_eq!(receive(&server), Ok(text[..1447].to_vec()));
    assert!(server.is_at_mark());
    urgent(&client, &[&text[..1447], b"?"].concat());
    world.pass(60);
    assert_eq!(receive(&server), Ok(text[..1447].to_vec()));
    assert_eq!(out_of_band(&server), Ok(Some(b'?')));
}
