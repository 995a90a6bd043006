//! An end whose connection is taken apart into its image and put together again, in mid-flight, in another process's clock.

use std::collections::BTreeMap;

use proto::{
    tcp::{Connection, HeldText, ReceiveQueue, SegmentPool, State},
    time::{Duration, Instant},
    wire::tcp::SeqNum,
};

use super::Endpoint;
use crate::world::{
    dice::Dice,
    text::{Text, byte_at},
};

/// Clocks of two processes differ by a multiple of this, 4.7 hours: of every unit in which a connection keeps a time (2³⁰ ns, 2¹⁶ ns, 1 ms, 1 µs).
/// By anything else roundings differ, and with them a trace by a unit here and there.
const UNIT: Duration = Duration::from_nanos((1 << 30) * 15_625);

/// In what states connections were when they were taken apart, and how often.
pub type Seen = BTreeMap<&'static str, u64>;

/// When it happens, and what was seen.
pub(super) struct Apart {
    dice: Dice,
    one_of: u64,
    seen: Seen,
}

/// Its name in RFC 9293 §3.3.2.
const fn name(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::Listen => "LISTEN",
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
    }
}

/// The text of a payload, as an owner of real bytes has it.
fn bytes_of(text: &Text) -> Vec<u8> {
    let places = text.offset..text.end();
    places.map(|at| byte_at(text.stream, at)).collect()
}

impl Endpoint {
    /// From now on its connection is taken apart and put together again at one of so many moments; 0: never, but its clock is another from the
    /// beginning, as in those that are. (It is not young: with clocks that have just begun, what was never may count as a moment ago.)
    pub(in crate::world) fn set_apart(&mut self, seed: u64, one_of: u64) {
        let dice = Dice::new(seed);
        let seen = Seen::new();
        self.ahead = UNIT;
        self.apart = Some(Box::new(Apart { dice, one_of, seen }));
    }

    /// What its connection was like when that happened.
    #[must_use]
    pub fn seen_apart(&self) -> Option<&Seen> {
        self.apart.as_ref().map(|apart| &apart.seen)
    }

    /// What the connection's clock says, in the world's time.
    pub(super) fn world_time(&self, at: Instant) -> Instant {
        if at == Instant::FAR {
            at
        } else {
            at - self.ahead
        }
    }

    /// Maybe takes the connection and its text apart, and puts both together again: into nodes that others used, in another clock.
    pub(super) fn come_apart(&mut self, pool: &mut SegmentPool<Text>, now: Instant) {
        let (Some(apart), Some(conn)) = (&mut self.apart, &self.conn) else {
            return;
        };
        if apart.one_of == 0 || apart.dice.below(apart.one_of) > 0 {
            return;
        }
        note(&mut apart.seen, conn, &self.queue);
        let there = now + UNIT * (1 + u32::try_from(apart.dice.below(4)).unwrap_or(0));
        let image = conn.take_apart(now + self.ahead);
        if !self.shape.app.is_rude() || !self.ended {
            let queued = self.written - self.acked;
            assert_eq!(
                u64::from(image.queued_bytes()),
                queued,
                "what is to be sent"
            );
        }
        let whole = Connection::from_image(image.clone(), there);
        let whole = whole.unwrap_or_else(|error| panic!("{error:?}: {conn:?}"));
        assert!(
            whole.take_apart(there) == image,
            "taken apart once more, it is another: {whole:?}"
        );

        let text = self.queue.take_apart(pool, bytes_of);
        let (stream, first) = (self.streams.1, conn.ao_isns().remote);
        let first = first.map_or(SeqNum(0), |irs| irs + 1);
        let make = |seq: SeqNum, held: &HeldText| {
            let text = Text {
                stream,
                offset: u64::from((seq - first).cast_unsigned()),
                len: u32::try_from(held.bytes.len()).ok()?,
                room: held.memory,
            };
            assert_eq!(bytes_of(&text), held.bytes, "bytes at their place");
            Some(text)
        };
        let mut old = std::mem::take(&mut self.queue);
        old.clear(pool);
        let queue = whole.queue_from_image(text.clone(), pool, make);
        self.queue = queue.unwrap_or_else(|error| panic!("{error:?}: {whole:?}"));
        assert_eq!(self.queue.take_apart(pool, bytes_of), text);
        self.ahead = there.since(now);
        self.conn = Some(whole);
    }
}

/// Counts what `conn` is like.
fn note(seen: &mut Seen, conn: &Connection, queue: &ReceiveQueue<Text>) {
    let info = conn.info();
    let mut count = |name| *seen.entry(name).or_default() += 1;
    count(name(conn.state()));
    for (is, name) in [
        (info.in_recovery, "recovery"),
        (info.backoff > 0, "after a timeout"),
        (conn.is_probing(), "window closed"),
        (queue.gaps() > 0, "text behind a gap"),
        (queue.readable_bytes() > 0, "unread text"),
        (conn.wants_output(), "output due"),
    ] {
        if is {
            count(name);
        }
    }
}
