//! A connection that does what bytes say: how it opens, then segments (numbers near those that matter), calls and time, in any order. Nothing panics,
//! every invariant holds after each step, and nothing grows. The fuzz target `connection` and a test run these scripts.

mod bytes;

use self::bytes::Bytes;
use proto::ip::Ecn;
use proto::tcp::{
    Config, CongestionControl, Connection, EcnMode, Events, IcmpError, Keepalive, ReceiveQueue,
    SegmentPool, State, TimeWait,
};
use proto::time::{Duration, Instant};
use proto::wire::tcp::{AccEcn, Flags, Header, Options, SackBlocks, SeqNum, Timestamps};

const NODES: u32 = 512;
const STEPS: usize = 300;
const ISS: SeqNum = SeqNum(0xffff_ff00);
const IRS: SeqNum = SeqNum(0x7fff_fff0);

impl Bytes<'_> {
    fn bit(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.u8()) % all.len()]
    }

    /// A number at or near one of `points`, or far from all.
    fn near(&mut self, points: &[SeqNum]) -> SeqNum {
        let how = self.u8();
        let point = points[usize::from(how >> 3) % points.len()];
        match how & 7 {
            0..3 => point,
            3 => point + u32::from(self.u8()),
            4 => point - u32::from(self.u8()),
            5 => point + u32::from(self.u16()),
            6 => point - u32::from(self.u16()),
            _ => SeqNum(u32::from(self.u16()) << 16 | u32::from(self.u16())),
        }
    }
}

/// The connection, its queues, and what its peer may know of it.
struct Machine {
    conn: Connection,
    time_wait: Option<TimeWait>,
    queue: ReceiveQueue<Vec<u8>>,
    pool: SegmentPool<Vec<u8>>,
    max_segments: u32,
    max_gaps: u32,
    /// Bytes written and not acknowledged.
    queued: u32,
    closed: bool,
    now: Instant,
    /// Its SYN, the last segment's begin and end, and the furthest end.
    sent: [SeqNum; 4],
    /// The peer's SYN, the last acknowledgment, the window's edge.
    heard: [SeqNum; 3],
    timestamp: Timestamps,
}

/// Runs a script.
pub fn run(script: &[u8]) {
    let mut bytes = Bytes(script);
    let mut machine = Machine::open(&mut bytes);
    machine.settle();
    for _ in 0..STEPS {
        if bytes.0.is_empty() || machine.is_over() {
            break;
        }
        machine.step(&mut bytes);
        machine.settle();
    }
    machine.queue.clear(&mut machine.pool);
    assert_eq!(machine.pool.available(), NODES, "nodes lost");
}

fn config(bytes: &mut Bytes<'_>) -> Config {
    let (switches, sizes) = (bytes.u8(), bytes.u8());
    let on = |bit: u8| switches >> bit & 1 == 0;
    let of = |shift: u8, n: usize| usize::from(sizes >> shift) % n;
    Config {
        timestamps: on(0),
        sack: on(1),
        window_scale: on(2),
        nagle: on(3),
        pacing: !on(4),
        quick_ack: on(5),
        mss: [1460, 536, 65_495, 64][of(0, 4)],
        receive_buffer: [65_535, 500, 1 << 20, 1 << 30][of(2, 4)],
        max_segments: [256, 8][of(4, 2)],
        max_gaps: [16, 1][of(5, 2)],
        burst: [0, 20_000][of(6, 2)],
        ecn: bytes.one_of(&EcnMode::ALL),
        congestion: bytes.one_of(&CongestionControl::ALL),
        ..Config::default()
    }
}

impl Machine {
    fn open(bytes: &mut Bytes<'_>) -> Self {
        let config = config(bytes);
        let now = Instant(1_000_000_000);
        let syn = Header {
            source_port: 2,
            destination_port: 1,
            seq: IRS,
            flags: bytes.one_of(&[
                Flags::SYN,
                Flags::SYN | Flags::ECE | Flags::CWR,
                Flags::SYN | Flags::URG,
            ]),
            window: bytes.u16(),
            options: options(bytes, &[IRS], Timestamps { value: 9, echo: 0 }),
            ..Header::default()
        };
        let passive = bytes.bit();
        let conn = if passive {
            Connection::open_passive(&config, &syn, ISS, 7, now)
        } else {
            Connection::open_active(&config, 1, 2, ISS, 7, now)
        };
        Self {
            conn,
            time_wait: None,
            queue: ReceiveQueue::new(),
            pool: SegmentPool::with_capacity(NODES as usize),
            max_segments: config.max_segments.max(8),
            max_gaps: u32::from(config.max_gaps.max(1)),
            queued: 0,
            closed: false,
            now,
            sent: [ISS; 4],
            heard: [IRS, IRS + 1, IRS + 1],
            timestamp: Timestamps { value: 10, echo: 7 },
        }
    }

