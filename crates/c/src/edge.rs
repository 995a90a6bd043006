//! The edge to C: results become return values and errno, panics become EIO.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use libc::{c_int, ssize_t};
use netchan::{c::errno, errno_of};

use crate::sys;

/// An errno as an error.
pub fn error(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// `Err` of an errno.
pub fn fail<T>(code: c_int) -> io::Result<T> {
    Err(error(code))
}

/// Whether a call should be tried again after a wait.
pub fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// What `call` comes to, or `failed` with errno. A success leaves errno as it was.
fn run<T>(failed: T, call: impl FnOnce() -> io::Result<T>) -> T {
    let before = errno::get();
    let checked = || {
        if sys::is_child() {
            fail(libc::EBADF)
        } else {
            call()
        }
    };
    let result = catch_unwind(AssertUnwindSafe(checked)).unwrap_or_else(|_| fail(libc::EIO));
    let (value, code) = match result {
        Ok(value) => (value, before),
        Err(error) => (failed, errno_of(&error)),
    };
    errno::set(code);
    value
}

/// For functions that return a number, or -1.
pub fn int(call: impl FnOnce() -> io::Result<usize>) -> c_int {
    run(-1, || {
        call().map(|value| c_int::try_from(value).unwrap_or(c_int::MAX))
    })
}

/// For functions that return 0 or -1.
pub fn unit(call: impl FnOnce() -> io::Result<()>) -> c_int {
    int(|| call().map(|()| 0))
}

/// For functions that return how many bytes, or -1.
pub fn size(call: impl FnOnce() -> io::Result<usize>) -> ssize_t {
    run(-1, || {
        call().map(|value| ssize_t::try_from(value).unwrap_or(ssize_t::MAX))
    })
}

/// For functions that return a handle, or NULL.
pub fn handle(call: impl FnOnce() -> io::Result<usize>) -> usize {
    run(0, call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_become_errno_and_success_leaves_it() {
        errno::set(libc::EXDEV);
        assert_eq!((int(|| Ok(3)), errno::get()), (3, libc::EXDEV));
        assert_eq!(
            (unit(|| fail(libc::EBADF)), errno::get()),
            (-1, libc::EBADF)
        );
        let kind = || Err(io::ErrorKind::WouldBlock.into());
        assert_eq!((size(kind), errno::get()), (-1, libc::EAGAIN));
        assert_eq!(
            (handle(|| fail(libc::EMFILE)), errno::get()),
            (0, libc::EMFILE)
        );
    }

    #[test]
    fn a_panic_ends_here() {
        assert_eq!((int(|| panic!("a test's")), errno::get()), (-1, libc::EIO));
    }
}
