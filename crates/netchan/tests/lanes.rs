//! Links with several queues whose frames are dealt out in a known way: where connections come to live, and what passes from queue to queue.

#[path = "../../../lab/tests/simulation/fan.rs"]
mod fan;

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    iter,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use netchan::{
    Clock, Doorbell, Instant, Net, Regime, Slab, TcpStream, Threads,
    link::{Link, LinkError, LinkRx, Properties, Queue, RxStatistics, wire},
    packet::Packet,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
    steps::Steps,
    tap,
};

use fan::{Fan, dealt};

const QUEUES: usize = 3;
const HERE: &str = "10.0.0.1:7";

/// Frames that come in as if a router had sent them.
type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A link, and such frames with what it receives.
struct Routed(Box<dyn Link>, Frames);

impl Link for Routed {
    fn properties(&self) -> &Properties {
        self.0.properties()
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let Self(link, frames) = *self;
        let routed = |Queue { rx, tx }| Queue {
            rx: Box::new(RoutedRx(rx, frames.clone())),
            tx,
        };
        Ok(link.start(bells)?.into_iter().map(routed).collect())
    }
}

struct RoutedRx(Box<dyn LinkRx>, Frames);

impl LinkRx for RoutedRx {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let received = self.0.receive(now, slab, burst, max)?;
        let Some(frame) = self.1.lock().unwrap().pop_front() else {
            return Ok(received);
        };
        let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
        packet.room_mut()[..frame.len()].copy_from_slice(&frame);
        packet.set_len(frame.len());
        burst.push_back(packet);
        Ok(received + 1)
    }

    fn next_event(&mut self) -> Instant {
        match self.1.lock().unwrap().is_empty() {
            true => self.0.next_event(),
            false => Instant::ZERO,
        }
    }

    fn statistics(&self) -> RxStatistics {
        self.0.statistics()
    }
}

/// A stack with a shard for each queue, its peer, and both one turn after the other.
struct World {
    nets: [Net; 2],
    steps: [Steps; 2],
    clock: Clock,
    /// A queue of ours that does not turn.
    idle: Option<usize>,
    /// What comes to us from a router.
    routed: Frames,
}

impl World {
    fn new(regime: Regime) -> Self {
        let clock = Clock::new_virtual();
        let (a, b) = wire::pair(&wire::Options::default());
        let routed = Frames::default();
        let fan = Fan {
            link: Box::new(Routed(Box::new(a), routed.clone())),
            queues: QUEUES,
        };
        let start = |builder: netchan::Builder, address: &str| {
            let builder = builder.regime(regime).threads(Threads::Stepped);
            let builder = builder.clock(clock.clone()).address(address).unwrap();
            builder.seed(1).start().unwrap()
        };
        let ours = Net::builder().link_with(Box::new(fan));
        let theirs = Net::builder().link_with(Box::new(b));
        let nets = [start(ours, "10.0.0.1/24"), start(theirs, "10.0.0.2/24")];
        let steps = [0, 1].map(|n| Steps::new(&nets[n]).unwrap());
        Self {
            nets,
            steps,
            clock,
            idle: None,
            routed,
        }
    }

    /// Until nothing moves, and a while of the clock's more.
    fn settle(&mut self) {
        for _ in 0..200 {
            let mut moved = true;
            while moved {
                moved = false;
                for (end, steps) in self.steps.iter_mut().enumerate() {
                    for role in 0..steps.roles() {
                        moved |= (end, Some(role)) != (0, self.idle) && steps.step(role);
                    }
                }
            }
            self.clock
                .advance_to(self.clock.now() + std::time::Duration::from_millis(1));
        }
    }

    /// What the peer sends comes into the channels of our shards, which do not turn.
    fn deliver(&mut self) {
        while (0..self.steps[1].roles()).fold(false, |moved, role| moved | self.steps[1].step(role))
        {
        }
        self.turn_links();
    }

    /// Our links send what waits for them, and what they receive comes into the channels of our shards.
    fn turn_links(&mut self) {
        while (0..QUEUES).fold(false, |moved, role| moved | self.steps[0].step(role)) {}
    }

    fn connect(&mut self) -> Socket {
        let socket = Socket::new(&self.nets[1], Domain::V4, Kind::Stream).unwrap();
        let _ = socket.connect(HERE.parse().unwrap()); // in progress
        self.settle();
        socket
    }

    fn listen(&self, shares: bool) -> Socket {
        let socket = Socket::new(&self.nets[0], Domain::V4, Kind::Stream).unwrap();
        socket.set_option(SocketOption::ReusePort(shares)).unwrap();
        socket.bind(HERE.parse().unwrap()).unwrap();
        socket.listen(64).unwrap();
        socket
    }

