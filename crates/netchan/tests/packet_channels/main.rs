//! Packet channels (C6): packets of any protocol through an application's own channel.

#![allow(clippy::cast_possible_truncation)] // small numbers, and bytes of a pattern

mod raw;
mod regimes;

use std::{
    io::{self, IoSlice},
    net::IpAddr,
    time::Duration,
};

use netchan::{
    Clock, LentPacket, MacAddr, Net, PacketChannel, PacketDestination, PacketOptions,
    PacketProtocol, Threads, limits, link::wire, socket::Readiness,
};

const EXPERIMENT: PacketProtocol = PacketProtocol::Ip(253);
const FRAMES: PacketProtocol = PacketProtocol::EtherType(0x88b5);

/// Two hosts on a wire of Ethernet's MTU, in virtual time.
struct Pair {
    nets: [Net; 2],
    clock: Clock,
}

impl Pair {
    fn new(options: &wire::Options) -> Self {
        let (a, b) = wire::pair(options);
        let clock = Clock::new_virtual();
        let start = |link, v4: &str, v6: &str| {
            let builder = Net::builder().link_with(Box::new(link));
            let builder = builder.address(v4).unwrap().address(v6).unwrap();
            let builder = builder.threads(Threads::Caller).clock(clock.clone());
            builder.seed(1).start().unwrap()
        };
        let nets = [
            start(a, "10.0.0.1/24", "fd77::1/64"),
            start(b, "10.0.0.2/24", "fd77::2/64"),
        ];
        let pair = Self { nets, clock };
        for _ in 0..20 {
            pair.turn();
            pair.clock.advance(Duration::from_millis(50));
        }
        pair
    }

    fn turn(&self) {
        for _ in 0..16 {
            self.clock.advance(Duration::from_micros(50));
            self.nets.iter().for_each(|net| _ = net.poll());
        }
    }

    /// A channel at each host.
    fn channels(&self, protocol: PacketProtocol) -> [PacketChannel; 2] {
        self.nets.each_ref().map(|net| channel(net, protocol))
    }

    fn counter(&self, host: usize, name: &str) -> u64 {
        counter(&self.nets[host], name)
    }
}

fn channel(net: &Net, protocol: PacketProtocol) -> PacketChannel {
    let channel = net.packet_channel(protocol).unwrap();
    channel.set_nonblocking(true).unwrap();
    channel
}

fn counter(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).expect(name);
    row["value"].as_u64().unwrap()
}

/// Buffers of packets that are not at home: a wire hands the sender's to the receiver as they are.
fn buffers_away(nets: &[Net]) -> u64 {
    let away = |net: &Net| {
        let rows = net.show("memory").unwrap();
        let rows = rows.as_array().unwrap().iter();
        let buffers = rows.filter(|row| {
            row["what"]
                .as_str()
                .is_some_and(|what| what.ends_with(" buffers"))
        });
        buffers
            .map(|row| row["all"].as_u64().unwrap() - row["free"].as_u64().unwrap())
            .sum::<u64>()
    };
    nets.iter().map(away).sum()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn station(net: &Net) -> PacketDestination {
    let mac = MacAddr(net.links()[0].mac);
    PacketDestination::Station { link: 0, mac }
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    let error = result.unwrap_err();
    error
        .raw_os_error()
        .unwrap_or_else(|| panic!("no errno: {error}"))
}

#[test]
fn ip_packets_of_both_families_arrive_with_their_headers() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(EXPERIMENT);
    for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd77::1", "fd77::2")] {
        for len in [0, 1, 17, 1400] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(a.send_to(&payload, ip(to)).unwrap(), len);
            pair.turn();
            let packet = b.recv().unwrap();
            assert_eq!(packet.payload(), payload);
            assert_eq!(packet.source_ip(), Some(ip(from)));
            assert_eq!(packet.destination_ip(), Some(ip(to)));
            assert_eq!((packet.source_mac(), packet.link()), (None, 0));
            let is_v4 = ip(to).is_ipv4();
            let header = if is_v4 { 20 } else { 40 };
            assert_eq!(packet.bytes().len(), header + len);
            let (protocol, ttl) = if is_v4 { (9, 8) } else { (6, 7) };
            assert_eq!((packet.bytes()[protocol], packet.bytes()[ttl]), (253, 64));
        }
    }
    assert_eq!(errno(b.recv()), libc::EAGAIN);
    assert_eq!(pair.counter(1, "packet_channel_in"), 8);
    assert_eq!(pair.counter(0, "packet_channel_out"), 8);
    assert_eq!(pair.counter(1, "drop_ip_protocol"), 0);
}

