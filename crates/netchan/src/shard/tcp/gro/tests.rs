//! The same packets to two stacks that are alike: one takes each burst as it comes, runs and all, the other each packet by itself. What they
//! say, what their sockets read and what they know of their connections has to be the same.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    time::Duration,
};

use percore::slab::Slab;
use proto::{tcp::EcnMode, wire::ipv4::Protocol};

use crate::{
    Clock, Net, Threads,
    api::{Domain, Kind, Readiness, ReceiveFlags},
    driver::steer::short,
    flow::FlowKey,
    link::{
        LinkRx, LinkTx,
        wire::{self, Wire},
    },
    packet::{Flag, Meta, Packet},
    socket::{Socket, SocketOption},
};

const ETHERNET: usize = 14;
const PORT: u16 = 80;
/// Connections beside each other: where their segments mix, runs end.
const FLOWS: usize = 2;

/// How often the applications do something in each run.
const ROUNDS: usize = 150;

/// `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap() % n.max(1)
    }
    fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A stack, the other end of its wire, and its sockets.
struct Host {
    net: Net,
    wire: Wire,
    slab: Slab,
    clock: Clock,
    sockets: Vec<Socket>,
    bell: Arc<Bell>,
    /// IP packets of TCP that it sent.
    said: Vec<Vec<u8>>,
}

/// What differs from run to run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    v6: bool,
    timestamps: bool,
    ecn: EcnMode,
    memory: Option<usize>,
    faults: usize,
}

impl Host {
    fn new(shape: &Shape, number: u8, seed: u64, clock: &Clock) -> Self {
        let (first, second) = wire::pair(&wire::Options::default());
        // The ends of each wire have other link addresses, and wires have not: the receivers share theirs.
        let (ours, wire) = if number == 1 {
            (second, first)
        } else {
            (first, second)
        };
        let mut tcp = proto::tcp::Config {
            timestamps: shape.timestamps,
            ecn: shape.ecn,
            receive_buffer: 1 << 18,
            receive_buffer_max: 1 << 20,
            max_segments: 1 << 10,
            ..proto::tcp::Config::default()
        };
        let mut builder = Net::builder().threads(Threads::Caller).clock(clock.clone());
        if let (2, Some(memory)) = (number, shape.memory) {
            // Few nodes, and little memory: text is refused.
            tcp.max_segments = 40;
            builder = builder.tcp_memory(memory);
        }
        let address = if shape.v6 {
            format!("fd00::{number}/64")
        } else {
            format!("10.0.0.{number}/24")
        };
        let builder = builder.tcp(tcp).seed(seed).link_with(Box::new(ours));
        Self {
            net: builder.address(&address).unwrap().start().unwrap(),
            wire,
            slab: Slab::new(4096, 2048).unwrap(),
            clock: clock.clone(),
            sockets: Vec::new(),
            bell: Arc::default(),
            said: Vec::new(),
        }
    }

