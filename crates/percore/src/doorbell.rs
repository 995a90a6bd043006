//! The doorbell: one wake-up for many items; the side that is awake costs no system call.

use std::{io, os::fd::BorrowedFd, time::Duration};

/// How a sleeper sleeps, so that the ringer knows how to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// In [`Doorbell::wait`] (a futex).
    Futex,
    /// In poll(2) or the like on [`Doorbell::fd`].
    Fd,
}

/// One sleeper, any number of ringers.
///
/// The sleeper's order: [`arm`](Self::arm), look at its queues *again*, sleep only if they are empty, [`disarm`](Self::disarm).
/// The ringer's order: publish the item, [`ring`](Self::ring). Then no wake-up is lost.
#[derive(Debug)]
pub struct Doorbell {}

impl Doorbell {
    /// A doorbell whose sleeper is awake.
    pub fn new() -> io::Result<Self> {
        unimplemented!()
    }
    /// Wakes the sleeper if it sleeps; true if that took a system call. At most one ringer pays for one sleep.
    pub fn ring(&self) -> bool {
        unimplemented!()
    }
    /// Announces that the caller is about to sleep.
    pub fn arm(&self, how: Sleep) {
        let _ = how;
        unimplemented!()
    }
    /// The caller is awake again. Drains [`fd`](Self::fd) where it was rung.
    pub fn disarm(&self) {
        unimplemented!()
    }
    /// Sleeps until rung or until `timeout` has passed; call after `arm(Sleep::Futex)`. True if rung.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let _ = timeout;
        unimplemented!()
    }
    /// Readable once rung while armed with [`Sleep::Fd`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }
}
