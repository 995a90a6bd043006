//! What one end of a connection sent and what the other answered, as series to draw. A pure function of the segments.
//!
//! All times are nanoseconds since the connection's first segment, all places numbers of the sender's text: the first byte is 1. What is in flight and what
//! a round trip takes is as the capture saw it: between it and the receiver.

use std::{collections::VecDeque, time::Duration};

use super::{
    connections::{Kept, Side},
    segment::{Flags, Header},
    track::{Kind, Track},
};

/// So many values has a rate.
const INTERVALS: u64 = 120;
const SECOND: u64 = 1_000_000_000;

/// A segment of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub time: u64,
    pub begin: i64,
    pub end: i64,
    pub kind: Kind,
    pub flags: Flags,
}

/// What the receiver said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub time: u64,
    /// The highest acknowledgment so far.
    pub ack: i64,
    /// Its window, in bytes if the scale is known.
    pub window: u64,
    /// It acknowledges the same once more (RFC 5681 2).
    pub is_duplicate: bool,
}

/// A block of text that the receiver has, above a gap or for the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub time: u64,
    pub left: i64,
    pub right: i64,
    /// It arrived twice (RFC 2883).
    pub is_duplicate: bool,
}

/// What is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Syn,
    Fin,
    Reset,
    ZeroWindow,
    DuplicateAck,
}

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub time: u64,
    pub place: i64,
    pub what: What,
    pub from: Side,
}

/// A value at a time.
pub type Point = (u64, u64);

/// How windows are to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Shifted by so much.
    Known(u8),
    /// The handshake, which says it, was not seen.
    #[default]
    Unknown,
}

/// What is drawn of one direction.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub bars: Vec<Bar>,
    pub answers: Vec<Answer>,
    pub blocks: Vec<Block>,
    pub marks: Vec<Mark>,
    /// Bytes sent and not acknowledged.
    pub flight: Vec<Point>,
    /// Nanoseconds from text to its acknowledgment.
    pub round_trips: Vec<Point>,
    /// Bytes a second that were sent, and that were acknowledged; each at the end of its interval.
    pub throughput: Vec<Point>,
    pub goodput: Vec<Point>,
    /// Nanoseconds.
    pub interval: u64,
    /// Of the receiver's windows.
    pub scale: Scale,
    /// Segments with numbers far from all others.
    pub strays: u64,
    /// Bytes of text in all segments.
    pub bytes: u64,
    /// Of them, in retransmissions.
    pub bytes_again: u64,
    /// Bytes of text that were acknowledged, as far as that was seen.
    pub acked: u64,
}

impl Series {
    /// How many bars are of `kind`.
    pub fn count(&self, kind: Kind) -> usize {
        self.bars.iter().filter(|bar| bar.kind == kind).count()
    }

    /// How many marks are `what`.
    pub fn marked(&self, what: What) -> usize {
        self.marks.iter().filter(|mark| mark.what == what).count()
    }
}

/// How the windows of each end (client, server) are scaled, by the options of both SYNs.
pub fn scales(segments: &[Kept]) -> [Scale; 2] {
    let of = |side: Side| {
        segments
            .iter()
            .find(|kept| kept.from == side && kept.header.flags.has(Flags::SYN))
            .filter(|kept| kept.header.scale.is_some() || !kept.header.is_cut)
            .map(|kept| kept.header.scale)
    };
    match (of(Side::Client), of(Side::Server)) {
        // Both offer it, or neither shifts (RFC 7323 2.2).
        (Some(Some(client)), Some(Some(server))) => [Scale::Known(client), Scale::Known(server)],
        (Some(None), _) | (_, Some(None)) => [Scale::Known(0); 2],
        _ => [Scale::Unknown; 2],
    }
}

/// The series of what `sender` sent. `segments` are in the order of their times; `scale` is of the other end's windows.
pub fn series(
    segments: &[Kept],
    sender: Side,
    scale: Scale,
    round_trip: Option<Duration>,
) -> Series {
    let Some(first) = segments.first() else {
        return Series::default();
    };
    let mut state = State {
        begin: first.header.time,
        sender,
        round_trip,
        series: Series {
            scale,
            ..Series::default()
        },
        track: Track::default(),
        acked: None,
        window: None,
        sacked: i64::MIN,
        again: i64::MIN,
        controls: [None; 2],
        open: VecDeque::new(),
        sent: Vec::new(),
        gained: Vec::new(),
    };
    for kept in segments {
        if kept.from == sender {
            state.sent(&kept.header);
        } else {
            state.answered(&kept.header);
        }
    }
    let duration = state.time(segments.last().map_or(first, |last| last).header.time);
    state.rates(duration);
    state.series
}

