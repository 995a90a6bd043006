//! Streams of a stack to its own addresses, over a link whose receive buffers are large and few: what a window promised is taken. Such
//! segments stay in the small buffers that they were sent in, and count as many as if they lay in the link's.

use std::{
    io::{self, ErrorKind::WouldBlock, IoSlice, IoSliceMut},
    net::SocketAddr,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};

/// Bytes of a transfer whose reader keeps up, by which receive buffers grow, and of the one whose reader waits.
const GROWS: usize = 24 << 20;
const WAITS: usize = 8 << 20;
/// Turns that a transfer may take: many times what it needs.
const TURNS: usize = 100_000;

struct World {
    net: Net,
    _end: wire::Wire,
    near: Socket,
    far: Socket,
}

/// What a call did; nothing, if it would have to wait.
fn done(result: io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == WouldBlock => 0,
        other => other.unwrap(),
    }
}

impl World {
    /// A stream from the stack to itself at `own`; `room`: SO_RCVBUF of the end that reads.
    fn new(regime: Regime, own: &str, room: Option<usize>) -> Self {
        let (link, end) = wire::pair(&wire::Options {
            offload: true,
            ..wire::Options::default()
        });
        let builder = Net::builder().threads(Threads::Caller).seed(1);
        let builder = builder.regime(regime).clock(Clock::new_virtual());
        let builder = builder.link_with(Box::new(link));
        let builder = builder.address("10.0.0.1/24").unwrap();
        let net = builder.address("fd00::1/64").unwrap().start().unwrap();
        let own: SocketAddr = own.parse().unwrap();
        let domain = if own.is_ipv4() {
            Domain::V4
        } else {
            Domain::V6
        };
        let make = || Socket::new(&net, domain, Kind::Stream).unwrap();
        let (listener, near) = (make(), make());
        if let Some(bytes) = room {
            let option = SocketOption::ReceiveBuffer(bytes);
            listener.set_option(option).unwrap();
        }
        listener.bind(own).unwrap();
        listener.listen(1).unwrap();
        let _ = near.connect(own); // under way
        while net.poll() {}
        let (far, _) = listener.accept().unwrap();
        Self {
            net,
            _end: end,
            near,
            far,
        }
    }

    /// Sends `total` bytes; the reader begins when no more goes out, or, `keeping_up`, at once.
    fn sends(&self, total: usize, keeping_up: bool) {
        let (mut sent, mut read, mut reads) = (0, 0, keeping_up);
        let (text, mut room) = (vec![7; 50_000], vec![0; 65_536]);
        for _ in 0..TURNS {
            let more = &text[..text.len().min(total - sent)];
            let new = done(self.near.send(&[IoSlice::new(more)], None));
            sent += new;
            let moved = self.net.poll();
            reads |= new == 0 && !moved;
            if reads {
                let flags = ReceiveFlags::default();
                let got = self.far.receive(&mut [IoSliceMut::new(&mut room)], flags);
                read += done(got.map(|got| got.len));
            }
            if read == total {
                return;
            }
        }
        panic!("{read} of {sent} bytes came, and the rest waits for a timer");
    }

    /// Text that the window had promised a place, and that found none.
    fn drops(&self) -> Vec<(String, u64)> {
        let rows = self.net.show("counters").unwrap();
        let rows = rows.as_array().unwrap().iter();
        let rows = rows.map(|row| {
            let name = row["name"].as_str().unwrap().to_owned();
            (name, row["value"].as_u64().unwrap())
        });
        let is_ours = |name: &str| {
            let reasons = ["share", "memory", "memory_limit", "pruned"];
            reasons
                .iter()
                .any(|reason| name.starts_with("drop_tcp_") && name.ends_with(reason))
        };
        rows.filter(|(name, value)| is_ours(name) && *value > 0)
            .collect()
    }
}

#[test]
fn a_buffer_that_an_open_stream_asks_for_promises_no_more() {
    for regime in [Regime::Locked, Regime::AppChannel, Regime::SocketChannel] {
        let world = World::new(regime, "10.0.0.1:80", None);
        let wide = SocketOption::ReceiveBuffer(16 << 20);
        world.far.set_option(wide).unwrap();
        for _ in 0..3 {
            world.sends(WAITS * 2, false);
        }
        let drops = world.drops();
        assert!(drops.is_empty(), "{regime:?}: {drops:?}");
    }
}

#[test]
fn what_a_window_promised_is_taken_of_ourselves_too() {
    for regime in [Regime::Locked, Regime::AppChannel, Regime::SocketChannel] {
        for own in ["10.0.0.1:80", "[fd00::1]:80"] {
            for room in [None, Some(16 << 20)] {
                let world = World::new(regime, own, room);
                for _ in 0..3 {
                    world.sends(GROWS, true);
                    world.sends(WAITS, false);
                }
                let drops = world.drops();
                assert!(drops.is_empty(), "{regime:?} {own} {room:?}: {drops:?}");
            }
        }
    }
}
