//! splice(2) between a pipe and netchan's socket: what a pipe holds leaves it only once the socket has room for it, what a stream holds only once
//! the pipe took it. The bytes are copied.

use std::io::{self, IoSlice, IoSliceMut};

use libc::{c_int, c_uint, pollfd};
use netchan::socket::{Kind, Readiness, ReceiveFlags};

use crate::{
    errno::{fail, would_block},
    state::Live,
    streams, sys, transfer, wait,
};

/// PIPE_BUF: what a pipe takes without waiting once poll(2) says that it takes anything.
const WITHOUT_WAITING: usize = 4096;

/// UDP payload that the longest packet of IPv4 and of IPv6 takes.
const DATAGRAM_MAX: [usize; 2] = [65_507, 65_527];

fn check(pipe: c_int) -> io::Result<()> {
    if !sys::is_pipe(pipe) {
        return fail(libc::EINVAL);
    }
    Ok(())
}

/// Neither end can be read or written at an offset, and Linux looks at the pipe's first.
pub fn refuse_offset(of_pipe: bool) -> io::Result<usize> {
    fail(if of_pipe { libc::ESPIPE } else { libc::EINVAL })
}

/// Whether a call about `pipe` may wait for it.
fn may_wait(pipe: c_int, flags: c_uint) -> bool {
    let is_nonblocking =
        sys::fcntl(pipe, libc::F_GETFL, 0).is_ok_and(|f| f & libc::O_NONBLOCK != 0);
    flags & libc::SPLICE_F_NONBLOCK == 0 && !is_nonblocking
}

/// Waits until `pipe` can be read or written; EAGAIN where it may not wait.
fn await_pipe(pipe: c_int, events: libc::c_short, may_wait: bool) -> io::Result<()> {
    let mut fds = [pollfd {
        fd: pipe,
        events,
        revents: 0,
    }];
    loop {
        if sys::poll_now(&mut fds)? > 0 {
            return Ok(());
        }
        if !may_wait {
            return fail(libc::EAGAIN);
        }
        wait::with_waiter(|waiter| wait::once(waiter, &mut fds, None))?;
    }
}

/// From a socket to a pipe: 0 at the end of the stream, and where the next byte is urgent.
pub fn out_of(live: Live<'_>, pipe: c_int, len: usize, flags: c_uint) -> io::Result<usize> {
    check(pipe)?;
    if len == 0 {
        return Ok(0);
    }
    let may_wait = may_wait(pipe, flags);
    // As Linux: for room in the pipe first.
    await_pipe(pipe, libc::POLLOUT, may_wait)?;
    if live.state.kind == Kind::Datagram {
        return datagram_out_of(live, pipe, len);
    }
    let nonblocking = streams::is_nonblocking(live, 0); // SPLICE_F_NONBLOCK is about the pipe
    let timeout = live.state.receive_timeout();
    let peek = ReceiveFlags {
        peek: true,
        ..ReceiveFlags::default()
    };
    streams::with_chunk(|chunk| {
        let room = chunk.len().min(len);
        let room = chunk.get_mut(..room).unwrap_or(&mut []);
        let seen = wait::until(
            live,
            Readiness::READABLE,
            nonblocking,
            timeout,
            || match live.socket.available() {
                0 if live.socket.is_at_mark() => Ok(0),
                there => {
                    let most = room.len().min(there.max(1));
                    let room = room.get_mut(..most).unwrap_or(&mut []);
                    let seen = live.socket.receive(&mut [IoSliceMut::new(room)], peek)?;
                    Ok(seen.len)
                }
            },
        )?;
        let mut moved = 0;
        while moved < seen {
            let most = if sys::in_pipe(pipe) == Some(0) {
                sys::pipe_size(pipe)
            } else {
                WITHOUT_WAITING
            };
            let rest = room.get(moved..seen).unwrap_or(&[]);
            let piece = rest.get(..most).unwrap_or(rest);
            match sys::write(pipe, piece) {
                Ok(n) => moved += take(live, n)?,
                Err(error) if moved == 0 => return Err(error),
                Err(_) => break,
            }
            if await_pipe(pipe, libc::POLLOUT, false).is_err() {
                break;
            }
        }
        live.state.watch.taken(live.socket);
        Ok(moved)
    })
}

/// Takes what the pipe has from the socket.
fn take(live: Live<'_>, count: usize) -> io::Result<usize> {
    let mut left = count;
    let mut scrap = [0; WITHOUT_WAITING];
    while left > 0 {
        let most = scrap.len().min(left);
        let room = scrap.get_mut(..most).unwrap_or(&mut []);
        let got = live
            .socket
            .receive(&mut [IoSliceMut::new(room)], ReceiveFlags::default())?;
        if got.len == 0 {
            break;
        }
        left -= got.len;
    }
    Ok(count)
}

