//! What the kernel does for a doorbell: a futex and an eventfd.

use super::{Scope, Woken};
use crate::{
    own::Own,
    sync::{AtomicU32, Ordering},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType},
    thread::futex,
    time::{ClockId, Timespec, clock_gettime},
};
use std::{
    io, mem,
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
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

    pub const fn moment(&self) -> &Timespec {
        &self.0
    }
}

/// What makes a descriptor readable. No call on it ever blocks.
#[derive(Debug)]
pub(super) enum Event {
    /// Ours alone, and non-blocking.
    Counter(Counter),
    /// One end of a stream socket pair, whose other end an untrusted peer has. Not an eventfd: that one is a single open file, of which the
    /// peer could clear O_NONBLOCK. Not a pipe: writing to a dead reader raises a signal.
    Socket(Own),
}

/// Counters for doorbells that are made when no number is left: see [`reserve`], without which there are none.
static RESERVE: Mutex<Option<[Option<Own>; RESERVED]>> = Mutex::new(None);
/// As many threads can begin to wait then.
const RESERVED: usize = 8;

/// An eventfd that goes back to the reserve where that has a place for it.
#[derive(Debug)]
pub(super) struct Counter(Option<Own>);

impl Counter {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("there until it is dropped").as_fd()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
        let places = reserve.as_mut().map_or(&mut [][..], |places| places);
        if let Some(place) = places.iter_mut().find(|place| place.is_none())
            && let Some(own) = self.0.take()
        {
            let _ = rustix::io::read(&own, &mut [0; 8]); // silent again
            *place = Some(own);
        }
    }
}

fn counter() -> io::Result<Own> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Own::open(|| Ok(eventfd(0, flags)?))
}

/// Puts some counters aside, for a process that may not have more numbers than it has used up: a wait needs one, and should not fail
/// for that.
///
/// # Errors
/// As eventfd(2).
pub fn reserve() -> io::Result<()> {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let places = reserve.get_or_insert_default();
    for place in places.iter_mut().filter(|place| place.is_none()) {
        *place = Some(counter()?);
    }
    Ok(())
}

/// The reserve, held.
#[derive(Debug)]
pub struct ForFork {
    _reserve: MutexGuard<'static, Option<[Option<Own>; RESERVED]>>,
}

/// The same, for the time of a fork.
#[must_use]
pub fn held_for_fork() -> ForFork {
    ForFork {
        _reserve: RESERVE.lock().unwrap_or_else(PoisonError::into_inner),
    }
}

/// In a forked child, where [`own::abandon`](crate::own::abandon) has closed what was put aside: there is none.
pub fn begin_anew() {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    mem::forget(reserve.take()); // numbers that may be others by now
}

impl Event {
    pub fn new() -> io::Result<Self> {
        let own = counter().or_else(from_reserve)?;
        Ok(Self::Counter(Counter(Some(own))))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Counter(counter) => counter.fd(),
            Self::Socket(fd) => fd.as_fd(),
        }
    }

    /// Makes the sleeper's descriptor readable. When it fails it is readable already (the counter or the socket is full), or the
    /// sleeper is gone.
    pub fn signal(&self) {
        match self {
            Self::Counter(counter) => {
                let _ = rustix::io::write(counter.fd(), &1u64.to_ne_bytes());
            }
            Self::Socket(fd) => {
                let _ = net::send(fd, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }

    /// Takes what is there; how many signals that was (of a socket: at most 512).
    pub fn drain(&self) -> u64 {
        match self {
            Self::Counter(counter) => {
                let mut count = [0; 8];
                match rustix::io::read(counter.fd(), &mut count) {
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

#[cold]
fn from_reserve(error: io::Error) -> io::Result<Own> {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let places = reserve.as_mut().ok_or(error)?;
    let found = places.iter_mut().find_map(Option::take);
    found.ok_or_else(|| rustix::io::Errno::MFILE.into())
}

/// The two ends of a stream socket pair, for [`Doorbell::from_raw`](super::Doorbell::from_raw).
///
/// # Errors
/// As socketpair(2): too many open files, or out of memory.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}
