//! The firewall between two kernels: one in this namespace, behind a router that masks it, one in another. And its language beside `nft`'s.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use netchan::{
    Net,
    module::{
        Boxed,
        firewall::{Firewall, Settings},
    },
};

use crate::{
    namespace::{self, ip},
    skips::skipped,
};

const SOON: Duration = Duration::from_secs(20);

const RULES: &str = "table inet router {
    chain prerouting {
        type nat hook prerouting priority dstnat;
        iifname \"nc1\" tcp dport 8080 dnat ip to 10.77.0.1:9000
    }
    chain postrouting {
        type nat hook postrouting priority srcnat;
        ip saddr 10.77.0.0/24 oifname \"nc1\" masquerade
    }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        ct state invalid counter drop
        tcp dport 8002 reject with tcp reset
        tcp dport 8003 reject with icmp type port-unreachable
        iifname \"nc0\" accept
        iifname \"nc1\" tcp dport 9000 accept
    }
}
";

/// Answers each connection with the address that it comes from, and a megabyte.
const SERVER: &str = "import socket
s = socket.create_server(('', 8001), backlog=16)
print('ready', flush=True)
while True:
    c, a = s.accept()
    c.sendall((a[0] + '\\n').encode() + bytes(1000000))
    c.close()
";

/// Says what became of a connection.
const ASK: &str = "import socket, sys
try:
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
    print(c.recv(100).decode())
except OSError as e:
    print(type(e).__name__)
";

/// Another network namespace, until it is dropped.
struct Far(Child);

