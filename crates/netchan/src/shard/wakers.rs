//! Who waits for a socket.

use std::task::Waker;

use crate::socket::Readiness;

/// Registered wakers of one socket: few, each with what it waits for.
#[derive(Debug, Default)]
pub struct Wakers(Vec<(Readiness, Waker)>);

impl Wakers {
    /// Registers, or adds to what an equal waker waits for: poll(2) may name one socket twice, once to read and once to write.
    pub fn register(&mut self, interest: Readiness, waker: &Waker) {
        let always = Readiness::ERROR | Readiness::HANGUP;
        match self.0.iter_mut().find(|(_, w)| w.will_wake(waker)) {
            Some((i, _)) => *i = *i | interest | always,
            None => self.0.push((interest | always, waker.clone())),
        }
    }

    /// Forgets a waker.
    pub fn deregister(&mut self, waker: &Waker) {
        self.0.retain(|(_, w)| !w.will_wake(waker));
    }

    /// Whether nobody waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves everyone who waits for any of `ready` to `woken`. What is readable has arrived just now.
    #[inline]
    pub fn wake(&mut self, ready: Readiness, woken: &mut Vec<Waker>) {
        if self.0.is_empty() {
            return;
        }
        let ready = if ready.contains(Readiness::READABLE) {
            ready | Readiness::ARRIVAL
        } else {
            ready
        };
        woken.extend(
            self.0
                .extract_if(.., |(interest, _)| interest.intersects(ready))
                .map(|(_, w)| w),
        );
    }
}
