//! A closed loop of requests: each client sends its next one when the answer to the last is there. One thread, the kernel's sockets, one epoll set;
//! datagrams go and come on one socket that blocks.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    os::fd::AsFd,
    time::Duration,
};

use hdrhistogram::Histogram;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType},
};

use crate::kit::{Stopwatch, processor_seconds};
use crate::usage::Usage;

/// No answer takes so long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the clients do.
pub(super) struct Load<'a> {
    pub server: SocketAddr,
    /// With datagrams one, whatever stands here.
    pub clients: usize,
    /// Requests of a client that are under way at once.
    pub depth: usize,
    /// Each request on a connection of its own, which the server closes.
    pub fresh: bool,
    pub datagrams: bool,
    pub request: &'a [u8],
    /// Bytes of each answer.
    pub answer: usize,
}

/// What came of it.
pub(super) struct Outcome {
    pub answers: u64,
    pub per_second: f64,
    /// From request to answer, ns. With a depth, of the last of as many; on a connection of its own, from before it opens until it is closed.
    pub latency: Histogram<u64>,
    /// What the server used for each request.
    pub each: Usage,
    /// Processor time of the clients for each request, ns.
    pub clients_ns: f64,
}

/// What the parties had used when the warm-up was over.
struct Begin {
    at: f64,
    server: Usage,
    clients: f64,
}

/// Counts the answers that come after the warm-up.
struct Tally<'a> {
    watch: Stopwatch,
    warm: f64,
    time: f64,
    usage: &'a dyn Fn() -> io::Result<Usage>,
    begin: Option<Begin>,
    answers: u64,
    latency: Histogram<u64>,
}

struct Client {
    stream: TcpStream,
    is_connected: bool,
    /// Bytes of answers that are still to come.
    due: usize,
    asked: f64,
}

/// One answer, to learn how long they are: all until `is_whole`.
///
/// # Errors
/// The server's end, or none within [`PATIENCE`].
pub(super) fn one_answer(
    server: SocketAddr,
    request: &[u8],
    is_whole: impl Fn(&[u8]) -> bool,
) -> io::Result<usize> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut room = vec![0; 1 << 16];
    while !is_whole(&answer) {
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend_from_slice(&room[..n]),
        }
    }
    Ok(answer.len())
}

/// One datagram there and one back, whose length it returns.
///
/// # Errors
/// None within `patience`, or what the server's system says instead.
pub(super) fn one_datagram(
    server: SocketAddr,
    request: &[u8],
    patience: Duration,
) -> io::Result<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(request)?;
    socket.recv(&mut [0; 1 << 11])
}

