//! A whole stack that does what bytes say: frames of any kind, segments near what its connections expect, calls and time, in any order. Nothing
//! panics or spins, and afterwards the stack still answers a SYN. The fuzz target `stack` and a test run these scripts.

use std::{
    collections::VecDeque,
    io::{IoSlice, IoSliceMut},
    net::{Ipv4Addr, Shutdown, SocketAddr},
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::{
        LinkRx, LinkTx,
        wire::{self, Wire},
    },
    packet::Packet,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};
use percore::slab::Slab;

use super::bytes::Bytes;
use super::frames::{Ends, Random, Segment, arp, corpus, mutate, tcp};

const PORT: u16 = 8000;
const STEPS: usize = 120;
/// Turns without rest after which a stack spins.
const TURNS_MAX: usize = 2_000;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

impl Bytes<'_> {
    /// A number at `point`, near it, or far away.
    fn near(&mut self, point: u32) -> u32 {
        match self.u8() & 7 {
            0..4 => point,
            4 => point.wrapping_add(self.u8().into()),
            5 => point.wrapping_sub(self.u8().into()),
            6 => point.wrapping_add(self.u16().into()),
            _ => u32::from(self.u16()) << 16,
        }
    }
}

/// What the stack's last segment said, as its peer sees it.
#[derive(Clone, Copy, Default)]
struct Heard {
    v6: bool,
    /// The peer's port, and the stack's.
    ports: (u16, u16),
    sequence_end: u32,
    acknowledgement: u32,
}

/// A stack, its sockets and its peer, which serve script after script.
pub struct Host {
    // Before the wire: a stack complains of a link that is gone.
    listener: Socket,
    streams: Vec<Socket>,
    datagrams: Socket,
    net: Net,
    clock: Clock,
    wire: Wire,
    slab: Slab,
    ends: Ends,
    heard: Heard,
    syn_acks: usize,
}

impl Host {
    /// Runs a script; afterwards nothing of it is left.
    pub fn run(&mut self, script: &[u8]) {
        let mut bytes = Bytes(script);
        for _ in 0..STEPS {
            if bytes.0.is_empty() {
                break;
            }
            self.step(&mut bytes);
            self.settle();
        }
        self.rest();
        self.answers_still();
        self.rest();
    }

    /// A stack that has heard of its peer.
    pub fn new() -> Self {
        let clock = Clock::new_virtual();
        let options = wire::Options {
            mac: Some(proto::wire::ethernet::MacAddr(OUR_MAC)),
            ..wire::Options::default()
        };
        let (link, wire) = wire::pair(&options);
        let net = Net::builder()
            .link_with(Box::new(link))
            .address("10.77.0.2/24")
            .and_then(|b| b.address("fd77::2/64"))
            .and_then(|b| {
                b.regime(Regime::AppChannel)
                    .threads(Threads::Caller)
                    .clock(clock.clone())
                    .seed(1)
                    .start()
            })
            .expect("a stack");
        let listener = Socket::new(&net, Domain::V6, Kind::Stream).expect("a socket");
        let any = SocketAddr::from(([0_u16; 8], PORT));
        listener.bind(any).expect("a free port");
        listener.listen(16).expect("a listener");
        let datagrams = Socket::new(&net, Domain::V6, Kind::Datagram).expect("a socket");
        datagrams.bind(any).expect("a free port");
        let mut host = Self {
            listener,
            streams: Vec::new(),
            datagrams,
            net,
            clock,
            wire,
            slab: Slab::new(256, 2048).expect("memory"),
            ends: Ends::new(OUR_MAC),
            heard: Heard::default(),
            syn_acks: 0,
        };
        let ask = arp(&host.ends, 1);
        host.put(&ask);
        host.settle();
        host
    }

    /// A frame arrives.
    fn put(&mut self, frame: &[u8]) {
        let Some(buffer) = self.slab.alloc() else {
            return;
        };
        let mut packet = Packet::new(buffer, 0);
        let len = frame.len().min(1514);
        packet.room_mut()[..len].copy_from_slice(&frame[..len]);
        packet.set_len(len);
        // What the wire has no room for is lost.
        let _ = self
            .wire
            .transmit(self.clock.now(), &mut VecDeque::from([packet]));
    }

    /// All act until nothing moves.
    fn settle(&mut self) {
        let mut burst = VecDeque::new();
        for _ in 0..TURNS_MAX {
            let moved = self.net.poll();
            let taken = self
                .wire
                .receive(self.clock.now(), &mut self.slab, &mut burst, 64);
            let taken = taken.expect("a wire with two ends");
            for packet in burst.drain(..) {
                self.hear(packet.bytes());
            }
            if !moved && taken == 0 {
                return;
            }
        }
        panic!("the stack spins");
    }