    fn is_over(&self) -> bool {
        self.conn.is_finished() && self.time_wait.is_none()
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() % 16 {
            0..6 => self.arbitrary_segment(bytes),
            6..8 => self.acknowledge_all(bytes),
            8..10 => self.honest_text(bytes),
            10 => self.write(bytes),
            11 => self.read(bytes),
            12..14 => self.pass_time(bytes),
            _ => self.call(bytes),
        }
    }

    /// What must hold after every step; everything that is to be sent leaves.
    fn settle(&mut self) {
        self.check();
        let mut sent = 0;
        while let Some(transmit) = self.conn.output(self.now) {
            let header = &transmit.header;
            assert!(header.len() <= 60);
            assert!(
                transmit.offset + transmit.len <= self.queued,
                "text that is not there"
            );
            let fin =
                u32::from(header.flags.contains(Flags::FIN) || header.flags.contains(Flags::SYN));
            let end = header.seq + transmit.len + fin;
            let furthest = if end > self.sent[3] {
                end
            } else {
                self.sent[3]
            };
            self.sent = [ISS, header.seq, end, furthest];
            if header.flags.contains(Flags::ACK) {
                let edge = header.ack + u32::from(header.window);
                self.heard = [IRS, header.ack, edge];
            }
            if let Some(timestamps) = header.options.timestamps {
                self.timestamp.echo = timestamps.value;
            }
            sent += 1;
            assert!(sent < 20_000, "output without end");
        }
        self.check();
        if self.conn.state() == State::TimeWait && self.time_wait.is_none() {
            self.time_wait = Some(TimeWait::new(&self.conn, self.now));
        }
    }

    fn check(&self) {
        self.conn.check();
        if !self.closed {
            let queued = usize::try_from(self.queued).unwrap_or(0);
            self.conn.check_queues(queued, self.queue.readable_bytes());
        }
        assert!(self.queue.segments_held() <= self.max_segments);
        assert!(self.queue.gaps() <= self.max_gaps);
    }

    fn deliver(&mut self, header: &Header, ecn: Ecn, text: Vec<u8>) {
        if let Some(record) = &mut self.time_wait {
            let len = u32::try_from(text.len()).unwrap_or(0);
            record.input(header, len, self.now);
            return;
        }
        let input = self
            .conn
            .input(header, ecn, text, &mut self.queue, &mut self.pool, self.now);
        assert!(
            input.acked <= self.queued,
            "acknowledged what was never written"
        );
        self.queued -= input.acked;
        self.note(input.events);
    }

    fn note(&mut self, events: Events) {
        if events.intersects(Events::RESET | Events::CLOSED) {
            self.closed = true;
        }
    }

    fn header(&self, seq: SeqNum, ack: SeqNum, flags: Flags) -> Header {
        Header {
            source_port: 2,
            destination_port: 1,
            seq,
            ack,
            flags,
            window: 65_535,
            options: Options {
                timestamps: self.conn.info().timestamps.then_some(self.timestamp),
                ..Options::default()
            },
            ..Header::default()
        }
    }

    fn arbitrary_segment(&mut self, bytes: &mut Bytes<'_>) {
        let flags = match bytes.u8() % 12 {
            0..4 => Flags::ACK,
            4 => Flags::ACK | Flags::PSH,
            5 => Flags::ACK | Flags::FIN,
            6 => Flags::SYN,
            7 => Flags::SYN | Flags::ACK,
            8 => Flags::RST,
            9 => Flags::RST | Flags::ACK,
            _ => Flags(bytes.u16() & 511),
        };
        let options = options(bytes, &self.sent, self.timestamp);
        let len = bytes.one_of(&[0, 0, 0, 1, 10, 536, 1460]);
        let header = Header {
            seq: bytes.near(&self.heard),
            ack: bytes.near(&self.sent),
            window: bytes.one_of(&[65_535, 0, 1, 100, 8_000]),
            urgent: if flags.contains(Flags::URG) {
                bytes.u16()
            } else {
                0
            },
            options,
            ..self.header(IRS, ISS, flags)
        };
        let ecn = Ecn::of(bytes.u8());
        self.deliver(&header, ecn, vec![7; len]);
    }

    /// What an honest peer says that has got everything; a handshake's part, too.
    fn acknowledge_all(&mut self, bytes: &mut Bytes<'_>) {
        let opening = self.conn.state() == State::SynSent;
        let (seq, flags) = if opening {
            (IRS, Flags::SYN | Flags::ACK)
        } else {
            (self.heard[1], Flags::ACK)
        };
        let mut header = self.header(seq, self.sent[3], flags);
        if opening {
            header.options = options(bytes, &[IRS], self.timestamp);
        }
        self.deliver(&header, Ecn::NotEct, Vec::new());
    }

