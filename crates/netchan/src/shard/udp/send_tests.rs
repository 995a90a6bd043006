//! How long datagrams may be, what an error forgets, and when a socket that found no buffers may send again.

use std::io::IoSlice;

use super::*;
use crate::{
    api::{Readiness, SendInfo},
    shard::tests::{World, code, receive, send, to},
    socket::{Domain, Kind, Socket, SocketOption, UdpOption},
};

const ENDS: [(Domain, &str, &str); 2] = [
    (Domain::V4, "10.0.0.2:700", "10.0.0.1:900"),
    (Domain::V6, "[fd77::2]:700", "[fd77::1]:900"),
];

fn more() -> SendInfo {
    SendInfo {
        more: true,
        ..SendInfo::default()
    }
}

/// Reader and writer, the latter with an error queue.
fn ends(world: &World, domain: Domain, here: &str, there: &str) -> [Socket; 2] {
    let [reader, writer] = [(1, here), (0, there)].map(|(at, address)| {
        let socket = Socket::new(&world.nets[at], domain, Kind::Datagram).unwrap();
        socket.bind(to(address)).unwrap();
        socket
    });
    for option in [
        UdpOption::ReceiveErrors(true),
        UdpOption::ReceiveErrorsV6(true),
    ] {
        writer.set_option(SocketOption::Udp(option)).unwrap();
    }
    // The neighbour is known from now on: few packets wait for that.
    send(&writer, b"first", Some(to(here))).unwrap();
    world.settle();
    assert_eq!(receive(&reader), Ok(b"first".to_vec()));
    [reader, writer]
}

fn errors(socket: &Socket) -> usize {
    let next = || socket.receive_error(&mut []).ok();
    std::iter::from_fn(next)
        .inspect(|got| assert_eq!(got.error.errno, libc::EMSGSIZE))
        .count()
}

/// As on Linux: what the longest IP packet takes, to the byte; over IPv4 what no UDP header can say is refused without a word.
#[test]
fn the_longest_datagram_is_what_an_ip_packet_takes() {
    for (domain, here, there) in ENDS {
        let world = World::new();
        let [reader, writer] = ends(&world, domain, here, there);
        let most = if domain == Domain::V4 { 65_507 } else { 65_527 };
        let text = vec![7; 70_000];
        assert_eq!(send(&writer, &text[..most], Some(to(here))), Ok(most));
        world.settle();
        assert_eq!(receive(&reader).map(|got| got.len()), Ok(most));
        let silent = usize::from(domain == Domain::V6);
        for (len, told) in [
            (most + 1, 1),
            (65_535, 1),
            (65_536, silent),
            (70_000, silent),
        ] {
            let sent = send(&writer, &text[..len], Some(to(here)));
            assert_eq!(sent, Err(libc::EMSGSIZE), "{len}");
            assert_eq!(errors(&writer), told, "{len}");
        }
    }
}

/// Several sends make one datagram, as long as one may be; a piece too many forgets all of it.
#[test]
fn a_corked_datagram_may_be_as_long_as_any() {
    for (domain, here, there) in ENDS {
        let world = World::new();
        let [reader, writer] = ends(&world, domain, here, there);
        let most = if domain == Domain::V4 { 65_507 } else { 65_527 };
        let text = vec![7; most];
        let add = |piece: &[u8], info: &SendInfo| {
            code(writer.send_message(&[IoSlice::new(piece)], Some(to(here)), info))
        };
        let got = || {
            world.settle();
            receive(&reader).map(|got| got.len())
        };
        assert_eq!(add(&text[..60_000], &more()), Ok(60_000));
        assert_eq!(got(), Err(libc::EAGAIN));
        let rest = most - 60_000;
        assert_eq!(add(&text[..rest], &SendInfo::default()), Ok(rest));
        assert_eq!(got(), Ok(most));
        for long in [most - 60_000 + 1, 70_000] {
            assert_eq!(add(&text[..60_000], &more()), Ok(60_000));
            let long = vec![7; long];
            let refused = add(&long, &SendInfo::default());
            assert_eq!(refused, Err(libc::EMSGSIZE));
            assert_eq!(got(), Err(libc::EAGAIN));
            assert_eq!(add(b"new", &SendInfo::default()), Ok(3));
            // As Linux: what no UDP header of IPv4 can say is refused before anything is looked at.
            let is_kept = domain == Domain::V4 && long.len() > usize::from(u16::MAX);
            assert_eq!(got(), Ok(if is_kept { 60_003 } else { 3 }));
        }
    }
}

/// UDP_SEGMENT: pieces as long as a packet of the link takes, and no longer.
#[test]
fn a_segment_may_fill_the_link() {
    for (domain, here, there) in ENDS {
        let world = World::new();
        let [reader, writer] = ends(&world, domain, here, there);
        let most = if domain == Domain::V4 { 1472 } else { 1452 };
        for (segment, len, sent) in [
            (most, 3 * usize::from(most), Ok(3 * usize::from(most))),
            (most + 1, 3000, Err(libc::EMSGSIZE)),
            (most + 1, 1000, Ok(1000)),
            (most + 1, usize::from(most) + 1, Err(libc::EMSGSIZE)),
        ] {
            let text = vec![7; len];
            let buffers = [IoSlice::new(&text)];
            let info = SendInfo::segmented(segment);
            let result = code(writer.send_message(&buffers, Some(to(here)), &info));
            assert_eq!(result, sent, "{segment} {len}");
            world.settle();
            let got: usize = std::iter::from_fn(|| receive(&reader).ok())
                .map(|d| d.len())
                .sum();
            assert_eq!(got, sent.unwrap_or(0));
        }
    }
}

