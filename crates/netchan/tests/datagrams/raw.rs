//! A stack whose link's other end is this test: it sees each packet, and answers with ICMP as it likes.

use std::{collections::VecDeque, net::Ipv4Addr};

use netchan::{
    Clock, Net, Threads,
    link::{Link, LinkRx, LinkTx, wire},
    packet::Packet,
};
use percore::slab::Slab;
use proto::{
    neighbor::arp,
    wire::{
        checksum,
        ethernet::{self, EtherType, MacAddr},
        ipv4::{self, Protocol},
    },
};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The router, which is us.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

pub struct Raw {
    wire: wire::Wire,
    slab: Slab,
    frames: VecDeque<Packet>,
    pub clock: Clock,
    mac: MacAddr,
    pub net: Net,
}

impl Raw {
    pub fn new() -> Self {
        let clock = Clock::new_virtual();
        let (wire, far) = wire::pair(&wire::Options::default());
        let mac = far.properties().mac;
        let builder = Net::builder().link_with(Box::new(far));
        let builder = builder.address("10.0.0.2/24").unwrap();
        let builder = builder.gateway("10.0.0.9").unwrap();
        let builder = builder.threads(Threads::Caller).clock(clock.clone());
        let mut raw = Self {
            net: builder.seed(3).start().unwrap(),
            slab: Slab::new(256, 2048).unwrap(),
            frames: VecDeque::new(),
            wire,
            clock,
            mac,
        };
        let mut bytes = [0; 64];
        let len = arp::request(MAC, ROUTER, HOST).emit(&mut bytes);
        raw.push(EtherType::ARP, MacAddr::BROADCAST, &bytes[..len]);
        raw.turn();
        raw
    }

    /// A frame with this IPv4 packet to this link address, `None`: the stack's; and what comes back.
    pub fn frame(&mut self, to: Option<MacAddr>, packet: &[u8]) -> Vec<Vec<u8>> {
        let mac = to.unwrap_or(self.mac);
        self.push(EtherType::IPV4, mac, packet);
        self.turn()
    }

    fn push(&mut self, kind: EtherType, to: MacAddr, packet: &[u8]) {
        let mut frame = Packet::new(self.slab.alloc().unwrap(), 0);
        frame.set_len(ethernet::HEADER_LEN + packet.len());
        let (head, body) = frame.bytes_mut().split_at_mut(ethernet::HEADER_LEN);
        ethernet::Header::new(to, MAC, kind).emit(head);
        body.copy_from_slice(packet);
        self.frames.push_back(frame);
    }

    /// Turns the stack until it is quiet; the IPv4 packets that came.
    pub fn turn(&mut self) -> Vec<Vec<u8>> {
        let (mut burst, mut heard) = (VecDeque::new(), Vec::new());
        loop {
            let now = self.clock.now();
            self.wire.transmit(now, &mut self.frames).unwrap();
            let moved = self.net.poll();
            let n = self.wire.receive(now, &mut self.slab, &mut burst, 64);
            let packets = burst.drain(..).map(|frame| frame.bytes()[14..].to_vec());
            heard.extend(packets.filter(|packet| packet[0] == 0x45));
            if !moved && n.unwrap() == 0 && self.frames.is_empty() {
                return heard;
            }
        }
    }

    /// Answers `packet` with an ICMP error of this type, code and second word, which quotes `len` bytes of it.
    pub fn icmp(&mut self, packet: &[u8], kind: u8, code: u8, word: u32, len: usize) {
        let mut bytes = [0; 1500];
        let quote = &packet[..len.min(packet.len())];
        let at = ipv4::Header::new(Protocol::ICMP, ROUTER, HOST).emit(8 + quote.len(), &mut bytes);
        let message = &mut bytes[at..at + 8 + quote.len()];
        message[..2].copy_from_slice(&[kind, code]);
        message[4..8].copy_from_slice(&word.to_be_bytes());
        message[8..].copy_from_slice(quote);
        let sum = checksum::finish(checksum::sum(message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let (mac, end) = (self.mac, at + 8 + quote.len());
        self.push(EtherType::IPV4, mac, &bytes[..end]);
        self.turn();
    }

    pub fn counter(&self, name: &str) -> u64 {
        let rows = self.net.show("counters").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).expect(name);
        row["value"].as_u64().unwrap()
    }
}
