//! A turn: what a link's thread, a core's or a caller does each time round its loop.

use percore::{lock::Mutex, remote_call::CallServer};
use proto::time::Instant;
use std::sync::atomic::Ordering::Relaxed;

use super::{Halves, Stack, hold::lock};
use crate::{
    driver::interface::{Interface, Receive},
    driver::module::Giant,
    regime::{Handoff, Holder},
    stack::{
        cell::{Held, Ways},
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
        let told = vec![false; stack.ports.len()];
        Self { call_server, told }
    }
}

impl Stack {
    /// A core's turn of its shard: packets, timers, remote calls.
    pub fn turn_owned(&self, number: usize, core: &mut Core, now: Instant) -> bool {
        let cell = &self.cells[number];
        let mut held = lock(cell, number);
        let now = held.shard.no_earlier(now);
        let mut work = rx::take_received(&mut held, now);
        if held.shard.timers_are_due(now) {
            held.shard.run_timers(now);
        }
        for (link, told) in core.told.iter_mut().enumerate() {
            // Relaxed: the flag alone; the thread that set it rings.
            if !*told && self.ports[link].gone.load(Relaxed) {
                *told = true;
                let last = self.ports.iter().all(|port| port.gone.load(Relaxed));
                held.shard.link_gone(link, last, now);
            }
        }
        if let Some(server) = &mut core.call_server {
            work |= server.serve(&mut held) > 0;
        }
        self.leave(cell, held, now);
        work
    }

    /// Turns a link once: packets of its shards, received packets, timers. True if there was work.
    pub fn turn_link(&self, number: usize, now: Instant) -> bool {
        let _giant = self.giant.as_deref().map(Giant::enter);
        match &self.ports[number].halves {
            Some(halves) => self.turn(number, &mut halves.receive.lock(), &halves.interface, now),
            None => self.turn_own(now),
        }
    }

    /// Turns a link, unless a thread is at it, which may be this one: then `None`.
    pub(super) fn turn_if_free(
        &self,
        number: usize,
        halves: &Halves,
        now: Instant,
    ) -> Option<bool> {
        let mut side = halves.receive.try_lock()?;
        Some(self.turn(number, &mut side, &halves.interface, now))
    }

    fn turn(
        &self,
        number: usize,
        side: &mut Receive,
        interface: &Mutex<Interface>,
        now: Instant,
    ) -> bool {
        let work = self.turn_halves(side, interface, now);
        self.tell_if_gone(number, now);
        work
    }

    #[inline(always)]
    pub(super) fn turn_halves(
        &self,
        side: &mut Receive,
        interface: &Mutex<Interface>,
        now: Instant,
    ) -> bool {
        let before = stages::enter(Stage::Link);
        let mut work = self.turn_interface(side, &mut interface.lock(), now);
        work |= rx::receive(self, side, interface, now);
        stages::back(before);
        work
    }

    /// What the transmitting half has to do of itself: packets of its shards, timers, and packets that come back from it.
    #[inline]
    fn turn_interface(&self, side: &mut Receive, interface: &mut Interface, now: Instant) -> bool {
        let sent = tx::transmit_from_channels(interface, now) > 0;
        self.look_after(interface, now);
        interface.take_call(); // this is that turn
        rx::take_returns(self, side, interface, now) || sent
    }

    /// The shards learn that a link is gone.
    #[inline(always)]
    pub(super) fn tell_if_gone(&self, number: usize, now: Instant) {
        if let Some(last) = self.newly_gone(number) {
            self.tell_gone(number, last, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_gone(&self, number: usize, last: bool, now: Instant) {
        if self.layout.holder == Holder::Core {
            // Each finds it out in its next turn.
            return self.cells.iter().for_each(|cell| _ = cell.doorbell.ring());
        }
        for shard in 0..self.cells.len() {
            self.with_shard_at(shard, now, |shard, now| shard.link_gone(number, last, now));
        }
    }

    /// Turns the links that are a shard's own.
    fn turn_own(&self, now: Instant) -> bool {
        self.hold(0, now, |held, now| {
            let Held {
                shard,
                ways: Ways::Own(links),
            } = held
            else {
                return false;
            };
            let work = rx::receive_own(self, shard, links, now);
            // What that led to goes out before the last look: it may be for ourselves.
            shard.finish(now);
            tx::hand_out(self, held, now);
            work | held
                .own_links()
                .iter()
                .any(|link| link.interface.has_returns())
        })
    }

    /// Whether a link has just gone for good, which its connections and listeners learn once (ENETDOWN); then whether it was the last one.
    #[inline]
    pub fn newly_gone(&self, number: usize) -> Option<bool> {
        let port = &self.ports[number];
        // Relaxed: the flag alone; a thread that sees it takes the shard's lock.
        if !port.gone.load(Relaxed) || port.told.swap(true, Relaxed) {
            return None;
        }
        Some(self.ports.iter().all(|p| p.gone.load(Relaxed)))
    }

    /// Timers of an interface, and frames that found its link full.
    #[inline]
    pub fn look_after(&self, interface: &mut Interface, now: Instant) {
        if interface.is_time_to_look(now) {
            interface.run_timers(now);
        }
        if interface.has_frames() {
            tx::flush(interface, now);
        }
    }

    /// Turns all links, for stacks without threads.
    pub fn turn_links(&self) -> bool {
        let now = self.clock.now();
        if self.owns_links {
            return self.turn_own(now);
        }
        let _giant = self.giant.as_deref().map(Giant::enter);
        let mut work = false;
        for (number, port) in self.ports.iter().enumerate() {
            work |= port
                .halves
                .as_ref()
                .and_then(|halves| self.turn_if_free(number, halves, now))
                .unwrap_or(false);
        }
        work
    }

    /// Turns all links and shards once. True if there was work.
    pub fn turn_all(&self) -> bool {
        let mut work = self.turn_links();
        if self.layout.handoff == Handoff::Call {
            // The shards were called with what came in, and have sent what followed from it: only their timers are left.
            self.run_called_timers(self.clock.now(), false);
            return work;
        }
        for number in 0..self.cells.len() {
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

    /// Turns a shard that the attendant has now, and calls it for what is left.
    pub fn turn_for_attendant(&self, number: usize) {
        if self.turn_shard(number)
            && let Some(line) = &self.cells[number].line
        {
            line.ring(true);
        }
    }

    /// Serves the timers of shards that are called, not fed by channels; in vain sometimes, of a shard that another thread holds, if the caller
    /// is `busy`: has more to do than wait for it.
    pub fn run_called_timers(&self, now: Instant, busy: bool) {
        if self.layout.backlogs {
            return self.look_after_shards(now, busy);
        }
        for (number, cell) in self.cells.iter().enumerate() {
            if cell.next_timer() <= now {
                self.hold(number, now, |_, _| ());
            }
        }
    }
}
