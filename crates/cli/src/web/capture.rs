//! A capture for the page: frames as pcapng in memory, until there are enough of them.

use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::body::Bytes;
use netchan::{
    control::{
        Stack,
        capture::{Entry, Request},
    },
    tap::{Statistics, Way},
};
use serde::Deserialize;

use super::{
    jobs::{Job, RESULT_MAX},
    refused::Refused,
};
use crate::{
    capture::{
        file::Files,
        follow::{deadline, follow},
        libpcap,
    },
    failure::{Failure, Outcome, failed},
    output::printable,
    units::now_ns,
};

/// Of a filter, characters.
const FILTER_MAX: usize = 1000;
const SECONDS_MAX: u64 = 600;
const FRAMES_MAX: u64 = 1_000_000;
const MIB_MAX: u64 = RESULT_MAX as u64 >> 20;
/// A block of the file beside the bytes of its frame, at most.
const BLOCK: u64 = 256;
/// Left of the size for the blocks at both ends of the file.
const ENDS: u64 = 64 << 10;

/// One library for all: older ones compile one filter at a time.
static COMPILER: Mutex<()> = Mutex::new(());

/// What the page asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub stack: String,
    /// `None`: all.
    link: Option<String>,
    /// `None`: both.
    way: Option<Way>,
    #[serde(default)]
    filter: String,
    /// Bytes of each frame; `None`: all.
    snap: Option<u16>,
    frames: Option<u64>,
    seconds: u64,
    mib: u64,
}

/// When it is enough.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    frames: u64,
    time: Duration,
    bytes: u64,
}

impl Ask {
    /// What is asked of the stack, and when it is enough.
    ///
    /// # Errors
    /// A number is out of its range; the filter is none.
    pub fn request(&self) -> Result<(Request, Bounds), Refused> {
        let within = |what: &str, value: u64, most: u64| match (1..=most).contains(&value) {
            true => Ok(value),
            false => Err(Refused::bad(format!("{what}: want 1 to {most}"))),
        };
        let bounds = Bounds {
            frames: within("frames", self.frames.unwrap_or(FRAMES_MAX), FRAMES_MAX)?,
            time: Duration::from_secs(within("seconds", self.seconds, SECONDS_MAX)?),
            bytes: within("MiB", self.mib, MIB_MAX)? << 20,
        };
        if self.snap == Some(0) {
            return Err(Refused::bad("bytes of each frame: want 1 to 65535"));
        }
        if self.filter.chars().count() > FILTER_MAX {
            return Err(Refused::bad(format!(
                "filter: at most {FILTER_MAX} characters"
            )));
        }
        let program = match self.filter.trim() {
            "" => Vec::new(),
            filter => {
                let _one = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
                libpcap::compile(filter).map_err(Refused::bad)?
            }
        };
        let request = Request {
            link: self.link.clone(),
            way: self.way,
            snap: self.snap.map(usize::from),
            program,
            ..Request::default()
        };
        request.filter().map_err(Refused::bad)?;
        Ok((request, bounds))
    }

    /// In words.
    pub fn about(&self) -> String {
        let way = match self.way {
            None => "both ways",
            Some(Way::In) => "in",
            Some(Way::Out) => "out",
        };
        let link = self.link.as_deref().unwrap_or("all links");
        let filter = match self.filter.trim() {
            "" => "everything",
            filter => filter,
        };
        printable(&format!("{link}, {way}: {filter}"))
    }
}

/// What is written into memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What becomes of a capture.
struct Taking<'a> {
    job: &'a Job,
    file: Files,
    bounds: Bounds,
    frames: u64,
    is_full: bool,
    counted: Statistics,
}

impl Taking<'_> {
    fn take(&mut self, entry: Option<Entry>) -> Outcome {
        match entry {
            Some(Entry::Frame(frame)) if !self.is_full => {
                let size = frame.bytes.len() as u64 + BLOCK;
                if self.file.written() + size + ENDS > self.bounds.bytes {
                    self.is_full = true;
                    return Ok(());
                }
                self.file.write(&frame, None)?;
                self.frames += 1;
                self.is_full = self.frames >= self.bounds.frames;
            }
            Some(Entry::Frame(_)) => {}
            Some(Entry::Statistics(now)) => {
                self.counted = now;
                self.job.tell(self.frames, self.file.written());
            }
            None => self.job.tell(self.frames, self.file.written()),
        }
        Ok(())
    }
}

/// Captures from `stack` until it is enough or `job` is stopped; the file.
///
/// # Errors
/// The stack's.
pub fn take(stack: &Stack, request: &Request, bounds: Bounds, job: &Job) -> Result<Bytes, Failure> {
    let begun = stack.capture(request);
    let mut capture = begun.map_err(|why| failed(format!("stack {}: {why}", stack.id)))?;
    let links = capture.links.as_array().map_or(&[][..], Vec::as_slice);
    let name = |link: &serde_json::Value| printable(link["name"].as_str().unwrap_or("?"));
    let links: Vec<String> = links.iter().map(name).collect();
    let snap = request.snap.and_then(|snap| u32::try_from(snap).ok());
    let snap = snap.unwrap_or(u32::from(u16::MAX));
    let memory = Memory::default();
    let out = Box::new(memory.clone());
    let mut taking = Taking {
        job,
        file: Files::over(out, "the capture", &links, snap)?,
        bounds,
        frames: 0,
        is_full: false,
        counted: Statistics::default(),
    };
    let until = deadline(bounds.time);
    let is_enough = |taking: &Taking<'_>| taking.is_full || job.is_stopped() || now_ns() >= until;
    follow(
        &stack.id,
        &mut capture,
        &mut taking,
        is_enough,
        |taking, _, entry| taking.take(entry),
    )?;
    taking.file.flush(&taking.counted)?;
    taking.file.end()?;
    job.tell(taking.frames, taking.file.written());
    let counted = taking.counted;
    let dropped = counted.dropped_full + counted.dropped_buffers;
    if dropped > 0 {
        job.note(format!("{dropped} frames were dropped for want of room"));
    }
    drop(taking);
    let mut all = memory.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(mem::take(&mut *all).into())
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
