//! The other end of a case: what this binary does when a case starts it inside a namespace (`--inner WORK ...`).

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use netchan::{
    Clock,
    link::{Queue, specification},
    packet::Packet,
};
use percore::slab::Slab;

use crate::{
    frames::{Ends, Random, Segment, corpus, mutate, tcp},
    storm::program as storm,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Does the work that `arguments` name; 0 done, 1 failed.
pub fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["instructions"] => crate::instructions::inner(),
        ["leftovers"] => crate::leftovers::inner(),
        ["probe", address] => probe(address),
        ["connections", address, count, at_once] => connections(address, count, at_once),
        ["scan", address, ports, open] => scan(address, ports, open),
        ["crowd", link] => crate::crowd::serve(link),
        ["differential", link, seed, rough] => crate::differential::inner(link, seed, rough),
        ["flood", link, mac, seconds] => flood(link, mac, seconds),
        ["probes", link, mac] => crate::probes::inner(link, mac),
        ["urgent", link] => crate::urgent::inner(link),
        ["fuzz", link, mac, seconds, seed] => fuzz(link, mac, seconds, seed),
        ["storm", socket, point, end, seed, port] => storm::one(socket, [point, end, seed, port]),
        ["orphan", call] => crate::orphans::wait(call),
        ["storm-server"] => storm::serve(),
        ["storm-witness", stop] => storm::witness(stop),
        ["storm-ports", socket, first, count] => storm::ports(socket, first, count),
        _ => Err(format!("no such work: {words:?}")),
    };
    match done {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} makes no sense"))
}

/// Whether a server accepts connections there.
fn probe(address: &str) -> Result<String, String> {
    let address: SocketAddr = parse(address)?;
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).map_err(|e| e.to_string())?;
    Ok("open".to_owned())
}

