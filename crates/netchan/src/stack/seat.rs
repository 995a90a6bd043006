//! The seat of a channel-fed shard: which thread turns it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use percore::operations::{Operation, count};

use crate::channel::BackgroundCall;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const BACKGROUND: u32 = 2;

/// Which thread turns a channel-fed shard.
#[derive(Debug)]
pub struct Seat {
    state: AtomicU32,
    /// Threads that came second.
    pub standing: AtomicUsize,
    /// How often one came second; wraps.
    arrivals: AtomicU32,
    /// How often it was taken; wraps. Written by the thread that has taken it.
    terms: AtomicU32,
    /// A thread waits for this shard elsewhere: one that gets up leaves it to the background poller (where there are several shards).
    wanted: AtomicBool,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            standing: AtomicUsize::new(0),
            arrivals: AtomicU32::new(0),
            terms: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
        }
    }
}

impl Seat {
    /// Takes the seat, if no other thread sits there, and disarms the shard's call to the background poller.
    pub fn take(&self, call: Option<&BackgroundCall>) -> bool {
        count(Operation::Rmw, 1);
        // SeqCst throughout: changes hands a few thousand times a second at most, and is read with `standing` and `wanted`.
        let taken = self.state.swap(TAKEN, Ordering::SeqCst) != TAKEN;
        if !taken {
            return false;
        }
        // Relaxed: one after the other; a tick that sees it late is one more.
        let terms = self.terms.load(Ordering::Relaxed);
        self.terms.store(terms.wrapping_add(1), Ordering::Relaxed);
        if let Some(call) = call {
            call.disarm();
        }
        true
    }

    /// Comes second. The caller looks at the seat once more after this. SeqCst: pairs with [`Self::leave`] and the look at [`Self::arrivals`] after it.
    pub fn stand(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        self.standing.fetch_add(1, Ordering::SeqCst);
    }

    /// How often a thread came second.
    pub fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::SeqCst)
    }

    /// For a thread that waits elsewhere: whether the background poller has the shard now. If not, it will when the thread that sits there gets up.
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

    /// Gets up. SeqCst: of this and the look at threads that stand, or wait elsewhere, their own look at `state` is before or after both.
    pub fn leave(&self) -> Left {
        self.state.store(FREE, Ordering::SeqCst);
        if self.wanted.load(Ordering::SeqCst) && self.wanted.swap(false, Ordering::SeqCst) {
            Left::Wanted
        } else if self.standing.load(Ordering::SeqCst) > 0 {
            Left::Crowded
        } else {
            Left::Empty
        }
    }

    /// How often it was taken; wraps. Compared with an earlier answer, it tells whether it has been since.
    pub fn terms(&self) -> u32 {
        self.terms.load(Ordering::Relaxed)
    }

    /// No thread sits here.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE // a hint, as the next two
    }

    /// A thread of the application sits here.
    pub fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKEN
    }

    /// The background poller turns it.
    pub fn is_in_background(&self) -> bool {
        self.state.load(Ordering::Relaxed) == BACKGROUND
    }

    /// What turns the shard, for `netchan show`.
    pub fn holder(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            FREE => "no thread",
            TAKEN => "application",
            _ => "netchan-poll",
        }
    }
}

/// What a thread that got up left behind.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// A shard for which no thread waits.
    Empty,
    /// Threads that wait for it and do not sit.
    Crowded,
    /// A thread that waits for it elsewhere.
    Wanted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gets_up_learns_which_are_left() {
        let seat = Seat::default();
        seat.state.store(TAKEN, Ordering::SeqCst);
        assert!(!seat.leave_to_background(), "a thread sits there");
        assert_eq!(seat.leave(), Left::Empty);
        seat.standing.store(1, Ordering::SeqCst);
        assert_eq!(seat.leave(), Left::Crowded);
        assert!(seat.leave_to_background() && seat.is_in_background());
        seat.state.store(TAKEN, Ordering::SeqCst);
        assert!(!seat.hand_over(), "later, then");
        assert_eq!(seat.leave(), Left::Wanted);
        assert_eq!(seat.leave(), Left::Crowded, "once");
    }
}
