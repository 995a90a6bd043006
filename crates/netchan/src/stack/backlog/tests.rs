//! Shards that a thread holds while packets come for them: links go on, nothing is stranded, nothing overtakes, and what is too much is counted.

use std::{
    io,
    net::SocketAddr,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use proto::{time::Instant, wire::ipv4::Protocol};

use crate::{
    Dispatch, Net, Regime, UdpSocket, counters::Counter, driver::steer::spread, flow::FlowKey,
    limits, link::wire,
};

/// Waits, at most ten seconds, until `is`.
fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let there = (0..10_000).any(|_| {
        let is = is();
        if !is {
            thread::sleep(Duration::from_millis(1));
        }
        is
    });
    assert!(there, "{what}");
}

/// A stack with a backlog for each shard, and at the other end of each of its wires one that sends to it.
struct World {
    server: Net,
    clients: Vec<Net>,
    socket: UdpSocket,
}

const PORT: u16 = 9;

fn ours(link: u8) -> [u8; 4] {
    [10, 0, link, 2]
}

impl World {
    fn new(links: u8, shards: usize) -> Self {
        let mut server = Net::builder()
            .regime(Regime::Locked)
            .dispatch(Dispatch::Hybrid)
            .shards(shards);
        let mut clients = Vec::new();
        for link in 0..links {
            let (here, there) = wire::pair(&wire::Options::default());
            let [.., c, d] = ours(link);
            // Each of its sockets has transmit buffers of its own: they come over the wire, and fill the backlog.
            let client = Net::builder().regime(Regime::SocketChannel).shards(8);
            let client = client.link_with(Box::new(there));
            let client = client.address(&format!("10.0.{c}.1/24")).unwrap();
            clients.push(client.start().unwrap());
            server = server
                .link_with(Box::new(here))
                .address(&format!("10.0.{c}.{d}/24"))
                .unwrap();
        }
        let server = server.start().unwrap();
        let socket = server.udp().bind(format!("0.0.0.0:{PORT}")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let world = Self {
            server,
            clients,
            socket,
        };
        // Neighbours are known from now on.
        for link in 0..links {
            world.send(link, &world.sender(link, 0), b"begin");
            assert_eq!(world.receive(), b"begin");
        }
        world
    }

    /// A socket whose datagrams over `link` are `shard`'s.
    fn sender(&self, link: u8, shard: usize) -> UdpSocket {
        let stack = self.server.stack();
        let [a, b, c, _] = ours(link);
        let find = (0..64).find_map(|_| {
            let client = &self.clients[usize::from(link)];
            let socket = client.udp().bind(format!("{a}.{b}.{c}.1:0")).unwrap();
            let from = socket.local_addr().unwrap();
            let key = FlowKey {
                local: ours(link).into(),
                remote: from.ip(),
                local_port: PORT,
                remote_port: from.port(),
                protocol: Protocol::UDP,
            };
            let hash = stack.control.host.flow_hash.hash(&key);
            (spread(hash, stack.sockets.cells.len()) == shard).then_some(socket)
        });
        find.expect("one of 64 ports")
    }

    fn send(&self, link: u8, from: &UdpSocket, data: &[u8]) {
        from.send_to(data, SocketAddr::from((ours(link), PORT)))
            .unwrap();
    }

    fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 64];
        let (n, _) = self.socket.recv_from(&mut buffer).unwrap();
        buffer[..n].to_vec()
    }

    fn count(&self, counter: Counter) -> u64 {
        self.server.stack().control.counters.read(counter)
    }

    /// Another thread holds `shard`, as in a call, until told to let go.
    fn hold(&self, shard: usize) -> Sender<()> {
        let (stack, (held, is_held)) = (self.server.stack().clone(), channel());
        let (let_go, told) = channel::<()>();
        thread::spawn(move || {
            stack.with_shard(shard, move |_, _| {
                held.send(()).unwrap();
                let _ = told.recv();
            });
        });
        is_held.recv().unwrap();
        let_go
    }

    fn rows(&self, topic: &str) -> Vec<serde_json::Value> {
        self.server.show(topic).unwrap().as_array().unwrap().clone()
    }
}

#[test]
fn a_held_shard_keeps_no_link_from_going_on() {
    let world = World::new(1, 2);
    let (to_held, to_free) = (world.sender(0, 1), world.sender(0, 0));
    let let_go = world.hold(1);
    // Neighbours were found by packets that may have met a held shard, too.
    let before = world.count(Counter::Backlogged);
    for n in 0..100 {
        world.send(0, &to_held, &[n]);
    }
    soon("all are left to the holder", || {
        world.count(Counter::Backlogged) == before + 100
    });
    let rows = world.rows("channels");
    let depths: Vec<_> = rows.iter().map(|r| r["backlog_packets"].as_u64()).collect();
    assert_eq!(depths, [Some(0), Some(100)], "{rows:?}");
    let rows = world.rows("shards");
    assert_eq!(rows[0]["backlog_packets"].as_u64(), Some(0), "{rows:?}");
    assert!(rows[1]["held_by"].is_string(), "{rows:?}");
    // The link's thread is not in its way.
    world.server.stack().run_called_timers(Instant::FAR, true);
    let before = world.count(Counter::UdpIn);
    for n in 0..10 {
        world.send(0, &to_free, &[n]);
    }
    soon("the other shard's arrive", || {
        world.count(Counter::UdpIn) == before + 10
    });
    drop(let_go);
    let mut arrived: Vec<_> = (0..110).map(|_| world.receive()).collect();
    arrived.sort();
    let mut expected: Vec<_> = (0..100).chain(0..10).map(|n| vec![n]).collect();
    expected.sort();
    assert_eq!(arrived, expected);
    assert_eq!(world.count(Counter::DropBacklogFull), 0);
}