/// The IP packets that the first host has to send for one datagram of so many bytes, with what its path is known to take.
fn packets(world: &World, path: Option<u32>, len: usize) -> Vec<Vec<u8>> {
    world.shard(0, |shard, now| {
        let (number, socket) = shard.udp_sockets().next().unwrap();
        let to = Destination {
            local: socket.local,
            remote: to("10.0.0.2:700"),
            interface: 0,
        };
        if let Some(mtu) = path {
            shard.paths.report(to.remote.ip(), mtu, 1500, u16::MAX, now);
        }
        let text = vec![7; len];
        let buffers = [IoSlice::new(&text)];
        shard
            .udp_send(number, to, &SendInfo::default(), &buffers, now)
            .unwrap();
        shard.outboxes[0]
            .drain(..)
            .map(|p| p.bytes().to_vec())
            .collect()
    })
}

/// DF where the datagram fits its path (RFC 1191 §6.1); none once the path is said to take less than any is believed to (as Linux's min_pmtu).
#[test]
fn df_is_for_paths_that_are_believed() {
    for (path, len, df, count) in [
        (None, 100, true, 1),
        (None, 1472, true, 1),
        (None, 1473, false, 2),
        (Some(1000), 100, true, 1),
        (Some(1000), 980, false, 2),
        (Some(500), 100, false, 1),
        (Some(500), 524, false, 1),
        (Some(500), 525, false, 2),
    ] {
        let world = World::new();
        let _writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
        let sent = packets(&world, path, len);
        assert_eq!(sent.len(), count, "{path:?} {len}");
        assert!(
            sent.iter().all(|p| (p[6] & 0x40 != 0) == df),
            "{path:?} {len}"
        );
        let ident = |p: &Vec<u8>| u16::from_be_bytes([p[4], p[5]]);
        assert!(sent.iter().all(|p| ident(p) == ident(&sent[0])));
        // RFC 6864 §4: what may be cut has an identification of its own each time.
        if !df {
            assert_ne!(ident(&sent[0]), ident(&packets(&world, None, len)[0]));
        }
    }
}

/// A send that found too few buffers takes none; the socket is writable once there are enough, and then the send succeeds.
#[test]
fn a_socket_waits_for_as_many_buffers_as_it_needs() {
    for (len, pieces) in [(100, 1), (1472, 1), (1473, 2), (2952, 2), (4000, 3)] {
        let world = World::new();
        let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
        writer.connect(to("10.0.0.2:700")).unwrap();
        world.shard(0, |shard, now| {
            let (number, socket) = shard.udp_sockets().next().unwrap();
            let destination = Destination {
                local: socket.local,
                remote: to("10.0.0.2:700"),
                interface: 0,
            };
            let mut taken: Vec<_> = std::iter::from_fn(|| shard.slab.alloc()).collect();
            let text = vec![7; len];
            let buffers = [IoSlice::new(&text)];
            let go = |shard: &mut Shard| {
                let info = SendInfo::default();
                shard.udp_send(number, destination, &info, &buffers, now)
            };
            let is_ready =
                |shard: &mut Shard| shard.udp_readiness(number).contains(Readiness::WRITABLE);
            let mut free = 0;
            assert_eq!(go(shard), Err(libc::EAGAIN), "{len}");
            while !is_ready(shard) {
                assert_eq!(go(shard), Err(libc::EAGAIN), "{len} with {free}");
                assert_eq!(shard.slab.available(), free, "nothing is lost");
                assert!(shard.outboxes[0].is_empty(), "all or nothing");
                drop(taken.pop().unwrap());
                free += 1;
            }
            // A piece more where the end is ragged, and one to spare.
            assert!((pieces..=pieces + 2).contains(&free), "{len}: {free}");
            assert_eq!(go(shard), Ok(len));
            assert_eq!(shard.outboxes[0].len(), pieces);
        });
    }
}

/// What an ICMP error said of an earlier datagram is answered once, and nothing is sent then.
#[test]
fn an_error_takes_the_place_of_a_send() {
    let world = World::new();
    let reader = world.bound(1, Kind::Datagram, "10.0.0.2:700");
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let number = world.shard(0, |shard, _| shard.udp_sockets().next().unwrap().0);
    let raise = || world.shard(0, |shard, _| shard.udp_raise(number, libc::EHOSTUNREACH));
    raise();
    assert_eq!(
        send(&writer, b"x", Some(to("10.0.0.2:700"))),
        Err(libc::EHOSTUNREACH)
    );
    world.settle();
    assert_eq!(receive(&reader), Err(libc::EAGAIN));
    raise();
    writer.shutdown(std::net::Shutdown::Write).unwrap_err();
    world.shard(0, |shard, _| shard.udp_shutdown(number, false, true));
    for errno in [libc::EHOSTUNREACH, libc::EPIPE] {
        assert_eq!(send(&writer, b"x", Some(to("10.0.0.2:700"))), Err(errno));
    }
}