    /// Turns it until it is quiet; frames that are not of TCP come back, the others are kept.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let mut other = Vec::new();
        loop {
            let moved = self.net.poll();
            let (mut burst, now) = (VecDeque::new(), self.clock.now());
            let heard = self.wire.receive(now, &mut self.slab, &mut burst, 64);
            for packet in &burst {
                match ip_of_tcp(packet.bytes()) {
                    Some(ip) => self.said.push(ip.to_vec()),
                    None => other.push(packet.bytes().to_vec()),
                }
            }
            if !moved && heard.unwrap() == 0 {
                return other;
            }
        }
    }

    /// A frame on its wire.
    fn hears(&mut self, frame: &[u8]) {
        let mut packet = Packet::new(self.slab.alloc().unwrap(), 0);
        packet.room_mut()[..frame.len()].copy_from_slice(frame);
        packet.set_len(frame.len());
        let mut burst = VecDeque::from([packet]);
        self.wire.transmit(self.clock.now(), &mut burst).unwrap();
    }

    /// IP packets of TCP, as `steer` hands them to the shard: all in one go, or one by one.
    fn takes(&mut self, burst: &[Vec<u8>], together: bool) {
        let hash = &self.net.stack().control.host.flow_hash;
        let packets: Vec<_> = (burst.iter())
            .map(|bytes| {
                let mut packet = Packet::new(self.slab.alloc().unwrap(), 0);
                packet.room_mut()[..bytes.len()].copy_from_slice(bytes);
                packet.set_len(bytes.len());
                let sent = FlowKey::of_sent(bytes).unwrap();
                let key = FlowKey {
                    local: sent.remote,
                    remote: sent.local,
                    local_port: sent.remote_port,
                    remote_port: sent.local_port,
                    protocol: sent.protocol,
                };
                packet.meta = Meta {
                    protocol: Protocol::TCP,
                    flow: short(hash.hash(&key)),
                    upper: if bytes[0] >> 4 == 4 { 20 } else { 40 },
                    to_group: Flag::NO,
                    ..Meta::default()
                };
                packet
            })
            .collect();
        self.net.stack().with_shard(0, |shard, now| {
            if together {
                let mut batch = shard.receive_batch(now);
                return packets.into_iter().for_each(|packet| batch.input(packet));
            }
            for packet in packets {
                shard.receive_batch(now).input(packet);
            }
        });
    }

    fn read(&self, flow: usize, most: usize) -> Result<Vec<u8>, ErrorKind> {
        let mut room = vec![0; most];
        let got =
            self.sockets[flow].receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default());
        let got = got.map_err(|error| error.kind())?;
        room.truncate(got.len);
        Ok(room)
    }

    fn write(&self, flow: usize, text: &[u8]) -> Result<usize, ErrorKind> {
        let sent = self.sockets[flow].send(&[IoSlice::new(text)], None);
        sent.map_err(|error| error.kind())
    }

    fn wait(&self, flow: usize) -> bool {
        let waker = Waker::from(self.bell.clone());
        self.sockets[flow].register(Readiness::READABLE, &waker)
    }

    /// All its counters of TCP but the one that is to differ, and that one.
    fn counters(&self) -> (Vec<(String, u64)>, u64) {
        let shown = self.net.show("counters").unwrap();
        let rows = shown.as_array().unwrap().iter();
        let all = rows.filter_map(|row| Some((row["name"].as_str()?, row["value"].as_u64()?)));
        let tcp = all.filter(|(name, _)| name.contains("tcp"));
        let (followed, same): (Vec<_>, Vec<_>) =
            tcp.partition(|(name, _)| *name == "tcp_segments_followed");
        let same = same.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
        (same, followed.iter().map(|(_, n)| n).sum())
    }
}

/// The IP packet in a frame, if it is of TCP.
fn ip_of_tcp(frame: &[u8]) -> Option<&[u8]> {
    let ip = frame.get(ETHERNET..)?;
    match (&frame[12..ETHERNET], ip) {
        ([8, 0], [_, _, hi, lo, ..]) if ip[9] == 6 => {
            ip.get(..usize::from(u16::from_be_bytes([*hi, *lo])))
        }
        ([0x86, 0xdd], [_, _, _, _, hi, lo, 6, ..]) => {
            ip.get(..40 + usize::from(u16::from_be_bytes([*hi, *lo])))
        }
        _ => None,
    }
}

/// A sender, and two receivers that are to stay alike.
struct World {
    clock: Clock,
    dice: Dice,
    shape: Shape,
    sender: Host,
    /// The first takes runs.
    receivers: [Host; 2],
    /// Text that the receivers have read, each connection's.
    read: [usize; FLOWS],
}

/// What each byte of a stream is.
fn byte(flow: usize, at: usize) -> u8 {
    (at * 7 + at / 251 + flow).to_le_bytes()[0]
}

impl World {
    fn new(shape: Shape, seed: u64) -> Self {
        let clock = Clock::new_virtual();
        let sender = Host::new(&shape, 1, 1, &clock);
        let receivers = [0, 1].map(|_| Host::new(&shape, 2, 2, &clock));
        let mut world = Self {
            clock,
            dice: Dice(seed),
            shape: Shape { faults: 0, ..shape },
            sender,
            receivers,
            read: [0; FLOWS],
        };
        world.connect().unwrap();
        world.shape = shape;
        world
    }