/// Over two links into one shard; and once it is free, what comes by a call comes after what was left.
#[test]
fn each_link_leaves_its_packets_in_order() {
    let world = World::new(2, 1);
    let senders = [world.sender(0, 0), world.sender(1, 0)];
    let (begin, mut sent) = (world.count(Counter::UdpIn), 0);
    for round in 0..20_u8 {
        let let_go = world.hold(0);
        let before = world.count(Counter::Backlogged);
        for n in 0..5 {
            for (link, sender) in (0..).zip(&senders) {
                world.send(link, sender, &[link, round, n]);
            }
        }
        soon("left", || world.count(Counter::Backlogged) == before + 10);
        let rows = world.rows("channels");
        assert!(
            rows.iter().all(|row| row["backlog_packets"] == 5) && rows.len() == 2,
            "{rows:?}"
        );
        drop(let_go);
        // These find it held, or free, or about to be.
        for n in 5..10 {
            for (link, sender) in (0..).zip(&senders) {
                world.send(link, sender, &[link, round, n]);
            }
        }
        sent += 20;
        soon("all of this round", || {
            world.count(Counter::UdpIn) == begin + sent
        });
    }
    let mut last = [None; 2];
    for _ in 0..sent {
        let [link, round, n] = world.receive()[..] else {
            panic!("not what was sent");
        };
        let last = &mut last[usize::from(link)];
        assert!(*last < Some((round, n)), "{last:?} before {round}, {n}");
        *last = Some((round, n));
    }
}

#[test]
fn a_full_backlog_is_counted() {
    let world = World::new(1, 1);
    let senders: Vec<_> = (0..6).map(|_| world.sender(0, 0)).collect();
    for sender in &senders {
        sender.set_nonblocking(true).unwrap();
    }
    let let_go = world.hold(0);
    let left = world.count(Counter::Backlogged);
    let (before, mut sent) = (world.count(Counter::UdpIn), 0);
    let target = SocketAddr::from((ours(0), PORT));
    soon("it is full", || {
        for sender in senders.iter().cycle().take(1000) {
            match sender.send_to(b"x", target) {
                Ok(_) => sent += 1,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        world.count(Counter::DropBacklogFull) >= 100
    });
    assert_eq!(
        world.count(Counter::Backlogged) - left,
        limits::CHANNEL_RX as u64,
        "no more than fit"
    );
    drop(let_go);
    soon("each is taken in or dropped", || {
        let taken = world.count(Counter::UdpIn) - before;
        taken + world.count(Counter::DropBacklogFull) == sent
    });
    let rows = world.rows("channels");
    assert_eq!(rows[0]["backlog_packets"], 0, "{rows:?}");
}

/// A thread that holds a shard without a turn calls the first link's thread, which may be asleep.
#[test]
fn what_is_left_with_a_mere_look_is_taken() {
    let world = World::new(1, 1);
    let sender = world.sender(0, 0);
    for n in 0..20 {
        let stack = world.server.stack().clone();
        let (held, is_held) = channel();
        let (let_go, told) = channel::<()>();
        // In a thread of its own: this one takes the sender's locks meanwhile.
        let looker = thread::spawn(move || {
            let guard = stack.sockets.cells[0].held.lock();
            held.send(()).unwrap();
            let _ = told.recv();
            drop(guard);
            stack.passed_by(&stack.sockets.cells[0]);
        });
        is_held.recv().unwrap();
        let before = world.count(Counter::Backlogged);
        world.send(0, &sender, &[n]);
        soon("left", || world.count(Counter::Backlogged) == before + 1);
        if n % 4 == 0 {
            thread::sleep(Duration::from_millis(20)); // long enough to fall asleep
        }
        drop(let_go);
        looker.join().unwrap();
        soon("taken", || world.count(Counter::UdpIn) == u64::from(n) + 2);
        assert_eq!(world.receive(), [n]);
    }
}

#[test]
fn a_stack_ends_while_packets_wait() {
    for _ in 0..5 {
        let world = World::new(2, 2);
        let let_go = world.hold(1);
        let before = world.count(Counter::Backlogged);
        let senders = [world.sender(0, 1), world.sender(1, 1)];
        for n in 0..50 {
            for (link, sender) in (0..).zip(&senders) {
                world.send(link, sender, &[n]);
            }
        }
        soon("left", || world.count(Counter::Backlogged) == before + 100);
        let ending = thread::spawn(move || drop(world));
        thread::sleep(Duration::from_millis(5));
        drop(let_go);
        ending.join().unwrap();
    }
}
