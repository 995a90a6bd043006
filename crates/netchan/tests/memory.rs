//! Memory limits (N4) in every regime: what all sockets hold stays below the limit, no acknowledged byte is lost, a socket that is refused goes on
//! once memory is free again, and in the end nothing is held. In virtual time, over a wire that loses packets, each role of both stacks in turn.

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire::{self, Probability},
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket},
    steps::Steps,
};

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);
const TCP_LIMIT: u64 = 256 << 10;
const UDP_LIMIT: u64 = 64 << 10;
/// A receive or transmit buffer, rounded up; two of them each connection may hold whatever the limit.
const BUFFER: u64 = 2 << 10;
const STREAMS: usize = 12;
/// What each of them sends: three times the limit, all together.
const LENGTH: usize = 64 << 10;

struct World {
    clock: Clock,
    nets: [Net; 2],
    steps: [Steps; 2],
}

impl World {
    fn new(regime: Regime, lossy: bool, limited: usize) -> Self {
        let clock = Clock::new_virtual();
        let chance = Probability::new(if lossy { 0.01 } else { 0.0 });
        let options = wire::Options {
            delay: Duration::from_micros(10),
            loss: chance,
            reorder: chance,
            ..wire::Options::default()
        };
        let (a, b) = wire::pair(&options);
        let start = |link, number: usize| {
            let builder = Net::builder()
                .link_with(Box::new(link))
                .address(&format!("10.0.0.{number}/24"))
                .unwrap();
            let mut builder = builder
                .regime(regime)
                .threads(Threads::Stepped)
                .clock(clock.clone())
                .seed(number as u64);
            if number == limited {
                builder = builder.tcp_memory(256 << 10);
                builder = builder.udp_memory(64 << 10);
                // One peer is all there are.
                builder = builder.tcp_shares(256 << 10, 256 << 10);
                builder = builder.udp_shares(64 << 10, 64 << 10);
            }
            builder.start().unwrap()
        };
        let nets = [start(a, 1), start(b, 2)];
        let steps = nets.each_ref().map(|net| Steps::new(net).unwrap());
        Self { clock, nets, steps }
    }

    /// Each role once or more, until nothing moves; then time goes on a little.
    fn turn(&mut self) {
        for _ in 0..10_000 {
            let mut moved = false;
            for steps in &mut self.steps {
                for role in 0..steps.roles() {
                    moved |= steps.step(role);
                }
            }
            if !moved {
                break;
            }
        }
        let next = self.steps.iter().map(Steps::next_event).min().unwrap();
        let now = self.clock.now();
        let least = now + Duration::from_millis(1);
        let at = next.clamp(least, now + Duration::from_millis(100));
        self.clock.advance_to(at);
    }

    /// What `netchan show memory` says of a stack's sockets: used, error, limit, times pressed.
    fn account(&self, net: usize, of: &str) -> [u64; 4] {
        let rows = self.nets[net].show("memory").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["of"] == of).unwrap();
        ["used_bytes", "error_bytes", "limit_bytes", "pressed"]
            .map(|key| row[key].as_u64().unwrap())
    }

    fn counter(&self, net: usize, name: &str) -> u64 {
        let rows = self.nets[net].show("counters").unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name).unwrap();
        row["value"].as_u64().unwrap()
    }

    /// Connections from stack 0 to stack 1, both ends of each.
    fn connect(&mut self, count: usize) -> Vec<[Socket; 2]> {
        let listener = Socket::new(&self.nets[1], Domain::V4, Kind::Stream).unwrap();
        listener.bind(SERVER.into()).unwrap();
        listener.listen(64).unwrap();
        let mut pairs = Vec::new();
        for _ in 0..count {
            let client = Socket::new(&self.nets[0], Domain::V4, Kind::Stream).unwrap();
            let _ = client.connect(SERVER.into());
            let server = (0..20_000)
                .find_map(|_| {
                    self.turn();
                    listener.accept().ok()
                })
                .expect("a connection");
            pairs.push([client, server.0]);
        }
        pairs
    }
}

/// Byte `at` of stream `number`.
fn byte(number: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8) ^ number).to_le_bytes()[0]
}

