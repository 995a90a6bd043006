//! fdopen and fileno: fdopen makes a stream whose reads and writes are ours.
//!
//! The C library's own streams read and write with calls inside the library, which no symbol of ours sees. A custom
//! stream has no number as far as the library knows; `fileno` is told here.

use std::ffi::CStr;

use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};

use super::transfers;
use crate::{edge, errno, numbers, real, serve, stdio};

/// glibc's cookie_io_functions_t.
#[repr(C)]
struct Functions {
    read: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>,
}

unsafe extern "C-unwind" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// The cookie is the number itself.
fn number(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the stream's own buffer.
    unsafe { transfers::read(number(cookie), to.cast(), len) }
}

unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    from: *const c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the stream's own buffer. An error is 0 bytes to a custom stream.
    unsafe { transfers::write(number(cookie), from.cast(), len) }.max(0)
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    let fd = number(cookie);
    stdio::closed(fd);
    edge::int(|| numbers::close(fd))
}

/// fdopen(3) on netchan's socket.
///
/// # Safety
/// `mode` must be a C string.
unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    let Ok(address) = usize::try_from(fd) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's.
    let known = unsafe { CStr::from_ptr(mode) }.to_bytes();
    if !matches!(known.first(), Some(b'r' | b'w' | b'a')) {
        errno::set(libc::EINVAL);
        return std::ptr::null_mut();
    }
    let functions = Functions {
        read: Some(read),
        write: Some(write),
        seek: None,
        close: Some(close),
    };
    let cookie = std::ptr::without_provenance_mut(address);
    // SAFETY: the functions take the number for what it is; `mode` is a C string.
    let stream = unsafe { fopencookie(cookie, mode, functions) };
    if !stream.is_null() {
        stdio::made(stream, fd);
    }
    stream
}

/// fdopen(3).
///
/// # Safety
/// As fdopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if serve::ask_here(fd, |_| Ok(0)) == Some(0) {
        // SAFETY: the caller's.
        return unsafe { open(fd, mode) };
    }
    // SAFETY: the caller's.
    unsafe { (real::FDOPEN.get())(fd, mode) }
}

/// fileno(3).
///
/// # Safety
/// As fileno(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fileno(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    stdio::number_of(stream).unwrap_or_else(|| unsafe { (real::FILENO.get())(stream) })
}

/// fileno_unlocked(3).
///
/// # Safety
/// As fileno(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    unsafe { fileno(stream) }
}