    /// Notes what a segment of the stack's says.
    fn hear(&mut self, frame: &[u8]) {
        let (v6, at, protocol) = match frame.get(12..14) {
            Some([8, 0]) => (false, 34, frame.get(23)),
            Some([0x86, 0xdd]) => (true, 54, frame.get(20)),
            _ => return,
        };
        let Some(segment) = frame.get(at..at + 20).filter(|_| protocol == Some(&6)) else {
            return;
        };
        let word = |i: usize| {
            u32::from_be_bytes([segment[i], segment[i + 1], segment[i + 2], segment[i + 3]])
        };
        let port = |i: usize| u16::from_be_bytes([segment[i], segment[i + 1]]);
        let header = usize::from(segment[12] >> 4) * 4;
        let flags = segment[13];
        let text = frame.len().saturating_sub(at + header);
        let controls = u32::from(flags & 1) + u32::from(flags >> 1 & 1);
        let text = u32::try_from(text).unwrap_or(0) + controls;
        self.syn_acks += usize::from(flags & 0x12 == 0x12);
        self.heard = Heard {
            v6,
            ports: (port(2), port(0)),
            sequence_end: word(4).wrapping_add(text),
            acknowledgement: word(8),
        };
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() % 16 {
            0..6 => self.segment(bytes),
            6 => {
                let len = usize::from(bytes.u16() % 1_514).min(bytes.0.len());
                let frame = bytes.0[..len].to_vec();
                bytes.0 = &bytes.0[len..];
                self.put(&frame);
            }
            7..10 => {
                let mut random = Random::new(bytes.u8().into());
                let all = corpus(&self.ends, &mut random);
                let mut frame = all[usize::from(bytes.u8()) % all.len()].clone();
                if bytes.u8() & 1 == 1 {
                    frame = mutate(&frame, &mut Random::new(bytes.u16().into()));
                }
                self.put(&frame);
            }
            10 => {
                let most = Duration::from_micros(u64::from(bytes.u8()) << (bytes.u8() % 24));
                self.clock.advance(most);
            }
            11 => self.open(bytes),
            _ => self.call(bytes),
        }
    }

    /// A segment for a connection that is there, or a new one.
    fn segment(&mut self, bytes: &mut Bytes<'_>) {
        let Heard {
            mut v6,
            mut ports,
            sequence_end,
            acknowledgement,
        } = self.heard;
        let how = bytes.u8();
        if how & 1 == 1 || ports.1 == 0 {
            (v6, ports) = (how & 2 == 2, (1024 + u16::from(how >> 4), PORT));
        }
        let options: [&[u8]; 5] = [
            &[],
            &[2, 4, 5, 180, 4, 2, 1, 1, 3, 3, 7, 0],
            &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9],
            &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            &[2, 4, 0, 1, 28, 4, 128, 1],
        ];
        let flags = match bytes.u8() % 10 {
            0..3 => 0x10,
            3 => 0x18,
            4 => 0x11,
            5 | 6 => 0x02,
            7 => 0x12,
            8 => 0x04,
            _ => bytes.u8(),
        };
        let payload = vec![7; usize::from(bytes.u8()) * 5];
        let segment = Segment {
            ports,
            sequence: bytes.near(acknowledgement),
            acknowledgement: bytes.near(sequence_end),
            flags,
            options: options[usize::from(bytes.u8()) % options.len()],
            payload: if how & 4 == 4 { &payload } else { &[] },
        };
        let frame = tcp(&self.ends, v6, &segment);
        self.put(&frame);
    }

    /// Connects to the peer, which may say what it likes.
    fn open(&mut self, bytes: &mut Bytes<'_>) {
        let address = match bytes.u8() & 1 {
            0 => SocketAddr::from((self.ends.source, 9)),
            _ => SocketAddr::from((self.ends.source6, 9)),
        };
        let domain = if address.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        let socket = Socket::new(&self.net, domain, Kind::Stream).expect("a socket");
        // Under way, refused, or no route: as the script has it.
        let _ = socket.connect(address);
        self.streams.push(socket);
    }

    fn call(&mut self, bytes: &mut Bytes<'_>) {
        let (what, which) = (bytes.u8(), usize::from(bytes.u8()));
        if what & 7 == 0 {
            self.streams
                .extend(self.listener.accept().ok().map(|(s, _)| s));
        }
        let mut room = [0; 4096];
        // Whatever these say is well: the peer is not to be relied on.
        let _ = self
            .datagrams
            .receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default());
        if self.streams.is_empty() {
            return;
        }
        let at = which % self.streams.len();
        let stream = &self.streams[at];
        match what & 7 {
            1 | 2 => _ = stream.send(&[IoSlice::new(&room[..usize::from(bytes.u8()) * 16])], None),
            3 | 4 => _ = stream.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default()),
            5 => _ = stream.shutdown(Shutdown::Write),
            6 => _ = stream.send_urgent(&[IoSlice::new(&room[..1])]),
            7 => drop(self.streams.swap_remove(at)),
            _ => {}
        }
    }

    /// Everything is closed, and time enough passes for every timer there is (R2 of RFC 9293 §3.8.3 the longest): no connection stays.
    fn rest(&mut self) {
        self.streams.clear();
        while let Ok((stream, _)) = self.listener.accept() {
            drop(stream);
        }
        self.settle();
        for _ in 0..15 {
            self.clock.advance(Duration::from_secs(100));
            self.settle();
        }
        self.heard = Heard::default();
        let sockets = self.net.show("sockets").unwrap_or_default();
        let rows = sockets.as_array().map_or(0, Vec::len);
        assert_eq!(rows, 2, "a listener and a datagram socket: {sockets}");
    }

    /// A SYN of a new peer is answered.
    fn answers_still(&mut self) {
        let ends = Ends {
            source: Ipv4Addr::new(10, 77, 0, 77).octets(),
            source_mac: [2, 0, 0, 0, 0, 77],
            ..self.ends
        };
        let ask = arp(&ends, 1);
        self.put(&ask);
        self.settle();
        let before = self.syn_acks;
        let syn = Segment {
            ports: (777, PORT),
            sequence: 1,
            acknowledgement: 0,
            flags: 2,
            options: &[],
            payload: &[],
        };
        let frame = tcp(&ends, false, &syn);
        self.put(&frame);
        self.settle();
        assert!(self.syn_acks > before, "it does not answer any more");
    }
}
