//! A host made by hand on the router's first link: it sends any frame and sees what comes back.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use netchan::{
    Builder, Clock, Net, Threads,
    link::{Link, LinkRx, LinkTx, wire},
    packet::Packet,
};
use percore::slab::Slab;
use proto::{
    neighbor::{arp, ndp},
    wire::{
        checksum,
        ethernet::{self, EtherType, MacAddr},
        icmpv4, icmpv6,
        ipv4::{self, Protocol},
        ipv6,
    },
};

use crate::streams::{host, router};

pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
pub const OWN: [&str; 2] = ["10.1.0.9", "fd01::9"];

/// The hand-made host, the router, and a server behind it.
pub struct Raw {
    wire: wire::Wire,
    slab: Slab,
    pub clock: Clock,
    pub mac: MacAddr,
    pub router: Net,
    pub server: Net,
}

impl Raw {
    pub fn new(mtu: usize, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = Clock::new_virtual();
        let (wire, first) = wire::pair(&wire::Options::default());
        let narrow = wire::Options {
            mtu,
            seed: 2,
            ..wire::Options::default()
        };
        let (second, far) = wire::pair(&narrow);
        let mac = first.properties().mac;
        let start = |builder: Builder| builder.threads(Threads::Caller).start().unwrap();
        let mut raw = Self {
            router: start(settings(router([first, second], &clock))),
            server: start(host(far, &clock, 2)),
            slab: Slab::new(256, 2048).unwrap(),
            wire,
            clock,
            mac,
        };
        raw.introduce();
        raw
    }

    /// Asks for the router's addresses, from which it learns ours; what is said at the beginning goes by.
    fn introduce(&mut self) {
        let mut bytes = [0; 128];
        let request = arp::request(
            MAC,
            "10.1.0.9".parse().unwrap(),
            "10.1.0.1".parse().unwrap(),
        );
        let len = request.emit(&mut bytes);
        self.send(EtherType::ARP, MacAddr::BROADCAST, &bytes[..len]);
        let (own, target) = ("fd01::9".parse().unwrap(), "fd01::1".parse().unwrap());
        let asks = ndp::solicitation(MAC, own, target, None);
        let len = asks.emit(&mut bytes);
        self.send(EtherType::IPV6, asks.to.unwrap(), &bytes[..len]);
        let heard = self.turn();
        // RFC 4861 §4.4: R is the first bit of the fourth octet behind the type.
        let advertised = |frame: &&Vec<u8>| frame.get(14 + 6) == Some(&58) && frame[14 + 40] == 136;
        let answer = heard.iter().rfind(advertised).expect("an advertisement");
        assert_eq!(answer[14 + 44] & 0x80, 0x80, "it says that it is a router");
    }

    pub fn send(&mut self, kind: EtherType, to: MacAddr, packet: &[u8]) {
        let mut frame = Packet::new(self.slab.alloc().unwrap(), 0);
        frame.set_len(ethernet::HEADER_LEN + packet.len());
        let (head, body) = frame.bytes_mut().split_at_mut(ethernet::HEADER_LEN);
        ethernet::Header::new(to, MAC, kind).emit(head);
        body.copy_from_slice(packet);
        let mut frames = VecDeque::from([frame]);
        self.wire.transmit(self.clock.now(), &mut frames).unwrap();
    }

    /// Turns all stacks until all is quiet; the frames that came.
    pub fn turn(&mut self) -> Vec<Vec<u8>> {
        let (mut burst, mut frames) = (VecDeque::new(), Vec::new());
        for _ in 0..12 {
            self.router.poll();
            self.server.poll();
            self.clock.advance(Duration::from_micros(10));
            let now = self.clock.now();
            self.wire
                .receive(now, &mut self.slab, &mut burst, 32)
                .unwrap();
            frames.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
        }
        frames
    }

    /// Sends an IP packet to the router; what comes back.
    pub fn ask(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let v6 = packet.first().is_some_and(|b| b >> 4 == 6);
        let kind = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        self.send(kind, self.mac, packet);
        self.turn()
    }
}

/// A UDP datagram, to port 9 unless changed by `change` before its checksums are made.
pub fn datagram(
    source: &str,
    destination: &str,
    len: usize,
    change: impl FnOnce(&mut Fields),
) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let mut fields = Fields::default();
    change(&mut fields);
    let mut udp = vec![0x5a; 8 + len];
    let upper = u16::try_from(udp.len()).unwrap().to_be_bytes();
    let port = fields.port.to_be_bytes();
    udp[..8].copy_from_slice(&[0x30, 0x39, port[0], port[1], upper[0], upper[1], 0, 0]);
    let pseudo = checksum::pseudo_header(source, destination, Protocol::UDP, udp.len()).unwrap();
    let sum = checksum::finish(pseudo + checksum::sum(&udp)).to_be_bytes();
    udp[6..8].copy_from_slice(&sum);
    let mut packet = vec![0; 40];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header {
                ttl: fields.hops,
                dont_fragment: fields.dont_fragment,
                ident: 77,
                ..ipv4::Header::new(Protocol::UDP, source, destination)
            };
            let len = header.emit(udp.len(), &mut packet);
            packet.truncate(len);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = ipv6::Header::new(Protocol::UDP, source, destination);
            header.hop_limit = fields.hops;
            header.emit(udp.len(), &mut packet);
        }
        _ => panic!("two families"),
    }
    packet.extend_from_slice(&udp);
    packet
}

/// What a case changes.
pub struct Fields {
    pub hops: u8,
    pub dont_fragment: bool,
    pub port: u16,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            hops: 64,
            dont_fragment: true,
            port: 9,
        }
    }
}

/// The ICMP message in a frame, with its sender, and what it quotes.
pub fn icmp(frame: &[u8]) -> Option<(IpAddr, Message, Vec<u8>)> {
    let packet = &frame[ethernet::HEADER_LEN..];
    if let Ok(header) = ipv4::Header::parse(packet) {
        let (message, quote) = icmpv4::Message::parse(header.payload(packet)).ok()?;
        return Some((header.source.into(), Message::V4(message), quote.to_vec()));
    }
    let header = ipv6::Header::parse(packet).ok()?;
    let (message, quote) =
        icmpv6::Message::parse(header.source, header.destination, header.payload(packet)).ok()?;
    Some((header.source.into(), Message::V6(message), quote.to_vec()))
}

#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    V4(icmpv4::Message),
    V6(icmpv6::Message),
}
