//! The one place where errno values are chosen.

use std::io::{self, ErrorKind};

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

/// The errno of `error`, also where only its kind is known.
pub fn code(error: &io::Error) -> i32 {
    error
        .raw_os_error()
        .unwrap_or_else(|| of_kind(error.kind()))
}

fn of_kind(kind: ErrorKind) -> i32 {
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
