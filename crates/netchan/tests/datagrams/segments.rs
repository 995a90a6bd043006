//! Many datagrams in one call (UDP_SEGMENT, UDP_GRO), several sends in one datagram (UDP_CORK), and what is told of each: udp(7), ip(7).

use std::{
    io::{IoSlice, IoSliceMut},
    time::Duration,
};

use netchan::socket::{Domain, ReceiveFlags, SendInfo, Socket, SocketOption, UdpOption};

use crate::{Pair, errno, receive, send, udp};

fn text(len: usize) -> Vec<u8> {
    (0..=250u8).cycle().take(len).collect()
}

/// Lengths of the datagrams that wait, and that they bring `text` in order.
fn lengths(socket: &Socket, text: &[u8]) -> Vec<usize> {
    let (mut room, mut at, mut lengths) = (vec![0; 1 << 16], 0, Vec::new());
    while let Ok(received) = receive(socket, &mut room) {
        assert_eq!(room[..received.len], text[at..at + received.len]);
        at += received.len;
        lengths.push(received.len);
    }
    assert_eq!(at, text.len());
    lengths
}

#[test]
fn one_send_is_many_datagrams() {
    for domain in [Domain::V4, Domain::V6] {
        let pair = Pair::new();
        let [from, to] = pair.sockets(domain);
        let target = Some(pair.at(domain, 1));
        let data = text(65_000);
        let go = |len: usize, segment| {
            // From buffers that end anywhere.
            let (a, b) = data[..len].split_at(len / 3);
            let buffers = [IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)];
            let sent = from.send_message(&buffers, target, &SendInfo::segmented(segment));
            pair.turn();
            sent
        };
        for (len, segment) in [
            (5000, 1200),
            (2400, 1200),
            (1200, 1200),
            (7, 1200),
            (128, 1),
            (65_000, 1400),
        ] {
            assert_eq!(go(len, segment).unwrap(), len);
            let full = usize::from(segment);
            let mut expected = vec![full; len / full];
            expected.extend(Some(len % full).filter(|&rest| rest > 0));
            assert_eq!(lengths(&to, &data[..len]), expected);
        }
        assert_eq!(go(0, 1200).unwrap(), 0);
        assert_eq!(receive(&to, &mut []).unwrap().len, 0);
        assert_eq!(errno(go(129, 1)), libc::EINVAL, "UDP_MAX_SEGMENTS");
        assert_eq!(
            errno(go(5000, 1480)),
            libc::EMSGSIZE,
            "no fragments of segments"
        );
        udp(&from, UdpOption::NoChecksumOut(true));
        assert_eq!(go(5000, 1200).is_err(), domain == Domain::V6);
    }
}

#[test]
fn one_receive_is_many_datagrams_of_one_size() {
    let pair = Pair::new();
    let [from, to] = pair.sockets(Domain::V4);
    let target = pair.at(Domain::V4, 1);
    udp(&to, UdpOption::Merge(true));
    let data = text(6000);
    for len in [1000, 1000, 1000, 400, 1000, 400, 1400, 0, 1000] {
        send(&from, &data[..len], target).unwrap();
        pair.turn();
    }
    let mut room = vec![0; 1 << 16];
    let next = |room: usize, peek| {
        let flags = ReceiveFlags {
            peek,
            ..ReceiveFlags::default()
        };
        let got = to.receive(&mut [IoSliceMut::new(&mut vec![0; room])], flags);
        let got = got.unwrap();
        (got.len, got.info.unwrap().segment, got.truncated)
    };
    assert_eq!(next(1 << 16, true), (3400, 1000, false), "looked at only");
    assert_eq!(next(2500, false), (2000, 1000, false), "none is cut");
    assert_eq!(
        next(1 << 16, false),
        (1400, 1000, false),
        "a shorter one is the last"
    );
    assert_eq!(
        next(500, false),
        (500, 0, true),
        "one that does not fit is cut, alone"
    );
    assert_eq!(
        next(1 << 16, false),
        (400, 0, false),
        "what follows is longer"
    );
    assert_eq!(next(1 << 16, false), (1400, 0, false));
    assert_eq!(next(1 << 16, false), (0, 0, false));
    assert_eq!(next(1 << 16, false), (1000, 0, false));
    // Another sender's, or another class of traffic, is another flow.
    send(&from, &data[..100], target).unwrap();
    from.set_option(SocketOption::TypeOfService(8)).unwrap();
    send(&from, &data[..100], target).unwrap();
    pair.turn();
    assert_eq!(receive(&to, &mut room).unwrap().len, 100);
    assert_eq!(receive(&to, &mut room).unwrap().info.unwrap().tos, 8);
}

