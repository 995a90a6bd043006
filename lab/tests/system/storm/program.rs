//! The programs of a storm, as this binary plays them: those that end at a point of their lease's life, the one that serves them, and the one that looks
//! whether it still serves.
//!
//! All text is words of eight bytes, in whose first half the one that writes has a number of its own: a reader sees at once bytes that are another's.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use netchan::{
    Net,
    link::lease::{Binding, Client, MESSAGE_MAX, Request, Reuse, Terms, Transport, VERSION},
    own::Own,
};
use percore::{
    edge::{self, EdgeLayout, Side, Which},
    slab::{BorrowedSlab, SharedLayout},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect,
        shutdown, socket_with,
    },
    process::{Signal, getpid, kill_process},
};

use crate::{
    frames::Random,
    place::{KERNEL, OURS, SOON},
};

/// Where the server of the storm listens, as a program of the daemon and as one of the kernel.
pub const PORT: u16 = 8000;

/// The status of one that ended by itself at its point.
pub const ENDED: i32 = 7;

/// The moments of a lease's life, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Connected to the daemon.
    Connected,
    /// A lease is asked for.
    Asked,
    /// The answer lies in the socket, with its descriptors.
    Answered,
    /// The descriptors are there.
    Received,
    /// All memory is mapped, and half a message lies in it.
    Mapped,
    /// A port is asked for; the answer is not read.
    Binding,
    /// A stack runs on the lease, and listens.
    Listening,
    /// Text to and from the kernel.
    Remote,
    /// Datagrams to and from another program of the daemon.
    ShortCut,
    /// Text to and from that program, in pipes.
    Pipe,
    /// The lease's socket is shut, nothing else.
    Shut,
    /// It is closed; the memory is mapped still.
    Closed,
    /// The sockets of doorbell and news are closed, that of the lease is not.
    Mute,
    /// The stack is being taken down, its connections with it.
    Down,
}

/// How one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGKILL later.
    Stop,
    /// exit(3).
    Exit,
}

impl Point {
    pub const ALL: [Self; 14] = [
        Self::Connected,
        Self::Asked,
        Self::Answered,
        Self::Received,
        Self::Mapped,
        Self::Binding,
        Self::Listening,
        Self::Remote,
        Self::ShortCut,
        Self::Pipe,
        Self::Shut,
        Self::Closed,
        Self::Mute,
        Self::Down,
    ];
}

impl End {
    pub const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Exit];

    /// Does it.
    fn come(self) -> Result<(), String> {
        let signal = match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Exit => process::exit(ENDED),
        };
        kill_process(getpid(), signal).map_err(said)?;
        // One that is stopped goes on for an instant in its other threads, never here.
        thread::sleep(SOON);
        Err(format!("{self:?} did not end it"))
    }
}

/// What one of the storm is told, as it stands in its arguments.
pub struct Orders {
    pub point: usize,
    pub end: usize,
    pub seed: u64,
    /// A port that it asks for where it asks for one.
    pub port: u16,
}

impl Orders {
    pub fn arguments(&self) -> [String; 4] {
        let numbers = [self.point as u64, self.end as u64, self.seed];
        let [point, end, seed] = numbers.map(|number| number.to_string());
        [point, end, seed, self.port.to_string()]
    }

    fn read([point, end, seed, port]: [&str; 4]) -> Result<Self, String> {
        Ok(Self {
            point: number(point)?,
            end: number(end)?,
            seed: number(seed)?,
            port: number(port)?,
        })
    }
}

/// The server of the storm at an address.
pub fn server_at(address: &str) -> Result<SocketAddr, String> {
    Ok(SocketAddr::new(number(address)?, PORT))
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} makes no sense"))
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Goes to its point, and ends there.
pub fn one(socket: &str, orders: [&str; 4]) -> Result<String, String> {
    let orders = Orders::read(orders)?;
    let point = Point::ALL.get(orders.point).ok_or("no such point")?;
    let end = *End::ALL.get(orders.end).ok_or("no such end")?;
    let socket = Path::new(socket);
    match point {
        Point::Connected | Point::Asked | Point::Answered => asking(socket, *point, end),
        Point::Received | Point::Mapped | Point::Binding => holding(socket, *point, &orders, end),
        Point::Shut | Point::Closed | Point::Mute => holding(socket, *point, &orders, end),
        Point::Listening | Point::Remote => running(socket, *point, &orders, end),
        Point::ShortCut | Point::Pipe | Point::Down => running(socket, *point, &orders, end),
    }?;
    Err(format!("it outlived {point:?}"))
}

