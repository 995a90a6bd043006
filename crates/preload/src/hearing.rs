//! The thread that hears what forked children say: which inherited socket one uses. A stream that can be shared is carried from then on; of another,
//! which no process serves then, the clients are refused rather than left to wait.

use std::{io, os::fd::RawFd, thread, time::Duration};

use libc::c_int;

use crate::{
    children, ending, exit, lending,
    line::{self, Said},
    relay, shared,
    state::{SOCKETS, SocketState},
    sys,
    table::Handle,
};

/// A parent that forks and then begins to wait for its listener has begun within that time. Clients of one that does not are refused as much later,
/// which is too short to be noticed.
const TO_BEGIN: Duration = Duration::from_millis(50);

/// With the stack: a thread hears what children will say. Not with the first of them, which may be made in a signal handler.
pub fn begin() -> io::Result<()> {
    let from = line::begin()?;
    hear_from(from)?;
    line::set_heard(hear_from);
    Ok(())
}

fn hear_from(from: RawFd) -> io::Result<()> {
    netchan::spawn("netchan-forked", move || hear(from)).map(drop)
}

fn hear(from: RawFd) {
    let mut room = [0; line::MESSAGE_MAX];
    loop {
        if !wait(from) {
            continue;
        }
        match sys::read(from, &mut room) {
            Ok(0) => return,
            Ok(_) if ending::is_asked() => {
                exit::end();
                ending::done();
                return;
            }
            Ok(len) => {
                let _acting = line::acting();
                act_upon(Said::decode(&room[..len]));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Waits until something is said, or a process asks for a lease, which is let in. Whether something was said, or is to be looked for.
fn wait(from: RawFd) -> bool {
    let on = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [on(from), on(lending::door())];
    if sys::poll(&mut both, None).is_err() {
        return true; // a limit on descriptors that is lower than two
    }
    let [said, asks] = both;
    if asks.revents != 0 {
        let _acting = line::acting();
        lending::open();
    }
    said.revents != 0
}

fn act_upon(said: Option<Said>) {
    match said {
        Some(Said::Uses(number)) => {
            // One that is carried is not found any more.
            if let Some(state) = named(number)
                && !shared::carry(&state)
            {
                forsake(&state);
            }
        }
        Some(Said::WaitsAtInstance(number)) => {
            if let Some(state) = named(number) {
                forsake(&state);
            }
        }
        Some(Said::Sets(wish)) => relay::set(wish),
        None => {}
    }
}

/// What a child may call so.
fn named(number: u64) -> Option<Handle<SocketState>> {
    if !children::may_name(number) {
        return None;
    }
    let found = SOCKETS.occupied(0, c_int::MAX).into_iter();
    let mut found = found.filter_map(|fd| SOCKETS.get(fd));
    found.find(|state| state.name.number == number && !state.is_inherited())
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
