//! What a forked child tells the process that has the stack: which inherited socket it was to serve. Nobody serves that one then, and its
//! clients are refused rather than left to wait.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Duration,
};

use libc::c_int;
use netchan::{own::Own, socket::Kind};

use crate::{
    ending, lifecycle,
    state::{SOCKETS, SocketState},
    sys,
};

/// The parent's end and the children's, made with the stack. What a child says has a bound in the socket's buffer, and is looked
/// up here: it names sockets, and gets nothing.
static LINE: OnceLock<(Own, Own)> = OnceLock::new();
/// There is a thread that hears.
static HEARD: AtomicBool = AtomicBool::new(false);
/// There was a socket by which others are served, at a fork or an exec.
static SERVING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Names below it were given before the last fork.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// As often a child is answered at once that it cannot use a socket. One that does not listen would ask for ever, as fast as it can: from then on it
/// waits before an answer, twice as long each time, and no poll reports the socket any more.
const AT_ONCE: u32 = 16;
/// The longest of these waits, doublings of a millisecond.
const DOUBLINGS_MAX: u32 = 10;
/// A parent that forks and then begins to wait for its listener has begun within that time. Clients of one that does not are refused as much later,
/// which nobody notices.
const TO_BEGIN: Duration = Duration::from_millis(50);

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

/// What parent and child call a socket.
#[derive(Debug)]
pub struct Name {
    number: u64,
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

/// With the stack: a thread hears what children will say. Not with the first of them, which may be made in a signal handler.
pub fn begin() -> io::Result<()> {
    let ends = sys::socket_pair()?;
    let (from, _) = LINE.get_or_init(|| ends);
    netchan::spawn("netchan-forked", || hear(from.as_raw_fd()))?;
    HEARD.store(true, Relaxed); // a hint: without it nothing is said
    Ok(())
}

/// Wakes the thread that hears; false where there is none.
pub fn wake() -> bool {
    let line = LINE.get().filter(|_| HEARD.load(Relaxed));
    line.is_some_and(|(_, to)| sys::send_now(to.as_raw_fd(), &u64::MAX.to_ne_bytes()).is_ok())
}

/// At the end of this process: whether children go on that were forked from a server and have not become other programs. What they say is not
/// heard any more.
pub fn has_children() -> bool {
    let Some((from, to)) = LINE.get().filter(|_| SERVING.load(Relaxed)) else {
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

/// Before a fork of the process that has the stack.
pub fn before() {
    // Release pairs with Acquire in hear; read back from a message, later still.
    INHERITED.store(NEXT.load(Relaxed), Release);
    has_served();
}

/// Whether there is a socket by which others are served, or was one at a fork.
pub fn has_served() -> bool {
    if SERVING.load(Relaxed) {
        return true;
    }
    let serves = |state: &SocketState| {
        let socket = state.socket.get();
        socket.is_some_and(|socket| state.kind == Kind::Datagram || socket.is_listening())
    };
    let serves = SOCKETS.any(serves);
    SERVING.store(serves, Relaxed); // read by whichever thread ends the process
    serves
}

/// In a child: the end that it keeps; -1 for none.
pub fn childs_end() -> RawFd {
    LINE.get().map_or(-1, |(_, to)| to.as_raw_fd())
}

fn hear(from: RawFd) {
    let mut name = [0; size_of::<u64>()];
    loop {
        match sys::read(from, &mut name) {
            Ok(0) => return,
            Ok(_) if ending::is_asked() => {
                lifecycle::end();
                ending::done();
                return;
            }
            Ok(len) if len == name.len() => {
                let number = u64::from_ne_bytes(name);
                if number < INHERITED.load(Acquire) {
                    let found = SOCKETS.occupied(0, c_int::MAX).into_iter();
                    let mut found = found.filter_map(|fd| SOCKETS.get(fd));
                    if let Some(state) = found.find(|state| state.name.number == number) {
                        forsake(&state);
                    }
                }
            }
            Ok(_) => {} // none of ours
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// A child was to serve this socket. If this process does not either, its clients learn it.
fn forsake(state: &SocketState) {
    let Some(socket) = state.socket.get().filter(|_| !is_served(state)) else {
        return;
    };
    if socket.is_listening() {
        socket.refuse();
        // What waits at an instance from now on looks at the listener, and so ends that.
        return state.watch.look_again();
    }
    // One that was accepted for the child: nothing was said or read here.
    let is_fresh = socket.tcp_info().is_some_and(|info| {
        let written =
            info.bytes_acked + u64::from(info.in_flight_bytes) + u64::from(info.unsent_bytes);
        written == 0 && u64::from(info.unread_bytes) == info.bytes_received
    });
    if state.accepted && is_fresh {
        let _ = socket.disconnect(); // a stream's has no error
        state.changed();
    }
}

/// Whether this process waits for the socket. An instance that watches it, and at which nothing has ever waited here, may be the child's.
fn is_served(state: &SocketState) -> bool {
    let served = || state.is_slept_at() || state.watch.is_used() == Some(true);
    if !served() && state.watch.is_used().is_some() {
        thread::sleep(TO_BEGIN);
    }
    served()
}