/// Opens `count` connections to an echo server, all open together, uses and closes them; `at_once` threads do so.
fn connections(address: &str, count: &str, at_once: &str) -> Result<String, String> {
    let (address, count, threads): (SocketAddr, usize, usize) =
        (parse(address)?, parse(count)?, parse(at_once)?);
    let work = |number: usize| -> Result<(), String> {
        let mut open = Vec::with_capacity(count / threads);
        for i in 0..count / threads {
            let stream = TcpStream::connect_timeout(&address, PATIENCE);
            let stream = stream.map_err(|e| format!("connection {i} of thread {number}: {e}"))?;
            stream
                .set_read_timeout(Some(PATIENCE))
                .map_err(|e| e.to_string())?;
            open.push(stream);
        }
        for (i, stream) in open.iter_mut().enumerate() {
            let sent = [(i % 251).to_le_bytes(), number.to_le_bytes()].concat();
            let mut got = vec![0; sent.len()];
            let used = stream
                .write_all(&sent)
                .and_then(|()| stream.read_exact(&mut got));
            used.map_err(|e| format!("use of connection {i} of thread {number}: {e}"))?;
            if got != sent {
                return Err(format!(
                    "connection {i} of thread {number} got another's bytes"
                ));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    Ok(format!("{count} connections"))
}

/// Tries all `ports` (`first:last`): all must refuse, but the one that is `open`.
fn scan(address: &str, ports: &str, open: &str) -> Result<String, String> {
    let (address, open): (SocketAddr, u16) = (parse(address)?, parse(open)?);
    let (first, last) = ports
        .split_once(':')
        .ok_or("ports are written first:last")?;
    let (first, last): (usize, u16) = (parse(first)?, parse(last)?);
    let next = AtomicUsize::new(first);
    let work = || -> Result<(), String> {
        // Relaxed: the counter hands out numbers and publishes nothing.
        while let Ok(port) = u16::try_from(next.fetch_add(1, Relaxed))
            && port <= last
        {
            let target = SocketAddr::new(address.ip(), port);
            match TcpStream::connect_timeout(&target, PATIENCE) {
                Ok(_) if port == open => {}
                Err(e) if e.kind() == ErrorKind::ConnectionRefused && port != open => {}
                Ok(_) => return Err(format!("port {port} is open")),
                Err(e) => return Err(format!("port {port}: {e}")),
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    Ok(format!("ports {ports}"))
}

/// `02:00:00:00:00:01`.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Result<Vec<u8>, _> = text.split(':').map(|b| u8::from_str_radix(b, 16)).collect();
    bytes
        .ok()
        .and_then(|b| b.try_into().ok())
        .ok_or_else(|| format!("{text:?} is no MAC address"))
}

/// A raw sender: frames leave as they are, through a packet socket on the kernel's end.
struct Sender {
    link: Queue,
    slab: Slab,
    clock: Clock,
    burst: VecDeque<Packet>,
    sent: u64,
}

impl Sender {
    fn open(link: &str) -> Result<Self, String> {
        let clock = Clock::Real;
        let specification = specification::parse(link).map_err(|e| e.to_string())?;
        let link = specification::open(&specification, &clock).map_err(|e| e.to_string())?;
        let slab = Slab::new(4096, 2048).map_err(|e| e.to_string())?;
        Ok(Self {
            link: Queue::of(link).map_err(|e| e.to_string())?,
            slab,
            clock,
            burst: VecDeque::new(),
            sent: 0,
        })
    }

    /// Queues a frame; every 32 leave together.
    fn send(&mut self, frame: &[u8]) -> Result<(), String> {
        if let Some(buffer) = self.slab.alloc() {
            let mut packet = Packet::new(buffer, 0);
            packet.room_mut()[..frame.len()].copy_from_slice(frame);
            packet.set_len(frame.len());
            self.burst.push_back(packet);
        }
        if self.burst.len() < 32 {
            return Ok(());
        }
        let before = self.burst.len();
        let sent = self.link.tx.transmit(self.clock.now(), &mut self.burst);
        sent.map_err(|e| e.to_string())?;
        self.sent += (before - self.burst.len()) as u64;
        // What the device would not take is not worth waiting for.
        self.burst.clear();
        Ok(())
    }
}

/// SYNs from everywhere to port 8000, for a while.
#[allow(clippy::disallowed_methods)] // how long, in the machine's time
fn flood(link: &str, target: &str, seconds: &str) -> Result<String, String> {
    let (mut sender, seconds) = (Sender::open(link)?, parse::<u64>(seconds)?);
    let mut ends = Ends::new(mac(target)?);
    let (mut random, begin) = (Random::new(1), Instant::now());
    while begin.elapsed() < Duration::from_secs(seconds) {
        let r = random.next().to_le_bytes();
        // From beyond the gateway, so that the answers go somewhere; never from the link's own network.
        ends.source = [172, 16 | (r[0] & 15), r[1], r[2]];
        ends.source6[..8].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, r[3], r[4], r[5], r[6]]);
        let syn = Segment {
            ports: (u16::from_le_bytes([r[4], r[5]]) | 1024, 8000),
            sequence: u32::from_le_bytes([r[0], r[1], r[2], r[3]]),
            acknowledgement: 0,
            flags: 2,
            options: &[2, 4, 5, 180],
            payload: &[],
        };
        sender.send(&tcp(&ends, r[7] & 1 == 1, &syn))?;
    }
    Ok(format!("{} SYNs", sender.sent))
}

/// Mutated frames of every kind, for a while.
#[allow(clippy::disallowed_methods)] // how long, in the machine's time
fn fuzz(link: &str, target: &str, seconds: &str, seed: &str) -> Result<String, String> {
    let (mut sender, seconds, seed) = (
        Sender::open(link)?,
        parse::<u64>(seconds)?,
        parse::<u64>(seed)?,
    );
    let mut ends = Ends::new(mac(target)?);
    let (mut random, begin) = (Random::new(seed), Instant::now());
    while begin.elapsed() < Duration::from_secs(seconds) {
        ends.source[3] = 3 + random.byte() % 200;
        for frame in corpus(&ends, &mut random) {
            let frame = if random.below(8) == 0 {
                frame
            } else {
                mutate(&frame, &mut random)
            };
            // The device refuses what is not even an Ethernet header.
            if frame.len() >= 14 {
                sender.send(&frame)?;
            }
        }
    }
    Ok(format!("{} frames, seed {seed}", sender.sent))
}
