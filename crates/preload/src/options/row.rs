//! What the table of options is made of: a row for each, and how the usual ones are read and answered.

use std::{io, time::Duration};

use libc::c_int;

use crate::{asked::Ask, multicast::filter::Layout, setting::Setting, state::Live};

/// One option of setsockopt(2) and getsockopt(2).
pub struct Row {
    /// Its number, at its level.
    pub number: c_int,
    /// Its name in Linux's headers.
    #[cfg_attr(not(test), allow(dead_code))] // the page is made of it
    pub name: &'static str,
    /// What a value is, for people.
    #[cfg_attr(not(test), allow(dead_code))] // the page is made of it
    pub value: &'static str,
    /// Which sockets have it, for people: what others are told is in the rules, or in what it does.
    #[cfg_attr(not(test), allow(dead_code))] // the page is made of it
    pub sockets: &'static str,
    /// How a value is read.
    pub set: Set,
    /// How it is answered.
    pub get: Get,
    /// What else people are told.
    #[cfg_attr(not(test), allow(dead_code))] // the page is made of it
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
    /// Only kept, or told by recvmsg(2).
    Asked(Ask, fn(&[u8]) -> io::Result<bool>),
    /// What it means.
    To(fn(&[u8]) -> io::Result<Setting>),
    /// A source filter, which is handed to a socket as it is.
    Filter(Layout),
}

/// How getsockopt answers.
pub enum Get {
    /// ENOPROTOOPT.
    No,
    /// As it was set.
    Asked(Ask),
    /// What the socket says.
    By(fn(Live<'_>) -> io::Result<Value>),
    /// The same, in at most so many bytes.
    Within(fn(Live<'_>, usize) -> io::Result<Vec<u8>>),
    /// A source filter, whose head the program has filled in.
    Filter(Layout),
    /// Keys, as many structures as the program has room for.
    Keys,
}

/// What a program reads.
pub enum Value {
    Int(c_int),
    Bytes(Vec<u8>),
    /// An unsigned long where there is room for one, else an unsigned int.
    Rate(u64),
}

/// What holds of few options.
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
    No,
    /// Where it names one of netchan's links.
    ByLink,
    /// Where the socket is no stream: the interfaces of groups are netchan's.
    UnlessStream,
}

/// All kinds of sockets.
pub const ALL: &str = "all";
pub const TCP: &str = "tcp";
pub const UDP: &str = "udp";
/// Those that have groups.
pub const GROUPS: &str = "udp, ping";

/// A row with nothing special.
pub const fn row(
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
    pub const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    pub const fn decides(mut self, decides: Decides) -> Self {
        self.rules.decides = decides;
        self
    }

    pub const fn only_ours(mut self) -> Self {
        self.rules.is_only_ours = true;
        self
    }

    pub const fn privileged(mut self) -> Self {
        self.rules.is_privileged = true;
        self
    }

    pub const fn of_any_length(mut self) -> Self {
        self.rules.may_be_short = true;
        self
    }

    pub const fn refused_by_streams(mut self, code: c_int) -> Self {
        self.rules.of_streams = Some(code);
        self
    }

    pub const fn refused_by_pings(mut self, code: c_int) -> Self {
        self.rules.of_pings = Some(code);
        self
    }
}

/// What is only set.
pub const fn set(read: fn(&[u8]) -> io::Result<Setting>) -> (Set, Get) {
    (Set::To(read), Get::No)
}

/// What is only read.
pub const fn get(answer: fn(Live<'_>) -> io::Result<Value>) -> (Set, Get) {
    (Set::No, Get::By(answer))
}

/// What is set and read in ways of its own.
pub const fn both(
    read: fn(&[u8]) -> io::Result<Setting>,
    answer: fn(Live<'_>) -> io::Result<Value>,
) -> (Set, Get) {
    (Set::To(read), Get::By(answer))
}

/// What is only kept, or told by recvmsg(2).
pub const fn asked(what: Ask, read: fn(&[u8]) -> io::Result<bool>) -> (Set, Get) {
    (Set::Asked(what, read), Get::Asked(what))
}

/// An option of netchan's sockets: how its value is read from C's bytes, and how it is shown (as the number that it is, where nothing is said).
macro_rules! option {
    ($name:ident, $read:path) => {
        option!($name, $read, Value::from)
    };
    ($name:ident, $read:path, $show:path) => {
        both(
            |value| Ok(Setting::Option(SocketOption::$name($read(value)?))),
            |live| {
                let like = SocketOption::$name(Default::default());
                match live.socket.option(like).map_err(unsupported)? {
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
            |live| {
                let like = SocketOption::Udp(UdpOption::$name(Default::default()));
                match live.socket.option(like).map_err(unsupported)? {
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
            |live| {
                let like = SocketOption::Multicast(Multicast::$name(Default::default()));
                match live.socket.option(like).map_err(unsupported)? {
                    SocketOption::Multicast(Multicast::$name(value)) => Ok(Value::from(value)),
                    _ => fail(libc::ENOPROTOOPT),
                }
            },
        )
    };
}

pub(super) use {datagram, multicast, option};

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
pub fn of_seconds(time: Duration) -> Value {
    Value::Int(c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX))
}

/// Whole milliseconds.
pub fn of_milliseconds(time: Duration) -> Value {
    Value::Int(c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX))
}
