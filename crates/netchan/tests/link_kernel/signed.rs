//! TCP MD5 (RFC 2385) with the kernel at the other end of a TAP: handshake, text both ways and close, in each role and family.

use std::{
    io::{BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read},
    net::{IpAddr, Shutdown, SocketAddr},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use netchan::{
    Clock, Net,
    socket::{Domain, Kind, Md5Key, Readiness, ReceiveFlags, Socket, SocketOption, Waiter},
};

use crate::{frames::PATIENCE, namespace};

/// `serve` or `connect`, its address and its peer's, the key, which may be empty, and the seconds that it waits. Sends back what came, turned round.
const PROGRAM: &str = "\
import socket, struct, sys
role, own, peer, secret, patience = sys.argv[1:]
family = socket.AF_INET6 if ':' in peer else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM)
s.settimeout(float(patience))
address = struct.pack('=HH', family, 0) + bytes(4 * (family == socket.AF_INET6)) + socket.inet_pton(family, peer)
key = secret.encode()
if key:
    value = address.ljust(128, b'\\0') + struct.pack('=BBHi', 0, 0, len(key), 0) + key.ljust(80, b'\\0')
    s.setsockopt(socket.IPPROTO_TCP, 14, value)
if role == 'serve':
    s.bind((own, 179))
    s.listen()
    print('ready', flush=True)
    c, _ = s.accept()
    c.settimeout(float(patience))
    text = b''
    while part := c.recv(65536):
        text += part
    c.sendall(text[::-1])
    c.close()
else:
    print('ready', flush=True)
    s.connect((peer, 179))
    text = bytes(i * 7 % 251 for i in range(200000))
    s.sendall(text)
    s.shutdown(socket.SHUT_WR)
    back = b''
    while part := s.recv(65536):
        back += part
    assert back == text[::-1], len(back)
print('done', flush=True)
";

pub const OURS: [&str; 2] = ["10.77.0.2", "fd77::2"];
pub const KERNEL: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// How long nothing must come of what is not signed, or otherwise: two SYNs.
const SILENCE: Duration = Duration::from_secs(3);

struct Peer(Child, BufReader<ChildStdout>);

impl Peer {
    fn start(role: &str, v6: usize, secret: &str, patience: Duration) -> Self {
        let seconds = patience.as_secs().to_string();
        let arguments = ["-c", PROGRAM, role, KERNEL[v6], OURS[v6], secret, &seconds];
        let mut command = Command::new("python3");
        let command = command.args(arguments).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("python3");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child, output)
    }

    /// Whether it came to its end.
    fn finishes(mut self) -> bool {
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).unwrap();
        self.0.wait().unwrap();
        rest == "done\n"
    }
}

pub fn net() -> Net {
    let builder = Net::builder().link("tap:nc0,peer=10.77.0.1/24;fd77::1/64");
    let builder = builder.unwrap().address("10.77.0.2/24").unwrap();
    builder.address("fd77::2/64").unwrap().start().unwrap()
}

fn keyed(net: &Net, v6: usize, secret: &str) -> Socket {
    let domain = [Domain::V4, Domain::V6][v6];
    let socket = Socket::new(net, domain, Kind::Stream).unwrap();
    let peer: IpAddr = KERNEL[v6].parse().unwrap();
    let option = SocketOption::Md5Key {
        peer,
        prefix: if v6 == 0 { 32 } else { 128 },
        key: Md5Key::new(secret.as_bytes()),
    };
    socket.set_option(option).unwrap();
    assert!(socket.option(option).is_err(), "a key cannot be read");
    socket
}

pub fn counter(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    rows.find(|row| row["name"] == name).unwrap()["value"]
        .as_u64()
        .unwrap()
}

/// Waits until a socket is ready; false after [`PATIENCE`].
pub fn wait(net: &Net, socket: &Socket, readiness: Readiness) -> bool {
    wait_for(net, socket, readiness, PATIENCE)
}