/// Sends of stream `number` from `sent` on what is taken.
fn send(socket: &Socket, number: usize, sent: &mut usize) {
    while *sent < LENGTH {
        let end = LENGTH.min(*sent + 4096);
        let text: Vec<u8> = (*sent..end).map(|at| byte(number, at)).collect();
        match socket.send(&[IoSlice::new(&text)], None) {
            Ok(n) => *sent += n,
            Err(e) => {
                assert!(not_yet(&e), "{e}");
                return;
            }
        }
    }
}

fn not_yet(e: &std::io::Error) -> bool {
    e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::NotConnected
}

fn receive(socket: &Socket, number: usize, got: &mut usize) {
    let mut room = [0; 8192];
    loop {
        let mut buffers = [IoSliceMut::new(&mut room)];
        match socket.receive(&mut buffers, ReceiveFlags::default()) {
            Ok(received) => {
                assert!(received.len > 0, "no end yet");
                for (i, &found) in room[..received.len].iter().enumerate() {
                    assert_eq!(found, byte(number, *got + i), "stream {number}");
                }
                *got += received.len;
            }
            Err(e) => {
                assert!(not_yet(&e), "{e}");
                return;
            }
        }
    }
}

/// Readers that do not read: the receiving stack's memory is full, and no more. Then they read, and everything arrives.
#[test]
fn slow_readers_hold_no_more_than_the_limit_and_lose_nothing() {
    let mut pruned = 0;
    for regime in Regime::ALL {
        let mut world = World::new(regime, true, 2);
        let pairs = world.connect(STREAMS);
        let mut sent = [0; STREAMS];
        let most = TCP_LIMIT + STREAMS as u64 * 2 * BUFFER;
        for turn in 0..200 {
            for (number, [client, _]) in pairs.iter().enumerate() {
                send(client, number, &mut sent[number]);
            }
            world.turn();
            if turn % 8 != 0 {
                continue;
            }
            let [used, error, limit, _] = world.account(1, "tcp sockets");
            assert_eq!(limit, TCP_LIMIT);
            assert!(
                used <= most && error <= limit / 8,
                "{regime}: {used} of {limit}, {error}"
            );
        }
        let [used, error, _, pressed] = world.account(1, "tcp sockets");
        assert!(
            used + error >= TCP_LIMIT / 2 && pressed > 0,
            "{regime}: {used}, {pressed}"
        );
        let refused = world.counter(1, "drop_tcp_memory_limit");
        let closed = pairs.iter().filter(|[client, _]| {
            let info = client.tcp_info().unwrap();
            info.send_window_bytes < 4096
        });
        assert!(
            refused > 0 || closed.count() > 0,
            "{regime}: no peer was held up"
        );

        let mut got = [0; STREAMS];
        let done = (0..400_000).any(|_| {
            for (number, [client, server]) in pairs.iter().enumerate() {
                send(client, number, &mut sent[number]);
                receive(server, number, &mut got[number]);
            }
            world.turn();
            got == [LENGTH; STREAMS]
        });
        assert!(done, "{regime}: {got:?} of {sent:?}");
        drop(pairs);
        gives_back(&mut world, regime);
        pruned += world.counter(1, "drop_tcp_pruned");
    }
    // What lay behind gaps gave way to what filled them, at least once (RFC 2018 §8).
    assert!(pruned > 0);
}

