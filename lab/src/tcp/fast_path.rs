//! Two established connections that hand each other headers, without packets, links and threads around them: for clocks and for counters of instructions.

use percore::clock;
use proto::{
    ip::Ecn,
    tcp::{Config, Connection, Payload, ReceiveQueue, SegmentPool, Transmit},
    time::{Duration, Instant},
    wire::{
        ipv4,
        tcp::{Header, RunKey, SeqNum},
    },
};

use crate::world::text::Text;

/// Segments measured between two looks at the clock: reading it in order costs some 20 cycles.
const BATCH: usize = 32;
/// Bytes of text in one.
const TEXT: u32 = 1448;

/// Two established connections that hand each other segments.
pub struct FastPath {
    pub(crate) sender: Side,
    pub(crate) receiver: Side,
    now: Instant,
}

/// A connection with what surrounds it.
pub(crate) struct Side {
    conn: Connection,
    queue: ReceiveQueue<Text>,
    pool: SegmentPool<Text>,
}

/// The headers of one segment, and how much text it has.
#[derive(Clone)]
pub(crate) struct Frame {
    headers: [u8; 80],
    text: u32,
}

impl Frame {
    /// No segment.
    pub(crate) const EMPTY: Self = Self {
        headers: [0; 80],
        text: 0,
    };

    /// Becomes the segment that a connection gave to send.
    #[inline(always)]
    fn fill(&mut self, transmit: &Transmit) {
        let (ip, tcp) = self.headers.split_at_mut(ipv4::HEADER_LEN);
        transmit.header.emit(tcp);
        let addresses = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let size = transmit.header.len() + transmit.len as usize;
        ipv4::Header::new(ipv4::Protocol::TCP, addresses.0, addresses.1).emit(size, ip);
        self.text = transmit.len;
    }

    /// Whether both carry the same text, as the sequence numbers say.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        let seq = ipv4::HEADER_LEN + 4..ipv4::HEADER_LEN + 8;
        self.text == other.text && self.headers[seq.clone()] == other.headers[seq]
    }
}

/// The text of one segment, in a buffer as shards have them.
#[inline(always)]
fn text_of(len: u32) -> Text {
    Text {
        len,
        room: 2048,
        ..Text::default()
    }
}

/// Cycles a segment.
#[derive(Clone, Copy, Debug)]
pub struct Cycles {
    /// To take one: headers read, text queued.
    pub input: f64,
    /// To make one: decided on, header written.
    pub output: f64,
}

impl Side {
    fn new(conn: Connection) -> Self {
        Self {
            conn,
            queue: ReceiveQueue::new(),
            pool: SegmentPool::with_capacity(1 << 10),
        }
    }

    /// Whether it was text that header prediction took.
    #[inline(always)]
    fn take_header(&mut self, header: &Header, len: u32, now: Instant) -> bool {
        let text = text_of(len);
        let (queue, pool) = (&mut self.queue, &mut self.pool);
        let input = (self.conn).input(header, Ecn::NotEct, text, queue, pool, now);
        input.predicted
    }

    /// Makes the next segment, if there is one, with the headers that a frame has; as a shard does, the quick way first.
    #[inline(always)]
    pub(crate) fn make(&mut self, frame: &mut Frame, now: Instant) -> bool {
        if let Some(text) = self.conn.output_text(now) {
            frame.fill(&text);
        } else if let Some(transmit) = self.conn.output(now) {
            frame.fill(&transmit);
        } else {
            return false;
        }
        true
    }

    /// Takes it as a frame comes: its headers are read, its checksums were seen to by the link.
    #[inline(always)]
    pub(crate) fn take(&mut self, frame: &Frame, now: Instant) {
        let tcp = &frame.headers[ipv4::HEADER_LEN..];
        let parsed = Header::parse_fast(tcp);
        let Some((header, _)) = parsed.or_else(|| Header::parse(tcp).ok()) else {
            return;
        };
        self.take_header(&header, frame.text, now);
    }

    /// Takes frames as a GRO run, as a shard does: the first by header prediction, the others by comparing them with it. False if one of them does not
    /// follow the one before it; it and what comes behind it are not taken.
    #[inline(always)]
    pub(crate) fn take_run(&mut self, frames: &[Frame], now: Instant) -> bool {
        let [first, others @ ..] = frames else {
            return true;
        };
        let tcp = &first.headers[ipv4::HEADER_LEN..];
        let Some((header, text)) = Header::parse_fast(tcp) else {
            return false;
        };
        let Some(run_key) = RunKey::of(tcp, text) else {
            return false;
        };
        if !self.take_header(&header, first.text, now) {
            return false;
        }
        others.iter().all(|frame| {
            let Some((seq, _)) = run_key.read(&frame.headers[ipv4::HEADER_LEN..]) else {
                return false;
            };
            let text = text_of(frame.text);
            let Self { conn, queue, pool } = self;
            let ecn = Ecn::NotEct;
            let follows = conn.may_follow(seq, frame.text, ecn, text.memory(), queue, pool);
            if follows {
                conn.follow(ecn, &mut Some(text), queue, pool, now);
            }
            follows
        })
    }

