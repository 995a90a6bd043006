//! What a stream's writes have in common, whichever call asks for them.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    sync::atomic::Ordering::Relaxed,
};

use libc::c_int;
use netchan::socket::Readiness;

use crate::{state::Live, wait};

/// Bytes that MSG_TRUNC on a stream moves at a time, and sendfile to a datagram socket.
pub const CHUNK: usize = 64 * 1024;

thread_local! {
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// Lends this thread's 64 KiB buffer.
pub fn with_chunk<T>(call: impl FnOnce(&mut [u8]) -> T) -> T {
    let kept = SPARE.try_with(Cell::take).unwrap_or(None);
    let mut chunk = kept.unwrap_or_else(|| vec![0; CHUNK].into_boxed_slice());
    let result = call(&mut chunk);
    let _ = SPARE.try_with(|place| place.set(Some(chunk)));
    result
}

/// Whether a call does not wait.
pub fn is_nonblocking(live: Live<'_>, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || live.state.nonblocking.load(Relaxed)
}

/// A send of a stream: with MSG_MORE small segments are held back, until one without it has added its text. Both leave together.
pub fn holding_back<T>(live: Live<'_>, more: bool, send: impl FnOnce() -> T) -> T {
    if more {
        hold_back(live, true);
    }
    let sent = send();
    if !more {
        hold_back(live, false);
    }
    sent
}

fn hold_back(live: Live<'_>, more: bool) {
    if live.state.more.load(Relaxed) != more {
        live.state.more.store(more, Relaxed);
        live.socket.set_more(more);
    }
}

/// As much as a stream takes; a blocking one takes everything, unless it fails midway.
pub fn send_stream(
    live: Live<'_>,
    mut buffers: &mut [IoSlice<'_>],
    flags: c_int,
) -> io::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let timeout = live.state.send_timeout();
    let nonblocking = is_nonblocking(live, flags);
    let urgent = flags & libc::MSG_OOB != 0;
    let mut sent = 0;
    loop {
        let step = wait::until(live, Readiness::WRITABLE, nonblocking, timeout, || {
            if sent > 0 {
                live.socket.send_rest(buffers, urgent)
            } else if urgent {
                live.socket.send_urgent(buffers)
            } else {
                live.socket.send(buffers, None)
            }
        });
        match step {
            Ok(len) => {
                sent += len;
                if sent >= wanted {
                    return Ok(sent);
                }
                if nonblocking || len == 0 {
                    live.state.watch.used(Readiness::WRITABLE);
                    return Ok(sent);
                }
                IoSlice::advance_slices(&mut buffers, len);
            }
            Err(error) => {
                live.state.watch.used(Readiness::WRITABLE);
                return if sent > 0 { Ok(sent) } else { Err(error) };
            }
        }
    }
}
