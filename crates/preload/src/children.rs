//! Children of the process that has the stack: whether they go on where it ends, and what they may name.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use netchan::socket::Kind;

use crate::{
    line,
    state::{SOCKETS, SocketState},
    table::Handle,
};

/// There was a socket by which others are served, at a fork or an exec.
static SERVING: AtomicBool = AtomicBool::new(false);
/// Names below it were given before the last fork.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// At the end of this process: whether children go on that were forked from a server and have not become other programs. What they say is not
/// heard any more.
pub fn has_children() -> bool {
    SERVING.load(Relaxed) && line::is_held_by_others()
}

/// Before a fork of the process that has the stack.
pub fn before() {
    // Release pairs with Acquire in may_name; read back from a message, later still.
    INHERITED.store(line::names(), Release);
    has_served();
}

/// Whether there is a socket by which others are served, or was one at a fork.
pub fn has_served() -> bool {
    if SERVING.load(Relaxed) {
        return true;
    }
    let serves = |state: &Handle<SocketState>| {
        let socket = state.socket.get().filter(|_| !state.is_inherited());
        socket.is_some_and(|socket| state.kind == Kind::Datagram || socket.is_listening())
    };
    let serves = SOCKETS.any(serves);
    SERVING.store(serves, Relaxed); // read by whichever thread ends the process
    serves
}

/// In a child that begins anew: it has none yet.
pub fn begin_anew() {
    SERVING.store(false, Relaxed); // no other thread looks
    INHERITED.store(0, Relaxed);
}

/// Whether a child may have a socket of that name.
pub fn may_name(number: u64) -> bool {
    number < INHERITED.load(Acquire) // pairs with Release in before
}
