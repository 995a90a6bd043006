//! `proto::tcp` talks to an independent stack: smoltcp 0.14, in virtual time, over a queue of IPv4
//! packets that may lose some. Bytes are compared both ways, in both roles, up to the last FIN.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use proto::ip::Ecn;
use proto::tcp::{Config, Connection, Events, Listen, ReceiveQueue, SegmentPool, State, listen};
use proto::time::{Duration, Instant};
use proto::wire::ipv4::{self, Protocol};
use proto::wire::tcp::{Header, SeqNum, verify_checksum};
use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const MTU: usize = 1500;
const START: Instant = Instant(1_000_000_000);

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Packets on their way, each with the time of its arrival.
#[derive(Default)]
struct Wire {
    to_them: VecDeque<(Instant, Vec<u8>)>,
    to_us: VecDeque<(Instant, Vec<u8>)>,
}

/// smoltcp's side of the wire, at one moment.
struct Port<'a> {
    wire: &'a mut Wire,
    now: Instant,
}

const DELAY: Duration = Duration::from_millis(2);

struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Send<'a>(&'a mut VecDeque<(Instant, Vec<u8>)>, Instant);

impl TxToken for Send<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back((self.1 + DELAY, packet));
        result
    }
}

impl Device for Port<'_> {
    type RxToken<'b>
        = Received
    where
        Self: 'b;
    type TxToken<'b>
        = Send<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received, Send<'_>)> {
        if self.wire.to_them.front()?.0 > self.now {
            return None;
        }
        let (_, packet) = self.wire.to_them.pop_front()?;
        Some((Received(packet), Send(&mut self.wire.to_us, self.now)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Send<'_>> {
        Some(Send(&mut self.wire.to_us, self.now))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

fn smoltcp_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(now.0 / 1000).expect("in range"))
}

/// Their end: one socket that reads everything and writes `data`.
struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    data: VecDeque<u8>,
    received: Vec<u8>,
}

impl Theirs {
    fn new(data: &[u8], wire: &mut Wire, now: Instant) -> Self {
        let mut port = Port { wire, now };
        let config = InterfaceConfig::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut port, smoltcp_time(now));
        interface.update_ip_addrs(|addresses| {
            addresses
                .push(IpCidr::new(IpAddress::Ipv4(THEIRS), 24))
                .expect("room for one");
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 40_000]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self {
            interface,
            sockets,
            handle,
            data: data.iter().copied().collect(),
            received: Vec::new(),
        }
    }

    fn act(&mut self, wire: &mut Wire, now: Instant) {
        self.interface.poll(
            smoltcp_time(now),
            &mut Port { wire, now },
            &mut self.sockets,
        );
        let socket = self.sockets.get_mut::<tcp::Socket>(self.handle);
        while socket.can_recv() {
            let received = &mut self.received;
            socket
                .recv(|bytes| (bytes.len(), received.extend_from_slice(bytes)))
                .expect("open");
        }
        if socket.may_send() && !self.data.is_empty() {
            let chunk: Vec<u8> = self.data.iter().copied().take(3000).collect();
            let sent = socket.send_slice(&chunk).expect("open");
            self.data.drain(..sent);
        }
        if socket.may_send() && self.data.is_empty() {
            socket.close();
        }
        self.interface.poll(
            smoltcp_time(now),
            &mut Port { wire, now },
            &mut self.sockets,
        );
    }

    fn state(&mut self) -> tcp::State {
        self.sockets.get::<tcp::Socket>(self.handle).state()
    }
}

/// Our end: a connection, its queues, and an application that reads everything and writes `data`.
struct Ours {
    connection: Option<Connection>,
    config: Config,
    send: VecDeque<u8>,
    queue: ReceiveQueue<Vec<u8>>,
    pool: SegmentPool<Vec<u8>>,
    data: VecDeque<u8>,
    received: Vec<u8>,
    shut: bool,
    seen: Events,
}

impl Ours {
    fn receive(&mut self, packet: &[u8], now: Instant) {
        let ip = ipv4::Header::parse(packet).expect("smoltcp's IP header");
        let segment = ip.payload(packet);
        assert!(verify_checksum(
            IpAddr::V4(THEIRS),
            IpAddr::V4(OURS),
            segment
        ));
        let (header, offset) = Header::parse(segment).expect("smoltcp's TCP header");
        let text = segment[offset..].to_vec();
        let Some(connection) = &mut self.connection else {
            if listen(&header, 0) == Listen::Open {
                let iss = SeqNum(0xffff_f000);
                self.connection =
                    Some(Connection::open_passive(&self.config, &header, iss, 7, now));
            }
            return;
        };
        let input = connection.input(
            &header,
            Ecn::NotEct,
            text,
            &mut self.queue,
            &mut self.pool,
            now,
        );
        self.send.drain(..input.acked as usize);
        self.seen |= input.events;
    }

