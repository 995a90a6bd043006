//! smoltcp 0.14 as the peer: two interfaces, one thread, driven call by call in the order that suits it best.
//!
//! Its best settings, found by trying (lab/experiments/01-path/README.md has the figures): frames in recycled warm buffers; single steps
//! of `poll_ingress_single` and `poll_egress` in place of whole `poll`s; Nagle off; no congestion control; sockets reused
//! straight out of TIME-WAIT; idle connections stand behind the busy one in the socket set.

use percore::clock::cycles_in_order;
use smoltcp::{
    iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet},
    phy::Medium,
    socket::tcp,
    time::{Duration, Instant},
    wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Address},
};

use super::{
    CROWD, MESSAGE_MAX, Pair, Setup,
    lane::{Lane, Port},
};

const CLIENT: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const SERVER: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);
/// The busy connection's port on the server; idle ones follow.
const BUSY: u16 = 80;
const IDLE: u16 = 10_000;
/// That of all which are opened at once.
const CROWDED: u16 = 82;
/// Ports the client takes, one after the other.
const LOCAL: std::ops::Range<u16> = 20_000..60_000;

/// What smoltcp alone can be told.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// With or without link headers and neighbours.
    pub medium: Medium,
    /// `None`: every segment is acknowledged at once.
    pub ack_delay: Option<Duration>,
    /// Packets the sender emits before the receiver is turned.
    pub burst: usize,
    /// Bytes of each socket buffer.
    pub buffer: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            medium: Medium::Ip,
            ack_delay: Some(Duration::from_millis(10)),
            burst: 1,
            buffer: 1 << 16,
        }
    }
}

struct Host {
    iface: Interface,
    sockets: SocketSet<'static>,
    busy: SocketHandle,
}

impl Host {
    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.busy)
    }

    #[inline(always)]
    fn egress(&mut self, now: Instant, port: &mut Port<'_>) {
        self.iface.poll_egress(now, port, &mut self.sockets);
    }

    #[inline(always)]
    fn ingress(&mut self, now: Instant, port: &mut Port<'_>) -> bool {
        let polled = self.iface.poll_ingress_single(now, port, &mut self.sockets);
        polled != PollIngressSingleResult::None
    }
}

/// Two stacks and the lanes between them.
pub struct SmoltcpPair {
    client: Host,
    server: Host,
    to_server: Lane,
    to_client: Lane,
    now: Instant,
    setup: Setup,
    tuning: Tuning,
    port: u16,
    chunk: Vec<u8>,
    /// Sockets of the server and the client that are opened at once; made for the first of them, as each socket costs all others a look.
    crowd: Vec<(SocketHandle, SocketHandle)>,
}

fn new_socket(buffer: usize, tuning: &Tuning) -> tcp::Socket<'static> {
    let room = || tcp::SocketBuffer::new(vec![0; buffer]);
    let mut socket = tcp::Socket::new(room(), room());
    socket.set_nagle_enabled(false);
    socket.set_congestion_control(tcp::CongestionControl::None);
    socket.set_ack_delay(tuning.ack_delay);
    socket
}

fn new_host(number: u8, address: Ipv4Address, port: &mut Port<'_>, tuning: &Tuning) -> Host {
    let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, number]));
    let hardware = if port.medium == Medium::Ethernet {
        mac
    } else {
        HardwareAddress::Ip
    };
    let mut config = Config::new(hardware);
    config.random_seed = u64::from(number);
    let mut iface = Interface::new(config, port, Instant::ZERO);
    iface.update_ip_addrs(|addresses| {
        // The list holds at least one.
        let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(address), 24));
    });
    let mut sockets = SocketSet::new(Vec::new());
    let busy = sockets.add(new_socket(tuning.buffer, tuning));
    Host {
        iface,
        sockets,
        busy,
    }
}