#[test]
fn what_the_header_says() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(EXPERIMENT);
    let options = PacketOptions {
        source: Some(ip("10.0.0.1")),
        ttl: Some(7),
        tos: 0xb8,
        dont_fragment: true,
        ..PacketOptions::default()
    };
    let buffers = [
        IoSlice::new(b"in "),
        IoSlice::new(b""),
        IoSlice::new(b"parts"),
    ];
    let sent = a.send_message(&buffers, ip("10.0.0.2").into(), &options);
    assert_eq!(sent.unwrap(), 8);
    pair.turn();
    let packet = b.recv().unwrap();
    assert_eq!(packet.payload(), b"in parts");
    let header = packet.bytes();
    assert_eq!((header[1], header[6] & 0x40, header[8]), (0xb8, 0x40, 7));
    let send = |to: &str, options| a.send_message(&buffers, ip(to).into(), &options);
    let from = |source: &str| PacketOptions {
        source: Some(ip(source)),
        ..PacketOptions::default()
    };
    assert_eq!(
        errno(send("10.0.0.2", from("10.0.0.9"))),
        libc::EADDRNOTAVAIL
    );
    assert_eq!(
        errno(send("10.0.0.2", from("fd77::1"))),
        libc::EADDRNOTAVAIL
    );
    assert_eq!(
        errno(send("192.0.2.1", PacketOptions::default())),
        libc::ENETUNREACH
    );
    let by = PacketOptions {
        link: Some(9),
        ..PacketOptions::default()
    };
    assert_eq!(errno(send("10.0.0.2", by)), libc::ENODEV);
    let refused = a.send_to(b"x", ip("0.0.0.0")).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    let refused = a.send_to(b"x", station(&pair.nets[1])).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn long_packets_go_in_pieces_or_not_at_all() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(EXPERIMENT);
    for to in ["10.0.0.2", "fd77::2"] {
        let payload: Vec<u8> = (0..9000).map(|i| (i / 3) as u8).collect();
        a.send_to(&payload, ip(to)).unwrap();
        pair.turn();
        let packet = b.recv().unwrap();
        assert_eq!(packet.payload(), payload, "put together before");
        let options = PacketOptions {
            dont_fragment: true,
            ..PacketOptions::default()
        };
        let whole = [IoSlice::new(&payload)];
        let sent = a.send_message(&whole, ip(to).into(), &options);
        assert_eq!(errno(sent), libc::EMSGSIZE);
        assert_eq!(errno(a.send_to(&[0; 65_536], ip(to))), libc::EMSGSIZE);
    }
    assert_eq!(
        errno(a.send_to(&[0; 65_530], ip("10.0.0.2"))),
        libc::EMSGSIZE
    );
    assert!(pair.counter(1, "fragments_in") >= 14);
}