struct State {
    begin: Duration,
    sender: Side,
    round_trip: Option<Duration>,
    series: Series,
    track: Track,
    acked: Option<i64>,
    window: Option<u64>,
    /// The highest text that a SACK block had.
    sacked: i64,
    /// Behind the highest text that was retransmitted.
    again: i64,
    /// Behind SYN and FIN: what acknowledges them acknowledges no text.
    controls: [Option<i64>; 2],
    /// Text that waits for its acknowledgment: its end, and when it was sent.
    open: VecDeque<(i64, u64)>,
    /// Bytes sent, and acknowledged, and when.
    sent: Vec<Point>,
    gained: Vec<Point>,
}

impl State {
    fn time(&self, time: Duration) -> u64 {
        u64::try_from(time.saturating_sub(self.begin).as_nanos()).unwrap_or(u64::MAX)
    }

    fn mark(&mut self, time: u64, place: i64, what: What, from: Side) {
        self.series.marks.push(Mark {
            time,
            place,
            what,
            from,
        });
    }

    fn fly(&mut self, time: u64) {
        let Some(acked) = self.acked else {
            return; // what was sent before the capture is not known
        };
        let bytes = u64::try_from(self.track.top() - acked).unwrap_or(0);
        self.series.flight.push((time, bytes));
    }

    /// A segment of the sender.
    fn sent(&mut self, header: &Header) {
        let (time, flags) = (self.time(header.time), header.flags);
        let is_syn = flags.has(Flags::SYN);
        let span = header.span();
        if flags.has(Flags::RST) {
            let place = self.track.offset(header.seq, 1);
            // A reset that answers a SYN has no number of its own.
            let place = place.unwrap_or(self.track.top());
            return self.mark(time, place, What::Reset, self.sender);
        }
        if span == 0 {
            return;
        }
        let Some(begin) = self.track.offset(header.seq, u8::from(!is_syn)) else {
            self.series.strays += 1;
            return;
        };
        let end = begin + span;
        if is_syn {
            self.acked.get_or_insert(begin);
            self.controls[0] = Some(begin + 1);
            self.mark(time, begin, What::Syn, self.sender);
        }
        if flags.has(Flags::FIN) {
            self.controls[1] = Some(end);
            self.mark(time, end, What::Fin, self.sender);
        }
        let kind = self
            .track
            .take(header.time, (begin, end), self.acked, self.round_trip);
        let bytes = u64::from(header.text);
        match kind {
            Kind::New => self.open.push_back((end, time)),
            Kind::Again => {
                self.again = self.again.max(end);
                self.series.bytes_again += bytes;
            }
            Kind::Late | Kind::Probe => {}
        }
        self.series.bytes += bytes;
        self.series.bars.push(Bar {
            time,
            begin,
            end,
            kind,
            flags,
        });
        self.sent.push((time, bytes));
        self.fly(time);
    }

    /// A segment of the other end.
    fn answered(&mut self, header: &Header) {
        let (time, flags) = (self.time(header.time), header.flags);
        let from = self.sender.other();
        if flags.has(Flags::RST) {
            let place = self.acked.unwrap_or(self.track.top());
            return self.mark(time, place, What::Reset, from);
        }
        if !flags.has(Flags::ACK) {
            return;
        }
        let Some(ack) = self.track.offset(header.ack, 1) else {
            self.series.strays += 1;
            return;
        };
        let window = match self.series.scale {
            // The window of a SYN is never shifted (RFC 7323 2.2).
            Scale::Known(shift) if !flags.has(Flags::SYN) => u64::from(header.window) << shift,
            _ => u64::from(header.window),
        };
        let before = self.acked;
        let is_pure = header.span() == 0;
        let is_duplicate =
            is_pure && before == Some(ack) && self.window == Some(window) && self.track.top() > ack;
        // What was overtaken by a later one says nothing new.
        if before > Some(ack) {
            return;
        }
        self.acked = Some(ack);
        self.window = Some(window);
        self.sample(time, before, ack);
        if let Some(before) = before {
            let controls = self.controls.iter().flatten();
            let controls = controls.filter(|end| (before + 1..=ack).contains(end));
            let text = u64::try_from(ack - before).unwrap_or(0);
            let text = text.saturating_sub(controls.count() as u64);
            self.gained.push((time, text));
            self.series.acked += text;
        }
        self.blocks(time, ack, header);
        self.series.answers.push(Answer {
            time,
            ack,
            window,
            is_duplicate,
        });
        if is_duplicate {
            self.mark(time, ack, What::DuplicateAck, from);
        }
        if window == 0 {
            self.mark(time, ack, What::ZeroWindow, from);
        }
        self.fly(time);
    }

