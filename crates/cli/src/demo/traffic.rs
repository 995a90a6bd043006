//! The demo's client and server over any stream: a netchan socket or a kernel socket, the code is the same.
//!
//! A connection begins with one line: `GET /FILE HTTP/1.x` and `PUT /… HTTP/1.x` (answered as HTTP), `ECHO` (everything
//! comes back), `SINK n` (n bytes in, then `done`), `SEND n` (n bytes out),
//! `NOISE n` (n bytes of [`Noise`] out).

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Component, Path},
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::SEED;
use crate::units::now_ns;

/// Bytes handed to a socket at a time.
const BLOCK: usize = 256 << 10;
/// Longest first line or header line, bytes.
const LINE_MAX: u64 = 4096;
/// Bulk transfers of a measurement are at most this long, bytes.
const BULK_MAX: u64 = 16 << 30;
/// And the first, that finds out how long the measured one should be.
const BULK_PROBE: u64 = 32 << 20;

/// Bytes that look random and are a function of a seed.
pub struct Noise(u64);

impl Noise {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The next bytes (SplitMix64; whole words, so a block's length should be a multiple of 8).
    pub fn fill(&mut self, block: &mut [u8]) {
        for word in block.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            word.copy_from_slice(bytes.get(..word.len()).unwrap_or_default());
        }
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let whole = buffer.len() / 8 * 8;
        self.fill(buffer.get_mut(..whole).unwrap_or_default());
        Ok(whole)
    }
}

