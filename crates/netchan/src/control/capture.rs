//! A capture over a control socket: the frames that a tap copies, one behind the other, to one client.
//!
//! The request is `capture JSON` (a [`Request`]). The answer is a line as always, `{"ok": [LINK, …], "about": {…}}` with the links in the order of their
//! numbers, and behind it the stream: entries that begin with a byte of their kind, all numbers little-endian.
//!
//! | entry | bytes |
//! | --- | --- |
//! | frame | 1, link, way (0 in, 1 out), 0, segment u16, kept u16, length u32, nanoseconds since 1970 u64, kept bytes |
//! | frame with a note, where one is asked for | 3, the same up to the time, reason u16, core u16, shard u16, verdict u16, kept bytes |
//! | statistics | 2, three zeros, seen u64, matched u64, taken u64, dropped (ring full) u64, dropped (no buffer) u64 |
//!
//! A core or shard of 65535 is none; a verdict is 0 unknown, 1 shard, 2 host, 3 forward, 4 lease, 5 packet channel, 6 drop ([`Verdict`]). `about` says what reasons are: `{"regime", "reasons": [NAME, …], "modules": {"NUMBER": NAME}}`, the first reason having
//! the number 1, a module its own and 32768.
//!
//! Statistics come once a second, and as the last entry when the client has shut its side for writing: after everything that was taken. A thread for each
//! capture, `netchan-capture`, carries it. While the stack runs, it may wait for its client as long as it likes: what the tap has no room for is counted
//! there (B3). Once the stack has ended, a client that takes nothing for 100 ms is given up.

#[cfg(test)]
mod tests;

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    os::{fd::AsFd, unix::net::UnixStream},
    time::Duration,
};

use percore::own::Own;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tap::{
    Filter, Flow, Instruction, Note, Reason, Record, Statistics, Subject, Tap, Verdict, Way,
};

/// Bytes that are written at a time.
const BLOCK: usize = 256 << 10;
/// Between two looks at a tap that had nothing. It is not woken: that would cost the path a system call.
const PAUSE: Duration = Duration::from_millis(2);
/// So long a client that takes nothing is waited for once the stack has ended; before, its end is looked for as often.
const PATIENCE: Duration = Duration::from_millis(100);
/// So often an empty tap is looked at for what a point has counted and not handed over yet.
const LOOKS: u32 = 50;
/// Between two statistics.
const SECOND: u64 = 1_000_000_000;
/// Of an entry's kind.
const FRAME: u8 = 1;
const STATISTICS: u8 = 2;
const NOTED: u8 = 3;
/// Bytes in front of a frame's own, and of a note behind them.
const HEAD: usize = 20;
const NOTE: usize = 8;
/// No core, no shard.
const NONE: u16 = u16::MAX;
/// Of a request's protocols.
const PROTOCOLS: [(&str, u8); 2] = [("tcp", 6), ("udp", 17)];

/// What a capture is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Of {
    /// [`Subject::Links`].
    #[default]
    Links,
    /// [`Subject::Drops`].
    Drops,
    /// [`Subject::Shard`].
    Shard(usize),
    /// [`Subject::Socket`].
    Socket {
        /// `tcp` or `udp`.
        protocol: String,
        /// Its own end.
        local: SocketAddr,
        /// The other; `None`: any.
        remote: Option<SocketAddr>,
    },
}

/// What is to be captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// A link's name; `None`: all.
    pub link: Option<String>,
    /// `in` or `out`; `None`: both.
    pub way: Option<Way>,
    /// Bytes of each frame; `None`: all.
    pub snap: Option<usize>,
    /// A program of the BSD packet filter, each instruction as (code, jt, jf, k); none: everything.
    pub program: Vec<(u16, u8, u8, u32)>,
    /// What it is of.
    #[serde(default)]
    pub of: Of,
    /// Whether each frame comes with a note.
    #[serde(default)]
    pub notes: bool,
}

