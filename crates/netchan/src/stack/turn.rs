//! A turn: what a link's thread, a core's or a caller does each time round its loop.

use percore::{lock::Mutex, remote_call::CallServer};
use proto::time::Instant;

use super::{
    Stack,
    driver_side::{DriverSide, Halves},
    hold::lock,
};
use crate::{
    driver::interface::{Interface, Receive},
    driver::module::Giant,
    regime::{Handoff, Holder},
    stack::{
        cell::{Held, LinkAccess},
        rx, tx,
    },
    trace::stages::{self, Stage},
};

/// What a core's thread has in its hands.
pub(crate) struct Core {
    /// Runs the calls of other threads. `None`: they run them in place (`steps`).
    call_server: Option<CallServer<Held>>,
    /// Links that its shard knows to be gone.
    told: Vec<bool>,
}

impl Core {
    /// At its beginning.
    pub fn of(stack: &Stack, call_server: Option<CallServer<Held>>) -> Self {
        let told = vec![false; stack.driver.links.len()];
        Self { call_server, told }
    }

    /// At its end: what ran the calls of others.
    pub fn end(self) -> Option<CallServer<Held>> {
        self.call_server
    }
}

impl Stack {
    /// A core's turn of its shard: packets, timers, remote calls.
    pub fn turn_owned(&self, number: usize, core: &mut Core, now: Instant) -> bool {
        let cell = &self.sockets.cells[number];
        let mut held = lock(cell, number);
        let now = held.shard.no_earlier(now);
        let mut work = rx::take_received(&mut held, now);
        if held.shard.timers_are_due(now) {
            held.shard.run_timers(now);
        }
        for (link, told) in core.told.iter_mut().enumerate() {
            if !*told && self.driver.is_gone(link) {
                *told = true;
                held.shard.link_gone(link, self.driver.all_are_gone(), now);
            }
        }
        if let Some(server) = &mut core.call_server {
            work |= server.serve(&mut held) > 0;
        }
        self.leave(cell, held, now);
        work
    }

    /// Turns a queue once: packets of its shards, received packets, timers. True if there was work.
    pub fn turn_link(&self, number: usize, now: Instant) -> bool {
        let _giant = self.giant.as_deref().map(Giant::enter);
        match &self.driver.queues[number].halves {
            Some(halves) => self.turn(number, &mut halves.receive.lock(), &halves.interface, now),
            None => self.turn_own(now),
        }
    }

    /// Turns a queue, unless a thread is at it, which may be this one: then `None`.
    pub(super) fn turn_if_free(
        &self,
        number: usize,
        halves: &Halves,
        now: Instant,
    ) -> Option<bool> {
        let mut side = halves.receive.try_lock()?;
        Some(self.turn(number, &mut side, &halves.interface, now))
    }

    /// The same, of a queue that is no shard's own. Whether there was work.
    pub(super) fn turn_queue_if_free(&self, number: usize, now: Instant) -> bool {
        let halves = self.driver.queues[number].halves.as_ref();
        let turned = halves.and_then(|halves| self.turn_if_free(number, halves, now));
        turned.unwrap_or(false)
    }

    /// Something was written for a queue: wakes its thread, or turns it here, where another thread leads the links, which sleeps until they have something.
    pub fn call_for_written(&self, number: usize) {
        let Some(queue) = self.driver.queues.get(number) else {
            return;
        };
        queue.doorbell.ring();
        if self.threaded && !self.stepped && self.driver.lane_of(number).leader.is_led() {
            let _giant = self.giant.as_deref().map(Giant::enter);
            self.turn_queue_if_free(number, self.clock.now());
        }
    }

    pub(super) fn turn(
        &self,
        number: usize,
        side: &mut Receive,
        interface: &Mutex<Interface>,
        now: Instant,
    ) -> bool {
        let work = self.turn_halves(number, side, interface, now);
        self.tell_if_gone(number, now);
        work
    }

    #[inline(always)]
    pub(super) fn turn_halves(
        &self,
        number: usize,
        side: &mut Receive,
        interface: &Mutex<Interface>,
        now: Instant,
    ) -> bool {
        let before = stages::enter(Stage::Link);
        let driver = &self.driver;
        let mut work = turn_interface(driver, number, side, &mut interface.lock(), now);
        work |= match self.layout.handoff {
            Handoff::Channel => {
                let hand_in = |side: &mut Receive| rx::hand_in(driver, side, now);
                rx::receive(driver, number, side, now, hand_in)
            }
            Handoff::Call => {
                let call_in = |side: &mut Receive| rx::call_in(self, side, now);
                rx::receive(driver, number, side, now, call_in)
            }
        };
        stages::back(before);
        work
    }

