//! The line by which a forked child tells the process that has the stack which inherited socket it was to serve.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use netchan::own::Own;

use crate::sys;

/// The parent's end and the children's, made with the stack. What a child says has a bound in the socket's buffer, and is looked
/// up here: it names sockets, and gets nothing.
static LINE: OnceLock<(Own, Own)> = OnceLock::new();

/// There is a thread that hears.
static HEARD: AtomicBool = AtomicBool::new(false);

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

static NEXT: AtomicU64 = AtomicU64::new(0);

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
            number: NEXT.fetch_add(1, Relaxed), // only has to differ
            told: AtomicBool::new(false),
            answers: Answers::default(),
        }
    }

    /// In a child, which would use the socket: tells the parent, once. Waits for nothing; a full line is tried again at the next use.
    pub fn tell(&self) {
        let Some((_, to)) = LINE.get() else { return };
        // Relaxed: twice does no harm.
        if !self.told.swap(true, Relaxed)
            && sys::send_now(to.as_raw_fd(), &self.number.to_ne_bytes()).is_err()
        {
            self.told.store(false, Relaxed);
        }
    }
}

/// Wakes the thread that hears; false where there is none.
pub fn wake() -> bool {
    let line = LINE.get().filter(|_| HEARD.load(Relaxed));
    line.is_some_and(|(_, to)| sys::send_now(to.as_raw_fd(), &u64::MAX.to_ne_bytes()).is_ok())
}

/// In a child: the end that it keeps; -1 for none.
pub fn childs_end() -> RawFd {
    LINE.get().map_or(-1, |(_, to)| to.as_raw_fd())
}

/// How many names were given: all of them are lower.
pub fn names() -> u64 {
    NEXT.load(Relaxed)
}

/// With the stack: makes the line; the parent's end.
pub fn begin() -> io::Result<RawFd> {
    let ends = sys::socket_pair()?;
    let (from, _) = LINE.get_or_init(|| ends);
    Ok(from.as_raw_fd())
}

/// A thread hears from now on.
pub fn set_heard() {
    HEARD.store(true, Relaxed); // a hint: without it nothing is said
}

/// At the end of the parent, which hears no more: whether any child has its end open.
pub fn is_held_by_others() -> bool {
    let Some((from, to)) = LINE.get() else {
        return false;
    };
    let _ = sys::close(to.as_raw_fd());
    let mut line = [libc::pollfd {
        fd: from.as_raw_fd(),
        events: 0,
        revents: 0,
    }];
    sys::poll_now(&mut line).is_ok() && line[0].revents & libc::POLLHUP == 0
}
