//! The link leader ([`percore::leader`]): a thread that waits for a socket polls the links itself, so that a packet wakes one thread, not two.
//!
//! * The link leader sleeps on the links' descriptors together with what else it waits for. It receives, classifies, and hands over to the shards'
//!   channels as a link's thread does; then it turns its own shard.
//! * Where links have several queues, each lane of them ([`Lane`](super::driver_side::Lane)) has a leader of its own: the leader of one of its shards.
//! * While an application's thread leads the links, or is away for a moment, what shards send goes out in the thread that sends it.
//! * A link leader whose turn woke another thread, and nothing for itself, retires: the woken thread is mostly the next that waits, and leads then.
//!   So the thread leads that has the traffic, and the other ones sleep until they have some.
//! * Calls that send or receive while the link leader is away look at the links, at most every 100 µs; and so do sends where a stack has no threads.
//! * What applications send that have leases comes by bells of their own, on which the links' threads sleep also while another thread leads.
//! * The links' threads poll in the background. They take over when no thread has polled for the stack's `background` interval, while other threads
//!   wait for half a millisecond.
//!
//! A shard at the end of a channel has a leader of its own ([`super::shard_leader`]). Only the leader of a shard becomes the link leader.
//! Where shards are called (`locked`) there is one leader, by the name of the first shard, which runs the timers of all.
//!
//! Where links have no descriptor to sleep on, or packets are to wake a thread only once in a while (`moderation`), the links' threads poll always.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use percore::{
    doorbell::Sleep,
    leader::{Led, Rest},
};
use proto::time::Instant;

