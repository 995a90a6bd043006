//! Two stacks on a wire, in virtual time, for tests that look into their shards: the invariants of every shard are checked with each turn.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    time::Duration,
};

use percore::slab::Slab;
use proto::{
    time::Instant,
    wire::{
        checksum,
        ipv4::{self, Protocol},
        tcp::{Flags, Header, Options, SeqNum},
    },
};

use super::Shard;
use crate::{
    Builder, Clock, Net, Threads,
    driver::steer::short,
    flow::FlowKey,
    link::{Link, wire},
    packet::{Flag, Meta, Packet},
    socket::{Domain, Kind, ReceiveFlags, Socket},
};

mod early;
mod known;
mod left;
mod listening;
mod paths;
mod ports;
mod ready;
mod told;
mod uncut;

/// Two hosts: 10.0.0.1 and 10.0.0.2, fd77::1 and fd77::2; the first is 10.0.0.3, too.
pub struct World {
    pub nets: [Net; 2],
    pub clock: Clock,
}

impl World {
    pub fn new() -> Self {
        Self::with(|builder| builder)
    }

    /// Both with further settings.
    pub fn with(settings: impl Fn(Builder) -> Builder) -> Self {
        Self::over(&wire::Options::default(), settings)
    }

    /// Over a wire of this kind.
    pub fn over(options: &wire::Options, settings: impl Fn(Builder) -> Builder) -> Self {
        let (a, b) = wire::pair(options);
        Self::of([Box::new(a), Box::new(b)], settings)
    }

    /// With these links.
    pub fn of([a, b]: [Box<dyn Link>; 2], settings: impl Fn(Builder) -> Builder) -> Self {
        let clock = Clock::new_virtual();
        let start = |link, number: u8| {
            let mut builder = Net::builder().link_with(link);
            let also = (number == 1).then_some("10.0.0.3/24".to_owned());
            let own = [format!("10.0.0.{number}/24"), format!("fd77::{number}/64")];
            for address in own.into_iter().chain(also) {
                builder = builder.address(&address).unwrap();
            }
            let builder = builder.threads(Threads::Caller).clock(clock.clone());
            settings(builder.seed(number.into())).start().unwrap()
        };
        let nets = [start(a, 1), start(b, 2)];
        let world = Self { nets, clock };
        world.pass(2_000); // addresses of IPv6 are looked for first
        world
    }

    /// All that happens without time passing, and then the invariants.
    pub fn settle(&self) {
        for _ in 0..8 {
            self.nets.iter().for_each(|net| _ = net.poll());
        }
        for net in &self.nets {
            net.stack().with_shard(0, |shard, _| shard.check());
        }
    }

    /// Time passes, in milliseconds.
    pub fn pass(&self, ms: u64) {
        for _ in 0..ms {
            self.clock.advance(Duration::from_millis(1));
            self.nets.iter().for_each(|net| _ = net.poll());
        }
        self.settle();
    }

    pub fn socket(&self, at: usize, kind: Kind) -> Socket {
        Socket::new(&self.nets[at], Domain::V4, kind).unwrap()
    }

    /// A socket that is bound.
    pub fn bound(&self, at: usize, kind: Kind, address: &str) -> Socket {
        let socket = self.socket(at, kind);
        socket.bind(to(address)).unwrap();
        socket
    }

    /// A connection from the first host to the second: its ends.
    pub fn connection(&self) -> (Socket, Socket) {
        let listener = self.bound(1, Kind::Stream, "10.0.0.2:80");
        listener.listen(8).unwrap();
        let client = self.socket(0, Kind::Stream);
        let _ = client.connect(to("10.0.0.2:80"));
        for _ in 0..10 {
            self.pass(1);
            if let Ok((accepted, _)) = listener.accept() {
                return (client, accepted);
            }
        }
        panic!("no connection");
    }

    /// What a shard of a host says.
    pub fn shard<R: Send>(&self, at: usize, f: impl FnOnce(&mut Shard, Instant) -> R + Send) -> R {
        self.nets[at].stack().with_shard(0, f)
    }

