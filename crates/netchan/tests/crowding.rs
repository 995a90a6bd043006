//! Peers that make others hold much memory for little: on a link whose receive buffers are 64 KiB each, no socket's traffic may keep another
//! socket from being served. Frames are made by hand, in buffers as large as such a link's.

use std::{
    collections::VecDeque,
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::{Link, LinkRx, LinkTx, wire},
    packet::Packet,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket, SocketOption},
};
use percore::slab::Slab;
use proto::wire::{
    arp, checksum,
    ethernet::{self, EtherType, MacAddr},
    ipv4::{self, Protocol},
    tcp::{Flags, Header, Options, SeqNum},
    udp,
};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 80;
/// An MTU with which a link's receive buffers are large and few.
const MTU: usize = 65_000;
const BUFFERS: usize = 4096;

/// One connection of a peer that exists on paper only.
#[derive(Clone, Copy)]
struct Peer {
    ip: Ipv4Addr,
    port: u16,
    next: SeqNum,
    acked: SeqNum,
}

/// A stack, and the other end of its link.
struct World {
    net: Net,
    listener: Socket,
    clock: Clock,
    wire: wire::Wire,
    slab: Slab,
    macs: [MacAddr; 2],
    /// Segments that the stack sent: to where, and what.
    said: Vec<(Ipv4Addr, Header, Vec<u8>)>,
}

impl World {
    fn new(build: impl FnOnce(netchan::Builder) -> netchan::Builder) -> Self {
        let clock = Clock::new_virtual();
        let (link, wire) = wire::pair(&wire::Options {
            mtu: MTU,
            ..wire::Options::default()
        });
        let macs = [&link, &wire].map(|end| end.properties().mac);
        let builder = Net::builder().threads(Threads::Caller).clock(clock.clone());
        let builder = builder.seed(1).link_with(Box::new(link));
        let net = build(builder).address("10.0.0.1/16").unwrap();
        let net = net.start().unwrap();
        let listener = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
        listener.bind(SocketAddr::from((OURS, PORT))).unwrap();
        listener.listen(4096).unwrap();
        Self {
            net,
            listener,
            clock,
            wire,
            slab: Slab::with_ready(BUFFERS, MTU + 64, 0).unwrap(),
            macs,
            said: Vec::new(),
        }
    }

    fn puts(&mut self, kind: EtherType, ip: &[u8]) {
        let mut packet = Packet::new(self.slab.alloc().expect("a buffer of the link"), 0);
        let room = packet.room_mut();
        let header = ethernet::Header::new(self.macs[0], self.macs[1], kind);
        let at = header.emit(room);
        room[at..at + ip.len()].copy_from_slice(ip);
        packet.set_len(at + ip.len());
        let mut burst = VecDeque::from([packet]);
        self.wire.transmit(self.clock.now(), &mut burst).unwrap();
        assert!(burst.is_empty());
        self.turn();
    }

    fn puts_ip(&mut self, protocol: Protocol, from: Ipv4Addr, upper: &[u8]) {
        let mut ip = vec![0; 20 + upper.len()];
        ipv4::Header::new(protocol, from, OURS).emit(upper.len(), &mut ip);
        ip[20..].copy_from_slice(upper);
        self.puts(EtherType::IPV4, &ip);
    }

    /// Turns the stack until it is quiet; answers what it asks by ARP.
    fn turn(&mut self) {
        loop {
            let moved = self.net.poll();
            let (mut burst, now) = (VecDeque::new(), self.clock.now());
            let heard = self.wire.receive(now, &mut self.slab, &mut burst, 64);
            for packet in burst {
                self.hears(packet.bytes());
            }
            if !moved && heard.unwrap() == 0 {
                return;
            }
        }
    }

