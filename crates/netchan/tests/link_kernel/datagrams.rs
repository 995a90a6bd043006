//! Many datagrams in one packet, both ways, with the kernel's UDP_SEGMENT and UDP_GRO sockets at the other end of the link (udp(7)).

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use netchan::{
    Net, Regime, UdpSocket,
    socket::{SocketOption, UdpOption},
};

use crate::namespace::{self, ip};

/// Bytes of payload of one send, and in each datagram but the last.
const TOTAL: usize = 60_500;
const SIZE: usize = 1_200;
const COUNT: usize = TOTAL.div_ceil(SIZE);
/// Frames for what goes uncut: one, and what a kernel says meanwhile of neighbors, routers and groups.
const FEW: u64 = COUNT as u64 / 4;

/// The kernel's side. For each line it reads: `plain` or `gro`, it receives [`TOTAL`] bytes and says how many receives these took, the segment
/// size it was told first, and whether lengths and bytes are right; `send`, and a datagram of any kind, has it send
/// them to the peer as segments.
const PROGRAM: &str = "\
import socket, struct, sys
family, address, peer, total, size = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = bytes((i * 7 + i // 251) % 256 for i in range(total))
s = socket.socket(family, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.settimeout(20)
s.bind((address, 7700))
print('ready', flush=True)
for line in sys.stdin:
    work = line.strip()
    if work == 'send':
        s.recvfrom(16)
        s.setsockopt(17, 103, size)
        s.sendto(data, (peer, 53))
        s.setsockopt(17, 103, 0)
        continue
    s.setsockopt(17, 104, int(work == 'gro'))
    print('listens', flush=True)
    got, receives, told, right = b'', 0, 0, True
    while len(got) < total:
        text, ancillary, flags, source = s.recvmsg(1 << 16, 64)
        sizes = [struct.unpack('=i', d[:4])[0] for l, t, d in ancillary if (l, t) == (17, 104)]
        unit = sizes[0] if sizes else len(text)
        told = told or unit
        right = right and (unit == size or len(got) + len(text) == total)
        got += text
        receives += 1
    print(receives, told, right and got == data, flush=True)
";

fn data() -> Vec<u8> {
    (0..TOTAL)
        .map(|i| (i * 7 + i / 251).to_le_bytes()[0])
        .collect()
}

/// The program at the kernel's end.
struct Kernel {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Kernel {
    fn start(address: &str, peer: &str) -> Self {
        let numbers = [TOTAL, SIZE].map(|n| n.to_string());
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM, address, peer])
            .args(numbers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut kernel = Self { child, lines };
        assert_eq!(kernel.line(), "ready");
        kernel
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, work: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{work}").unwrap();
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A counter of the first link.
fn count(net: &Net, what: &str) -> u64 {
    net.show("links").unwrap()[0][what]
        .as_u64()
        .expect("a count")
}

/// What arrives at `socket`, until it is all there: the segment size told with each receive, and how long it was.
fn receive(net: &Net, socket: &UdpSocket) -> Vec<(usize, u16)> {
    let (mut got, mut receives, mut room) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    while got.len() < TOTAL {
        let came = socket.recv_with_info(&mut room);
        let (len, _, info) = came.unwrap_or_else(|e| {
            let shown = ["links", "counters"].map(|topic| net.show(topic).unwrap());
            panic!("{e} after {} bytes: {shown:?}", got.len())
        });
        got.extend_from_slice(&room[..len]);
        receives.push((len, info.segment));
    }
    assert!(got == data(), "other bytes");
    receives
}

/// Both ways over `link` with a family; frames out and in for [`COUNT`] datagrams. `is_whole`: they reach the kernel's socket uncut.
fn exchange(link: &str, v6: bool, is_whole: bool) -> (u64, u64) {
    let (ours, bound, kernel) = if v6 {
        ("fd77::2", "[fd77::2]:53", "fd77::1")
    } else {
        ("10.77.0.2", "10.77.0.2:53", "10.77.0.1")
    };
    let prefix = if v6 { 64 } else { 24 };
    let net = Net::builder()
        .link(link)
        .and_then(|b| b.address(&format!("{ours}/{prefix}")))
        .and_then(|b| b.regime(Regime::AppChannel).start())
        .unwrap_or_else(|e| panic!("{link}: {e}"));
    let mut program = Kernel::start(kernel, ours);
    let socket = net.udp().bind(bound).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let size = u16::try_from(SIZE).unwrap();
    let to: SocketAddr = SocketAddr::new(kernel.parse().unwrap(), 7700);
    // First in: then the address of the kernel's end is known, for which only few datagrams can wait.
    let before = count(&net, "rx_packets");
    program.ask("send");
    socket.send_to(b"?", to).unwrap();
    let lengths = receive(&net, &socket);
    let came = count(&net, "rx_packets") - before;
    let mut expected = vec![(SIZE, 0); COUNT - 1];
    expected.push((TOTAL % SIZE, 0));
    assert_eq!(lengths, expected, "{link}");
    let merge = SocketOption::Udp(UdpOption::Merge(true));
    socket.socket().set_option(merge).unwrap();
    program.ask("send");
    socket.send_to(b"?", to).unwrap();
    let merged = |&(len, segment): &(usize, u16)| segment == size || len <= SIZE;
    assert!(
        receive(&net, &socket).iter().all(merged),
        "{link}: UDP_GRO tells the size"
    );
    let mut frames = 0;
    for work in ["plain", "gro"] {
        program.ask(work);
        assert_eq!(program.line(), "listens");
        let before = count(&net, "tx_packets");
        let sent = socket.send_segmented(&data(), size, Some(to));
        assert_eq!(sent.unwrap(), TOTAL);
        let line = program.line();
        frames = count(&net, "tx_packets") - before;
        let right = match work {
            "gro" if is_whole => line == format!("1 {SIZE} True"),
            // What the kernel merges of datagrams that come one by one is its own choice.
            "gro" => line.ends_with(&format!("{SIZE} True")),
            _ => line == format!("{COUNT} {SIZE} True"),
        };
        assert!(right, "{link}: {work}: {line}");
    }
    (frames, came)
}

/// Virtio 1.2 §5.1.6 (VIRTIO_NET_HDR_GSO_UDP_L4), TUN_F_USO4 and TUN_F_USO6: one frame for many datagrams; without offload each is one.
#[test]
fn datagrams_pass_a_tap_uncut() {
    namespace::with_tap("datagrams::datagrams_pass_a_tap_uncut", || {
        let tap = "tap:nc0,peer=10.77.0.1/24,peer=fd77::1/64";
        for v6 in [false, true] {
            let (out, came) = exchange(tap, v6, knows_datagrams());
            if knows_datagrams() {
                assert!(out < FEW && came < FEW, "{out} frames out, {came} in");
            }
            let (out, came) = exchange(&format!("{tap},offload=off"), v6, false);
            assert!(out >= COUNT as u64 && came >= COUNT as u64, "{out}, {came}");
        }
    });
}

/// The same through a packet socket; and where the device before the wire can do nothing, the kernel cuts them and makes checksums, which the
/// receiver then verifies: ours were right to begin with.
#[test]
fn datagrams_pass_a_packet_socket_uncut() {
    namespace::with("datagrams::datagrams_pass_a_packet_socket_uncut", || {
        ip("link add v0 type veth peer name v1");
        ip("address add 10.77.0.1/24 dev v1");
        ip("address add fd77::1/64 dev v1 nodad");
        ip("link set v0 up");
        ip("link set v1 up");
        for v6 in [false, true] {
            let (out, _) = exchange("packet:v0", v6, knows_datagrams());
            assert!(out < FEW || !knows_datagrams(), "{out} frames");
            let (out, _) = exchange("packet:v0,offload=off", v6, false);
            assert!(out >= COUNT as u64, "{out} frames");
        }
        let plain = [
            "-K",
            "v0",
            "tx",
            "off",
            "gso",
            "off",
            "tx-udp-segmentation",
            "off",
        ];
        let done = Command::new("ethtool").args(plain).output();
        assert!(done.is_ok_and(|done| done.status.success()), "ethtool");
        for v6 in [false, true] {
            let (out, _) = exchange("packet:v0", v6, false);
            assert!(out < FEW || !knows_datagrams(), "{out} frames");
        }
    });
}

/// Linux 6.2 and later.
fn knows_datagrams() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}
