//! The host that is attacked: services for the attacker on one link, and on another one an echo for a peer that means no harm.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire::{self, Options},
    socket::{Domain, Kind, Multicast, ReceiveFlags, Socket, SocketOption, Via},
};
use proto::time::Instant;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    attacker::Attacker,
    door::{Door, Outside},
};

/// The services, by port: what is done with a connection.
pub const ECHO: u16 = 7;
/// Reads all.
pub const SINK: u16 = 9;
/// Accepts and never reads.
pub const DEAF: u16 = 11;
/// Says one thing and closes.
pub const BRIEF: u16 = 13;
/// Listens, and never accepts.
pub const LAZY: u16 = 15;
/// Says as much as it can.
pub const TALKER: u16 = 19;
/// Reads all, also what opens a connection (TCP Fast Open).
pub const QUICK_SINK: u16 = 21;
/// Accepts, with what opens a connection, and never reads.
pub const QUICK_DEAF: u16 = 23;
/// Openings that its listener and the one before it take before their handshake.
const QUICK_MAX: u32 = 256;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// An echo that takes longer than this (in virtual time) is not served.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Host {
    net: Net,
    peer: Net,
    clock: Clock,
    listeners: Vec<(u16, Socket)>,
    connections: Vec<(u16, Socket)>,
    /// This host's ends of the echo's connection.
    echoes: Vec<Socket>,
    client: Option<Socket>,
    /// Sockets in groups.
    members: Vec<Socket>,
    pub outside: Outside,
    /// What was worked in the stack for what came in and for its timers.
    pub polled_ns: u64,
}

/// A group of IPv6 that hosts may be in, by its number.
pub const fn group_v6(high: u8, low: u8) -> [u8; 16] {
    [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, high, low]
}

/// What this thread has worked, nanoseconds: other programs' work is not in it.
fn worked_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn read(socket: &Socket, room: &mut [u8]) -> io::Result<usize> {
    let received = socket.receive(&mut [IoSliceMut::new(room)], ReceiveFlags::default());
    received.map(|received| received.len)
}

fn is_not_now(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::EINPROGRESS)
}

impl Host {
    /// Receive buffers of the attacker's link are of `frame_max` bytes.
    pub fn new(clock: &Clock, frame_max: usize) -> io::Result<(Self, Attacker)> {
        let (first, second) = wire::pair(&Options::default());
        let (door, outside) = Door::new(MAC, frame_max);
        let start = |builder: netchan::Builder| {
            let builder = builder.regime(Regime::AppChannel).threads(Threads::Caller);
            builder.clock(clock.clone()).seed(7).start()
        };
        let builder = Net::builder()
            .link_with(Box::new(door))
            .address("10.77.0.2/16")?
            .address("fd77::2/64")?;
        let net = start(builder.link_with(Box::new(first)).address("10.78.0.1/24")?)?;
        let peer = start(
            Net::builder()
                .link_with(Box::new(second))
                .address("10.78.0.2/24")?,
        )?;
        let mut host = Self {
            net,
            peer,
            clock: clock.clone(),
            listeners: Vec::new(),
            connections: Vec::new(),
            echoes: Vec::new(),
            client: None,
            members: Vec::new(),
            outside: outside.clone(),
            polled_ns: 0,
        };
        for port in [
            ECHO, SINK, DEAF, BRIEF, LAZY, TALKER, QUICK_SINK, QUICK_DEAF,
        ] {
            let socket = Socket::new(&host.net, Domain::V4, Kind::Stream)?;
            socket.bind(SocketAddr::from(([0, 0, 0, 0], port)))?;
            if matches!(port, QUICK_SINK | QUICK_DEAF) {
                socket.set_option(SocketOption::FastOpen(QUICK_MAX))?;
            }
            socket.listen(4096)?;
            host.listeners.push((port, socket));
        }
        let socket = Socket::new(&host.net, Domain::V6, Kind::Stream)?;
        socket.set_option(SocketOption::V6Only(true))?;
        socket.bind(SocketAddr::from(([0_u16; 8], TALKER)))?;
        socket.listen(4096)?;
        host.listeners.push((TALKER, socket));
        let client = Socket::new(&host.peer, Domain::V4, Kind::Stream)?;
        match client.connect(SocketAddr::from(([10, 78, 0, 1], ECHO))) {
            Err(e) if !is_not_now(&e) => return Err(e),
            _ => host.client = Some(client),
        }
        // The handshake.
        for _ in 0..10 {
            host.peer.poll();
            host.turn();
        }
        host.echo().map_err(io::Error::other)?;
        Ok((host, Attacker::new(outside, MAC)))
    }

    pub fn pass(&self, time: Duration) {
        let now = self.clock.now();
        self.clock
            .advance_to(Instant(now.0 + u64::try_from(time.as_nanos()).unwrap_or(0)));
    }

    /// Becomes a member of so many groups on the attacker's link, and tells all that is to be told of it.
    pub fn join(&mut self, groups: u32) {
        self.join_all(Domain::V4, groups, |high, low| {
            Ipv4Addr::new(239, 1, high, low).into()
        });
    }