    fn hears(&mut self, frame: &[u8]) {
        let (header, at) = ethernet::Header::parse(frame).unwrap();
        if header.ethertype == EtherType::ARP {
            let asked = arp::Packet::parse(&frame[at..]).unwrap();
            if asked.operation == arp::Operation::Request && asked.target_ip != OURS {
                let mut reply = [0; arp::LEN];
                let answer = arp::Packet {
                    operation: arp::Operation::Reply,
                    sender_mac: self.macs[1],
                    sender_ip: asked.target_ip,
                    target_mac: asked.sender_mac,
                    target_ip: asked.sender_ip,
                };
                answer.emit(&mut reply);
                self.puts(EtherType::ARP, &reply);
            }
            return;
        }
        let ip = ipv4::Header::parse(&frame[at..]).unwrap();
        if ip.protocol == Protocol::TCP {
            let segment = &frame[at + 20..at + usize::from(ip.total_len)];
            let (header, text) = Header::parse(segment).unwrap();
            (self.said).push((ip.destination, header, segment[text..].to_vec()));
        }
    }

    /// A segment of a peer, its text at `seq`.
    fn segment(&mut self, peer: &Peer, flags: Flags, seq: SeqNum, text: &[u8]) {
        let header = Header {
            source_port: peer.port,
            destination_port: PORT,
            seq,
            ack: peer.acked,
            flags,
            window: 65_535,
            urgent: 0,
            options: Options {
                mss: flags.contains(Flags::SYN).then_some(64_000),
                ..Options::default()
            },
        };
        let mut segment = vec![0; header.len() + text.len()];
        let at = segment.len() - text.len();
        segment[at..].copy_from_slice(text);
        let (from, sum) = (IpAddr::V4(peer.ip), checksum::sum(text));
        header.emit_with_checksum(&mut segment, sum, text.len(), from, IpAddr::V4(OURS));
        self.puts_ip(Protocol::TCP, peer.ip, &segment);
    }

    /// What the stack said last to a peer.
    fn heard(&mut self, peer: &Peer) -> Option<(Header, Vec<u8>)> {
        let mine = |(ip, header, _): &(Ipv4Addr, Header, Vec<u8>)| {
            *ip == peer.ip && header.destination_port == peer.port
        };
        let found = self.said.iter().rev().find(|one| mine(one)).cloned();
        self.said.retain(|one| !mine(one));
        found.map(|(_, header, text)| (header, text))
    }

    /// Opens a connection; the stack's end of it is accepted.
    fn opens(&mut self, ip: Ipv4Addr, port: u16) -> (Peer, Socket) {
        let mut peer = Peer {
            ip,
            port,
            next: SeqNum(1000),
            acked: SeqNum(0),
        };
        self.segment(&peer, Flags::SYN, peer.next, &[]);
        let (answer, _) = self.heard(&peer).expect("an answer to a SYN");
        assert!(answer.flags.contains(Flags::SYN | Flags::ACK));
        (peer.next, peer.acked) = (peer.next + 1, answer.seq + 1);
        self.segment(&peer, Flags::ACK, peer.next, &[]);
        let accepted = self.listener.accept().expect("a connection to accept");
        (peer, accepted.0)
    }

