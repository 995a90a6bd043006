//! What a datagram socket tells its program: what waits, when it is ready, which peers it hears, and what its options throw away.

use std::{
    net::Shutdown,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::*;
use crate::{
    shard::tests::{Bell, World, code, receive, send, to},
    socket::{Domain, Kind, Socket, SocketOption, UdpOption},
};

const HERE: &str = "10.0.0.2:700";

/// The only socket of the second host's shard.
fn only<R: Send>(world: &World, f: impl FnOnce(&UdpSocket) -> R + Send) -> R {
    world.shard(1, |shard, _| f(shard.udp_sockets().next().unwrap().1))
}

#[test]
fn what_waits_is_counted_and_forgotten_with_what_is_read() {
    let world = World::new();
    let reader = world.bound(1, Kind::Datagram, HERE);
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    assert_eq!(only(&world, |s| (s.depth(), s.memory())), (0, 0));
    let mut held = Vec::new();
    for number in 1..=4_usize {
        send(&writer, &vec![1; 200 * number], Some(to(HERE))).unwrap();
        world.settle();
        let (depth, memory, first) = only(&world, |s| (s.depth(), s.memory(), s.first_len()));
        assert_eq!((depth, first), (number, 200));
        assert!(memory >= number * 200, "{memory}");
        held.push(memory);
    }
    assert!(held.is_sorted_by(|a, b| a < b), "{held:?}");
    for left in (0..4).rev() {
        assert_eq!(receive(&reader).unwrap().len(), 200 * (4 - left));
        world.settle();
        assert_eq!(only(&world, UdpSocket::depth), left);
    }
    assert_eq!(only(&world, |s| (s.depth(), s.memory())), (0, 0));
}

#[test]
fn what_it_speaks_is_named() {
    let world = World::new();
    for (domain, kind, name) in [
        (Domain::V4, Kind::Datagram, "udp"),
        (Domain::V6, Kind::Datagram, "udp"),
        (Domain::V4, Kind::Ping, "icmp"),
        (Domain::V6, Kind::Ping, "icmpv6"),
    ] {
        let socket = Socket::new(&world.nets[1], domain, kind).unwrap();
        let any = if domain == Domain::V4 {
            "0.0.0.0:5"
        } else {
            "[::]:5"
        };
        socket.bind(to(any)).unwrap();
        let (said, is_ping) = only(&world, |s| (s.protocol_name(), s.is_ping()));
        assert_eq!((said, is_ping), (name, kind == Kind::Ping));
    }
}

/// An account that is wrong in either figure is noticed.
#[test]
fn a_receive_buffer_that_is_miscounted_is_noticed() {
    let world = World::new();
    let _reader = world.bound(1, Kind::Datagram, HERE);
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    for len in [3, 500] {
        send(&writer, &vec![1; len], Some(to(HERE))).unwrap();
        world.settle();
    }
    assert_eq!(only(&world, |s| s.queued), 503 + 2 * limits::UDP_OVERHEAD);
    let plants: [fn(&mut UdpSocket, isize); 2] = [
        |s, by| s.queued = s.queued.wrapping_add_signed(by),
        |s, by| s.memory = s.memory.wrapping_add_signed(by),
    ];
    for plant in plants {
        let noticed = world.shard(1, |shard, _| {
            let (number, _) = shard.udp_sockets().next().unwrap();
            plant(shard.udp_mut(number).unwrap(), 1);
            let checked = catch_unwind(AssertUnwindSafe(|| shard.check()));
            plant(shard.udp_mut(number).unwrap(), -1);
            shard.check();
            checked.is_err()
        });
        assert!(noticed);
    }
}

/// As Linux: connected to port 0 of a host, it hears all of that host, before others at its port, and no other host.
#[test]
fn a_socket_connected_to_a_host_hears_all_its_ports() {
    let world = World::new();
    let [of_host, any] = [true, false].map(|_| {
        let socket = world.socket(1, Kind::Datagram);
        socket.set_option(SocketOption::ReuseAddress(true)).unwrap();
        socket.bind(to(HERE)).unwrap();
        socket
    });
    of_host.connect(to("10.0.0.1:0")).unwrap();
    let writers = ["10.0.0.1:900", "10.0.0.1:901", "10.0.0.3:900"];
    let writers = writers.map(|at| world.bound(0, Kind::Datagram, at));
    let tell = |text: &[u8]| {
        for writer in &writers {
            send(writer, text, Some(to(HERE))).unwrap();
        }
        world.settle();
    };
    let count = |socket: &Socket| std::iter::from_fn(|| receive(socket).ok()).count();
    tell(b"one");
    assert_eq!((count(&of_host), count(&any)), (2, 1));
    of_host.connect(to("10.0.0.3:0")).unwrap();
    tell(b"two");
    assert_eq!((count(&of_host), count(&any)), (1, 2));
    // Of one that has gone nothing stays.
    drop(of_host);
    tell(b"three");
    assert_eq!(count(&any), 3);
    assert_eq!(world.shard(1, |shard, _| shard.lookup.of_hosts), 0);
}

#[test]
fn shutdown_is_seen_by_reads_writes_and_waits() {
    let all = Readiness::READABLE | Readiness::READ_HANGUP;
    let both = all | Readiness::WRITABLE | Readiness::HANGUP;
    let writes = Readiness::WRITABLE;
    for (how, ready, sends) in [
        (Shutdown::Read, all | writes, Ok(1)),
        (Shutdown::Write, writes, Err(libc::EPIPE)),
        (Shutdown::Both, both, Err(libc::EPIPE)),
    ] {
        let world = World::new();
        let socket = world.bound(1, Kind::Datagram, HERE);
        socket.connect(to("10.0.0.1:900")).unwrap();
        assert_eq!(socket.readiness(), writes);
        let (bell, waker) = Bell::new();
        socket.register(Readiness::READABLE, &waker);
        assert_eq!(bell.rang(), 0);
        socket.shutdown(how).unwrap();
        assert_eq!(bell.rang(), 1, "{how:?}: the waiter looks again");
        assert_eq!(socket.readiness(), ready, "{how:?}");
        assert_eq!(send(&socket, b"x", None), sends, "{how:?}");
        // Another shutdown takes nothing back.
        socket.shutdown(Shutdown::Read).unwrap();
        assert_eq!(send(&socket, b"x", None), sends, "{how:?}");
        let end = Readiness::READABLE | Readiness::READ_HANGUP;
        assert!(socket.readiness().contains(end), "{how:?}");
    }
}

/// A waiter is woken for what it waits for, once, and not at all once it has left.
#[test]
fn wakers_ring_for_what_they_wait_for() {
    let world = World::new();
    let reader = world.bound(1, Kind::Datagram, HERE);
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let (bell, waker) = Bell::new();
    let tell = || {
        send(&writer, b"x", Some(to(HERE))).unwrap();
        world.settle();
        bell.rang()
    };
    reader.register(Readiness::WRITABLE, &waker);
    assert_eq!(bell.rang(), 1, "it is writable");
    reader.register(Readiness::READABLE, &waker);
    assert_eq!(bell.rang(), 0);
    assert_eq!((tell(), tell()), (1, 0), "once");
    reader.register(Readiness::READABLE, &waker);
    assert_eq!(bell.rang(), 1, "something waits");
    while receive(&reader).is_ok() {}
    reader.register(Readiness::READABLE, &waker);
    reader.deregister(&waker);
    assert_eq!(tell(), 0, "it has left");
}

/// An error about a datagram: a waiter for datagrams learns it, once; what an error queue holds is news to a waiter for errors alone.
#[test]
fn an_error_is_raised_once_and_wakes() {
    let world = World::new();
    let socket = world.bound(1, Kind::Datagram, HERE);
    let closed = to("10.0.0.1:9");
    socket.connect(closed).unwrap();
    let (bell, waker) = Bell::new();
    let refused = || {
        send(&socket, b"anybody?", None).unwrap();
        world.settle();
    };
    socket.register(Readiness::READABLE, &waker);
    refused();
    assert_eq!(bell.rang(), 1);
    assert!(socket.readiness().contains(Readiness::ERROR));
    socket.register(Readiness::READABLE, &waker);
    assert_eq!(bell.rang(), 1, "a call would answer at once");
    assert_eq!(receive(&socket), Err(libc::ECONNREFUSED));
    assert_eq!(receive(&socket), Err(libc::EAGAIN), "once");
    let errors = SocketOption::Udp(UdpOption::ReceiveErrors(true));
    socket.set_option(errors).unwrap();
    refused();
    assert!(socket.take_error().is_some());
    assert!(socket.readiness().contains(Readiness::ERROR), "the queue");
    for (interest, rings) in [(Readiness::READABLE, 0), (Readiness::ERROR, 1)] {
        socket.register(interest, &waker);
        assert_eq!(bell.rang(), rings, "{interest:?}");
        socket.deregister(&waker);
    }
}

/// Where an option for errors is taken away, what was kept goes; where one is added, it stays.
#[test]
fn an_error_queue_is_emptied_by_the_option_that_made_it() {
    let set = |socket: &Socket, option| socket.set_option(SocketOption::Udp(option)).unwrap();
    let (v4, v6) = (UdpOption::ReceiveErrors, UdpOption::ReceiveErrorsV6);
    type Step = (fn(bool) -> UdpOption, bool);
    let steps: [(&[Step], bool); 6] = [
        (&[], true),
        (&[(v4, true)], true),
        (&[(v6, true)], true),
        (&[(v4, false)], false),
        (&[(v6, true), (v6, false)], false),
        (&[(v6, true), (v4, false)], false),
    ];
    for (number, (changes, stays)) in steps.into_iter().enumerate() {
        let world = World::new();
        let socket = Socket::new(&world.nets[1], Domain::V6, Kind::Datagram).unwrap();
        socket.bind(to("[::]:700")).unwrap();
        set(&socket, v4(true));
        send(&socket, b"x", Some(to("[::ffff:10.0.0.1]:9"))).unwrap();
        world.settle();
        for &(option, on) in changes {
            set(&socket, option(on));
        }
        let mut room = [0; 8];
        let mut buffers = [std::io::IoSliceMut::new(&mut room)];
        let got = code(socket.receive_error(&mut buffers)).map(|got| got.error.errno);
        let expected = if stays {
            Ok(libc::ECONNREFUSED)
        } else {
            Err(libc::EAGAIN)
        };
        assert_eq!(got, expected, "{number}");
    }
}

/// SO_BINDTODEVICE: on another link's it hears nothing of this one.
#[test]
fn a_device_option_moves_a_socket_and_back() {
    let world = World::new();
    let reader = world.bound(1, Kind::Datagram, HERE);
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let tell = || {
        send(&writer, b"x", Some(to(HERE))).unwrap();
        world.settle();
        receive(&reader).is_ok()
    };
    for (device, hears) in [(Some(0), true), (None, true)] {
        reader.set_option(SocketOption::Device(device)).unwrap();
        assert_eq!(tell(), hears, "{device:?}");
        assert_eq!(only(&world, UdpSocket::device), device);
    }
    let moved = |device| {
        world.shard(1, |shard, _| {
            let (number, socket) = shard.udp_sockets().next().unwrap();
            let (fields, options) = (socket.fields, socket.options);
            shard.udp_set_options(number, fields, UdpOptions { device, ..options });
        });
    };
    moved(Some(1));
    assert!(!tell(), "what comes in by another link");
    moved(None);
    assert!(tell());
}

/// What a host says about its own part of a socket in several shards.
#[test]
fn an_error_of_another_part_is_answered_by_this_one() {
    let world = World::new();
    let socket = world.bound(1, Kind::Datagram, HERE);
    world.shard(1, |shard, _| {
        let (number, _) = shard.udp_sockets().next().unwrap();
        shard.udp_raise(number, libc::ENETDOWN);
        shard.udp_raise(number + 1, libc::EIO); // no socket
    });
    assert_eq!(receive(&socket), Err(libc::ENETDOWN));
    assert_eq!(receive(&socket), Err(libc::EAGAIN));
}
