//! What datagram sockets are told, and how much they take at once.

use std::io::IoSlice;

use super::*;
use crate::{
    api::{Readiness, SendInfo, StampRequest},
    limits,
    shard::Stamped,
    socket::{SocketOption, UdpOption},
};

/// As on Linux: of a datagram that was too long its destination is kept; of an unconnected socket of IPv4 without the port.
#[test]
fn what_was_too_long_is_told_with_its_destination() {
    for (domain, here, is_told) in [
        (Domain::V4, "10.0.0.2:700", [0, 700]),
        (Domain::V6, "[fd77::2]:700", [700, 700]),
    ] {
        let world = World::new();
        for (is_connected, port) in [false, true].into_iter().zip(is_told) {
            let socket = Socket::new(&world.nets[0], domain, Kind::Datagram).unwrap();
            for option in [
                UdpOption::ReceiveErrors(true),
                UdpOption::ReceiveErrorsV6(true),
            ] {
                socket.set_option(SocketOption::Udp(option)).unwrap();
            }
            let target = (!is_connected).then(|| to(here));
            if is_connected {
                socket.connect(to(here)).unwrap();
            }
            let text = vec![7; 65_530];
            assert_eq!(send(&socket, &text, target), Err(libc::EMSGSIZE));
            let told = socket.receive_error(&mut []).unwrap().error;
            let mut wanted = to(here);
            wanted.set_port(port);
            assert_eq!((told.destination, told.errno), (wanted, libc::EMSGSIZE));
        }
    }
}

/// UDP_GRO: so many datagrams of one size in one receive, the last one maybe shorter, and no more than there is room for.
#[test]
fn datagrams_of_one_sender_are_read_together() {
    let world = World::new();
    let reader = world.bound(1, Kind::Datagram, "10.0.0.2:700");
    reader
        .set_option(SocketOption::Udp(UdpOption::Merge(true)))
        .unwrap();
    reader
        .set_option(SocketOption::ReceiveBuffer(1 << 20))
        .unwrap();
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let sends = |lengths: &[usize]| {
        for (number, len) in (0..).zip(lengths) {
            send(&writer, &vec![number; *len], Some(to("10.0.0.2:700"))).unwrap();
            world.settle();
        }
    };
    let reads = || {
        std::iter::from_fn(|| receive(&reader).ok())
            .map(|t| t.len())
            .collect::<Vec<_>>()
    };
    sends(&[10; limits::UDP_MERGED + 3]);
    assert_eq!(reads(), [10 * limits::UDP_MERGED, 30]);
    sends(&[10, 10, 4, 10, 11, 11, 0, 3, 3, 5]);
    assert_eq!(reads(), [24, 10, 22, 0, 6, 5]);
    // Another sender's stands by itself.
    let other = world.bound(0, Kind::Datagram, "10.0.0.1:901");
    sends(&[10]);
    send(&other, &[1; 10], Some(to("10.0.0.2:700"))).unwrap();
    sends(&[10]);
    world.settle();
    assert_eq!(reads(), [10, 10, 10]);
    // Room for two and a half: none is cut.
    sends(&[10, 10, 10]);
    let mut room = [0; 25];
    let mut read = || {
        let mut buffers = [std::io::IoSliceMut::new(&mut room)];
        let got = reader.receive(&mut buffers, ReceiveFlags::default());
        got.unwrap().len
    };
    assert_eq!([read(), read()], [20, 10]);
    // And room for just two.
    sends(&[10, 10, 10]);
    let mut read = || {
        let mut buffers = [std::io::IoSliceMut::new(&mut room[..20])];
        let got = reader.receive(&mut buffers, ReceiveFlags::default());
        got.unwrap().len
    };
    assert_eq!([read(), read()], [20, 10]);
}

