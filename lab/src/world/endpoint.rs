//! One end of a connection on netchan's TCP: the connection, its queues, its application, and the referee that looks at its segments.

use proto::{
    ip::Ecn,
    tcp::{
        Config, Connection, Error, Events, IcmpError, Info, Input, Listen, ReceiveQueue,
        SegmentPool, State, TimeWait, TimeWaitVerdict, Transmit, listen, reset_for,
    },
    time::{Duration, Instant},
    wire::tcp::{Flags, Header, SeqNum},
};

mod apart;

pub use apart::Seen;

use super::{
    app::{App, Ending, Reading},
    referee::{Claims, Referee},
    text::Text,
};

/// Bytes of the buffer that a received segment lies in.
const BUFFER: u32 = 2048;

/// A TCP segment on its way.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its header.
    pub header: Header,
    /// Its text.
    pub text: Text,
    /// What its IP header says.
    pub ecn: Ecn,
}

impl Segment {
    /// Bytes of it in an IPv4 packet.
    #[must_use]
    pub fn size(&self) -> u32 {
        20 + u32::try_from(self.header.len()).unwrap_or(60) + self.text.len
    }
}

/// How an end begins.
#[derive(Clone, Debug)]
pub struct EndShape {
    /// Its TCP.
    pub config: Config,
    /// Its application.
    pub app: App,
    /// Opens then; listens if `None`.
    pub opens_at: Option<Instant>,
    /// Its first sequence number.
    pub iss: SeqNum,
    /// Where its timestamps begin.
    pub ts_offset: u32,
    /// Answers are looked for only so long after the first segment came: those that come meanwhile are taken together.
    pub patience: Duration,
}

/// See the module's documentation.
pub struct Endpoint {
    shape: EndShape,
    ports: (u16, u16),
    /// Of what it writes, and of what it reads.
    streams: (u32, u32),
    conn: Option<Connection>,
    time_wait: Option<TimeWait>,
    queue: ReceiveQueue<Text>,
    referee: Referee,
    began: bool,
    written: u64,
    acked: u64,
    read: u64,
    burst: usize,
    burst_written: u64,
    burst_at: Option<Instant>,
    pauses: bool,
    ended: bool,
    read_at: Instant,
    stalled: bool,
    output_at: Instant,
    /// Changes whenever something got on.
    progress: u64,
    state: State,
    events: Events,
    error: Option<Error>,
    finished_at: Option<Instant>,
    read_all_at: Option<Instant>,
    last: Option<Info>,
    /// How far its connection's clock is ahead of the world's.
    ahead: Duration,
    /// It is taken apart and put together again now and then.
    apart: Option<Box<apart::Apart>>,
}

impl Endpoint {
    /// An end that has done nothing yet.
    #[must_use]
    pub fn new(shape: EndShape, ports: (u16, u16), streams: (u32, u32)) -> Self {
        let referee = Referee::new(&shape.config, shape.iss);
        Self {
            shape,
            ports,
            streams,
            conn: None,
            time_wait: None,
            queue: ReceiveQueue::new(),
            referee,
            began: false,
            written: 0,
            acked: 0,
            read: 0,
            burst: 0,
            burst_written: 0,
            burst_at: None,
            pauses: false,
            ended: false,
            read_at: Instant::ZERO,
            stalled: false,
            output_at: Instant::FAR,
            progress: 0,
            state: State::Closed,
            events: Events::NONE,
            error: None,
            finished_at: None,
            read_all_at: None,
            last: None,
            ahead: Duration::ZERO,
            apart: None,
        }
    }

