//! The zero-copy calls.

use std::{ffi::c_void, io, slice};

use libc::{c_int, size_t, ssize_t};
use netchan::c::buffers;

use crate::{
    edge::{self, fail},
    lending::{self, Vector},
    socket,
};

/// Linux's UIO_MAXIOV: more pieces are not shown at once.
const VECTORS_MAX: usize = buffers::VECTORS_MAX;

/// Where pieces are to be told.
///
/// # Safety
/// `pointer` must be writable for `count` entries, or NULL.
unsafe fn vectors<'a>(pointer: *mut Vector, count: c_int) -> io::Result<&'a mut [Vector]> {
    let Ok(count @ 1..) = usize::try_from(count) else {
        return fail(libc::EINVAL);
    };
    if buffers::is_bad(pointer) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL, and any bytes are an entry; the caller vouches for the rest.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, count.min(VECTORS_MAX)) })
}

/// Shows received text where it lies.
///
/// # Safety
/// `pieces` must be writable for `count` entries, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_peek_segments(
    socket: *mut c_void,
    pieces: *mut Vector,
    count: c_int,
) -> c_int {
    edge::int(|| {
        let handle = socket::named(socket.addr())?;
        // SAFETY: the caller's.
        lending::peek_segments(&handle, unsafe { vectors(pieces, count) }?)
    })
}

/// Takes received text without a copy.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_consume(socket: *mut c_void, n: size_t) -> ssize_t {
    edge::size(|| lending::consume(&*socket::named(socket.addr())?, n))
}

/// Room for what is to be sent.
///
/// # Safety
/// `pieces` must be writable for `count` entries, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_reserve(
    socket: *mut c_void,
    wanted: size_t,
    pieces: *mut Vector,
    count: c_int,
) -> c_int {
    edge::int(|| {
        let handle = socket::named(socket.addr())?;
        // SAFETY: the caller's.
        lending::reserve(&handle, wanted, unsafe { vectors(pieces, count) }?)
    })
}

/// Sends what was written there.
#[unsafe(no_mangle)]
pub extern "C" fn netchan_commit(socket: *mut c_void, n: size_t) -> ssize_t {
    edge::size(|| lending::commit(&*socket::named(socket.addr())?, n))
}
