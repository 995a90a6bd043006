//! The two programs of the experiment, on std's sockets: they know nothing of netchan. Each is a process of its own, `netchan __inner application ROLE`;
//! it says a line when it is ready and a line with what came of it, and ends with its standard input.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::FileExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use netchan::link::lease::Client;
use serde::{Deserialize, Serialize};

use crate::kit::Stopwatch;

/// No byte takes so long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that one write of a stream hands over.
const BLOCK: usize = 256 << 10;

/// Where a server is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum At {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What a process is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Sends each byte back, one connection after another.
    Echo { at: At, spins: bool },
    /// One byte there and back: so many times to warm up, so many that count. Says [`Latency`].
    Ask {
        at: At,
        spins: bool,
        warm: u32,
        times: u32,
    },
    /// Reads a connection to its end, then says the rate in bits a second.
    Sink { at: At },
    /// Writes for so long.
    Source { at: At, time: Duration },
    /// Accepts so many connections, and keeps them.
    Hold { at: At, connections: usize },
    /// Opens so many, and keeps them.
    Open { at: At, connections: usize },
    /// Takes a lease of the daemon at this socket, and writes random words over all that it shares with it; says how many a second.
    Scribble { daemon: PathBuf, seed: u64 },
}

/// How long requests took, ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Takes the next connection, which is to spin or not.
type Accept = Box<dyn Fn(bool) -> io::Result<Box<dyn Stream>>>;

impl At {
    fn listen(&self) -> io::Result<Accept> {
        Ok(match self {
            Self::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                Box::new(move |spins| tcp(listener.accept()?.0, spins))
            }
            Self::Unix(path) => {
                let listener = UnixListener::bind(path)?;
                Box::new(move |spins| unix(listener.accept()?.0, spins))
            }
        })
    }

    fn connect(&self, spins: bool) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(address) => tcp(TcpStream::connect_timeout(address, PATIENCE)?, spins),
            Self::Unix(path) => unix(UnixStream::connect(path)?, spins),
        }
    }
}

fn tcp(stream: TcpStream, spins: bool) -> io::Result<Box<dyn Stream>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nonblocking(spins)?;
    Ok(Box::new(stream))
}

fn unix(stream: UnixStream, spins: bool) -> io::Result<Box<dyn Stream>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nonblocking(spins)?;
    Ok(Box::new(stream))
}

/// Looks of one that spins between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// A read of a socket that waits, or, where it `spins`, is asked again and again; for [`PATIENCE`] at most.
fn read(stream: &mut dyn Stream, spins: bool, bytes: &mut [u8]) -> io::Result<usize> {
    let (mut looks, mut watch) = (0_u32, None);
    loop {
        match stream.read(bytes) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // One that waits has waited for so long when it says this.
            Err(e) if e.kind() == ErrorKind::WouldBlock && spins => {
                looks = looks.wrapping_add(1);
                if looks % LOOKS == 0 {
                    let begun: &Stopwatch = watch.get_or_insert_with(Stopwatch::start);
                    if begun.seconds() > PATIENCE.as_secs_f64() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                std::hint::spin_loop();
            }
            done => return done,
        }
    }
}

/// Says a line, at once.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Until standard input ends.
fn stay() {
    while !matches!(io::stdin().read(&mut [0; 64]), Ok(0) | Err(_)) {}
}

/// Plays a role to its end.
///
/// # Errors
/// What is no role, and what its sockets say.
pub fn application(role: &str) -> Result<(), String> {
    let role: Role = serde_json::from_str(role).map_err(|e| e.to_string())?;
    play(role).map_err(|e| e.to_string())
}

fn play(role: Role) -> io::Result<()> {
    match role {
        Role::Echo { at, spins } => {
            let accept = at.listen()?;
            say("ready")?;
            loop {
                let mut stream = accept(spins)?;
                let mut bytes = [0; 64];
                while let Ok(n) = read(&mut *stream, spins, &mut bytes)
                    && n > 0
                {
                    stream.write_all(&bytes[..n])?;
                }
            }
        }
        Role::Ask {
            at,
            spins,
            warm,
            times,
        } => {
            let latency = ask(&mut *at.connect(spins)?, spins, (warm, times))?;
            say(&serde_json::to_string(&latency)?)
        }
        Role::Sink { at } => {
            let accept = at.listen()?;
            say("ready")?;
            let rate = sink(&mut *accept(false)?)?;
            say(&rate.to_string())
        }
        Role::Source { at, time } => {
            let (mut stream, block) = (at.connect(false)?, vec![7; BLOCK]);
            let watch = Stopwatch::start();
            while watch.seconds() < time.as_secs_f64() {
                stream.write_all(&block)?;
            }
            Ok(())
        }
        Role::Hold { at, connections } => {
            let accept = at.listen()?;
            say("ready")?;
            let _held = (0..connections)
                .map(|_| accept(false))
                .collect::<io::Result<Vec<_>>>()?;
            say("all")?;
            stay();
            Ok(())
        }
        Role::Open { at, connections } => {
            let open = |_| at.connect(false);
            let _held = (0..connections).map(open).collect::<io::Result<Vec<_>>>()?;
            say("all")?;
            stay();
            Ok(())
        }
        Role::Scribble { daemon, seed } => scribble(&daemon, seed),
    }
}

fn ask(stream: &mut dyn Stream, spins: bool, (warm, times): (u32, u32)) -> io::Result<Latency> {
    let mut latency =
        Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3).map_err(io::Error::other)?;
    for number in 0..warm + times {
        let watch = Stopwatch::start();
        stream.write_all(&[7])?;
        if read(stream, spins, &mut [0])? != 1 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if number >= warm {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // seconds, at most
            latency.saturating_record((watch.seconds() * 1e9) as u64);
        }
    }
    Ok(Latency {
        p50: latency.value_at_quantile(0.5),
        p99: latency.value_at_quantile(0.99),
    })
}

/// Bits a second, from the first byte to the last.
fn sink(stream: &mut dyn Stream) -> io::Result<f64> {
    let mut block = vec![0; BLOCK];
    let first = read(stream, false, &mut block)?;
    let watch = Stopwatch::start();
    let (mut bytes, mut seconds) = (0.0, 0.0);
    let mut n = first;
    while n > 0 {
        n = read(stream, false, &mut block)?;
        #[allow(clippy::cast_precision_loss)] // at most BLOCK
        {
            bytes += n as f64;
        }
        seconds = watch.seconds();
    }
    Ok(bytes * 8.0 / seconds)
}

/// Writes random words at random places of what it was given, and wakes the daemon each time, until standard input ends.
fn scribble(daemon: &std::path::Path, seed: u64) -> io::Result<()> {
    let client = Client::connect(daemon)?;
    let (_, files) = client.attach("", "scribbler", "", None)?;
    let [inward, outward, edge, socket, _news] = files;
    let files = [inward, outward, edge].map(File::from);
    let lengths = files
        .each_ref()
        .map(|file| file.metadata().map_or(0, |m| m.len()));
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    say("ready")?;
    let ended = thread::spawn(stay);
    let (watch, mut random, mut times) = (Stopwatch::start(), seed | 1, 0_u32);
    while !ended.is_finished() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let which = (random % 3) as usize;
        let at = (random >> 8) % lengths[which].max(1);
        // Some of it may be for reading only, and the daemon's bell full: that is its affair.
        let _ = files[which].write_at(&random.to_le_bytes(), at & !7);
        let _ = (&socket).write(&[0]);
        times = times.wrapping_add(1);
    }
    say(&(f64::from(times) / watch.seconds()).to_string())
}