/// From a pipe to a socket: 0 where nothing is in the pipe and it has no writer.
pub fn into(live: Live<'_>, pipe: c_int, len: usize, flags: c_uint) -> io::Result<usize> {
    check(pipe)?;
    if len == 0 {
        return Ok(0);
    }
    await_pipe(pipe, libc::POLLIN, may_wait(pipe, flags))?;
    if live.state.kind == Kind::Datagram {
        return datagram_into(live, pipe, len, flags);
    }
    let nonblocking = streams::is_nonblocking(live, 0); // SPLICE_F_NONBLOCK is about the pipe
    let timeout = live.state.send_timeout();
    let room = wait::until(live, Readiness::WRITABLE, nonblocking, timeout, || {
        match live.socket.send_room() {
            Some(0) => fail(libc::EAGAIN),
            Some(room) => Ok(room),
            // Sending says why.
            None => Ok(1),
        }
    });
    if room.as_ref().is_err_and(would_block) {
        live.state.watch.used(Readiness::WRITABLE);
    }
    let room = room?;
    let msg = if flags & libc::SPLICE_F_MORE == 0 {
        0
    } else {
        libc::MSG_MORE
    };
    if live.socket.send_room().is_none() {
        return transfer::send(live, &mut [IoSlice::new(&[0])], None, msg);
    }
    streams::with_chunk(|chunk| {
        let most = chunk.len().min(len).min(room);
        let piece = chunk.get_mut(..most).unwrap_or(&mut []);
        let filled = sys::read(pipe, piece)?;
        let mut rest = piece.get(..filled).unwrap_or(&[]);
        // There was room, and only another thread can have taken it.
        streams::holding_back(live, msg != 0, || {
            while !rest.is_empty() {
                let sent = wait::until(live, Readiness::WRITABLE, false, None, || {
                    live.socket.send(&[IoSlice::new(rest)], None)
                })?;
                rest = rest.get(sent..).unwrap_or(&[]);
            }
            Ok(filled)
        })
    })
}

/// One datagram; as in Linux what the pipe has no room for is lost.
fn datagram_out_of(live: Live<'_>, pipe: c_int, len: usize) -> io::Result<usize> {
    let most = match sys::in_pipe(pipe) {
        Some(0) => sys::pipe_size(pipe),
        _ => WITHOUT_WAITING,
    };
    streams::with_chunk(|chunk| {
        let most = chunk.len().min(len).min(most);
        let room = chunk.get_mut(..most).unwrap_or(&mut []);
        let received = transfer::receive(live, &mut [IoSliceMut::new(room)], 0)?;
        let mut rest = room.get(..received.len).unwrap_or(&[]);
        while !rest.is_empty() {
            let written = sys::write(pipe, rest)?;
            rest = rest.get(written..).unwrap_or(&[]);
        }
        Ok(received.len)
    })
}

/// All that is in the pipe, or `len` bytes of it, as one datagram. What is known to fail leaves it there.
fn datagram_into(live: Live<'_>, pipe: c_int, len: usize, flags: c_uint) -> io::Result<usize> {
    if let Some(pending) = live.socket.take_error() {
        return Err(pending);
    }
    let Ok(peer) = live.socket.peer_address() else {
        return fail(libc::EDESTADDRREQ);
    };
    let longest = DATAGRAM_MAX[usize::from(peer.ip().to_canonical().is_ipv6())];
    let there = sys::in_pipe(pipe).unwrap_or(0).min(len);
    if there > longest {
        return fail(libc::EMSGSIZE);
    }
    let nonblocking = streams::is_nonblocking(live, 0);
    let timeout = live.state.send_timeout();
    wait::until(live, Readiness::WRITABLE, nonblocking, timeout, || {
        let is_writable = live.socket.readiness().contains(Readiness::WRITABLE);
        if is_writable {
            Ok(())
        } else {
            fail(libc::EAGAIN)
        }
    })?;
    let more = flags & libc::SPLICE_F_MORE != 0;
    streams::with_chunk(|chunk| {
        let piece = chunk.get_mut(..there).unwrap_or(&mut []);
        let filled = sys::read(pipe, piece)?;
        if filled == 0 {
            return Ok(0); // it has no writer any more
        }
        let piece = piece.get(..filled).unwrap_or(&[]);
        let msg = if more { libc::MSG_MORE } else { 0 };
        transfer::send(live, &mut [IoSlice::new(piece)], None, msg)
    })
}
