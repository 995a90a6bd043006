//! What getsockopt answers.

use std::io;

use libc::{c_int, c_void, socklen_t};
use netchan::socket::{
    Domain,
    options::{Get, find, list_keys, refusal},
};

use super::has_level;
use crate::{
    buffers, errno,
    errno::{fail, unsupported},
    state::Live,
};

/// getsockopt(2) on netchan's socket.
///
/// # Safety
/// `value` must be writable for `*len` bytes, `len` readable and writable; either may be NULL.
pub unsafe fn get(
    live: Live<'_>,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> io::Result<usize> {
    if !has_level(live.state, level) {
        return fail(match live.state.domain {
            Domain::V4 => libc::EOPNOTSUPP,
            Domain::V6 => libc::ENOPROTOOPT,
        });
    }
    if buffers::is_bad(len) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest. Linux asks for no alignment.
    let room = unsafe { len.read_unaligned() };
    if c_int::try_from(room).is_err() {
        return fail(libc::EINVAL);
    }
    let Some(row) = find(level, name) else {
        return fail(refusal(level, name));
    };
    // SAFETY: the caller's.
    let given = match unsafe { answer(live, level, &row.get, value, room) }? {
        Some(given) => given,
        None => return Ok(0),
    };
    // SAFETY: not NULL; the caller vouches for the rest.
    unsafe { len.write_unaligned(given) };
    Ok(0)
}

/// Finds out and writes; how many bytes that are, where their number is told.
///
/// # Safety
/// `value` must be readable and writable for `room` bytes, or NULL.
unsafe fn answer(
    live: Live<'_>,
    level: c_int,
    get: &Get,
    value: *mut c_void,
    room: socklen_t,
) -> io::Result<Option<socklen_t>> {
    let answer = match get {
        Get::No => return fail(libc::ENOPROTOOPT),
        Get::Caller(like) => {
            let kept = live.state.kept(*like, live.socket.incoming_cpu());
            kept.value().bytes(level, room as usize)
        }
        Get::By(answer) => {
            let answer = answer(live.socket).map_err(unsupported)?;
            answer.bytes(level, room as usize)
        }
        Get::Within(answer) => answer(live.socket, room as usize)?,
        Get::Filter(layout) => {
            // SAFETY: the caller's.
            let asked = unsafe { buffers::readable(value, room as usize) }?;
            layout.get(live.socket, asked)?
        }
        // SAFETY: the caller's.
        Get::Keys => return unsafe { get_keys(live, value, room) }.map(|()| None),
    };
    // SAFETY: the caller's.
    unsafe { give(&answer, value, room) }.map(Some)
}

/// Writes an answer to where a program wants it, cut to the room there is; how many bytes that are.
///
/// # Safety
/// `value` must be writable for `room` bytes, or NULL.
unsafe fn give(answer: &[u8], value: *mut c_void, room: socklen_t) -> io::Result<socklen_t> {
    // SAFETY: the caller's.
    let room = unsafe { buffers::writable(value, room as usize) }?;
    let count = room.len().min(answer.len());
    room[..count].copy_from_slice(&answer[..count]);
    socklen_t::try_from(count).map_err(|_| errno::error(libc::EINVAL))
}

/// TCP_AO_GET_KEYS, whose buffer has room for as many structures as the first of them says, each `each` bytes long.
///
/// # Safety
/// `value` must be readable and writable for all of them, or NULL.
unsafe fn get_keys(live: Live<'_>, value: *mut c_void, each: socklen_t) -> io::Result<()> {
    let each = each as usize;
    // SAFETY: the caller's.
    let asked = unsafe { buffers::readable(value, each) }?;
    let (keys, room) = list_keys(live.socket, asked)?;
    let count = keys.len().min(room);
    // SAFETY: the caller's: there are as many as it said.
    let all = unsafe { buffers::writable(value, each * count) }?;
    for (place, key) in all.chunks_exact_mut(each).zip(keys) {
        let (front, rest) = place.split_at_mut(key.len());
        front.copy_from_slice(&key);
        rest.fill(0);
    }
    Ok(())
}