/// MSG_MORE: to the byte as much as a datagram takes; a byte more is refused at once, and all of it forgotten.
#[test]
fn a_byte_too_many_forgets_what_was_corked() {
    for (domain, here, most) in [
        (Domain::V4, "10.0.0.2:700", 65_507),
        (Domain::V6, "[fd77::2]:700", 65_527),
    ] {
        let world = World::new();
        let reader = Socket::new(&world.nets[1], domain, Kind::Datagram).unwrap();
        reader.bind(to(here)).unwrap();
        let writer = Socket::new(&world.nets[0], domain, Kind::Datagram).unwrap();
        send(&writer, b"first", Some(to(here))).unwrap();
        world.settle();
        assert!(receive(&reader).is_ok());
        let add = |len: usize, more| {
            let info = SendInfo {
                more,
                ..SendInfo::default()
            };
            let text = vec![7; len];
            code(writer.send_message(&[IoSlice::new(&text)], Some(to(here)), &info))
        };
        assert_eq!(add(60_000, true), Ok(60_000));
        assert_eq!(add(most - 60_000, true), Ok(most - 60_000));
        assert_eq!(add(1, true), Err(libc::EMSGSIZE));
        assert_eq!(add(5, false), Ok(5));
        world.settle();
        assert_eq!(receive(&reader).map(|text| text.len()), Ok(5));
        assert_eq!(add(60_000, true), Ok(60_000));
        assert_eq!(add(most - 60_000, false), Ok(most - 60_000));
        world.settle();
        assert_eq!(receive(&reader).map(|text| text.len()), Ok(most));
    }
}

/// As Linux: a socket that lost its port with its peer may be bound again, and hears there.
#[test]
fn a_socket_that_lost_its_port_is_bound_again() {
    let world = World::new();
    let socket = world.socket(1, Kind::Datagram);
    socket.connect(to("10.0.0.1:900")).unwrap();
    socket.disconnect().unwrap();
    socket.bind(to("10.0.0.2:700")).unwrap();
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:901");
    send(&writer, b"text", Some(to("10.0.0.2:700"))).unwrap();
    world.settle();
    assert_eq!(receive(&socket), Ok(b"text".to_vec()));
}

/// An echo request of a program: whole, of its family, code 0, and no longer than an IP packet.
#[test]
fn only_echo_requests_are_sent_by_ping_sockets() {
    use crate::shard::udp::Echo;
    let read = |protocol, kind: u8, code: u8, len: usize| {
        let mut text = vec![0; len];
        text.iter_mut()
            .zip([kind, code])
            .for_each(|(to, byte)| *to = byte);
        Echo::read(protocol, &[IoSlice::new(&text)]).map(|_| ())
    };
    for (protocol, request) in [(Protocol::ICMP, 8), (Protocol::ICMPV6, 128)] {
        assert_eq!(read(protocol, request, 0, 8), Ok(()));
        assert_eq!(read(protocol, request, 0, 65_535), Ok(()));
        assert_eq!(read(protocol, request, 0, 65_536), Err(libc::EMSGSIZE));
        assert_eq!(read(protocol, request, 0, 70_000), Err(libc::EMSGSIZE));
        for (kind, code, len) in [
            (request, 0, 7),
            (request, 1, 8),
            (request ^ 1, 0, 8),
            (0, 0, 8),
        ] {
            assert_eq!(read(protocol, kind, code, len), Err(libc::EINVAL));
        }
    }
}

/// Sockets that were closed while they waited for buffers are forgotten in time.
#[test]
fn the_list_of_waiting_senders_has_a_bound() {
    let world = World::new();
    let taken = world.shard(0, |shard, _| {
        std::iter::from_fn(|| shard.slab.alloc()).collect::<Vec<_>>()
    });
    let most = 2 * limits::SENDERS_A_TURN;
    let mut seen = 0;
    for _ in 0..3 * most {
        let socket = world.socket(0, Kind::Datagram);
        assert_eq!(
            send(&socket, b"x", Some(to("10.0.0.2:700"))),
            Err(libc::EAGAIN)
        );
        let waiting = world.shard(0, |shard, _| shard.udp_waiting.len());
        assert!(waiting <= most);
        seen = seen.max(waiting);
    }
    assert_eq!(seen, most, "it is made anew no sooner than it has to be");
    world.shard(0, |shard, _| {
        taken.into_iter().for_each(|b| shard.slab.free(b))
    });
}

