//! What the table of options is made of: a row for each, and how the usual ones are read and answered.

use std::{io, time::Duration};

use libc::c_int;

use super::{CallerFlag, CallerOption, Setting, groups::filter::Layout};
use crate::socket::Socket;

/// One option of setsockopt(2) and getsockopt(2).
pub struct Row {
    /// Its number, at its level.
    pub number: c_int,
    /// Its name in Linux's headers.
    pub name: &'static str,
    /// What a value is, for people.
    pub value: &'static str,
    /// Which sockets have it, for people: what others are told is in the rules, or in what it does.
    pub sockets: &'static str,
    /// How a value is read.
    pub set: Set,
    /// How it is answered.
    pub get: Get,
    /// What else people are told.
    pub note: &'static str,
    /// What holds of few.
    pub rules: Rules,
}

/// How setsockopt's value is read.
pub enum Set {
    /// ENOPROTOOPT.
    No,
    /// Checked, and without effect.
    Ignored(fn(&[u8]) -> io::Result<()>),
    /// The caller keeps it.
    Flag(CallerFlag, fn(&[u8]) -> io::Result<bool>),
    /// What it means.
    To(fn(&[u8]) -> io::Result<Setting>),
    /// A source filter, which is handed to a socket as it is.
    Filter(Layout),
}

/// How getsockopt answers.
pub enum Get {
    /// ENOPROTOOPT.
    No,
    /// As its caller kept it; the value here is none.
    Caller(CallerOption),
    /// What the socket says.
    By(fn(&Socket) -> io::Result<Value>),
    /// The same, in at most so many bytes.
    Within(fn(&Socket, usize) -> io::Result<Vec<u8>>),
    /// A source filter, whose head the program has filled in.
    Filter(Layout),
    /// Keys, as many structures as the program has room for.
    Keys,
}

/// What a program reads.
pub enum Value {
    /// An int.
    Int(c_int),
    /// A structure or a name.
    Bytes(Vec<u8>),
    /// An unsigned long where there is room for one, else an unsigned int.
    Rate(u64),
}

impl Value {
    /// As a program that has `room` bytes wants it, of an option of this level.
    pub fn bytes(self, level: c_int, room: usize) -> Vec<u8> {
        match self {
            // As Linux: one byte where there is no room for an int, but for one.
            Self::Int(value @ 0..=255) if level == libc::IPPROTO_IP && (1..4).contains(&room) => {
                value.to_ne_bytes()[..1].to_vec()
            }
            Self::Int(value) => value.to_ne_bytes().to_vec(),
            Self::Bytes(bytes) => bytes,
            Self::Rate(rate) if room >= 8 => rate.to_ne_bytes().to_vec(),
            Self::Rate(rate) => u32::try_from(rate)
                .unwrap_or(u32::MAX)
                .to_ne_bytes()
                .to_vec(),
        }
    }
}

/// What holds of few options. A socket is *undecided* while a library that stands before two stacks (netchan's preload library) has not decided
/// which of them serves it.
pub struct Rules {
    /// Whether setting it makes an undecided socket netchan's.
    pub decides: Decides,
    /// An undecided socket takes it although the kernel may not.
    pub is_only_ours: bool,
    /// Linux grants it not to all: the kernel's socket is asked.
    pub is_privileged: bool,
    /// A value may be shorter than an int, which Linux asks for at SOL_SOCKET else.
    pub may_be_short: bool,
    /// What a stream is told that would set it, before the value is looked at.
    pub of_streams: Option<c_int>,
    /// The same of a ping socket, once the value has been read.
    pub of_pings: Option<c_int>,
}

/// Whether setting an option makes an undecided socket netchan's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// It does not.
    No,
    /// Where it names one of netchan's links.
    ByLink,
    /// Where the socket is no stream: the interfaces of groups are netchan's.
    UnlessStream,
}

/// All kinds of sockets.
pub(super) const ALL: &str = "all";
pub(super) const TCP: &str = "tcp";
pub(super) const UDP: &str = "udp";
/// Those that have groups.
pub(super) const GROUPS: &str = "udp, ping";

/// A row with nothing special.
pub(super) const fn row(
    number: c_int,
    name: &'static str,
    value: &'static str,
    sockets: &'static str,
    (set, get): (Set, Get),
) -> Row {
    Row {
        number,
        name,
        value,
        sockets,
        set,
        get,
        note: "",
        rules: Rules {
            decides: Decides::No,
            is_only_ours: false,
            is_privileged: false,
            may_be_short: false,
            of_streams: None,
            of_pings: None,
        },
    }
}

