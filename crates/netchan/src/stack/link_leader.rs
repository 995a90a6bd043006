//! The link leader ([`percore::leader`]): a thread that waits for a socket polls the links itself, so that a packet wakes one thread, not two.
//!
//! * The link leader sleeps on the links' descriptors together with what else it waits for. It receives, classifies, and hands over to the shards'
//!   channels as a link's thread does; then it turns its own shard.
//! * While an application's thread leads the links, or is away for a moment, what shards send goes out in the thread that sends it.
//! * A link leader whose turn woke another thread, and nothing for itself, retires: the woken thread is mostly the next that waits, and leads then.
//!   So the thread leads that has the traffic, and the other ones sleep until they have some.
//! * Calls that send or receive while the link leader is away look at the links, at most every 100 µs; and so do sends where a stack has no threads.
//! * The links' threads poll in the background. They take over when no thread has polled for the stack's `background` interval, while other threads
//!   wait for half a millisecond.
//!
//! A shard at the end of a channel has a leader of its own ([`super::shard_leader`]). Only the leader of a shard becomes the link leader.
//!
//! Where links have no descriptor to sleep on, or packets are to wake a thread only once in a while (`moderation`), the links' threads poll always.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use percore::{
    doorbell::Sleep,
    leader::{Led, Rest},
};
use proto::time::Instant;

use super::{Stack, sleep::asleep, tx, watch};
use crate::regime::Holder;

/// How long the link leader may be away before a link's thread takes over, unless a setting says otherwise. Peers' timers are 40 ms (delayed
/// acknowledgments) and 200 ms (retransmission) at least; taking the links over and giving them back costs two wake-ups.
pub(crate) const INTERVAL: Duration = Duration::from_millis(5);

/// As [`INTERVAL`], while other threads wait, which could be served meanwhile.
const INTERVAL_FOLLOWED: Duration = Duration::from_micros(500);

/// Between two looks at the links by calls that do not wait, while the link leader is away.
const LOOK: Duration = Duration::from_micros(100);

/// Most links that one thread polls.
const LINKS_MAX: usize = 8;

impl Stack {
    /// Whether threads that wait poll the links, as far as the regime and the links go.
    pub fn may_lead_links(&self) -> bool {
        let has_fd = |number: usize| {
            self.driver.interfaces[number].kind == "lo"
                || self.with_receive(number, |r| r.link.fd().is_some())
        };
        self.threaded
            && !self.stepped
            && !self.driver.background.is_zero()
            && self.layout.holder == Holder::Application
            && self.driver.moderation.is_zero()
            && self.driver.interfaces.len() <= LINKS_MAX
            && (0..self.driver.interfaces.len()).all(has_fd)
    }

    /// Makes the calling thread, which waits, the link leader; false if it may not be, or another one is.
    pub fn lead_links(&self) -> bool {
        // Relaxed: written once, before there are sockets.
        if !self.driver.can_lead.load(Relaxed) || self.sockets.polls_in_background() {
            return false;
        }
        match self.driver.leader.lead() {
            None => return false,
            Some(Led::Again) => {}
            Some(Led::Anew) => self.driver.call_all_links(),
        }
        true
    }

    /// The link leader has something else to do: it will be back, or another thread that comes to wait leads next. Else a link's thread takes over.
    pub fn stop_leading_links(&self) {
        if self.driver.leader.leave() {
            self.driver.call_all_links();
        }
    }

    /// Whether there is one shard, and the link leader is away: a link's thread looks after that, and wakes the background poller when it takes the links over.
    pub fn awaits_link_leader(&self) -> bool {
        self.sockets.cells.len() == 1 && self.driver.leader.is_away()
    }

    /// Whether threads wait beside the calling one, which does.
    pub fn others_wait(&self) -> bool {
        self.sockets.waiting.load(Relaxed) > 1 // a hint
    }

