//! poll's bits, and what netchan calls them.

use libc::c_short;

use crate::api::Readiness;

/// "Normal" data is what there is to read.
pub const READ_BITS: c_short = libc::POLLIN | libc::POLLRDNORM;

/// The same of what can be written.
pub const WRITE_BITS: c_short = libc::POLLOUT | libc::POLLWRNORM;

const ALWAYS: c_short = libc::POLLERR | libc::POLLHUP;

/// What to wait for, for the `events` of a pollfd: the "normal" bits are the plain ones.
pub fn interest(events: c_short) -> Readiness {
    let mut plain = events & (libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP);
    if events & READ_BITS != 0 {
        plain |= libc::POLLIN;
    }
    if events & WRITE_BITS != 0 {
        plain |= libc::POLLOUT;
    }
    Readiness(plain.cast_unsigned())
}

/// `revents` for a socket that is `ready` when `events` were asked for.
pub fn answer(ready: Readiness, events: c_short) -> c_short {
    let mut all = ready.0.cast_signed();
    if all & libc::POLLIN != 0 {
        all |= READ_BITS;
    }
    if all & libc::POLLOUT != 0 {
        all |= WRITE_BITS;
    }
    all & (events | ALWAYS)
}
