//! Live stacks, and a `netchan web` that shows them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use netchan::{Net, link::wire};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_netchan");

/// Two stacks on a wire, each with a control socket: one echoes, the other asks it on two connections.
pub struct Live {
    pub server: Arc<Net>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Live {
    pub fn new() -> Self {
        let (ours, theirs) = wire::pair(&wire::Options::default());
        let start = |link, address: &str| {
            let net = Net::builder().control(true).link_with(link);
            Arc::new(net.address(address).unwrap().start().unwrap())
        };
        let server = start(Box::new(ours), "10.0.0.1/24");
        let client = start(Box::new(theirs), "10.0.0.2/24");
        let listener = server.tcp().listen("10.0.0.1:80").unwrap();
        let echo = thread::spawn(move || {
            let one = |_| {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut block = [0; 1000];
                    while let Ok(n @ 1..) = stream.read(&mut block) {
                        stream.write_all(&block[..n]).unwrap();
                    }
                })
            };
            let both: Vec<_> = (0..2).map(one).collect();
            for one in both {
                one.join().unwrap();
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..2).map(|i| {
            let (client, stop) = (client.clone(), stop.clone());
            thread::spawn(move || {
                let mut stream = client.tcp().connect("10.0.0.1:80").unwrap();
                let nowhere = client.udp().bind("10.0.0.2:0").unwrap();
                let mut block = vec![0; 100 + 800 * i];
                while !stop.load(SeqCst) {
                    stream.write_all(&block).unwrap();
                    stream.read_exact(&mut block).unwrap();
                    // For no socket: a drop with a reason.
                    let _ = nowhere.send_to(b"x", "10.0.0.1:9");
                    thread::sleep(Duration::from_millis(5));
                }
            })
        });
        let threads = clients.chain([echo]).collect();
        Self {
            server,
            stop,
            threads,
        }
    }

    /// The value of a setting of the server.
    pub fn setting(&self, name: &str) -> Value {
        let facts = self.server.show("settings").unwrap();
        let rows = facts.as_array().unwrap().iter();
        let row = rows.clone().find(|row| row["name"] == name);
        row.map(|row| row["value"].clone()).unwrap_or_default()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A `netchan web` that shows the stacks of this process, ended with this.
pub struct Served {
    child: Child,
    pub url: String,
}

impl Served {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.env_remove("LD_PRELOAD").args(["web", "--listen"]);
        command.args(["127.0.0.1:0", "--pid", &std::process::id().to_string()]);
        command.args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("netchan web: ").unwrap();
        Self {
            child,
            url: url.to_owned(),
        }
    }

    pub fn address(&self) -> SocketAddr {
        let address = self.url.strip_prefix("http://").unwrap();
        address.split('/').next().unwrap().parse().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
