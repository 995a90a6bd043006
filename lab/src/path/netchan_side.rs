//! netchan on both ends of a wire in memory: two stacks turned by the caller, app-channel regime, virtual time, non-blocking socket calls.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};

use super::{CROWD, MESSAGE_MAX, Pair, Setup};

const SERVER_PORT: u16 = 80;
const IDLE_PORT: u16 = 81;
const SHORT_PORT: u16 = 82;

/// Turns without progress after which the pair has hung: a bug, not a slow machine, since time is virtual.
const PATIENCE: usize = 1_000_000;

/// Two stacks, a listener and a busy connection.
pub struct NetchanPair {
    client_net: Net,
    server_net: Net,
    clock: Clock,
    /// Listens for connections of one request, and where.
    short: Socket,
    short_address: SocketAddr,
    client: Socket,
    server: Socket,
    chunk: Vec<u8>,
    /// Idle connections, kept open.
    idle: Vec<(Socket, Socket)>,
}

/// Turns both stacks until `attempt` has an answer other than "not yet".
fn wait<T>(
    client: &Net,
    server: &Net,
    clock: &Clock,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..PATIENCE {
        match attempt() {
            Err(e) if not_yet(&e) => {}
            done => return done,
        }
        let moved = client.poll() | server.poll();
        if !moved {
            clock.advance(Duration::from_micros(10));
        }
    }
    Err(io::Error::new(
        ErrorKind::TimedOut,
        "the two stacks made no progress",
    ))
}

/// Takes turns with `other` until `attempt` has an answer other than "not yet".
fn in_turns<T>(
    mut attempt: impl FnMut() -> io::Result<T>,
    mut other: impl FnMut() -> io::Result<()>,
) -> io::Result<T> {
    for _ in 0..PATIENCE {
        match attempt() {
            Err(e) if not_yet(&e) => other()?,
            done => return done,
        };
    }
    Err(io::Error::new(ErrorKind::TimedOut, "no progress"))
}

/// "Try again", and what connect(2) says while it is under way.
fn not_yet(e: &io::Error) -> bool {
    e.kind() == ErrorKind::WouldBlock
        || matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EALREADY))
}

fn listen(net: &Net, address: SocketAddr, backlog: usize) -> io::Result<Socket> {
    let socket = Socket::new(net, Domain::V4, Kind::Stream)?;
    socket.bind(address)?;
    socket.listen(backlog)?;
    Ok(socket)
}

impl NetchanPair {
    /// Two stacks with an established connection between them, and `setup.idle` more beside it.
    ///
    /// # Errors
    /// What the stack says.
    pub fn new(setup: Setup) -> io::Result<Self> {
        let options = wire::Options {
            mtu: setup.mtu,
            trusted: !setup.checksums,
            ..wire::Options::default()
        };
        let (a, b) = wire::pair(&options);
        let clock = Clock::new_virtual();
        let net = |link, address: &str, seed| {
            Net::builder()
                .link_with(Box::new(link))
                .address(address)?
                .regime(Regime::AppChannel)
                .threads(Threads::Caller)
                .clock(clock.clone())
                .seed(seed)
                .start()
        };
        let client_net = net(a, "10.0.0.1/24", 1)?;
        let server_net = net(b, "10.0.0.2/24", 2)?;
        let address = SocketAddr::from(([10, 0, 0, 2], SERVER_PORT));
        let idle = open_idle(&client_net, &server_net, &clock, setup.idle)?;
        let listener = listen(&server_net, address, 128)?;
        let (client, server) = open(&client_net, &server_net, &clock, &listener, address)?;
        let short_address = SocketAddr::from(([10, 0, 0, 2], SHORT_PORT));
        let short = listen(&server_net, short_address, 128)?;
        // What it accepts takes these over.
        short.set_option(SocketOption::Cork(true))?;
        short.set_option(SocketOption::QuickAck(false))?;
        let chunk = vec![0x5a; setup.chunk];
        Ok(Self {
            client_net,
            server_net,
            clock,
            short,
            short_address,
            client,
            server,
            chunk,
            idle,
        })
    }

