//! exit(3) of the process that has the stack: its sockets are closed in good order.

use std::{
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use libc::c_int;

use crate::{
    children, edge, ending,
    keeper::{self, Kept},
    numbers, process, relay,
    state::{SOCKETS, SocketState},
    sys,
    table::Handle,
};

unsafe extern "C" {
    fn at_quick_exit(handler: extern "C" fn()) -> c_int;
}

/// With the stack: the process does not end without this.
pub fn begin() {
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    if IS_KNOWN.swap(true, Relaxed) {
        return; // a child has its parent's handlers
    }
    // SAFETY: at_exit lives as long as the process.
    unsafe { libc::atexit(at_exit) };
    // SAFETY: as above.
    unsafe { at_quick_exit(at_exit) };
}

extern "C" fn at_exit() {
    if process::has_sockets() {
        end();
        ending::done();
    }
}

/// Children that were forked while something was served go on without it: says so.
fn say_what_ends(which: &str) {
    if children::has_children() {
        let own = process::own_id();
        sys::complain(&format!(
            "netchan: process {own} ends, and with it the sockets that it made before fork(){which}: its children go on without them: a server has to stay in the foreground, or run with --supervise\n"
        ));
    }
}

/// The program ends: closes its sockets and lets the peers have what was sent. What its children hold goes on.
pub fn end() {
    edge::unit(|| {
        let are_shared = close_all();
        let kept = keeper::takes_over();
        match kept {
            Kept::Lost => say_what_ends(""),
            Kept::All | Kept::None if are_shared => {}
            Kept::All | Kept::None => say_what_ends(" and that cannot be shared"),
        }
        if kept == Kept::All {
            return Ok(());
        }
        relay::end();
        if let Some(net) = process::running() {
            net.drain(ending::DRAIN); // what a peer does not take within that time it would not have taken
        }
        Ok(())
    });
}

/// Closes this process's sockets. Whether all of them that a child can have could be shared.
fn close_all() -> bool {
    let unshared = |state: &Handle<SocketState>| {
        let is_ours = state.socket.get().is_some()
            && children::may_name(state.name.number)
            && !state.is_inherited();
        is_ours && state.share.get().is_none()
    };
    let are_shared = !SOCKETS.any(unshared);
    let blank = sys::socket();
    let blank = blank.as_ref().map_or(-1, |blank| blank.as_raw_fd());
    for fd in SOCKETS.occupied(0, c_int::MAX) {
        numbers::close_at_exit(fd, blank);
    }
    are_shared
}
