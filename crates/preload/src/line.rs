//! The line by which a forked child tells the process that has the stack which inherited socket it uses, and what it sets of one.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    ptr,
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use libc::c_int;
use netchan::own::Own;

use crate::{locks::hold, sys};

/// Made with the stack. What a child says has a bound in the socket's buffer, and is looked up here: it names sockets, and gets nothing.
struct Line {
    /// The upper half of the names of its process.
    tag: u64,
    parents: Own,
    childrens: Own,
    /// While something that a child has said is acted upon.
    acting: Mutex<()>,
}

/// As many of a process's ancestors, each a child of the one before, may have stacks of their own.
const ANCESTORS: usize = 7;

/// This process's line, and behind it those of its ancestors that had stacks, the nearest first. Each is on the heap for good.
static LINES: [AtomicPtr<Line>; 1 + ANCESTORS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; 1 + ANCESTORS];

/// Starts a thread that hears.
type Hear = fn(RawFd) -> io::Result<()>;

/// What has started the one that there is.
static HEARER: OnceLock<Hear> = OnceLock::new();

/// As often a child is answered at once that it cannot use a socket. One that does not listen would ask for ever, as fast as it can: from then on it
/// waits before an answer, twice as long each time, and no poll reports the socket any more.
const AT_ONCE: u32 = 16;

/// The longest of these waits, doublings of a millisecond.
const DOUBLINGS_MAX: u32 = 10;

/// How often a child was answered that it cannot use something of its parent's.
#[derive(Debug, Default)]
pub struct Answers(AtomicU32);

impl Answers {
    /// One more: whether poll reports it.
    pub fn is_reported(&self) -> bool {
        self.next() < AT_ONCE
    }

    /// One more, in a call that answers an error each time.
    pub fn hold_back(&self) {
        if let Some(late) = self.next().checked_sub(AT_ONCE) {
            sys::nap(Duration::from_millis(1 << late.min(DOUBLINGS_MAX)));
        }
    }

    fn next(&self) -> u32 {
        let before = self.0.load(Relaxed);
        self.0.store(before.saturating_add(1), Relaxed); // what another thread adds meanwhile is as good
        before
    }
}

/// The next name; 0: none was given yet.
static NEXT: AtomicU64 = AtomicU64::new(0);
const TAG_SHIFT: u32 = 32;

/// A name that no other socket of this process has. Its upper half tells processes apart: sockets go to other ones with their names.
fn next() -> u64 {
    if NEXT.load(Relaxed) == 0 {
        // What the shift leaves of it: processes that begin within four seconds of each other have others.
        let drawn = u64::try_from(sys::monotonic().as_nanos()).unwrap_or(1);
        let first = (drawn << TAG_SHIFT).max(1 << TAG_SHIFT);
        let _ = NEXT.compare_exchange(0, first, Relaxed, Relaxed); // another thread was first
    }
    NEXT.fetch_add(1, Relaxed) // only has to differ
}

/// What parent and child call a socket.
#[derive(Debug)]
pub struct Name {
    pub number: u64,
    /// In a child: said already.
    told: AtomicBool,
    /// In a child.
    pub answers: Answers,
}

impl Name {
    /// One that no other socket of this process has.
    pub fn new() -> Self {
        Self {
            number: next(),
            told: AtomicBool::new(false),
            answers: Answers::default(),
        }
    }

    /// In a child, which uses the socket: tells the parent, once. Waits for a line that is full.
    pub fn tell(&self) {
        self.say(Said::Uses(self.number));
    }

    /// In a child, which waits at an epoll instance of its parent's that watches the socket.
    pub fn tell_of_instance(&self) {
        self.say(Said::WaitsAtInstance(self.number));
    }

    fn say(&self, what: Said) {
        // Relaxed: twice does no harm.
        if !self.told.swap(true, Relaxed) && !say(&what) {
            self.told.store(false, Relaxed);
        }
    }
}

/// What a child says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// It uses a socket.
    Uses(u64),
    /// It waits for one at an epoll instance that it inherited.
    WaitsAtInstance(u64),
    /// It sets an option of one.
    Sets(Wish),
}

/// An option that a process sets of a socket that several hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Wish {
    pub number: u64,
    pub level: c_int,
    pub name: c_int,
    pub value: Vec<u8>,
}

/// Longest value of an option that is passed on, bytes.
pub const VALUE_MAX: usize = 128;
/// Kind, number, level, name.
const HEAD: usize = 1 + 8 + 4 + 4;
/// Longest message, bytes.
pub const MESSAGE_MAX: usize = HEAD + VALUE_MAX;