    /// Bytes its application has read.
    #[must_use]
    pub const fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Bytes its application has written.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written
    }

    /// How it was made.
    #[must_use]
    pub const fn shape(&self) -> &EndShape {
        &self.shape
    }

    /// Why its connection ended, if not by FINs.
    #[must_use]
    pub const fn error(&self) -> Option<Error> {
        self.error
    }

    /// When its connection was gone or in TIME-WAIT.
    #[must_use]
    pub const fn finished_at(&self) -> Option<Instant> {
        self.finished_at
    }

    /// When the peer's FIN was reached and everything before it was read.
    #[must_use]
    pub const fn read_all_at(&self) -> Option<Instant> {
        self.read_all_at
    }

    /// A figure that changes when something gets on.
    #[must_use]
    pub const fn progress(&self) -> u64 {
        self.progress + self.read
    }

    /// The connection in figures, the last ones if it is gone.
    #[must_use]
    pub fn info(&self) -> Option<Info> {
        self.conn.as_ref().map(Connection::info).or(self.last)
    }

    /// Segments in its receive queue.
    #[must_use]
    pub const fn segments_held(&self) -> u32 {
        self.queue.segments_held()
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.began && self.conn.is_none() && self.time_wait.is_none() && self.queue.is_idle()
    }

    /// For a report of what went wrong.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "written {} acked {} read {} ended {} error {:?} time-wait {} queue {} {:?}",
            self.written,
            self.acked,
            self.read,
            self.ended,
            self.error,
            self.time_wait.is_some(),
            self.queue.segments_held(),
            self.conn
        )
    }

    /// When it has something to do next.
    #[must_use]
    pub fn next(&self) -> Instant {
        if !self.began {
            return self.shape.opens_at.unwrap_or(Instant::FAR);
        }
        let conn = self
            .conn
            .as_ref()
            .map_or(Instant::FAR, Connection::deadline);
        let wait = self
            .time_wait
            .as_ref()
            .map_or(Instant::FAR, TimeWait::expires);
        let reads = if self.queue.readable_bytes() > 0 {
            self.read_at
        } else {
            Instant::FAR
        };
        let writes = match self.burst_at {
            Some(at) if self.pauses && self.conn.is_some() => at,
            _ => Instant::FAR,
        };
        let timer = self.world_time(conn.min(wait));
        timer.min(reads).min(writes).min(self.output_at)
    }

    /// Time has come, or may have: asked too early it does nothing.
    pub fn wake(&mut self, pool: &mut SegmentPool<Text>, now: Instant, out: &mut Vec<Segment>) {
        if !self.began && self.shape.opens_at.is_some_and(|at| at <= now) {
            self.began = true;
            let (iss, ts_offset) = (self.shape.iss, self.shape.ts_offset);
            let config = &self.shape.config;
            let (local, remote) = self.ports;
            let conn = Connection::open_active(config, local, remote, iss, ts_offset, now);
            self.conn = Some(conn);
        }
        let clock = now + self.ahead;
        if self
            .time_wait
            .as_ref()
            .is_some_and(|record| record.expires() <= clock)
        {
            self.time_wait = None;
        }
        if let Some(conn) = &mut self.conn {
            let before = conn.deadline();
            let events = conn.on_timer(clock);
            assert!(
                before > clock || conn.deadline() > clock,
                "a timer that does not move: {before:?} at {now:?}: {conn:?}"
            );
            self.events |= events;
        }
        if self.output_at <= now {
            self.output_at = Instant::FAR;
        }
        self.turn(pool, now, out);
    }

    /// A segment arrives.
    pub fn receive(
        &mut self,
        segment: &Segment,
        pool: &mut SegmentPool<Text>,
        now: Instant,
        out: &mut Vec<Segment>,
    ) {
        let (header, len) = (&segment.header, segment.text.len);
        let Some(conn) = &mut self.conn else {
            return self.arrives_unasked(header, len, pool, now, out);
        };
        self.referee.heard(header, len);
        let text = Text {
            room: len.max(BUFFER),
            ..segment.text
        };
        let input = conn.input(
            header,
            segment.ecn,
            text,
            &mut self.queue,
            pool,
            now + self.ahead,
        );
        conn.check();
        self.note(input);
        if self.shape.patience == Duration::ZERO {
            self.turn(pool, now, out);
        } else if self.output_at == Instant::FAR {
            self.output_at = now + self.shape.patience;
        }
    }

    /// The network says that a segment was too big.
    pub fn too_big(&mut self, mtu: u32, quoted: SeqNum) {
        if let Some(conn) = &mut self.conn {
            let mss = u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX);
            self.events |= conn.on_icmp(IcmpError::TooBig { mss }, quoted, true);
            self.output_at = Instant::ZERO;
        }
    }

    /// A segment for no connection (RFC 9293 §3.10.7.1, §3.10.7.2).
    fn arrives_unasked(
        &mut self,
        header: &Header,
        len: u32,
        pool: &mut SegmentPool<Text>,
        now: Instant,
        out: &mut Vec<Segment>,
    ) {
        let clock = now + self.ahead;
        let verdict = self.time_wait.as_mut().map(|w| w.input(header, len, clock));
        match verdict {
            Some(TimeWaitVerdict::Acknowledge(answer)) => return out.push(bare(answer)),
            Some(TimeWaitVerdict::Drop) => return,
            Some(TimeWaitVerdict::Reuse { .. } | TimeWaitVerdict::Refuse) | None => {}
        }
        let listens = !self.began && self.shape.opens_at.is_none();
        if listens && listen(header, len) == Listen::Open {
            self.began = true;
            self.referee.heard(header, 0);
            let (iss, ts_offset) = (self.shape.iss, self.shape.ts_offset);
            let config = &self.shape.config;
            self.conn = Some(Connection::open_passive(
                config, header, iss, ts_offset, now,
            ));
            self.turn(pool, now, out);
        } else if let Some(reset) = reset_for(header, len) {
            out.push(bare(reset));
        }
    }

    fn note(&mut self, input: Input) {
        let acked = u64::from(input.acked);
        self.acked += acked;
        assert!(
            self.acked <= self.written,
            "acknowledged what was never written"
        );
        self.events |= input.events;
        let moved = acked > 0
            || input
                .events
                .intersects(Events::READABLE | Events::PEER_CLOSED);
        self.progress += u64::from(moved);
    }

    /// The application acts, the connection sends, what is done retires.
    fn turn(&mut self, pool: &mut SegmentPool<Text>, now: Instant, out: &mut Vec<Segment>) {
        self.come_apart(pool, now);
        self.act(pool, now);
        self.come_apart(pool, now);
        self.output(now, out);
        self.check(now);
        self.retire(pool, now);
    }

    fn act(&mut self, pool: &mut SegmentPool<Text>, now: Instant) {
        self.take(pool, now);
        if self.conn.is_some() {
            self.write(now);
            self.finish(pool, now);
        }
        let closed = self.events.contains(Events::PEER_CLOSED);
        if closed && self.queue.readable_bytes() == 0 && self.read_all_at.is_none() {
            self.read_all_at = Some(now);
        }
    }

    /// Reads as the application does.
    fn take(&mut self, pool: &mut SegmentPool<Text>, now: Instant) {
        if self.queue.readable_bytes() == 0 {
            return;
        }
        let most = match self.shape.app.reading {
            Reading::Eager => u64::MAX,
            Reading::Slow { .. } | Reading::Stall { .. } if now < self.read_at => return,
            Reading::Slow { bytes, every } => {
                self.read_at = now + every;
                u64::from(bytes)
            }
            Reading::Stall { from, .. } if self.read < from => from - self.read,
            Reading::Stall { lasts, .. } if !self.stalled => {
                self.stalled = true;
                self.read_at = now + lasts;
                return;
            }
            Reading::Stall { .. } => u64::MAX,
        };
        let (mut left, mut expected, stream) = (most, self.read, self.streams.1);
        let taken = self.queue.consume(pool, |text| {
            assert_eq!(text.stream, stream, "another stream's text");
            assert_eq!(text.offset, expected, "in order, once");
            let n = u64::from(text.len).min(left);
            left -= n;
            expected += n;
            usize::try_from(n).unwrap_or(usize::MAX)
        });
        self.read += u64::from(taken);
        if let Some(conn) = &mut self.conn {
            conn.consumed(taken);
        }
        let wants_more = matches!(self.shape.app.reading, Reading::Stall { .. }) && !self.stalled;
        if wants_more && self.queue.readable_bytes() > 0 {
            self.take(pool, now);
        }
    }

    /// Writes what is due.
    fn write(&mut self, now: Instant) {
        let Some(conn) = &mut self.conn else { return };
        let app = &self.shape.app;
        while let Some(burst) = app.bursts.get(self.burst)
            && conn.is_open_for_writing()
            && !self.ended
        {
            if self.read < burst.needs {
                return;
            }
            let at = *self.burst_at.get_or_insert(now + burst.pause);
            self.pauses = now < at;
            if self.pauses {
                return;
            }
            let room = app.send_buffer.saturating_sub(self.written - self.acked);
            let left = burst.bytes - self.burst_written;
            let n = room.min(left).min(app.writes() - self.written);
            if n > 0 {
                conn.written(u32::try_from(n).expect("a send buffer below 4 GiB"));
                self.written += n;
                self.burst_written += n;
            }
            if n < left {
                // An acknowledgment will make room.
                return;
            }
            self.burst += 1;
            self.burst_written = 0;
            self.burst_at = None;
        }
    }

    /// Ends as the application does.
    fn finish(&mut self, pool: &mut SegmentPool<Text>, now: Instant) {
        let Some(conn) = &mut self.conn else { return };
        let app = &self.shape.app;
        let wrote_all = self.written == app.writes();
        if self.ended || !wrote_all || conn.state() == State::SynSent {
            return;
        }
        let readable = self.queue.readable_bytes();
        let due = match app.ending {
            Ending::Shut => true,
            Ending::ShutAfterPeer => conn.peer_closed() && readable == 0,
            Ending::Close { needs } => self.read >= needs,
            Ending::Abort { .. } => true,
            Ending::Stay => false,
        };
        if !due {
            return;
        }
        self.ended = true;
        self.events |= match app.ending {
            Ending::Close { .. } => conn.close(readable, now + self.ahead),
            Ending::Abort { .. } => conn.abort(),
            _ => conn.shutdown(),
        };
        if app.is_rude() {
            self.queue.clear(pool);
        }
    }

    /// Everything that the connection has to send now.
    fn output(&mut self, now: Instant, out: &mut Vec<Segment>) {
        if self.output_at != Instant::FAR {
            return;
        }
        let first = out.len();
        while let Some(conn) = &mut self.conn {
            let (mut info, probing) = (conn.info(), conn.is_probing());
            let Some(transmit) = conn.output(now + self.ahead) else {
                return;
            };
            // After a silence the window is another before anything looks at it: smaller (RFC 5681 §4.1), or larger where BBR ends PROBE_RTT.
            info.cwnd_bytes = conn.info().cwnd_bytes;
            let claims = Claims {
                info: &info,
                probing: probing || conn.is_probing(),
                written: self.written,
            };
            let offset = self.acked + u64::from(transmit.offset);
            let stream = self.streams.0;
            cut(&transmit, offset, stream, |segment| {
                self.referee.sent(&segment.header, &segment.text, &claims);
                out.push(segment);
            });
            assert!(out.len() - first < 100_000, "output without end: {conn:?}");
        }
    }

    /// What must hold after every step.
    fn check(&self, now: Instant) {
        let Some(conn) = &self.conn else { return };
        conn.check();
        let config = &self.shape.config;
        let queued = usize::try_from(self.written - self.acked).unwrap_or(usize::MAX);
        if !self.shape.app.is_rude() || !self.ended {
            conn.check_queues(queued, self.queue.readable_bytes());
        }
        assert!(
            self.queue.segments_held() <= config.max_segments.max(8),
            "{} segments held",
            self.queue.segments_held()
        );
        assert!(self.queue.gaps() <= u32::from(config.max_gaps.max(1)));
        let most = config.receive_buffer.max(65_535) + u32::from(config.mss);
        assert!(
            self.queue.readable_bytes() <= most,
            "the receive queue is bounded"
        );
        let closed = conn.state() == State::Closed;
        if !closed && !self.referee.is_idle() && !conn.wants_output() {
            assert!(conn.deadline() != Instant::FAR, "no timer: {conn:?}");
        }
        let looks = self.output_at != Instant::FAR;
        assert!(
            looks || !conn.wants_output(),
            "output said None at {now:?} and wants more: {conn:?}"
        );
    }

    /// What the owner does after output: what is done goes.
    fn retire(&mut self, pool: &mut SegmentPool<Text>, now: Instant) {
        let Some(conn) = &self.conn else { return };
        if conn.state() != self.state {
            self.state = conn.state();
            self.progress += 1;
        }
        let waits = conn.state() == State::TimeWait && !conn.wants_output();
        if !waits && !conn.is_finished() {
            return;
        }
        self.last = Some(conn.info());
        self.finished_at = Some(now);
        if waits {
            self.time_wait = Some(TimeWait::new(conn, now + self.ahead));
        }
        self.error = conn.error();
        self.conn = None;
        if self.error.is_some() {
            self.queue.clear(pool);
        }
    }
}

/// A segment without text.
const fn bare(header: Header) -> Segment {
    Segment {
        header,
        text: Text {
            stream: 0,
            offset: 0,
            len: 0,
            room: 0,
        },
        ecn: Ecn::NotEct,
    }
}

/// Cuts what is longer than a segment, as a link does: the last piece has the FIN and the PSH, the first one the CWR.
fn cut(transmit: &Transmit, offset: u64, stream: u32, mut emit: impl FnMut(Segment)) {
    let most = u32::from(transmit.segment).max(1);
    let mut at = 0;
    loop {
        let len = (transmit.len - at).min(most);
        let last = at + len == transmit.len;
        let mut header = transmit.header;
        header.seq = header.seq + at;
        if !last {
            header.flags = Flags(header.flags.0 & !(Flags::FIN.0 | Flags::PSH.0));
        }
        if at > 0 {
            header.flags = Flags(header.flags.0 & !Flags::CWR.0);
        }
        let text = Text {
            stream,
            offset: offset + u64::from(at),
            len,
            room: len,
        };
        let ecn = transmit.ecn;
        emit(Segment { header, text, ecn });
        at += len;
        if last {
            return;
        }
    }
}
