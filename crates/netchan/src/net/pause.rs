//! A stack without its threads for a while: for a fork, after which the copy goes on in place of the original.

use std::{
    io,
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use super::{Net, start};
use crate::{environment::handed, stack::worker};

/// A stack that stands still: its threads have ended, and all else is as it was. Dropping it changes nothing.
#[must_use = "without `resume` no packet is received or sent any more"]
#[derive(Debug)]
pub struct Paused {
    net: Net,
    answered: bool,
}

impl Net {
    /// Ends the stack's threads, and leaves its connections, listeners, links and leases as they are. No other thread may be in a call of this stack's sockets, nor
    /// begin one, until [`Paused::resume`].
    ///
    /// A process that is forked meanwhile has a copy of the stack. One of the two may go on with it; the other one must not use it any more, and leaves it to the
    /// end of its process. Captures end.
    pub fn pause(&self) -> Paused {
        let stack = self.stack();
        stack.paused.store(true, Relaxed); // before `stop`
        let answered = worker::halt(stack);
        Paused {
            net: self.clone(),
            answered,
        }
    }
}

impl Paused {
    /// Goes on, with new threads.
    ///
    /// # Errors
    /// The system's, when it has no threads left, or another program of the run has taken the links.
    pub fn resume(&self) -> io::Result<()> {
        let stack = self.net.stack();
        if let Some(claim) = &stack.control.claim {
            handed::lock(claim)?; // a lock of the process that it was made in
        }
        stack.paused.store(false, Relaxed); // before the threads
        stack.stop.store(false, SeqCst);
        stack.control.watch.forget();
        start::run(stack, self.answered)?;
        stack.settle_later();
        Ok(())
    }

    /// A process that was forked meanwhile goes on, once it is told so after this. Nothing of the stack is dropped here.
    pub fn give_away(self) {
        if let Some(claim) = &self.net.stack().control.claim {
            handed::unlock(claim);
        }
        std::mem::forget(self);
    }
}
