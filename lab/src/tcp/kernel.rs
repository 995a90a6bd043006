//! Linux on the same path, in real time: two network namespaces, a TAP in each, and a relay between them that is the world's own link code.
//!
//! One of netchan's connections can run beside, through the same bottleneck: its ends live in the relay.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use netchan::{
    link::{
        Link as _,
        tap::{Options, Tap},
    },
    packet::Packet as Frame,
};
use percore::{clock::now_ns, slab::Slab};
use proto::{
    ip::Ecn,
    tcp::{CongestionControl, SegmentPool},
    time::{Duration, Instant},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::paths::{ENDLESS, Path, netchan_end};
use crate::world::{
    endpoint::{Endpoint, Segment},
    link::{Link, Packet},
    text::Text,
};

/// Addresses of the sending and the receiving kernel.
const ADDRESSES: [&str; 2] = ["10.91.0.1", "10.91.0.2"];
/// Buffers of a kernel's socket, in bytes: more than four times the path.
const BUFFER: u32 = 16 << 20;

/// What the kernel's ends run: one sends for ever, the other says how much came.
const SENDER: &str = "
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[2].encode())
for _ in range(100):
    try:
        s.connect((sys.argv[1], 5001)); break
    except OSError:
        time.sleep(0.05)
data = bytes(1 << 16)
try:
    while True:
        s.sendall(data)
except OSError:
    pass
";
const RECEIVER: &str = "
import socket, sys, time
l = socket.socket(); l.bind(('', 5001)); l.listen()
c, _ = l.accept()
begin, end = time.monotonic() + float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
got = 0
while time.monotonic() < end:
    n = len(c.recv(1 << 18))
    if time.monotonic() >= begin:
        got += n
print(got * 8 / 1e6 / (float(sys.argv[2]) - float(sys.argv[1])), flush=True)
";

/// Two kernels and what is between them.
struct Stage {
    names: [String; 2],
    children: Vec<Child>,
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let out = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", arguments.join(" "), said.trim())),
    }
}

impl Stage {
    fn new(taps: &[Tap; 2]) -> Result<Self, String> {
        let id = std::process::id();
        let stage = Self {
            names: ["a", "b"].map(|side| format!("ncw-{id}-{side}")),
            children: Vec::new(),
        };
        for (side, tap) in taps.iter().enumerate() {
            let name = &tap.properties().name;
            let device = name.rsplit(':').next().unwrap_or(name);
            stage.place(side, device)?;
        }
        Ok(stage)
    }

    /// A namespace with one TAP and one address.
    fn place(&self, side: usize, tap: &str) -> Result<(), String> {
        let name = self.names[side].as_str();
        let address = format!("{}/24", ADDRESSES[side]);
        ip(&["netns", "add", name])?;
        ip(&["link", "set", tap, "netns", name])?;
        ip(&["-n", name, "addr", "add", &address, "dev", tap])?;
        ip(&["-n", name, "link", "set", tap, "up"])?;
        let set = |key: &str, value: &str| {
            let setting = format!("{key}={value}");
            ip(&["netns", "exec", name, "sysctl", "-qw", &setting])
        };
        set("net.ipv4.tcp_rmem", &format!("4096 131072 {BUFFER}"))?;
        set("net.ipv4.tcp_wmem", &format!("4096 131072 {BUFFER}"))
    }

    fn start(&mut self, side: usize, program: &str, arguments: &[&str]) -> Result<(), String> {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.names[side], "python3", "-c", program])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("python3: {e}"))?;
        self.children.push(child);
        Ok(())
    }
}

