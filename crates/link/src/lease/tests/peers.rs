//! Short cuts between two leases: what goes by them, what does not, and what a peer does that does what it likes.

use std::{collections::VecDeque, net::SocketAddr, os::fd::OwnedFd};

use netchan_base::packet::{Course, Packet};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    own::Own,
    pipe::{Pipes, PipesLayout},
    slab::{BorrowedSlab, SharedLayout, Slab},
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

pub const BUFFERS: u32 = 8;
/// Pipes, and bytes of each.
const PIPES: [u32; 2] = [4, 4096];

/// The two ends of a short cut: what each application is told, and its files.
pub fn pair(number: u64) -> [(PeerTerms, Vec<OwnedFd>); 2] {
    let layout = SharedLayout::new(BUFFERS, 2048).unwrap();
    let [forth, back] = [(); 2].map(|()| BorrowedSlab::between(layout).unwrap());
    let edge = EdgeLayout::new(BUFFERS).unwrap();
    let (memory, [one, other]) = edge::between::<Item, Back>(edge).unwrap();
    let pipes = PipesLayout::new(PIPES[0], PIPES[1]).unwrap();
    let pipes = Pipes::between(pipes).unwrap();
    let copy = |file: &Own| file.try_clone().unwrap();
    let end = |is_maker: bool, inward: &Own, outward: &Own, socket: &Own| {
        let terms = PeerTerms {
            pair: number,
            is_maker,
            inward: layout.encode(),
            outward: layout.encode(),
            slots: BUFFERS,
            pipes: PIPES,
            ports: PeerPorts::default(),
        };
        let files = [inward, outward, &memory, socket, &pipes].map(copy);
        (terms, files.into())
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
pub fn of_server() -> PeerPorts {
    PeerPorts {
        bindings: vec![
            binding(Transport::Tcp, "10.77.0.2:80"),
            binding(Transport::Udp, "[::]:53"),
        ],
        shared: vec![binding(Transport::Tcp, "10.77.0.2:81")],
        ..PeerPorts::default()
    }
}

fn of_client() -> PeerPorts {
    PeerPorts {
        ranges: vec![PortRange(40_000, 40_063)],
        ..PeerPorts::default()
    }
}

/// Two applications of one lender's.
pub struct Scene {
    pub lenders: [Lender; 2],
    /// `None`: it has ended.
    queues: [Option<Queue>; 2],
    slab: Slab,
    pub now: Instant,
}

pub const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Scene {
    pub fn new() -> Self {
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
    pub fn with_hostile() -> (Self, Side<Item, Back>, BorrowedSlab) {
        Self::new().meeting(of_server())
    }

    /// The same with these ports of the server's. `shares`: the client shares the loopback addresses.
    pub fn at_loopback(shares: bool, ports: PeerPorts) -> (Self, Side<Item, Back>, BorrowedSlab) {
        let mut scene = Self::new();
        if shares {
            let lender = Lender::new();
            scene.queues[CLIENT] = Some(lender.sharing_queue());
            scene.lenders[CLIENT] = lender;
        }
        scene.meeting(ports)
    }

    fn meeting(self, ports: PeerPorts) -> (Self, Side<Item, Back>, BorrowedSlab) {
        let mut scene = self;
        let [(mut client, files), (server, server_files)] = pair(5);
        client.ports = ports;
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

    pub fn queue(&mut self, which: usize) -> &mut Queue {
        self.queues[which].as_mut().unwrap()
    }

    pub fn receive(&mut self, which: usize) -> Vec<Packet> {
        let mut burst = VecDeque::new();
        let rx = &mut self.queues[which].as_mut().unwrap().rx;
        let n = (rx.receive(self.now, &mut self.slab, &mut burst, 32)).unwrap();
        assert_eq!(n, burst.len());
        burst.into()
    }

    /// Sends; how many the link took.
    pub fn send(&mut self, which: usize, packets: &[Vec<u8>]) -> usize {
        let kind = |packet: &[u8]| if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let frames = packets
            .iter()
            .map(|packet| frame(&mut self.slab, kind(packet), packet));
        let mut frames: VecDeque<_> = frames.collect();
        let tx = &mut self.queues[which].as_mut().unwrap().tx;
        tx.transmit(self.now, &mut frames).unwrap()
    }

    /// The client's lender takes what came to it, and gives the buffers back; how many.
    pub fn return_all(&mut self) -> usize {
        let lender = &mut self.lenders[CLIENT];
        let came = lender.take();
        came.iter()
            .for_each(|(descriptor, _)| lender.give_back(descriptor));
        came.len()
    }

    pub fn asleep(&mut self, which: usize) -> bool {
        self.queue(which).rx.next_event() == Instant::FAR
    }

    pub fn is_awake(&mut self, which: usize) -> bool {
        is_readable(self.queue(which).rx.fd().unwrap(), 0)
    }
}

/// A packet without text.
pub fn packet(transport: Transport, from: &str, to: &str, flags: tcp::Flags) -> Vec<u8> {
    let [from, to]: [SocketAddr; 2] = [from, to].map(|end| end.parse().unwrap());
    let (protocol, upper_len) = match transport {
        Transport::Tcp => (Protocol::TCP, tcp::HEADER_LEN),
        Transport::Udp | Transport::Ping => (Protocol::UDP, udp::HEADER_LEN),
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
        Transport::Udp | Transport::Ping => {
            upper[..2].copy_from_slice(&from.port().to_be_bytes());
            upper[2..4].copy_from_slice(&to.port().to_be_bytes());
            upper[5] = 8;
        }
    }
    packet
}

pub fn segment(from: &str, to: &str) -> Vec<u8> {
    packet(Transport::Tcp, from, to, tcp::Flags::ACK)
}

pub const HERE: &str = "10.77.0.2:40000";
pub const THERE: &str = "10.77.0.2:80";

pub fn bytes_of(frame: &Packet) -> &[u8] {
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
    assert_eq!((counts.packets, counts.missed, counts.length), (80, 0, 0));
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
    assert_eq!(scene.queue(SERVER).rx.statistics().missed, 1);
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
    // That which it had closed has sent its last in vain.
    let course = |packet: &Packet| packet.meta.course;
    assert_eq!(
        asked
            .iter()
            .filter(|p| course(p) == Course::IN_VAIN)
            .count(),
        1
    );
    let none = tcp::Flags(0);
    let expected = [
        (one, tcp::Flags::SYN),
        (two, none),
        (three, tcp::Flags::SYN),
    ];
    let expected = expected.map(|(to, flags)| packet(Transport::Tcp, THERE, &to, flags));
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