    /// What its connection says of itself.
    #[cfg(test)]
    pub(crate) fn info(&self) -> proto::tcp::Info {
        self.conn.info()
    }

    /// The application takes what has come.
    fn read(&mut self) {
        let Self { conn, queue, pool } = self;
        let taken = queue.consume(pool, |text| text.len as usize);
        conn.consumed(taken);
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
        };
        path.exchange();
        path
    }

    /// Everything that both have to say.
    pub(crate) fn exchange(&mut self) {
        for _ in 0..4 {
            while let Some(t) = self.receiver.conn.output(self.now) {
                self.sender.take_header(&t.header, t.len, self.now);
            }
            while let Some(t) = self.sender.conn.output(self.now) {
                self.receiver.take_header(&t.header, t.len, self.now);
            }
        }
        self.receiver.read();
    }

    /// A little later the sender's application writes `segments` segments' text; the time then.
    pub(crate) fn write(&mut self, segments: usize) -> Instant {
        self.now = self.now + Duration::from_micros(100);
        let segments = u32::try_from(segments).unwrap_or(1);
        self.sender.conn.written(TEXT * segments);
        self.now
    }

    /// Bytes of text in `segments` segments.
    pub(crate) fn bytes(segments: usize) -> u64 {
        u64::from(TEXT) * segments as u64
    }

    /// Bytes that have arrived in order.
    pub(crate) fn received(&self) -> u64 {
        self.receiver.conn.info().bytes_received
    }

    /// Cycles to take the acknowledgment of two segments, the median of `rounds`.
    ///
    /// # Panics
    /// If two segments bring none.
    pub fn measure_acknowledgments(&mut self, rounds: usize) -> f64 {
        let mut steps = Steps::default();
        let (mut frame, mut answer) = (Frame::EMPTY, Frame::EMPTY);
        for _ in 0..rounds {
            let now = self.write(2);
            while self.sender.make(&mut frame, now) {
                self.receiver.take(&frame, now);
            }
            assert!(self.receiver.make(&mut answer, now), "every second one");
            steps.time(|| self.sender.take(&answer, now));
            self.exchange();
        }
        steps.median()
    }

    /// Cycles of `batches` batches, the median batch.
    ///
    /// # Panics
    /// If the window never opens as wide as a batch.
    pub fn measure(&mut self, batches: usize) -> Cycles {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut frames = vec![Frame::EMPTY; BATCH];
        for round in 0..batches {
            let now = self.write(BATCH);
            let begin = clock::cycles_in_order();
            let mut made = 0;
            while made < BATCH && self.sender.make(&mut frames[made], now) {
                made += 1;
            }
            let between = clock::cycles();
            let full = made == BATCH;
            let taking = clock::cycles_in_order();
            for frame in &frames[..made] {
                self.receiver.take(frame, now);
            }
            let took = clock::cycles_in_order() - taking;
            // What is left of a batch that the window did not hold.
            self.exchange();
            if full && round > batches / 10 {
                output.push(per_segment(between - begin));
                input.push(per_segment(took));
            }
        }
        assert!(!input.is_empty(), "the window never held a batch");
        let wanted = Self::bytes(BATCH * batches);
        assert_eq!(self.received(), wanted, "everything arrived");
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Cycles {
            input: median(input),
            output: median(output),
        }
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

/// Cycles of one step, many times, each by itself.
#[derive(Default)]
pub(super) struct Steps {
    cycles: Vec<u64>,
    /// What two looks at the clock take with nothing between them.
    empty: Vec<u64>,
}

impl Steps {
    #[inline(always)]
    pub fn time<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let before = clock::cycles_in_order();
        let begin = clock::cycles_in_order();
        let done = step();
        let end = clock::cycles_in_order();
        self.empty.push(begin - before);
        self.cycles.push(end - begin);
        done
    }

    /// The median, less that of looking at the clock.
    pub fn median(self) -> f64 {
        #[allow(clippy::cast_precision_loss)] // thousands
        let middle = |mut values: Vec<u64>| {
            values.sort_unstable();
            values[values.len() / 2] as f64
        };
        (middle(self.cycles) - middle(self.empty)).max(0.0)
    }
}
