//! Steps of the packet path, each in a function of its own, to be counted under callgrind by `lab/tests/system/instructions.rs`.
//!
//! Time is virtual, seeds are fixed and payloads small: what is counted is our own code, the same on every machine.

use std::{
    hint::black_box,
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};
use proto::time::Instant;

use crate::{
    path::{Pair as _, Setup, netchan_side::NetchanPair},
    tcp::fast_path::{FastPath, Frame, Side},
};

/// The name that each step's function begins with, and the steps: what follows it.
pub const PREFIX: &str = "counted_";
/// What is counted, with what it is in words.
pub const STEPS: [(&str, &str); 14] = [
    (
        "tcp_out",
        "a full segment, decided on and its headers written",
    ),
    ("tcp_in", "a full segment in order, by header prediction"),
    (
        "tcp_gro_in",
        "thirty-two of them: the first predicted, the others compared with it",
    ),
    ("tcp_ack_in", "an acknowledgment of two segments"),
    (
        "tcp_hole_in",
        "a segment behind a hole, and the acknowledgment with SACK it asks for",
    ),
    ("tcp_sack_in", "that acknowledgment, read by the sender"),
    ("tcp_lost_out", "a lost segment, sent again"),
    (
        "tcp_burst_1_in",
        "a full segment, from the wire to the program's buffer",
    ),
    ("tcp_burst_8_in", "eight in one burst"),
    ("tcp_burst_64_in", "sixty-four"),
    (
        "tcp_round_trip",
        "a byte there and a byte back, through two whole stacks",
    ),
    (
        "tcp_connection",
        "a connection opened, a byte there and a byte back, closed by both: both stacks",
    ),
    (
        "udp_out",
        "a datagram of 64 bytes, from the socket call to the wire",
    ),
    ("udp_in", "the same, from the wire to the program's buffer"),
];

/// How often each is done. What comes seldom (timers, growing buffers) is in the mean.
const TIMES: usize = 1000;
/// Bytes of text in a full segment of an Ethernet.
const FULL: usize = 1448;
/// Bytes sent before windows are taken for grown.
const BULK: usize = 32 << 20;

#[inline(never)]
fn counted_tcp_out(side: &mut Side, frame: &mut Frame, now: Instant) -> bool {
    side.make(frame, now)
}

// Functions that do the same are one to the compiler: a word keeps them apart.

#[inline(never)]
fn counted_tcp_in(side: &mut Side, frame: &Frame, now: Instant) {
    side.take(black_box(frame), now);
}

#[inline(never)]
fn counted_tcp_gro_in(side: &mut Side, frames: &[Frame], now: Instant) -> bool {
    side.take_run(frames, now)
}

#[inline(never)]
fn counted_tcp_ack_in(side: &mut Side, frame: &Frame, now: Instant) {
    side.take(frame, black_box(now));
}

#[inline(never)]
fn counted_tcp_hole_in(side: &mut Side, frame: &Frame, answer: &mut Frame, now: Instant) -> bool {
    side.take(frame, now);
    side.make(answer, now)
}

#[inline(never)]
fn counted_tcp_sack_in(side: &mut Side, frame: &Frame, now: Instant) {
    side.take(frame, now);
    black_box(());
}

#[inline(never)]
fn counted_tcp_lost_out(side: &mut Side, frame: &mut Frame, now: Instant) -> bool {
    black_box(side.make(frame, now))
}

#[inline(never)]
fn counted_tcp_burst_1_in(pair: &mut NetchanPair, room: &mut [u8]) -> bool {
    pair.take(room) == black_box(FULL)
}

#[inline(never)]
fn counted_tcp_burst_8_in(pair: &mut NetchanPair, room: &mut [u8]) -> bool {
    pair.take(room) == black_box(8 * FULL)
}

#[inline(never)]
fn counted_tcp_burst_64_in(pair: &mut NetchanPair, room: &mut [u8]) -> bool {
    pair.take(room) == black_box(64 * FULL)
}

#[inline(never)]
fn counted_tcp_round_trip(pair: &mut NetchanPair, request: &[u8], response: &mut [u8]) {
    pair.round_trip(request, response);
}

#[inline(never)]
fn counted_tcp_connection(pair: &mut NetchanPair) -> io::Result<()> {
    pair.short_connection(7)
}

#[inline(never)]
fn counted_udp_out(socket: &Socket, data: &[u8], to: SocketAddr) -> io::Result<usize> {
    socket.send(&[IoSlice::new(data)], Some(to))
}

#[inline(never)]
fn counted_udp_in(net: &Net, socket: &Socket, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.receive(&mut [IoSliceMut::new(room)], ReceiveFlags::default()) {
            Ok(received) => return Ok(received.len),
            Err(e) if e.kind() == ErrorKind::WouldBlock && net.poll() => {}
            Err(e) => return Err(e),
        }
    }
}

/// Does each step many times.
///
/// # Errors
/// What a socket says: a bug.
///
/// # Panics
/// If a step does not lead where it should: then something else would be counted.
pub fn work() -> io::Result<()> {
    segments();
    gro_runs();
    holes();
    losses();
    let mut pair = NetchanPair::new(Setup::default())?;
    // Buffers warm, windows grown.
    pair.round_trips(100, 1);
    let mut response = [0; 1];
    for _ in 0..TIMES {
        counted_tcp_round_trip(&mut pair, &[7], &mut response);
    }
    bursts(&mut pair);
    connections()?;
    datagrams()
}

