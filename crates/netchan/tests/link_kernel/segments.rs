//! Text that leaves uncut: a stack sends to the kernel's TCP through links that take segments off its hands. And text that comes uncut from
//! there.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use netchan::{Net, Regime};

use crate::{
    namespace::{self, ip},
    signed::counter,
};

const TOTAL: usize = 3_000_000;

fn data() -> Vec<u8> {
    (0..TOTAL)
        .map(|i| (i * 7 + i / 251).to_le_bytes()[0])
        .collect()
}

fn start(link: &str, family: usize) -> Net {
    let ours = ["10.77.0.2/24", "fd77::2/64"][family];
    Net::builder()
        .link(link)
        .unwrap()
        .address(ours)
        .unwrap()
        .regime(Regime::Locked)
        .start()
        .unwrap_or_else(|e| panic!("{link}: {e}"))
}

/// Sends [`TOTAL`] bytes to the kernel and compares what arrived; frames that the link counted on the way out.
fn send(link: &str, family: usize) -> u64 {
    let kernel = ["10.77.0.1:0", "[fd77::1]:0"][family];
    let net = start(link, family);
    let listener = TcpListener::bind(kernel).expect("the kernel's end has the address");
    let target: SocketAddr = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::with_capacity(TOTAL);
        stream.read_to_end(&mut got).unwrap();
        got
    });
    let mut stream = net.tcp().connect(target).unwrap();
    stream.write_all(&data()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(reader.join().unwrap() == data(), "{link}: other bytes");
    let links = net.show("links").unwrap();
    links[0]["tx_packets"].as_u64().expect("a count")
}

/// Virtio 1.2 §5.1.6.2: the kernel takes bursts as they are and makes their checksums; without offload each segment is a frame.
#[test]
fn bursts_leave_uncut_through_a_tap() {
    namespace::with_tap("segments::bursts_leave_uncut_through_a_tap", || {
        let tap = "tap:nc0,peer=10.77.0.1/24,peer=fd77::1/64";
        for family in 0..2 {
            let frames = send(tap, family);
            assert!(frames < TOTAL as u64 / 4000, "{frames} frames");
            let frames = send(&format!("{tap},offload=off"), family);
            assert!(frames >= TOTAL as u64 / 1460, "{frames} frames");
        }
    });
}

/// The same through a packet socket: what the device cannot do the kernel does before it.
#[test]
fn bursts_leave_uncut_through_a_packet_socket() {
    namespace::with(
        "segments::bursts_leave_uncut_through_a_packet_socket",
        || {
            ip("link add v0 type veth peer name v1");
            ip("address add 10.77.0.1/24 dev v1");
            ip("address add fd77::1/64 dev v1 nodad");
            ip("link set v0 up");
            ip("link set v1 up");
            for family in 0..2 {
                let frames = send("packet:v0", family);
                assert!(frames < TOTAL as u64 / 4000, "{frames} frames");
                let frames = send("packet:v0,offload=off", family);
                assert!(frames >= TOTAL as u64 / 1460, "{frames} frames");
            }
        },
    );
}

/// What [`TOTAL`] bytes from the kernel came in.
#[derive(Debug)]
struct Came {
    /// Segments with text, as the connection counts them.
    segments: u64,
    /// Passes of TCP's input, those without text included.
    passes: u64,
    /// Frames, those that are not TCP's included.
    frames: u64,
}

/// Lets the kernel send [`TOTAL`] bytes, and compares what arrived.
fn receive(link: &str, family: usize) -> Came {
    let net = start(link, family);
    let ours = ["10.77.0.2:4000", "[fd77::2]:4000"][family];
    let listener = net.tcp().listen(ours).unwrap();
    let target: SocketAddr = ours.parse().unwrap();
    let writer = thread::spawn(move || {
        let mut stream = TcpStream::connect(target).unwrap();
        stream.write_all(&data()).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::with_capacity(TOTAL);
    stream.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == data(), "{link}: other bytes");
    let info = stream.socket().tcp_info().expect("a connection");
    let links = net.show("links").unwrap();
    Came {
        segments: info.data_segments_in.into(),
        passes: counter(&net, "tcp_segments_in"),
        frames: links[0]["rx_packets"].as_u64().expect("a count"),
    }
}

/// Virtio 1.2 §5.1.6.4: what the kernel hands over with a GSO type is one frame, one pass of TCP's input and one segment of the connection,
/// however much text it has; without offload each segment is that.
#[test]
fn bursts_arrive_uncut_through_a_tap() {
    namespace::with_tap("segments::bursts_arrive_uncut_through_a_tap", || {
        let tap = "tap:nc0,peer=10.77.0.1/24,peer=fd77::1/64";
        for family in 0..2 {
            let came = receive(tap, family);
            assert!(came.segments < TOTAL as u64 / 4000, "{came:?}");
            assert!(came.segments <= came.passes, "{came:?}");
            assert!(came.passes <= came.frames, "{came:?}");
            let came = receive(&format!("{tap},offload=off"), family);
            assert!(came.segments >= TOTAL as u64 / 1460, "{came:?}");
            assert!(came.passes <= came.frames, "{came:?}");
        }
    });
}
