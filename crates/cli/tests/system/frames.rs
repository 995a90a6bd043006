//! A program that speaks a protocol of its own by frames (C6), on `netchan daemon`, with a packet socket of the kernel's at the other end of the link.

use std::{path::Path, process::Command, time::Duration};

use netchan::{
    MacAddr, Net, PacketChannel, PacketDestination, PacketProtocol, link::lease::VERSION,
};

use super::{
    PROGRAM,
    handed::{says, script},
    text,
};

/// A variable: this process is the program, and where the daemon listens.
const DAEMON: &str = "FRAMES_DAEMON";
const FRAMES: PacketProtocol = PacketProtocol::EtherType(0x88b5);

#[test]
fn frames_pass_a_daemon() {
    if let Some(path) = std::env::var_os(DAEMON) {
        return program(Path::new(&path));
    }
    let test = std::env::current_exe().unwrap();
    let output = script(
        "frames",
        &format!(
            "cat > mirror.py <<'END'\n\
import socket\n\
frames = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x88b5))\n\
frames.bind(('nc8', 0x88b5))\n\
print('ready', flush=True)\n\
while True:\n  \
  data, source = frames.recvfrom(1 << 16)\n  \
  frames.sendto(data[::-1], source)\n\
END\n\
             cat > user.py <<'END'\n\
import json, os, socket\n\
os.setgroups([]); os.setgid(65534); os.setuid(65534)\n\
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
daemon.connect('d')\n\
def ask(request): daemon.send(json.dumps(request).encode()); return json.loads(daemon.recv(1 << 16))\n\
ask({{'attach': {{'version': {VERSION}, 'link': '', 'program': 'user'}}}})\n\
print('given:', ask({{'frames': 0x88b6}}), 'refused:', ask({{'frames': 0x88b5}})['refused']['why'])\n\
END\n\
             cat > daemon.toml <<'END'\n\
[[link]]\n\
kind = 'tap'\n\
name = 'nc8'\n\
address = ['10.7.8.2/24']\n\
[[lease]]\n\
user = '65534'\n\
frames = [0x88b6]\n\
END\n\
             python3 mirror.py > mirror & mirror=$!\n\
             await grep -q ready mirror\n\
             $netchan daemon --config daemon.toml --socket $PWD/d 2> log & daemon=$!\n\
             await grep -q lends log\n\
             {DAEMON}=$PWD/d '{}' --exact frames::frames_pass_a_daemon --nocapture --test-threads=1\n\
             python3 user.py\n\
             kill $daemon $mirror; wait $daemon; cat log",
            test.display()
        ),
    );
    let wanted = [
        "60 bytes there and back",
        "1000 bytes there and back",
        "1500 bytes there and back",
        "its lease has ethertype 0x88b5",
        "1 passed",
        "given: done refused: frames of EtherType 0x88b5 are root's",
    ];
    says(output, &wanted);
}

fn on(daemon: &Path) -> Net {
    let link = format!("daemon:{}", daemon.display());
    Net::builder().link(&link).unwrap().start().unwrap()
}

/// Sends `payload`, and receives it turned round; from where.
fn turned(channel: &PacketChannel, payload: &[u8], mac: MacAddr) -> MacAddr {
    let to = PacketDestination::Station { link: 0, mac };
    channel.send_to(payload, to).unwrap();
    let frame = channel.recv().unwrap();
    let expected: Vec<u8> = payload.iter().rev().copied().collect();
    assert_eq!(frame.payload(), expected);
    assert!(!frame.to_group());
    frame.source_mac().unwrap()
}

fn program(daemon: &Path) {
    let net = on(daemon);
    let channel = net.packet_channel(FRAMES).unwrap();
    channel
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // Of shorter ones the kernel's end may see the padding.
    let peer = turned(&channel, &[7; 60], MacAddr::BROADCAST);
    for len in [60, 1000, 1500] {
        let payload: Vec<u8> = (0..len).map(|i: usize| i.to_le_bytes()[0]).collect();
        assert_eq!(turned(&channel, &payload, peer), peer);
        println!("{len} bytes there and back");
    }
    let other = on(daemon);
    let taken = other.packet_channel(FRAMES).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
    let show = Command::new(PROGRAM).args(["show", "leases"]).output();
    let shown = show.unwrap();
    let shown = format!("{}{}", text(&shown.stdout), text(&shown.stderr));
    assert!(shown.contains("ethertype 0x88b5"), "{shown}");
    println!("its lease has ethertype 0x88b5");
}