impl Said {
    /// Its bytes in `room`, as they go over the line. Takes no memory: children begin in handlers.
    fn encode<'a>(&self, room: &'a mut [u8; MESSAGE_MAX]) -> &'a [u8] {
        let (kind, number, level, name, value) = match self {
            Self::Uses(number) => (1, *number, 0, 0, &[][..]),
            Self::WaitsAtInstance(number) => (2, *number, 0, 0, &[][..]),
            Self::Sets(wish) => (3, wish.number, wish.level, wish.name, wish.value.as_slice()),
        };
        let value = value.get(..VALUE_MAX).unwrap_or(value);
        let mut len = 0;
        let mut put = |part: &[u8]| {
            if let Some(place) = room.get_mut(len..len + part.len()) {
                place.copy_from_slice(part);
                len += part.len();
            }
        };
        put(&[kind]);
        put(&number.to_ne_bytes());
        put(&level.to_ne_bytes());
        put(&name.to_ne_bytes());
        put(value);
        room.get(..len).unwrap_or_default()
    }

    /// `None`: no child says that.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (level, rest) = rest.split_first_chunk()?;
        let (name, value) = rest.split_first_chunk()?;
        let number = u64::from_ne_bytes(*number);
        match kind {
            1 => Some(Self::Uses(number)),
            2 => Some(Self::WaitsAtInstance(number)),
            3 => Some(Self::Sets(Wish {
                number,
                level: c_int::from_ne_bytes(*level),
                name: c_int::from_ne_bytes(*name),
                value: value.to_vec(),
            })),
            _ => None,
        }
    }
}

impl Said {
    const fn number(&self) -> u64 {
        match self {
            Self::Uses(number) | Self::WaitsAtInstance(number) => *number,
            Self::Sets(wish) => wish.number,
        }
    }
}

fn lines() -> impl Iterator<Item = &'static Line> {
    // SAFETY: never freed, and complete when its address was published (Release in begin).
    let line = |line: &AtomicPtr<Line>| unsafe { line.load(Acquire).as_ref() };
    LINES.iter().filter_map(line)
}

fn own() -> Option<&'static Line> {
    // SAFETY: as above.
    unsafe { LINES[0].load(Acquire).as_ref() }
}

/// Tells the process that has the socket which is named. False: there is no line to it, or it stays full.
pub fn say(what: &Said) -> bool {
    let tag = what.number() >> TAG_SHIFT;
    let line = lines().find(|line| line.tag == tag);
    let Some(line) = line else {
        return false;
    };
    let mut room = [0; MESSAGE_MAX];
    let bytes = what.encode(&mut room);
    // The thread that hears takes them as they come.
    for _ in 0..TRIES {
        match sys::send_now(line.childrens.as_raw_fd(), bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sys::nap(Duration::from_millis(1));
            }
            sent => return sent.is_ok(),
        }
    }
    false
}

/// A full line is tried as often, a millisecond apart.
const TRIES: usize = 1000;

/// Wakes the thread that hears; false where there is none.
pub fn wake() -> bool {
    let line = own().filter(|_| HEARER.get().is_some());
    line.is_some_and(|line| {
        sys::send_now(line.childrens.as_raw_fd(), &u64::MAX.to_ne_bytes()).is_ok()
    })
}

/// In a child: the ends that it keeps, and -1 where there is none.
pub fn childrens_ends() -> [RawFd; 1 + ANCESTORS] {
    let mut ends = [-1; 1 + ANCESTORS];
    for (end, line) in ends.iter_mut().zip(lines()) {
        *end = line.childrens.as_raw_fd();
    }
    ends
}

/// While what a child has said is acted upon; and while nothing is, for a fork: what children say waits. `None`: there is no line.
pub fn acting() -> Option<MutexGuard<'static, ()>> {
    own().map(|line| hold(&line.acting))
}

/// How many names were given: all of them are lower.
pub fn names() -> u64 {
    NEXT.load(Relaxed)
}

/// With the stack: makes the line; the parent's end.
pub fn begin() -> io::Result<RawFd> {
    let (parents, childrens) = sys::socket_pair()?;
    let line = Box::leak(Box::new(Line {
        tag: next() >> TAG_SHIFT,
        parents,
        childrens,
        acting: Mutex::new(()),
    }));
    LINES[0].store(line, Release); // pairs with Acquire in lines
    Ok(line.parents.as_raw_fd())
}

/// Whether there is room for one more ancestor.
pub fn may_begin_anew() -> bool {
    LINES[ANCESTORS].load(Relaxed).is_null()
}

/// In a child that begins anew: the line is its parent's, and names are others. No other thread looks.
pub fn begin_anew() {
    for at in (0..ANCESTORS).rev() {
        let line = LINES[at].load(Relaxed);
        LINES[at + 1].store(line, Release); // pairs with Acquire in lines
    }
    LINES[0].store(ptr::null_mut(), Release);
    NEXT.store(0, Relaxed);
}

/// A thread hears from now on, which `hear` has started.
pub fn set_heard(hear: Hear) {
    let _ = HEARER.set(hear);
}

/// A process goes on with the stack of another one: what that one's children say is heard here, by a new thread.
pub fn hear_on() -> io::Result<()> {
    match (own(), HEARER.get()) {
        (Some(line), Some(hear)) => hear(line.parents.as_raw_fd()),
        _ => Ok(()),
    }
}

/// At the end of the parent, which hears no more: whether any child has its end open.
pub fn is_held_by_others() -> bool {
    let Some(own) = own() else {
        return false;
    };
    let _ = sys::close(own.childrens.as_raw_fd());
    let mut line = [libc::pollfd {
        fd: own.parents.as_raw_fd(),
        events: 0,
        revents: 0,
    }];
    sys::poll_now(&mut line).is_ok() && line[0].revents & libc::POLLHUP == 0
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
