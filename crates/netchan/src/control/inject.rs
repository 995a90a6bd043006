//! Writing frames into a stack over its control socket: out of a link, or in as if they had come by it.
//!
//! The request is `inject JSON` (a [`Request`]). The answer is a line, `{"ok": {"link", "frame_max", "rate"}}`; then the client sends frames, each behind its
//! length as a little-endian u32, and shuts its side for writing. The last line is `{"ok": {"frames"}}`, once the link has taken them, or `{"error": …}`, which
//! also comes before the client is through: what was written before the frame that it names has been sent.
//!
//! A thread for each, `netchan-inject`, carries it, at the rate that was asked for and at most [`RATE_MAX`]. It waits for the link, and the link never for it. A
//! client that says nothing for 30 s is given up.

#[cfg(test)]
mod tests;

use std::{
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    thread,
    time::Duration,
};

use percore::{clock, own::Own};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AskError;
use crate::tap::{Way, WriteError, Writer};

/// Frames a second, if the request does not say.
pub const RATE: u32 = 1_000;
/// And at most.
pub const RATE_MAX: u32 = 100_000;
/// How long a client may say nothing.
const IDLE: Duration = Duration::from_secs(30);
/// How long a link may take to take a frame.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether the stack has ended.
const STEP: Duration = Duration::from_millis(100);
const SECOND: u64 = 1_000_000_000;
/// Of a frame's length.
const HEAD: usize = 4;

/// Where frames are to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// A link's name; empty: the only one.
    pub link: String,
    /// Out of it, or in by it.
    pub way: Way,
    /// Frames a second; `None`: [`RATE`].
    pub rate: Option<u32>,
}

impl Request {
    /// Frames a second.
    ///
    /// # Errors
    /// None at all, or more than [`RATE_MAX`].
    pub fn rate(&self) -> Result<u32, String> {
        let rate = self.rate.unwrap_or(RATE);
        if (1..=RATE_MAX).contains(&rate) {
            return Ok(rate);
        }
        Err(format!("{rate} frames a second: give 1 to {RATE_MAX}"))
    }
}

/// A writer that a client was given.
pub struct Injecting {
    /// It.
    pub writer: Writer,
    /// Its link's name.
    pub link: String,
    /// Which way the frames go.
    pub way: Way,
    /// Frames a second.
    pub rate: u32,
    /// Whether the stack has ended.
    pub is_over: Box<dyn Fn() -> bool + Send>,
}

/// Writes what `client` sends, and tells it the outcome.
///
/// # Errors
/// The system's.
pub(super) fn carry(mut injecting: Injecting, mut client: Own<UnixStream>) -> io::Result<()> {
    client.set_nonblocking(true)?;
    let Injecting {
        writer, link, rate, ..
    } = &injecting;
    let begin = json!({ "ok": { "link": link, "frame_max": writer.longest(), "rate": rate } });
    say(&mut client, &begin)?;
    let outcome = match injecting.take_all(&mut client) {
        Ok(frames) => json!({ "ok": { "frames": frames } }),
        Err(why) => json!({ "error": why }),
    };
    drop(injecting); // there is room for another writer once this one's client knows
    say(&mut client, &outcome)
}

/// Writes a line. It is short: a client that has no room for it does not read.
fn say(client: &mut UnixStream, line: &Value) -> io::Result<()> {
    client.write_all(format!("{line}\n").as_bytes())
}