    /// A round trip is that of the newest segment that is acknowledged, if it is not in doubt: nothing of what is acknowledged with it was retransmitted
    /// (RFC 6298 3), and it was not known to be there before.
    fn sample(&mut self, time: u64, before: Option<i64>, ack: i64) {
        let mut newest = None;
        while let Some(&(end, sent)) = self.open.front() {
            if end > ack {
                break;
            }
            newest = Some((end, sent));
            self.open.pop_front();
        }
        let Some((end, sent)) = newest else {
            return;
        };
        let is_clear = before.is_none_or(|before| before >= self.again) && end > self.sacked;
        if is_clear {
            self.series
                .round_trips
                .push((time, time.saturating_sub(sent)));
        }
    }

    fn blocks(&mut self, time: u64, ack: i64, header: &Header) {
        let place = |seq, track: &mut Track| track.offset(seq, 1);
        let mut whole: Vec<(i64, i64)> = Vec::with_capacity(4);
        for &(left, right) in header.sacks() {
            match (place(left, &mut self.track), place(right, &mut self.track)) {
                (Some(left), Some(right)) if left < right => whole.push((left, right)),
                _ => self.series.strays += 1,
            }
        }
        for (i, &(left, right)) in whole.iter().enumerate() {
            let is_inside = |&(l, r): &(i64, i64)| l <= left && right <= r;
            let is_duplicate = i == 0 && (right <= ack || whole.get(1).is_some_and(is_inside));
            if !is_duplicate {
                self.sacked = self.sacked.max(right);
            }
            self.series.blocks.push(Block {
                time,
                left,
                right,
                is_duplicate,
            });
        }
    }

    /// What was sent and acknowledged in each interval.
    fn rates(&mut self, duration: u64) {
        let interval = interval(duration);
        self.series.interval = interval;
        self.series.throughput = rate(&self.sent, interval, duration);
        self.series.goodput = rate(&self.gained, interval, duration);
    }
}

/// A round number of nanoseconds: 1, 2 or 5 times a power of ten.
fn interval(duration: u64) -> u64 {
    let least = (duration / INTERVALS).max(1_000);
    let mut ten = 1_000_u64;
    loop {
        for factor in [1, 2, 5] {
            match ten.checked_mul(factor) {
                Some(interval) if interval < least => {}
                Some(interval) => return interval,
                None => return u64::MAX,
            }
        }
        ten = ten.saturating_mul(10);
    }
}

/// Bytes a second in each interval, from (time, bytes).
fn rate(bytes: &[Point], interval: u64, duration: u64) -> Vec<Point> {
    if bytes.is_empty() {
        return Vec::new();
    }
    // No more than INTERVALS and one: none is shorter than that part of it.
    let count = usize::try_from(duration / interval).map_or(0, |n| n + 1);
    let mut sums = vec![0_u64; count];
    for &(time, bytes) in bytes {
        let index = usize::try_from(time / interval).unwrap_or(usize::MAX);
        if let Some(sum) = sums.get_mut(index) {
            *sum = sum.saturating_add(bytes);
        }
    }
    let a_second = |sum: u64| {
        let exact = u128::from(sum) * u128::from(SECOND) / u128::from(interval);
        u64::try_from(exact).unwrap_or(u64::MAX)
    };
    let ends = (1..).map(|n: u64| n.saturating_mul(interval));
    ends.zip(sums)
        .map(|(end, sum)| (end, a_second(sum)))
        .collect()
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