    /// `n` more connections that are kept open. Each has carried `text` there and back; then they rest, a hundred together, until no timer of
    /// theirs is left.
    ///
    /// # Errors
    /// What the stack says.
    pub fn rest_idle(&mut self, n: usize, text: &[u8]) -> io::Result<()> {
        let address = SocketAddr::from(([10, 0, 0, 2], IDLE_PORT));
        let listener = listen(&self.server_net, address, 128)?;
        self.idle.reserve(n);
        let mut buffer = vec![0; text.len()];
        for count in 1..=n {
            let nets = (&self.client_net, &self.server_net);
            let (client, server) = open(nets.0, nets.1, &self.clock, &listener, address)?;
            for (from, to) in [(&client, (&server, nets.1)), (&server, (&client, nets.0))] {
                from.send(&[IoSlice::new(text)], None)?;
                let got = Self::receive(to.1, to.0, &mut buffer);
                assert_eq!(&buffer[..got], text, "text of one segment");
            }
            self.idle.push((client, server));
            if count % 100 == 0 || count == n {
                self.rest();
            }
        }
        Ok(())
    }

    /// Connections in TIME-WAIT, of both stacks.
    #[must_use]
    pub fn time_waits(&self) -> usize {
        let of = |net: &Net| -> u64 {
            let shards = net.show("shards").unwrap_or_default();
            let rows = shards.as_array().into_iter().flatten();
            rows.filter_map(|row| row["time_waits"].as_u64()).sum()
        };
        let all = of(&self.client_net) + of(&self.server_net);
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// Two minutes without a packet.
    fn rest(&self) {
        for _ in 0..12 {
            self.clock.advance(Duration::from_secs(10));
            while self.server_net.poll() | self.client_net.poll() {}
        }
    }

    #[inline]
    fn receive(net: &Net, socket: &Socket, buffer: &mut [u8]) -> usize {
        for _ in 0..PATIENCE {
            match socket.receive(&mut [IoSliceMut::new(buffer)], ReceiveFlags::default()) {
                Ok(received) => return received.len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => net.poll(),
                Err(e) => panic!("receive: {e}"),
            };
        }
        panic!("nothing arrived");
    }

    /// A microsecond later a request, and its response.
    #[inline]
    pub(crate) fn round_trip(&mut self, request: &[u8], response: &mut [u8]) {
        self.clock.advance(Duration::from_micros(1));
        let sent = self
            .client
            .send(&[IoSlice::new(request)], None)
            .expect("established");
        assert_eq!(sent, request.len());
        let got = Self::receive(&self.server_net, &self.server, response);
        let sent = self
            .server
            .send(&[IoSlice::new(&response[..got])], None)
            .expect("established");
        assert_eq!(sent, got);
        let got = Self::receive(&self.client_net, &self.client, response);
        assert_eq!(&response[..got], request);
    }
}

impl NetchanPair {
    /// The client sends `text` at once; it waits on the wire.
    ///
    /// # Panics
    /// If the windows do not hold it.
    pub(crate) fn send_all(&mut self, text: &[u8]) {
        self.clock.advance(Duration::from_micros(100));
        while self.client_net.poll() {}
        let sent = self.client.send(&[IoSlice::new(text)], None);
        assert_eq!(sent.expect("established"), text.len());
    }

    /// The server takes what has come, in one call.
    #[inline]
    pub(crate) fn take(&mut self, room: &mut [u8]) -> usize {
        Self::receive(&self.server_net, &self.server, room)
    }
}

impl NetchanPair {
    /// A client whose SYN has left. It takes back quick acknowledgments behind connect, which forgets what was said of them before, as in Linux.
    fn connecting(&self) -> io::Result<Socket> {
        let client = Socket::new(&self.client_net, Domain::V4, Kind::Stream)?;
        match client.connect(self.short_address) {
            Err(e) if not_yet(&e) => {}
            other => return other.and(Err(ErrorKind::AlreadyExists.into())),
        }
        client.set_option(SocketOption::QuickAck(false))?;
        Ok(client)
    }

