//! What the kernel does for a doorbell: a futex and an eventfd.

use super::{Scope, Woken};
use crate::sync::{AtomicU32, Ordering};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType},
    thread::futex,
    time::{ClockId, Timespec, clock_gettime},
};
use std::{
    io,
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// A word that a thread can sleep on.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Futex(pub AtomicU32);

fn flags(scope: Scope) -> futex::Flags {
    match scope {
        Scope::Private => futex::Flags::PRIVATE,
        Scope::Shared => futex::Flags::empty(),
    }
}

impl Futex {
    /// Says how the sleeper is about to sleep; a fence follows.
    #[inline(always)]
    pub fn announce(&self, state: u32) {
        self.0.store(state, Ordering::Relaxed); // ordered by the fence in `Doorbell::arm`
    }

    /// Sleeps if the word is still `expected`. `None` if the caller should look at the word and maybe sleep again.
    pub fn wait(&self, expected: u32, deadline: Option<&Deadline>, scope: Scope) -> Option<Woken> {
        let until = deadline.map(|d| &d.0);
        match futex::wait_bitset(&self.0, flags(scope), expected, until, NonZeroU32::MAX) {
            Ok(()) | Err(Errno::AGAIN) => None,
            Err(Errno::INTR) => Some(Woken::Interrupted),
            Err(_) => Some(Woken::TimedOut),
        }
    }

    /// Wakes one sleeper.
    pub fn wake(&self, scope: Scope) {
        // It can only fail on an address that is not mapped, and a word has one.
        let _ = futex::wake(&self.0, flags(scope), 1);
    }
}

/// A moment of CLOCK_MONOTONIC, the clock that a futex wait goes by.
#[derive(Debug)]
pub(super) struct Deadline(Timespec);

impl Deadline {
    /// `None` if that moment is later than the clock can say.
    pub fn after(timeout: Duration) -> Option<Self> {
        let timeout = Timespec::try_from(timeout).ok()?;
        let moment = clock_gettime(ClockId::Monotonic).checked_add(timeout)?;
        Some(Self(moment))
    }
}

/// What makes a descriptor readable. No call on it ever blocks.
#[derive(Debug)]
pub(super) enum Event {
    /// Ours alone, and non-blocking.
    Counter(OwnedFd),
    /// One end of a stream socket pair, whose other end a stranger has. Not an eventfd: that one is a single open file, of which the
    /// stranger could clear O_NONBLOCK. Not a pipe: writing to a dead reader raises a signal.
    Socket(OwnedFd),
}

impl Event {
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self::Counter(eventfd(0, flags)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Counter(fd) | Self::Socket(fd) => fd.as_fd(),
        }
    }

    /// Makes the sleeper's descriptor readable. When it fails it is readable already (the counter or the socket is full), or the
    /// sleeper is gone.
    pub fn signal(&self) {
        match self {
            Self::Counter(fd) => {
                let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
            }
            Self::Socket(fd) => {
                let _ = net::send(fd, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }

    /// Takes what is there; how many signals that was (of a socket: at most 512).
    pub fn drain(&self) -> u64 {
        match self {
            Self::Counter(fd) => {
                let mut count = [0; 8];
                match rustix::io::read(fd, &mut count) {
                    Ok(8) => u64::from_ne_bytes(count),
                    _ => 0,
                }
            }
            Self::Socket(fd) => {
                let mut signals = [0; 512];
                let came = net::recv(fd, &mut signals, RecvFlags::DONTWAIT);
                came.map_or(0, |(_, n)| u64::try_from(n).unwrap_or(u64::MAX))
            }
        }
    }
}

/// The two ends of a stream socket pair, for [`Doorbell::from_raw`](super::Doorbell::from_raw).
///
/// # Errors
/// As socketpair(2): too many open files, or out of memory.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}
