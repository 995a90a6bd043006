//! The TCP connections of a capture, in the order of their first segments, and all segments of the one that is wanted.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use serde_json::{Value, json};

use super::{
    segment::{Flags, Header, Segment},
    track::{Kind, Track},
};
use crate::units;

/// Connections that are told apart: what is known of one takes up to 2 KiB if its segments are made to.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Segments of the wanted one that are kept, 80 bytes each.
pub const SEGMENTS_MAX: usize = 1_000_000;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It began the connection.
    Client,
    Server,
}

impl Side {
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A segment of a connection that is known.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub from: Side,
    pub header: Header,
}

/// What is counted of the segments of one end.
#[derive(Clone, Debug, Default)]
struct End {
    track: Track,
    /// The sequence number of its SYN.
    first: Option<u32>,
    acked: Option<i64>,
    segments: u64,
    bytes: u64,
    retransmissions: u64,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// From 1.
    pub number: usize,
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Whether a SYN was seen; if not, which end is the client is a guess.
    pub is_begun: bool,
    pub begin: Duration,
    end: Duration,
    /// Of the SYN, until it is answered by the third segment; then what that took.
    asked: Option<Duration>,
    round_trip: Option<Duration>,
    ends: [End; 2],
}

/// Which connection is plotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    None,
    /// The only one.
    Only,
    Number(usize),
    Ends(SocketAddr, SocketAddr),
}

/// All connections.
#[derive(Debug)]
pub struct Connections {
    wanted: Wanted,
    all: Vec<Connection>,
    /// The last one of two ends, the lower one first.
    last: HashMap<(SocketAddr, SocketAddr), usize>,
    /// The one whose segments are kept.
    kept_of: Option<usize>,
    kept: Vec<Kept>,
    connections_max: usize,
    segments_max: usize,
    /// Segments of connections beyond the limit.
    pub beyond: u64,
    /// Segments of the wanted one beyond the limit.
    pub left_out: u64,
}

impl Connections {
    pub fn new(wanted: Wanted) -> Self {
        Self::limited(wanted, CONNECTIONS_MAX, SEGMENTS_MAX)
    }

    fn limited(wanted: Wanted, connections_max: usize, segments_max: usize) -> Self {
        Self {
            wanted,
            all: Vec::new(),
            last: HashMap::new(),
            kept_of: None,
            kept: Vec::new(),
            connections_max,
            segments_max,
            beyond: 0,
            left_out: 0,
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Connection] {
        &self.all
    }

    /// The wanted one and its segments.
    pub fn into_wanted(mut self) -> Option<(Connection, Vec<Kept>)> {
        let index = self.kept_of.filter(|index| *index < self.all.len())?;
        Some((self.all.swap_remove(index), self.kept))
    }

    /// Takes the next segment of the capture.
    pub fn take(&mut self, segment: &Segment) {
        let Some(index) = self.place(segment) else {
            self.beyond += 1;
            return;
        };
        let Some(connection) = self.all.get_mut(index) else {
            return;
        };
        let from = connection.take(segment);
        if self.kept_of != Some(index) {
            return;
        }
        if self.kept.len() < self.segments_max {
            self.kept.push(Kept {
                from,
                header: segment.header,
            });
        } else {
            self.left_out += 1;
        }
    }

    /// Which connection it is of; `None`: of one for which there is no room.
    fn place(&mut self, segment: &Segment) -> Option<usize> {
        let (from, to) = (segment.from, segment.to);
        let key = if from <= to { (from, to) } else { (to, from) };
        let known = self.last.get(&key).copied();
        let is_same = known
            .and_then(|index| self.all.get(index))
            .is_some_and(|connection| !connection.is_over_by(segment));
        if is_same {
            return known;
        }
        if self.all.len() >= self.connections_max {
            return None;
        }
        let index = self.all.len();
        self.all.push(Connection::new(index + 1, segment));
        self.last.insert(key, index);
        let is_wanted = match self.wanted {
            Wanted::None => false,
            Wanted::Only => index == 0,
            Wanted::Number(number) => number == index + 1,
            Wanted::Ends(a, b) => (a, b) == (from, to) || (a, b) == (to, from),
        };
        // Of several between the same ends, the first.
        if is_wanted && self.kept_of.is_none() {
            self.kept_of = Some(index);
        }
        Some(index)
    }
}

impl Connection {
    fn new(number: usize, segment: &Segment) -> Self {
        let Segment { from, to, header } = segment;
        let is_first = match (header.flags.has(Flags::SYN), header.flags.has(Flags::ACK)) {
            (true, true) => false,
            (true, false) => true,
            // A guess: servers have the lower ports.
            (false, _) => from.port() >= to.port(),
        };
        let (client, server) = if is_first { (*from, *to) } else { (*to, *from) };
        Self {
            number,
            client,
            server,
            is_begun: false,
            begin: header.time,
            end: header.time,
            asked: None,
            round_trip: None,
            ends: Default::default(),
        }
    }

