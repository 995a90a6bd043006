//! The wakers of a socket's waiters.

use std::task::Waker;

use crate::api::Readiness;

/// Registered wakers of one socket: few, each with what it waits for. Most sockets never have any, and most others one at a time: the list
/// is made at the first registration, for one.
#[derive(Debug, Default)]
pub struct Wakers(Option<Box<List>>);

#[derive(Debug)]
struct List(Vec<(Readiness, Waker)>);

impl Wakers {
    /// Registers, or adds to what an equal waker waits for: poll(2) may name one socket twice, once to read and once to write.
    pub fn register(&mut self, interest: Readiness, waker: &Waker) {
        let always = Readiness::ERROR | Readiness::HANGUP;
        let make = || Box::new(List(Vec::with_capacity(1)));
        let list = &mut self.0.get_or_insert_with(make).0;
        match list.iter_mut().find(|(_, w)| w.will_wake(waker)) {
            Some((i, _)) => *i = *i | interest | always,
            None => list.push((interest | always, waker.clone())),
        }
    }

    /// Forgets a waker.
    pub fn deregister(&mut self, waker: &Waker) {
        if let Some(list) = &mut self.0 {
            list.0.retain(|(_, w)| !w.will_wake(waker));
        }
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        match &self.0 {
            Some(list) => list.0.is_empty(),
            None => true,
        }
    }

    /// Moves the wakers that wait for any of `ready` to `woken`. What is readable has arrived just now.
    #[inline]
    pub fn wake(&mut self, ready: Readiness, woken: &mut Vec<Waker>) {
        let Some(list) = &mut self.0 else {
            return;
        };
        let ready = if ready.contains(Readiness::READABLE) {
            ready | Readiness::ARRIVAL
        } else {
            ready
        };
        woken.extend(
            list.0
                .extract_if(.., |(interest, _)| interest.intersects(ready))
                .map(|(_, w)| w),
        );
    }
}
