//! Packet channels against the kernel's raw sockets (raw(7)) and packet sockets (packet(7)) at the other end of the link.

use std::{
    io::{BufRead, BufReader},
    net::IpAddr,
    process::{Child, Command, Stdio},
};

use netchan::{MacAddr, Net, PacketChannel, PacketDestination, PacketProtocol, Regime};

use crate::{
    frames::PATIENCE,
    namespace::{self, ip},
};

/// The kernel's side: what comes to a raw socket of protocol 253, of each family, goes back with its bytes turned round; so does what
/// comes to a packet socket of EtherType 0x88B5.
const PROGRAM: &str = "\
import select, socket, sys
device, kind = sys.argv[1], 0x88b5
v4 = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
v6 = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 253)
frames = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(kind))
frames.bind((device, kind))
print('ready', flush=True)
while True:
    for s in select.select([v4, v6, frames], [], [])[0]:
        data, source = s.recvfrom(1 << 16)
        if s is v4:
            data = data[(data[0] & 15) * 4:]
        s.sendto(data[::-1], source)
";

struct Kernel(Child);

impl Kernel {
    fn start(device: &str) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM, device])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let kernel = Self(child);
        assert_eq!(line, "ready\n");
        kernel
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn channel(net: &Net, protocol: PacketProtocol) -> PacketChannel {
    let channel = net.packet_channel(protocol).unwrap();
    channel.set_read_timeout(Some(PATIENCE)).unwrap();
    channel
}

/// Sends, and receives it turned round: short ones, and some that are longer than the MTU where the protocol can cut them.
fn exchange(channel: &PacketChannel, to: PacketDestination, sizes: &[usize]) {
    for &len in sizes {
        let payload: Vec<u8> = (0..len).map(|i| (i / 3).to_le_bytes()[0]).collect();
        channel.send_to(&payload, to).unwrap();
        let packet = channel
            .recv()
            .unwrap_or_else(|error| panic!("{error}: {len} bytes to {to:?}"));
        let mut turned = payload;
        turned.reverse();
        assert_eq!(packet.payload(), turned, "{len} bytes to {to:?}");
        match to {
            PacketDestination::Host(ip) => assert_eq!(packet.source_ip(), Some(ip)),
            PacketDestination::Station { mac, .. } => assert_eq!(packet.source_mac(), Some(mac)),
        }
    }
}

/// The address of a device of the kernel's.
fn mac_of(device: &str) -> MacAddr {
    let text = std::fs::read_to_string(format!("/sys/class/net/{device}/address"));
    // /sys may be another namespace's: ip(8) asks this one.
    let text = text.unwrap_or_else(|_| {
        let output = Command::new("ip")
            .args(["link", "show", "dev", device])
            .output();
        let output = String::from_utf8(output.unwrap().stdout).unwrap();
        output
            .split_whitespace()
            .skip_while(|word| *word != "link/ether")
            .nth(1)
            .unwrap()
            .to_owned()
    });
    text.trim().parse().expect("six numbers")
}

fn with_the_kernel(link: &str, device: &str, regimes: &[Regime]) {
    for &regime in regimes {
        let start = || {
            let builder = Net::builder().link(link)?.regime(regime);
            builder
                .address("10.77.0.2/24")?
                .address("fd77::2/64")?
                .start()
        };
        let net = start().unwrap_or_else(|error| panic!("{link}: {error}"));
        let _kernel = Kernel::start(device);
        let packets = channel(&net, PacketProtocol::Ip(253));
        let frames = channel(&net, PacketProtocol::EtherType(0x88b5));
        for to in ["10.77.0.1", "fd77::1"] {
            let to: IpAddr = to.parse().unwrap();
            exchange(&packets, to.into(), &[1, 100, 1400, 4000, 20_000]);
        }
        let mac = mac_of(device);
        // Of shorter ones the kernel's end may see the padding.
        exchange(
            &frames,
            PacketDestination::Station { link: 0, mac },
            &[60, 1000, 1500],
        );
        assert_eq!((packets.drops(), frames.drops()), (0, 0), "{regime}");
    }
}

#[test]
fn packets_pass_a_tap() {
    namespace::with_tap("packet_channels::packets_pass_a_tap", || {
        let link = "tap:nc0,peer=10.77.0.1/24,peer=fd77::1/64";
        let all = [
            Regime::Giant,
            Regime::Locked,
            Regime::PerCpu,
            Regime::DriverChannel,
            Regime::SocketChannel,
            Regime::AppChannel,
        ];
        with_the_kernel(link, "nc0", &all);
    });
}

#[test]
fn packets_pass_a_packet_socket() {
    namespace::with("packet_channels::packets_pass_a_packet_socket", || {
        ip("link add v0 type veth peer name v1");
        ip("address add 10.77.0.1/24 dev v1");
        ip("address add fd77::1/64 dev v1 nodad");
        ip("link set v0 up");
        ip("link set v1 up");
        with_the_kernel("packet:v0", "v1", &[Regime::AppChannel]);
    });
}