    /// Text in order; it must be acknowledged, and echoed by the stack's program at once.
    fn echoes(&mut self, peer: &mut Peer, server: &Socket, text: &[u8]) {
        self.segment(peer, Flags::ACK | Flags::PSH, peer.next, text);
        peer.next = peer.next + u32::try_from(text.len()).unwrap();
        let mut room = vec![0; text.len() + 1];
        let got = server
            .receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default())
            .expect("what was sent in order");
        assert_eq!(&room[..got.len], text);
        let sent = server.send(&[IoSlice::new(text)], None).unwrap();
        assert_eq!(sent, text.len());
        self.clock.advance(Duration::from_millis(1));
        self.turn();
        let (answer, echo) = self.heard(peer).expect("an echo");
        assert_eq!((answer.ack, &echo[..]), (peer.next, text));
        peer.acked = answer.seq + u32::try_from(echo.len()).unwrap();
        self.segment(peer, Flags::ACK, peer.next, &[]);
    }

    fn counter(&self, name: &str) -> u64 {
        let rows = self.net.show("counters").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).unwrap();
        row["value"].as_u64().unwrap()
    }

    /// Buffers in which frames came that the stack still holds.
    fn held(&mut self) -> usize {
        BUFFERS - self.slab.available()
    }

    /// Bytes that all sockets of a kind hold, at most.
    fn account(&self, of: &str) -> u64 {
        let rows = self.net.show("memory").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["of"] == of).unwrap();
        row["used_bytes"].as_u64().unwrap()
    }

    fn datagram(&mut self, from: Ipv4Addr, to: u16, payload: &[u8]) {
        let header = udp::Header {
            source_port: 9,
            destination_port: to,
            length: 0,
            checksum: 0,
        };
        let mut datagram = vec![0; 8 + payload.len()];
        datagram[8..].copy_from_slice(payload);
        let sum = checksum::sum(payload);
        let (from_ip, to_ip) = (IpAddr::V4(from), IpAddr::V4(OURS));
        header.emit(from_ip, to_ip, sum, payload.len(), &mut datagram);
        self.puts_ip(Protocol::UDP, from, &datagram);
    }
}

const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);

/// Another connection is served, and a new one is.
fn serves(world: &mut World, victim: &mut (Peer, Socket), port: u16) {
    let (peer, server) = victim;
    world.echoes(peer, server, &[7; 100]);
    world.echoes(peer, server, &[8; 3000]);
    world.echoes(peer, server, &vec![9; 20_000]);
    let (mut new, server) = world.opens(VICTIM, port);
    world.echoes(&mut new, &server, b"hello");
}

/// A peer that may not hold more is still heard on a connection that holds nothing: ordinary segments whole, of a longer one a good part. A
/// program may read there before it reads what fills the others.
fn hears_a_full_peer(world: &mut World, ip: Ipv4Addr, port: u16) {
    let (mut peer, server) = world.opens(ip, port);
    for _ in 0..20 {
        world.echoes(&mut peer, &server, &[7; 1448]);
    }
    let mut left = vec![9; 60_000];
    while !left.is_empty() {
        let text = left.split_off(left.len().saturating_sub(40_000));
        let before = peer.next;
        world.segment(&peer, Flags::ACK | Flags::PSH, before, &text);
        let mut room = vec![0; text.len()];
        let mut buffers = [IoSliceMut::new(&mut room)];
        let got = server.receive(&mut buffers, ReceiveFlags::default());
        let len = got.expect("its beginning").len;
        assert!(len >= 2048, "{len} bytes of {}", text.len());
        peer.next = before + u32::try_from(len).unwrap();
        left.extend(&text[len..]);
    }
}

/// Connections with one byte each to a program that does not read.
#[test]
fn connections_with_an_unread_byte_each_leave_room_for_others() {
    let mut world = World::new(|builder| builder);
    let mut victim = world.opens(VICTIM, 1);
    let mut unread = Vec::new();
    for number in 0..1_700_u16 {
        let [high, low] = (number % 5).to_be_bytes();
        let (peer, server) = world.opens(Ipv4Addr::new(10, 0, high, 10 + low), 1024 + number);
        world.segment(&peer, Flags::ACK, peer.next, b"x");
        unread.push(server);
        if number % 340 == 339 {
            serves(&mut world, &mut victim, number);
        }
    }
    // The link has its buffers, and what is held is counted as it is held: little.
    assert!(world.held() < 16, "{}", world.held());
    let used = world.account("tcp sockets");
    assert!(used < 1 << 20, "{used}");
    assert_eq!(world.counter("drop_tcp_memory"), 0);
    for server in unread {
        let mut room = [0; 4];
        let got = server.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default());
        assert_eq!((got.unwrap().len, room[0]), (1, b'x'));
    }
}