    /// The number of the second host's connection with this port of its peer's.
    pub fn number_of(&self, port: u16) -> u32 {
        self.shard(1, |shard, _| {
            let is_its = |s: &super::TcpSocket| s.key().remote_port == port;
            let mut all = shard.connections();
            all.find(|(_, socket)| is_its(socket)).unwrap().0
        })
    }

    /// A segment of a peer on paper, as it comes to the second host's shard.
    pub fn segment(&self, peer: &Paper, flags: Flags, seq: SeqNum, text: &[u8]) {
        let header = Header {
            source_port: peer.port,
            destination_port: 80,
            seq,
            ack: peer.acked,
            flags,
            window: 65_535,
            urgent: 0,
            options: Options {
                mss: flags.contains(Flags::SYN).then_some(1460),
                ..Options::default()
            },
        };
        let (from, ours) = (Paper::HOST, Ipv4Addr::new(10, 0, 0, 2));
        let mut slab = Slab::new(1, 2048).unwrap();
        let mut packet = Packet::new(slab.alloc().unwrap(), 0);
        let len = header.len() + text.len();
        packet.set_len(20 + len);
        let (ip, segment) = packet.bytes_mut().split_at_mut(20);
        ipv4::Header::new(Protocol::TCP, from, ours).emit(len, ip);
        segment[header.len()..].copy_from_slice(text);
        let (from, ours) = (IpAddr::V4(from), IpAddr::V4(ours));
        header.emit_with_checksum(segment, checksum::sum(text), text.len(), from, ours);
        let key = FlowKey {
            local: ours,
            remote: from,
            local_port: 80,
            remote_port: peer.port,
            protocol: Protocol::TCP,
        };
        let hash = &self.nets[1].stack().control.host.flow_hash;
        packet.meta = Meta {
            protocol: Protocol::TCP,
            flow: short(hash.hash(&key)),
            upper: 20,
            to_group: Flag::NO,
            ..Meta::default()
        };
        self.shard(1, |shard, now| shard.receive_batch(now).input(packet));
    }

    /// A connection of a peer on paper with the second host's listener at port 80.
    pub fn opens(&self, listener: &Socket, port: u16) -> (Paper, Socket) {
        let mut peer = Paper {
            port,
            next: SeqNum(1000),
            acked: SeqNum(0),
        };
        self.segment(&peer, Flags::SYN, peer.next, &[]);
        let number = self.number_of(port);
        let iss = self.shard(1, |shard, _| shard.tcp(number).unwrap().connection.iss());
        (peer.next, peer.acked) = (peer.next + 1, iss + 1);
        self.segment(&peer, Flags::ACK, peer.next, &[]);
        (peer, listener.accept().unwrap().0)
    }

    pub fn counter(&self, at: usize, name: &str) -> u64 {
        let rows = self.nets[at].show("counters").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).expect(name);
        row["value"].as_u64().unwrap()
    }
}

/// A connection of a host that exists on paper only: nothing that is sent to it arrives.
pub struct Paper {
    pub port: u16,
    /// What it sends next.
    pub next: SeqNum,
    /// What it has had.
    pub acked: SeqNum,
}

impl Paper {
    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
}

/// An address.
pub fn to(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The errno of a call.
pub fn code<T>(result: std::io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// Sends bytes, whole or not at all.
pub fn send(socket: &Socket, bytes: &[u8], to: Option<SocketAddr>) -> Result<usize, i32> {
    code(socket.send(&[std::io::IoSlice::new(bytes)], to))
}

/// What one receive brings.
pub fn receive(socket: &Socket) -> Result<Vec<u8>, i32> {
    let mut room = vec![0; 1 << 16];
    let mut buffers = [std::io::IoSliceMut::new(&mut room)];
    let got = code(socket.receive(&mut buffers, ReceiveFlags::default()))?;
    room.truncate(got.len);
    Ok(room)
}

/// Counts its wakes.
#[derive(Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// A bell and a waker that rings it.
    pub fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::new(Self::default());
        (bell.clone(), Waker::from(bell))
    }

    /// How often it rang since the last look.
    pub fn rang(&self) -> u32 {
        self.0.swap(0, Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}
