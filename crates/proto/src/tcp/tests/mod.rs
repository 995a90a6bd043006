//! Two connections in virtual time, and a channel between them that loses, repeats and reorders.

mod ambiguous;
mod arrival;
mod asked;
mod burst;
mod close;
mod cut;
mod ecn;
mod edges;
mod exact;
mod fast_open;
mod fast_path;
mod flow;
mod hostile;
mod icmp;
mod image;
mod loss;
mod mutants;
mod open;
mod overlap;
mod path;
mod pruning;
mod random;
mod recorded;
mod rows;
mod scoreboard;
mod sent;
mod tail;
mod unchecked;
mod units;
mod user_timeout;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use std::eprintln;

use super::*;
use crate::ip::Ecn;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Header, SeqNum};

/// SplitMix64: small, and the same everywhere.
pub(super) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// In `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    /// True `n` times in a thousand.
    pub fn per_mille(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// What the channel does to segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub delay: Duration,
}

impl Faults {
    pub const NONE: Self = Self {
        loss: 0,
        duplicate: 0,
        reorder: 0,
        delay: Duration::from_millis(5),
    };
}

/// One end: a connection with its queues, and an application that reads and writes.
pub(super) struct End {
    pub conn: Option<Connection>,
    pub time_wait: Option<TimeWait>,
    pub send: VecDeque<u8>,
    pub queue: ReceiveQueue<Vec<u8>>,
    pub pool: SegmentPool<Vec<u8>>,
    pub received: Vec<u8>,
    pub events: Events,
    /// Does not read while true.
    pub paused: bool,
    pub sent: Vec<(Instant, Transmit)>,
    pub drops: Vec<Drop>,
    pub error: Option<Error>,
}

impl End {
    fn new(conn: Option<Connection>) -> Self {
        Self {
            conn,
            time_wait: None,
            send: VecDeque::new(),
            queue: ReceiveQueue::new(),
            pool: SegmentPool::with_capacity(8192),
            received: Vec::new(),
            events: Events::NONE,
            paused: false,
            sent: Vec::new(),
            drops: Vec::new(),
            error: None,
        }
    }

    pub fn conn(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("a connection")
    }

    pub fn state(&self) -> State {
        match (&self.conn, &self.time_wait) {
            (Some(conn), _) => conn.state(),
            (None, Some(_)) => State::TimeWait,
            (None, None) => State::Closed,
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.send.extend(bytes);
        self.conn().written(u32::try_from(bytes.len()).unwrap());
    }

    /// Reads up to `most` bytes.
    pub fn read(&mut self, most: usize) {
        let mut left = most;
        let mut taken = 0;
        while left > 0
            && let Some(front) = self.queue.front(&self.pool)
        {
            let n = front.len().min(left);
            self.received.extend_from_slice(&front[..n]);
            drop_bytes(&mut self.queue, &mut self.pool, n);
            left -= n;
            taken += n as u32;
        }
        if let Some(conn) = &mut self.conn {
            conn.consumed(taken);
            assert_eq!(conn.info().unread_bytes, self.queue.readable_bytes());
        }
    }

    fn note(&mut self, input: Input) {
        self.send.drain(..input.acked as usize);
        self.drops.extend(input.drop);
        self.note_events(input.events);
    }

    fn note_events(&mut self, events: Events) {
        self.events |= events;
        if events.intersects(Events::READABLE | Events::PEER_CLOSED) && !self.paused {
            self.read(usize::MAX);
        }
    }

    /// What the shard does after output: retire what is done.
    fn retire(&mut self, now: Instant) {
        let Some(conn) = &self.conn else { return };
        conn.check();
        if conn.state() == State::TimeWait && !conn.wants_output() {
            self.time_wait = Some(TimeWait::new(conn, now));
            self.conn = None;
        } else if conn.is_finished() {
            self.error = conn.error();
            self.conn = None;
        }
    }
}

struct Flying {
    at: Instant,
    order: u64,
    to: usize,
    header: Header,
    ecn: Ecn,
    text: Vec<u8>,
}

/// Two ends and what flies between them.
pub(super) struct Pair {
    pub ends: [End; 2],
    pub now: Instant,
    pub rng: Rng,
    pub faults: Faults,
    flying: Vec<Flying>,
    order: u64,
    /// Opens the second end when a SYN arrives for it.
    listener: Option<Config>,
    pub quiet: bool,
    /// A segment with text that the channel loses so many times.
    pub unlucky: (SeqNum, u32),
    pub seen: fast_path::Seen,
    /// So many of the next ECN-capable segments arrive marked.
    pub marks: u32,
    /// Most bytes of text that the path takes in a segment; whether it says so.
    pub narrow: Option<(usize, bool)>,
    /// The listener takes text in SYNs.
    pub fast: bool,
}

pub(super) const ISS: [SeqNum; 2] = [SeqNum(0xffff_ff00), SeqNum(0x7fff_fff0)];

impl Pair {
    /// A client in SYN-SENT and a listening server.
    pub fn listening(seed: u64, client: &Config, server: &Config) -> Self {
        let now = Instant(1_000_000_000);
        let conn = Connection::open_active(client, 1000, 80, ISS[0], 77, now);
        Self {
            ends: [End::new(Some(conn)), End::new(None)],
            now,
            rng: Rng(seed),
            faults: Faults::NONE,
            flying: Vec::new(),
            order: 0,
            listener: Some(*server),
            quiet: true,
            unlucky: (SeqNum(0), 0),
            seen: fast_path::Seen::default(),
            marks: 0,
            narrow: None,
            fast: false,
        }
    }

