//! Short cuts between two leases: what goes by them, what does not, and what a peer does that does what it likes.

use std::{
    collections::VecDeque,
    fs::File,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use netchan_base::{
    descriptor::{CHECKSUM_VERIFIED, Descriptor, Return},
    packet::Packet,
};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    own::Own,
    slab::{BorrowedSlab, BufferName, SharedLayout, Slab},
};
use proto::{
    time::{Duration, Instant},
    wire::{
        checksum::Partial,
        ipv4::{self, Protocol},
        ipv6, tcp, udp,
    },
};

use super::lender::{Back, Item, Lender, Reply, frame, is_readable, slab};
use crate::{
    Queue,
    lease::{Binding, News, PeerPorts, PeerTerms, PortRange, Transport},
};

const BUFFERS: u32 = 8;

/// The two ends of a short cut: what each application is told, and its files.
fn pair(number: u64) -> [(PeerTerms, Vec<OwnedFd>); 2] {
    let layout = SharedLayout::new(BUFFERS, 2048).unwrap();
    let [forth, back] = [(); 2].map(|()| BorrowedSlab::between(layout).unwrap());
    let edge = EdgeLayout::new(BUFFERS).unwrap();
    let (memory, [one, other]) = edge::between::<Item, Back>(edge).unwrap();
    let copy = |file: &Own| file.try_clone().unwrap();
    let end = |is_maker: bool, inward: &Own, outward: &Own, socket: &Own| {
        let terms = PeerTerms {
            pair: number,
            is_maker,
            inward: layout.encode(),
            outward: layout.encode(),
            slots: BUFFERS,
            ports: PeerPorts::default(),
        };
        (terms, [inward, outward, &memory, socket].map(copy).into())
    };
    [
        end(true, &back, &forth, &one),
        end(false, &forth, &back, &other),
    ]
}

fn binding(transport: Transport, address: &str) -> Binding {
    let address = address.parse().unwrap();
    Binding { transport, address }
}

/// Ports of the server's: TCP 80 at one address, UDP 53 at all.
fn of_server() -> PeerPorts {
    PeerPorts {
        bindings: vec![
            binding(Transport::Tcp, "10.77.0.2:80"),
            binding(Transport::Udp, "[::]:53"),
        ],
        shared: vec![binding(Transport::Tcp, "10.77.0.2:81")],
        ranges: Vec::new(),
    }
}

fn of_client() -> PeerPorts {
    PeerPorts {
        ranges: vec![PortRange(40_000, 40_063)],
        ..PeerPorts::default()
    }
}

