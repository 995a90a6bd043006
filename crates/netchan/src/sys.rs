//! System calls that no library wraps as the waiters need them.

use std::{io, ptr, time::Duration};

/// ppoll(2) without a signal mask; `None` waits for ever. The number of ready entries.
///
/// # Errors
/// The system's; `Interrupted` when a signal handler ran.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    if timeout.is_none_or(|t| !t.is_zero()) {
        percore::witness::sleeping("ppoll");
    }
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: `fds` is an array of `count` entries that the call may write; `timeout` is null or points to a timespec on this stack.
    let n = unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, ptr::null()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Eight random bytes from the system.
///
/// # Errors
/// The system's.
pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(u64::from_le_bytes(bytes))
}