    /// Both open actively, to each other.
    pub fn simultaneous(seed: u64, config: &Config) -> Self {
        let mut pair = Self::listening(seed, config, config);
        pair.listener = None;
        let conn = Connection::open_active(config, 80, 1000, ISS[1], 99, pair.now);
        pair.ends[1].conn = Some(conn);
        pair
    }

    /// An open connection.
    pub fn established(client: &Config, server: &Config) -> Self {
        let mut pair = Self::listening(1, client, server);
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.ends[0].state(), State::Established);
        assert_eq!(pair.ends[1].state(), State::Established);
        for end in &mut pair.ends {
            end.sent.clear();
            end.events = Events::NONE;
        }
        pair
    }

    /// Everything that both ends want to send goes into the channel.
    pub fn drain(&mut self) {
        for from in 0..2 {
            let mut count = 0;
            while let Some(conn) = &mut self.ends[from].conn
                && let Some(transmit) = fast_path::output(conn, self.now, &mut self.seen)
            {
                conn.check();
                count += 1;
                assert!(count < 100_000, "output without end");
                self.ends[from].sent.push((self.now, transmit));
                let start = transmit.offset as usize;
                let text: Vec<u8> = self.ends[from]
                    .send
                    .range(start..start + transmit.len as usize)
                    .copied()
                    .collect();
                self.launch_with(1 - from, transmit.header, transmit.ecn, text);
            }
            self.ends[from].retire(self.now);
        }
    }

    /// Puts a segment into the channel, as it is or worse.
    pub fn launch(&mut self, to: usize, header: Header, text: Vec<u8>) {
        self.launch_with(to, header, Ecn::NotEct, text);
    }

    /// [`Self::launch`] with an ECN codepoint.
    pub fn launch_with(&mut self, to: usize, header: Header, ecn: Ecn, text: Vec<u8>) {
        let mut ecn = ecn;
        if ecn != Ecn::NotEct && self.marks > 0 {
            self.marks -= 1;
            ecn = Ecn::Ce;
        }
        if !self.quiet {
            eprintln!(
                "{:>10.3} ms to {to}: seq {} ack {} len {} {:?} win {} {:?}",
                self.now.0 as f64 / 1e6,
                header.seq.0,
                header.ack.0,
                text.len(),
                header.flags,
                header.window,
                header.options.sack.as_slice()
            );
        }
        if !text.is_empty() && header.seq == self.unlucky.0 && self.unlucky.1 > 0 {
            self.unlucky.1 -= 1;
            return;
        }
        if let Some((most, tells)) = self.narrow
            && text.len() > most
        {
            let options = header.len() - 20;
            let mss = u16::try_from(most + options).unwrap();
            if let (true, Some(conn)) = (tells, &mut self.ends[1 - to].conn) {
                conn.on_icmp(IcmpError::TooBig { mss }, header.seq, true);
            }
            return;
        }
        let copies = 1 + u64::from(self.rng.per_mille(self.faults.duplicate));
        for _ in 0..copies {
            if self.rng.per_mille(self.faults.loss) {
                continue;
            }
            let mut at = self.now + self.faults.delay;
            if self.rng.per_mille(self.faults.reorder) {
                let extra = self.rng.below(self.faults.delay.as_nanos() as u64 * 2);
                at = at + Duration::from_nanos(extra);
            }
            self.order += 1;
            self.flying.push(Flying {
                at,
                order: self.order,
                to,
                header,
                ecn,
                text: text.clone(),
            });
        }
    }

    /// A segment arrives now.
    pub fn deliver(&mut self, to: usize, header: &Header, text: Vec<u8>) -> Option<Input> {
        self.deliver_with(to, header, Ecn::NotEct, text)
    }