/// Two applications of one lender's.
struct Scene {
    lenders: [Lender; 2],
    /// `None`: it has ended.
    queues: [Option<Queue>; 2],
    slab: Slab,
    now: Instant,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Scene {
    fn new() -> Self {
        let lenders = [Lender::new(), Lender::new()];
        let queues = lenders.each_ref().map(|lender| Some(lender.queue()));
        Self {
            lenders,
            queues,
            slab: slab(),
            now: Instant(1),
        }
    }

    /// With a short cut, of which both have heard.
    fn with_pair() -> Self {
        let mut scene = Self::new();
        let [(mut client, files), (mut server, server_files)] = pair(5);
        (client.ports, server.ports) = (of_server(), of_client());
        scene.lenders[CLIENT].tell(&News::Peer(Box::new(client)), files);
        scene.lenders[SERVER].tell(&News::Peer(Box::new(server)), server_files);
        assert!(scene.receive(CLIENT).is_empty() && scene.receive(SERVER).is_empty());
        scene
    }

    /// With a hostile server: its side of the short cut, its slab, and a client that trusts it.
    fn with_hostile() -> (Self, Side<Item, Back>, BorrowedSlab) {
        let mut scene = Self::new();
        let [(mut client, files), (server, server_files)] = pair(5);
        client.ports = of_server();
        scene.lenders[CLIENT].tell(&News::Peer(Box::new(client)), files);
        assert!(scene.receive(CLIENT).is_empty());
        let layout = SharedLayout::decode(&server.outward).unwrap();
        let outward = BorrowedSlab::map(&server_files[1], layout).unwrap();
        let mut files = server_files.into_iter().skip(2);
        let (memory, socket) = (files.next().unwrap(), Own::keep(files.next().unwrap()));
        let edge = EdgeLayout::new(BUFFERS).unwrap();
        let side = edge::map(memory, edge, socket, Which::Mapper).unwrap();
        (scene, side, outward)
    }

    fn queue(&mut self, which: usize) -> &mut Queue {
        self.queues[which].as_mut().unwrap()
    }

    fn receive(&mut self, which: usize) -> Vec<Packet> {
        let mut burst = VecDeque::new();
        let rx = &mut self.queues[which].as_mut().unwrap().rx;
        let n = (rx.receive(self.now, &mut self.slab, &mut burst, 32)).unwrap();
        assert_eq!(n, burst.len());
        burst.into()
    }

    /// Sends; how many the link took.
    fn send(&mut self, which: usize, packets: &[Vec<u8>]) -> usize {
        let kind = |packet: &[u8]| if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let frames = packets
            .iter()
            .map(|packet| frame(&mut self.slab, kind(packet), packet));
        let mut frames: VecDeque<_> = frames.collect();
        let tx = &mut self.queues[which].as_mut().unwrap().tx;
        tx.transmit(self.now, &mut frames).unwrap()
    }

    /// The client's lender takes what came to it, and gives the buffers back; how many.
    fn return_all(&mut self) -> usize {
        let lender = &mut self.lenders[CLIENT];
        let came = lender.take();
        came.iter()
            .for_each(|(descriptor, _)| lender.give_back(descriptor));
        came.len()
    }

    fn asleep(&mut self, which: usize) -> bool {
        self.queue(which).rx.next_event() == Instant::FAR
    }

    fn is_awake(&mut self, which: usize) -> bool {
        is_readable(self.queue(which).rx.fd().unwrap(), 0)
    }
}

/// A packet without text.
fn packet(transport: Transport, from: &str, to: &str, flags: tcp::Flags) -> Vec<u8> {
    let [from, to]: [SocketAddr; 2] = [from, to].map(|end| end.parse().unwrap());
    let (protocol, upper_len) = match transport {
        Transport::Tcp => (Protocol::TCP, tcp::HEADER_LEN),
        Transport::Udp => (Protocol::UDP, udp::HEADER_LEN),
    };
    let mut packet = vec![0; 40 + upper_len];
    let at = match (from.ip(), to.ip()) {
        (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
            ipv4::Header::new(protocol, from, to).emit(upper_len, &mut packet)
        }
        (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => {
            ipv6::Header::new(protocol, from, to).emit(upper_len, &mut packet)
        }
        _ => panic!("two families"),
    };
    packet.truncate(at + upper_len);
    let upper = &mut packet[at..];
    match transport {
        Transport::Tcp => {
            let header = tcp::Header {
                source_port: from.port(),
                destination_port: to.port(),
                seq: tcp::SeqNum(7),
                ack: tcp::SeqNum(9),
                flags,
                window: 100,
                urgent: 0,
                options: tcp::Options::default(),
            };
            let n = header.emit_with_checksum(upper, Partial::ZERO, 0, from.ip(), to.ip());
            assert_eq!(n, upper_len);
        }
        Transport::Udp => {
            upper[..2].copy_from_slice(&from.port().to_be_bytes());
            upper[2..4].copy_from_slice(&to.port().to_be_bytes());
            upper[5] = 8;
        }
    }
    packet
}

fn segment(from: &str, to: &str) -> Vec<u8> {
    packet(Transport::Tcp, from, to, tcp::Flags::ACK)
}

const HERE: &str = "10.77.0.2:40000";
const THERE: &str = "10.77.0.2:80";

fn bytes_of(frame: &Packet) -> &[u8] {
    &frame.bytes()[14..]
}

#[test]
fn packets_go_past_the_lender_in_both_directions() {
    let mut scene = Scene::with_pair();
    let forth = [
        segment(HERE, THERE),
        packet(
            Transport::Udp,
            "[fd77::2]:40001",
            "[fd77::2]:53",
            tcp::Flags(0),
        ),
    ];
    let back = [segment(THERE, HERE)];
    for round in 0..40 {
        assert_eq!(
            scene.send(CLIENT, &forth),
            2,
            "{round}: its buffers come back"
        );
        let came = scene.receive(SERVER);
        let found: Vec<_> = came.iter().map(bytes_of).collect();
        assert_eq!(found, forth);
        assert!(came.iter().all(|frame| frame.meta.checksum_verified.get()));
        assert_eq!(scene.send(SERVER, &back), 1);
        assert_eq!(scene.receive(CLIENT).len(), 1);
    }
    for lender in &mut scene.lenders {
        assert!(lender.take().is_empty() && lender.wishes().is_empty());
    }
    let counts = scene.queue(SERVER).rx.statistics();
    assert_eq!((counts.packets, counts.length), (80, 0));
}

#[test]
fn what_is_not_for_a_peer_goes_by_the_lender() {
    let mut scene = Scene::with_pair();
    let mut fragment = segment(HERE, THERE);
    fragment[6] |= 0x20;
    let ours = [
        segment(HERE, "10.77.0.9:80"),
        segment(HERE, "10.77.0.2:81"), // another lease has that port, too
        segment(HERE, "10.77.0.2:82"),
        packet(Transport::Udp, HERE, THERE, tcp::Flags(0)),
        fragment,
    ];
    assert_eq!(scene.send(CLIENT, &ours), 5);
    assert_eq!(scene.lenders[CLIENT].take().len(), 5);
    assert!(scene.receive(SERVER).is_empty());
    // Those that a lease of this lender's may have are wished for, once a second.
    let wished = [
        binding(Transport::Tcp, "10.77.0.2:81"),
        binding(Transport::Tcp, "10.77.0.2:82"),
        binding(Transport::Udp, "10.77.0.2:80"),
    ];
    assert_eq!(scene.lenders[CLIENT].wishes(), wished);
    let again = [segment(HERE, "10.77.0.2:82")];
    scene.send(CLIENT, &again);
    assert!(scene.lenders[CLIENT].wishes().is_empty());
    scene.now = scene.now + Duration::from_secs(1);
    scene.send(CLIENT, &again);
    assert_eq!(scene.lenders[CLIENT].wishes(), wished[1..2]);
}

#[test]
fn held_back_they_pass_nothing() {
    let mut scene = Scene::with_pair();
    let forth = [segment(HERE, THERE)];
    assert_eq!(scene.send(CLIENT, &forth), 1);
    for lender in &mut scene.lenders {
        lender.hold(true);
    }
    assert!(
        scene.receive(SERVER).is_empty(),
        "what was under way is lost"
    );
    assert_eq!(scene.queue(SERVER).rx.statistics().length, 1);
    assert_eq!(scene.send(CLIENT, &forth), 1);
    assert_eq!(scene.lenders[CLIENT].take().len(), 1);
    for lender in &mut scene.lenders {
        lender.hold(false);
    }
    assert_eq!(scene.send(CLIENT, &forth), 1);
    assert_eq!(scene.receive(SERVER).len(), 1);
}

#[test]
fn a_sleeper_is_woken_by_each_of_its_lines() {
    let mut scene = Scene::with_pair();
    assert!(scene.asleep(SERVER) && !scene.is_awake(SERVER));
    scene.send(CLIENT, &[segment(HERE, THERE)]);
    assert!(scene.is_awake(SERVER));
    assert_eq!(scene.receive(SERVER).len(), 1);
    assert!(scene.asleep(SERVER) && !scene.is_awake(SERVER));
    scene.lenders[SERVER].send(&segment(HERE, THERE), 0);
    assert!(scene.is_awake(SERVER));
    assert_eq!(scene.receive(SERVER).len(), 1);
    // News wake, too.
    assert!(scene.asleep(SERVER) && !scene.is_awake(SERVER));
    scene.lenders[SERVER].tell(&News::Gone { pair: 77 }, Vec::new());
    assert!(scene.is_awake(SERVER));
    assert!(scene.receive(SERVER).is_empty());
    assert!(scene.asleep(SERVER) && !scene.is_awake(SERVER));
}

#[test]
fn other_ports_are_heard_of_before_packets_come_from_them() {
    let mut scene = Scene::with_pair();
    let from_new = [segment("10.77.0.2:41000", THERE)];
    assert_eq!(scene.send(CLIENT, &from_new), 1);
    assert!(scene.receive(SERVER).is_empty(), "it does not have it");
    let mut ports = of_client();
    ports.ranges.push(PortRange(41_000, 41_000));
    scene.lenders[SERVER].tell(&News::Ports { pair: 5, ports }, Vec::new());
    assert_eq!(scene.send(CLIENT, &from_new), 1);
    assert_eq!(scene.receive(SERVER).len(), 1);
    assert_eq!(scene.send(SERVER, &[segment(THERE, "10.77.0.2:41000")]), 1);
    assert_eq!(scene.receive(CLIENT).len(), 1);
}

/// Sends by hand what a peer that is an honest program would not.
fn put(side: &mut Side<Item, Back>, slab: &mut BorrowedSlab, packet: &[u8], flags: u32) {
    let name = BufferName {
        index: 0,
        generation: 1,
    };
    slab.copy_in(name, 0, packet).unwrap();
    let descriptor = Descriptor {
        name,
        offset: 0,
        length: u32::try_from(packet.len()).unwrap(),
        link: 0,
        flags,
        segment: 0,
    };
    side.sending.stage(descriptor.encode()).unwrap();
    side.sending.publish();
    side.far_bell.ring();
}

#[test]
fn a_peer_sends_from_its_ports_and_nothing_else() {
    let (mut scene, mut side, mut slab) = Scene::with_hostile();
    let mut options = segment(THERE, HERE);
    options[0] = 0x46;
    let mut fragment = segment(THERE, HERE);
    fragment[7] = 1;
    let refused = [
        segment("10.77.0.2:22", HERE),
        segment("10.77.0.9:80", HERE),
        segment(THERE, "10.77.0.9:40000"),
        packet(Transport::Udp, THERE, HERE, tcp::Flags(0)),
        options,
        fragment,
        vec![0x45; 3],
        vec![0; 40],
    ];
    for (n, packet) in refused.iter().enumerate() {
        put(&mut side, &mut slab, packet, 0);
        assert!(scene.receive(CLIENT).is_empty(), "{n}");
        let counted = scene.queue(CLIENT).rx.statistics().length;
        assert_eq!(counted, n as u64 + 1, "{n}");
    }
    put(
        &mut side,
        &mut slab,
        &segment(THERE, HERE),
        CHECKSUM_VERIFIED,
    );
    assert!(scene.receive(CLIENT).is_empty(), "it may not say so");
    put(&mut side, &mut slab, &segment(THERE, HERE), 0);
    assert_eq!(scene.receive(CLIENT).len(), 1);
    // A port that others have, too, is one that it sends from.
    put(&mut side, &mut slab, &segment("10.77.0.2:81", HERE), 0);
    assert_eq!(scene.receive(CLIENT).len(), 1);
    let mut back = 0;
    for _ in 0..2 {
        side.sending.take_returns(usize::MAX, |_| back += 1);
        assert!(scene.receive(CLIENT).is_empty()); // those that the ring had no room for
    }
    assert_eq!(
        back,
        refused.len() + 2,
        "buffers come back whatever was in them"
    );
}

#[test]
fn names_that_a_peer_makes_up_give_it_nothing() {
    let (mut scene, mut side, _slab) = Scene::with_hostile();
    for name in [(0, 1), (0, 1), (9, 1), (u32::MAX, 0)] {
        let (index, generation) = name;
        let name = BufferName { index, generation };
        side.receiving.give_back(Return { name }.encode()).unwrap();
        side.receiving.publish_returns();
    }
    let forth = [segment(HERE, THERE)];
    let most = BUFFERS as usize;
    for n in 0..most {
        assert_eq!(scene.send(CLIENT, &forth), 1, "{n}");
    }
    assert_eq!(scene.send(CLIENT, &forth), 0, "as many as there were");
    for item in [[0xff; 32], [1; 32]] {
        side.sending.stage(item).unwrap();
        side.sending.publish();
        assert!(scene.receive(CLIENT).is_empty());
    }
}

#[test]
fn a_peer_that_takes_nothing_holds_the_others_up_for_a_moment_only() {
    let (mut scene, _side, _slab) = Scene::with_hostile();
    let to_peer = segment(HERE, THERE);
    let to_other = segment(HERE, "10.77.0.9:80");
    for _ in 0..BUFFERS {
        assert_eq!(scene.send(CLIENT, std::slice::from_ref(&to_peer)), 1);
    }
    let both = [to_peer, to_other];
    assert_eq!(scene.send(CLIENT, &both), 0);
    let until = scene.now + Duration::from_millis(10);
    assert_eq!(
        scene.queue(CLIENT).rx.next_event(),
        until,
        "it is turned again then"
    );
    assert!(scene.lenders[CLIENT].take().is_empty());
    scene.now = until;
    assert_eq!(scene.send(CLIENT, &both), 2);
    assert_eq!(scene.lenders[CLIENT].take().len(), 1);
    assert_eq!(scene.queue(CLIENT).tx.statistics().errors, 1);
    assert_eq!(scene.send(CLIENT, &both), 2, "and not again");
}

#[test]
fn connections_to_a_peer_that_is_gone_are_asked() {
    let mut scene = Scene::with_pair();
    let of_tcp = |to: &str, flags| packet(Transport::Tcp, THERE, to, flags | tcp::Flags::ACK);
    let [one, two, three] = [40_000, 40_001, 40_002].map(|port| format!("10.77.0.2:{port}"));
    let syn = |to| of_tcp(to, tcp::Flags::SYN);
    let fin = of_tcp(&two, tcp::Flags::FIN);
    scene.send(SERVER, &[syn(&one), syn(&two), syn(&three), fin]);
    assert_eq!(scene.receive(CLIENT).len(), 4);
    assert!(scene.asleep(CLIENT));
    // It has sent something, and is gone.
    scene.send(SERVER, &[segment(THERE, &one)]);
    scene.queues[SERVER] = None;
    assert!(scene.is_awake(CLIENT));
    assert_eq!(
        scene.receive(CLIENT).len(),
        1,
        "what it sent before is taken"
    );
    for _ in 0..200 {
        assert!(scene.receive(CLIENT).is_empty());
    }
    assert!(scene.asleep(CLIENT) && !scene.is_awake(CLIENT));
    assert_eq!(scene.send(CLIENT, &[segment(&one, THERE)]), 1);
    assert_eq!(scene.lenders[CLIENT].take().len(), 1);
    // Its ports are free from then on when the lender says so.
    scene.lenders[CLIENT].tell(&News::Gone { pair: 5 }, Vec::new());
    assert!(scene.is_awake(CLIENT));
    // Without a buffer none is asked, and none forgotten.
    let held: Vec<_> = std::iter::from_fn(|| scene.slab.alloc()).collect();
    assert!(scene.receive(CLIENT).is_empty() && scene.receive(CLIENT).is_empty());
    assert!(!scene.asleep(CLIENT));
    drop(held);
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.extend(scene.receive(CLIENT));
    }
    let mut found: Vec<_> = asked.iter().map(bytes_of).collect();
    found.sort_unstable();
    let expected = [one, three].map(|to| packet(Transport::Tcp, THERE, &to, tcp::Flags::SYN));
    let ends = |packet: &[u8]| (packet[12..24].to_vec(), packet[33]);
    let [found, expected] = [found, expected.iter().map(|p| &p[..]).collect()]
        .map(|all: Vec<&[u8]>| all.into_iter().map(ends).collect::<Vec<_>>());
    assert_eq!(found, expected);
    assert!(scene.asleep(CLIENT) && !scene.is_awake(CLIENT));
}

/// One that is killed says nothing in the rings.
#[test]
fn a_peer_that_was_killed_is_noticed_by_its_socket() {
    let (mut scene, side, _slab) = Scene::with_hostile();
    assert!(scene.asleep(CLIENT) && !scene.is_awake(CLIENT));
    let Side {
        sending,
        receiving,
        own_bell,
        far_bell,
        notice: _,
    } = side;
    std::mem::forget((sending, receiving));
    drop((own_bell, far_bell));
    assert!(scene.is_awake(CLIENT));
    let mut looks = 0;
    while scene.is_awake(CLIENT) {
        assert!(scene.receive(CLIENT).is_empty());
        looks += 1;
        assert!(looks < 1000, "it wakes for ever");
    }
    assert_eq!(scene.send(CLIENT, &[segment(HERE, THERE)]), 1);
    assert_eq!(scene.lenders[CLIENT].take().len(), 1);
}

/// A lender that ends the socket of the news takes all short cuts back.
#[test]
fn the_end_of_the_news_ends_short_cuts() {
    let mut scene = Scene::with_pair();
    let lender = &mut scene.lenders[CLIENT];
    rustix::net::shutdown(&lender.news, rustix::net::Shutdown::Both).unwrap();
    lender.tell(&News::Gone { pair: 99 }, Vec::new());
    for _ in 0..3 {
        assert!(scene.receive(CLIENT).is_empty());
    }
    assert!(scene.asleep(CLIENT) && !scene.is_awake(CLIENT));
    assert_eq!(scene.send(CLIENT, &[segment(HERE, THERE)]), 1);
    assert_eq!(scene.lenders[CLIENT].take().len(), 1);
}

#[test]
fn news_that_cannot_be_are_passed_over() {
    let mut scene = Scene::new();
    let lender = &mut scene.lenders[CLIENT];
    lender.tell_reply(&Reply::text(b"{}"));
    let [(client, files), (server, server_files)] = pair(5);
    lender.tell(&News::Peer(Box::new(client.clone())), Vec::new());
    lender.tell(
        &News::Peer(Box::new(client.clone())),
        files.into_iter().take(3).collect(),
    );
    let mut small = server.clone();
    small.slots = 3;
    lender.tell(&News::Peer(Box::new(small)), server_files);
    lender.tell(&News::Gone { pair: 9 }, Vec::new());
    let ports = of_server();
    lender.tell(&News::Ports { pair: 9, ports }, Vec::new());
    assert!(scene.receive(CLIENT).is_empty());
    assert_eq!(scene.send(CLIENT, &[segment(HERE, THERE)]), 1);
    assert_eq!(
        scene.lenders[CLIENT].take().len(),
        1,
        "there is no short cut"
    );
}

/// A peer that writes nonsense over all that it shares with the client, while it also sends what it may.
struct Scribbler {
    scene: Scene,
    side: Side<Item, Back>,
    outward: BorrowedSlab,
    files: Vec<File>,
    random: u64,
}

impl Scribbler {
    fn new(seed: u64) -> Self {
        let mut scene = Scene::new();
        let [(mut client, files), (server, server_files)] = pair(5);
        client.ports = of_server();
        scene.lenders[CLIENT].tell(&News::Peer(Box::new(client)), files);
        assert!(scene.receive(CLIENT).is_empty());
        let layout = SharedLayout::decode(&server.outward).unwrap();
        let outward = BorrowedSlab::map(&server_files[1], layout).unwrap();
        let files: Vec<File> = server_files.into_iter().map(File::from).collect();
        let socket = Own::keep(files[3].try_clone().unwrap().into());
        let edge = EdgeLayout::new(BUFFERS).unwrap();
        let side = edge::map(&files[2], edge, socket, Which::Mapper).unwrap();
        Self {
            scene,
            side,
            outward,
            files,
            random: seed | 1,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 8) % n
    }

