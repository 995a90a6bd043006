//! A connection of a running stack: its socket is looked up, and the headers of its segments are captured for a while.

use std::{net::SocketAddr, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use netchan::{
    control::{
        Stack,
        capture::{Entry, Request},
    },
    tap::Statistics,
};
use serde_json::Value;

use super::{
    connections::{Connections, Wanted},
    segment::{Found, Layer, find},
    series::Scale,
};
use crate::{
    capture::follow::{deadline, follow},
    failure::{Failure, Outcome, failed, usage},
    show::{choose, interruption},
    units::now_ns,
};

/// Bytes of each frame: Ethernet with a tag, IP and TCP with all their options.
const SNAP: usize = 140;
/// Sockets that an error lists.
const LISTED: usize = 10;

/// An instruction of the BSD packet filter: code, jt, jf, k.
type Instruction = (u16, u8, u8, u32);

/// What was captured.
pub struct Live {
    pub connections: Connections,
    /// Its name: both ends.
    pub name: String,
    /// Of the windows of each end, as the stack has agreed upon them.
    pub scales: [(SocketAddr, Scale); 2],
    pub notes: Vec<String>,
}

/// A socket of a stack.
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    scales: [Scale; 2],
}

/// Which sockets are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Both(SocketAddr, SocketAddr),
    One(SocketAddr),
    Port(u16),
}

impl Named {
    fn parse(text: &str) -> Option<Self> {
        if let Some((a, b)) = text.split_once('-') {
            return Some(Self::Both(a.parse().ok()?, b.parse().ok()?));
        }
        let port = text.strip_prefix(':').unwrap_or(text);
        match port.parse() {
            Ok(port) => Some(Self::Port(port)),
            Err(_) => Some(Self::One(text.parse().ok()?)),
        }
    }

    fn admits(self, socket: &Socket) -> bool {
        let (local, remote) = (socket.local, socket.remote);
        match self {
            Self::Both(a, b) => (a, b) == (local, remote) || (b, a) == (local, remote),
            Self::One(end) => end == local || end == remote,
            Self::Port(port) => port == local.port() || port == remote.port(),
        }
    }
}

/// Captures the connection of the socket that `name` names for `duration`, or until it is interrupted.
///
/// # Errors
/// There is no such socket, or several; the stack's.
pub fn capture(name: &str, pid: Option<&str>, duration: Duration) -> Result<Live, Failure> {
    let named = Named::parse(name).ok_or_else(|| {
        usage(format!(
            "--live {name}: want LOCAL-REMOTE, one end (10.0.0.1:80), or a port, as `netchan show sockets` has them"
        ))
    })?;
    let (stack, socket) = one(name, named, choose(pid)?)?;
    let interrupted = interruption()?;
    let is_enough = || interrupted.try_recv().is_ok();
    of_socket(&stack, &socket, duration, &progress(duration), &is_enough)
}

/// Captures the connection of `stack` between these ends for `duration`, or until it `is_enough`.
///
/// # Errors
/// There is no such connection; the stack's.
pub fn of_ends(
    stack: &Stack,
    (local, remote): (SocketAddr, SocketAddr),
    duration: Duration,
    is_enough: &dyn Fn() -> bool,
) -> Result<Live, Failure> {
    let facts = stack.show("sockets");
    let facts = facts.map_err(|why| failed(format!("stack {}: {why}", stack.id)))?;
    let socket = sockets(&facts).find(|socket| (socket.local, socket.remote) == (local, remote));
    let socket =
        socket.ok_or_else(|| failed(format!("there is no TCP connection {local}-{remote} now")))?;
    of_socket(stack, &socket, duration, &ProgressBar::hidden(), is_enough)
}

