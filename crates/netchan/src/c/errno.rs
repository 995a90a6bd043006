//! The C library's errno.

use libc::c_int;

/// Sets errno.
pub fn set(code: c_int) {
    // SAFETY: the C library's own thread-local address, always valid.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    unsafe { location.write(code) };
}

/// Reads errno.
pub fn get() -> c_int {
    // SAFETY: the C library's own thread-local address, always valid.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    unsafe { location.read() }
}