fn open_taps() -> Result<[Tap; 2], String> {
    let options = Options {
        mtu: Some(1500),
        plain: true,
        ..Options::default()
    };
    let id = std::process::id() % 1_000_000;
    let open = |side: &str| Tap::open(&format!("nw{id}{side}"), &options);
    let taps = open("a").and_then(|a| Ok([a, open("b")?]));
    taps.map_err(|e| e.to_string())
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Gone is what it shall be, by itself or by us.
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// What is on its way.
#[derive(Clone)]
enum Body {
    Frame(Vec<u8>),
    Ours(Segment),
}

/// The two ways, and our own ends at theirs.
struct Relay {
    taps: [Tap; 2],
    links: [Link<Body>; 2],
    ours: Option<[(Endpoint, SegmentPool<Text>); 2]>,
    slab: Slab,
    burst: VecDeque<Frame>,
    out: Vec<Segment>,
}

impl Relay {
    /// Everything that is due now.
    fn turn(&mut self, now: Instant) -> Result<(), String> {
        for (side, other) in [(0, 1), (1, 0)] {
            let taken = self.taps[side].receive(now, &mut self.slab, &mut self.burst, 64);
            taken.map_err(|e| e.to_string())?;
            while let Some(frame) = self.burst.pop_front() {
                let bytes = frame.bytes().to_vec();
                // Neighbours are found without delay: they are not what is measured.
                if bytes.get(12..14) == Some(&[0x08, 0x06]) {
                    self.deliver(other, &bytes, now)?;
                } else {
                    self.enter(side, bytes.len() - 14, Body::Frame(bytes), now);
                }
            }
            while let Some(packet) = self.links[side].poll(now) {
                match packet.body {
                    Body::Frame(bytes) => self.deliver(other, &bytes, now)?,
                    Body::Ours(segment) => self.ours(other, now, |end, pool, out| {
                        end.receive(&segment, pool, now, out);
                    }),
                }
            }
            self.ours(side, now, |end, pool, out| {
                if end.next() <= now {
                    end.wake(pool, now, out);
                }
            });
        }
        Ok(())
    }

    fn enter(&mut self, side: usize, size: usize, body: Body, now: Instant) {
        let packet = Packet {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            ecn: Ecn::NotEct,
            body,
        };
        // What does not fit is gone; nothing here is larger than the path.
        let _ = self.links[side].send(packet, now);
    }

    fn deliver(&mut self, side: usize, bytes: &[u8], now: Instant) -> Result<(), String> {
        let Some(buffer) = self.slab.alloc() else {
            return Err("the relay is out of buffers".to_owned());
        };
        let mut frame = Frame::new(buffer, 0);
        frame.room_mut()[..bytes.len()].copy_from_slice(bytes);
        frame.set_len(bytes.len());
        let mut one = VecDeque::from([frame]);
        let sent = self.taps[side].transmit(now, &mut one);
        sent.map(|_| ()).map_err(|e| e.to_string())
    }

    /// Our end on this side acts; what it sends goes into the same link as the kernel's.
    fn ours(
        &mut self,
        side: usize,
        now: Instant,
        act: impl FnOnce(&mut Endpoint, &mut SegmentPool<Text>, &mut Vec<Segment>),
    ) {
        let Some(ends) = &mut self.ours else { return };
        let (end, pool) = &mut ends[side];
        let mut out = std::mem::take(&mut self.out);
        act(end, pool, &mut out);
        for segment in out.drain(..) {
            let size = segment.size() as usize;
            self.enter(side, size, Body::Ours(segment), now);
        }
        self.out = out;
    }

    /// Until something happens.
    fn sleep(&self, now: Instant) {
        let ends = self.ours.iter().flatten().map(|(end, _)| end.next());
        let links = self.links.iter().map(Link::next);
        let next = ends.chain(links).min().unwrap_or(Instant::FAR);
        let most = next.since(now).min(Duration::from_millis(10));
        let timeout = Timespec::try_from(most).ok();
        let fds = self.taps.each_ref().map(|tap| tap.fd());
        let mut fds: Vec<_> = fds
            .iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        // Woken early is as good as in time.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

fn our_end(sends: bool, congestion: CongestionControl, now: Instant) -> Endpoint {
    let opens_at = sends.then_some(now + Duration::from_millis(300));
    let shape = netchan_end(congestion, sends.then_some(ENDLESS), opens_at, 5);
    let ports = if sends { (1, 2) } else { (2, 1) };
    Endpoint::new(shape, ports, if sends { (0, 1) } else { (1, 0) })
}

/// Megabits a second that the kernel's flow gets under `control`, and one of ours beside it if asked for, between two times after their beginning.
///
/// # Errors
/// What is missing for it, root for instance.
pub fn rates(
    path: &Path,
    control: &str,
    ours: Option<CongestionControl>,
    seed: u64,
    (from, to): (Duration, Duration),
) -> Result<(f64, Option<f64>), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it takes root to make network namespaces".to_owned());
    }
    let taps = open_taps()?;
    let mut stage = Stage::new(&taps)?;
    let seconds = |d: Duration| d.as_secs_f64().to_string();
    stage.start(1, RECEIVER, &[&seconds(from), &seconds(to)])?;
    stage.start(0, SENDER, &[ADDRESSES[1], control])?;
    let Some(said) = stage.children[0].stdout.take() else {
        return Err("no receiver".to_owned());
    };
    let answer = std::thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).map(|_| line)
    });
    let begin = Instant(now_ns());
    let ends = ours.map(|congestion| {
        [true, false].map(|sends| {
            let end = our_end(sends, congestion, begin);
            (end, SegmentPool::with_capacity(1 << 15))
        })
    });
    let mut relay = Relay {
        taps,
        links: [
            Link::new(path.bottleneck(), seed),
            Link::new(path.back(), seed + 1),
        ],
        ours: ends,
        slab: Slab::new(1024, 2048).map_err(|e| e.to_string())?,
        burst: VecDeque::new(),
        out: Vec::new(),
    };
    let read = |relay: &Relay| relay.ours.as_ref().map(|ends| ends[1].0.read_bytes());
    let (mut before, mut after) = (None, None);
    let limit = begin + to + Duration::from_secs(20);
    while !answer.is_finished() {
        let now = Instant(now_ns());
        if now > limit {
            return Err("the kernel's transfer did not end in time".to_owned());
        }
        relay.turn(now)?;
        if before.is_none() && now >= begin + from {
            before = read(&relay);
        }
        if after.is_none() && now >= begin + to {
            after = read(&relay);
        }
        relay.sleep(Instant(now_ns()));
    }
    let line = answer.join().map_err(|_| "the receiver's reader failed")?;
    let line = line.map_err(|e| e.to_string())?;
    let rate = line.trim().parse();
    let rate = rate.map_err(|_| format!("the receiver said {line:?}"))?;
    let got = before
        .zip(after)
        .map(|(a, b)| megabits(b - a) / (to - from).as_secs_f64());
    Ok((rate, got))
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6
}
