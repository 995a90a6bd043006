//! Errors by their numbers, and the C library's errno.

use std::io::{self, ErrorKind};

use libc::c_int;
pub use netchan::{
    c::errno::{get, set},
    errno_of as code,
};

/// An error of the operating system by number.
pub fn error(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// `Err` of that number.
pub fn fail<T>(code: c_int) -> io::Result<T> {
    Err(error(code))
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