fn of_socket(
    stack: &Stack,
    socket: &Socket,
    duration: Duration,
    bar: &ProgressBar,
    is_enough: &dyn Fn() -> bool,
) -> Result<Live, Failure> {
    let request = Request {
        snap: Some(SNAP),
        program: program(socket.local, socket.remote),
        ..Request::default()
    };
    let begun = stack.capture(&request);
    let mut capture = begun.map_err(|why| failed(format!("stack {}: {why}", stack.id)))?;
    let mut taking = Taking {
        connections: Connections::new(Wanted::Ends(socket.local, socket.remote)),
        counted: Statistics::default(),
    };
    let (begun, until) = (now_ns(), deadline(duration));
    let is_over = |_: &Taking| {
        let now = now_ns();
        bar.set_position((now - begun) / 1_000_000);
        now >= until || is_enough()
    };
    follow(
        &stack.id,
        &mut capture,
        &mut taking,
        is_over,
        |taking, _, entry| taking.take(entry),
    )?;
    bar.finish_and_clear();
    let Taking {
        connections,
        counted,
    } = taking;
    let [local, remote] = socket.scales;
    let mut notes = Vec::new();
    let dropped = counted.dropped_full + counted.dropped_buffers;
    if dropped > 0 {
        notes.push(format!(
            "{dropped} segments are missing: the capture had no room for them"
        ));
    }
    if connections.all().is_empty() {
        return Err(failed(format!(
            "{}-{}: no segment of it was seen (what a stack sends to itself is on no link)",
            socket.local, socket.remote
        )));
    }
    Ok(Live {
        connections,
        name: format!("{}-{}", socket.local, socket.remote),
        scales: [(socket.local, local), (socket.remote, remote)],
        notes,
    })
}

/// What becomes of a capture.
struct Taking {
    connections: Connections,
    counted: Statistics,
}

impl Taking {
    fn take(&mut self, entry: Option<Entry>) -> Outcome {
        match entry {
            Some(Entry::Statistics(now)) => self.counted = now,
            Some(Entry::Frame(frame)) => {
                let found = find(Layer::Ethernet, frame.time, frame.length, &frame.bytes);
                if let Found::Segment(segment) = found {
                    self.connections.take(&segment);
                }
            }
            None => {}
        }
        Ok(())
    }
}

/// Shown where standard error is a terminal.
fn progress(duration: Duration) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("capturing {wide_bar} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// The one socket that is meant, and its stack.
fn one(name: &str, named: Named, stacks: Vec<Stack>) -> Result<(Stack, Socket), Failure> {
    let mut all = Vec::new();
    let mut why = Vec::new();
    for stack in stacks {
        match stack.show("sockets") {
            Ok(facts) => all.extend(sockets(&facts).map(|socket| (stack.clone(), socket))),
            Err(e) => why.push(format!("stack {}: {e}", stack.id)),
        }
    }
    let list = |all: &[(Stack, Socket)]| {
        let line =
            |(_, socket): &(Stack, Socket)| format!("\n  {}-{}", socket.local, socket.remote);
        let mut text: String = all.iter().take(LISTED).map(line).collect();
        if all.len() > LISTED {
            text.push_str(&format!("\n  and {} more", all.len() - LISTED));
        }
        text
    };
    let is_meant = |(_, socket): &(Stack, Socket)| named.admits(socket);
    let (mut meant, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_meant);
    match (meant.pop(), meant.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            meant.push(last);
            Err(usage(format!(
                "--live {name} means several connections, say which:{}",
                list(&meant)
            )))
        }
        (None, _) if !why.is_empty() => Err(failed(why.join("\n"))),
        (None, _) if others.is_empty() => {
            Err(failed(format!("--live {name}: there is no TCP connection")))
        }
        (None, _) => Err(failed(format!(
            "--live {name}: there is no such TCP connection, but:{}",
            list(&others)
        ))),
    }
}

/// TCP sockets with two ends, of what a stack says. Not those in TIME-WAIT, which have nothing more to say.
fn sockets(facts: &Value) -> impl Iterator<Item = Socket> {
    facts.as_array().into_iter().flatten().filter_map(|row| {
        let text = |name: &str| row.get(name)?.as_str();
        let end = |name: &str| text(name)?.parse().ok();
        let is_over = text("state") == Some("TIME-WAIT");
        (text("protocol") == Some("tcp") && !is_over).then_some(())?;
        Some(Socket {
            local: end("local")?,
            remote: end("remote")?,
            scales: scales(text("options")),
        })
    })
}