    /// Joins groups of IPv6.
    pub fn join_v6(&mut self, groups: u32) {
        self.join_all(Domain::V6, groups, |high, low| {
            Ipv6Addr::from(group_v6(high, low)).into()
        });
    }

    fn join_all(&mut self, domain: Domain, groups: u32, group: impl Fn(u8, u8) -> IpAddr) {
        let all: Vec<u32> = (0..groups).collect();
        for some in all.chunks(20) {
            let socket = Socket::new(&self.net, domain, Kind::Datagram).expect("a socket");
            for number in some {
                let [_, _, high, low] = number.to_be_bytes();
                let join = Multicast::Join {
                    group: group(high, low),
                    via: Via::Index(1),
                    source: None,
                };
                (socket.set_option(SocketOption::Multicast(join))).expect("a membership");
            }
            self.members.push(socket);
            self.settle();
            self.outside.said();
        }
        for _ in 0..200 {
            self.pass(Duration::from_millis(100));
            self.settle();
            self.outside.said();
        }
    }

    /// Takes what is there, and lets the programs do their work; true if something moved.
    pub fn turn(&mut self) -> bool {
        let mut moved = self.turn_for_echo();
        for (port, listener) in &self.listeners {
            if *port == LAZY {
                continue;
            }
            while let Ok((socket, _)) = listener.accept() {
                moved = true;
                match *port {
                    BRIEF => drop(socket.send(&[IoSlice::new(b"goodbye")], None)),
                    ECHO => self.echoes.push(socket),
                    _ => self.connections.push((*port, socket)),
                }
            }
        }
        let mut room = [0; 4096];
        self.connections.retain(|(port, socket)| {
            let served = match *port {
                TALKER => socket.send(&[IoSlice::new(&[b'x'; 4096])], None),
                SINK | QUICK_SINK => read(socket, &mut room),
                _ => return true,
            };
            moved |= served.is_ok();
            !matches!((*port, &served), (SINK | QUICK_SINK, Ok(0)))
                && (served.is_ok() || served.is_err_and(|e| is_not_now(&e)))
        });
        moved | self.poll()
    }

    fn poll(&mut self) -> bool {
        let before = worked_ns();
        let moved = self.net.poll();
        self.polled_ns += worked_ns() - before;
        moved
    }

    /// What an echo needs of it; what the other programs do is not counted as its cost.
    fn turn_for_echo(&mut self) -> bool {
        let mut moved = self.poll();
        let mut room = [0; 4096];
        for socket in &self.echoes {
            if let Ok(len @ 1..) = read(socket, &mut room) {
                moved = true;
                let _ = socket.send(&[IoSlice::new(&room[..len])], None);
            }
        }
        moved | self.poll()
    }

    /// Runs until nothing moves, or the steps are used up.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            let moved = self.turn();
            if !moved && self.outside.waiting() == 0 {
                return;
            }
        }
    }

    /// One round trip of 64 bytes: what this host worked for it.
    pub fn echo(&mut self) -> Result<u64, String> {
        let client = self.client.take().ok_or("no client")?;
        let done = self.echo_by(&client);
        self.client = Some(client);
        done
    }

    fn echo_by(&mut self, client: &Socket) -> Result<u64, String> {
        let begin = self.clock.now();
        let (mut sent, mut worked, mut came) = (false, 0, 0);
        let mut room = [0; 64];
        while came < 64 {
            let waited = self.clock.now().since(begin);
            if waited > PATIENCE {
                return Err(format!("no echo within {waited:?}"));
            }
            if !sent {
                match client.send(&[IoSlice::new(&[7; 64])], None) {
                    Ok(_) => sent = true,
                    Err(e) if is_not_now(&e) => {}
                    Err(e) => return Err(format!("the echo's connection: {e}")),
                }
            }
            let mut moved = self.peer.poll();
            let before = worked_ns();
            moved |= self.turn_for_echo();
            worked += worked_ns() - before;
            moved |= self.peer.poll();
            match client.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default()) {
                Ok(received) if received.len > 0 => came += received.len,
                Ok(_) => return Err("the echo's connection ended".to_owned()),
                Err(e) if is_not_now(&e) && !moved => self.pass(Duration::from_millis(1)),
                Err(e) if is_not_now(&e) => {}
                Err(e) => return Err(format!("the echo's connection: {e}")),
            }
        }
        Ok(worked)
    }

    /// Bytes that are held for peers: receive buffers by their size, and what sockets hold.
    pub fn held_bytes(&self) -> u64 {
        let shown = self.net.show("memory").unwrap_or_default();
        let number = |row: &serde_json::Value, key: &str| {
            row.get(key)
                .and_then(serde_json::Value::as_u64)
                .unwrap_or(0)
        };
        let rows = shown.as_array().into_iter().flatten();
        let held = rows.map(
            |row| match row.get("what").and_then(serde_json::Value::as_str) {
                Some("receive buffers") => {
                    (number(row, "all") - number(row, "free")) * number(row, "each_bytes")
                }
                Some("socket memory") => number(row, "used_bytes"),
                _ => 0,
            },
        );
        held.sum()
    }

    pub fn counters(&self) -> String {
        self.net
            .show("counters")
            .map(|v| v.to_string())
            .unwrap_or_default()
    }
}