use super::{
    Stack,
    driver_side::Lane,
    sleep::{asleep, timeout},
    tx, watch,
};
use crate::regime::{Handoff, Holder};

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
    /// Whether threads that wait may poll the links in this regime: the others have threads that define them, or one lock that would be held for it.
    fn regime_has_leaders(&self) -> bool {
        match self.layout.holder {
            Holder::Application => true,
            Holder::Anyone => !self.layout.giant,
            Holder::Core | Holder::Network => false,
        }
    }

    /// Whether threads that wait have a leader at all: where shards are called, only for the links.
    pub fn has_leaders(&self) -> bool {
        match self.layout.holder {
            Holder::Application => true,
            Holder::Anyone => self.driver.can_be_led(),
            Holder::Core | Holder::Network => false,
        }
    }

    /// Whether one leader serves all sockets: there is one shard, or packets reach the shards by calls.
    pub fn has_one_leader(&self) -> bool {
        self.sockets.cells.len() == 1 || self.layout.handoff == Handoff::Call
    }

    /// Whether threads that wait poll the links, as far as the regime and the links go.
    pub fn may_lead_links(&self) -> bool {
        let has_fd = |number: usize| {
            self.driver.queues[number].kind == "lo"
                || self.with_receive(number, |r| r.link.fd().is_some())
        };
        self.threaded
            && !self.stepped
            && !self.driver.background.is_zero()
            && self.regime_has_leaders()
            && self.driver.moderation.is_zero()
            && self.driver.links.len() <= LINKS_MAX
            && (0..self.driver.queues.len()).all(has_fd)
    }

    /// Makes the calling thread, which leads a shard, the leader of the shard's lane; false if it may not be, or another one is.
    pub fn lead_links(&self, shard: usize) -> bool {
        if !self.driver.can_be_led() || self.sockets.polls_in_background() {
            return false;
        }
        match self.driver.lane_of_shard(shard).leader.lead() {
            None => return false,
            Some(Led::Again) => {}
            Some(Led::Anew) => self.call_lane(shard),
        }
        true
    }

    /// Wakes the threads of the queues in a shard's lane.
    fn call_lane(&self, shard: usize) {
        for queue in self.driver.queues_in_lane_of(shard) {
            self.driver.queues[queue].doorbell.ring();
        }
    }

    /// The link leader has something else to do: it will be back, or another thread that comes to wait leads next. Else a link's thread takes over.
    pub fn stop_leading_links(&self, shard: usize) {
        if self.driver.lane_of_shard(shard).leader.leave() {
            self.call_lane(shard);
        }
    }

    /// Whether there is one shard, and the link leader is away: a link's thread looks after that, and wakes the background poller when it takes the links over.
    pub fn awaits_link_leader(&self) -> bool {
        self.sockets.cells.len() == 1 && self.driver.lane_of_shard(0).leader.is_away()
    }

    /// Whether threads wait beside the calling one, which does.
    pub fn others_wait(&self) -> bool {
        self.sockets.waiting.load(Relaxed) > 1 // a hint
    }

    /// How long the link leader may be away.
    fn interval(&self) -> Duration {
        let leaders = self.driver.lanes.iter().map(|lane| &lane.leader);
        let leaders = leaders
            .filter(|leader| leader.is_led() && !leader.is_away())
            .count();
        if self.sockets.waiting.load(Relaxed) > leaders || self.driver.lends() {
            self.driver.background.min(INTERVAL_FOLLOWED)
        } else {
            self.driver.background
        }
    }

    /// A queue's thread has taken its lane over: the background poller turns the lane's shards that no thread leads, at once where other threads wait.
    fn leave_shards(&self, lane: usize) {
        if self.layout.handoff == Handoff::Call {
            return; // its next turn sees to them
        }
        self.sockets.background.wake();
        if self.sockets.waiting.load(Relaxed) == 0 {
            return;
        }
        for number in (lane..self.sockets.cells.len()).step_by(self.driver.lanes.len()) {
            if self.leave_to_background(number) {
                self.turn_in_background(number);
            }
        }
    }

    /// For a queue's thread, while another thread leads its lane: rests until it has to look at its queue. `seen` is its own.
    pub fn rest(&self, queue: usize, seen: &mut u32) {
        let (bell, lane) = (
            &self.driver.queues[queue].doorbell,
            self.driver.queues[queue].lane,
        );
        let how = self.arm(queue, Sleep::Futex);
        let now = self.clock.now();
        if queue == 0 && self.layout.backlogs {
            self.take_backlogs(now); // of shards whose holders passed by
        }
        // Once more after arming: a thread that sent before it knew of the leader has rung, perhaps in vain.
        self.send_led(1 << queue, now);
        // Another thread may have started a timer since the leader fell asleep.
        let event = self.next_event_of(queue);
        if event <= now {
            self.turn_link(queue, now);
        }
        let until = match self.driver.lane_of(queue).leader.rest(seen) {
            Rest::Poll => now,
            Rest::TakeOver => {
                let others = self.driver.queues_in_lane_of(lane);
                for other in others.filter(|&other| other != queue) {
                    self.driver.queues[other].doorbell.ring();
                }
                self.leave_shards(lane);
                now
            }
            Rest::Interval => now + self.interval(),
            Rest::Sleep => Instant::FAR,
        };
        let until = until.min(event);
        if until > now && self.may_sleep(queue, how) && !self.is_stopping() {
            watch::asleep(now);
            asleep(self, until, now, || match how {
                Sleep::Futex => _ = bell.wait(timeout(until, now)),
                Sleep::Fd => _ = self.sleep_on_bells(queue, None, until, now), // EINTR ends it, nothing more
            });
        }
        bell.disarm();
    }

    /// Sends what shards have put into the channels to `queues` (a bit each), in the calling thread: while they have a leader, present or away.
    #[inline(never)]
    pub fn send_led(&self, mut queues: u64, now: Instant) {
        let mut returned = false;
        while queues != 0 {
            let number = queues.trailing_zeros() as usize;
            queues &= queues - 1;
            let Some(halves) = &self.driver.queues[number].halves else {
                continue;
            };
            let mut interface = halves.interface.lock();
            tx::transmit_from_channels(&mut interface, now);
            tx::pass_to_first(&self.driver, number, &mut interface, now);
            let (has_returns, has_frames) = (interface.has_returns(), interface.has_frames());
            let timer_moved = interface.take_timer_moved();
            drop(interface);
            self.tell_if_gone(number, now); // the thread that is at the link sleeps perhaps, and its descriptor may say nothing
            // The thread that is at the link (it may be this one) may be past its look at what comes back.
            let is_own = self.driver.own == Some(number) && self.returns_at_once();
            if is_own {
                // Whatever another thread has taken of it by then is in the channels afterwards.
                self.turn(number, &mut halves.receive.lock(), &halves.interface, now);
            }
            let is_left =
                !is_own && has_returns && self.turn_if_free(number, halves, now).is_none();
            if is_left || timer_moved || has_frames {
                self.driver.queues[number].doorbell.ring(); // the thread that rests sleeps until then
            }
            returned |= is_own || (has_returns && !is_left);
        }
        if returned {
            self.take_returned();
        }
    }

    /// For a call that does not wait, and turns shard `number` next: while the link leader is away, or where the stack has no threads, looks at the
    /// links, if that was not just done.
    #[inline]
    pub fn look_if_away(&self, number: usize, now: Instant) {
        let lane = self.driver.lane_of_shard(number);
        if (lane.leader.is_away() || !self.threaded) && lane.looked() + LOOK <= now {
            self.look(number, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, number: usize, now: Instant) {
        self.turn_led(number, now);
        if self.layout.handoff == Handoff::Call {
            return self.run_called_timers(now, true);
        }
        self.sockets.cells[number].leader.turned();
    }

    /// For a thread that leads: turns the shard that it leads. Where shards are called, runs the timers of all. As [`Self::turn_shard`].
    #[inline]
    pub fn turn_waiting(&self, number: usize) -> bool {
        if self.layout.handoff == Handoff::Call {
            self.run_called_timers(self.clock.now(), false);
            return false;
        }
        self.turn_shard(number)
    }

    /// When the timers are due that [`Self::turn_waiting`] runs.
    pub fn next_timer_of_waiting(&self, number: usize) -> Instant {
        if self.layout.handoff == Handoff::Call {
            return self.next_called_timer();
        }
        self.sockets.cells[number].next_timer()
    }

    /// Turns the queues in a shard's lane, as their leader or in its place.
    pub fn turn_led(&self, shard: usize, now: Instant) -> bool {
        let lane = self.driver.lane_of_shard(shard);
        lane.looked.store(now.0, Relaxed); // a hint
        lane.leader.polled();
        if self.driver.lanes.len() == 1 {
            return self.turn_links();
        }
        let queues = self.driver.queues_in_lane_of(shard);
        queues.fold(false, |work, queue| {
            self.turn_queue_if_free(queue, now) | work
        })
    }

    /// Turns the lanes whose leaders are away, and what is due. True if a link had work. The links' threads rest as long as a program calls this often enough:
    /// timers are its work, too.
    pub fn turn_lanes_away(&self) -> bool {
        self.turn_lanes(|lane| lane.leader.is_away())
    }

    /// The same of all lanes but those at which another thread is just then.
    pub fn turn_all_lanes(&self) -> bool {
        self.turn_lanes(|_| true)
    }

    fn turn_lanes(&self, its: impl Fn(&Lane) -> bool) -> bool {
        let now = self.clock.now();
        let (mut is_any, mut work) = (false, false);
        for (shard, lane) in self.driver.lanes.iter().enumerate() {
            if its(lane) {
                is_any = true;
                work |= self.turn_led(shard, now);
            }
        }
        if !is_any {
            return false;
        }
        if self.layout.handoff == Handoff::Call {
            self.run_called_timers(now, true);
            return work;
        }
        for (number, cell) in self.sockets.cells.iter().enumerate() {
            if work || (cell.next_timer() <= now && !cell.leader.is_led()) {
                self.turn_in_background(number);
            }
        }
        work
    }

    /// Whether application's threads poll a queue: its lane's leader waits, or calls have looked at the lane within the interval.
    pub fn is_polled_by_calls(&self, queue: usize, now: Instant) -> bool {
        let lane = self.driver.lane_of(queue);
        let is_away = lane.leader.is_away();
        lane.leader.is_led() && (!is_away || now < lane.looked() + self.interval())
    }
}
