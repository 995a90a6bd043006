//! Sending and receiving on netchan's sockets, with the flags and the blocking of socket(7).

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::atomic::Ordering::Relaxed,
};

use libc::{c_int, sockaddr, socklen_t};
use netchan::socket::{
    Domain, Kind, Readiness, ReceiveFlags, Received, ReceivedError, SendInfo, SendLease,
};

use crate::{
    address::{self, Given},
    ancillary::Along,
    errno::{self, fail, would_block},
    fast_open, stamping,
    state::Live,
    streams::{holding_back, is_nonblocking, send_stream, with_chunk},
    sys, wait,
};

/// recvmsg(2)'s heart: `flags` are MSG_*.
pub fn receive(
    live: Live<'_>,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> io::Result<Received> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // What it says is in the ancillary data.
        if let Some(told) = stamping::take(live, buffers) {
            return Ok(Received {
                len: told.len,
                from: None,
                truncated: told.is_cut,
                info: None,
            });
        }
        let received = receive_error(live, buffers)?;
        return Ok(Received {
            len: received.len,
            from: Some(received.error.destination),
            truncated: received.truncated,
            info: None,
        });
    }
    if flags & libc::MSG_OOB != 0 && live.state.kind == Kind::Ping {
        return fail(libc::EOPNOTSUPP);
    }
    if flags & libc::MSG_OOB != 0 && live.state.kind == Kind::Stream {
        let how = ReceiveFlags {
            peek: flags & libc::MSG_PEEK != 0,
            urgent: true,
            ..ReceiveFlags::default()
        };
        return live.socket.receive(buffers, how); // never waits
    }
    let stream = live.state.kind == Kind::Stream;
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let result = if stream && wanted > 0 && flags & libc::MSG_TRUNC != 0 {
        discard(live, wanted, flags)
    } else if stream && wanted > 0 && flags & libc::MSG_WAITALL != 0 {
        receive_all(live, buffers, wanted, flags)
    } else {
        receive_some(live, buffers, flags)
    };
    if flags & libc::MSG_PEEK == 0 {
        live.state.watch.taken(live.socket);
    }
    result
}

/// MSG_ERRQUEUE: never waits. A stream keeps no errors.
pub fn receive_error(live: Live<'_>, buffers: &mut [IoSliceMut<'_>]) -> io::Result<ReceivedError> {
    let received = live.socket.receive_error(buffers);
    live.state.watch.used(Readiness::ERROR);
    received
}

fn receive_some(
    live: Live<'_>,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> io::Result<Received> {
    receive_part(live, buffers, flags, false)
}

/// The same; a call that has something already (`goes_on`) leaves a pending error to the next one.
fn receive_part(
    live: Live<'_>,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
    goes_on: bool,
) -> io::Result<Received> {
    let timeout = live.state.receive_timeout();
    let nonblocking = is_nonblocking(live, flags);
    let mut how = ReceiveFlags {
        peek: flags & libc::MSG_PEEK != 0,
        truncate: flags & libc::MSG_TRUNC != 0,
        enough: !nonblocking,
        ..ReceiveFlags::default()
    };
    let received = wait::until(live, Readiness::READABLE, nonblocking, timeout, || {
        if goes_on {
            live.socket.receive_rest(buffers, how)
        } else {
            live.socket.receive(buffers, how)
        }
    });
    if let Ok(Received {
        info: Some(info), ..
    }) = &received
    {
        live.state.arrival.note(&live.state.asked, info.age);
    }
    match received {
        // As Linux: a stream's read of nothing waits as any other, and then has all of it.
        Err(error)
            if how.enough
                && would_block(&error)
                && live.state.kind == Kind::Stream
                && buffers.iter().all(|buffer| buffer.is_empty()) =>
        {
            Ok(Received {
                len: 0,
                from: None,
                truncated: false,
                info: None,
            })
        }
        // Less than SO_RCVLOWAT in all this time: what there is.
        Err(error) if how.enough && would_block(&error) => {
            how.enough = false;
            live.socket.receive(buffers, how)
        }
        received => received,
    }
}