fn wait_for(net: &Net, socket: &Socket, readiness: Readiness, patience: Duration) -> bool {
    let mut waiter = Waiter::new(net).unwrap();
    let end = Clock::Real.now() + patience;
    while Clock::Real.now() < end {
        if socket.readiness().intersects(readiness) {
            return true;
        }
        let _ = waiter.wait(&mut [], Some(Duration::from_millis(10)));
    }
    false
}

pub fn send(net: &Net, socket: &Socket, mut text: &[u8]) {
    while !text.is_empty() {
        match socket.send(&[IoSlice::new(text)], None) {
            Ok(n) => text = &text[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                assert!(wait(net, socket, Readiness::WRITABLE), "it takes no more");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// All until the end of the stream.
pub fn receive(net: &Net, socket: &Socket) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), vec![0; 65536]);
    loop {
        let flags = ReceiveFlags::default();
        match socket.receive(&mut [IoSliceMut::new(&mut part)], flags) {
            Ok(got) if got.len == 0 => return all,
            Ok(got) => all.extend_from_slice(&part[..got.len]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                assert!(wait(net, socket, Readiness::READABLE), "nothing comes");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn the_kernel_takes_our_signatures_and_we_take_its() {
    namespace::with_tap(
        "signed::the_kernel_takes_our_signatures_and_we_take_its",
        || {
            let net = net();
            for v6 in [0, 1] {
                // The kernel listens.
                let peer = Peer::start("serve", v6, "bgp secret", PATIENCE);
                let socket = keyed(&net, v6, "bgp secret");
                let to = SocketAddr::new(KERNEL[v6].parse().unwrap(), 179);
                let _ = socket.connect(to);
                assert!(wait(&net, &socket, Readiness::WRITABLE), "no connection");
                let text: Vec<u8> = (0..200_000_u32)
                    .map(|n| (n % 253).to_le_bytes()[0])
                    .collect();
                send(&net, &socket, &text);
                socket.shutdown(Shutdown::Write).unwrap();
                let mut back = receive(&net, &socket);
                back.reverse();
                assert!(back == text && peer.finishes());
                drop(socket);

                // We do.
                let socket = keyed(&net, v6, "bgp secret");
                socket
                    .bind(SocketAddr::new(OURS[v6].parse().unwrap(), 179))
                    .unwrap();
                socket.listen(8).unwrap();
                let peer = Peer::start("connect", v6, "bgp secret", PATIENCE);
                assert!(
                    wait(&net, &socket, Readiness::READABLE),
                    "no connection came"
                );
                let (accepted, _) = socket.accept().unwrap();
                let mut text = receive(&net, &accepted);
                text.reverse();
                send(&net, &accepted, &text);
                drop(accepted);
                assert!(peer.finishes());
                assert_eq!(counter(&net, "drop_tcp_signature"), 0);
            }
        },
    );
}

#[test]
fn a_peer_with_another_key_or_none_gets_no_connection() {
    namespace::with_tap(
        "signed::a_peer_with_another_key_or_none_gets_no_connection",
        || {
            let net = net();
            let socket = keyed(&net, 0, "bgp secret");
            socket
                .bind(SocketAddr::new(OURS[0].parse().unwrap(), 179))
                .unwrap();
            socket.listen(8).unwrap();
            let [wrong, none] = ["other", ""].map(|key| Peer::start("connect", 0, key, SILENCE));
            let to_kernel = Peer::start("serve", 0, "bgp secret", SILENCE);
            let own = keyed(&net, 0, "other");
            let _ = own.connect(SocketAddr::new(KERNEL[0].parse().unwrap(), 179));
            assert!(
                !wait_for(&net, &own, Readiness::WRITABLE, SILENCE),
                "the kernel answered"
            );
            assert!(!wrong.finishes() && !none.finishes() && !to_kernel.finishes());
            assert!(socket.accept().is_err());
            let dropped = counter(&net, "drop_tcp_signature");
            assert!(dropped >= 4, "two SYNs of each: {dropped}");
            assert_eq!(counter(&net, "tcp_resets_out"), 0);
        },
    );
}