impl Row {
    pub(super) const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    pub(super) const fn decides(mut self, decides: Decides) -> Self {
        self.rules.decides = decides;
        self
    }

    pub(super) const fn only_ours(mut self) -> Self {
        self.rules.is_only_ours = true;
        self
    }

    pub(super) const fn privileged(mut self) -> Self {
        self.rules.is_privileged = true;
        self
    }

    pub(super) const fn of_any_length(mut self) -> Self {
        self.rules.may_be_short = true;
        self
    }

    pub(super) const fn refused_by_streams(mut self, code: c_int) -> Self {
        self.rules.of_streams = Some(code);
        self
    }

    pub(super) const fn refused_by_pings(mut self, code: c_int) -> Self {
        self.rules.of_pings = Some(code);
        self
    }
}

/// What is only set.
pub(super) const fn set(read: fn(&[u8]) -> io::Result<Setting>) -> (Set, Get) {
    (Set::To(read), Get::No)
}

/// What is only read.
pub(super) const fn get(answer: fn(&Socket) -> io::Result<Value>) -> (Set, Get) {
    (Set::No, Get::By(answer))
}

/// What is set and read in ways of its own.
pub(super) const fn both(
    read: fn(&[u8]) -> io::Result<Setting>,
    answer: fn(&Socket) -> io::Result<Value>,
) -> (Set, Get) {
    (Set::To(read), Get::By(answer))
}

/// What its caller keeps, and is on or off.
pub(super) const fn caller_flag(
    flag: CallerFlag,
    read: fn(&[u8]) -> io::Result<bool>,
) -> (Set, Get) {
    (
        Set::Flag(flag, read),
        Get::Caller(CallerOption::Flag(flag, false)),
    )
}

/// What its caller keeps: how its value is read from C's bytes.
macro_rules! caller {
    ($name:ident, $read:path, $like:expr) => {
        (
            Set::To(|value| Ok(Setting::Caller(CallerOption::$name($read(value)?)))),
            Get::Caller(CallerOption::$name($like)),
        )
    };
}

/// An option of netchan's sockets: how its value is read from C's bytes, and how it is shown (as the number that it is, where nothing is said).
macro_rules! option {
    ($name:ident, $read:path) => {
        option!($name, $read, Value::from)
    };
    ($name:ident, $read:path, $show:path) => {
        both(
            |value| Ok(Setting::Option(SocketOption::$name($read(value)?))),
            |socket: &Socket| {
                let like = SocketOption::$name(Default::default());
                match socket.option(like)? {
                    SocketOption::$name(value) => Ok($show(value)),
                    _ => fail(libc::ENOPROTOOPT),
                }
            },
        )
    };
}

/// The same of those that datagram sockets have.
macro_rules! datagram {
    ($name:ident, $read:path) => {
        datagram!($name, $read, Value::from)
    };
    ($name:ident, $read:path, $show:path) => {
        both(
            |value| {
                let option = UdpOption::$name($read(value)?);
                Ok(Setting::Option(SocketOption::Udp(option)))
            },
            |socket: &Socket| {
                let like = SocketOption::Udp(UdpOption::$name(Default::default()));
                match socket.option(like)? {
                    SocketOption::Udp(UdpOption::$name(value)) => Ok($show(value)),
                    _ => fail(libc::ENOPROTOOPT),
                }
            },
        )
    };
}

/// The same of groups.
macro_rules! multicast {
    ($name:ident, $read:path) => {
        both(
            |value| {
                let option = Multicast::$name($read(value)?);
                Ok(Setting::Option(SocketOption::Multicast(option)))
            },
            |socket: &Socket| {
                let like = SocketOption::Multicast(Multicast::$name(Default::default()));
                match socket.option(like)? {
                    SocketOption::Multicast(Multicast::$name(value)) => Ok(Value::from(value)),
                    _ => fail(libc::ENOPROTOOPT),
                }
            },
        )
    };
}

pub(super) use {caller, datagram, multicast, option};

impl From<bool> for Value {
    fn from(on: bool) -> Self {
        Self::Int(on.into())
    }
}

impl From<u8> for Value {
    fn from(value: u8) -> Self {
        Self::Int(value.into())
    }
}

impl From<u16> for Value {
    fn from(value: u16) -> Self {
        Self::Int(value.into())
    }
}

/// Unsigned in Linux, where C says int.
impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(value.cast_signed())
    }
}

/// Whole seconds.
pub(super) fn of_seconds(time: Duration) -> Value {
    Value::Int(c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX))
}

/// Whole milliseconds.
pub(super) fn of_milliseconds(time: Duration) -> Value {
    Value::Int(c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX))
}