impl SmoltcpPair {
    /// Two hosts with an established connection between them, and `setup.idle` more behind it.
    pub fn new(setup: Setup, tuning: Tuning) -> Self {
        let header = if tuning.medium == Medium::Ethernet {
            14
        } else {
            0
        };
        let frame_max = setup.mtu + header;
        let frames = if setup.idle > 0 { 1024 } else { 256 };
        let (mut to_server, mut to_client) =
            (Lane::new(frames, frame_max), Lane::new(frames, frame_max));
        let (medium, checksums) = (tuning.medium, setup.checksums);
        let mut port = Port {
            rx: &mut to_client,
            tx: &mut to_server,
            frame_max,
            medium,
            checksums,
        };
        let client = new_host(1, CLIENT, &mut port, &tuning);
        let server = new_host(2, SERVER, &mut port, &tuning);
        let (now, port) = (Instant::from_millis(1000), LOCAL.start);
        let chunk = vec![0x5a; setup.chunk];
        let mut pair = Self {
            client,
            server,
            to_server,
            to_client,
            now,
            setup,
            tuning,
            port,
            chunk,
            crowd: Vec::new(),
        };
        pair.open_idle();
        pair.open();
        pair.settle();
        pair
    }

    fn frame_max(&self) -> usize {
        self.setup.mtu
            + if self.tuning.medium == Medium::Ethernet {
                14
            } else {
                0
            }
    }

    /// The client, and the two lanes as it sees them.
    #[inline(always)]
    fn client(&mut self) -> (&mut Host, Port<'_>) {
        let (frame_max, medium, checksums) =
            (self.frame_max(), self.tuning.medium, self.setup.checksums);
        let (rx, tx) = (&mut self.to_client, &mut self.to_server);
        let port = Port {
            rx,
            tx,
            frame_max,
            medium,
            checksums,
        };
        (&mut self.client, port)
    }

    /// The server likewise.
    #[inline(always)]
    fn server(&mut self) -> (&mut Host, Port<'_>) {
        let (frame_max, medium, checksums) =
            (self.frame_max(), self.tuning.medium, self.setup.checksums);
        let (rx, tx) = (&mut self.to_server, &mut self.to_client);
        let port = Port {
            rx,
            tx,
            frame_max,
            medium,
            checksums,
        };
        (&mut self.server, port)
    }

    /// The client emits what its sockets have, one segment a socket.
    #[inline]
    fn client_egress(&mut self) {
        let now = self.now;
        let (host, mut port) = self.client();
        host.egress(now, &mut port);
    }

    /// The server likewise.
    #[inline]
    fn server_egress(&mut self) {
        let now = self.now;
        let (host, mut port) = self.server();
        host.egress(now, &mut port);
    }

    /// The client takes one frame; false if there was none.
    #[inline]
    fn client_ingress(&mut self) -> bool {
        let now = self.now;
        let (host, mut port) = self.client();
        host.ingress(now, &mut port)
    }

    /// The server likewise.
    #[inline]
    fn server_ingress(&mut self) -> bool {
        let now = self.now;
        let (host, mut port) = self.server();
        host.ingress(now, &mut port)
    }

    /// Cycles a segment, to make one and to take one, in batches of 32 full ones: for each batch `(out, in)`.
    pub fn batches(&mut self, count: usize) -> Vec<(u64, u64)> {
        const BATCH: usize = 32;
        let text = vec![0x5a; BATCH * (self.setup.mtu - 40)];
        let mut sink = vec![0; text.len()];
        let batches = (0..count).map(|_| {
            self.now += Duration::from_micros(100);
            let sent = self.client.socket().send_slice(&text).expect("established");
            assert_eq!(sent, text.len(), "a batch has room");
            let begin = cycles_in_order();
            (0..BATCH).for_each(|_| self.client_egress());
            let between = cycles_in_order();
            (0..BATCH).for_each(|_| _ = self.server_ingress());
            let end = cycles_in_order();
            let mut got = 0;
            while got < text.len() {
                got += self
                    .server
                    .socket()
                    .recv_slice(&mut sink)
                    .expect("established");
                self.settle();
            }
            (between - begin, end - between)
        });
        batches.collect()
    }