/// Once all connections are gone, closed or reset, nothing is held or claimed.
fn gives_back(world: &mut World, regime: Regime) {
    for net in 0..2 {
        let mut used = 0;
        let empty = (0..200_000).any(|_| {
            world.turn();
            used = world.account(net, "tcp sockets")[0];
            used == 0
        });
        assert!(empty, "{regime}: stack {net} still holds {used}");
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Senders fill the sending stack's memory: one that has something waits, one that has nothing may send a segment. The first is woken when
/// there is room again.
#[test]
fn a_sender_that_is_refused_is_woken() {
    for regime in Regime::ALL {
        let mut world = World::new(regime, false, 1);
        let pairs = world.connect(6);
        // No socket reads, and no packet leaves: what they send stays where it is.
        let text = [7; 16 << 10];
        let mut taken = 0;
        for [client, _] in &pairs[1..] {
            loop {
                let is_writable = client.readiness().contains(Readiness::WRITABLE);
                let Ok(n) = client.send(&[IoSlice::new(&text)], None) else {
                    assert!(!is_writable, "{regime}: it said that it was");
                    break;
                };
                taken += n;
            }
        }
        let [used, .., pressed] = world.account(0, "tcp sockets");
        assert!(
            pressed > 0 && used <= TCP_LIMIT + 6 * BUFFER,
            "{regime}: {used}"
        );
        assert!(taken as u64 > TCP_LIMIT / 2, "{regime}: {taken}");
        // A segment, and what its shard has to spare.
        let mut first = 0;
        let refused = loop {
            match pairs[0][0].send(&[IoSlice::new(&text)], None) {
                Ok(n) => first += n as u64,
                Err(e) => break e,
            }
        };
        let error = world.account(0, "tcp sockets")[1];
        assert!((1..=1460 + error).contains(&first), "{regime}: {first}");
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(!pairs[0][0].readiness().contains(Readiness::WRITABLE));

        let flag = Arc::new(Flag(AtomicBool::new(false)));
        pairs[0][0].register(Readiness::WRITABLE, &Waker::from(flag.clone()));
        assert!(!flag.0.load(Relaxed), "{regime}");
        let woken = (0..20_000).any(|_| {
            world.turn();
            flag.0.load(Relaxed)
        });
        assert!(woken, "{regime}: it was never woken");
        assert!(pairs[0][0].send(&[IoSlice::new(&text)], None).is_ok());
        // What is left is thrown away by a reset: the other end closes with text unread.
        for [client, server] in pairs {
            drop(server);
            for _ in 0..3 {
                world.turn();
            }
            drop(client);
        }
        gives_back(&mut world, regime);
    }
}

/// Datagrams that are not read are dropped beyond the limit, and counted; a socket that has none takes one all the same.
#[test]
fn datagrams_beyond_the_limit_are_dropped_and_counted() {
    for regime in Regime::ALL {
        let mut world = World::new(regime, false, 2);
        let bind = |net: usize, address: &str| {
            let socket = Socket::new(&world.nets[net], Domain::V4, Kind::Datagram).unwrap();
            socket.bind(address.parse::<SocketAddr>().unwrap()).unwrap();
            socket
        };
        let client = bind(0, "10.0.0.1:1000");
        let (full, other) = (bind(1, "10.0.0.2:7"), bind(1, "10.0.0.2:8"));
        let mut to = |port, count: usize| {
            for _ in 0..count {
                let target = SocketAddr::from(([10, 0, 0, 2], port));
                client
                    .send(&[IoSlice::new(&[1; 1000])], Some(target))
                    .unwrap();
                world.turn();
            }
            (0..20).for_each(|_| world.turn()); // all of them have arrived
        };
        to(7, 100);
        to(8, 1);
        let [used, error, limit, pressed] = world.account(1, "udp sockets");
        assert_eq!(limit, UDP_LIMIT);
        assert!(
            used <= limit + 2 * BUFFER && pressed > 0,
            "{regime}: {used}, {error}"
        );
        let drain = |socket: &Socket| {
            let mut room = [0; 2000];
            (0..200)
                .take_while(|_| {
                    let mut buffers = [IoSliceMut::new(&mut room)];
                    socket
                        .receive(&mut buffers, ReceiveFlags::default())
                        .is_ok()
                })
                .count() as u64
        };
        let (kept, one) = (drain(&full), drain(&other));
        assert_eq!(one, 1, "{regime}: a socket that has none");
        let dropped = world.counter(1, "drop_udp_memory_limit");
        assert_eq!(kept + dropped, 100, "{regime}");
        assert!(
            dropped > 0 && kept >= UDP_LIMIT / BUFFER / 2,
            "{regime}: {kept}"
        );
        drop((full, other));
        assert_eq!(world.account(1, "udp sockets")[0], 0, "{regime}");
    }
}