/// Of the windows of this end and the other, in `ts sack wscale:7,8`: the second is this end's.
fn scales(options: Option<&str>) -> [Scale; 2] {
    let Some(options) = options else {
        return [Scale::Unknown; 2];
    };
    let mut words = options.split(' ');
    let Some(word) = words.find_map(|word| word.strip_prefix("wscale:")) else {
        return [Scale::Known(0); 2];
    };
    let shift = |text: &str| text.parse().ok().filter(|shift| *shift <= 14);
    let both = word
        .split_once(',')
        .map(|(send, receive)| (shift(send), shift(receive)));
    match both {
        Some((Some(send), Some(receive))) => [Scale::Known(receive), Scale::Known(send)],
        _ => [Scale::Unknown; 2],
    }
}

/// A filter for the segments between two ends, with a VLAN tag or without: a block for each way to be one. The first thing in a block that does not fit
/// leads to the next block.
fn program(a: SocketAddr, b: SocketAddr) -> Vec<Instruction> {
    let mut program = Vec::new();
    for tag in [0, 4] {
        for (from, to) in [(a, b), (b, a)] {
            let tests = tests(tag, from, to);
            let size = tests
                .iter()
                .map(|(loads, ..)| loads.len() + 1)
                .sum::<usize>();
            let mut left = size;
            for (loads, value, is_zero_wanted) in tests {
                left -= loads.len() + 1;
                program.extend(loads);
                // Over the rest of this block and the instruction that takes the frame.
                let away = u8::try_from(left + 1).unwrap_or(u8::MAX);
                program.push(match is_zero_wanted {
                    true => (0x45, away, 0, value),  // any of these bits
                    false => (0x15, 0, away, value), // equal
                });
            }
            program.push((0x06, 0, 0, u32::MAX));
        }
    }
    program.push((0x06, 0, 0, 0));
    program
}

/// Instructions that load, the value, and whether its bits must be 0 (else: what is loaded must be the value).
type Test = (Vec<Instruction>, u32, bool);

fn tests(tag: u32, from: SocketAddr, to: SocketAddr) -> Vec<Test> {
    let word = |at| (0x20, 0, 0, tag + at);
    let half = |at| (0x28, 0, 0, tag + at);
    let byte = |at| (0x30, 0, 0, tag + at);
    let equal = |load: Instruction, value: u32| (vec![load], value, false);
    let ports = [from.port(), to.port()].map(u32::from);
    let mut tests = Vec::new();
    if tag > 0 {
        tests.push(equal((0x28, 0, 0, 12), 0x8100));
    }
    match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            tests.extend([
                equal(half(12), 0x0800),
                equal(byte(23), 6),
                (vec![half(20)], 0x1fff, true), // no fragment
                equal(word(26), from.ip().to_bits()),
                equal(word(30), to.ip().to_bits()),
            ]);
            let header = (0xb1, 0, 0, tag + 14); // X: 4 * the header's length
            for (at, port) in [14, 16].into_iter().zip(ports) {
                tests.push((vec![header, (0x48, 0, 0, tag + at)], port, false));
            }
        }
        (from, to) => {
            tests.extend([equal(half(12), 0x86dd), equal(byte(20), 6)]);
            for (at, end) in [22, 38].into_iter().zip([from, to]) {
                let SocketAddr::V6(end) = end else { continue };
                let bits = end.ip().to_bits().to_be_bytes();
                let (words, _) = bits.as_chunks::<4>();
                for (i, bits) in (0..).zip(words) {
                    tests.push(equal(word(at + 4 * i), u32::from_be_bytes(*bits)));
                }
            }
            for (at, port) in [54, 56].into_iter().zip(ports) {
                tests.push(equal(half(at), port));
            }
        }
    }
    tests
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
