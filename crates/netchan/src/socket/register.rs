//! Readiness of a socket: what it is ready for at this moment, and a waker for when it will be.

use std::task::Waker;

use super::{Role, Shards, Socket, wait::Home};
use crate::{
    api::{Kind, Readiness},
    shard::Movable,
};

/// How a socket is among the others of a set.
enum Joined {
    /// It counts with its shard.
    Others,
    /// It will move to them.
    Yet,
    /// It lives in all shards.
    Everywhere,
}

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

    /// The same, and since when it is readable: of two sockets of a stack that which became so first has the lower number, as numbers that wrap are compared
    /// (`one.wrapping_sub(other).cast_signed() < 0`). `Some(0)`: since a moment ago, and others may be since before that, of which their wakers hear with the
    /// next [`Net::look`](crate::Net::look). `None`: it is no connection.
    pub fn ready_since(&self) -> (Readiness, Option<u32>) {
        match self.role() {
            Some(Role::Stream(stream)) => {
                let (ready, since) = stream.ready_since(self.stack());
                (ready, Some(since))
            }
            _ => (self.readiness(), None),
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

    /// The same for one of a set of sockets, whose waits say so ([`Waiter::expect_all`](super::Waiter::expect_all)): as long as all of them live in one shard, the
    /// thread that waits turns it.
    ///
    /// A connection that a peer began moves to the set's home, if all that it received is read and no other thread is in that shard; else at a later
    /// registration.
    pub fn register_among(&self, shards: &Shards, interest: Readiness, waker: &Waker) -> bool {
        match self.join(shards) {
            Joined::Others => {}
            Joined::Yet => return self.register(interest, waker),
            Joined::Everywhere => return self.register_in_place(interest, waker),
        }
        if self.stack().layout.leases()
            && let Some(left) = shards.add(self.shard())
        {
            left.into_iter()
                .for_each(|number| self.stack().hand_over(number));
            return self.register(interest, waker);
        }
        self.register_in_place(interest, waker)
    }

    /// Joins the others of a set, at its home.
    fn join(&self, shards: &Shards) -> Joined {
        let stack = self.stack();
        if !stack.has_homes() || stack.sockets.cells.len() == 1 {
            return Joined::Others;
        }
        match self.role() {
            Some(Role::Stream(stream)) => {
                let movable = match shards.home() {
                    Home::At(home) if home == stream.shard() => return Joined::Others,
                    Home::At(home) => self.settle_in(home),
                    Home::Unknown if stream.movable(stack) != Movable::Never => Movable::Later,
                    Home::Unknown | Home::Nowhere => Movable::Never,
                };
                match movable {
                    Movable::Later => Joined::Yet,
                    Movable::Now | Movable::Never => Joined::Others,
                }
            }
            Some(Role::Listening(listening)) if listening.home().is_none() => {
                let is_free = |number: &usize| stack.sockets.cells[*number].leader.is_free();
                let free = (0..stack.sockets.cells.len()).filter(is_free);
                free.for_each(|number| _ = stack.leave_to_background(number));
                Joined::Everywhere
            }
            _ => Joined::Others,
        }
    }

    /// Has its connection live in a shard, if it can move.
    fn settle_in(&self, shard: usize) -> Movable {
        // The lock may be held by what registers it. It is taken so that no call makes another connection of it meanwhile.
        match (self.options.try_lock(), self.role()) {
            (Some(_options), Some(Role::Stream(stream))) => stream.move_to(self.stack(), shard),
            _ => Movable::Later,
        }
    }

    /// Has the connection live in this shard from now on, where the thread that waits for sockets turns their shards (`app-channel`). False: it stays
    /// where it is. For now, if another thread is in that shard, or not all that was received is read; for good, if this side began it, it has keys
    /// (RFC 2385, RFC 5925), or it has moved four times.
    pub fn move_to_shard(&self, shard: usize) -> bool {
        let stack = self.stack();
        let may = stack.has_homes() && shard < stack.sockets.cells.len();
        may && self.shard() != Some(shard) && self.settle_in(shard) == Movable::Now
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
            Role::Listening(listening) => listening.home(),
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
