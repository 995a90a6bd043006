//! Exchanges over a bad channel that must go as they were recorded: every field of every segment, when it leaves, and what each end then knows.
//!
//! Scenes are short and written out (`recorded/*.txt`); of random worlds only a digest is kept. A change that is meant to change them writes them
//! anew (`NETCHAN_RECORD=1 cargo test -p proto recorded`), and its diff shows what it did to the wire.

mod scenes;
mod worlds;

use std::format;
use std::path::PathBuf;
use std::string::String;

use super::*;
use crate::wire::tcp::{Options, SackBlocks};

/// Text of an exchange, line by line.
pub(super) struct Recorder {
    pub lines: Vec<String>,
    /// Where the numbers of each end begin.
    first: [SeqNum; 2],
    start: Instant,
}

impl Recorder {
    pub fn new(pair: &Pair) -> Self {
        Self {
            lines: Vec::new(),
            first: ISS,
            start: pair.now,
        }
    }

    /// Lets `time` pass, and writes down what happens.
    pub fn run(&mut self, pair: &mut Pair, time: Duration) {
        let until = pair.now + time;
        loop {
            let goes_on = pair.step(until);
            pair.drain();
            self.note(pair);
            if !goes_on {
                break;
            }
        }
    }

    /// What was sent, dropped and told since the last look.
    pub fn note(&mut self, pair: &mut Pair) {
        let now = pair.now;
        for from in 0..2 {
            let sent = core::mem::take(&mut pair.ends[from].sent);
            let changed = !sent.is_empty();
            for (at, transmit) in sent {
                let line = self.segment(from, at, &transmit);
                self.lines.push(line);
            }
            let end = &mut pair.ends[from];
            for drop in core::mem::take(&mut end.drops) {
                self.lines.push(format!("{from} dropped: {drop:?}"));
            }
            let Some(conn) = end.conn.as_ref().filter(|_| changed) else {
                continue;
            };
            self.lines.push(state(from, conn, now));
        }
    }

    /// All that both ends report of themselves.
    pub fn note_in_full(&mut self, pair: &Pair) {
        for (at, end) in pair.ends.iter().enumerate() {
            let state = end.state();
            let told = end
                .conn
                .as_ref()
                .map(|conn| (conn.info_at(pair.now), conn.timers));
            let (events, read, error) = (end.events, end.received.len(), end.error);
            self.lines.push(format!(
                "{at} {state:?} {events:?} {read} {error:?} {told:?}"
            ));
        }
    }

    /// One segment: `>` from the first end, `<` from the second; numbers count from the SYN.
    fn segment(&self, from: usize, at: Instant, transmit: &Transmit) -> String {
        let header = &transmit.header;
        let seq = (header.seq - self.first[from]).cast_unsigned();
        let ack = if header.flags.contains(Flags::ACK) {
            let ack = (header.ack - self.first[1 - from]).cast_unsigned();
            format!(" ack {ack}")
        } else {
            String::new()
        };
        let mut line = format!(
            "{:9.3} {} {} {seq}+{}{ack} win {}",
            at.since(self.start).as_secs_f64() * 1e3,
            [">", "<"][from],
            letters(header.flags),
            transmit.len,
            header.window,
        );
        if let Some(stamps) = header.options.timestamps {
            line += &format!(" ts {}/{}", stamps.value, stamps.echo);
        }
        for (left, right) in header.options.sack.as_slice() {
            let [left, right] =
                [left, right].map(|at| (*at - self.first[1 - from]).cast_unsigned());
            line += &format!(" sack {left}-{right}");
        }
        let rest = Options {
            timestamps: None,
            sack: SackBlocks::NONE,
            ..header.options
        };
        if rest != Options::default() {
            line += &format!(" {rest:?}");
        }
        if header.flags.contains(Flags::URG) {
            line += &format!(" urgent {}", header.urgent);
        }
        if transmit.ecn != Ecn::NotEct {
            line += &format!(" {:?}", transmit.ecn);
        }
        line + &format!(" at {} by {}", transmit.offset, transmit.segment)
    }
}

/// Flags as tcpdump has them, and `e` for AE.
fn letters(flags: Flags) -> String {
    let all = [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags(256), 'e'),
        (Flags::ACK, '.'),
    ];
    let set = all.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, letter)| *letter).collect()
}

/// What an end thinks of its path, in a line.
fn state(from: usize, conn: &Connection, now: Instant) -> String {
    let info = conn.info_at(now);
    let wait = |at: Instant| match at {
        Instant::FAR => String::from("-"),
        at => format!("{:.3}", at.since(now).as_secs_f64() * 1e3),
    };
    format!(
        "{:11}{from} {:?} {:?} cwnd {} ssthresh {} flight {} sacked {} lost {} rtt {} rto {} timers {} {} {}",
        "",
        info.state,
        info.sending.repair,
        info.cwnd_bytes,
        info.ssthresh_bytes,
        info.in_flight_bytes,
        info.sending.sacked,
        info.sending.lost,
        info.rtt.as_micros(),
        info.rto.as_millis(),
        wait(conn.timers.retransmit),
        wait(conn.timers.early),
        wait(conn.timers.delayed_ack),
    )
}

/// What is kept under a name, taken line by line: the first one that differs fails.
pub(super) struct Recording {
    path: PathBuf,
    kept: Vec<String>,
    taken: Vec<String>,
    /// Being made.
    is_new: bool,
}

impl Recording {
    pub fn open(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tcp/tests/recorded");
        let path = PathBuf::from(folder).join(format!("{name}.txt"));
        let is_new = std::env::var_os("NETCHAN_RECORD").is_some();
        let kept = match std::fs::read_to_string(&path) {
            Ok(text) => text.lines().map(String::from).collect(),
            Err(error) => {
                assert!(is_new, "{}: {error}", path.display());
                Vec::new()
            }
        };
        Self {
            path,
            kept,
            taken: Vec::new(),
            is_new,
        }
    }

    pub fn take(&mut self, line: &str) {
        let at = self.taken.len();
        let was = self.kept.get(at).map(String::as_str);
        assert!(
            self.is_new || was == Some(line),
            "{}:{}, behind\n{}\n  was: {was:?}\n   is: {line}",
            self.path.display(),
            at + 1,
            self.taken[at.saturating_sub(12)..].join("\n")
        );
        self.taken.push(line.into());
    }

    pub fn close(self) {
        if self.is_new {
            std::fs::write(&self.path, self.taken.join("\n") + "\n").expect("it is written");
        } else {
            assert_eq!(self.taken.len(), self.kept.len(), "{}", self.path.display());
        }
    }
}

/// All of `lines` as they are kept as `name`.
pub(super) fn compare(name: &str, lines: &[String]) {
    let mut recording = Recording::open(name);
    lines.iter().for_each(|line| recording.take(line));
    recording.close();
}
