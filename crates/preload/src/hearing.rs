//! The thread that hears what forked children say: which inherited socket one uses. A stream that can be shared is carried from then on; of another,
//! which no process serves then, the clients are refused rather than left to wait.

use std::{io, os::fd::BorrowedFd, thread, time::Duration};

use libc::c_int;
use netchan::own::Own;

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

fn hear_from(from: BorrowedFd<'static>) -> io::Result<()> {
    netchan::spawn("netchan-forked", move || hear(from)).map(drop)
}

fn hear(from: BorrowedFd<'_>) {
    let mut room = [0; line::MESSAGE_MAX];
    loop {
        match sys::read_with(from, &mut room) {
            Ok((0, _)) => return,
            Ok(_) if ending::is_asked() => {
                exit::end();
                ending::done();
                return;
            }
            Ok((len, came_with)) => {
                let _acting = line::acting();
                act_upon(Said::decode(&room[..len]), came_with);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn act_upon(said: Option<Said>, came_with: Option<Own>) {
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
        Some(Said::AsksForLeases) => {
            if let Some(client) = came_with {
                lending::admit(client);
            }
        }
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