    /// Which end sent it.
    fn side(&self, segment: &Segment) -> Side {
        // Both ends are one where a program speaks with itself: then the client speaks.
        if segment.from == self.client {
            Side::Client
        } else {
            Side::Server
        }
    }

    fn end(&mut self, side: Side) -> &mut End {
        let [client, server] = &mut self.ends;
        match side {
            Side::Client => client,
            Side::Server => server,
        }
    }

    /// Whether it is the first of another connection between the same ends: a SYN that is not this one's.
    fn is_over_by(&self, segment: &Segment) -> bool {
        let flags = segment.header.flags;
        if !flags.has(Flags::SYN) || flags.has(Flags::ACK) {
            return false;
        }
        let [client, server] = &self.ends;
        let end = match self.side(segment) {
            Side::Client => client,
            Side::Server => server,
        };
        match end.first {
            Some(first) => first != segment.header.seq,
            None => !self.is_begun,
        }
    }

    fn take(&mut self, segment: &Segment) -> Side {
        let (side, header) = (self.side(segment), &segment.header);
        let flags = header.flags;
        self.begin = self.begin.min(header.time);
        self.end = self.end.max(header.time);
        let is_syn = flags.has(Flags::SYN);
        self.is_begun |= is_syn;
        match (is_syn, flags.has(Flags::ACK)) {
            (true, false) => self.asked = Some(header.time),
            (false, true) if side == Side::Client && self.is_begun => {
                let asked = self.asked.take();
                self.round_trip = asked
                    .map(|asked| header.time.saturating_sub(asked))
                    .or(self.round_trip);
            }
            _ => {}
        }
        if flags.has(Flags::ACK) && !flags.has(Flags::RST) {
            let other = self.end(side.other());
            let acked = other.track.offset(header.ack, 1);
            other.acked = other.acked.max(acked);
        }
        let round_trip = self.round_trip;
        let end = self.end(side);
        end.segments += 1;
        end.bytes += u64::from(header.text);
        if is_syn {
            end.first.get_or_insert(header.seq);
        }
        if header.span() > 0 && !flags.has(Flags::RST) {
            let begin = end.track.offset(header.seq, u8::from(!is_syn));
            if let Some(begin) = begin {
                let range = (begin, begin + header.span());
                let acked = end.acked;
                let kind = end.track.take(header.time, range, acked, round_trip);
                end.retransmissions += u64::from(kind == Kind::Again);
            }
        }
        side
    }

    /// What the handshake took, from the SYN to the third segment.
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The end that sent more text; the client, if none did.
    pub fn busier(&self) -> Side {
        let [client, server] = &self.ends;
        if server.bytes > client.bytes {
            Side::Server
        } else {
            Side::Client
        }
    }

    /// As a row of the list for a person, under [`Self::HEADINGS`]: what both ends have in common in one cell, the client's first.
    pub fn row(&self, first: Duration) -> Vec<String> {
        let [client, server] = &self.ends;
        let time = |time: Duration| units::nanoseconds(time.as_secs_f64() * 1e9);
        let both = |of: fn(&End) -> u64| format!("{} / {}", of(client), of(server));
        let bytes = |end: &End| units::bytes(end.bytes as f64);
        vec![
            self.number.to_string(),
            self.client.to_string(),
            self.server.to_string(),
            time(self.begin.saturating_sub(first)),
            time(self.end.saturating_sub(self.begin)),
            both(|end| end.segments),
            format!("{} / {}", bytes(client), bytes(server)),
            both(|end| end.retransmissions),
        ]
    }

    /// Of the list.
    pub const HEADINGS: [&str; 8] = [
        "n", "client", "server", "begin", "duration", "segments", "text", "again",
    ];

    /// All that the list knows; `first` is when the capture began.
    pub fn facts(&self, first: Duration) -> Value {
        let [client, server] = &self.ends;
        let seconds = |time: Duration| time.as_secs_f64();
        json!({
            "connection": self.number,
            "client": self.client.to_string(), "server": self.server.to_string(),
            "begin_s": seconds(self.begin.saturating_sub(first)),
            "duration_s": seconds(self.end.saturating_sub(self.begin)),
            "client_segments": client.segments, "client_bytes": client.bytes,
            "server_segments": server.segments, "server_bytes": server.bytes,
            "client_retransmissions": client.retransmissions,
            "server_retransmissions": server.retransmissions,
            "handshake": self.is_begun,
        })
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
