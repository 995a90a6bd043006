//! Scripts of our own: what arrives, what the application does, and what must leave, each with its moment, in virtual time.
//!
//! # The language
//!
//! A line is an event; `#` begins a comment. Each script opens with a comment that cites what it shows. Lines `set NAME=VALUE`
//! ([`settings`](crate::settings)) and `tolerance SECONDS` come first. An event is `[+SECONDS] ACTION`: the time passes since the event
//! before it (or since the packet before it left), and nothing may leave meanwhile that no line expects.
//!
//! | action | meaning |
//! | --- | --- |
//! | `< SEGMENT` | arrives |
//! | `> SEGMENT` | leaves, at that moment give or take the tolerance (2 ms: the timers' tick is one). `+0.1~0.3 >` gives a range |
//! | `quiet` | only lets the time pass |
//! | `listen`, `connect`, `accept` | the calls; there is one socket at a time, the last one accepted or connected |
//! | `connect ERROR`, `accept ERROR` | the call fails so |
//! | `send COUNT`, `send ERROR` | so many bytes are taken |
//! | `recv COUNT`, `recv eof`, `recv ERROR` | so many bytes come (exactly; the call has room for more), and they are the peer's |
//! | `close`, `shutdown read`, `shutdown write`, `shutdown both` | the calls |
//! | `option NAME=VALUE` | before or after `listen`, `connect`: `nodelay cork quickack keepalive keepidle keepintvl keepcnt user_timeout linger mss rcvbuf sndbuf fastopen fastconnect` |
//! | `state NAME` | the connection is in that state (`Established`, `CloseWait`, …) |
//! | `error NAME`, `error none` | SO_ERROR, which takes it |
//! | `change NAME=VALUE` | a setting changes while the stack runs, for connections opened later; `change tcp_metrics=flush` has it forget its peers |
//! | `isn NUMBER` | the peer's initial sequence number from here on (1000 at first) |
//! | `port NUMBER` | the peer's port from here on |
//!
//! A segment is `FLAGS BEGIN:END(LENGTH) [ack N] [win N] [urg N] [ce|ect0|ect1] [<OPTIONS>]`. Flags are letters of `FSRPUEW`, and `.` for ACK. Sequence
//! numbers count from the initial ones, SYN being 0, ours since the SYN that left last. Of what leaves, the window, the urgent pointer, the
//! codepoint and the options are compared if they are written; `<>` says that there are none. Options: `mss N`, `sackOK`, `wscale N`, `ts VALUE:ECHO`
//! (`*` for any; `last` echoes our last one, `before` the one before that), `sack A:B`, `fo COOKIE` (in hexadecimal; none: it asks for one). Text is what its place in the stream says, and is compared.

mod parse;
mod run;
mod segment;
#[cfg(test)]
mod tests;

use std::fmt;

pub use segment::Segment;

use crate::settings::Settings;

/// A script that can be run.
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    settings: Settings,
    tolerance_us: u64,
    events: Vec<Event>,
}

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The script.
    pub name: String,
    /// From 1.
    pub line: usize,
    /// In words.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.name, self.line, self.what)
    }
}

impl std::error::Error for Failure {}

#[derive(Clone, Debug)]
struct Event {
    line: usize,
    /// Microseconds after the event before, at least and at most.
    after_us: (u64, u64),
    action: Action,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Arrives(Segment),
    Leaves(Segment),
    Quiet,
    Listen,
    Connect(Outcome),
    Accept(Outcome),
    Send(Outcome),
    Receive(Outcome),
    /// What was sent so far ends a record.
    EndRecord,
    Close,
    Shutdown(std::net::Shutdown),
    Option(netchan::socket::SocketOption),
    State(String),
    Error(Outcome),
    PeerIsn(u32),
    PeerPort(u16),
    /// In the language of [`Settings::set`].
    Change(String),
}

/// What a call comes to: a number of bytes (0: all right, or the end), or an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Count(usize),
    Errno(i32),
}

impl Script {
    /// Reads a script; `name` is what failures call it.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        parse::script(name, text)
    }

    /// Runs it on a fresh stack.
    ///
    /// # Errors
    /// The first event that does not come as written.
    pub fn run(&self) -> Result<(), Failure> {
        run::script(self)
    }

    fn failure(&self, line: usize, what: impl Into<String>) -> Failure {
        Failure {
            name: self.name.clone(),
            line,
            what: what.into(),
        }
    }
}