impl Request {
    /// Its filter, checked.
    ///
    /// # Errors
    /// What is wrong with the program.
    pub fn filter(&self) -> Result<Filter, String> {
        if self.program.is_empty() {
            return Ok(Filter::default());
        }
        let instruction = |&(code, jt, jf, k): &(u16, u8, u8, u32)| Instruction { code, jt, jf, k };
        let program: Vec<Instruction> = self.program.iter().map(instruction).collect();
        Filter::new(&program).map_err(|bad| format!("the filter is no program: {bad}"))
    }

    /// What a tap is to look at.
    ///
    /// # Errors
    /// A protocol that has no such sockets.
    pub(crate) fn subject(&self) -> Result<Subject, String> {
        Ok(match &self.of {
            Of::Links => Subject::Links,
            Of::Drops => Subject::Drops,
            Of::Shard(number) => Subject::Shard(*number),
            Of::Socket {
                protocol,
                local,
                remote,
            } => {
                let known = PROTOCOLS.iter().find(|(name, _)| name == protocol);
                let (_, protocol) =
                    known.ok_or("only sockets of tcp and udp can be captured alone")?;
                Subject::Socket(Flow {
                    protocol: *protocol,
                    local: *local,
                    remote: *remote,
                })
            }
        })
    }
}

/// A tap that a client was given.
pub struct Captured {
    /// The tap.
    pub tap: Tap,
    /// What is said of each link.
    pub links: Value,
    /// What reasons are, and the regime.
    pub about: Value,
    /// Whether each frame is sent with its note.
    pub notes: bool,
    /// Whether the stack has ended.
    pub is_over: Box<dyn Fn() -> bool + Send>,
}

/// Carries what `captured` sees to `client`, until that shuts its side or goes, or the stack ends.
///
/// # Errors
/// `TimedOut`: the stack has ended, and the client did not read. The system's.
pub(super) fn carry(mut captured: Captured, mut client: Own<UnixStream>) -> io::Result<()> {
    client.set_nonblocking(true)?;
    let first = format!(
        "{}\n",
        json!({ "ok": captured.links, "about": captured.about })
    );
    write(&mut client, first.as_bytes(), &captured.is_over)?;
    let mut block = Vec::with_capacity(BLOCK + (1 << 17));
    let mut told = percore::clock::now_ns();
    let mut end = End::default();
    loop {
        // Before the last look: what came until the client said that it is enough is its own. What comes later is not, or the end would be as far as that
        // of a stream that brings more than the client can take.
        if !end.is_asked && (is_shut(&mut client)? || (captured.is_over)()) {
            end.is_asked = true;
            captured.tap.detach();
        }
        let mut is_empty = false;
        while block.len() < BLOCK && !is_empty {
            match captured.tap.read() {
                Some(record) => frame(&mut block, &record, captured.notes),
                None => is_empty = true,
            }
        }
        let last = is_empty.then(|| end.look(&captured.tap)).flatten();
        let now = percore::clock::now_ns();
        if last.is_some() || now.saturating_sub(told) >= SECOND {
            told = now;
            statistics(
                &mut block,
                last.unwrap_or_else(|| captured.tap.statistics()),
            );
        }
        write(&mut client, &block, &captured.is_over)?;
        block.clear();
        if last.is_some() {
            return Ok(());
        }
        if is_empty {
            pause(&client, end.is_asked);
        }
    }
}

/// The end of a capture.
#[derive(Default)]
struct End {
    is_asked: bool,
    /// Looks at an empty tap since it was asked for.
    looks: u32,
}

impl End {
    /// At an empty tap: what is counted in the end, if this is it. A point that hangs in a burst is not waited for beyond [`LOOKS`].
    fn look(&mut self, tap: &Tap) -> Option<Statistics> {
        if !self.is_asked {
            return None;
        }
        self.looks += 1;
        let is_given_up = self.looks > LOOKS;
        tap.last().or_else(|| is_given_up.then(|| tap.statistics()))
    }
}

