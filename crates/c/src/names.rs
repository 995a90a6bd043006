//! bind, listen, connect, accept, shutdown and names.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    sync::atomic::Ordering::Relaxed,
};

use libc::c_int;
use netchan::{
    c::address::Given,
    errno_of,
    socket::{Kind, Readiness},
};

use crate::{
    edge::{fail, would_block},
    socket::{self, Handle},
    wait,
};

/// Backlogs below zero are "as many as allowed", as in Linux; the stack caps it.
const BACKLOG_MAX: usize = 4096;

/// listen(2).
pub fn listen(handle: &Handle, backlog: c_int) -> io::Result<()> {
    let backlog = usize::try_from(backlog).unwrap_or(BACKLOG_MAX);
    handle.socket.listen(backlog)
}

/// Whether a connection goes on being made behind the call.
fn is_under_way(error: &io::Error) -> bool {
    matches!(errno_of(error), libc::EINPROGRESS | libc::EALREADY)
}

/// connect(2).
pub fn connect(handle: &Handle, given: Given) -> io::Result<()> {
    let Given::Inet(peer) = given else {
        return handle.socket.disconnect();
    };
    let under_way = match handle.socket.connect(peer) {
        Err(error) if is_under_way(&error) && !handle.never_waits(0) => error,
        result => return result,
    };
    let timeout = handle.send_timeout();
    let waited = wait::until(handle, Readiness::WRITABLE, false, timeout, || match handle
        .socket
        .connect(peer)
    {
        Err(error) if is_under_way(&error) => fail(libc::EAGAIN),
        result => result,
    });
    match waited {
        // As Linux: SO_SNDTIMEO has passed, the connection goes on being made.
        Err(error) if would_block(&error) => Err(under_way),
        // Another thread collected the success in between.
        Err(error) if errno_of(&error) == libc::EISCONN => Ok(()),
        result => result,
    }
}

/// accept4(2): a handle, and the peer.
pub fn accept(handle: &Handle, flags: c_int) -> io::Result<(usize, SocketAddr)> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(libc::EINVAL);
    }
    if handle.socket.kind() != Kind::Stream {
        return fail(libc::EOPNOTSUPP);
    }
    let (never_waits, timeout) = (handle.never_waits(0), handle.receive_timeout());
    let accept = || handle.socket.accept();
    let (socket, peer) = wait::until(handle, Readiness::READABLE, never_waits, timeout, accept)?;
    let kept = *handle.kept.lock();
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    Ok((socket::add(&handle.stack, socket, nonblocking, kept)?, peer))
}

/// shutdown(2).
pub fn shutdown(handle: &Handle, how: c_int) -> io::Result<()> {
    handle.socket.shutdown(match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return fail(libc::EINVAL),
    })
}

/// O_NONBLOCK.
pub fn set_nonblocking(handle: &Handle, on: bool) {
    handle.nonblocking.store(on, Relaxed);
}