impl Far {
    fn new() -> Self {
        let mut keeper = Command::new("unshare")
            .args(["-n", "--", "sh", "-c", "echo ready; exec sleep 300"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare(1) works here");
        wait_ready(&mut keeper);
        Self(keeper)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-n", "-t", &self.0.id().to_string(), "--", program]);
        command
    }

    fn ip(&self, arguments: &str) {
        let mut command = self.command("ip");
        let output = command.args(arguments.split_whitespace()).output();
        let output = output.expect("nsenter(1) and ip(8)");
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// What a connection from there gets.
    fn asks(&self, address: &str, port: u16) -> String {
        let mut command = self.command("python3");
        let output = command
            .args(["-c", ASK, address, &port.to_string()])
            .output()
            .expect("python3");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_ready(child: &mut Child) {
    let stdout = child.stdout.as_mut().expect("a pipe");
    let mut said = [0; 6];
    stdout.read_exact(&mut said).expect("it began");
    assert_eq!(&said, b"ready\n");
}

/// Connects to the far kernel. A TAP that has just changed its namespace takes a moment: tries again, a few times.
fn connect(port: u16) -> std::io::Result<TcpStream> {
    let target = ([192, 0, 2, 9], port).into();
    let mut tries = 0..5;
    loop {
        match TcpStream::connect_timeout(&target, SOON) {
            Err(e)
                if matches!(e.kind(), ErrorKind::HostUnreachable | ErrorKind::TimedOut)
                    && tries.next().is_some() => {}
            other => return other,
        }
    }
}

fn router() -> Net {
    let rules = Settings::new(RULES).unwrap_or_else(|fault| panic!("{fault}"));
    let net = Net::builder()
        .link("tap:nc0,peer=10.77.0.1/24")
        .and_then(|b| b.address("10.77.0.2/24"))
        .and_then(|b| b.link("tap:nc1"))
        .and_then(|b| b.address("192.0.2.1/24"))
        .map(|b| b.forwarding(true))
        .map(|b| {
            b.module(Boxed::any(
                Firewall::new("wall", rules).expect("randomness"),
            ))
        });
    net.and_then(netchan::Builder::start).expect("a router")
}

#[test]
fn a_kernel_behind_it_reaches_another_and_is_not_reached() {
    namespace::with_tap(
        "firewall::a_kernel_behind_it_reaches_another_and_is_not_reached",
        || {
            let net = router();
            let far = Far::new();
            ip("link set lo up");
            ip(&format!("link set nc1 netns {}", far.0.id()));
            far.ip("address add 192.0.2.9/24 dev nc1");
            far.ip("link set nc1 up");
            far.ip("link set lo up");
            far.ip("route add 10.77.0.0/24 via 192.0.2.1");
            ip("route add 192.0.2.0/24 via 10.77.0.2");
            let mut server = far.command("python3");
            let mut server = server
                .args(["-c", SERVER])
                .stdout(Stdio::piped())
                .spawn()
                .expect("python3");
            wait_ready(&mut server);

            // The far kernel sees the router's address, and all of it comes back.
            let mut all = Vec::new();
            connect(8001)
                .expect("a connection")
                .read_to_end(&mut all)
                .expect("all of it");
            let (line, rest) = all.split_at(all.iter().position(|&b| b == b'\n').expect("a line"));
            assert_eq!((line, rest.len()), (&b"192.0.2.1"[..], 1_000_001));

            // What is refused is refused at once, by a reset and by an ICMP error.
            for port in [8002, 8003] {
                let refused = connect(port).expect_err("a rule");
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{port}");
            }

            // An echo comes back; so does the far kernel's error about a datagram, which names the socket by its own port.
            let ping = Command::new("ping")
                .args(["-c", "1", "-W", "5", "192.0.2.9"])
                .output()
                .expect("ping(8)");
            assert!(ping.status.success(), "{ping:?}");
            let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(SOON)).expect("a time");
            socket.connect("192.0.2.9:7").expect("a route");
            socket.send(b"?").expect("it is sent");
            let error = socket.recv(&mut [0; 8]).expect_err("nothing listens there");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

            only_what_is_let_in(&far);

            let rules = net.show("rules").expect("rules");
            let rules = rules.as_array().expect("rows");
            let counted = |rule: &str| {
                rules
                    .iter()
                    .find(|row| row["rule"] == rule)
                    .expect("the rule")["packets"]
                    .as_u64()
            };
            assert_eq!(
                counted("tcp dport 8003 reject with icmp type port-unreachable"),
                Some(1)
            );
            assert_eq!(counted("ct state invalid counter drop"), Some(0));
            let _ = server.kill();
            let _ = server.wait();
        },
    );
}

/// From there, only what is let in: a port of the router's is this kernel's.
fn only_what_is_let_in(far: &Far) {
    let listener = TcpListener::bind("10.77.0.1:9000").expect("a port");
    let greets = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().expect("one");
        stream.write_all(b"hello").expect("it is there");
        peer.ip().to_string()
    });
    let closed = TcpListener::bind("10.77.0.1:9001").expect("a port");
    closed.set_nonblocking(true).expect("it can");
    assert_eq!(far.asks("10.77.0.1", 9001), "TimeoutError");
    assert_eq!(
        closed.accept().expect_err("nothing came").kind(),
        ErrorKind::WouldBlock
    );
    assert_eq!(far.asks("192.0.2.1", 8080), "hello");
    assert_eq!(greets.join().expect("it greets"), "192.0.2.9");
}

/// Files that are accepted here are accepted by `nft`, too.
#[test]
fn nft_accepts_what_is_accepted() {
    const NAME: &str = "firewall::nft_accepts_what_is_accepted";
    let nft = |file: &std::path::Path| Command::new("nft").arg("-c").arg("-f").arg(file).output();
    if let Err(e) = Command::new("nft").arg("--version").output() {
        return skipped(NAME, &format!("nft cannot be run (package nftables): {e}"));
    }
    namespace::with(NAME, || {
        let file = std::env::temp_dir().join(format!("netchan-{}.nft", std::process::id()));
        for text in [
            "",
            "flush ruleset\ntable inet filter {\n}\n",
            include_str!("../../src/driver/module/firewall/tests/good.nft"),
            RULES,
        ] {
            Settings::new(text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
            fs::write(&file, text).expect("a file");
            let output = nft(&file).expect("nft");
            let _ = fs::remove_file(&file);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{error}\n{text}");
        }
    });
}