fn send(socket: impl AsFd, request: &Request) -> Result<(), String> {
    let text = serde_json::to_vec(request).map_err(said)?;
    rustix::net::send(socket, &text, SendFlags::NOSIGNAL).map_err(said)?;
    Ok(())
}

/// By hand, up to an answer that is not read.
fn asking(socket: &Path, point: Point, end: End) -> Result<(), String> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let own = socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(said)?;
    let address = SocketAddrUnix::new(socket).map_err(said)?;
    connect(&own, &address).map_err(said)?;
    if point == Point::Connected {
        return end.come();
    }
    let request = Request::Attach {
        version: VERSION,
        link: String::new(),
        program: "storm".into(),
        secret: String::new(),
        memory: None,
    };
    send(&own, &request)?;
    if point == Point::Answered {
        let mut fds = [PollFd::new(&own, PollFlags::IN)];
        let patience = Timespec::try_from(SOON).map_err(said)?;
        let ready = poll(&mut fds, Some(&patience)).map_err(said)?;
        if ready == 0 {
            return Err("no answer".into());
        }
    }
    end.come()
}

/// With a lease, and without a stack.
fn holding(socket: &Path, point: Point, orders: &Orders, end: End) -> Result<(), String> {
    // It waits a second; a machine where much else runs may take longer.
    let (client, terms, files) = again(|| {
        let client = Client::connect(socket).map_err(said)?;
        let (terms, files) = client.attach("", "storm", "", None).map_err(said)?;
        Ok((client, terms, files))
    })?;
    match point {
        Point::Received => {}
        Point::Binding => {
            let address = SocketAddr::from(([0; 4], orders.port));
            let transport = Transport::Tcp;
            let request = Request::Bind(Binding { transport, address }, Reuse::default());
            send(&client, &request)?;
        }
        Point::Mute => {
            let [_inward, _outward, _edge, bell, news] = files;
            drop((bell, news));
            return end.come();
        }
        _ => {
            let mut mapped = Mapped::new(&terms, &files)?;
            mapped.half(orders.seed);
            match point {
                Point::Shut => shutdown(&client, Shutdown::Both).map_err(said)?,
                Point::Closed => drop((client, files)),
                _ => {}
            }
            return end.come();
        }
    }
    end.come()
}

/// All memory of a lease.
struct Mapped {
    side: Side<[u8; 32], [u8; 16]>,
    outward: BorrowedSlab,
    _inward: BorrowedSlab,
}

impl Mapped {
    fn new(terms: &Terms, files: &[OwnedFd]) -> Result<Self, String> {
        let [inward, outward, edge, bell, ..] = files else {
            return Err("too few descriptors".into());
        };
        let slab = |file: &OwnedFd, layout: &[u8; SharedLayout::ENCODED]| {
            let layout = SharedLayout::decode(layout).map_err(said)?;
            BorrowedSlab::map(file, layout).map_err(said)
        };
        let layout = EdgeLayout::new(terms.slots).ok_or("no edge")?;
        let bell = Own::keep(bell.try_clone().map_err(said)?);
        Ok(Self {
            side: edge::map(edge, layout, bell, Which::Mapper).map_err(said)?,
            outward: slab(outward, &terms.outward)?,
            _inward: slab(inward, &terms.inward)?,
        })
    }

    /// Writes into the first buffer, and a descriptor of it that is not published, or is, and the bell is not rung.
    fn half(&mut self, seed: u64) {
        let name = percore::slab::BufferName {
            index: 0,
            generation: 1,
        };
        let _ = self.outward.copy_in(name, 0, &seed.to_le_bytes());
        let _ = self.side.sending.stage([seed.to_le_bytes()[0]; 32]);
        if seed.is_multiple_of(2) {
            self.side.sending.publish();
        }
    }
}