/// Of many datagrams all are sent or none; just as many buffers as they need are enough.
#[test]
fn just_enough_buffers_are_enough() {
    let world = World::new();
    let reader = world.bound(1, Kind::Datagram, "10.0.0.2:700");
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let there = Some(to("10.0.0.2:700"));
    send(&writer, b"first", there).unwrap();
    world.settle();
    assert!(receive(&reader).is_ok());
    let taken = world.shard(0, |shard, _| {
        let spare = shard.slab.available() - 3;
        (0..spare)
            .map(|_| shard.slab.alloc().unwrap())
            .collect::<Vec<_>>()
    });
    let sends = |pieces: usize| {
        let text = vec![7; 100 * pieces];
        code(writer.send_message(&[IoSlice::new(&text)], there, &SendInfo::segmented(100)))
    };
    assert_eq!(sends(4), Err(libc::EAGAIN));
    assert_eq!(sends(3), Ok(300));
    world.settle();
    assert_eq!(std::iter::from_fn(|| receive(&reader).ok()).count(), 3);
    world.shard(0, |shard, _| {
        taken.into_iter().for_each(|buffer| shard.slab.free(buffer))
    });
}

/// Time stamps that find no place are counted, and none of those that do.
#[test]
fn time_stamps_without_a_place_are_counted() {
    let world = World::new();
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let (bell, waker) = Bell::new();
    writer.register(Readiness::ERROR, &waker);
    let request = StampRequest {
        scheduled: true,
        sent: true,
        ..StampRequest::default()
    };
    let lost = |world: &World| world.counter(0, "drop_udp_error_queue_full");
    let stamp = |world: &World| {
        world.shard(0, |shard, now| {
            let number = shard.udp_sockets().next().unwrap().0;
            shard.udp_stamp(number, Stamped::of(request), now);
        });
    };
    stamp(&world);
    world.settle();
    assert_eq!((lost(&world), bell.rang()), (0, 1));
    for _ in 0..limits::SEND_NOTICES {
        stamp(&world);
    }
    let kept = world.shard(0, |shard, now| {
        let number = shard.udp_sockets().next().unwrap().0;
        std::iter::from_fn(|| shard.udp_take_notice(number, now)).count()
    });
    assert!(kept > 10);
    let all = 2 * (1 + limits::SEND_NOTICES) as u64;
    assert_eq!(lost(&world), all - kept as u64);
}

/// As Linux: with MSG_TRUNC a datagram socket says how long the datagram was, a ping socket what it copied.
#[test]
fn a_ping_socket_says_what_it_copied() {
    let world = World::new();
    let read = |socket: &Socket| {
        let mut room = [0; 10];
        let flags = ReceiveFlags {
            truncate: true,
            ..ReceiveFlags::default()
        };
        let got = socket.receive(&mut [std::io::IoSliceMut::new(&mut room)], flags);
        got.map(|got| (got.len, got.truncated)).unwrap()
    };
    let ping = world.socket(0, Kind::Ping);
    let request = [&[8, 0, 0, 0, 0, 0, 0, 1][..], &[7; 20]].concat();
    assert_eq!(send(&ping, &request, Some(to("10.0.0.2:0"))), Ok(28));
    world.pass(5);
    assert_eq!(read(&ping), (10, true));
    let reader = world.bound(1, Kind::Datagram, "10.0.0.2:700");
    let writer = world.socket(0, Kind::Datagram);
    send(&writer, &[7; 20], Some(to("10.0.0.2:700"))).unwrap();
    world.settle();
    assert_eq!(read(&reader), (20, true));
}
