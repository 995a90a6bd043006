//! stdio on netchan's sockets: fdopen makes a stream whose reads and writes are ours.
//!
//! The C library's own streams read and write with calls inside the library, which no symbol of ours sees. A custom
//! stream has no number as far as the library knows; `fileno` is told here.

use std::{
    ffi::CStr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};

use crate::{descriptor, errno, export, region::hold};

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

/// The streams that were made here, and their numbers.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// There was one.
static MADE: AtomicBool = AtomicBool::new(false);

/// The list of streams, for the time of a fork.
pub fn held_for_fork() -> ForFork {
    ForFork {
        _streams: hold(&STREAMS),
    }
}

/// The list of streams, held.
pub struct ForFork {
    _streams: MutexGuard<'static, Vec<(usize, c_int)>>,
}

/// The cookie is the number itself.
fn number(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the stream's own buffer.
    unsafe { export::transfers::read(number(cookie), to.cast(), len) }
}

unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    from: *const c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the stream's own buffer. An error is 0 bytes to a custom stream.
    unsafe { export::transfers::write(number(cookie), from.cast(), len) }.max(0)
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    let fd = number(cookie);
    hold(&STREAMS).retain(|(_, number)| *number != fd);
    errno::int(|| descriptor::close(fd))
}

/// fdopen(3) on netchan's socket.
///
/// # Safety
/// `mode` must be a C string.
pub unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
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
        MADE.store(true, Relaxed);
        hold(&STREAMS).push((stream.addr(), fd));
    }
    stream
}

/// The number behind a stream that was made here.
pub fn number_of(stream: *mut FILE) -> Option<c_int> {
    // Relaxed: who has a stream of ours has seen it made. A process without a stack takes no lock, for a fork to find.
    if !MADE.load(Relaxed) {
        return None;
    }
    let streams = hold(&STREAMS);
    streams
        .iter()
        .find(|(known, _)| *known == stream.addr())
        .map(|(_, fd)| *fd)
}
