//! Requirements of RFC 9293, appendix B, at which socket, stack and packets meet: no single connection can show them.

use std::{
    io::IoSlice,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use netchan::{
    Clock,
    socket::{Domain, Kind, Socket, SocketOption},
};
use netchan_packetdrill::{settings::Settings, world::World};
use proto::{
    time::Duration,
    wire::{
        checksum,
        ipv4::{self, Protocol},
        tcp::{Flags, HEADER_LEN_MAX, Header, Options, SeqNum},
    },
};

const OURS: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 8080;
const PEER_PORT: u16 = 50_000;

fn world() -> World {
    World::start(&Settings::default(), Clock::new_virtual()).expect("a stack")
}

fn stream(world: &World) -> Socket {
    Socket::new(world.net(), Domain::V4, Kind::Stream).expect("a socket")
}

fn listener(world: &World, address: Ipv4Addr) -> Socket {
    let socket = stream(world);
    socket
        .bind(SocketAddr::new(address.into(), PORT))
        .expect("a free port");
    socket.listen(4).expect("a listener");
    socket
}

/// A segment from the peer's `port`, with `text`, and IP options of whole words in front.
fn packet(to: Ipv4Addr, port: u16, header: Header, text: &[u8], options: &[u8]) -> Vec<u8> {
    let header = Header {
        source_port: port,
        destination_port: PORT,
        window: 60_000,
        ..header
    };
    let mut tcp = [0; HEADER_LEN_MAX];
    let sum = checksum::sum(text);
    let len = header.emit_with_checksum(&mut tcp, sum, text.len(), PEER.into(), to.into());
    let payload = options.len() + len + text.len();
    let mut packet = vec![0; ipv4::HEADER_LEN];
    ipv4::Header::new(Protocol::TCP, PEER, to).emit(payload, &mut packet);
    packet.extend_from_slice(options);
    if !options.is_empty() {
        packet[0] += u8::try_from(options.len() / 4).expect("few");
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend_from_slice(&tcp[..len]);
    packet.extend_from_slice(text);
    packet
}

fn segment(flags: Flags, seq: u32, ack: SeqNum) -> Header {
    let options = if flags.contains(Flags::SYN) {
        Options {
            mss: Some(1000),
            ..Options::NONE
        }
    } else {
        Options::NONE
    };
    Header {
        seq: SeqNum(seq),
        ack,
        flags,
        options,
        ..Header::default()
    }
}

/// What left next: its IP header, TCP header, and length of text. Its checksum is right, its header's padding zero.
fn left(world: &World) -> Option<(ipv4::Header, Header, usize)> {
    world.turn();
    let bytes = world.take()?.bytes;
    let ip = ipv4::Header::parse(&bytes).expect("IPv4");
    let tcp = ip.payload(&bytes);
    let (from, to) = (ip.source.into(), ip.destination.into());
    let pseudo = checksum::pseudo_header(from, to, Protocol::TCP, tcp.len()).expect("a length");
    assert!(checksum::is_valid(pseudo + checksum::sum(tcp)), "{tcp:?}");
    let (header, len) = Header::parse(tcp).expect("TCP");
    let options = &tcp[20..len];
    let mut at = 0;
    while let Some(kind) = options.get(at) {
        match kind {
            0 => {
                assert!(options[at..].iter().all(|byte| *byte == 0), "{options:?}");
                break;
            }
            1 => at += 1,
            _ => at += usize::from(options[at + 1]),
        }
    }
    Some((ip, header, tcp.len() - len))
}

/// The peer opens a connection from `port`: our initial sequence number.
fn opened(world: &World, port: u16) -> SeqNum {
    let syn = segment(Flags::SYN, 1000, SeqNum(0));
    world.inject(&packet(OURS, port, syn, b"", b""));
    let (_, syn_ack, _) = left(world).expect("a SYN-ACK");
    assert!(syn_ack.flags.contains(Flags::SYN | Flags::ACK));
    let ack = segment(Flags::ACK, 1001, syn_ack.seq + 1);
    world.inject(&packet(OURS, port, ack, b"", b""));
    syn_ack.seq
}

/// RFC 9293 MUST-41, MUST-42: one port has a listener and connections; each passive open leaves the others as they are.
#[test]
fn a_listener_and_its_connections_share_a_port() {
    let world = world();
    let listener = listener(&world, OURS);
    let isns = [50_000, 50_001].map(|port| opened(&world, port));
    let (first, first_peer) = listener.accept().expect("the first");
    let (second, second_peer) = listener.accept().expect("the second");
    assert_eq!([first_peer.port(), second_peer.port()], [50_000, 50_001]);
    for (socket, port) in [(&first, 50_000), (&second, 50_001)] {
        socket.send(&[IoSlice::new(b"hello")], None).expect("room");
        let (_, header, len) = left(&world).expect("text");
        assert_eq!((header.destination_port, len), (port, 5));
        assert_eq!(header.seq, isns[usize::from(port - 50_000)] + 1);
    }
    // A further one, while those are open.
    opened(&world, 50_002);
    assert!(listener.is_listening() && listener.accept().is_ok());
}

/// RFC 9293 MUST-43, MUST-44, MUST-45: the application names the local address, or IP chooses it; it stays.
#[test]
fn local_addresses() {
    let world = world();
    let named = stream(&world);
    named
        .bind(SocketAddr::new(OURS.into(), PORT))
        .expect("ours");
    let foreign = stream(&world);
    assert!(foreign.bind(SocketAddr::new(PEER.into(), 1)).is_err());
    let chosen = stream(&world);
    for socket in [&named, &chosen] {
        let peer = SocketAddr::new(PEER.into(), PEER_PORT);
        let error = socket.connect(peer).expect_err("it takes a while");
        assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
        let (ip, header, _) = left(&world).expect("a SYN");
        let local = SocketAddr::new(ip.source.into(), header.source_port);
        assert_eq!((ip.source, socket.local_address()), (OURS, local));
        world.advance_to(world.now() + Duration::from_millis(1100));
        let (again, header, _) = left(&world).expect("the SYN again");
        assert_eq!(
            SocketAddr::new(again.source.into(), header.source_port),
            local
        );
        while world.take().is_some() {}
    }
}

/// RFC 9293 MUST-46: no OPEN to a multicast or broadcast address; MUST-57: no answer to a SYN for one.
#[test]
fn multicast_and_broadcast() {
    let world = world();
    for address in [
        "224.0.0.1",
        "239.1.2.3",
        "255.255.255.255",
        "192.168.255.255",
    ] {
        let address: Ipv4Addr = address.parse().expect("an address");
        let socket = stream(&world);
        assert!(
            socket.connect(SocketAddr::new(address.into(), 80)).is_err(),
            "{address}"
        );
        assert!(left(&world).is_none(), "{address}");
    }
    let _listener = listener(&world, Ipv4Addr::UNSPECIFIED);
    for address in ["224.0.0.1", "255.255.255.255", "192.168.255.255"] {
        let address: Ipv4Addr = address.parse().expect("an address");
        let syn = segment(Flags::SYN, 1000, SeqNum(0));
        world.inject(&packet(address, PEER_PORT, syn, b"", b""));
        assert!(left(&world).is_none(), "{address}");
    }
    opened(&world, PEER_PORT);
}

/// RFC 9293 MUST-47: what ended a connection is told to the application, once.
#[test]
fn errors_are_told() {
    let world = world();
    let listener = listener(&world, OURS);
    opened(&world, PEER_PORT);
    let (socket, _) = listener.accept().expect("a connection");
    let reset = segment(Flags::RST, 1001, SeqNum(0));
    world.inject(&packet(OURS, PEER_PORT, reset, b"", b""));
    let error = socket.take_error().expect("an error");
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
    assert!(socket.take_error().is_none());
}

/// RFC 9293 MUST-48, MUST-49, SHLD-21, SHLD-22: DiffServ and TTL are the application's, also in mid-connection; the ECN bits are not.
#[test]
fn fields_of_the_ip_header() {
    let world = world();
    let listener = listener(&world, OURS);
    opened(&world, PEER_PORT);
    let (socket, _) = listener.accept().expect("a connection");
    for (tos, ttl) in [(0xb8, 5), (0x20, 200)] {
        socket
            .set_option(SocketOption::TypeOfService(tos))
            .expect("IP_TOS");
        socket.set_option(SocketOption::Ttl(ttl)).expect("IP_TTL");
        socket
            .set_option(SocketOption::NoDelay(true))
            .expect("TCP_NODELAY");
        socket.send(&[IoSlice::new(b"x")], None).expect("room");
        let (ip, ..) = left(&world).expect("text");
        assert_eq!((ip.tos, ip.ttl), (tos, ttl));
    }
}

/// RFC 9293 MUST-50: IP options that TCP does not know change nothing; MUST-55: a Source Quench changes nothing either.
#[test]
fn ip_options_and_source_quench() {
    let world = world();
    let listener = listener(&world, OURS);
    let isn = opened(&world, PEER_PORT);
    let (socket, _) = listener.accept().expect("a connection");
    let text = segment(Flags::ACK | Flags::PSH, 1001, isn + 1);
    // Router alert (RFC 2113), and NOPs.
    let options = [148, 4, 0, 0, 1, 1, 1, 1];
    world.inject(&packet(OURS, PEER_PORT, text, b"hello", &options));
    assert_eq!(socket.available(), 5);
    while world.take().is_some() {}
    socket
        .send(&[IoSlice::new(&[0; 3000])], None)
        .expect("room");
    let before = socket.tcp_info().expect("a connection").cwnd_bytes;
    let sent = world.take().expect("text").bytes;
    let quench = [4, 0, 0, 0, 0, 0, 0, 0];
    world.inject(&icmp_about(&sent, &quench));
    assert!(socket.take_error().is_none());
    assert_eq!(socket.tcp_info().expect("a connection").cwnd_bytes, before);
}

/// RFC 9293 SHLD-20: an application that does not want to hear of soft errors asks for nothing, and nothing disturbs it while its connection
/// goes on. One that asks is told why the connection ended, if it ends.
#[test]
fn soft_errors_disturb_no_connection() {
    let world = world();
    let listener = listener(&world, OURS);
    opened(&world, PEER_PORT);
    let (socket, _) = listener.accept().expect("a connection");
    let timeout = SocketOption::UserTimeout(Duration::from_secs(5));
    socket.set_option(timeout).expect("TCP_USER_TIMEOUT");
    socket.send(&[IoSlice::new(b"text")], None).expect("room");
    let sent = world.take().expect("text").bytes;
    let before = socket.readiness();
    let host_unreachable = [3, 1, 0, 0, 0, 0, 0, 0];
    world.inject(&icmp_about(&sent, &host_unreachable));
    assert_eq!(socket.readiness(), before);
    assert!(socket.take_error().is_none());
    assert_eq!(socket.send(&[IoSlice::new(b"more")], None).expect("on"), 4);
    world.advance_to(world.now() + Duration::from_secs(6));
    let error = socket.take_error().expect("given up");
    assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH));
}

