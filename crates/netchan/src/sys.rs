//! System calls that no library wraps as the waiters need them.

pub(crate) mod handed;

use std::{
    io,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr,
    thread::{self, JoinHandle},
    time::Duration,
};

use percore::raw;

/// Bytes of the kernel's signal mask, with which the C library's begins: 64 signals.
const KERNEL_MASK_LEN: usize = 8;

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

/// Starts one of our threads. It takes no signal: handlers are the program's, and what the program blocks everywhere stays pending.
///
/// # Errors
/// When the system has no thread left.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _held = SignalsHeld::new(); // a thread begins with its maker's mask
    thread::Builder::new().name(name.to_owned()).spawn(body)
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
    let mut copy = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let mask = held.map_or(ptr::null(), |held| &raw const held.before);
    let arguments = [
        fds.as_mut_ptr().expose_provenance(),
        fds.len(),
        copy.as_mut()
            .map_or(0, |t| ptr::from_mut(t).expose_provenance()),
        mask.expose_provenance(),
        KERNEL_MASK_LEN,
        0,
    ];
    // SAFETY: `fds` is an array that the call may write; timeout and mask are null or point to values that outlive the call. (The
    // kernel writes what is left to the timeout.)
    unsafe { raw::call(libc::SYS_ppoll, arguments) }
}

/// The processor on which this thread runs at the moment, as Linux numbers them.
pub(crate) fn processor() -> Option<u16> {
    // SAFETY: it takes nothing.
    let number = unsafe { libc::sched_getcpu() };
    u16::try_from(number).ok()
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
