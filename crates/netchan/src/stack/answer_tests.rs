//! What the stack answers for no socket goes by the routes without a mark, whatever stood where a mark stands while its question was taken in.

use std::{collections::VecDeque, net::Ipv4Addr};

use percore::slab::Slab;
use proto::{
    time::Instant,
    wire::{
        Protocol, arp,
        checksum::checksum,
        ethernet::{self, EtherType, MacAddr},
        ipv4,
    },
};

use crate::{
    Clock, Net, Regime, TcpListener, Threads,
    driver::steer::short,
    flow::FlowKey,
    link::{LinkRx, LinkTx, wire},
    packet::Packet,
};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The gateway of what has no mark, and that of what has the one that is asked about.
const PLAIN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 8);
const MARKED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const PEERS_PORT: u16 = 1000;

fn start(regime: Regime, mark: u32) -> (Net, wire::Wire) {
    let (near, far) = wire::pair(&wire::Options::default());
    let builder = Net::builder().link_with(Box::new(near)).regime(regime);
    let builder = builder.threads(Threads::Caller).clock(Clock::new_virtual());
    let builder = builder.seed(1).address("10.0.0.1/24").unwrap();
    let builder = builder.route("", Some(&PLAIN.to_string()), 0).unwrap();
    let marked = Some(MARKED.to_string());
    let builder = builder.route("", marked.as_deref(), mark).unwrap();
    (builder.start().unwrap(), far)
}

/// A question from beyond the gateways: an IP packet of `protocol` whose checksum stands at `at`.
fn question(protocol: Protocol, at: usize, mut message: Vec<u8>) -> Vec<u8> {
    let mut summed = Vec::new();
    if protocol != Protocol::ICMP {
        summed.extend(PEER.octets());
        summed.extend(OURS.octets());
        summed.extend([0, protocol.0, 0, u8::try_from(message.len()).unwrap()]);
    }
    summed.extend(&message);
    message[at..at + 2].copy_from_slice(&checksum(&summed).to_be_bytes());
    let mut packet = vec![0; ipv4::HEADER_LEN];
    ipv4::Header::new(protocol, PEER, OURS).emit(message.len(), &mut packet);
    packet.extend(message);
    packet
}

/// The gateway whose station the stack asks for first when it has answered `question`.
fn gateway(net: &Net, far: &mut wire::Wire, question: &[u8]) -> Option<Ipv4Addr> {
    let mut slab = Slab::new(16, 2048).unwrap();
    while net.poll() {}
    let mut frame = Packet::new(slab.alloc().unwrap(), 0);
    let len = ethernet::HEADER_LEN + question.len();
    let ours = net.stack().control.host.network().interfaces[0].mac;
    let header = ethernet::Header::new(ours, MacAddr([2, 0, 0, 0, 0, 9]), EtherType::IPV4);
    header.emit(frame.room_mut());
    frame.room_mut()[ethernet::HEADER_LEN..len].copy_from_slice(question);
    frame.set_len(len);
    far.transmit(Instant::ZERO, &mut VecDeque::from([frame]))
        .unwrap();
    while net.poll() {}
    let mut said = VecDeque::new();
    far.receive(Instant::ZERO, &mut slab, &mut said, 16)
        .unwrap();
    let asked = said.iter().filter_map(|frame| {
        let body = frame.bytes().get(ethernet::HEADER_LEN..)?;
        arp::Packet::parse(body).ok()
    });
    let others = asked.filter(|asked| asked.sender_ip != asked.target_ip);
    others.map(|asked| asked.target_ip).next()
}

#[test]
fn answers_have_no_mark() {
    let ports = |port: u16| [PEERS_PORT.to_be_bytes(), port.to_be_bytes()].concat();
    let syn = |port| {
        [
            ports(port),
            vec![0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0],
        ]
        .concat()
    };
    let questions = [
        (
            "a reset",
            Protocol::TCP,
            81,
            question(Protocol::TCP, 16, syn(81)),
        ),
        (
            "a SYN-ACK",
            Protocol::TCP,
            80,
            question(Protocol::TCP, 16, syn(80)),
        ),
        (
            "an ICMP error",
            Protocol::UDP,
            81,
            question(Protocol::UDP, 6, [ports(81), vec![0, 9, 0, 0, 7]].concat()),
        ),
        (
            "an echo",
            Protocol::ICMP,
            0,
            question(Protocol::ICMP, 2, vec![8, 0, 0, 0, 0, 1, 0, 1, 7]),
        ),
    ];
    for regime in Regime::here() {
        for (what, protocol, port, question) in &questions {
            let key = FlowKey {
                local: OURS.into(),
                remote: PEER.into(),
                local_port: *port,
                remote_port: if *port == 0 { 0 } else { PEERS_PORT },
                protocol: *protocol,
            };
            // The keys of hashes come from the seed.
            let (net, _far) = start(regime, 1);
            let hash = short(net.stack().control.host.flow_hash.hash(&key));
            let (net, mut far) = start(regime, hash);
            let _listener: TcpListener = net.tcp().listen("10.0.0.1:80").unwrap();
            let asked = gateway(&net, &mut far, question);
            assert_eq!(asked, Some(PLAIN), "{regime}: {what}");
        }
    }
}