    fn connect(&mut self) -> io::Result<()> {
        let domain = if self.shape.v6 {
            Domain::V6
        } else {
            Domain::V4
        };
        let at = if self.shape.v6 {
            "[fd00::2]"
        } else {
            "10.0.0.2"
        };
        let address: SocketAddr = format!("{at}:{PORT}").parse().unwrap();
        let mut listeners = Vec::new();
        for host in &self.receivers {
            let listener = Socket::new(&host.net, domain, Kind::Stream)?;
            listener.bind(address)?;
            listener.listen(8)?;
            listeners.push(listener);
        }
        for _ in 0..FLOWS {
            let socket = Socket::new(&self.sender.net, domain, Kind::Stream)?;
            assert_eq!(
                socket.connect(address).unwrap_err().raw_os_error(),
                Some(libc::EINPROGRESS)
            );
            self.sender.sockets.push(socket);
        }
        for _ in 0..20 {
            self.round();
        }
        for (host, listener) in self.receivers.iter_mut().zip(&listeners) {
            for _ in 0..FLOWS {
                host.sockets.push(listener.accept()?.0);
            }
            let (first, second) = (&host.sockets[0], &host.sockets[1]);
            first.set_option(SocketOption::ReceiveLowWater(5000))?;
            second.set_option(SocketOption::UrgentInline(true))?;
        }
        Ok(())
    }

    /// A millisecond and more: what the sender has said goes to both receivers, what these say (the same) to the sender.
    fn round(&mut self) {
        let step = [1, 1, 3, 50][self.dice.below(4)];
        self.clock.advance(Duration::from_millis(step));
        for frame in self.sender.turn() {
            self.receivers
                .iter_mut()
                .for_each(|host| host.hears(&frame));
        }
        let mut burst = std::mem::take(&mut self.sender.said);
        self.mistreat(&mut burst);
        while !burst.is_empty() {
            let most = burst.len().min(32);
            let few: Vec<_> = burst.drain(..most).collect();
            for (host, together) in self.receivers.iter_mut().zip([true, false]) {
                host.takes(&few, together);
            }
        }
        for at in 0..2 {
            for frame in self.receivers[at].turn() {
                self.sender.hears(&frame);
            }
        }
        let said = self
            .receivers
            .each_mut()
            .map(|host| std::mem::take(&mut host.said));
        assert_eq!(said[0], said[1], "what they answer");
        for packet in &said[0] {
            self.sender.takes(std::slice::from_ref(packet), true);
        }
        self.compare();
    }

    /// Loses, repeats, swaps, breaks and marks packets, and lets another host send some.
    fn mistreat(&mut self, burst: &mut Vec<Vec<u8>>) {
        let (dice, faults) = (&mut self.dice, self.shape.faults);
        burst.retain(|_| !dice.percent(faults));
        for at in 1..burst.len() {
            if dice.percent(faults) {
                burst.swap(at - 1, at);
            }
            if dice.percent(faults) {
                let copy = burst[at - 1].clone();
                burst.insert(at, copy);
            }
            let packet = &mut burst[at];
            if dice.percent(faults) {
                let byte = 20 + dice.below(packet.len() - 20);
                packet[byte] ^= 1;
            } else if dice.percent(faults) {
                // Congestion experienced, which no checksum of TCP covers.
                let (byte, bits) = if packet[0] >> 4 == 4 {
                    (1, 3)
                } else {
                    (1, 0x30)
                };
                packet[byte] |= bits;
            } else if dice.percent(faults) {
                // Of no connection: ports turned round, and no sum tells.
                let upper = if packet[0] >> 4 == 4 { 20 } else { 40 };
                packet[upper..upper + 4].rotate_left(2);
            }
        }
    }

