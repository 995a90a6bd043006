//! Sending and receiving, with the flags and the blocking of socket(7).

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use libc::c_int;
use netchan::socket::{Kind, Readiness, ReceiveFlags, Received, SendInfo};

use crate::{
    edge::{fail, would_block},
    socket::Handle,
    wait::{self, Deadline},
};

/// What a send takes; MSG_NOSIGNAL is what all of them do.
const SEND_FLAGS: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_OOB | libc::MSG_EOR;
/// What a receive takes.
const RECEIVE_FLAGS: c_int = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_TRUNC
    | libc::MSG_OOB;
/// How often MSG_PEEK with MSG_WAITALL looks: a stream with some text is readable all the time.
const PEEK_AGAIN: Duration = Duration::from_millis(1);

/// EOPNOTSUPP for flags that are not known: ignoring them would be no answer.
pub fn check_send(flags: c_int) -> io::Result<()> {
    check(flags, SEND_FLAGS)
}

/// The same of a receive.
pub fn check_receive(flags: c_int) -> io::Result<()> {
    check(flags, RECEIVE_FLAGS)
}

fn check(flags: c_int, known: c_int) -> io::Result<()> {
    match flags & !known {
        0 => Ok(()),
        _ => fail(libc::EOPNOTSUPP),
    }
}

/// sendmsg(2). A blocking stream takes everything before it returns, unless it fails midway: then what it took counts.
pub fn send(
    handle: &Handle,
    buffers: &mut [IoSlice<'_>],
    to: Option<SocketAddr>,
    flags: c_int,
) -> io::Result<usize> {
    let more = flags & libc::MSG_MORE != 0;
    if handle.socket.kind() == Kind::Stream {
        if more {
            hold_back(handle, true);
        }
        let sent = send_stream(handle, buffers, flags);
        // Now: what was held leaves together with this.
        if !more {
            hold_back(handle, false);
        }
        if flags & libc::MSG_EOR != 0 && sent.is_ok() {
            handle.socket.end_record();
        }
        return sent;
    }
    let info = SendInfo {
        more,
        urgent: flags & libc::MSG_OOB != 0,
        ..SendInfo::default()
    };
    let (never_waits, timeout) = (handle.never_waits(flags), handle.send_timeout());
    wait::until(handle, Readiness::WRITABLE, never_waits, timeout, || {
        handle.socket.send_message(buffers, to, &info)
    })
}

/// Whether small segments wait for more.
fn hold_back(handle: &Handle, more: bool) {
    if handle.more.swap(more, Relaxed) != more {
        handle.socket.set_more(more);
    }
}

fn send_stream(
    handle: &Handle,
    mut buffers: &mut [IoSlice<'_>],
    flags: c_int,
) -> io::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let (never_waits, timeout) = (handle.never_waits(flags), handle.send_timeout());
    let urgent = flags & libc::MSG_OOB != 0;
    let mut sent = 0;
    loop {
        let step = wait::until(handle, Readiness::WRITABLE, never_waits, timeout, || {
            if sent > 0 {
                handle.socket.send_rest(buffers, urgent)
            } else if urgent {
                handle.socket.send_urgent(buffers)
            } else {
                handle.socket.send(buffers, None)
            }
        });
        match step {
            Ok(len) => {
                sent += len;
                if sent >= wanted || never_waits || len == 0 {
                    return Ok(sent);
                }
                IoSlice::advance_slices(&mut buffers, len);
            }
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
}

/// recvmsg(2).
pub fn receive(
    handle: &Handle,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> io::Result<Received> {
    let is_stream = handle.socket.kind() == Kind::Stream;
    if flags & libc::MSG_OOB != 0 {
        if handle.socket.kind() == Kind::Ping {
            return fail(libc::EOPNOTSUPP);
        }
        if is_stream {
            let how = ReceiveFlags {
                peek: flags & libc::MSG_PEEK != 0,
                urgent: true,
                ..ReceiveFlags::default()
            };
            return handle.socket.receive(buffers, how); // never waits
        }
    }
    if is_stream && flags & libc::MSG_TRUNC != 0 {
        return fail(libc::EOPNOTSUPP); // netchan_consume is for that
    }
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    match flags & libc::MSG_WAITALL {
        0 => receive_some(handle, buffers, flags, false),
        _ if !is_stream || wanted == 0 => receive_some(handle, buffers, flags, false),
        _ if flags & libc::MSG_PEEK != 0 => peek_all(handle, buffers, wanted, flags),
        _ => receive_all(handle, buffers, wanted, flags),
    }
}

/// As much as there is; a call that has something already (`goes_on`) leaves a pending error to the next one.
fn receive_some(
    handle: &Handle,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
    goes_on: bool,
) -> io::Result<Received> {
    let never_waits = handle.never_waits(flags);
    let mut how = ReceiveFlags {
        peek: flags & libc::MSG_PEEK != 0,
        truncate: flags & libc::MSG_TRUNC != 0,
        enough: !never_waits,
        ..ReceiveFlags::default()
    };
    let timeout = handle.receive_timeout();
    let received = wait::until(
        handle,
        Readiness::READABLE,
        never_waits,
        timeout,
        || match goes_on {
            true => handle.socket.receive_rest(buffers, how),
            false => handle.socket.receive(buffers, how),
        },
    );
    match received {
        // Less than SO_RCVLOWAT in all this time: what there is.
        Err(error) if how.enough && would_block(&error) => {
            how.enough = false;
            handle.socket.receive(buffers, how)
        }
        received => received,
    }
}

/// MSG_WAITALL: until the buffers are full, the stream ends, or a wait fails (then what there is counts).
fn receive_all(
    handle: &Handle,
    buffers: &mut [IoSliceMut<'_>],
    wanted: usize,
    flags: c_int,
) -> io::Result<Received> {
    let mut all = receive_some(handle, buffers, flags, false)?;
    let mut rest = buffers;
    IoSliceMut::advance_slices(&mut rest, all.len);
    // As Linux: whatever it waits for, it stops at the urgent byte.
    while all.len < wanted && all.len > 0 && !handle.socket.is_at_mark() {
        match receive_some(handle, rest, flags, true) {
            Ok(more) if more.len > 0 => {
                all.len += more.len;
                IoSliceMut::advance_slices(&mut rest, more.len);
            }
            _ => break,
        }
    }
    Ok(all)
}

/// The same with MSG_PEEK.
fn peek_all(
    handle: &Handle,
    buffers: &mut [IoSliceMut<'_>],
    wanted: usize,
    flags: c_int,
) -> io::Result<Received> {
    let net = &handle.stack.net;
    let deadline = Deadline::after(net, handle.receive_timeout());
    loop {
        let seen = receive_some(handle, buffers, flags, false)?;
        let end = Readiness::READ_HANGUP | Readiness::HANGUP;
        let has_ended = handle.socket.readiness().intersects(end);
        if seen.len == wanted || seen.len == 0 || has_ended {
            return Ok(seen);
        }
        if handle.never_waits(flags) || deadline.has_passed(net) {
            return Ok(seen);
        }
        if handle.is_closed() {
            return fail(libc::EBADF);
        }
        wait::with_waiter(&handle.stack, |waiter| {
            waiter.wait(&mut [], Some(PEEK_AGAIN))
        })?;
    }
}