    fn act(&mut self, wire: &mut Wire, now: Instant) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if connection.deadline() <= now {
            self.seen |= connection.on_timer(now);
        }
        while let Some(text) = self.queue.pop_front(&mut self.pool) {
            connection.consumed(u32::try_from(text.len()).expect("a segment"));
            self.received.extend(text);
        }
        if connection.is_open_for_writing() && self.send.len() < 30_000 && !self.data.is_empty() {
            let n = self.data.len().min(4000);
            self.send.extend(self.data.drain(..n));
            connection.written(u32::try_from(n).expect("a chunk"));
        }
        if self.data.is_empty() && !self.shut && connection.can_send() {
            self.shut = true;
            connection.shutdown();
        }
        while let Some(transmit) = connection.output(now) {
            let (start, len) = (transmit.offset as usize, transmit.len as usize);
            let text: Vec<u8> = self.send.range(start..start + len).copied().collect();
            wire.to_them
                .push_back((now + DELAY, packet(&transmit.header, &text)));
        }
    }
}

fn packet(header: &Header, text: &[u8]) -> Vec<u8> {
    let tcp_len = header.len();
    let mut packet = vec![0; ipv4::HEADER_LEN + tcp_len];
    let (ip, tcp) = packet.split_at_mut(ipv4::HEADER_LEN);
    header.emit(tcp);
    let sum = proto::wire::checksum::sum(text);
    let ends = (IpAddr::V4(OURS), IpAddr::V4(THEIRS));
    proto::wire::tcp::fill_checksum(tcp, sum, text.len(), ends.0, ends.1);
    ipv4::Header::new(Protocol::TCP, OURS, THEIRS).emit(tcp_len + text.len(), ip);
    packet.extend_from_slice(text);
    packet
}

impl Ours {
    fn new(config: Config, data: &[u8]) -> Self {
        Self {
            connection: None,
            config,
            send: VecDeque::new(),
            queue: ReceiveQueue::new(),
            pool: SegmentPool::with_capacity(1000),
            data: data.iter().copied().collect(),
            received: Vec::new(),
            shut: false,
            seen: Events::NONE,
        }
    }

    fn is_over(&self) -> bool {
        let state = self.connection.as_ref().map(Connection::state);
        matches!(state, Some(State::Closed | State::TimeWait))
    }
}

/// Lets both ends act until both are done.
fn run(us: &mut Ours, them: &mut Theirs, wire: &mut Wire, rng: &mut Rng, loss_per_mille: u64) {
    let mut now = START;
    for _ in 0..2_000_000 {
        us.act(wire, now);
        them.act(wire, now);
        for queue in [&mut wire.to_us, &mut wire.to_them] {
            let fresh = queue.back().is_some_and(|p| p.0 == now + DELAY);
            if fresh && rng.next() % 1000 < loss_per_mille {
                queue.pop_back();
            }
        }
        now = now + Duration::from_micros(500);
        while wire.to_us.front().is_some_and(|p| p.0 <= now) {
            let (_, packet) = wire.to_us.pop_front().expect("looked at");
            us.receive(&packet, now);
        }
        let silent = wire.to_us.is_empty() && wire.to_them.is_empty();
        let they_are_over = matches!(them.state(), tcp::State::Closed | tcp::State::TimeWait);
        if us.is_over() && silent && they_are_over {
            break;
        }
    }
    us.act(wire, now);
}

/// One connection's whole life.
fn talk(seed: u64, we_open: bool, loss_per_mille: u64) {
    let mut rng = Rng(seed);
    let mut bytes = || {
        let len = rng.next() % 200_000;
        (0..len)
            .map(|_| rng.next().to_le_bytes()[3])
            .collect::<Vec<u8>>()
    };
    let (ours, theirs) = (bytes(), bytes());
    let mut wire = Wire::default();
    let config = Config {
        sack: !seed.is_multiple_of(3),
        timestamps: !seed.is_multiple_of(2),
        ..Config::default()
    };
    let mut them = Theirs::new(&theirs, &mut wire, START);
    let mut us = Ours::new(config, &ours);
    let socket = them.sockets.get_mut::<tcp::Socket>(them.handle);
    if we_open {
        socket.listen(80).expect("a free port");
        us.connection = Some(Connection::open_active(
            &config,
            1000,
            80,
            SeqNum(5),
            7,
            START,
        ));
    } else {
        let context = them.interface.context();
        socket
            .connect(context, (IpAddress::Ipv4(OURS), 80), 1000)
            .expect("an address");
    }
    run(&mut us, &mut them, &mut wire, &mut rng, loss_per_mille);
    let connection = us.connection.expect("a connection");
    let context = format!("seed {seed}, we open: {we_open}, loss {loss_per_mille}: {connection:?}");
    assert!(
        them.received == ours,
        "{} of {} bytes sent; {context}",
        them.received.len(),
        ours.len()
    );
    assert!(
        us.received == theirs,
        "{} of {} bytes; {context}",
        us.received.len(),
        theirs.len()
    );
    assert_eq!(connection.error(), None, "{context}");
    assert!(
        us.seen
            .contains(Events::ESTABLISHED | Events::PEER_CLOSED | Events::FIN_ACKED)
    );
}

#[test]
fn whole_connections_without_loss() {
    for seed in 0..10 {
        talk(seed, seed % 2 == 0, 0);
    }
}

#[test]
fn whole_connections_with_loss() {
    for seed in 0..20 {
        talk(seed, seed % 2 == 0, 30);
    }
}