#[test]
fn several_sends_are_one_datagram() {
    let pair = Pair::new();
    let [from, to] = pair.sockets(Domain::V4);
    let target = pair.at(Domain::V4, 1);
    let more = SendInfo {
        more: true,
        ttl: Some(7),
        ..SendInfo::default()
    };
    from.send_message(&[IoSlice::new(b"ab")], Some(target), &more)
        .unwrap();
    pair.turn();
    let mut room = [0; 2000];
    assert_eq!(errno(receive(&to, &mut room)), libc::EAGAIN);
    assert_eq!(from.send(&[IoSlice::new(b"cd")], None).unwrap(), 2);
    pair.turn();
    let got = receive(&to, &mut room).unwrap();
    assert_eq!(
        (&room[..got.len], got.info.unwrap().ttl),
        (&b"abcd"[..], 7),
        "the first one's"
    );
    // Cut by UDP_SEGMENT, when it is whole.
    udp(&from, UdpOption::Segment(1000));
    udp(&from, UdpOption::Cork(true));
    let data = text(3000);
    data.chunks(300)
        .for_each(|piece| assert_eq!(send(&from, piece, target).unwrap(), 300));
    udp(&from, UdpOption::Cork(false));
    pair.turn();
    assert_eq!(lengths(&to, &data), [1000; 3]);
}

#[test]
fn a_receive_says_where_to_and_how_it_came() {
    for domain in [Domain::V4, Domain::V6] {
        let pair = Pair::new();
        let [from, to] = pair.sockets(domain);
        let target = pair.at(domain, 1);
        let info = SendInfo {
            ttl: Some(3),
            tos: Some(0xb9),
            ..SendInfo::default()
        };
        from.send_message(&[IoSlice::new(b"x")], Some(target), &info)
            .unwrap();
        pair.turn();
        pair.clock.advance(Duration::from_secs(2));
        let got = receive(&to, &mut [0; 10]).unwrap().info.unwrap();
        assert_eq!(
            (got.destination, got.ttl, got.tos, got.interface),
            (target, 3, 0xb9, 0)
        );
        assert!(got.age >= Duration::from_secs(2) && got.age < Duration::from_secs(3));
        // SO_RXQ_OVFL: what came while the queue was full. It takes twice the 128 KiB of SO_RCVBUF, each datagram with 512 bytes beside its own.
        let room = 2 * (128 << 10) / (512 + "flood".len());
        for _ in 0..520 {
            send(&from, b"flood", target).unwrap();
            pair.turn();
        }
        while receive(&to, &mut [0; 10]).is_ok() {}
        send(&from, b"last", target).unwrap();
        pair.turn();
        let drops = receive(&to, &mut [0; 10]).unwrap().info.unwrap().drops;
        assert_eq!(drops as usize, 520 - room);
    }
}

#[test]
fn rfc_6936_no_checksum_over_ipv6_only_where_both_say_so() {
    let pair = Pair::new();
    let [from, to] = pair.sockets(Domain::V6);
    let target = pair.at(Domain::V6, 1);
    udp(&from, UdpOption::NoChecksumOut(true));
    let mut room = [0; 10];
    send(&from, b"bare", target).unwrap();
    pair.turn();
    assert_eq!(
        errno(receive(&to, &mut room)),
        libc::EAGAIN,
        "RFC 8200 §8.1"
    );
    udp(&to, UdpOption::NoChecksumIn(true));
    send(&from, b"bare", target).unwrap();
    pair.turn();
    assert_eq!(receive(&to, &mut room).unwrap().len, 4);
}

#[test]
fn the_same_with_sockets_as_in_std() {
    let pair = Pair::new();
    let [from, to] = [0, 1].map(|i| {
        let socket = pair.nets[i].udp().bind("0.0.0.0:7").unwrap();
        socket.set_nonblocking(true).unwrap();
        udp(socket.socket(), UdpOption::Merge(true));
        udp(socket.socket(), UdpOption::ReceiveErrors(true));
        socket
    });
    let target = "10.0.0.2:7".parse().unwrap();
    let (data, mut room) = (text(2500), [0; 3000]);
    let sent = from.send_segmented(&data, 1000, Some(target)).unwrap();
    pair.turn();
    let (len, source, info) = to.recv_with_info(&mut room).unwrap();
    assert_eq!(
        (sent, len, info.segment, info.destination),
        (2500, 2500, 1000, target)
    );
    assert_eq!(
        (source, &room[..len]),
        ("10.0.0.1:7".parse().unwrap(), &data[..])
    );
    drop(to);
    from.send_to(b"gone?", target).unwrap();
    pair.turn();
    let told = from.recv_error(&mut room).unwrap();
    assert_eq!(
        (&room[..told.len], told.error.errno),
        (&b"gone?"[..], libc::ECONNREFUSED)
    );
    // Nothing waits in the error queue, and nothing is pending.
    assert_eq!(errno(from.recv(&mut room)), libc::EAGAIN);
}