    /// [`Self::deliver`] with the ECN codepoint of its IP header.
    pub fn deliver_with(
        &mut self,
        to: usize,
        header: &Header,
        ecn: Ecn,
        text: Vec<u8>,
    ) -> Option<Input> {
        let now = self.now;
        let len = text.len() as u32;
        let end = &mut self.ends[to];
        if end.conn.is_none() {
            let verdict = end
                .time_wait
                .as_mut()
                .map(|record| record.input(header, len, now));
            match verdict {
                Some(TimeWaitVerdict::Acknowledge(answer)) => {
                    self.launch(1 - to, answer, Vec::new());
                    return None;
                }
                Some(TimeWaitVerdict::Drop) => return None,
                Some(TimeWaitVerdict::Reuse { .. } | TimeWaitVerdict::Refuse) | None => {}
            }
            if let (1, Some(config), Listen::Open) = (to, self.listener, listen(header, len)) {
                self.listener = None;
                let mut conn = Connection::open_passive(&config, header, ISS[1], 99, now);
                conn.set_syn_ecn(ecn);
                if self.fast {
                    let (queue, pool) = (&mut end.queue, &mut end.pool);
                    let input = conn.take_syn_text(header, text, queue, pool, now);
                    conn.check();
                    end.conn = Some(conn);
                    end.note(input);
                    return Some(input);
                }
                conn.check();
                end.conn = Some(conn);
            } else if let Some(reset) = reset_for(header, len) {
                self.launch(1 - to, reset, Vec::new());
            }
            return None;
        }
        let input = fast_path::input(end, header, ecn, text, now, &mut self.seen)?;
        let conn = end.conn.as_mut()?;
        conn.check();
        assert_eq!(
            conn.deadline() == Instant::FAR,
            conn.timers.earliest() == Instant::FAR
        );
        end.note(input);
        Some(input)
    }

    /// The next thing that happens; false if nothing will.
    pub fn step(&mut self, until: Instant) -> bool {
        self.drain();
        let next = self.flying.iter().map(|f| (f.at, f.order)).min();
        let timer = |end: &End| {
            let conn = end.conn.as_ref().map_or(Instant::FAR, Connection::deadline);
            conn.min(
                end.time_wait
                    .as_ref()
                    .map_or(Instant::FAR, TimeWait::expires),
            )
        };
        let deadline = timer(&self.ends[0]).min(timer(&self.ends[1]));
        let at = deadline.min(next.map_or(Instant::FAR, |(at, _)| at));
        if at > until || at == Instant::FAR {
            self.now = self.now.max(until.min(at));
            return false;
        }
        self.now = self.now.max(at);
        if let Some((at, order)) = next
            && at <= deadline
        {
            let index = self
                .flying
                .iter()
                .position(|f| (f.at, f.order) == (at, order))
                .unwrap();
            let segment = self.flying.swap_remove(index);
            self.deliver_with(segment.to, &segment.header, segment.ecn, segment.text);
            return true;
        }
        for end in &mut self.ends {
            if end
                .time_wait
                .as_ref()
                .is_some_and(|record| record.expires() <= self.now)
            {
                end.time_wait = None;
            }
            let Some(conn) = &mut end.conn else { continue };
            let before = conn.deadline();
            let events = conn.on_timer(self.now);
            assert!(
                before > self.now || conn.deadline() > self.now,
                "a timer that does not move"
            );
            end.note_events(events);
        }
        true
    }

    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.drain();
    }

    /// Takes everything that flies out of the channel.
    pub fn intercept(&mut self) -> Vec<(usize, Header, Vec<u8>)> {
        self.drain();
        let mut all = core::mem::take(&mut self.flying);
        all.sort_by_key(|f| (f.at, f.order));
        all.into_iter().map(|f| (f.to, f.header, f.text)).collect()
    }

    /// A header from the peer of `to`, as a blind but well-informed attacker would write it.
    pub fn forge(&mut self, to: usize, flags: Flags) -> Header {
        let conn = self.ends[to].conn();
        let mut header = Header {
            source_port: conn.remote_port(),
            destination_port: conn.local_port(),
            seq: conn.rcv.nxt,
            ack: conn.snd.una,
            flags,
            window: 1000,
            ..Header::default()
        };
        if conn.timestamps {
            header.options.timestamps = Some(crate::wire::tcp::Timestamps {
                value: conn.ts_recent,
                echo: 0,
            });
        }
        header
    }
}

/// Drops the first `n` readable bytes; how many there were to drop.
pub(super) fn drop_bytes(
    queue: &mut ReceiveQueue<Vec<u8>>,
    pool: &mut SegmentPool<Vec<u8>>,
    n: usize,
) -> u32 {
    let mut left = n;
    queue.consume(pool, |text| {
        let taken = text.len().min(left);
        left -= taken;
        taken
    })
}
