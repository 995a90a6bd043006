//! Readiness of a socket: what it is ready for at this moment, and a waker for when it will be.

use std::task::Waker;

use super::{Role, Socket};
use crate::api::{Kind, Readiness};

impl Socket {
    /// What it is ready for at this moment.
    pub fn readiness(&self) -> Readiness {
        match self.role() {
            Some(Role::Stream(stream)) => stream.readiness(self.stack()),
            Some(Role::Listening(listening)) => listening.readiness(self.stack()),
            Some(Role::Datagram(datagram)) => datagram.readiness(self.stack()),
            None => self.idle_readiness(),
        }
    }

    /// As Linux says of a stream that is not connected, and of a datagram socket that is not bound.
    fn idle_readiness(&self) -> Readiness {
        let mut ready = Readiness::WRITABLE;
        let shut = self.options.lock().shut;
        if shut.0 {
            ready = ready | Readiness::READABLE | Readiness::READ_HANGUP;
        }
        if self.kind == Kind::Stream || shut == (true, true) {
            ready = ready | Readiness::HANGUP;
        }
        if self.stream.has_error(self.stack()) {
            ready = ready | Readiness::ERROR;
        }
        ready
    }

    /// Wakes `waker` once when any of `interest` (errors and hang-ups always) may hold; at once where it holds already.
    /// One registration for each waker (`Waker::will_wake`): a later one adds to it. Spurious wakes are allowed.
    /// A socket that [is idle](Self::is_idle) wakes none.
    ///
    /// True if it may hold already, and the waker was woken; false: nothing of it holds, no need to look again.
    pub fn register(&self, interest: Readiness, waker: &Waker) -> bool {
        // A thread that waits by this leads none of several shards: `Waiter::register` is for threads that lead one.
        if self.stack().layout.leases()
            && let Some(number) = self.shard()
        {
            self.stack().hand_over(number);
        }
        self.register_in_place(interest, waker)
    }

    /// Whether it neither connects, nor listens, nor (if it is for datagrams) was ever bound.
    pub fn is_idle(&self) -> bool {
        self.role().is_none()
    }

    /// The one shard where it lives, if there is one.
    pub(super) fn shard(&self) -> Option<usize> {
        match self.role()? {
            Role::Stream(stream) => Some(stream.shard()),
            Role::Datagram(datagram) => datagram.shard(),
            Role::Listening(_) => None,
        }
    }

    /// The same, whichever thread turns the shard.
    pub(super) fn register_in_place(&self, interest: Readiness, waker: &Waker) -> bool {
        match self.role() {
            Some(Role::Stream(stream)) => stream.register(self.stack(), interest, waker),
            Some(Role::Listening(listening)) => listening.register(self.stack(), interest, waker),
            Some(Role::Datagram(datagram)) => datagram.register(self.stack(), interest, waker),
            None => false,
        }
    }

    /// Forgets `waker`.
    pub fn deregister(&self, waker: &Waker) {
        match self.role() {
            Some(Role::Stream(stream)) => stream.deregister(self.stack(), waker),
            Some(Role::Listening(listening)) => listening.deregister(self.stack(), waker),
            Some(Role::Datagram(datagram)) => datagram.deregister(self.stack(), waker),
            None => {}
        }
    }
}