/// Until the tap may have something again, or the client asks for the end.
fn pause(client: &UnixStream, is_asked: bool) {
    // Its end stays readable.
    let events = match is_asked {
        true => PollFlags::empty(),
        false => PollFlags::IN,
    };
    let mut fds = [PollFd::from_borrowed_fd(client.as_fd(), events)];
    let pause = Timespec::try_from(PAUSE).ok();
    let _ = poll(&mut fds, pause.as_ref()); // interrupted: it looks once more
}

/// Writes all of `bytes`, and waits for the client where it must. It does so in steps, since the end of the stack wakes it from none.
fn write(client: &mut UnixStream, bytes: &[u8], is_over: &dyn Fn() -> bool) -> io::Result<()> {
    let mut rest = bytes;
    let mut is_given_up = false; // unless something can be written yet
    while !rest.is_empty() {
        match client.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                rest = rest.get(n..).unwrap_or_default();
                is_given_up = false;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            Err(_) if is_given_up => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {
                let was_over = is_over(); // before the wait: all of it counts
                let mut fds = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::OUT)];
                let ready = poll(&mut fds, Timespec::try_from(PATIENCE).ok().as_ref());
                is_given_up = was_over && ready == Ok(0); // interrupted: it waits once more
            }
        }
    }
    Ok(())
}

/// Whether the client has shut its side. Whatever it says is of no interest.
fn is_shut(client: &mut UnixStream) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)];
    let ready = poll(&mut fds, Some(&Timespec::default())).unwrap_or(0);
    Ok(ready > 0 && client.read(&mut [0; 512])? == 0)
}

fn frame(block: &mut Vec<u8>, record: &Record, with_note: bool) {
    let bytes = record.bytes();
    let kept = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let ns = u64::try_from(record.time.as_nanos()).unwrap_or(u64::MAX);
    let kind = if with_note { NOTED } else { FRAME };
    block.extend([kind, record.link, u8::from(record.way == Way::Out), 0]);
    block.extend(record.segment.to_le_bytes());
    block.extend(kept.to_le_bytes());
    block.extend(record.length.to_le_bytes());
    block.extend(ns.to_le_bytes());
    if with_note {
        let Note {
            shard,
            core,
            reason,
            verdict,
        } = record.note;
        let shard = shard.map_or(NONE, u16::from);
        for number in [
            reason.number(),
            core.unwrap_or(NONE),
            shard,
            verdict.number(),
        ] {
            block.extend(number.to_le_bytes());
        }
    }
    block.extend(bytes.get(..usize::from(kept)).unwrap_or_default());
}

fn statistics(block: &mut Vec<u8>, counted: Statistics) {
    block.extend([STATISTICS, 0, 0, 0]);
    let Statistics {
        seen,
        matched,
        taken,
        dropped_full,
        dropped_buffers,
    } = counted;
    for count in [seen, matched, taken, dropped_full, dropped_buffers] {
        block.extend(count.to_le_bytes());
    }
}

/// A captured frame, as its reader gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The link's number, in the order of [`Capture::links`].
    pub link: u8,
    /// Which way it went.
    pub way: Way,
    /// Not 0: the kernel cuts it into segments with so many bytes of text.
    pub segment: u16,
    /// Its length on the link.
    pub length: u32,
    /// Since 1970.
    pub time: Duration,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// What else is known of it, where that was asked for.
    pub note: Option<Note>,
}

/// What a capture brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A frame.
    Frame(Frame),
    /// What has been counted so far.
    Statistics(Statistics),
}

/// A client's end of a capture.
#[derive(Debug)]
pub struct Capture {
    stream: UnixStream,
    /// What is said of each link: `{"name", "mac", "mtu_bytes"}`.
    pub links: Value,
    /// What notes mean: `{"regime", "reasons", "modules"}`.
    pub about: Value,
    block: Vec<u8>,
    read: usize,
}

impl Capture {
    pub(super) fn new(stream: UnixStream, [links, about]: [Value; 2], block: Vec<u8>) -> Self {
        Self {
            stream,
            links,
            about,
            block,
            read: 0,
        }
    }