#[test]
fn frames_go_to_a_station() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(FRAMES);
    let [mac_a, mac_b] = pair.nets.each_ref().map(|net| MacAddr(net.links()[0].mac));
    // What looks like IP packets of each version, too.
    for payload in [&b""[..], b"text", &[0x45; 60], &[0x60; 60], &[0; 1500]] {
        a.send_to(payload, station(&pair.nets[1])).unwrap();
        pair.turn();
        let frame = b.recv().unwrap();
        assert_eq!(frame.payload(), payload);
        assert_eq!(frame.bytes().len(), 14 + payload.len());
        assert_eq!(
            (frame.source_mac(), frame.destination_mac()),
            (Some(mac_a), Some(mac_b))
        );
        assert_eq!((frame.source_ip(), frame.to_group()), (None, false));
    }
    let all = PacketDestination::Station {
        link: 0,
        mac: MacAddr::BROADCAST,
    };
    a.send_to(b"to all", all).unwrap();
    pair.turn();
    assert!(b.recv().unwrap().to_group());
    let too_long = a.send_to(&[0; 1501], station(&pair.nets[1]));
    assert_eq!(errno(too_long), libc::EMSGSIZE);
    let nowhere = PacketDestination::Station {
        link: 1,
        mac: mac_b,
    };
    assert_eq!(errno(a.send_to(b"x", nowhere)), libc::ENODEV);
    let refused = a.send_to(b"x", ip("10.0.0.2")).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    // For another station.
    let other = PacketDestination::Station {
        link: 0,
        mac: MacAddr([2, 9, 9, 9, 9, 9]),
    };
    a.send_to(b"x", other).unwrap();
    pair.turn();
    assert_eq!(errno(b.recv()), libc::EAGAIN);
    assert_eq!(pair.counter(1, "drop_other_mac"), 1);
}

#[test]
fn one_channel_a_protocol_and_none_for_what_the_stack_speaks() {
    let pair = Pair::new(&wire::Options::default());
    let net = &pair.nets[0];
    let first = channel(net, EXPERIMENT);
    assert_eq!(errno(net.packet_channel(EXPERIMENT)), libc::EADDRINUSE);
    let tcp = net.packet_channel(PacketProtocol::Ip(6)).unwrap_err();
    assert_eq!(tcp.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(tcp.to_string(), "ip 6 has sockets: Net::tcp, Net::udp");
    let others: Vec<_> = (1..limits::PACKET_CHANNELS as u16)
        .map(|n| channel(net, PacketProtocol::EtherType(0x9000 + n)))
        .collect();
    assert_eq!(errno(net.packet_channel(FRAMES)), libc::EMFILE);
    drop((first, others));
    drop(channel(net, EXPERIMENT));
}

#[test]
fn without_a_channel_it_is_unserved_as_ever() {
    let pair = Pair::new(&wire::Options::default());
    let a = channel(&pair.nets[0], EXPERIMENT);
    let frames = channel(&pair.nets[0], FRAMES);
    let send = || {
        a.send_to(b"x", ip("10.0.0.2")).unwrap();
        a.send_to(b"x", ip("fd77::2")).unwrap();
        frames.send_to(b"x", station(&pair.nets[1])).unwrap();
        pair.turn();
    };
    send(); // the neighbours become known: they ask, too, by ICMPv6
    let counts =
        || ["drop_ip_protocol", "icmp_out", "drop_ethertype"].map(|name| pair.counter(1, name));
    let before = counts();
    let since = || {
        let now = counts();
        [0, 1, 2].map(|at| now[at] - before[at])
    };
    send();
    assert_eq!(since(), [2, 2, 1]);
    let own = [EXPERIMENT, FRAMES].map(|protocol| channel(&pair.nets[1], protocol));
    send();
    assert_eq!(since(), [2, 2, 1]);
    assert_eq!(own[0].recv().unwrap().payload(), b"x");
    drop(own);
    send();
    assert_eq!(since(), [4, 4, 2]);
}

#[test]
fn to_ourselves() {
    let pair = Pair::new(&wire::Options::default());
    let a = channel(&pair.nets[0], EXPERIMENT);
    for own in ["10.0.0.1", "fd77::1"] {
        a.send_to(b"me", ip(own)).unwrap();
        pair.turn();
        let packet = a.recv().unwrap();
        assert_eq!(
            (packet.payload(), packet.source_ip()),
            (&b"me"[..], Some(ip(own)))
        );
    }
}

#[test]
fn overflow_is_counted_and_nothing_is_lost_unseen() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(EXPERIMENT);
    a.send_to(&[0; 4], ip("10.0.0.2")).unwrap(); // the neighbour becomes known
    pair.turn();
    drop(b.recv().unwrap());
    let mut numbers = 0..3 * limits::PACKET_CHANNEL as u32;
    let mut got = Vec::new();
    while !numbers.is_empty() {
        for number in numbers.by_ref().take(700) {
            a.send_to(&number.to_be_bytes(), ip("10.0.0.2")).unwrap();
        }
        pair.turn();
        let mut packets = Vec::new();
        while b.recv_batch(&mut packets, 64).is_ok() {
            got.extend(
                packets
                    .drain(..)
                    .map(|packet: LentPacket| packet.payload().to_vec()),
            );
        }
    }
    let lost = pair.counter(1, "drop_packet_channel_full");
    assert_eq!(
        (b.drops(), pair.counter(1, "packet_channel_in")),
        (lost, got.len() as u64 + 1)
    );
    assert_eq!(got.len() as u64 + lost, 3 * limits::PACKET_CHANNEL as u64);
    assert!(lost > 0 && got.is_sorted(), "in order");
    let rows = pair.nets[1].show("sockets").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["protocol"] == "ip 253").unwrap();
    assert_eq!(
        (&row["dropped_datagrams"], &row["receive_datagrams"]),
        (&lost.into(), &0.into())
    );
}

