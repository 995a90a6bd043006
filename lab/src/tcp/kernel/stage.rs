//! Two network namespaces with a TAP and a kernel's TCP each, and the programs in them, which end with the pipe that this process holds: however it
//! ends, nothing stays.

use std::{
    io::Read as _,
    process::{Child, Stdio},
    thread::{self, JoinHandle},
};

use netchan::link::{
    Link as _,
    tap::{Options, Tap},
};

use crate::namespace::{Namespace, need_root};

/// Addresses of the sending and the receiving kernel.
const ADDRESSES: [&str; 2] = ["10.91.0.1", "10.91.0.2"];
/// Bytes that a socket's buffer may grow to: more than four times the path.
const BUFFER: u32 = 16 << 20;

/// Before each program: it ends when its input does.
const ENDS: &str = "
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
";

/// Sends for ever.
const SENDER: &str = "
import socket, sys, time
host, port, control = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for _ in range(200):
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    try:
        s.connect((host, port)); break
    except OSError:
        time.sleep(0.05)
data = bytes(1 << 16)
try:
    while True:
        s.sendall(data)
except OSError:
    pass
";

/// Says how many megabits a second came between two times.
const RECEIVER: &str = "
import socket, sys, time
port, start, stop = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
l = socket.socket(); l.bind(('', port)); l.listen()
c, _ = l.accept()
zero = time.monotonic()
got = 0
while time.monotonic() < zero + stop:
    n = len(c.recv(1 << 18))
    if time.monotonic() >= zero + start:
        got += n
print(got * 8 / 1e6 / (stop - start), flush=True)
";

/// Transfers one after the other on each of several ports; says when each began.
const CLIENT: &str = "
import socket, sys, threading, time
host, port, count, size, workers, control = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
began = [[] for _ in range(workers)]
def work(k):
    for i in range(count):
        while True:
            at = time.monotonic()
            s = socket.socket()
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            try:
                s.connect((host, port + k)); break
            except OSError:
                time.sleep(0.2)
        s.sendall(bytes(size))
        while s.recv(1 << 16): pass
        s.close()
        began[k].append(at)
threads = [threading.Thread(target=work, args=(k,)) for k in range(workers)]
for t in threads: t.start()
for t in threads: t.join()
print(*[at for b in began for at in b], flush=True)
";

/// The other end; says when it had read each. It closes first: a FIN behind the text would be one more segment that tells of a lost last one.
const SERVER: &str = "
import socket, sys, threading, time
port, count, workers, size = (int(a) for a in sys.argv[1:5])
ended = [[] for _ in range(workers)]
def work(k):
    l = socket.socket(); l.bind(('', port + k)); l.listen()
    for i in range(count):
        c, _ = l.accept()
        left = size
        while left: left -= len(c.recv(1 << 18)) or left
        ended[k].append(time.monotonic())
        c.close()
threads = [threading.Thread(target=work, args=(k,)) for k in range(workers)]
for t in threads: t.start()
for t in threads: t.join()
print(*[at for e in ended for at in e], flush=True)
";

/// What a program will have printed.
pub(super) struct Answer(JoinHandle<std::io::Result<String>>);

impl Answer {
    pub fn is_there(&self) -> bool {
        self.0.is_finished()
    }

    /// The figures in it.
    pub fn figures(self) -> Result<Vec<f64>, String> {
        let said = self.0.join().map_err(|_| "a program's reader failed")?;
        let said = said.map_err(|e| e.to_string())?;
        let figures: Result<Vec<f64>, _> = said.split_whitespace().map(str::parse).collect();
        figures.map_err(|_| format!("a program said {said:?}"))
    }
}

/// The namespaces, and what runs in them.
pub(super) struct Stage {
    namespaces: Vec<Namespace>,
    children: Vec<Child>,
}

/// A TAP for each side, still in this process's namespace.
pub(super) fn open_taps() -> Result<[Tap; 2], String> {
    need_root()?;
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

impl Stage {
    pub fn new(taps: &[Tap; 2]) -> Result<Self, String> {
        let mut stage = Self {
            namespaces: Vec::new(),
            children: Vec::new(),
        };
        for (side, tap) in taps.iter().enumerate() {
            let name = &tap.properties().name;
            let device = name.rsplit(':').next().unwrap_or(name);
            stage.namespaces.push(Namespace::new()?);
            stage.place(side, device)?;
        }
        Ok(stage)
    }

    /// One TAP and one address in a namespace. What one connection learned of the path is not told to the next: each figure is a connection's own.
    fn place(&self, side: usize, tap: &str) -> Result<(), String> {
        let inside = &self.namespaces[side];
        let address = format!("{}/24", ADDRESSES[side]);
        inside.take_in(tap)?;
        inside.run("ip", &["link", "set", tap, "txqueuelen", "10000"])?;
        inside.run("ip", &["addr", "add", &address, "dev", tap])?;
        inside.run("ip", &["link", "set", tap, "up"])?;
        let buffers = format!("4096 131072 {BUFFER}");
        let settings = [
            ("net.ipv4.tcp_rmem", buffers.as_str()),
            ("net.ipv4.tcp_wmem", &buffers),
            ("net.ipv4.tcp_no_metrics_save", "1"),
        ];
        for (key, value) in settings {
            inside.run("sysctl", &["-qw", &format!("{key}={value}")])?;
        }
        Ok(())
    }

    fn start(&mut self, side: usize, program: &str, arguments: &[&str]) -> Result<Answer, String> {
        let program = format!("{ENDS}{program}");
        let mut child = (self.namespaces[side].command("python3"))
            .args(["-c", &program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("python3: {e}"))?;
        let out = child.stdout.take();
        self.children.push(child);
        let mut out = out.ok_or("a program without output")?;
        Ok(Answer(thread::spawn(move || {
            let mut said = String::new();
            out.read_to_string(&mut said).map(|_| said)
        })))
    }

    /// An endless transfer under `control` to `port`: the rate between two times, in seconds.
    pub fn bulk(&mut self, port: u16, control: &str, span: (f64, f64)) -> Result<Answer, String> {
        let port = port.to_string();
        let (from, to) = (span.0.to_string(), span.1.to_string());
        let answer = self.start(1, RECEIVER, &[&port, &from, &to])?;
        self.start(0, SENDER, &[ADDRESSES[1], &port, control])?;
        Ok(answer)
    }

    /// `count` transfers of `bytes` on each of `workers` ports: when each began and when it was read.
    pub fn transfers(
        &mut self,
        port: u16,
        control: &str,
        (workers, count): (usize, usize),
        bytes: u64,
    ) -> Result<[Answer; 2], String> {
        let [port, workers, count] = [port.into(), workers, count].map(|n: usize| n.to_string());
        let bytes = bytes.to_string();
        let ended = self.start(1, SERVER, &[&port, &count, &workers, &bytes])?;
        let arguments = [ADDRESSES[1], &port, &count, &bytes, &workers, control];
        Ok([self.start(0, CLIENT, &arguments)?, ended])
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Gone is what it shall be, by itself or by us.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