/// A digest as people write it.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Serves one connection until it ends. `directory`: whose files `GET` gives out.
pub fn serve<S: Read + Write>(stream: S, directory: Option<&Path>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let line = read_line(&mut stream)?;
    let mut words = line.split(' ');
    match (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    ) {
        ("GET", path) => {
            read_headers(&mut stream)?;
            send_file(stream.get_mut(), directory, path)
        }
        ("PUT" | "POST", _) => receive_file(&mut stream),
        ("ECHO", _) => echo(&mut stream),
        ("SINK", n) => {
            skim(&mut stream, number(n)?, &mut |_| ())?;
            stream.get_mut().write_all(b"done\n")
        }
        ("NOISE", n) => {
            io::copy(&mut Noise::new(SEED).take(number(n)?), stream.get_mut())?;
            stream.get_mut().flush()
        }
        ("SEND", n) => pour(stream.get_mut(), number(n)?),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a request")),
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(LINE_MAX).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// The value of `Content-Length`, if there is one; up to the empty line.
fn read_headers(stream: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut length = None;
    for _ in 0..100 {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(length);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(number(value.trim())?);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "too many headers",
    ))
}

fn send_file(stream: &mut impl Write, directory: Option<&Path>, path: &str) -> io::Result<()> {
    let name = Path::new(path.trim_start_matches('/'));
    let plain = name
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let file = directory
        .filter(|_| plain)
        .map(|d| fs::File::open(d.join(name)));
    let Some(Ok(mut file)) = file else {
        return stream.write_all(b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let length = file.metadata()?.len();
    stream.write_all(format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes())?;
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(()),
            n => stream.write_all(block.get(..n).unwrap_or_default())?,
        }
    }
}

/// Takes a request's body and answers with its digest.
fn receive_file<S: Read + Write>(stream: &mut BufReader<S>) -> io::Result<()> {
    let Some(length) = read_headers(stream)? else {
        return stream
            .get_mut()
            .write_all(b"HTTP/1.0 411 Length Required\r\nContent-Length: 0\r\n\r\n");
    };
    let mut digest = Sha256::new();
    skim(stream, length, &mut |bytes| digest.update(bytes))?;
    let body = hex(&digest.finalize());
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.get_mut().write_all((head + &body).as_bytes())
}

fn echo<S: Read + Write>(stream: &mut BufReader<S>) -> io::Result<()> {
    let mut block = [0; 4096];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(n) => stream
                .get_mut()
                .write_all(block.get(..n).unwrap_or_default())?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Reads exactly `length` bytes and shows them to `look`.
fn skim(stream: &mut impl Read, length: u64, look: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut left = length;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        match stream.read(block.get_mut(..most).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                look(block.get(..n).unwrap_or_default());
                left -= n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes `length` bytes.
fn pour(stream: &mut impl Write, length: u64) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    let mut left = length;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        stream.write_all(block.get(..most).unwrap_or_default())?;
        left -= most as u64;
    }
    stream.flush()
}

/// Fetches `path` over HTTP: (bytes, SHA-256). `progress` is told of every block.
pub fn fetch<S: Read + Write>(
    stream: S,
    path: &str,
    progress: &mut dyn FnMut(u64),
) -> io::Result<(u64, String)> {
    let mut stream = BufReader::new(stream);
    stream
        .get_mut()
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let length = expect_ok(&mut stream)?;
    let mut digest = Sha256::new();
    skim(&mut stream, length, &mut |bytes| {
        digest.update(bytes);
        progress(bytes.len() as u64);
    })?;
    Ok((length, hex(&digest.finalize())))
}

/// Asks for `length` bytes of noise: their SHA-256.
pub fn listen<S: Read + Write>(
    mut stream: S,
    length: u64,
    progress: &mut dyn FnMut(u64),
) -> io::Result<String> {
    stream.write_all(format!("NOISE {length}\n").as_bytes())?;
    let mut digest = Sha256::new();
    skim(&mut stream, length, &mut |bytes| {
        digest.update(bytes);
        progress(bytes.len() as u64);
    })?;
    Ok(hex(&digest.finalize()))
}

/// Uploads `length` bytes of `body` over HTTP; the digest that the server computed.
pub fn upload<S: Read + Write>(
    stream: S,
    body: &mut impl Read,
    length: u64,
    progress: &mut dyn FnMut(u64),
) -> io::Result<String> {
    let mut stream = BufReader::new(stream);
    let head = format!("PUT /upload HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes())?;
    let mut block = vec![0; BLOCK];
    loop {
        match body.read(&mut block)? {
            0 => break,
            n => {
                stream
                    .get_mut()
                    .write_all(block.get(..n).unwrap_or_default())?;
                progress(n as u64);
            }
        }
    }
    stream.get_mut().flush()?;
    let length = expect_ok(&mut stream)?;
    let mut text = String::new();
    stream
        .take(length.min(LINE_MAX))
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Reads an HTTP answer's head: its length, if it is a 200.
fn expect_ok(stream: &mut impl BufRead) -> io::Result<u64> {
    let status = read_line(stream)?;
    let length = read_headers(stream)?;
    match (status.split(' ').nth(1), length) {
        (Some("200"), Some(length)) => Ok(length),
        _ => Err(io::Error::other(format!("the server answered {status:?}"))),
    }
}

/// What one-byte requests and responses, one at a time, took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// Median, nanoseconds.
    pub p50_ns: f64,
    /// The slowest hundredth begins here, nanoseconds.
    pub p99_ns: f64,
    /// Exchanges per second.
    pub per_s: f64,
}

/// Sends a byte, waits for it to come back, again and again for `time` after a warm-up of a tenth of it.
#[allow(clippy::cast_precision_loss)] // three digits are printed
pub fn request_response<S: Read + Write>(mut stream: S, time: Duration) -> io::Result<Exchange> {
    stream.write_all(b"ECHO\n")?;
    let mut byte = [0x2a];
    let mut one = |stream: &mut S| {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)
    };
    let warm = now_ns() + nanoseconds(time) / 10;
    while now_ns() < warm {
        one(&mut stream)?;
    }
    let mut taken: Vec<u64> = Vec::with_capacity(1 << 20);
    let started = now_ns();
    let end = started + nanoseconds(time);
    let mut before = started;
    while before < end {
        one(&mut stream)?;
        let now = now_ns();
        taken.push(now - before);
        before = now;
    }
    taken.sort_unstable();
    let at = |percent: usize| taken.get(taken.len() * percent / 100).copied().unwrap_or(0) as f64;
    let per_s = taken.len() as f64 * 1e9 / (before - started).max(1) as f64;
    Ok(Exchange {
        p50_ns: at(50),
        p99_ns: at(99),
        per_s,
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// Which way a bulk transfer goes, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Client to server.
    In,
    /// Server to client.
    Out,
}

/// Transfers as much as takes about `time`, on connections that `connect` makes: Gbit/s of payload.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // a size that need not be exact
pub fn bulk<S: Read + Write>(
    mut connect: impl FnMut() -> io::Result<S>,
    direction: Direction,
    time: Duration,
) -> io::Result<f64> {
    let mut timed = |length: u64| -> io::Result<f64> {
        let stream = connect()?;
        let started = now_ns();
        transfer(stream, direction, length)?;
        Ok((now_ns() - started).max(1) as f64)
    };
    let probe = timed(BULK_PROBE)?;
    let length = BULK_PROBE as f64 * time.as_nanos() as f64 / probe;
    let length = (length as u64).clamp(BULK_PROBE, BULK_MAX);
    Ok(length as f64 * 8.0 / timed(length)?)
}

fn transfer<S: Read + Write>(stream: S, direction: Direction, length: u64) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    match direction {
        Direction::In => {
            stream
                .get_mut()
                .write_all(format!("SINK {length}\n").as_bytes())?;
            pour(stream.get_mut(), length)?;
            match read_line(&mut stream)?.as_str() {
                "done" => Ok(()),
                other => Err(io::Error::other(format!("the server answered {other:?}"))),
            }
        }
        Direction::Out => {
            stream
                .get_mut()
                .write_all(format!("SEND {length}\n").as_bytes())?;
            skim(&mut stream, length, &mut |_| ())
        }
    }
}

#[cfg(test)]
#[path = "traffic_tests.rs"]
mod tests;