/// An ICMP message that quotes `sent`.
fn icmp_about(sent: &[u8], head: &[u8; 8]) -> Vec<u8> {
    let mut icmp = head.to_vec();
    icmp.extend_from_slice(&sent[..28]);
    let sum = checksum::checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0; ipv4::HEADER_LEN];
    ipv4::Header::new(Protocol::ICMP, PEER, OURS).emit(icmp.len(), &mut packet);
    packet.extend_from_slice(&icmp);
    packet
}

/// RFC 9293 MUST-67: the MSS that is announced is what IP can receive, less both headers.
#[test]
fn the_announced_segment_size_follows_the_link() {
    for mtu in [576, 1500, 9000] {
        let settings = Settings {
            mtu,
            longest: mtu,
            ..Settings::default()
        };
        let settings = Settings {
            tcp: proto::tcp::Config {
                mss: 65_000,
                ..settings.tcp
            },
            ..settings
        };
        let world = World::start(&settings, Clock::new_virtual()).expect("a stack");
        let socket = stream(&world);
        let _ = socket.connect(SocketAddr::new(IpAddr::from(PEER), PEER_PORT));
        let (_, syn, _) = left(&world).expect("a SYN");
        assert_eq!(usize::from(syn.options.mss.expect("MSS")), mtu - 40);
    }
}

