//! A closed loop of requests: each client sends its next one when the answer to the last is there. One thread, the kernel's sockets, one epoll set.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use hdrhistogram::Histogram;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use super::usage::Usage;
use crate::kit::Stopwatch;

/// No answer takes so long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the clients do.
pub(super) struct Load<'a> {
    pub server: SocketAddr,
    pub clients: usize,
    /// Requests of a client that are under way at once.
    pub depth: usize,
    /// Each request on a connection of its own, which the server closes.
    pub fresh: bool,
    pub request: &'a [u8],
    /// Bytes of each answer.
    pub answer: usize,
}

/// What came of it.
pub(super) struct Outcome {
    pub per_second: f64,
    /// From request to answer, ns. With a depth, of the last of as many.
    pub latency: Histogram<u64>,
    /// What the server used for each request.
    pub each: Usage,
}

struct Client {
    stream: TcpStream,
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

impl Load<'_> {
    /// Runs it: `warm`, which does not count, and then `time`. `usage` reads what the server has used.
    ///
    /// # Errors
    /// A connection's, or an answer that does not come.
    pub fn run(
        &self,
        warm: Duration,
        time: Duration,
        usage: impl Fn() -> io::Result<Usage>,
    ) -> io::Result<Outcome> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = Stopwatch::start();
        let mut clients = Vec::with_capacity(self.clients);
        for number in 0..self.clients {
            let mut client = self.connect()?;
            Self::attend(&epoll, &client, number)?;
            client.asked = watch.seconds();
            clients.push(client);
        }
        let longest = u64::try_from(PATIENCE.as_nanos()).map_err(io::Error::other)?;
        let mut latency = Histogram::<u64>::new_with_max(longest, 3).map_err(io::Error::other)?;
        let mut room = vec![0; 1 << 18];
        let mut ready = Vec::with_capacity(self.clients.clamp(1, 256));
        let mut begin = None;
        let mut answers = 0_u64;
        loop {
            let now = watch.seconds();
            match begin {
                None if now >= warm.as_secs_f64() => {
                    begin = Some((now, usage()?));
                    answers = 0;
                    latency.reset();
                }
                Some((at, before)) if now >= at + time.as_secs_f64() => {
                    return Ok(Outcome::of(answers, now - at, latency, usage()? - before));
                }
                _ => {}
            }
            let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
            ready.clear();
            if epoll::wait(&epoll, spare_capacity(&mut ready), Some(&patience))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for event in &ready {
                let number = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
                let client = &mut clients[number];
                if !client.reads(&mut room)? {
                    continue;
                }
                let now = watch.seconds();
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // ns of seconds
                latency.saturating_record(((now - client.asked) * 1e9) as u64);
                answers += self.depth as u64;
                if self.fresh {
                    *client = self.connect()?;
                    Self::attend(&epoll, client, number)?;
                } else {
                    self.ask(client)?;
                }
                client.asked = now;
            }
        }
    }

    fn connect(&self) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&self.server, PATIENCE)?;
        stream.set_nodelay(true)?;
        let mut client = Client {
            stream,
            due: 0,
            asked: 0.0,
        };
        self.ask(&mut client)?;
        client.stream.set_nonblocking(true)?;
        Ok(client)
    }

    fn attend(epoll: impl AsFd, client: &Client, number: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        Ok(epoll::add(
            epoll,
            &client.stream,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    /// A request, or as many as go at once. They are short: the socket takes them whole.
    fn ask(&self, client: &mut Client) -> io::Result<()> {
        client.due = self.answer * self.depth;
        client.stream.write_all(&self.request.repeat(self.depth))
    }
}

impl Client {
    /// Takes what has come; whether all has.
    fn reads(&mut self, room: &mut [u8]) -> io::Result<bool> {
        while self.due > 0 {
            match self.stream.read(room) {
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

impl Outcome {
    #[allow(clippy::cast_precision_loss)] // below 2^52
    fn of(answers: u64, seconds: f64, latency: Histogram<u64>, used: Usage) -> Self {
        Self {
            per_second: answers as f64 / seconds,
            latency,
            each: used / answers.max(1) as f64,
        }
    }
}