    /// The next text, or what follows it by some distance, or its end.
    fn honest_text(&mut self, bytes: &mut Bytes<'_>) {
        let (gap, len) = (
            bytes.one_of(&[0, 0, 0, 1, 1460, 2920]),
            usize::from(bytes.u8()) * 6,
        );
        let fin = bytes.u8() > 200;
        let flags = if fin {
            Flags::ACK | Flags::FIN
        } else {
            Flags::ACK
        };
        let header = self.header(self.heard[1] + gap, self.sent[1], flags);
        self.timestamp.value = self.timestamp.value.wrapping_add(1);
        self.deliver(&header, Ecn::Ect0, vec![7; len]);
    }

    fn write(&mut self, bytes: &mut Bytes<'_>) {
        let n = u32::from(bytes.u16());
        if self.conn.is_open_for_writing() && self.queued < 1 << 20 {
            self.conn.written(n);
            self.queued += n;
        }
    }

    fn read(&mut self, bytes: &mut Bytes<'_>) {
        let mut left = usize::from(bytes.u16());
        let taken = self.queue.consume(&mut self.pool, |text| {
            let n = text.len().min(left);
            left -= n;
            n
        });
        self.conn.consumed(taken);
    }

    fn pass_time(&mut self, bytes: &mut Bytes<'_>) {
        let shift = bytes.u8() % 28;
        let most = Instant(self.now.0 + (u64::from(bytes.u8()) << shift));
        // To the next timer, if it is not later than that.
        self.now = if bytes.bit() {
            most
        } else {
            most.min(self.conn.deadline()).max(self.now)
        };
        if self.conn.deadline() <= self.now {
            let events = self.conn.on_timer(self.now);
            self.note(events);
        }
        if self
            .time_wait
            .as_ref()
            .is_some_and(|w| w.expires() <= self.now)
        {
            self.time_wait = None;
        }
    }

    fn call(&mut self, bytes: &mut Bytes<'_>) {
        let conn = &mut self.conn;
        let events = match bytes.u8() % 12 {
            0 => conn.shutdown(),
            1 => {
                self.closed = true;
                conn.close(self.queue.readable_bytes(), self.now)
            }
            2 => {
                self.closed = true;
                conn.abort()
            }
            3 => {
                let keepalive = Keepalive {
                    probes: bytes.u8(),
                    ..Keepalive::default()
                };
                conn.set_keepalive(bytes.bit().then_some(keepalive), self.now);
                Events::NONE
            }
            4 => {
                conn.set_nagle(bytes.bit());
                conn.set_cork(bytes.bit());
                Events::NONE
            }
            5 => {
                conn.mark_urgent();
                Events::NONE
            }
            6 => {
                conn.set_receive_buffer(u32::from(bytes.u16()) << 4);
                Events::NONE
            }
            7 => {
                conn.set_congestion(bytes.one_of(&CongestionControl::ALL), self.now);
                Events::NONE
            }
            8 => {
                conn.set_user_timeout(Duration::from_millis(bytes.u16().into()));
                Events::NONE
            }
            _ => {
                let mss = bytes.u16();
                let error = bytes.one_of(&[
                    IcmpError::TooBig { mss },
                    IcmpError::v4(3, 1).unwrap(),
                    IcmpError::v4(3, 3).unwrap(),
                ]);
                let quoted = bytes.near(&self.sent);
                self.conn.on_icmp(error, quoted, true)
            }
        };
        self.note(events);
    }
}

/// Options; most often none but timestamps.
fn options(bytes: &mut Bytes<'_>, points: &[SeqNum], timestamps: Timestamps) -> Options {
    let which = bytes.u8();
    let mut sack = SackBlocks::NONE;
    if which & 1 == 1 {
        for _ in 0..=bytes.u8() % 4 {
            sack.push(bytes.near(points), bytes.near(points));
        }
    }
    let odd = which & 2 == 2;
    Options {
        mss: odd.then(|| bytes.one_of(&[0, 1, 48, 536, 1460, 65_535])),
        window_scale: odd.then(|| bytes.u8()),
        sack_permitted: which & 4 == 0,
        sack,
        timestamps: (which & 8 == 0).then_some(Timestamps {
            value: timestamps.value.wrapping_add(u32::from(which >> 6)),
            echo: if which & 16 == 0 {
                timestamps.echo
            } else {
                bytes.u16().into()
            },
        }),
        accecn: (which & 32 == 32).then(|| AccEcn {
            ect1_first: bytes.bit(),
            len: bytes.u8() % 4,
            fields: [0; 3].map(|_| u32::from(bytes.u16()) << 8),
        }),
        ..Options::default()
    }
}