    /// The shards learn that a link is gone.
    #[inline(always)]
    pub(super) fn tell_if_gone(&self, number: usize, now: Instant) {
        if let Some(last) = self.driver.newly_gone(number) {
            self.tell_gone(self.driver.queues[number].link.into(), last, now);
        }
    }

    /// The same of all links.
    #[inline]
    pub(super) fn tell_of_links(&self, now: Instant) {
        (0..self.driver.queues.len()).for_each(|number| self.tell_if_gone(number, now));
    }

    #[cold]
    #[inline(never)]
    fn tell_gone(&self, link: usize, last: bool, now: Instant) {
        if self.layout.holder == Holder::Core {
            // Each finds it out in its next turn.
            return self
                .sockets
                .cells
                .iter()
                .for_each(|cell| _ = cell.doorbell.ring());
        }
        for shard in 0..self.sockets.cells.len() {
            self.with_shard_at(shard, now, |shard, now| shard.link_gone(link, last, now));
        }
    }

    /// Turns the links that are a shard's own.
    fn turn_own(&self, now: Instant) -> bool {
        self.hold(0, now, |held, now| {
            let Held {
                shard,
                access: LinkAccess::Own(links),
            } = held
            else {
                return false;
            };
            let work = rx::receive_own(&self.driver, shard, links, now);
            // What that led to goes out before the last look: it may be for ourselves.
            shard.finish(now);
            tx::hand_out(self, held, now);
            work | held
                .own_links()
                .iter()
                .any(|link| link.interface.has_returns())
        })
    }

    /// Turns all links.
    pub fn turn_links(&self) -> bool {
        let now = self.clock.now();
        if self.owns_links {
            return self.turn_own(now);
        }
        let _giant = self.giant.as_deref().map(Giant::enter);
        let queues = 0..self.driver.queues.len();
        queues.fold(false, |work, queue| {
            self.turn_queue_if_free(queue, now) | work
        })
    }

    /// Turns all links and shards once. True if there was work.
    pub fn turn_all(&self) -> bool {
        let mut work = self.turn_links();
        if self.layout.handoff == Handoff::Call {
            // The shards were called with what came in, and have sent what followed from it: only their timers are left.
            self.run_called_timers(self.clock.now(), false);
            return work;
        }
        for number in 0..self.sockets.cells.len() {
            work |= self.turn_shard(number);
        }
        work |= self.turn_links();
        work
    }

    /// Turns a shard that has packets or timers waiting. True if it is to be turned again before its thread sleeps: a protocol thread found packets, or
    /// more lie in the channels than a turn takes, for which no bell rings any more.
    pub fn turn_shard(&self, number: usize) -> bool {
        let now = self.clock.now();
        self.hold(number, now, |held, now| match self.layout.holder {
            Holder::Network => rx::take_received(held, now),
            Holder::Application => {
                let mut channels = held.channels().iter_mut();
                channels.any(|end| !end.received.is_empty())
            }
            Holder::Anyone | Holder::Core => false,
        })
    }

    /// Turns a shard that the background poller has now, and calls it for what is left.
    pub fn turn_in_background(&self, number: usize) {
        if self.turn_shard(number)
            && let Some(call) = &self.sockets.cells[number].background_call
        {
            call.ring(true);
        }
    }

    /// When the first timer of shards is due that are called, not fed by channels.
    pub fn next_called_timer(&self) -> Instant {
        let timers = self.sockets.cells.iter().map(|cell| cell.next_timer());
        timers.min().unwrap_or(Instant::FAR)
    }

    /// Serves the timers of shards that are called, not fed by channels; in vain sometimes, of a shard that another thread holds, if the caller
    /// is `busy`: has more to do than wait for it.
    pub fn run_called_timers(&self, now: Instant, busy: bool) {
        if self.layout.backlogs {
            return self.look_after_shards(now, busy);
        }
        for (number, cell) in self.sockets.cells.iter().enumerate() {
            if cell.next_timer() <= now {
                self.hold(number, now, |_, _| ());
            }
        }
    }
}

/// What the transmitting half has to do of itself: packets of its shards, timers, and packets that come back from it.
#[inline]
fn turn_interface(
    driver: &DriverSide,
    number: usize,
    side: &mut Receive,
    interface: &mut Interface,
    now: Instant,
) -> bool {
    let sent = tx::transmit_from_channels(interface, now) > 0;
    tx::pass_to_first(driver, number, interface, now);
    tx::look_after(interface, now);
    interface.take_call(); // this is that turn
    rx::take_returns(driver, side, interface, now) || sent
}