/// RFC 9293 SHLD-27, SHLD-28: writes that wait are sent together, in segments of the largest size, with one PSH for all of them.
#[test]
fn writes_are_put_together() {
    let world = world();
    let listener = listener(&world, OURS);
    let isn = opened(&world, PEER_PORT);
    let (socket, _) = listener.accept().expect("a connection");
    socket.send(&[IoSlice::new(b"first")], None).expect("room");
    let (_, header, len) = left(&world).expect("text");
    assert!(header.flags.contains(Flags::PSH) && len == 5);
    for _ in 0..30 {
        socket.send(&[IoSlice::new(&[7; 50])], None).expect("room");
    }
    // Nagle's algorithm: one full segment, when the twentieth write has filled it, and a rest that waits.
    let (_, header, len) = left(&world).expect("a full one");
    assert!(header.flags.contains(Flags::PSH) && len == 1000);
    assert!(left(&world).is_none());
    let ack = segment(Flags::ACK, 1001, isn + 1006);
    world.inject(&packet(OURS, PEER_PORT, ack, b"", b""));
    let (_, header, len) = left(&world).expect("the rest");
    assert!(header.flags.contains(Flags::PSH) && len == 500);
    assert!(left(&world).is_none());
}

/// RFC 9293 MUST-59: all segments that wait are processed before anything is acknowledged, so one acknowledgment tells of all, also
/// where each alone would have had its own.
#[test]
fn a_burst_is_acknowledged_as_a_whole() {
    let world = world();
    let listener = listener(&world, OURS);
    let iss = opened(&world, PEER_PORT);
    let (_accepted, _) = listener.accept().expect("a connection");
    let burst: Vec<_> = (0..5)
        .map(|n| {
            let header = segment(Flags::ACK, 1001 + 1000 * n, iss + 1);
            packet(OURS, PEER_PORT, header, &[7; 1000], b"")
        })
        .collect();
    world.inject(&burst[0]);
    let (_, alone, _) = left(&world).expect("an acknowledgment of its own");
    assert_eq!(alone.ack, SeqNum(2001));
    world.inject_burst(&burst[1..]);
    let (_, together, _) = left(&world).expect("an acknowledgment");
    assert_eq!(together.ack, SeqNum(6001));
    assert!(left(&world).is_none());
}