    /// A microsecond later a connection, a byte there, a byte back, closed by both; in single steps, as the peer is driven, so that no poll finds nothing:
    /// each call turns its own side. What the last FIN leads to is done with the next connection's handshake.
    ///
    /// Nothing is sent that the next call would have sent along: the client takes back quick acknowledgments (its request carries the
    /// handshake's last one, its FIN that of the server's), the server's socket is corked until it closes (one segment for
    /// response and FIN). Six segments, as with the peer.
    pub(crate) fn short_connection(&mut self, byte: u8) -> io::Result<()> {
        self.clock.advance(Duration::from_micros(1));
        let client = self.connecting()?;
        let mut buffer = [byte; 8];
        let mut accepted = None;
        let mut accept = || match self.short.accept() {
            Ok((socket, _)) => {
                accepted = Some(socket);
                Ok(())
            }
            Err(e) if not_yet(&e) => Ok(()),
            Err(e) => Err(e),
        };
        accept()?;
        in_turns(|| client.connect(self.short_address), &mut accept)?;
        client.send(&[IoSlice::new(&buffer[..1])], None)?;
        accept()?;
        let server = accepted.ok_or(ErrorKind::NotConnected)?;
        let got = Self::receive(&self.server_net, &server, &mut buffer);
        server.send(&[IoSlice::new(&buffer[..got])], None)?;
        drop(server);
        let got = Self::receive(&self.client_net, &client, &mut buffer);
        assert_eq!(buffer[..got], [byte]);
        Ok(())
    }
}

impl NetchanPair {
    /// A microsecond later [`CROWD`] connections, each as [`Self::short_connection`], step by step: what one step of all sends is there when the next begins.
    fn crowd(&mut self, byte: u8) -> io::Result<()> {
        self.clock.advance(Duration::from_micros(1));
        let (client_net, server_net, clock) = (&self.client_net, &self.server_net, &self.clock);
        let mut buffer = [byte; 8];
        let mut clients = Vec::with_capacity(CROWD);
        for _ in 0..CROWD {
            clients.push(self.connecting()?);
        }
        server_net.poll();
        for client in &clients {
            wait(client_net, server_net, clock, || {
                client.connect(self.short_address)
            })?;
            client.send(&[IoSlice::new(&buffer[..1])], None)?;
        }
        for _ in 0..CROWD {
            let (server, _) = wait(client_net, server_net, clock, || self.short.accept())?;
            let got = Self::receive(server_net, &server, &mut buffer);
            server.send(&[IoSlice::new(&buffer[..got])], None)?;
        }
        for client in clients {
            let got = Self::receive(client_net, &client, &mut buffer);
            assert_eq!(buffer[..got], [byte]);
        }
        Ok(())
    }
}

/// One connection from `client` to `address`, taken from `listener`.
fn open(
    client: &Net,
    server: &Net,
    clock: &Clock,
    listener: &Socket,
    address: SocketAddr,
) -> io::Result<(Socket, Socket)> {
    let socket = Socket::new(client, Domain::V4, Kind::Stream)?;
    socket.set_option(SocketOption::NoDelay(true))?;
    wait(client, server, clock, || socket.connect(address))?;
    let (accepted, _) = wait(client, server, clock, || listener.accept())?;
    accepted.set_option(SocketOption::NoDelay(true))?;
    Ok((socket, accepted))
}

/// Established connections that stay idle.
fn open_idle(
    client: &Net,
    server: &Net,
    clock: &Clock,
    count: usize,
) -> io::Result<Vec<(Socket, Socket)>> {
    let address = SocketAddr::from(([10, 0, 0, 2], IDLE_PORT));
    let listener = listen(server, address, 128)?;
    (0..count)
        .map(|_| open(client, server, clock, &listener, address))
        .collect()
}

impl Pair for NetchanPair {
    fn round_trips(&mut self, n: usize, size: usize) {
        let (mut request, mut response) = ([0; MESSAGE_MAX], [0; MESSAGE_MAX]);
        let request = &mut request[..size.min(MESSAGE_MAX)];
        for i in 0..n {
            request[0] = i.to_le_bytes()[0];
            self.round_trip(request, &mut response);
        }
    }

    fn bulk(&mut self, bytes: usize) {
        let mut chunk = std::mem::take(&mut self.chunk);
        let (mut sent, mut got, mut stuck) = (0, 0, 0);
        while got < bytes {
            self.clock.advance(Duration::from_micros(1));
            let before = (sent, got);
            let want = chunk.len().min(bytes - sent);
            if want > 0 {
                match self.client.send(&[IoSlice::new(&chunk[..want])], None) {
                    Ok(n) => sent += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => _ = self.client_net.poll(),
                    Err(e) => panic!("send: {e}"),
                }
            } else {
                self.client_net.poll();
            }
            match self
                .server
                .receive(&mut [IoSliceMut::new(&mut chunk)], ReceiveFlags::default())
            {
                Ok(received) => got += received.len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => _ = self.server_net.poll(),
                Err(e) => panic!("receive: {e}"),
            }
            stuck = if before == (sent, got) { stuck + 1 } else { 0 };
            assert!(stuck < PATIENCE, "no progress after {got} of {bytes} bytes");
        }
        self.chunk = chunk;
    }

    fn crowds(&mut self, n: usize) {
        for i in 0..n {
            self.crowd(i.to_le_bytes()[0]).expect("as many connections");
        }
    }

    fn connections(&mut self, n: usize) {
        for i in 0..n {
            self.short_connection(i.to_le_bytes()[0])
                .expect("a connection");
        }
        while self.server_net.poll() | self.client_net.poll() {}
    }
}
