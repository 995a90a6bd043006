//! The doorbell: one wake-up for many items; the side that is awake costs no system call.

use crate::sync::{AtomicU32, Ordering, fence};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
    thread::futex,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// How a sleeper sleeps, so that the ringer knows how to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// In [`Doorbell::wait`] (a futex).
    Futex,
    /// In poll(2) or the like on [`Doorbell::fd`].
    Fd,
}

const AWAKE: u32 = 0;
const FUTEX: u32 = 1;
const FD: u32 = 2;

/// One sleeper, any number of ringers.
///
/// The sleeper's order: [`arm`](Self::arm), look at its queues *again*, sleep only if they are empty, [`disarm`](Self::disarm).
/// The ringer's order: publish the item, [`ring`](Self::ring). Then no wake-up is lost.
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
    event: OwnedFd,
}

impl Doorbell {
    /// A doorbell whose sleeper is awake.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: AtomicU32::new(AWAKE),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }
    /// Wakes the sleeper if it sleeps; true if that took a system call. At most one ringer pays for one sleep.
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst); // partner: the fence in `arm`
        if self.state.load(Ordering::Relaxed) == AWAKE {
            return false;
        }
        match self.state.swap(AWAKE, Ordering::Relaxed) {
            FUTEX => {
                let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
                true
            }
            FD => {
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
                true
            }
            _ => false,
        }
    }
    /// Announces that the caller is about to sleep.
    pub fn arm(&self, how: Sleep) {
        let state = match how {
            Sleep::Futex => FUTEX,
            Sleep::Fd => FD,
        };
        self.state.store(state, Ordering::Relaxed);
        fence(Ordering::SeqCst); // partner: the fence in `ring`
    }
    /// The caller is awake again. Drains [`fd`](Self::fd) where it was rung.
    pub fn disarm(&self) {
        self.state.swap(AWAKE, Ordering::Relaxed);
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
    /// Sleeps until rung or until `timeout` has passed; call after `arm(Sleep::Futex)`. True if rung.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|t| t.try_into().ok());
        while self.state.load(Ordering::Relaxed) == FUTEX {
            match futex::wait(&self.state, futex::Flags::PRIVATE, FUTEX, timeout.as_ref()) {
                Err(Errno::TIMEDOUT | Errno::INTR) => break,
                _ => {}
            }
        }
        self.state.load(Ordering::Relaxed) == AWAKE
    }
    /// Readable once rung while armed with [`Sleep::Fd`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
