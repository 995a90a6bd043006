//! What a segment costs and what a connection holds: cycles on the fast path, bytes of idle connections, beside smoltcp doing the same.

use percore::clock;
use proto::{
    ip::Ecn,
    tcp::{Config, Connection, ReceiveQueue, SegmentPool, TimeWait},
    time::{Duration, Instant},
    wire::{
        ipv4,
        tcp::{Header, SeqNum},
    },
};

use super::{Effort, count};
use crate::{
    experiments::LabError,
    kit::{Pinned, Sample},
    path::{
        Pair as _, Setup,
        netchan_side::NetchanPair,
        smoltcp_side::{SmoltcpPair, Tuning},
    },
    report::Row,
    world::text::Text,
};

/// Segments measured between two looks at the clock: reading it in order costs some 20 cycles.
const BATCH: usize = 32;
/// Bytes of text in one.
const TEXT: u32 = 1448;

/// Two established connections that hand each other segments.
pub struct FastPath {
    sender: Side,
    receiver: Side,
    now: Instant,
    frames: Vec<(Vec<u8>, u32)>,
}

struct Side {
    conn: Connection,
    queue: ReceiveQueue<Text>,
    pool: SegmentPool<Text>,
}

/// Cycles a segment.
#[derive(Clone, Copy, Debug)]
pub struct Cycles {
    /// To take one: headers read, text queued.
    pub input: f64,
    /// To make one: decided on, header written.
    pub output: f64,
}

const fn no_text(len: u32) -> Text {
    Text {
        stream: 0,
        offset: 0,
        len,
        room: 2048,
    }
}

impl Side {
    fn new(conn: Connection) -> Self {
        Self {
            conn,
            queue: ReceiveQueue::new(),
            pool: SegmentPool::with_capacity(1 << 10),
        }
    }

    fn take(&mut self, header: &Header, len: u32, now: Instant) {
        let (queue, pool) = (&mut self.queue, &mut self.pool);
        self.conn
            .input(header, Ecn::NotEct, no_text(len), queue, pool, now);
    }
}

impl FastPath {
    /// Handshake done, windows open.
    ///
    /// # Panics
    /// If the handshake fails.
    #[must_use]
    pub fn new() -> Self {
        let config = Config {
            receive_buffer: 4 << 20,
            ..Config::default()
        };
        let now = Instant(1_000_000_000);
        let mut sender = Side::new(Connection::open_active(&config, 1, 2, SeqNum(9), 7, now));
        let syn = sender.conn.output(now).expect("a SYN");
        let conn = Connection::open_passive(&config, &syn.header, SeqNum(99), 7, now);
        let mut path = Self {
            sender,
            receiver: Side::new(conn),
            now,
            frames: Vec::new(),
        };
        path.exchange();
        path
    }

    /// Everything that both have to say.
    fn exchange(&mut self) {
        for _ in 0..4 {
            while let Some(t) = self.receiver.conn.output(self.now) {
                self.sender.take(&t.header, t.len, self.now);
            }
            while let Some(t) = self.sender.conn.output(self.now) {
                self.receiver.take(&t.header, t.len, self.now);
            }
        }
        self.read();
    }

    fn read(&mut self) {
        let Side { conn, queue, pool } = &mut self.receiver;
        let taken = queue.consume(pool, |text| text.len as usize);
        conn.consumed(taken);
    }

    /// Cycles of `batches` batches, the median batch.
    ///
    /// # Panics
    /// If the window never opens as wide as a batch.
    pub fn measure(&mut self, batches: usize) -> Cycles {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for round in 0..batches {
            self.now = self.now + Duration::from_micros(100);
            self.sender
                .conn
                .written(TEXT * u32::try_from(BATCH).unwrap_or(1));
            self.frames.resize_with(BATCH, || (vec![0; 80], 0));
            let begin = clock::cycles_in_order();
            let mut made = 0;
            while made < BATCH
                && let Some(t) = self.sender.conn.output(self.now)
            {
                let (frame, len) = &mut self.frames[made];
                let (ip, tcp) = frame.split_at_mut(ipv4::HEADER_LEN);
                t.header.emit(tcp);
                let addresses = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
                let size = t.header.len() + t.len as usize;
                ipv4::Header::new(ipv4::Protocol::TCP, addresses.0, addresses.1).emit(size, ip);
                *len = t.len;
                made += 1;
            }
            let between = clock::cycles();
            let full = made == BATCH;
            let took = self.take_frames(made);
            // What is left of a batch that the window did not hold.
            self.exchange();
            if full && round > batches / 10 {
                output.push(per_segment(between - begin));
                input.push(per_segment(took));
            }
        }
        assert!(!input.is_empty(), "the window never held a batch");
        let wanted = u64::from(TEXT) * (BATCH * batches) as u64;
        let info = self.receiver.conn.info();
        assert_eq!(info.bytes_received, wanted, "everything arrived");
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Cycles {
            input: median(input),
            output: median(output),
        }
    }