    /// The shard of the connection from `remote`.
    fn shard_of(&self, remote: SocketAddr) -> usize {
        let sockets = self.nets[0].show("sockets").unwrap();
        let mut rows = sockets.as_array().unwrap().iter();
        let row = rows.find(|row| row["remote"] == remote.to_string());
        let shard = row.unwrap_or_else(|| panic!("no {remote}: {sockets}"))["shard"].as_u64();
        usize::try_from(shard.unwrap()).unwrap()
    }
}

/// The fan deals out a flow that it has heard nothing of by a rule; its connection lives in the shard of that queue, and so does all that follows.
#[test]
fn connections_live_in_the_lane_that_they_came_in_by() {
    let mut world = World::new(Regime::AppChannel);
    let listener = world.listen(false);
    let mut used = [0; QUEUES];
    for _ in 0..24 {
        let socket = world.connect();
        let remote = socket.local_address();
        let queue = dealt(remote, HERE.parse().unwrap(), QUEUES);
        assert_eq!(world.shard_of(remote), queue);
        used[queue] += 1;
        let (accepted, from) = listener.accept().unwrap();
        assert_eq!(from, remote);
        let (near, far) = (
            TcpStream::from_socket(socket),
            TcpStream::from_socket(accepted),
        );
        passes(&mut world, &near, &far);
        passes(&mut world, &far, &near);
    }
    assert!(used.iter().all(|&n| n > 0), "{used:?}");
}

fn passes(world: &mut World, from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from, to);
    to.set_nonblocking(true).unwrap();
    from.set_nonblocking(true).unwrap();
    from.write_all(&[7; 5000]).unwrap();
    world.settle();
    let mut got = [0; 8000];
    let mut all = 0;
    while let Ok(n @ 1..) = to.read(&mut got[all..]) {
        all += n;
        world.settle();
    }
    assert_eq!(got[..all], [7; 5000]);
}

/// Of listeners that share a port each has a home, whichever thread makes them; what comes in there is its own.
#[test]
fn listeners_that_share_a_port_are_spread_over_the_shards() {
    let mut world = World::new(Regime::AppChannel);
    let listeners: Vec<_> = (0..QUEUES).map(|_| world.listen(true)).collect();
    let mut homes = vec![Vec::new(); QUEUES];
    for _ in 0..24 {
        let socket = world.connect();
        let remote = socket.local_address();
        let taken = listeners
            .iter()
            .position(|listener| listener.accept().is_ok());
        homes[taken.expect("one of them has it")].push(world.shard_of(remote));
        drop(socket);
    }
    let mut all: Vec<_> = homes.iter().filter_map(|shards| shards.first()).collect();
    assert!(
        homes.iter().all(|s| s.iter().all(|n| *n == s[0])),
        "{homes:?}"
    );
    all.sort();
    all.dedup();
    assert_eq!(all.len(), QUEUES, "{homes:?}");
}

fn count(world: &World, name: &str) -> u64 {
    let rows = world.nets[0].show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).expect(name);
    row["value"].as_u64().unwrap()
}

/// A connection moves with what its peer has not acknowledged. What comes by the queue where it was goes after it, and so does what was under way to its old
/// shard: nothing is reset, lost, or sent twice.
#[test]
fn connections_move_to_the_shard_of_their_thread() {
    let mut world = World::new(Regime::AppChannel);
    let listener = world.listen(false);
    for round in 0..12_usize {
        let socket = world.connect();
        let remote = socket.local_address();
        let (accepted, _) = listener.accept().unwrap();
        let began = world.shard_of(remote);
        let to = (began + 1 + round % 2) % QUEUES;
        let far = TcpStream::from_socket(socket);
        far.set_nonblocking(true).unwrap();
        accepted.send(&[IoSlice::new(&[1; 3000])], None).unwrap();
        assert!(accepted.move_to_shard(to), "{round}");
        assert_eq!(world.shard_of(remote), to);
        world.settle();
        let passed = count(&world, "tcp_passed_on");
        // Of what is not read yet it does not let go.
        (&far).write_all(&[3; 10]).unwrap();
        world.settle();
        assert!(!accepted.move_to_shard((to + 1) % QUEUES));
        assert_eq!(world.shard_of(remote), to);
        let near = TcpStream::from_socket(accepted);
        let mut got = [0; 8000];
        assert_eq!((&far).read(&mut got).unwrap(), 3000);
        assert_eq!((&near).read(&mut got).unwrap(), 10);
        passes(&mut world, &near, &far);
        passes(&mut world, &far, &near);
        assert_eq!(
            count(&world, "tcp_passed_on"),
            passed,
            "all queues know it by now"
        );
        drop((near, far));
        world.settle();
    }
    assert_eq!(count(&world, "tcp_moved"), 12);
    assert_eq!(count(&world, "drop_tcp_no_socket"), 0);
}