/// With a stack on the lease.
fn running(socket: &Path, point: Point, orders: &Orders, end: End) -> Result<(), String> {
    let link = format!("daemon:{}", socket.display());
    let net = again(|| {
        Net::builder()
            .link(&link)
            .map_err(said)?
            .start()
            .map_err(said)
    })?;
    let own = server_at(OURS[0])?;
    let tag = u32::try_from(orders.seed >> 32).unwrap_or_default();
    let mut random = Random::new(orders.seed);
    match point {
        Point::Listening => {
            // The one before it may have had the port, and its end be on its way to the daemon.
            let listens = || net.tcp().listen(("0.0.0.0", orders.port));
            let _listener = again(|| listens().map_err(said))?;
            end.come()
        }
        Point::ShortCut => {
            datagrams(&net, own, tag, 1 + random.next() % 60)?;
            end.come()
        }
        Point::Remote => {
            let to = server_at(KERNEL[0])?;
            let stream = again(|| net.tcp().connect_timeout(to, SOON).map_err(said))?;
            talk(stream, tag, random.next() % (1 << 20))?;
            end.come()
        }
        _ => {
            let mut stream = again(|| net.tcp().connect_timeout(own, SOON).map_err(said))?;
            let begin = now();
            while counter(&net, "tcp_piped") == 0 {
                ask(&mut stream, word(tag, 0))?;
                if begin.elapsed() > SOON {
                    return Err("its connection has no pipe".into());
                }
            }
            talk(stream, tag, random.next() % (4 << 20))?;
            if point == Point::Down {
                thread::spawn(move || drop(net));
                thread::sleep(Duration::from_micros(random.next() % 2000));
            }
            end.come()
        }
    }
}

/// So many datagrams there and back. One that is lost is sent again.
fn datagrams(net: &Net, to: SocketAddr, tag: u32, count: u64) -> Result<(), String> {
    let socket = net.udp().bind((OURS[0], 0)).map_err(said)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .map_err(said)?;
    for count in 0..count {
        let word = word(tag, u32::try_from(count).unwrap_or_default());
        again(|| {
            socket.send_to(&word, to).map_err(said)?;
            let mut got = [0; 16];
            let (n, _) = socket.recv_from(&mut got).map_err(said)?;
            match got[..4] == word[..4] && n == 8 {
                true => Ok(()),
                false => panic!("{:?} is no answer to {word:?}", &got[..n]),
            }
        })?;
    }
    // It is open until the end.
    std::mem::forget(socket);
    Ok(())
}

#[allow(clippy::disallowed_methods)] // a test's stopwatch
fn now() -> Instant {
    Instant::now()
}