/// Six peers with a byte at every second number, and 250 with one byte.
#[test]
fn bytes_behind_gaps_leave_room_for_others() {
    let mut world = World::new(|builder| builder);
    let mut victim = world.opens(VICTIM, 1);
    let mut unread = Vec::new();
    for number in 0..6 {
        let (peer, server) = world.opens(Ipv4Addr::new(10, 0, 0, 10 + number), 2000);
        for at in 0..300 {
            world.segment(&peer, Flags::ACK, peer.next + 1 + 2 * at, b"x");
        }
        unread.push(server);
        serves(&mut world, &mut victim, 100 + u16::from(number));
    }
    for number in 0..250 {
        let (peer, server) = world.opens(Ipv4Addr::new(10, 0, 1, 10), 2000 + number);
        world.segment(&peer, Flags::ACK, peer.next, b"x");
        unread.push(server);
    }
    serves(&mut world, &mut victim, 200);
    assert!(world.held() < 16, "{}", world.held());
    // Each of 6 × 256 bytes cost its peer a frame of 55 bytes.
    let used = world.account("tcp sockets");
    assert!(used < 1 << 20, "{used}");
}

/// A socket full of datagrams of one byte: another one has room for its own, and the link keeps its buffers.
#[test]
fn small_datagrams_leave_room_for_others() {
    let mut world = World::new(|builder| builder);
    let bind = |port: u16| {
        let socket = Socket::new(&world.net, Domain::V4, Kind::Datagram).unwrap();
        let room = SocketOption::ReceiveBuffer(8 << 20);
        socket.set_option(room).unwrap();
        socket.bind(SocketAddr::from((OURS, port))).unwrap();
        socket
    };
    let (full, other) = (bind(7), bind(8));
    for number in 0..4_000_u32 {
        let [.., low] = number.to_be_bytes();
        world.datagram(Ipv4Addr::new(10, 0, 0, 10), 7, &[low]);
    }
    assert!(world.held() < 16, "{}", world.held());
    for number in 0..100 {
        world.datagram(VICTIM, 8, &[number; 1000]);
    }
    let drain = |socket: &Socket| {
        let mut room = [0; 2000];
        let mut got = Vec::new();
        while let Ok(one) =
            socket.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default())
        {
            let source = one.from.unwrap().ip();
            let info = one.info.unwrap();
            assert_eq!((info.ttl, info.destination.ip()), (64, IpAddr::V4(OURS)));
            got.push((source, one.len, room[0]));
        }
        got
    };
    let of_other: Vec<_> = (0..100).map(|n| (IpAddr::V4(VICTIM), 1000, n)).collect();
    assert_eq!(drain(&other), of_other);
    let of_full = drain(&full);
    assert!(of_full.len() > 1000, "{}", of_full.len());
    let [.., low] = 999_u32.to_be_bytes();
    assert_eq!(of_full[999].2, low);
    drop((full, other));
    assert_eq!(world.account("udp sockets"), 0);
}

/// One peer's connections with as much as just may stay in the link's buffers: it gets half of them, others are served from the rest.
#[test]
fn one_peer_gets_no_more_than_half_of_the_links_buffers() {
    let mut world = World::new(|builder| builder);
    let mut victim = world.opens(VICTIM, 1);
    let mut unread = Vec::new();
    for number in 0..300 {
        let (mut peer, server) = world.opens(Ipv4Addr::new(10, 0, 1, 10), 2000 + number);
        for _ in 0..7 {
            let text = [1; 8300];
            world.segment(&peer, Flags::ACK, peer.next, &text);
            peer.next = peer.next + 8300;
        }
        unread.push(server);
        if number % 50 == 49 {
            serves(&mut world, &mut victim, 100 + number);
        }
    }
    assert!(world.counter("drop_tcp_peer_share") > 0);
    let held = world.held();
    assert!((700..1024).contains(&held), "{held}");
    hears_a_full_peer(&mut world, Ipv4Addr::new(10, 0, 1, 10), 1999);
    // A reader gets the rest of what was sent, as the peer sends it again.
    let first = &unread[0];
    let mut room = vec![0; 60_000];
    let mut buffers = [IoSliceMut::new(&mut room)];
    let got = first.receive(&mut buffers, ReceiveFlags::default());
    assert_eq!(got.unwrap().len, 7 * 8300);
}