    /// Turns both until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            self.client_egress();
            while self.server_ingress() {
                moved = true;
            }
            self.server_egress();
            while self.client_ingress() {
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// Opens the idle connections, all at once: one by one would take minutes at 10,000.
    fn open_idle(&mut self) {
        let mut handles = Vec::with_capacity(self.setup.idle);
        for i in 0..self.setup.idle {
            let offset = u16::try_from(i).expect("fewer idle connections than ports");
            let mut socket = new_socket(64, &self.tuning);
            socket
                .listen((SERVER, IDLE + offset))
                .expect("a fresh socket listens");
            let server = self.server.sockets.add(socket);
            let mut socket = new_socket(64, &self.tuning);
            let (remote, local) = ((SERVER, IDLE + offset), LOCAL.start + offset);
            socket
                .connect(self.client.iface.context(), remote, local)
                .expect("a fresh socket connects");
            handles.push((server, self.client.sockets.add(socket)));
        }
        self.settle();
        for (server, client) in handles {
            let states = (
                self.server.sockets.get::<tcp::Socket<'_>>(server).state(),
                self.client.sockets.get::<tcp::Socket<'_>>(client).state(),
            );
            assert_eq!(states, (tcp::State::Established, tcp::State::Established));
        }
        let used = u16::try_from(self.setup.idle).expect("fewer idle connections than ports");
        self.port = LOCAL.start + used;
    }

    fn next_port(&mut self) {
        let first = LOCAL.start + u16::try_from(self.setup.idle).unwrap_or(u16::MAX);
        self.port = if self.port + 1 < LOCAL.end {
            self.port + 1
        } else {
            first
        };
    }

    /// Opens the busy connection. Its sockets may be in TIME-WAIT: both calls start afresh from there.
    fn open(&mut self) {
        self.server
            .socket()
            .listen((SERVER, BUSY))
            .expect("the socket is closed");
        self.next_port();
        let Host {
            iface,
            sockets,
            busy,
        } = &mut self.client;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(*busy);
        socket
            .connect(iface.context(), (SERVER, BUSY), self.port)
            .expect("the socket is closed");
        // With Ethernet, the neighbours are asked for first.
        while self.client.socket().state() != tcp::State::Established {
            self.client_egress();
            while self.server_ingress() {}
            self.server_egress();
            while self.client_ingress() {}
        }
    }

    /// Request there, response back; single steps, so that no poll finds nothing.
    #[inline]
    fn round_trip(&mut self, request: &[u8], response: &mut [u8]) {
        let sent = self
            .client
            .socket()
            .send_slice(request)
            .expect("established");
        assert_eq!(sent, request.len());
        self.client_egress();
        while !self.server.socket().can_recv() {
            self.server_ingress();
        }
        let got = self
            .server
            .socket()
            .recv_slice(response)
            .expect("established");
        let sent = self
            .server
            .socket()
            .send_slice(&response[..got])
            .expect("established");
        assert_eq!(sent, got);
        self.server_egress();
        while !self.client.socket().can_recv() {
            self.client_ingress();
        }
        let got = self
            .client
            .socket()
            .recv_slice(response)
            .expect("established");
        assert_eq!(&response[..got], request);
    }
}

impl Pair for SmoltcpPair {
    fn round_trips(&mut self, n: usize, size: usize) {
        let (mut request, mut response) = ([0; MESSAGE_MAX], [0; MESSAGE_MAX]);
        let request = &mut request[..size.min(MESSAGE_MAX)];
        for i in 0..n {
            self.now += Duration::from_micros(1);
            request[0] = i.to_le_bytes()[0];
            self.round_trip(request, &mut response);
        }
    }

    fn bulk(&mut self, bytes: usize) {
        let mut chunk = std::mem::take(&mut self.chunk);
        let (mut sent, mut got) = (0, 0);
        while got < bytes {
            self.now += Duration::from_micros(1);
            let want = chunk.len().min(bytes - sent);
            if want > 0 {
                sent += self
                    .client
                    .socket()
                    .send_slice(&chunk[..want])
                    .expect("established");
            }
            for _ in 0..self.tuning.burst {
                self.client_egress();
            }
            while self.server_ingress() {}
            got += self
                .server
                .socket()
                .recv_slice(&mut chunk)
                .expect("established");
            self.server_egress();
            while self.client_ingress() {}
        }
        self.chunk = chunk;
    }

