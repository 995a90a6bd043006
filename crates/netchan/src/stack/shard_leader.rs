//! The leader of a channel-fed shard: of several threads that wait for the same shard, one turns it for all, the others follow. Which thread polls the
//! links is another question ([`super::link_leader`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use percore::operations::{Operation, count};

use crate::channel::BackgroundCall;

/// No thread leads.
const FREE: u32 = 0;
/// A thread of the application leads.
const LED: u32 = 1;
/// The background poller has the shard.
const BACKGROUND: u32 = 2;

/// Which thread turns a channel-fed shard.
#[derive(Debug)]
pub struct ShardLeader {
    state: AtomicU32,
    /// Threads that follow.
    pub followers: AtomicUsize,
    /// How often a thread came to follow; wraps.
    arrivals: AtomicU32,
    /// How often a thread came to lead, or turned the shard in the place of a leader; wraps.
    terms: AtomicU32,
    /// A thread waits for this shard and does not follow: the leader that stops leaves the shard to the background poller (where there are several shards).
    wanted: AtomicBool,
}

impl Default for ShardLeader {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            followers: AtomicUsize::new(0),
            arrivals: AtomicU32::new(0),
            terms: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
        }
    }
}

impl ShardLeader {
    /// Makes the calling thread the leader, unless another one leads, and disarms the shard's call to the background poller.
    pub fn lead(&self, call: Option<&BackgroundCall>) -> bool {
        count(Operation::Rmw, 1);
        // SeqCst throughout: changes a few thousand times a second at most, and is read with `followers` and `wanted`.
        let leads = self.state.swap(LED, Ordering::SeqCst) != LED;
        if !leads {
            return false;
        }
        self.turned();
        if let Some(call) = call {
            call.disarm();
        }
        true
    }

    /// A thread turns the shard, as its leader or by a call while it has none: the background poller leaves it alone for some more ticks.
    pub fn turned(&self) {
        // Relaxed, and no atomic addition: of turns at the same time one may be missed. Then the background poller takes the shard a tick too early or
        // too late, which costs wake-ups and loses nothing.
        let terms = self.terms.load(Ordering::Relaxed);
        self.terms.store(terms.wrapping_add(1), Ordering::Relaxed);
    }

    /// Makes the calling thread a follower. It tries once more to lead after this. SeqCst: pairs with [`Self::leave`] and the look at
    /// [`Self::arrivals`] after it.
    pub fn follow(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        self.followers.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends what [`Self::follow`] began.
    pub fn stop_following(&self) {
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }

    /// How often a thread came to follow; wraps.
    pub fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::SeqCst)
    }

    /// For a thread that waits for the shard and does not follow: whether the background poller has it now. If not, it will when the leader stops.
    pub fn hand_over(&self) -> bool {
        // SeqCst: before the look at `state`; pairs with `leave`, which looks the other way round.
        self.wanted.store(true, Ordering::SeqCst);
        self.leave_to_background()
    }

    /// Leaves the shard to the background poller, unless a thread leads it; whether the background poller has it now.
    pub fn leave_to_background(&self) -> bool {
        let order = Ordering::SeqCst;
        let was = self.state.compare_exchange(FREE, BACKGROUND, order, order);
        matches!(was, Ok(_) | Err(BACKGROUND))
    }

    /// The leader stops leading. SeqCst: of this and the look at followers, and at threads that wait elsewhere, their own look at `state` is before or
    /// after both.
    pub fn leave(&self) -> Left {
        self.state.store(FREE, Ordering::SeqCst);
        if self.wanted.load(Ordering::SeqCst) && self.wanted.swap(false, Ordering::SeqCst) {
            Left::Wanted
        } else if self.followers.load(Ordering::SeqCst) > 0 {
            Left::Followed
        } else {
            Left::Alone
        }
    }

    /// How often a thread came to lead, or turned the shard in the place of a leader; wraps. Compared with an earlier answer, it tells whether one has
    /// since.
    pub fn terms(&self) -> u32 {
        self.terms.load(Ordering::Relaxed)
    }

    /// Whether neither a thread of the application leads the shard nor the background poller has it.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE // a hint, as the next two
    }

    /// Whether a thread of the application leads the shard.
    pub fn is_led(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LED
    }

    /// Whether the background poller has the shard.
    pub fn is_in_background(&self) -> bool {
        self.state.load(Ordering::Relaxed) == BACKGROUND
    }

    /// What turns the shard, for `netchan show`.
    pub fn holder(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            FREE => "no thread",
            LED => "application",
            _ => "netchan-poll",
        }
    }
}

/// What a thread that stopped leading left behind.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// A shard for which no thread waits.
    Alone,
    /// A shard with followers.
    Followed,
    /// A shard for which a thread waits that does not follow.
    Wanted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_that_stops_learns_which_threads_wait() {
        let leader = ShardLeader::default();
        leader.state.store(LED, Ordering::SeqCst);
        assert!(!leader.leave_to_background(), "a thread leads");
        assert_eq!(leader.leave(), Left::Alone);
        leader.follow();
        assert_eq!(leader.leave(), Left::Followed);
        assert!(leader.leave_to_background() && leader.is_in_background());
        leader.state.store(LED, Ordering::SeqCst);
        assert!(!leader.hand_over(), "later, then");
        assert_eq!(leader.leave(), Left::Wanted);
        assert_eq!(leader.leave(), Left::Followed, "once");
    }
}