impl Load<'_> {
    /// Runs it: `warm`, which does not count, and then `time`. `usage` reads what the server has used.
    ///
    /// # Errors
    /// A connection's, or an answer that does not come.
    pub fn run(
        &self,
        warm: Duration,
        time: Duration,
        usage: &dyn Fn() -> io::Result<Usage>,
    ) -> io::Result<Outcome> {
        let mut tally = Tally::new(warm, time, usage)?;
        if self.datagrams {
            self.exchange(&mut tally)?;
        } else {
            self.turns(&mut tally)?;
        }
        tally.outcome()
    }

    fn exchange(&self, tally: &mut Tally<'_>) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(self.server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut room = [0; 1 << 11];
        while tally.goes_on()? {
            let asked = tally.watch.seconds();
            socket.send(self.request)?;
            if socket.recv(&mut room)? != self.answer {
                return Err(io::Error::other(
                    "an answer is not as long as the first one",
                ));
            }
            tally.note(asked, 1);
        }
        Ok(())
    }

    fn turns(&self, tally: &mut Tally<'_>) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = Vec::with_capacity(self.clients);
        for number in 0..self.clients {
            clients.push(self.connect(&epoll, number, tally.watch.seconds())?);
        }
        let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        let mut room = vec![0; 1 << 18];
        let mut ready = Vec::with_capacity(self.clients.clamp(1, 256));
        while tally.goes_on()? {
            ready.clear();
            if epoll::wait(&epoll, spare_capacity(&mut ready), Some(&patience))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for event in &ready {
                let number = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
                let client = &mut clients[number];
                if !client.is_connected {
                    client.opens(&epoll, number)?;
                    self.ask(client)?;
                } else if client.reads(&mut room, self.fresh)? {
                    let now = tally.note(client.asked, self.depth as u64);
                    if self.fresh {
                        *client = self.connect(&epoll, number, now)?;
                    } else {
                        client.asked = now;
                        self.ask(client)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A connection that is on its way: no client waits for another's.
    fn connect(&self, epoll: impl AsFd, number: usize, asked: f64) -> io::Result<Client> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match net::connect(&socket, &self.server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(e.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(epoll, &stream, data, epoll::EventFlags::OUT)?;
        Ok(Client {
            stream,
            is_connected: false,
            due: 0,
            asked,
        })
    }

    /// A request, or as many as go at once. They are short: the socket takes them whole.
    fn ask(&self, client: &mut Client) -> io::Result<()> {
        client.due = self.answer * self.depth;
        if self.depth == 1 {
            return client.stream.write_all(self.request);
        }
        client.stream.write_all(&self.request.repeat(self.depth))
    }
}

impl Client {
    /// The handshake is over, well or not; from now on answers are waited for.
    fn opens(&mut self, epoll: impl AsFd, number: usize) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.is_connected = true;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::modify(epoll, &self.stream, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Takes what has come; whether all has, which with `to_end` the end of the connection is part of.
    fn reads(&mut self, room: &mut [u8], to_end: bool) -> io::Result<bool> {
        while self.due > 0 || to_end {
            match self.stream.read(room) {
                Ok(0) if self.due == 0 => return Ok(true),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) if n > self.due => {
                    return Err(io::Error::other("an answer is longer than the first one"));
                }
                Ok(n) => self.due -= n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

impl<'a> Tally<'a> {
    fn new(
        warm: Duration,
        time: Duration,
        usage: &'a dyn Fn() -> io::Result<Usage>,
    ) -> io::Result<Self> {
        let longest = u64::try_from(PATIENCE.as_nanos()).map_err(io::Error::other)?;
        Ok(Self {
            watch: Stopwatch::start(),
            warm: warm.as_secs_f64(),
            time: time.as_secs_f64(),
            usage,
            begin: None,
            answers: 0,
            latency: Histogram::new_with_max(longest, 3).map_err(io::Error::other)?,
        })
    }

    /// Whether there is time left. Answers from before the end of the warm-up are forgotten at it.
    fn goes_on(&mut self) -> io::Result<bool> {
        let now = self.watch.seconds();
        match &self.begin {
            Some(begin) => return Ok(now < begin.at + self.time),
            None if now < self.warm => return Ok(true),
            None => {}
        }
        let server = (self.usage)()?;
        self.begin = Some(Begin {
            at: self.watch.seconds(),
            server,
            clients: processor_seconds(),
        });
        self.answers = 0;
        self.latency.reset();
        Ok(true)
    }

    /// One or more answers have come to what was asked then; returns the time.
    fn note(&mut self, asked: f64, answers: u64) -> f64 {
        let now = self.watch.seconds();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // ns of seconds
        self.latency.saturating_record(((now - asked) * 1e9) as u64);
        self.answers += answers;
        now
    }

    #[allow(clippy::cast_precision_loss)] // below 2^52
    fn outcome(self) -> io::Result<Outcome> {
        let (now, clients) = (self.watch.seconds(), processor_seconds());
        let Some(begin) = self.begin else {
            return Err(io::Error::other("the warm-up did not end"));
        };
        let server = (self.usage)()? - begin.server;
        let count = self.answers.max(1) as f64;
        Ok(Outcome {
            answers: self.answers,
            per_second: self.answers as f64 / (now - begin.at),
            latency: self.latency,
            each: server / count,
            clients_ns: (clients - begin.clients) * 1e9 / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    fn load(server: SocketAddr, fresh: bool, datagrams: bool) -> Load<'static> {
        Load {
            server,
            clients: 1,
            depth: 1,
            fresh,
            datagrams,
            request: b"abc",
            answer: 3,
        }
    }

    fn run(load: &Load<'_>) -> io::Result<Outcome> {
        let time = Duration::from_millis(50);
        load.run(Duration::ZERO, time, &|| Ok(Usage::default()))
    }

    /// How long the end comes after the answer.
    const LINGER: Duration = Duration::from_millis(5);

    /// Answers requests of three bytes with themselves; closes after each where `closes`.
    fn echo(closes: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        // Ends with the test's process.
        thread::spawn(move || {
            let mut text = [0; 3];
            for mut stream in listener.incoming().flatten() {
                while stream.read_exact(&mut text).is_ok() {
                    let _ = stream.write_all(&text);
                    if closes {
                        thread::sleep(LINGER);
                        break;
                    }
                }
            }
        });
        address
    }

    #[test]
    fn load_on_one_connection_counts_every_answer() {
        let outcome = run(&load(echo(false), false, false)).expect("answers come");
        assert!(outcome.answers > 0);
        assert_eq!(outcome.answers, outcome.latency.len());
    }

    #[test]
    fn load_on_fresh_connections_takes_each_to_its_end() {
        let outcome = run(&load(echo(true), true, false)).expect("answers come");
        assert!(outcome.answers > 1, "one connection has one answer");
        let shortest = u128::from(outcome.latency.min());
        assert!(shortest * 1000 > LINGER.as_nanos() * 998, "{shortest} ns");
    }

    #[test]
    fn load_whose_server_closes_early_fails() {
        let mut load = load(echo(true), false, false);
        load.answer += 1;
        let error = run(&load).err().expect("the last byte does not come");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn load_of_datagrams_counts_every_answer() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = server.local_addr().expect("it is bound");
        thread::spawn(move || {
            let mut room = [0; 16];
            while let Ok((n, peer)) = server.recv_from(&mut room) {
                let _ = server.send_to(&room[..n], peer);
            }
        });
        let outcome = run(&load(address, false, true)).expect("answers come");
        assert!(outcome.answers > 0);
        assert_eq!(outcome.answers, outcome.latency.len());
        let short = one_datagram(address, b"ab", PATIENCE).expect("an answer");
        assert_eq!(short, 2);
    }
}
