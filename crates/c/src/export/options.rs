//! getsockopt and setsockopt.

use std::ffi::c_void;

use libc::{c_int, socklen_t};
use netchan::c::buffers;

use crate::{
    edge::{self, fail},
    options, socket,
};

/// setsockopt(2).
///
/// # Safety
/// `value` must be readable for `len` bytes, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_setsockopt(
    socket: *mut c_void,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    edge::unit(|| {
        let handle = socket::named(socket.addr())?;
        if c_int::try_from(len).is_err() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's.
        let value = unsafe { buffers::readable(value, len as usize) }?;
        options::set(&handle, level, name, value)
    })
}

/// getsockopt(2).
///
/// # Safety
/// `value` must be readable and writable for `*len` bytes, `len` readable and writable; either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netchan_getsockopt(
    socket: *mut c_void,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    edge::unit(|| {
        let handle = socket::named(socket.addr())?;
        if buffers::is_bad(len) {
            return fail(libc::EFAULT);
        }
        // SAFETY: not NULL; the caller vouches for the rest.
        let room = unsafe { len.read_unaligned() };
        if c_int::try_from(room).is_err() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's.
        let value = unsafe { buffers::writable(value, room as usize) }?;
        let given = options::get(&handle, level, name, value)?;
        let given = socklen_t::try_from(given).unwrap_or(room);
        // SAFETY: as above.
        unsafe { len.write_unaligned(given) };
        Ok(())
    })
}
