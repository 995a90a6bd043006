//! What a segment costs in `proto::tcp`, without packets, links and threads around it.
//!
//! `cargo test --release -p proto --test tcp_cost -- --ignored --nocapture`

use std::hint::black_box;

use proto::tcp::{Config, Connection, Payload, ReceiveQueue, SegmentPool, State};
use proto::time::{Duration, Instant};
use proto::wire::tcp::SeqNum;

/// Text without bytes: what is measured is the protocol.
#[derive(Debug)]
struct Text(usize);

impl Payload for Text {
    type Shelf = proto::tcp::NoShelf;
    fn len(&self) -> usize {
        self.0
    }
    fn trim_front(&mut self, n: usize) {
        self.0 -= n;
    }
    fn truncate(&mut self, len: usize) {
        self.0 = self.0.min(len);
    }
    fn memory(&self) -> usize {
        2048
    }
}

struct End {
    conn: Connection,
    queue: ReceiveQueue<Text>,
    pool: SegmentPool<Text>,
}

impl End {
    fn new(conn: Connection) -> Self {
        Self {
            conn,
            queue: ReceiveQueue::new(),
            pool: SegmentPool::with_capacity(4096),
        }
    }

    /// Everything `self` has to send arrives at `peer`, whose application reads it.
    fn exchange(&mut self, peer: &mut Self, now: Instant) -> u32 {
        let mut segments = 0;
        while let Some(transmit) = self.conn.output(now) {
            let text = Text(transmit.len as usize);
            black_box(peer.conn.input(
                &transmit.header,
                transmit.ecn,
                text,
                &mut peer.queue,
                &mut peer.pool,
                now,
            ));
            segments += 1;
        }
        let mut bytes = 0;
        while let Some(text) = peer.queue.pop_front(&mut peer.pool) {
            bytes += text.0;
        }
        if bytes > 0 {
            peer.conn
                .consumed(u32::try_from(bytes).expect("less than a window"));
        }
        segments
    }
}

fn established(config: &Config) -> (End, End, Instant) {
    let now = Instant(1_000_000_000);
    let mut client = Connection::open_active(config, 1, 2, SeqNum(7), 3, now);
    let syn = client.output(now).expect("a SYN");
    let server = Connection::open_passive(config, &syn.header, SeqNum(9), 4, now);
    let (mut client, mut server) = (End::new(client), End::new(server));
    for _ in 0..3 {
        server.exchange(&mut client, now);
        client.exchange(&mut server, now);
    }
    assert_eq!(client.conn.state(), State::Established);
    assert_eq!(server.conn.state(), State::Established);
    (client, server, now)
}

/// The least mean of a hundred short batches: on a busy machine long ones are interrupted.
#[allow(clippy::disallowed_methods)] // a measurement, outside the stack
fn nanoseconds(count: u64, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    let batch = count.div_ceil(100);
    for _ in 0..100 {
        let start = std::time::Instant::now();
        for _ in 0..batch {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / batch as f64);
    }
    best
}

/// Fewer rounds where each is slow (`TCP_ROUNDS=n`): under an instruction counter.
fn rounds(usual: u64) -> u64 {
    std::env::var("TCP_ROUNDS").map_or(usual, |n| n.parse().expect("a number"))
}

#[test]
#[ignore = "a measurement; needs --release"]
fn request_and_response() {
    println!("connection: {} bytes", size_of::<Connection>());
    println!("time wait:  {} bytes", size_of::<proto::tcp::TimeWait>());
    println!("receive queue: {} bytes", size_of::<ReceiveQueue<Text>>());
    let (mut client, mut server, mut now) = established(&Config::default());
    let rr = nanoseconds(rounds(200_000), || {
        now = now + Duration::from_micros(1);
        client.conn.written(64);
        client.exchange(&mut server, now);
        server.conn.written(64);
        server.exchange(&mut client, now);
    });
    println!("request and response, both ends: {rr:.1} ns");
    let idle = nanoseconds(rounds(200_000), || {
        black_box(client.conn.output(black_box(now)));
        black_box(black_box(&client.conn).deadline());
    });
    println!("nothing to send, and the deadline: {idle:.1} ns");
}

#[test]
#[ignore = "a measurement; needs --release"]
fn bulk() {
    for mss in [1460, 65495] {
        let config = Config {
            mss,
            receive_buffer: 4 << 20,
            ..Config::default()
        };
        let (mut client, mut server, mut now) = established(&config);
        let (mut segments, mut done) = (0, 0);
        let round = nanoseconds(rounds(2_000), || {
            now = now + Duration::from_micros(10);
            client.conn.written(1 << 20);
            while client.conn.unacknowledged() > 0 {
                segments += client.exchange(&mut server, now);
                segments += server.exchange(&mut client, now);
                let deadline = server.conn.deadline();
                if deadline <= now + Duration::from_millis(40) {
                    now = deadline;
                    server.conn.on_timer(now);
                }
            }
            done += 1;
        });
        let per_round = f64::from(segments) / f64::from(done);
        println!(
            "bulk, mss {mss}: {:.1} ns a segment, both ends, {per_round:.0} segments a MiB",
            round / per_round,
        );
    }
}
