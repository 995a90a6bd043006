//! A peer made by hand, that is any number of hosts: it sends any segment from any address and sees what comes back.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use netchan::{
    Builder, Clock, Net, Threads,
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
        tcp::{Flags, Header, SeqNum},
    },
};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
/// The stack's address; a host that is not on its network is behind us.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// Where the tests' hosts live.
pub const PEER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The port that the stack listens on.
pub const PORT: u16 = 80;

/// The hand-made peer and the stack.
pub struct Raw {
    wire: wire::Wire,
    slab: Slab,
    frames: VecDeque<Packet>,
    pub clock: Clock,
    mac: MacAddr,
    pub net: Net,
    _alone: MutexGuard<'static, ()>,
}

/// One at a time, so that the memory of this process is that of one stack.
static ALONE: Mutex<()> = Mutex::new(());

/// A segment that came from the stack.
#[derive(Debug)]
pub struct Segment {
    pub ip: ipv4::Header,
    pub header: Header,
    pub text: Vec<u8>,
    /// All of it, as it came.
    pub bytes: Vec<u8>,
}

impl Raw {
    pub fn new(settings: impl FnOnce(Builder) -> Builder) -> Self {
        Self::from(settings(Net::builder()))
    }

    /// With these settings, and no link among them.
    pub fn from(builder: Builder) -> Self {
        let clock = Clock::new_virtual();
        let (wire, far) = wire::pair(&wire::Options::default());
        let mac = far.properties().mac;
        let builder = builder.link_with(Box::new(far));
        let builder = builder.address("10.0.0.2/24").unwrap();
        let builder = builder.gateway("10.0.0.9").unwrap();
        let builder = builder
            .threads(Threads::Caller)
            .clock(clock.clone())
            .seed(3);
        let mut raw = Self {
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
            net: builder.start().unwrap(),
            slab: Slab::new(1024, 2048).unwrap(),
            frames: VecDeque::new(),
            wire,
            clock,
            mac,
        };
        raw.introduce();
        raw
    }

    /// Asks for the stack's address, from which it learns ours.
    fn introduce(&mut self) {
        let mut bytes = [0; 64];
        let len = arp::request(MAC, OWN, SERVER).emit(&mut bytes);
        self.push(EtherType::ARP, MacAddr::BROADCAST, &bytes[..len]);
        self.turn();
    }

    fn push(&mut self, kind: EtherType, to: MacAddr, packet: &[u8]) {
        let mut frame = Packet::new(self.slab.alloc().unwrap(), 0);
        frame.set_len(ethernet::HEADER_LEN + packet.len());
        let (head, body) = frame.bytes_mut().split_at_mut(ethernet::HEADER_LEN);
        ethernet::Header::new(to, MAC, kind).emit(head);
        body.copy_from_slice(packet);
        self.frames.push_back(frame);
    }

    /// Puts a segment onto the wire; the stack sees it with the next turn.
    pub fn put(&mut self, from: Ipv4Addr, header: &Header, text: &[u8]) {
        let mut packet = [0; 1600];
        let tcp_len = header.len() + text.len();
        let ip = ipv4::Header::new(Protocol::TCP, from, SERVER);
        let at = ip.emit(tcp_len, &mut packet);
        let end = at + tcp_len;
        packet[at + header.len()..end].copy_from_slice(text);
        header.emit_with_checksum(
            &mut packet[at..],
            checksum::sum(text),
            text.len(),
            from.into(),
            SERVER.into(),
        );
        let mac = self.mac;
        self.push(EtherType::IPV4, mac, &packet[..end]);
    }

    /// Puts an IP packet onto the wire whose payload is finished.
    pub fn put_payload(&mut self, from: Ipv4Addr, protocol: Protocol, payload: &[u8]) {
        let mut packet = [0; 1600];
        let at = ipv4::Header::new(protocol, from, SERVER).emit(payload.len(), &mut packet);
        let end = at + payload.len();
        packet[at..end].copy_from_slice(payload);
        let mac = self.mac;
        self.push(EtherType::IPV4, mac, &packet[..end]);
    }

    /// Turns the stack until it is quiet; the segments that came.
    pub fn turn(&mut self) -> Vec<Segment> {
        let (mut burst, mut heard) = (VecDeque::new(), Vec::new());
        loop {
            let now = self.clock.now();
            self.wire.transmit(now, &mut self.frames).unwrap();
            let moved = self.net.poll();
            let n = self.wire.receive(now, &mut self.slab, &mut burst, 64);
            heard.extend(burst.drain(..).filter_map(|frame| segment(frame.bytes())));
            if !moved && n.unwrap() == 0 && self.frames.is_empty() {
                return heard;
            }
        }
    }

    /// A segment, and what comes back.
    pub fn ask(&mut self, from: Ipv4Addr, header: &Header, text: &[u8]) -> Vec<Segment> {
        self.put(from, header, text);
        self.turn()
    }

    /// Time goes by; what the stack says meanwhile.
    pub fn wait(&mut self, time: Duration) -> Vec<Segment> {
        let until = self.clock.now() + time;
        let mut heard = Vec::new();
        while self.clock.now() < until {
            let next = self.net.next_event().unwrap_or(until);
            self.clock.advance_to(next.clamp(self.clock.now(), until));
            heard.extend(self.turn());
            if next <= self.clock.now() {
                self.clock.advance(Duration::from_micros(100));
            }
        }
        self.introduce();
        heard
    }

    pub fn counter(&self, name: &str) -> u64 {
        let rows = self.net.show("counters").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).expect(name);
        row["value"].as_u64().unwrap()
    }
}

fn segment(frame: &[u8]) -> Option<Segment> {
    let packet = frame.get(ethernet::HEADER_LEN..)?;
    let ip = ipv4::Header::parse(packet).ok()?;
    let bytes = ip.payload(packet);
    assert!(proto::wire::tcp::verify_checksum(
        ip.source.into(),
        ip.destination.into(),
        bytes
    ));
    let (header, at) = Header::parse(bytes).ok()?;
    Some(Segment {
        ip,
        header,
        text: bytes[at..].to_vec(),
        bytes: bytes.to_vec(),
    })
}

/// A segment from `port` to the listener's.
pub fn header(port: u16, flags: Flags, seq: u32, ack: u32) -> Header {
    Header {
        source_port: port,
        destination_port: PORT,
        seq: SeqNum(seq),
        ack: SeqNum(ack),
        flags,
        window: 1000,
        ..Header::default()
    }
}