    /// One random word at a random place.
    fn scribble(&mut self) {
        let which = usize::try_from(self.below(3)).unwrap();
        let length = self.files[which].metadata().unwrap().len();
        let at = self.below(length) & !7;
        // Where indices and bells lie, more often.
        let at = if self.below(2) == 0 { at % 4096 } else { at };
        let most = if self.below(2) == 0 { 16 } else { u64::MAX };
        let word = self.below(most);
        self.files[which].write_at(&word.to_le_bytes(), at).unwrap();
    }

    /// A packet that it may send.
    fn send(&mut self) {
        let index = u32::try_from(self.below(BUFFERS.into())).unwrap();
        let name = BufferName {
            index,
            generation: 1,
        };
        let honest = segment(THERE, HERE);
        let _ = self.outward.copy_in(name, 0, &honest);
        let descriptor = Descriptor {
            name,
            offset: 0,
            length: u32::try_from(honest.len()).unwrap(),
            link: 0,
            flags: 0,
            segment: 0,
        };
        let _ = self.side.sending.stage(descriptor.encode());
        self.side.sending.publish();
    }

    /// What the client takes: all of it is what the peer may send. How many.
    fn check(&mut self) -> usize {
        let came = self.scene.receive(CLIENT);
        for frame in &came {
            let packet = bytes_of(frame);
            assert_eq!(packet[12..16], [10, 77, 0, 2], "from another address");
            let port = u16::from_be_bytes([packet[20], packet[21]]);
            assert!([80, 81, 53].contains(&port), "from port {port}");
        }
        came.len()
    }
}

/// Nothing panics, nothing passes that the peer may not send, and the lender's line goes on.
#[test]
fn scribbles_over_a_short_cut_give_nothing() {
    const TIMES: u64 = 200_000;
    const EACH: u64 = 10_000;
    let mut passed = 0;
    for seed in 1..=TIMES / EACH {
        let mut hostile = Scribbler::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        for _ in 0..EACH {
            hostile.scribble();
            match hostile.below(8) {
                0 => hostile.send(),
                1 => {
                    let scene = &mut hostile.scene;
                    scene.now = scene.now + Duration::from_millis(11);
                    let _ = scene.send(CLIENT, &[segment(HERE, THERE)]);
                    scene.return_all();
                }
                2 => _ = hostile.scene.asleep(CLIENT),
                _ => {}
            }
            passed += hostile.check();
        }
        let scene = &mut hostile.scene;
        scene.return_all();
        scene.now = scene.now + Duration::from_secs(1);
        assert_eq!(scene.send(CLIENT, &[segment(HERE, "10.77.0.9:80")]), 1);
        assert_eq!(scene.return_all(), 1, "the lender's line goes on");
    }
    assert!(passed > 100, "something has passed: {passed}");
}