/// MSG_WAITALL: until the buffers are full, the stream ends, or a wait fails (then what there is counts).
fn receive_all(
    live: Live<'_>,
    buffers: &mut [IoSliceMut<'_>],
    wanted: usize,
    flags: c_int,
) -> io::Result<Received> {
    if flags & libc::MSG_PEEK != 0 {
        return peek_all(live, buffers, wanted, flags);
    }
    let mut all = receive_some(live, buffers, flags)?;
    let mut rest = buffers;
    IoSliceMut::advance_slices(&mut rest, all.len);
    // As Linux: whatever it waits for, it stops at the urgent byte.
    while all.len < wanted && all.len > 0 && !live.socket.is_at_mark() {
        match receive_part(live, rest, flags, true) {
            Ok(more) if more.len > 0 => {
                all.len += more.len;
                IoSliceMut::advance_slices(&mut rest, more.len);
            }
            _ => break,
        }
    }
    Ok(all)
}

/// MSG_WAITALL with MSG_PEEK: looks again every millisecond, since a stream with some data is readable all the time.
fn peek_all(
    live: Live<'_>,
    buffers: &mut [IoSliceMut<'_>],
    wanted: usize,
    flags: c_int,
) -> io::Result<Received> {
    let deadline = wait::Deadline::after(live.state.receive_timeout());
    loop {
        let seen = receive_some(live, buffers, flags)?;
        let ended = live
            .socket
            .readiness()
            .intersects(Readiness::READ_HANGUP | Readiness::HANGUP);
        let enough = seen.len == wanted || seen.len == 0 || ended;
        if enough || is_nonblocking(live, flags) || deadline.passed() {
            return Ok(seen);
        }
        wait::pause(std::time::Duration::from_millis(1))?;
    }
}

/// MSG_TRUNC on a stream: throws away as many bytes, the buffers stay untouched.
pub fn discard(live: Live<'_>, wanted: usize, flags: c_int) -> io::Result<Received> {
    with_chunk(|chunk| {
        let len = wanted.min(chunk.len());
        let room = chunk.get_mut(..len).unwrap_or(&mut []);
        let plain = flags & !libc::MSG_TRUNC;
        receive_some(live, &mut [IoSliceMut::new(room)], plain)
    })
}

/// sendmsg(2)'s heart: `flags` are MSG_*. A blocking stream takes everything before it returns, unless it fails
/// midway: then what it took counts. SIGPIPE as socket(7) has it.
pub fn send(
    live: Live<'_>,
    buffers: &mut [IoSlice<'_>],
    to: Option<SocketAddr>,
    flags: c_int,
) -> io::Result<usize> {
    send_with(live, buffers, to, Along::default(), flags)
}

/// The same with what goes along.
pub fn send_with(
    live: Live<'_>,
    buffers: &mut [IoSlice<'_>],
    to: Option<SocketAddr>,
    along: Along,
    flags: c_int,
) -> io::Result<usize> {
    let stamps = stamping::request(live, &along);
    let fast = flags & libc::MSG_FASTOPEN != 0;
    if flags & libc::MSG_OOB != 0 && live.state.kind == Kind::Ping {
        return fail(libc::EOPNOTSUPP);
    }
    let result = match live.state.kind {
        Kind::Stream if fast => fast_open::send(live, buffers, to, flags),
        Kind::Stream => {
            let more = flags & libc::MSG_MORE != 0;
            let is_first = live.state.fast_connect.swap(false, Relaxed);
            holding_back(live, more, || match is_first {
                true => fast_open::send_first(live, buffers, flags),
                false => send_stream(live, buffers, flags),
            })
        }
        Kind::Datagram | Kind::Ping => {
            let info = SendInfo {
                more: flags & libc::MSG_MORE != 0,
                urgent: flags & libc::MSG_OOB != 0,
                stamps,
                ..along.info
            };
            send_datagram(live, buffers, (to, &info), flags)
        }
    };
    match (live.state.kind, &result) {
        (Kind::Stream, Ok(1..)) => stamping::sent(live, flags, stamps),
        (Kind::Datagram | Kind::Ping, Ok(_)) => stamping::sent_datagram(live, flags, stamps),
        _ => {}
    }
    if let Err(error) = &result {
        let quiet = flags & libc::MSG_NOSIGNAL != 0 || live.state.kind != Kind::Stream;
        if !quiet {
            signal_if_broken(live, error);
        }
    }
    result
}

/// SIGPIPE for a stream that takes no more.
fn signal_if_broken(live: Live<'_>, error: &io::Error) {
    // No signal for a number that is no socket any more: the kernel answers for it.
    if errno::code(error) == libc::EPIPE && sys::is_socket(live.fd) {
        sys::raise_sigpipe();
    }
}

fn send_datagram(
    live: Live<'_>,
    buffers: &[IoSlice<'_>],
    (to, info): (Option<SocketAddr>, &SendInfo),
    flags: c_int,
) -> io::Result<usize> {
    let timeout = live.state.send_timeout();
    let was_idle = live.socket.is_idle();
    let result = wait::until(
        live,
        Readiness::WRITABLE,
        is_nonblocking(live, flags),
        timeout,
        || live.socket.send_message(buffers, to, info),
    );
    if was_idle {
        live.state.changed(); // sending has bound it
    }
    if result.as_ref().is_err_and(would_block) {
        live.state.watch.used(Readiness::WRITABLE);
    }
    result
}

/// Where a datagram goes, or a stream with MSG_FASTOPEN. Else a stream ignores the address, as Linux does once it is connected.
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn destination(
    live: Live<'_>,
    pointer: *const sockaddr,
    len: socklen_t,
    flags: c_int,
) -> io::Result<Option<SocketAddr>> {
    let stream = live.state.kind == Kind::Stream;
    if pointer.is_null() {
        return Ok(None);
    }
    address::check_len(len)?;
    if stream && flags & libc::MSG_FASTOPEN == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let given = unsafe { address::read(pointer, len, live.state.domain) };
    match (given, live.state.domain) {
        (Ok(Given::Inet(address)), _) => Ok(Some(address)),
        (Ok(Given::Unspecified), _) if stream => fail(libc::EOPNOTSUPP),
        (Ok(Given::Unspecified), _) if live.state.kind == Kind::Ping => {
            live.socket.bind_to_send()?;
            fail(libc::EAFNOSUPPORT)
        }
        // As Linux: to IPv6 it is no address, to IPv4 one of its own.
        (Ok(Given::Unspecified), Domain::V6) => Ok(None),
        // SAFETY: the caller's.
        (Ok(Given::Unspecified), Domain::V4) => unsafe { address::read_v4(pointer, len) }.map(Some),
        (Err(wrong), _) if stream || errno::code(&wrong) == libc::EFAULT => Err(wrong),
        (Err(wrong), domain) => {
            // As Linux, which looks at the address later, and IPv6 at its length first.
            live.socket.bind_to_send()?;
            let urgent = domain == Domain::V4 && flags & libc::MSG_OOB != 0;
            fail(match errno::code(&wrong) {
                _ if urgent => libc::EOPNOTSUPP,
                code => code,
            })
        }
    }
}

/// sendfile(2) from a file to netchan's socket. EINVAL unless `input` can be read at an offset (files, block devices).
///
/// # Safety
/// `offset` must be readable and writable, or NULL.
pub unsafe fn send_file(
    live: Live<'_>,
    input: c_int,
    offset: *mut i64,
    count: usize,
) -> io::Result<usize> {
    let start = if offset.is_null() {
        match sys::lseek(input, 0, libc::SEEK_CUR) {
            Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => return fail(libc::EINVAL),
            position => position?,
        }
    } else {
        // SAFETY: not NULL; the caller vouches for the rest.
        unsafe { offset.read_unaligned() }
    };
    if start < 0 {
        return fail(libc::EINVAL);
    }
    let result = send_file_from(live, input, start, count);
    let sent = i64::try_from(*result.as_ref().unwrap_or(&0)).unwrap_or(0);
    if offset.is_null() {
        sys::lseek(input, start + sent, libc::SEEK_SET)?;
    } else {
        // SAFETY: not NULL; the caller vouches for the rest.
        unsafe { offset.write_unaligned(start + sent) };
    }
    result
}

fn send_file_from(live: Live<'_>, input: c_int, start: i64, count: usize) -> io::Result<usize> {
    // A first send may be one that connects: it takes its text from elsewhere.
    let is_plain = live.state.kind == Kind::Stream && !live.state.fast_connect.load(Relaxed);
    let mut sent = 0;
    while sent < count {
        let at = start + i64::try_from(sent).unwrap_or(i64::MAX - start);
        let piece = match is_plain {
            true => send_piece(live, input, at, count - sent),
            false => send_copied(live, input, at, count - sent),
        };
        match piece {
            Ok((len, goes_on)) => {
                sent += len;
                if !goes_on {
                    break;
                }
            }
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Reads a piece of the file right into memory of the send queue, and sends it. How many bytes, and whether there may be more: not at the file's end.
fn send_piece(live: Live<'_>, input: c_int, at: i64, most: usize) -> io::Result<(usize, bool)> {
    let mut lease = match live.socket.reserve(most, None) {
        Ok(lease) => lease,
        // As Linux, the file is looked at first: its end, and why it cannot be read.
        Err(_) if sys::pread(input, &mut [0], at)? == 0 => return Ok((0, false)),
        Err(error) => wait_for_lease(live, most, error)?,
    };
    let mut filled = 0;
    for room in lease.slices_mut() {
        let offset = at + i64::try_from(filled).unwrap_or(i64::MAX - at);
        match sys::pread(input, room, offset) {
            Ok(len) => {
                filled += len;
                if len < room.len() {
                    break;
                }
            }
            Err(_) if filled > 0 => break, // the next call says why
            Err(error) => return Err(error),
        }
    }
    if filled == 0 {
        return Ok((0, false));
    }
    let stamps = stamping::request(live, &Along::default());
    match holding_back(live, false, || live.socket.commit(lease, filled)) {
        Ok(len) => {
            stamping::sent(live, 0, stamps);
            Ok((len, true))
        }
        // Another thread was first: as if there had been no room.
        Err(error) if would_block(&error) && !is_nonblocking(live, 0) => Ok((0, true)),
        Err(error) => {
            live.state.watch.used(Readiness::WRITABLE);
            signal_if_broken(live, &error);
            Err(error)
        }
    }
}

/// There was no room, or worse: `error`.
#[cold]
fn wait_for_lease(live: Live<'_>, most: usize, error: io::Error) -> io::Result<SendLease> {
    let lease = if would_block(&error) {
        let (nonblocking, timeout) = (is_nonblocking(live, 0), live.state.send_timeout());
        wait::until(live, Readiness::WRITABLE, nonblocking, timeout, || {
            live.socket.reserve(most, None)
        })
    } else {
        Err(error)
    };
    if let Err(error) = &lease {
        live.state.watch.used(Readiness::WRITABLE);
        signal_if_broken(live, error);
    }
    lease
}

/// The same for any other socket, by this thread's own buffer.
fn send_copied(live: Live<'_>, input: c_int, at: i64, most: usize) -> io::Result<(usize, bool)> {
    with_chunk(|chunk| {
        let len = chunk.len().min(most);
        let room = chunk.get_mut(..len).unwrap_or(&mut []);
        let filled = sys::pread(input, room, at)?;
        if filled == 0 {
            return Ok((0, false));
        }
        let piece = room.get(..filled).unwrap_or(&[]);
        let sent = send(live, &mut [IoSlice::new(piece)], None, 0)?;
        Ok((sent, sent == filled)) // less: a non-blocking socket is full
    })
}
