//! What a forked child tells the process that has the stack: which inherited socket it was to serve. Nobody serves that one then, and its
//! clients are refused rather than left to wait.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use libc::c_int;
use netchan::own::Own;

use crate::{
    state::{SOCKETS, SocketState},
    sys,
};

/// The parent's end and the children's, made before the first fork. What a child says has a bound in the socket's buffer, and is looked
/// up here: it names sockets, and gets nothing.
static LINE: OnceLock<(Own, Own)> = OnceLock::new();
/// The parent listens.
static HEARD: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Names below it were given before the last fork.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// What parent and child call a socket.
#[derive(Debug)]
pub struct Name {
    number: u64,
    /// In a child: said already.
    told: AtomicBool,
}

impl Name {
    /// One that no other socket of this process has.
    pub fn new() -> Self {
        Self {
            number: NEXT.fetch_add(1, Relaxed), // only has to differ
            told: AtomicBool::new(false),
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

/// Before a fork of the process that has the stack. Without descriptors to spare children are not heard.
pub fn before() {
    if LINE.get().is_none()
        && let Ok(ends) = sys::socket_pair()
    {
        let _ = LINE.set(ends); // another thread's serves as well
    }
    // Release pairs with Acquire in hear; read back from a message, later still.
    INHERITED.store(NEXT.load(Relaxed), Release);
}

/// After it, in the parent: a thread hears what children say.
pub fn after() {
    if LINE.get().is_some() && !HEARD.swap(true, Relaxed) {
        let heard = netchan::spawn("netchan-forked", || {
            if let Some((from, _)) = LINE.get() {
                hear(from.as_raw_fd());
            }
        });
        if heard.is_err() {
            HEARD.store(false, Relaxed); // at the next fork
        }
    }
}

/// In a child: the one descriptor that it keeps.
pub fn childs_end() -> Option<RawFd> {
    LINE.get().map(|(_, to)| to.as_raw_fd())
}

fn hear(from: RawFd) {
    let mut name = [0; size_of::<u64>()];
    loop {
        match sys::read(from, &mut name) {
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
    let Some(socket) = state.socket.get().filter(|_| !state.is_waited_for()) else {
        return;
    };
    if socket.is_listening() {
        return socket.refuse();
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