/// Full segments that come one, eight or sixty-four at a time, and are read in one call: what runs save, and what a
/// lone segment pays for them.
fn bursts(pair: &mut NetchanPair) {
    // Windows as wide as they become.
    pair.bulk(BULK);
    let text = vec![7; 64 * FULL];
    let mut room = text.clone();
    for _ in 0..TIMES {
        pair.send_all(&text[..FULL]);
        assert!(counted_tcp_burst_1_in(pair, &mut room));
        pair.send_all(&text[..8 * FULL]);
        assert!(counted_tcp_burst_8_in(pair, &mut room));
        pair.send_all(&text);
        assert!(counted_tcp_burst_64_in(pair, &mut room));
    }
}

/// Connections one at a time, beside none that is open; the first ones fill the table of TIME-WAITs.
fn connections() -> io::Result<()> {
    let mut pair = NetchanPair::new(Setup::default())?;
    pair.connections(100);
    for _ in 0..TIMES {
        counted_tcp_connection(&mut pair)?;
    }
    Ok(())
}

/// Two segments after another, and their acknowledgment.
fn segments() {
    let mut path = FastPath::new();
    let mut frames = [Frame::EMPTY; 2];
    let mut answer = Frame::EMPTY;
    for _ in 0..TIMES {
        let now = path.write(frames.len());
        for frame in &mut frames {
            assert!(counted_tcp_out(&mut path.sender, frame, now));
        }
        for frame in &frames {
            counted_tcp_in(&mut path.receiver, frame, now);
        }
        assert!(path.receiver.make(&mut answer, now), "every second one");
        counted_tcp_ack_in(&mut path.sender, &answer, now);
        path.exchange();
    }
}

/// Thirty-two segments of one GRO run.
fn gro_runs() {
    let mut path = FastPath::new();
    let mut frames = vec![Frame::EMPTY; 32];
    for round in 0..TIMES {
        let now = path.write(frames.len());
        let mut made = 0;
        while made < frames.len() && path.sender.make(&mut frames[made], now) {
            made += 1;
        }
        assert!(made == frames.len() || round < 100, "the window has grown");
        let before = path.received();
        if made == frames.len() {
            assert!(counted_tcp_gro_in(&mut path.receiver, &frames, now));
            assert_eq!(path.received() - before, FastPath::bytes(made));
        } else {
            for frame in &frames[..made] {
                path.receiver.take(frame, now);
            }
        }
        path.exchange();
    }
}

/// Of three segments the first comes last. Two behind a hole are no loss yet (RFC 6675 §2, DupThresh).
fn holes() {
    let mut path = FastPath::new();
    let mut frames = [Frame::EMPTY; 3];
    let mut answer = Frame::EMPTY;
    for _ in 0..TIMES {
        let now = path.write(frames.len());
        for frame in &mut frames {
            assert!(path.sender.make(frame, now));
        }
        let [first, others @ ..] = &frames;
        for frame in others {
            let asked = counted_tcp_hole_in(&mut path.receiver, frame, &mut answer, now);
            assert!(asked, "RFC 5681 §4.2: at once");
            counted_tcp_sack_in(&mut path.sender, &answer, now);
        }
        path.receiver.take(first, now);
        path.exchange();
    }
}

/// Of four segments the first is lost.
fn losses() {
    let mut path = FastPath::new();
    let (mut answer, mut again) = (Frame::EMPTY, Frame::EMPTY);
    for _ in 0..TIMES {
        let ([lost, behind @ ..], now) = path.round();
        for frame in &behind {
            path.receiver.take(frame, now);
            assert!(path.receiver.make(&mut answer, now), "at once");
            path.sender.take(&answer, now);
        }
        assert!(counted_tcp_lost_out(&mut path.sender, &mut again, now));
        assert!(again.repeats(&lost), "the lost segment again");
        path.recover(&again, now);
    }
}

/// Datagrams from one stack to another.
fn datagrams() -> io::Result<()> {
    let (a, b) = wire::pair(&wire::Options::default());
    let clock = Clock::new_virtual();
    let start = |link, address: &str, seed| {
        let builder = Net::builder().link_with(Box::new(link)).address(address)?;
        let builder = builder.regime(Regime::AppChannel).threads(Threads::Caller);
        builder.clock(clock.clone()).seed(seed).start()
    };
    let nets = [start(a, "10.0.0.1/24", 1)?, start(b, "10.0.0.2/24", 2)?];
    let bound = |net, text: &str| {
        let address: SocketAddr = text.parse().map_err(|_| ErrorKind::InvalidInput)?;
        let socket = Socket::new(net, Domain::V4, Kind::Datagram)?;
        socket.bind(address).map(|()| (socket, address))
    };
    let (from, _) = bound(&nets[0], "10.0.0.1:53")?;
    let (to, target) = bound(&nets[1], "10.0.0.2:53")?;
    let (data, mut room) = ([7; 64], [0; 128]);
    // The first one waits for ARP.
    from.send(&[IoSlice::new(&data)], Some(target))?;
    for _ in 0..100 {
        clock.advance(Duration::from_millis(10));
        nets.iter().for_each(|net| _ = net.poll());
    }
    assert_eq!(counted_udp_in(&nets[1], &to, &mut room)?, data.len());
    for _ in 0..TIMES {
        clock.advance(Duration::from_micros(1));
        counted_udp_out(&from, &data, target)?;
        assert_eq!(counted_udp_in(&nets[1], &to, &mut room)?, data.len());
    }
    Ok(())
}
