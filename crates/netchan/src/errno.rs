//! The one place where errno values are chosen.

use std::io;

use proto::tcp;

/// What a connection's error is to its socket; `open`: the handshake had been completed; `ended`: the peer's FIN had come.
pub const fn of_tcp(error: tcp::Error, open: bool, ended: bool) -> i32 {
    match error {
        tcp::Error::Reset if ended => libc::EPIPE, // as Linux in CLOSE-WAIT
        tcp::Error::Refused => libc::ECONNREFUSED,
        tcp::Error::Reset if !open => libc::ECONNREFUSED,
        tcp::Error::Reset => libc::ECONNRESET,
        tcp::Error::TimedOut => libc::ETIMEDOUT,
        tcp::Error::HostUnreachable => libc::EHOSTUNREACH,
        tcp::Error::NetworkUnreachable => libc::ENETUNREACH,
        tcp::Error::ProtocolUnreachable => libc::ENOPROTOOPT,
        tcp::Error::HostUnknown => libc::EHOSTDOWN,
        tcp::Error::HostIsolated => libc::ENONET,
        tcp::Error::SourceRoute => libc::EOPNOTSUPP,
        tcp::Error::Prohibited => libc::EACCES,
        tcp::Error::BadHeader => libc::EPROTO,
        tcp::Error::Aborted => libc::ECONNABORTED,
    }
}

/// An errno as an error.
pub fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// `Err` of an errno.
///
/// # Errors
/// Always.
pub fn fail<T>(errno: i32) -> io::Result<T> {
    Err(error(errno))
}

/// An error of start-up or configuration, in words.
pub fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}