impl Injecting {
    /// How many frames were written.
    fn take_all(&mut self, client: &mut UnixStream) -> Result<u64, String> {
        let begun = clock::now_ns();
        let (mut buffer, mut frames, mut heard) = (Vec::<u8>::new(), 0, begun);
        let mut room = vec![0; 64 << 10];
        loop {
            let mut read = 0;
            while let Some(frame) = self.next(buffer.get(read..).unwrap_or_default(), frames)? {
                let size = HEAD + frame.len();
                pace(begun, frames, self.rate);
                self.put(frame)
                    .map_err(|why| format!("frame {}: {why}", frames + 1))?;
                frames += 1;
                read += size;
                heard = clock::now_ns();
            }
            buffer.drain(..read);
            match client.read(&mut room) {
                Ok(0) if buffer.is_empty() => break,
                Ok(0) => return Err(format!("frame {} is not whole", frames + 1)),
                Ok(n) => {
                    buffer.extend(room.get(..n).unwrap_or_default());
                    heard = clock::now_ns();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(client, heard)?,
                Err(e) => return Err(e.to_string()),
            }
        }
        match self.writer.wait_empty(PATIENCE) {
            true => Ok(frames),
            false => Err(format!(
                "{} has not taken all of the {frames} frames",
                self.link
            )),
        }
    }

    /// The first frame of what the client has sent; `None`: it is not whole.
    fn next<'a>(&self, bytes: &'a [u8], frames: u64) -> Result<Option<&'a [u8]>, String> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length > self.writer.longest() {
            let why = WriteError::Long(self.writer.longest());
            return Err(format!("frame {}: {length} bytes: {why}", frames + 1));
        }
        Ok(rest.get(..length))
    }

    fn put(&mut self, frame: &[u8]) -> Result<(), String> {
        let begun = clock::now_ns();
        loop {
            match self.writer.write(self.way, frame) {
                Err(WriteError::Full) if has_passed(begun, PATIENCE) || (self.is_over)() => {
                    return Err(format!("{} takes none", self.link));
                }
                Err(WriteError::Full) => thread::sleep(Duration::from_millis(1)),
                other => return other.map_err(|e| e.to_string()),
            }
        }
    }

    /// Waits for the client, as long as it may be waited for.
    fn wait(&self, client: &UnixStream, heard: u64) -> Result<(), String> {
        if (self.is_over)() {
            return Err("the stack has ended".to_owned());
        }
        if has_passed(heard, IDLE) {
            return Err(format!("no frame came for {} s", IDLE.as_secs()));
        }
        let mut fds = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Timespec::try_from(STEP).ok().as_ref()); // interrupted: it looks once more
        Ok(())
    }
}

fn has_passed(since: u64, time: Duration) -> bool {
    u128::from(clock::now_ns().saturating_sub(since)) >= time.as_nanos()
}

/// Waits until one more frame is due.
fn pace(begun: u64, frames: u64, rate: u32) {
    let due = begun.saturating_add(frames.saturating_mul(SECOND) / u64::from(rate.max(1)));
    let early = due.saturating_sub(clock::now_ns());
    // Shorter sleeps than the kernel's own delay make no better pace: what is late is caught up.
    if early > 100_000 {
        thread::sleep(Duration::from_nanos(early));
    }
}

/// A client's end.
#[derive(Debug)]
pub struct Injection {
    stream: UnixStream,
    /// The longest frame that the link takes, bytes.
    pub frame_max: u64,
    /// The link's name.
    pub link: String,
}

impl Injection {
    pub(super) fn new(stream: UnixStream, begun: &Value) -> Option<Self> {
        // It takes them at its rate, however long that is.
        stream.set_write_timeout(None).ok()?;
        stream.set_read_timeout(None).ok()?;
        Some(Self {
            stream,
            frame_max: begun["frame_max"].as_u64()?,
            link: begun["link"].as_str()?.to_owned(),
        })
    }

    /// Sends a frame. False: the stack takes none any more; [`Self::finish`] says why.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, frame: &[u8]) -> io::Result<bool> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let entry = [&length.to_le_bytes(), frame].concat();
        match self.stream.write_all(&entry) {
            Ok(()) => Ok(true),
            Err(e) if is_end(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// All was sent: waits until it is written, at its rate. How many frames were.
    ///
    /// # Errors
    /// [`AskError::Refused`]: which frame was not taken, and why. The stack's end.
    pub fn finish(mut self) -> Result<u64, AskError> {
        let garbled = |e: &dyn std::fmt::Display| AskError::Garbled(e.to_string());
        match self.stream.shutdown(std::net::Shutdown::Write) {
            Err(e) if e.kind() != io::ErrorKind::NotConnected => return Err(garbled(&e)),
            _ => {}
        }
        let mut answer = Vec::new();
        let most = 1 << 16;
        let read = Read::by_ref(&mut self.stream)
            .take(most)
            .read_to_end(&mut answer);
        match read {
            // What it had not read of ours when it went.
            Err(e) if is_end(&e) => {}
            Err(e) => return Err(garbled(&e)),
            Ok(_) => {}
        }
        if answer.is_empty() {
            return Err(AskError::Gone);
        }
        let answer: Value = serde_json::from_slice(&answer).map_err(|e| garbled(&e))?;
        if let Some(why) = answer["error"].as_str() {
            return Err(AskError::Refused(why.to_owned()));
        }
        let frames = answer["ok"]["frames"].as_u64();
        frames.ok_or_else(|| garbled(&"neither `ok` nor `error` in it"))
    }
}

fn is_end(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