/// Segments that are in a shard's channel when their connection leaves it.
#[test]
fn segments_under_way_go_after_a_connection() {
    let mut world = World::new(Regime::AppChannel);
    let listener = world.listen(false);
    let socket = world.connect();
    let remote = socket.local_address();
    let (accepted, _) = listener.accept().unwrap();
    let began = world.shard_of(remote);
    let far = TcpStream::from_socket(socket);
    far.set_nonblocking(true).unwrap();
    for to in [1, 2, 3].map(|n| (began + n) % QUEUES) {
        (&far).write_all(&[to.try_into().unwrap(); 2000]).unwrap();
        world.deliver();
        assert!(accepted.move_to_shard(to));
        world.settle();
        let mut got = [0; 4000];
        let mut buffers = [IoSliceMut::new(&mut got)];
        let n = accepted.receive(&mut buffers, ReceiveFlags::default());
        assert_eq!(n.unwrap().len, 2000);
    }
    assert!(count(&world, "tcp_passed_on") >= 2);
    // The fourth move is the last one.
    assert!(accepted.move_to_shard((began + 1) % QUEUES));
    world.settle();
    assert!(!accepted.move_to_shard(began));
    assert!(!far.socket().move_to_shard(0), "its own end began it");
    assert_eq!(world.shard_of(remote), (began + 1) % QUEUES);
    assert_eq!(count(&world, "drop_tcp_no_socket"), 0);
}

/// The checksum of headers (RFC 1071).
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()).to_be_bytes()
}

/// What a router says of a frame that is too long for its next link (RFC 1191 §4).
fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(&frame[14..14 + 28]);
    let checksum = sum(&icmp);
    icmp[2..4].copy_from_slice(&checksum);
    let len = 20 + u8::try_from(icmp.len()).unwrap();
    let mut ip = vec![0x45, 0, 0, len, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 254];
    ip.extend(&frame[14 + 12..14 + 16]);
    let checksum = sum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    [&frame[6..12], &[2, 0, 0, 0, 0, 0xfe, 8, 0], &ip, &icmp].concat()
}

/// An ICMP error that is in a shard's channel when the connection that it is about leaves it.
#[test]
fn icmp_errors_under_way_go_after_a_connection() {
    let mut world = World::new(Regime::AppChannel);
    let listener = world.listen(false);
    let socket = world.connect();
    let began = world.shard_of(socket.local_address());
    let (accepted, _) = listener.accept().unwrap();
    let mss = || accepted.tcp_info().unwrap().send_mss;
    assert!(mss() > 1000);
    let options = tap::Options {
        way: Some(tap::Way::Out),
        ..tap::Options::default()
    };
    let mut tap = world.nets[0].tap(options).unwrap();
    accepted.send(&[IoSlice::new(&[1; 3000])], None).unwrap();
    world.turn_links();
    let sent = iter::from_fn(|| tap.read()).find(|record| record.length > 1000);
    let error = too_big(sent.expect("a segment").bytes(), 600);
    world.routed.lock().unwrap().push_back(error);
    world.turn_links();
    assert!(accepted.move_to_shard((began + 1) % QUEUES));
    let passed = count(&world, "tcp_passed_on");
    world.settle();
    assert_eq!(count(&world, "tcp_passed_on"), passed + 1);
    assert_eq!(count(&world, "drop_icmp"), 0);
    assert!((500..600).contains(&mss()), "{}", mss());
}

/// The classifiers of all queues hear of a flow in order, also that of a queue which does not turn for a while: none keeps a flow that has ended.
#[test]
fn an_idle_queue_keeps_no_flow_that_moved() {
    let mut world = World::new(Regime::AppChannel);
    let listener = world.listen(false);
    drop(world.connect()); // hosts know each other from here on
    world.settle();
    drop(listener.accept().unwrap());
    world.settle();
    for round in 0..6 {
        let socket = Socket::new(&world.nets[1], Domain::V4, Kind::Stream).unwrap();
        let _ = socket.connect(HERE.parse().unwrap()); // in progress
        let began = dealt(socket.local_address(), HERE.parse().unwrap(), QUEUES);
        // The first queue does the host's own work for all.
        let idle = if began == 1 { 2 } else { 1 };
        let to = QUEUES - began - idle;
        world.idle = Some(idle);
        world.settle();
        let (accepted, _) = listener.accept().unwrap();
        for shard in [to, began, to] {
            assert!(accepted.move_to_shard(shard), "{round}");
            world.settle();
        }
        drop(socket); // this side has TIME-WAIT
        world.settle();
        drop(accepted);
        world.settle();
        world.idle = None;
        world.settle();
        let rows = world.nets[0].show("memory").unwrap();
        let tables = rows.as_array().unwrap().iter();
        let tables: Vec<_> = tables.filter(|row| row["what"] == "flow table").collect();
        assert_eq!(tables.len(), QUEUES);
        assert!(
            tables.iter().all(|row| row["free"] == row["all"]),
            "{round}: {tables:?}"
        );
    }
}
