//! Errors by their numbers, and the C library's errno.

use std::io::{self, ErrorKind};

use libc::c_int;

/// An error of the operating system by number.
pub fn error(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// `Err` of that number.
pub fn fail<T>(code: c_int) -> io::Result<T> {
    Err(error(code))
}

/// The errno of `error`, also where only its kind is known.
pub fn code(error: &io::Error) -> c_int {
    error
        .raw_os_error()
        .unwrap_or_else(|| of_kind(error.kind()))
}

fn of_kind(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::Interrupted => libc::EINTR,
        ErrorKind::InvalidInput | ErrorKind::InvalidData => libc::EINVAL,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        ErrorKind::NetworkDown => libc::ENETDOWN,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::ResourceBusy => libc::EBUSY,
        _ => libc::EIO,
    }
}

/// An option that this kind of socket does not have.
pub fn unsupported(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Unsupported if code(&error) != libc::EOPNOTSUPP => {
            self::error(libc::ENOPROTOOPT)
        }
        _ => error,
    }
}

/// Whether a call should be tried again after a wait.
pub fn would_block(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Whether a connect(2) goes on behind the call.
pub fn is_under_way(error: &io::Error) -> bool {
    matches!(code(error), libc::EINPROGRESS | libc::EALREADY)
}

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
