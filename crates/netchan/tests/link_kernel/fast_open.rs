//! TCP Fast Open (RFC 7413) with the kernel at the other end of a TAP, in each role and family: both sides count text in SYNs.

use std::{
    fs,
    io::{BufRead, BufReader, IoSlice, Read},
    net::{Shutdown, SocketAddr},
    process::{Child, ChildStdout, Command, Stdio},
};

use netchan::{
    Net,
    socket::{Domain, Kind, Readiness, Socket, SocketOption},
};

use crate::{
    namespace,
    signed::{KERNEL, OURS, counter, net, receive, send, wait},
};

/// `serve` or `connect`: three connections, one after the other. Sends back what came, turned round.
const PROGRAM: &str = "\
import socket, struct, sys
role, own, peer = sys.argv[1:]
family = socket.AF_INET6 if ':' in peer else socket.AF_INET
if role == 'serve':
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(20)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_TCP, 23, 5)
    s.bind((own, 7413))
    s.listen()
print('ready', flush=True)
for n in range(3):
    text = bytes(i * 7 % 251 for i in range(3000))
    if role == 'serve':
        c, _ = s.accept()
        c.settimeout(20)
        text = b''
        while part := c.recv(65536):
            text += part
        c.sendall(text[::-1])
        c.close()
    else:
        s = socket.socket(family, socket.SOCK_STREAM)
        for name in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            s.setsockopt(socket.SOL_SOCKET, name, struct.pack('ll', 20, 0))
        sent = s.sendto(text, 0x20000000, (peer, 7413))
        s.sendall(text[sent:])
        s.shutdown(socket.SHUT_WR)
        back = b''
        while part := s.recv(65536):
            back += part
        assert back == text[::-1], len(back)
        s.close()
print('done', flush=True)
";

struct Peer(Child, BufReader<ChildStdout>);

impl Peer {
    fn start(role: &str, v6: usize) -> Self {
        let arguments = ["-c", PROGRAM, role, KERNEL[v6], OURS[v6]];
        let mut command = Command::new("python3");
        let command = command.args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
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

/// One of the kernel's TcpExt counters in this namespace.
fn kernels(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/net/netstat").unwrap();
    let mut rows = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let mut both = names.split(' ').zip(values.split(' '));
    both.find(|(n, _)| *n == name).unwrap().1.parse().unwrap()
}

/// Three connections to the kernel: the first asks for a cookie, the others show it.
fn we_connect(net: &Net, v6: usize) {
    let peer = Peer::start("serve", v6);
    let (ours, theirs) = (
        counter(net, "tcp_fast_open_active"),
        kernels("TCPFastOpenPassive"),
    );
    for n in 0..3 {
        let domain = [Domain::V4, Domain::V6][v6];
        let socket = Socket::new(net, domain, Kind::Stream).unwrap();
        let to = SocketAddr::new(KERNEL[v6].parse().unwrap(), 7413);
        let text: Vec<u8> = (0..3000_u32).map(|n| (n % 253).to_le_bytes()[0]).collect();
        let sent = match socket.send_fast(&[IoSlice::new(&text)], Some(to)) {
            Err(e) if n == 0 => {
                assert_eq!(e.raw_os_error(), Some(libc::EINPROGRESS));
                0
            }
            sent => sent.expect("a cookie"),
        };
        assert_eq!(sent > 0, n > 0, "what the SYN carries");
        assert!(wait(net, &socket, Readiness::WRITABLE), "no connection");
        send(net, &socket, &text[sent..]);
        socket.shutdown(Shutdown::Write).unwrap();
        let mut back = receive(net, &socket);
        back.reverse();
        assert!(back == text);
        assert_eq!(socket.tcp_info().unwrap().syn_data, n > 0);
    }
    assert!(peer.finishes());
    assert_eq!(counter(net, "tcp_fast_open_active") - ours, 2);
    assert_eq!(kernels("TCPFastOpenPassive") - theirs, 2);
}

/// The same the other way.
fn the_kernel_connects(net: &Net, v6: usize) {
    let domain = [Domain::V4, Domain::V6][v6];
    let socket = Socket::new(net, domain, Kind::Stream).unwrap();
    socket.set_option(SocketOption::FastOpen(5)).unwrap();
    let own = SocketAddr::new(OURS[v6].parse().unwrap(), 7413);
    socket.bind(own).unwrap();
    socket.listen(8).unwrap();
    let (ours, theirs) = (
        counter(net, "tcp_fast_open_passive"),
        kernels("TCPFastOpenActive"),
    );
    let asked = counter(net, "tcp_fast_open_cookie_reqd");
    let peer = Peer::start("connect", v6);
    for _ in 0..3 {
        assert!(
            wait(net, &socket, Readiness::READABLE),
            "no connection came"
        );
        let (accepted, _) = socket.accept().unwrap();
        let mut text = receive(net, &accepted);
        text.reverse();
        send(net, &accepted, &text);
        drop(accepted);
    }
    assert!(peer.finishes());
    assert_eq!(counter(net, "tcp_fast_open_cookie_reqd") - asked, 1);
    assert_eq!(counter(net, "tcp_fast_open_passive") - ours, 2);
    assert_eq!(kernels("TCPFastOpenActive") - theirs, 2);
}

#[test]
fn the_kernel_takes_text_in_our_syns_and_we_take_its() {
    namespace::with_tap(
        "fast_open::the_kernel_takes_text_in_our_syns_and_we_take_its",
        || {
            fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
            let net = net();
            for v6 in [0, 1] {
                we_connect(&net, v6);
                the_kernel_connects(&net, v6);
            }
        },
    );
}