    fn compare(&self) {
        let [one, two] = &self.receivers;
        for (ours, theirs) in one.sockets.iter().zip(&two.sockets) {
            assert_eq!(ours.tcp_info(), theirs.tcp_info());
            assert_eq!(ours.available(), theirs.available());
            assert_eq!(ours.is_at_mark(), theirs.is_at_mark());
        }
        assert_eq!(one.bell.0.load(Relaxed), two.bell.0.load(Relaxed), "wakes");
        let ((ours, _), (theirs, followed)) = (one.counters(), two.counters());
        assert_eq!((ours, followed), (theirs, 0));
    }

    /// What the applications do between rounds.
    fn act(&mut self, written: &mut [usize; FLOWS]) {
        for (flow, written) in written.iter_mut().enumerate() {
            if self.dice.percent(70) {
                let len = [1, 700, 20_000, 60_000][self.dice.below(4)];
                let text: Vec<u8> = (*written..*written + len)
                    .map(|at| byte(flow, at))
                    .collect();
                *written += self.sender.write(flow, &text).unwrap_or(0);
            }
            if self.dice.percent(2) {
                let text = [byte(flow, *written)];
                let sent = self.sender.sockets[flow].send_urgent(&[IoSlice::new(&text)]);
                *written += sent.unwrap_or(0);
            }
            if self.dice.percent(20) {
                _ = self.sender.read(flow, 1 << 16);
            }
            let (reads, writes, waits) = (
                self.dice.percent(60),
                self.dice.percent(20),
                self.dice.percent(30),
            );
            let most = 1 + self.dice.below(80_000);
            let [one, two] = &self.receivers;
            if reads {
                let (ours, theirs) = (one.read(flow, most), two.read(flow, most));
                assert_eq!(ours, theirs);
                self.read[flow] += ours.map_or(0, |text| text.len());
            }
            if writes {
                assert_eq!(one.write(flow, &[9; 3000]), two.write(flow, &[9; 3000]));
            }
            if waits {
                assert_eq!(one.wait(flow), two.wait(flow));
            }
        }
    }
}

fn run(shape: Shape, seed: u64) -> u64 {
    println!("{shape:?}, seed {seed}");
    let mut world = World::new(shape, seed);
    let mut written = [0; FLOWS];
    for _ in 0..ROUNDS {
        world.act(&mut written);
        world.round();
    }
    for socket in &world.sender.sockets {
        _ = socket.shutdown(std::net::Shutdown::Write);
    }
    for _ in 0..20 {
        world.round();
    }
    assert!(world.read.iter().all(|&read| read > 0), "{:?}", world.read);
    world.receivers[0].counters().1
}

#[test]
fn runs_leave_what_packets_by_themselves_leave() {
    let usual = Shape {
        v6: false,
        timestamps: true,
        ecn: EcnMode::Passive,
        memory: None,
        faults: 0,
    };
    let shapes = [
        usual,
        Shape {
            v6: true,
            timestamps: false,
            ..usual
        },
        Shape { faults: 1, ..usual },
        Shape {
            faults: 3,
            v6: true,
            ecn: EcnMode::Classic,
            ..usual
        },
        Shape {
            faults: 1,
            ecn: EcnMode::Accurate,
            ..usual
        },
        Shape {
            faults: 1,
            memory: Some(400 << 10),
            ..usual
        },
    ];
    for (shape, seed) in shapes.into_iter().zip(1..) {
        let followed = run(shape, seed);
        println!("{followed} segments followed");
        assert!(followed > 20, "{shape:?}");
    }
}

/// A segment behind another connection's is predicted as one behind its own is: the next one follows it.
#[test]
fn a_run_begins_where_the_connection_changes() {
    let shape = Shape {
        v6: false,
        timestamps: true,
        ecn: EcnMode::Passive,
        memory: None,
        faults: 0,
    };
    let mut world = World::new(shape, 7);
    let text = [7; 2 * 1448];
    let mut followed = Vec::new();
    for _ in 0..10 {
        for flow in 0..FLOWS {
            assert_eq!(world.sender.write(flow, &text), Ok(text.len()));
        }
        world.round();
        followed.push(world.receivers[0].counters().1);
    }
    let each: Vec<_> = followed.windows(2).map(|n| n[1] - n[0]).collect();
    // Most often one of each connection's two; at least one.
    assert!(each.iter().all(|&n| n > 0), "{each:?}");
}