    /// The receiver takes them; the cycles that it took.
    fn take_frames(&mut self, count: usize) -> u64 {
        let begin = clock::cycles_in_order();
        for (frame, len) in &self.frames[..count] {
            // As a frame comes: its headers are read, its checksums were seen to by the link.
            let tcp = &frame[ipv4::HEADER_LEN..];
            let parsed = Header::parse_usual(tcp);
            let Some((header, _)) = parsed.or_else(|| Header::parse(tcp).ok()) else {
                continue;
            };
            self.receiver.take(&header, *len, self.now);
        }
        clock::cycles_in_order() - begin
    }
}

impl Default for FastPath {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(clippy::cast_precision_loss)] // thousands
fn per_segment(cycles: u64) -> f64 {
    cycles as f64 / BATCH as f64
}

/// Bytes of this process in memory.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0
}

/// `fast_path_in_cycles`, `fast_path_out_cycles`: of the time stamp counter, without checksums.
pub(super) fn cycles(effort: &Effort) -> Vec<Row> {
    let _pinned = Pinned::to_last_core();
    let ours = FastPath::new().measure(effort.batches);
    let setup = Setup {
        checksums: false,
        ..Setup::default()
    };
    let tuning = Tuning {
        buffer: 1 << 18,
        ..Tuning::default()
    };
    let theirs = SmoltcpPair::new(setup, tuning).batches(effort.batches / 5);
    #[allow(clippy::cast_precision_loss)] // thousands
    let median = |of: fn(&(u64, u64)) -> u64| {
        let mut all: Vec<_> = theirs.iter().map(of).collect();
        all.sort_unstable();
        Sample::of(vec![all[all.len() / 2] as f64 / 32.0])
    };
    let row =
        |id, value, peer| Row::new(id, &Sample::of(vec![value])).against("smoltcp 0.14", peer);
    vec![
        row("fast_path_in_cycles", ours.input, &median(|b| b.1))
            .target("250 at most, half of the peer's"),
        row("fast_path_out_cycles", ours.output, &median(|b| b.0)),
    ]
}

/// `idle_connection_bytes`: what the process grew by for each established connection that nobody uses, all of it; `time_wait_bytes` likewise
/// for each closed one.
pub(super) fn memory(effort: &Effort) -> Result<Vec<Row>, LabError> {
    let grown = |idle: usize| -> Result<f64, LabError> {
        let before = resident_bytes();
        let pair = NetchanPair::new(Setup {
            idle,
            ..Setup::default()
        })?;
        let after = resident_bytes();
        drop(pair);
        Ok(after - before)
    };
    // The first pair takes what every one needs, and leaves it to the next.
    grown(1)?;
    let few = grown(1)?;
    let many = grown(effort.idle + 1)?;
    // Two ends of each connection are here.
    let idle = (many - few) / (2.0 * count(effort.idle));
    let mut pair = NetchanPair::new(Setup::default())?;
    pair.connections(50);
    let before = resident_bytes();
    pair.connections(effort.idle);
    let waiting = (resident_bytes() - before) / count(effort.idle);
    let record = count(size_of::<TimeWait>());
    Ok(vec![
        Row::new("idle_connection_bytes", &Sample::of(vec![idle])).target("1 KiB at most"),
        Row::new("time_wait_bytes", &Sample::of(vec![waiting])).target("128 B at most"),
        Row::new("time_wait_record_bytes", &Sample::of(vec![record])),
    ])
}
