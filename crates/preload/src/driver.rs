//! Another owner of the stack and of time than this process's environment: how a test program stands the same C functions on a stack
//! of its own, whose clock it turns by hand. A library that does so installs a [`Driver`] before the first socket.

use std::{io, sync::OnceLock, time::Duration};

use libc::pollfd;
use netchan::Net;

use crate::sys;

/// What takes the place of the environment and of the machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Starts the stack, at the first socket that becomes netchan's.
    pub start: fn() -> io::Result<Net>,
    /// Time since any origin; timeouts go by it.
    pub now: fn() -> Duration,
    /// Waits until something may have changed, or the time has passed: as [`netchan::socket::Waiter::wait`], in vain sometimes. The descriptors are the kernel's.
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
