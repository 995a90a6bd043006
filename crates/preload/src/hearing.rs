//! The thread that hears what forked children say: which inherited socket one was to serve. No process serves that one then, and its clients are
//! refused rather than left to wait.

use std::{io, os::fd::RawFd, thread, time::Duration};

use libc::c_int;

use crate::{
    children, ending, exit, line,
    state::{SOCKETS, SocketState},
    sys,
};

/// A parent that forks and then begins to wait for its listener has begun within that time. Clients of one that does not are refused as much later,
/// which is too short to be noticed.
const TO_BEGIN: Duration = Duration::from_millis(50);

/// With the stack: a thread hears what children will say. Not with the first of them, which may be made in a signal handler.
pub fn begin() -> io::Result<()> {
    let from = line::begin()?;
    netchan::spawn("netchan-forked", move || hear(from))?;
    line::set_heard();
    Ok(())
}

fn hear(from: RawFd) {
    let mut name = [0; size_of::<u64>()];
    loop {
        match sys::read(from, &mut name) {
            Ok(0) => return,
            Ok(_) if ending::is_asked() => {
                exit::end();
                ending::done();
                return;
            }
            Ok(len) if len == name.len() => {
                let number = u64::from_ne_bytes(name);
                if children::may_name(number) {
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
