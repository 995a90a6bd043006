//! Socket options and what they are for: two stacks on a wire, in virtual time, turned by the test.

mod buffers;
mod datagrams;
mod information;
mod notices;
mod settings;
mod tuning;
mod urgent;

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::wire,
    socket::{Domain, Kind, Readiness, ReceiveFlags, Socket, SocketOption},
};

/// Two stacks: a client's and a server's.
pub struct World {
    /// The time of both.
    pub clock: Clock,
    /// 10.0.0.1 and 10.0.0.2.
    pub nets: [Net; 2],
}

impl World {
    /// As they are by default.
    pub fn plain() -> Self {
        Self::with(|builder| builder)
    }

    /// Both with further settings.
    pub fn with(settings: impl Fn(netchan::Builder) -> netchan::Builder) -> Self {
        Self::over(&wire::Options::default(), settings)
    }

    /// Over a wire of this kind.
    pub fn over(
        options: &wire::Options,
        settings: impl Fn(netchan::Builder) -> netchan::Builder,
    ) -> Self {
        let clock = Clock::new_virtual();
        let (a, b) = wire::pair(options);
        let start = |link, number: u64| {
            let builder = Net::builder()
                .clock(clock.clone())
                .link_with(link)
                .address(&format!("10.0.0.{number}/24"))
                .unwrap()
                .threads(Threads::Caller)
                .seed(number);
            settings(builder).start().unwrap()
        };
        let nets = [start(Box::new(a) as _, 1), start(Box::new(b) as _, 2)];
        Self { clock, nets }
    }

    /// Everything that can happen without time passing.
    pub fn settle(&self) {
        for _ in 0..8 {
            for net in &self.nets {
                net.poll();
            }
        }
    }

    /// Time passes, a millisecond at a time.
    pub fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.clock.advance(Duration::from_millis(1));
            self.settle();
        }
    }

    /// A socket of the client's (0) or the server's (1).
    pub fn socket(&self, at: usize, kind: Kind) -> Socket {
        Socket::new(&self.nets[at], Domain::V4, kind).unwrap()
    }

    /// A listener at the server's port 80.
    pub fn listener(&self) -> Socket {
        let listener = self.socket(1, Kind::Stream);
        let reuse = SocketOption::ReuseAddress(true); // of the one before
        listener.set_option(reuse).unwrap();
        listener.bind(SERVER.into()).unwrap();
        listener.listen(8).unwrap();
        listener
    }

    /// Connects `client` to the listener; the accepted socket.
    pub fn connect(&self, client: &Socket, listener: &Socket) -> Socket {
        let started = client.connect(SERVER.into());
        assert_eq!(code(started), Err(libc::EINPROGRESS));
        for _ in 0..1000 {
            self.settle();
            if let Ok((accepted, _)) = listener.accept() {
                client.connect(SERVER.into()).unwrap();
                return accepted;
            }
            self.clock.advance(Duration::from_millis(1));
        }
        panic!("no connection");
    }

    /// A connection with options of the client's.
    pub fn pair(&self, options: &[SocketOption]) -> (Socket, Socket) {
        let client = self.socket(0, Kind::Stream);
        for option in options {
            client.set_option(*option).unwrap();
        }
        let accepted = self.connect(&client, &self.listener());
        (client, accepted)
    }
}

/// Where the server listens.
pub const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

/// The errno of a call.
pub fn code<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// Sends bytes.
pub fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, i32> {
    code(socket.send(&[IoSlice::new(bytes)], None))
}

/// What a socket is ready for.
pub fn is_readable(socket: &Socket) -> bool {
    socket.readiness().contains(Readiness::READABLE)
}

/// Whether it may be written to.
pub fn is_writable(socket: &Socket) -> bool {
    socket.readiness().contains(Readiness::WRITABLE)
}

/// Receives up to `most` bytes.
pub fn receive(socket: &Socket, most: usize) -> Result<Vec<u8>, i32> {
    receive_with(socket, most, ReceiveFlags::default())
}

/// The same with flags.
pub fn receive_with(socket: &Socket, most: usize, flags: ReceiveFlags) -> Result<Vec<u8>, i32> {
    let mut buffer = vec![0; most];
    let received = code(socket.receive(&mut [IoSliceMut::new(&mut buffer)], flags))?;
    buffer.truncate(received.len);
    Ok(buffer)
}

/// The server's address.
pub fn server() -> SocketAddr {
    SERVER.into()
}
