//! A send queue is as long as its path wants it: no shorter, so that a long path is full, and not much longer on a short one. In virtual time, over
//! round trips of 20 µs to 100 ms, with losses and without.

use std::{
    io::{self, IoSlice, IoSliceMut},
    num::NonZeroU64,
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::wire::{self, Probability},
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 80);
const MOST: usize = 8 << 20;

/// A path: bits a second, one way, and the probability of a loss.
#[derive(Clone, Copy, Debug)]
struct Path {
    rate: u64,
    delay: Duration,
    loss: f64,
    /// Bytes that wait before it drops.
    room: usize,
}

impl Path {
    /// With room for what is under way, as routers are built.
    fn new((rate, delay): (u64, Duration), loss: f64) -> Self {
        let mut path = Self {
            rate,
            delay,
            loss,
            room: 64 << 10,
        };
        path.room = path.room.max(path.holds());
        path
    }

    /// Bytes under way at its full rate.
    fn holds(self) -> usize {
        let us = u64::try_from(2 * self.delay.as_micros()).unwrap();
        usize::try_from(self.rate / 8 * us / 1_000_000).unwrap()
    }
}

/// What a sender that never stops got.
struct Got {
    /// Of the rate, in the second half of the time.
    share: f64,
    /// The longest that its send queue was, bytes.
    queue: usize,
}

fn stack(clock: &Clock, link: wire::Wire, address: &str) -> Net {
    let net = Net::builder().link_with(Box::new(link)).address(address);
    let net = net.unwrap().threads(Threads::Caller).clock(clock.clone());
    net.seed(1).start().unwrap()
}

/// Both ends of a connection from the second stack to the first.
fn connect(nets: [&Net; 2], clock: &Clock) -> [Socket; 2] {
    let listener = Socket::new(nets[0], Domain::V4, Kind::Stream).unwrap();
    listener.bind(SERVER.into()).unwrap();
    listener.listen(1).unwrap();
    let client = Socket::new(nets[1], Domain::V4, Kind::Stream).unwrap();
    let _ = client.connect(SERVER.into()); // under way
    for _ in 0..10_000 {
        turn(nets, clock);
        if let Ok((server, _)) = listener.accept() {
            return [server, client];
        }
    }
    panic!("no connection");
}

/// Turns both until nothing moves, then the clock to what is due next.
fn turn(nets: [&Net; 2], clock: &Clock) {
    while nets[0].poll() | nets[1].poll() {}
    let next = nets.iter().filter_map(|net| net.next_event()).min();
    clock.advance_to(next.unwrap());
}

/// Fills `path` for as long as 40 MB take at its rate, or 100 round trips; with a send buffer that widens, or the largest from the beginning.
fn fill(path: Path, widens: bool) -> Got {
    let clock = Clock::new_virtual();
    let forth = wire::Options {
        rate: NonZeroU64::new(path.rate),
        delay: path.delay,
        loss: Probability::new(path.loss),
        queue_bytes: Some(path.room),
        queue_frames: Some(usize::MAX),
        ..wire::Options::default()
    };
    let back = wire::Options {
        delay: path.delay,
        ..wire::Options::default()
    };
    let (near, far) = wire::pair_with(&forth, &back);
    let (sender, receiver) = (
        stack(&clock, near, "10.0.0.2/24"),
        stack(&clock, far, "10.0.0.1/24"),
    );
    let nets = [&receiver, &sender];
    let [server, client] = connect(nets, &clock);
    if !widens {
        let option = SocketOption::SendBuffer(MOST);
        client.set_option(option).unwrap();
    }
    let text = vec![7; 64 << 10];
    let mut room = vec![0; 64 << 10];
    let begin = clock.now();
    let whole = Duration::from_secs_f64(40e6 * 8.0 / path.rate as f64).max(200 * path.delay);
    let (mut late, mut queue) = (0_usize, 0);
    while clock.now().since(begin) < whole {
        while client.send(&[IoSlice::new(&text)], None).is_ok() {}
        queue = queue.max(client.unacknowledged());
        turn(nets, &clock);
        let is_late = clock.now().since(begin) >= whole / 2;
        loop {
            match server.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default()) {
                Ok(got) => late += if is_late { got.len } else { 0 },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{path:?}: {error}"),
            }
        }
    }
    let share = late as f64 * 8.0 / (path.rate as f64 * whole.as_secs_f64() / 2.0);
    Got { share, queue }
}

const ROUND_TRIPS: [(u64, Duration); 5] = [
    (10_000_000_000, Duration::from_micros(10)),
    (10_000_000_000, Duration::from_micros(100)),
    (1_000_000_000, Duration::from_millis(1)),
    (1_000_000_000, Duration::from_millis(10)),
    (200_000_000, Duration::from_millis(50)),
];

#[test]
fn a_path_is_full_and_its_queue_is_bounded() {
    for line in ROUND_TRIPS {
        let path = Path::new(line, 0.0);
        let Got { share, queue } = fill(path, true);
        assert!(share > 0.9, "{path:?}: {share:.3} of its rate");
        // What it holds four times, and of a short path the first buffer.
        let most = (4 * path.holds() + (64 << 10)).max(320 << 10);
        assert!(queue <= most.min(MOST), "{path:?}: {queue} bytes wait");
    }
}

/// Where nothing is ever dropped the congestion window grows without end. The queue does not: it would only stand, and leave the cache.
#[test]
fn where_nothing_is_dropped_it_does_not_grow_without_end() {
    let mut path = Path::new(ROUND_TRIPS[0], 0.0);
    path.room = usize::MAX;
    let Got { share, queue } = fill(path, true);
    assert!(share > 0.9, "{share:.3} of its rate");
    assert!(queue <= 256 << 10, "{queue} bytes wait");
    let largest = fill(path, false).queue;
    assert!(largest > MOST / 2, "{largest}: the window did not grow");
}

/// Losses make gaps that the queue has to hold beside what is new: a queue that widens does as well as the largest.
#[test]
fn with_losses_it_does_as_well_as_the_largest_queue() {
    for line in ROUND_TRIPS {
        for loss in [0.0001, 0.001, 0.01] {
            let path = Path::new(line, loss);
            let [own, largest] = [true, false].map(|widens| fill(path, widens));
            assert!(
                own.share > 0.9 * largest.share,
                "{path:?}: {:.3} of its rate, {:.3} with the largest queue",
                own.share,
                largest.share
            );
        }
    }
}
