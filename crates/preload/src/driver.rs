//! Another owner of the stack and of time than this process's environment: how a test program stands the same C functions on a stack
//! of its own, whose clock it turns by hand. A library that does so installs a [`Driver`] before the first socket.

use std::{io, sync::OnceLock, time::Duration};

use libc::pollfd;
use netchan::{Net, socket::Waiter};

use crate::{errno::fail, region, sys};

/// What takes the place of the environment and of the machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Starts the stack, at the first socket that becomes netchan's.
    pub start: fn() -> io::Result<Net>,
    /// Time since any origin; timeouts go by it.
    pub now: fn() -> Duration,
    /// Waits until something may have changed, or the time has passed: as [`Waiter::wait`], in vain sometimes. The descriptors are the kernel's.
    pub wait: fn(&mut [pollfd], Option<Duration>) -> io::Result<usize>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Installs `driver` for the rest of this process's life; false if there is one already.
pub fn install(driver: Driver) -> bool {
    DRIVER.set(driver).is_ok()
}

/// The driver, if one was installed.
pub(crate) fn driver() -> Option<&'static Driver> {
    DRIVER.get()
}

/// The time now, by which timeouts go.
pub(crate) fn now() -> Duration {
    driver().map_or_else(sys::monotonic, |driver| (driver.now)())
}

/// CLOCK_REALTIME, or what takes its place.
pub(crate) fn wall_clock() -> Duration {
    driver().map_or_else(sys::wall_clock, |driver| (driver.now)())
}

/// [`Waiter::wait`], unless somebody else decides what waiting is. A signal that came since the call began ends it, too.
pub(crate) fn wait(
    waiter: &mut Waiter,
    fds: &mut [pollfd],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    match driver() {
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
pub(crate) fn wait_for_either(
    waiter: &mut Waiter,
    fds: &mut [pollfd],
    timeout: Option<Duration>,
) -> io::Result<Option<usize>> {
    match driver() {
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
