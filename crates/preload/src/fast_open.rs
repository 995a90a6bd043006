//! TCP Fast Open (RFC 7413) as tcp(7) has it: MSG_FASTOPEN, and its options.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
};

use libc::c_int;
use netchan::socket::Readiness;

use crate::{errno, errno::fail, state::Live, streams, wait};

/// sendto(2) with MSG_FASTOPEN on a stream. A blocking call connects, and takes everything before it returns.
pub fn send(
    live: Live<'_>,
    mut buffers: &mut [IoSlice<'_>],
    to: Option<SocketAddr>,
    flags: c_int,
) -> io::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let nonblocking = streams::is_nonblocking(live, flags);
    let first = live.socket.send_fast(buffers, to);
    live.state.changed();
    let sent = match first {
        Ok(sent) if nonblocking => {
            live.state.watch.used(Readiness::WRITABLE);
            return Ok(sent);
        }
        Err(error) if nonblocking || errno::code(&error) != libc::EINPROGRESS => return Err(error),
        first => first.unwrap_or(0),
    };
    if sent < wanted {
        live.socket.text_follows();
    }
    connected(live)?;
    if sent == wanted {
        return Ok(sent);
    }
    IoSlice::advance_slices(&mut buffers, sent);
    match streams::send_stream(live, buffers, flags & !libc::MSG_FASTOPEN) {
        Err(_) if sent > 0 => Ok(sent),
        rest => rest.map(|rest| sent + rest),
    }
}

/// The first write of a stream with TCP_FASTOPEN_CONNECT, if its SYN waits for it: as in Linux a blocking call comes back once it is
/// connected.
pub fn send_first(live: Live<'_>, buffers: &mut [IoSlice<'_>], flags: c_int) -> io::Result<usize> {
    if live.socket.waits_for_first_write() {
        return send(live, buffers, None, flags);
    }
    streams::send_stream(live, buffers, flags)
}

/// Waits for the end of the handshake.
fn connected(live: Live<'_>) -> io::Result<()> {
    let timeout = live.state.send_timeout();
    let waited = wait::until(live, Readiness::WRITABLE, false, timeout, || {
        match live.socket.finish_connect() {
            Err(error) if errno::is_under_way(&error) => fail(libc::EAGAIN),
            result => result,
        }
    });
    match waited {
        Err(error) if errno::would_block(&error) => fail(libc::EINPROGRESS),
        result => result,
    }
}