/// A socket and a peer that use up their shares are refused more, with a reason; others are not, and a connection that holds nothing never.
#[test]
fn a_socket_and_a_peer_have_a_share_each() {
    const SOCKET: usize = 256 << 10;
    const PEER: usize = 512 << 10;
    let shares = |builder: netchan::Builder| {
        let builder = builder.tcp_memory(4 << 20).udp_memory(4 << 20);
        builder.tcp_shares(SOCKET, PEER).udp_shares(SOCKET, PEER)
    };
    let mut world = World::new(shares);
    let mut victim = world.opens(VICTIM, 1);
    let mut unread = Vec::new();
    for number in 0..8 {
        let (mut peer, server) = world.opens(Ipv4Addr::new(10, 0, 1, 10), 2000 + number);
        for _ in 0..7 {
            world.segment(&peer, Flags::ACK, peer.next, &[1; 8300]);
            peer.next = peer.next + 8300;
        }
        unread.push(server);
        serves(&mut world, &mut victim, 100 + number);
        let used = world.account("tcp sockets");
        assert!(used <= (PEER + (192 << 10)) as u64, "{used}"); // two chunks are claimed ahead
    }
    hears_a_full_peer(&mut world, Ipv4Addr::new(10, 0, 1, 10), 1999);
    // Later ones are told of narrow windows.
    let of_socket = world.counter("drop_tcp_socket_share");
    assert!(of_socket >= 3, "{of_socket}");
    // Each of them can read something, and what it was refused comes again.
    for server in &unread {
        let mut room = vec![0; 60_000];
        let mut buffers = [IoSliceMut::new(&mut room)];
        let got = server.receive(&mut buffers, ReceiveFlags::default());
        assert!(got.unwrap().len >= 256);
    }
    assert_eq!(world.counter("drop_tcp_memory_limit"), 0);

    let bind = |port: u16| {
        let socket = Socket::new(&world.net, Domain::V4, Kind::Datagram).unwrap();
        let room = SocketOption::ReceiveBuffer(8 << 20);
        socket.set_option(room).unwrap();
        socket.bind(SocketAddr::from((OURS, port))).unwrap();
        socket
    };
    let sockets = [7, 8, 9, 10].map(bind);
    for port in [7, 8, 9] {
        for _ in 0..10 {
            world.datagram(Ipv4Addr::new(10, 0, 1, 10), port, &[1; 9000]);
        }
    }
    world.datagram(VICTIM, 10, &[1; 9000]);
    world.datagram(VICTIM, 10, &[1; 9000]);
    let drops = [
        world.counter("drop_udp_socket_share"),
        world.counter("drop_udp_peer_share"),
    ];
    assert!(drops[0] >= 7 && drops[1] >= 7, "{drops:?}");
    let used = world.account("udp sockets");
    assert!(used <= (PEER + 4 * (66 << 10)) as u64, "{used}");
    let mut room = [0; 9000];
    for _ in 0..2 {
        let mut buffers = [IoSliceMut::new(&mut room)];
        let got = sockets[3].receive(&mut buffers, ReceiveFlags::default());
        assert_eq!(got.unwrap().len, 9000);
    }
    drop((sockets, unread));
    assert_eq!(world.account("udp sockets"), 0);
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Writers that wait for memory, of all sockets or of their peer's share, and get no acknowledgment meanwhile: only another
/// connection's memory that becomes free can wake them, and it does within two ticks of the shard's own timer.
#[test]
fn a_writer_is_woken_when_the_memory_of_another_frees() {
    const FEW: usize = 256 << 10;
    let limits: [fn(netchan::Builder) -> netchan::Builder; 3] = [
        |builder| builder.tcp_memory(FEW).tcp_shares(FEW, FEW),
        |builder| builder.tcp_memory(8 << 20).tcp_shares(4 << 20, FEW),
        |builder| builder.tcp_memory(8 << 20).tcp_shares(FEW, 4 << 20),
    ];
    for (number, limit) in limits.into_iter().enumerate() {
        let mut world = World::new(limit);
        let ip = Ipv4Addr::new(10, 0, 1, 10);
        let (mut large, server) = world.opens(ip, 1);
        let (_, writer) = world.opens(ip, 2);
        let text = vec![7; 2 * FEW];
        let fill = |socket: &Socket| {
            let mut taken = 0;
            while let Ok(n) = socket.send(&[IoSlice::new(&text)], None) {
                taken += n;
            }
            taken
        };
        let taken = fill(&server);
        assert!(
            (FEW / 2..=FEW + 65_536).contains(&taken),
            "{number}: {taken}"
        );
        let alone = number == 2; // its own share is all that it waits for
        let first = fill(&writer);
        let most = if alone { FEW + 65_536 } else { FEW / 2 };
        assert!((1..=most).contains(&first), "{number}: {first}");
        let waiter = if alone { &server } else { &writer };
        assert!(
            !waiter.readiness().contains(Readiness::WRITABLE),
            "{number}"
        );
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        waiter.register(Readiness::WRITABLE, &Waker::from(woken.clone()));
        for _ in 0..5 {
            world.clock.advance(Duration::from_millis(10));
            world.turn();
        }
        assert!(!woken.0.load(Relaxed), "{number}: nothing is free");
        // The other connection ends: reset, or (its own share) all acknowledged.
        if alone {
            for _ in 0..40 {
                while let Some((header, text)) = world.heard(&large) {
                    let end = header.seq + u32::try_from(text.len()).unwrap();
                    large.acked = if end > large.acked { end } else { large.acked };
                }
                world.segment(&large, Flags::ACK, large.next, &[]);
            }
        } else {
            world.segment(&large, Flags::RST, large.next, &[]);
        }
        for _ in 0..2 {
            world.clock.advance(Duration::from_millis(10));
            world.turn();
        }
        assert!(woken.0.load(Relaxed), "{number}: it was never woken");
        assert!(waiter.readiness().contains(Readiness::WRITABLE));
        assert!(waiter.send(&[IoSlice::new(b"more")], None).is_ok());
    }
}

/// A socket that is closed with datagrams that were not read: their memory is free for others, and their places.
#[test]
fn a_closed_sockets_datagrams_are_no_longer_counted() {
    const FEW: usize = 1 << 20;
    let mut world = World::new(|builder| builder.udp_memory(FEW).udp_shares(FEW, FEW));
    let mut kept = Vec::new();
    for _ in 0..3 {
        let socket = Socket::new(&world.net, Domain::V4, Kind::Datagram).unwrap();
        let room = SocketOption::ReceiveBuffer(8 << 20);
        socket.set_option(room).unwrap();
        socket.bind(SocketAddr::from((OURS, 7))).unwrap();
        for _ in 0..20 {
            world.datagram(VICTIM, 7, &[1; 9000]);
            world.datagram(VICTIM, 7, &[1; 10]);
        }
        let used = world.account("udp sockets");
        assert!(used >= (FEW - (70 << 10)) as u64, "{used}");
        kept.push(world.held());
        drop(socket);
        assert_eq!(world.account("udp sockets"), 0);
        assert_eq!(world.held(), 0, "the link's buffers");
    }
    assert!(kept[0] > 10 && kept == [kept[0]; 3], "{kept:?}");
}