    /// How long the link leader may be away.
    fn interval(&self) -> Duration {
        let leaders = usize::from(!self.driver.leader.is_away());
        if self.sockets.waiting.load(Relaxed) > leaders {
            self.driver.background.min(INTERVAL_FOLLOWED)
        } else {
            self.driver.background
        }
    }

    /// A link's thread has taken the links over: the background poller turns the shards that no thread leads, at once where other threads wait.
    fn leave_shards(&self) {
        self.sockets.background.wake();
        if self.sockets.waiting.load(Relaxed) == 0 {
            return;
        }
        for number in 0..self.sockets.cells.len() {
            if self.leave_to_background(number) {
                self.turn_in_background(number);
            }
        }
    }

    /// For a link's thread, while another thread leads the links: rests until it has to look at its link. `seen` is its own.
    pub fn rest(&self, link: usize, seen: &mut u32) {
        let bell = &self.driver.interfaces[link].doorbell;
        bell.arm(Sleep::Futex);
        let now = self.clock.now();
        // Once more after arming: a thread that sent before it knew of the leader has rung, perhaps in vain.
        self.send_led(1 << link, now);
        // Another thread may have started a timer since the leader fell asleep.
        let event = self.next_event_of(link);
        if event <= now {
            self.turn_link(link, now);
        }
        let until = match self.driver.leader.rest(seen) {
            Rest::Poll => now,
            Rest::TakeOver => {
                let others = self
                    .driver
                    .interfaces
                    .iter()
                    .enumerate()
                    .filter(|&(other, _)| other != link);
                others.for_each(|(_, other)| _ = other.doorbell.ring());
                self.leave_shards();
                now
            }
            Rest::Interval => now + self.interval(),
            Rest::Sleep => Instant::FAR,
        };
        let until = until.min(event);
        if until > now && !self.is_stopping() {
            watch::asleep(now);
            let timeout = (until != Instant::FAR).then(|| until.since(now));
            asleep(self, until, now, || bell.wait(timeout));
        }
        bell.disarm();
    }

    /// Sends what shards have put into the channels to `links` (a bit each), in the calling thread: while the links have a leader, present or away.
    #[inline(never)]
    pub fn send_led(&self, mut links: u64, now: Instant) {
        while links != 0 {
            let number = links.trailing_zeros() as usize;
            links &= links - 1;
            let Some(halves) = &self.driver.interfaces[number].halves else {
                continue;
            };
            let mut interface = halves.interface.lock();
            tx::transmit_from_channels(&mut interface, now);
            let (has_returns, has_frames) = (interface.has_returns(), interface.has_frames());
            let timer_moved = interface.take_timer_moved();
            drop(interface);
            // The thread that is at the link (it may be this one) may be past its look at what comes back.
            let is_left = has_returns && self.turn_if_free(number, halves, now).is_none();
            if is_left || timer_moved || has_frames {
                self.driver.interfaces[number].doorbell.ring(); // the thread that rests sleeps until then
            }
        }
    }

    /// For a call that does not wait, and turns shard `number` next: while the link leader is away, or where the stack has no threads, looks at the
    /// links, if that was not just done.
    #[inline]
    pub fn look_if_away(&self, number: usize, now: Instant) {
        if (self.driver.leader.is_away() || !self.threaded) && self.looked() + LOOK <= now {
            self.look(number, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, number: usize, now: Instant) {
        self.turn_led(now);
        self.sockets.cells[number].leader.turned();
    }

    /// Turns the links, as their leader or in its place.
    pub fn turn_led(&self, now: Instant) -> bool {
        self.driver.looked.store(now.0, Relaxed); // a hint
        self.driver.leader.polled();
        self.turn_links()
    }

    /// When an application's thread last turned the links.
    fn looked(&self) -> Instant {
        Instant(self.driver.looked.load(Relaxed))
    }

    /// Whether application's threads poll the links: the link leader waits, or calls have looked at them within the interval.
    pub fn is_polled_by_calls(&self, now: Instant) -> bool {
        let leader = &self.driver.leader;
        leader.is_led() && (!leader.is_away() || now < self.looked() + self.interval())
    }
}
