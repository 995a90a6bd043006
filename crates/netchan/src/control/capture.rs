//! A capture over a control socket: the frames that a tap copies, one behind the other, to one client.
//!
//! The request is `capture JSON` (a [`Request`]). The answer is a line as always, `{"ok": [LINK, …]}` with the links in the order of their numbers, and
//! behind it the stream: entries that begin with a byte of their kind, all numbers little-endian.
//!
//! | entry | bytes |
//! | --- | --- |
//! | frame | 1, link, way (0 in, 1 out), 0, segment u16, kept u16, length u32, nanoseconds since 1970 u64, kept bytes |
//! | statistics | 2, three zeros, seen u64, matched u64, taken u64, dropped (ring full) u64, dropped (no buffer) u64 |
//!
//! Statistics come once a second, and as the last entry when the client has shut its side for writing: after everything that was taken. A thread for each
//! capture, `netchan-capture`, carries it. While the stack runs, it may wait for its client as long as it likes: what the tap has no room for is counted
//! there (B3). Once the stack has ended, a client that takes nothing for 100 ms is given up.

#[cfg(test)]
mod tests;

use std::{
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    time::Duration,
};

use percore::own::Own;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tap::{Filter, Instruction, Record, Statistics, Tap, Way};

/// Bytes that are written at a time.
const BLOCK: usize = 256 << 10;
/// Between two looks at a tap that had nothing. It is not woken: that would cost the path a system call.
const PAUSE: Duration = Duration::from_millis(2);
/// So long a client that takes nothing is waited for once the stack has ended; before, its end is looked for as often.
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two statistics.
const SECOND: u64 = 1_000_000_000;
/// Of an entry's kind.
const FRAME: u8 = 1;
const STATISTICS: u8 = 2;

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
}

/// A tap that a client was given.
pub struct Captured {
    /// The tap.
    pub tap: Tap,
    /// What is said of each link.
    pub links: Value,
    /// Whether the stack has ended.
    pub is_over: Box<dyn Fn() -> bool + Send>,
}

/// Carries what `captured` sees to `client`, until that shuts its side or goes, or the stack ends.
///
/// # Errors
/// `TimedOut`: the stack has ended, and the client did not read. The system's.
pub(super) fn carry(mut captured: Captured, mut client: Own<UnixStream>) -> io::Result<()> {
    client.set_nonblocking(true)?;
    let first = format!("{}\n", json!({ "ok": captured.links }));
    write(&mut client, first.as_bytes(), &captured.is_over)?;
    let mut block = Vec::with_capacity(BLOCK + (1 << 17));
    let mut told = percore::clock::now_ns();
    loop {
        // Before the last look: what came until the client said that it is enough is its own.
        let is_last = is_shut(&mut client)? || (captured.is_over)();
        let mut is_empty = false;
        while block.len() < BLOCK && !is_empty {
            match captured.tap.read() {
                Some(record) => frame(&mut block, &record),
                None => is_empty = true,
            }
        }
        let now = percore::clock::now_ns();
        if is_empty && is_last || now.saturating_sub(told) >= SECOND {
            told = now;
            statistics(&mut block, captured.tap.statistics());
        }
        write(&mut client, &block, &captured.is_over)?;
        block.clear();
        if is_empty {
            if is_last {
                return Ok(());
            }
            let mut fds = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)];
            let pause = Timespec::try_from(PAUSE).ok();
            let _ = poll(&mut fds, pause.as_ref()); // interrupted: it looks once more
        }
    }
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

fn frame(block: &mut Vec<u8>, record: &Record) {
    let bytes = record.bytes();
    let kept = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let ns = u64::try_from(record.time.as_nanos()).unwrap_or(u64::MAX);
    block.extend([FRAME, record.link, u8::from(record.way == Way::Out), 0]);
    block.extend(record.segment.to_le_bytes());
    block.extend(kept.to_le_bytes());
    block.extend(record.length.to_le_bytes());
    block.extend(ns.to_le_bytes());
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
    block: Vec<u8>,
    read: usize,
}

impl Capture {
    pub(super) fn new(stream: UnixStream, links: Value, block: Vec<u8>) -> Self {
        Self {
            stream,
            links,
            block,
            read: 0,
        }
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
                .and_then(|(head, bytes)| frame_of(head, bytes)),
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

fn frame_of(head: &[u8; 20], bytes: &[u8]) -> Option<(Entry, usize)> {
    let [_, link, way, _, s0, s1, k0, k1, l0, l1, l2, l3, t @ ..] = *head;
    let kept = usize::from(u16::from_le_bytes([k0, k1]));
    let frame = Frame {
        link,
        way: if way == 0 { Way::In } else { Way::Out },
        segment: u16::from_le_bytes([s0, s1]),
        length: u32::from_le_bytes([l0, l1, l2, l3]),
        time: Duration::from_nanos(u64::from_le_bytes(t)),
        bytes: bytes.get(..kept)?.to_vec(),
    };
    Some((Entry::Frame(frame), head.len() + kept))
}