    fn crowds(&mut self, n: usize) {
        while self.crowd.len() < CROWD {
            // As small as they may be: the fewer cache lines the better.
            let server = self.server.sockets.add(new_socket(64, &self.tuning));
            let client = self.client.sockets.add(new_socket(64, &self.tuning));
            self.crowd.push((server, client));
        }
        for i in 0..n {
            self.now += Duration::from_micros(1);
            self.one_crowd(i.to_le_bytes()[0]);
        }
    }

    fn connections(&mut self, n: usize) {
        // The connection left open by `new`, or by the round before, is closed as those here are.
        for i in 0..n {
            self.now += Duration::from_micros(1);
            self.finish();
            self.open();
            self.round_trip_closing(i.to_le_bytes()[0]);
        }
        self.finish();
        self.open();
        self.settle();
    }
}

impl SmoltcpPair {
    /// One turn each: what the client's sockets have, one segment a socket, and the server's answers.
    fn exchange(&mut self) {
        self.client_egress();
        while self.server_ingress() {}
        self.server_egress();
        while self.client_ingress() {}
    }

    /// [`CROWD`] connections at once, step by step. Their sockets may be in TIME-WAIT, as in [`Self::open`].
    fn one_crowd(&mut self, byte: u8) {
        let crowd = std::mem::take(&mut self.crowd);
        let mut response = [0; 8];
        for &(server, client) in &crowd {
            let socket = self.server.sockets.get_mut::<tcp::Socket<'_>>(server);
            socket
                .listen((SERVER, CROWDED))
                .expect("the socket is closed");
            self.next_port();
            let (port, Host { iface, sockets, .. }) = (self.port, &mut self.client);
            let socket = sockets.get_mut::<tcp::Socket<'_>>(client);
            let to = (SERVER, CROWDED);
            socket
                .connect(iface.context(), to, port)
                .expect("the socket is closed");
        }
        self.exchange();
        for &(_, client) in &crowd {
            let socket = self.client.sockets.get_mut::<tcp::Socket<'_>>(client);
            socket.send_slice(&[byte]).expect("established");
        }
        self.client_egress();
        while self.server_ingress() {}
        for &(server, _) in &crowd {
            let socket = self.server.sockets.get_mut::<tcp::Socket<'_>>(server);
            let got = socket.recv_slice(&mut response).expect("established");
            socket.send_slice(&response[..got]).expect("established");
            socket.close();
        }
        self.server_egress();
        while self.client_ingress() {}
        for &(_, client) in &crowd {
            let socket = self.client.sockets.get_mut::<tcp::Socket<'_>>(client);
            let got = socket.recv_slice(&mut response).expect("still readable");
            assert_eq!(response[..got], [byte]);
            socket.close();
        }
        let is_over = |pair: &Self| {
            crowd.iter().all(|&(server, client)| {
                let server = pair.server.sockets.get::<tcp::Socket<'_>>(server);
                !server.is_open() && !pair.client.sockets.get::<tcp::Socket<'_>>(client).is_open()
            })
        };
        self.exchange();
        while !is_over(self) {
            self.exchange();
        }
        self.crowd = crowd;
    }

    /// The server closes, then the client, unless they have.
    fn finish(&mut self) {
        self.server.socket().close();
        self.server_egress();
        while self.client_ingress() {}
        self.client.socket().close();
        while self.client.socket().is_open() || self.server.socket().is_open() {
            self.client_egress();
            while self.server_ingress() {}
            self.server_egress();
            while self.client_ingress() {}
        }
    }

    /// Request and response; the response carries the server's FIN.
    fn round_trip_closing(&mut self, byte: u8) {
        let mut response = [0; 8];
        self.client
            .socket()
            .send_slice(&[byte])
            .expect("established");
        self.client_egress();
        while !self.server.socket().can_recv() {
            self.server_ingress();
        }
        let got = self
            .server
            .socket()
            .recv_slice(&mut response)
            .expect("established");
        self.server
            .socket()
            .send_slice(&response[..got])
            .expect("established");
        self.server.socket().close();
        self.server_egress();
        while !self.client.socket().can_recv() {
            self.client_ingress();
        }
        let got = self
            .client
            .socket()
            .recv_slice(&mut response)
            .expect("still readable");
        assert_eq!(response[..got], [byte]);
    }
}
