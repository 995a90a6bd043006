//! Waiting in blocking calls: try, register, try again, sleep.

use std::{cell::Cell, io, mem::ManuallyDrop, time::Duration};

use libc::{c_int, pollfd};
use netchan::{
    Net,
    socket::{Readiness, Socket, Waiter},
};

use crate::{
    buffers, driver,
    errno::{fail, would_block},
    process, region,
    state::Live,
};

/// This thread's waiter. In a forked child it is not dropped: what it refers to is the parent's.
struct Local {
    waiter: ManuallyDrop<Waiter>,
    /// Of the process that made it.
    generation: u32,
}

impl Local {
    fn is_inherited(&self) -> bool {
        process::is_inherited(self.generation)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if !self.is_inherited() {
            region::introduce_waker(None);
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.waiter) };
        }
    }
}

thread_local! {
    /// Taken out while in use: a signal handler that waits meanwhile makes one of its own.
    static WAITER: Cell<Option<Local>> = const { Cell::new(None) };
}

/// Lends this thread's waiter.
pub fn with_waiter<T>(call: impl FnOnce(&mut Waiter) -> io::Result<T>) -> io::Result<T> {
    let kept = WAITER.try_with(Cell::take).unwrap_or(None);
    let mut local = match kept {
        Some(local) if !local.is_inherited() => local,
        _ => {
            let mut waiter = Waiter::new(net()?)?;
            waiter.lets_signals_in(); // `region` sees to it
            region::introduce_waker(Some(waiter.waker()));
            Local {
                waiter: ManuallyDrop::new(waiter),
                generation: process::generation(),
            }
        }
    };
    let result = call(&mut local.waiter);
    // While the thread ends there is no place to keep it: it is dropped here instead.
    let _ = WAITER.try_with(|place| place.set(Some(local)));
    result
}

fn net() -> io::Result<&'static Net> {
    process::running().map_or_else(|| fail(libc::ENETDOWN), Ok)
}

/// [`Waiter::wait`], unless a driver decides what waiting is. A signal that came since the call began ends it, too.
pub fn once(
    waiter: &mut Waiter,
    fds: &mut [pollfd],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    match driver::driver() {
        Some(driver) => (driver.wait)(fds, timeout),
        None => {
            let waker = waiter.waker().clone();
            // A signal that came before has woken nothing; one that comes from here on wakes the waiter.
            region::waiting(&waker, || match region::is_interrupted() {
                true => fail(libc::EINTR),
                false => waiter.wait(fds, timeout),
            })
        }
    }
}

/// The same by [`Waiter::wait_for_either`].
pub fn for_either(
    waiter: &mut Waiter,
    fds: &mut [pollfd],
    timeout: Option<Duration>,
) -> io::Result<Option<usize>> {
    match driver::driver() {
        Some(driver) => (driver.wait)(fds, timeout).map(Some),
        None => {
            let waker = waiter.waker().clone();
            region::waiting(&waker, || match region::is_interrupted() {
                true => fail(libc::EINTR),
                false => waiter.wait_for_either(fds, timeout),
            })
        }
    }
}

/// A point in time to wait for; `None` is never.
#[derive(Clone, Copy)]
pub struct Deadline(Option<Duration>);

impl Deadline {
    /// After `timeout` from now.
    pub fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.map(|timeout| driver::now().saturating_add(timeout)))
    }

    /// What is left; zero once it has passed.
    pub fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_sub(driver::now()))
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// Calls `attempt` until it answers something else than `WouldBlock`, waiting for `interest` in between unless `nonblocking`.
///
/// EAGAIN when `timeout` has passed, EINTR when a signal handler ran, EBADF when another thread closed the socket.
pub fn until<T>(
    live: Live<'_>,
    interest: Readiness,
    nonblocking: bool,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match attempt() {
        Err(error) if would_block(&error) && !nonblocking => {
            sleep_until(live, interest, timeout, attempt)
        }
        result => result,
    }
}

#[cold]
fn sleep_until<T>(
    live: Live<'_>,
    interest: Readiness,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let deadline = Deadline::after(timeout);
    if timeout.is_some() {
        region::waits_with_limit();
    }
    with_waiter(|waiter| {
        if let Some(result) = try_first(waiter, live, timeout, &mut attempt) {
            return result;
        }
        let waker = waiter.waker().clone();
        let mut open = live.state.enter(&waker);
        let result = loop {
            // Once more if it became ready since.
            if waiter.register(live.socket, interest) {
                match attempt() {
                    Err(error) if would_block(&error) => {}
                    result => break result,
                }
            }
            if !open {
                break fail(libc::EBADF);
            }
            if deadline.passed() {
                break fail(libc::EAGAIN);
            }
            waiter.spin(live.state.busy_poll());
            if let Err(error) = once(waiter, &mut [], deadline.left()) {
                break Err(error);
            }
            match attempt() {
                Err(error) if would_block(&error) => {}
                result => break result,
            }
            open = !live.state.closed.load(std::sync::atomic::Ordering::SeqCst);
        };
        live.socket.deregister(&waker);
        live.state.leave(&waker);
        result
    })
}

/// [`Waiter::try_first`], unless a driver decides what waiting is.
fn try_first<T>(
    waiter: &mut Waiter,
    live: Live<'_>,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> Option<io::Result<T>> {
    if driver::driver().is_some() {
        return None;
    }
    waiter.spin(live.state.busy_poll());
    waiter.try_first(live.socket, timeout, || match region::is_interrupted() {
        true => fail(libc::EINTR),
        false => attempt(),
    })
}

/// Pauses for at most `time`, turning what no other thread turns.
pub fn pause(time: Duration) -> io::Result<()> {
    with_waiter(|waiter| once(waiter, &mut [], Some(time)).map(|_| ()))
}

/// Waits until a FIN that was sent is acknowledged, at most `limit`.
pub fn until_closed(socket: &Socket, limit: Duration) {
    let deadline = Deadline::after(Some(limit));
    while socket.awaits_answer_to_fin() && !deadline.passed() {
        if pause(Duration::from_millis(1)).is_err() {
            return;
        }
    }
}

/// Replaces the thread's signal mask for one wait, as ppoll(2), pselect(2) and epoll_pwait(2) do. Not atomic with the
/// wait: a signal that comes in the instant between is handled before it, without ending it.
pub struct SignalMask(Option<libc::sigset_t>);

impl SignalMask {
    /// Sets `mask`; NULL changes nothing.
    ///
    /// # Safety
    /// `mask` must be readable, or NULL.
    pub unsafe fn set(mask: *const libc::sigset_t) -> Self {
        if mask.is_null() {
            return Self(None);
        }
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the caller vouches for `mask`; `before` is writable.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) };
        // SAFETY: written by the call, and zeroed before.
        let before = unsafe { before.assume_init() };
        Self((result == 0).then_some(before))
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: a mask that the system gave us.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut())
            };
        }
    }
}

/// A timeout of poll(2) and epoll_wait(2): negative waits for ever.
pub fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A timeout as ppoll(2) takes it; NULL waits for ever. EINVAL if it is not a time.
///
/// # Safety
/// `time` must be readable, or NULL.
pub unsafe fn timespec(time: *const libc::timespec) -> io::Result<Option<Duration>> {
    if time.is_null() {
        return Ok(None);
    }
    if buffers::is_bad(time) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let time = unsafe { time.read() };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(ns)) if ns < 1_000_000_000 => Ok(Some(Duration::new(seconds, ns))),
        _ => fail(libc::EINVAL),
    }
}
