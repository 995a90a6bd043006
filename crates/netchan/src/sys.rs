//! System calls that no library wraps as the waiters need them.

use std::{io, marker::PhantomData, mem::MaybeUninit, ptr, time::Duration};

/// No signal handler runs on this thread until this is dropped, except during a [`ppoll`] that is given it: so the end of that
/// call tells of every signal. (A signal that comes while a waiter turns a shard would otherwise be forgotten, and the wait go on.)
pub(crate) struct SignalsHeld {
    before: libc::sigset_t,
    /// The mask is the thread's own.
    _thread: PhantomData<*const ()>,
}

impl SignalsHeld {
    /// Holds them back from now on.
    pub fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigfillset writes the set that it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `all` has been written; with a valid `how` the call cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: written by the call before.
        let before = unsafe { before.assume_init() };
        Self {
            before,
            _thread: PhantomData,
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the mask that pthread_sigmask gave to this very thread.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// ppoll(2), during which the signals in `held` are let in; `None` as the timeout waits for ever. The number of ready entries.
///
/// # Errors
/// The system's; `Interrupted` when a signal handler ran.
pub(crate) fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    held: Option<&SignalsHeld>,
) -> io::Result<usize> {
    if timeout.is_none_or(|t| !t.is_zero()) {
        percore::witness::sleeping("ppoll");
    }
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    let mask = held.map_or(ptr::null(), |held| &raw const held.before);
    // SAFETY: `fds` is an array of `count` entries that the call may write; `timeout` and `mask` are null or point to values that
    // outlive the call.
    let n = unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, mask) };
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