#[test]
fn so_many_are_held_and_no_more() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(FRAMES);
    b.set_held_max(3);
    for number in 0..10 {
        a.send_to(&[number], station(&pair.nets[1])).unwrap();
    }
    pair.turn();
    let mut held = Vec::new();
    assert_eq!(b.recv_batch(&mut held, 100).unwrap(), 3);
    assert_eq!(errno(b.recv()), libc::ENOBUFS);
    assert_eq!(b.held(), 3);
    assert!(
        b.readiness()
            .contains(Readiness::READABLE | Readiness::WRITABLE)
    );
    held.pop();
    assert_eq!(b.recv().unwrap().payload(), [3]);
    assert_eq!(b.recv().unwrap().payload(), [4], "each was dropped at once");
    drop(held);
    b.set_held_max(usize::MAX);
    let mut rest = Vec::new();
    b.recv_batch(&mut rest, 100).unwrap();
    assert_eq!((rest.len(), b.held()), (5, 5));
}

#[test]
fn all_buffers_come_home_when_it_closes() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(EXPERIMENT);
    assert_eq!(buffers_away(&pair.nets), 0);
    a.send_to(b"first", ip("10.0.0.2")).unwrap(); // the neighbour becomes known
    pair.turn();
    drop(b.recv().unwrap());
    for number in 0..100 {
        a.send_to(&[number; 100], ip("10.0.0.2")).unwrap();
        if number == 50 {
            pair.turn();
        }
    }
    let held = b.recv().unwrap();
    drop(b); // some wait in it, some are on the wire
    pair.turn();
    assert!(pair.counter(1, "drop_ip_protocol") > 0);
    assert_eq!(held.payload(), [0; 100], "it outlives its channel");
    assert_eq!(buffers_away(&pair.nets), 1);
    drop(held);
    assert_eq!(buffers_away(&pair.nets), 0);
}

#[test]
fn gone_link_ends_it() {
    let pair = Pair::new(&wire::Options::default());
    let [a, b] = pair.channels(FRAMES);
    let Pair {
        nets: [net, far],
        clock,
    } = pair;
    let to = station(&far);
    drop((b, far));
    for _ in 0..8 {
        clock.advance(Duration::from_millis(1));
        net.poll();
    }
    assert_eq!(errno(a.recv()), libc::ENETDOWN);
    assert_eq!(errno(a.send_to(b"x", to)), libc::ENETDOWN);
}