    /// Why a frame was dropped, in the words of `netchan show drops`; `None`: it was not.
    pub fn reason(&self, reason: Reason) -> Option<String> {
        let known = |value: &Value| value.as_str().map(str::to_owned);
        let number = usize::from(reason.number().checked_sub(1)?);
        Some(match reason.name() {
            Some(Err(module)) => {
                let name = known(&self.about["modules"][module.to_string()]);
                format!("module_{}", name.unwrap_or_else(|| module.to_string()))
            }
            _ => {
                known(&self.about["reasons"][number]).unwrap_or_else(|| format!("reason {number}"))
            }
        })
    }

    /// Asks for the end: what has been taken still comes, then the last statistics, then `None`.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// The next entry, if one comes within `limit`. `Ok(None)`: the capture is over.
    ///
    /// # Errors
    /// `WouldBlock`: nothing came. `InvalidData`: what came is no entry. The system's.
    pub fn next(&mut self, limit: Duration) -> io::Result<Option<Entry>> {
        loop {
            match self.entry()? {
                Some((entry, size)) => {
                    self.read += size;
                    return Ok(Some(entry));
                }
                None if self.fill(limit)? => {}
                None if self.rest().is_empty() => return Ok(None),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.block.get(self.read..).unwrap_or_default()
    }

    /// False at the end.
    fn fill(&mut self, limit: Duration) -> io::Result<bool> {
        self.block.drain(..self.read);
        self.read = 0;
        self.stream
            .set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        let mut room = [0; 64 << 10];
        let n = match self.stream.read(&mut room) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(true), // once more
            // The stack was killed.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => 0,
            other => other?,
        };
        self.block.extend(room.get(..n).unwrap_or_default());
        Ok(n > 0)
    }

    /// The first entry of what is there, and its bytes; `None`: it is not whole.
    fn entry(&self) -> io::Result<Option<(Entry, usize)>> {
        let rest = self.rest();
        let Some(&kind) = rest.first() else {
            return Ok(None);
        };
        let number = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        Ok(match kind {
            FRAME => rest
                .split_first_chunk()
                .and_then(|(head, bytes)| frame_of(head, None, bytes)),
            NOTED => (|| {
                let (head, rest) = rest.split_first_chunk()?;
                let (note, bytes) = rest.split_first_chunk()?;
                frame_of(head, Some(note), bytes)
            })(),
            STATISTICS => (|| {
                let counted = Statistics {
                    seen: number(4)?,
                    matched: number(12)?,
                    taken: number(20)?,
                    dropped_full: number(28)?,
                    dropped_buffers: number(36)?,
                };
                Some((Entry::Statistics(counted), 44))
            })(),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "not a netchan's capture",
                ));
            }
        })
    }
}

fn note_of(note: &[u8; NOTE]) -> Note {
    let [r0, r1, c0, c1, s0, s1, v0, v1] = *note;
    let core = u16::from_le_bytes([c0, c1]);
    Note {
        reason: Reason::numbered(u16::from_le_bytes([r0, r1])),
        core: (core != NONE).then_some(core),
        shard: u8::try_from(u16::from_le_bytes([s0, s1])).ok(),
        verdict: Verdict::numbered(u16::from_le_bytes([v0, v1])),
    }
}

fn frame_of(head: &[u8; HEAD], note: Option<&[u8; NOTE]>, bytes: &[u8]) -> Option<(Entry, usize)> {
    let [_, link, way, _, s0, s1, k0, k1, l0, l1, l2, l3, t @ ..] = *head;
    let kept = usize::from(u16::from_le_bytes([k0, k1]));
    let frame = Frame {
        link,
        way: if way == 0 { Way::In } else { Way::Out },
        segment: u16::from_le_bytes([s0, s1]),
        length: u32::from_le_bytes([l0, l1, l2, l3]),
        time: Duration::from_nanos(u64::from_le_bytes(t)),
        bytes: bytes.get(..kept)?.to_vec(),
        note: note.map(note_of),
    };
    let heads = HEAD + if note.is_some() { NOTE } else { 0 };
    Some((Entry::Frame(frame), heads + kept))
}