/// Tries until it succeeds, for so long as a small thing may take.
fn again<T>(mut what: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let begin = now();
    loop {
        match what() {
            Err(_) if begin.elapsed() < SOON => thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
}

/// One of a stack's counters.
fn counter(net: &Net, name: &str) -> u64 {
    let counters = net.show("counters").unwrap_or_default();
    let mut all = counters.as_array().into_iter().flatten();
    let found = all.find(|counter| counter["name"] == name);
    found
        .and_then(|counter| counter["value"].as_u64())
        .unwrap_or_default()
}

/// A word of the one that has this number.
fn word(tag: u32, count: u32) -> [u8; 8] {
    ((u64::from(tag) << 32) | u64::from(count)).to_be_bytes()
}

/// Looks that all words of a stream are of the same one, from wherever it was read.
#[derive(Default)]
struct Canary {
    tag: Option<[u8; 4]>,
    word: Vec<u8>,
}

impl Canary {
    fn sees(&mut self, bytes: &[u8]) -> Result<(), String> {
        for &byte in bytes {
            self.word.push(byte);
            if self.word.len() == 4 {
                let found = [self.word[0], self.word[1], self.word[2], self.word[3]];
                let tag = *self.tag.get_or_insert(found);
                if tag != found {
                    return Err(format!("another's bytes: {found:?} in a stream of {tag:?}"));
                }
            }
            if self.word.len() == 8 {
                self.word.clear();
            }
        }
        Ok(())
    }
}

fn ask(stream: &mut (impl Read + Write), word: [u8; 8]) -> Result<(), String> {
    let mut back = [0; 8];
    stream.write_all(&word).map_err(said)?;
    stream.read_exact(&mut back).map_err(said)?;
    match back == word {
        true => Ok(()),
        false => Err(format!("{back:?} is no answer to {word:?}")),
    }
}

/// Writes without an end, until so many bytes have come back. The connection stays as it is then, and the text under way.
fn talk(mut stream: netchan::TcpStream, tag: u32, bytes: u64) -> Result<(), String> {
    stream.set_read_timeout(Some(SOON)).map_err(said)?;
    let mut writer = stream.try_clone().map_err(said)?;
    thread::spawn(move || {
        let block = word(tag, 1).repeat(1 << 10);
        while writer.write_all(&block).is_ok() {}
    });
    let (mut canary, mut block, mut read) = (Canary::default(), vec![0; 1 << 16], 0);
    canary.tag = Some(tag.to_be_bytes());
    while read <= bytes {
        let n = stream.read(&mut block).map_err(said)?;
        if n == 0 {
            return Err("its connection has ended".into());
        }
        canary.sees(&block[..n])?;
        read += n as u64;
    }
    // It is open until the end, which is no end of this function.
    std::mem::forget(stream);
    Ok(())
}

/// Sends back what comes, of TCP and of UDP; ends where that is not one's own.
pub fn serve() -> Result<String, String> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).map_err(said)?;
    let datagrams = UdpSocket::bind(("0.0.0.0", PORT)).map_err(said)?;
    thread::spawn(move || {
        let mut bytes = [0; 2048];
        loop {
            // Errors are of those that have gone.
            if let Ok((n, from)) = datagrams.recv_from(&mut bytes) {
                let _ = datagrams.send_to(&bytes[..n], from);
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    loop {
        let (stream, _) = listener.accept().map_err(said)?;
        thread::spawn(move || {
            if let Err(why) = give_back(stream) {
                eprintln!("{why}");
                process::exit(1);
            }
        });
    }
}

fn give_back(mut stream: TcpStream) -> Result<(), String> {
    let (mut canary, mut block) = (Canary::default(), vec![0; 1 << 16]);
    loop {
        let Ok(n @ 1..) = stream.read(&mut block) else {
            return Ok(());
        };
        canary.sees(&block[..n])?;
        if stream.write_all(&block[..n]).is_err() {
            return Ok(());
        }
    }
}

/// Asks the server again and again, until a file is there; each answer has to come in time.
pub fn witness(stop: &str) -> Result<String, String> {
    let (mut asked, mut slowest, tag) = (0_u32, Duration::ZERO, process::id());
    let address = server_at(OURS[0])?;
    while !fs::exists(stop).map_err(said)? {
        let mut stream = TcpStream::connect_timeout(&address, SOON).map_err(said)?;
        stream.set_read_timeout(Some(SOON)).map_err(said)?;
        for _ in 0..64 {
            let begin = now();
            ask(&mut stream, word(tag, asked)).map_err(|e| format!("question {asked}: {e}"))?;
            slowest = slowest.max(begin.elapsed());
            asked = asked.wrapping_add(1);
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(format!("{asked} answers, the slowest after {slowest:?}"))
}

/// How many ports a lease of its own gets, and whether these are free: `first` and the `count` behind it.
pub fn ports(socket: &str, first: &str, count: &str) -> Result<String, String> {
    let (first, count): (u16, u16) = (number(first)?, number(count)?);
    let client = Client::connect(Path::new(socket)).map_err(said)?;
    let (terms, _files) = client.attach("", "ports", "", None).map_err(said)?;
    for port in first..first + count {
        let address = SocketAddr::from(([0; 4], port));
        let transport = Transport::Tcp;
        let answer = exchange(
            &client,
            &Request::Bind(Binding { transport, address }, Reuse::default()),
        )?;
        if !answer.contains("done") {
            return Err(format!("port {port}: {answer}"));
        }
    }
    let mut all: u32 = terms.ports.iter().map(|range| range.count()).sum();
    loop {
        let answer = exchange(&client, &Request::MorePorts)?;
        let Ok(netchan::link::lease::Answer::Ports(more)) = serde_json::from_str(&answer) else {
            return Ok(all.to_string());
        };
        all += more.iter().map(|range| range.count()).sum::<u32>();
    }
}

fn exchange(client: &Client, request: &Request) -> Result<String, String> {
    send(client, request)?;
    let mut text = vec![0; MESSAGE_MAX];
    let flags = rustix::net::RecvFlags::empty();
    let (n, _) = rustix::net::recv(client, &mut text[..], flags).map_err(said)?;
    Ok(String::from_utf8_lossy(&text[..n]).into_owned())
}
